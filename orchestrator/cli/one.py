"""``manyseed show``, ``rerun`` and ``drop``: single runs and cells."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from orchestrator.cli.common import Directory, Json
from orchestrator.cli.output import console, counted, print_frame, print_json, say
from orchestrator.errors import RunsError

Address = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Cell, repeat and run, counted from 0: 12:0:3. The cell by its number, or by the "
        "first digits of its identity.",
        show_default=False,
    ),
]


def show(directory: Directory, run: Address, as_json: Json = False) -> None:
    """Show everything that defines one run, and how it was made.

    Examples:

        manyseed show sweep 12:0:3
    """
    from orchestrator.sweep import Sweep

    value = Sweep(directory).show(run)
    if as_json:
        print_json(value)
    else:
        _print(value)


def rerun(
    directory: Directory,
    run: Address,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless it is equal bit for bit.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train one run again and compare it with what is stored.

    In the recipe that it was made in it must be equal, bit for bit; in another one this tells how
    much differs.

    Examples:

        manyseed rerun sweep 12:0:3 --check
    """
    from orchestrator.sweep import Sweep

    value = Sweep(directory).rerun(run)
    if as_json:
        print_json(value)
    else:
        _print(value)
    if check and value["same_recipe"] and not value["equal"]:
        raise RunsError(
            f"run {run} trained again in its own recipe differs: {value['labels_differ']:,} of "
            f"{value['labels']:,} labels\n  check what is stored with: manyseed verify {directory}"
        )


def drop(
    directory: Directory,
    where: Annotated[
        str,
        typer.Option("--where", metavar="SQL", help="Which cells: classifier = 'mlp'."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show the cells; write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Take cells out of the plan for good; what is finished of them is lost.

    Examples:

        manyseed drop sweep --where "dataset = 'dionis' AND classifier = 'lr-sgd'" --dry-run
    """
    from orchestrator.grids.sweepfile import AXES
    from orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    chosen = sweep.drop(where, dry_run=True)
    names = ("cell", "dataset", "classifier")
    telling = [c for c in AXES if c not in names and chosen.cells[c].n_unique() > 1]
    print_frame(chosen.cells.select(*names, *telling), 20, more="")
    text = f"{counted(len(chosen.cells), 'cell')} of {counted(chosen.runs, 'run')}"
    text += f", {chosen.finished:,} finished"
    if dry_run:
        say(f"\n{text}. Nothing was written (--dry-run).")
        return
    if not yes:
        typer.confirm(f"\nDrop {text} for good?", abort=True)
    sweep.drop(where)
    say(f"Dropped {text}.")


def _print(value: dict[str, Any]) -> None:
    for name, part in value.items():
        if isinstance(part, dict) and part:
            console.print(f"{name}:")
            for key, inner in part.items():
                console.print(f"  {key:<20} {_text(inner)}", soft_wrap=True)
        else:
            console.print(f"{name:<22} {_text(part)}", soft_wrap=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
