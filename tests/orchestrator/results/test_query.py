"""Questions to the result tables of a real sweep: what is shown, and how."""

from __future__ import annotations

import shutil

import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from tests.orchestrator.conftest import inside


@pytest.fixture(scope="module")
def sweep(quick: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """An analysed sweep; tests only read it."""
    folder = tmp_path_factory.mktemp("query") / "sweep"
    copy = Sweep(shutil.copytree(quick.directory, folder))
    copy.analyze(Options(resamples=5), workers=1)
    return copy


def test_runs_are_shown_by_the_address_that_show_takes(sweep: Sweep) -> None:
    runs = sweep.query("runs", columns=["address", "cell", "repeat_index", "run_index", "cell_id"])
    for row in runs.sample(3, seed=1).iter_rows(named=True):
        shown = sweep.show(row["address"])
        assert (shown["cell"], shown["repeat"], shown["run"]) == tuple(row.values())[1:4]
        assert shown["cell_id"] == row["cell_id"]
    assert sweep.query("ranking")["address"].is_in(runs["address"].implode()).all()
    pairs = sweep.query("pairs", where="address_i = '0:1:0'")
    assert pairs["address_j"].to_list() == ["0:1:1", "0:1:2", "0:1:3"]
    assert "address" not in sweep.results["runs"].columns


def test_no_match_says_so(sweep: Sweep) -> None:
    code, told = inside("query", sweep.directory, "-w", "classifier = 'mlp'")
    assert (code, told) == (0, "No row of the table of cells meets: classifier = 'mlp'\n")


@pytest.mark.parametrize("table", ["uncertainty", "dee", "curves", "ensembles"])
def test_a_table_that_is_not_there_says_how_it_comes(sweep: Sweep, table: str) -> None:
    code, told = inside("query", sweep.directory, "-t", table)
    assert (code, f'--table = "{table}": there is none yet' in told) == (2, True)


def test_a_value_without_quotes_is_told_with_them(sweep: Sweep) -> None:
    code, told = inside("query", sweep.directory, "-w", "classifier = lr-sgd")
    assert code == 2
    assert told.endswith("write 'lr-sgd' in single quotes: classifier = 'lr-sgd'\n")
    assert "polars" not in told
    assert (
        sweep.query(where="classifier = 'lr-sgd'")
        .filter(pl.col("classifier") != "lr-sgd")
        .is_empty()
    )
