"""Changing submitted jobs: cancel, hold, release, requeue, throttle, exclude nodes.

All functions take job ids from `arrays.submit_array`, and raise `ClusterError` with SLURM's message
or `ClusterUnavailable`. Jobs that have ended meanwhile are not an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from manyseed.slurm import commands
from manyseed.slurm.commands import ClusterError, ClusterUnavailable

_OVER = ("invalid job id", "already completing or completed", "job is no longer", "no jobs found")


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
    for job in compact(job_ids):
        _run(["scontrol", "update", f"ExcNodeList={','.join(nodes)}"], [job], "JobId=")


def compact(job_ids: Iterable[str]) -> list[str]:
    """Return one expression per array: ``123_0``, ``123_1``, ``123_5`` → ``123_[0-1,5]``."""
    arrays: dict[str, list[int]] = {}
    plain = []
    for job in job_ids:
        array, _, index = job.partition("_")
        if index.isdigit():
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
    for job in compact(job_ids):
        try:
            commands.run([*command, prefix + job])
        except ClusterUnavailable:
            raise
        except ClusterError as error:
            if not error.says(*_OVER):
                raise
