"""Sweeps on a real SLURM to which everything happens that happens on clusters. The long ones.

After each: no row is lost, none is there twice, predictions are a local run's, bit for bit.
"""

from __future__ import annotations

import json
import os
import re
import signal
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.submissions import cluster
from manyseed.orchestrator.submissions.submission import Submission, TaskState
from manyseed.orchestrator.sweep import Sweep
from manyseed.slurm import commands
from tests.cluster import CORES, Slurm, wait_until
from tests.orchestrator.conftest import QUICK, command, shared, write
from tests.orchestrator.submissions.test_slurm import PROFILE, finish, report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG = QUICK.replace("runs    = 4", "runs    = 16")
"""256 runs: some ten seconds of work on two cores."""


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The same, trained on this machine undisturbed; tests only read it."""
    return shared(tmp_path_factory, "long", LONG)


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 1.5)
    return Sweep.plan(write(tmp_path / "long.toml", LONG), tmp_path / "sweep")


def profile(slurm: Slurm, folder: Path, **changes: str) -> str:
    text = PROFILE.format(conf=slurm.cluster.conf)
    for before, after in changes.items():
        found = next(line for line in text.splitlines() if line.split(" =")[0].strip() == before)
        text = text.replace(found, after)
    return str(write(folder / "lab.toml", text))


def submitted(sweep: Sweep, file: str) -> Submission:
    submission = sweep.submit(cluster=file)
    assert submission is not None
    return submission


def training(sweep: Sweep, submission: Submission) -> TaskState:
    """Wait until a task has finished some runs and goes on; return it."""
    found: list[TaskState] = []

    def one() -> bool:
        found[:] = [t for t in submission.tasks() if t.last.state == "running" and t.done]
        return bool(found)

    wait_until(one, lambda: f"a task that trains\n{report(sweep)}")
    return found[0]


def in_every_process(folder: Path, program: str) -> str:
    """Return the set-up of a profile with which each Python of its jobs begins with a program."""
    (folder / "site").mkdir()
    text = "import os, pathlib, sys, time\n" + textwrap.dedent(program)
    write(folder / "site" / "sitecustomize.py", text)
    return f"setup = ['export PYTHONPATH={folder}/site:$PYTHONPATH']"


@contextmanager
def frozen(task: TaskState) -> Iterator[None]:
    """Suspend a task's nursery and training processes: meanwhile it gets nowhere."""
    below = descendants(pid(task))
    for each in below:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in below:
            with suppress(ProcessLookupError):  # the job may have been ended meanwhile
                os.kill(each, signal.SIGCONT)


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and those that these have."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def pid(task: TaskState) -> int:
    return int(task.last.process.split()[2])


@contextmanager
def node_down(slurm: Slurm, node: str) -> Iterator[None]:
    try:
        yield
    finally:
        slurm.cluster.start_node(node)
        wait_until(
            lambda: (
                slurm.cluster.command(["sinfo", "-h", "-n", node, "-o", "%T"]).strip()
                in ("idle", "mixed", "allocated")
            ),
            f"{node} to come back",
        )


def test_tasks_longer_than_their_walltime_requeue_themselves(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, expected: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job limit allows one task; its walltime comes while it trains, however fast it is."""
    monkeypatch.setattr(cluster, "SIGNAL_SECONDS", 55)
    asked = tmp_path / "asked"
    setup = in_every_process(
        tmp_path,
        f"""
        if "submitit.core._submit" in sys.orig_argv:
            from manyseed.slurm import processes
            processes.on_stop(pathlib.Path(f"{asked}-{{os.getpid()}}").touch)
        """,
    )
    changes = {
        "time": f'time = "0:01:00"\nmax-jobs = 1\n{setup}',
        "cpus-per-task": "cpus-per-task = 1",
    }
    submission = submitted(sweep, profile(slurm, tmp_path, **changes))
    assert submission.intent.tasks == 1
    with frozen(task := training(sweep, submission)):
        told = Path(f"{asked}-{pid(task)}")
        wait_until(told.exists, "SLURM to tell of the walltime")
    finish(sweep, expected)
    before = task
    (task,) = submission.tasks()
    until_then = task.attempts[: len(before.attempts)]
    assert len(task.attempts) > len(until_then), report(sweep)
    assert until_then[-1].state == "interrupted"
    assert sum(attempt.n_done for attempt in until_then) >= before.done > 0
    assert sweep.status()["duplicates"] <= 2 * len(task.attempts)


def test_a_task_that_gets_nowhere_stops_itself(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fits take longer than a walltime, and do not end when they are asked to."""
    monkeypatch.setattr(cluster, "SIGNAL_SECONDS", 5)
    setup = in_every_process(
        tmp_path,
        """
        if "manyseed.orchestrator.working.process" in sys.orig_argv:
            time.sleep(600)
        """,
    )
    changes = {"time": f'time = "0:01:00"\nmax-jobs = 1\n{setup}'}
    submission = submitted(sweep, profile(slurm, tmp_path, **changes))
    hurried = set()

    def gave_up() -> bool:
        (task,) = submission.tasks()
        if task.last.state == "running" and task.last.folder not in hurried:
            hurried.add(task.last.folder)
            slurm.cluster.command(["scancel", "--signal=USR2", task.job_id])  # else half a minute
        return task.state == "broken"

    wait_until(gave_up, lambda: f"the end of a task that gets nowhere\n{report(sweep)}", 500)
    (task,) = submission.tasks()
    assert [attempt.state for attempt in task.attempts] == ["interrupted"] * 3 + ["broken"]
    state = sweep.status()
    assert state["runs"]["failed"] == state["runs"]["done"] == 0
    (problem,) = state["problems"]
    assert problem.startswith("1 task was ended: the walltime ended 3 attempts of this task")
    sweep.wait()
    with pytest.raises(UserError, match=r'cpu\.time = "0:01:00": was too short for one fit'):
        sweep.submit(cluster=str(tmp_path / "lab.toml"))
    changes["time"] = changes["time"].replace("0:01:00", "0:05:00")
    again = submitted(sweep, profile(slurm, tmp_path, **changes))
    assert again.intent.excluded == {}, "no node's fault"


def test_where_all_nodes_are_broken_the_submission_stops_itself(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, expected: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 0.2)
    (tmp_path / "bad").mkdir()
    write(tmp_path / "bad" / "sklearn.py", "raise ImportError('this environment is broken')")
    setup = f"setup = ['export PYTHONPATH={tmp_path}/bad:$PYTHONPATH']\n"
    text = "cpus-per-task = 8\nparallelism = 12"  # a task a node, and others that wait
    changes = {"time": 'time = "0:05:00"\n' + setup, "cpus-per-task": text, "parallelism": ""}
    submission = submitted(sweep, profile(slurm, tmp_path, **changes))
    assert submission.intent.tasks > 6
    sweep.wait()
    state = sweep.status()
    assert state["runs"]["failed"] == state["runs"]["done"] == 0
    assert set(state["tasks"]) <= {"broken", "cancelled", "stopped"}, report(sweep)
    assert {task.last.node for task in submission.tasks() if task.attempts} == {"c1", "c2", "c3"}
    (problem,) = (text for text in state["problems"] if "broke" in text)
    assert "none works, so the submission stopped itself" in problem
    assert "this environment is broken" in problem
    again = submitted(sweep, profile(slurm, tmp_path))  # mended: no node is kept out for it
    assert again.intent.excluded == {}
    finish(sweep, expected)


def test_arrays_are_cut_to_what_the_cluster_takes(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, expected: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 0.2)
    submission = submitted(sweep, profile(slurm, tmp_path, parallelism="parallelism = 11"))
    assert submission.intent.tasks > 8  # the largest array
    assert len({job.id.partition("_")[0] for job in submission.jobs().values()}) == 2
    finish(sweep, expected)


def test_preempted_and_requeued_tasks_go_on(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, expected: Sweep
) -> None:
    submission = submitted(sweep, profile(slurm, tmp_path))
    task = training(sweep, submission)
    commands.requeue([task.job_id])
    training(sweep, submission)
    urgent = ["sbatch", "-p", "urgent", "-N", "3", "--exclusive", "-o", "/dev/null"]
    slurm.cluster.command([*urgent, "--wrap", "sleep 1"])
    finish(sweep, expected)
    assert max(len(task.attempts) for task in submission.tasks()) > 1


def test_a_killed_node_and_a_node_taken_for_dead_lose_nothing(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, expected: Sweep
) -> None:
    submission = submitted(sweep, profile(slurm, tmp_path))
    node = training(sweep, submission).node
    with node_down(slurm, node):
        slurm.cluster.kill_node(node)
        other = training(sweep, submission).node
        # its daemon alone: what it runs lives on, and is started elsewhere all the same
        with node_down(slurm, other):
            slurm.cluster.daemons.stop(f"slurmd-{other}", 5, signal.SIGKILL)
            sweep.wait()
    sweep.submit(cluster=profile(slurm, tmp_path))
    finish(sweep, expected)


def test_the_controller_may_be_away_for_a_while(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, expected: Sweep
) -> None:
    file = profile(slurm, tmp_path)
    submission = submitted(sweep, file)
    task = training(sweep, submission)
    with frozen(task):  # else all may be trained before somebody asks
        slurm.cluster.daemons.stop("slurmctld", 20)
        try:
            told = json.loads(command("status", sweep.directory, "--json").stdout)
            assert "does not answer" in told["cluster_silent"]
            assert told["runs"]["done"] > 0
        finally:
            slurm.cluster.start_controller()
    sweep.wait()
    sweep.submit(cluster=file)
    finish(sweep, expected)


def test_killed_processes_are_resumed(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, expected: Sweep
) -> None:
    file = profile(slurm, tmp_path)
    submission = submitted(sweep, file)
    task = training(sweep, submission)
    os.kill(pid(task), signal.SIGKILL)
    sweep.wait()
    assert "failed" in sweep.status()["tasks"], report(sweep)
    again = submitted(sweep, file)
    assert again.n_runs < submission.n_runs
    finish(sweep, expected)


def test_too_little_memory_is_named_and_more_can_be_asked_for(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, expected: Sweep
) -> None:
    file = profile(slurm, tmp_path, mem='mem = "120M"')
    submitted(sweep, file)
    sweep.wait()
    state = sweep.status()
    assert "out_of_memory" in state["tasks"], report(sweep)
    assert any(problem.endswith(" asks for 240M") for problem in state["problems"]), state[
        "problems"
    ]
    said: list[str] = []
    again = sweep.submit(cluster=file, tell=said.append)
    assert again is not None
    assert again.intent.memory == {"cpu": 240 * 2**20}
    assert "CPU tasks ran out of memory with 120M: these ask for 240M." in said
    sweep.wait()
    if sweep.survey().counts["missing"]:
        assert sweep.submit(cluster=file, memory="900M") is not None
    finish(sweep, expected)
    (used,) = sweep.usage()
    assert used.memory_used > 50 * 2**20


HOLDS = """
import time
import numpy as np
import torch

def fit(X, y, X_test, n_classes, hparams, init, batch):
    if len(y) > 80:
        held, end = np.ones(30 * 2**17), time.monotonic() + 5
        while time.monotonic() < end:
            held[:2**17] *= 1.0001
    return init.normal(size=(len(X_test), n_classes))
"""


def test_what_tasks_used_is_no_less_than_what_the_site_kills_by(
    slurm: Slurm, tmp_path: Path
) -> None:
    write(tmp_path / "holds.py", HOLDS)
    text = """
    name = "holds"
    seed = 1
    repeats = 1
    runs = 8
    [[grid]]
    dataset    = ["sklearn:wine"]
    classifier = ["mine"]
    [classifier.mine]
    train = "holds:fit"
    """
    changes = {"mem": 'mem = "12G"', "cpus-per-task": "cpus-per-task = 8"}
    sweep = Sweep.plan(write(tmp_path / "holds.toml", text), tmp_path / "sweep")
    submission = submitted(sweep, profile(slurm, tmp_path, **changes))
    sweep.wait()
    assert sweep.survey().counts["done"] == 8, report(sweep)
    (job,) = [job.id for job in submission.jobs().values()]

    def accounted() -> int:
        words = ["sacct", "-n", "-P", "--units=K", "-j", job, "-o", "MaxRSS"]
        lines = slurm.cluster.command(words).split()
        return max((int(float(line.rstrip("K")) * 1024) for line in lines), default=0)

    wait_until(lambda: accounted() > 2**28, lambda: "the memory of the job's steps")
    (used,) = sweep.usage()
    assert used.memory_known == max(used.memory_used, accounted())
    (amount,) = re.findall(r'mem = "(.*)G" would do', used.advice)
    assert accounted() < float(amount) * 2**30 < 2 * accounted()


def test_a_broken_node_fails_no_run_and_is_kept_away_from(
    sweep: Sweep, slurm: Slurm, tmp_path: Path, expected: Sweep
) -> None:
    (tmp_path / "bad").mkdir()
    write(tmp_path / "bad" / "sklearn.py", "raise ImportError('the disk of this node is gone')")
    setup = (
        f"setup = ['if [ $SLURMD_NODENAME = c1 ]; then "
        f"export PYTHONPATH={tmp_path}/bad:$PYTHONPATH; fi']\n"
    )
    file = profile(slurm, tmp_path, time='time = "0:05:00"\n' + setup)
    submitted(sweep, file)
    sweep.wait()
    state = sweep.status()
    assert state["runs"]["failed"] == 0
    assert state["tasks"].get("broken", 0) >= 1, report(sweep)
    assert any("c1 is broken" in problem for problem in state["problems"]), report(sweep)
    again = submitted(sweep, file)
    assert "c1" in again.intent.excluded
    finish(sweep, expected)
    assert {task.last.node for task in again.tasks()} <= {"c2", "c3"}


def test_without_accounting_whole_nodes_are_filled_and_nothing_is_unknown(
    slurm_without_accounting: Slurm,
    tmp_path: Path,
    expected: Sweep,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 1.5)
    sweep = Sweep.plan(write(tmp_path / "long.toml", LONG), tmp_path / "sweep")
    changes = {"cpus-per-task": "whole-node = true", "parallelism": "parallelism = 2"}
    file = profile(slurm_without_accounting, tmp_path, **changes)
    submission = submitted(sweep, file)
    workers = lambda: {attempt.workers for attempt in submission.attempts()}  # noqa: E731
    wait_until(lambda: CORES in workers(), lambda: f"a process a core: {workers()}")
    training(sweep, submission)
    slurm_without_accounting.cluster.command(
        ["scancel", *{job.id for job in submission.jobs().values()}]
    )
    sweep.wait()
    assert sweep.status()["runs"]["missing"] > 0
    sweep.submit(cluster=file)
    finish(sweep, expected)


def test_processes_of_a_whole_node_share_its_gpus(slurm: Slurm, tmp_path: Path) -> None:
    text = QUICK.replace('"xgb"', '"mlp"') + '\n[classifier.mlp]\ndevice = "gpu"\nepochs = 1\n'
    sweep = Sweep.plan(write(tmp_path / "gpu.toml", text), tmp_path / "gpu")
    (tmp_path / "seen").mkdir()
    setup = in_every_process(
        tmp_path,
        f"""
        if "manyseed.orchestrator.working.process" in sys.orig_argv:
            told = [os.environ[name] for name in ("SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES")]
            pathlib.Path(f"{tmp_path}/seen/{{os.getpid()}}").write_text(" ".join(told))
        """,
    )
    requests = "whole-node = true\nprocesses-per-gpu = 2"
    changes = {"gres": f'gres = "gpu:1"\n{requests}', "mem": f'mem = "4G"\n{setup}'}
    sweep.submit(cluster=profile(slurm, tmp_path, **changes), only="classifier = 'mlp'")

    def seen() -> list[str]:
        return sorted(file.read_text() for file in (tmp_path / "seen").iterdir())

    wait_until(lambda: len(seen()) == 4 and all(seen()), lambda: f"{seen()}\n{report(sweep)}")
    node = seen()[0].split()[0]
    assert seen() == [f"{node} 0", f"{node} 0", f"{node} 1", f"{node} 1"], "not the one asked for"
    sweep.cancel()
    sweep.wait()
