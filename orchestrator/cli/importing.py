"""``manyseed import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli.output import counted, say, say_next


def import_(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR] FILE…",
            help="Predictions; before them, optionally, an import to add them to.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="The new directory.", show_default=False),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="The dataset's name.", show_default="the file's")
    ] = None,
    classifier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|NAME=FILE",
            help="The classifier's name; or, once for each file, a classifier and its file.",
            show_default="imported",
        ),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="The true classes, for an NPY file.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="CSV or Parquet that describes each run in a row."),
    ] = None,
    probability: Annotated[
        str,
        typer.Option(metavar="softmax|ovr|none", help="How scores become probabilities."),
    ] = "softmax",
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Scores of arrays are already probabilities."),
    ] = False,
) -> None:
    """Make a sweep directory from predictions that were made elsewhere.

    FILE is an NPZ with scores (run, sample, class) or labels (run, sample) and y_true; a file of
    torch.save with tensors of these names; an NPY with scores or labels; CSV or Parquet tables with
    OpenML's columns, one per run; or the output of manyseed export. analyze, query, report and
    howmany take the directory like any other. Several files of arrays with the same dataset and
    classifier are further runs.

    If a directory stands before the files, they are added to the import in it as further runs: all
    of them or none.

    Examples:

        manyseed import logits.npz --out imported

        manyseed import seed-1.npz seed-2.npz --out imported --dataset digits --classifier cnn

        manyseed import --classifier cnn=a.npz --classifier vit=b.npz --out both --dataset digits

        manyseed import imported seed-3.npz seed-4.npz

        manyseed import run-1.csv run-2.csv run-3.csv --out imported --dataset vehicle
    """
    from manyseed.orchestrator.errors import UserError
    from manyseed.orchestrator.importing import import_predictions
    from manyseed.orchestrator.importing.classes import FLOOR
    from manyseed.orchestrator.sweep import Sweep

    name, of_each = _classifiers(classifier or [])
    files = files or []
    into = files[0] if files and files[0].is_dir() else None
    unnamed = files[1:] if into else files
    if of_each and unnamed and name is None:
        raise UserError(
            "has no classifier, but other files do",
            file=unnamed[0],
            remedy=f"--classifier {[*of_each][-1]}={unnamed[0]}, or --classifier NAME for the "
            "files without one",
        )
    directory = _directory(into, out)
    before = Sweep(directory).survey().counts if into else {"done": 0, "copy": 0}
    floored = import_predictions(
        unnamed,
        directory,
        dataset=dataset,
        classifier=name,
        classifiers=of_each,
        truth=truth,
        runs=runs,
        probability=probability,
        probabilities=probabilities,
        adding=into is not None,
    )
    done = Sweep(directory).survey().counts
    held, now = (each["done"] + each["copy"] for each in (before, done))
    if into is None:
        say(f"Imported {counted(now, 'run')} into {directory}.")
    else:
        say(f"Added {counted(now - held, 'run')} to {directory}, which holds {now:,} now.")
    if floored:
        say(
            f"{floored:,} {'prediction' if floored == 1 else 'predictions'} of a test point "
            f"{'gives' if floored == 1 else 'give'} a class less than the probability "
            f"{FLOOR:.2g}, which is used instead, since the logarithm of 0 is not a score."
        )
    say_next("Next", "analyze", directory)


def _directory(into: Path | None, out: Path | None) -> Path:
    """Return the directory to make or to add to; exactly one must be given."""
    from manyseed.orchestrator.errors import UserError

    if into is not None and out is not None:
        raise UserError(
            "names a new directory, but one to add the files to is given before them",
            key="--out",
            value=str(out),
            remedy=f"leave out --out to add them, or {into} to make a new directory",
        )
    directory = into or out
    if directory is None:
        raise UserError(
            "there is no directory to import into",
            remedy="name a new one with --out DIR, or an existing import before the files",
        )
    return directory


def _classifiers(given: list[str]) -> tuple[str | None, dict[str, list[Path]]]:
    """Return the name without a file, if any, and the files of each other classifier."""
    from manyseed.orchestrator.errors import UserError

    names = [text for text in given if "=" not in text]
    if len(names) > 1:
        raise UserError(
            "names the classifier of the files a second time",
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
