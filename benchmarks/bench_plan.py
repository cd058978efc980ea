"""Plans of 44 800 to 10 million runs: time, memory and size on disk, compared with plain iteration.

A plan is timed from reading the sweep file to the last byte on disk, in a separate process,
after imports and a plan of 100 runs (libraries load parts of themselves when first used). The
alternatives: iteration over scikit-learn's ParameterGrid, which makes each run's dict and keeps
nothing; and, if hydra-core is installed (pip install '.[bench]'), Hydra's multirun expansion of the
same axes (the product of overrides, then a config for each job, as its basic sweeper does before it
launches) at a size that it finishes. CPU seconds are those of all threads.

    python benchmarks/bench_plan.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

QUICK, FULL = (44_800, 532_800), (44_800, 532_800, 1_894_400, 10_240_000)
HYDRA_RUNS = {True: 100, False: 1600}
"""Quick and not: Hydra takes about a tenth of a second for each."""
DATA = [
    "none",
    *(f"{scheme}:{p}" for scheme in ("relative", "percentile") for p in (0.1, 0.2, 0.5)),
]
DATA += ["sig-digit:0"]
HPARAMS = [
    "none",
    *(f"{scheme}:{p}" for scheme in ("relative", "absolute") for p in (0.05, 0.1, 0.2)),
]

AXES: dict[int, dict[str, Any]] = {
    # the studies' numbers of levels; every combination is distinct
    100: {
        "dataset": 1,
        "fraction": 1,
        "continuous": 1,
        "categorical": 1,
        "hparams": 1,
        "classifier": 1,
    },
    1600: {
        "dataset": 2,
        "fraction": 1,
        "continuous": 2,
        "categorical": 1,
        "hparams": 1,
        "classifier": 4,
    },
    44_800: {
        "dataset": 2,
        "fraction": 1,
        "continuous": 8,
        "categorical": 1,
        "hparams": 7,
        "classifier": 4,
    },
    532_800: {
        "dataset": 37,
        "fraction": 3,
        "continuous": 3,
        "categorical": 2,
        "hparams": 2,
        "classifier": 4,
    },
    1_894_400: {
        "dataset": 37,
        "fraction": 4,
        "continuous": 4,
        "categorical": 2,
        "hparams": 4,
        "classifier": 4,
    },
    10_240_000: {
        "dataset": 40,
        "fraction": 8,
        "continuous": 8,
        "categorical": 5,
        "hparams": 4,
        "classifier": 2,
    },
}
"""Levels of each axis; 10 repeats of 10 runs."""


def axes(runs: int) -> dict[str, list[Any]]:
    """Return the lists of a grid of so many runs."""
    n = AXES[runs]
    return {
        "dataset": [f"d{i:02d}" for i in range(n["dataset"])],
        "classifier": ["lr-sgd", "mlp", "xgb", "svm-sgd"][: n["classifier"]],
        "train_fraction": [1.0, 0.75, 0.5, 0.25, 0.9, 0.8, 0.6, 0.4][: n["fraction"]],
        "perturb_continuous": DATA[: n["continuous"]],
        "perturb_categorical": ["none", "label:0.1", "label:0.05", "sample:0.1", "sample:0.2"][
            : n["categorical"]
        ],
        "perturb_hparams": HPARAMS[: n["hparams"]],
    }


def sweep_file(runs: int, repeats: int = 10) -> str:
    """Return a sweep file whose plan has so many distinct runs."""
    lists = axes(runs)
    lines = ['name = "bench"', "seed = 1", f"repeats = {repeats}", "runs = 10", "[[grid]]"]
    lines += [f"{axis} = {json.dumps(values)}" for axis, values in lists.items()]
    for number, name in enumerate(lists["dataset"]):
        lines += [
            f"[dataset.{name}]",
            'source = "synthetic:gaussian"',
            f"n_samples = {800 + number}",
        ]
        lines += ["n_features = 8", "n_categorical = 4"]
    return "\n".join(lines)


def peak_mb() -> float:
    """Return the peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plan(runs: int) -> dict[str, Any]:
    """Plan once, then enlarge the plan by a tenth: one more repeat."""
    from manyseed.orchestrator.plans.planning import plan_sweep

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.toml")
        file.write_text(sweep_file(100))
        plan_sweep(file, Path(folder, "sweep"))
    with tempfile.TemporaryDirectory() as folder:
        file, directory = Path(folder, "sweep.toml"), Path(folder, "sweep")
        file.write_text(sweep_file(runs))
        started, worked = time.perf_counter(), time.process_time()
        change = plan_sweep(file, directory)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
        assert len(change.added) == runs, len(change.added)
        size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        result = {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "peak_mb": peak_mb(),
            "cells": len(change.after.cells),
            "bytes_a_run": size / runs,
        }
        del change
        file.write_text(sweep_file(runs, repeats=11))
        started = time.perf_counter()
        assert len(plan_sweep(file, directory).added) == runs // 10
        return {**result, "enlarge_seconds": time.perf_counter() - started}


def parameter_grid(runs: int) -> dict[str, Any]:
    """Make every run's dict, and keep none."""
    from sklearn.model_selection import ParameterGrid

    grid = ParameterGrid({**axes(runs), "repeat": range(10), "run": range(10)})
    started, worked = time.perf_counter(), time.process_time()
    made = sum(1 for _ in grid)
    assert made == runs
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - worked,
        "peak_mb": peak_mb(),
    }


def hydra(runs: int) -> dict[str, Any]:
    """Expand the same axes as Hydra's basic sweeper does, one config per job."""
    from hydra import compose, initialize_config_dir
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    lists = {**axes(runs), "repeat": range(10), "run": range(10)}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.yaml").write_text("\n".join(f"{axis}: null" for axis in lists))
        with initialize_config_dir(folder, version_base=None):
            started, worked = time.perf_counter(), time.process_time()
            overrides = [
                f"{axis}={','.join(json.dumps(v) for v in values)}"
                for axis, values in lists.items()
            ]
            parsed = OverridesParser.create().parse_overrides(overrides)
            [jobs] = BasicSweeper.split_arguments(parsed, None)
            product = time.perf_counter() - started
            for job in jobs:
                compose("config", overrides=list(job))
            seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
    assert len(jobs) == runs
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "product_seconds": product,
        "peak_mb": peak_mb(),
    }


def measured(what: str, runs: int) -> dict[str, Any] | None:
    """Measure in a separate process; None if a package is missing."""
    command = [sys.executable, __file__, "--one", what, str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named 'hydra'" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(done.stderr)
    value: dict[str, Any] = json.loads(done.stdout)
    return {"runs": runs, **value}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the two smaller sizes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "RUNS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        what, runs = options.one
        print(
            json.dumps(
                {"plan": plan, "parameter_grid": parameter_grid, "hydra": hydra}[what](int(runs))
            )
        )
        return
    sizes = QUICK if options.quick else FULL
    result = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "plan": [measured("plan", runs) for runs in sizes],
        "parameter_grid": [measured("parameter_grid", runs) for runs in sizes],
        "hydra": measured("hydra", HYDRA_RUNS[options.quick]),
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    heads = ("runs", 12), ("seconds", 9), ("CPU s", 8), ("µs per run", 10), ("peak MB", 9)
    heads = *heads, ("bytes per run", 13), ("enlarge s", 11)
    print(" " * 16 + "".join(f"{head:>{width}}" for head, width in heads))
    for what in ("plan", "parameter_grid", "hydra"):
        entries = result[what] if isinstance(result[what], list) else [result[what]]
        for entry in entries:
            if entry is None:
                print(f"{what:16}skipped: hydra-core is not installed")
                continue
            line = f"{what:16}{entry['runs']:>12,}{entry['seconds']:>9.2f}"
            line += f"{entry['cpu_seconds']:>8.2f}"
            line += f"{entry['seconds'] / entry['runs'] * 1e6:>10.2f}{entry['peak_mb']:>9.0f}"
            if "bytes_a_run" in entry:
                line += f"{entry['bytes_a_run']:>13.2f}{entry['enlarge_seconds']:>11.2f}"
            print(line)


if __name__ == "__main__":
    main()
