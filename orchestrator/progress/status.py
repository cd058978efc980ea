"""The state of a sweep as JSON values: runs, tasks, throughput, time left, problems, next steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TypedDict

import polars as pl

from manyseed.analysis.counts import counted
from manyseed.orchestrator.analyses import look
from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.errors import ManyseedError, UnavailableError, command
from manyseed.orchestrator.paths import DRAWN, RECIPE, SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.stacks import choices
from manyseed.orchestrator.progress.problems import behind, problems, set_aside, to_change, unheld
from manyseed.orchestrator.progress.timeleft import hanging, seconds_left
from manyseed.orchestrator.progress.watch import runs_per_hour, summed
from manyseed.orchestrator.provenance import read_recipes
from manyseed.orchestrator.store.arrays import NOISY, SEEN, method_of
from manyseed.orchestrator.store.groups import find_group
from manyseed.orchestrator.store.index import JournalIndex
from manyseed.orchestrator.submissions.memory import to_ask_for
from manyseed.orchestrator.submissions.patience import brief_if_trained
from manyseed.orchestrator.submissions.retries import Mended, as_mended, retry
from manyseed.orchestrator.submissions.submission import (
    ALIVE,
    Submission,
    TaskState,
    on_cluster,
    submissions,
    tasks_of,
)
from manyseed.orchestrator.survey import Survey, covered, survey
from manyseed.orchestrator.tasks.attempts import kind
from manyseed.orchestrator.tasks.intent import stop_request
from manyseed.slurm.commands import compact_ids

_NOT_OWN = Mended()
Step = tuple[str, tuple[object, ...]]  # the purpose of a command, and its arguments


def next_steps(
    paths: SweepPaths,
    runs: Mapping[str, int],
    tasks: Collection[str],
    cells: pl.DataFrame,
    *,
    analysing: bool = False,
    stopping: bool = False,
    covers: tuple[int, int] | None = None,
    damaged: bool = False,
    memory: str = "",
    first: str = "",
    mended: Mended = _NOT_OWN,
) -> Iterator[Step]:
    """Yield the next commands for a sweep.

    `runs`: the number of its runs by state. `tasks`: the states of its tasks. `cells`: the cells of
    its plan. `analysing`: whether an analysis job waits or runs. `stopping`: whether all tasks that
    wait or run were asked to stop. `covers`: as in `unanalysed`. `damaged`: whether result tables
    are. `memory`: what tasks must ask for that lacked it, unless `resume` decides. `first`: what
    must change before missing runs are trained, as `problems.to_change`. `mended`: as
    `retries.as_mended` returns.
    """
    from manyseed.orchestrator.plans.plan import IS_IMPORTED  # imports polars

    directory = paths.directory
    if runs["failed"]:
        yield "Tracebacks", ("logs", directory, "--failed")
    alive = {*tasks} & {"waiting", "running"}
    goes_on = runs["missing"] and (alive or "unknown" in tasks)
    if goes_on or (runs["failed"] and alive and not stopping):  # failed ones are trained again
        yield "Watch", ("status", directory, "--watch")
        if not alive and (elsewhere := on_cluster(paths)):
            yield "Or continue with", ("resume", directory, *elsewhere)  # its cluster is gone
        if stopping:
            yield _training(paths, submitted=True, cells=cells)
        return
    if runs["missing"]:
        if cells.select(IS_IMPORTED.any()).item():
            yield "Check", ("verify", directory)
            return
        what, words = _training(paths, bool(tasks or runs["done"]), cells, memory, mended)
        if mended.note and runs["failed"]:  # of which `resume` trains none beside missing ones
            yield what, retry(paths, mended)
            what = "Then the missing ones"
        yield first if first and not mended.note and words[0] == "resume" else what, words
        return
    if runs["failed"]:
        yield f"Retry{mended.note}", retry(paths, mended)
    if not runs["done"]:
        return
    if analysing:
        yield "Look again", ("status", directory)
    elif damaged or unanalysed(paths, runs, covers):
        copying, copy = paths.copying
        what = "Without them" if runs["failed"] else "Next"
        yield f"After {copying}" if copying else what, ("analyze", copy or directory)
    elif unreported(paths):
        yield "Next", ("report", directory)
    else:
        yield "Next", ("query", directory, "--by", apart(cells))


def apart(cells: pl.DataFrame) -> str:
    """Return the axes in which cells differ, and the classifier, as ``--by`` takes them."""
    from manyseed.analysis.axes import AXES

    known = [one for one in AXES if one in cells.columns]
    names = [one for one in known if one == "classifier" or cells[one].n_unique() > 1]
    return ",".join(names)


def in_words(step: Step) -> dict[str, str]:
    """Return a step as JSON values: its purpose ``what``, and its ``command``."""
    what, arguments = step
    return {"what": what, "command": command(*arguments)}


def _training(
    paths: SweepPaths,
    submitted: bool,
    cells: pl.DataFrame,
    memory: str = "",
    mended: Mended = _NOT_OWN,
) -> Step:
    """Return the step that missing runs need: fetching data, tuning, or submitting."""
    from manyseed.orchestrator.plans.searches import searches, to_tune

    directory = paths.directory
    try:
        if not submitted and not _has_data(cells):
            return "Next", ("plan", paths.sweep_file, "--fetch")
        if searches(paths, cells) and not paths.search_jobs():  # else resume submits it again
            return "Next", to_tune(paths)
    except ManyseedError:
        pass  # submitting reports what is wrong
    what, verb = ("Continue with", "resume") if submitted else ("Next", "submit")
    what = f"Continue{mended.note}" if mended.note else what
    more = ("--memory", memory) if memory and verb == "resume" else ()
    return what, (verb, directory, *more, *mended.words, *on_cluster(paths))


def _has_data(cells: pl.DataFrame) -> bool:
    """Return whether the data of all cells is on this machine."""
    from manyseed.jobs import datasets
    from manyseed.jobs.run import Cell

    canonicals = cells.unique("dataset", maintain_order=True)["canonical"]
    return all(datasets.is_fetched(Cell.from_text(text).dataset) for text in canonicals)


def unanalysed(
    paths: SweepPaths, runs: Mapping[str, int], covers: tuple[int, int] | None = None
) -> str:
    """Return why the result tables do not cover all finished runs alone; empty if they do.

    `covers`: how many finished and dropped runs they hold; None if only their number is known.
    """
    finished = runs["done"] + runs["copy"]
    try:
        analysed = read_json(paths.analysis)["runs"]["analysed"]
    except FileNotFoundError:
        return f"{paths.analysis} is not written yet"
    except ManyseedError as error:
        return str(error)
    except (LookupError, TypeError):
        return f"{paths.analysis} does not say what was analysed"
    n, dropped = covers or (analysed, 0)
    if n < finished:
        return f"the results cover {n:,} of {finished:,} finished runs"
    if dropped:
        return f"the results hold {counted(dropped, 'dropped run')}"
    if analysed > finished:
        return f"{paths.analysis} covers {analysed} runs, but {finished} are finished"
    return ""


def unreported(paths: SweepPaths) -> str:
    """Return why the report does not show all results; empty if it is newer than all of them."""
    try:
        written = paths.report.stat().st_mtime_ns
        for file in (paths.analysis, *sorted(paths.results.glob("*.parquet"))):
            if file.stem in DRAWN:
                continue  # howmany draws them from results that did not change
            if file.stat().st_mtime_ns > written:
                return f"{file} is newer than {paths.report}"
    except FileNotFoundError as error:
        return f"{error.filename} is not written yet"
    return ""


FAILURES_SHOWN = 3
_GROUPS_SHOWN = 8


class TaskStatus(TypedDict):
    """A task, with the report of its last attempt."""

    submission: int
    task: int
    state: str
    job: str | None
    node: str | None
    note: str | None
    done: int
    failed: int
    restarts: int  # after attempts that ended without a report
    killed: int  # training processes


class SubmissionStatus(TypedDict):
    """A submission, with the combined reports of its tasks."""

    number: int
    cluster: str
    state: str
    tasks: dict[str, int]  # by state
    runs: int
    done: int
    failed: int
    set_aside: int
    workers: int
    submitted: float  # seconds since 1970
    reason: str


class FailureStatus(TypedDict):
    """An error, the number of runs that failed with it, and the file with its traceback."""

    error: str
    count: int
    varies: bool  # whether digits or paths in it differ from run to run
    file: str


class Status(TypedDict):
    """The state of a sweep, as JSON values."""

    directory: str
    runs: dict[str, int]  # by state
    recipes: int  # in how many ways runs were made: recorded recipes
    stacks: list[dict[str, Any]]
    """How many runs of a dataset and classifier are trained at once, where that was measured."""
    duplicates: int  # number of fits that were trained more than once
    groups: list[dict[str, Any]]
    """For each dataset and classifier, their names and the runs by state."""
    tasks: dict[str, int]  # by state
    jobs: dict[str, list[str]]  # SLURM jobs by the state of their tasks, such as ``77_[0-2]``
    each_task: list[TaskStatus]
    workers: int  # training processes
    runs_per_hour: float  # the rate of `seconds_left`, or without it, the rate so far
    seconds_left: float | None  # none if nothing trains, or what does was asked to stop or hangs
    stopping: int  # tasks that run, or wait, but were asked to stop
    submissions: list[SubmissionStatus]
    problems: list[str]  # a sentence each
    failures: list[FailureStatus]  # the most frequent errors
    search: dict[str, Any] | None
    analysis: dict[str, Any] | None
    """The last search and the last analysis that are jobs: `orchestrator.analyses.AnalysisJob`."""
    cluster_silent: str | None  # why the scheduler did not answer
    report: str | None  # the report's page; None unless it shows the current results
    outdated: list[str]  # why results or report do not cover all finished runs, or are damaged
    next: list[dict[str, str]]  # ``what`` and ``command`` of each next step


def _ways(paths: SweepPaths, state: Survey) -> int:
    """Return in how many ways runs were made: on different machines, or of one group.

    Classifiers differ by themselves in what a recipe says of searches, own code and forms.
    """
    count = sum(1 for _ in paths.recipes.glob(f"[0-9]*{RECIPE}"))
    if count < 2 or state.plan.is_imported:  # whose recipes name files
        return min(count, 1)
    from manyseed.orchestrator.store.shards import recipes_of

    with suppress(ManyseedError, OSError):  # damage that its readers report
        machines = {one.machine for one in read_recipes(paths.recipes).values()}
        journals = JournalIndex(state.plan.journals(paths))
        groups = (find_group(paths.store, spec) for spec in Groups.read(paths).specs)
        of_groups = [len(recipes_of(one, journals)) for one in groups if one is not None]
        return max([len(machines), *of_groups])
    return count


def status(paths: SweepPaths) -> Status:
    """Read a sweep's files, and ask its scheduler once.

    If the scheduler does not answer, the status relies on the reports of tasks.
    """
    with brief_if_trained(paths):
        return _status(paths)


def _status(paths: SweepPaths) -> Status:
    listed = submissions(paths)
    silent = None
    try:
        tasks = tasks_of(listed)
    except UnavailableError as error:
        silent, tasks = str(error), tasks_of(listed, ask=False)
    # later, as runs of a task that has ended are no longer missing
    state = survey(paths)
    covers = None
    with suppress(ManyseedError, OSError):  # no results, or damage that their readers report
        covers = covered(paths, state)
    every = [task for states in tasks for task in states]
    search, job = look(paths, paths.search_jobs()), look(paths)
    running = [t.last for t in every if t.state == "running" and t.last.state == "running"]
    workers = sum(attempt.workers for attempt in running)
    alive = [
        (stop_request(one.folder) is not None, task)
        for one, states in zip(listed, tasks, strict=True)
        for task in states
        if task.state in ("waiting", "running")
    ]
    stopping = sum(asked for asked, _ in alive)
    goes_on = any(not asked and task.state == "running" for asked, task in alive)
    hang = hanging(paths, state, running)
    goes_on &= not hang or len(hang) < min(workers, state.counts["missing"])
    rest = unheld(state, listed, tasks)
    left = seconds_left(paths, state, running, rest) if workers and goes_on else None
    kinds = {place: kind(failure) for place, failure in state.failures.items()}
    texts = {(kinds[place], failure.error) for place, failure in state.failures.items()}
    distinct = Counter(its for its, _ in texts)
    one_of = {kinds[place]: failure for place, failure in reversed([*state.failures.items()])}
    by_state = Counter(task.state for task in every)
    left_behind = behind(state, listed, tasks)
    damaged, lacked = _damage(paths), to_ask_for(listed, tasks)
    late = [damaged or unanalysed(paths, state.counts, covers)]
    late += [unreported(paths)] * (not damaged)  # the page is of whole tables
    steps = next_steps(
        paths,
        state.counts,
        by_state,
        state.plan.cells,
        analysing=job is not None and job.state in ALIVE,
        stopping=0 < stopping == len(alive),
        covers=covers,
        damaged=bool(damaged),
        memory="" if lacked is None else lacked[0],
        first=to_change(left_behind),
        mended=as_mended(paths, state, missing=bool(set_aside(listed, tasks))),
    )
    return {
        "directory": str(paths.directory),
        "runs": state.counts,
        "recipes": _ways(paths, state),
        "stacks": [asdict(choice) for choice in choices(paths).values()],
        "duplicates": state.duplicates,
        "groups": state.by_group.drop("group").to_dicts(),
        "tasks": dict(by_state),
        "jobs": _jobs(every),
        "each_task": [
            _task(one, task) for one, states in zip(listed, tasks, strict=True) for task in states
        ],
        "workers": workers,
        "runs_per_hour": runs_per_hour(state.counts["missing"] - len(rest), left, running),
        "seconds_left": left,
        "stopping": stopping,
        "submissions": [*map(_submission, listed, tasks)],
        "problems": [*hang, *problems(paths, state, listed, tasks, left_behind, rest)],
        "failures": [
            {
                "error": one_of[its].error,
                "count": count,
                "varies": distinct[its] > 1,
                "file": str(one_of[its].file),
            }
            for its, count in Counter(kinds.values()).most_common(FAILURES_SHOWN)
        ],
        "search": None if search is None else asdict(search),
        "analysis": None if job is None else asdict(job),
        "cluster_silent": silent,
        "report": None if damaged or unreported(paths) else str(paths.report),
        "outdated": [*filter(None, late)],
        "next": [in_words(step) for step in steps],
    }


def _damage(paths: SweepPaths) -> str:
    if not paths.analysis.exists():
        return ""
    from manyseed.orchestrator.computing.tables import damage  # only where there are results

    return damage(paths)


def in_group(classifier: str) -> str:
    """Return the name of a group's classifier in words: ``lr-sgd, with label noise``."""
    name, _, ensembling = classifier.partition("~")
    if not ensembling:
        return classifier
    method = method_of(ensembling)
    kinds = {SEEN: "transformed test images", NOISY: "label noise"}
    told = [words for suffix, words in kinds.items() if suffix in ensembling]
    if method == "none" and not told:
        told = ["augmented images"]
    named = name if method == "none" else f"{name}, {method}"
    return f"{named}, with {' and '.join(told)}" if told else named


def summary(paths: SweepPaths) -> list[str]:
    """Return the state of a sweep and its next steps in a few lines, or why it cannot be read."""
    try:
        state = status(paths)
    except (ManyseedError, OSError) as error:
        return str(error).splitlines()
    runs, groups = state["runs"], state["groups"]
    rest = [f"{runs[name]:,} {name}" for name in ("failed", "missing") if runs[name]]
    finished = runs["done"] + runs["copy"]
    run = "run is" if runs["runs"] == 1 else "runs are"
    lines = [", ".join([f"{finished:,} of {runs['runs']:,} {run} finished", *rest])]
    for group in groups[:_GROUPS_SHOWN]:
        done = f"{group['done'] + group['copy']:,} of {group['runs']:,}"
        lines.append(f"  {group['dataset']} × {in_group(group['classifier'])}: {done}")
    if len(groups) > _GROUPS_SHOWN:
        lines.append(f"  and {len(groups) - _GROUPS_SHOWN:,} more")
    return lines + [f"{step['what']}: {step['command']}" for step in state["next"]]


def _jobs(tasks: Sequence[TaskState]) -> dict[str, list[str]]:
    """Return the jobs of tasks by state, as one expression per array."""
    by_state: dict[str, list[str]] = {}
    for task in tasks:
        if task.job_id:
            by_state.setdefault(task.state, []).append(task.job_id)
    return {state: compact_ids(ids) for state, ids in by_state.items()}


def _task(submission: Submission, task: TaskState) -> TaskStatus:
    return {
        "submission": submission.number,
        "task": task.number,
        "state": task.state,
        "job": task.job_id or None,
        "node": task.node or None,
        "note": task.note or None,
        "done": task.done,
        "failed": task.failed,
        "restarts": task.restarts,
        "killed": task.killed,
    }


def _submission(submission: Submission, tasks: Sequence[TaskState]) -> SubmissionStatus:
    now = summed(submission, tasks)
    return {
        "number": submission.number,
        "cluster": submission.cluster,
        "state": now.state,
        "tasks": dict(Counter(task.state for task in tasks)),
        "runs": now.runs,
        "done": now.done,
        "failed": now.failed,
        "set_aside": now.set_aside,
        "workers": now.workers,
        "submitted": submission.intent.submitted,
        "reason": now.reason,
    }
