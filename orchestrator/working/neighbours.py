"""Find the other tasks that have, or had, runs in a task's shards, without opening all tasks.

A journal's name contains the submission and the task, and a submission's ``shards.json`` lists the
shards of each task. So a task on a cluster with thousands of tasks reads only a few journals.
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
    """Record the shards of each task of a submission, in the order of task numbers."""
    write_json(SubmissionPaths(submission).shards, {"tasks": [sorted(shards) for shards in tasks]})


def read_shards(submission: Path) -> list[set[Shard]]:
    """Return the shards of each task of a submission, in the order of task numbers.

    The list is empty if they were not recorded or the record is invalid; then more journals are
    read, with no other effect.
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
    """Return, by group, the rows in a task's shards that later submissions were given.

    Their submitter considered the task dead, so they are no longer the task's to train, even if
    its job was requeued or resumed in the meantime.
    """
    shards, given = shards_of(task), dict[int, set[int]]()
    for later in paths.submissions():
        if int(later.name) <= int(submission.name):
            continue
        later_shards = read_shards(later)
        for number, file in enumerate(SubmissionPaths(later).tasks()):
            if number < len(later_shards) and shards.isdisjoint(later_shards[number]):
                continue
            with suppress(DamagedFile, FileNotFoundError):  # such a task trains nothing
                for span in Task.read(file).spans:
                    rows = range(span.row, span.row + span.count)
                    given.setdefault(span.group, set()).update(rows)
    return given


class SharedJournals:
    """Separates journals that may hold rows of some shards from those that cannot.

    In doubt a journal may: if it has an unknown name, or its submission's ``shards.json`` is
    missing or damaged.

    Parameters
    ----------
    paths : SweepPaths
    shards : collection of Shard
    """

    def __init__(self, paths: SweepPaths, shards: Collection[Shard]) -> None:
        self._paths = paths
        self._shards = frozenset(shards)
        self._unrelated: dict[int, frozenset[int]] = {}

    def may_hold(self, journal: str) -> bool:
        """Return whether a journal may hold rows of the shards."""
        name = _NAME.fullmatch(journal)
        if name is None:
            return True
        submission, task = map(int, name.groups())
        if submission not in self._unrelated:
            tasks = enumerate(read_shards(self._paths.submission(submission)))
            self._unrelated[submission] = frozenset(
                n for n, shards in tasks if self._shards.isdisjoint(shards)
            )
        return task not in self._unrelated[submission]
