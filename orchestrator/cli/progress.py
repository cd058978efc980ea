"""What takes its time as a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from manyseed.orchestrator.cli.output import console

if TYPE_CHECKING:
    from manyseed.orchestrator.progress import watch
    from manyseed.orchestrator.submissions.submission import Submission


def bar() -> Progress:
    """Return a progress bar in the command's style."""
    return Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None if console.is_terminal else 40),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        expand=console.is_terminal,
    )


@contextmanager
def shards_done(doing: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show, on a terminal, how many shards are done; yield what takes (done, all)."""
    progress = bar()
    progress.disable = quiet or not console.is_terminal
    with progress:
        task = progress.add_task(doing, total=None, note="shards")
        yield lambda done, of: progress.update(task, completed=done, total=of)


def show(submission: Submission) -> watch.Progress:
    """Show a submission until nothing of it lives; return how it ended."""
    from manyseed.orchestrator.progress import watch

    with bar() as progress:
        task = progress.add_task("training", total=submission.n_runs, note="starting")
        last = watch.progress(submission)
        for last in watch.watch(submission):
            note = f"{last.failed} failed" if last.failed else ""
            if last.state == "starting":
                note = "starting"
            progress.update(task, completed=last.done + last.failed, note=note)
    return last
