"""Kept parameters: with each run, from the fit to copies, and models that are made of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from manyseed import Sweep
from manyseed.jobs import parameters
from manyseed.jobs.parameters import ModelArrays
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import Trainer, run_hparams
from manyseed.jobs.training.handling import unpacked
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.sweepfile import Keep
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_sweep
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.store.schema import GroupSpec
from tests.orchestrator.conftest import command, inside, shared, stored, train, write

TEXT = """
name    = "alive"
seed    = 5
repeats = 1
runs    = 2
keep    = { parameters = true }

[[grid]]
dataset        = ["digits"]
classifier     = ["net"]
hparams        = ["grid"]
train_fraction = [100]

[[grid]]
dataset            = ["digits"]
classifier         = ["dense", "lr-sgd", "svm-sgd", "cnn", "vit"]
train_fraction     = [100]
perturb_continuous = ["relative:0.1"]

[dataset.digits]
source = "sklearn:digits"
test   = 0.1

[classifier.net]
kind   = "convnet"
epochs = 2
grid   = { depth = [1, 2], batch_norm = [true, false], lr = [0.001, 0.01] }
hparams = { width = 3 }

[classifier.dense]
kind    = "mlp"
epochs  = 2
hparams = { width1 = 40, width2 = 32 }

[classifier.cnn]
epochs = 1

[classifier.vit]
epochs = 1
"""
KEEP = "keep    = { parameters = true }\n"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "parameters", TEXT)


def runs_of(sweep: Sweep):
    """Yield each group with the run, the row and the arrays of each of its models."""
    plan = Plan.read(sweep.paths)
    for group in list_groups(sweep.paths.store):
        values = read_array(group, "parameters")
        layouts = [ModelArrays.from_attributes(one) for one in json.loads(group.spec.parameters)]
        rows = plan.rows.filter(group=group.spec.number)
        for row in rows.iter_rows(named=True):
            run = Run(plan.cell(row["cell"]), row["repeat"], row["run"])
            (own,) = (one for one in layouts if one.fits(run_hparams(run)))
            yield group, run, row["row"], unpacked(own.arrays, values[row["row"]])


def test_a_model_made_of_them_predicts_what_was_predicted_bit_for_bit(kept: Sweep) -> None:
    trainer, checked = Trainer(), set()
    for group, run, row, state in runs_of(kept):
        data = trainer.training_set(run)
        alive = parameters.revive(run.cell, run_hparams(run), data, state)
        scores = alive.predict(alive.encode(data.X_test)).astype(np.float32)
        of_run = read_array(group, group.spec.score_name)[row, 0]
        np.testing.assert_array_equal(scores, of_run)
        again = alive.state()
        assert list(again) == list(state)
        for name, values in state.items():
            assert again[name].tobytes() == values.tobytes()
        checked.add(group.spec.classifier)
    assert checked == {"net", "dense", "lr-sgd", "svm-sgd", "cnn", "vit"}


def test_they_are_of_a_rows_own_size_and_whole_numbers_come_back(kept: Sweep) -> None:
    lengths = {}
    for group, run, row, state in runs_of(kept):
        values = read_array(group, "parameters")[row]
        known = int(np.isfinite(values).sum())
        assert np.isnan(values[known:]).all()
        lengths.setdefault(group.spec.classifier, set()).add(known)
        if group.spec.classifier == "dense":
            assert state["1.num_batches_tracked"].dtype == np.int64
            assert state["1.num_batches_tracked"] == 2 * 2  # epochs, batches of 64 of 100 rows
        del run
    assert len(lengths.pop("net")) == 4
    assert all(len(found) == 1 for found in lengths.values())
    assert {g.spec.array("parameters").dtype for g in list_groups(kept.paths.store)} == {
        "float32",
        "float64",  # of linear models, which are fitted in double precision
    }


@pytest.mark.slow
def test_predictions_are_those_of_a_sweep_without(kept: Sweep, tmp_path: Path) -> None:
    text = TEXT.replace(KEEP, "")
    plain = stored(train(write(tmp_path / "p.toml", text), tmp_path / "plain", workers=2))
    with_them = stored(kept)
    for path, arrays in plain.items():
        for name, values in arrays.items():
            if name not in ("crc", "fit_seconds", "recipe"):
                found = with_them[path][name]
                if name not in ("test_index", "y_true"):  # of runs, and shards are shorter
                    done = np.flatnonzero(arrays["status"] == 1)
                    found, values = found[done], values[done]
                np.testing.assert_array_equal(found, values, err_msg=f"{path} {name}")
    for spec in Groups.read(SweepPaths(tmp_path / "plain")).specs:
        assert spec.to_attributes()["layout"] == 1
        assert "parameters" not in spec.to_attributes()


def test_copies_and_other_readers_have_them(kept: Sweep, tmp_path: Path) -> None:
    assert inside("verify", kept.directory)[0] == 0
    kept.export(tmp_path / "a.zip")
    result = command("import", tmp_path / "a.zip", "--out", tmp_path / "again")
    assert result.returncode == 0, result.stderr
    again = Sweep(tmp_path / "again")
    assert again.verify()["findings"] == []
    for one, other in zip(
        list_groups(kept.paths.store), list_groups(again.paths.store), strict=True
    ):
        assert one.spec == other.spec
        np.testing.assert_array_equal(
            read_array(one, "parameters"), read_array(other, "parameters")
        )
    opened = xr.open_zarr(kept.paths.store, group="digits/net", consolidated=False)
    found = json.loads(opened.parameters.attrs["layouts"])
    assert [one["hparams"] for one in found] == [
        {"batch_norm": norm, "depth": depth, "width": 3}
        for norm in (False, True)
        for depth in (1, 2)
    ]
    assert found[0]["arrays"][0] == ["conv1.weight", "float32", [3, 1, 3, 3]]
    assert kept.runs("digits", "net").parameters.dims == ("run", "parameter")
    cell = int(opened.cell[0])
    assert kept.rerun(f"{cell}:0:0")["equal"]


@pytest.mark.slow
def test_what_comes_out_of_a_journal_after_damage_is_whole(kept: Sweep, tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", TEXT.replace("runs    = 2", "runs    = 1"))
    sweep = train(file, tmp_path / "s")
    before = stored(sweep)
    file = sweep.paths.store / "digits" / "net" / "parameters" / "c.0.0"
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    assert inside("verify", sweep.directory)[0] == 1
    assert inside("verify", sweep.directory, "--repair")[0] in (0, 3)
    assert inside("resume", sweep.directory, "--cluster", "local", "--watch")[0] == 0
    after = stored(sweep)
    np.testing.assert_array_equal(
        after["digits/net"]["parameters"], before["digits/net"]["parameters"]
    )
    assert inside("verify", sweep.directory)[0] == 0


def test_a_layout_is_frozen(tmp_path: Path) -> None:
    plan_sweep(write(tmp_path / "a.toml", TEXT), tmp_path / "s")
    for spec in Groups.read(SweepPaths(tmp_path / "s")).specs:
        value = json.loads(json.dumps(spec.to_attributes()))
        assert value["layout"] == 2
        assert GroupSpec.from_attributes(value) == spec
        assert value["optional"][-1]["name"] == "parameters"
        if spec.classifier == "lr-sgd":
            assert value["parameters"] == [
                {
                    "arrays": [["coef", "float64", [10, 64]], ["intercept", "float64", [10]]],
                    "hparams": {},
                }
            ]
            assert value["optional"] == [
                {
                    "name": "parameters",
                    "dtype": "float64",
                    "dims": ["parameter"],
                    "shape": [650],
                    "fill": "NaN",
                }
            ]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('classifier         = ["dense"', 'classifier = ["xgb"', "models of xgb are not arrays"),
        (
            'perturb_continuous = ["relative:0.1"]',
            'perturb_hparams = ["relative:0.1"]',
            "follow width1 and width2, which differ between runs",
        ),
        (
            'perturb_continuous = ["relative:0.1"]',
            'hparams = ["tuned"]',
            "follow width1 and width2, which differ between runs",
        ),
        (
            'perturb_continuous = ["relative:0.1"]',
            'ensembling = ["dropout"]\nexclude = [{ classifier = ["*-sgd", "cnn", "vit"] }]',
            "a run with an ensembling method has several models",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert before in TEXT
    file = write(tmp_path / "a.toml", TEXT.replace(before, after))
    with pytest.raises(UserError) as error:
        plan_sweep(file, tmp_path / "s")
    assert told in str(error.value)
    assert "keep.parameters = true" in str(error.value)
    assert not (tmp_path / "s").exists()


def test_models_beyond_256_mb_are_refused(tmp_path: Path, monkeypatch) -> None:
    file = write(tmp_path / "a.toml", TEXT)
    monkeypatch.setattr(parameters, "LARGEST", 10_000)
    with pytest.raises(UserError, match=r"models of dense are 0 MB per run; 0 MB are the most"):
        plan_sweep(file, tmp_path / "s")


def test_a_group_that_exists_takes_models_of_other_sizes_no_more(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", TEXT)
    plan_sweep(file, tmp_path / "s")
    assert plan_sweep(file, tmp_path / "s").is_empty
    more = TEXT.replace("lr = [0.001, 0.01]", "lr = [0.001, 0.01, 0.1]")
    assert not plan_sweep(write(file, more), tmp_path / "s").is_empty
    with pytest.raises(UserError, match=r"parameters of models of other sizes.* depth = 3"):
        plan_sweep(write(file, more.replace("[1, 2]", "[1, 2, 3]")), tmp_path / "s")
    told = r"is stored with keep.parameters = true; this file asks for false"
    with pytest.raises(UserError, match=told):
        plan_sweep(write(file, more.replace(KEEP, "")), tmp_path / "s")


def test_of_the_file_and_of_a_dataset_the_latter_goes_first() -> None:
    assert Keep(parameters=False).over(Keep(parameters=True)).parameters is False
    assert Keep(curves=True).over(Keep(parameters=True)).parameters


def test_torch_reads_them_without_executing_anything(kept: Sweep, tmp_path: Path) -> None:
    """The dict of arrays is a state dict."""
    state = next(state for group, _, _, state in runs_of(kept) if group.spec.classifier == "cnn")
    file = tmp_path / "model.pt"
    torch.save({name: torch.tensor(values) for name, values in state.items()}, file)
    assert [*torch.load(file, weights_only=True)] == [*state]
