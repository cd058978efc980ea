"""What keeps a sweep from going on, with remedies, as its status tells."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import polars as pl

from manyseed.analysis.counts import duration
from manyseed.orchestrator.disk.placing import read_end
from manyseed.orchestrator.errors import ManyseedError, StoreError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.progress.watch import summed
from manyseed.orchestrator.store.ledger import ledger_damage
from manyseed.orchestrator.submissions.memory import lacking
from manyseed.orchestrator.submissions.stopping import held
from manyseed.orchestrator.submissions.submission import (
    Submission,
    TaskState,
    lost_failures,
    lost_files,
    tasks_known,
    training,
)
from manyseed.orchestrator.submissions.walltimes import walltime, was_too_short
from manyseed.orchestrator.survey import Survey
from manyseed.orchestrator.sweepstore import lost_groups, ways_back
from manyseed.orchestrator.tasks.attempts import UNREADABLE
from manyseed.orchestrator.tasks.task import held_rows
from manyseed.orchestrator.working.node import broken_nodes, is_environment
from manyseed.slurm.states import to_start

_SHOWN = 3
_LOG_BYTES = 20_000
_OF_SCRIPT = re.compile(r"\S*(?:slurm_script|\.sh): line \d+: (.*)")


Behind = list[tuple[Submission, list[TaskState]]]
"""Submissions, newest first, with their broken tasks whose missing runs no later task holds."""


def behind(
    state: Survey, listed: Sequence[Submission], tasks: Sequence[Sequence[TaskState]]
) -> Behind:
    """Return the tasks that broke, or never began, and left runs that nothing trains since.

    `listed`: a sweep's submissions, oldest first. `tasks`: the tasks of each.
    """
    ended = [[task for task in states if _is_broken(task)] for states in tasks]
    found: Behind = []
    if not state.counts["missing"] or not any(ended):
        return found
    missing = state.with_state("missing").select("group", "row")
    for submission, states in reversed([*zip(listed, ended, strict=True)]):
        file = submission.files.task
        left = [task for task in states if len(_among(missing, [file(task.number)], "semi"))]
        found += [(submission, left)] if left else []
        missing = _among(missing, map(file, range(submission.intent.tasks)), "anti")
    return found


def _is_broken(task: TaskState) -> bool:
    return task.state == "broken" or _never_began(task)


def _never_began(task: TaskState) -> bool:
    return task.state == "failed" and not task.attempts


def _among(runs: pl.DataFrame, files: Iterable[Path], how: Literal["semi", "anti"]) -> pl.DataFrame:
    """Return those of some runs that these tasks hold (semi), or do not; lost tasks hold none."""
    files = [*files]
    try:
        held_there = held_rows(files)
    except (ManyseedError, OSError):  # it is named beside
        read = [held_rows([])]
        for file in files:
            with suppress(ManyseedError, OSError):
                read.append(held_rows([file]))
        held_there = pl.concat(read)
    return runs.join(held_there, on=["group", "row"], how=how)


def in_hand(state: Survey, listed: Sequence[Submission]) -> int:
    """Return how many of the missing runs have tasks of these submissions that are alive."""
    alive = [
        one.files.task(task.number)
        for one, tasks in zip(listed, tasks_known(listed), strict=True)
        for task in tasks
        if task.is_alive
    ]
    missing = state.with_state("missing").select("group", "row")
    return len(missing) - len(_among(missing, alive, "anti"))


def unheld(
    state: Survey, listed: Sequence[Submission], tasks: Sequence[Sequence[TaskState]]
) -> pl.DataFrame:
    """Return the missing runs that no task holds which waits or trains: columns group and row.

    Files of tasks, of which there may be thousands, are read only where tasks lost their runs, or
    hold fewer than are missing.
    """
    missing = state.with_state("missing").select("group", "row")
    alive = [
        (submission, task)
        for submission, states in zip(listed, tasks, strict=True)
        for task in states
        if task.is_alive
    ]
    if missing.is_empty() or not alive:
        return missing
    whole = [
        sum(task.done + task.failed for task in states)
        for states in tasks
        if all(task.is_alive or task.state == "finished" for task in states)
    ]
    n_submitted = sum(submission.n_runs for submission in listed)
    if len(whole) == len(listed) and len(missing) <= n_submitted - sum(whole):
        return missing.clear()
    return _among(missing, [one.files.task(task.number) for one, task in alive], "anti")


def to_change(left_behind: Behind) -> str:
    """Return what must change before missing runs can be trained, to precede the command.

    Empty if nothing is known to.
    """
    for submission, left in left_behind:
        profile = submission.intent.profile or "the profile"
        if cut := [*filter(was_too_short, left)]:
            times = [walltime(submission, task)[1] for task in cut]
            than = f" than {duration(max(times))}" if max(times) else ""
            return f"With more time{than} in {profile}"
        if any(map(_never_began, left)):
            return f"Once {profile} is corrected"
    return ""


def problems(
    paths: SweepPaths,
    state: Survey,
    listed: Sequence[Submission],
    tasks: Sequence[Sequence[TaskState]],
    left_behind: Behind,
    rest: pl.DataFrame,
) -> Iterator[str]:
    """Yield a sentence for each problem of a sweep; arguments as those of `behind`.

    `rest`: as `unheld` returns.
    """
    yield from map(_foreign, state.foreign)
    yield from _changed_data(paths, state)
    is_unfinished = bool(state.counts["missing"] or state.counts["failed"])
    yield from _of_tasks(paths, listed, tasks, left_behind, rest, is_unfinished=is_unfinished)
    yield from (f"{file} is lost: restore it" for file in lost_files(paths))
    yield from _lost_groups(paths, state.plan)
    yield from _since_sealed(paths, state.counts)
    yield from lost_failures(listed) if state.counts["missing"] else []
    if state.unpublished and not any(task.is_alive for states in tasks for task in states):
        finished = state.counts["done"] + state.counts["copy"]
        yield (
            f"{state.unpublished:,} of {finished:,} finished runs are in journals alone, which "
            f"Zarr readers do not see: {command('verify', paths.directory, '--compact')} "
            "(analyze does so, too)"
        )


def _changed_data(paths: SweepPaths, state: Survey) -> Iterator[str]:
    if state.counts["missing"]:
        from manyseed.orchestrator.submissions.requirements import of_changed_data  # reads the file

        yield from of_changed_data(paths, state)


def _since_sealed(paths: SweepPaths, counts: Mapping[str, int]) -> list[str]:
    if not paths.receipt.exists():
        return []
    from manyseed.orchestrator.receipt import changed

    return [*filter(None, [changed(paths, counts)])]


def _lost_groups(paths: SweepPaths, plan: Plan) -> Iterator[str]:
    try:
        for spec in lost_groups(paths, plan):
            yield f"{paths.store / spec.path} is lost, with all its runs: {ways_back(plan)}"
    except StoreError as error:  # of another group
        yield str(error)


def _foreign(file: Path) -> str:
    """Return the message about a journal of another sweep."""
    return (
        f"{file} holds runs of another sweep, which do not count here: move it to "
        "tasks/journals of the sweep that it belongs to"
    )


def _of_tasks(
    paths: SweepPaths,
    listed: Sequence[Submission],
    tasks: Sequence[Sequence[TaskState]],
    left_behind: Behind,
    rest: pl.DataFrame,
    *,
    is_unfinished: bool,
) -> Iterator[str]:
    """Yield problems of the last submission and of those still alive, with remedies.

    Unreadable files are named for all submissions.
    """
    if damage := ledger_damage(paths.journals):
        yield damage
    yield from _unreadable(tasks)
    if not listed:
        return
    last = listed[-1]
    current = [
        task
        for submission, states in zip(listed, tasks, strict=True)
        if submission is last or any(task.is_alive for task in states)
        for task in states
    ]
    lost = _lost(listed, tasks, rest)
    resume = training(paths, "resume")
    yield from lacking(paths, listed, tasks, current)
    if task := set_aside(listed, tasks):
        n = task.last.set_aside
        ended = "1 run ended its process" if n == 1 else f"{n:,} runs ended their process"
        shown = command("logs", paths.directory, task.job_id or f"{last.number}/{task.number}")
        yield f"{ended} twice, and {'was' if n == 1 else 'were'} left out: {shown}"
    for state, text in _LOST.items():
        if those := lost.get(state):
            how = _printed_by(paths, those[-1]) if state == "failed" else ""
            yield f"{_tasks(len(those))} {text}{how}: {resume} trains the remaining runs"
    if not lost and len(rest) and any(task.is_alive for task in current):
        runs = "1 missing run belongs" if len(rest) == 1 else f"{len(rest):,} missing runs belong"
        change = to_change(left_behind)
        first = f". {change}" if change else ""
        yield f"{runs} to no task that waits or trains{first}: {resume}"
    yield from _before_training(paths, last, tasks[-1])
    if is_unfinished:
        yield from _of_setup(paths, last, tasks[-1])
    for submission, left in left_behind:
        if submission is not last:
            yield from _before_training(paths, submission, left)
    if "killed" in lost and (reason := summed(last, current).reason):
        yield reason
    yield from held(listed, tasks, resume)
    waiting = Counter(task.note for task in current if task.state == "waiting" and task.note)
    for note, count in waiting.most_common(1):
        if note not in ("Priority", "Resources", "None"):
            text = f"{count:,} {'task is' if count == 1 else 'tasks are'} waiting: {note}"
            if change := to_start(note):
                file = next((one.intent.profile for one in listed[::-1] if one.intent.profile), "")
                steps = f"{command('cancel', paths.directory)}, then {resume}"
                text += f", which does not pass: {change} in {file or 'the profile'}, {steps}"
            yield text
    told = [*_broken(current)]
    yield from told
    reasons = Counter(task.last.reason for _, left in left_behind for task in left)
    for reason, count in reasons.most_common(_SHOWN):
        if reason and not any(reason in text for text in told):
            yield _ended(count, reason)


_LOST = {
    "timeout": "ended by the walltime",
    "node_fail": "lost with a node",
    "killed": "killed",
    "failed": "ended while training",
    "gone": "ended before training (cancelled or lost: SLURM does not say)",
}
"""What became of tasks that ended in these states."""


def _lost(
    listed: Sequence[Submission], tasks: Sequence[Sequence[TaskState]], rest: pl.DataFrame
) -> dict[str, list[TaskState]]:
    """Return the tasks that ended in the states of `_LOST`, where they left some of these runs.

    Only of submissions that are alive, and of the last.
    """
    found: dict[str, list[TaskState]] = defaultdict(list)
    for submission, states in zip(listed, tasks, strict=True) if len(rest) else ():
        ended = [task for task in states if task.state in _LOST and not _never_began(task)]
        is_last = submission is listed[-1]
        if ended and (is_last or any(task.is_alive for task in states)):
            files = [submission.files.task(task.number) for task in ended]
            if is_last or len(_among(rest, files, "semi")):
                for task in ended:
                    found[task.state].append(task)
    return found


def _printed_by(paths: SweepPaths, task: TaskState) -> str:
    """Return with which exit code a task's job ended, and the command that shows its log."""
    told = f"{task.note}; " if task.note else ""
    return f" ({told}see {command('logs', paths.directory, task.job_id)})"


def _before_training(
    paths: SweepPaths, submission: Submission, tasks: Sequence[TaskState]
) -> Iterator[str]:
    """Say what tasks printed last that ended with an error before they could report anything."""
    ended = [*filter(_never_began, tasks)]
    if not ended:
        return
    job = ended[0].job_id
    setup, last, _ = _printed(submission, ended[0])
    printed = " … ".join(dict.fromkeys(filter(None, (setup, last))))
    told = f": {printed}" if printed else ""
    yield (
        f"{_tasks(len(ended))} stopped by an error before training{told}; "
        f"see setup, modules and python in {submission.intent.profile or 'the profile'}, and "
        f"{command('logs', paths.directory, job)}; correct it, then: {training(paths, 'resume')}"
    )


def _printed(submission: Submission, task: TaskState) -> tuple[str, str, int]:
    """Return what Bash said of the script of a task's job, the first time, and its last line.

    Also of how many lines it said something.
    """
    with suppress(OSError, ManyseedError):
        name = submission.job_name(task.number, task.job_id)
        text = read_end(submission.files.printed_errors(name), _LOG_BYTES)
        lines = ["".join(filter(str.isprintable, line)).strip() for line in text.splitlines()]
        found = [match[1] for line in lines if (match := _OF_SCRIPT.match(line))]
        last = next(filter(None, reversed(lines)), "")
        return next(iter(found), ""), last, len({*found})
    return "", "", 0


def _of_setup(paths: SweepPaths, submission: Submission, tasks: Sequence[TaskState]) -> list[str]:
    """Say what failed in the setup of a job whose task began all the same."""
    begun = next((task for task in tasks if task.attempts and task.job_id), None)
    if begun is None:
        return []
    said, _, n = _printed(submission, begun)
    if not said:
        return []
    shown = command("logs", paths.directory, begun.job_id)
    lines = "a line" if n == 1 else f"{n} lines"
    more = f" and {n - 1} more" if n > 1 else ""
    return [f"{lines} of setup failed in job {begun.job_id}, which went on: {said}{more}; {shown}"]


def set_aside(
    listed: Sequence[Submission], tasks: Sequence[Sequence[TaskState]]
) -> TaskState | None:
    """Return a task of the last submission whose runs ended their processes, not for memory."""
    last = tasks[-1] if listed else ()
    return next((one for one in last if one.last.set_aside and not one.last.killed), None)


def _unreadable(tasks: Sequence[Sequence[TaskState]]) -> list[str]:
    attempts = [attempt for states in tasks for task in states for attempt in task.attempts]
    return [attempt.reason for attempt in attempts if attempt.state == UNREADABLE][:_SHOWN]


def _broken(tasks: Sequence[TaskState]) -> Iterator[str]:
    attempts = [attempt for task in tasks for attempt in task.attempts]
    nodes = broken_nodes(attempts)
    if is_environment(attempts):
        yield (
            f"{len(nodes)} nodes are broken and none works, so the submission stopped itself; "
            f"{next(iter(nodes))}: {next(iter(nodes.values()))}"
        )
        return
    for node, reason in nodes.items():
        yield f"{node} is broken, tasks avoid it: {reason}"
    others = Counter(
        task.last.reason for task in tasks if task.state == "broken" and task.last.node not in nodes
    )
    for reason, count in others.most_common(_SHOWN):
        yield _ended(count, reason)


def _ended(count: int, reason: str) -> str:
    return f"{_tasks(count)} ended: {reason}"


def _tasks(n: int) -> str:
    return f"{n:,} task was" if n == 1 else f"{n:,} tasks were"
