"""Runs as dots: one of their metrics against another."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.figures.levels import (
    LINEAR,
    NOTHING,
    mark_resolution,
    probe,
    resolution,
    upright_axis_of_levels,
)
from manyseed.analysis.figures.quantities import varying
from manyseed.analysis.figures.style import (
    VECTORS,
    Mark,
    Plot,
    addresses,
    colour,
    legend,
    marker,
    panels,
    styled,
    thinned,
)
from manyseed.analysis.questions.effects import UNPERTURBED

MAX_PANELS = 12  # of a scatter
BESIDE = 2.3  # inches of a panel with δ beside it


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
    figure, axes = panels(datasets, "α̂", BESIDE)
    handles = {}
    marks = []
    for axis, dataset in zip(axes, datasets, strict=True):
        here = shown.filter(pl.col("dataset") == dataset)
        for index, level in enumerate(levels):
            of = here.filter(pl.col(by).cast(pl.String) == level).sort("accuracy", "alpha_hat")
            rows = thinned(np.arange(of.height, dtype=np.float64)).astype(np.int64)
            drawn = of[rows]
            marks.append(
                Mark(
                    axis,
                    drawn["accuracy"].to_numpy(),
                    drawn["alpha_hat"].to_numpy(),
                    addresses(drawn),
                )
            )
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
        upright_axis_of_levels(axis)
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
        marks,
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


def _identical(repeats: pl.DataFrame) -> str:
    count = int(repeats["identical"].sum())
    return f" ({count:,} repeats of identical runs left out)" if count else ""
