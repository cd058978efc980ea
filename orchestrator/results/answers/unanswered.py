"""What is said where results allow no answer: what a question takes, and what tells more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted
from manyseed.analysis.tables.rows import cells_once, last
from manyseed.orchestrator.results.answers.sides import differ_in

_CHANGED = "two cells that differ in one axis alone, with several runs or test sets of each"
_TAKES = {
    "standings": "two classifiers on two datasets or more, alike in all else",
    "spread": "four runs of each classifier that share a test set and differ",
    "sources": "cells in which one source of randomness varies beside others in which several do",
    "enough": "two runs that share a test set and differ",
    "effects": _CHANGED,
    "consistency": _CHANGED,
    "scores": "response curves of several models",
    "levels": "α̂, or a run whose accuracy is unlike that of the others",
    "variance": "two runs that share a test set and differ",
    "points": "a point that changes class between runs, or that nearly every run gets wrong",
}
"""What a question takes, by name."""


def none_told(cells: pl.DataFrame, name: str = "") -> str:
    """Say why a question has no answer: what it takes, and what these cells are.

    `cells`: the table of cells with the columns of `AXES`.
    """
    known = cells_once(last(cells))
    there = [counted(known[one].n_unique(), one) for one in ("dataset", "classifier")]
    sets, runs = known["n_repeats"].max(), known["n_runs"].max()
    there += [
        f"{counted(known.height, 'cell')}{_differing(known)}",
        f"up to {counted(int(sets or 0), 'test set')} of {counted(int(runs or 0), 'run')}",  # type: ignore[arg-type]
    ]
    takes = f" {name} takes {_TAKES[name]}." if name in _TAKES else ""
    return f"These results allow no answers.{takes} There are: {', '.join(there)}."


def _differing(cells: pl.DataFrame) -> str:
    axes = [axis for axis in AXES[2:] if cells[axis].n_unique() > 1]
    return f" that differ in {', '.join(axes)}".replace("_", " ") if axes else ""


def others(name: str, cells: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield what tells more where a question has no answer: in words, a verb and its arguments."""
    known = cells_once(last(cells))
    axes = {"standings": AXES[1:2], "effects": AXES[:0:-1], "consistency": AXES[:0:-1]}
    for axis in axes.get(name, ()):
        if differ_in(known, axis):
            yield ("Every two cells", "compare", *(() if axis == "classifier" else ("--by", axis)))
            break
    yield from _MORE.get(name, ())


_MORE: Mapping[str, Sequence[tuple[str, ...]]] = {
    "sources": [
        ("An answer holds for all cells together; of each by itself", "answers", "variance")
    ],
    "consistency": [
        (
            "What changes it is not told; how large it is",
            *("query", "--by", "--columns", "ec_local_mean"),
        )
    ],
}
