"""How long a sweep still takes: what fits are expected to take, at the speed that was seen."""

from __future__ import annotations

import time
from collections.abc import Sequence

import polars as pl

from manyseed.orchestrator.errors import StoreError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.groups import Groups
from manyseed.orchestrator.store.layout.arrays import MISSING
from manyseed.orchestrator.survey import Survey
from manyseed.orchestrator.tasks.attempts import Attempt

_FITS = 3.0
"""So many fits of each process count as seen, at the expected speed, beside those that were."""
_LEAST_SECONDS = 30.0


def seconds_left(paths: SweepPaths, state: Survey, attempts: Sequence[Attempt]) -> float:
    """Return how long the processes that train now need for all that is missing.

    A fit costs what published fits of its dataset and classifier took, else of its classifier, else
    what is expected of it; to that comes what measuring its response curves is expected to take.
    How fast the processes are is what they finished since they began, at these costs; before
    anything is finished, that of the expectation.

    Parameters
    ----------
    paths : SweepPaths
    state : Survey
    attempts : sequence of Attempt
        What the running attempts report; together they have at least one training process.
    """
    runs = _priced(paths, state)
    left = float(runs.filter(state=MISSING)["seconds"].sum())
    means = {
        str(group): mean
        for group, mean in runs.group_by("group").agg(pl.col("seconds").mean()).iter_rows()
    }
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
    """Return all runs with the column seconds; copies of identical runs cost nothing."""
    observed = measuring = None
    try:
        groups = Groups.read(paths)
        if any(spec.response for spec in groups.specs):
            from manyseed.orchestrator.plans.measuring import planned_seconds  # it reads the file

            measuring = planned_seconds(paths, state.plan, groups.specs)
        observed = cost.observed_seconds(paths, state.plan, groups)
    except StoreError:  # it is damaged: others say so
        pass
    costs = cost.seconds(state.plan, observed, measuring).select("cell", "seconds")
    identical = state.plan.cells.filter("identical")["cell"]
    is_copy = pl.col("cell").is_in(identical.implode()) & (pl.col("run") > 0)
    return state.runs.join(costs, on="cell").with_columns(
        seconds=pl.when(is_copy).then(0.0).otherwise("seconds")
    )
