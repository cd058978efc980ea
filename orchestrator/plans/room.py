"""How much disk space a plan needs, and whether there is room for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import polars as pl

from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.store.journal import HEADER_SIZE
from manyseed.orchestrator.store.schema import GroupSpec, count_files, planned_group, stored_bytes

_MARGIN, _HALF = {"scores": "margin"}, {"dtype": "float16"}
_CHEAPER = (
    ('keep.scores = "margin"', _MARGIN),
    ('keep.dtype = "float16"', _HALF),
    ('both, keep = { scores = "margin", dtype = "float16" },', _MARGIN | _HALF),
    ('keep.scores = "none"', {"scores": "none"}),
)


@dataclass(frozen=True)
class GroupRoom:
    """A group of the store with the runs and repeats that a plan gives it."""

    spec: GroupSpec
    runs: int
    repeats: int
    models: int | None = None
    """How many runs keep their parameters; None for all."""
    chunks: int | None = None
    """How many chunks hold the runs; None if the runs follow each other."""
    length: int = 0
    """Rows with the padding between parts of the plan."""

    @cached_property
    def bytes(self) -> int:
        """Bytes once everything is published."""
        return stored_bytes(self.spec, self.runs, self.repeats, self.models, self.chunks)

    @cached_property
    def files(self) -> int:
        """Files and folders once everything is published."""
        return count_files(self.spec, self.length, self.repeats)

    def kept(self, **keep: str) -> GroupRoom:
        """Return the same runs, stored with other values of these fields of `GroupSpec`."""
        named = {field.name: getattr(self.spec, field.name) for field in fields(GroupSpec)}
        for name in ("shard_length", "chunk_length", "split_length"):
            del named[name]
        spec = planned_group(**named | keep, repeats=self.repeats, runs=self.runs)
        return GroupRoom(spec, self.runs, self.repeats, self.models)


def rooms(
    specs: Sequence[GroupSpec], rows: pl.DataFrame, models: Mapping[int, int]
) -> list[GroupRoom]:
    """Return the groups that hold some rows.

    Parameters
    ----------
    specs : sequence of GroupSpec
        All groups, by number.
    rows : DataFrame
        Columns group, repeat and row.
    models : mapping of int to int
        How many of these rows keep their parameters, by group; in groups that are left out, all.
    """
    # a part of the plan begins with a new shard: the padding before it has rows, but no chunks
    chunk_lengths = pl.Series([spec.chunk_length for spec in specs], dtype=pl.UInt32)
    chunk = rows["row"] // chunk_lengths.gather(rows["group"])
    counts = rows.group_by("group").agg(
        runs=pl.len(),
        repeats=pl.col("repeat").max().cast(pl.Int64) + 1,
        length=pl.col("row").max().cast(pl.Int64) + 1,
    )
    chunks = rows.select("group", chunk=chunk).group_by("group").agg(pl.col("chunk").n_unique())
    return [
        GroupRoom(specs[n], runs, repeats, models.get(n), used, length)
        for n, runs, repeats, length, used in counts.join(chunks, on="group").sort("group").rows()
    ]


def store_bytes(groups: Iterable[GroupRoom]) -> int:
    """Return the bytes of a store."""
    return sum(group.bytes for group in groups)


def store_files(groups: Iterable[GroupRoom]) -> int:
    """Count the files and folders of a store, including its own and those of datasets."""
    listed = list(groups)
    datasets = {group.spec.dataset for group in listed}
    return sum(group.files for group in listed) + 2 * (len(datasets) + 1)


def check_room(
    directory: Path, before: list[GroupRoom], after: list[GroupRoom], file: Path
) -> None:
    """Refuse a plan whose predictions do not fit on the disk.

    Parameters
    ----------
    directory : Path
        The sweep; it need not exist yet.
    before, after : list of GroupRoom
        What is planned now, and what would be.
    file : Path
        The sweep file, named in the error.

    Raises
    ------
    UserError
        With the figures, and how much keeping less would need.
    """
    place = directory
    while not place.exists():
        place = place.parent
    disk = os.statvfs(place)
    needed, free = store_bytes(after) - store_bytes(before), _free(disk)
    if needed > free:
        raise UserError(
            f"its predictions need {_gb(needed)}; {place} has {_gb(free)} free",
            file=file,
            remedy=_remedy(after, needed) + "or plan onto another disk with --out",
        )
    more = store_files(after) - store_files(before)
    if disk.f_files and more > disk.f_favail:
        raise UserError(
            f"its predictions need {more:,} files and folders; {place} can take {disk.f_favail:,}",
            file=file,
            remedy="plan onto another disk with --out",
        )


def require_room(directory: Path, missing: list[GroupRoom]) -> None:
    """Refuse a submission of runs that do not fit on the disk.

    Parameters
    ----------
    directory : Path
        The sweep.
    missing : list of GroupRoom
        Each group with the runs to train.

    Raises
    ------
    UnavailableError
        With the figures, and a remedy.
    """
    predictions = store_bytes(missing)
    journals = sum(group.runs * (group.spec.row_bytes + HEADER_SIZE) for group in missing)
    replaced = max(group.spec.shard_length * group.spec.row_bytes for group in missing)
    needed, free = predictions + journals + replaced, _free(os.statvfs(directory))
    if needed > free:
        raise UnavailableError(
            f"{directory}: {sum(group.runs for group in missing):,} runs need {_gb(needed)} "
            f"(predictions {_gb(predictions)}, journals until compact {_gb(journals)}); the disk "
            f"has {_gb(free)} free\n  make room, or plan again with --out onto another disk"
            + (f"; {remedy}".rstrip("; ") if (remedy := _remedy(missing, predictions)) else "")
        )


def _free(disk: os.statvfs_result) -> int:
    return disk.f_bavail * disk.f_frsize


def _remedy(groups: list[GroupRoom], needed: int) -> str:
    cheaper: Mapping[str, int] = {
        name: store_bytes(group.kept(**keep) for group in groups) for name, keep in _CHEAPER
    }
    listed = [f"{name} needs {_gb(n)}" for name, n in cheaper.items() if n < needed]
    return f"{', '.join(listed)}; " if listed else ""


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:,.1f} MB"
