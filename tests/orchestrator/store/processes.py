"""What the processes of `test_faults` run."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from manyseed.jobs import whole
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.errors import LeaseHeld
from manyseed.orchestrator.store import shards
from manyseed.orchestrator.store.groups import open_group
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.journal import JournalWriter
from manyseed.orchestrator.store.schema import GroupSpec
from tests.orchestrator.store.world import NUMBER, values


def work(folder: Path, made: GroupSpec, seconds: float, attempt: str, seed: int) -> None:
    """Finish rows and publish shards at random until killed; note what was synced."""
    chance = random.Random(seed)
    group = open_group(folder / "predictions.zarr", made.path)
    watch = LeaseWatch(folder / "leases", seconds)
    journals = JournalIndex(JournalFolder(folder / "journals"))
    real = whole.rename

    def rename(partial, path, before):
        real(partial, path, before)
        if chance.random() < 0.03:  # a random moment may well never be this one
            os.kill(os.getpid(), signal.SIGKILL)

    whole.rename = rename
    with (
        JournalWriter(folder / "journals" / f"{attempt}.journal") as journal,
        (folder / f"{attempt}.log").open("a") as log,
    ):
        while True:
            finished = [chance.randrange(group.rows) for _ in range(chance.randrange(1, 6))]
            for row in finished:
                journal.append(NUMBER, row, values(made, row), recipe=1, fit_seconds=row)
            journal.sync()
            log.write("".join(f"{row}\n" for row in finished))
            log.flush()
            try:
                publish = chance.randrange(group.shards)
                shards.publish(group, publish, journals, watch)
            except LeaseHeld:
                continue


def publish_suspended(
    folder: Path, made: GroupSpec, seconds: float, before: str, marker: Path
) -> None:
    """Publish shard 0, but stop right before the file of one array is renamed."""
    group = open_group(folder / "predictions.zarr", made.path)
    watch = LeaseWatch(folder / "leases", seconds)
    real, stopped = whole.rename, []

    def rename(partial, path, check):
        def stop() -> None:
            check()
            if path.parent.name == before and not stopped:
                stopped.append(path)
                marker.touch()
                os.kill(os.getpid(), signal.SIGSTOP)

        real(partial, path, stop)

    whole.rename = rename
    shards.publish(group, 0, JournalIndex(JournalFolder(folder / "journals")), watch, wait=60)
