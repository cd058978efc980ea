"""Several runs trained again, chosen in the result tables, and a model of each in a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import xgboost

from manyseed.jobs.classifiers.xgb import _matrix
from manyseed.jobs.trainer import Trainer
from manyseed.orchestrator import runs as one_run
from manyseed.orchestrator.asking.query import chosen_runs
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.runs import find_run
from manyseed.orchestrator.store.groups import open_group
from manyseed.orchestrator.store.reader import read_rows
from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.conftest import inside


@pytest.fixture(scope="module")
def analysed(quick_analysed: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("analysed") / "sweep"
    return Sweep(shutil.copytree(quick_analysed.directory, folder))


def best_of(sweep: Sweep, n: int) -> set[str]:
    """Return the most accurate runs of each cell, found by looking at all."""
    found = set()
    for _, rows in sweep.results["runs"].group_by("cell"):
        kept = rows.filter(~pl.col("identical") | (pl.col("run_index") == 0)).to_dicts()
        kept.sort(key=lambda r: (-r["accuracy"], r["repeat_index"], r["run_index"]))
        found |= {f"{r['cell']}:{r['repeat_index']}:{r['run_index']}" for r in kept[:n]}
    return found


def test_the_best_runs_of_each_cell_are_those_that_a_look_at_all_finds(analysed: Sweep) -> None:
    for n in (1, 3):
        assert {*chosen_runs(analysed.results, best=n)} == best_of(analysed, n)
    rows = analysed.results["runs"].filter(pl.col("accuracy") > 0.95, cell=0)
    met = chosen_runs(analysed.results, "accuracy > 0.95 AND cell = 0")
    assert met == [f"0:{r}:{n}" for r, n in rows["repeat_index", "run_index"].rows()]
    assert {*chosen_runs(analysed.results, "cell < 3", 1)} == {
        address for address in best_of(analysed, 1) if int(address.partition(":")[0]) < 3
    }
    same = analysed.results["runs"].filter("identical")["cell"].unique()
    met = chosen_runs(analysed.results, f"cell = {same[0]}")
    assert met == [f"{same[0]}:{repeat}:0" for repeat in (0, 1)]  # the others are copies


def test_a_model_of_each_chosen_run_is_in_the_folder(analysed: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    where = ("--where", "train_fraction = 1.0 AND run_index = 1 AND repeat_index = 1")
    code, told = inside("rerun", analysed.directory, *where, "--save", folder, "--check")
    assert code == 0, told
    assert "numpy.load(FILE)" in told
    assert "xgboost.Booster(model_file=FILE)" in told
    chosen = chosen_runs(analysed.results, where[1])
    kinds = dict(analysed.results["cells"]["cell", "classifier"].rows())
    ending = {"xgb": ".json", "lr-sgd": ".npz"}
    names = {a: a.replace(":", "-") + ending[kinds[int(a.split(":")[0])]] for a in chosen}
    assert {file.name for file in folder.iterdir()} == {*names.values()}
    assert {Path(name).suffix for name in names.values()} == {*ending.values()}
    for address, name in names.items():
        found = find_run(analysed.paths, address)
        group = open_group(analysed.paths.store, found.spec.path)
        stored = read_rows(group, ["margin"], [found.row])["margin"][0, 0]
        data = Trainer().training_set(found.fitted)
        if name.endswith(".json"):
            matrix = _matrix(data.X_test, data.cardinality)
            booster = xgboost.Booster(model_file=str(folder / name))
            np.testing.assert_array_equal(booster.predict(matrix, output_margin=True), stored)
        else:
            with np.load(folder / name, allow_pickle=False) as arrays:
                assert arrays["coef"].shape == (1, 30)


def test_what_is_there_is_passed_over_unless_it_is_asked_for(
    analysed: Sweep, tmp_path: Path
) -> None:
    first, *others = chosen_runs(analysed.results, "classifier = 'lr-sgd'", 1)
    there = tmp_path / f"{first.replace(':', '-')}.npz"
    there.write_text("mine")
    ask = ("rerun", analysed.directory, "--where", "classifier = 'lr-sgd'", "--best", 1)
    code, told = inside(*ask, "--save", tmp_path, "--json")
    assert code == 0, told
    runs = json.loads(told)["runs"]
    assert [(one["address"], one["was_there"]) for one in runs] == [
        (first, True),
        *((address, False) for address in others),
    ]
    assert there.read_text() == "mine"
    assert analysed.rerun_where("classifier = 'lr-sgd'", best=1, save=tmp_path, overwrite=True)
    with np.load(there, allow_pickle=False) as arrays:
        assert {*arrays} == {"coef", "intercept"}


def test_a_run_that_fails_or_differs_is_its_own_problem(
    analysed: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first fails, the second predicts something else, the third is written."""
    train, fits = Trainer.train, iter(range(99))

    def disturbed(self: Trainer, run: Any, handling: Any) -> Any:
        number = next(fits)
        if number == 0:
            raise ValueError("no such luck")
        prediction = train(self, run, handling)
        if number == 1:
            np.negative(prediction.scores, out=prediction.scores)
        return prediction

    monkeypatch.setattr(Trainer, "train", disturbed)
    chosen = chosen_runs(analysed.results, "classifier = 'xgb'")[:3]
    run_numbers = "repeat_index = 0 AND run_index < 3"
    where = f"cell = {chosen[0].split(':')[0]} AND {run_numbers}"
    assert chosen_runs(analysed.results, where) == chosen
    code, told = inside("rerun", analysed.directory, "--where", where, "--save", tmp_path)
    assert code == 1
    assert f"this time the fit of {chosen[0]} fails: ValueError: no such luck" in told
    assert "0 of 142 labels, or scores, differ from those stored, with the same recipe" in told
    assert f"of 3 runs, 2 could not be trained again or differ: {chosen[0]}, {chosen[1]}" in told
    (file,) = tmp_path.iterdir()
    assert file.stem == chosen[2].replace(":", "-")


def test_models_of_another_recipe_are_written_where_labels_agree_or_on_request() -> None:
    from manyseed.orchestrator.runs import _differs

    found = {"same_recipe": False, "labels_differ": 0, "labels": 10, "recipe_changes": {"os": []}}
    assert _differs(found, False) == ""
    differs = {**found, "labels_differ": 2}
    assert "another recipe (os); --other-recipe" in _differs(differs, False)
    assert _differs(differs, True) == ""
    same = {**found, "same_recipe": True, "equal": False}
    assert "with the same recipe" in _differs(same, True)
    assert _differs({**same, "equal": True}, False) == ""


def test_a_disk_that_refuses_or_an_interruption_leaves_whole_files_alone(
    analysed: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, begun = one_run.saving, list[int]()

    def broken(model: Any, ending: str) -> Any:
        whole = writing(model, ending)

        def write(file: Any) -> None:
            begun.append(1)
            if len(begun) == 1:
                whole(file)
                return
            file.write(b"half")
            raise error

        return write

    monkeypatch.setattr(one_run, "saving", broken)
    for error, raised in ((OSError(28, "full"), UnavailableError), (KeyboardInterrupt(), None)):
        begun.clear()
        folder = tmp_path / type(error).__name__
        with pytest.raises(raised or KeyboardInterrupt):
            analysed.rerun_where("classifier = 'lr-sgd'", best=1, save=folder)
        (file,) = folder.iterdir()
        with np.load(file, allow_pickle=False) as arrays:
            assert {*arrays} == {"coef", "intercept"}


def test_what_cannot_be_is_refused_before_anything_is_trained(
    analysed: Sweep, quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "train", None)
    there = tmp_path / "there"
    there.write_text("mine")
    for arguments, told in (
        ((), "which run?"),
        (("--where", "accuracy > 2"), "no finished run meets it"),
        (("--where", "acuracy > 0"), "unknown column acuracy"),
        (("0:0:0", "--best", "1"), "is for several runs, not for 0:0:0"),
        (("0:0:0", "--overwrite"), "is for several runs"),
        (("--best", "1", "--save", tmp_path / "model.pt"), "several runs need a folder"),
        (("--best", "1", "--save", there), "is a file"),
        (("--best", "1", "--save", analysed.paths.plan / "a"), "is among the sweep's own files"),
    ):
        code, said = inside("rerun", analysed.directory, *arguments)
        assert (code, told in said) == (2, True), said
    with pytest.raises(UserError, match="no results yet"):
        quick.rerun_where("accuracy > 0")
    assert [*tmp_path.iterdir()] == [there]
