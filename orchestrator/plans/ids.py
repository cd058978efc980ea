"""What imported predictions call their points, where that is text: a list for each dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.disk.parquet import (
    damage_named,
    read_parquet,
    scan_parquet,
    write_parquet,
)
from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.errors import RESTORE, DamagedFile
from manyseed.orchestrator.paths import GIVEN, SweepPaths
from manyseed.orchestrator.plans.plan import Plan, marker

ROW_ID = "row_id"
MOST_BYTES = 2**27
"""Ids of a dataset that are longer together are texts, such as what was classified: not kept."""


def positions_of(row_ids: Sequence[pl.Series], file: Path) -> tuple[Any, pl.Series | None]:
    """Return the row ids of each repeat as numbers; of text its place when sorted, and the ids.

    Text is sorted over all repeats, so that a point has one number in all of them; users are told
    if it is too long to be kept.
    """
    if all(ids.dtype != pl.String for ids in row_ids):
        return np.stack([ids.to_numpy() for ids in row_ids]), None
    every = pl.concat([ids.cast(pl.String) for ids in row_ids]).unique().sort()
    places = np.stack([every.search_sorted(ids.cast(pl.String)).to_numpy() for ids in row_ids])
    if int(every.str.len_bytes().sum()) <= MOST_BYTES:
        return places, every
    warn(
        f"{file.name}: ids of rows are long texts, which are not kept: answers name rows by their "
        "place in alphabetical order"
    )
    return places, None


def write_ids(paths: SweepPaths, group: int, ids: pl.Series) -> None:
    """Keep the ids of a dataset's points: of point i, the one at place i.

    Its mark has the file's SHA-256, so that another sweep's is not taken for it. `group`: number of
    the dataset's first group.
    """
    file = paths.points(group)
    file.parent.mkdir(exist_ok=True)
    write_parquet(file, ids.rename(ROW_ID).to_frame())
    place(marker(file), _digest(file))


def _digest(file: Path) -> bytes:
    return hashlib.sha256(file.read_bytes()).hexdigest().encode()


def ids_of(paths: SweepPaths, plan: Plan, dataset: str) -> pl.Series | None:
    """Return the ids of a dataset's points, in the order of their numbers; None without ids."""
    if not plan.is_imported:
        return None
    groups = plan.all_cells.filter(pl.col("dataset") == dataset)["group"]
    file = paths.points(int(str(groups.min())))
    if not (file.exists() or marker(file).exists()):
        return None
    try:
        return _read(file)
    except DamagedFile as error:
        warn(f"{error}\n  Until then, points have numbers.")
        return None


def names_of(paths: SweepPaths, plan: Plan, dataset: str) -> pl.Series | None:
    """Return what the points of a dataset are called, in the order of their numbers.

    None if point i is row i of the source. The series is named `file`, `row_id`, or `row` where
    rows are in another order in the source; it is empty if that is not known here.
    """
    from manyseed.jobs import datasets  # other tables do not need it

    cell = plan.all_cells.filter(pl.col("dataset") == dataset)["cell"][0]
    names = datasets.names_of(plan.cell(cell).dataset)
    if names is None:
        return ids_of(paths, plan, dataset)
    return pl.Series(names.kind, [*names.of], dtype=pl.String)


def _read(file: Path) -> pl.Series:
    remedy = f"{RESTORE}, or import the predictions again"
    try:
        found = read_parquet(file, {ROW_ID: pl.String()}, [ROW_ID], remedy)[ROW_ID]
        given = marker(file).read_bytes() if marker(file).exists() else b""
        if given and given != _digest(file):  # earlier marks, and those of copies, are empty
            raise DamagedFile(file, "is not this sweep's", remedy)
    except FileNotFoundError:
        raise DamagedFile(file, "is absent", remedy) from None
    return found


def require_bounded(paths: SweepPaths) -> None:
    """Refuse lists of ids of which a few bytes of a stranger's file would fill the memory."""
    for file in paths.all_points():
        every = scan_parquet(file, {ROW_ID: pl.String()})
        with damage_named(file):
            bytes_of = pl.col(ROW_ID).str.len_bytes()
            sizes = every.select(pl.len(), bytes_of.sum()).collect(engine="streaming")
        if max(sizes.row(0)) > MOST_BYTES:
            raise DamagedFile(file, "is larger than a sweep's can be")


def wrong_ids(paths: SweepPaths) -> Iterator[tuple[str, str]]:
    """Yield each list of ids that is lost or damaged, and why."""
    marks = paths.points(0).parent.glob(f"*.parquet{GIVEN}")
    for file in sorted({*paths.all_points(), *(mark.with_suffix("") for mark in marks)}):
        try:
            _read(file)
        except DamagedFile as error:
            yield file.relative_to(paths.directory).as_posix(), error.reason
