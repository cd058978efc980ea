"""Several snapshots of a real sweep, analysed side by side."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from manyseed import Sweep
from manyseed.analysis.alphahat.resampling import disjoint_halves, generator
from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level
from manyseed.analysis.options import Options
from manyseed.jobs.datasets import dataset_id
from manyseed.orchestrator.asking.query import query
from manyseed.orchestrator.computing.conventions import conventions
from manyseed.orchestrator.computing.tables import TABLES, Analysis, from_json, to_json
from manyseed.orchestrator.disk.parquet import read_metadata, write_parquet
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.groups import open_group
from manyseed.orchestrator.store.reader import read_array
from tests.orchestrator.conftest import command, own_copy, write

TEXT = """
name = "two"
seed = 5
repeats = 2
runs = 4
[[grid]]
dataset = ["round-digits"]
classifier = ["mlp", "svm-sgd"]
train_fraction = [0.25]
[dataset.round-digits]
source = "sklearn:digits"
classes = { round = ["0", "3", "6", "8", "9"], straight = ["1", "2", "4", "5", "7"] }
positive = "round"
[classifier.mlp]
epochs = 3
snapshots = [1]
hparams = { width1 = 32, width2 = 32, lr = 0.01 }
[analysis]
snapshots = [1, 3]
resamples = 10
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    def make(folder: Path) -> None:
        sweep = Sweep.plan(write(folder / "two.toml", TEXT), folder / "two")
        sweep.submit(workers=1)
        sweep.wait()

    return Sweep(own_copy(tmp_path_factory, "snapshots", make) / "two")


@pytest.fixture(scope="module")
def joint(trained: Sweep) -> Sweep:
    sweep = Sweep(shutil.copytree(trained.directory, trained.directory.with_name("joint")))
    sweep.analyze()
    return sweep


def copied(sweep: Sweep, tmp_path: Path) -> Sweep:
    return Sweep(shutil.copytree(sweep.directory, tmp_path / "sweep"))


@pytest.mark.parametrize("epoch", [1, 3])
def test_each_snapshot_has_the_rows_of_an_analysis_of_it_alone(
    trained: Sweep, joint: Sweep, tmp_path: Path, epoch: int
) -> None:
    alone = copied(trained, tmp_path)
    alone.analyze(conventions(alone.paths, snapshots=[epoch]))
    for name in TABLES:
        found, expected = joint.results[name], alone.results[name]
        assert set(found["epoch"]) == {0, 1, 3}
        assert_frame_equal(
            found.filter(pl.col("epoch").is_in([0, epoch])), expected, check_exact=True
        )
    last = alone.analyze(conventions(alone.paths, snapshots=[-1]))["cells"]
    assert_frame_equal(last, joint.results["cells"].filter(pl.col("epoch") != 1), check_exact=True)


def test_only_a_snapshot_that_is_new_is_computed(
    joint: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from manyseed.orchestrator.computing import analysis

    heights: list[int] = []
    real = analysis.analyze_group

    def counting(predictions: Any, options: Options) -> Any:
        heights.append(predictions.runs.height)
        return real(predictions, options)

    monkeypatch.setattr(analysis, "analyze_group", counting)
    sweep = copied(joint, tmp_path)
    sweep.analyze(conventions(sweep.paths, snapshots=[3]))
    assert heights == [0, 0]
    heights.clear()
    again = sweep.analyze()
    assert heights == [8, 0, 0]
    for name in TABLES:
        assert_frame_equal(again[name], joint.results[name], check_exact=True)


def test_the_reference_of_one_snapshot_judges_candidates_of_another(
    trained: Sweep, tmp_path: Path
) -> None:
    sweep = copied(trained, tmp_path)
    asked = {"alpha_reference": "half", "reference_snapshot": 3, "resamples": 5}
    runs = sweep.analyze(conventions(sweep.paths, **asked))["runs"].filter(classifier="mlp")
    assert runs.filter(pl.col("run_index") < 2)["alpha_hat"].null_count() == 8
    plan = Plan.read(sweep.paths)
    cell = plan.cells.filter(classifier="mlp")
    group = open_group(sweep.paths.store, cell["path"][0])
    margin = read_array(group, "margin")
    rows = pl.concat(plan.parts).filter(cell=cell["cell"][0], repeat=1).sort("run")["row"]
    number = group.spec.number
    bits = generator(5, "alpha_hat", dataset_id(plan.first_cell(number).dataset), 1)
    halves = disjoint_halves(bits, margin.shape[2], 5)
    delta = dkw_threshold(halves.n_side, 0.01)
    for place, epoch in enumerate((1, 3)):
        for run in (2, 3):
            levels = [
                smallest_trimming_level(
                    margin[rows[run], place][halves.candidate[b] == 1],
                    margin[rows[:2].to_numpy(), 1][:, halves.reference[b] == 1].ravel(),
                    delta,
                )
                for b in range(5)
            ]
            own = runs.filter(repeat_index=1, run_index=run, epoch=epoch)
            assert own["alpha_hat"].item() == pytest.approx(np.mean(levels))
            assert own["alpha_hat_references"].item() == 2


def test_questions_never_pool_snapshots(joint: Sweep) -> None:
    tables, cells = joint.results, joint.results["cells"]
    assert query(tables)["epoch"].to_list() == [1, 3, 0]
    last = cells.filter(pl.col("epoch") != 1)
    grouped = query(tables, by=["classifier"], sort="classifier")
    assert grouped["epoch"].to_list() == [3, 0]
    assert grouped["accuracy_mean"].to_list() == last["accuracy_mean"].to_list()
    by_epoch = query(tables, by=["epoch"], sort="epoch")
    assert by_epoch["accuracy_mean"].to_list() == [
        cells.filter(epoch=epoch)["accuracy_mean"].item() for epoch in (0, 1, 3)
    ]
    early = query(tables, "runs", by=["classifier"], where="epoch = 1")
    assert early["n"].to_list() == [8]
    assert early["accuracy"].item() == pytest.approx(cells.filter(epoch=1)["accuracy_mean"].item())
    both = query(tables, "pairs", by=["classifier"], where="epoch >= 1")
    assert both.select("n", "epoch").rows() == [(12, 3)]
    few = query(tables, "runs", by=["classifier"], where="classifier = 'mlp' AND accuracy < 0.5")
    assert few.is_empty()
    ranked = tables["ranking"].filter(pl.col("rank") == 1)
    assert ranked.select("cell", "epoch", "repeat_index").n_unique() == ranked.height == 6


def test_commands_name_the_snapshot(joint: Sweep, tmp_path: Path) -> None:
    sweep = copied(joint, tmp_path)
    (mlp, svm) = sweep.howmany(sizes=[1])
    assert (mlp.epoch, svm.epoch) == (3, 0)
    assert mlp.name.endswith("at epoch 3")
    assert svm.name.endswith(")")
    assert mlp.ensembles["epoch"].to_list() == [3]
    assert set(sweep.results["ensembles"]["epoch"]) == {0, 3}
    (early,) = sweep.howmany(where="epoch = 1", sizes=[1])
    assert early.epoch == 1
    assert early.answers[0].made == 8
    assert early.ensembles["accuracy"].item() != mlp.ensembles["accuracy"].item()
    told = command("analyze", sweep.directory, "--snapshots", "1,-1", "--resamples", 10)
    assert told.returncode == 0, told.stderr
    assert "epoch 1" in told.stdout
    assert "4 repeats: 2 cells on 2 test sets each. Cells differ in epoch." in told.stdout
    page = sweep.report().read_text()
    assert "Several snapshots were analysed, each by itself: epochs 1, 3." in page
    assert "<code>epoch 1</code>" in page
    asked = command("query", sweep.directory, "--by", "classifier")
    assert "Only the last snapshot of each cell is shown" in asked.stdout
    asked = command("query", sweep.directory, "--by", "classifier,epoch", "--json")
    assert [row["epoch"] for row in json.loads(asked.stdout)["rows"]] == [1, 3, 0]


def test_tables_without_the_column_are_read(trained: Sweep, tmp_path: Path) -> None:
    sweep = copied(trained, tmp_path)
    sweep.analyze(conventions(sweep.paths, snapshots=[-1]))
    expected = query(sweep.results, by=["classifier"])
    answers = [group.answers[:2] for group in sweep.howmany()]
    for name in (*TABLES, "inputs"):
        file = sweep.paths.table(name)
        described = {"columns": read_metadata(file).get("columns", "{}")}
        write_parquet(file, pl.read_parquet(file).drop("epoch"), described)
    record = Analysis.read(sweep.paths)
    earlier = {**record.options, "epoch": -1, "reference_epoch": None}
    del earlier["snapshots"], earlier["reference_snapshot"]
    replace(record, options=earlier, tables={}).write(sweep.paths)
    assert_frame_equal(query(sweep.results, by=["classifier"]), expected)
    assert [group.answers[:2] for group in sweep.howmany()] == answers
    assert sweep.report().exists()
    assert from_json(earlier).snapshots == (-1,)
    with pytest.raises(ValueError, match="as in an earlier version"):
        from_json(earlier | {"epoch": 1})


def test_conventions_are_those_of_the_file_and_survive_json(joint: Sweep) -> None:
    options = conventions(joint.paths, alpha_reference="half", reference_snapshot=3)
    assert (options.snapshots, options.resamples) == ((1, 3), 10)
    # as JSON: NaN is an option, and equals itself in dataclasses of Python up to 3.12 alone
    assert to_json(from_json(json.loads(json.dumps(to_json(options))))) == to_json(options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("[1, 3]", "[2]"), r"analysis.snapshots = 2: round-digits × mlp has no such .* are: 1, 3"),
        (("[1, 3]", "[]"), r"analysis.snapshots.*must be a list of different whole numbers"),
        (("[1, 3]", "[1, 1]"), r"analysis.snapshots.*must be a list of different whole numbers"),
        (("[1, 3]", "3"), r"analysis.snapshots = 3: must be a list of different whole numbers"),
        (("resamples = 10", "reference_snapshot = 3"), "analysis.reference_snapshot = 3: needs"),
        (
            ("resamples = 10", 'alpha_reference = "half"\nreference_snapshot = 7'),
            "analysis.reference_snapshot = 7: round-digits × mlp has no such snapshot",
        ),
        (('"mlp", ', ""), "analysis.snapshots = 1: nothing here is trained in epochs"),
    ],
)
def test_snapshots_that_will_not_be_kept_are_refused_before_training(
    tmp_path: Path, changes: tuple[str, str], message: str
) -> None:
    file = tmp_path / "two.toml"
    text = TEXT.replace(*changes)
    if changes[1] == "":
        text = text.replace(text[text.index("[classifier.mlp]") : text.index("[analysis]")], "")
    file.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        Sweep.plan(file, tmp_path / "two")
    assert str(file) in str(error.value)
    assert not (tmp_path / "two").exists()


def test_the_command_refuses_what_was_not_kept(joint: Sweep) -> None:
    wrong = command("analyze", joint.directory, "--snapshots", "1,2")
    assert wrong.returncode == 2
    assert "--snapshots = 2: round-digits × mlp has no such snapshot; there are: 1, 3" in (
        wrong.stderr
    )
    wrong = command("analyze", joint.directory, "--snapshots", "last")
    assert wrong.returncode == 2
    assert "such as: --snapshots 2,20" in wrong.stderr
