"""``manyseed drop``."""

from __future__ import annotations

from typing import Annotated

import typer

from manyseed.orchestrator.cli.common import Directory
from manyseed.orchestrator.cli.output import counted, print_frame, say


def drop(
    directory: Directory,
    where: Annotated[
        str,
        typer.Option("--where", metavar="SQL", help="The cells, such as classifier = 'mlp'."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show the cells; write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove cells from the plan for good; their finished runs are lost.

    Examples:

        manyseed drop sweep --where "dataset = 'dionis' AND classifier = 'lr-sgd'" --dry-run
    """
    from manyseed.analysis.axes import AXES
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    chosen = sweep.drop(where, dry_run=True)
    names = ("cell", "dataset", "classifier")
    differing = [c for c in AXES if c not in names and chosen.cells[c].n_unique() > 1]
    print_frame(chosen.cells.select(*names, *differing), 20, more="")
    finished = "all" if chosen.finished == chosen.runs else f"{chosen.finished:,}"
    text = f"{counted(len(chosen.cells), 'cell')} ({counted(chosen.runs, 'run')}, "
    text += f"{finished} finished)"
    if dry_run:
        say(f"\n{text}. Nothing was written (--dry-run).")
        return
    if not yes:
        typer.confirm(f"\nPermanently drop {text}?", abort=True)
    sweep.drop(where)
    say(f"Dropped {text}.")
