"""The node that a task runs on: its resources, and whether it is at fault when tasks break.

Tasks import this module at startup, so it imports no table library.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from manyseed.orchestrator.devices import gpus
from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.tasks.attempts import Attempt, read_attempts
from manyseed.orchestrator.tasks.intent import Intent, SubmissionPaths
from manyseed.slurm import ClusterError, commands, local
from manyseed.slurm.commands import NO_CLUSTER
from manyseed.slurm.processes import JOB_NAME

_FORGIVEN_SECONDS = 24 * 3600.0
_SUSPECTS = 3
_NO_DEVICES = ("", "NoDevFiles", "-1")

EACH_CORE, EACH_GPU = "node", "gpu:"
"""Instead of a number of training processes: one per core of the node, or, followed by a number,
that many per GPU that the node gives to the task."""


@dataclass(frozen=True, slots=True)
class Node:
    """The node of an attempt."""

    name: str  # SLURM's name for the node
    job_id: str  # such as ``123_4``, or the name of its job; empty on this machine
    cores: int  # number of cores that the task may use
    n_gpus: int  # number of GPUs that the scheduler gave to the task; on this machine, all

    @classmethod
    def here(cls) -> Node:
        """Return the node of this process."""
        env = os.environ
        if name := env.get(JOB_NAME):  # a profile's commands submitted it
            cores, n_gpus = local.available_cores(), _n_given(env) or len(gpus())
            return cls(os.uname().nodename, name, cores, n_gpus)
        array, index = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
        is_job = env.get("SUBMITIT_EXECUTOR") == "slurm" and array is not None
        return cls(
            name=env.get("SLURMD_NODENAME", os.uname().nodename) if is_job else os.uname().nodename,
            job_id=f"{array}_{index}" if is_job else "",
            cores=int(env["SLURM_CPUS_ON_NODE"]) if is_job else local.available_cores(),
            n_gpus=_n_given(env) if is_job else len(gpus()),
        )

    def processes(self, requested: str) -> int:
        """Resolve a requested number of training processes, `EACH_CORE` or `EACH_GPU`."""
        if requested == EACH_CORE:
            return self.cores
        if requested.startswith(EACH_GPU):
            return self.n_gpus * int(requested.removeprefix(EACH_GPU))
        return int(requested)


def _n_given(env: Mapping[str, str]) -> int:
    """Return the number of GPUs that a job was given."""
    lists = (env.get("CUDA_VISIBLE_DEVICES", ""), env.get("ROCR_VISIBLE_DEVICES", ""))
    return max(sum(device not in _NO_DEVICES for device in each.split(",")) for each in lists)


_KILOBYTES = re.compile(rb"^(Pss|VmHWM|VmRSS):\s+(\d+) kB", re.MULTILINE)


def used(pids: Iterable[int]) -> tuple[int, float]:
    """Return the bytes that processes use together at most, and their seconds on cores so far.

    Memory that processes share is counted once. What a process used at its peak and has given back
    is counted as if all had done so at once. Children count once they have ended. Both are 0 where
    the system does not tell.
    """
    kilobytes = ticks = 0
    for pid in pids:
        with suppress(OSError, ValueError, KeyError):  # it has ended, perhaps between two files
            folder = Path(f"/proc/{pid}")
            texts = [(folder / name).read_bytes() for name in ("smaps_rollup", "status", "stat")]
            is_now = {key: int(n) for key, n in _KILOBYTES.findall(b"".join(texts[:2]))}
            kilobytes += is_now[b"Pss"] + max(0, is_now[b"VmHWM"] - is_now[b"VmRSS"])
            fields = texts[2][texts[2].rindex(b")") + 2 :].split()
            ticks += sum(map(int, fields[11:15]))
    return kilobytes * 1024, ticks / os.sysconf("SC_CLK_TCK")


def broken_nodes(attempts: Iterable[Attempt]) -> dict[str, str]:
    """Return the nodes on which tasks broke before they finished a run, each with the reason.

    A node is good again once a later attempt finishes runs on it, or after a day.
    """
    broken: dict[str, str] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.started):
        if attempt.n_done:
            broken.pop(attempt.node, None)
        elif attempt.node_at_fault and time.time() - attempt.updated < _FORGIVEN_SECONDS:
            broken[attempt.node] = attempt.reason
    return broken


def is_environment(attempts: Collection[Attempt]) -> bool:
    """Return whether the common environment is at fault: several nodes broke and none worked."""
    worked = any(attempt.n_done for attempt in attempts)
    return not worked and len(broken_nodes(attempts)) >= _SUSPECTS


def read_jobs(submission: Path) -> dict[int, str]:
    """Return the recorded job ids of a submission's tasks, by task number."""
    file = SubmissionPaths(submission).jobs
    try:
        jobs = read_json(file)
    except FileNotFoundError:
        return {}
    if not isinstance(jobs, dict) or not all(
        number.isascii() and number.isdecimal() and isinstance(job, str) and job
        for number, job in jobs.items()
    ):
        raise DamagedFile(file, "is not a mapping of tasks to jobs")
    return {int(number): job for number, job in jobs.items()}


def write_jobs(submission: Path, jobs: Mapping[int, str]) -> None:
    """Record the job id of each task of a submission."""
    write_json(SubmissionPaths(submission).jobs, {str(number): job for number, job in jobs.items()})


def keep_away(submission: Path, intent: Intent) -> None:
    """Keep a submission's waiting tasks away from its broken nodes, or stop the submission.

    Otherwise a broken node, which ends each task within seconds, would soon have ended all.
    """
    attempts = read_attempts(submission, plan=intent.plan)
    started = {attempt.job_id for attempt in attempts}
    jobs = read_jobs(submission)
    nodes = broken_nodes(attempts)
    if must_stop := is_environment(attempts):
        SubmissionPaths(submission).stop.touch()
    if intent.scheduler == NO_CLUSTER:  # which cannot be told to avoid nodes
        return
    for array in intent.arrays:
        numbers = range(array.first, array.first + array.count)
        waiting = [jobs[n] for n in numbers if jobs.get(n, "") not in {"", *started}]
        excluded = [text for text in (intent.exclude.get(array.resource, ""),) if text]
        with suppress(ClusterError):  # if jobs may not modify jobs, `resume` does it
            if must_stop:
                commands.cancel(waiting)
            elif nodes:
                commands.exclude_nodes(waiting, [*excluded, *sorted(nodes)])
