"""What planning a sweep file does to a sweep, in tables and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from manyseed.jobs.ensembling.methods import NONE
from manyseed.orchestrator.grids.expansion import Expansion
from manyseed.orchestrator.grids.own import Pin
from manyseed.orchestrator.grids.sweepfile import SweepFile
from manyseed.orchestrator.plans.cost import estimate
from manyseed.orchestrator.plans.estimate import Estimate
from manyseed.orchestrator.plans.groups import Groups
from manyseed.orchestrator.plans.keptmodels import counted
from manyseed.orchestrator.plans.measuring import (
    feature_hours,
    measuring_seconds,
    response_hours,
)
from manyseed.orchestrator.plans.plan import WITH_METHOD, Plan
from manyseed.orchestrator.plans.room import GroupRoom, rooms, store_bytes, store_files
from manyseed.orchestrator.plans.twins import Twin, sentences
from manyseed.orchestrator.store.schema import GroupSpec, own_name

_FURTHER = ("feature", "response")
"""Work that takes hours besides fits."""


@dataclass(frozen=True)
class Change:
    """What planning a sweep file does to a sweep.

    Attributes
    ----------
    sweep, text, expansion
        The file, its bytes, and the cells that it asks for, with twins merged.
    twins : tuple of Twin
        Requested cells whose fits are those of another cell.
    before, after : Plan
        The plan on disk, and the plan with the additions.
    added : DataFrame
        The new runs: columns group, cell, repeat, run, row.
    groups : Groups
        The groups that the store needs for the plan.
    observed : DataFrame
        Durations of finished fits (`cost.OBSERVED`).
    own : mapping
        What is known about the user's own code.
    """

    sweep: SweepFile
    text: bytes
    expansion: Expansion
    twins: tuple[Twin, ...]
    before: Plan
    after: Plan
    added: pl.DataFrame
    groups: Groups
    observed: pl.DataFrame
    own: Mapping[str, Pin] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the sweep already holds everything that the file asks for."""
        return self.added.is_empty()

    @cached_property
    def cells(self) -> pl.DataFrame:
        """The plan's cells with their planned size: columns of `CELLS`, repeats, runs."""
        asked = self.expansion.cells.select("cell_id", "repeats", "runs")
        return self.after.cells.join(asked, on="cell_id", maintain_order="left")

    @property
    def measuring(self) -> pl.DataFrame:
        """How long measuring a model's response curves takes, by cell: `cost.MEASURING`."""
        return measuring_seconds(self.after.cells, self.expansion, self.groups.specs)

    def by_group(self) -> pl.DataFrame:
        """Count by dataset and classifier (`WITH_METHOD`).

        Columns dataset, classifier, train, test, classes (points and classes of the dataset),
        cells, runs, identical (runs stored as copies).
        """
        by = ["dataset", "classifier"]
        data = pl.DataFrame(
            [
                (name, info.n_train, info.n_test, len(info.class_names))
                for name, info in self.expansion.datasets.items()
            ],
            schema={"dataset": pl.String, "train": pl.Int64, "test": pl.Int64, "classes": pl.Int64},
            orient="row",
        )
        repeats, runs = pl.col("repeats").cast(pl.Int64), pl.col("runs").cast(pl.Int64)
        return (
            self.cells.with_columns(WITH_METHOD)
            .group_by(by, maintain_order=True)
            .agg(
                cells=pl.len(),
                runs=(repeats * runs).sum(),
                identical=(repeats * (runs - 1)).filter("identical").sum(),
            )
            .join(data, on="dataset", how="left", maintain_order="left")
            .select(*by, "train", "test", "classes", "cells", "runs", "identical")
        )

    @cached_property
    def stored(self) -> list[GroupRoom]:
        """The store's groups with the room that the whole plan needs."""
        return self._rooms(self.after)

    @property
    def stored_before(self) -> list[GroupRoom]:
        """The same of the plan on disk."""
        return self._rooms(self.before)

    def _rooms(self, plan: Plan) -> list[GroupRoom]:
        specs = self.groups.specs
        return rooms(specs, plan.all_rows, counted(plan.cells, plan.rows, specs))

    @cached_property
    def cost(self) -> pl.DataFrame:
        """Hours and store size of each dataset and classifier.

        The columns of `cost.estimate`, feature_hours and response_hours (both included in
        core_hours or gpu_hours), store_bytes and store_files.
        """
        by = ["dataset", "classifier"]
        parts = pl.col(*(f"{part}_hours" for part in _FURTHER))
        on_gpu = pl.col("gpu_hours") > 0
        further = pl.sum_horizontal(parts)
        features = feature_hours(self.cells, self.expansion)
        responses = response_hours(self.cells, self.expansion, self.groups.specs)
        hours = (
            estimate(self.cells, self.sweep.tune.draws, self.observed)
            .join(features, on=by, how="left", maintain_order="left")
            .join(responses, on=by, how="left", maintain_order="left")
            .with_columns(parts.fill_null(0.0))
            .with_columns(
                pl.col("core_hours") + pl.when(on_gpu).then(0.0).otherwise(further),
                pl.col("gpu_hours") + pl.when(on_gpu).then(further).otherwise(0.0),
            )
        )
        sizes = pl.DataFrame(
            [(s.spec.dataset, _priced_as(s.spec), s.bytes, s.files) for s in self.stored],
            schema=["dataset", "classifier", "store_bytes", "store_files"],
            orient="row",
        )
        sizes = sizes.group_by(by).sum()  # cells that use a later axis have groups of their own
        return hours.join(sizes, on=by, how="left", maintain_order="left")

    def estimated(self) -> Estimate:
        """Return the figures to compare with the outcome."""
        cost = self.cost
        hours = sum(float(cost[f"{device}_hours"].sum()) for device in ("core", "gpu"))
        return Estimate(
            fits=int(cost["fits"].sum()),
            store_bytes=store_bytes(self.stored),
            store_files=store_files(self.stored),
            hours=hours - sum(float(cost[f"{part}_hours"].sum()) for part in _FURTHER),
        )

    def summary(self) -> dict[str, Any]:
        """Return the plan in numbers, as ``plan --json`` prints it."""
        table, cost = self.by_group(), self.cost
        return {
            "name": self.sweep.name,
            "runs_asked": self.expansion.asked,
            "runs": int(table["runs"].sum()),
            "runs_added": len(self.added),
            "runs_identical": int(table["identical"].sum()),
            "runs_excluded": [
                {"key": key, "rule": rule, "runs": runs}
                for key, rule, runs in self.expansion.removed
            ],
            "cells": len(self.cells),
            "cells_dropped": len(self.after.dropped),
            "searches": self.expansion.searches,
            "fits": int(cost["fits"].sum()),
            "groups": len(self.stored),
            "shards": sum(-(-s.length // s.spec.shard_length) for s in self.stored),
            "core_hours": float(cost["core_hours"].sum()),
            "gpu_hours": float(cost["gpu_hours"].sum()),
            "feature_hours": float(cost["feature_hours"].sum()),
            "response_hours": float(cost["response_hours"].sum()),
            "longest_fit_seconds": float(cost["longest_seconds"].max() or 0.0),  # type: ignore[arg-type]
            "store_bytes": store_bytes(self.stored),
            "store_files": store_files(self.stored),
            "notes": [*self.expansion.notes, *sentences(self.twins)],
            "twins": [twin.to_json() for twin in self.twins],
            "by_group": table.join(
                cost, on=["dataset", "classifier"], maintain_order="left"
            ).to_dicts(),
        }


def _priced_as(spec: GroupSpec) -> str:
    """Return `WITH_METHOD` of a group's cells: augmentation is not priced separately."""
    return spec.classifier if spec.method == NONE else own_name(spec.classifier, spec.method)
