"""What planning a sweep file does to a sweep: tables, numbers, remarks, estimate and outcome."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted, some
from manyseed.jobs.classifiers import stacks
from manyseed.jobs.ensembling.methods import NONE
from manyseed.jobs.run import Cell
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.conditions import chosen
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.disk.records import locked, read_record, write_json
from manyseed.orchestrator.errors import RESTORE, DamagedFile, UserError, toml_value
from manyseed.orchestrator.grids.expansion import Expansion
from manyseed.orchestrator.grids.own import Pin
from manyseed.orchestrator.grids.sweepfile import SweepFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.cost import (
    GroupRoom,
    estimate,
    feature_hours,
    measuring_seconds,
    response_hours,
    rooms,
    standard_errors,
    store_bytes,
    store_files,
)
from manyseed.orchestrator.plans.keptmodels import counted as models_kept
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import (
    PREFIX,
    WITH_METHOD,
    Dropped,
    Plan,
    identity_of,
    mark,
    with_anchors,
)
from manyseed.orchestrator.plans.searches import FoundScale, TunedHparams
from manyseed.orchestrator.plans.stacks import AUTO, Choice, in_words
from manyseed.orchestrator.plans.twins import Twin, sentences
from manyseed.orchestrator.provenance import BF16, NO_BF16, has_bf16
from manyseed.orchestrator.store.arrays import COPY, DONE
from manyseed.orchestrator.store.groups import Group, find_group
from manyseed.orchestrator.store.index import JournalIndex
from manyseed.orchestrator.store.reader import read_array, statuses
from manyseed.orchestrator.store.repair import drop as drop_rows
from manyseed.orchestrator.store.repair import free, require_rest
from manyseed.orchestrator.store.schema import GroupSpec, own_name

COPIES = "Identical to the first run of their repeat"
"""How the remark on copies of runs begins."""
FIGURES = ("fits", "hours", "store_bytes", "store_files")
"""The figures that are estimated and counted; hours are core hours plus GPU hours."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The figures of a plan, or of its outcome; NaN if unknown.

    `fits`, `store_bytes` and `store_files`: whole numbers. `hours`: hours of fits, without features
    that are computed once.
    """

    fits: float = math.nan
    store_bytes: float = math.nan
    store_files: float = math.nan
    hours: float = math.nan

    @classmethod
    def read(cls, paths: SweepPaths) -> Estimate:
        """Return a plan's estimate; all NaN if its file is missing or damaged."""
        try:
            return read_record(paths.estimate, cls)
        except (FileNotFoundError, DamagedFile):
            return cls()

    def write(self, paths: SweepPaths, before_rename: Callable[[], None] | None = None) -> None:
        """Write the estimate beside the plan."""
        write_json(paths.estimate, asdict(self), before_rename=before_rename)


def estimate_and_outcome(paths: SweepPaths) -> dict[str, tuple[float, float]]:
    """Return for each of `FIGURES` the plan's estimate and the actual value."""
    estimated, actual = asdict(Estimate.read(paths)), asdict(_outcome(paths))
    return {name: (estimated[name], actual[name]) for name in FIGURES}


def _outcome(paths: SweepPaths) -> Estimate:
    searches = [TunedHparams.read(file) for file in paths.all_tuned()]
    draws = [draw.seconds for search in searches for draw in search.draws]
    scales = [FoundScale.read(file) for file in paths.all_scales()]
    draws += [trial.seconds for search in scales for trial in search.trials]
    fits, seconds = len(draws), float(sum(draws))
    for spec in Groups.read(paths).specs:
        if (group := find_group(paths.store, spec)) is None:
            continue
        trained = read_array(group, "status") == DONE
        fits += int(trained.sum())
        seconds += float(np.nansum(read_array(group, "fit_seconds")[trained], dtype=np.float64))
    return Estimate(fits, *on_disk(paths.store), seconds / 3600)


def on_disk(folder: Path) -> tuple[int, int]:
    """Return the bytes in a folder, and its files and folders; files that go meanwhile are none."""
    n_bytes, n_files = 0, 0
    for where, _, names in os.walk(folder):
        n_files += 1 + len(names)
        for name in names:
            with suppress(FileNotFoundError):
                n_bytes += os.stat(os.path.join(where, name)).st_size  # noqa: PTH116, PTH118
    return n_bytes, n_files


_FURTHER = ("feature", "response")  # work that takes hours besides fits


@dataclass(frozen=True)
class Change:
    """What planning a sweep file does to a sweep.

    `sweep`, `text` and `expansion`: the file, its bytes, and the cells that it asks for, with twins
    merged. `twins`: requested cells whose fits are those of another cell. `before` and `after`: the
    plan on disk, and the plan with the additions. `added`: the new runs: columns group, cell,
    repeat, run, row. `groups`: the groups that the store needs for the plan. `observed`: durations
    of finished fits (`cost.OBSERVED`). `own`: what is known about the user's own code.
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
    def standard_errors(self) -> dict[str, float]:
        """The standard errors of core_hours and gpu_hours, as far as finished fits tell."""
        return standard_errors(self.cells, self.observed)

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
        return rooms(specs, plan.all_rows, models_kept(plan.cells, plan.rows, specs))

    @cached_property
    def cost(self) -> pl.DataFrame:
        """Hours and store size of each dataset and classifier.

        The columns of `cost.estimate`, feature_hours and response_hours (both included in
        core_hours or gpu_hours), store_bytes and store_files.
        """
        by = ["dataset", "classifier"]
        parts = pl.col(*(f"{part}_hours" for part in _FURTHER))
        on_gpu, tune = pl.col("gpu_hours") > 0, self.sweep.tune
        further = pl.sum_horizontal(parts)
        features = feature_hours(self.cells, self.expansion)
        responses = response_hours(self.cells, self.expansion, self.groups.specs)
        hours = (
            estimate(self.cells, tune.draws, self.observed, tune.hours)
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

    @cached_property
    def unmeasured(self) -> set[str]:
        """The classifiers whose fits took nobody knows how long: neither probed nor trained yet."""
        asked = {name for name, table in self.sweep.classifier.items() if not _is_probed(table)}
        trained = self.after.cells.join(self.observed, on="cell", how="semi")
        return asked - {*trained["classifier"]}

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
            "by_group": [
                one | {"measured": one["classifier"] not in self.unmeasured}
                for one in table.join(
                    cost, on=["dataset", "classifier"], maintain_order="left"
                ).to_dicts()
            ],
        }


def restoring(paths: SweepPaths, change: Change) -> Change:
    """Return the change; refuse it where the sweep's own file is lost and this is another one."""
    asked = change.expansion.cells.select("cell_id", "repeats", "runs").sort("cell_id")
    planned = change.before.all_cells.join(change.before.extents, on="cell")
    planned = planned.select("cell_id", "repeats", "runs").sort("cell_id")
    if paths.lost == paths.sweep_file and asked.rows() != planned.rows():
        remedy = f"{RESTORE}; the file that was given asks for other cells or runs than are planned"
        raise DamagedFile(paths.sweep_file, "is absent", remedy)
    return change


def _is_probed(table: Any) -> bool:
    return table.options().get("probe", True) is not False


def _priced_as(spec: GroupSpec) -> str:
    """Return `WITH_METHOD` of a group's cells: augmentation is not priced separately."""
    return spec.classifier if spec.method == NONE else own_name(spec.classifier, spec.method)


def remarks(
    change: Change, *, all_notes: bool = True, chosen: Sequence[Choice] = ()
) -> Iterator[str]:
    """Yield a sentence for each remark on a plan.

    `all_notes`: whether to include remarks that only tell how it is, such as the kinds of columns.
    `chosen`: how many runs the sweep trains at once, as far as that was measured.
    """
    summary = change.summary()
    for removed in summary["runs_excluded"]:
        yield f"{removed['key']} = {removed['rule']} removes {counted(removed['runs'], 'run')}."
    told = {*change.expansion.notes} - {*change.expansion.unexpected}
    for note in summary["notes"]:
        if all_notes or note not in told:
            yield f"{note}."
    if all_notes and summary["searches"]:
        tune = change.sweep.tune
        limit = "" if tune.hours is None else f", or {tune.hours:g} hours of fits,"
        yield (
            f"Tuned hparams need {counted(summary['searches'], 'search')} of "
            f"{counted(tune.draws, 'draw')}{limit} each."
        )
    yield from _forms(change, chosen) if all_notes else ()
    if summary["runs_identical"]:
        yield (
            f"{COPIES}, as nothing that varies reaches the classifier: "
            f"{counted(copies := summary['runs_identical'], 'run')}, stored as "
            f"{'a copy' if copies == 1 else 'copies'}, not trained. Their spread is 0."
        )
    yield from _lone(change)
    if summary["cells_dropped"]:
        yield f"Left out, as dropped before: {counted(summary['cells_dropped'], 'cell')}."


def _forms(change: Change, chosen: Sequence[Choice]) -> Iterator[str]:
    """Yield sentences on classifiers trained in bfloat16, or several runs at once."""
    resolved = change.expansion.classifiers.items()
    in_bf16 = {name: info for (name, _), info in resolved if info.options.get("precision") == BF16}
    for name, info in in_bf16.items():
        lacks = f"; {NO_BF16}" if info.device == "cpu" and not has_bf16() else ""
        yield f"{name}: trained with matrix products in bfloat16{lacks}."
    asked = {name: info.options.get("stack", 1) for (name, _), info in resolved}
    for name in [name for name, members in asked.items() if members != 1]:
        cells = change.cells.drop_nulls("runs").filter(classifier=name, identical=False)
        runs = [
            n
            for text, n in cells.select("canonical", "runs").iter_rows()
            if stacks(Cell.from_text(text))
        ]
        if not runs:
            yield f"{name}: stack is of no use, as no cell's runs can be trained several at once."
            continue
        if asked[name] == AUTO:
            own = [choice for choice in chosen if choice.classifier == name]
            yield from in_words(own)
            if not own:
                yield f"{name}: how many seeds a step are fastest is measured when it is submitted."
            continue
        members = min(asked[name], max(runs))
        beyond = max(-n % min(members, n) for n in runs)
        yield f"{name}: {counted(members, 'seed')} a step" + (
            f"; the last stack of a repeat trains {counted(beyond, 'run')} too many, so choose a "
            f"number that divides {max(runs):,}."
            if beyond
            else "."
        )


def _lone(change: Change) -> Iterator[str]:
    """Say which classifiers have one run where it shows nothing of the spread between seeds.

    They do if it is enough in other cells, or if the file has more runs and only a grid has one.
    """
    usual = change.sweep.runs
    for (name,), cells in change.cells.drop_nulls("runs").group_by(
        "classifier", maintain_order=True
    ):
        same, other = cells.filter("identical"), cells.filter(~pl.col("identical"))
        if other.is_empty() or other["runs"].max() != 1 or (same.is_empty() and usual == 1):
            continue
        apart = {axis: sorted({*other[axis]} - {*same[axis]}) for axis in AXES}
        levels = [f"{axis} = {toml_value(v)}" for axis, values in apart.items() for v in values]
        where = f"in {counted(len(other), 'cell')}"
        where += f" ({some(levels, 3)})" * bool(levels) if len(same) else ""
        grid = f", as its grid has runs = 1 (the file {usual})" * (usual > 1)
        yield (
            f"{name} has 1 run per repeat{grid}, but {where} each seed makes another model: "
            f"{max(usual, 10)} runs, say, show how much they vary."
        )


def warn_of(change: Change) -> None:
    """Warn the caller from Python of what a user may want to change, if anything is new."""
    if not change.is_empty:
        for text in remarks(change, all_notes=False):
            warn(text)


COLUMNS = ("cell", "cell_id", *AXES, "identical", "repeats", "runs")
"""The columns that a condition may use, besides the hparams that grids vary."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The cells to remove, the number of their runs, and how many of these are finished.

    Of removed ones, how many bytes of the store they freed.
    """

    cells: pl.DataFrame
    runs: int
    finished: int
    freed: int = 0


def to_drop(paths: SweepPaths, where: str, option: str = "--where") -> Drop:
    """Return what `drop` would remove, without writing anything.

    `option`: the option that the condition came from, for messages.
    """
    plan = Plan.read(paths)
    cells = chosen(_described(plan, plan.all_cells), where, option)
    if plan.cells.join(cells, on="cell", how="anti").is_empty():
        raise UserError(
            "every remaining cell meets this condition",
            key=option,
            value=where,
            remedy=f"a sweep needs at least one cell: remove {paths.directory} instead",
        )
    finished = sum(map(len, _finished(paths, plan, cells["cell"]).values()))
    return Drop(cells, int((cells["repeats"] * cells["runs"]).sum()), finished)


def choose_cells(plan: Plan, where: str, option: str) -> pl.DataFrame:
    """Return the cells of a plan that meet a condition in SQL."""
    return chosen(_described(plan, plan.cells), where, option)


def _described(plan: Plan, cells: pl.DataFrame) -> pl.DataFrame:
    """Return cells with the columns that a condition may use."""
    cells = with_anchors(cells).join(plan.extents, on="cell", maintain_order="left")
    return cells.select(*COLUMNS, f"^{PREFIX}.*$")


def drop(paths: SweepPaths, where: str) -> Drop:
    """Remove cells from the plan for good and set their rows in the store back to missing.

    Planning the same file again does not bring them back. Repeating an interrupted drop
    completes it.
    """
    with locked(paths.lock, "dropping") as lease:
        dropped = to_drop(paths, where)
        watch = LeaseWatch(paths.leases)
        require_rest(watch)
        plan = Plan.read(paths)
        rows = _finished(paths, plan, dropped.cells["cell"])
        new = set(dropped.cells["cell"].to_list()) - set(plan.dropped.to_list())
        if new:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            Dropped(tuple(sorted(new)), where, now, identity_of(paths)).write(paths, lease.check)
        mark(paths)
        if rows:
            drop_rows(rows, plan.journals(paths), watch)
        touched = plan.all_rows.join(dropped.cells, on="cell", how="semi")["group"].unique()
        specs = [spec for spec in Groups.read(paths).specs if spec.number in touched]
        groups = filter(None, (find_group(paths.store, spec) for spec in specs))
        return replace(dropped, freed=sum(free(group, watch) for group in groups))


def _finished(paths: SweepPaths, plan: Plan, cells: pl.Series) -> dict[Group, list[int]]:
    """Return the rows of cells that the store or a journal holds, by group."""
    index = JournalIndex(plan.journals(paths))
    planned = plan.all_rows.filter(pl.col("cell").is_in(cells.implode()))
    finished = {}
    for spec in Groups.read(paths).specs:
        rows = planned.filter(pl.col("group") == spec.number)["row"].to_numpy()
        if not len(rows) or (group := find_group(paths.store, spec)) is None:
            continue
        rows = rows[rows < group.rows]
        held = np.isin(statuses(group)[rows], (DONE, COPY)) | np.isin(rows, index.rows(spec.number))
        if held.any():
            finished[group] = rows[held].tolist()
    return finished
