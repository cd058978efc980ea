"""``manyseed plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli import completing
from manyseed.orchestrator.cli.common import (
    Directory,
    Json,
    names,
    require_outside,
    where_option,
)
from manyseed.orchestrator.cli.output import print_json, print_rows, say


def plot(
    directory: Directory,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="Which figure; without it, all kinds are listed.",
            show_default=False,
            autocompletion=completing.kinds,
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="COLUMN[,COLUMN]",
            help="Of a column: by one or two of what cells differ in; of two, the rows and the "
            "columns of a grid.",
            show_default="a row per cell",
        ),
    ] = "",
    where: Annotated[str | None, where_option("Which cells: a condition over them.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A file that ends with .pdf, .svg, .png, or .csv: the numbers that are drawn.",
            show_default="KIND.pdf",
        ),
    ] = None,
    width: Annotated[
        str | None,
        typer.Option(
            metavar="MM",
            help="single or double, the columns of a journal (89 and 183 mm), or millimetres.",
            show_default="as on the page",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw one figure of the results, as a file for a paper.

    KIND is a figure of the page, or a column of the tables of runs, pairs or repeats: accuracy,
    ece, ec_local, accuracy_range, fit_seconds and others. Each cell has a row of its own; with
    --by, cells that agree in these columns are put together. Where there are several figures a PDF
    has a page each, and other files are numbered. Fonts are embedded, and the same results give the
    same file. The caption, which is printed, says what is shown, over what, and n.

    Examples:

        manyseed plot quickstart

        manyseed plot quickstart accuracy --by perturb_continuous -o accuracy.pdf

        manyseed plot quickstart accuracy -o accuracy.csv

        manyseed plot quickstart ec_local --by perturb_continuous,train_fraction

        manyseed plot quickstart alpha-hat-accuracy --where "classifier = 'mlp'" --width single
    """
    from manyseed.orchestrator.results.plotting import save
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    if kind is None or kind == "?":
        found = sweep.plot.kinds
        if as_json:
            print_json({"kinds": found.to_dicts()})
        else:
            print_rows(found.columns, found.rows(), found.height, "")
        return
    file = output or Path(f"{kind.replace('_', '-')}.pdf")
    require_outside(file, sweep)
    drawn = sweep.plot.all(kind, by=names(by), where=where, width=width)
    files = save(drawn, file)
    if as_json:
        listed = [{"title": p.title, "caption": p.caption, "n": p.n} for p in drawn]
        print_json({"kind": kind, "files": [str(one) for one in files], "figures": listed})
        return
    for one in drawn:
        say(one.title, style="bold")
        say(one.caption, indent=2)
    written = str(files[0]) if len(files) == 1 else f"{files[0]} to {files[-1].name}"
    say(f"Wrote {written}.")
