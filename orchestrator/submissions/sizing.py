"""Missing runs → tasks whose size suits a cluster: breadth first, by estimated time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from manyseed.orchestrator.tasks.task import turns

_LEAST_SECONDS = 300.0
"""Shortest training time worth the startup cost of a task."""
_LEAST_FIT = 1e-4


@dataclass(frozen=True, slots=True)
class TaskSize:
    """Limits for a cluster's tasks of one resource class.

    Attributes
    ----------
    processes : int
        Training processes of a task.
    seconds : float
        Longest training time of a task; one that takes longer is requeued until it is done.
    parallelism : int
        Number of tasks that may run at once; the work is spread over that many if it is enough.
    most : int
        Number of tasks that may be submitted.
    """

    processes: int
    seconds: float
    parallelism: int
    most: int


def cut(
    rows: pl.DataFrame, costs: pl.DataFrame, identical: pl.Series, shapes: Mapping[str, TaskSize]
) -> pl.DataFrame:
    """Assign each run its resource class and its task.

    Parameters
    ----------
    rows : DataFrame
        Runs: columns group, cell, repeat, run, row.
    costs : DataFrame
        A row per cell: columns cell, seconds (of a fit), device (cpu or gpu).
    identical : Series
        Cells in which only the first run of a repeat is trained; its copies stay in its task.
    shapes : mapping
        By resource class.

    Returns
    -------
    DataFrame
        The runs with the columns resource (String) and task (UInt32, counted from 0 over all
        classes), in the order in which they are cut: by repeat, `turns`, group, row.
    """
    priced = (
        rows.join(costs.rename({"device": "resource"}), on="cell", how="left")
        .with_columns(
            copy=pl.col("cell").is_in(identical.implode()),
            seconds=pl.col("seconds").fill_null(_LEAST_FIT).clip(_LEAST_FIT),
        )
        .with_columns(
            seconds=pl.when(pl.col("copy") & (pl.col("run") > 0)).then(0.0).otherwise("seconds"),
            turn=turns("resource", together=pl.col("copy")),
        )
        .sort("repeat", "turn", "group", "row")
    )
    parts, first = [priced.clear().with_columns(task=pl.lit(None, dtype=pl.UInt32))], 0
    for resource, shape in shapes.items():
        part = priced.filter(pl.col("resource") == resource)
        if part.is_empty():
            continue
        part = _cut(part, _number(part, shape)).with_columns(pl.col("task") + first)
        first += part["task"].n_unique()
        parts.append(part)
    return pl.concat(parts).drop("copy", "seconds", "turn")


def _number(rows: pl.DataFrame, shape: TaskSize) -> int:
    """Return the number of tasks into which to cut these runs."""
    total = float(rows["seconds"].sum()) / shape.processes
    needed = math.ceil(total / shape.seconds)
    spread = min(shape.parallelism, math.ceil(total / _LEAST_SECONDS))
    return max(1, min(max(needed, spread), shape.most, len(rows)))


def _cut(rows: pl.DataFrame, number: int) -> pl.DataFrame:
    share = max(float(rows["seconds"].sum()), _LEAST_FIT) / number
    before = pl.col("seconds").cum_sum() - pl.col("seconds")
    part = (before / share).floor().clip(0, number - 1).cast(pl.UInt32)
    cut = rows.with_columns(part=part).with_columns(
        part=pl.when("copy")
        .then(pl.col("part").min().over("group", "cell", "repeat"))
        .otherwise("part")
    )
    # copies that moved to their source's task may leave a number without runs
    return cut.with_columns(task=(pl.col("part").rank("dense") - 1).cast(pl.UInt32)).drop("part")
