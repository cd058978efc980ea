"""Predictions larger than memory: imported, then analysed; seconds, peak memory, reading speed.

    python benchmarks/bench_large.py [--quick] [--json] [--folder DIR]

Random float16 scores of 10 classes, 40 runs per repeat, go through the commands that a user runs,
each in a separate process whose peak memory is its largest resident set. Reading for accuracy and
error consistency is compared with reading the same files alone, both cold (page cache dropped, if
root). The full size takes 50 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
from dask import compute, delayed

from manyseed.analysis.graph.chunks import Member, blocks
from manyseed.analysis.graph.predictions import Rows, Sources, read, readers
from manyseed.analysis.options import Options
from manyseed.orchestrator.computing.inputs import published
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan

SAMPLES, CLASSES, RUNS_A_REPEAT = 10_000, 10, 40
RUNS = {True: 400, False: 100_000}
RESAMPLES = 2
_MEASURED = """
import sys
from pathlib import Path
from manyseed.orchestrator.cli import main
sys.argv[0] = "manyseed"
try:
    main()
finally:  # unlike getrusage's, not what the parent had before
    (peak,) = (l for l in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in l)
    print("peak", peak.split()[1], file=sys.stderr)
"""


def write_scores(file: Path, runs: int) -> int:
    """Write an NPZ of random scores, one part at a time; return their bytes."""
    random = np.random.default_rng(0)
    pool = random.standard_normal(2**25).astype(np.float16)
    a_run = SAMPLES * CLASSES
    form = {"descr": "<f2", "fortran_order": False, "shape": (runs, SAMPLES, CLASSES)}
    small = {
        "y_true": random.integers(0, CLASSES, SAMPLES),
        "repeat": np.arange(runs) // RUNS_A_REPEAT,
    }
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in small.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, values)
        with archive.open("scores.npy", "w", force_zip64=True) as entry:
            np.lib.format.write_array_header_1_0(entry, form)
            for run in range(runs):
                start = run * 7919 % (len(pool) - a_run)
                entry.write(pool[start : start + a_run].tobytes())
    return 2 * a_run * runs


def manyseed(*arguments: str | Path) -> dict[str, float]:
    """Run a command; return its seconds and its peak memory."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    kibibytes = int(done.stderr.rpartition("peak ")[2])
    return {"seconds": seconds, "peak_MB": kibibytes * 1024 / 1e6}


def forget() -> bool:
    """Drop the page cache, if this process may."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def read_alone(files: list[Path]) -> float:
    """Return the seconds taken to read files in parts of 4 MiB."""
    buffer, started = bytearray(2**22), time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - started


def _bytes_of(rows: dict[str, Rows], members: tuple[Member, ...]) -> int:
    opened = readers(rows)
    found = (read(opened, number, member.held_out) for number, member in enumerate(members))
    return sum(arrays["label"].nbytes for arrays in found)


def read_labels(sweep: Path) -> float:
    """Return the seconds that the tasks of the analysis take only to read all labels."""
    paths, options = SweepPaths(sweep), Options()
    tasks = []
    for group in published(paths, Plan.read(paths)):
        sources = Sources.of(group.predictions, ["label"], options, position=0)
        fit = options.block_bytes // sources.run_bytes
        for members in blocks(group.predictions, options, fit, position=0):
            rows = sources.rows([member.row for member in members])
            tasks.append(delayed(partial(_bytes_of, rows, members), pure=False)())
    started = time.perf_counter()
    compute(*tasks, scheduler="threads")
    return time.perf_counter() - started


def bench(folder: Path, quick: bool) -> dict[str, dict[str, float]]:
    """Import and analyse; return seconds, MB and rates."""
    scores, sweep = folder / "scores.npz", folder / "sweep"
    n_bytes = write_scores(scores, RUNS[quick])
    found = {"import": manyseed("import", scores, "--out", sweep)}
    found["import"]["MB_per_s"] = n_bytes / found["import"]["seconds"] / 1e6
    scores.unlink()
    store = sweep / "predictions.zarr"
    labels = sorted(path for path in store.glob("*/*/label/c.*"))
    size = sum(path.stat().st_size for path in labels)
    read_labels(sweep)  # imports and compilation
    cold = not quick and forget()  # beside tests, all would read anew
    alone = read_alone(labels)
    if cold:
        forget()
    labels_alone = read_labels(sweep)
    start = manyseed("analyze", sweep, "--metrics", "accuracy,agreement", "--help")["seconds"]
    if cold:
        forget()
    name = "accuracy and error consistency"
    found[name] = manyseed("analyze", sweep, "--metrics", "accuracy,agreement")
    found[name] |= {
        "label_values_MB": RUNS[quick] * SAMPLES / 1e6,
        "label_files_MB": size / 1e6,
        "label_values_MB_per_s": RUNS[quick] * SAMPLES / (found[name]["seconds"] - start) / 1e6,
        "files_alone_MB_per_s": size / alone / 1e6,
        "files_read_by_analysis_MB_per_s": size / labels_alone / 1e6,
    }
    found["all metrics"] = manyseed("analyze", sweep, "--resamples", str(RESAMPLES))
    found["scores"] = {"MB": n_bytes / 1e6, "cold": float(cold)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="80 MB of scores: under a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = bench(Path(folder), options.quick)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for title, figures in found.items():
        shown = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
        print(f"{title}: {shown}")


if __name__ == "__main__":
    main()
