import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.orchestrator.disk.records import write_json
from manyseed.orchestrator.errors import StoreUnavailable
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.journal import JournalWriter, RowBytes
from manyseed.orchestrator.store.shards import publish
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.tasks.task import Span, Task
from manyseed.orchestrator.working.queue import (
    SharedJournals,
    journal_name,
    read_shards,
    shards_of,
    write_shards,
)
from manyseed.orchestrator.working.worker import Publisher
from tests.orchestrator.store.world import NUMBER, World, finished

SHARD = 4


def task(world: World, *rows: int, source: int = -1) -> Task:
    spans = tuple(Span(NUMBER, row // SHARD, row, 0, 0, row, 1, source) for row in rows)
    return Task({NUMBER: world.spec.path}, {}, spans)


def submission(paths: SweepPaths, number: int, tasks: Iterable[Task]) -> None:
    folder = paths.submission(number)
    folder.mkdir(parents=True)
    write_shards(folder, [shards_of(each) for each in tasks])


def journal(paths: SweepPaths, attempt: str) -> JournalWriter:
    return JournalWriter(paths.journals / journal_name(attempt, 0))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, n=12)


def test_a_task_finds_all_that_its_shards_have_and_opens_nothing_else(world: World) -> None:
    paths = SweepPaths(world.folder)
    own, beside, stranger = task(world, 4, 5, 6), task(world, 7, 8), task(world, 0, 1)
    submission(paths, 1, [own, beside, stranger])
    submission(paths, 2, [stranger, own])
    for attempt, row in (
        ("0001-0000-aaaaaaaa", 4),  # an earlier attempt
        ("0001-0001-bbbbbbbb", 7),  # another task, the same shard
        ("0003-0000-cccccccc", 5),  # a submission that noted nothing
        ("by-hand", 6),
    ):
        with journal(paths, attempt) as writer:
            world.append(writer, row)
    unread = ("0001-0002-dddddddd", "0002-0000-eeeeeeee")
    for attempt in unread:
        (paths.journals / journal_name(attempt, 0)).mkdir()  # whoever opens it fails
    publisher = Publisher(paths, own)
    assert publisher.finished() == {NUMBER: {4, 5, 6, 7}}
    publisher.publish(NUMBER, 1)
    assert finished(world.group) == {4, 5, 6, 7}
    with pytest.raises(StoreUnavailable):
        Publisher(paths, stranger)


def test_what_was_published_and_what_comes_later_is_found(world: World) -> None:
    paths = SweepPaths(world.folder)
    own, late = task(world, 4, 5), task(world, 5, 6)
    submission(paths, 1, [own])
    with journal(paths, "0001-0000-aaaaaaaa") as writer:
        world.append(writer, 4)
    publish(world.group, 1, JournalIndex(JournalFolder(paths.journals)), world.watch)
    (paths.journals / journal_name("0001-0000-aaaaaaaa", 0)).unlink()
    publisher = Publisher(paths, own)
    assert publisher.finished() == {NUMBER: {4}}
    submission(paths, 2, [task(world, 0), late])
    with journal(paths, "0002-0001-aaaaaaaa") as writer:
        world.append(writer, 6)
    assert publisher.journaled(NUMBER) == {6}
    assert publisher.finished() == {NUMBER: {4, 6}}


def test_copies_find_what_they_equal_in_another_shard(world: World) -> None:
    paths = SweepPaths(world.folder)
    first, copies = task(world, 0), task(world, 4, source=0)
    submission(paths, 1, [first])
    submission(paths, 2, [copies])
    with journal(paths, "0001-0000-aaaaaaaa") as writer:
        world.append(writer, 0)
    with journal(paths, "0002-0000-aaaaaaaa") as writer:
        writer.append_copy(NUMBER, 4, 0)
    Publisher(paths, copies).publish(NUMBER, 1)
    assert finished(world.group) == {4}


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_nothing_of_a_shard_is_left_out(tmp_path_factory, data) -> None:
    """Whatever tasks share shards, a filtered look finds what a full one finds."""
    paths = SweepPaths(tmp_path_factory.mktemp("sweep"))
    places = st.tuples(st.integers(0, 2), st.integers(0, 19))
    tasks = st.sets(places, min_size=1, max_size=4)
    given_to = data.draw(st.lists(st.lists(tasks, min_size=1, max_size=4), max_size=3))
    value = RowBytes(b"label", b"score")
    for number, submitted in enumerate(given_to, 1):
        folder = paths.submission(number)
        folder.mkdir(parents=True)
        if data.draw(st.booleans(), label="noted"):
            write_shards(folder, [{(g, row // SHARD) for g, row in rows} for rows in submitted])
        for which, rows in enumerate(submitted):
            with journal(paths, f"{number:04d}-{which:04d}-0123abcd") as writer:
                for group, row in sorted(rows):
                    writer.append(group, row, value, recipe=0, fit_seconds=1)
    mine = data.draw(st.sets(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=1))
    some = JournalIndex(JournalFolder(paths.journals), SharedJournals(paths, mine).may_hold)
    every = JournalIndex(JournalFolder(paths.journals))
    for group, shard in mine:
        span = (group, shard * SHARD, (shard + 1) * SHARD)
        assert some.records(*span) == every.records(*span)


def test_submissions_note_what_tasks_were_given(quick: Sweep) -> None:
    paths = quick.paths
    (folder,) = paths.submissions()
    every = shards_of(Task.read(folder / "task-0000.json"))
    assert read_shards(folder) == [every]
    (attempt,) = (folder / "lives").iterdir()
    name = journal_name(f"{folder.name}-{attempt.name}", 0)
    assert all(SharedJournals(paths, {shard}).may_hold(name) for shard in every)
    group, shard = np.max(sorted(every), axis=0)
    assert not SharedJournals(paths, {(group, shard + 1)}).may_hold(name)


def test_what_an_earlier_version_noted_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "shards.json", [[[0, 1], [0, 2]], [[1, 1]]])
    assert read_shards(tmp_path) == [{(0, 1), (0, 2)}, {(1, 1)}]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff",
        b"null",
        b"5",
        b"{}",
        b'{"tasks":5}',
        b"[[5]]",
        b"[[[0,1,2]]]",
        b'[[[0,"1"]]]',
        b"[[[0,null]]]",
        b"[[[[],1]]]",
        "a bit",
        "a pipe",
    ],
)
def test_a_damaged_note_lets_every_journal_be_read(tmp_path: Path, damage: bytes | str) -> None:
    paths = SweepPaths(tmp_path)
    folder = paths.submission(1)
    folder.mkdir(parents=True)
    name = journal_name("0001-0000-aaaaaaaa", 0)
    write_shards(folder, [{(0, 0)}])
    assert not SharedJournals(paths, {(0, 1)}).may_hold(name)
    file = folder / "shards.json"
    if isinstance(damage, bytes):
        file.write_bytes(damage)
    elif damage == "a bit":
        file.write_bytes(file.read_bytes().replace(b"[0,0]", b"[0,2]"))
    else:
        file.unlink()
        os.mkfifo(file)
    assert SharedJournals(paths, {(0, 1)}).may_hold(name)
