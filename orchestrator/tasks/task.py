"""Missing runs → tasks: the work of one job on one node.

A task is a JSON file with everything its processes need (cells, and runs as ranges), so that
they neither open the plan nor import a table library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import DamagedFile

if TYPE_CHECKING:
    import polars as pl

    from manyseed.orchestrator.plans.plan import Plan

TASK_VERSION = 1
_TURNS = 4
"""Cells with few repeats are trained in this many turns over all cells, so that a half-finished
sweep is already a study of all cells."""


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive runs of one repeat of one cell, in consecutive rows of one shard."""

    group: int
    shard: int
    row: int
    cell: int
    repeat: int
    run: int
    count: int
    source: int = -1  # row of the run that these are copies of; -1 if each is trained
    models: int = 1  # 1 to keep their parameters, if the group keeps those of some runs; else 0

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (row, run) of each run."""
        for offset in range(self.count):
            yield self.row + offset, self.run + offset


@dataclass(frozen=True, slots=True)
class TaskCell:
    """A cell as a task needs it."""

    canonical: Mapping[str, object]
    snapshots: tuple[int, ...]
    device: str = "cpu"
    """The resource class requested; a GPU is used only if the task's own class is ``gpu``."""
    code: str = ""  # for users' own code: its digest, or the library's version
    timeout: float = 0.0  # seconds after which a user's command is killed; 0 for never


@dataclass(frozen=True, slots=True)
class Task:
    """The work of one job on one node."""

    groups: dict[int, str]  # store path of each group
    cells: dict[int, TaskCell]  # by cell number
    spans: tuple[Span, ...]
    """Breadth first: one test set for all cells before the next test set; with few test sets, some
    runs of all cells before further runs (see `turns`)."""
    resource: str = "cpu"  # the resource class, ``cpu`` or ``gpu``
    plan: str = ""  # identity of the plan; empty if an earlier version wrote the task
    own_code: str = ""
    """`provenance.code_digest` of the process that wrote the task; empty for a release, or if an
    earlier version wrote the task."""
    stacks: Mapping[int, int] = field(default_factory=dict)
    """By cell number: how many runs are trained at once, of cells where that is more than one."""
    bf16: frozenset[int] = frozenset()  # cells trained with matrix products in bfloat16

    @property
    def n_runs(self) -> int:
        """The number of runs."""
        return sum(span.count for span in self.spans)

    def write(self, path: Path) -> None:
        """Write the task's file."""
        value = {
            "v": TASK_VERSION,
            "resource": self.resource,
            "plan": self.plan,
            "groups": self.groups,
            "cells": {
                number: [
                    cell.canonical,
                    cell.snapshots,
                    cell.device,
                    *filter(None, [cell.code, cell.timeout]),
                ]
                for number, cell in self.cells.items()
            },
            "spans": [
                [
                    *(s.group, s.shard, s.row, s.cell, s.repeat, s.run, s.count, s.source),
                    *([] if s.models else [0]),
                ]
                for s in self.spans
            ],
            **({"own_code": self.own_code} if self.own_code else {}),
            **({"stacks": dict(self.stacks)} if self.stacks else {}),
            **({"bf16": sorted(self.bf16)} if self.bf16 else {}),
        }
        write_json(path, value)

    @classmethod
    def read(cls, path: Path) -> Task:
        """Read a task's file."""
        with _damage_of(path):
            value = read_json(path)
            spans = _read_spans(value)
            task = cls(
                {int(group): str(name) for group, name in value["groups"].items()},
                {
                    int(number): TaskCell(dict(canonical), tuple(map(int, snapshots)), *device)
                    for number, (canonical, snapshots, *device) in value["cells"].items()
                },
                spans,
                str(value.get("resource", "cpu")),
                _read_plan(value.get("plan", "")),
                str(value.get("own_code", "")),
                {int(n): max(1, int(members)) for n, members in value.get("stacks", {}).items()},
                frozenset(map(int, value.get("bf16", ()))),
            )
            unknown = (
                {s.group for s in spans} - task.groups.keys(),
                {s.cell for s in spans} - task.cells.keys(),
            )
            if any(unknown):
                raise ValueError("it has runs of groups or cells that it does not describe")
        return task


@contextmanager
def _damage_of(path: Path) -> Iterator[None]:
    """Turn errors in the content of a task's file into `DamagedFile`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"lacks {error}" if isinstance(error, LookupError) else str(error)
        raise DamagedFile(path, f"is not a task: {reason}") from None


def _read_plan(value: object) -> str:
    if not isinstance(value, str) or re.fullmatch(r"([0-9a-f]{32})?", value) is None:
        raise ValueError(f"plan is {value!r}, not an identity")
    return value


def _read_spans(value: Any) -> tuple[Span, ...]:
    """Return the spans of a task's JSON value."""
    if value["v"] != TASK_VERSION:
        raise ValueError(f"its version is {value['v']}; this is {TASK_VERSION}")
    spans = tuple(Span(*span) for span in value["spans"])
    for span in spans:
        numbers = (span.group, span.shard, span.row, span.cell, span.repeat, span.run, span.count)
        if not all(type(number) is int and 0 <= number < 2**32 for number in numbers):
            raise ValueError(f"numbers of runs out of range: {span}")
        if type(span.source) is not int or not -1 <= span.source < 2**32:
            raise ValueError(f"source out of range: {span}")
        if type(span.models) is not int or span.models not in (0, 1):
            raise ValueError(f"models is neither 0 nor 1: {span}")
    return spans


def held_rows(files: Iterable[Path]) -> pl.DataFrame:
    """Return the runs of the tasks in these files: columns group, row and cell (UInt32)."""
    import polars as pl

    spans = []
    for file in files:
        with _damage_of(file):  # not `Task.read`: there may be thousands
            spans += [(s.group, s.row, s.cell, s.count) for s in _read_spans(read_json(file))]
    schema = {"group": pl.UInt32, "row": pl.UInt32, "cell": pl.UInt32, "count": pl.UInt32}
    return (
        pl.DataFrame(spans, schema=schema, orient="row")
        .with_columns(row=pl.int_ranges("row", pl.col("row") + pl.col("count"), dtype=pl.UInt32))
        .explode("row")
        .drop("count")
    )


def turns(*by: str, together: pl.Expr) -> pl.Expr:
    """Return the turn in which each run is trained, from 0: breadth first if there are few repeats.

    Four or more repeats of a cell are trained one after another. Fewer are each split into two to
    four turns over all cells, so that all cells progress at a similar pace.

    ``*by``: columns that identify one sequence of work, such as a task; without any, all runs are
    one. `together`: whether the runs of a cell and repeat must stay together, as copies and their
    source do.
    """
    import polars as pl

    of_cell = (*by, "cell")
    of_repeat = (*of_cell, "repeat")
    runs = pl.len().over(*of_repeat).cast(pl.Int64)
    place = pl.col("run").rank("ordinal").over(*of_repeat).cast(pl.Int64) - 1
    repeats = pl.col("repeat").n_unique().over(*of_cell).cast(pl.Int64)
    number = pl.min_horizontal((_TURNS + repeats - 1) // repeats, runs)
    return pl.when(together).then(0).otherwise(place * number // runs)


def make_tasks(
    plan: Plan,
    rows: pl.DataFrame,
    shard_lengths: dict[int, int],
    code: Mapping[int, tuple[str, float]] = MappingProxyType({}),
    where: Mapping[int, str] = MappingProxyType({}),
    stacks: Mapping[int, int] = MappingProxyType({}),
    bf16: frozenset[int] = frozenset(),
) -> Iterator[Task]:
    """Yield the tasks that train `rows`, in order of their numbers.

    `rows`: columns group, cell, repeat, run, row, resource and task. `shard_lengths`: rows per
    shard of every group. `code`: for cells with users' own code: its digest, and the timeout of a
    command in seconds. `where`: for groups that keep the parameters of only some runs: their
    condition (`plans.keptmodels`). `stacks` and `bf16`: as in `Task`.
    """
    import polars as pl  # tasks import this module but do not need polars

    from manyseed.orchestrator.plans.keptmodels import with_models

    lengths = pl.DataFrame(
        {"group": list(shard_lengths), "shard_length": list(shard_lengths.values())},
        schema={"group": pl.UInt32, "shard_length": pl.UInt32},
    )
    identical = plan.cells.filter("identical").select("cell")
    sources = (
        plan.rows.filter(pl.col("run") == 0)
        .join(identical, on="cell", how="semi")
        .select("cell", "repeat", source=pl.col("row").cast(pl.Int64))
    )
    work = (
        rows.with_columns(with_models(plan.cells, rows, where).cast(pl.Int64))
        .join(lengths, on="group", how="left")
        .join(sources, on=["cell", "repeat"], how="left")
        .with_columns(pl.col("source").fill_null(-1))
        .with_columns(
            shard=pl.col("row") // pl.col("shard_length"),
            turn=turns("task", together=(pl.col("source") >= 0) | pl.col("cell").is_in([*stacks])),
        )
        .sort("task", "repeat", "turn", "group", "row")
    )
    resources = dict(work.select("task", "resource").unique().iter_rows())
    used = plan.cells.join(work.select("cell").unique(), on="cell", how="semi")
    cells = {
        row["cell"]: TaskCell(
            json.loads(row["canonical"]),
            tuple(row["snapshots"]),
            row["device"],
            *code.get(row["cell"], ()),
        )
        for row in used.iter_rows(named=True)
    }
    paths = dict(used.select("group", "path").unique().iter_rows())
    from manyseed.orchestrator.provenance import code_digest

    for task, pairs in groupby(_spans(work), key=lambda pair: pair[0]):
        spans = tuple(span for _, span in pairs)
        yield Task(
            groups={group: paths[group] for group in sorted({span.group for span in spans})},
            cells={cell: cells[cell] for cell in sorted({span.cell for span in spans})},
            spans=spans,
            resource=resources[task],
            plan=plan.identity,
            own_code=code_digest() or "",
            stacks={span.cell: stacks[span.cell] for span in spans if span.cell in stacks},
            bf16=bf16.intersection(span.cell for span in spans),
        )


def _spans(work: pl.DataFrame) -> Iterator[tuple[int, Span]]:
    """Yield each span with its task."""
    if work.is_empty():
        return
    columns = ("task", "group", "shard", "row", "cell", "repeat", "run", "source", "models")
    values = np.stack([work[name].to_numpy().astype(np.int64) for name in columns])
    # a span continues while row and run grow by one and everything else stays the same
    step = np.diff(values, axis=1)
    continues = (step == np.array([0, 0, 0, 1, 0, 0, 1, 0, 0])[:, None]).all(axis=0)
    starts = np.concatenate([[0], np.flatnonzero(~continues) + 1])
    counts = np.diff(np.concatenate([starts, [values.shape[1]]])).tolist()
    for first, count in zip(values[:, starts].T.tolist(), counts, strict=True):
        task, group, shard, row, cell, repeat, run, source, models = first
        yield task, Span(group, shard, row, cell, repeat, run, count, source, models)
