"""The figures of a sweep.

Every function takes result tables with the columns of `analysis.axes.AXES` joined and
returns a `Plot`, or None where nothing that it draws is defined. A run that was copied because
nothing of its training varies is drawn once, and pairs and repeats of identical runs are left out;
captions say how many. Cells are never put together: each has a violin of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.curves import learning_curves
from manyseed.analysis.figures.deep import (
    equivalents,
    likelihood_against,
    likelihood_by_size,
)
from manyseed.analysis.figures.sizes import ensembles_accuracy, ensembles_close
from manyseed.analysis.figures.style import (
    VECTORS,
    Plot,
    colour,
    distributions,
    legend,
    marker,
    panels,
    styled,
    thinned,
)
from manyseed.analysis.options import CLOSE
from manyseed.analysis.questions.effects import UNPERTURBED
from manyseed.analysis.tables.means import VARIES
from manyseed.analysis.tables.schema import Tables

LONGEST_LABEL = 14  # letters; classifiers of longer names are explained above the panels
MAX_PANELS = 36  # of a figure whose cells differ
LINEAR = 0.01  # up to here the axis of α̂ is linear, beyond it logarithmic
PROBES = {"gap": "logit gap", "true_margin": "true-class margin"}


def all_figures(
    tables: Tables,
    curves: pl.DataFrame | None = None,
    ensembles: pl.DataFrame | None = None,
    close: float = CLOSE,
    uncertainty: pl.DataFrame | None = None,
    dee: pl.DataFrame | None = None,
) -> list[Plot]:
    """Draw every figure that the tables allow; `close` is the option that they were made with."""
    drawn = [
        accuracy(tables.runs),
        accuracy_range(tables.repeats),
        ec_local(tables.pairs, tables.repeats),
        ec_global(tables.pairs, tables.repeats),
        alpha_hat(tables.runs, tables.repeats),
        alpha_hat_against_accuracy(tables.runs, tables.repeats),
    ]
    if ensembles is not None:
        drawn += [ensembles_close(ensembles, close), ensembles_accuracy(ensembles)]
    if curves is not None:
        drawn += [learning_curves(curves, quantity) for quantity in ("accuracy", "loss")]
    drawn += [likelihood_against(tables.runs, other) for other in ("brier", "error")]
    if uncertainty is not None:
        drawn.append(likelihood_by_size(uncertainty))
    if dee is not None:
        drawn += [equivalents(dee, metric) for metric in ("cll", "error")]
    return [plot for plot in drawn if plot is not None]


@styled
def accuracy(runs: pl.DataFrame) -> Plot | None:
    """Draw the accuracy of every run, by dataset, cell and classifier."""
    return _by_classifier(
        runs.filter(~pl.col("identical")),
        "accuracy",
        cells=runs,
        name="accuracy",
        title="Accuracy",
        label="accuracy",
        caption=f"Test accuracy of each run, on all test sets. n = {{n}} runs{_copies(runs)}.",
    )


@styled
def accuracy_range(repeats: pl.DataFrame) -> Plot | None:
    """Draw the range of accuracies within each repeat, by dataset, cell and classifier."""
    return _by_classifier(
        repeats.filter(VARIES),
        "accuracy_range",
        cells=repeats,
        name="accuracy-range",
        title="Accuracy range of a repeat",
        label="accuracy range",
        caption="Largest minus smallest test accuracy among the runs that share one test set and "
        f"one combination of schemes. n = {{n}} repeats{_identical(repeats)}.",
    )


@styled
def ec_local(pairs: pl.DataFrame, repeats: pl.DataFrame) -> Plot | None:
    """Draw the local error consistency of every pair of runs, by dataset, cell and classifier."""
    undefined = int(_varying(pairs, repeats)["ec_local"].null_count())
    left_out = f" ({undefined:,} pairs without any error left out)" if undefined else ""
    return _error_consistency(
        pairs,
        repeats,
        "local",
        f"those that at least one of them gets wrong. n = {{n}} pairs{left_out}",
    )


@styled
def ec_global(pairs: pl.DataFrame, repeats: pl.DataFrame) -> Plot | None:
    """Draw the global error consistency of every pair of runs, by dataset, cell and classifier."""
    return _error_consistency(pairs, repeats, "global", "all test points. n = {n} pairs")


def _error_consistency(
    pairs: pl.DataFrame, repeats: pl.DataFrame, which: str, among: str
) -> Plot | None:
    return _by_classifier(
        _varying(pairs, repeats),
        f"ec_{which}",
        cells=repeats,
        name=f"ec-{which}",
        title=f"{which.capitalize()} error consistency",
        label=f"{which} error consistency",
        caption="For each pair of runs of a repeat, the test points that both get wrong as a share "
        f"of {among}{_identical(repeats)}.",
    )


def _varying(rows: pl.DataFrame, repeats: pl.DataFrame) -> pl.DataFrame:
    """Return the runs or pairs of repeats whose runs vary."""
    key = ["cell", "repeat_index"]
    return rows.join(repeats.filter(VARIES).select(key), on=key, how="semi")


@styled
def alpha_hat(runs: pl.DataFrame, repeats: pl.DataFrame) -> Plot | None:
    """Draw α̂ of every run, by dataset, cell and classifier, with the resolution δ."""
    varying = _varying(runs, repeats)
    plot = _by_classifier(
        varying,
        "alpha_hat",
        cells=runs,
        name="alpha-hat",
        title="α̂",
        label="α̂",
        caption="α̂ of each run against the average eCDF of the other runs of its repeat"
        f"{_probe(varying)}. n = {{n}} runs{_identical(repeats)}. Dashed: resolution δ; "
        f"contamination below it isn't seen. {_resolution(repeats)}",
    )
    if plot is None:
        return None
    shown, _ = _panels_of(varying.filter(pl.col("alpha_hat").is_not_null()), runs)
    for axis, (dataset, _) in zip(plot.figure.axes, shown, strict=False):
        _mark_resolution(axis, repeats.filter(pl.col("dataset") == dataset))
    return plot


@styled
def alpha_hat_against_accuracy(runs: pl.DataFrame, repeats: pl.DataFrame) -> Plot | None:
    """Draw α̂ against accuracy, a dot a run, coloured by classifier or else by scheme."""
    shown = _varying(runs, repeats).filter(pl.col("alpha_hat").is_not_null())
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
        _mark_resolution(axis, repeats.filter(pl.col("dataset") == dataset))
    if len(levels) > 1:
        legend(figure, handles, by.replace("_", " "))
    return Plot(
        "alpha-hat-accuracy",
        "α̂ against accuracy",
        "Each dot is a run: its test accuracy, and its α̂ against the other runs of its repeat"
        f"{_probe(runs)}. n = {shown.height:,} runs{_identical(repeats)}. The axis of α̂ is linear "
        f"up to {LINEAR} and logarithmic beyond. Dashed: resolution δ. {_resolution(repeats)}",
        shown.height,
        figure,
    )


def _by_classifier(
    frame: pl.DataFrame,
    value: str,
    *,
    cells: pl.DataFrame,
    name: str,
    title: str,
    label: str,
    caption: str,
) -> Plot | None:
    """Draw the distribution of a column: a violin a cell.

    A panel holds the classifiers of a dataset and of what cells differ in else; panels of a dataset
    have one axis.

    Parameters
    ----------
    frame : polars frame
        What is drawn, with `cell`, `dataset` and `classifier`.
    value : str
    cells : polars frame
        With `cell` and the columns of `AXES` of all cells.
    name, title, label, caption : str
        `{n}` in the caption is how many values are drawn.
    """
    shown = frame.filter(pl.col(value).is_not_null())
    if shown.is_empty():
        return None
    classifiers = _values(cells, "classifier")
    drawn, axes_told = _panels_of(shown, cells)
    left_out = len(drawn) - MAX_PANELS
    drawn = drawn[:MAX_PANELS] if axes_told else drawn
    titles = [" · ".join(filter(None, (dataset, of))) for dataset, of in drawn]
    labelled = max(map(len, classifiers)) <= LONGEST_LABEL
    figure, axes = panels(titles, label)
    described = shown.join(_described(cells), on="cell", how="left")
    n, of_dataset = 0, dict[str, Axes]()
    for axis, (dataset, of) in zip(axes, drawn, strict=True):
        here = described.filter(pl.col("dataset") == dataset, pl.col("_of") == of)
        if (first := of_dataset.setdefault(dataset, axis)) is not axis:
            axis.sharey(first)
        distributions(
            axis,
            _groups(here, classifiers, value),
            labelled=labelled,
            rasterized=shown.height > VECTORS,
        )
        n += here.height
    if not labelled:
        dots = (
            Line2D([], [], ls="", color=colour(index), marker=marker(index), markersize=4)
            for index in range(len(classifiers))
        )
        legend(figure, dict(zip(classifiers, dots, strict=True)), "classifier")
    told = caption.format(n=f"{n:,}") + " Bars: medians."
    if axes_told:
        told += f" A panel for each {' · '.join(axes_told).replace('_', ' ')} of a dataset."
        if left_out > 0:
            told += f" {left_out:,} further panels are not drawn: their numbers are in the tables."
    return Plot(name, title, told, n, figure)


def _described(cells: pl.DataFrame) -> pl.DataFrame:
    """Return each cell with what sets it apart, in words: `cell`, `_of`, empty where nothing."""
    parts = [pl.col(name).cast(pl.String) for name in _differing(cells)] or [pl.lit("")]
    of = pl.concat_str(parts, separator=" · ", ignore_nulls=True).alias("_of")
    return cells.select("cell", of).unique().sort("cell")


def _differing(cells: pl.DataFrame) -> list[str]:
    """Return in what cells of a dataset and classifier differ."""
    others = [name for name in AXES if name not in ("dataset", "classifier")]
    return [name for name in others if cells[name].n_unique() > 1]


def _panels_of(shown: pl.DataFrame, cells: pl.DataFrame) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what each panel holds, a dataset and what sets cells apart, and by what these are."""
    found = shown.select("cell", "dataset").unique().join(_described(cells), on="cell", how="left")
    ordered = found.sort(pl.col("dataset").cast(pl.String), "cell")
    pairs = ordered.select(pl.col("dataset").cast(pl.String), "_of").unique(maintain_order=True)
    return pairs.rows(), _differing(cells)


def _groups(
    frame: pl.DataFrame, classifiers: Sequence[str], value: str
) -> list[tuple[int, str, NDArray[np.float64]]]:
    """Return the values of each classifier that is there, numbered alike in all panels."""
    groups = []
    for index, classifier in enumerate(classifiers):
        values = frame.filter(pl.col("classifier") == classifier)[value].drop_nulls()
        if not values.is_empty():
            groups.append((index, classifier, values.to_numpy()))
    return groups


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


def _mark_resolution(axis: Axes, repeats: pl.DataFrame) -> None:
    delta = repeats["delta"].drop_nulls()
    if delta.is_empty():
        return
    value = float(delta[0])
    axis.axhline(value, color="black", linewidth=0.9, linestyle=(0, (4, 3)))
    axis.annotate(
        f"δ =\n{value:.3f}",
        (1, value),  # beside the panel, where no dot can be
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=7.5,
    )


def _resolution(repeats: pl.DataFrame) -> str:
    """Say δ and N, or from which to which they go."""
    known = repeats.filter(pl.col("alpha_hat_mean").is_not_null())
    if known.is_empty():
        return ""
    deltas, sides = known["delta"].unique().sort(), known["n_side"].unique().sort()
    if deltas.len() == 1:
        return f"δ = {deltas[0]:.3f} with N = {sides[0]} test points on each side."
    return (
        f"δ = {deltas[0]:.3f} to {deltas[-1]:.3f} with N = {sides[-1]} to {sides[0]} test points "
        "on each side."
    )


def _probe(runs: pl.DataFrame) -> str:
    known = _values(runs.filter(pl.col("probe").is_not_null()), "probe")
    names = [PROBES.get(name, name) for name in known]
    both = "; the two aren't comparable" if len(names) > 1 else ""
    return f" (probe: {' and '.join(names)}{both})" if names else ""


def _copies(runs: pl.DataFrame) -> str:
    copies = int(runs["identical"].sum())
    return f" ({copies:,} identical copies left out)" if copies else ""


def _identical(repeats: pl.DataFrame) -> str:
    count = int(repeats["identical"].sum())
    return f" ({count:,} repeats of identical runs left out)" if count else ""
