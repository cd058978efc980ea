"""The store beside one .npz a run, one Zarr chunk a run, and HDF5 in one file.

    python benchmarks/bench_store.py [--quick] [--json] [--folder DIR]

Runs are binary, with margins, as most of the source's datasets: 5 bytes a point. Reading is
measured cold (the page cache dropped, where root) and hot. Figures printed beside what is measured
are the targets of the store.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr
from zarr.storage import LocalStore

from orchestrator.store import encoding
from orchestrator.store.arrays import FLAGS
from orchestrator.store.compact import compact
from orchestrator.store.groups import Group
from orchestrator.store.index import JournalIndex
from orchestrator.store.journal import JournalWriter
from orchestrator.store.lease import LeaseWatch
from orchestrator.store.planning import Flags, Rows, create_group
from orchestrator.store.reader import read_rows
from orchestrator.store.rows import RowBytes
from orchestrator.store.schema import GroupSpec
from orchestrator.store.shards import publish

CELL_RUNS, REPEATS = 20, 10

# The source's study: 37 datasets, 4 classifiers, 3600 runs a group; mean 17 900 test points, up to
# 1000 classes. Sizes are of test sets.
SOURCE_GROUPS, SOURCE_RUNS, SOURCE_MEAN_POINTS = 148, 3600, 17_900


def spec_of(points: int) -> GroupSpec:
    return GroupSpec.create(
        number=0,
        dataset="bench",
        classifier="mlp",
        samples=points,
        class_names=("0", "1"),
        repeats=REPEATS,
    )


def rows_of(n_runs: int) -> Rows:
    number = np.arange(n_runs)
    flags = {name: Flags(np.zeros(n_runs, dtype=np.int16), ("none",)) for name in FLAGS}
    cells = n_runs // (CELL_RUNS * REPEATS) or 1
    cell = number // CELL_RUNS % cells
    repeat = np.minimum(number // (CELL_RUNS * cells), REPEATS - 1)
    return Rows(cell, repeat, number % CELL_RUNS, np.ones(n_runs), flags)


class Predictions:
    """Margins and labels of runs, as a trainer would yield them."""

    def __init__(self, points: int) -> None:
        self._base = np.random.default_rng(0).standard_normal(points + 4096).astype(np.float32)
        self.points = points

    def __getitem__(self, run: int) -> tuple[np.ndarray, np.ndarray]:
        margin = self._base[run % 4096 : run % 4096 + self.points]
        return margin, (margin >= 0).astype(np.uint8)


def ours(folder: Path, n_runs: int, points: int) -> dict[str, float]:
    data, spec = Predictions(points), spec_of(points)
    group = create_group(folder / "predictions.zarr", spec, rows_of(n_runs), REPEATS)
    watch, journals = LeaseWatch(folder / "leases"), folder / "journals"
    started = time.perf_counter()
    with JournalWriter(journals / "0.journal") as journal:
        for run in range(n_runs):
            margin, label = data[run]
            values = RowBytes(label.tobytes(), margin.tobytes())
            journal.append(0, run, values, recipe=0, fit_seconds=run + 1)
    journaled = time.perf_counter()
    index = JournalIndex(journals)
    for shard in range(group.shards):
        publish(group, shard, index, watch)
    published = time.perf_counter()
    compact(group.store, journals, watch)
    return {
        "journal_ms_per_run": 1e3 * (journaled - started) / n_runs,
        "publish_ms_per_run": 1e3 * (published - journaled) / n_runs,
        "compact_ms_per_run": 1e3 * (time.perf_counter() - published) / n_runs,
    }


def read_ours(folder: Path, group: Group, cell: int | None) -> int:
    if cell is None:
        total = 0
        for array in ("label", "margin"):
            values = zarr.open_array(LocalStore(group.folder / array, read_only=True), mode="r")
            for first in range(0, group.rows, group.spec.chunk_length):
                total += np.asarray(values[first : first + group.spec.chunk_length]).nbytes
        return total
    cells = encoding.read(group.folder / "cell", 0, group.rows)
    found = read_rows(group, ("label", "margin"), np.flatnonzero(cells == cell))
    return sum(values.nbytes for values in found.values())


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
        return sum(file[name][runs[0] : runs[-1] + 1].nbytes for name in ("margin", "label"))


def drop_caches() -> bool:
    """Forget what was read, where this process may."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def measured(read: Callable[[], int], nominal: int) -> dict[str, float]:
    """Time a read cold and hot; rates are of 5 bytes a point."""
    found: dict[str, float] = {}
    for name in ("cold", "hot") if drop_caches() else ("hot",):
        started = time.perf_counter()
        read()
        seconds = time.perf_counter() - started
        found |= {f"{name}_s": seconds, f"{name}_MB_per_s": nominal / seconds / 1e6}
    return found


def on_disk(folder: Path) -> dict[str, int]:
    entries = [path for path in folder.rglob("*") if not path.name.endswith(".lease")]
    size = sum(path.stat().st_blocks * 512 for path in entries if path.is_file())
    return {"files_and_folders": len(entries), "bytes": size}


def raw_disk(folder: Path, n_bytes: int) -> float | None:
    """Return the disk's own speed, MB/s, of one large file read cold."""
    file = folder / "raw"
    file.write_bytes(os.urandom(2**20) * (n_bytes // 2**20 + 1))
    if not drop_caches():
        return None
    started, total = time.perf_counter(), 0
    with file.open("rb", buffering=0) as source:
        buffer = bytearray(2**22)
        while n := source.readinto(buffer):
            total += n
    seconds = time.perf_counter() - started
    file.unlink()
    return total / seconds / 1e6


def compare(folder: Path, n_runs: int, points: int) -> dict[str, dict[str, float]]:
    """Write and read the same runs in all ways."""
    results: dict[str, dict[str, float]] = {}
    nominal = n_runs * points * 5
    whole, cell = np.arange(n_runs), np.arange(CELL_RUNS)
    part = nominal * CELL_RUNS // n_runs
    ways: dict[str, tuple[Callable[..., object], Callable[..., int]]] = {
        "npz a run": (npz, read_npz),
        "zarr chunk a run": (chunked, read_chunked),
    }
    try:
        import h5py  # noqa: F401

        ways["hdf5 in one file"] = (hdf5, read_hdf5)
    except ImportError:
        pass
    mine = folder / "ours"
    started = time.perf_counter()
    steps = ours(mine, n_runs, points)
    seconds = time.perf_counter() - started
    group = Group(
        mine / "predictions.zarr", spec_of(points), spec_of(points).padded(n_runs), REPEATS
    )
    results["manyseed"] = {
        **steps,
        "write_ms_per_run": 1e3 * seconds / n_runs,
        **on_disk(mine),
        **measured(lambda: read_ours(mine, group, None), nominal),
        **{f"cell_{k}": v for k, v in measured(lambda: read_ours(mine, group, 0), part).items()},
    }
    shutil.rmtree(mine)
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
            **measured(lambda r=read, p=place: r(p, whole), nominal),
            **{
                f"cell_{k}": v
                for k, v in measured(lambda r=read, p=place: r(p, cell), part).items()
            },
        }
        shutil.rmtree(place)
    raw = raw_disk(folder, min(nominal, 2**30))
    if raw is not None:
        results["disk itself"] = {"cold_MB_per_s": raw}
    return results


def source_study() -> dict[str, float]:
    """Return files and bytes of the source's 532 800 runs, by formula, at their mean size."""
    spec = spec_of(SOURCE_MEAN_POINTS)
    return {
        "runs": SOURCE_GROUPS * SOURCE_RUNS,
        "files_and_folders": SOURCE_GROUPS * spec.files(SOURCE_RUNS, 30),
        "bytes": SOURCE_GROUPS * spec.stored_bytes(SOURCE_RUNS, 30),
        "npz_files": SOURCE_GROUPS * SOURCE_RUNS,
    }


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    for title, ways in results.items():
        print(f"\n{title}")
        for name, figures in ways.items():
            shown = ", ".join(f"{k} {v:,.4g}" for k, v in figures.items())
            print(f"  {name}: {shown}")
    print(
        "\nTargets: publish under 0.1 ms a run; 10 000 runs under 200 files and folders; 532 800 "
        "runs under 12 000;\n  full scan cold at least 70 % of the disk, hot at least 1000 MB/s; "
        "10× faster to scan and 20× fewer files than npz."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs: under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    results: dict[str, dict[str, dict[str, float]]] = {}
    for points, n_runs in ((1000, 2000 if options.quick else 10_000), (17_900, 3600)):
        if points > 1000:
            n_runs = math.ceil(n_runs / 12) if options.quick else n_runs
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            results[f"{n_runs:,} runs of {points:,} points"] = compare(Path(folder), n_runs, points)
    results["the source's study, by formula"] = {"manyseed": source_study()}
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
