"""How long a sweep still takes: first what is expected, then what is seen."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manyseed.orchestrator.progress import timeleft
from manyseed.orchestrator.progress.timeleft import hanging, seconds_left
from manyseed.orchestrator.store.arrays import DONE, MISSING
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.tasks.attempts import Attempt, InFlight

WORKERS = 4


def attempt(done: dict[str, int], elapsed: float) -> Attempt:
    return Attempt("running", "", started=time.time() - elapsed, done=done, workers=WORKERS)


@pytest.fixture
def expected(quick: Sweep, monkeypatch: pytest.MonkeyPatch) -> float:
    """Every fit takes ten seconds, and none was published."""
    import polars as pl

    from manyseed.orchestrator.plans import cost

    def seconds(plan: Any, observed: Any, measuring: Any) -> pl.DataFrame:
        return plan.cells.select("cell", seconds=pl.lit(10.0), device=pl.lit("cpu"))

    monkeypatch.setattr(cost, "seconds", seconds)
    return 10.0


def test_time_left_follows_the_speed_that_was_seen(quick: Sweep, expected: float) -> None:
    """Fits take five times as long as was thought; two identical cells' copies take nothing."""
    survey = quick.survey()
    states = {group: np.full_like(each, MISSING) for group, each in survey.states.items()}
    todo = dataclasses.replace(survey, states=states)
    fits = 64 - 2 * 3  # without copies
    left = expected * fits / WORKERS
    assert seconds_left(quick.paths, todo, [attempt({}, 0.0)]) == pytest.approx(left, rel=0.01)
    states[0][:16] = DONE
    half = expected * (fits - 16) / WORKERS
    elapsed = 16 * 5 * expected / WORKERS
    slow = [attempt({"0": 16}, elapsed)]
    assert 2 * half < seconds_left(quick.paths, todo, slow) < 5 * half
    states[0][:16] = MISSING
    for fits_seen in (1_000, 100_000):  # of a larger sweep's
        elapsed = fits_seen * 5 * expected / WORKERS
        found = seconds_left(quick.paths, todo, [attempt({"0": fits_seen}, elapsed)])
    assert found == pytest.approx(5 * left, rel=0.1)


def test_fits_that_were_thought_to_take_next_to_nothing_are_not_done_at_once(
    quick: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe saw a hundredth of what fits take; the first ones are not published yet."""
    import polars as pl

    from manyseed.orchestrator.plans import cost

    def seconds(plan: Any, observed: Any, measuring: Any) -> pl.DataFrame:
        return plan.cells.select("cell", seconds=pl.lit(0.01), device=pl.lit("cpu"))

    monkeypatch.setattr(cost, "seconds", seconds)
    survey = quick.survey()
    states = {group: np.full_like(each, MISSING) for group, each in survey.states.items()}
    states[0][:16] = DONE
    todo = dataclasses.replace(survey, states=states)
    left = 1.0 * (64 - 2 * 3 - 16) / WORKERS
    found = seconds_left(quick.paths, todo, [attempt({"0": 16}, 5.0 + 16 * 1.0 / WORKERS)])
    assert 0.4 * left < found < 1.2 * left
    states = {group: np.full_like(each, DONE) for group, each in survey.states.items()}
    states[0][:1] = MISSING
    todo = dataclasses.replace(survey, states=states)
    assert 0 < seconds_left(quick.paths, todo, [attempt({}, 0.0)]) < 0.1, "not 0 s"


def test_quick_fits_say_nothing_of_those_of_another_classifier(
    quick: Sweep, expected: float
) -> None:
    """The linear fits took a hundredth of what was thought; those of trees have not begun."""
    survey = quick.survey()
    runs = survey.runs.join(survey.plan.cells.select("cell", "classifier"), on="cell")
    states = {group: np.full_like(each, MISSING) for group, each in survey.states.items()}
    linear = runs.filter(classifier="lr-sgd")["group"].unique().to_list()
    for group in linear:
        states[group][:] = DONE
    todo = dataclasses.replace(survey, states=states)
    quickly = attempt({str(group): 10_000 for group in linear}, 10_000 * expected / 100 / WORKERS)
    copies = 2 * 3
    trees = expected * (runs.filter(classifier="xgb").height - copies) / WORKERS
    assert seconds_left(quick.paths, todo, [quickly]) == pytest.approx(trees, rel=0.15)


def test_a_first_fit_that_takes_its_time_is_no_standstill(quick: Sweep, expected: float) -> None:
    found = [seconds_left(quick.paths, quick.survey(), [attempt({}, n)]) for n in (0.0, 20.0)]
    assert found == [0.0, 0.0], "nothing is missing"
    states = {g: np.full_like(each, MISSING) for g, each in quick.survey().states.items()}
    todo = dataclasses.replace(quick.survey(), states=states)
    first, later = (seconds_left(quick.paths, todo, [attempt({}, n)]) for n in (0.0, expected))
    assert first < later < 1.5 * first


def test_the_time_left_falls_while_a_long_fit_trains(
    quick: Sweep, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen twice as slow as expected; a fit that outlasts the others makes the rest seem longer."""
    survey, now = quick.survey(), 1e9
    monkeypatch.setattr(timeleft, "time", SimpleNamespace(time=lambda: now))
    states = {group: np.full_like(each, MISSING) for group, each in survey.states.items()}
    states[0][:16] = DONE
    todo = dataclasses.replace(survey, states=states)
    (cell,) = survey.runs.filter(group=0, row=16)["cell"]
    elapsed = 16 * 2 * expected / WORKERS

    def left(flying: float) -> float:
        fits = (InFlight(cell, 0, 0, now - flying),) * WORKERS if flying else ()
        began = now - elapsed - flying
        one = dataclasses.replace(attempt({"0": 16}, 0.0), started=began, in_flight=fits)
        return seconds_left(quick.paths, todo, [one])

    within = [left(seconds) for seconds in (0.0, 4.0, 8.0, 12.0)]
    assert within == sorted(within, reverse=True)
    assert within[0] - within[-1] == pytest.approx(12.0, abs=0.5), "as the clock says"
    assert left(200.0) > 2 * within[-1], "no fit of these is as short as was thought"


def test_the_rate_and_the_time_left_agree(
    quick: Sweep, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However quick the fits so far were: at this rate the missing runs take this time."""
    from manyseed.orchestrator.progress import status as module
    from manyseed.orchestrator.submissions.submission import TaskState

    survey = quick.survey()
    states = {group: np.full_like(each, MISSING) for group, each in survey.states.items()}
    states[0][:16] = DONE
    todo = dataclasses.replace(survey, states=states)
    trains = TaskState(0, "running", (attempt({"0": 16}, 3000.0),))
    monkeypatch.setattr(module, "survey", lambda paths: todo)
    monkeypatch.setattr(module, "tasks_of", lambda listed: [[trains] for _ in listed])
    found = quick.status()
    left, missing = found["seconds_left"], found["runs"]["missing"]
    assert missing == 48
    assert left is not None
    assert found["runs_per_hour"] * left / 3600 == pytest.approx(missing, rel=0.01)
    monkeypatch.setattr(module, "stop_request", lambda folder: "stop")
    found = quick.status()
    assert found["seconds_left"] is None
    assert found["runs_per_hour"] == pytest.approx(3600 * 16 / 3000, rel=0.1)


def test_a_fit_that_takes_far_longer_than_others_is_named(quick: Sweep, expected: float) -> None:
    now, state = time.time(), quick.survey()
    flying = [InFlight(1, 0, 2, now - 600, 1.0), InFlight(0, 1, 1, now - 601, 70.0)]
    first = dataclasses.replace(attempt({"0": 5}, 700.0), in_flight=tuple(flying))
    first.write(folder := quick.paths.tasks)
    assert Attempt.read(folder).in_flight == first.in_flight
    (told,) = hanging(quick.paths, state, [first, attempt({}, 9.0)])
    assert told.startswith("run 1:0:2 (")
    assert "has trained for 10 min 00 s, others took up to 1 s" in told
    assert f"manyseed cancel {quick.directory} --now" in told
    alone = dataclasses.replace(first, in_flight=(InFlight(1, 0, 2, now - 101),))
    (told,) = hanging(quick.paths, state, [alone])
    assert "10 s were expected" in told
    soon = dataclasses.replace(first, in_flight=(InFlight(1, 0, 2, now - 61),))
    assert not hanging(quick.paths, state, [soon]), "not ten times as long as expected"
