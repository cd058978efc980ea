"""What a command shows while it works: progress bars, and a word on login nodes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import typer

from manyseed.orchestrator.cli.output import console, counted, duration, errors, say, say_next
from manyseed.orchestrator.errors import INTERRUPTED, ManyseedError
from manyseed.orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from manyseed.orchestrator.progress import watch
    from manyseed.orchestrator.submissions.submission import Submission
    from manyseed.orchestrator.tasks.intent import Intent

_LINE_SECONDS = 60.0


@contextmanager
def bar(to: Console | None = None, *, quiet: bool = False) -> Iterator[Progress]:
    """Show a bar, which an error removes if nothing was done; a quiet one shows nothing."""
    from rich import progress as of

    to = to or console
    with of.Progress(
        of.SpinnerColumn(finished_text="✓"),
        of.TextColumn("{task.description}", markup=False),
        of.BarColumn(bar_width=None if to.is_terminal else 40),
        of.MofNCompleteColumn(),
        of.TextColumn("{task.fields[note]}", markup=False),
        of.TimeElapsedColumn(),
        of.TimeRemainingColumn(),
        console=to,
        expand=to.is_terminal,
        disable=quiet,
    ) as shown:
        try:
            yield shown
        except BaseException:
            if not any(task.completed for task in shown.tasks):
                shown.live.transient = True
            raise


@contextmanager
def shards_done(
    doing: str, *, what: str = "shards", quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show, on a terminal, how many shards are done; yield a function that takes (done, total)."""
    with bar(quiet=quiet or not console.is_terminal) as progress:
        task = progress.add_task(doing, total=None, note=what)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def resumable(
    doing: str, *command: object, note: str = "", quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of a command; yield a function that takes (done, total).

    On Ctrl-C, print the `command` that goes on, and exit.
    """
    with bar() as progress:
        task = progress.add_task(doing, total=None, note=note, visible=not quiet)
        try:
            yield lambda done, total: progress.update(task, completed=done, total=total)
        except KeyboardInterrupt:
            progress.stop()
            say_next("Continue with", *command)
            raise typer.Exit(INTERRUPTED) from None


def show(submission: Submission, to: Console | None = None) -> watch.Progress:
    """Show the progress of a submission until all its tasks have ended; return the last state.

    A bar on a terminal; elsewhere a line each minute and one at the end.
    """
    from manyseed.orchestrator.progress import watch

    to = to or console
    if not to.is_terminal:
        return _lines(submission, to)
    with bar(to) as progress:
        task = progress.add_task("training", total=submission.n_runs, note="starting")
        last = watch.progress(submission)
        for last in watch.watch(submission):
            note = f"{last.failed} failed" if last.failed else ""
            if last.state == "starting":
                note = "starting"
            progress.update(task, completed=last.done + last.failed, note=note)
    return last


def _lines(submission: Submission, to: Console) -> watch.Progress:
    from manyseed.orchestrator.progress import watch

    began, printed, last = time.monotonic(), 0.0, watch.progress(submission)
    for last in watch.watch(submission):
        spent = time.monotonic() - began
        if spent - printed >= _LINE_SECONDS:
            printed = spent
            _line(last, spent, to)
    _line(last, time.monotonic() - began, to)
    return last


def _line(now: watch.Progress, seconds: float, to: Console) -> None:
    failed = f", {now.failed:,} failed" if now.failed else ""
    text = f"training, {now.state}: {now.done:,} of {counted(now.runs, 'run')}{failed}"
    say(f"{text}; {duration(seconds)}", to=to)


_SAID_AFTER = 10.0  # seconds; nobody has to read about what takes less


@contextmanager
def one_core(paths: SweepPaths, what: str, more: str = "") -> Iterator[None]:
    """On a login node, keep to one core, and say so if it takes long.

    A machine on which the sweep was trained is no login node. `what` is computed, as the subject of
    a sentence; `more` says how it would be computed elsewhere, or by more cores.
    """
    from manyseed.orchestrator.submissions.profiles import is_login_node
    from manyseed.orchestrator.submissions.submission import last_intent

    def last() -> Intent | None:
        with suppress(ManyseedError):  # what is damaged is reported by whoever needs it
            return last_intent(paths)
        return None

    if not hasattr(os, "sched_setaffinity") or not is_login_node(last):
        yield
        return
    lines = [f"This machine submits jobs, so {what} keeps to one of its cores.", more]
    text = "\n".join(filter(None, lines))
    said = threading.Timer(_SAID_AFTER, say, (text,), {"style": "dim", "to": errors})
    said.daemon = True
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[os.getpid() % len(cores)]})
    said.start()
    try:
        yield
    finally:
        said.cancel()
        os.sched_setaffinity(0, cores)
