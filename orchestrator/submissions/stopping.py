"""Stop, pause and slow down what was submitted.

Running tasks read two files of their submission: while ``stop`` is there they finish their fits in
flight and end; of the cells in ``skip.json`` they train no more. Waiting tasks are the scheduler's:
they are cancelled, or, by a pause, held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.submissions.scheduler import Scheduler
from manyseed.orchestrator.submissions.submission import Submission, tasks_of
from manyseed.orchestrator.submissions.taskstate import TaskState
from manyseed.orchestrator.tasks.intent import LOCAL
from manyseed.orchestrator.tasks.requests import NOW, PAUSED, STOPPED, skip_cells, stop_request
from manyseed.orchestrator.tasks.task import Task
from manyseed.slurm import control

_Act = Callable[[Iterable[str]], None]


def cancel(submissions: Sequence[Submission], *, now: bool = False) -> tuple[int, int]:
    """Stop submissions; return how many tasks were asked to end, and how many never start.

    Fits in flight are finished, however long they take; with `now` they are ended, and trained
    again some time.
    """
    return _stop(submissions, NOW if now else STOPPED, control.cancel)


def pause(submissions: Sequence[Submission]) -> tuple[int, int]:
    """Stop what runs and hold what waits; return how many tasks of each there were."""
    return _stop(submissions, PAUSED, control.hold)


def unpause(submissions: Sequence[Submission], dispensable: Callable[[Scheduler], bool]) -> None:
    """Release what a pause holds; what it stopped is missing, and is submitted anew.

    What a cluster holds that is not reached stays stopped for good: others go on with its work.
    """
    paused = [s for s in submissions if s.is_paused]
    looked = tasks_of(paused, fresh=True, dispensable=dispensable)
    for submission, tasks in zip(paused, looked, strict=True):
        if any(task.is_out_of_sight for task in tasks):
            place(submission.files.stop, STOPPED.encode())
            continue
        submission.files.stop.unlink()
        held = [task.job_id for task in tasks if task.state == "held"]
        if held:
            with submission.scheduler.changing():
                control.release(held)


def cancel_cells(submissions: Sequence[Submission], cells: Collection[int]) -> int:
    """Let submissions train no more of some cells; return how many waiting tasks had no others."""
    alive = _alive(submissions)
    cancelled = 0
    for submission, tasks in alive:
        skipped = skip_cells(submission.folder, cells)
        waiting = [task for task in tasks if task.state in ("waiting", "held") and task.job_id]
        idle = [
            task.job_id
            for task in waiting
            if Task.read(submission.files.task(task.number)).cells.keys() <= skipped
        ]
        if idle:
            with submission.scheduler.changing():
                control.cancel(idle)
        cancelled += len(idle)
    return cancelled


def throttle(submissions: Sequence[Submission], parallelism: int) -> int:
    """Let so many tasks run at once, shared among arrays; return how many arrays there are.

    Raises
    ------
    UserError
        Where nothing waits or runs on a cluster.
    """
    alive = [
        (submission, [task.job_id for task in tasks if task.is_alive and task.job_id])
        for submission, tasks in _alive(submissions)
        if submission.cluster != LOCAL
    ]
    arrays = {job.partition("_")[0] for _, jobs in alive for job in jobs}
    if not arrays:
        raise UserError(
            "no task waits or runs on a cluster",
            remedy="on this machine: cancel, then resume with another --workers",
        )
    each = max(1, parallelism // len(arrays)) if parallelism else 0
    for submission, jobs in alive:
        with submission.scheduler.changing():
            control.set_parallelism(jobs, each)
    return len(arrays)


def _stop(submissions: Sequence[Submission], content: str, act: _Act) -> tuple[int, int]:
    alive = [submission for submission, _ in _alive(submissions)]
    for submission in alive:
        if content == NOW or stop_request(submission.folder) in (None, PAUSED):
            place(submission.files.stop, content.encode())
    running = waiting = 0
    # a task that starts from here on finds the file; one that started before is seen running
    for submission, tasks in zip(alive, tasks_of(alive, fresh=True), strict=True):
        held = [task.job_id for task in tasks if task.state in ("waiting", "held") and task.job_id]
        if held:
            with submission.scheduler.changing():
                act(held)
        waiting += len(held)
        running += sum(task.is_alive for task in tasks) - len(held)
    return running, waiting


def _alive(submissions: Sequence[Submission]) -> list[tuple[Submission, list[TaskState]]]:
    looked = zip(submissions, tasks_of(submissions), strict=True)
    return [(s, tasks) for s, tasks in looked if any(task.is_alive for task in tasks)]
