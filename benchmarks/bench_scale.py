"""Whole sweeps of half a million to two million runs, through the commands that a user calls.

    python benchmarks/bench_scale.py [--quick] [--json] [--runs 532800,1894400] [--folder DIR]

Each step is a command in a separate process: plan, submit to a SLURM test cluster on which every
job is held (dry), status there, training on this machine with fits that only draw a prediction,
status, query, analyze, report. For each, seconds, peak memory of its process, operations on files
and calls of the scheduler's commands. Operations are those that Python's audit hooks see (opening,
listing, making, renaming, linking and removing); what polars opens itself is not among them.
Figures are printed as they come. Needs about 1.5 kB of disk for each run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_orchestration import test_cluster
from benchmarks.bench_plan import AXES, sweep_file
from benchmarks.commands import measured, other_fits
from manyseed.slurm.local import available_cores
from manyseed.slurm.testcluster import TestCluster

QUICK, FULL = (1600,), (532_800, 1_894_400)

# in the place of a trainer's fit
SYNTHETIC = """
def replacement(_real):
    import numpy as np
    from manyseed.jobs.run import Prediction
    random = np.random.default_rng()
    def train(self, run, *args, **kwargs):
        y = self.test_set(run.cell, run.repeat).y_true
        gap = (2.0 * y - 1.0 + 1.5 * random.standard_normal(len(y))).astype(np.float32)
        label, p = (gap >= 0).astype(np.uint16), 1 / (1 + np.exp(-np.abs(gap)))
        return Prediction(gap[None], label[None], p.astype(np.float32)[None], 1e-3)
    return train
"""


def tell(runs: int, step: str, figures: dict[str, float], quiet: bool) -> None:
    """Print the figures of a step as soon as they are known."""
    shown = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
    print(f"{runs:,} runs, {step}: {shown}", file=sys.stderr if quiet else sys.stdout, flush=True)


def trained(folder: Path, sweep: Path) -> dict[str, float]:
    """Train with fits that only draw; return seconds, of a run and process too."""
    from manyseed.orchestrator.sweep import Sweep

    workers = min(8, available_cores())
    began = time.perf_counter()
    with other_fits(folder, SYNTHETIC):
        found = measured("submit", sweep, "--cluster", "local", "--workers", str(workers))
        Sweep(sweep).wait()
    found["seconds"] = time.perf_counter() - began
    del found["cpu_seconds"]  # of the submission alone
    counts = Sweep(sweep).survey().counts
    assert counts["done"] + counts["copy"] == counts["runs"], counts
    found["ms_a_run_and_process"] = found["seconds"] * workers / counts["runs"] * 1e3
    return found


def dry(folder: Path, sweep: Path, cluster: TestCluster) -> dict[str, dict[str, float]]:
    """Submit a copy with all jobs held; return what that and its status take, and end the jobs."""
    from manyseed.orchestrator.sweep import Sweep

    sweep = shutil.copytree(sweep, folder / "dry")  # no cluster answers for this one later
    profile = folder / "held.toml"
    profile.write_text(
        f'slurm-conf = "{cluster.conf}"\ntime = "4:00:00"\nextra = {{ hold = true }}\n'
        '[cpu]\npartition = "cpu"\ncpus-per-task = 4\n'
    )
    found = {"submit, dry": measured("submit", sweep, "--cluster", profile)}
    found["submit, dry"]["tasks"] = Sweep(sweep).submissions()[0].intent.tasks
    found["status, submitted"] = measured("status", sweep)
    Sweep(sweep).cancel()
    shutil.rmtree(sweep)
    return found


def bench(folder: Path, runs: int, quiet: bool) -> dict[str, dict[str, float]]:
    """Take a sweep of so many runs from its file to its page."""
    file, sweep = folder / "sweep.toml", folder / "sweep"
    file.write_text(sweep_file(runs))
    found: dict[str, dict[str, float]] = {}

    def keep(step: str, figures: dict[str, float]) -> None:
        found[step] = figures
        tell(runs, step, figures, quiet)

    keep("plan", measured("plan", file, "--out", sweep))
    with test_cluster(folder / "slurm") as cluster:
        for step, figures in (dry(folder, sweep, cluster) if cluster else {}).items():
            keep(step, figures)
    keep("train", trained(folder, sweep))
    files = [path.stat().st_size for path in sweep.rglob("*") if path.is_file()]
    keep("on disk", {"files": len(files), "MB": sum(files) / 1e6})
    keep("status", measured("status", sweep))
    keep("analyze", measured("analyze", sweep))
    keep("query", measured("query", sweep, "--by", "classifier"))
    keep("report", measured("report", sweep))
    return found


def sizes(text: str) -> list[int]:
    """Read numbers of runs; those that `bench_plan` has axes for."""
    found = [int(part) for part in text.split(",") if part.isdecimal()]
    if not found or set(found) - AXES.keys():
        raise argparse.ArgumentTypeError(f"of {', '.join(map(str, AXES))}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1600 runs: about a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=sizes, help="numbers of runs, separated by commas")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    for runs in options.runs or (QUICK if options.quick else FULL):
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            os.environ["MANYSEED_DATA"] = str(Path(name, "data"))
            result[str(runs)] = bench(Path(name), runs, options.json)
    if options.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
