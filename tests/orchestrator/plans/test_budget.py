"""``plan --budget``: the largest design that costs no more."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.plans import cost
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

    limits = (cost.Limit(most, "coreh"),)
    designs = [(repeats, n) for n in range(runs, 1, -1)] + [(r, 2) for r in range(repeats, 0, -1)]
    fits = [each for each in designs if sum(costs) * each[0] * each[1] <= most]
    if not fits:
        with pytest.raises(UserError):
            cost.fit_budget(limits, sweep, price)
        return
    assert cost.fit_budget(limits, sweep, price).kept == fits[0]


def test_the_file_is_read_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path / "wine.toml", WINE)
    seen: list[Sequence[str]] = []

    def price(settings: Sequence[str]) -> dict[str, Any]:
        seen.append(settings)
        runs = dict(each.split("=") for each in settings).get("runs", "30")
        return {"core_hours": int(runs) / 10}

    fitted = cost.fit_budget(cost.read_budget("0.5coreh"), read_sweep_file(file), price)
    assert fitted.settings == ("runs=5", "grid[1].runs=5")
    assert seen[0] == ()
