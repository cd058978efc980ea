"""``manyseed howmany``."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyseed.analysis.options import CONFIDENCE
from manyseed.orchestrator.cli.arguments import (
    By,
    Cluster,
    Directory,
    Json,
    Where,
    names,
    whole_numbers,
    workers_option,
)
from manyseed.orchestrator.cli.output import counted, errors, print_json, say
from manyseed.orchestrator.cli.progress import one_core
from manyseed.orchestrator.errors import UserError

if TYPE_CHECKING:
    from manyseed.orchestrator.sweep import Sweep


def howmany(
    directory: Directory,
    accuracy: Annotated[
        float, typer.Option(help="Required precision (±) of the mean accuracy.")
    ] = 0.005,
    consistency: Annotated[
        float, typer.Option(help="Required precision (±) of the mean local error consistency.")
    ] = 0.02,
    confidence: Annotated[
        float, typer.Option(help="Confidence of these precisions, and of intervals.")
    ] = CONFIDENCE,
    where: Where = None,
    by: By = "",
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…",
            help="Sizes of the ensembles to draw (M_ens).",
            show_default="those of 3,5,10,20,30,70,100,150,200 that the runs allow",
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=2, help="Ensembles of each size.")] = 500,
    until: Annotated[
        float | None,
        typer.Option(
            metavar="±", help="Train more runs until accuracies are known this precisely."
        ),
    ] = None,
    most: Annotated[
        int, typer.Option(min=1, help="With --until: at most N runs of a cell on each test set.")
    ] = 200,
    block: Annotated[int, typer.Option(min=1, help="With --until: runs added at once.")] = 10,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="With --until: only say what would come next.")
    ] = False,
    cluster: Cluster = "auto",
    workers: Annotated[
        int | None, workers_option("Threads that compute; with --until, training processes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how many seeds are needed, in words, from the results of an analysis.

    For each cell: how many runs give the mean accuracy and the mean local error consistency of one
    test set with the required precision, with an interval and the cost. And for each dataset and
    classifier: how many runs make an ensemble that represents the training (α̂ at most the
    analysis's level close), from ensembles drawn from the repeat with the most runs; the draws are
    stored in the table ensembles.

    With --until, blocks of runs are planned, trained and analysed until the mean accuracy of each
    cell has that precision, by an interval that holds at every look. Runs are only added, and the
    same command continues after an interruption.

    Examples:

        manyseed howmany quickstart

        manyseed howmany quickstart --accuracy 0.001 --where "classifier = 'mlp'"

        manyseed howmany quickstart --by dataset,classifier

        manyseed howmany quickstart --sizes 1,2,3,4,5

        manyseed howmany quickstart --until 0.002 --most 100 --dry-run
    """
    from manyseed.orchestrator.sweep import Sweep

    if until is not None:
        options = {"confidence": confidence, "most": most, "block": block, "where": where}
        _until(Sweep(directory), until, options, (cluster, workers), dry=dry_run, as_json=as_json)
        return
    if dry_run:
        raise UserError("applies only with --until", key="--dry-run", value=True)
    sweep = Sweep(directory)
    more = "With more cores: --workers N."
    with nullcontext() if workers else one_core(sweep.paths, "drawing ensembles", more):
        groups = sweep.howmany(
            accuracy=accuracy,
            consistency=consistency,
            confidence=confidence,
            by=names(by),
            where=where,
            sizes=None if sizes is None else whole_numbers(sizes, "--sizes", "1,2,5"),
            draws=draws,
            workers=workers,
        )
    if as_json:
        values = [
            {
                "name": group.name,
                "cell": group.cell,
                "cell_id": group.cell_id,
                "epoch": group.epoch,
                "dataset": group.dataset,
                "classifier": group.classifier,
                **group.further,
                "cells": group.cells,
                "answers": [asdict(a) | {"words": a.words} for a in group.answers],
                "ensembles": group.ensembles.to_dicts(),
            }
            for group in groups
        ]
        print_json({"groups": values})
        return
    for group in groups:
        say(group.name, style="bold")
        for answer in group.answers:
            say(answer.words, indent=2)


def _until(
    sweep: Sweep,
    half_width: float,
    options: dict[str, Any],
    where: tuple[str, int | None],
    *,
    dry: bool,
    as_json: bool,
) -> None:
    """Train runs, or say how many would be added next; report what is known about each cell."""
    from manyseed.orchestrator.results.caveats import tell_newer
    from manyseed.orchestrator.results.until import preview

    added = 0
    if dry:
        tell_newer(sweep.paths)
        known, added = preview(sweep.paths, half_width, **options)
    else:
        report = (lambda text: say(text, to=errors)) if as_json else say
        cluster, workers = where
        known = sweep.howmany_until(
            half_width, cluster=cluster, workers=workers, tell=report, **options
        )
    if as_json:
        cells = [cell.values() for cell in known]
        print_json({"half_width": half_width, "runs_added_next": added, "cells": cells})
        return
    for cell in known:
        say(cell.name, style="bold")
        say(cell.words, indent=2)
    if dry:
        say(f"Next: {counted(added, 'run')} would be added." if added else "No run would be added.")
