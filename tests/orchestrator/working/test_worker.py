"""An attempt, in a process of its own, with training processes that do what the test wants."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from manyseed import Sweep
from manyseed.orchestrator.disk.records import write_json
from manyseed.orchestrator.errors import StoreUnavailable
from manyseed.orchestrator.submissions import submitting
from manyseed.orchestrator.tasks.attempts import Attempt, read_attempts, set_back
from manyseed.orchestrator.tasks.intent import LOG, NOW, STOPPED
from manyseed.orchestrator.working.node import Node
from manyseed.orchestrator.working.pool import Message, Worker
from manyseed.orchestrator.working.queue import Ready
from manyseed.orchestrator.working.worker import TaskAttempt
from manyseed.slurm.local import LocalJob
from manyseed.slurm.processes import Process
from tests.orchestrator.conftest import wait_until, write
from tests.orchestrator.test_lean import SGD

IS_TRAINING = """
import os, pathlib, sys, time
if 'manyseed.orchestrator.working.process' in sys.orig_argv:
"""
FOLDER = "    here = pathlib.Path(os.environ['HERE'])\n"

WAITS = f"""
{IS_TRAINING}{FOLDER}
    from manyseed.jobs.trainer import Trainer
    train = Trainer.train
    def slowly(*arguments, **options):
        (here / "training").touch()
        while not (here / "go").exists():
            time.sleep(0.02)
        return train(*arguments, **options)
    Trainer.train = slowly
"""

CROWDED = f"""
{IS_TRAINING}{FOLDER}
    from manyseed.jobs.run import GpuFull
    from manyseed.jobs.trainer import Trainer
    train = Trainer.train
    def holding(*arguments, **options):
        held = here / "held" / str(os.getpid())
        held.parent.mkdir(exist_ok=True)
        held.touch()
        try:
            while not (here / "met").exists():
                if len(list(held.parent.iterdir())) == 2:
                    (here / "met").touch()
                    raise GpuFull("the GPU failed: out of memory")
                time.sleep(0.02)
            if len(list(held.parent.iterdir())) > MOST:
                raise GpuFull("the GPU failed: out of memory")
            return train(*arguments, **options)
        finally:
            held.unlink()
    Trainer.train = holding
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep of two runs, with a task that nobody trains yet."""
    sweep = Sweep.plan(write(tmp_path / "sgd.toml", SGD), tmp_path / "sweep")
    ended = str(replace(Process.current(), started=1))
    monkeypatch.setattr(submitting.local, "submit", lambda *_: LocalJob("1", ended))
    sweep.submit(workers=1)
    return sweep


@pytest.fixture
def start(sweep: Sweep, tmp_path: Path) -> Iterator[Start]:
    """Start the task; `code` is run first by it and its training processes, `task` by it alone."""
    started = []

    def start(
        code: str = "", task: str = "", n_workers: int = 1, **variables: str
    ) -> subprocess.Popen[str]:
        (tmp_path / "code").mkdir(exist_ok=True)
        (tmp_path / "code" / "sitecustomize.py").write_text(code)
        program = f"""
import os, sys
from manyseed.orchestrator.working import worker
{task}
print(worker.run_task(sys.argv[1], "1", "0", "{n_workers}"))
"""
        env = {**os.environ, "PYTHONPATH": str(tmp_path / "code"), "HERE": str(tmp_path)}
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", program, str(sweep.directory)],
                stdout=subprocess.PIPE,
                text=True,
                env=env | variables,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def last(sweep: Sweep) -> Attempt:
    """Return what the attempt tells of itself."""
    return read_attempts(sweep.paths.submission(1), plan="")[-1]


def test_a_training_process_that_dies_idle_is_replaced(sweep: Sweep, start: Start) -> None:
    task = start(
        f"{IS_TRAINING}{FOLDER}    if not (here / 'died').exists():\n"
        "        (here / 'died').touch()\n        os._exit(9)\n"
    )
    assert task.communicate(timeout=120)[0] == "finished\n"
    assert sweep.status()["runs"]["done"] == 2


def test_training_processes_that_all_die_idle_break_the_task(sweep: Sweep, start: Start) -> None:
    task = start(f"{IS_TRAINING}    os.write(2, b'\\xe9 ouch, in Latin-1')\n    os._exit(9)\n")
    assert task.communicate(timeout=120)[0] == "broken\n"
    assert last(sweep).reason == "a training process ended with code 9 before it trained"
    assert last(sweep).details.count("ouch") == 3


@pytest.mark.parametrize("most", [1, 0])
def test_processes_that_need_more_than_a_gpus_memory_together_become_fewer(
    sweep: Sweep, start: Start, most: int
) -> None:
    task = start(CROWDED.replace("MOST", str(most)), n_workers=2)
    assert task.communicate(timeout=120)[0] == "finished\n"
    attempt, runs = last(sweep), sweep.status()["runs"]
    assert (runs["done"], attempt.set_aside) == (2 * most, 0)
    assert runs["failed"] == 2 - 2 * most, "those that need too much alone"
    assert "at most 1 processes now" in (attempt.folder / LOG).read_text()


@pytest.mark.parametrize("request_", [STOPPED, NOW])
def test_a_users_stop_waits_for_the_fit_in_flight_unless_it_says_now(
    sweep: Sweep, start: Start, tmp_path: Path, request_: str
) -> None:
    task = start(WAITS, "worker._GRACE_SECONDS = 0.1")
    wait_until(lambda: (tmp_path / "training").exists(), "a fit in flight")
    (sweep.paths.submission(1) / "stop").write_text(request_)
    if request_ == STOPPED:
        for _ in range(3):
            before = last(sweep).updated
            wait_until(lambda then=before: last(sweep).updated != then, "another report")  # type: ignore[misc]
        assert last(sweep).state == "running"
        (tmp_path / "go").touch()
    assert task.communicate(timeout=120)[0] == "stopped\n"
    assert sweep.status()["runs"]["done"] == (request_ == STOPPED)


def test_an_attempts_lease_is_held_until_its_processes_have_ended(
    sweep: Sweep, start: Start, tmp_path: Path
) -> None:
    task = start(
        WAITS,
        f"""
worker._GRACE_SECONDS = 0.1
from manyseed.orchestrator.working import pool
from pathlib import Path
leases, dismiss = Path({str(sweep.paths.leases)!r}), worker.Pool.dismiss
seen = Path({str(tmp_path)!r}) / "seen"
def broken(self):
    if (seen.parent / "training").exists():
        raise OSError(5, "Input/output error")
def dismissed(self, timeout):
    had = bool(self.workers)
    dismiss(self, timeout)
    if had:
        seen.write_text("".join(file.read_text() for file in leases.glob("life-*")))
worker.Publisher.publish_due = broken
worker.Pool.dismiss = dismissed
""",
    )
    assert task.communicate(timeout=120)[0] == "broken\n"
    assert '"held"' in (tmp_path / "seen").read_text()
    assert list(sweep.paths.leases.glob("life-*")) == [], "its name is never used again"


def test_a_task_on_a_cluster_asks_little_of_the_shared_disk(
    sweep: Sweep, start: Start, tmp_path: Path
) -> None:
    """What the main loop does to files, by a clock that is a hundred times as fast."""
    job = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}
    task = start(
        WAITS,
        f"""
import json, time
from types import SimpleNamespace
from pathlib import Path
here = Path({str(tmp_path)!r})
real, begun, counts, names = time.monotonic, [], [0, 0], ("open", "os.rename", "os.remove")
worker.time = SimpleNamespace(monotonic=lambda: 1e6 + 100 * real(), time=time.time)
def count(event, of):
    counts[0] += event in (*names, "os.scandir", "os.listdir", "os.mkdir") and bool(begun)
sys.addaudithook(count)
fsync = os.fsync
def counted(file):
    counts[1] += bool(begun)
    fsync(file)
os.fsync = counted
worker.TaskAttempt._fruitless = lambda self: 0
due = worker.Publisher.publish_due
def publish_due(self):
    due(self)
    if not begun and (here / "training").exists():
        begun.append(real())
    if begun and real() - begun[0] > 6 and not (here / "go").exists():
        (here / "counts").write_text(json.dumps([*counts, 100 * (real() - begun[0]) / 60]))
        (here / "go").touch()
worker.Publisher.publish_due = publish_due
""",
        **job,
        SLURM_CPUS_ON_NODE="1",
    )
    assert task.communicate(timeout=120)[0] == "finished\n"
    operations, synced, minutes = json.loads((tmp_path / "counts").read_text())
    assert minutes >= 10
    assert operations / minutes < 60
    assert synced <= 2, "a heartbeat of the lease perhaps"


def new_attempt(sweep: Sweep) -> TaskAttempt:
    """Return an attempt of the task, in this process."""
    return TaskAttempt(sweep.paths, sweep.paths.submission(1), 0, 1, Node.here())


def test_a_sweep_that_is_moved_while_it_trains_is_not_begun_where_it_was(
    sweep: Sweep, tmp_path: Path
) -> None:
    attempt = new_attempt(sweep)
    attempt._report("running")
    sweep.directory.rename(tmp_path / "else where")
    assert attempt.run() == "broken"
    assert not sweep.directory.exists()
    moved = Sweep(tmp_path / "else where")
    assert last(moved).reason == f"{sweep.directory} was moved or removed while it trained"
    assert moved.status()["tasks"] == {"broken": 1}
    shutil.rmtree(tmp_path / "else where")
    with pytest.raises(StoreUnavailable, match=r"is gone: its sweep was moved or removed"):
        attempt._report("broken")


def test_an_attempt_that_can_train_asks_an_earlier_one_to_end_that_may_live_on(
    sweep: Sweep,
) -> None:
    """As where a node is lost to the scheduler, which starts its tasks elsewhere."""
    reported, lives_on = new_attempt(sweep), new_attempt(sweep)
    for attempt, state in ((reported, "interrupted"), (lives_on, "running")):
        write_json(
            attempt.folder / "progress.json", {"state": state, "process": "", "started": 1.0}
        )
    last = new_attempt(sweep)

    def asked() -> list[bool]:
        each = [reported, lives_on, last]
        for attempt in each:
            attempt._read_requests()
        return [attempt.stop.is_asked for attempt in each]

    assert asked() == [False, False, False], "it may find that it cannot train"
    last._on_message(Message(cast("Worker", SimpleNamespace()), Ready()))
    assert asked() == [False, True, False]
    assert not lives_on.stop.is_urgent, "its fits in flight are not lost"


def test_an_attempt_ends_after_its_fit_once_its_successor_trains(
    sweep: Sweep, start: Start, tmp_path: Path
) -> None:
    trains = tmp_path / "training"
    first = start(WAITS)
    wait_until(trains.exists, "the first fit")
    trains.unlink()
    second = start(WAITS)
    wait_until(trains.exists, "the same fit elsewhere")
    (asked,) = (sweep.paths.submission(1) / "lives").glob("*/stop")
    told = asked.stat().st_mtime + 3  # by then it has read it
    wait_until(lambda: Attempt.read(asked.parent).updated > told, "a later report")
    (tmp_path / "go").touch()
    assert first.communicate(timeout=120)[0] == "stopped\n"
    assert second.communicate(timeout=120)[0] == "finished\n"
    attempts = read_attempts(sweep.paths.submission(1), plan="")
    assert [(one.state, one.n_done) for one in attempts] == [("stopped", 1), ("finished", 2)]
    assert sweep.status()["runs"]["done"] == 2
    assert sweep.verify()["findings"] == []


def test_a_task_trains_what_a_repair_set_back_also_where_its_earlier_attempts_failed(
    sweep: Sweep,
) -> None:
    fields = {"group": 0, "cell": 0, "repeat": 0, "error": "E", "traceback": "T"}
    told = [json.dumps(fields | {"row": row, "run": row}) + "\n" for row in (0, 1)]
    first = new_attempt(sweep)
    (first.folder / "failures.jsonl").write_text("".join(told))
    write_json(first.folder / "progress.json", {"state": "ended", "process": "", "started": 1.0})
    assert new_attempt(sweep).queue.n_pending == 0
    set_back(sweep.paths, "", {0: [1]})
    again = new_attempt(sweep)
    assert again.queue.n_pending == 1
    (again.folder / "failures.jsonl").write_text(told[1])  # and before it was suspended
    assert again._settled() == {0: {0, 1}}


@pytest.mark.parametrize("damage", [None, "shards.json", "task-0000.json"])
def test_a_requeued_task_leaves_runs_that_were_submitted_again_to_whom_they_were_given(
    sweep: Sweep, start: Start, damage: str | None
) -> None:
    """As after a full disk: the job failed, `resume` ran, and somebody requeued the job."""
    again = sweep.submit(workers=1)
    assert again is not None
    if damage:
        (again.folder / damage).write_text("{")
    task = start()
    assert task.communicate(timeout=120)[0] == "finished\n"
    is_readable = damage != "task-0000.json"
    assert last(sweep).n_done == (0 if is_readable else 2), "what cannot be read trains nothing"
    assert sweep.status()["runs"]["missing"] == (2 if is_readable else 0)
