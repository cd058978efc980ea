"""``manyseed example``, ``init`` and ``schema``: write sweep files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli.output import console, print_table, say_next
from manyseed.orchestrator.errors import UserError, nearest


def example(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="An example; without it, all are listed."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Where to write it.", show_default="NAME"),
    ] = None,
) -> None:
    """Write an example sweep file or cluster profile; or list all examples.

    Examples:

        manyseed example

        manyseed example quickstart

        manyseed example clusters/gpu --out mine.toml
    """
    from manyseed.orchestrator.disk.placing import place_new
    from manyseed.orchestrator.examples import examples

    available = examples()
    if name is None:
        print_table(
            None, ("example", "what it is"), [(n, one.title) for n, one in available.items()]
        )
        console.print()
        return say_next("Write one", "example", "quickstart")
    name = name.removesuffix(".toml")
    if name not in available:
        raise UserError(
            "there is no such example", key="NAME", value=name, remedy=nearest(name, available)
        )
    file = out or Path(f"{Path(name).name}.toml")
    texts = {file: available[name].text}
    texts |= {file.with_name(module): text for module, text in available[name].modules.items()}
    for path in texts:
        if path.exists():
            raise UserError("exists already", file=path, remedy="name another file with --out")
    for path, text in texts.items():
        place_new(path, text.encode())
    console.print(f"Wrote {', '.join(map(str, texts))}.")
    if not name.startswith("clusters/"):
        say_next("Next", "plan", file, "--dry-run")
    return None


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
            help="Your own code as module:name, a script, or a classifier; by default several.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The classes.", show_default="the likeliest"),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write it.")
    ] = Path("sweep.toml"),
) -> None:
    """Write a sweep file for your data and model, with comments on what was found in them.

    Examples:

        manyseed init measurements.csv

        manyseed init measurements.csv train.py

        manyseed init sklearn:digits mynet:build --out digits.toml
    """
    from manyseed.orchestrator.disk.placing import place_new, unavailable
    from manyseed.orchestrator.grids.beginning import sweep_file

    if out.exists():
        raise UserError("exists already", file=out, remedy="name another file with --out")
    text = sweep_file(data, model, target)
    with unavailable("write", out):
        place_new(out, text.encode())
    console.print(f"Wrote {out}.")
    say_next("Next", "plan", out, "--dry-run")


def schema() -> None:
    """Print the JSON Schema of sweep files, with which editors complete and check them.

    Name it in the sweep file with the line: #:schema ./sweep.schema.json

    Examples:

        manyseed schema > sweep.schema.json
    """
    from manyseed.orchestrator.grids.jsonschema import schema

    typer.echo(json.dumps(schema(), indent=2, ensure_ascii=False))
