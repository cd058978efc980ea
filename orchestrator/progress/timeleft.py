"""The time that a sweep still needs: expected durations of fits, at the observed speed."""

from __future__ import annotations

import time
from collections.abc import Sequence

import polars as pl

from manyseed.orchestrator.errors import StoreError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.store.layout.arrays import MISSING
from manyseed.orchestrator.survey import Survey
from manyseed.orchestrator.tasks.attempts import Attempt

_FITS = 3.0
"""This many fits of each process, at the expected speed, are blended with the observed ones."""
_LEAST_SECONDS = 30.0


def seconds_left(paths: SweepPaths, state: Survey, attempts: Sequence[Attempt]) -> float:
    """Return how many seconds the current training processes need for all missing runs.

    A fit's cost is the mean duration of published fits of its dataset and classifier, else of its
    classifier, else its expected duration, plus the expected time to measure its response curves.
    The speed of the processes is the cost of what they finished since they started, blended with
    the expected speed.

    Parameters
    ----------
    attempts : sequence of Attempt
        The running attempts, with at least one training process in total.
    """
    runs = _priced(paths, state)
    left = float(runs.filter(state=MISSING)["seconds"].sum())
    by_group = runs.group_by("group").agg(pl.col("seconds").mean())
    means = {str(group): mean for group, mean in by_group.iter_rows()}
    workers = sum(attempt.workers for attempt in attempts)
    spent = sum(attempt.workers * max(0.0, time.time() - attempt.started) for attempt in attempts)
    finished = sum(
        n * means.get(group, 0.0)
        for attempt in attempts
        for ends in (attempt.done, attempt.failed)
        for group, n in ends.items()
    )
    (longest,) = runs.select(pl.col("seconds").max().fill_null(0.0)).row(0)
    blended = float(workers * max(_LEAST_SECONDS, _FITS * longest))
    speed = float(workers * (finished + blended) / (spent + blended))
    return round(left / speed, 1)


def _priced(paths: SweepPaths, state: Survey) -> pl.DataFrame:
    """Add the column seconds to all runs; copies of identical runs cost nothing."""
    from manyseed.orchestrator.plans import cost
    from manyseed.orchestrator.plans.layout import Groups

    observed = measuring = None
    try:
        groups = Groups.read(paths)
        if any(spec.response for spec in groups.specs):
            from manyseed.orchestrator.plans.cost import planned_seconds

            measuring = planned_seconds(paths, state.plan, groups.specs)
        observed = cost.observed_seconds(paths, state.plan, groups)
    except StoreError:  # the store is damaged, which other commands report
        pass
    costs = cost.seconds(state.plan, observed, measuring).select("cell", "seconds")
    identical = state.plan.cells.filter("identical")["cell"]
    is_copy = pl.col("cell").is_in(identical.implode()) & (pl.col("run") > 0)
    return state.runs.join(costs, on="cell").with_columns(
        seconds=pl.when(is_copy).then(0.0).otherwise("seconds")
    )
