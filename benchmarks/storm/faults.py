"""Faults while the sweep is trained. Each takes the storm, and returns what was done, or None if
there was nothing to harm."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from benchmarks.storm.ground import LEASE_SECONDS, parent

if TYPE_CHECKING:
    from benchmarks.storm.adversary import Storm

Fault = Callable[["Storm"], str | None]
NODES = ("c1", "c2", "c3")


def kill_training(storm: Storm) -> str | None:
    return _kill(storm, storm.ground.training())


def kill_task(storm: Storm) -> str | None:
    return _kill(storm, storm.ground.tasks())


def kill_step(storm: Storm) -> str | None:
    """SLURM's process that holds a job's script."""
    if storm.ground.cluster is None:
        return None
    steps = [pid for pid in storm.ground.cluster.daemons.jobs() if _name(pid) == "slurmstepd"]
    return _kill(storm, steps)


def kill_all(storm: Storm) -> str | None:
    """Power fails: everything of the sweep ends at once."""
    pids = storm.ground.processes(storm.ground.sweep)
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    for pid in pids:
        _send(pid, signal.SIGKILL)
    return f"{len(pids)} processes" if pids else None


def freeze(storm: Storm) -> str | None:
    """A training process, or a task with all of its own, stops for longer than leases last."""
    ground, rng = storm.ground, storm.rng
    if ground.is_pending("thaw"):
        return None
    if rng.random() < 0.5 and (tasks := ground.tasks()):
        task = rng.choice(tasks)
        pids = [pid for pid in ground.training() if parent(pid) == task] + [task]
    elif training := ground.training():
        pids = [rng.choice(training)]
    else:
        return None
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    ground.frozen.update(pids)
    seconds = LEASE_SECONDS * rng.uniform(1.2, 3)

    def thaw() -> None:
        for pid in reversed(pids):
            _send(pid, signal.SIGCONT)
        ground.frozen.difference_update(pids)

    ground.defer(seconds, "thaw", thaw)
    if rng.random() < 0.4:
        ground.defer(LEASE_SECONDS * 1.1, "others", lambda: storm.resume(other_host=True))
    return f"{len(pids)} processes for {seconds:.0f} s"


def kill_slurmd(storm: Storm) -> str | None:
    """The node's jobs live on, and may still be started elsewhere as well."""
    node = _live_node(storm)
    if node is None:
        return None
    cluster = storm.cluster
    cluster.daemons.stop(f"slurmd-{node}", 5, signal.SIGKILL)
    seconds = storm.rng.choice((2.0, 8.0, 25.0))
    storm.ground.defer(seconds, node, lambda: cluster.start_node(node))
    return f"{node} for {seconds:.0f} s"


def kill_node(storm: Storm) -> str | None:
    node = _live_node(storm)
    if node is None:
        return None
    cluster = storm.cluster
    cluster.kill_node(node)
    seconds = storm.rng.choice((3.0, 15.0))
    storm.ground.defer(seconds, node, lambda: cluster.start_node(node))
    return f"{node} for {seconds:.0f} s"


def kill_slurmctld(storm: Storm) -> str | None:
    ground = storm.ground
    if not ground.controller_up or ground.is_pending("controller"):
        return None
    number = storm.rng.choice((signal.SIGKILL, signal.SIGTERM))
    storm.cluster.daemons.stop("slurmctld", 5, number)
    seconds = storm.rng.uniform(1, 6)
    ground.defer(seconds, "controller", storm.cluster.start_controller)
    if storm.rng.random() < 0.5:
        storm.judge(
            ground.run(storm.rng.choice(("status", "resume")), ground.sweep, *_slurm(storm))
        )
    return f"{number.name} for {seconds:.0f} s"


def node_state(storm: Storm) -> str | None:
    """An administrator takes a node out: its jobs end, or may still finish."""
    node, ground = storm.rng.choice(NODES), storm.ground
    if not ground.controller_up or ground.is_pending(f"undrain {node}"):
        return None
    state = storm.rng.choice(("DOWN", "DRAIN"))
    if not _scontrol(storm, "update", f"NodeName={node}", f"State={state}", "Reason=storm"):
        return None

    def back() -> None:
        if not ground.controller_up:
            storm.cluster.start_controller()
        _scontrol(storm, "update", f"NodeName={node}", "State=RESUME")

    ground.defer(storm.rng.uniform(3, 12), f"undrain {node}", back)
    return f"{node} {state}"


def requeue(storm: Storm) -> str | None:
    job = _job(storm)
    return job if job and _scontrol(storm, "requeue", job) else None


def scancel(storm: Storm) -> str | None:
    job = _job(storm, "R,PD")
    if job is None:
        return None
    options = storm.rng.choice(((), ("--full", "--signal=KILL"), ("--signal=TERM", "--full")))
    with contextlib.suppress(RuntimeError):
        storm.cluster.command(["scancel", *options, job])
        return " ".join([*options, job])
    return None


def preempt(storm: Storm) -> str | None:
    if not storm.ground.jobs():
        return None
    nodes = str(storm.rng.randint(1, 2))
    job = ["sbatch", "-p", "urgent", "-N", nodes, "--exclusive", "-o", "/dev/null", "-t", "1"]
    with contextlib.suppress(RuntimeError):
        storm.cluster.command([*job, "--wrap", "sleep 1"])
        return f"{nodes} nodes"
    return None


def walltime(storm: Storm) -> str | None:
    """The walltime is over now, or soon: SLURM sends a signal, then ends the job."""
    job = _job(storm)
    if job is None:
        return None
    if storm.rng.random() < 0.5:
        return job if _scontrol(storm, "update", f"JobId={job}", "TimeLimit=1") else None
    with contextlib.suppress(RuntimeError):
        storm.cluster.command(["scancel", "--signal=USR2", job])
        return f"{job}, told of"
    return None


def full_disk(storm: Storm) -> str | None:
    ground = storm.ground
    if not ground.has_disk or ground.is_pending("disk"):
        return None
    ground.fill()
    seconds = storm.rng.uniform(1, 6)
    ground.defer(seconds, "disk", ground.empty)
    if storm.rng.random() < 0.5:
        _command_meanwhile(storm)
    return f"for {seconds:.0f} s"


def read_only(storm: Storm) -> str | None:
    ground = storm.ground
    if not ground.has_disk or ground.is_pending("read-only"):
        return None
    ground.forbid()
    if not ground.is_read_only:
        ground.allow()
        return None
    seconds = storm.rng.uniform(1, 6)
    ground.defer(seconds, "read-only", ground.allow)
    if storm.rng.random() < 0.5:
        _command_meanwhile(storm)
    return f"for {seconds:.0f} s"


def at_once(storm: Storm) -> str | None:
    """Several submit and resume at the same moment, some on other hosts."""
    ground, rng = storm.ground, storm.rng
    started = []
    for number in range(rng.randint(2, 3)):
        words = (rng.choice(("submit", "resume")), str(ground.sweep), *_place(storm))
        host = f"host-{number}" if storm.is_root and rng.random() < 0.5 else ""
        started.append((words, ground.begin(*words, host=host)))
    for words, process in started:
        storm.judge(ground.end(words, process))
    return f"{len(started)} of them"


def other_host(storm: Storm) -> str | None:
    """Another host also trains, and loses power."""
    if not storm.is_root or len([h for h in storm.ground.hosts if h.poll() is None]) > 1:
        return None
    storm.resume(other_host=True)
    return "for a while"


def stop_and_go(storm: Storm) -> str | None:
    """A user stops the sweep, and resumes it at once."""
    verb = storm.rng.choice(("pause", "cancel"))
    storm.judge(storm.ground.run(verb, storm.ground.sweep))
    storm.resume()
    return verb


def cut(storm: Storm) -> str | None:
    """A command is killed in the middle, at any moment."""
    verb = storm.rng.choice(("submit", "resume", "plan", "analyze", "export", "verify", "status"))
    return storm.cut(verb)


def _kill(storm: Storm, pids: Iterable[int]) -> str | None:
    pids = sorted(pids)
    if not pids:
        return None
    pid = storm.rng.choice(pids)
    _send(pid, signal.SIGKILL)
    time.sleep(storm.rng.uniform(0, 0.3))
    return str(pid)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


def _live_node(storm: Storm) -> str | None:
    """Return a working node, if others also work."""
    if not storm.ground.controller_up:
        return None
    alive = [n for n in NODES if storm.cluster.daemons.is_alive(f"slurmd-{n}")]
    return storm.rng.choice(alive) if len(alive) > 1 else None


def _job(storm: Storm, state: str = "R") -> str | None:
    jobs = storm.ground.jobs(state)
    return storm.rng.choice(sorted(jobs)) if jobs else None


def _scontrol(storm: Storm, *words: str) -> bool:
    try:
        storm.cluster.command(["scontrol", *words])
    except RuntimeError:
        return False
    return True


def _slurm(storm: Storm) -> tuple[str, ...]:
    return ()


def _place(storm: Storm) -> tuple[str, ...]:
    """Return where to submit."""
    if storm.ground.controller_up and storm.rng.random() < 0.6:
        return ("--cluster", str(storm.ground.profile))
    return ("--cluster", "local", "--workers", str(storm.rng.randint(1, 2)))


def _command_meanwhile(storm: Storm) -> None:
    verb = storm.rng.choice(("status", "resume", "analyze", "plan", "verify"))
    storm.judge(storm.ground.run(*storm.words(verb)))


WHILE_TRAINING: dict[str, tuple[Fault, float]] = {
    "kill-training": (kill_training, 8),
    "kill-task": (kill_task, 5),
    "kill-step": (kill_step, 4),
    "kill-all": (kill_all, 2),
    "freeze": (freeze, 3),
    "kill-slurmd": (kill_slurmd, 2),
    "kill-node": (kill_node, 2),
    "kill-slurmctld": (kill_slurmctld, 2),
    "node-state": (node_state, 2),
    "requeue": (requeue, 3),
    "scancel": (scancel, 3),
    "preempt": (preempt, 2),
    "walltime": (walltime, 2),
    "full-disk": (full_disk, 3),
    "read-only": (read_only, 3),
    "at-once": (at_once, 2),
    "other-host": (other_host, 2),
    "stop-and-go": (stop_and_go, 2),
    "cut": (cut, 5),
}
"""By kind: the fault, and its weight among all faults."""
