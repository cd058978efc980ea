"""The time that missing runs take, as planned and as observed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import polars as pl

from manyseed.analysis.counts import duration
from manyseed.orchestrator.errors import StoreError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.store.arrays import MISSING
from manyseed.orchestrator.survey import Survey
from manyseed.orchestrator.tasks.attempts import Attempt


def expected(state: Survey, paths: SweepPaths) -> dict[str, tuple[int, float]]:
    """Return how many missing fits each device has, and the seconds that one of it needs."""
    runs = _priced(paths, state).filter(pl.col("seconds") > 0, state=MISSING)
    by_device = runs.group_by("device").agg(pl.len(), pl.col("seconds").sum()).sort("device")
    return {device: (fits, seconds) for device, fits, seconds in by_device.iter_rows()}


_FITS = 3.0
"""This many fits of each process, at the expected speed, are blended with the observed ones."""
_LEAST_SECONDS = 30.0
_START_SECONDS = 5.0  # of a training process: imports
_MOST_HOPE = 2.0


def seconds_left(
    paths: SweepPaths,
    state: Survey,
    attempts: Sequence[Attempt],
    rest: pl.DataFrame | None = None,
) -> float:
    """Return how many seconds the current training processes need for all runs that tasks hold.

    A fit's cost is the mean duration of published fits of its dataset and classifier, else of its
    classifier, else its expected duration, plus the expected time to measure its response curves.
    The speed of the processes is the cost of what they finished since they started, blended with
    the expected speed, but at most twice what was seen since they began to train. Fits of a
    classifier of which they finished none are not expected to be any quicker than planned. What
    has been in training for long is done so far as its time says, at that speed; a fit that has
    outlasted its cost counts as if it ended now, so that the time left rises only for this.

    `attempts`: the running attempts, with at least one training process in total. `rest`: the
    missing runs that no task holds, as `problems.unheld` returns.
    """
    runs = _priced(paths, state)
    by_group = runs.group_by("group").agg(pl.col("seconds").mean())
    means = {str(group): mean for group, mean in by_group.iter_rows()}
    workers = sum(attempt.workers for attempt in attempts)
    spent = sum(attempt.workers * max(0.0, time.time() - attempt.started) for attempt in attempts)
    ended: Counter[str] = Counter()
    for attempt in attempts:
        ended.update(attempt.done)
        ended.update(attempt.failed)
    finished = sum(n * means.get(group, 0.0) for group, n in ended.items())
    (longest,) = runs.select(pl.col("seconds").max().fill_null(0.0)).row(0)
    blended = float(workers * max(_LEAST_SECONDS, _FITS * longest))
    flying = _in_flight(runs, attempts)
    spent -= sum(elapsed for elapsed, _, _ in flying)
    each = float((finished + blended) / (max(0.0, spent) + blended))
    for elapsed, cost_of_it, _ in flying:
        if elapsed * each > cost_of_it:
            finished, spent = finished + cost_of_it, spent + elapsed
    spent = max(0.0, spent)
    each = float((finished + blended) / (spent + blended))
    speed = workers * each
    trained = spent - workers * _START_SECONDS
    if ended.total() >= workers and trained > 0:  # far less may have been expected than it took
        speed = min(speed, float(_MOST_HOPE * workers * finished / trained))
    seen = runs.filter(pl.col("group").cast(pl.String).is_in(list(ended)))["classifier"].unique()
    missing = runs.filter(state=MISSING)
    if rest is not None:
        missing = missing.join(rest, on=["group", "row"], how="anti")
    is_seen = pl.col("classifier").is_in(seen.implode())
    known, unknown = (float(missing.filter(one)["seconds"].sum()) for one in (is_seen, ~is_seen))
    for elapsed, cost_of_it, classifier in flying:
        done = min(elapsed * each, cost_of_it)
        if classifier in seen:
            known = max(0.0, known - done)
        else:
            unknown = max(0.0, unknown - done)
    left = known / speed + unknown / min(speed, float(workers))
    return max(round(left, 1), min(left, 0.1))


def _in_flight(runs: pl.DataFrame, attempts: Sequence[Attempt]) -> list[tuple[float, float, str]]:
    """Return the elapsed seconds, the cost and the classifier of fits that have trained for long.

    `runs`: as `_priced` returns.
    """
    costs = runs.group_by("cell").agg(pl.col("seconds").max(), pl.col("classifier").first())
    known = {cell: (seconds, name) for cell, seconds, name in costs.iter_rows()}
    return [
        (max(0.0, time.time() - one.began), *known.get(one.cell, (0.0, "")))
        for attempt in attempts
        for one in attempt.in_flight
    ]


_HANGS = 10.0  # times as long as fits that finished, or were expected to take


def hanging(paths: SweepPaths, state: Survey, attempts: Sequence[Attempt]) -> list[str]:
    """Return a sentence for each run in flight that takes far longer than others, or expected.

    `attempts`: the running attempts.
    """
    if not any(attempt.in_flight for attempt in attempts):
        return []
    runs = _priced(paths, state)
    means = dict(runs.group_by("cell").agg(pl.col("seconds").max()).iter_rows())
    names = dict(state.plan.cells.select("cell", "classifier").iter_rows())
    told = []
    for attempt in attempts:
        for one in attempt.in_flight:
            seconds, planned = time.time() - one.began, means.get(one.cell, 0.0)
            if seconds < _HANGS * max(one.usual, planned):
                continue
            most = duration(one.usual or planned)
            others = f"others took up to {most}" if one.usual else f"{most} were expected"
            told.append(
                f"run {one.cell}:{one.repeat}:{one.run} ({names.get(one.cell, '?')}) has trained "
                f"for {duration(seconds)}, {others}; if it hangs, end it: "
                + command("cancel", paths.directory, "--now")
            )
    return told


def _priced(paths: SweepPaths, state: Survey) -> pl.DataFrame:
    """Add to all runs the columns seconds, which is 0 for copies of identical runs, and device."""
    from manyseed.orchestrator.plans import cost  # imports pydantic

    observed = measuring = None
    try:
        groups = Groups.read(paths)
        if any(spec.response for spec in groups.specs):
            measuring = cost.planned_seconds(paths, state.plan, groups.specs)
        observed = cost.observed_seconds(paths, state.plan, groups)
    except StoreError:  # the store is damaged, which other commands report
        pass
    costs = cost.seconds(state.plan, observed, measuring)
    is_copy = cost.untrained_copies(state.plan)
    classifiers = state.plan.cells.select("cell", "classifier")
    return state.runs.join(costs.join(classifiers, on="cell"), on="cell").with_columns(
        seconds=pl.when(is_copy).then(0.0).otherwise("seconds")
    )
