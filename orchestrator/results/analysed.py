"""An analysed sweep as comparisons see it: its cells, its runs, and what each was tested on."""

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
from manyseed.analysis.tables.snapshots import last
from manyseed.jobs.identity import identity
from manyseed.orchestrator.conditions import condition
from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.filtering import refusing
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.compared import OneCell
from manyseed.orchestrator.results.conventions import to_json
from manyseed.orchestrator.results.record import Analysis
from manyseed.orchestrator.results.tables import read_results
from manyseed.orchestrator.store.reading.reader import test_sets
from manyseed.orchestrator.stored import stored_groups

IMPORTED = "imported"
"""The source of datasets that are known by their predictions alone."""

NOT_COMPARED: Mapping[str, str] = {
    "fit_seconds": "how long a fit takes is the machine's",
    "delta": "it is the resolution of alpha_hat, not a property of a run",
    "alpha_hat_mc_se": "it is the Monte-Carlo error of alpha_hat",
    "alpha_hat_spread": "it is the spread of alpha_hat over resamples",
    "train_fraction": "it is what cells are, not what runs achieve",
}
"""Numbers of the table of runs that are no metrics, and why."""


@dataclass(frozen=True, slots=True)
class AnalysedCell:
    """A cell at a snapshot, as comparisons choose it.

    Attributes
    ----------
    cell : int
    cell_id, canonical : str
        Its identity, and the text that this is of.
    epoch : int
    axes : mapping of str to object
        What it is, by `analysis.axes.AXES`.
    data : str or None
        What data it is of; None where that is not known.
    """

    cell: int
    cell_id: str
    canonical: str
    epoch: int
    axes: Mapping[str, object]
    data: str | None

    @classmethod
    def all_of(cls, cells: pl.DataFrame) -> list[AnalysedCell]:
        """Return the rows of a frame with the columns of `AnalysedSweep.cells`."""
        facts = cells.select("cell", "cell_id", "canonical", "epoch", "data").iter_rows(named=True)
        axes = cells.select(*AXES).iter_rows(named=True)
        return [cls(axes=own, **row) for row, own in zip(facts, axes, strict=True)]


class AnalysedSweep:
    """What comparisons ask of one sweep, read once.

    Raises
    ------
    UserError
        Where it was not analysed.
    """

    def __init__(self, paths: SweepPaths) -> None:
        self.paths, self.results = paths, read_results(paths)
        self.plan = Plan.read(paths)

    @cached_property
    def cells(self) -> pl.DataFrame:
        """The analysed cells, with what data they are of: `data`, None where it is not known."""
        planned = self.plan.all_cells.select("cell", "canonical", planned_identical="identical")
        cells = self.results["cells"].join(planned, on="cell", how="left", maintain_order="left")
        data = [_data(json.loads(text)["dataset"]) for text in cells["canonical"]]
        return _with_epoch(cells).with_columns(pl.Series("data", data, dtype=pl.String))

    def snapshots(self, conditions: Mapping[str, str | None]) -> pl.DataFrame:
        """Return the cells, of several snapshots the last unless a condition asks for epochs.

        Parameters
        ----------
        conditions : mapping of option to str or None
            In SQL, over the cells.
        """
        names = self.cells.columns
        for option, text in conditions.items():
            with refusing(text, self.cells.schema, option):
                if text is not None and "epoch" in condition(text, names).meta.root_names():
                    return self.cells
        return last(self.cells)

    def require(self, metric: str) -> None:
        """Refuse what is no metric of runs.

        Raises
        ------
        UserError
        """
        schema = self.results.scan("runs").collect_schema()
        if metric in NOT_COMPARED:
            raise UserError(
                f"can't be compared: {NOT_COMPARED[metric]}", key="--metric", value=metric
            )
        numbers = [name for name, kind in schema.items() if kind.is_float()]
        metrics = [name for name in numbers if name not in NOT_COMPARED]
        if metric not in metrics:
            raise UserError(
                "no metric of runs",
                file=self.paths.directory,
                key="--metric",
                value=metric,
                remedy=nearest(metric, metrics),
            )

    @cached_property
    def digests(self) -> pl.DataFrame:
        """What each test set is: columns path, repeat_index, digest."""
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
        """The runs with their test sets, copies left out."""
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

    def described(self, one: AnalysedCell) -> OneCell:
        """Name a cell."""
        return OneCell(str(self.paths.directory), one.cell, one.cell_id, one.epoch, one.axes)

    @cached_property
    def conventions(self) -> Mapping[str, object]:
        """By what options it was analysed."""
        return to_json(Analysis.read(self.paths).conventions(self.paths))


def _with_epoch(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with its column of snapshots: earlier versions had one of them, untold."""
    return frame if "epoch" in frame.columns else frame.with_columns(epoch=pl.lit(0, pl.UInt32))


def _data(dataset: Mapping[str, Any]) -> str | None:
    """Return the identity of the data that test sets are taken from; None where it isn't known."""
    if dataset.get("source") == IMPORTED:
        return None
    return identity({"v": 1, **{key: value for key, value in dataset.items() if key != "test"}})
