"""Parts of a sweep: cells in a directory of their own, trained elsewhere, and merged again.

A part has the whole plan, so that its runs keep their identities and rows; cells that are not its
own are dropped there. Merging writes its finished runs to a journal of the sweep, from which the
store publishes whole shards, as it does with what tasks trained: a merge that is killed has
journaled some of them, and the next one goes on.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.placing import appearing, place_new, read_plain
from manyseed.orchestrator.disk.records import locked
from manyseed.orchestrator.errors import DamagedShard, UserError, command
from manyseed.orchestrator.paths import JOURNAL, SweepPaths, open_sweep
from manyseed.orchestrator.plans.change import choose_cells
from manyseed.orchestrator.plans.layout import Groups, lay_out
from manyseed.orchestrator.plans.plan import Dropped, Plan, identity_of, mark
from manyseed.orchestrator.provenance import read_recipe, register
from manyseed.orchestrator.store.arrays import COPY, DONE, NO_RECIPE
from manyseed.orchestrator.store.groups import Group, find_group
from manyseed.orchestrator.store.journal import JournalWriter, RowBytes
from manyseed.orchestrator.store.reader import Shard, read_array, statuses
from manyseed.orchestrator.store.shards import highest_recipe
from manyseed.orchestrator.store.testsets import read_splits, write_splits
from manyseed.orchestrator.upkeep import compact, publish_finished, require_untrained

_NAMED = 5
_FINISHED = (DONE, COPY)


class SweepPart(TypedDict):
    """A part that was made, as JSON values: its cells and runs, and how many of these it has."""

    directory: str
    cells: int
    runs: int
    finished: int


class Merged(TypedDict):
    """What a merge did, as JSON values."""

    runs_added: int
    runs_equal: int  # that the sweep, or an earlier part, had with the same bytes
    finished: int
    runs: int


def split(paths: SweepPaths, where: str, out: Path) -> SweepPart:
    """Make a part of a sweep with the cells that meet a condition; see `Sweep.split`."""
    require_untrained(paths)
    plan = Plan.read(paths)
    if plan.is_imported:
        raise UserError("its predictions were imported: nothing is trained", file=paths.directory)
    if any(paths.journals.glob(f"*{JOURNAL}")):
        publish_finished(paths)
    chosen = choose_cells(plan, where, "--where")
    others = plan.cells.join(chosen, on="cell", how="anti")["cell"].to_list()
    with appearing(out) as part:
        shutil.copy(paths.sweep_file, part.sweep_file)
        shutil.copytree(paths.plan, part.plan, ignore=shutil.ignore_patterns(".*"))
        if others:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            Dropped(tuple(sorted(others)), f"NOT ({where})", now, identity_of(paths)).write(part)
        mark(part)
        own = Plan.read(part)
        with locked(part.lock, "splitting") as lease:
            given = [_Incoming(paths, own, Groups.read(part))]
            merged = _merge(part, own, given, lease)
    return {
        "directory": str(out),
        "cells": len(own.cells),
        "runs": len(own.rows),
        "finished": merged["finished"],
    }


def merge(
    paths: SweepPaths,
    parts: Sequence[Path],
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Merged:
    """Add the finished runs of parts to the sweep that they are of; see `Sweep.merge`."""
    require_untrained(paths)
    for directory in parts:
        part = open_sweep(directory)
        if directory.resolve() == paths.directory.resolve():
            raise UserError("is the sweep itself, not a part of it", file=directory)
        if any(part.journals.glob(f"*{JOURNAL}")):
            publish_finished(part)
    with locked(paths.lock, "merging") as lease:
        if any(paths.journals.glob(f"*{JOURNAL}")):  # such as those of a merge that was killed
            compact(paths)
        plan, groups = Plan.read(paths), Groups.read(paths)
        incoming = [_Incoming(SweepPaths(directory), plan, groups) for directory in parts]
        return _merge(paths, plan, incoming, lease, progress)


@dataclass(frozen=True)
class _Incoming:
    """The finished runs of another directory of the same plan."""

    paths: SweepPaths
    plan: Plan
    groups: Groups

    def __post_init__(self) -> None:
        """Refuse a directory of another plan, or one whose plan has grown on its own."""
        theirs, directory = Plan.read(self.paths), self.paths.directory
        if theirs.identity != self.plan.identity:
            raise UserError("is not of this sweep: its plan is another", file=directory)
        ours = self.plan.parts[: len(theirs.parts)]
        names = ("cell", "cell_id", "group", "path")
        cells = self.plan.all_cells.head(len(theirs.all_cells)).select(names)
        if len(ours) < len(theirs.parts) or not all(
            one.equals(other)
            for one, other in zip(
                (*ours, cells), (*theirs.parts, theirs.all_cells.select(names)), strict=True
            )
        ):
            raise UserError(
                "was planned on after the split, so its rows are others",
                file=directory,
                remedy="plan the enlarged file into the sweep, then split that",
            )
        for spec in Groups.read(self.paths).specs:
            if spec.number < len(self.groups.specs) and spec != self.groups.specs[spec.number]:
                raise UserError(f"stores {spec.path} in another form", file=directory)

    @cached_property
    def rows(self) -> dict[int, NDArray[np.int64]]:
        """The finished rows, by group, of cells that are not dropped."""
        found = {}
        for number, group in self.stored.items():
            rows = self.plan.rows.filter(group=number)["row"].to_numpy().astype(np.int64)
            rows = np.sort(rows[rows < group.rows])
            rows = rows[np.isin(statuses(group)[rows], _FINISHED)]
            if len(rows):
                found[number] = rows
        return found

    @cached_property
    def stored(self) -> dict[int, Group]:
        """The groups that the store has, by number."""
        specs = Groups.read(self.paths).specs
        found = ((spec.number, find_group(self.paths.store, spec)) for spec in specs)
        return {number: group for number, group in found if group is not None}


def _merge(
    paths: SweepPaths,
    plan: Plan,
    incoming: Sequence[_Incoming],
    lease: Lease,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Merged:
    """Merge, once all that could be refused has been compared."""
    groups = Groups.read(paths)
    new, equal = _compared(paths, plan, groups, incoming)
    for one in incoming:
        _require_same_searches(paths, one)
    lay_out(paths, plan, groups)
    stored = {
        spec.number: group
        for spec in groups.specs
        if (group := find_group(paths.store, spec)) is not None
    }
    watch = LeaseWatch(paths.leases)
    total, done = sum(len(rows) for each in new for rows in each.values()), 0
    progress(0, total)
    for one, rows in zip(incoming, new, strict=True):
        _take_searches(paths, one)
        for number in rows:
            _take_test_sets(one.stored[number], stored[number], watch)
        recipes = _recipes(paths, plan, one, rows)
        sources = _sources(plan)
        if not rows:
            continue
        lease.check()
        file = paths.journals / f"merge-{uuid.uuid4().hex[:12]}{JOURNAL}"
        with JournalWriter(file, plan.identity) as journal:
            for number, some in rows.items():
                for count in _take(one.stored[number], some, journal, recipes, sources[number]):
                    journal.sync_if_due()
                    done += count
                    progress(done, total)
    compact(paths)
    finished = sum(
        int(np.isin(statuses(group)[rows[rows < group.rows]], _FINISHED).sum())
        for number, group in stored.items()
        for rows in [plan.rows.filter(group=number)["row"].to_numpy()]
    )
    return {"runs_added": total, "runs_equal": equal, "finished": finished, "runs": len(plan.rows)}


def _compared(
    paths: SweepPaths, plan: Plan, groups: Groups, incoming: Sequence[_Incoming]
) -> tuple[list[dict[int, NDArray[np.int64]]], int]:
    """Return the new rows of each directory by group, and how many others are equal.

    Refuses rows of which there are different bytes, and names them.
    """
    known: dict[int, dict[int, int]] = {}  # checksums by group and row
    for spec in groups.specs:
        group = find_group(paths.store, spec)
        if group is not None:
            rows = np.flatnonzero(np.isin(statuses(group), _FINISHED))
            known[spec.number] = _checksums(group, rows)
    new, equal = [], 0
    for one in incoming:
        fresh, differing = {}, {}
        for number, rows in one.rows.items():
            have = known.setdefault(number, {})
            given = _checksums(one.stored[number], rows)
            both = given.keys() & have.keys()
            differing[number] = sorted(row for row in both if given[row] != have[row])
            equal += len(both)
            if some := sorted(given.keys() - have.keys()):
                fresh[number] = np.array(some, dtype=np.int64)
            have |= given
        if any(differing.values()):
            raise _conflict(paths, plan, one, differing)
        new.append(fresh)
    return new, equal


def _checksums(group: Group, rows: NDArray[np.integer]) -> dict[int, int]:
    crcs = read_array(group, "crc")[rows] if len(rows) else rows
    return dict(zip(rows.tolist(), crcs.tolist(), strict=True))


def _conflict(
    paths: SweepPaths, plan: Plan, one: _Incoming, rows: Mapping[int, Collection[int]]
) -> UserError:
    wanted = pl.any_horizontal(
        (pl.col("group") == group) & pl.col("row").is_in(sorted(some))
        for group, some in rows.items()
    )
    runs = plan.rows.filter(wanted).select("cell", "repeat", "run").sort("cell", "repeat", "run")
    named = [f"{cell}:{repeat}:{run}" for cell, repeat, run in runs.head(_NAMED).iter_rows()]
    more = f" and {len(runs) - _NAMED:,} more" if len(runs) > _NAMED else ""
    run = "1 run" if len(runs) == 1 else f"{len(runs):,} runs"
    look = command("status", one.paths.directory, named[0])
    return UserError(
        f"has other predictions of {run} that {paths.directory} or a part before it has, too: "
        f"{', '.join(named)}{more}",
        file=one.paths.directory,
        remedy=f"nothing was merged: see how both were made ({look}), and keep one of them",
    )


def _take_test_sets(theirs: Group, ours: Group, watch: LeaseWatch) -> None:
    """Store the test sets that another directory has, or check that they are the same."""
    y_true, index = read_splits(theirs)
    for repeat in np.flatnonzero(index[:, 0] >= 0).tolist():
        this = slice(repeat, repeat + 1)
        write_splits(ours, repeat, y_true[this], index[this], watch)


def _require_same_searches(paths: SweepPaths, one: _Incoming) -> None:
    """Refuse a search for hparams that found others than the sweep's."""
    for file in (one.paths.plan / "tuned").glob("[!.]*.json"):
        own = paths.plan / "tuned" / file.name
        with suppress(FileNotFoundError):
            if read_plain(own) != read_plain(file):
                raise UserError(
                    f"has another result of a search than {own}",
                    file=file,
                    remedy="tune before splitting, so that all parts use the same hparams",
                )


def _take_searches(paths: SweepPaths, one: _Incoming) -> None:
    for file in (one.paths.plan / "tuned").glob("[!.]*.json"):
        with suppress(FileExistsError):
            place_new(paths.plan / "tuned" / file.name, read_plain(file))


def _recipes(
    paths: SweepPaths, plan: Plan, one: _Incoming, rows: Mapping[int, NDArray[np.int64]]
) -> dict[int, int]:
    """Return the sweep's numbers of another directory's recipes; new ones are recorded."""
    used = {
        int(number)
        for group, some in rows.items()
        for number in np.unique(read_array(one.stored[group], "recipe")[some])
    }

    def highest() -> int:
        return highest_recipe(paths.store, plan.journals(paths))

    numbers = {NO_RECIPE: NO_RECIPE}
    for number in sorted(used - {NO_RECIPE}):
        recipe = read_recipe(one.paths.recipes, number)
        numbers[number] = register(paths.recipes, recipe, highest)
    return numbers


def _sources(plan: Plan) -> dict[int, dict[int, int]]:
    """Return, by group, the row that each copy equals: the first run of its cell and repeat."""
    identical = plan.cells.filter("identical").select("cell")
    rows = plan.rows.join(identical, on="cell", how="semi")
    first = rows.filter(run=0).select("cell", "repeat", source="row")
    found: dict[int, dict[int, int]] = {number: {} for number in plan.groups["group"]}
    pairs = rows.filter(pl.col("run") > 0).join(first, on=["cell", "repeat"])
    for group, row, source in pairs.select("group", "row", "source").iter_rows():
        found[group][row] = source
    return found


def _take(
    group: Group,
    rows: NDArray[np.int64],
    journal: JournalWriter,
    recipes: Mapping[int, int],
    sources: Mapping[int, int],
) -> Iterator[int]:
    """Append published rows of another directory to a journal; yield how many, chunk by chunk."""
    sizes = np.cumsum(group.spec.part_bytes)
    for number in np.unique(rows // group.spec.shard_length).tolist():
        shard = Shard(group, number)
        records = shard.records
        for first, stop, at in shard.chunks():
            some = rows[(rows >= first) & (rows < stop)]
            if not len(some):
                continue
            parts, _ = shard.predictions(first, stop)
            for row in some.tolist():
                n = row - shard.start
                if records["status"][n] == COPY and row in sources:
                    journal.append_copy(group.spec.number, row, sources[row])
                    continue
                whole = b"".join(values[n - at.start].tobytes() for values in parts.values())
                label, score, confidence, optional = (
                    whole[start:end] for start, end in zip((0, *sizes), sizes, strict=False)
                )
                clipped = int(records["clipped"][n]) if "clipped" in records else 0
                values = RowBytes(label, score, confidence, clipped, optional)
                if values.crc != records["crc"][n]:
                    path = group.file(group.spec.array("label"), number)
                    raise DamagedShard.of(path, f"holds row {row}, which is not as it was stored")
                journal.append(
                    group.spec.number,
                    row,
                    values,
                    recipe=recipes[int(records["recipe"][n])],
                    fit_seconds=float(records["fit_seconds"][n]),
                )
            yield len(some)
