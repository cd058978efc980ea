"""``manyseed plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli import completing
from manyseed.orchestrator.cli.common import Directory, Json, Where, names, require_outside
from manyseed.orchestrator.cli.output import print_json, print_rows, say


def plot(
    directory: Directory,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="The figure; without it, all kinds are listed.",
            show_default=False,
            autocompletion=completing.kinds,
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="COLUMN[,COLUMN]",
            help="For a column of the tables: group by one or two axes; two give the rows and the "
            "columns of a grid.",
            show_default="a row per cell",
        ),
    ] = "",
    where: Where = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A .pdf, .svg or .png file; or a .csv file for the numbers that are drawn.",
            show_default="KIND.pdf",
        ),
    ] = None,
    width: Annotated[
        str | None,
        typer.Option(
            metavar="MM",
            help="single or double for columns of a journal (89 or 183 mm), or millimetres.",
            show_default="as in the report",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw one figure of the results, as a file for a paper.

    KIND is a figure of the report, or a column of the tables runs, pairs or repeats: accuracy, ece,
    ec_local, accuracy_range, fit_seconds and others. Each cell has its own row; with --by, cells
    that agree in these columns share one. Several figures become pages of a PDF, or numbered files
    of other formats. Fonts are embedded, and the same results give the same file. The command
    prints the caption, which says what is shown, over what, and n.

    Examples:

        manyseed plot quickstart

        manyseed plot quickstart accuracy --by perturb_continuous -o accuracy.pdf

        manyseed plot quickstart accuracy -o accuracy.csv

        manyseed plot quickstart ec_local --by perturb_continuous,train_fraction

        manyseed plot quickstart alpha-hat-accuracy --where "classifier = 'mlp'" --width single
    """
    from manyseed.orchestrator.results.figures import save
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    if kind is None or kind == "?":
        kinds = sweep.plot.kinds
        if as_json:
            print_json({"kinds": kinds.to_dicts()})
        else:
            print_rows(kinds.columns, kinds.rows(), kinds.height, "")
        return
    file = output or Path(f"{kind.replace('_', '-')}.pdf")
    require_outside(file, sweep)
    drawn = sweep.plot.all(kind, by=names(by), where=where, width=width)
    files = save(drawn, file)
    if as_json:
        listed = [{"title": p.title, "caption": p.caption, "n": p.n} for p in drawn]
        print_json({"kind": kind, "files": [str(one) for one in files], "figures": listed})
        return
    for figure in drawn:
        say(figure.title, style="bold")
        say(figure.caption, indent=2)
    written = str(files[0]) if len(files) == 1 else f"{files[0]} to {files[-1].name}"
    say(f"Wrote {written}.")
