"""What tasks and failed runs printed, and why a run is not finished."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from manyseed.analysis.counts import counted, some
from manyseed.orchestrator.analyses import last_job
from manyseed.orchestrator.disk.placing import read_end
from manyseed.orchestrator.disk.records import read_record
from manyseed.orchestrator.errors import (
    DamagedFile,
    ManyseedError,
    UnavailableError,
    UserError,
    command,
)
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.runs import find_run
from manyseed.orchestrator.submissions.retries import retrying
from manyseed.orchestrator.submissions.submission import (
    SILENT,
    Submission,
    lost_failures,
    lost_files,
    submissions,
    tasks_known,
    tasks_of,
    training,
)
from manyseed.orchestrator.survey import STATES, survey
from manyseed.orchestrator.tasks.attempts import (
    COPY_OF_FAILED,
    UNREADABLE,
    Attempt,
    Failure,
    kind,
    read_failures,
    valid_failures,
)
from manyseed.orchestrator.tasks.intent import FAILURES, LOCAL, LOG, SubmissionPaths
from manyseed.orchestrator.tasks.task import held_rows
from manyseed.slurm.local import LocalJob

_TAIL_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed runs of one kind: an error, their number, some addresses, and one traceback.

    `varies`: whether their errors differ in digits or paths.
    """

    error: str
    count: int
    runs: tuple[str, ...]
    traceback: str
    varies: bool = False


def is_of_copy(error: str) -> bool:
    """Return whether a run failed only because the run that it would be a copy of did."""
    return error.endswith(COPY_OF_FAILED)


def failures(paths: SweepPaths, shown: int = 5, *, fold: bool = False) -> list[FailureGroup]:
    """Return the kinds of errors of all failed runs (`attempts.kind`), the most frequent first.

    `shown`: the most addresses of each error. `fold`: whether to count copies of failed runs with
    the errors of these.
    """
    failed = [*survey(paths).failures.values()]
    kinds = {(one.cell, one.repeat, one.run): kind(one) for one in failed}
    by_kind: dict[tuple[str, str], list[Failure]] = {}
    # what was trained comes first, since its traceback is shown
    for failure in sorted(failed, key=lambda one: is_of_copy(one.error)) if fold else failed:
        its = kinds[failure.cell, failure.repeat, failure.run]
        if fold and is_of_copy(failure.error):
            its = kinds.get((failure.cell, failure.repeat, 0), its)
        by_kind.setdefault(its, []).append(failure)
    groups = [
        FailureGroup(
            same[0].error,
            len(same),
            tuple(f"{one.cell}:{one.repeat}:{one.run}" for one in same[:shown]),
            same[0].traceback,
            len({one.error for one in same if not is_of_copy(one.error)}) > 1,
        )
        for same in by_kind.values()
    ]
    return sorted(groups, key=lambda group: -group.count)


_MODELS = 2


def models(paths: SweepPaths, runs: Iterable[str]) -> str:
    """Return which models runs are of, by their addresses: `` (mlp on ward)``."""
    numbers = [int(run.partition(":")[0]) for run in runs]
    cells = Plan.read(paths).all_cells
    cells = cells.filter(pl.col("cell").is_in(numbers)).sort("cell")
    pairs = [f"{name} on {data}" for name, data in cells.select("classifier", "dataset").rows()]
    return f" ({some([*dict.fromkeys(pairs)], _MODELS)})" if pairs else ""


_DIED = ("broken", "killed", "failed", "timeout", "out_of_memory", "node_fail")


def died(paths: SweepPaths) -> list[str]:
    """Return the tasks that died, oldest first, as `logs` takes them; their runs did not fail.

    A task whose report cannot be read is none: how it ended is not known.
    """
    listed = submissions(paths)
    states = tasks_known(listed)
    return [
        task.job_id or f"{submission.number}/{task.number}"
        for submission, tasks in zip(listed, states, strict=True)
        for task in tasks
        if task.state in _DIED and task.last.state != UNREADABLE
    ]


def lost(paths: SweepPaths, what: str) -> list[str]:
    """Return messages about files that `logs` should show, but that are gone or empty.

    A file that was cut short is not noticed: printed output has no checksum.
    """
    if ":" in what:
        return [*_to_restore(lost_files(paths)), *lost_failures(submissions(paths))]
    return _to_restore(_lost_prints(*_find_task(paths, what)))


def _to_restore(files: Iterable[Path]) -> list[str]:
    return [f"{file} is lost: restore it" for file in files]


def _lost_prints(submission: Submission, task: int) -> Iterator[Path]:
    files, attempts = submission.files, submission.attempts(task)
    yield from files.lost_reports(task)
    for attempt in attempts:
        log = attempt.folder / LOG
        if not submission.is_training:  # an analysis or a search prints to its job's files
            break
        if (attempt.workers or attempt.n_done or attempt.n_failed) and not log.exists():
            yield log
    jobs = {attempt.job_id for attempt in attempts if attempt.job_id}
    if attempts and not jobs and files.local_job.exists():
        jobs = {read_record(files.local_job, LocalJob).job_id}
    for job in sorted(jobs):
        output, error = files.printed_output(job), files.printed_errors(job)
        # a job starts by printing that it starts
        if not output.exists() or not output.stat().st_size:
            yield output
        if not error.exists():
            yield error


def logs(paths: SweepPaths, what: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a task or a run, with their last lines.

    `what`: a task, as ``SUBMISSION/TASK``, counted from 1 and from 0, or its job id; or a run, as
    ``CELL:REPEAT:RUN``, whose tracebacks are yielded.
    """
    if ":" in what:
        return _of_run(paths, what)
    return _of_task(*_find_task(paths, what))


def latest(paths: SweepPaths) -> str:
    """Return the task that began last, as `logs` takes it, or else the first that is to begin."""
    listed = submissions(paths)
    if not listed:
        remedy = training(paths, "submit")
        raise UserError("no task was submitted yet", file=paths.directory, remedy=remedy)
    for submission in reversed(listed):
        if attempts := submission.attempts():
            last = max(attempts, key=lambda attempt: attempt.started)
            return f"{submission.number}/{int(last.folder.name.partition('-')[0])}"
    return f"{listed[-1].number}/0"


_HOW = {
    "finished": "finished",
    "stopped": "stopped, as was asked",
    "interrupted": "was interrupted",
    "broken": "broke",
}


def ending(paths: SweepPaths, what: str) -> str:
    """Say how a task ended or that it has not begun; nothing of a run, or while it trains."""
    if ":" in what:
        return ""
    submission, task = _find_task(paths, what)
    asked = ", and its submission was asked to stop" if submission.files.stop.exists() else ""
    attempts = submission.attempts(task)
    if not attempts:
        return _unstarted(paths, submission, task) or f"The task has not begun{asked}."
    last = attempts[-1]
    if last.state not in _HOW:
        return ""
    done, n_left = _counted(paths, submission, task, attempts)
    left = f", {n_left:,} left" if n_left else ""
    here = f" ({last.n_done:,} in its last attempt)" if len(attempts) > 1 else ""
    runs = f": {done:,} of {counted(last.runs, 'run')} done{here}{left}" if last.runs else ""
    return f"The task {_HOW[last.state]}{runs}."


def _counted(
    paths: SweepPaths, submission: Submission, task: int, attempts: Sequence[Attempt]
) -> tuple[int, int]:
    """Return how many runs of a task are done and left: of the last submission, as status counts.

    What later ones trained, and cells that were left out, are not of its doing.
    """
    last, done = attempts[-1], sum(attempt.n_done for attempt in attempts)
    if submission.skipped_cells:
        return done, last.pending
    if submission.number == submissions(paths)[-1].number:
        with suppress(ManyseedError, OSError):  # damage that is named beside
            state, held = survey(paths), held_rows([submission.files.task(task)])
            counts = [
                len(state.with_state(*names).join(held, on=["group", "row"], how="semi"))
                for names in (("done", "copy"), ("missing",))
            ]
            return counts[0], max(0, counts[1] - last.set_aside)
    failed = sum(attempt.n_failed for attempt in attempts)
    # the report of one that was killed may be old
    return max(done, last.runs - last.pending - last.set_aside - failed), last.pending


def _unstarted(paths: SweepPaths, submission: Submission, number: int) -> str:
    """Say how a task's job ended before the task could report anything; empty if it did not."""
    (tasks,) = tasks_known([submission])
    (task,) = (task for task in tasks if task.number == number)
    if submission.cluster == LOCAL:
        if task.is_alive or task.state not in _ENDED or submission.files.stop.exists():
            return ""
        again = training(paths, "resume")
        return f"The task has not begun, and its process has ended. Train its runs with: {again}"
    if task.is_alive or task.state not in _ENDED:
        return ""
    note = f" ({task.note})" if task.note not in ("", "None") else ""
    printed = "" if any(_of_task(submission, number)) else "; it printed nothing"
    when = "" if task.state == "gone" else " before training"
    told = f"The task {_ENDED[task.state]}{note}{when}{printed}."
    if task.state == "failed":
        profile = submission.intent.profile or "the profile"
        told += f" Correct setup, modules or python in {profile}, then: "
        told += training(paths, "resume")
    return told


def _of_run(paths: SweepPaths, address: str) -> Iterator[tuple[Path, str]]:
    run = find_run(paths, address)
    for submission in submissions(paths):
        for file in submission.files.of_attempts(FAILURES):
            for failure in read_failures(file.parent, submission.intent.plan):
                if (failure.group, failure.row) == (run.spec.number, run.row):
                    yield file, failure.traceback


def _find_task(paths: SweepPaths, what: str) -> tuple[Submission, int]:
    listed = submissions(paths)
    others = filter(None, (last_job(paths), last_job(paths, paths.search_jobs())))
    if match := re.fullmatch(r"0*([0-9]{1,9})/0*([0-9]{1,9})", what):
        number, task = int(match[1]), int(match[2])
        for submission in listed:
            if submission.number == number and task < submission.intent.tasks:
                return submission, task
        if (intent := SubmissionPaths(paths.submission(number)).intent) in lost_files(paths):
            raise DamagedFile(intent, "is lost", "restore it")
    for submission in (*listed, *others):
        for task, job in submission.noted_jobs().items():
            if job.id == what:
                return submission, task
    last = f"{listed[-1].number}/0" if listed else "none yet"
    raise UserError(
        "there is no such task or run",
        key="RUN|TASK",
        value=what,
        remedy=f"a task as SUBMISSION/TASK ({last}) or by its job id, a run as CELL:REPEAT:RUN",
    )


def _of_task(submission: Submission, task: int) -> Iterator[tuple[Path, str]]:
    files = submission.files.of_attempts(LOG, task)
    files.sort(key=lambda file: file.stat().st_mtime)
    job = submission.noted_jobs().get(task)
    name = submission.job_name(task, job.id) if job else "*"
    files += submission.files.printed(name)
    for file in files:
        if text := read_end(file, _TAIL_BYTES).strip():
            yield file, text


_ENDED = {
    "finished": "gave it up",
    "stopped": "was stopped",
    "broken": "broke",
    "killed": "was killed",
    "gone": "is gone, and its scheduler knows nothing of it",
    "cancelled": "was cancelled",
    "failed": "failed",
    "timeout": "reached its walltime",
    "out_of_memory": "was killed for memory",
    "node_fail": "was lost with its node",
    "preempted": "was preempted",
}


def _why(paths: SweepPaths, group: int, row: int) -> str:
    """Say why a run is missing: what the task that has it waits for, or how that ended."""
    resume, silent = training(paths, "resume"), ""
    listed = submissions(paths)
    try:
        states = tasks_of(listed)
    except UnavailableError:
        silent, states = f" ({SILENT})", tasks_of(listed, ask=False)
    for submission, tasks in reversed([*zip(listed, states, strict=True)]):
        for task in tasks:
            rows = held_rows([submission.files.task(task.number)])
            if rows.filter(group=group, row=row).is_empty():
                continue
            job = f", job {task.job_id}" if task.job_id else ""
            name = f"task {submission.number}/{task.number}{job},"
            is_told = task.note not in ("", "None") and task.state != "cancelled"
            note = f": {task.note}" if is_told else ""
            if submission.files.stop.exists() and task.is_alive:
                return f"{name} was asked to stop; then: {resume}{silent}"
            if task.state == "running":
                return f"{name} trains, and has finished {task.done:,} runs{silent}"
            if task.state == "unknown":
                return f"{name} may wait, train or have ended{silent}"
            if task.is_alive:
                return f"{name} {'waits' if task.state == 'waiting' else 'is held'}{note}{silent}"
            reason = f": {task.last.reason}" if task.last.reason else note
            return f"{name} {_ENDED.get(task.state, task.state)}{reason}; {resume}{silent}"
    return f"it was never submitted: {training(paths, 'submit')}{silent}"


def retrained(paths: SweepPaths, *places: tuple[int, int]) -> bool:
    """Return whether tasks that train or wait have any of these runs (group, row)."""
    listed = submissions(paths)
    states = tasks_known(listed)
    files = [
        submission.files.task(task.number)
        for submission, tasks in zip(listed, states, strict=True)
        for task in tasks
        if task.state in ("waiting", "running") and not submission.files.stop.exists()
    ]
    return bool(files) and not {*places}.isdisjoint(held_rows(files).select("group", "row").rows())


def unfinished(paths: SweepPaths, address: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return the state of a run that the store does not hold.

    Returns `stored`: its status, whether only a journal holds it, or why none does. `failed`: why
    it failed, where, how often, and what to do or what retrains it; empty if it did not.
    """
    planned, state = find_run(paths, address), survey(paths)
    place = (planned.spec.number, planned.row)
    code = int(state.states[planned.spec.number][planned.row])
    status = {code: name for name, code in STATES.items()}[code]
    if place not in state.failures:
        is_there = status in ("done", "copy")
        more = {"journal": "not published yet"} if is_there else {"why": _why(paths, *place)}
        return {"status": status, **more}, {}
    identity = state.plan.identity
    every = [one for one in valid_failures(paths, identity) if (one.group, one.row) == place]
    last, folder = every[-1], every[-1].file.parent
    attempt, again = Attempt.read(folder, identity), retrained(paths, place)
    return {"status": status}, {
        "error": last.error,
        "attempts": len(every),
        "node": attempt.node or None,
        "task": f"{int(folder.parent.parent.name)}/{attempt.task}",
        "log": str(folder / LOG),
        "traceback": command("logs", paths.directory, address),
        **({"now": _why(paths, *place)} if again else {"retry": retrying(paths, state)}),
    }
