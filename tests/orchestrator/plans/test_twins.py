"""Cells whose runs are the same fits are planned once, whichever names they go by."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed.jobs.cells import consumed
from manyseed.jobs.run import Cell, Run
from manyseed.jobs.trainer import Trainer
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans import planning
from manyseed.orchestrator.plans.change import drop
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
from manyseed.orchestrator.plans.twins import fits
from tests.orchestrator.conftest import inside

HEAD = """
name    = "twins"
seed    = 7
repeats = {repeats}
runs    = {runs}
"""
GRID = """
[[grid]]
dataset    = ["sklearn:breast_cancer"]
classifier = {classifier}
vary       = {vary}
"""  # 427 training points


def write(
    folder: Path,
    *vary: str,
    classifier: tuple[str, ...] = ("lr-sgd",),
    repeats: int = 2,
    runs: int = 3,
    further: str = "",
) -> Path:
    file = folder / "sweep.toml"
    grid = GRID.format(classifier=json.dumps(classifier), vary=json.dumps(vary))
    file.write_text(HEAD.format(repeats=repeats, runs=runs) + grid + further)
    return file


def planned(directory: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """Repeats and runs of each cell that a plan holds, by classifier and vary."""
    plan = Plan.read(SweepPaths(directory))
    cells = plan.cells.join(plan.extents, on="cell")
    return {
        (classifier, vary): (repeats, runs)
        for classifier, vary, repeats, runs in cells.select(
            "classifier", "vary", "repeats", "runs"
        ).iter_rows()
    }


def apart(monkeypatch: pytest.MonkeyPatch, file: Path, directory: Path) -> None:
    """Plan as earlier versions did: each name is a cell of its own."""
    with monkeypatch.context() as earlier:
        earlier.setattr(planning, "merge_twins", lambda asked, *_: (asked, ()))
        plan_sweep(file, directory)


@pytest.mark.parametrize("order", [("batch", "init+batch"), ("init+batch", "batch")])
def test_of_twins_the_one_is_planned_that_has_the_default(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    file = write(tmp_path, *order, classifier=("lr-sgd", "mlp"))
    change = plan_sweep(file, tmp_path / "sweep")
    assert set(planned(tmp_path / "sweep")) == {
        ("lr-sgd", "init+batch"),
        ("mlp", "batch"),
        ("mlp", "init+batch"),
    }
    summary = change.summary()
    assert (summary["runs_asked"], summary["runs"], summary["fits"]) == (24, 18, 18)
    assert summary["twins"] == [
        {
            "dataset": "sklearn:breast_cancer",
            "classifier": "lr-sgd",
            "is": {"vary": "batch"},
            "same_as": {"vary": "init+batch"},
            "draws_from": ("batch",),
            "points": None,
            "state": "left out",
            "cells": 1,
            "runs": 6,
        }
    ]
    assert plan_sweep(file, tmp_path / "sweep").is_empty


def test_what_is_the_same_is_said(tmp_path: Path) -> None:
    file = write(tmp_path, "init+batch", "batch", classifier=("lr-sgd", "svm-sgd", "mlp"))
    code, told = inside("plan", file, "--dry-run", "--out", tmp_path / "sweep")
    told = " ".join(told.split())
    assert code == 0
    assert (
        'vary = "batch" is the same as "init+batch" for lr-sgd, svm-sgd: fits draw from batch '
        "alone. 2 cells are the same fits as others (12 runs): not planned a second time." in told
    )
    assert "Asked for 36 runs, 24 of them distinct, in 4 cells." in told
    code, told = inside("plan", file, "--dry-run", "--json", "--out", tmp_path / "sweep")
    assert code == 0
    assert sum(twin["cells"] for twin in json.loads(told)["twins"]) == 2


def test_sources_that_nothing_draws_from_make_identical_runs_and_the_plan_says_so(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, "init", classifier=("lr-sgd",), repeats=2, runs=5)
    summary = plan_change(file, tmp_path / "sweep").summary()
    assert (summary["runs"], summary["runs_identical"], summary["fits"]) == (10, 8, 2)
    assert summary["twins"] == []
    _, told = inside("plan", file, "--dry-run", "--out", tmp_path / "sweep")
    assert "8 runs, stored as copies, not trained." in " ".join(told.split())


def test_one_run_is_told_where_it_is_not_enough_beside_cells_where_it_is(tmp_path: Path) -> None:
    noise = 'perturb_labels = ["none", "symmetric:0.1"]\n'
    for name, further, runs, told in [
        ("noise", noise, 1, 'in 1 cell (perturb_labels = "symmetric:0.1") each seed makes another'),
        ("more", noise, 2, ""),
        ("plain", "", 1, ""),
        (
            "grid",
            noise + "runs = 1\n",
            6,
            "has 1 run per repeat, as its grid has runs = 1 (the fil",
        ),
        ("same", "runs = 1\n", 6, ""),
    ]:
        folder = tmp_path / name
        folder.mkdir()
        file = write(folder, "init", classifier=("xgb",), further=further, runs=runs)
        _, said = inside("plan", file, "--dry-run", "--out", folder / "sweep")
        said = " ".join(said.split())
        assert told in said
        assert bool(told) == ("has 1 run per repeat" in said)


def test_xgboost_draws_only_where_it_samples_or_its_hparams_move(tmp_path: Path) -> None:
    further = 'perturb_hparams = ["none", "relative:0.1"]\n'
    file = write(
        tmp_path, "batch", "init", "init+batch", "init+train", classifier=("xgb",), further=further
    )
    plan_sweep(file, tmp_path / "sweep")
    cells = Plan.read(SweepPaths(tmp_path / "sweep")).cells
    kept = cells.group_by("perturb_hparams").agg(pl.col("vary").sort())
    assert dict(kept.iter_rows()) == {
        "none": ["init+batch", "init+train"],
        "relative:0.1": ["init", "init+batch", "init+train"],
    }


def test_without_the_default_the_fewest_sources_are_kept(tmp_path: Path) -> None:
    file = write(tmp_path, "init+train", "init+batch+train", "train", "batch+train", "batch")
    plan_sweep(file, tmp_path / "sweep")
    assert set(planned(tmp_path / "sweep")) == {
        ("lr-sgd", "train"),
        ("lr-sgd", "batch+train"),
        ("lr-sgd", "batch"),
    }


def test_tuned_hparams_may_make_any_fit_draw(tmp_path: Path) -> None:
    further = 'hparams = ["tuned"]\n'
    vary = ("init", "batch", "init+batch")
    file = write(tmp_path, *vary, classifier=("xgb", "lr-sgd"), further=further)
    plan_sweep(file, tmp_path / "sweep")
    assert set(planned(tmp_path / "sweep")) == {
        ("xgb", "init"),
        ("xgb", "init+batch"),
        ("lr-sgd", "init"),
        ("lr-sgd", "init+batch"),
    }


@pytest.mark.parametrize(("tune", "cells"), [("{}", 1), ('{ data = "runs" }', 2)])
def test_fractions_of_as_many_points_are_searched_for_apart_on_runs_data(
    tmp_path: Path, tune: str, cells: int
) -> None:
    """A search fits a share of three quarters of the rows, but as many points as a run."""
    further = f'hparams = ["tuned"]\ntrain_fraction = [0.5, 214]\n[tune]\n{tune.strip("{} ")}\n'
    plan_sweep(write(tmp_path, "init+batch", further=further), tmp_path / "sweep")
    assert len(Plan.read(SweepPaths(tmp_path / "sweep")).cells) == cells


def test_runs_of_twins_predict_the_same_and_those_of_others_do_not(tmp_path: Path) -> None:
    """The promise behind all of this: run k of twins is one fit, bit by bit."""
    further = 'train_fraction = [0.5, 214]\nperturb_continuous = ["relative:0.2"]\n'
    vary = ("init", "batch", "init+batch", "batch+train", "init+batch+train")
    file = write(tmp_path, *vary, classifier=("lr-sgd", "xgb"), further=further)
    expansion = plan_change_apart(file, tmp_path)
    info = expansion.datasets["sklearn:breast_cancer"]
    keys = fits(expansion.cells, {"sklearn:breast_cancer": info.n_train})
    trainer = Trainer()
    scores: dict[str, list[bytes]] = {}
    for key, text in zip(keys, expansion.cells["canonical"], strict=True):
        cell = Cell.from_text(text)
        found = [trainer.train(Run(cell, 0, run)).scores for run in (0, 2)]
        assert not np.array_equal(*found)
        scores.setdefault(key, []).append(b"".join(each.tobytes() for each in found))
    # of lr-sgd {}, batch, train + batch; of xgb {}, train; two fractions are one
    assert len(scores) == 5
    assert sum(map(len, scores.values())) == 20
    assert all(len(set(same)) == 1 for same in scores.values())
    assert len({same[0] for same in scores.values()}) == 5


def plan_change_apart(file: Path, folder: Path):
    from manyseed.orchestrator.grids.expansion import expand
    from manyseed.orchestrator.grids.loading import read_sweep_file

    assert not (folder / "sweep").exists()
    return expand(read_sweep_file(file), file)


def test_fractions_of_as_many_points_are_one(tmp_path: Path) -> None:
    further = "train_fraction = [214, 0.5, 0.9999, 1.0, 213]\n"
    file = write(tmp_path, "init+batch", further=further)
    change = plan_sweep(file, tmp_path / "sweep")
    cells = Plan.read(SweepPaths(tmp_path / "sweep")).cells
    assert cells["train_fraction"].sort().to_list() == [0.5, 1.0, 213.0]
    assert change.summary()["notes"][-3:] == [
        "train_fraction = 214 is the same as 0.5 on sklearn:breast_cancer: both are 214 training "
        "points",
        "train_fraction = 0.9999 is the same as 1.0 on sklearn:breast_cancer: both are 427 "
        "training points",
        "2 cells are the same fits as others (12 runs): not planned a second time",
    ]


def test_a_share_that_comes_to_all_points_leaves_the_runs_identical(tmp_path: Path) -> None:
    further = "train_fraction = [0.9999]\n"
    file = write(tmp_path, "init", further=further)
    assert plan_change(file, tmp_path / "sweep").summary()["fits"] == 2


def test_a_planned_twin_wins_and_grows_under_its_name(tmp_path: Path) -> None:
    directory = tmp_path / "sweep"
    plan_sweep(write(tmp_path, "batch"), directory)
    before = Plan.read(SweepPaths(directory)).all_cells
    file = write(tmp_path, "batch", "init+batch")  # of which a new plan keeps init+batch
    assert plan_change(file, directory).is_empty
    plan_sweep(write(tmp_path, "init+batch", runs=5), directory)  # under the other name alone
    assert planned(directory) == {("lr-sgd", "batch"): (2, 5)}
    assert Plan.read(SweepPaths(directory)).all_cells.equals(before)


def test_twins_that_were_planned_apart_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "sweep"
    file = write(tmp_path, "batch", "init+batch")
    apart(monkeypatch, file, directory)
    before = Plan.read(SweepPaths(directory))
    change = plan_sweep(file, directory)
    assert change.is_empty
    assert change.summary()["notes"][-1] == (
        "1 cell is the same fits as others (6 runs): planned before; they stay, and results count "
        "them once"
    )
    assert Plan.read(SweepPaths(directory)).all_cells.equals(before.all_cells)
    enlarged = write(tmp_path, "batch", "init+batch", "init", "init+batch+train", runs=4)
    plan_sweep(enlarged, directory)
    after = Plan.read(SweepPaths(directory))
    assert after.all_cells[:2].equals(before.all_cells)
    held = after.all_rows.filter(pl.col("cell") < 2, pl.col("run") < 3)
    assert held.sort("row").equals(before.all_rows.sort("row"))
    assert planned(directory) == dict.fromkeys(
        [("lr-sgd", v) for v in ("batch", "init+batch", "init", "init+batch+train")], (2, 4)
    )
    with pytest.raises(UserError, match="this file would change 1 of the sweep's 4 cells"):
        plan_change(write(tmp_path, "init+batch", "init", "init+batch+train", runs=4), directory)


def test_twins_of_a_dropped_cell_do_not_bring_it_back(tmp_path: Path) -> None:
    directory = tmp_path / "sweep"
    file = write(tmp_path, "batch", "init+batch", classifier=("lr-sgd", "mlp"))
    plan_sweep(file, directory)
    drop(SweepPaths(directory), "classifier = 'lr-sgd'")
    change = plan_sweep(file, directory)
    assert change.is_empty
    assert set(planned(directory)) == {("mlp", "batch"), ("mlp", "init+batch")}
    assert change.summary()["notes"][-1] == (
        "1 cell is the same fits as others (6 runs): not planned, as those were dropped"
    )


def test_the_most_repeats_and_runs_are_planned_and_torn_ones_are_refused(tmp_path: Path) -> None:
    other = GRID.format(classifier='["lr-sgd"]', vary='["batch"]')
    file = write(tmp_path, "init+batch", further=other + "runs = 9\nrepeats = 2\n")
    plan_sweep(file, tmp_path / "sweep")
    assert planned(tmp_path / "sweep") == {("lr-sgd", "init+batch"): (2, 9)}
    file = write(tmp_path, "init+batch", further=other + "runs = 9\nrepeats = 1\n")
    with pytest.raises(UserError) as error:
        plan_change(file, tmp_path / "other")
    assert "the same fits" in error.value.message
    assert 'vary = "init+batch"; dataset = ' in error.value.message
    code, told = inside("plan", file, "--out", tmp_path / "other")
    assert (code, (tmp_path / "other").exists()) == (2, False)
    assert "leave the other out" in " ".join(told.split())


def test_imported_predictions_and_other_versions_are_taken_at_their_word() -> None:
    cell = Cell(
        seed=0,
        dataset={},
        classifier={"name": "lr-sgd", "version": 1, "source": "imported"},
        hparams={},
    )
    assert consumed(cell) == ("batch", "init")
    assert consumed(Cell(0, {}, {"name": "lr-sgd", "version": 99}, {})) == ("batch", "init")
    assert consumed(Cell(0, {}, {"name": "lr-sgd", "version": 1}, {})) == ("batch",)
