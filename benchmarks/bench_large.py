"""Predictions larger than memory: imported, analysed, sealed; seconds, peak memory, reading speed.

    python benchmarks/bench_large.py [--quick] [--json] [--folder DIR] [--gb N] [--parts PART,...]

Random float16 scores of 10 classes, 40 runs per repeat, go through the commands that a user runs,
each in a separate process whose peak memory is its largest resident set. Reading for accuracy and
error consistency is compared with reading the same files alone, both cold (page cache dropped, if
root). Then the store is sealed, and `verify --sealed` is compared with reading the same files, and
with their SHA-256 one after another. Last, the analysis by SLURM jobs of a test cluster as workers
of dask must give the tables that threads give, bit for bit. `--parts` chooses from these, such as
`--parts sealed`; figures are printed as they come. Needs twice the size of the scores on disk, and
a tenth more; 20 GB if not told otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from dask import compute, delayed

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_orchestration import test_cluster
from benchmarks.commands import measured
from manyseed.analysis.graph.chunks import Member, blocks
from manyseed.analysis.graph.predictions import Rows, Sources, read, readers
from manyseed.analysis.options import Options
from manyseed.orchestrator.computing.inputs import published
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan

SAMPLES, CLASSES, RUNS_A_REPEAT = 10_000, 10, 40
GB = {True: 0.08, False: 20.0}
PARTS = ("analysis", "sealed", "slurm")
SLURM_WORKERS = 4
PROFILE = """
slurm-conf = "{conf}"
time = "4:00:00"
mem = "3G"
[cpu]
partition = "cpu"
cpus-per-task = 1
"""
RESAMPLES = 2


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


Found = dict[str, dict[str, float]]


def analysis(sweep: Path, quick: bool) -> Found:
    """Analyse; compare reading with reading the files alone."""
    found: Found = {}
    store = sweep / "predictions.zarr"
    n_labels = SAMPLES * Plan.read(SweepPaths(sweep)).rows.height
    labels = sorted(path for path in store.glob("*/*/label/c.*"))
    size = sum(path.stat().st_size for path in labels)
    read_labels(sweep)  # imports and compilation
    cold = not quick and forget()  # beside tests, all would read anew
    alone = read_alone(labels)
    if cold:
        forget()
    labels_alone = read_labels(sweep)
    start = measured("analyze", sweep, "--metrics", "accuracy,agreement", "--help")["seconds"]
    if cold:
        forget()
    name = "accuracy and error consistency"
    found[name] = measured("analyze", sweep, "--metrics", "accuracy,agreement")
    found[name] |= {
        "label_values_MB": n_labels / 1e6,
        "label_files_MB": size / 1e6,
        "label_values_MB_per_s": n_labels / (found[name]["seconds"] - start) / 1e6,
        "files_alone_MB_per_s": size / alone / 1e6,
        "files_read_by_analysis_MB_per_s": size / labels_alone / 1e6,
    }
    found[name]["cold"] = float(cold)
    found["all metrics"] = measured("analyze", sweep, "--resamples", str(RESAMPLES))
    return found


def sealed(sweep: Path, quick: bool) -> Found:
    """Seal, then verify; compare that with reading the files alone, and hashing them one by one."""
    found = {"seal": measured("seal", sweep)}
    files = sorted(path for path in (sweep / "predictions.zarr").rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)

    def hashed() -> float:
        started = time.perf_counter()
        for path in files:
            with path.open("rb") as file:
                hashlib.file_digest(file, "sha256")
        return time.perf_counter() - started

    start = measured("verify", sweep, "--sealed", "--help")["seconds"]
    cold = [not quick and forget()]
    alone = read_alone(files)
    cold.append(not quick and forget())
    one_by_one = hashed()
    cold.append(not quick and forget())
    verified = measured("verify", sweep, "--sealed")
    seconds = max(verified["seconds"] - start, 1e-3)
    found["verify --sealed"] = verified | {
        "MB": size / 1e6,
        "MB_per_s": size / seconds / 1e6,
        "files_alone_MB_per_s": size / alone / 1e6,
        "sha256_one_by_one_MB_per_s": size / one_by_one / 1e6,
        "of_the_disk": alone / seconds,
        "of_sha256_one_by_one": one_by_one / seconds,
        "cold": float(all(cold)),
    }
    # a byte that differs is named
    with files[-1].open("r+b") as file:
        byte = file.read(1)
        file.seek(0)
        file.write(bytes([byte[0] ^ 1]))
    told = subprocess.run(
        [sys.executable, "-m", "manyseed", "verify", sweep, "--sealed"],
        capture_output=True,
        text=True,
        check=False,
    )
    with files[-1].open("r+b") as file:
        file.write(byte)
    if told.returncode != 1 or files[-1].name not in told.stdout + told.stderr:
        raise SystemExit(f"a changed byte was not named:\n{told.stdout}{told.stderr}")
    return found


def slurm(sweep: Path, _quick: bool) -> Found:
    """Analyse with threads and with SLURM jobs as workers of dask; their tables must be equal."""
    asked = ("analyze", sweep, "--metrics", "accuracy,agreement,proper_scores")
    results, kept = sweep / "results", sweep.with_name("results-of-threads")
    shutil.rmtree(results, ignore_errors=True)
    found = {"threads": measured(*asked)}
    results.rename(kept)
    with test_cluster(sweep.with_name("slurm")) as cluster:
        if cluster is None:
            return found
        profile = sweep.with_name("jobs.toml")
        profile.write_text(PROFILE.format(conf=cluster.conf))
        jobs = ("--dask", "slurm", "--workers", str(SLURM_WORKERS), "--cluster", profile)
        found["SLURM jobs"] = measured(*asked, *jobs)
    tables = sorted(file.name for file in kept.glob("*.parquet") if file.name != "inputs.parquet")
    for name in tables:
        if not pl.read_parquet(kept / name).equals(pl.read_parquet(results / name)):
            raise SystemExit(f"{name} of jobs differs from that of threads")
    found["SLURM jobs"] |= {"workers": SLURM_WORKERS, "equal_tables": len(tables)}
    return found


def bench(folder: Path, gb: float, quick: bool, parts: list[str], quiet: bool) -> Found:
    """Import and take the parts; return seconds, MB and rates."""
    scores, sweep = folder / "scores.npz", folder / "sweep"
    runs = max(1, round(gb * 1e9 / (2 * SAMPLES * CLASSES * RUNS_A_REPEAT))) * RUNS_A_REPEAT
    needed = 2.1 * 2 * SAMPLES * CLASSES * runs
    if (free := shutil.disk_usage(folder).free) < needed:
        raise SystemExit(f"{folder}: {free / 1e9:.1f} GB are free, {needed / 1e9:.1f} GB needed")
    n_bytes = write_scores(scores, runs)
    found = {"import": measured("import", scores, "--out", sweep)}
    found["import"] |= {
        "MB": n_bytes / 1e6,
        "MB_per_s": n_bytes / found["import"]["seconds"] / 1e6,
    }
    scores.unlink()
    tell(found, quiet)
    for part in parts:
        new = {"analysis": analysis, "sealed": sealed, "slurm": slurm}[part](sweep, quick)
        tell(new, quiet)
        found |= new
    return found


def tell(found: Found, quiet: bool) -> None:
    """Print figures as soon as they are known."""
    for title, figures in found.items():
        shown = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
        print(f"{title}: {shown}", file=sys.stderr if quiet else sys.stdout, flush=True)


def parts_of(text: str) -> list[str]:
    """Read the names of parts."""
    if not (chosen := [part for part in PARTS if part in text.split(",")]):
        raise argparse.ArgumentTypeError(f"of {', '.join(PARTS)}")
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="80 MB of scores: under a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--gb", type=float, help="size of the scores, in GB")
    parser.add_argument("--parts", type=parts_of, default=[*PARTS], help=",".join(PARTS))
    options = parser.parse_args()
    gb = options.gb or GB[options.quick]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = bench(Path(folder), gb, options.quick, options.parts, options.json)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
