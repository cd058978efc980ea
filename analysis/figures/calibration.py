"""TACE by threshold and number of bins: how it ranks models depends on both."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import (
    colour,
    first_of_each,
    marker,
    not_drawn,
    titles,
    with_names,
)
from manyseed.analysis.figures.likelihood import PLAIN
from manyseed.analysis.figures.style import (
    MAX_PANELS,
    Handle,
    Plot,
    axis_of_sizes,
    legend,
    line,
    panels,
)
from manyseed.analysis.tables.rows import mean_of

ONE, WHOLE = "none: one run", "none: deep ensemble"
_CONTEXT = [axis for axis in AXES if axis != "ensembling"]
_AT = ["threshold", "bins"]


@kind(
    "tace-bins",
    "calibrated TACE by threshold and bins, of single networks and ensembles",
    chapter="calibration",
)
def calibration_by_bins(tace: pl.DataFrame) -> Plot | None:
    """Draw calibrated TACE by number of bins, one panel per threshold (PIT, figure 2).

    Cells that differ only in ensembling share panels: a line for single networks, one for the
    average of all, and one for each method's ensembles of all members.
    """
    plain = pl.col("ensembling").cast(pl.String) == "none"
    named = (
        pl.when(~plain)
        .then(pl.col("ensembling").cast(pl.String))
        .when(pl.col("members") == 1)
        .then(pl.lit(ONE))
        .otherwise(pl.lit(WHOLE))
    )
    own = tace.filter(pl.col("c_tace").is_not_null()).with_columns(value=named)
    if own.is_empty():
        return None
    thresholds = own["threshold"].unique().sort().to_list()
    first = own.group_by(_CONTEXT, maintain_order=True).agg(of=pl.col("cell").min())
    own = own.join(first, on=_CONTEXT, maintain_order="left")
    panel = own.filter(pl.col("cell") == pl.col("of"))
    chosen, left = first_of_each(panel, max(1, MAX_PANELS // len(thresholds)))
    words = titles(panel.drop("ensembling"))
    own = own.filter(pl.col("of").is_in(chosen))
    values = own["value"].unique().sort().to_list()
    plain_ones = [value for value in (ONE, WHOLE) if value in values]
    methods = [value for value in values if value not in plain_ones]
    values = [*plain_ones, *methods]
    looks = {ONE: (PLAIN, marker(0), "--"), WHOLE: (PLAIN, marker(0), "-")}
    looks |= {value: (colour(n), marker(n), "-") for n, value in enumerate(methods)}
    means = (
        own.group_by("of", "value", *_AT, maintain_order=True)
        .agg(mean_of(pl.col("c_tace")).alias("mean"))
        .sort("of", "value", *_AT)
    )
    places = [(cell, threshold) for cell in chosen for threshold in thresholds]
    figure, axes = panels(
        [f"{words[cell]}: θ\xa0=\xa0{threshold:g}" for cell, threshold in places],
        "calibrated TACE",
    )
    highest = dict(means.group_by("of").agg(pl.col("mean").max()).iter_rows())
    handles: dict[str, Handle] = {}
    for axis, (cell, threshold) in zip(axes, places, strict=True):
        rows = means.filter(of=cell, threshold=threshold)
        for value in rows["value"].unique(maintain_order=True).to_list():
            look = dict(zip(("color", "marker", "ls"), looks[value], strict=True))
            look |= {"markersize": 3, "linewidth": 1.2}
            handles[value] = line(axis, rows.filter(value=value), ("bins", "mean"), look)
        axis_of_sizes(axis, rows["bins"].unique().sort().to_list(), "bins, M")
        axis.set_ylim(0, 1.06 * highest[cell] or 1)
    legend(figure, {value: handles[value] for value in values}, "ensembling")
    repeats = own.select("cell", "repeat_index").unique().height
    pairs, reordered = _reordered(means)
    order = (
        f" Of {pairs:,} pairs of lines {reordered:,} change their order with θ or M."
        if pairs
        else ""
    )
    return Plot(
        "tace-bins",
        "Calibration error by threshold and bins",
        "Thresholded adaptive calibration error at the temperature fitted on the other half of the "
        "test set: for each class, the probabilities above θ are sorted into M bins of equally "
        "many points. Means over runs, then over repeats; ensembles are of all members, or of all "
        "runs. The error depends on both parameters and its bias differs between models, so it "
        f"describes a model but does not rank models.{order} n = {counted(repeats, 'repeat')}."
        f"{not_drawn(left)}",
        repeats,
        figure,
        data=with_names(
            means.rename({"of": "cell", "value": "ensembling", "mean": "c_tace"}),
            panel.drop("ensembling"),
        ),
    )


def _reordered(means: pl.DataFrame) -> tuple[int, int]:
    """Return how many pairs of lines share panels, and how many of these change their order."""
    pairs = reordered = 0
    for own in means.partition_by("of", maintain_order=True):
        wide = own.pivot("value", index=_AT, values="mean").drop(_AT)
        for one, other in combinations(wide.columns, 2):
            gap = (wide[one] - wide[other]).drop_nulls().to_numpy()
            pairs += 1
            reordered += bool(np.any(gap > 0) and np.any(gap < 0))
    return pairs, reordered
