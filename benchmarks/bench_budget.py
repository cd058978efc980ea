"""Estimates and budgets on a cluster: what plans say that sweeps take, and what they take.

    python benchmarks/bench_budget.py [--quick] [--json] [--folder DIR] [--seconds N]

Each sweep goes through a user's commands, on a SLURM test cluster that runs one job at a time, on
as many cores as this machine has: a plan of few runs; `submit --calibrate`; the largest design of
the file within a budget of N core seconds (`plan --budget --cluster`), which cuts it; `submit`;
`status --watch`. Realised are the seconds of its fits, as the report shows beside the estimate,
the pilot's included; they are compared with the estimate after the measurement, with the one before
it, and with the budget. Beside them stand what tasks took as a whole, by `status --usage`'s
measurements: their time on cores, of which starts are a large part of so small sweeps; and the time
from `submit` to the end beside the forecast for the cluster. On an idle machine only: fits are
timed by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_orchestration import test_cluster
from manyseed.slurm.local import available_cores
from manyseed.slurm.testcluster import TestCluster

SECONDS = {True: 20.0, False: 60.0}
"""Of a budget, on one core; quick and not."""

AIMS = {"median error of the estimate": 0.25, "realised beyond the budget": 0.05}
FIRST_RUNS = 4  # of a cell in the plan that is measured
ASKED_RUNS = 5000  # of a cell in the file: no budget here suffices for them
MOST_CORES = 8  # of a node of the test cluster

PROFILE = """
slurm-conf = "{conf}"
time = "1:00:00"
mem = "4G"
parallelism = 1
[cpu]
partition = "cpu"
cpus-per-task = {cores}
"""

SWEEP = """
name = "{name}"
seed = 1
repeats = 1
runs = {runs}
[[grid]]
{grid}
[classifier.mlp]
epochs = 5
"""

SWEEPS = {
    "mixed": """
dataset = ["sklearn:breast_cancer", "sklearn:wine"]
classifier = ["lr-sgd", "xgb", "mlp"]
perturb_continuous = ["relative:0.1", "relative:0.2"]
""",
    "sgd": """
dataset = ["sklearn:breast_cancer", "sklearn:digits"]
classifier = ["lr-sgd", "svm-sgd"]
train_fraction = [0.5, 1.0]
perturb_hparams = ["none", "relative:0.2"]
""",
    "trees": """
dataset = ["sklearn:breast_cancer", "sklearn:digits"]
classifier = ["xgb"]
perturb_continuous = ["relative:0.1"]
perturb_hparams = ["none", "relative:0.1"]
""",
    "networks": """
dataset = ["sklearn:digits", "sklearn:wine"]
classifier = ["mlp"]
train_fraction = [0.5, 1.0]
""",
}
QUICK = ("mixed",)

Figures = dict[str, float]


def called(*arguments: object) -> str:
    """Call a command as a user does; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "manyseed", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 3):  # 3: runs are missing
        raise SystemExit(f"{' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def of_tasks(directory: Path, cores: int) -> Figures:
    """Return core seconds of all tasks, by their own reports: what they held, and what was busy."""
    from manyseed import Sweep

    attempts = [one for each in Sweep(directory).submissions() for one in each.attempts()]
    held = cores * sum(one.updated - one.started for one in attempts)
    return {"tasks_held": held, "tasks_busy": sum(one.cpu_seconds for one in attempts)}


def outcome(directory: Path) -> tuple[float, float]:
    """Return the seconds of fits that the plan estimated, and those that they took."""
    from manyseed.orchestrator.paths import SweepPaths
    from manyseed.orchestrator.plans.change import estimate_and_outcome

    estimated, took = estimate_and_outcome(SweepPaths(directory))["hours"]
    return 3600 * estimated, 3600 * took


def bench(folder: Path, name: str, cluster: TestCluster, seconds: float) -> Figures:
    """Take a sweep from its file to its end within a budget."""
    cores, profile = min(MOST_CORES, available_cores()), folder / "lab.toml"
    profile.write_text(PROFILE.format(conf=cluster.conf, cores=cores))
    file, directory = folder / f"{name}.toml", folder / name
    file.write_text(SWEEP.format(name=name, runs=ASKED_RUNS, grid=SWEEPS[name]))
    called("plan", file, "--set", f"runs={FIRST_RUNS}", "--out", directory)
    called("submit", directory, "--calibrate", "--cluster", profile)
    measured = json.loads(called("status", directory, "--json"))["runs"]["done"]
    budget = ("--budget", f"{seconds / 3600:.9f}coreh", "--cluster", profile, "--json")
    plan: dict[str, Any] = json.loads(called("plan", file, "--out", directory, *budget))
    runs = plan["budget"]["runs"]
    fresh = ("--set", f"runs={runs}", "--out", folder / "fresh", "--dry-run", "--json")
    before = json.loads(called("plan", file, *fresh))["core_hours"] * 3600
    began = time.perf_counter()
    called("submit", directory, "--cluster", profile)
    called("status", directory, "--watch")
    wall = time.perf_counter() - began
    left = json.loads(called("status", directory, "--json"))["runs"]
    assert not left["missing"] + left["failed"], left
    estimated, realised = outcome(directory)
    return {
        "runs_kept": runs,
        "fits": left["done"],
        "fits_measured_first": measured,
        "budget": seconds,
        "estimate_unmeasured": before,
        "estimate": estimated,
        "realised": realised,
        "error": realised / estimated - 1,
        "error_unmeasured": realised / before - 1,
        "realised_of_budget": realised / seconds,
        **of_tasks(directory, cores),
        "forecast_until_done": sum(3600 * one["hours"] for one in plan["on_cluster"]),
        "until_done": wall,
    }


def summary(found: dict[str, Figures]) -> Figures:
    """Return the median error of estimates, measured and not, and the most used of a budget."""

    def median(key: str) -> float:
        return statistics.median(abs(one[key]) for one in found.values())

    return {
        "median error of the estimate": median("error"),
        "realised beyond the budget": max(one["realised_of_budget"] for one in found.values()) - 1,
        "median error before it is measured": median("error_unmeasured"),
    }


def tell(name: str, one: Figures) -> None:
    """Print a sweep's line."""
    print(
        f"{name:10}{one['fits']:>7,.0f}{one['estimate_unmeasured']:>12.1f}{one['estimate']:>10.1f}"
        f"{one['realised']:>10.1f}{one['error']:>+8.0%}{one['budget']:>8.0f}"
        f"{one['realised_of_budget']:>10.2f}{one['tasks_busy']:>8.1f}{one['tasks_held']:>7.1f}"
        f"{one['forecast_until_done']:>10.1f}{one['until_done']:>7.1f}",
        flush=True,
    )


HEAD = (
    f"{'':10}{'fits':>7}{'unmeasured':>12}{'estimate':>10}{'realised':>10}{'error':>8}"
    f"{'budget':>8}{'realised/':>10}{'busy':>8}{'held':>7}{'forecast':>10}{'until':>7}"
)


def all_sweeps(
    folder: Path, quick: bool, seconds: float, told: Callable[[str, Figures], None]
) -> dict[str, Figures]:
    """Start a cluster and take the sweeps one after another; none if SLURM is not installed."""
    for name in ("XDG_CONFIG_HOME", "MANYSEED_DATA"):
        os.environ[name] = str(folder / name.lower())
    found: dict[str, Figures] = {}
    with test_cluster(folder / "slurm") as cluster:
        if cluster is None:
            return found
        for name in QUICK if quick else SWEEPS:
            found[name] = bench(folder, name, cluster, seconds)
            told(name, found[name])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one sweep of 20 core seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", type=Path, help="where sweeps and cluster lie")
    parser.add_argument("--seconds", type=float, help="of each budget, on one core")
    options = parser.parse_args()
    seconds = options.seconds or SECONDS[options.quick]
    if not options.json:
        print(f"core seconds of fits, of tasks (busy, held); seconds until done\n{HEAD}")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        told = (lambda *_: None) if options.json else tell
        found = all_sweeps(Path(name), options.quick, seconds, told)
    if not found:
        print("0 sweeps: SLURM is not installed", file=sys.stderr if options.json else sys.stdout)
        return
    whole = summary(found)
    if options.json:
        print(json.dumps({"sweeps": found, "summary": whole, "aims": AIMS}, indent=2))
        return
    for what, value in whole.items():
        aim = f" (aim: at most {AIMS[what]:.0%})" if what in AIMS else ""
        print(f"{what}: {value:.0%}{aim}")


if __name__ == "__main__":
    main()
