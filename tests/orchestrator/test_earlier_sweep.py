"""A sweep that an earlier version planned, trained in part and analysed goes on with this one.

``tests/data/earlier-sweep.zip`` was enlarged after its analysis: 10 of its 40 runs are missing.
``earlier-sweep-tables.zip`` holds the tables that the same version made of it once it was whole.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars import selectors as cs
from polars.testing import assert_frame_equal

from manyseed import Sweep
from manyseed.orchestrator.provenance import Recipe
from manyseed.orchestrator.store.groups import open_group
from manyseed.orchestrator.store.reader import read_array, read_rows
from tests.orchestrator.conftest import command

DATA = Path(__file__).parents[1] / "data"
TABLES = ("runs", "pairs", "repeats", "cells", "sources", "ranking")
MEASURED = "^.*seconds.*$"  # not the same twice
ACCURACIES = cs.by_name("accuracy", "accuracy_mean", "ensemble_accuracy", require_all=False)
OTHERWISE = {
    # repeats of identical runs are left out of what compares runs, and spreads are pooled
    "cells": "^(accuracy_std|accuracy_range|ec_|churn|alpha_hat|label_kappa).*$",
    # likewise; means are over repeats, runs count copies, identical ones are not close; null
    # where δ is above the level
    "sources": "^(n_runs|accuracy_mean|accuracy_std|n_close|.*_close)$",
    "ranking": "^close$",
}
"""Columns that mean something else since."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    with zipfile.ZipFile(DATA / "earlier-sweep.zip") as archive:
        archive.extractall(tmp_path / "sweep")
    with zipfile.ZipFile(DATA / "earlier-sweep-tables.zip") as archive:
        archive.extractall(tmp_path / "tables")
    # as if trained with this Python and these libraries, or resuming would be refused
    recipe = Recipe.here().to_json()
    (tmp_path / "sweep" / "plan" / "recipes" / "0001.json").write_text(json.dumps(recipe))
    return tmp_path


def has_its_xgboost() -> bool:
    """Return whether XGBoost has the version that trained the sweep; others differ in last bits."""
    with zipfile.ZipFile(DATA / "earlier-sweep.zip") as archive:
        packages = json.loads(archive.read("plan/recipes/0001.json"))["packages"]
    return (Recipe.here().packages or {}).get("xgboost-cpu") == packages["xgboost-cpu"]


def trained_bit_for_bit(sweep: Sweep) -> list[str]:
    """Return the classifiers whose finished runs this processor trains to the same bits."""
    runs = pl.read_parquet(sweep.directory / "results" / "runs.parquet")
    first = runs.unique("classifier", keep="first", maintain_order=True)
    addresses = first.select(
        "classifier", pl.format("{}:{}:{}", "cell", "repeat_index", "run_index")
    )
    return [
        classifier
        for classifier, run in addresses.iter_rows()
        if command("rerun", sweep.directory, run, "--check").returncode == 0
    ]


def test_a_sweep_of_an_earlier_version_is_finished_to_the_same_tables(earlier: Path) -> None:
    sweep = Sweep(earlier / "sweep")
    here = pl.col("classifier").is_in(trained_bit_for_bit(sweep))
    assert sweep.status()["runs"] == {
        "runs": 40,
        "done": 20,
        "copy": 4,
        "failed": 6,
        "missing": 10,
    }
    assert sweep.query("cells").height == 4  # those of which runs are finished
    verified = command("verify", sweep.directory)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    resume = ("--cluster", "local", "--workers", "1", "--watch")
    resumed = command("resume", sweep.directory, *resume)
    assert resumed.returncode in (0, 1), resumed.stdout + resumed.stderr  # 1: runs failed
    assert sweep.status()["runs"]["missing"] == 0
    analysed = command("analyze", sweep.directory)
    assert analysed.returncode == 0, analysed.stdout + analysed.stderr
    for name in TABLES:
        before = pl.read_parquet(earlier / "tables" / f"{name}.parquet")
        before = before.select(pl.exclude(OTHERWISE.get(name, "^$")))
        after = pl.read_parquet(sweep.directory / "results" / f"{name}.parquet")
        after = after.select(before.columns)
        # processors differ in the last bits of exp and log, and some in those of trained networks
        for rows, measured in ((here, cs.matches(MEASURED)), (~here, cs.float() - ACCURACIES)):
            assert_frame_equal(
                after.filter(rows).select(~measured), before.filter(rows).select(~measured)
            )
    same = {"lr-sgd", "xgb"} if has_its_xgboost() else {"lr-sgd"}
    assert same <= set(after.filter(here)["classifier"])


@pytest.mark.slow
def test_a_damaged_sweep_of_an_earlier_version_is_repaired(earlier: Path) -> None:
    sweep = Sweep(earlier / "sweep")
    assert "lr-sgd" in trained_bit_for_bit(sweep)
    resume = ("resume", sweep.directory, "--cluster", "local", "--workers", "1")
    assert command(*resume, "--watch").returncode in (0, 1)  # 1: runs fail
    group = open_group(sweep.paths.store, "cancer/lr-sgd")
    content = {
        name: (group.folder / name).read_bytes()
        for name in ("cell/c.0", "vary/zarr.json", "label/c.0.0.0", "margin/c.0.0.0")
    }
    stored = read_rows(group, ["label", "margin"], [*range(len(read_array(group, "status")))])
    before = sweep.status()["runs"]
    for name, whole in content.items():
        damaged = bytearray(whole)
        damaged[len(whole) // 200 if name.startswith("margin") else len(whole) // 2] ^= 4
        (group.folder / name).write_bytes(damaged)
        found = command("verify", sweep.directory)
        assert (found.returncode, "cancer/lr-sgd: " in found.stdout) == (1, True), found.output
        repaired = command("verify", sweep.directory, "--repair")
        assert repaired.returncode == 0, repaired.output
        if "set back to be trained again" in " ".join(repaired.stdout.split()):
            assert name.startswith(("label", "margin"))
            assert command(*resume, "--watch").returncode in (0, 1)
        assert sweep.status()["runs"] == before
        assert (group.folder / name).read_bytes() == whole or name == "vary/zarr.json"
        again = read_rows(group, [*stored], [*range(len(stored["label"]))])
        for array, values in stored.items():
            np.testing.assert_array_equal(again[array], values)
    assert command("verify", sweep.directory).returncode == 0


@pytest.mark.parametrize("verb", ["query", "compare", "howmany"])
def test_results_of_an_earlier_version_are_shown(verb: str, earlier: Path) -> None:
    options = ("--by", "classifier") if verb == "query" else ()
    shown = command(verb, earlier / "sweep", *options)
    assert shown.returncode == 0, shown.stdout + shown.stderr


@pytest.mark.parametrize("verb", ["report", "answers", "plot"])
def test_what_draws_all_of_them_asks_for_results_of_this_version(verb: str, earlier: Path) -> None:
    options = ("accuracy", "-o", str(earlier / "a.pdf")) if verb == "plot" else ()
    shown = command(verb, earlier / "sweep", *options)
    assert shown.returncode == 2, shown.stdout + shown.stderr
    said = " ".join(shown.stderr.split())
    assert re.search(
        r"an earlier version computed these results, which lack \w+ and \d+ more", said
    )
    assert "compute the results again: manyseed analyze" in said


def test_tables_of_an_earlier_version_have_the_axes_that_came_later(earlier: Path) -> None:
    sweep = Sweep(earlier / "sweep")
    for name in ("runs", "cells", "repeats"):
        assert set(sweep.results[name]["augment"]) == {"none"}
    columns = sweep.results["cells"].columns
    assert columns[columns.index("vary") + 1] == "augment"
