"""``manyseed compare``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyseed.analysis.options import CONFIDENCE
from manyseed.orchestrator.cli.arguments import Directory, Json, where_option
from manyseed.orchestrator.cli.output import counted, print_json, say

if TYPE_CHECKING:
    from manyseed.orchestrator.results.compared import OneCell


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
    alike: Annotated[
        bool,
        typer.Option("--alike", help="Are A's runs like B's: α̂ and error consistency between."),
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

        manyseed compare quickstart --a "classifier = 'mlp'" --b "classifier = 'xgb'" --alike
    """
    from manyseed.analysis.questions.intervals import too_few
    from manyseed.orchestrator.results.compared import words
    from manyseed.orchestrator.sweep import Sweep

    if alike:
        between = Sweep(directory).alike(other, by=by, a=a, b=b, where=where, confidence=confidence)
        if as_json:
            values = [asdict(one) | {"words": one.words} for one in between]
            print_json({"alike": values})
            return
        say(f"Are A's runs like B's, {counted(len(between), 'comparison')}", style="bold")
        for pair in between[:limit]:
            axes = pair.b.axes
            same = {name: level for name, level in pair.a.axes.items() if level == axes[name]}
            say("")
            for name, cell, rest in (("A", pair.a, pair.b), ("B", pair.b, pair.a)):
                named = _named(cell, rest, same, of_sweeps=other is not None)
                say(f"{name}: {named}", style="bold")
            for sentence in pair.words:
                say(sentence, indent=2)
        if len(between) > limit:
            say(f"… {len(between) - limit:,} more; see --limit, --where and --json", style="dim")
        return
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
        say(f"A: {_named(one.a, one.b, one.same, of_sweeps=other is not None)}", style="bold")
        say(f"B: {_named(one.b, one.a, one.same, of_sweeps=other is not None)}", style="bold")
        for sentence in words(one):
            say(sentence, indent=2)
    if metric == "alpha_hat":
        say("")
        say(
            "α̂ of each side is among its own runs; whether A's runs are like B's is answered by "
            "--alike.",
            style="dim",
        )
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


def _named(cell: OneCell, rest: OneCell, same: Mapping[str, Any], *, of_sweeps: bool) -> str:
    """Name a cell by the levels in which it differs from the other or from the defaults."""
    plain = ("none", "default", 1.0)
    axes = cell.axes
    more = [
        f"{axis} = {value}"
        for axis, value in axes.items()
        if axis not in ("dataset", "classifier")
        and (axis not in same or (value not in plain and axis != "vary"))
    ]
    if cell.epoch != rest.epoch and cell.epoch:
        more.append(f"epoch {cell.epoch:,}")
    name = ", ".join([f"{axes['dataset']} × {axes['classifier']}", *more])
    return f"{name} (cell {cell.cell}{f' of {cell.directory}' if of_sweeps else ''})"
