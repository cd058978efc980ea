"""Walltimes that were too short for one fit, and of tasks from before they were raised."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from manyseed.analysis.counts import counted, duration
from manyseed.orchestrator.errors import UserError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.profiles import own_profile
from manyseed.orchestrator.submissions.submission import (
    Submission,
    TaskState,
    tasks_known,
    training,
)
from manyseed.orchestrator.tasks.attempts import MORE_TIME
from manyseed.orchestrator.tasks.task import held_rows
from manyseed.slurm.profile import Profile


def was_too_short(task: TaskState) -> bool:
    """Return whether a task broke as its walltime cut its first fits every time."""
    return task.state == "broken" and task.last.reason.endswith(MORE_TIME)


def walltime(submission: Submission, task: TaskState) -> tuple[str, float]:
    """Return a task's resource class, and the walltime it asked for in seconds; 0: unknown."""
    for array in submission.intent.arrays:
        if array.first <= task.number < array.first + array.count:
            return array.resource, submission.intent.walltime.get(array.resource, 0.0)
    return "cpu", 0.0


def require_more_time(
    paths: SweepPaths,
    earlier: Sequence[Submission],
    states: Sequence[Sequence[TaskState]],
    rows: pl.DataFrame,
    profile: Profile,
) -> None:
    """Refuse to submit runs with a walltime in which they got nowhere on this cluster.

    `rows`: the runs to submit: columns group and row.
    """
    for submission, tasks in zip(earlier, states, strict=True):
        for task in tasks if submission.cluster == profile.name else ():
            resource, before = walltime(submission, task)
            now = _of_profile(profile, resource)
            if not was_too_short(task) or now is None or now > before:
                continue
            held = held_rows([submission.files.task(task.number)])
            if n := len(rows.join(held, on=["group", "row"], how="semi")):
                raise UserError(
                    f"was too short for one fit: {counted(n, 'run')} of task "
                    f"{submission.number}/{task.number} had {duration(before)} three times, and "
                    "none finished",
                    file=profile.path,
                    key=f"{resource}.time",
                    value=_time(now),
                    remedy=f'write more, such as time = "{_time(2 * before)}", then: '
                    f"{training(paths, 'resume')}",
                )


def shorter(paths: SweepPaths, listed: Sequence[Submission]) -> str:
    """Say which tasks that wait or train have less time than their profile gives by now, if any."""
    found: dict[tuple[str, float, float], int] = {}
    for submission, tasks in zip(listed, tasks_known(listed), strict=True):
        alive = [task for task in tasks if task.is_alive]
        profile = own_profile(submission.intent) if alive else None
        if profile is None:
            continue
        for task in alive:
            resource, before = walltime(submission, task)
            now = _of_profile(profile, resource)
            if before and now is not None and before < now:
                key = (str(profile.path), before, now)
                found[key] = found.get(key, 0) + 1
    for (file, before, now), n in found.items():
        have = "1 task has" if n == 1 else f"{n:,} tasks have"
        return (
            f"{have} the earlier walltime of {duration(before)}; for the {duration(now)} that "
            f"{file} gives now: {command('cancel', paths.directory, '--now')}, then "
            f"{training(paths, 'resume')}"
        )
    return ""


def _of_profile(profile: Profile, resource: str) -> float | None:
    known = {"cpu": profile.cpu, "gpu": profile.gpu}.get(resource)
    return None if known is None else known.minutes * 60.0


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02}:00"
