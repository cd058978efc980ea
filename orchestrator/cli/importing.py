"""``manyseed import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli.output import counted, say, say_next


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Predictions.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where to make it.", show_default=False)
    ],
    dataset: Annotated[
        str | None, typer.Option(help="The dataset's name.", show_default="the file's")
    ] = None,
    classifier: Annotated[
        str | None, typer.Option(help="The classifier's name.", show_default="imported")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="True classes, beside an NPY file.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="CSV or Parquet: what each run is, a row per run."),
    ] = None,
    probability: Annotated[
        str,
        typer.Option(metavar="softmax|ovr|none", help="How scores become probabilities."),
    ] = "softmax",
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Scores of arrays are probabilities already."),
    ] = False,
) -> None:
    """Make a sweep directory of predictions that were made elsewhere.

    FILE is an NPZ with scores (run, sample, class) or labels (run, sample) and y_true; an NPY of
    one of the two; CSV or Parquet tables in OpenML's columns, one per run; or what manyseed export
    wrote. analyze, query, report and howmany take the directory like any other.

    Examples:

        manyseed import logits.npz --out imported

        manyseed import run-1.csv run-2.csv run-3.csv --out imported --dataset vehicle
    """
    from manyseed.orchestrator.importing import import_predictions
    from manyseed.orchestrator.importing.probabilities import FLOOR
    from manyseed.orchestrator.sweep import Sweep

    floored = import_predictions(
        files,
        out,
        dataset=dataset,
        classifier=classifier,
        truth=truth,
        runs=runs,
        probability=probability,
        probabilities=probabilities,
    )
    done = Sweep(out).survey().counts
    say(f"Imported {counted(done['done'] + done['copy'], 'run')} into {out}.")
    if floored:
        say(
            f"{floored:,} {'prediction' if floored == 1 else 'predictions'} of a test point "
            f"{'gives' if floored == 1 else 'give'} a class less than the probability "
            f"{FLOOR:.2g}; it counts as that, since the logarithm of 0 is no score."
        )
    say_next("Next", "analyze", out)
