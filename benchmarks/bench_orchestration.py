"""Cost of a run besides its training, compared with other ways to run many small fits.

Fits that do nothing, and fits that sleep for 10 ms, go through submission, worker, journal, shard
and status like any other; the remaining wall time, times processes, is the overhead. The
alternatives, each at a size that finishes soon: one job per run as a plain submitit array and with
Hydra's submitit launcher (both on a SLURM test cluster on this machine, or as local processes if
SLURM is not installed), and joblib's pool. Then submission and status of a large plan, on the test
cluster with all jobs held; and checking many leases, compared with only reading their files.

    python benchmarks/bench_orchestration.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_plan import sweep_file
from benchmarks.commands import other_fits
from manyseed.slurm.testcluster import MissingPackages, Settings, TestCluster

WORKERS = 2
MANY = {True: 1000, False: 10_000}
FEW = {True: 8, False: 40}
LARGE = {True: 44_800, False: 532_800}
LEASES = {True: (200, 2000), False: (2000, 10_000)}
"""Quick and not."""

SWEEP = """
name = "overhead"
seed = 1
repeats = 1
runs = {runs}
[[grid]]
dataset = ["sklearn:iris"]
classifier = ["lr-sgd"]
"""

# in the place of a trainer's fit
SHORT_FITS = """
def replacement(real):
    first = []
    def train(self, *args, **kwargs):
        if not first:
            first.append(real(self, *args, **kwargs))
        time.sleep(float(os.environ["BENCH_FIT_SECONDS"]))
        return first[0]
    return train
"""

HYDRA_APP = """
import hydra
@hydra.main(version_base=None)
def main(config):
    return 0.0
main()
"""


def runs_of_a_sweep(folder: Path, runs: int, fit_seconds: float) -> dict[str, Any]:
    """Train a sweep of short fits; split its wall time into start and the rest."""
    from manyseed.orchestrator.sweep import Sweep

    os.environ["BENCH_FIT_SECONDS"] = str(fit_seconds)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.toml").write_text(SWEEP.format(runs=runs))
    sweep = Sweep.plan(folder / "sweep.toml", folder / "sweep")
    with other_fits(folder, SHORT_FITS):
        began = time.perf_counter()
        submission = sweep.submit(workers=WORKERS)
        assert submission is not None
        submitted = time.perf_counter()
        while not any(attempt.n_done for attempt in submission.attempts()):
            time.sleep(0.02)
        first = time.perf_counter()
        sweep.wait()
        counts = sweep.status()["runs"]
    ended = time.perf_counter()
    assert counts["done"] == runs, counts
    overhead = (ended - began) * WORKERS - runs * fit_seconds
    return {
        "runs": runs,
        "submit_seconds": submitted - began,
        "first_run_seconds": first - began,
        "seconds": ended - began,
        "overhead_ms_a_run": overhead / runs * 1e3,
        "overhead_ms_a_run_without_start": (overhead - (first - began) * WORKERS) / runs * 1e3,
    }


def submitit_array(folder: Path, runs: int, cluster: TestCluster | None) -> dict[str, Any]:
    """One job per run."""
    import submitit

    executor = submitit.AutoExecutor(folder, cluster="slurm" if cluster else "local")
    more = {"slurm_partition": "cpu", "slurm_mem": "400M"} if cluster else {}
    executor.update_parameters(timeout_min=5, slurm_array_parallelism=WORKERS, **more)
    began = time.perf_counter()
    for job in executor.map_array(abs, range(runs)):
        job.result()
    return _per_run(runs, time.perf_counter() - began)


def hydra_launcher(folder: Path, runs: int, cluster: TestCluster | None) -> dict[str, Any] | None:
    """One job per run, as made by Hydra's multirun."""
    if not (find_spec("hydra_plugins") and find_spec("hydra_plugins.hydra_submitit_launcher")):
        return None
    folder.mkdir()
    app = folder / "app.py"
    app.write_text(HYDRA_APP)
    options = [f"hydra.launcher.array_parallelism={WORKERS}", "hydra.launcher.partition=cpu"]
    options += ["hydra.launcher.mem_gb=1", "hydra.launcher.cpus_per_task=1"]
    launcher = "submitit_slurm" if cluster else "submitit_local"
    command = [sys.executable, str(app), "-m", f"hydra/launcher={launcher}"]
    command += [f"+i=range({runs})", *(options if cluster else [])]
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return _per_run(runs, time.perf_counter() - began)


def joblib_pool(runs: int) -> dict[str, Any]:
    """A pool of processes that receives each run."""
    from joblib import Parallel, delayed

    began = time.perf_counter()
    Parallel(n_jobs=WORKERS)(delayed(abs)(i) for i in range(runs))
    return _per_run(runs, time.perf_counter() - began)


def large_plan(folder: Path, runs: int, cluster: TestCluster) -> dict[str, Any]:
    """Submit a large plan with all jobs held, and query its status."""
    from manyseed.orchestrator.sweep import Sweep

    folder.mkdir()
    profile = folder / "held.toml"
    profile.write_text(
        f'slurm-conf = "{cluster.conf}"\ntime = "4:00:00"\nextra = {{ hold = true }}\n'
        '[cpu]\npartition = "cpu"\ncpus-per-task = 4\n'
    )
    (folder / "sweep.toml").write_text(sweep_file(runs))
    sweep = Sweep.plan(folder / "sweep.toml", folder / "sweep")
    began, worked = time.perf_counter(), time.process_time()
    submission = sweep.submit(cluster=str(profile))
    assert submission is not None
    submitted, submit_cpu = time.perf_counter(), time.process_time() - worked
    worked = time.process_time()
    state = sweep.status()
    ended, status_cpu = time.perf_counter(), time.process_time() - worked
    assert state["runs"]["runs"] == runs
    sweep.cancel()
    return {
        "runs": runs,
        "tasks": submission.intent.tasks,
        "submit_seconds": submitted - began,
        "submit_cpu_seconds": submit_cpu,
        "status_seconds": ended - submitted,
        "status_cpu_seconds": status_cpu,
    }


def look_at_leases(folder: Path, number: int) -> dict[str, Any]:
    """Check which of many leases are alive; one in a hundred is held."""
    from manyseed.orchestrator.disk.lease import Lease, LeaseWatch

    folder.mkdir()
    watch = LeaseWatch(folder, seconds=3600)
    held = Lease(watch, "life-0")
    held.take()
    (file,) = folder.iterdir()
    alive = file.read_bytes()
    free = alive.replace(b'"held"', b'"free"')
    for n in range(1, number):
        name = f"life-{n}" if n % 100 == 0 else f"g00000-s{n:06d}"
        (folder / f"{name}.00000001.lease").write_bytes(free if n % 100 else alive)

    def read() -> int:
        return sum(len(file.read_bytes()) for file in folder.iterdir())

    times: dict[str, list[float]] = {"look": [], "read": []}
    for _ in range(5):
        for name, work in (("look", LeaseWatch(folder, 3600).alive), ("read", read)):
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    look, alone = (statistics.median(times[name]) for name in ("look", "read"))
    return {
        "leases": number,
        "alive": len(watch.alive()),
        "look_seconds": look,
        "read_alone_seconds": alone,
        "times_reading_alone": look / alone,
    }


@contextmanager
def test_cluster(folder: Path) -> Iterator[TestCluster | None]:
    """Start a SLURM on this machine; None if it is not installed."""
    cluster = TestCluster(folder)
    try:
        cluster.start(Settings(cpu_nodes=2, gpu_nodes=0, max_array_size=1001, max_job_count=2000))
    except MissingPackages as error:
        print(error, file=sys.stderr)
        yield None
        return
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(cluster.conf)
    try:
        yield cluster
    finally:
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before
        cluster.stop()


def _per_run(runs: int, seconds: float) -> dict[str, Any]:
    return {
        "runs": runs,
        "seconds": seconds,
        "overhead_ms_a_run": seconds * WORKERS / runs * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, below a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    quick = options.quick
    result: dict[str, Any] = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load": os.getloadavg()[0],
            "processes": WORKERS,
        }
    }
    with tempfile.TemporaryDirectory() as name, test_cluster(Path(name, "slurm")) as cluster:
        folder = Path(name)
        result["no-op fits"] = runs_of_a_sweep(folder / "noop", MANY[quick], 0.0)
        result["10 ms fits"] = runs_of_a_sweep(folder / "short", MANY[quick] // 2, 0.01)
        result["joblib"] = joblib_pool(MANY[quick])
        result["submitit"] = submitit_array(folder / "submitit", FEW[quick], cluster)
        result["hydra"] = hydra_launcher(folder / "hydra", FEW[quick], cluster)
        result["large"] = large_plan(folder / "large", LARGE[quick], cluster) if cluster else None
        result["leases"] = [look_at_leases(folder / f"leases-{n}", n) for n in LEASES[quick]]
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{'':12}{'runs':>10}{'seconds':>10}{'overhead, ms per run and process':>34}")
    for what in ("no-op fits", "10 ms fits", "joblib", "submitit", "hydra"):
        if (one := result[what]) is None:
            print(f"{what:12}skipped: hydra-submitit-launcher is not installed")
            continue
        line = (
            f"{what:12}{one['runs']:>10,}{one['seconds']:>10.2f}{one['overhead_ms_a_run']:>34.2f}"
        )
        if "first_run_seconds" in one:
            line += f"  ({one['overhead_ms_a_run_without_start']:.2f} after the first run)"
        print(line)
    if (large := result["large"]) is None:
        print("a large plan: skipped: SLURM is not installed")
    else:
        print(
            f"{large['runs']:,} runs in {large['tasks']:,} tasks: submitted in "
            f"{large['submit_seconds']:.1f} s ({large['submit_cpu_seconds']:.1f} s CPU), status in "
            f"{large['status_seconds']:.2f} s ({large['status_cpu_seconds']:.2f} s CPU)"
        )
    for one in result["leases"]:
        print(
            f"{one['leases']:,} leases, {one['alive']:,} held: looked at in "
            f"{one['look_seconds']:.3f} s, {one['times_reading_alone']:.1f} × reading them alone"
        )


if __name__ == "__main__":
    main()
