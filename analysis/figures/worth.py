"""What members of one training are worth: averaged over classifiers, and metric by metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from manyseed.analysis.figures.deep import MAX_PANELS, sizes
from manyseed.analysis.figures.described import first_of_each, not_drawn, titles
from manyseed.analysis.figures.sizes import labels
from manyseed.analysis.figures.style import Handle, Plot, colour, legend, marker, panels, styled
from manyseed.analysis.questions.dee import METRICS, SIZES

_BOUNDS = ("dee", "dee_lower", "dee_upper")


@styled
def averaged_equivalents(dee: pl.DataFrame, metric: str = "cll") -> Plot | None:
    """Draw deep ensemble equivalents of methods by size, averaged over cells (PIT, figure 3).

    A panel for each dataset and test-time augmentation; None where no dataset has two cells that a
    method is compared in: those figures show them one by one.
    """
    own = _of_methods(dee).filter(metric=metric)
    group = ["dataset", "test_augment"]
    cells = own.group_by(group).agg(pl.col("deep_cell").n_unique().alias("n"))
    several = cells.filter(pl.col("n") > 1).sort(group).head(MAX_PANELS)
    if several.is_empty():
        return None
    own = own.join(several, on=group, how="semi", maintain_order="left")
    values = own["ensembling"].cast(pl.String).unique().sort().to_list()
    apart = own["test_augment"].n_unique() > 1
    named = [
        " · ".join([str(data), str(seen)] if apart else [str(data)])
        for data, seen, _ in several.rows()
    ]
    figure, axes = panels(named, "independent runs")
    handles: dict[str, Handle] = {}
    for axis, (dataset, seen, _) in zip(axes, several.iter_rows(), strict=True):
        here = own.filter(dataset=dataset, test_augment=seen)
        _drawn(axis, here, values, handles)
    legend(figure, handles, "ensembling")
    out = int(own["dee"].is_null().sum())
    rows = own.select("cell", "deep_cell", "repeat_index").unique().height
    return Plot(
        f"method-equivalent-averaged-{metric}",
        f"Deep ensemble equivalent of methods by {metric}, averaged",
        "How many independent runs make an ensemble as good as the first k members that an "
        f"ensembling method gets out of one training, by {metric}: means over the cells of a "
        "dataset (classifiers and whatever else differs) and their repeats; bars: the same with "
        "ensembles one standard deviation better and worse. "
        f"{out:,} of {own.height:,} comparisons are beyond the pool, and count as nothing: where "
        f"there are many, means are too low. n = {rows:,} compared repeats.",
        rows,
        figure,
    )


@styled
def equivalents_by_metric(dee: pl.DataFrame) -> Plot | None:
    """Draw deep ensemble equivalents of methods, a panel per metric (PIT, figures 7 to 9).

    None without methods.
    """
    own = _of_methods(dee)
    if own.is_empty():
        return None
    there = [name for name in METRICS if name in own["metric"].unique().to_list()]
    # of the deep cell: what the methods' cells have in common with it
    deep = own.with_columns(pl.col("deep_cell").alias("cell"), pl.lit("none").alias("ensembling"))
    chosen, left = first_of_each(deep, MAX_PANELS // len(there))
    named = titles(deep)
    own = own.filter(pl.col("deep_cell").is_in(chosen))
    values = own["ensembling"].cast(pl.String).unique().sort().to_list()
    places = [(cell, metric) for cell in chosen for metric in there]
    figure, axes = panels(
        [f"{named[cell]}: {metric}" for cell, metric in places], "independent runs"
    )
    handles: dict[str, Handle] = {}
    for axis, (cell, metric) in zip(axes, places, strict=True):
        _drawn(axis, own.filter(deep_cell=cell, metric=metric), values, handles)
    if not handles:
        return None
    legend(figure, dict(sorted(handles.items())), "ensembling")
    out = int(own["dee"].is_null().sum())
    rows = own.select("cell", "deep_cell", "repeat_index").unique().height
    return Plot(
        "method-equivalents",
        "Deep ensemble equivalent of methods by metric",
        "How many independent runs make an ensemble as good as the first k members that an "
        "ensembling method gets out of one training (mean over runs), by each metric: calibrated "
        "log-likelihood, Brier score and area under the risk–coverage curve, and error. Means over "
        "repeats; bars: the same with ensembles one standard deviation better and worse, up to the "
        f"size of the pool. {out:,} of {own.height:,} comparisons are beyond the pool and left "
        f"out. n = {rows:,} compared repeats.{not_drawn(left)}",
        rows,
        figure,
    )


def _of_methods(dee: pl.DataFrame) -> pl.DataFrame:
    return dee.filter(pl.col("axis") == "ensembling")


def _drawn(
    axis: Axes, here: pl.DataFrame, values: Sequence[str], handles: dict[str, Handle]
) -> None:
    """Draw a line for each method, and let the axes say sizes."""
    for index, value in enumerate(values):
        own = here.filter(pl.col("ensembling").cast(pl.String) == value)
        known = own.filter(pl.col("dee").is_not_null()).with_columns(
            pl.col("dee_lower").fill_null(pl.col("dee")),
            pl.col("dee_upper").fill_null(pl.col("pool")),
        )
        if known.is_empty():
            continue
        over = known.group_by("members").agg(pl.col(*_BOUNDS).mean()).sort("members")
        size, mean = over["members"].to_numpy(), over["dee"].to_numpy()
        bars = [mean - over["dee_lower"].to_numpy(), over["dee_upper"].to_numpy() - mean]
        handles[value] = axis.errorbar(
            size * (1 + 0.02 * index),
            mean,
            yerr=np.maximum(bars, 0),
            color=colour(index),
            marker=marker(index),
            markersize=3,
            linewidth=1.2,
            capsize=2,
        )
    pool = int(here["pool"].min())  # type: ignore[arg-type]
    ticks = sorted({*(size for size in SIZES if size <= pool), pool})
    axis.set_yscale("log")
    axis.set_yticks(ticks, labels(ticks))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylim(0.85, pool * 1.2)
    sizes(axis, int(here["members"].max()), "members averaged, k")  # type: ignore[arg-type]
