"""The verbs that look: the state of a sweep, what tasks printed, what defines a run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from manyseed.jobs.checks import cut
from manyseed.orchestrator.cli.arguments import Directory, Json, alone, argument, switch
from manyseed.orchestrator.cli.output import (
    console,
    counted,
    duration,
    errors,
    print_json,
    print_table,
    say,
    say_next,
    say_steps,
    say_training,
)
from manyseed.orchestrator.errors import (
    INTERRUPTED,
    NOT_FINISHED,
    UnavailableError,
    command,
)
from manyseed.orchestrator.tasks.attempts import UNREADABLE
from manyseed.orchestrator.tasks.intent import LOCAL

if TYPE_CHECKING:
    from manyseed.orchestrator.paths import SweepPaths
    from manyseed.orchestrator.progress.status import Status
    from manyseed.orchestrator.submissions.memory import Usage
    from manyseed.orchestrator.submissions.submission import Submission
    from manyseed.orchestrator.sweep import Sweep

_COLUMNS = ("dataset", "classifier", "runs", "done", "copy", "failed", "missing")
_STATUS_HEADS = {"copy": "copies"}
_MOST_JOBS = 5  # how many jobs in a state are named; ``--json`` names all


_WELL = {"finished", "waiting", "held", "running", "unknown"}  # states that tell of nothing lost


def address(metavar: str) -> Any:
    """Return the argument that names a run."""
    return typer.Argument(
        metavar=metavar,
        help="Cell, repeat and run, counted from 0: 12:0:3. The cell is given by its number or the "
        "first digits of its identity.",
        show_default=False,
    )


def status(
    directory: Directory,
    run: Annotated[str | None, address("[RUN]")] = None,
    watch: bool = switch("--watch", "Show progress until nothing runs any more."),
    usage: bool = switch("--usage", "Show the memory and cores that tasks asked for and used."),
    as_json: Json = False,
) -> None:
    """Report the state of every run and every task.

    With RUN, show everything that defines this run, and how it was made.

    Exit code 0 if all runs are done, 1 if runs failed, 3 if runs are missing.

    Examples:

        manyseed status quickstart

        manyseed status quickstart --watch

        manyseed status quickstart 12:0:3
    """
    from manyseed.orchestrator.sweep import Sweep

    if run is not None:
        alone("RUN", watch=watch, usage=usage)
        show(directory, run, as_json)
        return
    sweep = Sweep(directory)
    if usage:
        alone("--usage", watch=watch)
        _print_usage(sweep, as_json=as_json)
        return
    if watch:
        follow(sweep, as_json=as_json)
    _report(sweep, as_json=as_json)


def follow(sweep: Sweep, *, as_json: bool = False) -> None:
    """Show progress until nothing runs; report on the sweep and exit with its code.

    Ctrl-C ends only the watching.
    """
    from manyseed.orchestrator.cli.output import show
    from manyseed.orchestrator.submissions.patience import brief_if_trained, is_trained

    try:
        with brief_if_trained(sweep.paths):
            running = sweep.running()
    except UnavailableError as error:  # what tasks write tells how far they are
        from manyseed.orchestrator.submissions import submission as of

        say(str(error), to=errors)
        trained = is_trained(sweep.paths)
        running = of.running(sweep.submissions(), ask=False, trained=trained)
    try:
        for submission in running:
            show(submission, errors if as_json else console)
    except KeyboardInterrupt:
        names = dict.fromkeys(one.cluster for one in running)
        places = " and ".join("this machine" if name == LOCAL else name for name in names)
        left = f"training continues on {places}, without this terminal"
        say(f"\nOnly the watching has ended: {left}.", to=errors)
        say_next("Watch", "status", sweep.directory, "--watch", to=errors)
        say_next("Stop it", "cancel", sweep.directory, to=errors)
        raise typer.Exit(INTERRUPTED) from None
    _report(sweep, as_json=as_json)


def _report(sweep: Sweep, *, as_json: bool) -> None:
    state = sweep.status()
    if as_json:
        print_json(state)
    else:
        _print_status(sweep, state)
    raise typer.Exit(_exit_code(state))


def _print_usage(sweep: Sweep, *, as_json: bool) -> None:
    from manyseed.orchestrator.submissions.memory import in_words
    from manyseed.orchestrator.submissions.patience import brief_if_trained

    with brief_if_trained(sweep.paths):
        found = sweep.usage()
    say_unreadable(sweep.submissions())
    if as_json:
        print_json({"usage": [_usage(each) for each in found]})
        return
    if not found:
        say("No task has measured what it uses yet.")
        return
    heads = ("cluster", "class", "tasks", "memory asked", "used", "cores asked", "used")
    rows = []
    for each in found:
        asked = "" if each.memory_asked is None else in_words(each.memory_asked)
        cores = (each.processes, f"{each.cores_used:.1f}")
        used = in_words(each.memory_known)
        memory = (asked, f"at least {used} (killed)" if each.is_least else used)
        rows.append((each.cluster, each.resource, each.tasks, *memory, *cores))
    print_table(None, heads, rows)
    for each in found:
        if each.advice:
            say(each.advice)


def _usage(one: Usage) -> dict[str, object]:
    value = asdict(one) | {"advice": one.advice}
    del value["has_advice"], value["was_short"]
    for key in ("memory_exceeded", "memory_accounted"):
        if not value[key]:
            del value[key]
    return value


def _exit_code(state: Status) -> int:
    runs = state["runs"]
    return 1 if runs["failed"] else NOT_FINISHED if runs["missing"] else 0


def _restarted(state: Status) -> str:
    """Say how many tasks were restarted, and how many of their processes were killed."""
    killed = sum(task["killed"] for task in state["each_task"])
    were = "process was" if killed == 1 else "processes were"
    again = "" if any(one["set_aside"] for one in state["submissions"]) else ", and replaced"
    told = f" {killed:,} training {were} killed{again}." if killed else ""
    counts = [task["restarts"] for task in state["each_task"] if task["restarts"]]
    if not counts:
        return told
    times = "once" if sum(counts) == 1 else f"{sum(counts):,} times"
    who = "1 was" if len(counts) == 1 else f"{len(counts):,} were"
    return f" {who} restarted {times}: an earlier attempt did not report its end.{told}"


def _print_status(sweep: Sweep, state: Status) -> None:
    from manyseed.orchestrator.progress.status import in_group

    runs = state["runs"]
    groups = [one | {"classifier": in_group(one["classifier"])} for one in state["groups"]]
    print_table(
        sweep.name,
        tuple(_STATUS_HEADS.get(name, name) for name in _COLUMNS),
        ([group[name] for name in _COLUMNS] for group in groups),
        total=("all", "", *(runs[name] for name in _COLUMNS[2:])),
        nested=True,
    )
    if state["tasks"]:
        listed = ", ".join(_tasks(state, name) for name in state["tasks"])
        asked = f" {state['stopping']:,} asked to stop." if state["stopping"] else ""
        if not runs["missing"] and {*state["tasks"]} - _WELL:
            asked += " What tasks left unfinished, others have trained since."
        say(f"\nTasks: {listed}.{asked}{_restarted(state)}")
    if state["workers"] and runs["missing"]:
        say(_training(state))
    for what, job in (("Search", state["search"]), ("Analysis", state["analysis"])):
        if job is not None:
            reason = f", {job['reason']}" if job["reason"] else ""
            job_state = job["state"].replace("_", " ")
            done = f", {job['done']:,} of {job['blocks']:,} fits" if what == "Search" else ""
            say(f"\n{what}: job {job['job']} {job_state}{done}{reason}; log: {job['log']}")
    if state["stacks"]:
        from manyseed.orchestrator.plans.stacks import Choice, in_words

        console.print()
        for text in in_words([Choice(**choice) for choice in state["stacks"]]):
            say(text)
    for problem in (*_silence(state), *state["problems"]):
        say(f"\n{problem}")
    if state["duplicates"]:
        say(f"\nRuns trained more than once: {state['duplicates']:,}.")
    if state["recipes"] > 1:
        say(f"\n{state['recipes']:,} recipes: runs were made in several ways.")
    for count, error, varies in _failures(sweep, state):
        first, end, rest = error.partition("\n")
        every = command("logs", sweep.directory, "--failed")
        alike = f"\n  and {count - 1:,} alike (digits or paths differ): {every}" if varies else ""
        say(f"\n{count:,} failed: {cut(first)}{end}{rest}{alike}")
    console.print()
    if state["report"]:
        what = "Report, of earlier results" if state["outdated"] else "Report"
        console.print(f"{what}: {state['report']}", soft_wrap=True)
    say_steps(state)


def _silence(state: Status) -> Iterable[str]:
    """Yield which clusters do not answer, in short: ``--json`` has their message."""
    told, listed = state["cluster_silent"], state["submissions"]
    if not told:
        return
    away = [one for one in listed if one["cluster"] != LOCAL]
    going = [one for one in away if {*one["tasks"]} & {"running", "unknown"}]
    names = ", ".join(dict.fromkeys(one["cluster"] for one in going or away))
    if names and not (state["runs"]["missing"] or state["runs"]["failed"]):
        yield f"{names}: the cluster does not answer, but all runs are finished."
        return
    shown = f"{names}: the cluster does not answer (status --json has its message); jobs go on. "
    shown += "This is what tasks wrote: try again later."
    yield shown if names and "answer" in told else told


def _failures(sweep: Sweep, state: Status) -> list[tuple[int, str, bool]]:
    """Return the most frequent errors, their counts, and whether their text varies.

    Copies count with their cause.
    """
    if not state["failures"]:
        return []
    from manyseed.orchestrator.progress.logs import failures, is_of_copy
    from manyseed.orchestrator.progress.status import FAILURES_SHOWN

    shown = [(one["count"], one["error"], one["varies"]) for one in state["failures"]]
    # copies, or what they are copies of, may be among the errors that are not shown
    every = sum(count for count, *_ in shown) == state["runs"]["failed"]
    if every and not any(is_of_copy(error) for _, error, _ in shown):
        return shown
    folded = failures(sweep.paths, fold=True)[:FAILURES_SHOWN]
    return [(group.count, group.error, group.varies) for group in folded]


def _tasks(state: Status, name: str) -> str:
    """Return how many tasks are in a state, with their jobs unless they finished."""
    text = f"{state['tasks'][name]:,} {name.replace('_', ' ')}"
    silent = ""
    if name == "unknown":
        from manyseed.orchestrator.submissions.submission import SILENT

        silent = f": {SILENT}"
    jobs = state["jobs"].get(name, [])
    if name == "finished" or not jobs:
        return f"{text}{silent}"
    more = f", and {len(jobs) - _MOST_JOBS} more" if len(jobs) > _MOST_JOBS else ""
    return f"{text} ({', '.join(jobs[:_MOST_JOBS])}{more}{silent})"


def _training(state: Status) -> str:
    if state["seconds_left"] is None:
        workers = counted(state["workers"], "process")
        return f"Training: {workers}, until the fits in flight are finished."
    rate, left = state["runs_per_hour"], duration(state["seconds_left"])
    done = f", {rate:,.0f} runs per hour" if rate else ""
    if not any(state["runs"][name] for name in ("done", "copy", "failed")):
        done = ", no run has finished yet"
    return f"Training: {counted(state['workers'], 'process')}{done}; about {left} left."


def say_unreadable(listed: Iterable[Submission]) -> None:
    """Name unreadable reports of tasks; while a report is recent, its task counts as running."""
    for submission in listed:
        for attempt in submission.attempts():
            if attempt.state == UNREADABLE:
                say(attempt.reason, to=errors)


def raise_if_broken(sweep: Sweep, reason: str, details: str) -> None:
    """Raise a fault of the machine as the command's error."""
    if reason:
        from manyseed.orchestrator.submissions.submission import training

        text = f"{reason}\n{details.strip()}" if details else reason
        raise UnavailableError(f"{text}\n  fix it, then: {training(sweep.paths, 'resume')}")


def say_left_out(sweep: Sweep, only: str, waiting: int) -> None:
    """Say how many runs of some cells stay missing, and how to train them after all."""
    from manyseed.orchestrator.plans.change import choose_cells
    from manyseed.orchestrator.submissions.submission import tasks_known

    state = sweep.survey()
    cells = choose_cells(state.plan, only, "--only")
    left = state.with_state("missing").join(cells, on="cell", how="semi").height
    of_cells = f"of {counted(len(cells), 'cell')}"
    if not left:
        say(f"No run {of_cells} is missing.")
        return
    cancelled = f"; {counted(waiting, 'waiting task')} cancelled" if waiting else ""
    states = tasks_known(sweep.submissions())
    trains = any(task.state == "running" for tasks in states for task in tasks)
    flight = ", once what is in flight has ended" if trains else ""
    runs = counted(left, "missing run")
    say(f"No task trains the {runs} {of_cells} any more{flight}{cancelled}.")
    say_training("Train them after all", sweep.paths, "resume")


_LOOK_SECONDS = 5.0  # between two looks for fits that hang


def stop_here(sweep: Sweep) -> None:
    """Stop here after the fits in flight. Ctrl-C ends these; another Ctrl-C stops waiting."""
    from manyseed.orchestrator.submissions import stopping
    from manyseed.orchestrator.submissions.submission import running
    from manyseed.orchestrator.tasks.intent import LOCAL

    here = [one for one in sweep.submissions() if one.cluster == LOCAL]

    told: set[str] = set()

    def stop(*, now: bool) -> None:
        stopping.cancel(here, now=now)
        looked = 0.0
        while running(here):
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                for run, text in _hanging(sweep, here).items():
                    if run not in told:
                        told.add(run)
                        say(text)
            time.sleep(0.1)

    try:
        stop(now=False)
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            stop(now=True)


def ask_to_stop_here(sweep: Sweep, again: Sequence[object]) -> None:
    """Let what trains here end after its fits in flight, without waiting; say so if it is read.

    `again`: the command that goes on.
    """
    from manyseed.orchestrator.cli.process import StreamClosed
    from manyseed.orchestrator.submissions import stopping

    here = [one for one in sweep.submissions() if one.cluster == LOCAL]
    if here and any(stopping.cancel(here, now=False)):
        with suppress(StreamClosed, OSError):
            say("\nWhat trains here ends after the fits in flight.", to=errors)
            say_next("Continue with", *again, to=errors)


def _hanging(sweep: Sweep, listed: Iterable[Submission]) -> dict[str, str]:
    """Return a sentence for each run in flight that seems to hang, by the run's address."""
    from manyseed.orchestrator.progress.timeleft import hanging
    from manyseed.orchestrator.submissions.submission import tasks_of

    every = [task for tasks in tasks_of([*listed], ask=False) for task in tasks]
    attempts = [task.last for task in every if task.state == "running" and task.last.in_flight]
    told = hanging(sweep.paths, sweep.survey(), attempts) if attempts else []
    return {text.partition(" (")[0]: text for text in told}


def logs(
    directory: Directory,
    what: str | None = argument(
        "RUN|TASK",
        "A run (cell, repeat, run) such as 12:0:3; or a task, such as 1/0 or its job id. By "
        "default, the task that began last.",
    ),
    failed: bool = switch("--failed", "Show why runs failed, one traceback of each error."),
    as_json: Json = False,
) -> None:
    """Show what a task printed, or why runs failed.

    Examples:

        manyseed logs sweep

        manyseed logs sweep 1/0

        manyseed logs sweep --failed
    """
    from manyseed.orchestrator.paths import open_sweep
    from manyseed.orchestrator.submissions.patience import brief_if_trained

    paths = open_sweep(directory)
    if failed:
        given: dict[str, Any] = {"RUN|TASK": what}
        alone("--failed", **given)
    with brief_if_trained(paths):
        _print_logs(paths, what, failed=failed, as_json=as_json)


def _print_logs(paths: SweepPaths, what: str | None, *, failed: bool, as_json: bool) -> None:
    from manyseed.orchestrator.progress import logs as texts
    from manyseed.orchestrator.submissions.retries import as_mended, retry
    from manyseed.orchestrator.submissions.submission import (
        lost_failures,
        submissions,
    )
    from manyseed.orchestrator.survey import survey
    from manyseed.orchestrator.tasks.attempts import shortened

    directory, others = paths.directory, ""
    if what is None and not failed:
        what = texts.latest(paths)
        if not as_json:
            say(f"Task {what}, which began last:")
            others = f"Also: {command('logs', directory)} with another task, a run, or --failed"
    if what is not None:
        printed = list(texts.logs(paths, what))
        for text in texts.lost(paths, what):
            say(text, to=errors)
        if as_json:
            print_json({"logs": [{"file": str(file), "text": text} for file, text in printed]})
        for file, text in () if as_json else printed:
            console.print(str(file), soft_wrap=True, style="bold")
            console.print(f"{text}\n", soft_wrap=True)
        ended = "" if as_json else texts.ending(paths, what)
        if ended or not (printed or as_json):
            say(ended or "Nothing was printed.")
        if others:
            say(others)
        return
    groups = texts.failures(paths, fold=not as_json)
    for text in lost_failures(submissions(paths)):
        say(text, to=errors)
    if as_json:
        keys = ("error", "count", "runs", "traceback")
        print_json({"failures": [{key: asdict(one)[key] for key in keys} for one in groups]})
        return
    for group in groups:
        error, _, rest = group.error.partition("\n")
        error = f"{cut(error)}{' …' * bool(rest)}"
        varies = " (and alike: digits or paths differ)" if group.varies else ""
        say(Text.assemble((f"{group.count:,} × ", "bold"), f"{error}{varies}"))
        more = ", …" if group.count > len(group.runs) else ""
        say(f"runs {', '.join(group.runs)}{more}{texts.models(paths, group.runs)}")
        if text := shortened(group.traceback):
            console.print(text, soft_wrap=True, style="dim")
        say_next("All of it", "logs", directory, group.runs[0])
        console.print()
    if groups and texts.retrained(paths, *survey(paths).failures):
        say_next("Some are being trained again", "status", directory, "--watch")
    elif groups:
        mended = as_mended(paths, survey(paths))
        say_next(f"Retry them{mended.note}", *retry(paths, mended))
    else:
        say("No run failed.")
    say_unreadable(submissions(paths))
    if tasks := texts.died(paths):
        say_next(f"{counted(len(tasks), 'task')} died", "logs", directory, tasks[-1])


def show(directory: Directory, run: Annotated[str, address("RUN")], as_json: Json = False) -> None:
    """Show everything that defines one run, and how it was made.

    Examples:

        manyseed status sweep 12:0:3
    """
    from manyseed.orchestrator.sweep import Sweep

    value = Sweep(directory).show(run)
    if as_json:
        print_json(value)
    else:
        print_values(value)


def print_values(value: Mapping[str, object]) -> None:
    """Print a dict of values and dicts, one line per value."""
    for name, part in value.items():
        if isinstance(part, dict) and part:
            console.print(f"{name}:")
            for key, inner in part.items():
                _print_value(f"  {key:<20} ", inner)
        else:
            _print_value(f"{name:<22} ", part)


def _print_value(key: str, value: Any) -> None:
    """Print a key and its value: strings unwrapped, JSON wrapped beside the key on a terminal."""
    if isinstance(value, str) or not console.is_terminal:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        console.print(f"{key}{text}", soft_wrap=True)
        return
    table = Table.grid()
    table.add_column(width=len(key))
    table.add_column(overflow="fold")
    table.add_row(Text(key), Text(json.dumps(value, ensure_ascii=False)))
    console.print(table)
