"""The groups of a sweep, as ``plan/groups.json`` holds them, and the row of every run in its group.

Rows are in the order repeat index, cell, run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis import Refused
from manyseed.analysis.options import SNAPSHOTS, Options, snapshot_index
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, DamagedGroup, LayoutTooNew, StoreError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import METHOD, ROWS, Plan
from manyseed.orchestrator.store.arrays import FLAGS, LATER_FLAGS
from manyseed.orchestrator.store.groups import Group, find_group, published_shards
from manyseed.orchestrator.store.schema import GroupSpec

if TYPE_CHECKING:
    from manyseed.orchestrator.store.metadata import GroupRows

PAIR = ("dataset", "classifier")
_CHECKSUM = "crc32c"
"""Key beside a group's attributes: the checksum of their JSON. Earlier versions wrote none."""


@dataclass(frozen=True)
class Groups:
    """The layouts of all groups, in the order of their numbers."""

    specs: tuple[GroupSpec, ...] = ()

    @classmethod
    def read(cls, paths: SweepPaths) -> Groups:
        """Read a sweep's groups."""
        specs = []
        if not paths.groups.exists():
            raise DamagedFile(paths.groups, "is absent")
        for number, value in enumerate(read_record(paths.groups, list[dict[str, object]])):
            try:
                spec = GroupSpec.from_attributes(value, paths.groups)
            except LayoutTooNew:
                raise
            except (StoreError, TypeError, ValueError) as error:
                raise DamagedFile(paths.groups, f"group {number}: {error}") from None
            crc = _crc(spec)
            if spec.number != number or value.get(_CHECKSUM, crc) != crc:
                raise DamagedFile(paths.groups, f"group {number} is not as it was written")
            specs.append(spec)
        return cls(tuple(specs))

    def require_of(self, plan: Plan, paths: SweepPaths) -> None:
        """Refuse groups that do not match a plan's cells."""
        named = plan.all_cells.select("group", *PAIR, METHOD, "path").unique()
        for number, *names in named.sort("group").iter_rows():
            spec = self.specs[number] if number < len(self.specs) else None
            if spec is None or names != [*key_of(spec), spec.path]:
                reason = f"group {number} is not the one that {paths.cells.name} describes"
                raise DamagedFile(paths.groups, reason)

    def require_planned(self, plan: Plan, paths: SweepPaths) -> None:
        """Refuse a plan that lacks its newest part: the store goes beyond the plan."""
        lengths = plan.lengths
        for spec in self.specs:
            folder, planned = paths.store / spec.path, spec.padded(lengths.get(spec.number, 0))
            try:
                group = find_group(paths.store, spec)
            except DamagedGroup:  # a repair mends it; its shards show how far it goes
                group = None
            rows = 0 if group is None else group.rows
            shards = 1 + max(published_shards(folder), default=-1)
            if rows > planned or shards * spec.shard_length > planned:
                reason = f"is absent, though {folder} has rows of it"
                raise DamagedFile(paths.part(len(plan.parts) + 1), reason)

    def write(self, paths: SweepPaths, before_rename: Callable[[], None] | None = None) -> None:
        """Write a sweep's groups."""
        values = [spec.to_attributes() | {_CHECKSUM: _crc(spec)} for spec in self.specs]
        write_json(paths.groups, values, before_rename=before_rename)

    @cached_property
    def numbers(self) -> dict[tuple[str, str, str], int]:
        """The number of each group, by `key_of` it."""
        return {key_of(spec): spec.number for spec in self.specs}

    def find(self, dataset: str, classifier: str, ensembling: str = "") -> GroupSpec | None:
        """Return the group of a dataset, a classifier and `GroupSpec.ensembling`, or None."""
        number = self.numbers.get((dataset, classifier, ensembling))
        return None if number is None else self.specs[number]


def key_of(spec: GroupSpec) -> tuple[str, str, str]:
    """Return a group's dataset, classifier and `GroupSpec.ensembling`."""
    return spec.dataset, spec.classifier, spec.ensembling


def _crc(spec: GroupSpec) -> int:
    return int(google_crc32c.value(json.dumps(spec.to_attributes(), sort_keys=True).encode()))


_THREADS = 8


def missing_blocks(wanted: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Return the runs that a plan lacks, as blocks of one repeat of one cell.

    `wanted`: columns group, cell, repeats, runs. `held`: columns cell, repeats, runs: what is
    planned already. Returns columns group, repeat, cell, first, stop (runs first … stop - 1), in
    the store's order.
    """
    cells = wanted.join(held, on="cell", how="left", suffix="_held").fill_null(0)
    repeats = cells["repeats"].to_numpy()
    place = np.repeat(np.arange(len(cells)), repeats)
    repeat = np.arange(len(place)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    begun = repeat < cells["repeats_held"].to_numpy()[place]
    blocks = pl.DataFrame(
        {
            "group": cells["group"].to_numpy()[place],
            "repeat": repeat.astype(np.uint16),
            "cell": cells["cell"].to_numpy()[place],
            "first": np.where(begun, cells["runs_held"].to_numpy()[place], 0).astype(np.uint32),
            "stop": cells["runs"].to_numpy()[place],
        }
    )
    return blocks.filter(pl.col("first") < pl.col("stop")).sort("group", "repeat", "cell")


def assign_rows(
    blocks: pl.DataFrame, lengths: Mapping[int, int], shard_lengths: Mapping[int, int]
) -> pl.DataFrame:
    """Assign rows to new runs; each group's new rows start at the next shard boundary.

    `blocks`: as returned by `missing_blocks`. `lengths`: rows of each group so far.
    `shard_lengths`: runs per shard of each group. Returns `ROWS` and the column group.
    """
    first, group = blocks["first"].to_numpy(), blocks["group"].to_numpy()
    counts = blocks["stop"].to_numpy() - first
    ends = np.cumsum(counts, dtype=np.int64)
    starts = ends - counts
    new = np.flatnonzero(np.diff(group, prepend=-1) if len(group) else group)
    base = np.zeros(len(new), dtype=np.int64)
    for number, block in enumerate(new):
        length, shard = lengths.get(int(group[block]), 0), shard_lengths[int(group[block])]
        base[number] = -(-length // shard) * shard - starts[block]
    offset = np.repeat(base, np.diff(new, append=len(group)))
    # 32 bits suffice: offsets wrap around, and millions of rows stay small
    position = np.arange(ends[-1] if len(ends) else 0, dtype=np.uint32)
    run = position + np.repeat((first - starts).astype(np.uint32), counts)
    row = position + np.repeat(offset.astype(np.uint32), counts)
    return pl.DataFrame(
        {
            "group": np.repeat(group, counts),
            "cell": np.repeat(blocks["cell"].to_numpy(), counts),
            "repeat": np.repeat(blocks["repeat"].to_numpy(), counts),
            "run": run.astype(np.uint16),
            "row": row,
        },
        schema={"group": pl.UInt32(), **ROWS},
    )


def lay_out(paths: SweepPaths, plan: Plan, groups: Groups) -> None:
    """Create or extend the store's groups so that every planned run has a row.

    Existing rows stay. This also completes a store that an interrupted planning or submission left
    behind. Rows of dropped cells keep their place.
    """
    from manyseed.orchestrator.store.metadata import create_group, extend_group

    repeats = _repeats(plan)
    describe = _Describer(plan)

    def lay_out_group(key: tuple[object, ...], rows: pl.DataFrame) -> None:
        group = int(str(key[0]))
        spec = groups.specs[group]
        start = int(rows["row"].to_numpy().min())
        if (held := find_group(paths.store, spec)) is not None:
            if held.rows < start + len(rows) or held.repeats < repeats[group]:
                extend_group(held, describe(rows), repeats[group], start=start)
        else:
            create_group(paths.store, spec, describe(rows), repeats[group])

    # most of the time goes into making files durable, which disks do in parallel
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            for part in plan.parts:
                by_group = plan.with_group(part).partition_by("group", as_dict=True)
                list(pool.map(lay_out_group, by_group.keys(), by_group.values()))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def wrong_descriptions(
    paths: SweepPaths, plan: Plan, groups: Groups, *, mend: bool = False
) -> dict[str, list[str]]:
    """Return which ``zarr.json`` differ from the plan, by group path; "" stands for those above.

    `groups`: groups that are not laid out yet are skipped. `mend`: whether to rewrite these files.
    """
    from manyseed.orchestrator.store import metadata

    repeats = _repeats(plan)
    describe = _Describer(plan)
    parts: dict[int, list[GroupRows]] = {spec.number: [] for spec in groups.specs}
    for part in plan.parts:
        for (number,), rows in plan.with_group(part).partition_by("group", as_dict=True).items():
            parts[number].append(describe(rows))
    wrong = {"": metadata.wrong_folders(paths.store, groups.specs, mend=mend)}
    for spec in groups.specs:
        if parts[spec.number]:
            wrong[spec.path] = metadata.wrong_descriptions(
                paths.store, spec, parts[spec.number], repeats[spec.number], mend=mend
            )
    return {path: files for path, files in wrong.items() if files}


def _repeats(plan: Plan) -> dict[int, int]:
    """Return how many test sets are planned for each group."""
    most = plan.all_rows.group_by("group").agg(pl.col("repeat").max().cast(pl.Int64) + 1)
    return dict(most.iter_rows())


def copies(plan: Plan, group: Group) -> NDArray[np.bool_]:
    """Return which rows of a group are copies of the first run of their repeat (run,)."""
    is_copy = np.zeros(group.rows, dtype=np.bool_)
    rows = plan.all_rows.filter((pl.col("group") == group.spec.number) & (pl.col("run") > 0))
    identical = plan.all_cells["identical"].gather(rows["cell"]).to_numpy()
    row = rows["row"].to_numpy()[identical]
    is_copy[row[row < group.rows]] = True
    return is_copy


def wrong_coordinates(
    plan: Plan, groups: Sequence[Group], *, mend: bool = False
) -> dict[str, list[str]]:
    """Return which coordinates of groups differ from the plan, by group path; none if all match.

    With `mend` they are rewritten.
    """
    from manyseed.orchestrator.store import metadata

    describe = _Describer(plan)
    parts: dict[int, list[GroupRows]] = {group.spec.number: [] for group in groups}
    ends = {group.spec.number: group.rows for group in groups}
    for part in plan.parts:
        for (number,), rows in plan.with_group(part).partition_by("group", as_dict=True).items():
            # runs planned since have no rows yet
            if number in ends and int(rows["row"].to_numpy().min()) < ends[number]:
                parts[number].append(describe(rows))
    wrong = {
        g.spec.path: metadata.wrong_coordinates(g, parts[g.spec.number], mend=mend) for g in groups
    }
    return {path: names for path, names in wrong.items() if names}


class _Describer:
    """Collects what the store writes about each run."""

    def __init__(self, plan: Plan) -> None:
        from manyseed.orchestrator.store.metadata import Flags

        self._fractions = plan.all_cells["train_fraction"].to_numpy()
        self._flags = {name: Flags.of(plan.all_cells[name]) for name in (*FLAGS, *LATER_FLAGS)}

    def __call__(self, rows: pl.DataFrame) -> GroupRows:
        from manyseed.orchestrator.store.metadata import Flags, GroupRows

        cell = rows["cell"].to_numpy().astype(np.int64)
        return GroupRows(
            cell=cell,
            repeat_index=rows["repeat"].to_numpy(),
            run_index=rows["run"].to_numpy(),
            train_fraction=self._fractions[cell],
            flags={
                name: Flags(flag.codes[cell], flag.meanings) for name, flag in self._flags.items()
            },
        )


def require_snapshots(options: Options, specs: Sequence[GroupSpec]) -> None:
    """Refuse snapshots that some group lacks, or that are meaningless for all groups."""
    for name in SNAPSHOTS:
        value = getattr(options, name)
        for snapshot in value if isinstance(value, tuple) else (value,):
            if snapshot is not None:
                _require(name, snapshot, specs)


def _require(option: str, snapshot: int, specs: Sequence[GroupSpec]) -> None:
    if snapshot not in (0, -1) and specs and all(spec.epochs == (0,) for spec in specs):
        raise Refused(option, snapshot, "nothing here is trained in epochs, so leave it out")
    for spec in specs:
        if snapshot_index(spec.epochs, snapshot) is None:
            kept = ", ".join(map(str, spec.epochs))
            reason = f"{spec.dataset} × {spec.named} has no such snapshot; there are: {kept}"
            if len(spec.epochs) > 1:
                reason += f", counted from the last as {-len(spec.epochs)} to -1"
            raise Refused(option, snapshot, reason)
