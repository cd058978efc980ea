"""Which other tasks have, or had, runs of a task's shards: known without opening all of them.

A journal's name says submission and task, and a submission's ``shards.json`` which shards each of
its tasks was given. On a cluster with thousands of tasks, a task so reads the journals of a few.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import JOURNAL, SweepPaths
from manyseed.orchestrator.tasks.submissionpaths import SubmissionPaths
from manyseed.orchestrator.tasks.task import Task
from manyseed.orchestrator.working.queue import Shard

_NAME = re.compile(rf"(\d+)-(\d+)-[0-9a-f]{{8}}-\d+{re.escape(JOURNAL)}")


def journal_name(attempt: str, process: int) -> str:
    """Return the name of a process's journal; `attempt` is ``<submission>-<task>-<random>``."""
    return f"{attempt}-{process:03d}{JOURNAL}"


def write_shards(submission: Path, tasks: Iterable[Collection[Shard]]) -> None:
    """Note what shards each task of a submission was given, in the order of their numbers."""
    write_json(SubmissionPaths(submission).shards, {"tasks": [sorted(shards) for shards in tasks]})


def read_shards(submission: Path) -> list[set[Shard]]:
    """Return what shards each task of a submission was given, in the order of their numbers.

    None where that was not noted, or what was noted cannot be trusted: no more follows from it than
    which journals need not be read.
    """
    try:
        given = read_json(SubmissionPaths(submission).shards)
        tasks = given["tasks"] if isinstance(given, dict) else given  # a list in earlier versions
        return [{_shard(*shard) for shard in shards} for shards in tasks]
    except (FileNotFoundError, DamagedFile, LookupError, TypeError, ValueError):
        return []


def _shard(group: object, shard: object) -> Shard:
    if type(group) is not int or type(shard) is not int:
        raise ValueError
    return group, shard


def shards_of(task: Task) -> set[Shard]:
    """Return the shards that hold a task's runs."""
    return {(span.group, span.shard) for span in task.spans}


def given_since(paths: SweepPaths, submission: Path, task: Task) -> dict[int, set[int]]:
    """Return, by group, those rows of a task's shards that later submissions were given.

    Whoever submitted them took the task for dead: they are no longer its own to train, also where
    its job was requeued, or thawed, meanwhile.
    """
    shards, given = shards_of(task), dict[int, set[int]]()
    for later in paths.submissions():
        if int(later.name) <= int(submission.name):
            continue
        noted = read_shards(later)
        for number, file in enumerate(SubmissionPaths(later).tasks()):
            if number < len(noted) and shards.isdisjoint(noted[number]):
                continue
            with suppress(DamagedFile, FileNotFoundError):  # it trains nothing
                for span in Task.read(file).spans:
                    rows = range(span.row, span.row + span.count)
                    given.setdefault(span.group, set()).update(rows)
    return given


class SharedJournals:
    """Separates journals that may hold rows of some shards from those that cannot.

    What is not known counts as one that may: other names, and submissions whose note is missing or
    damaged.

    Parameters
    ----------
    paths : SweepPaths
    shards : collection of Shard
    """

    def __init__(self, paths: SweepPaths, shards: Collection[Shard]) -> None:
        self._paths = paths
        self._shards = frozenset(shards)
        self._strangers: dict[int, frozenset[int]] = {}

    def may_hold(self, journal: str) -> bool:
        """Return whether a journal may hold rows of the shards."""
        name = _NAME.fullmatch(journal)
        if name is None:
            return True
        submission, task = map(int, name.groups())
        if submission not in self._strangers:
            self._strangers[submission] = self._without(submission)
        return task not in self._strangers[submission]

    def _without(self, submission: int) -> frozenset[int]:
        """Return the tasks of a submission that were given none of the shards."""
        given = read_shards(self._paths.submission(submission))
        return frozenset(n for n, shards in enumerate(given) if self._shards.isdisjoint(shards))
