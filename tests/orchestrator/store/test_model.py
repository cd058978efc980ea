"""A random history of one sweep's store, against sets of numbers.

The model knows which rows were synced and which are published. Whatever happens in between, what
is published stays and is true, and what was synced can be published.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from manyseed.jobs import whole
from manyseed.orchestrator.disk.lease import Lease, look
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.compact import compact
from manyseed.orchestrator.store.journal import JournalWriter
from manyseed.orchestrator.store.metadata import extend_group
from manyseed.orchestrator.store.repair import drop, repair
from manyseed.orchestrator.store.shards import lease_name, publish
from manyseed.orchestrator.store.verify import verify
from tests.orchestrator.store.test_verify import overwrite
from tests.orchestrator.store.world import (
    NUMBER,
    REPEATS,
    World,
    assert_true_rows,
    finished,
    rows,
)


class Killed(BaseException):
    """The process ends here."""


class StoreMachine(RuleBasedStateMachine):
    writers = Bundle("writers")

    @initialize()
    def plan(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="store-"))
        self.world = World(self.folder, n=8)
        self.world.write_splits()
        self.index = self.world.index()
        self.planned = set(range(8))
        self.original: dict[int, int] = {}  # rows that are copies, and of what
        self.synced: set[int] = set()  # and not dropped since
        self.unsynced: dict[str, set[int]] = {}
        self.published: set[int] = set()
        self.real_rename = whole.rename
        self.unpatched = encoding.ATTEMPTS
        self.alive: list[JournalWriter] = []
        self.changed = True
        encoding.ATTEMPTS = 1

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            whole.rename = self.real_rename
            encoding.ATTEMPTS = self.unpatched
            shutil.rmtree(self.folder)

    # --- workers ---

    @rule(target=writers)
    def start_attempt(self):
        journal = self.world.journal()
        self.alive.append(journal)
        self.unsynced[journal.path.name] = set()
        return journal

    @rule(journal=writers, numbers=st.lists(st.integers(0, 99), min_size=1, max_size=5))
    def append(self, journal, numbers) -> None:
        if journal._file is None:
            return
        for number in numbers:
            row = sorted(self.planned)[number % len(self.planned)]
            if row in self.original:
                journal.append_copy(NUMBER, row, self.original[row])
            else:
                self.world.append(journal, row)
            self.unsynced[journal.path.name].add(row)

    @rule(journal=writers)
    def sync(self, journal) -> None:
        if journal._file is not None:
            journal.sync()
            self.synced |= self.unsynced[journal.path.name]
            self.unsynced[journal.path.name] = set()

    @rule(journal=consumes(writers), lost=st.floats(0, 1))
    def power_cut(self, journal, lost) -> None:
        """What was not synced is lost from some byte on."""
        if journal._file is None:
            return
        os.close(journal._file)
        journal._file = None
        keep = journal._synced + round(lost * journal.unsynced)
        os.truncate(journal.path, keep)

    def end_attempts(self) -> None:
        """Kill all workers, as whoever compacts or repairs has to make sure."""
        for journal in self.alive:
            if journal._file is not None:
                os.close(journal._file)
                journal._file = None
        self.alive = []
        self.changed = True

    # --- publishers ---

    @rule(shard=st.integers(0, 9), stop=st.none() | st.integers(0, 7))
    def publish(self, shard, stop) -> None:
        """Publish; perhaps be killed before some file is replaced."""
        self.changed = True
        shard %= self.world.group.shards
        placed = []

        def rename(partial, path, before):
            if len(placed) == stop:
                raise Killed
            placed.append(path)
            self.real_rename(partial, path, before)

        whole.rename = rename
        try:
            publish(self.world.group, shard, self.index, self.world.watch)
        except Killed:
            self.free(shard)
        else:
            self.published |= {row for row in self.readable() if self.shard(row) == shard}
        finally:
            whole.rename = self.real_rename

    @rule(shard=st.integers(0, 9), at=st.integers(0, 6), data=st.data())
    def publish_suspended(self, shard, at, data) -> None:
        """One is suspended right before a rename, another publishes meanwhile, the first wakes."""
        self.changed = True
        group, done = self.world.group, []
        shard %= group.shards

        def rename(partial, path, before):
            def suspended():
                before()
                if len(done) == at:
                    done.append(path)
                    self.free(shard)
                    whole.rename = self.real_rename
                    row = data.draw(st.sampled_from(sorted(self.planned)))
                    if row not in self.original:
                        self.world.finish(row)
                        self.synced.add(row)
                    publish(group, shard, self.world.index(), self.world.watch)
                    self.published |= {r for r in self.readable() if self.shard(r) == shard}

            self.real_rename(partial, path, suspended)
            done.append(path)

        whole.rename = rename
        try:
            publish(group, shard, self.index, self.world.watch)
        finally:
            whole.rename = self.real_rename
        self.published |= {row for row in self.readable() if self.shard(row) == shard}

    def free(self, shard) -> None:
        """Take over the lease of a dead holder, then give it back."""
        name = lease_name(self.world.group, shard)
        lease = Lease(self.world.watch, name)
        assert lease._supersede(look(self.world.watch.folder, name))
        lease.release()

    # --- people ---

    @rule()
    @precondition(lambda self: self.world.group.rows < 20)
    def extend(self) -> None:
        start = self.world.group.rows
        added = 3
        self.world.group = extend_group(
            self.world.group, rows(added, first=start), REPEATS, start=start
        )
        self.planned |= set(range(start, start + added))
        # the last one equals a run of the first shard
        self.original[start + added - 1] = 1

    @rule()
    def compact(self) -> None:
        self.end_attempts()
        compact(self.world.store, self.world.journal_folder, self.world.watch)
        self.published |= self.readable()

    @rule(data=st.data())
    def drop(self, data) -> None:
        self.end_attempts()
        row = data.draw(st.sampled_from(sorted(self.planned)))
        drop({self.world.group: [row]}, self.world.journal_folder, self.world.watch)
        self.forget(row)

    @rule(data=st.data())
    @precondition(lambda self: self.published)
    def damage_and_repair(self, data) -> None:
        self.end_attempts()
        row = data.draw(st.sampled_from(sorted(self.published)))
        overwrite(self.world, "margin", row, 3.25)
        findings = list(verify(self.world.group))
        assert {r for finding in findings for r in finding.rows} == {row}
        if repair(
            [self.world.group], findings, self.world.journal_folder, self.world.watch
        ).dropped:
            self.forget(row)
        assert list(verify(self.world.group)) == []

    def forget(self, row) -> None:
        self.synced.discard(row)
        self.published.discard(row)
        for held in self.unsynced.values():
            held.discard(row)

    # --- what always holds ---

    def shard(self, row) -> int:
        return row // self.world.spec.shard_length

    def readable(self) -> set[int]:
        """Rows that were synced and, where they are copies, whose source is there."""
        return {
            row
            for row in self.synced
            if row not in self.original or self.original[row] in self.synced | self.published
        }

    @invariant()
    def published_rows_stay_and_are_true(self) -> None:
        if self.changed:
            self.changed = False
            found = finished(self.world.group)
            assert self.published <= found <= self.planned
            assert_true_rows(self.world.group, found, self.original)

    @invariant()
    def nothing_synced_is_lost(self) -> None:
        self.index.refresh()
        missing = self.synced - set(self.index.rows(NUMBER).tolist())
        assert not missing or missing <= finished(self.world.group)


StoreMachine.TestCase.settings = settings(
    max_examples=10,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_store = StoreMachine.TestCase


@pytest.mark.slow
@pytest.mark.timeout(3600)
class TestLong(StoreMachine.TestCase):
    settings = settings(
        max_examples=100,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
