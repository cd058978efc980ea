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
            metavar="FILE",
            help="Ends in .zip or .parquet; must not exist.",
            show_default=False,
        ),
    ],
) -> None:
    """Write one portable copy of the predictions.

    FILE.zip is a Zarr zip store of all there is, for
    xarray.open_datatree(zarr.storage.ZipStore(FILE), engine="zarr"); FILE.parquet is a table of
    one row per run and snapshot, with its labels: scores and learning curves are in FILE.zip alone.

    Examples:

        manyseed export sweep --output sweep.zip

        manyseed export sweep --output labels.parquet
    """
    from manyseed.orchestrator.sweep import Sweep

    file = Sweep(directory).export(output)
    say(f"Wrote {file} ({size(file.stat().st_size)}).")
    if file.suffix == ".parquet":
        say("It holds labels; scores and learning curves are in a .zip.")
