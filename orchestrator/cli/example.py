"""``manyseed example``."""

from __future__ import annotations

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
    from manyseed.orchestrator.pages import examples

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
