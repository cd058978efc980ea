"""The part of a task that publishes shards of finished runs while others still train."""

from __future__ import annotations

import math
import time

import numpy as np

from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.errors import LeaseHeld
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.store.journals.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.layout.arrays import COPY, DONE
from manyseed.orchestrator.store.layout.groups import Group, open_group
from manyseed.orchestrator.store.publishing.shards import publish
from manyseed.orchestrator.store.reading.reader import read_rows
from manyseed.orchestrator.tasks.task import Task
from manyseed.orchestrator.working.neighbours import SharedJournals, shards_of
from manyseed.orchestrator.working.queue import Shard

_EVERY_SECONDS = 15.0
_COST_SHARE = 0.05
"""Incomplete shards are published repeatedly so that readers see them grow: at most every 15 s, and
for at most this share of the time."""
_OFTEN_TASKS = 8
_MOST_SECONDS = 600.0
"""If a submission has more tasks than `_OFTEN_TASKS`, each publishes proportionally less often, but
at least every 10 min, so that together they do not load the disk more."""
_LEASE_WAIT = 30.0


class Publisher:
    """Publishes the shards of a task, one of `tasks` tasks that do so at the same time."""

    def __init__(self, paths: SweepPaths, task: Task, tasks: int = 1) -> None:
        self._every = min(_MOST_SECONDS, _EVERY_SECONDS * max(1.0, tasks / _OFTEN_TASKS))
        self.watch = LeaseWatch(paths.leases)
        self._groups: dict[int, Group] = {
            number: open_group(paths.store, path) for number, path in task.groups.items()
        }
        self._shards = shards_of(task)
        neighbours = SharedJournals(paths, self._shards | self._sources(task))
        self._index = JournalIndex(JournalFolder(paths.journals, task.plan), neighbours.may_hold)
        self._dirty: dict[tuple[int, int], None] = {}
        self._next = time.monotonic() + self._every

    def _sources(self, task: Task) -> set[Shard]:
        """Return the shards of the runs that a task's copies are copied from."""
        lengths = {number: group.spec.shard_length for number, group in self._groups.items()}
        copies = (span for span in task.spans if span.source >= 0)
        return {(span.group, span.source // lengths[span.group]) for span in copies}

    def finished(self) -> dict[int, set[int]]:
        """Return, by group, the rows of the task's shards that are published or journaled."""
        self._index.refresh()
        finished = {}
        for number, group in self._groups.items():
            spans = sorted(group.span(shard) for owner, shard in self._shards if owner == number)
            rows = np.concatenate([np.arange(*span) for span in spans])
            stored = rows[np.isin(read_rows(group, ("status",), rows)["status"], (DONE, COPY))]
            finished[number] = {*stored.tolist(), *self._index.rows(number).tolist()}
        return finished

    def journaled(self, group: int) -> set[int]:
        """Return the rows of a group that the journals of these shards now hold."""
        self._index.refresh()
        return set(self._index.rows(group).tolist())

    def touch(self, group: int, shard: int) -> None:
        """Mark a shard as having runs that are not published yet."""
        self._dirty[group, shard] = None

    def publish(self, group: int, shard: int, wait: float = 0.0) -> None:
        """Publish a shard now, or leave it for later if another process is publishing it."""
        try:
            publish(self._groups[group], shard, self._index, self.watch, wait=wait)
        except LeaseHeld:
            return
        self._dirty.pop((group, shard), None)

    def publish_due(self) -> None:
        """Publish the shard that has waited longest, if a publication is due."""
        started = time.monotonic()
        if not self._dirty or started < self._next:
            return
        shard = next(iter(self._dirty))
        del self._dirty[shard]
        self._dirty[shard] = None  # last in line, in case another process holds its lease
        self.publish(*shard)
        ended = time.monotonic()
        pause = (ended - started) / _COST_SHARE
        self._next = ended + max(pause, self._every / (len(self._dirty) + 1))

    def publish_all(self, seconds: float | None = None) -> None:
        """Publish all finished runs; with a limit in seconds, skip shards whose lease is held."""
        until = time.monotonic() + (math.inf if seconds is None else seconds)
        for shard in list(self._dirty):
            if time.monotonic() < until:
                self.publish(*shard, wait=_LEASE_WAIT if seconds is None else 0.0)
