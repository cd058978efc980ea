"""The store, compared with one .npz per run, one Zarr chunk per run, and HDF5 in one file.

    python benchmarks/bench_store.py [--quick] [--json] [--folder DIR]

Runs are binary, with margins, like most of the source's datasets: 5 bytes per point. Reading is
measured cold (page cache dropped, if root), in wall seconds and relative to the disk's own speed,
and hot, also in CPU seconds, which do not depend on other load. One dataset is measured at its full
size, with 355 classes; the study's other sizes are computed by formula.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import dask
import numpy as np
import xarray as xr
import zarr
from zarr.storage import LocalStore

from manyseed.jobs import datasets
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.arrays import FLAGS
from manyseed.orchestrator.store.compact import compact
from manyseed.orchestrator.store.groups import Group, list_groups
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.journal import JournalWriter, RowBytes
from manyseed.orchestrator.store.lazy import open_runs
from manyseed.orchestrator.store.metadata import Flags, GroupRows, create_group
from manyseed.orchestrator.store.reader import read_array, read_rows
from manyseed.orchestrator.store.schema import (
    UNSIZED,
    GroupSpec,
    count_files,
    planned_group,
    stored_bytes,
)
from manyseed.orchestrator.store.shards import publish

CELL_RUNS, REPEATS = 20, 10
SCAN = 4  # inner chunks read at a time: a dask task costs as much as reading one
SIZES = ((1000, 10_000), (17_900, 3600))  # points, runs

SUITE, CLASSIFIERS, SUITE_RUNS, SUITE_REPEATS = "model-variance-37", 4, 3600, 30
FULL_SIZE = "dionis"  # 355 classes; the dataset with the longest rows

TARGETS = """
Targets: publish under 0.1 ms per run; 10 000 runs under 200 files and folders; 532 800 runs
  under 12 000; full scan cold at least 70 % of the disk, hot at least 1000 MB/s; 10× faster to scan
  and 20× fewer files than npz."""


def spec_of(points: int, n_classes: int = 2, repeats: int = REPEATS) -> GroupSpec:
    made = GroupSpec(
        number=0,
        dataset="bench",
        classifier="mlp",
        samples=points,
        class_names=tuple(map(str, range(n_classes))),
        epochs=(0,),
        scores="margin",
        dtype="float32",
        probability="softmax",
        **UNSIZED,
    )
    return planned_group(made, repeats=repeats)


def rows_of(n_runs: int) -> GroupRows:
    number = np.arange(n_runs)
    flags = {name: Flags(np.zeros(n_runs, dtype=np.int16), ("none",)) for name in FLAGS}
    cells = n_runs // (CELL_RUNS * REPEATS) or 1
    cell = number // CELL_RUNS % cells
    repeat = np.minimum(number // (CELL_RUNS * cells), REPEATS - 1)
    return GroupRows(cell, repeat, number % CELL_RUNS, np.ones(n_runs), flags)


class Predictions:
    """Rows as a trainer would yield them: no two alike, labels that follow from margins."""

    def __init__(self, points: int, n_classes: int = 2) -> None:
        random = np.random.default_rng(0)
        self._margin = random.standard_normal(points + 4096).astype(np.float32)
        self._label = (self._margin >= 0).astype(np.uint8)
        if n_classes > 2:
            self._label = random.integers(0, n_classes, points + 4096).astype(np.uint16)
        self.points, self.n_classes = points, n_classes

    def __getitem__(self, run: int) -> tuple[np.ndarray, np.ndarray]:
        part = slice(run % 4096, run % 4096 + self.points)
        return self._margin[part], self._label[part]

    def row(self, run: int) -> RowBytes:
        margin, label = self[run]
        confidence = margin.tobytes() if self.n_classes > 2 else b""
        return RowBytes(label.tobytes(), margin.tobytes(), confidence)


def ours(folder: Path, spec: GroupSpec, n_runs: int) -> dict[str, float]:
    """Journal, publish and compact runs; a publisher and a trainer are one process here."""
    data = Predictions(spec.samples, spec.n_classes)
    group = create_group(folder / "predictions.zarr", spec, rows_of(n_runs), REPEATS)
    watch, journals = LeaseWatch(folder / "leases"), folder / "journals"

    def train() -> None:
        with JournalWriter(journals / "0.journal") as journal:
            for run in range(n_runs):
                journal.append(0, run, data.row(run), recipe=0, fit_seconds=run + 1)

    def copy() -> None:
        """Write the journal's bytes to disk again: the minimum cost of publishing."""
        with (folder / "copy").open("wb") as file, (journals / "0.journal").open("rb") as source:
            shutil.copyfileobj(source, file, 2**20)
            file.flush()
            os.fsync(file.fileno())
        (folder / "copy").unlink()

    def publish_all() -> None:
        index = JournalIndex(JournalFolder(journals))
        for shard in range(group.shards):
            publish(group, shard, index, watch)

    figures: dict[str, float] = {}
    for name, step in (
        ("journal", train),
        ("copy", copy),
        ("publish", publish_all),
        ("compact", lambda: compact(group.store, JournalFolder(journals), watch)),
    ):
        wall, processor = timed(step)
        figures[f"{name}_ms_per_run"] = 1e3 * wall / n_runs
        figures[f"{name}_cpu_ms_per_run"] = 1e3 * processor / n_runs
    return figures


def predicted(group: Group) -> list[str]:
    """Return the names of a group's predictions."""
    return [array.name for array in group.spec.arrays if array.role == "prediction"]


def read_ours(group: Group, cell: int | None) -> int:
    """Read everything, some inner chunks at a time, or one cell; return the number of bytes."""
    names = predicted(group)
    if cell is not None:
        rows = np.flatnonzero(read_array(group, "cell") == cell)
        return sum(values.nbytes for values in read_rows(group, names, rows).values())
    total, step = 0, SCAN * group.spec.chunk_length
    for name in names:
        for first in range(0, group.rows, step):
            total += encoding.read(group.folder / name, first, first + step).nbytes
    return total


def read_dask(opened: xr.Dataset, names: list[str]) -> int:
    """Read everything with dask, one thread per core."""
    chunks = [chunk for name in names for chunk in opened[name].data.to_delayed().ravel()]
    sizes = [dask.delayed(lambda values: values.nbytes)(chunk) for chunk in chunks]
    return sum(dask.compute(*sizes, scheduler="threads"))


def npz(folder: Path, n_runs: int, points: int) -> None:
    data = Predictions(points)
    for run in range(n_runs):
        margin, label = data[run]
        np.savez(folder / f"{run:06d}.npz", margin=margin, label=label)


def read_npz(folder: Path, runs: np.ndarray) -> int:
    total = 0
    for run in runs:
        with np.load(folder / f"{run:06d}.npz") as file:
            total += file["margin"].nbytes + file["label"].nbytes
    return total


def chunked(folder: Path, n_runs: int, points: int) -> None:
    data = Predictions(points)
    options = {"shape": (n_runs, points), "chunks": (1, points), "compressors": None}
    margins = zarr.create_array(LocalStore(folder / "margin"), dtype="float32", **options)
    labels = zarr.create_array(LocalStore(folder / "label"), dtype="uint8", **options)
    for run in range(n_runs):
        margins[run], labels[run] = data[run]


def read_chunked(folder: Path, runs: np.ndarray) -> int:
    arrays = [zarr.open_array(LocalStore(folder / name), mode="r") for name in ("margin", "label")]
    return sum(np.asarray(array.oindex[runs]).nbytes for array in arrays)


def hdf5(folder: Path, n_runs: int, points: int) -> None:
    import h5py

    data = Predictions(points)
    with h5py.File(folder / "runs.h5", "w") as file:
        margins = file.create_dataset("margin", (n_runs, points), "f4", chunks=(1, points))
        labels = file.create_dataset("label", (n_runs, points), "u1", chunks=(1, points))
        for run in range(n_runs):
            margins[run], labels[run] = data[run]


def read_hdf5(folder: Path, runs: np.ndarray) -> int:
    import h5py

    with h5py.File(folder / "runs.h5") as file:
        blocks = np.split(runs, np.flatnonzero(np.diff(runs) != 1) + 1)
        return sum(
            file[name][block[0] : block[-1] + 1].nbytes
            for name in ("margin", "label")
            for block in blocks
        )


def drop_caches() -> bool:
    """Drop cached data, if this process may."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def timed(step: Callable[[], object]) -> tuple[float, float]:
    """Return wall seconds and CPU seconds of this process."""
    wall, processor = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - wall, time.process_time() - processor


Read = tuple[Callable[[], int], int]
"""A function that reads, and the number of bytes uncompressed."""


def measured(reads: dict[str, Read], times: int = 1) -> dict[str, float]:
    """Time reads cold and hot, alternately; return medians, prefixed with the reads' names."""
    kinds = ("cold", "hot") if drop_caches() else ("hot",)
    found: dict[str, list[float]] = {}
    for _ in range(times):
        for prefix, (read, nominal) in reads.items():
            for kind in kinds:
                if kind == "cold":
                    drop_caches()
                wall, processor = timed(read)
                found.setdefault(f"{prefix}{kind}_s", []).append(wall)
                found.setdefault(f"{prefix}{kind}_MB_per_s", []).append(nominal / wall / 1e6)
            rate = nominal / processor / 1e6
            found.setdefault(f"{prefix}hot_MB_per_cpu_s", []).append(rate)
    return {name: statistics.median(values) for name, values in found.items()}


def on_disk(folder: Path) -> dict[str, int]:
    entries = [path for path in folder.rglob("*") if not path.name.endswith(".lease")]
    size = sum(path.stat().st_blocks * 512 for path in entries if path.is_file())
    return {"files_and_folders": len(entries), "bytes": size}


def read_raw(file: Path) -> int:
    """Read a file as fast as the disk does."""
    total, buffer = 0, bytearray(2**22)
    with file.open("rb", buffering=0) as source:
        while n := source.readinto(buffer):
            total += n
    return total


def compare(folder: Path, n_runs: int, points: int) -> dict[str, dict[str, float]]:
    """Write and read the same runs in all ways."""
    results: dict[str, dict[str, float]] = {}
    nominal = n_runs * points * 5
    whole, cell = np.arange(n_runs), np.flatnonzero(rows_of(n_runs).cell == 0)
    part = nominal * len(cell) // n_runs
    results["manyseed"] = alone(folder / "ours", spec_of(points), n_runs)
    ways: dict[str, tuple[Callable[..., object], Callable[..., int]]] = {
        "npz per run": (npz, read_npz),
        "zarr chunk per run": (chunked, read_chunked),
    }
    if importlib.util.find_spec("h5py"):
        ways["hdf5 in one file"] = (hdf5, read_hdf5)
    for name, (write, read) in ways.items():
        place = folder / name.replace(" ", "-")
        place.mkdir()
        started = time.perf_counter()
        write(place, n_runs, points)
        os.sync()
        seconds = time.perf_counter() - started
        results[name] = {
            "write_ms_per_run": 1e3 * seconds / n_runs,
            **on_disk(place),
            **measured(
                {
                    "": (partial(read, place, whole), nominal),
                    "cell_": (partial(read, place, cell), part),
                }
            ),
        }
        shutil.rmtree(place)
    return results


def alone(folder: Path, spec: GroupSpec, n_runs: int) -> dict[str, float]:
    """Write and read runs in this store."""
    figures = ours(folder, spec, n_runs)
    steps = ("journal", "publish", "compact")
    figures["write_ms_per_run"] = sum(figures[f"{step}_ms_per_run"] for step in steps)
    (group,) = list_groups(folder / "predictions.zarr")
    nominal = n_runs * spec.row_bytes
    part = spec.row_bytes * int(np.count_nonzero(read_array(group, "cell") == 0))
    figures |= on_disk(folder)
    raw, size = folder / "raw", min(nominal, 2**30)
    with raw.open("wb") as file:
        for _ in range(size // 2**20 + 1):
            file.write(os.urandom(2**20))
    opened = open_runs(group, SCAN * group.spec.chunk_length)
    names = predicted(group)
    read_dask(opened, names)  # imports of dask at first use are not reading
    reads: dict[str, Read] = {
        "": (lambda: read_ours(group, None), nominal),
        "dask_": (lambda: read_dask(opened, names), nominal),
        "cell_": (lambda: read_ours(group, 0), part),
        "disk_": (lambda: read_raw(raw), raw.stat().st_size),
    }
    figures |= measured(reads, times=5)
    for way in ("", "dask_"):
        if "disk_cold_s" in figures:
            share = figures[f"{way}cold_MB_per_s"] / figures["disk_cold_MB_per_s"]
            figures[f"{way}cold_share_of_disk"] = share
    shutil.rmtree(folder)
    return figures


def suite_by_formula() -> dict[str, float]:
    """Return files and bytes of the study's runs, from the shapes of its datasets."""
    described = [datasets.resolve(name) for name in datasets.suite(SUITE)]
    specs = [spec_of(found.n_test, len(found.class_names), SUITE_REPEATS) for found in described]
    groups = CLASSIFIERS * len(specs)
    files = CLASSIFIERS * sum(count_files(spec, SUITE_RUNS, SUITE_REPEATS) for spec in specs)
    return {
        "runs": groups * SUITE_RUNS,
        "groups": groups,
        "mean_points": float(np.mean([spec.samples for spec in specs])),
        "files_and_folders": files + 2 * (len(specs) + 1),
        "bytes": CLASSIFIERS * sum(stored_bytes(spec, SUITE_RUNS, SUITE_REPEATS) for spec in specs),
        "npz_files": groups * SUITE_RUNS,
    }


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print a table per case: one column per way and one row per figure, or transposed."""
    for title, ways in results.items():
        names = list(dict.fromkeys(name for figures in ways.values() for name in figures))
        table = [[title, *ways]]
        table += [[n, *(_shown(figures.get(n)) for figures in ways.values())] for n in names]
        if len(ways) > len(names):
            table = [list(row) for row in zip(*table, strict=True)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        print()
        for first, *rest in table:
            cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
            print("  ".join((first.ljust(widths[0]), *cells)))


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs: under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    results: dict[str, dict[str, dict[str, float]]] = {}
    for points, n_runs in ((1000, 2000), (17_900, 300)) if options.quick else SIZES:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            results[f"{n_runs:,} runs of {points:,} points"] = compare(Path(folder), n_runs, points)
    full = datasets.resolve(FULL_SIZE)
    for spec, what, few, many in (
        (spec_of(1000), "1,000 points", 5000, 100_000),
        (spec_of(full.n_test, len(full.class_names)), FULL_SIZE, 40, 600),
    ):
        n_runs = few if options.quick else many
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            title = f"{n_runs:,} runs of {what}, alone"
            results[title] = {"manyseed": alone(Path(folder) / "ours", spec, n_runs)}
    results["the study, by formula"] = {"manyseed": suite_by_formula()}
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)
        if importlib.util.find_spec("h5py") is None:
            print("\nhdf5 in one file: skipped: h5py is not installed")
        print(TARGETS)


if __name__ == "__main__":
    main()
