"""``manyseed compare``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyseed.analysis.options import CONFIDENCE
from manyseed.orchestrator.cli.common import Directory, Json, where_option
from manyseed.orchestrator.cli.output import counted, print_json, say

if TYPE_CHECKING:
    from manyseed.orchestrator.results.compared import Compared, OneCell


def compare(
    directory: Directory,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="Another sweep: A is in the first, B in this.", show_default=False
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="Compare pairs of cells that differ only in this."),
    ] = "classifier",
    a: Annotated[
        str | None, typer.Option("--a", metavar="SQL", help="A condition on cells A.")
    ] = None,
    b: Annotated[
        str | None, typer.Option("--b", metavar="SQL", help="A condition on cells B.")
    ] = None,
    where: Annotated[str | None, where_option("A condition on the cells of both.")] = None,
    metric: Annotated[
        str, typer.Option("--metric", "-m", help="A metric of runs, such as ece.")
    ] = "accuracy",
    lower: Annotated[
        bool, typer.Option("--lower", help="For a metric of your own: lower is better.")
    ] = False,
    confidence: Annotated[
        float, typer.Option(help="Confidence of each single interval.")
    ] = CONFIDENCE,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Comparisons to print.")] = 40,
    as_json: Json = False,
) -> None:
    """Compare cells, classifiers or sweeps: the difference, and P(A better than B).

    Cells are compared on the test sets that they share, and run by run if runs share random
    streams; the report says how many runs this saves. Sweeps with different test sets are compared
    unpaired. Each difference has an interval over seeds for these test sets, and one over seeds and
    new test sets.

    Examples:

        manyseed compare quickstart

        manyseed compare quickstart --by train_fraction --where "classifier = 'mlp'"

        manyseed compare quickstart --a "classifier = 'mlp'" --b "classifier = 'xgb'"

        manyseed compare quickstart other-sweep --metric ece
    """
    from manyseed.analysis.questions.intervals import too_few
    from manyseed.orchestrator.results.compared import words
    from manyseed.orchestrator.sweep import Sweep

    comparisons = Sweep(directory).compare(
        other,
        by=by,
        a=a,
        b=b,
        where=where,
        metric=metric,
        lower=lower,
        confidence=confidence,
    )
    if as_json:
        print_json({"comparisons": [asdict(one) | {"words": [*words(one)]} for one in comparisons]})
        return
    say(f"{metric}, {counted(len(comparisons), 'comparison')}", style="bold")
    for one in comparisons[:limit]:
        say("")
        say(f"A: {_named(one.a, one, of_sweeps=other is not None)}", style="bold")
        say(f"B: {_named(one.b, one, of_sweeps=other is not None)}", style="bold")
        for sentence in words(one):
            say(sentence, indent=2)
    results = [one.result for one in comparisons[:limit] if one.result and one.result.sets]
    if few := too_few(min((min(one.sets_a, one.sets_b) for one in results), default=0)):
        say("")
        say(few, style="dim")
    if len(comparisons) > limit:
        say(f"… {len(comparisons) - limit:,} more; see --limit, --where and --json", style="dim")
    elif len(comparisons) > 1:
        say("")
        say(
            f"Each interval by itself holds at {100 * confidence:g} %: of {len(comparisons):,}, "
            f"about {(1 - confidence) * len(comparisons):.2g} are expected to miss.",
            style="dim",
        )


def _named(cell: OneCell, pair: Compared, *, of_sweeps: bool) -> str:
    """Name a cell by the levels in which it differs from the other or from the defaults."""
    plain = ("none", "default", 1.0)
    axes = cell.axes
    more = [
        f"{axis} = {value}"
        for axis, value in axes.items()
        if axis not in ("dataset", "classifier")
        and (axis not in pair.same or (value not in plain and axis != "vary"))
    ]
    if pair.a.epoch != pair.b.epoch and cell.epoch:
        more.append(f"epoch {cell.epoch:,}")
    name = ", ".join([f"{axes['dataset']} × {axes['classifier']}", *more])
    return f"{name} (cell {cell.cell}{f' of {cell.directory}' if of_sweeps else ''})"
