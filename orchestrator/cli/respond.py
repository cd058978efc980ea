"""``manyseed respond``: measure response curves of kept models."""

from __future__ import annotations

from typing import Annotated

import typer

from manyseed.orchestrator.cli.common import (
    Directory,
    Json,
    Where,
    names,
    whole_numbers,
    workers_option,
)
from manyseed.orchestrator.cli.output import counted, print_json, say, say_next
from manyseed.orchestrator.cli.progress import resumable


def respond(
    directory: Directory,
    transforms: Annotated[
        str | None,
        typer.Option(
            "--transforms",
            metavar="NAME,…",
            help="intra, inter, and for images such as rotate:90, shift-x:0.25, colour:0.25.",
            show_default="those of the sweep file's [response], else intra,inter",
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            metavar="N,…",
            help="Layers on whose output intra and inter act, 0 and 1.",
            show_default="0,1",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", min=2, help="Training rows per sample.", show_default="23040"),
    ] = None,
    draws: Annotated[
        int | None, typer.Option("--draws", min=1, help="Samples to draw.", show_default="1")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="The table's name.", show_default="the transforms"
        ),
    ] = None,
    where: Where = None,
    workers: Annotated[int | None, workers_option("Processes on this machine.")] = None,
    as_json: Json = False,
) -> None:
    """Measure response curves of runs that kept their parameters (keep.parameters = true).

    Models are evaluated on this machine's CPUs, even if they were trained on a GPU. Curves measured
    in training stay; analyze uses both. The same command continues after an interruption, and adds
    runs that have finished since.

    Examples:

        manyseed respond sweep --transforms intra,rotate:90

        manyseed respond sweep --where "classifier = 'mlp'"
    """
    from manyseed.orchestrator.sweep import Sweep

    options: dict[str, object] = {"rows": rows, "draws": draws}
    options["transforms"] = None if transforms is None else names(transforms)
    options["layers"] = None if layers is None else whole_numbers(layers, "--layers", "0,1")
    given = {key: value for key, value in options.items() if value is not None}
    with resumable("asking", "respond", directory, note="models", quiet=as_json) as progress:
        result = Sweep(directory).respond(
            given, name=name, where=where, workers=workers, progress=progress
        )
    if as_json:
        value = {"file": str(result.file), "asked": result.asked, "runs": result.runs}
        print_json({**value, "transforms": list(result.transforms)})
        return
    say(f"{counted(result.asked, 'model')} measured, {result.runs:,} in all: {result.file}")
    if result.from_gpu:
        say(
            f'{counted(result.from_gpu, "model")} of cells with device = "gpu" measured on a CPU: '
            "counts may differ by a few from those that a GPU would have measured in training"
        )
    say_next("Next", "analyze", directory)
