"""``manyseed init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli.output import console, say_next
from manyseed.orchestrator.errors import UserError


def init(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A file, a source, or your own function as module:name."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="Your own code: module:name, a Python file or a script; or a classifier. "
            "By default, several classifiers.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The classes.", show_default="the likeliest"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Where to write it; the sweep takes its name.",
            show_default="sweep.toml, named after the data",
        ),
    ] = None,
) -> None:
    """Write a sweep file for your data and model, with comments on what was found in them.

    Examples:

        manyseed init measurements.csv

        manyseed init measurements.csv train.py

        manyseed init sklearn:digits mynet:build --out digits.toml
    """
    from manyseed.orchestrator.disk.placing import place_new, unavailable
    from manyseed.orchestrator.grids.template import sweep_file

    text = sweep_file(data, model, target, out.stem if out else None)
    out = out or Path("sweep.toml")
    if out.exists():
        raise UserError("exists already", file=out, remedy="name another file with --out")
    with unavailable("write", out):
        place_new(out, text.encode())
    console.print(f"Wrote {out}.")
    say_next("Next", "plan", out, "--dry-run")
