"""Add runs to a sweep of imported predictions.

They are written to a journal, which has no effect until the plan contains their rows; the plan's
next part commits all of them at once. `settle` does the rest, now or in the next process.
"""

from __future__ import annotations

import json
import re
import tomllib
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.placing import place, unavailable
from manyseed.orchestrator.disk.records import locked
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.directory import (
    ImportedRuns,
    cells_of,
    grid_lines,
    group_of,
    made_from,
    placed,
)
from manyseed.orchestrator.importing.matching import (
    ELSEWHERE,
    imported_plan,
    numbered,
    require_alike,
    same_tests,
    truth,
)
from manyseed.orchestrator.importing.predictions import PredictionFile
from manyseed.orchestrator.paths import IMPORTED, JOURNAL, SweepPaths
from manyseed.orchestrator.plans.layout import PAIR, Groups, lay_out
from manyseed.orchestrator.plans.plan import ROWS, Plan, write_plan
from manyseed.orchestrator.provenance import register
from manyseed.orchestrator.store.compact import compact
from manyseed.orchestrator.store.groups import find_group, list_groups
from manyseed.orchestrator.store.journal import JournalWriter, encode_row
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.store.testsets import Integers, write_splits

_LAST_RUN = 2**16 - 1


def add_runs(sources: Sequence[PredictionFile], directory: Path) -> int:
    """Add runs to a sweep of imported predictions: all of them, or none if interrupted.

    Parameters
    ----------
    sources : sequence of PredictionFile
        One for each dataset and classifier, checked.

    Returns
    -------
    int
        Number of predictions of a test point with a probability that was raised.
    """
    paths = SweepPaths(directory)
    with locked(paths.lock, "importing") as lease:
        _settle(paths)
        plan, groups = imported_plan(paths)
        extension = _Extension(paths, plan, groups, sources)
        name = f"{IMPORTED}{len(plan.parts) + 1:04d}-{uuid.uuid4().hex[:8]}{JOURNAL}"
        file = paths.journals / name
        try:
            floored = extension.journal(file)
            extension.commit(lease)
        except BaseException:
            if len(paths.parts()) == len(plan.parts):
                file.unlink(missing_ok=True)
            raise
        _settle(paths)
    return floored


def settle(paths: SweepPaths) -> None:
    """Complete an interrupted import or remove its remains, if there is one."""
    if any(paths.journals.glob(f"{IMPORTED}*{JOURNAL}")):
        with locked(paths.lock, "importing"):
            _settle(paths)


def _settle(paths: SweepPaths) -> None:
    """Update the store and the sweep file to match the plan, and publish the journals' runs."""
    journals = [*paths.journals.glob(f"{IMPORTED}*{JOURNAL}")]
    if not journals:
        return
    plan, groups = Plan.read(paths), Groups.read(paths)
    for file in journals:
        if int(file.name.split("-")[1]) > len(plan.parts):
            with unavailable("clean", paths.journals):
                file.unlink(missing_ok=True)
    lay_out(paths, plan, Groups(groups.specs[: len(plan.groups)]))
    watch = LeaseWatch(paths.leases)
    stored = list_groups(paths.store)
    for group in stored:
        y_true, index = truth(group.spec.dataset, stored)
        n = min(group.repeats, len(y_true))
        write_splits(group, 0, y_true[:n], index[:n], watch)
    content = paths.sweep_file.read_bytes()
    if (updated := _updated_file(content, plan)) != content:
        place(paths.sweep_file, updated)
    compact(paths.store, plan.journals(paths), watch)


def _updated_file(content: bytes, plan: Plan) -> bytes:
    """Return the sweep file's content with the classifiers and number of runs of the plan."""
    try:
        text = content.decode()
        grids = tomllib.loads(text).get("grid", [])
        named = {
            (dataset, classifier)
            for grid in grids
            for dataset in grid["dataset"]
            for classifier in grid["classifier"]
        }
    except (ValueError, LookupError, TypeError, RecursionError):  # edited; leaving it loses nothing
        return content
    runs = min(int(str(plan.extents["runs"].max())), 60_000)
    text = re.sub(r"(?m)^(runs\s*=\s*)\d+", rf"\g<1>{runs}", text, count=1)
    for pair in plan.cells.select(*PAIR).unique(maintain_order=True).iter_rows():
        if pair not in named:
            text = "\n".join([text.rstrip("\n"), *grid_lines(*pair)]) + "\n"
    return text.encode()


class _Extension:
    """A plan with further runs, and their predictions."""

    def __init__(
        self, paths: SweepPaths, plan: Plan, groups: Groups, sources: Sequence[PredictionFile]
    ) -> None:
        self._paths, self._groups = paths, groups
        self._parts: list[tuple[PredictionFile, GroupSpec, Integers, pl.DataFrame]] = []
        self._held = plan.all_rows.join(plan.all_cells.drop("group"), on="cell")
        stored = list_groups(paths.store)
        lengths, cells, rows = plan.lengths, plan.all_cells, []
        for source in sources:
            y_true = same_tests(source, stored)
            spec = self._groups.find(source.dataset, source.classifier)
            if spec is None:
                spec = group_of(source, len(self._groups.specs))
                self._groups = Groups((*self._groups.specs, spec))
            else:
                require_alike(source, spec, paths)
                source = self._renumbered(source)
            source_cells = self._cells(source, spec, plan)
            numbers = dict(cells.select("cell_id", "cell").iter_rows())
            new = source_cells.filter(~pl.col("cell_id").is_in([*numbers]))
            new = new.with_columns(
                cell=pl.int_range(len(cells), len(cells) + pl.len(), dtype=pl.UInt32),
                part=pl.lit(len(plan.parts) + 1, dtype=pl.UInt32),
            )
            cells = pl.concat([cells, new.select(cells.columns)])
            numbers |= dict(new.select("cell_id", "cell").iter_rows())
            by_place = source_cells["cell_id"].replace_strict(numbers, return_dtype=pl.UInt32)
            if dropped := set(by_place.to_list()) & set(plan.dropped.to_list()):
                raise UserError(
                    f"its runs belong to cell {min(dropped)}, which was dropped for good",
                    file=source.file,
                    remedy=ELSEWHERE,
                )
            start = spec.padded(lengths.get(spec.number, 0))
            order = placed(source)
            part = order.select(
                "position",
                "repeat",
                "run",
                cell=by_place.gather(order["place"]),
                row=pl.int_range(start, start + pl.len()),
            )
            rows.append(part.select(pl.col(name).cast(dtype) for name, dtype in ROWS.items()))
            self._parts.append((source, spec, y_true, part))
        self._plan = Plan(cells, (*plan.parts, pl.concat(rows)), plan.dropped)
        self._identity = plan.identity

    def _renumbered(self, source: PredictionFile) -> PredictionFile:
        """Return a source whose runs are numbered after those in the sweep."""
        pair = (pl.col("dataset") == source.dataset) & (pl.col("classifier") == source.classifier)
        held = self._held.filter(pair).with_columns(pl.col("repeat", "run").cast(pl.Int64))
        runs = numbered(held, source, "in the sweep")
        if (last := int(str(runs["run"].max()))) > _LAST_RUN:
            message = f"would be run {last:,} of its repeat; {_LAST_RUN:,} is the last possible"
            raise UserError(message, file=source.file, remedy=ELSEWHERE)
        return replace(source, runs=runs)

    def _cells(self, source: PredictionFile, spec: GroupSpec, plan: Plan) -> pl.DataFrame:
        """Return the source's cells, with the group's description of the dataset."""
        held = plan.all_cells.filter(pl.col("group") == spec.number)["canonical"]
        dataset = json.loads(held[0])["dataset"] if len(held) else source.canonical
        return cells_of(source, spec, 0, dataset)

    def journal(self, file: Path) -> int:
        """Write all runs to a journal; return the number of raised probabilities."""
        floored = 0
        with JournalWriter(file, self._identity) as journal:
            for source, spec, y_true, rows in self._parts:
                predictions = ImportedRuns(spec, source)
                recipe = self._recipe(source, spec)
                seconds = source.runs["fit_seconds"].fill_null(0).to_list()
                repeats, numbers = rows["repeat"].to_list(), rows["row"].to_list()
                positions = rows["position"].to_numpy().astype(np.int64)
                crcs = np.zeros(len(rows), dtype=np.int64)
                for at, position, prediction in predictions.of(positions):
                    values = encode_row(spec, prediction, y_true[repeats[at]])
                    crcs[at] = values.crc
                    journal.append(
                        spec.number,
                        numbers[at],
                        values,
                        recipe=recipe,
                        fit_seconds=seconds[position],
                    )
                self._require_new(source, spec, rows, crcs)
                floored += predictions.floored
        return floored

    def _recipe(self, source: PredictionFile, spec: GroupSpec) -> int:
        """Return the recipe's number: that of the group's runs, if it has any."""
        group = find_group(self._paths.store, spec)
        if group is None:
            return register(self._paths.recipes, made_from(source))
        first = int(str(self._held.filter(pl.col("group") == spec.number)["row"].min()))
        return int(read_array(group, "recipe")[first])

    def _require_new(
        self, source: PredictionFile, spec: GroupSpec, rows: pl.DataFrame, crcs: NDArray[np.int64]
    ) -> None:
        """Refuse a file if each of its runs predicts the same as an existing run of its repeat.

        A file that numbers its runs is exempt: numbers that are taken are refused anyway.
        """
        group = find_group(self._paths.store, spec)
        if source.numbered or group is None:
            return
        held = self._held.filter(pl.col("group") == spec.number)
        stored = read_array(group, "crc")[held["row"].to_numpy()]
        known = set(zip(held["cell"], held["repeat"], stored.tolist(), strict=True))
        if all(key in known for key in zip(rows["cell"], rows["repeat"], crcs, strict=True)):
            raise UserError(
                "all these runs are in the sweep already",
                file=source.file,
                remedy="if they are different runs that predict the same, number them with 'run'",
            )

    def commit(self, lease: Lease) -> None:
        """Add the runs to the plan."""
        self._groups.write(self._paths, lease.check)
        write_plan(self._paths, self._plan, new_part=True, before_rename=lease.check)
