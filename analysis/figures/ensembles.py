"""Ensembles by size, and deep ensemble equivalents: how many independent runs others are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import (
    among,
    colour,
    first_of_each,
    labelled,
    marker,
    not_drawn,
    titles,
    with_names,
)
from manyseed.analysis.figures.style import (
    MAX_PANELS,
    Handle,
    Plot,
    axis_of_sizes,
    legend,
    panel_per_cell,
    panels,
)
from manyseed.analysis.figures.uncertainty import sizes, ticks_to
from manyseed.analysis.questions.dee import METRICS
from manyseed.analysis.tables.rows import mean_of

MOST = 6  # most lines of a panel
_MEMBERS = "members averaged, k"


@kind(
    "deep-equivalent-{}",
    chapter="equivalents",
    metric={
        name: f"how many runs averaged runs of another cell are worth, by {label}"
        for name, label in (("cll", "likelihood"), ("error", "error"))
    },
)
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
    pool = int(own["pool"].max())  # type: ignore[arg-type]
    points = over_repeats(own, "deep_cell", "value")
    handles: dict[str, Handle] = {}
    crowded = 0
    for cell, axis in axes.items():
        rows = own.filter(deep_cell=cell)
        own_values = rows["value"].unique().sort().to_list()
        shown = own_values if methods else own_values[:MOST]
        crowded += len(own_values) - len(shown)
        label = _MEMBERS if methods else "runs averaged, k"
        looks = {value: values.index(value) for value in shown}
        handles |= worth_by_size(axis, points.filter(deep_cell=cell), rows, looks, label, pool)
    if not handles:
        return None
    legend(figure, dict(sorted(handles.items())), labelled(along))
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
        data=with_names(points.rename({"deep_cell": "cell", "value": "averaged"}), deep),
    )


@kind(
    "method-equivalent-{}",
    chapter="equivalents",
    metric={"cll": "how many runs the members of one training are worth, by likelihood"},
)
def equivalents_of_methods(dee: pl.DataFrame, metric: str = "cll") -> Plot | None:
    """Draw how many independent runs members of one run are worth."""
    return equivalents(dee, metric, methods=True)


@kind(
    "method-equivalent-averaged-{}",
    chapter="equivalents",
    metric={"cll": "the same, averaged over the cells of a dataset"},
)
def averaged_equivalents(dee: pl.DataFrame, metric: str = "cll") -> Plot | None:
    """Draw deep ensemble equivalents of methods by size, averaged over cells (PIT, figure 3).

    One panel per dataset and test-time augmentation; None if no dataset has two cells that methods
    are compared with: other figures show single cells.
    """
    own = _of_methods(dee).filter(metric=metric)
    group = ["dataset", "test_augment"]
    cells = own.group_by(group).agg(pl.col("deep_cell").n_unique().alias("n"))
    several = cells.filter(pl.col("n") > 1).sort(group).head(MAX_PANELS)
    if several.is_empty():
        return None
    own = own.join(several, on=group, how="semi", maintain_order="left")
    values = {value: n for n, value in enumerate(own["value"].unique().sort().to_list())}
    apart = own["test_augment"].n_unique() > 1
    named = [
        f"{dataset} · {augment}" if apart else str(dataset)
        for dataset, augment, _ in several.rows()
    ]
    figure, axes = panels(named, "independent runs")
    pool = int(own["pool"].max())  # type: ignore[arg-type]
    points = over_repeats(own, *group, "value")
    handles: dict[str, Handle] = {}
    for axis, (dataset, augment, _) in zip(axes, several.iter_rows(), strict=True):
        panel = {"dataset": dataset, "test_augment": augment}
        rows = own.filter(**panel)
        handles |= worth_by_size(axis, points.filter(**panel), rows, values, _MEMBERS, pool)
    legend(figure, handles, "ensembling")
    out = int(own["dee"].is_null().sum())
    n = own.select("cell", "deep_cell", "repeat_index").unique().height
    return Plot(
        f"method-equivalent-averaged-{metric}",
        f"Deep ensemble equivalent of methods by {metric}, averaged",
        "How many independent runs make an ensemble as good as the first k members that an "
        f"ensembling method gets out of one training, by {metric}. Means over the cells of a "
        "dataset (classifiers and whatever else differs) and their repeats; bars: the same for "
        "ensembles one standard deviation better and worse. "
        f"{out:,} of {own.height:,} comparisons are beyond the pool and left out: if there are "
        f"many, means are too low. n = {counted(n, 'compared repeat')}.",
        n,
        figure,
        data=points.rename({"value": "ensembling"}),
    )


@kind(
    "method-equivalents",
    "how many runs the members of one training are worth, metric by metric",
    chapter="equivalents",
)
def equivalents_by_metric(dee: pl.DataFrame) -> Plot | None:
    """Draw deep ensemble equivalents of methods, one panel per metric (PIT, figures 7 to 9).

    None without methods.
    """
    own = _of_methods(dee)
    if own.is_empty():
        return None
    metrics = [name for name in METRICS if name in own["metric"].unique().to_list()]
    # rows describe the methods' cells, which share all levels but ensembling with the deep cell
    deep = own.with_columns(pl.col("deep_cell").alias("cell"), pl.lit("none").alias("ensembling"))
    chosen, left = first_of_each(deep, MAX_PANELS // len(metrics))
    named = titles(deep)
    own = own.filter(pl.col("deep_cell").is_in(chosen))
    values = {value: n for n, value in enumerate(own["value"].unique().sort().to_list())}
    places = [(cell, metric) for cell in chosen for metric in metrics]
    figure, axes = panels(
        [f"{named[cell]}: {metric}" for cell, metric in places], "independent runs"
    )
    pool = int(own["pool"].max())  # type: ignore[arg-type]
    points = over_repeats(own, "deep_cell", "metric", "value")
    handles: dict[str, Handle] = {}
    for axis, (cell, metric) in zip(axes, places, strict=True):
        panel = {"deep_cell": cell, "metric": metric}
        rows = own.filter(**panel)
        handles |= worth_by_size(axis, points.filter(**panel), rows, values, _MEMBERS, pool)
    if not handles:
        return None
    legend(figure, dict(sorted(handles.items())), "ensembling")
    out = int(own["dee"].is_null().sum())
    n = own.select("cell", "deep_cell", "repeat_index").unique().height
    return Plot(
        "method-equivalents",
        "Deep ensemble equivalent of methods by metric",
        "How many independent runs make an ensemble as good as the first k members that an "
        "ensembling method gets out of one training (mean over runs), by each metric: calibrated "
        "log-likelihood, Brier score and area under the risk–coverage curve, and error. Means over "
        "repeats; bars: the same for ensembles one standard deviation better and worse, up to the "
        f"size of the pool. {out:,} of {own.height:,} comparisons are beyond the pool and left "
        f"out. n = {counted(n, 'compared repeat')}.{not_drawn(left)}",
        n,
        figure,
        data=with_names(
            points.rename({"deep_cell": "cell", "value": "ensembling"}),
            deep.drop("ensembling"),
        ),
    )


def _of_methods(dee: pl.DataFrame) -> pl.DataFrame:
    own = dee.filter(pl.col("axis") == "ensembling")
    return own.with_columns(pl.col("ensembling").cast(pl.String).alias("value"))


def worth_by_size(
    axis: Axes,
    points: pl.DataFrame,
    rows: pl.DataFrame,
    values: Mapping[str, int],
    label: str,
    pool: int,
) -> dict[str, Handle]:
    """Draw what ensembles are worth against their size, and return the legend's entries.

    `points` are `over_repeats` of `rows` of `dee` by their column `value`; `values` are those
    drawn, a line each, with the index of its colour; `label` is that of sizes; `pool` is the
    largest of the figure, where the axes of all panels end.
    """
    handles: dict[str, Handle] = {}
    for value, index in values.items():
        over = points.filter(value=value)
        if over.is_empty():
            continue
        size, mean = over["members"].to_numpy(), over["dee"].to_numpy()
        bars = [mean - over["dee_lower"].to_numpy(), over["dee_upper"].to_numpy() - mean]
        handles[value] = axis.errorbar(
            size * (1 + 0.02 * index),
            mean,
            yerr=np.maximum(bars, 0),
            color=colour(index),
            marker=marker(index),
            markersize=3.5,
            linewidth=1.2,
            capsize=2,
        )
    axis_of_sizes(axis, ticks_to(pool), up=True)
    axis.set_ylim(0.85, pool * 1.2)
    sizes(axis, int(rows["members"].max()), label)  # type: ignore[arg-type]
    return handles


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


MARGIN = 1.3  # the axis extends beyond the smallest and largest size by this factor
APART = 0.03  # offset between classifiers of the same size, as a share of the size

LISTED = 3  # most cells that are named


@kind(
    "ensembles-close",
    "share of ensembles of each size that stand for the training",
    chapter="ensembles",
)
def ensembles_close(ensembles: pl.DataFrame, close: float) -> Plot | None:
    """Draw the share of ensembles of each size that the robust and the classical test accept.

    `ensembles`: `analysis.questions.ensembles.table_one` of each dataset and classifier, with
    `cell`, `n_side` and `delta`. `close`: the one that the table was made with.
    """
    if ensembles.is_empty():
        return None
    ensembles, left = _drawn_datasets(ensembles)
    figure, axes, handles = _panels(ensembles, "share of ensembles", _shares)
    for axis in axes:
        axis.set_ylim(-0.04, 1.06)
    legend(figure, handles, "classifier")
    return Plot(
        "ensembles-close",
        "Ensembles that stand for the training",
        f"Share of ensembles of M_ens members with α̂ ≤ {close:g} (solid, filled), and share that "
        "the classical KS test accepts (dashed, hollow). Members are drawn from one half of the "
        f"runs of a repeat; the other half is the reference. {_unsaid(ensembles, close)}"
        f"{_drawn(ensembles)} {_resolution(ensembles)}{left}",
        int(ensembles["draws"].sum()),
        figure,
        data=ensembles.select("dataset", "classifier", "size", "close", "accepted", "draws"),
    )


@kind("ensembles-accuracy", "accuracy of ensembles of each size", chapter="ensembles")
def ensembles_accuracy(ensembles: pl.DataFrame) -> Plot | None:
    """Draw mean and standard deviation of the accuracy of ensembles of each size."""
    if ensembles.is_empty():
        return None
    ensembles, left = _drawn_datasets(ensembles)
    figure, _, handles = _panels(ensembles, "accuracy", _accuracies)
    legend(figure, handles, "classifier")
    return Plot(
        "ensembles-accuracy",
        "Accuracy of ensembles",
        "Test accuracy of ensembles of M_ens members, drawn from one half of the runs of a repeat: "
        f"mean, and bars of ± one standard deviation over the draws. {_drawn(ensembles)}{left}",
        int(ensembles["draws"].sum()),
        figure,
        data=ensembles.select(
            *("dataset", "classifier", "size", "accuracy", "accuracy_std", "draws")
        ),
    )


def _drawn_datasets(ensembles: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Return the rows of the first `MAX_PANELS` datasets, and say how many are left out."""
    datasets = ensembles["dataset"].unique().sort()
    drawn = pl.col("dataset").is_in(datasets.head(MAX_PANELS).implode())
    return ensembles.filter(drawn), not_drawn(max(datasets.len() - MAX_PANELS, 0), "dataset")


def _panels(
    ensembles: pl.DataFrame, label: str, draw: Any
) -> tuple[Any, Sequence[Axes], dict[str, Handle]]:
    """Draw a panel per dataset with all its classifiers."""
    datasets = ensembles["dataset"].unique().sort().to_list()
    classifiers = ensembles["classifier"].unique().sort().to_list()
    figure, axes = panels(datasets, label)
    handles = {}
    for axis, dataset in zip(axes, datasets, strict=True):
        rows = ensembles.filter(dataset=dataset)
        for index, classifier in enumerate(classifiers):
            own = rows.filter(classifier=classifier).sort("size")
            if own.is_empty():
                continue
            sizes = own["size"].to_numpy() * (1 + APART * (index - (len(classifiers) - 1) / 2))
            place = among(classifiers).index(classifier)
            look = {"color": colour(place), "marker": marker(place), "markersize": 4}
            handles[classifier] = draw(axis, sizes, own, look)
        ticks = rows["size"].unique().sort().to_list()
        axis_of_sizes(axis, ticks, "M_ens")
        axis.set_xlim(ticks[0] / MARGIN, ticks[-1] * MARGIN)
    return figure, axes, dict(sorted(handles.items()))


def _shares(axis: Axes, sizes: Any, own: pl.DataFrame, look: Mapping[str, Any]) -> Handle:
    hollow = {**look, "markerfacecolor": "none", "markersize": 8}  # visible around a filled one
    axis.plot(sizes, own["accepted"].to_numpy(), linewidth=1, ls="--", **hollow)
    (line,) = axis.plot(sizes, own["close"].to_numpy(), linewidth=1.4, **look)
    return line


def _accuracies(axis: Axes, sizes: Any, own: pl.DataFrame, look: Mapping[str, Any]) -> Handle:
    spread = own["accuracy_std"].fill_null(0).to_numpy()
    return axis.errorbar(
        sizes, own["accuracy"].to_numpy(), yerr=spread, linewidth=1.2, capsize=2.5, **look
    )


def _unsaid(ensembles: pl.DataFrame, close: float) -> str:
    """Explain a missing solid line."""
    if ensembles["close"].null_count() == 0:
        return ""
    return f"No solid line where δ is above {close:g}: there, α̂ cannot tell ensembles apart. "


def _drawn(ensembles: pl.DataFrame) -> str:
    draws = ensembles["draws"].unique().sort()
    models = ensembles["models"].unique().sort()
    known = (
        ensembles["distinct"] if "distinct" in ensembles.columns else pl.Series([], dtype=pl.UInt32)
    )
    different = known.drop_nulls().unique().sort()
    of_these = f", of which {_from_to(different)} differ in their members" if len(different) else ""
    return (
        f"n = {counted(int(ensembles['draws'].sum()), 'ensemble')}, {_from_to(draws)} of each size"
        f"{of_these}, out of {_from_to(models)} runs, those of one repeat of {_cells(ensembles)}."
    )


def _cells(ensembles: pl.DataFrame) -> str:
    cells = ensembles["cell"].unique().sort().to_list()
    if len(cells) > LISTED:
        return "a cell of each dataset and classifier (table ensembles)"
    return f"cell{'s' if len(cells) > 1 else ''} {', '.join(map(str, cells))}"


def _resolution(ensembles: pl.DataFrame) -> str:
    delta, side = ensembles["delta"].unique().sort(), ensembles["n_side"].unique().sort()
    values = [fixed(value, 3) for value in (delta[0], delta[-1])][: delta.len()]
    return (
        f"δ = {' to '.join(values)} with N = {_from_to(side.reverse())} test points on each side: "
        "smaller differences of an ensemble aren't seen."
    )


def _from_to(values: pl.Series) -> str:
    return f"{values[0]:,}" if values.len() == 1 else f"{values[0]:,} to {values[-1]:,}"
