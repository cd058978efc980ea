"""How the metrics of runs are related: rank correlations within repeats, one field per pair."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from numpy.typing import NDArray

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.colours import GREY
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.quantities import labelled, varying
from manyseed.analysis.figures.style import Plot, wide
from manyseed.analysis.tables.schema import Tables

METRICS = (
    *("accuracy", "train_accuracy", "alpha_hat", "ks_distance", "churn_mean", "churn_ensemble"),
    *("ece", "log_likelihood", "brier", "aurc", "fit_seconds"),
)
KEY = ("cell", "repeat_index")
FEWEST = 3  # runs of a repeat needed
LEAST = 3  # metrics needed
WIDE = 2  # panels side by side
TALL, ROW = 0.95, 0.24  # inches for a panel's labels, and per metric


def within_repeats(runs: pl.DataFrame, names: list[str]) -> tuple[NDArray[np.float64], int]:
    """Return Spearman's correlations of metrics within repeats, pooled, and the number of runs.

    Each metric is ranked within its repeat (ties get their mean rank) and centred, so that
    differences between cells and test sets do not count. The correlation is Pearson's of the
    centred ranks, over the runs that have both metrics.

    Parameters
    ----------
    runs : polars frame
        Rows of the table of runs whose repeats have varying runs.
    names : list of str
        Columns.

    Returns
    -------
    correlations : float array (metric, metric)
        NaN if either metric does not vary.
    n : int
        Runs in repeats of at least three.
    """
    kept = runs.filter(pl.len().over(KEY) >= FEWEST)
    result = np.full((len(names), len(names)), np.nan)
    for i, one in enumerate(names):
        for j, other in enumerate(names[: i + 1]):
            both = kept.filter(pl.col(one).is_finite() & pl.col(other).is_finite())
            left = both.select(
                (pl.col(name).rank("average") - pl.col(name).rank("average").mean())
                .over(KEY)
                .alias(f"_{side}")
                for side, name in enumerate((one, other))
            ).to_numpy()
            squares = np.square(left).sum(axis=0)
            if left.shape[0] >= FEWEST and (squares > 0).all():
                result[i, j] = result[j, i] = left.prod(axis=1).sum() / np.sqrt(squares.prod())
    return result, kept.height


@kind(
    "correlations",
    "rank correlations between metrics of runs, within repeats",
    chapter="correlations",
)
def correlations(tables: Tables) -> Plot | None:
    """Draw rank correlations between the metrics of runs, one panel per classifier.

    None with fewer than `LEAST` metrics: a single number is no figure.
    """
    runs = varying(tables.runs.filter(~pl.col("identical")), tables.repeats)
    names = [
        name
        for name in METRICS
        if name in runs.columns and runs[name].drop_nulls().drop_nans().n_unique() > 1
    ]
    if len(names) < LEAST:
        return None
    found = {}
    for classifier in runs["classifier"].cast(pl.String).unique().sort().to_list():
        values, n = within_repeats(runs.filter(classifier=classifier), names)
        if n and np.isfinite(values[np.tril_indices(len(names), -1)]).any():
            found[classifier] = values, n
    if not found:
        return None
    beside = min(WIDE if wide() > 5 else 1, len(found))
    deep = -(-len(found) // beside)
    figure = Figure(figsize=(wide(), deep * (TALL + ROW * len(names)) + 0.4))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(deep, beside, squeeze=False)
    labels = [labelled(name) for name in names]
    for axis, (classifier, (values, n)) in zip(axes.flat, found.items(), strict=False):
        below = np.where(np.tri(len(names), k=-1, dtype=bool), values, np.nan)
        image = axis.imshow(below[1:, :-1], cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        axis.grid(visible=False)
        axis.set_title(f"{classifier} (n = {n:,})")
        axis.set_yticks(range(len(labels) - 1), labels[1:])
        axis.set_xticks(range(len(labels) - 1), labels[:-1], rotation=90)
        axis.tick_params(length=0)
        axis.spines[["left", "bottom"]].set_visible(False)
        for row, column in zip(*np.nonzero(np.isfinite(below[1:, :-1])), strict=True):
            value = below[1 + row, column]
            text = "0" if abs(value) < 0.05 else f"{value:.1f}".replace("-", "−").replace("0.", ".")
            look = "white" if abs(value) > 0.6 else "#1a1c1f"
            axis.text(column, row, text, ha="center", va="center", color=look, fontsize=6.5)
    for extra in axes.flat[len(found) :]:
        extra.remove()
    bar = figure.colorbar(image, ax=list(axes.flat[: len(found)]), shrink=0.6, aspect=30, pad=0.01)
    bar.outline.set_edgecolor(GREY)
    total = sum(n for _, n in found.values())
    return Plot(
        "correlations",
        "Correlations between metrics",
        "Spearman’s rank correlation between metrics of runs within repeats: each metric is ranked "
        "among the runs of its repeat and ranks of all repeats are pooled, so that differences "
        "between cells and test sets do not count. Blue: positive; red: negative; empty: "
        f"undefined. n = {counted(total, 'run')} in repeats whose runs vary.",
        total,
        figure,
        data=pl.DataFrame(
            [
                (classifier, names[row], names[column], float(values[row, column]), n)
                for classifier, (values, n) in found.items()
                for row, column in zip(*np.tril_indices(len(names), -1), strict=True)
            ],
            schema=["classifier", "metric", "other", "correlation", "n_runs"],
            orient="row",
        ).with_columns(pl.col("correlation").fill_nan(None)),
    )
