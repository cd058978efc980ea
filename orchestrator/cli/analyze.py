"""``manyseed analyze``, ``query`` and ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import Directory, Json, Workers
from orchestrator.cli.output import console, print_frame, print_json, print_table
from orchestrator.cli.progress import bar

if TYPE_CHECKING:
    from orchestrator.sweep import Sweep


def analyze(
    directory: Directory,
    workers: Workers = None,
    resamples: Annotated[
        int, typer.Option(min=1, help="Random splits of a test set for α̂ (B).")
    ] = 100,
    epsilon: Annotated[
        float, typer.Option(min=0, max=1, help="Probability that α̂'s threshold δ is exceeded.")
    ] = 0.01,
) -> None:
    """Compute the result tables of all runs that are finished.

    They are written to DIR/results as Parquet: runs, pairs, repeats and cells.
    """
    from analysis.options import Options
    from orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    _analyze(sweep, Options(resamples=resamples, epsilon=epsilon), workers)
    print_summary(sweep)
    console.print(f"\nTables: {sweep.paths.results}. Ask them: manyseed query {directory}")


def query(
    directory: Directory,
    table: Annotated[
        str, typer.Option("--table", "-t", help="runs, pairs, repeats or cells.")
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
    """
    from orchestrator.query import query as ask
    from orchestrator.query import write
    from orchestrator.sweep import Sweep

    frame = ask(
        Sweep(directory).results,
        table,
        where=where,
        columns=_names(columns),
        by=_names(by),
        sort=sort,
    )
    if output is not None:
        write(frame, output)
        console.print(f"{len(frame):,} rows → {output}")
    elif as_json:
        print_json({"table": table, "rows": frame.to_dicts()})
    else:
        print_frame(frame, limit)


def report(directory: Directory) -> None:
    """Write the report: one page with tables and figures, DIR/report/index.html."""
    from orchestrator.sweep import Sweep

    console.print(f"Report: {Sweep(directory).report()}")


def analyze_and_report(sweep: Sweep) -> None:
    """Do both, with a progress bar."""
    from analysis.options import Options

    _analyze(sweep, Options(), None)
    with console.status("writing the report"):
        page = sweep.report()
    console.print(f"Report: {page}")


def print_summary(sweep: Sweep) -> None:
    """Print what the sweep found, by dataset and classifier."""
    from orchestrator.reporting import summary_table

    frame = summary_table(sweep.results)
    print_table(None, frame.columns, frame.iter_rows())


def _analyze(sweep: Sweep, options: object, workers: int | None) -> None:
    from analysis.options import Options

    assert isinstance(options, Options)
    with bar() as progress:
        task = progress.add_task("analysing", total=None, note="")

        def tell(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        sweep.analyze(options, workers=workers, progress=tell)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
