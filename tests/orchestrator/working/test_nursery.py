"""Training processes that a nursery forks: the same bits, and nobody else's crash."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.orchestrator.tasks.intent import LOG, NOW
from tests.orchestrator.conftest import assert_equal, stored, wait_until, write
from tests.orchestrator.test_run import training_processes
from tests.orchestrator.working.test_worker import FOLDER, IS_TRAINING, WAITS, Start, last
from tests.orchestrator.working.test_worker import start as start
from tests.orchestrator.working.test_worker import sweep as sweep

pytestmark = pytest.mark.process

FORKS = "worker._FORKED_FROM = 1"
"""A task's first line that lets a nursery fork even its only training process."""

ALL = """
name = "all"
seed = 1
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd", "xgb", "mlp"]
perturb_continuous = ["relative:0.5"]
"""

THREAD = f"""
{IS_TRAINING}    import threading
    if "nursery" in sys.argv:
        threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
"""

DIES = f"""
{IS_TRAINING}{FOLDER}
    from manyseed.jobs.trainer import Trainer
    train = Trainer.train
    def dying(*arguments, **options):
        if not (here / "died").exists():
            (here / "died").touch()
            HOW
        return train(*arguments, **options)
    Trainer.train = dying
"""


FAULTS = f"""
{IS_TRAINING}    import resource
    import numpy as np
    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    def step():
        return len([np.ones(2_000_000) for _ in range(4)])
    step(), step()
    before = faults()
    step(), step(), step()
    print("faults", faults() - before, flush=True)
"""


def nurseries(sweep: Sweep) -> list[int]:
    """Return the process ids of a sweep's nurseries."""
    found = {parent_of(pid) for pid in training_processes(sweep)}
    return [pid for pid in found if b"\0nursery\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def parent_of(pid: int) -> int:
    """Return the process id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def trained(file: Path, directory: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Train a sweep with a module that each of its processes runs first."""
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    sweep = Sweep.plan(file, directory)
    sweep.submit(workers=2)
    sweep.wait()
    sweep.compact()
    assert sweep.status()["runs"]["missing"] == 0
    return sweep


def test_forks_and_processes_started_afresh_train_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linear models, trees and networks; threads in the nursery keep it from forking."""
    file = write(tmp_path / "all.toml", ALL)
    told = f"{IS_TRAINING}    print('starts', sys.argv[-2], flush=True)\n"
    sweeps = []
    for name, code in (("forked", told), ("afresh", THREAD + told)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "sitecustomize.py", code)
        sweeps.append(trained(file, tmp_path / f"{name}-sweep", tmp_path / name, monkeypatch))
    forked, afresh = sweeps
    starts = [
        [line for log in sweep.paths.submission(1).rglob(LOG) for line in log.open()]
        for sweep in sweeps
    ]
    assert starts[0] == ["starts nursery\n"]
    assert len(starts[1]) == 3, "a nursery that may not fork, and a process for each worker"
    assert_equal(stored(forked), stored(afresh))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is for glibc's allocator")
def test_training_processes_keep_memory_that_they_need_again(sweep: Sweep, start: Start) -> None:
    """Four arrays of 16 MB have 15,600 pages, which by default are fetched again each time."""
    task = start(FAULTS)
    assert task.communicate(timeout=120)[0] == "finished\n"
    [line] = [line for log in sweep.paths.submission(1).rglob(LOG) for line in log.open()]
    assert line.startswith("faults ")
    assert int(line.split()[1]) < 1000


def test_a_single_training_process_needs_no_nursery(sweep: Sweep, start: Start) -> None:
    task = start(f"{IS_TRAINING}    print('starts', sys.argv[-2], flush=True)\n")
    assert task.communicate(timeout=120)[0] == "finished\n"
    assert (last(sweep).folder / LOG).read_text() == "starts 0\n"


@pytest.mark.parametrize(
    ("how", "was_killed"),
    [
        ("import ctypes; ctypes.string_at(0)", False),
        ("os.kill(os.getpid(), 9)", True),
        ("os._exit(3)", False),
    ],
)
def test_a_fork_that_dies_in_a_fit_is_replaced(
    sweep: Sweep, start: Start, how: str, was_killed: bool
) -> None:
    task = start(DIES.replace("HOW", how), FORKS)
    assert task.communicate(timeout=120)[0] == "finished\n"
    assert sweep.status()["runs"]["done"] == 2
    assert (last(sweep).killed, last(sweep).set_aside) == (was_killed, 0)


def test_a_fit_that_ends_its_fork_in_python_has_failed(sweep: Sweep, start: Start) -> None:
    """The fork trains on, and the traceback is kept."""
    task = start(DIES.replace("HOW", "sys.exit(3)"), FORKS)
    assert task.communicate(timeout=120)[0] == "finished\n"
    runs = sweep.status()["runs"]
    assert (runs["done"], runs["failed"]) == (1, 1)
    assert (last(sweep).killed, last(sweep).set_aside) == (False, 0)


def test_a_nursery_that_is_killed_takes_its_forks_along_and_is_replaced(
    sweep: Sweep, start: Start, tmp_path: Path
) -> None:
    task = start(WAITS, FORKS)
    wait_until((tmp_path / "training").exists, "a fit in flight")
    (fork,) = training_processes(sweep)
    (nursery,) = nurseries(sweep)
    (tmp_path / "training").unlink()
    os.kill(nursery, signal.SIGKILL)
    wait_until((tmp_path / "training").exists, "a fit of another process")
    assert fork not in training_processes(sweep)
    (tmp_path / "go").touch()
    assert task.communicate(timeout=120)[0] == "finished\n"
    assert sweep.status()["runs"]["done"] == 2


def test_a_task_that_is_killed_leaves_no_process_behind(
    sweep: Sweep, start: Start, tmp_path: Path
) -> None:
    task: subprocess.Popen[str] = start(WAITS, FORKS)
    wait_until((tmp_path / "training").exists, "a fit in flight")
    left = [*training_processes(sweep), *nurseries(sweep)]
    assert len(left) == 2
    task.kill()
    wait_until(
        lambda: (
            not any(
                str(sweep.directory).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
                for pid in left
                if Path(f"/proc/{pid}").exists()
            )
        ),
        "the end of the nursery and its fork",
    )


def test_a_user_who_wants_the_end_now_does_not_wait_for_libraries(
    sweep: Sweep, start: Start, tmp_path: Path
) -> None:
    code = f"{IS_TRAINING}{FOLDER}    (here / 'importing').touch(); time.sleep(1e6)\n"
    task = start(code, f"{FORKS}; worker._GRACE_SECONDS = 1e6")
    wait_until((tmp_path / "importing").exists, "a nursery that imports")
    (sweep.paths.submission(1) / "stop").write_text(NOW)
    assert task.communicate(timeout=120)[0] == "stopped\n"


def test_numpys_global_generator_differs_between_forks(sweep: Sweep, start: Start) -> None:
    """Users' code may draw from it; each process started afresh has another one."""
    code = f"""
{IS_TRAINING}
    import numpy
    from manyseed.orchestrator.working import pool
    numpy.random.seed(0)
    forget = pool._forget_random_state
    def telling():
        forget()
        print("drew", numpy.random.random(), flush=True)
    pool._forget_random_state = telling
"""
    task = start(code + DIES.replace("HOW", "os._exit(3)"), FORKS)
    assert task.communicate(timeout=120)[0] == "finished\n"
    lines = (last(sweep).folder / LOG).read_text().splitlines()
    assert len({line for line in lines if line.startswith("drew")}) == 2
