"""``manyseed query`` and ``howmany``: questions to the results of an analysis."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.common import Directory, Json, Threads, names
from orchestrator.cli.output import counted, print_frame, print_json, say
from orchestrator.errors import UserError


def howmany(
    directory: Directory,
    accuracy: Annotated[
        float, typer.Option(help="How precisely the mean accuracy is to be known: ±.")
    ] = 0.005,
    consistency: Annotated[
        float, typer.Option(help="How precisely the mean local error consistency is: ±.")
    ] = 0.02,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", metavar="SQL", help="Which cells: a condition over them."),
    ] = None,
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

    For each dataset and classifier: how many runs make the mean accuracy and the mean error
    consistency known to a precision, with an interval and the cost; and how many make an ensemble
    that stands for the training (α̂ ≤ 0.05), from ensembles drawn out of the repeat with the most
    runs. The draws are kept as the table ensembles.

    Examples:

        manyseed howmany quickstart

        manyseed howmany quickstart --accuracy 0.001 --where "classifier = 'mlp'"

        manyseed howmany quickstart --sizes 1,2,3,4,5
    """
    from orchestrator.sweep import Sweep

    found = Sweep(directory).howmany(
        accuracy=accuracy,
        consistency=consistency,
        where=where,
        sizes=None if sizes is None else _numbers(sizes),
        draws=draws,
        workers=workers,
    )
    if as_json:
        groups = [
            {
                "dataset": group.dataset,
                "classifier": group.classifier,
                "cells": group.cells,
                "answers": [asdict(a) | {"words": a.words} for a in group.answers],
                "ensembles": group.ensembles.to_dicts(),
            }
            for group in found
        ]
        print_json({"groups": groups})
        return
    for group in found:
        cells = f" ({group.cells:,} cells)" if group.cells > 1 else ""
        say(Text.assemble((f"{group.dataset} × {group.classifier}", "bold"), cells))
        for answer in group.answers:
            say(answer.words, indent=2)


def query(
    directory: Directory,
    table: Annotated[
        str,
        typer.Option(
            "--table",
            "-t",
            help="runs, pairs, repeats, cells, sources, ranking, ensembles or curves.",
        ),
    ] = "cells",
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", metavar="SQL", help="A condition over the columns."),
    ] = None,
    columns: Annotated[
        str, typer.Option("--columns", "-c", help="Columns to show, separated by commas.")
    ] = "",
    by: Annotated[str, typer.Option("--by", help="Group by these columns: means and n.")] = "",
    sort: Annotated[
        str | None, typer.Option("--sort", help="A column; with - in front, descending.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows to print.")] = 40,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write all rows to a .parquet, .csv or .json file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask the result tables.

    Examples:

        manyseed query quickstart --by classifier

        manyseed query quickstart -t runs -w "classifier = 'mlp'" --sort -accuracy

        manyseed query quickstart -t pairs -o pairs.csv

        manyseed query quickstart -t ranking -w "rank = 1"
    """
    from orchestrator.query import query as ask
    from orchestrator.query import write
    from orchestrator.sweep import Sweep

    frame = ask(
        Sweep(directory).results,
        table,
        where=where,
        columns=names(columns),
        by=names(by),
        sort=sort,
    )
    if output is not None:
        write(frame, output)
        say(f"Wrote {counted(len(frame), 'row')} to {output}.")
    elif as_json:
        print_json({"table": table, "rows": frame.to_dicts()})
    else:
        print_frame(frame, limit)


def _numbers(text: str) -> list[int]:
    try:
        return [int(name) for name in names(text)]
    except ValueError:
        raise UserError(
            "no list of whole numbers", key="--sizes", value=text, remedy="such as: --sizes 1,2,5"
        ) from None
