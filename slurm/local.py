"""The local machine as a cluster of one node, through submitit's local executor.

submitit starts all jobs at once, so the machine runs a single job, whose task keeps a pool of as
many processes as the user requested.
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
    """A submitted job: submitit's job id and the fingerprint of its process."""

    job_id: str
    process: str


def submit(
    folder: Path, function: str, arguments: Sequence[str], env: Mapping[str, str]
) -> LocalJob:
    """Start ``module:function(*arguments)`` in a detached process with its own session.

    Parameters
    ----------
    folder : Path
        Folder for submitit's files; the output goes to ``<job id>_0_log.out`` and ``.err``.
    function : str
        An importable function, as ``module:name``.
    arguments : sequence of str
        Its arguments: plain strings, so that nothing of a sweep is ever pickled.
    env : mapping
        Environment variables added to the current ones.

    Returns
    -------
    LocalJob
        A job that outlives the caller.

    Raises
    ------
    RuntimeError
        If the job could not be started, with the output.
    """
    request = {"folder": str(folder), "function": function, "arguments": list(arguments)}
    # a launcher with its own session, so that neither Ctrl-C nor closing the terminal ends the job
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
    """Return the number of cores that this process may use, or of all cores if unknown."""
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return os.cpu_count() or 1
    return len(os.sched_getaffinity(0))


def _launch(folder: str, function: str, arguments: list[str]) -> int:
    import submitit  # here, as only the launcher needs it

    module, _, name = function.partition(":")
    target: Callable[..., Any] = getattr(importlib.import_module(module), name)
    executor = submitit.LocalExecutor(folder=folder)
    executor.update_parameters(timeout_min=_NO_TIMEOUT_MIN)
    # submitit's controller must not keep the launcher's pipes open, or the caller would wait for it
    keep = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    job = executor.submit(target, *arguments)
    os.write(keep, f"{job.job_id}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(_launch(**json.load(sys.stdin)))
