"""A plan may grow while its workers write."""

from __future__ import annotations

import pytest

from manyseed.orchestrator.plans.planning import plan_sweep
from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.conftest import QUICK, assert_equal, stored, train, wait_until, write

SMALLER = QUICK.replace("runs    = 4", "runs    = 16")  # longer than the plan takes to grow
LARGER = QUICK.replace("repeats = 2", "repeats = 3").replace("runs    = 4", "runs    = 18")


@pytest.mark.slow
@pytest.mark.process
def test_enlarging_a_plan_while_workers_write_loses_nothing(tmp_path, stopped):
    file = write(tmp_path / "quick.toml", SMALLER)
    sweep = Sweep.plan(file, tmp_path / "sweep")
    stopped.append(sweep)
    submission = sweep.submit(workers=2)
    assert submission is not None
    wait_until(lambda: sweep.status()["runs"]["done"] > 4, "the first runs")
    write(file, LARGER)
    change = plan_sweep(file, sweep.directory)
    assert submission.is_alive(), "the workers ended before the plan grew: the test shows nothing"
    assert len(change.added) == 8 * 3 * 18 - 256
    sweep.wait()
    counts = sweep.status()["runs"]
    assert counts["done"] + counts["copy"] == 256
    assert counts["missing"] == len(change.added)
    sweep.submit(workers=2)
    sweep.wait()
    sweep.compact()
    state = sweep.status()
    assert (state["runs"]["missing"], state["runs"]["failed"], state["duplicates"]) == (0, 0, 0)
    # what was trained in between is what a sweep yields that grew at rest
    rested = train(write(tmp_path / "small.toml", SMALLER), tmp_path / "rested")
    plan_sweep(file, rested.directory)
    rested.submit(workers=2)
    rested.wait()
    rested.compact()
    assert_equal(stored(sweep), stored(rested))
