"""Where every run is stored: cells to rows of groups, in the order repeat index, cell, run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from orchestrator.groups import Groups
from orchestrator.paths import SweepPaths
from orchestrator.plan import ROWS, Plan
from orchestrator.store.arrays import FLAGS
from orchestrator.store.groups import METADATA, open_group
from orchestrator.store.planning import Flags, Rows, create_group, extend_group


@dataclass(frozen=True, slots=True)
class CellExtent:
    """How many repeats and runs of a cell are asked for, and which group stores them."""

    cell: int
    group: int
    repeats: int
    runs: int


def wanted(extents: list[CellExtent]) -> pl.DataFrame:
    """Return every asked run as columns group, cell, repeat, run, in the store's order."""
    cells = pl.DataFrame(
        {
            "cell": pl.Series([e.cell for e in extents], dtype=pl.UInt32),
            "group": pl.Series([e.group for e in extents], dtype=pl.UInt32),
            "repeats": pl.Series([e.repeats for e in extents], dtype=pl.UInt32),
            "runs": pl.Series([e.runs for e in extents], dtype=pl.UInt32),
        }
    )
    per_cell = (cells["repeats"] * cells["runs"]).to_numpy()
    total = int(per_cell.sum())
    # position of every run within its cell, without a loop over runs
    ends = np.cumsum(per_cell)
    position = np.arange(total) - np.repeat(ends - per_cell, per_cell)
    runs = np.repeat(cells["runs"].to_numpy(), per_cell)
    return pl.DataFrame(
        {
            "group": np.repeat(cells["group"].to_numpy(), per_cell),
            "cell": np.repeat(cells["cell"].to_numpy(), per_cell),
            "repeat": (position // runs).astype(np.uint16),
            "run": (position % runs).astype(np.uint16),
        }
    ).sort("group", "repeat", "cell", "run")


def assign_rows(
    new: pl.DataFrame, lengths: Mapping[int, int], shard_lengths: Mapping[int, int]
) -> pl.DataFrame:
    """Give new runs their rows: each group's begin at the next shard boundary.

    Parameters
    ----------
    new : DataFrame
        Columns group, cell, repeat, run, sorted as `wanted` sorts.
    lengths : mapping
        Rows that each group holds so far.
    shard_lengths : mapping
        Runs a shard of each group.

    Returns
    -------
    DataFrame
        `ROWS` and the column group.
    """
    counts = new.group_by("group", maintain_order=True).len()
    starts = []
    for group in counts["group"].to_list():
        length, shard = lengths.get(group, 0), shard_lengths[group]
        starts.append(-(-length // shard) * shard)
    count = counts["len"].to_numpy()
    within = np.arange(len(new)) - np.repeat(np.cumsum(count) - count, count)
    row = within + np.repeat(np.array(starts, dtype=np.int64), count)
    return new.with_columns(pl.Series("row", row, dtype=pl.UInt32)).select(
        "group", *(pl.col(name).cast(dtype) for name, dtype in ROWS.items())
    )


def lay_out(paths: SweepPaths, plan: Plan, groups: Groups) -> None:
    """Make the store hold a place for every planned run; what is there already stays.

    The plan is the truth: a store that an interrupted planning or submission left behind is
    completed here.
    """
    repeats = dict(
        plan.rows.group_by("group").agg(pl.col("repeat").max().cast(pl.Int64) + 1).iter_rows()
    )
    for part in plan.parts:
        for (group,), rows in plan.with_group(part).partition_by("group", as_dict=True).items():
            spec = groups.specs[int(group)]
            start = int(rows["row"].to_numpy().min())
            if (paths.store / spec.path / METADATA).exists():
                held = open_group(paths.store, spec.path)
                if held.rows >= start + len(rows) and held.repeats >= repeats[group]:
                    continue
                extend_group(held, _store_rows(rows, plan), repeats[group], start=start)
            else:
                create_group(paths.store, spec, _store_rows(rows, plan), repeats[group])


def _store_rows(rows: pl.DataFrame, plan: Plan) -> Rows:
    """Return what the store says of each run."""
    cells = plan.cells.sort("cell")
    cell = rows["cell"].to_numpy().astype(np.int64)
    flags = {name: Flags.of(cells[name]) for name in FLAGS}
    return Rows(
        cell=cell,
        repeat_index=rows["repeat"].to_numpy(),
        run_index=rows["run"].to_numpy(),
        train_fraction=cells["train_fraction"].to_numpy()[cell],
        flags={name: Flags(flag.codes[cell], flag.meanings) for name, flag in flags.items()},
    )
