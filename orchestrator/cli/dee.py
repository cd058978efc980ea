"""``manyseed dee``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from manyseed.orchestrator.cli.arguments import By, Directory, Json, Where, names
from manyseed.orchestrator.cli.output import print_json, say


def dee(
    directory: Directory,
    metric: Annotated[
        str, typer.Option(help="The metric, such as cll, c_brier, c_aurc or error.")
    ] = "cll",
    where: Where = None,
    by: By = "",
    members: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many runs of other cells to average.",
            show_default="one, and all of them",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how much averaging runs gains, and how many runs another cell is worth, in words.

    For each cell, from an analysis with --calibration: how many averaged runs (a deep ensemble)
    reach half, and nine tenths, of what averaging all of them gains over one. And for each cell
    that differs from it in one axis only: how many independent runs of the first cell make an
    ensemble as good (deep ensemble equivalent), with the range of one standard deviation.

    Examples:

        manyseed dee quickstart

        manyseed dee quickstart --metric error --where "classifier = 'mlp'"

        manyseed dee quickstart --by dataset,classifier --members 1
    """
    from manyseed.orchestrator.computing.tables import read_analysis
    from manyseed.orchestrator.results.caveats import of_probabilities
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    groups = sweep.dee(metric=metric, where=where, by=names(by), members=members)
    notes = of_probabilities(read_analysis(sweep.paths)[1])
    if as_json:
        values = [
            {
                "name": group.name,
                "cells": group.cells,
                "gain": asdict(group.gain) | {"words": group.gain.words},
                "worths": [asdict(worth) | {"words": worth.words} for worth in group.worths],
            }
            for group in groups
        ]
        print_json({"groups": values, "notes": notes})
        return
    for group in groups:
        say(group.name, style="bold")
        say(group.gain.words, indent=2)
        for worth in group.worths:
            say(worth.words, indent=2)
    for note in notes:
        say(note)
