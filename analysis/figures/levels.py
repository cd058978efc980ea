"""Means of classifiers by the level of one axis with numbers, such as the training fraction."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from manyseed.analysis.axes import FRACTION
from manyseed.analysis.counts import counted
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import (
    MARKERS,
    SEPARATOR,
    among,
    colour,
    differing,
    labelled,
)
from manyseed.analysis.figures.overview import copied, lines_in_words
from manyseed.analysis.figures.style import Handle, Plot, comparable, legend, line, panels

_LEVEL = re.compile(r"(?:([\w-]+)[:=])?(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_COARSER = "sig-digit"  # of which fewer digits are more noise, so none has no place
_APART = 0.06  # distance of lines at a level, as a share of that to the next level
_SPREAD = 20.0  # levels whose ratio is larger are on a logarithmic axis
_OWN = "hparams"
_DASHES = ("-", "--", ":", "-.")
_SIZES = {"markersize": 4.0, "linewidth": 1.2}
_TICK = 0.075  # inches per letter of a tick


class Numeric(NamedTuple):
    """An axis whose levels are numbers: its name, the scheme that they are of, and their values."""

    axis: str
    scheme: str
    values: dict[str, float]


def numeric(cells: pl.DataFrame, axis: str) -> Numeric | None:
    """Return an axis as numbers: none is 0, and default has no place; None if it has no numbers."""
    levels = cells[axis].cast(pl.String).drop_nulls().unique().sort().to_list()
    found = {level: _LEVEL.fullmatch(level) for level in levels if level not in ("none", "default")}
    names = {match[1] or "" for match in found.values() if match}
    if len(names) != 1 or not all(found.values()):
        return None
    (scheme,) = names
    values = {level: float(match[2]) for level, match in found.items() if match}
    if axis == FRACTION and max(values.values()) > 1:  # shares of rows have no place among numbers
        values = {level: value for level, value in values.items() if value > 1}
        scheme = "rows"
    if "none" in levels and scheme != _COARSER:
        values["none"] = 0.0
    return Numeric(axis, scheme, values) if len(values) > 1 else None


def why_not(cells: pl.DataFrame) -> str:
    """Return why no means can be drawn by level; empty if they can."""
    apart = differing(cells)
    known = [axis for axis in apart if numeric(cells, axis)]
    if not known:
        named = f": they differ in {', '.join(map(labelled, apart))}" if apart else ""
        return f"it takes an axis whose levels are numbers, and cells differ in none{named}"
    if others := in_the_way(cells):
        more = " and ".join(map(labelled, others))
        return f"it shows the levels of {labelled(known[0])}, and cells differ in {more} too"
    return ""


def shown_axis(cells: pl.DataFrame) -> str:
    """Return the axis whose levels are drawn: the first whose levels are numbers."""
    return next((axis for axis in differing(cells) if numeric(cells, axis)), "")


def in_the_way(cells: pl.DataFrame) -> list[str]:
    """Return the further axes in which cells of a classifier differ at one level.

    Not hparams, which are each classifier's own: a line is of a classifier with some of them.
    """
    axis = shown_axis(cells)
    others = [one for one in differing(cells) if one not in (axis, _OWN)]
    if not others:
        return []
    of = {"dataset", "classifier", _OWN, axis} & {*cells.columns}
    return others if cells.unique("cell").select(of).is_duplicated().any() else []


def _lined(averages: pl.DataFrame, axis: str) -> pl.DataFrame:
    """Add the name of the line that each cell is on, and which one of its classifier's it is.

    A classifier has one line if it has one cell at each level, else one for each of its levels of
    other axes.
    """
    parts = []
    for own in averages.sort("cell").partition_by("classifier", maintain_order=True):
        several = own.select("dataset", axis).is_duplicated().any()
        apart = [one for one in differing(own) if one != axis] if several else []
        words = [pl.col(one).cast(pl.String) for one in ("classifier", *apart)]
        named = own.with_columns(line=pl.concat_str(words, separator=SEPARATOR))
        turns = {name: turn for turn, name in enumerate(named["line"].unique(maintain_order=True))}
        parts.append(named.with_columns(turn=pl.col("line").replace_strict(turns)))
    return pl.concat(parts).sort("classifier", "turn", maintain_order=True)


@kind(
    "levels",
    "mean accuracy by the level of an axis with numbers, such as the training fraction, a line per "
    "classifier, with 95 % intervals; levels-ece: of another metric of runs",
    chapter="overview",
)
def levels(averages: pl.DataFrame, runs: pl.DataFrame) -> Plot | None:
    """Draw the means of classifiers by level, a panel per dataset.

    `averages`: as `analysis.figures.overview.means` takes them, of cells that differ in one axis
    with numbers, and in no other that is in the way.
    """
    if averages.is_empty() or why_not(averages):
        return None
    axis = shown_axis(averages)
    found = numeric(averages, axis)
    assert found is not None
    by_level = pl.col(axis).cast(pl.String).replace_strict(found.values, default=None)
    table = _lined(averages, axis).with_columns(x=by_level.cast(pl.Float64))
    shown = table.filter(pl.col("x").is_not_null(), pl.col("mean").is_not_null()).sort("x")
    if shown.is_empty():
        return None
    metric = labelled(shown["metric"][0])
    classifiers = among(averages["classifier"].unique().sort().to_list())
    lines = table.select("line", "classifier", "turn").unique(maintain_order=True).rows()
    datasets = shown["dataset"].unique().sort().to_list()
    told = {
        level: f"{x:.0f}" if found.scheme == "rows" else level for level, x in found.values.items()
    }
    ticks = {x: told[level] for level, x in sorted(found.values.items(), key=lambda one: one[1])}
    is_log = min(ticks) > 0 and max(ticks) / min(ticks) > _SPREAD
    places = np.log(list(ticks)) if is_log else np.array([*ticks])
    step = _APART * min(after - before for before, after in pairwise(places))
    step /= max(1.0, len(lines) / 5)
    parts = [shown.filter(dataset=one) for one in datasets]
    alike = comparable(
        pl.concat([part[end].drop_nulls() for end in ("low", "mean", "high")]) for part in parts
    )
    figure, axes = panels(datasets, f"mean {metric}", alike=alike)
    handles: dict[str, Handle] = {}
    for panel, part in zip(axes, parts, strict=True):
        for index, (name, classifier, turn) in enumerate(lines):
            own = part.filter(line=name)
            if own.is_empty():
                continue
            look = _look(classifiers.index(classifier), turn)
            aside = step * (index - (len(lines) - 1) / 2)
            at = pl.col("x") * np.exp(aside) if is_log else pl.col("x") + aside
            own = own.with_columns(x=at)
            handles[name] = line(panel, own, ("x", "mean"), look)
            for x, low, high in own.select("x", "low", "high").drop_nulls().iter_rows():
                panel.plot([x, x], [low, high], color=look["color"], linewidth=1.0)
        if is_log:
            panel.set_xscale("log")
        room = panel.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
        width = figure.get_figwidth() / room - 0.6
        panel.set_xticks([*ticks], _spaced(dict(zip(ticks.values(), places, strict=True)), width))
        panel.set_xticks([], minor=True)
        panel.set_xlabel(labelled(axis) + (f" ({found.scheme})" if found.scheme else ""))
    ordered = {name: handles[name] for name, *_ in lines if name in handles}
    legend(figure, ordered, "")
    n = int(shown["n_runs"].sum())
    copies = int(runs.filter(pl.col("cell").is_in(shown["cell"].implode()))["identical"].sum())
    absent = table.filter(pl.col("x").is_null())[axis].cast(pl.String).unique().sort().to_list()
    left = f" Not drawn: {', '.join(absent)}, which has no place among numbers." if absent else ""
    apart = [one for one in differing(averages) if one != axis]
    of = (
        f" and its {SEPARATOR.join(map(labelled, apart))}"
        if any(turn for *_, turn in lines)
        else ""
    )
    return Plot(
        f"levels-{shown['metric'][0].replace('_', '-')}",
        f"Mean {metric} by {labelled(axis)}",
        f"Dots: mean {metric} of each cell, over runs and test sets, by {labelled(axis)}; those of "
        f"classifiers at a level are side by side, those of a classifier{of} are joined. "
        f"{lines_in_words(shown)}.{left} n = {counted(n, 'run')}{copied(copies)}.",
        n,
        figure,
        data=shown.select(pl.exclude("row", "x", "line", "turn"), pl.col("x").alias("level")),
    )


def _look(index: int, turn: int = 0) -> dict[str, Any]:
    """Return the look of a classifier's line: its colour, and a marker and dashes of its own.

    `turn`: which of its lines it is.
    """
    mark = MARKERS[(index + index // len(MARKERS) + turn) % len(MARKERS)]
    dashes = _DASHES[turn % len(_DASHES)]
    return {"color": colour(index), "marker": mark, "ls": dashes, **_SIZES}


def _spaced(ticks: dict[str, float], width: float) -> list[str]:
    """Return the labels of ticks, empty where the last one leaves no room in a panel."""
    ends = [*ticks.values()]
    inch = width / ((max(ends) - min(ends)) or 1.0)
    told: list[str] = []
    free = np.inf
    for label, place in reversed(ticks.items()):
        half = _TICK * len(label) / 2
        fits = place * inch + half < free
        said = label.rpartition(":")[2].rpartition("=")[2]
        told.append(said if fits else "")
        free = place * inch - half if fits else free
    return told[::-1]
