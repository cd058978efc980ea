"""SLURM's commands as functions over one file, which says what was submitted and what ran.

As much as is needed to submit tasks and to ask for them. Jobs wait until `run` is called.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from submitit.core.utils import DelayedSubmission

from manyseed.orchestrator.submissions import cluster
from manyseed.slurm import ClusterError, commands
from tests.crashpoints import Disk

PROFILE = 'time = "0:05:00"\nmem = "1G"\n[cpu]\ncpus-per-task = 1\n'
CONFIG = "ClusterName = stub\nMaxArraySize = 2\nMaxJobCount = 1000\n"


class Queue:
    """Jobs of a cluster.

    Parameters
    ----------
    folder : Path
        Holds the file of its jobs, a user's configuration, and the profile `profile`.
    """

    def __init__(self, folder: Path) -> None:
        self.file, self.profile = folder / "jobs.json", folder / "lab.toml"
        folder.mkdir(exist_ok=True)
        if not self.profile.exists():
            self.profile.write_text(PROFILE)
        os.environ["XDG_CONFIG_HOME"] = str(folder)

    def install(self) -> None:
        """Let this process's SLURM commands be these; only in one that `Forks` starts."""
        commands.run = self._command  # type: ignore[assignment]
        shutil.which = lambda name, *_, **__: f"/stub/{name}"  # type: ignore[assignment]
        cluster._LEAST_SECONDS = 1e-9  # a task for each run

    def run(self, train: Callable[[list[str]], None]) -> None:
        """Let all jobs run that wait: `train` is called with the arguments of each."""
        jobs = self._jobs()
        for job in jobs:
            for element in range(job["n"] if job["state"] == "PENDING" else 0):
                pickled = Path(job["folder"]) / f"{job['name']}.{element}.pkl"
                train(list(DelayedSubmission.load(pickled).args))
            job["state"] = "COMPLETED"
        self.file.write_text(json.dumps(jobs))

    def _jobs(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = json.loads(self.file.read_text()) if self.file.exists() else []
        return jobs

    def _command(self, arguments: list[str]) -> str:
        disk = Disk.current
        assert disk is not None
        with disk.rest():
            if arguments[0] == "sbatch":
                return self._sbatch(Path(arguments[1]))
            if arguments[0] == "squeue":
                return "".join(
                    f"{number}|{element}|{job['state']}|None||N/A|{job['name']}\n"
                    for number, job in enumerate(self._jobs(), 1)
                    for element in range(job["n"])
                )
        if arguments[0] == "sacct":
            raise ClusterError("Slurm accounting storage is disabled")
        return {"scontrol": CONFIG, "sinfo": "cpu*|up|infinite|infinite|1|1|4000|(null)\n"}.get(
            arguments[0], ""
        )

    def _sbatch(self, script: Path) -> str:
        text = script.read_text()
        name = re.search(r"--job-name=(\S+)", text)
        last = re.search(r"--array=0-(\d+)", text)
        assert name
        assert last
        job = {"name": name[1], "n": int(last[1]) + 1, "folder": str(script.parent)}
        jobs = [*self._jobs(), job | {"state": "PENDING"}]
        self.file.write_text(json.dumps(jobs))
        return f"Submitted batch job {len(jobs)}\n"
