"""Runs as dots: one metric against another, and pairs of runs by their churn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.levels import (
    LINEAR,
    NOTHING,
    mark_resolution,
    probe,
    resolution,
    upright_axis_of_levels,
)
from manyseed.analysis.figures.quantities import labelled, varying
from manyseed.analysis.figures.style import (
    VECTORS,
    Handle,
    Mark,
    Plot,
    dots,
    legend,
    panels,
    shades,
    thinned,
)
from manyseed.analysis.questions.effects import UNPERTURBED

MAX_PANELS = 12  # most panels of a scatter
BESIDE = 2.3  # inches of a panel with δ beside it
UNITS = {"ece": "ECE", "churn_ensemble": "churn against the ensemble"}
RANGES = 3  # ranges of churn with equally many pairs
_RUN = ["cell", "repeat_index", "run_index"]


@kind(
    "alpha-hat-{}",
    chapter="alpha",
    other={
        name: f"α̂ of each run against its {labelled(name)}"
        for name in ("accuracy", "churn_ensemble", "ece")
    },
)
def alpha_hat_against(runs: pl.DataFrame, repeats: pl.DataFrame, other: str) -> Plot | None:
    """Draw α̂ against another metric, one dot per run, coloured by classifier, source or scheme.

    RKS, figures 9, 11 and 12. Datasets with α̂ of 0 everywhere have no panel; None if all are.
    """
    if other not in runs.columns:
        return None
    known = varying(runs, repeats).filter(pl.col("alpha_hat").is_not_null())
    known = known.filter(pl.col(other).is_not_null())
    shown, left = _informative(known)
    if shown.is_empty():
        return None
    by = _colour_by(shown)
    levels = _values(runs, by)
    datasets = _values(shown, "dataset")
    figure, axes = panels(datasets, "α̂", BESIDE)
    handles: dict[str, Handle] = {}
    marks: list[Mark] = []
    for axis, dataset in zip(axes, datasets, strict=True):
        rows = shown.filter(pl.col("dataset") == dataset)
        named_dots, handles = dots(axis, rows, (other, "alpha_hat"), (by, levels), shown.height)
        marks += named_dots
        axis.set_xlabel(UNITS.get(other, labelled(other)))
        axis.locator_params(axis="x", nbins=3 if _columns(axis) > 2 else 5)
        upright_axis_of_levels(axis)
        mark_resolution(axis, repeats.filter(pl.col("dataset") == dataset), across=True)
    if len(levels) > 1:
        legend(figure, handles, by.replace("_", " "))
    what = {
        "accuracy": "test accuracy",
        "ece": "expected calibration error",
        "churn_ensemble": "churn against the ensemble of all runs of its repeat",
    }.get(other, labelled(other))
    return Plot(
        f"alpha-hat-{other.replace('_', '-')}",
        f"α̂ against {UNITS.get(other, labelled(other))}",
        f"Each dot is a run: its {what}, and its α̂{probe(runs)}. "
        f"n = {counted(shown.height, 'run')}{_identical(repeats)}. The axis of α̂ is "
        f"linear up to {LINEAR} and logarithmic beyond. Dashed: resolution δ. "
        f"{resolution(repeats)}{left}",
        shown.height,
        figure,
        marks,
    )


def _informative(known: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Return the rows of datasets whose α̂ is not 0 everywhere, and say how many are left out."""
    largest = known.group_by("dataset").agg(pl.col("alpha_hat").max()).sort("dataset")
    some = largest.filter(pl.col("alpha_hat") >= NOTHING)
    kept = some.sort("alpha_hat", "dataset", descending=[True, False]).head(MAX_PANELS)
    shown = known.join(kept.select("dataset"), on="dataset", how="semi", maintain_order="left")
    zero = largest.height - some.height
    left = f" {zero:,} of {largest.height:,} datasets {_are(zero)} not drawn: α̂ is 0 in all runs."
    more = some.height - kept.height
    return shown, (left if zero else "") + (
        f" {counted(more, 'further dataset')}, with smaller α̂, {_are(more)} not drawn."
        if more
        else ""
    )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


@kind("alpha-hat-pairs", "α̂ of both runs of each pair, by the pair's churn", chapter="alpha")
def alpha_hat_of_pairs(
    runs: pl.DataFrame, pairs: pl.DataFrame, repeats: pl.DataFrame
) -> Plot | None:
    """Draw the α̂ of both runs of each pair, coloured by the pair's churn; RKS, figure 10."""
    joined = of_pairs(runs, pairs, repeats)
    if joined.is_empty():
        return None
    joined, left = _informative(joined)
    if joined.is_empty():
        return None
    datasets = _values(joined, "dataset")
    figure, axes = panels(datasets, "α̂ of the farther run", BESIDE)
    names = ["least churn", "middle third", "most churn"]
    handles: dict[str, Handle] = {}
    thirds = []
    pieces: list[pl.DataFrame] = []
    for axis, dataset in zip(axes, datasets, strict=True):
        rows = joined.filter(pl.col("dataset") == dataset).sort("churn", "larger", "smaller")
        parts = np.array_split(np.arange(rows.height), RANGES)
        for part, shade, name in zip(parts, shades(RANGES), names, strict=True):
            drawn = rows[part]
            drawn = drawn[thinned(np.arange(drawn.height, dtype=np.float64)).astype(np.int64)]
            pieces.append(drawn)
            handles[name] = axis.scatter(
                drawn["smaller"].to_numpy(),
                drawn["larger"].to_numpy(),
                s=9,
                color=shade,
                alpha=0.6,
                linewidths=0,
                rasterized=joined.height > VECTORS,
            )
        ends = [rows["churn"][int(part[-1])] for part in parts if part.size]
        thirds.append(f"{dataset} {', '.join(f'{end:.3f}' for end in ends)}")
        axis.grid(visible=True, axis="both")
        axis.set_xlabel("α̂ of the nearer run")
        upright_axis_of_levels(axis)
        axis.set_xscale("symlog", linthresh=LINEAR, linscale=0.5)
        axis.set_xticks([0, LINEAR, 0.1, 1], ["0", f"{LINEAR}", "0.1", "1"])
        axis.set_xlim(-0.15 * LINEAR, 1.3)
        mark_resolution(axis, repeats.filter(pl.col("dataset") == dataset), across=True)
    legend(figure, handles, "churn of the pair, in thirds of a dataset’s pairs")
    return Plot(
        "alpha-hat-pairs",
        "α̂ of pairs, by their churn",
        "Each dot is a pair of runs of a repeat: the smaller and the larger of their α̂, coloured "
        "by the share of test points to which the two give different labels, in thirds of the "
        f"pairs of a dataset. Upper ends of the thirds: {'; '.join(thirds)}. "
        f"n = {counted(joined.height, 'pair')}{_identical(repeats)}. "
        f"Dashed: resolution δ. {resolution(repeats)}{left}",
        joined.height,
        figure,
        data=pl.concat(pieces).drop("alpha_hat"),
    )


def of_pairs(runs: pl.DataFrame, pairs: pl.DataFrame, repeats: pl.DataFrame) -> pl.DataFrame:
    """Return pairs with the smaller and the larger α̂ of their runs.

    Returns
    -------
    polars frame
        Columns dataset, churn, smaller, larger and alpha_hat (the larger).
    """
    if "churn" not in pairs.columns or "run_i" not in pairs.columns:
        return pl.DataFrame()
    level = runs.filter(pl.col("alpha_hat").is_not_null()).select(*_RUN, "alpha_hat")
    found = varying(pairs, repeats).select(
        "dataset", "cell", "repeat_index", "run_i", "run_j", "churn"
    )
    for end in ("i", "j"):
        named = level.rename({"run_index": f"run_{end}", "alpha_hat": f"_{end}"})
        found = found.join(named, on=["cell", "repeat_index", f"run_{end}"], maintain_order="left")
    return found.filter(pl.col("churn").is_not_null()).select(
        "dataset",
        "churn",
        smaller=pl.min_horizontal("_i", "_j"),
        larger=pl.max_horizontal("_i", "_j"),
        alpha_hat=pl.max_horizontal("_i", "_j"),
    )


def _values(frame: pl.DataFrame, column: str) -> list[str]:
    return frame[column].cast(pl.String).unique().sort().to_list()


def _colour_by(runs: pl.DataFrame) -> str:
    """Return the first of classifier, sources and scheme axes with several levels."""
    axes: Sequence[str] = ("classifier", "vary", *UNPERTURBED)
    return next((name for name in axes if runs[name].n_unique() > 1), "classifier")


def _columns(axis: Axes) -> int:
    """Return the number of panels side by side."""
    place = axis.get_subplotspec()
    assert place is not None
    return place.get_gridspec().ncols


def _identical(repeats: pl.DataFrame) -> str:
    count = int(repeats["identical"].sum())
    return f" ({count:,} repeats of identical runs left out)" if count else ""
