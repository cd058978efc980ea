"""The figures of a sweep.

Every function takes result tables with the columns of `analysis.axes.AXES` joined and
returns a `Plot`, or None where nothing that it draws is defined. A run that was copied because
nothing of its training varies is drawn once, and pairs and repeats of identical runs are left out;
captions say how many. Cells are never put together: each has a row or a panel of its own, and where
there is no room for all, the caption says how many are left out.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from manyseed.analysis.figures.cells import (
    LINEAR,
    NOTHING,
    mark_resolution,
    of_datasets,
    probe,
    resolution,
    varying,
)
from manyseed.analysis.figures.curves import learning_curves
from manyseed.analysis.figures.deep import (
    equivalents,
    likelihood_against,
    likelihood_by_size,
)
from manyseed.analysis.figures.overview import QUANTITIES, overview
from manyseed.analysis.figures.ranks import mean_ranks
from manyseed.analysis.figures.sizes import ensembles_accuracy, ensembles_close
from manyseed.analysis.figures.style import (
    VECTORS,
    Plot,
    colour,
    legend,
    marker,
    panels,
    styled,
    thinned,
)
from manyseed.analysis.options import CLOSE
from manyseed.analysis.questions.effects import UNPERTURBED
from manyseed.analysis.questions.standings import standings
from manyseed.analysis.tables.schema import Tables

MAX_PANELS = 12  # of a scatter


def all_figures(
    tables: Tables,
    curves: pl.DataFrame | None = None,
    ensembles: pl.DataFrame | None = None,
    close: float = CLOSE,
    uncertainty: pl.DataFrame | None = None,
    dee: pl.DataFrame | None = None,
) -> list[Plot]:
    """Draw every figure that the tables allow; `close` is the option that they were made with."""
    drawn = [overview(tables.cells, name) for name in QUANTITIES]
    if (ranks := standings(tables.cells)) is not None:
        drawn.append(mean_ranks(ranks, _values(tables.cells, "classifier")))
    drawn += of_datasets(tables)
    drawn.append(alpha_hat_against_accuracy(tables.runs, tables.repeats))
    if ensembles is not None:
        drawn += [ensembles_close(ensembles, close), ensembles_accuracy(ensembles)]
    if curves is not None:
        drawn += [learning_curves(curves, of, tables.cells) for of in ("accuracy", "loss")]
    drawn += [likelihood_against(tables.runs, other) for other in ("brier", "error")]
    if uncertainty is not None:
        drawn.append(likelihood_by_size(uncertainty))
    if dee is not None:
        drawn += [equivalents(dee, metric) for metric in ("cll", "error")]
    return [plot for plot in drawn if plot is not None]


@styled
def alpha_hat_against_accuracy(runs: pl.DataFrame, repeats: pl.DataFrame) -> Plot | None:
    """Draw α̂ against accuracy, a dot a run, coloured by classifier or else by scheme.

    Datasets whose α̂ is 0 throughout have no panel; None where all are such.
    """
    known = varying(runs, repeats).filter(pl.col("alpha_hat").is_not_null())
    largest = known.group_by("dataset").agg(pl.col("alpha_hat").max()).sort("dataset")
    some = largest.filter(pl.col("alpha_hat") >= NOTHING)
    kept = some.sort("alpha_hat", "dataset", descending=[True, False]).head(MAX_PANELS)
    shown = known.join(kept.select("dataset"), on="dataset", how="semi", maintain_order="left")
    if shown.is_empty():
        return None
    by = _colour_by(shown)
    levels = _values(runs, by)
    datasets = _values(shown, "dataset")
    figure, axes = panels(datasets, "α̂")
    handles = {}
    for axis, dataset in zip(axes, datasets, strict=True):
        here = shown.filter(pl.col("dataset") == dataset)
        for index, level in enumerate(levels):
            of = here.filter(pl.col(by).cast(pl.String) == level).sort("accuracy", "alpha_hat")
            rows = thinned(np.arange(of.height, dtype=np.float64)).astype(np.int64)
            handles[level] = axis.scatter(
                of["accuracy"].to_numpy()[rows],
                of["alpha_hat"].to_numpy()[rows],
                s=14,
                color=colour(index),
                marker=marker(index),
                alpha=0.65,
                linewidths=0,
                rasterized=shown.height > VECTORS,
            )
        axis.grid(visible=True, axis="both")
        axis.set_xlabel("accuracy")
        axis.locator_params(axis="x", nbins=3 if _columns(axis) > 2 else 5)
        _axis_of_levels(axis)
        mark_resolution(axis, repeats.filter(pl.col("dataset") == dataset), across=True)
    if len(levels) > 1:
        legend(figure, handles, by.replace("_", " "))
    zero = largest.height - some.height
    left = f" {zero:,} of {largest.height:,} datasets are not drawn: α̂ is 0 in all their runs."
    more = some.height - kept.height
    return Plot(
        "alpha-hat-accuracy",
        "α̂ against accuracy",
        "Each dot is a run: its test accuracy, and its α̂ against the other runs of its repeat"
        f"{probe(runs)}. n = {shown.height:,} runs{_identical(repeats)}. The axis of α̂ is linear "
        f"up to {LINEAR} and logarithmic beyond. Dashed: resolution δ. {resolution(repeats)}"
        f"{left if zero else ''}"
        + (f" {more:,} further datasets, of smaller α̂, are not drawn." if more else ""),
        shown.height,
        figure,
    )


def _values(frame: pl.DataFrame, column: str) -> list[str]:
    return frame[column].cast(pl.String).unique().sort().to_list()


def _colour_by(runs: pl.DataFrame) -> str:
    """Return the first of classifier and the scheme axes that has several levels."""
    axes = ("classifier", *UNPERTURBED)
    return next((name for name in axes if runs[name].n_unique() > 1), "classifier")


def _columns(axis: Axes) -> int:
    """Return how many panels stand side by side."""
    place = axis.get_subplotspec()
    assert place is not None
    return place.get_gridspec().ncols


def _axis_of_levels(axis: Axes) -> None:
    """Give α̂ the same axis in all panels, on which many zeros and few large values can be read."""
    axis.set_yscale("symlog", linthresh=LINEAR, linscale=0.5)
    axis.set_yticks([0, LINEAR, 0.1, 1], ["0", f"{LINEAR}", "0.1", "1"])
    axis.set_yticks([0.02, 0.03, 0.05, 0.2, 0.3, 0.5], minor=True)
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_ylim(-0.15 * LINEAR, 1.3)


def _identical(repeats: pl.DataFrame) -> str:
    count = int(repeats["identical"].sum())
    return f" ({count:,} repeats of identical runs left out)" if count else ""
