"""The local machine as a cluster of one node.

It runs a single job at a time, whose task keeps a pool of as many processes as the user requested.
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

from manyseed.slurm.processes import JOB_NAME, fingerprint


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A submitted job: its id, which is a process number, and the fingerprint of its process."""

    job_id: str
    process: str


def submit(
    folder: Path, function: str, arguments: Sequence[str], env: Mapping[str, str]
) -> LocalJob:
    """Start ``module:function(*arguments)`` in a detached process with its own session.

    `folder`: folder for the job's output, which goes to ``<job id>_0_log.out`` and ``.err``.
    `function`: an importable function, as ``module:name``. `arguments`: its arguments: plain
    strings, so that nothing of a sweep is ever pickled. `env`: environment variables added to the
    current ones.

    Returns a job that outlives the caller.
    """
    request = {"folder": str(folder), "function": function, "arguments": list(arguments)}
    # a job of submitit may submit to its own machine: the new job is none of that scheduler's
    fixed = {"PYTHONSAFEPATH": "1", "SUBMITIT_EXECUTOR": "local", JOB_NAME: ""}
    # a launcher with its own session, so that neither Ctrl-C nor closing the terminal ends the job
    launcher = subprocess.run(
        [sys.executable, "-P", "-m", "manyseed.slurm.local"],
        input=json.dumps(request),
        env={**os.environ, **fixed, **env},
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


def _launch(folder: str, function: str, arguments: list[str]) -> None:
    """Run a function in a fork, whose number the launcher prints once it is about to begin.

    The fork leaves the launcher, which the caller waits for, before any library is imported.
    """
    reader, writer = os.pipe()
    if job := os.fork():
        os.close(writer)
        has_begun = bool(os.read(reader, 1))
        os.write(1, f"{job}\n".encode())
        os._exit(not has_begun)
    os.close(reader)
    module, _, name = function.partition(":")
    target: Callable[..., Any] = getattr(importlib.import_module(module), name)
    output = Path(folder) / f"{os.getpid()}_0_log"
    output.parent.mkdir(parents=True, exist_ok=True)
    # the job must not keep the launcher's pipes open, or the caller would wait for it
    for stream, file in enumerate([os.devnull, f"{output}.out", f"{output}.err"]):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(descriptor, stream)
        os.close(descriptor)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    print(f"job {os.getpid()} starts {function} {' '.join(arguments)}")
    os.write(writer, b"1")
    os.close(writer)
    target(*arguments)


if __name__ == "__main__":
    _launch(**json.load(sys.stdin))
