"""``manyseed howmany``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from manyseed.analysis.options import CONFIDENCE
from manyseed.orchestrator.cli.common import Directory, Json, Threads, names
from manyseed.orchestrator.cli.output import print_json, say
from manyseed.orchestrator.errors import UserError


def howmany(
    directory: Directory,
    accuracy: Annotated[
        float, typer.Option(help="How precisely the mean accuracy is to be known: ±.")
    ] = 0.005,
    consistency: Annotated[
        float, typer.Option(help="How precisely the mean local error consistency is: ±.")
    ] = 0.02,
    confidence: Annotated[
        float, typer.Option(help="Confidence of these ±, and of the intervals.")
    ] = CONFIDENCE,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", metavar="SQL", help="Which cells: a condition over them."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="COLUMN,…",
            help="Answer together for cells that agree in these, such as dataset,classifier.",
            show_default="each cell by itself",
        ),
    ] = "",
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…",
            help="Sizes of ensembles to draw (M_ens).",
            show_default="those of 3,5,10,20,30,70,100,150,200 that the runs allow",
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=2, help="Ensembles of each size.")] = 500,
    workers: Threads = None,
    as_json: Json = False,
) -> None:
    """Say how many seeds are needed, in words, from the results of an analysis.

    For each cell: how many runs make the mean accuracy and the mean local error consistency of one
    test set known to a precision, with an interval and the cost. And for each dataset and
    classifier: how many make an ensemble that stands for the training (α̂ at most the level close of
    the analysis), from ensembles drawn out of the repeat with the most runs; the draws are kept as
    the table ensembles.

    Examples:

        manyseed howmany quickstart

        manyseed howmany quickstart --accuracy 0.001 --where "classifier = 'mlp'"

        manyseed howmany quickstart --by dataset,classifier

        manyseed howmany quickstart --sizes 1,2,3,4,5
    """
    from manyseed.orchestrator.sweep import Sweep

    found = Sweep(directory).howmany(
        accuracy=accuracy,
        consistency=consistency,
        confidence=confidence,
        by=names(by),
        where=where,
        sizes=None if sizes is None else _numbers(sizes),
        draws=draws,
        workers=workers,
    )
    if as_json:
        groups = [
            {
                "name": group.name,
                "cell": group.cell,
                "cell_id": group.cell_id,
                "dataset": group.dataset,
                "classifier": group.classifier,
                **group.further,
                "cells": group.cells,
                "answers": [asdict(a) | {"words": a.words} for a in group.answers],
                "ensembles": group.ensembles.to_dicts(),
            }
            for group in found
        ]
        print_json({"groups": groups})
        return
    for group in found:
        say(group.name, style="bold")
        for answer in group.answers:
            say(answer.words, indent=2)


def _numbers(text: str) -> list[int]:
    try:
        return [int(name) for name in names(text)]
    except ValueError:
        raise UserError(
            "no list of whole numbers", key="--sizes", value=text, remedy="such as: --sizes 1,2,5"
        ) from None
