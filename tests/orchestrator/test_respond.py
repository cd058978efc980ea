"""Models that were kept answer as they did when they had been trained."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from manyseed import Sweep
from manyseed.analysis.axes import AXES
from manyseed.jobs import parameters
from manyseed.jobs.parameters import ModelArrays
from manyseed.jobs.response import DBI
from manyseed.jobs.response.measure import ARRAYS
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import Trainer, run_hparams
from manyseed.jobs.training.handling import unpacked
from manyseed.orchestrator import responding
from manyseed.orchestrator.computing.inputs import published
from manyseed.orchestrator.computing.optionaltables import responses
from manyseed.orchestrator.computing.tables import RESPONSE_CURVES, RESPONSES
from manyseed.orchestrator.disk.parquet import read_metadata, write_parquet
from manyseed.orchestrator.errors import DamagedFile, UnavailableError, UserError
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store import schema
from manyseed.orchestrator.store.coordinates import PARAMETERS
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from tests.analysis.documented import documented
from tests.orchestrator.conftest import command, inside, shared, stored, train, write

TEXT = """
name    = "alive"
seed    = 5
repeats = 2
runs    = 2
keep    = { parameters = true }

[[grid]]
dataset            = ["digits"]
classifier         = ["net", "dense"]
train_fraction     = [80]
perturb_continuous = ["none", "relative:0.1"]

[dataset.digits]
source = "sklearn:digits"
test   = 0.1

[classifier.net]
kind    = "convnet"
epochs  = 2
hparams = { depth = 2, width = 3, batch_norm = true }

[classifier.dense]
kind    = "mlp"
epochs  = 2
hparams = { width1 = 40, width2 = 32 }
"""
RESPONSE = """
[response]
transforms      = ["intra", "inter", "rotate:90", "colour:0.25"]
rows            = 50
draws           = 2
magnitudes      = 5
pair_magnitudes = 4
dbi             = true
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Curves measured in training, and models kept."""
    return shared(tmp_path_factory, "measured", TEXT + RESPONSE)


def rows_of(file: Path) -> dict[tuple, dict]:
    frame = pl.read_parquet(file)
    key = ["group", "cell", "repeat", "run", "transform", "layer"]
    return {tuple(row[name] for name in key): row for row in frame.iter_rows(named=True)}


def assert_as_in_training(sweep: Sweep, file: Path) -> int:
    """Every number of a table is that of the store; return how many runs it has."""
    found, plan, n = rows_of(file), Plan.read(sweep.paths), 0
    for group in list_groups(sweep.paths.store):
        asked = group.spec.asked
        right, total, shifted, of = (read_array(group, name) for name in ARRAYS)
        dbi = read_array(group, DBI)
        for row in plan.rows.filter(group=group.spec.number).iter_rows(named=True):
            n += 1
            for number, (transform, layer) in enumerate(asked.responses):
                key = (group.spec.path, row["cell"], row["repeat"], row["run"], transform, layer)
                one, at = found.pop(key), (row["row"], number)
                length = len(asked.grid(transform))
                assert one["magnitudes"] == [*asked.grid(transform)]
                assert one["right"] == right[at][:, :length].tolist()
                assert one["total"] == total[at][:, :length].tolist()
                assert one["shifted_right"] == shifted[at].tolist()
                assert one["shifted_total"] == of[at].tolist()
                np.testing.assert_array_equal(np.float32(one["dbi"]), dbi[row["row"]])
    assert not found
    return n


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.process)])
def test_answers_are_those_of_training_bit_for_bit(
    measured: Sweep, tmp_path: Path, workers: int
) -> None:
    sweep = Sweep(shutil.copytree(measured.directory, tmp_path / "sweep"))
    before = stored(sweep)
    found = sweep.respond(workers=workers)
    assert found.asked == found.runs == 16
    assert found.file == sweep.directory / "responses" / "intra-inter-rotate90-colour0.25.parquet"
    assert assert_as_in_training(sweep, found.file) == 16
    for path, arrays in stored(sweep).items():
        for name, values in arrays.items():
            np.testing.assert_array_equal(values, before[path][name])
    assert not list((sweep.paths.tasks / "responding").iterdir())
    again = sweep.respond(workers=workers)
    assert (again.asked, again.runs) == (0, 16)


@pytest.mark.slow
def test_what_was_interrupted_goes_on(measured: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(measured.directory, tmp_path / "sweep"))
    seen = []

    def stop(done: int, of: int) -> None:
        seen.append((done, of))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep.respond(name="mine", workers=1, progress=stop)
    (log,) = (sweep.paths.tasks / "responding").iterdir()
    assert len(log.read_text().splitlines()) == 1 + 3
    assert not sweep.paths.response("mine").exists()
    log.write_text(log.read_text() + '{"group": "torn')
    seen.clear()
    found = sweep.respond(name="mine", workers=2, progress=lambda *n: seen.append(n))
    assert seen[0] == (3, 16)
    assert (found.asked, found.runs) == (13, 16)
    assert assert_as_in_training(sweep, found.file) == 16
    assert not log.exists()
    log.write_text("no lines of answers")  # of nobody: asked again
    found.file.unlink()
    assert sweep.respond(name="mine", workers=2).asked == 16


def analysed(sweep: Sweep) -> dict[str, pl.DataFrame]:
    assert inside("analyze", sweep.directory)[0] == 0
    return {name: sweep.results[name] for name in ("responses", "response_curves", "cmi")}


@pytest.mark.slow
def test_analyze_makes_the_same_tables_of_either(measured: Sweep, tmp_path: Path) -> None:
    sweep = train(write(tmp_path / "alive.toml", TEXT), tmp_path / "sweep")
    assert inside("analyze", sweep.directory)[0] == 0
    assert "responses" not in sweep.results
    options = ("--transforms", "intra,inter,rotate:90,colour:0.25", "--rows", 50, "--draws", 2)
    code, told = inside("respond", sweep.directory, *options, "--name", "other", "--json")
    assert code == 0, told
    value = json.loads(told)
    assert (value["asked"], value["runs"]) == (16, 16)
    assert inside("verify", sweep.directory)[0] == 0
    copy = Sweep(shutil.copytree(measured.directory, tmp_path / "copy"))
    both = {"magnitudes": 5, "pair_magnitudes": 4, "dbi": True, "rows": 50, "draws": 2}
    transforms = ["intra", "inter", "rotate:90", "colour:0.25"]
    # a second way of asking: the first by name is what the tables are of
    sweep.respond({"transforms": transforms, **both}, name="all", workers=2)
    one, other = analysed(copy), analysed(sweep)
    for name, table in one.items():
        assert table.equals(other[name]), name
    # what was measured in training goes first
    copy.respond({"transforms": ["intra"], "rows": 20}, name="a", workers=2)
    copy.respond({"transforms": ["shift-x:0.1"]}, name="b", where="classifier = 'net'", workers=2)
    more = analysed(copy)
    added = more["responses"].filter(transform="shift-x:0.1")
    assert set(added["classifier"]) == {"net"}
    assert added.height == 8
    rest = more["responses"].filter(pl.col("transform") != "shift-x:0.1")
    assert rest.equals(one["responses"])


def test_each_run_counts_by_the_first_table_that_has_it(measured: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(measured.directory, tmp_path / "sweep"))
    some = "classifier = 'net' and perturb_continuous = 'none'"
    asked = {"transforms": ["shift-x:0.1"], "rows": 10, "draws": 1}
    later = sweep.respond(asked, name="b", where=some, workers=2).file
    # a table that is first by name has one run of each repeat, which was never wrong
    one = pl.read_parquet(later).filter(run=0).with_columns(right="total")
    write_parquet(sweep.paths.response("a"), one, {"asked": read_metadata(later)["asked"]})
    plan = Plan.read(sweep.paths)
    tables, _ = responses(sweep.paths, [*published(sweep.paths, plan)], plan)
    own = tables[RESPONSES].filter(transform="shift-x:0.1")
    assert own.select("repeat_index", "run_index").rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert (own["mean_accuracy"] == 1).to_list() == [True, False, True, False]
    curves = tables[RESPONSE_CURVES].filter(transform="shift-x:0.1")
    assert curves["n_runs"].to_list() == 2 * 5 * [2]
    assert set(curves["accuracy_max"]) == {1.0}
    of_curves = curves["accuracy"].to_numpy().reshape(2, 5).mean(axis=1)
    np.testing.assert_allclose(of_curves, (1 + own["mean_accuracy"].to_numpy()[1::2]) / 2)


@pytest.mark.slow
def test_a_further_way_of_asking_needs_a_name_of_its_own(measured: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(measured.directory, tmp_path / "sweep"))
    net = "classifier = 'net'"
    first = sweep.respond({"transforms": ["intra"]}, where=net, workers=1)
    assert first.file.name == "intra.parquet"
    with pytest.raises(UserError, match="intra exists with other questions"):
        sweep.respond({"transforms": ["intra"], "rows": 20}, where=net, workers=1)
    assert sweep.respond({"transforms": ["intra"]}, workers=1).asked == 8  # the other classifier
    assert set(pl.read_parquet(first.file)["group"]) == {"digits/dense", "digits/net"}
    for name in ("../a", ".a", "a/b"):
        with pytest.raises(UserError, match="not a name for a table"):
            sweep.respond({}, name=name, workers=1)
    with pytest.raises(UserError, match="rotate:200"):
        sweep.respond({"transforms": ["rotate:200"]}, workers=1)
    with pytest.raises(UserError, match=r"(?s)rowz = 3: unknown key.*rows"):
        sweep.respond({"transforms": ["intra"], "rowz": 3})
    with pytest.raises(UserError, match=r"^layers = "):
        sweep.respond({"layers": [2]}, workers=1)


@pytest.mark.slow
def test_a_damaged_table_is_named_and_measured_again(measured: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(measured.directory, tmp_path / "sweep"))
    file = sweep.respond({"transforms": ["shift-y:0.1"]}, workers=2).file
    before = pl.read_parquet(file)
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    code, told = inside("analyze", sweep.directory)
    assert code == 4
    assert "shift-y0.1.parquet" in told.replace("\n", "")
    assert "manyseed respond" in told
    with pytest.raises(DamagedFile):
        sweep.respond({"transforms": ["shift-y:0.1"]}, workers=2)
    file.unlink()
    sweep.respond({"transforms": ["shift-y:0.1"]}, workers=2)
    assert pl.read_parquet(file).equals(before)


@pytest.mark.parametrize("made", [os.mkfifo, Path.mkdir, Path.touch])
def test_what_is_no_table_is_named(
    measured: Sweep, tmp_path: Path, made: Callable[[Path], object]
) -> None:
    sweep = Sweep(shutil.copytree(measured.directory, tmp_path / "sweep"))
    file = sweep.paths.response("mine")
    file.parent.mkdir(exist_ok=True)
    made(file)
    code, told = inside("analyze", sweep.directory)
    assert (code, "mine.parquet" in told.replace("\n", "")) == (4, True)
    code, told = inside("respond", sweep.directory, "--name", "mine")
    assert (code, "mine.parquet" in told.replace("\n", "")) == (4, True)


@pytest.mark.slow
def test_without_parameters_it_says_what_keeping_them_takes(tmp_path: Path, monkeypatch) -> None:
    text = TEXT.replace("keep    = { parameters = true }\n", "")
    sweep = Sweep.plan(write(tmp_path / "p.toml", text), tmp_path / "sweep")
    with pytest.raises(UserError, match="no run is finished yet"):
        sweep.respond(workers=1)
    sweep = train(tmp_path / "p.toml", tmp_path / "sweep")
    told = command("respond", sweep.directory)
    assert told.returncode == 2
    said = " ".join(told.stderr.split())
    assert "runs of digits × net, digits × dense keep no parameters" in said
    assert "set keep.parameters = true (" in said
    assert "MB for these 16 runs), or [response] before planning" in said
    monkeypatch.setattr(parameters, "LARGEST", 10_000)  # in the place of 256 MB
    told = r"cannot keep them \(models of dense are .* most\): set \[response\] before planning"
    with pytest.raises(UserError, match=told):
        sweep.respond(workers=1, where="classifier = 'dense'")
    assert not (sweep.directory / "responses").exists()


@pytest.mark.slow
def test_models_that_fill_a_shard_each_answer_one_by_one(tmp_path: Path, monkeypatch) -> None:
    """As models of 256 MB do: here the limits are below what one takes."""
    for name, most in {
        "SHARD_BYTES": 1_000,
        "CHUNK_BYTES": 100,
        "LARGE_CHUNK_BYTES": 1_000,
    }.items():
        monkeypatch.setattr(schema, name, most)
    text = (
        (TEXT + RESPONSE)
        .replace('["net", "dense"]', '["net"]')
        .replace("repeats = 2", "repeats = 1")
    )
    sweep = train(write(tmp_path / "alive.toml", text), tmp_path / "sweep")
    [group] = list_groups(sweep.paths.store)
    assert (group.spec.shard_length, group.spec.chunk_length) == (1, 1)
    found = sweep.respond(workers=1)
    assert assert_as_in_training(sweep, found.file) == found.asked == 4


def test_data_that_is_gone_or_a_process_that_dies_is_no_traceback(
    measured: Sweep, tmp_path: Path, monkeypatch
) -> None:
    sweep = Sweep(shutil.copytree(measured.directory, tmp_path / "sweep"))

    def broken(*args):
        raise OSError("no space left")

    monkeypatch.setattr(responding, "spawned", broken)
    with pytest.raises(UnavailableError, match="the models cannot be asked: no space left"):
        sweep.respond(workers=1)
    assert not sweep.paths.responses.exists()


def test_spectra_of_kept_networks_are_a_table_and_a_figure(measured: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(measured.directory, tmp_path / "sweep"))
    some = "perturb_continuous = 'none'"
    code, told = inside("respond", sweep.directory, "--spectra", 60, "--where", some, "--json")
    assert code == 0, told
    value = json.loads(told)
    assert (value["asked"], value["runs"], value["transforms"]) == (8, 8, [])
    file = Path(value["file"])
    assert file == sweep.directory / "responses" / "spectra.parquet"
    rows = pl.read_parquet(file)
    plan, trainer = Plan.read(sweep.paths), Trainer()
    for group in list_groups(sweep.paths.store):
        layouts = [ModelArrays.from_attributes(one) for one in json.loads(group.spec.parameters)]
        kept = read_array(group, PARAMETERS.name)
        (row,) = rows.filter(group=group.spec.path, repeat=1, run=1).iter_rows(named=True)
        run = Run(plan.cell(row["cell"]), 1, 1)
        place = plan.rows.filter(cell=row["cell"], repeat=1, run=1)["row"][0]
        state = unpacked(layouts[0].arrays, kept[place])
        alive = parameters.revive(run.cell, run_hparams(run), trainer.training_set(run), state)
        data, part = trainer._dataset(run.cell), trainer._split(run.cell, 1)
        for point, found in list(zip(row["points"], row["spectra"], strict=True))[::20]:
            one = alive.encode(data.rows(part.test[[point]]))
            network = alive.model.eval()
            jacobian = torch.autograd.functional.jacobian(network, one).reshape(10, -1)
            slow = np.linalg.svd(np.asarray(jacobian - jacobian.mean(0), np.float64))[1]
            np.testing.assert_allclose(found, slow[:9], rtol=1e-3, atol=1e-5)
    assert sweep.respond(spectra=60, where=some, workers=1).asked == 0
    later = sweep.respond(spectra=60, workers=1)
    assert (later.asked, later.runs) == (8, 16)
    assert inside("analyze", sweep.directory)[0] == 0
    table = sweep.results["spectra"]
    assert table.height == 16 * 9
    (first,) = rows[:1].iter_rows(named=True)
    own = table.filter(cell=first["cell"], repeat_index=first["repeat"], run_index=first["run"])
    assert own["median"].to_list() == pytest.approx(np.median(first["spectra"], axis=0).tolist())
    assert set(table["n_points"]) == {60}
    assert table["alpha_hat"].null_count() == table.height  # two runs are too few
    told = documented("spectra")
    assert told.keys() | {"cell", "cell_id", "repeat_index", "run_index", *AXES} == {*table.columns}
    assert sweep.plot.all("spectra")[0].n == 8
    assert inside("query", sweep.directory, "-t", "spectra", "--by", "classifier,rank")[0] == 0
    assert "responses" in sweep.results  # curves are as before


def test_spectra_are_refused_with_a_remedy(measured: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(measured.directory, tmp_path / "sweep"))
    with pytest.raises(UserError, match="no curves are measured with them") as refusal:
        sweep.respond({"draws": 2}, spectra=5, workers=1)
    assert str(refusal.value).startswith("draws: ")
    with pytest.raises(UserError, match="spectra"):
        sweep.respond(spectra=1, workers=1)
    assert not sweep.paths.responses.exists()
    only = {"where": "classifier = 'net' and perturb_continuous = 'none'", "workers": 1}
    sweep.respond(spectra=5, name="a", **only)
    for options, more in (({}, {"spectra": 6}), ({"transforms": ["shift-x:0.1"]}, {})):
        with pytest.raises(UserError, match=r"a exists with .*: for .* at 5 test"):
            sweep.respond(options, name="a", **more, **only)
    dense = {"where": "classifier = 'dense'", "workers": 1}
    with pytest.raises(UserError, match="a exists with other questions"):
        sweep.respond({"transforms": ["shift-x:0.1"]}, name="a", **dense)
    sweep.respond({"transforms": ["shift-x:0.1"]}, name="b", **only)
    with pytest.raises(UserError, match="b exists with other questions"):
        sweep.respond(spectra=5, name="b", **only)


def test_only_networks_with_continuous_features_have_spectra(tmp_path: Path) -> None:
    text = TEXT.replace('["net", "dense"]', '["lr-sgd"]').split("[classifier.net]")[0]
    sweep = train(write(tmp_path / "p.toml", text), tmp_path / "sweep")
    code, told = inside("respond", sweep.directory, "--spectra", 5)
    assert code == 2
    said = " ".join(told.split())
    assert "spectra need a network, and lr-sgd is none" in said
    assert "--spectra" in said
    assert not sweep.paths.responses.exists()
