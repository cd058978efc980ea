"""``manyseed logs``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from manyseed.orchestrator.cli.common import Directory, Json
from manyseed.orchestrator.cli.output import (
    console,
    errors,
    print_json,
    say,
    say_next,
    say_training,
)
from manyseed.orchestrator.errors import UserError


def logs(
    directory: Directory,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|TASK",
            help="A run (cell, repeat, run) such as 12:0:3; or a task, such as 1/0 or its job id.",
            show_default=False,
        ),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Show why runs failed, one traceback of each error.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a task printed, or why runs failed.

    Examples:

        manyseed logs sweep 1/0

        manyseed logs sweep --failed
    """
    from manyseed.orchestrator.paths import open_sweep

    paths = open_sweep(directory)
    if failed == (what is not None):
        raise UserError("give a run or a task, or --failed", key="RUN|TASK")
    from manyseed.orchestrator.progress import logs as texts
    from manyseed.orchestrator.submissions.submission import lost_failures, submissions
    from manyseed.orchestrator.tasks.attempts import shortened

    if what is not None:
        printed = list(texts.logs(paths, what))
        for text in texts.lost(paths, what):
            say(text, to=errors)
        if as_json:
            print_json({"logs": [{"file": str(file), "text": text} for file, text in printed]})
        for file, text in () if as_json else printed:
            console.print(str(file), soft_wrap=True, style="bold")
            console.print(f"{text}\n", soft_wrap=True)
        if not printed and not as_json:
            say("Nothing was printed.")
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
        varies = " (and alike: digits or paths differ)" if group.varies else ""
        say(Text.assemble((f"{group.count:,} × ", "bold"), f"{error}{' …' * bool(rest)}{varies}"))
        more = ", …" if group.count > len(group.runs) else ""
        say(f"runs {', '.join(group.runs)}{more}")
        console.print(shortened(group.traceback), soft_wrap=True, style="dim")
        say_next("All of it", "logs", directory, group.runs[0])
        console.print()
    if groups:
        say_training("Retry them", paths, "resume", "--failed")
    else:
        say("No run failed.")
