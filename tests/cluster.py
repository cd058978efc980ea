"""A real SLURM for tests: what they do with it, and how they wait for it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from manyseed.slurm import arrays, commands, states
from manyseed.slurm.profile import Profile, read_profile
from manyseed.slurm.testcluster import MissingPackages, Settings, TestCluster

MAX_ARRAY_SIZE = 8
CORES = 3
"""Of a node of the cluster without accounting."""


@dataclass
class Slurm:
    """A running test cluster, and a folder for one test's jobs."""

    cluster: TestCluster
    folder: Path
    started: float = field(default_factory=time.time)
    name: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex}")

    @property
    def profile(self) -> Profile:
        return read_profile(self.cluster.profile)

    def submit(
        self,
        function: str,
        *arguments: list[str],
        resource_class: str = "cpu",
        name: str = "",
        profile: Profile | None = None,
        parallelism: int | None = None,
        timeout_signal_seconds: int = 20,
    ) -> list[str]:
        """Submit one task for each list of arguments to a function of `tests.slurm.in_jobs`."""
        tasks = arrays.Tasks(
            f"tests.slurm.in_jobs:{function}",
            arguments,
            f"{self.name}{name}",
            parallelism=parallelism,
            signal_seconds=timeout_signal_seconds,
        )
        return arrays.submit_array(profile or self.profile, resource_class, self.folder, tasks)

    def ask(self, jobs: Iterable[str]) -> dict[str, states.JobState]:
        return states.ask(jobs, self.started, self.folder)

    def wait_for(self, jobs: list[str], state: str, timeout: float = 240) -> None:
        """Wait until all jobs are in a state."""
        last: dict[str, states.JobState] = {}

        def reached() -> bool:
            last.update(self.ask(jobs))
            return all(last[job].state == state for job in jobs)

        wait_until(reached, lambda: f"{state}; last seen: {last}\n{self.logs()}", timeout)

    def logs(self) -> str:
        """What the jobs printed."""
        logs = sorted(self.folder.glob("*_log.*"))
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in logs)

    def cancel_all(self) -> None:
        """End every job, and wait until no process of one is left."""
        listed = self.cluster.command(["squeue", "-h", "-r", "-t", "PD,R,CF,S", "-o", "%i"])
        commands.cancel(listed.split())
        for node in self.cluster.daemons.names():
            assert self.cluster.daemons.is_alive(node), f"{node} was left dead by a test"
        wait_until(
            lambda: not self.cluster.command(["squeue", "-h"]).strip(),
            lambda: "an empty queue: " + self.cluster.command(["squeue"]),
        )


def start(folder: Path, settings: Settings) -> TestCluster:
    """Start a cluster; where SLURM is not installed, skip the test, but fail it in CI."""
    cluster = TestCluster(folder)
    try:
        cluster.start(settings)
    except MissingPackages as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    return cluster


def wait_until(
    condition: Callable[[], bool], what: Callable[[], str] | str, timeout: float = 240
) -> None:
    """Wait for a condition; when it does not come, say what was seen instead."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {timeout:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(0.1)
