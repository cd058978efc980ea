"""Ensembling methods: what averaging members of one training gains."""

from __future__ import annotations

from typing import Any

import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted
from manyseed.analysis.figures.colours import colour, marker
from manyseed.analysis.figures.deep import MAX_PANELS, PLAIN, sizes
from manyseed.analysis.figures.described import first_of_each, not_drawn, titles, with_names
from manyseed.analysis.figures.style import Handle, Plot, legend, panels, styled
from manyseed.analysis.tables.rows import IS_METHOD, mean_of

DEEP = "none: deep ensembles"
_LINE = ["of", "value", "members"]
_CONTEXT = [axis for axis in AXES if axis != "ensembling"]


@styled
def members_by_size(uncertainty: pl.DataFrame) -> Plot | None:
    """Draw log-likelihood by number of members, for methods and deep ensembles (PIT, figure 1).

    One panel for cells that differ only in ensembling; None without methods.
    """
    if "run_index" not in uncertainty.columns:
        return None
    known = uncertainty.filter(pl.col("cll").is_not_null())
    methods = known.filter(IS_METHOD)
    if methods.is_empty():
        return None
    shown = known.join(methods, on=_CONTEXT, how="semi", maintain_order="left").with_columns(
        value=pl.when(IS_METHOD).then(pl.col("ensembling").cast(pl.String)).otherwise(pl.lit(DEEP))
    )
    # the first cell of a context stands for all of its cells
    first = shown.group_by(_CONTEXT, maintain_order=True).agg(of=pl.col("cell").min())
    shown = shown.join(first, on=_CONTEXT, maintain_order="left")
    panel = shown.filter(pl.col("cell") == pl.col("of"))
    chosen, left = first_of_each(panel, MAX_PANELS)
    named = titles(panel.drop("ensembling"))
    values = shown["value"].unique().sort().to_list()
    names = [value for value in values if value != DEEP]
    values = [*(value for value in values if value == DEEP), *names]
    looks = {DEEP: (PLAIN, marker(0))} | {v: (colour(n), marker(n)) for n, v in enumerate(names)}
    figure, axes = panels([named[cell] for cell in chosen], "log-likelihood (nats)")
    handles: dict[str, Handle] = {}
    for axis, cell in zip(axes, chosen, strict=True):
        own = shown.filter(of=cell)
        for value in own["value"].unique().to_list():
            rows = own.filter(value=value)
            handles[value] = _line(axis, rows, "cll", looks[value], "-")
            plain = rows.filter(pl.col("log_likelihood").is_finite())
            _line(axis, plain, "log_likelihood", looks[value], "--")
        sizes(axis, int(own["members"].max()), "models averaged, k")  # type: ignore[arg-type]
    legend(figure, {value: handles[value] for value in values if value in handles}, "ensembling")
    runs = methods.select("cell", "repeat_index", "run_index").unique().height
    drawn = shown.filter(pl.col("of").is_in(chosen))
    finite = drawn.filter(pl.col("log_likelihood").is_finite())
    return Plot(
        "member-likelihood",
        "Log-likelihood by number of members",
        "Mean log-probability of the true class when the probabilities of the first k members of "
        "one training, or of k independent runs, are averaged: at the temperature fitted on the "
        "other half of the test set (solid) and uncalibrated (dashed). Means over runs (for deep "
        "ensembles over draws), then over repeats. "
        f"n = {counted(runs, 'run')} with members.{not_drawn(left)}",
        runs,
        figure,
        data=with_names(
            _over_runs(drawn, "cll", "of", "value")
            .join(_over_runs(finite, "log_likelihood", "of", "value"), on=_LINE, how="left")
            .sort(_LINE)
            .rename({"of": "cell", "value": "ensembling"}),
            panel.drop("ensembling"),
        ),
    )


def _over_runs(own: pl.DataFrame, name: str, *by: str) -> pl.DataFrame:
    """Return means over runs, then over repeats, within groups of `by`."""
    return (
        own.group_by(*by, "cell", "repeat_index", "members", maintain_order=True)
        .agg(mean_of(pl.col(name)))
        .sort(*by, "members", "cell", "repeat_index")
        .group_by(*by, "members", maintain_order=True)
        .agg(mean_of(pl.col(name)))
        .sort(*by, "members")
    )


def _line(axis: Axes, own: pl.DataFrame, name: str, look: tuple[str, str], dashes: str) -> Any:
    over = _over_runs(own, name)
    (line,) = axis.plot(
        over["members"].to_numpy(),
        over[name].to_numpy(),
        color=look[0],
        marker=look[1],
        markersize=2.5,
        linewidth=1.4 if dashes == "-" else 0.9,
        ls=dashes,
    )
    return line
