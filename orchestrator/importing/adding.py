"""Further runs for a sweep of imported predictions.

They are written to a journal, which counts for nothing as long as the plan lacks their rows; the
plan's next part commits all of them at once. What has to follow, `settle` does, now or by whoever
comes next.
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
from manyseed.orchestrator.importing.alike import (
    ELSEWHERE,
    imported_plan,
    require_alike,
    same_tests,
    truth,
)
from manyseed.orchestrator.importing.directory import (
    cells_of,
    grid_lines,
    group_of,
    made_from,
    placed,
)
from manyseed.orchestrator.importing.joined import numbered
from manyseed.orchestrator.importing.rows import ImportedRuns
from manyseed.orchestrator.importing.source import PredictionFile
from manyseed.orchestrator.paths import IMPORTED, JOURNAL, SweepPaths
from manyseed.orchestrator.plans.groups import PAIR, Groups
from manyseed.orchestrator.plans.layout import lay_out
from manyseed.orchestrator.plans.plan import ROWS, Plan, write_plan
from manyseed.orchestrator.provenance import register
from manyseed.orchestrator.store.care.compact import compact
from manyseed.orchestrator.store.journals.journal import JournalWriter
from manyseed.orchestrator.store.journals.rowbytes import encode_row
from manyseed.orchestrator.store.layout.groups import find_group, list_groups
from manyseed.orchestrator.store.layout.schema import GroupSpec
from manyseed.orchestrator.store.publishing.splits import Integers, write_splits
from manyseed.orchestrator.store.reading.reader import read_array

_LAST_RUN = 2**16 - 1


def add_runs(sources: Sequence[PredictionFile], directory: Path) -> int:
    """Add runs to a sweep of imported predictions: all of them, or none where it is interrupted.

    Parameters
    ----------
    sources : sequence of PredictionFile
        One for each dataset and classifier, checked.
    directory : Path

    Returns
    -------
    int
        Predictions of a test point with a probability that was raised.

    Raises
    ------
    UserError
        Where they don't fit what is there. Nothing was changed then.
    """
    paths = SweepPaths(directory)
    with locked(paths.lock, "importing") as lease:
        _settle(paths)
        plan, groups = imported_plan(paths)
        grown = _Grown(paths, plan, groups, sources)
        file = (
            paths.journals / f"{IMPORTED}{len(plan.parts) + 1:04d}-{uuid.uuid4().hex[:8]}{JOURNAL}"
        )
        try:
            floored = grown.journal(file)
            grown.commit(lease)
        except BaseException:
            if len(paths.parts()) == len(plan.parts):
                file.unlink(missing_ok=True)
            raise
        _settle(paths)
    return floored


def settle(paths: SweepPaths) -> None:
    """Complete an import that was interrupted, or remove what it left; nothing where there is none.

    Raises
    ------
    UserError
        Where somebody else imports, plans or submits.
    """
    if any(paths.journals.glob(f"{IMPORTED}*{JOURNAL}")):
        with locked(paths.lock, "importing"):
            _settle(paths)


def _settle(paths: SweepPaths) -> None:
    """Make the store and the sweep file follow the plan, and publish what journals hold."""
    left = [*paths.journals.glob(f"{IMPORTED}*{JOURNAL}")]
    if not left:
        return
    plan, groups = Plan.read(paths), Groups.read(paths)
    for file in left:
        if int(file.name.split("-")[1]) > len(plan.parts):
            with unavailable("clean", paths.journals):
                file.unlink(missing_ok=True)
    lay_out(paths, plan, Groups(groups.specs[: len(plan.groups)]))
    watch = LeaseWatch(paths.leases)
    there = list_groups(paths.store)
    for group in there:
        y_true, index = truth(group.spec.dataset, there)
        n = min(group.repeats, len(y_true))
        write_splits(group, 0, y_true[:n], index[:n], watch)
    text = paths.sweep_file.read_bytes()
    if (now := _grown_file(text, plan)) != text:
        place(paths.sweep_file, now)
    compact(paths.store, plan.journals(paths), watch)


def _grown_file(text: bytes, plan: Plan) -> bytes:
    """Return the sweep file with the classifiers and the runs that the plan holds now."""
    try:
        said = text.decode()
        grids = tomllib.loads(said).get("grid", [])
        named = {
            (dataset, classifier)
            for grid in grids
            for dataset in grid["dataset"]
            for classifier in grid["classifier"]
        }
    except (ValueError, LookupError, TypeError):  # edited since, and nothing is lost by it
        return text
    runs = min(int(str(plan.extents["runs"].max())), 60_000)
    said = re.sub(r"(?m)^(runs\s*=\s*)\d+", rf"\g<1>{runs}", said, count=1)
    for pair in plan.cells.select(*PAIR).unique(maintain_order=True).iter_rows():
        if pair not in named:
            said = "\n".join([said.rstrip("\n"), *grid_lines(*pair)]) + "\n"
    return said.encode()


class _Grown:
    """A plan with further runs, and the predictions of these."""

    def __init__(
        self, paths: SweepPaths, plan: Plan, groups: Groups, sources: Sequence[PredictionFile]
    ) -> None:
        self._paths, self._groups = paths, groups
        self._parts: list[tuple[PredictionFile, GroupSpec, Integers, pl.DataFrame]] = []
        self._held = plan.all_rows.join(plan.all_cells.drop("group"), on="cell")
        there = list_groups(paths.store)
        lengths, cells, rows = plan.lengths, plan.all_cells, []
        for source in sources:
            y_true = same_tests(source, there)
            spec = self._groups.find(source.dataset, source.classifier)
            if spec is None:
                spec = group_of(source, len(self._groups.specs))
                self._groups = Groups((*self._groups.specs, spec))
            else:
                require_alike(source, spec, paths)
                source = self._behind(source)
            asked = self._cells(source, spec, plan)
            number = dict(cells.select("cell_id", "cell").iter_rows())
            new = asked.filter(~pl.col("cell_id").is_in([*number]))
            new = new.with_columns(
                cell=pl.int_range(len(cells), len(cells) + pl.len(), dtype=pl.UInt32),
                part=pl.lit(len(plan.parts) + 1, dtype=pl.UInt32),
            )
            cells = pl.concat([cells, new.select(cells.columns)])
            number |= dict(new.select("cell_id", "cell").iter_rows())
            of_place = asked["cell_id"].replace_strict(number, return_dtype=pl.UInt32)
            if gone := set(of_place.to_list()) & set(plan.dropped.to_list()):
                raise UserError(
                    f"its runs are of cell {min(gone)}, which was dropped for good",
                    file=source.file,
                    remedy=ELSEWHERE,
                )
            start = spec.padded(lengths.get(spec.number, 0))
            order = placed(source)
            own = order.select(
                "position",
                "repeat",
                "run",
                cell=of_place.gather(order["place"]),
                row=pl.int_range(start, start + pl.len()),
            )
            rows.append(own.select(pl.col(name).cast(dtype) for name, dtype in ROWS.items()))
            self._parts.append((source, spec, y_true, own))
        self._plan = Plan(cells, (*plan.parts, pl.concat(rows)), plan.dropped)
        self._identity = plan.identity

    def _behind(self, source: PredictionFile) -> PredictionFile:
        """Return a source whose runs are numbered behind those that are there."""
        pair = (pl.col("dataset") == source.dataset) & (pl.col("classifier") == source.classifier)
        there = self._held.filter(pair).with_columns(pl.col("repeat", "run").cast(pl.Int64))
        runs = numbered(there, source, "in the sweep")
        if (last := int(str(runs["run"].max()))) > _LAST_RUN:
            message = f"would be run {last:,} of its repeat; {_LAST_RUN:,} is the last"
            raise UserError(message, file=source.file, remedy=ELSEWHERE)
        return replace(source, runs=runs)

    def _cells(self, source: PredictionFile, spec: GroupSpec, plan: Plan) -> pl.DataFrame:
        """Return the source's cells, of the dataset as the group has it."""
        held = plan.all_cells.filter(pl.col("group") == spec.number)["canonical"]
        dataset = json.loads(held[0])["dataset"] if len(held) else source.canonical
        return cells_of(source, spec, 0, dataset)

    def journal(self, file: Path) -> int:
        """Write all runs to a journal; return how many probabilities were raised.

        Raises
        ------
        UserError
            Where scores are not finite, or all runs of a file are there already.
        """
        floored = 0
        with JournalWriter(file, self._identity) as journal:
            for source, spec, y_true, rows in self._parts:
                predictions = ImportedRuns(spec, source)
                recipe = self._recipe(source, spec)
                seconds = source.runs["fit_seconds"].fill_null(0).to_list()
                repeats, row = rows["repeat"].to_list(), rows["row"].to_list()
                crcs = np.zeros(len(rows), dtype=np.int64)
                for place_, position, prediction in predictions.of(_positions(rows)):
                    values = encode_row(spec, prediction, y_true[repeats[place_]])
                    crcs[place_] = values.crc
                    journal.append(
                        spec.number,
                        row[place_],
                        values,
                        recipe=recipe,
                        fit_seconds=seconds[position],
                    )
                self._require_new(source, spec, rows, crcs)
                floored += predictions.floored
        return floored

    def _recipe(self, source: PredictionFile, spec: GroupSpec) -> int:
        """Return the recipe's number: that of the runs of the group, where there are any."""
        group = find_group(self._paths.store, spec)
        if group is None:
            return register(self._paths.recipes, made_from(source))
        first = int(str(self._held.filter(pl.col("group") == spec.number)["row"].min()))
        return int(read_array(group, "recipe")[first])

    def _require_new(
        self, source: PredictionFile, spec: GroupSpec, rows: pl.DataFrame, crcs: NDArray[np.int64]
    ) -> None:
        """Refuse files all of whose runs predict what runs of their repeats already do.

        Runs with numbers of their own are not taken for others by mistake.
        """
        group = find_group(self._paths.store, spec)
        if source.numbered or group is None:
            return
        held = self._held.filter(pl.col("group") == spec.number)
        stored = read_array(group, "crc")[held["row"].to_numpy()]
        known = set(zip(held["cell"], held["repeat"], stored.tolist(), strict=True))
        if all(key in known for key in zip(rows["cell"], rows["repeat"], crcs, strict=True)):
            raise UserError(
                "its predictions are in the sweep already, those of every run",
                file=source.file,
                remedy="where these are other runs all the same, number them with run",
            )

    def commit(self, lease: Lease) -> None:
        """Let the plan have the runs."""
        self._groups.write(self._paths, lease.check)
        write_plan(self._paths, self._plan, new_part=True, before_rename=lease.check)


def _positions(rows: pl.DataFrame) -> NDArray[np.int64]:
    return rows["position"].to_numpy().astype(np.int64)
