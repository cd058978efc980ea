"""How many runs the members of one training are worth: averaged over cells, and by metric."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.deep import MAX_PANELS, over_repeats, worth_by_size
from manyseed.analysis.figures.described import first_of_each, not_drawn, titles, with_names
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.style import Handle, Plot, legend, panels
from manyseed.analysis.questions.dee import METRICS

_SIZES = "members averaged, k"


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
    handles: dict[str, Handle] = {}
    for axis, (dataset, augment, _) in zip(axes, several.iter_rows(), strict=True):
        rows = own.filter(dataset=dataset, test_augment=augment)
        handles |= worth_by_size(axis, rows, values, _SIZES)
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
        data=over_repeats(own, "dataset", "test_augment", "value").rename({"value": "ensembling"}),
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
    handles: dict[str, Handle] = {}
    for axis, (cell, metric) in zip(axes, places, strict=True):
        rows = own.filter(deep_cell=cell, metric=metric)
        handles |= worth_by_size(axis, rows, values, _SIZES)
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
            over_repeats(own, "deep_cell", "metric", "value").rename(
                {"deep_cell": "cell", "value": "ensembling"}
            ),
            deep.drop("ensembling"),
        ),
    )


def _of_methods(dee: pl.DataFrame) -> pl.DataFrame:
    own = dee.filter(pl.col("axis") == "ensembling")
    return own.with_columns(pl.col("ensembling").cast(pl.String).alias("value"))
