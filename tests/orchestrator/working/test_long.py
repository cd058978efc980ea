"""Fits that are long in flight, as a task reports them."""

from __future__ import annotations

import subprocess
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest

from manyseed.orchestrator.tasks.attempts import InFlight
from manyseed.orchestrator.working.pool import Pool, Worker
from manyseed.orchestrator.working.queue import Batch


def test_a_run_that_is_long_in_flight_is_found_among_those_of_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, (ours, theirs) = Pool([], tmp_path / "log"), Pipe()
    with ours, theirs, subprocess.Popen(["true"]) as process:
        worker = Worker(0, process, ours)
        pool.workers.append(worker)
        finished: set[int] = set()

        def found() -> tuple[InFlight, ...]:
            return pool.long_in_flight(lambda group: finished, {3: 1.5})

        assert found() == ()
        pool.send(worker, Batch(3, 0, 1, 2, ((10, 5), (11, 6), (12, 7))))
        began = worker.since
        now = began
        monkeypatch.setattr(time, "time", lambda: now)
        assert found() == ()
        now = began + 61
        assert found() == (InFlight(1, 2, 5, began, 1.5),)
        finished.add(10)
        assert found() == (), "another run of the batch is in training since"
        now += 61
        assert found() == (InFlight(1, 2, 6, began + 61, 1.5),)
        finished |= {11, 12}  # as its outcome will tell
        assert found() == ()
        worker.batch = None
        now += 61
        assert found() == ()
