"""The local machine as a cluster of one node, through submitit's local executor.

submitit starts every job that it is given at once, so the machine is one job: its task keeps a pool
of as many processes as the user asked for.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyseed.slurm.processes import fingerprint

_NO_TIMEOUT_MIN = 60 * 24 * 365 * 10


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A submitted job: submitit's job id, and the fingerprint of its process."""

    job_id: str
    process: str


def submit(
    folder: Path, function: str, arguments: Sequence[str], env: Mapping[str, str]
) -> LocalJob:
    """Start ``module:function(*arguments)`` in a detached process of its own session.

    Parameters
    ----------
    folder : Path
        Where submitit keeps its files: ``<job id>_0_log.out`` and ``.err`` hold what is printed.
    function : str
        An importable function, as ``module:name``.
    arguments : sequence of str
        Its arguments: plain strings, so that nothing of a sweep is ever pickled.
    env : mapping
        Environment variables added to the current ones.

    Returns
    -------
    LocalJob
        It outlives the caller.

    Raises
    ------
    RuntimeError
        When the job could not be started, with what was printed.
    """
    request = {"folder": str(folder), "function": function, "arguments": list(arguments)}
    # a launcher in a session of its own: neither Ctrl-C nor the end of the terminal reaches the job
    launcher = subprocess.run(
        [sys.executable, "-P", "-m", "manyseed.slurm.local"],
        input=json.dumps(request),
        env={**os.environ, "PYTHONSAFEPATH": "1", **env},
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    if launcher.returncode != 0:
        raise RuntimeError(f"the local job did not start:\n{launcher.stderr.strip()}")
    job_id = launcher.stdout.split()[-1]
    return LocalJob(job_id, fingerprint(int(job_id)))


def available_cores() -> int:
    """Return the number of cores that this process may use; all of them where that is not known."""
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return os.cpu_count() or 1
    return len(os.sched_getaffinity(0))


def _launch(folder: str, function: str, arguments: list[str]) -> int:
    import submitit  # only the launcher needs it

    module, _, name = function.partition(":")
    target: Callable[..., Any] = getattr(importlib.import_module(module), name)
    executor = submitit.LocalExecutor(folder=folder)
    executor.update_parameters(timeout_min=_NO_TIMEOUT_MIN)
    # a controller must not hold the launcher's pipes open, or its caller would wait for the job
    keep = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    job = executor.submit(target, *arguments)
    os.write(keep, f"{job.job_id}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(_launch(**json.load(sys.stdin)))
