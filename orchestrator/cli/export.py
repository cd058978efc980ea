"""``manyseed export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli.common import Directory
from manyseed.orchestrator.cli.output import say, size


def export(
    directory: Directory,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A new file whose name ends with .zip or .parquet.",
            show_default=False,
        ),
    ],
) -> None:
    """Write a portable copy of the predictions as one file.

    FILE.zip is a Zarr zip store with everything, for
    xarray.open_datatree(zarr.storage.ZipStore(FILE), engine="zarr"); FILE.parquet is a table with
    one row per run and snapshot that holds the labels, without scores and learning curves.

    Examples:

        manyseed export sweep --output sweep.zip

        manyseed export sweep --output labels.parquet
    """
    from manyseed.orchestrator.sweep import Sweep

    file = Sweep(directory).export(output)
    say(f"Wrote {file} ({size(file.stat().st_size)}).")
    if file.suffix == ".parquet":
        say("It holds labels; export a .zip for scores and learning curves.")
