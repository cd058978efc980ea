"""``manyseed doctor``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from manyseed.orchestrator.cli.common import Json
from manyseed.orchestrator.cli.output import print_json, say, say_next


def doctor(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="A folder for sweeps.", show_default="here")
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Check this machine for sweeps: versions, cores, GPUs, SLURM, the folder's file system.

    It writes files like those of a sweep into the folder and removes them. Exit code 4 if sweeps
    cannot work here; lesser problems are reported with their remedies.

    Examples:

        manyseed doctor

        manyseed doctor /scratch/sweeps
    """
    from manyseed.orchestrator.doctor import examine
    from manyseed.orchestrator.errors import UnavailableError

    checks = []
    for check in examine(directory):
        checks.append(check)
        if as_json:
            continue
        mark = ("✗", "red") if check.problem else ("✓", "green")
        say(Text.assemble(mark, f" {check.what}: {check.answer}"))
        if check.problem:
            say(check.problem, indent=2)
    failed = any(check.problem and check.needed for check in checks)
    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
    elif not failed:
        _say_cluster()
    if failed:
        raise typer.Exit(UnavailableError.exit_code)


def _say_cluster() -> None:
    """Name the command that checks the nodes of this machine's cluster, if it has one."""
    from manyseed.orchestrator.submissions.profiles import own_names
    from manyseed.slurm import available

    if available():
        names = own_names()
        say("")
        if not names:
            say_next("A profile of the cluster", "cluster", "init")
        for name in names:
            say_next("Nodes of a cluster", "cluster", "check", name)
