"""``plan --budget``: the largest design that costs no more; and what measures costs first."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change
from manyseed.orchestrator.submissions import forecast
from tests.orchestrator.conftest import command, write

WINE = """
name = "wine"
seed = 1
repeats = 4
runs = 30
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd", "mlp"]
[[grid]]
dataset = ["sklearn:iris"]
classifier = ["mlp"]
runs = 9
"""


def plan(file: Path, *options: object) -> dict[str, Any]:
    done = command("plan", file, "--json", *options)
    assert done.returncode == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_one_run_more_would_cost_too_much(tmp_path: Path) -> None:
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    whole = plan(file, "--dry-run")["core_hours"]
    most = f"{whole / 2:.9f}coreh"
    told = plan(file, "--dry-run", "--budget", most)
    runs = told["budget"]["runs"]
    assert told["budget"]["repeats"] == 4
    assert told["core_hours"] <= whole / 2
    own = f"grid[1].runs={min(9, runs + 1)}"
    more = plan(file, "--dry-run", "--set", f"runs={runs + 1}", "--set", own)
    assert more["core_hours"] > whole / 2
    # what is written is what --set writes
    shown = command("plan", file, "--out", out, "--budget", f"{most},1GB").stdout
    assert f"Within the budget: {runs} of 30 runs, " in shown
    assert f"about {math.sqrt(30 / runs):.2g} times as wide" in " ".join(shown.split())
    assert f"runs = {runs}\n" in (out / "sweep.toml").read_text()


def test_enough_and_too_little(tmp_path: Path) -> None:
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    told = plan(file, "--dry-run", "--budget", "9999coreh, 1TB")
    assert told["budget"] == {"settings": [], "repeats": 4, "runs": 30}
    for text, said in {
        "0.000001coreh": "one repeat of 2 runs costs",
        "5": "is no budget",
        "5 cores": "is no budget",
        "0gpuh": "is no budget",
    }.items():
        done = command("plan", file, "--out", out, "--budget", text)
        assert done.returncode == 2
        assert said in done.stderr
        assert "--budget" in done.stderr
        assert not out.exists()


def test_crossed_sources_keep_their_square(tmp_path: Path) -> None:
    text = WINE.replace("runs = 30", "runs = 25").replace("runs = 9\n", "")
    text = text.replace(
        'classifier = ["lr-sgd", "mlp"]', 'vary = ["init*batch"]\nclassifier = ["mlp"]'
    )
    file = write(tmp_path / "wine.toml", text.partition('[[grid]]\ndataset = ["sklearn:iris')[0])
    whole = plan(file, "--dry-run")["core_hours"]
    told = plan(file, "--dry-run", "--budget", f"{whole * 0.7:.9f}coreh")
    assert told["budget"]["runs"] == 16


def test_a_deadline_is_hours_of_all_cores_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.slurm.local.available_cores", lambda: 3)
    file = write(tmp_path / "wine.toml", WINE)
    whole = plan(file, "--dry-run")["core_hours"]
    most = whole / 3 / 2
    told = plan(file, "--dry-run", "--budget", f"{most:.9f}h")
    runs = told["budget"]["runs"]
    assert told["core_hours"] / 3 <= most
    own = f"grid[1].runs={min(9, runs + 1)}"
    more = plan(file, "--dry-run", "--set", f"runs={runs + 1}", "--set", own)
    assert more["core_hours"] / 3 > most
    assert plan(file, "--dry-run", "--budget", f"{most / 24:.9f}d")["budget"] == told["budget"]


def test_a_deadline_is_a_local_time_to_come(tmp_path: Path) -> None:
    file = write(tmp_path / "wine.toml", WINE)
    assert plan(file, "--dry-run", "--budget", "2999-01-31T08:00,1TB")["budget"]["runs"] == 30
    for date, said in {"2026-02-31": "is no budget", "2001-01-01T08:00": "is past"}.items():
        done = command("plan", file, "--dry-run", "--budget", date)
        assert (done.returncode, said in done.stderr) == (2, True), done.output


@given(
    st.floats(0.5, 2000),
    st.integers(1, 30),
    st.integers(2, 60),
    st.lists(st.floats(0.01, 3), min_size=1, max_size=3),
)
def test_the_largest_of_all_designs_is_found(
    most: float, repeats: int, runs: int, costs: list[float]
) -> None:
    """Against all designs, one by one: as many runs as possible, then as many repeats."""

    class Table:
        def __init__(self, repeats: int | None, runs: int | None) -> None:
            self.repeats, self.runs, self.vary = repeats, runs, ["init"]

    sweep: Any = Table(repeats, runs)
    sweep.grid = [Table(None, None) for _ in costs]

    def price(settings: Sequence[str]) -> dict[str, Any]:
        has = {"repeats": repeats, "runs": runs}
        has |= {key: int(n) for key, n in (each.split("=") for each in settings)}
        return {"core_hours": sum(costs) * has["repeats"] * has["runs"]}

    limits = (forecast.Limit(most, "coreh"),)
    designs = [(repeats, n) for n in range(runs, 1, -1)] + [(r, 2) for r in range(repeats, 0, -1)]
    fits = [each for each in designs if sum(costs) * each[0] * each[1] <= most]
    if not fits:
        with pytest.raises(UserError):
            forecast.fit_budget(limits, sweep, price)
        return
    assert forecast.fit_budget(limits, sweep, price).kept == fits[0]


def test_the_file_is_read_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path / "wine.toml", WINE)
    seen: list[Sequence[str]] = []

    def price(settings: Sequence[str]) -> dict[str, Any]:
        seen.append(settings)
        runs = dict(each.split("=") for each in settings).get("runs", "30")
        return {"core_hours": int(runs) / 10}

    fitted = forecast.fit_budget(forecast.read_budget("0.5coreh"), read_sweep_file(file), price)
    assert fitted.settings == ("runs=5", "grid[1].runs=5")
    assert seen[0] == ()


@pytest.mark.parametrize("held", [3, 4, 9])
def test_a_sweep_that_holds_more_than_the_budget_allows(tmp_path: Path, held: int) -> None:
    file = write(tmp_path / "wine.toml", WINE)

    def price(settings: Sequence[str]) -> dict[str, Any]:
        runs = int(dict(each.split("=") for each in settings).get("runs", "30"))
        if runs < held:
            raise UserError("this file would change the sweep's cells")
        return {"core_hours": runs / 10}

    budget, sweep = forecast.read_budget("0.5coreh"), read_sweep_file(file)
    if held > 5:
        with pytest.raises(UserError, match="holds more runs already than the budget allows"):
            forecast.fit_budget(budget, sweep, price)
    else:
        assert forecast.fit_budget(budget, sweep, price).kept[1] == 5


GRID = """
name = "grid"
seed = 1
repeats = 2
runs = 4
[[grid]]
dataset = ["sklearn:wine", "sklearn:iris"]
classifier = ["lr-sgd", "xgb", "mlp"]
train_fraction = [0.3, 0.5, 0.8, 1.0]
"""


def test_a_pilot_is_spread_over_cells_and_begins_with_what_is_cheap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = plan_change(write(tmp_path / "grid.toml", GRID), tmp_path / "sweep", [])
    planned, rows = change.after, change.added
    costs = cost.seconds(planned)
    pairs = planned.cells.select("cell", "dataset", "classifier", "identical")
    enough = cost.pilot(planned, rows, costs, 1e9)
    chosen = enough.join(pairs, on="cell")
    counts = (
        chosen.join(costs, on="cell")
        .group_by("dataset", "classifier")
        .agg(pl.len(), pl.col("cell").n_unique(), pl.col("seconds").sum())
    )
    assert counts["cell"].to_list() == [4] * 6, "each cell, before one is measured again"
    for n, _, took in counts.select("len", "cell", "seconds").rows():
        assert n == 5 or took <= cost.PILOT_PAIR_SECONDS, "more of them only if they are short"
    short = counts.filter(classifier="lr-sgd")["len"].to_list()
    assert short == [32, 32], "all, as the first of a process tell little of short ones"
    assert chosen.filter("identical", pl.col("run") > 0).is_empty(), "copies are not trained"
    assert enough.join(rows, on=rows.columns, how="anti").is_empty()
    seconds = chosen.join(costs, on="cell")["seconds"]
    for most in (0.0, float(seconds.min()), float(seconds.sum()) / 3):
        some = cost.pilot(planned, rows, costs, most)
        took = some.join(costs, on="cell")["seconds"]
        assert len(some) == 1 or took.sum() <= most
        assert some.equals(enough.head(len(some)))
    first = enough.head(6).join(pairs, on="cell")
    assert len(first.unique(["dataset", "classifier"])) == 6, "all take turns"
    monkeypatch.setattr(cost, "PILOT_PAIR_SECONDS", 0.0)
    five = cost.pilot(planned, rows, costs, 1e9).join(pairs, on="cell")
    assert five.group_by("dataset", "classifier").len()["len"].to_list() == [5] * 6


def test_what_measured_fits_leave_open_is_kept_back(tmp_path: Path) -> None:
    """The budget is for what they will take; by a ratio of sums, as it is estimated."""
    change = plan_change(write(tmp_path / "grid.toml", GRID), tmp_path / "sweep", [])
    random = np.random.default_rng(0)
    assert change.standard_errors == {}
    pairs = change.cells.select("cell", "dataset", "classifier", "core_seconds", "repeats", "runs")
    pair = pairs.filter(dataset="sklearn:wine", classifier="mlp")
    taken = [(c, s * t) for c, _, _, s, _, _ in pair.rows() for t in random.uniform(0.5, 3, 5)]
    took = pl.DataFrame(taken, schema=["cell", "t"], orient="row").with_columns(
        pl.col("cell").cast(pl.UInt32)
    )
    sums = {"observed": pl.col("t").sum(), "squares": pl.col("t").pow(2).sum()}
    observed = took.group_by("cell").agg(n=pl.len(), **sums)
    errors = replace(change, observed=observed).standard_errors
    expected = took.join(pair, on="cell")["core_seconds"].to_numpy()
    seconds = took["t"].to_numpy()
    ratio = seconds.sum() / expected.sum()
    spread = (seconds - ratio * expected).std(ddof=1) * math.sqrt(len(seconds)) / seconds.sum()
    fits = (pair["core_seconds"] * pair["repeats"] * pair["runs"]).sum()
    assert errors == {"core_hours": pytest.approx(ratio * fits * spread / 3600)}
    # a single fit tells nothing of it, nor do equal ones
    one = observed.head(1).with_columns(n=pl.lit(1, pl.UInt32))
    assert replace(change, observed=one).standard_errors == {}


def test_a_budget_holds_with_what_is_kept_back() -> None:
    (limit,) = forecast.read_budget("10coreh")
    summary = {"core_hours": 9.0, forecast.ERRORS: {"core_hours": 0.9}}
    assert limit.allows(summary)
    assert not limit.allows({"core_hours": 9.0, forecast.ERRORS: {"core_hours": 1.1}})
    design = forecast.BudgetedDesign(("runs=3",), (1, 9), (1, 3), summary)
    told = [*design.sentences([limit])]
    assert told[1].startswith("Kept back: 0.9 core hours, as the fits measured so far vary")
    (files,) = forecast.read_budget("10files")
    assert files.kept_back({"store_files": 9, **summary}) == 0


def test_a_pilot_is_trained_and_corrects_the_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "PILOT_PAIR_SECONDS", 0.0)  # else all are short enough
    text = GRID.replace("repeats = 2\nruns = 4", "repeats = 1\nruns = 2").replace('"xgb", ', "")
    sweep = Sweep.plan(write(tmp_path / "grid.toml", text), tmp_path / "sweep")
    done = command("submit", sweep.directory, "--workers", 1, "--calibrate")
    assert done.returncode == 0, done.output
    runs = sweep.status()["runs"]
    assert runs["done"] == 20
    observed = cost.observed_seconds(sweep.paths, Plan.read(sweep.paths), Groups.read(sweep.paths))
    assert observed["n"].sum() == 20
    assert "fits left: " in done.stdout
    assert sweep.submit(workers=1) is not None
    sweep.wait()
    assert sweep.status()["runs"]["missing"] == 0
    assert sweep.status()["duplicates"] == 0
    again = command("submit", sweep.directory, "--workers", 1, "--calibrate")
    assert (again.returncode, "Nothing to submit" in again.stdout) == (0, True), again.output
