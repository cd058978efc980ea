"""An analysed sweep as comparisons see it: its cells, its runs and their test sets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables.rows import last
from manyseed.jobs.run import identity
from manyseed.orchestrator.computing.tables import Analysis, read_results, to_json
from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.filtering import wanted
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.compared import OneCell
from manyseed.orchestrator.store.reader import test_sets
from manyseed.orchestrator.stored import stored_groups

IMPORTED = "imported"
"""Source of datasets that are known only through imported predictions."""

NOT_COMPARED: Mapping[str, str] = {
    "fit_seconds": "how long a fit takes depends on the machine",
    "delta": "it is the resolution of alpha_hat, not a property of a run",
    "alpha_hat_mc_se": "it is the Monte-Carlo error of alpha_hat",
    "alpha_hat_spread": "it is the spread of alpha_hat over resamples",
    "train_fraction": "it describes a cell, not what runs achieve",
}
"""Numbers in the table of runs that are not metrics, and why."""


@dataclass(frozen=True, slots=True)
class AnalysedCell:
    """A cell at one snapshot, as a side of a comparison.

    Attributes
    ----------
    cell : int
    cell_id, canonical : str
        Its identity, and the text that the identity is a hash of.
    epoch : int
    axes : mapping of str to object
        Its level of each axis in `analysis.axes.AXES`.
    data : str or None
        Identity of its data; None if unknown.
    """

    cell: int
    cell_id: str
    canonical: str
    epoch: int
    axes: Mapping[str, object]
    data: str | None

    @classmethod
    def all_of(cls, cells: pl.DataFrame) -> list[AnalysedCell]:
        """Return one object per row of a frame with the columns of `AnalysedSweep.cells`."""
        facts = cells.select("cell", "cell_id", "canonical", "epoch", "data").iter_rows(named=True)
        axes = cells.select(*AXES).iter_rows(named=True)
        return [cls(axes=levels, **row) for row, levels in zip(facts, axes, strict=True)]


class AnalysedSweep:
    """What comparisons need from one sweep, read once.

    Raises
    ------
    UserError
        If the sweep was not analysed.
    """

    def __init__(self, paths: SweepPaths) -> None:
        self.paths, self.results = paths, read_results(paths)
        self.plan = Plan.read(paths)

    @cached_property
    def cells(self) -> pl.DataFrame:
        """The analysed cells, with the identity of their data: `data`, None if unknown."""
        planned = self.plan.all_cells.select("cell", "canonical", planned_identical="identical")
        cells = self.results["cells"].join(planned, on="cell", how="left", maintain_order="left")
        data = [_data(json.loads(text)["dataset"]) for text in cells["canonical"]]
        return _with_epoch(cells).with_columns(pl.Series("data", data, dtype=pl.String))

    def snapshots(self, conditions: Mapping[str, str | None]) -> pl.DataFrame:
        """Return the cells: at their last snapshot, or at all of them if a condition uses epochs.

        Parameters
        ----------
        conditions : mapping of option to str or None
            SQL conditions over the cells.
        """
        for option, text in conditions.items():
            if "epoch" in wanted(text, self.cells.schema, option).meta.root_names():
                return self.cells
        return last(self.cells)

    def require(self, metric: str) -> None:
        """Raise a UserError for a name that is not a metric of runs."""
        schema = self.results.scan("runs").collect_schema()
        if metric in NOT_COMPARED:
            reason = f"can't be compared: {NOT_COMPARED[metric]}"
            raise UserError(reason, key="--metric", value=metric)
        numbers = [name for name, kind in schema.items() if kind.is_float()]
        metrics = [name for name in numbers if name not in NOT_COMPARED]
        if metric not in metrics:
            raise UserError(
                "not a metric of runs",
                file=self.paths.directory,
                key="--metric",
                value=metric,
                remedy=nearest(metric, metrics),
            )

    @cached_property
    def digests(self) -> pl.DataFrame:
        """The digest of each test set: columns path, repeat_index, digest."""
        extents = self.plan.extents.join(self.plan.all_cells.select("cell", "path"), on="cell")
        analysed = self.results.scan("repeats").select("cell", "repeat_index").collect()
        used = analysed.join(extents, on="cell").group_by("path").agg(pl.col("repeat_index"))
        wanted = dict(used.iter_rows())
        rows = []
        for group in stored_groups(self.paths, self.plan):
            repeats = sorted(set(wanted.get(group.spec.path, ())))
            if repeats:
                y_true, index = test_sets(group, np.array(repeats))
                for repeat in repeats:
                    content = hashlib.sha256(index[repeat].astype("<i8").tobytes())
                    content.update(y_true[repeat].astype("<i8").tobytes())
                    rows.append((group.spec.path, repeat, content.hexdigest()))
        schema = {"path": pl.String, "repeat_index": pl.UInt16, "digest": pl.String}
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def runs(self) -> pl.DataFrame:
        """The runs with the digests of their test sets, without copies."""
        paths = self.plan.all_cells.select("cell", "path", planned="identical")
        repeats = last(self.results["repeats"]).select("cell", "repeat_index", same="identical")
        return (
            _with_epoch(self.results["runs"])
            .filter(~pl.col("identical"))
            .join(paths, on="cell", how="left", maintain_order="left")
            .join(self.digests, on=["path", "repeat_index"], how="left", maintain_order="left")
            .join(repeats, on=["cell", "repeat_index"], how="left", maintain_order="left")
            .with_columns(fixed=pl.col("same") | pl.col("planned"))
        )

    @cached_property
    def by_cell(self) -> Mapping[tuple[object, ...], pl.DataFrame]:
        """The runs of each cell and snapshot."""
        return self.runs.partition_by("cell", "epoch", as_dict=True)

    def described(self, cell: AnalysedCell) -> OneCell:
        """Return a cell as comparisons report it."""
        return OneCell(str(self.paths.directory), cell.cell, cell.cell_id, cell.epoch, cell.axes)

    @cached_property
    def conventions(self) -> Mapping[str, object]:
        """The options that the sweep was analysed with."""
        return to_json(Analysis.read(self.paths).conventions(self.paths))


def _with_epoch(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with the column epoch, which earlier versions lacked."""
    return frame if "epoch" in frame.columns else frame.with_columns(epoch=pl.lit(0, pl.UInt32))


def _data(dataset: Mapping[str, Any]) -> str | None:
    """Return the identity of the data that test sets are taken from; None if unknown."""
    if dataset.get("source") == IMPORTED:
        return None
    return identity({"v": 1, **{key: value for key, value in dataset.items() if key != "test"}})
