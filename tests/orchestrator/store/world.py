"""A small store, and runs whose predictions follow from their row number alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import Prediction
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.store import reader
from manyseed.orchestrator.store.arrays import COPY, CURVES, DONE, FLAGS
from manyseed.orchestrator.store.coordinates import NAN, OptionalArray
from manyseed.orchestrator.store.groups import Group
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.journal import JournalWriter, RowBytes, encode_row
from manyseed.orchestrator.store.metadata import Flags, GroupRows, create_group
from manyseed.orchestrator.store.schema import UNSIZED, GroupSpec, planned_group
from manyseed.orchestrator.store.testsets import write_splits

SAMPLES, REPEATS = 6, 2
NUMBER = 7


def planned(*, repeats: int = 1, runs: int | None = None, **fields: Any) -> GroupSpec:
    """Return a group of these fields with chosen lengths; by default of margins, without epochs."""
    usual = {"epochs": (0,), "scores": "margin", "dtype": "float32", "probability": "softmax"}
    made = GroupSpec(**{**usual, **fields, **UNSIZED})
    return planned_group(made, repeats=repeats, runs=runs)


def spec(n_classes: int = 2, shard: int = 4, chunk: int = 2, **options: object) -> GroupSpec:
    names = tuple(f"class {n}" for n in range(n_classes))
    keywords = {"samples": SAMPLES, "epochs": (1, 5), "repeats": REPEATS, **options}
    made = planned(
        number=NUMBER,
        dataset="openml:vehicle",
        classifier="mlp",
        class_names=names,
        **keywords,  # type: ignore[arg-type]
    )
    return dataclasses.replace(made, shard_length=shard, chunk_length=chunk)


def rows(n: int, first: int = 0) -> GroupRows:
    number = np.arange(first, first + n)
    schemes = ["none", "sig-digit:0", "relative:0.1"]
    flags = {name: Flags.of([schemes[i % 3] for i in number]) for name in FLAGS}
    return GroupRows(number // 4, number % REPEATS, number, np.full(n, 0.5), flags)


def prediction(made: GroupSpec, row: int) -> Prediction:
    rng = np.random.default_rng(row)
    grid = (len(made.epochs), made.samples)
    if made.n_classes == 2:
        scores = rng.standard_normal(grid).astype(np.float32)
        label = (scores >= 0).astype(np.uint16)
    else:
        scores = rng.standard_normal((*grid, made.n_classes)).astype(np.float32)
        label = scores.argmax(-1).astype(np.uint16)
    confidence = rng.uniform(0.5, 1, grid).astype(np.float32)
    curves = None
    if made.curves and row % 4 != 3:  # some have none
        curves = {name: rng.random(made.epochs[-1], dtype=np.float32) for name in CURVES}
    measured = {one.name: _measured(one, row) for one in made.optional}
    return Prediction(scores, label, confidence, float(row), curves, measured)


def _measured(array: OptionalArray, row: int) -> NDArray[np.generic]:
    rng = np.random.default_rng([row, *array.name.encode()])
    if array.fill == NAN:
        return rng.random(array.shape).astype(array.dtype)
    return rng.integers(0, 100, array.shape).astype(array.dtype)


def truth(made: GroupSpec, repeats: int = REPEATS) -> NDArray[np.int64]:
    return np.random.default_rng(99).integers(0, made.n_classes, (repeats, made.samples))


def values(made: GroupSpec, row: int) -> RowBytes:
    return encode_row(made, prediction(made, row), truth(made)[row % REPEATS])


class World:
    """The folders of a sweep that concern the store."""

    def __init__(
        self, folder: Path, made: GroupSpec | None = None, n: int = 10, seconds: float = 60
    ) -> None:
        self.folder = folder
        self.store = folder / "predictions.zarr"
        self.journals = folder / "journals"
        self.spec = made or spec()
        self.watch = LeaseWatch(folder / "leases", seconds)
        self.group = create_group(self.store, self.spec, rows(n), REPEATS)
        self.attempts = 0

    def write_splits(self) -> None:
        index = np.arange(REPEATS * SAMPLES).reshape(REPEATS, SAMPLES)
        write_splits(self.group, 0, truth(self.spec), index, self.watch)

    def write_splits_for(self, samples: int) -> None:
        index = np.arange(REPEATS * samples).reshape(REPEATS, samples)
        write_splits(self.group, 0, truth(self.spec), index, self.watch)

    def journal(self) -> JournalWriter:
        self.attempts += 1
        return JournalWriter(self.journals / f"{self.attempts:04d}.journal")

    def append(self, journal: JournalWriter, *numbers: int) -> None:
        for row in numbers:
            journal.append(NUMBER, row, values(self.spec, row), recipe=1, fit_seconds=float(row))

    def finish(self, *numbers: int) -> None:
        """Train rows in an attempt of their own."""
        with self.journal() as journal:
            self.append(journal, *numbers)

    @property
    def journal_folder(self) -> JournalFolder:
        return JournalFolder(self.journals)

    def index(self) -> JournalIndex:
        return JournalIndex(self.journal_folder)


def finished(group: Group) -> set[int]:
    return set(np.flatnonzero(np.isin(reader.statuses(group), (DONE, COPY))).tolist())


def assert_true_rows(group: Group, numbers: set[int], originals: dict[int, int]) -> None:
    """Check what is stored of rows, byte by byte."""
    made = group.spec
    names = [array.name for array in made.arrays if array.role == "prediction"]
    order = sorted(numbers)
    found = reader.read_rows(group, [*names, "crc"], order)
    for position, row in enumerate(order):
        expected = values(made, originals.get(row, row))
        stored = b"".join(np.ascontiguousarray(found[name][position]).tobytes() for name in names)
        assert stored == b"".join(expected.parts(made).values())
        assert found["crc"][position] == expected.crc


def open_files() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
