"""``manyseed query``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli.common import Directory, Json, names, where_option
from manyseed.orchestrator.cli.output import counted, print_frame, print_json, say


def query(
    directory: Directory,
    table: Annotated[
        str,
        typer.Option(
            "--table",
            "-t",
            help="runs, pairs, repeats, cells, sources, ranking, effects, variance, ensembles or "
            "curves.",
        ),
    ] = "cells",
    where: Annotated[str | None, where_option("A condition over the columns.")] = None,
    columns: Annotated[
        str, typer.Option("--columns", "-c", help="Columns to show, separated by commas.")
    ] = "",
    by: Annotated[
        str, typer.Option("--by", help="Group by these columns: means, pooled spreads, n.")
    ] = "",
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

        manyseed query quickstart -t effects -w "metric = 'accuracy_mean'" --by classifier
    """
    from manyseed.orchestrator.results.analysing import read_analysis
    from manyseed.orchestrator.results.caveats import of_columns, of_ranking, of_sources
    from manyseed.orchestrator.results.grouping import notes
    from manyseed.orchestrator.results.query import query as ask
    from manyseed.orchestrator.results.query import write
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    frame = ask(
        sweep.results,
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
    elif frame.is_empty():
        of = f"the table of {table}"
        say(
            f"{of.capitalize()} has no rows." if where is None else f"No row of {of} meets: {where}"
        )
    else:
        print_frame(frame, limit)
        told = [*notes(frame, names(by)), *of_columns(frame.columns)]
        if not by and table in ("ranking", "sources"):
            options = read_analysis(sweep.paths)[0]
            told += (of_ranking if table == "ranking" else of_sources)(frame, options)
        for note in told:
            say(note, style="yellow")
