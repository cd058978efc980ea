"""Deep ensembles: what averaging probabilities gains, and how many runs other cells are worth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.colours import colour, marker
from manyseed.analysis.figures.described import (
    first_of_each,
    not_drawn,
    panel_per_cell,
    titles,
    with_names,
)
from manyseed.analysis.figures.sizes import labels
from manyseed.analysis.figures.style import (
    MAX_POINTS,
    VECTORS,
    Handle,
    Plot,
    legend,
    panels,
    styled,
)
from manyseed.analysis.questions.dee import SIZES
from manyseed.analysis.tables.rows import mean_of, pooled, std_of

MAX_PANELS = 24  # one cell each
KEY = ["cell", "repeat_index"]
LIKELIHOODS = {"cll": "calibrated (cll)", "log_likelihood": "uncalibrated"}
MOST = 6  # most lines of a panel
FEWEST = 3  # runs needed for a correlation
PLAIN = "black"
"""The colour of single runs and their ensembles, which methods are compared with."""


@styled
def likelihood_by_size(uncertainty: pl.DataFrame) -> Plot | None:
    """Draw log-likelihood against the number of runs averaged, with and without calibration."""
    shown = uncertainty.filter(pl.col("cll").is_not_null() & pl.col("pool").is_not_null())
    if shown.is_empty():
        return None
    figure, axes, left = panel_per_cell(shown, MAX_PANELS, "log-likelihood (nats)")
    shown = shown.filter(pl.col("cell").is_in([*axes]))
    handles: dict[str, Handle] = {}
    for cell, axis in axes.items():
        own = shown.filter(cell=cell)
        for index, (name, label) in enumerate(LIKELIHOODS.items()):
            handles[label] = _curve(axis, own, name, index)
        within = own.filter(pl.col("members") <= own["pool"].min())
        sizes(axis, int(within["members"].max()), "runs averaged, k")  # type: ignore[arg-type]
    legend(figure, handles, "")
    repeats, draws = shown.select(KEY).unique().height, shown["draw"].n_unique()
    bounded = float(shown["temperature_bounded"].to_numpy().mean())
    share = f"{bounded:.0%}" if bounded >= 0.005 else "Under 1%"
    at_bound = f" {share} of the temperatures are at a bound." if bounded else ""
    return Plot(
        "deep-likelihood",
        "Log-likelihood of deep ensembles",
        "Mean log-probability of the true class when the probabilities of k runs are averaged, at "
        "the temperature fitted on the other half of the test set (solid) and uncalibrated "
        "(dashed). Lines: means over the repeats of a cell, up to the size of the smallest pool; "
        "bands: ± one standard deviation between draws of a repeat, pooled. Draws share their "
        "pool, so bands narrow as k approaches its size. "
        f"n = {counted(repeats, 'repeat')}, {draws:,} draws each.{at_bound}{not_drawn(left)}",
        repeats,
        figure,
        data=with_names(
            pl.concat(
                _over_draws(shown.filter(cell=cell), name).select(
                    pl.lit(cell, shown.schema["cell"]).alias("cell"),
                    pl.lit(name).alias("metric"),
                    pl.all(),
                )
                for cell in axes
                for name in LIKELIHOODS
            ),
            shown,
        ),
    )


def _over_draws(own: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return mean and spread for each number of runs averaged, up to the smallest pool."""
    own = own.filter(pl.col("members") <= own["pool"].min())
    return (
        own.filter(pl.col(name).is_finite())
        .group_by(*KEY, "members", maintain_order=True)
        .agg(mean_of(pl.col(name)).alias("mean"), std_of(pl.col(name)).alias("std"), pl.len())
        .sort("members", *KEY)
        .group_by("members", maintain_order=True)
        .agg(mean_of(pl.col("mean")), pooled(pl.col("std"), pl.col("len") - 1).alias("std"))
        .sort("members")
    )


def _curve(axis: Axes, own: pl.DataFrame, name: str, index: int) -> Handle:
    over = _over_draws(own, name)
    size, mean = over["members"].to_numpy(), over["mean"].to_numpy()
    std = over["std"].fill_null(0).to_numpy()
    axis.fill_between(size, mean - std, mean + std, color=colour(index), alpha=0.2, linewidth=0)
    dashes = "--" if index else "-"
    (line,) = axis.plot(
        size, mean, color=colour(index), marker="o", markersize=2.5, linewidth=1.4, ls=dashes
    )
    return line


def sizes(axis: Axes, largest: int, label: str) -> None:
    """Label a logarithmic horizontal axis with numbers of averaged runs or members."""
    ticks = sorted({*(size for size in SIZES if size <= largest), largest})
    axis.set_xscale("log")
    axis.set_xticks(ticks, labels(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel(label)


@styled
def equivalents(dee: pl.DataFrame, metric: str = "cll", *, methods: bool = False) -> Plot | None:
    """Draw how many independent runs the averaged runs of other cells are worth.

    Cells are compared in one axis: the classifier, or else the first axis available; with
    `methods`, ensembling: members of one run.
    """
    own = dee.filter((pl.col("axis") == "ensembling") == methods, metric=metric)
    if own.is_empty():
        return None
    compared = own["axis"].unique().sort().to_list()
    along = "classifier" if "classifier" in compared else compared[0]
    own = own.filter(axis=along).with_columns(pl.col(along).cast(pl.String).alias("value"))
    deep = own.with_columns(
        pl.col("deep_cell").alias("cell"), pl.col("deep_value").cast(own.schema[along]).alias(along)
    )
    figure, axes, left = panel_per_cell(deep, MAX_PANELS, "independent runs")
    own = own.filter(pl.col("deep_cell").is_in([*axes]))
    values = own["value"].unique().sort().to_list()
    handles: dict[str, Handle] = {}
    crowded = 0
    for cell, axis in axes.items():
        rows = own.filter(deep_cell=cell)
        own_values = rows["value"].unique().sort().to_list()
        shown = own_values if methods else own_values[:MOST]
        crowded += len(own_values) - len(shown)
        label = "members averaged, k" if methods else "runs averaged, k"
        handles |= worth_by_size(axis, rows, {v: values.index(v) for v in shown}, label)
    if not handles:
        return None
    legend(figure, dict(sorted(handles.items())), along.replace("_", " "))
    beyond = own["beyond"].is_not_null().sum()
    out = f" {beyond:,} of {own.height:,} comparisons are beyond the pool and left out." * (
        beyond > 0
    )
    repeats = own.select("deep_cell", "cell", "repeat_index").unique().height
    what = (
        f"How many independent runs of one {along.replace('_', ' ')} make an ensemble as good, by "
        f"{metric}, as k averaged runs of another"
    )
    if methods:
        what = (
            f"How many independent runs make an ensemble as good, by {metric}, as the first k "
            "members that an ensembling method gets out of one training (mean over runs)"
        )
    return Plot(
        f"{'method' if methods else 'deep'}-equivalent-{metric}",
        f"Deep ensemble equivalent{' of methods' if methods else ''} by {metric}",
        f"{what}, all else equal; one panel for each cell whose runs are counted. Means over "
        "repeats; bars: the same for ensembles one standard deviation better and worse, up to the "
        f"size of the pool. n = {counted(repeats, 'compared repeat')}.{out}"
        f"{not_drawn(left + crowded)}",
        repeats,
        figure,
        data=with_names(
            over_repeats(own, "deep_cell", "value").rename(
                {"deep_cell": "cell", "value": "averaged"}
            ),
            deep,
        ),
    )


def worth_by_size(
    axis: Axes, own: pl.DataFrame, values: Mapping[str, int], label: str
) -> dict[str, Handle]:
    """Draw what ensembles are worth against their size, and return the legend's entries.

    Parameters
    ----------
    axis : Axes
    own : polars frame
        Rows of `dee` with a column `value`.
    values : mapping
        The values to draw, one line each, with the index of its colour.
    label : str
        Label of the sizes.
    """
    lines = {value: _line(axis, own.filter(value=value), n) for value, n in values.items()}
    pool = int(own["pool"].min())  # type: ignore[arg-type]
    ticks = sorted({*(size for size in SIZES if size <= pool), pool})
    axis.set_yscale("log")
    axis.set_yticks(ticks, labels(ticks))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylim(0.85, pool * 1.2)
    sizes(axis, int(own["members"].max()), label)  # type: ignore[arg-type]
    return {value: line for value, line in lines.items() if line is not None}


def _line(axis: Axes, own: pl.DataFrame, index: int) -> Handle | None:
    over = over_repeats(own)
    if over.is_empty():
        return None
    size, mean = over["members"].to_numpy(), over["dee"].to_numpy()
    bars = [mean - over["dee_lower"].to_numpy(), over["dee_upper"].to_numpy() - mean]
    return axis.errorbar(
        size * (1 + 0.02 * index),
        mean,
        yerr=np.maximum(bars, 0),
        color=colour(index),
        marker=marker(index),
        markersize=3.5,
        linewidth=1.2,
        capsize=2,
    )


def over_repeats(own: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Return what ensembles are worth by their size, averaged within groups of `by`."""
    known = own.filter(pl.col("dee").is_not_null()).with_columns(
        pl.col("dee_lower").fill_null(pl.col("dee")),
        pl.col("dee_upper").fill_null(pl.col("pool")),
    )
    return (
        known.group_by(*by, "members", maintain_order=True)
        .agg(mean_of(pl.col(name)) for name in ("dee", "dee_lower", "dee_upper"))
        .sort(*by, "members")
    )


@styled
def likelihood_against(runs: pl.DataFrame, other: str) -> Plot | None:
    """Draw the log-likelihood of each run against another metric, before and after calibration.

    Parameters
    ----------
    runs : polars frame
        The table of runs.
    other : {"brier", "error"}
    """
    own = runs.filter(~pl.col("identical") & pl.col("cll").is_not_null())
    own = own.filter(pl.col("log_likelihood").is_finite())
    calibrated = f"c_{other}" if f"c_{other}" in own.columns else other
    forms = {"uncalibrated": ("log_likelihood", other), "calibrated": ("cll", calibrated)}
    several = own.filter(pl.len().over("cell") >= FEWEST)
    if several.is_empty():
        return None
    chosen, left = first_of_each(several, MAX_PANELS)
    named = titles(several)
    own = several.filter(pl.col("cell").is_in(chosen))

    def both_correlations(rows: pl.DataFrame) -> str:
        return ",\xa0".join(_correlation(rows, *names) for names in forms.values())  # on one line

    with_rho = [
        f"{named[cell]}: ρ\xa0=\xa0{both_correlations(own.filter(cell=cell))}" for cell in chosen
    ]
    over_cells = [
        f"{dataset} {both_correlations(rows)}"
        for (dataset,), rows in several.group_by("dataset", maintain_order=True)
        if rows["cell"].n_unique() > 1
    ]
    handles = {}
    figure, axes = panels(with_rho, "log-likelihood (nats)")
    for axis, cell in zip(axes, chosen, strict=True):
        rows = own.filter(cell=cell)
        rows = rows.gather_every(max(1, -(-rows.height // MAX_POINTS)))
        for index, (form, (likelihood, name)) in enumerate(forms.items()):
            handles[form] = axis.scatter(
                rows[name].to_numpy(),
                rows[likelihood].to_numpy(),
                s=9,
                color=colour(1 - index),
                marker=marker(6 * index),
                alpha=0.6,
                linewidths=0,
                rasterized=rows.height > VECTORS,
            )
        axis.set_xlabel("Brier score" if other == "brier" else "error")
    legend(figure, handles, "")
    return Plot(
        f"likelihood-{other}",
        f"Log-likelihood against {'Brier score' if other == 'brier' else 'error'}",
        "Each dot is a run before or after calibration, one panel per cell; ρ is Pearson's "
        "correlation over its runs, before and after: where only the first is far from −1, "
        "temperatures rather than models set the runs apart."
        + (f" ρ over all cells of a dataset: {'; '.join(over_cells)}." if over_cells else "")
        + f" n = {counted(own.height, 'run')}, copies left out.{not_drawn(left)}",
        own.height,
        figure,
        data=with_names(
            own.select(
                *("cell", "repeat_index", "run_index"),
                *dict.fromkeys(name for names in forms.values() for name in names),
            ),
            several,
        ),
    )


def _correlation(runs: pl.DataFrame, one: str, other: str) -> str:
    values = runs.select(one, other).drop_nulls().to_numpy()
    if values.shape[0] < FEWEST or (values.std(axis=0) == 0).any():
        return "–"
    return f"{np.corrcoef(values.T)[0, 1]:.2f}".replace("-", "−")
