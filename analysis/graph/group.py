"""Analysis of groups: predictions in, result tables out.

groups = [analyze_group(predictions, Options())]
tables = compute(groups, scheduler="threads")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dask.base import compute as dask_compute
from dask.callbacks import Callback
from dask.delayed import Delayed

from manyseed.analysis.graph.chunks import build
from manyseed.analysis.graph.predictions import Predictions, unavailable
from manyseed.analysis.metrics.registry import schema
from manyseed.analysis.options import Options, is_own
from manyseed.analysis.tables.rows import RUN, Tables
from manyseed.analysis.tables.schema import Block, GroupColumns, combine

ReportProgress = Callable[[int, int], None]
"""Called with (blocks done, all blocks) before the first block and after each."""


@dataclass(frozen=True, slots=True)
class GroupAnalysis:
    """The lazy analysis of one group: its blocks, and how to combine them into tables."""

    predictions: Predictions
    options: Options
    layout: GroupColumns
    blocks: tuple[Delayed, ...]

    def _probe(self) -> str | None:
        if "alpha_hat" in unavailable(self.predictions, self.options):
            return None
        if not self.predictions.has_margin and not is_own(self.options.probe):
            return None
        return self.predictions.probe(self.options)

    def combine(self, blocks: Sequence[Block]) -> Tables:
        """Make tables of computed blocks, in any order."""
        return combine(blocks, self.layout, self._probe(), self.predictions.runs_planned)


def analyze_group(predictions: Predictions, options: Options | None = None) -> GroupAnalysis:
    """Plan the analysis of one group; nothing is read or computed yet."""
    options = options if options is not None else Options()
    types = predictions.runs.schema
    keys = {name: types[name] for name in RUN}
    layout = GroupColumns(keys, schema(options.metrics))
    return GroupAnalysis(predictions, options, layout, tuple(build(predictions, options, layout)))


def compute(
    groups: Sequence[GroupAnalysis],
    *,
    scheduler: Any = "threads",
    workers: int | None = None,
    progress: ReportProgress | None = None,
) -> list[Tables]:
    """Compute groups together and return the tables of each.

    Parameters
    ----------
    scheduler : str or distributed.Client
        One of dask's local schedulers ("threads", "processes", "synchronous"), or a client.
    workers : int or None
        Threads or processes of a local scheduler; None for dask's default.
    """
    blocks = [block for group in groups for block in group.blocks]
    results = compute_all(blocks, scheduler=scheduler, workers=workers, progress=progress)
    tables, start = [], 0
    for group in groups:
        stop = start + len(group.blocks)
        tables.append(group.combine(results[start:stop]))
        start = stop
    return tables


def compute_all(
    tasks: Sequence[Delayed],
    *,
    scheduler: Any = "threads",
    workers: int | None = None,
    progress: ReportProgress | None = None,
) -> list[Any]:
    """Compute tasks and return their results; other parameters are those of `compute`."""
    report = progress or (lambda done, total: None)
    report(0, len(tasks))
    if isinstance(scheduler, str):
        return _compute_locally(tasks, scheduler, workers, report)
    return _compute_on_client(tasks, scheduler, report)


def _compute_locally(
    tasks: Sequence[Delayed], scheduler: str, workers: int | None, report: ReportProgress
) -> list[Any]:
    waiting = {task.key for task in tasks}

    def count(key: Any, *_: object) -> None:
        if key in waiting:
            waiting.discard(key)
            report(len(tasks) - len(waiting), len(tasks))

    with Callback(posttask=count):
        return list(dask_compute(*tasks, scheduler=scheduler, num_workers=workers))


def _compute_on_client(tasks: Sequence[Delayed], client: Any, report: ReportProgress) -> list[Any]:
    from distributed import as_completed

    futures = client.compute(list(tasks))
    results: dict[str, object] = {}
    completed = as_completed(futures, loop=client.loop, with_results=True)
    for done, (future, result) in enumerate(completed, start=1):
        results[future.key] = result
        future.release()  # so that a worker that dies later cannot lose it
        report(done, len(tasks))
    return [results[future.key] for future in futures]
