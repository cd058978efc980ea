"""A sweep in a terminal and in a notebook: what it shows of itself, and its runs in words."""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manyseed
from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.plan import Plan
from tests.orchestrator.conftest import QUICK, write


def test_runs_have_the_sweep_files_words(quick: Sweep) -> None:
    runs = quick.runs("cancer", "lr-sgd")
    rows = Plan.read(quick.paths).cells.filter(dataset="cancer", classifier="lr-sgd")
    words = dict(rows.select("cell", "perturb_continuous").iter_rows())
    assert runs.sizes["run"] == 32
    found = zip(runs["cell"].values.tolist(), runs["perturb_continuous"].values, strict=True)
    assert dict(found) == words
    assert set(runs["vary"].values) == {"init+batch"}
    assert runs["vary"].attrs == {"long_name": "vary"}  # of codes, units and padding are told
    tree = quick.predictions["cancer/lr-sgd"]
    np.testing.assert_array_equal(runs["label"].values, tree["label"].values)
    for run in (0, 13, 31):
        repeat = int(runs["repeat_index"][run])
        np.testing.assert_array_equal(runs["y_true"][run].values, tree["y_true"][repeat].values)


def test_accuracy_of_runs_is_that_of_the_tables(quick: Sweep, tmp_path: Path) -> None:
    shutil.copytree(quick.directory, tmp_path / "copy")
    sweep = Sweep(tmp_path / "copy")
    sweep.analyze()
    runs = sweep.runs("cancer", "xgb")
    right = (runs["label"].isel(epoch=-1) == runs["y_true"]).mean("sample").values
    table = {
        (row["cell"], row["repeat_index"], row["run_index"]): row["accuracy"]
        for row in sweep.results["runs"].iter_rows(named=True)
    }
    keys = zip(
        *(runs[n].values.tolist() for n in ("cell", "repeat_index", "run_index")), strict=True
    )
    assert right.tolist() == pytest.approx([table[key] for key in keys])


def test_the_help_begins_with_every_method() -> None:
    public = {name for name in dir(Sweep) if not name.startswith("_")} - {"name", "paths"}
    assert Sweep.__doc__ is not None
    assert public == set(re.findall(r"`(\w+)`", Sweep.__doc__.partition("Parameters")[0]))


def test_the_help_shows_defaults_that_can_be_read() -> None:
    verbs = {name: one for name, one in inspect.getmembers(Sweep, callable) if name[0] != "_"}
    assert {"submit", "analyze", "verify", "howmany_until"} <= verbs.keys()
    for name, verb in verbs.items():
        assert " at 0x" not in str(inspect.signature(verb)), name


def test_unknown_runs_are_answered_with_the_nearest(quick: Sweep) -> None:
    with pytest.raises(UserError, match='mean "lr-sgd"\\? Name one: runs\\("cancer'):
        quick.runs("cancer", "lr-sdg")


@pytest.mark.usefixtures("without_slurm")
def test_a_sweep_shows_how_far_it_is_and_what_comes_next(quick: Sweep, tmp_path: Path) -> None:
    shown = repr(quick).splitlines()
    assert shown[0] == f"Sweep({str(quick.directory)!r})"
    assert shown[1] == "64 of 64 runs are finished"
    assert "  cancer × lr-sgd: 32 of 32" in shown
    assert shown[-1] in {  # of what other tests did with it
        f"Next: manyseed {verb} {quick.directory}{more}"
        for verb, more in (("analyze", ""), ("report", ""), ("query", " --by classifier"))
    }
    planned = Sweep.plan(write(tmp_path / "quick.toml", QUICK), tmp_path / "a <sweep>")
    assert "0 of 64 runs are finished, 64 missing" in repr(planned)
    assert repr(planned).endswith(f"Next: manyseed submit '{planned.directory}'")
    page = planned._repr_html_()
    assert "a &lt;sweep&gt;" in page
    assert "<sweep>" not in page
    with pytest.raises(UserError, match="none of these runs is trained yet"):
        planned.runs("cancer", "xgb")
    planned.paths.cells.write_bytes(b"")
    assert str(planned.paths.cells) in repr(planned)  # which a notebook must survive


def test_errors_are_imported_from_the_package(tmp_path: Path) -> None:
    assert {*manyseed.__all__} <= {*dir(manyseed)}
    for name in manyseed.__all__:
        assert getattr(manyseed, name)
    assert issubclass(manyseed.UserError, manyseed.ManyseedError)
    with pytest.raises(manyseed.UserError):
        manyseed.Sweep.plan(tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["scores", "labels", "y_true", "repeat"])
def test_masked_predictions_are_refused(tmp_path: Path, name: str) -> None:
    of = "labels" if name == "labels" else "scores"
    given = {of: np.ones((2, 8)), "y_true": np.arange(8) % 2, "repeat": np.zeros(2, dtype=int)}
    values = given[name]
    mask = np.arange(values.size).reshape(values.shape) == 1
    with pytest.raises(UserError, match=rf"{name}: 1 of \d+ values are missing"):
        Sweep.from_predictions(given | {name: np.ma.array(values, mask=mask)}, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_times_of_fits_may_be_masked(tmp_path: Path) -> None:
    seconds = np.ma.array([2.0, 9.0], mask=[False, True])
    given = {"scores": np.ones((2, 8)), "y_true": np.arange(8) % 2, "fit_seconds": seconds}
    sweep = Sweep.from_predictions(given, tmp_path / "sweep", probability="none")
    assert sweep.analyze()["runs"]["fit_seconds"].to_list() == [2, None]


@pytest.mark.parametrize("name", ["a", "b", "y"])
def test_groups_of_runs_with_values_that_are_missing_are_refused(name: str) -> None:
    rng = np.random.default_rng(0)
    good: dict[str, Any] = {
        "a": rng.random((3, 8, 4)),
        "b": rng.random((3, 8, 4)),
        "y": np.arange(8) % 4,
    }
    mask = np.arange(good[name].size).reshape(good[name].shape) == 1
    masked = good | {name: np.ma.array(good[name], mask=mask)}
    asked = [masked] if name == "y" else [masked, good | {name: np.where(mask, np.nan, good[name])}]
    for values in asked:
        for ask in (manyseed.alpha_hat, manyseed.error_consistency):
            with pytest.raises(UserError, match=rf"^{name}\b.*(values are missing|NaN)"):
                ask(**values)
