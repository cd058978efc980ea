"""Running SLURM's commands, distinguishing a refusal from no answer, and changing submitted jobs.

Functions that change jobs take job ids from `arrays.submit_array`; jobs that have ended meanwhile
are not an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

NO_CLUSTER = "(command)"
"""What stands for SLURM's name of the cluster where a profile's own commands submit."""

_SECONDS = 120.0
_SILENT_SECONDS = 5.0
_NO_ANSWER = (
    "unable to contact slurm",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "zero bytes were transmitted",
    "could not establish a configuration source",
    "unable to process configuration file",
    "communication connection failure",
    "problem talking to the database",
    "unable to establish control",
    "in standby mode",
    "protocol authentication error",
    "munge",
)
# These tell how to reach the cluster. The others belong to a surrounding job (SLURM_*), override a
# profile (SBATCH_*), or change which jobs the commands choose and how they print them: a user's
# SQUEUE_PARTITION would hide that user's own jobs.
_KEPT = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK_SOCKET"}
_conf: ContextVar[Path | None] = ContextVar("_conf", default=None)
_patience: ContextVar[float] = ContextVar("_patience", default=_SECONDS)
_told_of: set[str] = set()  # the commands that were said to be waited for
_COMMANDS = ("SBATCH", "SRUN", "SALLOC", "SQUEUE", "SACCT", "SACCTMGR", "SINFO", "SCONTROL")
_DAEMONS = ("SLURMD", "SLURMCTLD", "SLURMDBD")
_REMOVED = tuple(
    f"{name}_"
    for name in ("MANYSEED_JOB", "SLURM", "SUBMITIT", "SCANCEL", "SSTAT", *_DAEMONS, *_COMMANDS)
)
_SET = {"SLURM_BITSTR_LEN": "0"}
"""SLURM prints long lists of array elements whole instead of cutting them, where it obeys this."""


class ClusterError(RuntimeError):
    """A scheduler refused a request; the text is its own.

    `printed` and `said`: what its command wrote to standard output and error.
    """

    printed = said = ""

    def says(self, *texts: str) -> bool:
        """Whether the message has one of these lower-case texts; SLURM gives no other facts."""
        return any(text in str(self).lower() for text in texts)


class ClusterUnavailable(ClusterError):
    """SLURM does not answer or is not installed here, so nothing was submitted or changed."""

    may_answer = True  # later


def _never(message: str) -> ClusterUnavailable:
    """Return the error for what does not pass by itself."""
    error = ClusterUnavailable(message)
    error.may_answer = False
    return error


def available(program: str = "sbatch") -> bool:
    """Whether jobs can be submitted from this machine, that is, ``sbatch`` is on PATH."""
    return shutil.which(program) is not None


@contextmanager
def speaking_to(conf: Path | None) -> Iterator[None]:
    """Let this thread's SLURM commands in the block use the cluster of a ``slurm.conf``.

    The process's environment is not changed. None means the cluster that SLURM finds by itself.
    """
    if conf is not None and not conf.is_file():  # SLURM's commands would retry for a minute
        raise _never(f"the cluster does not answer: {conf}: no such file")
    before = _conf.set(conf)
    try:
        yield
    finally:
        _conf.reset(before)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let this thread's commands in the block have so long to answer."""
    before = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(before)


CALLS: Counter[str] = Counter()
"""How often this process has called each command of a scheduler."""


def run(arguments: Sequence[str], name: str = "") -> str:
    """Return the output of a scheduler's command, called `name` in messages if not SLURM's.

    Removes the variables of a surrounding job, so that a job asks and submits like a login node,
    and a user's defaults for SLURM's commands.
    """
    scheduler, name = "the scheduler" if name else "SLURM", name or arguments[0]
    CALLS[name] += 1
    seconds = _patience.get()
    try:
        with _told(scheduler, name, seconds):
            done = subprocess.run(
                arguments,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
    except FileNotFoundError:
        raise _never(f"{name} is not on PATH: is this a SLURM login node?") from None
    except subprocess.TimeoutExpired:
        raise ClusterUnavailable(f"{name} did not answer within {seconds:.0f} s") from None
    if done.returncode == 0:
        return done.stdout
    message = _message(name, done.stderr or done.stdout) or f"{name} ended with {done.returncode}"
    if any(text in message.lower() for text in _NO_ANSWER):
        raise ClusterUnavailable(f"the cluster does not answer: {message}")
    refusal = ClusterError(message)
    refusal.printed, refusal.said = done.stdout, done.stderr
    raise refusal


@contextmanager
def _told(scheduler: str, name: str, seconds: float) -> Iterator[None]:
    """Say on standard error what is waited for, the first time that it takes long."""

    def tell() -> None:
        if name not in _told_of:
            _told_of.add(name)
            text = f"Waiting for {scheduler}: {name} has {seconds:.0f} s to answer."
            print(text, file=sys.stderr, flush=True)

    timer = threading.Timer(_SILENT_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def cleared_environment(kept: Collection[str] = ()) -> dict[str, str]:
    """Return this process's environment without SLURM's variables and users' defaults for SLURM.

    `kept`: names of variables that stay.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(_REMOVED)
    }
    return environment | _SET


def _environment() -> dict[str, str]:
    conf = _conf.get()
    if conf is None:
        return cleared_environment(_KEPT)
    return cleared_environment(_KEPT - {"SLURM_CLUSTERS"}) | {"SLURM_CONF": str(conf)}


def _message(name: str, text: str) -> str:
    """Return the lines that the command marked as errors, or all lines if there are none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "fatal:" in line]
    shown = [line.removeprefix(f"{name}: ").removeprefix("error: ") for line in errors or lines]
    return "; ".join(dict.fromkeys(shown))


_OVER = (
    *("invalid job id", "already completing or completed", "already finished"),
    *("job is no longer", "no jobs found"),
)


def cancel(job_ids: Iterable[str]) -> None:
    """Cancel jobs: waiting ones never start; running ones are asked to end, then killed."""
    _run(["scancel"], job_ids)


def hold(job_ids: Iterable[str]) -> None:
    """Keep waiting jobs from starting until `release`."""
    _run(["scontrol", "hold"], job_ids)


def release(job_ids: Iterable[str]) -> None:
    """Let held jobs start."""
    _run(["scontrol", "release"], job_ids)


def requeue(job_ids: Iterable[str]) -> None:
    """End running jobs and start them again; jobs that have ended also start again."""
    _run(["scontrol", "requeue"], job_ids)


def set_parallelism(job_ids: Iterable[str], parallelism: int) -> None:
    """Let at most `parallelism` tasks of each array run at once; 0 means no limit."""
    for array in sorted({job.partition("_")[0] for job in job_ids}):
        _run(["scontrol", "update", f"ArrayTaskThrottle={parallelism}"], [array], "JobId=")


def exclude_nodes(job_ids: Iterable[str], nodes: Sequence[str]) -> None:
    """Keep waiting jobs off nodes; replaces previously excluded nodes."""
    for job in compact_ids(job_ids):
        _run(["scontrol", "update", f"ExcNodeList={','.join(nodes)}"], [job], "JobId=")


def compact_ids(job_ids: Iterable[str]) -> list[str]:
    """Return one expression per array: ``123_0``, ``123_1``, ``123_5`` → ``123_[0-1,5]``."""
    arrays: dict[str, list[int]] = {}
    plain = []
    for job in job_ids:
        array, _, index = job.partition("_")
        if index.isascii() and index.isdecimal():
            arrays.setdefault(array, []).append(int(index))
        else:
            plain.append(job)
    return plain + [f"{array}_[{_ranges(sorted(indices))}]" for array, indices in arrays.items()]


def _ranges(numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _run(command: list[str], job_ids: Iterable[str], prefix: str = "") -> None:
    for job in compact_ids(job_ids):
        try:
            run([*command, prefix + job])
        except ClusterUnavailable:
            raise
        except ClusterError as error:
            if not error.says(*_OVER):
                raise
