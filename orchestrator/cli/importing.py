"""``manyseed import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli.output import counted, say, say_next


def import_(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where to make it.", show_default=False)
    ],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE…", help="Predictions.", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="The dataset's name.", show_default="the file's")
    ] = None,
    classifier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|NAME=FILE",
            help="The classifier's name; or a classifier with a file of its arrays, once for each.",
            show_default="imported",
        ),
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

    FILE is an NPZ with scores (run, sample, class) or labels (run, sample) and y_true; a file of
    torch.save with tensors of these names; an NPY of one of the two; CSV or Parquet tables in
    OpenML's columns, one per run; or what manyseed export wrote. analyze, query, report and howmany
    take the directory like any other. Files of arrays with the same dataset and classifier are
    further runs.

    Examples:

        manyseed import logits.npz --out imported

        manyseed import seed-1.npz seed-2.npz --out imported --dataset digits --classifier cnn

        manyseed import --classifier cnn=a.npz --classifier vit=b.npz --out both --dataset digits

        manyseed import run-1.csv run-2.csv run-3.csv --out imported --dataset vehicle
    """
    from manyseed.orchestrator.importing import import_predictions
    from manyseed.orchestrator.importing.probabilities import FLOOR
    from manyseed.orchestrator.sweep import Sweep

    name, of_each = _classifiers(classifier or [])
    floored = import_predictions(
        files or [],
        out,
        dataset=dataset,
        classifier=name,
        classifiers=of_each,
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


def _classifiers(given: list[str]) -> tuple[str | None, dict[str, list[Path]]]:
    """Return the one name, if any, and the files of each classifier that has some."""
    from manyseed.orchestrator.errors import UserError

    names = [text for text in given if "=" not in text]
    if len(names) > 1:
        raise UserError(
            "names the classifier of the files, and there is one already",
            key="--classifier",
            value=names[1],
            remedy=f"--classifier {names[1]}=FILE",
        )
    files: dict[str, list[Path]] = {}
    for text in given:
        if "=" in text:
            name, _, file = text.partition("=")
            files.setdefault(name, []).append(Path(file))
    return names[0] if names else None, files
