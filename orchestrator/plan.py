"""The plan on disk: cells, and append-only parts with one row a run."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from orchestrator.paths import SweepPaths
from orchestrator.store.files import place

ROWS: Mapping[str, pl.DataType] = {
    "cell": pl.UInt32(),
    "repeat": pl.UInt16(),
    "run": pl.UInt16(),
    "row": pl.UInt32(),
}
"""The columns of a part: which cell, which test set, which run of the repeat, which row of its
group in the store."""

CELLS: Mapping[str, pl.DataType] = {
    "cell": pl.UInt32(),
    "cell_id": pl.String(),
    "group": pl.UInt32(),
    "path": pl.String(),
    "dataset": pl.String(),
    "classifier": pl.String(),
    "train_fraction": pl.Float64(),
    "perturb_continuous": pl.String(),
    "perturb_categorical": pl.String(),
    "perturb_hparams": pl.String(),
    "hparams": pl.String(),
    "vary": pl.String(),
    "identical": pl.Boolean(),
    "snapshots": pl.List(pl.Int32),
    "canonical": pl.String(),
    "part": pl.UInt32(),
}
"""``cells.parquet``: `cell` numbers the cells of this sweep, `group` and `path` say where their
predictions are, `canonical` is the description that `cell_id` is the identity of, `part` the plan
part that brought the cell."""


@dataclass(frozen=True)
class Plan:
    """The cells and runs that a sweep holds."""

    cells: pl.DataFrame
    parts: tuple[pl.DataFrame, ...]

    @classmethod
    def empty(cls) -> Plan:
        """Return a plan that holds nothing."""
        return cls(pl.DataFrame(schema=dict(CELLS)), ())

    @classmethod
    def read(cls, paths: SweepPaths) -> Plan:
        """Read a sweep's plan.

        A part is the commit of a planning: cells that no part refers to are left over from one
        that was interrupted, and don't exist.
        """
        parts = tuple(pl.read_parquet(path) for path in paths.parts())
        cells = pl.read_parquet(paths.cells).filter(pl.col("part") <= len(parts))
        return cls(cells, parts)

    @cached_property
    def rows(self) -> pl.DataFrame:
        """Every run with its group: columns group, cell, repeat, run, row."""
        if not self.parts:
            return pl.DataFrame(schema=pl.Schema({"group": pl.UInt32(), **ROWS}))
        return self.with_group(pl.concat(self.parts))

    def with_group(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of parts with their group: columns group, cell, repeat, run, row."""
        group = self.cells.sort("cell")["group"].gather(rows["cell"])
        return rows.select(group, *ROWS)

    @cached_property
    def groups(self) -> pl.DataFrame:
        """Every group: columns group, path, dataset, classifier, length (rows with padding)."""
        lengths = self.rows.group_by("group").agg(length=pl.col("row").max() + 1)
        names = self.cells.group_by("group").agg(
            pl.col("path").first(), pl.col("dataset").first(), pl.col("classifier").first()
        )
        return names.join(lengths, on="group", how="left").sort("group")

    def canonical(self, cell: int) -> dict[str, object]:
        """Return the canonical description of a cell."""
        text = self.cells.row(by_predicate=pl.col("cell") == cell, named=True)["canonical"]
        value: dict[str, object] = json.loads(text)
        return value


def write_plan(paths: SweepPaths, plan: Plan) -> None:
    """Write a plan's cells, then its newest part: the part's appearance commits both."""
    write_parquet(paths.cells, plan.cells)
    write_parquet(paths.part(len(plan.parts)), plan.parts[-1])


def write_parquet(path: Path, frame: pl.DataFrame, metadata: dict[str, str] | None = None) -> None:
    """Write a Parquet file whole."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", metadata=metadata)
    place(path, buffer.getvalue())
