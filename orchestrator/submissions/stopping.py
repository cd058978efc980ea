"""Stop, pause and throttle submissions, and wait for those asked to stop.

Running tasks read two files of their submission: while ``stop`` exists they finish their fits in
flight and end; they do not train cells in ``skip.json``. Waiting tasks are left to the scheduler,
which cancels them or, for a pause, holds them. A cluster that does not answer keeps
no other submission from being stopped; it is reported afterwards.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from manyseed.analysis.counts import counted
from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.errors import UnavailableError, UserError, command
from manyseed.orchestrator.submissions.scheduler import Scheduler
from manyseed.orchestrator.submissions.submission import SILENT, Submission, TaskState, tasks_of
from manyseed.orchestrator.tasks.intent import LOCAL, NOW, PAUSED, STOPPED, skip_cells, stop_request
from manyseed.orchestrator.tasks.task import Task
from manyseed.slurm import commands
from manyseed.slurm.commands import compact_ids

_Act = Callable[[Scheduler, Iterable[str]], None]

_ENDS = "there, tasks that run end once they read the request; for those that wait, "


def cancel(submissions: Sequence[Submission], *, now: bool = False) -> tuple[int, int]:
    """Stop submissions; return how many tasks were asked to end, and how many will never start.

    Fits in flight are finished, however long they take; with `now` they are killed and remain
    missing.
    """
    content = NOW if now else STOPPED
    return _stop(submissions, content, lambda scheduler, jobs: scheduler.system.cancel(jobs))


def pause(submissions: Sequence[Submission]) -> tuple[int, int]:
    """Stop running tasks and hold waiting ones; return the number of each."""
    alive, silent = _alive(submissions)
    for submission in (*(s for s, _ in alive if s.cluster != LOCAL), *silent):
        remedy = f"let them end: {command('cancel', submission.folder.parents[1])}; later resume"
        submission.scheduler.require_slurm("--pause", "waiting tasks cannot be held", remedy)
    return _stop(submissions, PAUSED, lambda scheduler, jobs: commands.hold(jobs))


def unpause(submissions: Sequence[Submission], dispensable: Callable[[Scheduler], bool]) -> None:
    """Release the tasks that a pause holds; the runs it stopped are missing, to be submitted anew.

    Tasks held by a cluster that cannot be reached stay stopped for good, as others take over.
    """
    paused = [s for s in submissions if s.is_paused]
    states = tasks_of(paused, fresh=True, dispensable=dispensable)
    for submission, tasks in zip(paused, states, strict=True):
        if any(task.is_out_of_sight for task in tasks):
            place(submission.files.stop, STOPPED.encode())
            continue
        submission.files.stop.unlink()
        held = [task.job_id for task in tasks if task.state == "held"]
        if held:
            with submission.scheduler.changing():
                commands.release(held)


def cancel_cells(submissions: Sequence[Submission], cells: Collection[int]) -> int:
    """Stop training some cells; return how many waiting tasks had no others and were cancelled."""
    cancelled, untold = 0, list[str]()
    alive, silent = _alive(submissions)
    for submission in silent:
        skip_cells(submission.folder, cells)
    for submission, tasks in alive:
        skipped = skip_cells(submission.folder, cells)
        idle = [
            task.job_id
            for task in _waiting(tasks)
            if Task.read(submission.files.task(task.number)).cells.keys() <= skipped
        ]
        if not idle:
            continue
        try:
            with submission.scheduler.changing():
                submission.scheduler.system.cancel(idle)
        except UnavailableError as error:
            untold.append(f"{submission.cluster}: {error}")
        else:
            cancelled += len(idle)
    _require_answers(silent, untold, f"{counted(cancelled, 'waiting task')} cancelled")
    return cancelled


def throttle(submissions: Sequence[Submission], parallelism: int) -> int:
    """Limit how many tasks run at once, shared among arrays; return the number of arrays."""
    alive = []
    found, silent = _alive(submissions)
    for submission, tasks in found:
        if submission.cluster == LOCAL:
            continue
        remedy = "set parallelism in the profile, for later submissions"
        submission.scheduler.require_slurm("--throttle", "tasks cannot be throttled", remedy)
        alive.append((submission, [task.job_id for task in tasks if task.is_alive and task.job_id]))
    arrays = {job.partition("_")[0] for _, jobs in alive for job in jobs}
    if not arrays:
        _require_answers(silent, [], "nothing was changed", "")
        raise UserError(
            "no task waits or runs on a cluster",
            remedy="on this machine: cancel, then resume with another --workers",
        )
    each = max(1, parallelism // len(arrays)) if parallelism else 0
    untold: list[str] = []
    for submission, jobs in alive:
        try:
            with submission.scheduler.changing():
                commands.set_parallelism(jobs, each)
        except UnavailableError as error:
            untold.append(f"{submission.cluster}: {error}")
    _require_answers(silent, untold, "other arrays were changed", "")
    return len(arrays)


def _stop(submissions: Sequence[Submission], content: str, act: _Act) -> tuple[int, int]:
    found, silent = _alive(submissions)
    alive = [submission for submission, _ in found]
    for submission in (*alive, *silent):
        if content == NOW or stop_request(submission.folder) in (None, PAUSED):
            place(submission.files.stop, content.encode())
    running = waiting = 0
    untold: list[str] = []
    # a task that starts from now on finds the file; one that started before shows as running
    found, silent_since = _alive(alive)
    silent += silent_since
    running += sum(
        task.state == "running" for tasks in tasks_of(silent, ask=False) for task in tasks
    )
    for submission, tasks in found:
        jobs = [task.job_id for task in _waiting(tasks)]
        running += sum(task.is_alive for task in tasks) - len(jobs)
        if not jobs:
            continue
        try:
            with submission.scheduler.changing():
                act(submission.scheduler, jobs)
        except UnavailableError as error:
            untold.append(f"{submission.cluster}: {error}")
        else:
            waiting += len(jobs)
    held = "held" if content == PAUSED else "cancelled"
    stopped = f"{counted(running, 'task')} asked to stop, {counted(waiting, 'waiting task')} {held}"
    _require_answers(silent, untold, stopped)
    return running, waiting


def _require_answers(
    silent: Sequence[Submission], untold: Sequence[str], done: str, ends: str = _ENDS
) -> None:
    """Raise `UnavailableError` with what was done all the same, if a cluster could not be told.

    `untold`: what clusters said that did answer.
    """
    told = [*(f"{one.cluster}: {SILENT}" for one in silent), *untold]
    if told:
        why = "\n  ".join(dict.fromkeys(told))
        raise UnavailableError(f"{why}\n  {done}; {ends}repeat this when it answers")


def _waiting(tasks: Iterable[TaskState]) -> list[TaskState]:
    """Return the tasks whose jobs wait in a queue or are held there."""
    return [task for task in tasks if task.state in ("waiting", "held") and task.job_id]


def _alive(
    submissions: Sequence[Submission],
) -> tuple[list[tuple[Submission, list[TaskState]]], list[Submission]]:
    """Return those with tasks that are not over; apart, those whose cluster does not answer.

    Jobs that are not listed are looked up: they would start or go on without having been stopped.
    """
    silent: list[Scheduler] = []

    def note(scheduler: Scheduler) -> bool:
        silent.append(scheduler)
        return True

    states = tasks_of(submissions, fresh=True, dispensable=note)
    away = [s for s in submissions if s.cluster != LOCAL and s.scheduler in silent]
    found = [(s, tasks) for s, tasks in zip(submissions, states, strict=True) if s not in away]
    unseen = zip(away, tasks_of(away, ask=False), strict=True)
    return (
        [(s, tasks) for s, tasks in found if any(task.is_alive for task in tasks)],
        [s for s, tasks in unseen if any(task.is_alive for task in tasks)],
    )


def held(
    listed: Sequence[Submission], tasks: Sequence[Sequence[TaskState]], resume: str
) -> Iterator[str]:
    """Say which tasks are held, by a pause or by others, and what lets them go on."""
    found: dict[bool, list[TaskState]] = {True: [], False: []}
    for submission, states in zip(listed, tasks, strict=True):
        found[submission.is_paused] += [task for task in states if task.state == "held"]
    if paused := found[True]:
        yield f"{_are(len(paused))} held: {resume} releases paused tasks"
    if others := found[False]:
        ((why, _),) = Counter(task.note for task in others).most_common(1)
        jobs = " ".join(compact_ids(task.job_id for task in others))
        yield f"{_are(len(others))} held ({why}) and will not start: scontrol release '{jobs}'"


def _are(n: int) -> str:
    return f"{n:,} task is" if n == 1 else f"{n:,} tasks are"


_POLL_SECONDS = 0.25
_PATIENCE = 10.0  # the pause between two checks, in multiples of the time that a check takes


def wait_for_ending(
    submissions: Sequence[Submission],
    seconds: float,
    dispensable: Callable[[Scheduler], bool],
    report: Callable[[str], None],
) -> int:
    """Wait until tasks that were asked to stop have ended; return how many have not.

    They finish their fits in flight first. Tasks that a pause holds in a queue never end by
    themselves, so they are not waited for; nor are tasks that are not visible from here.

    `seconds`: longest time to wait. `dispensable`: as in `tasks_of`. `report`: called once with a
    message if there is something to wait for.
    """
    stopped = [submission for submission in submissions if submission.files.stop.exists()]
    until, is_reported = time.monotonic() + seconds, False
    while stopped:
        began = time.monotonic()
        states = tasks_of(stopped, dispensable=dispensable)
        left = [sum(_is_ending(s, t) for t in ts) for s, ts in zip(stopped, states, strict=True)]
        if not sum(left) or began > until:
            return sum(left)
        if not is_reported:
            report("Waiting for tasks that were asked to stop to finish their fits in flight.")
            is_reported = True
        stopped = [submission for submission, n in zip(stopped, left, strict=True) if n]
        time.sleep(max(_POLL_SECONDS, _PATIENCE * (time.monotonic() - began)))
    return 0


def _is_ending(submission: Submission, task: TaskState) -> bool:
    if task.is_out_of_sight or not task.is_alive:
        return False
    is_queued = submission.cluster != LOCAL and task.state != "running"
    return not (submission.is_paused and is_queued)
