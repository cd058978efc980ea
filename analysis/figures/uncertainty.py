"""Log-likelihood by the number of runs or members averaged, and TACE by its parameters (PIT)."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import (
    COLOURS,
    colour,
    first_of_each,
    marker,
    not_drawn,
    titles,
    with_names,
)
from manyseed.analysis.figures.style import (
    MAX_PANELS,
    MAX_POINTS,
    VECTORS,
    Handle,
    Plot,
    axis_of_sizes,
    comparable,
    from_zero,
    legend,
    line,
    panel_per_cell,
    panels,
)
from manyseed.analysis.questions.dee import SIZES
from manyseed.analysis.tables.rows import IS_METHOD, mean_of, pooled, std_of

KEY = ["cell", "repeat_index"]
LIKELIHOODS = {"cll": "calibrated (cll)", "log_likelihood": "uncalibrated"}
FEWEST = 3  # runs needed for a correlation
PLAIN = "black"  # the colour of single runs and their ensembles, which methods are compared with
DEEP = "none: deep ensembles"
_LINE = ["of", "value", "members"]
_CONTEXT = [axis for axis in AXES if axis != "ensembling"]


@kind(
    "likelihood-{}",
    chapter="likelihood",
    other={
        "brier": "log-likelihood against Brier score, before and after calibration",
        "error": "log-likelihood against error, before and after calibration",
    },
)
def likelihood_against(runs: pl.DataFrame, other: str) -> Plot | None:
    """Draw the log-likelihood of each run against another metric, before and after calibration.

    `runs`: the table of runs.
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
    each = own.partition_by("cell")
    alike = comparable(pl.concat([one["cll"], one["log_likelihood"]]) for one in each)
    figure, axes = panels(with_rho, "log-likelihood (nats)", alike=alike)
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
        "calibration makes up for much of what sets the runs apart."
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
    return fixed(np.corrcoef(values.T)[0, 1], 2).replace("-", "−")


@kind("deep-likelihood", "log-likelihood by the number of runs averaged", chapter="likelihood")
def likelihood_by_size(uncertainty: pl.DataFrame) -> Plot | None:
    """Draw log-likelihood against the number of runs averaged, with and without calibration."""
    shown = uncertainty.filter(pl.col("cll").is_not_null() & pl.col("pool").is_not_null())
    if shown.is_empty():
        return None
    figure, axes, left = panel_per_cell(shown, MAX_PANELS, "log-likelihood (nats)")
    shown = shown.filter(pl.col("cell").is_in([*axes]))
    points = pl.concat(
        _over_draws(shown.filter(cell=cell), name).select(
            pl.lit(cell, shown.schema["cell"]).alias("cell"), pl.lit(name).alias("metric"), pl.all()
        )
        for cell in axes
        for name in LIKELIHOODS
    )
    mean, std = pl.col("mean"), pl.col("std").fill_null(0)
    banded = points.with_columns(low=mean - std, high=mean + std)
    handles: dict[str, Handle] = {}
    for cell, axis in axes.items():
        for index, (name, label) in enumerate(LIKELIHOODS.items()):
            look = {"color": colour(index), "marker": "o", "ls": "--" if index else "-"}
            own = banded.filter(cell=cell, metric=name)
            handles[label] = line(axis, own, ("members", "mean"), look, {("low", "high"): 0.2})
        own = shown.filter(cell=cell)
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
        data=with_names(points, shown),
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


def of_methods(uncertainty: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of ensembling methods; none of a table of an earlier version."""
    of_runs = "run_index" in uncertainty.columns
    return uncertainty.filter(IS_METHOD, pl.col("cll").is_not_null(), pl.lit(of_runs))


@kind(
    "member-likelihood",
    "log-likelihood by the number of members, of ensembling methods",
    chapter="likelihood",
)
def members_by_size(uncertainty: pl.DataFrame) -> Plot | None:
    """Draw log-likelihood by number of members, for methods and deep ensembles (PIT, figure 1).

    One panel for cells that differ only in ensembling; None without methods.
    """
    methods = of_methods(uncertainty)
    if methods.is_empty():
        return None
    known = uncertainty.filter(pl.col("cll").is_not_null())
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
    drawn = shown.filter(pl.col("of").is_in(chosen))
    finite = drawn.filter(pl.col("log_likelihood").is_finite())
    points = (
        _over_runs(drawn, "cll")
        .join(_over_runs(finite, "log_likelihood"), on=_LINE, how="left")
        .sort(_LINE)
    )
    several = points.partition_by("of")
    alike = comparable(pl.concat([one["cll"], one["log_likelihood"]]) for one in several)
    titled = [named[cell] for cell in chosen]
    figure, axes = panels(titled, "log-likelihood (nats)", alike=alike)
    handles: dict[str, Handle] = {}
    for axis, cell in zip(axes, chosen, strict=True):
        own = points.filter(of=cell)
        for value in own["value"].unique(maintain_order=True).to_list():
            rows = own.filter(value=value)
            look = dict(zip(("color", "marker"), looks[value], strict=True))
            handles[value] = line(axis, rows, ("members", "cll"), look)
            plain = rows.drop_nulls("log_likelihood")
            line(axis, plain, ("members", "log_likelihood"), {**look, "linewidth": 0.9, "ls": "--"})
        sizes(axis, int(own["members"].max()), "models averaged, k")  # type: ignore[arg-type]
    legend(figure, {value: handles[value] for value in values if value in handles}, "ensembling")
    runs = methods.select("cell", "repeat_index", "run_index").unique().height
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
            points.rename({"of": "cell", "value": "ensembling"}), panel.drop("ensembling")
        ),
    )


def _over_runs(own: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the mean of a column for each point of `_LINE`: over runs, then over repeats."""
    return (
        own.group_by(*_LINE, "cell", "repeat_index", maintain_order=True)
        .agg(mean_of(pl.col(name)))
        .sort(*_LINE, "cell", "repeat_index")
        .group_by(_LINE, maintain_order=True)
        .agg(mean_of(pl.col(name)))
        .sort(_LINE)
    )


def ticks_to(largest: int) -> list[int]:
    """Return the numbers of averaged runs or members that an axis names."""
    return sorted({*(size for size in SIZES if size <= largest), largest})


def sizes(axis: Axes, largest: int, label: str) -> None:
    """Label a logarithmic horizontal axis with numbers of averaged runs or members."""
    axis_of_sizes(axis, ticks_to(largest), label)


ONE, WHOLE = "none: one run", "none: deep ensemble"
MEMBERS = "all members of a run"
_AT = ["threshold", "bins"]


@kind(
    "tace-bins",
    "calibrated TACE by threshold and bins, of single networks and ensembles",
    chapter="calibration",
)
def calibration_by_bins(tace: pl.DataFrame) -> Plot | None:
    """Draw calibrated TACE by number of bins, one panel per threshold (PIT, figure 2).

    Cells that differ only in ensembling share panels: a line for single networks, one for the
    average of all, and one for each method's ensembles of all members.
    """
    plain = pl.col("ensembling").cast(pl.String) == "none"
    named = (
        pl.when(~plain)
        .then(pl.col("ensembling").cast(pl.String))
        .when(pl.col("members") == 1)
        .then(pl.lit(ONE))
        .otherwise(pl.lit(WHOLE))
    )
    own = tace.filter(pl.col("c_tace").is_not_null()).with_columns(value=named)
    if own.is_empty():
        return None
    thresholds = own["threshold"].unique().sort().to_list()
    first = own.group_by(_CONTEXT, maintain_order=True).agg(of=pl.col("cell").min())
    own = own.join(first, on=_CONTEXT, maintain_order="left")
    panel = own.filter(pl.col("cell") == pl.col("of"))
    chosen, left = first_of_each(panel, max(1, MAX_PANELS // len(thresholds)))
    words = titles(panel.drop("ensembling"))
    own = own.filter(pl.col("of").is_in(chosen))
    values = own["value"].unique().sort().to_list()
    plain_ones = [value for value in (ONE, WHOLE) if value in values]
    methods = [value for value in values if value not in plain_ones]
    values = [*plain_ones, *methods]
    looks = {ONE: (PLAIN, marker(len(COLOURS)), "--"), WHOLE: (PLAIN, marker(0), "-")}
    looks |= {value: (colour(n), marker(n), "-") for n, value in enumerate(methods)}
    means = (
        own.group_by("of", "value", *_AT, maintain_order=True)
        .agg(mean_of(pl.col("c_tace")).alias("mean"))
        .sort("of", "value", *_AT)
    )
    places = [(cell, threshold) for cell in chosen for threshold in thresholds]
    figure, axes = panels(
        [f"{words[cell]}: θ\xa0=\xa0{threshold:g}" for cell, threshold in places],
        "calibrated TACE",
    )
    handles: dict[str, Handle] = {}
    for axis, (cell, threshold) in zip(axes, places, strict=True):
        rows = means.filter(of=cell, threshold=threshold)
        for value in rows["value"].unique(maintain_order=True).to_list():
            shade, dot, dashes = looks[value]
            look = {"color": shade, "marker": dot, "ls": dashes, "markersize": 3, "linewidth": 1.2}
            handles[value] = line(axis, rows.filter(value=value), ("bins", "mean"), look)
        axis_of_sizes(axis, rows["bins"].unique().sort().to_list(), "bins, M")
    from_zero(axes)
    legend(figure, {value: handles[value] for value in values}, "ensembling")
    repeats = own.select("cell", "repeat_index").unique().height
    pairs, reordered = _reordered(means)
    order = (
        f" Of {pairs:,} pairs of lines {reordered:,} change their order with θ or M."
        if pairs
        else ""
    )
    return Plot(
        "tace-bins",
        "Calibration error by threshold and bins",
        "Thresholded adaptive calibration error at the temperature fitted on the other half of the "
        "test set: for each class, the probabilities above θ are sorted into M bins of equally "
        "many points. Means over runs, then over repeats; ensembles are of all members, or of all "
        "runs. The error depends on both parameters and its bias differs between models, so it "
        f"describes a model but does not rank models.{order} n = {counted(repeats, 'repeat')}."
        f"{not_drawn(left)}",
        repeats,
        figure,
        data=with_names(
            means.rename({"of": "cell", "value": "ensembling", "mean": "c_tace"}),
            panel.drop("ensembling"),
        ),
    )


def _reordered(means: pl.DataFrame) -> tuple[int, int]:
    """Return how many pairs of lines share panels, and how many of these change their order."""
    pairs = reordered = 0
    for own in means.partition_by("of", maintain_order=True):
        wide = own.pivot("value", index=_AT, values="mean").drop(_AT)
        for one, other in combinations(wide.columns, 2):
            gap = (wide[one] - wide[other]).drop_nulls().to_numpy()
            pairs += 1
            reordered += bool(np.any(gap > 0) and np.any(gap < 0))
    return pairs, reordered


_KEPT = {
    "rejection": ("share", "share of points kept"),
    "confidence": ("confidence", "least confidence"),
}


@kind(
    "accuracy-{}",
    chapter="calibration",
    curve={
        "rejection": "accuracy of the most confident points, by the share that is kept",
        "confidence": "accuracy of points of at least some confidence",
    },
)
def accuracy_of_kept(rejection: pl.DataFrame, curve: str) -> Plot | None:
    """Draw accuracy by confidence, or by the share of points kept, a panel per cell (PIT, 3.3)."""
    kept_by, label = _KEPT[curve]
    own = rejection.filter(curve=kept_by)
    if own.is_empty():
        return None
    figure, axes, left = panel_per_cell(own, MAX_PANELS, "accuracy of what is kept")
    single = pl.col("members") == pl.col("members").min().over("cell")
    is_method = pl.col("ensembling").cast(pl.String) != "none"
    named = pl.when(is_method).then(pl.lit(MEMBERS)).when(single).then(pl.lit(ONE))
    own = own.filter(pl.col("cell").is_in([*axes])).with_columns(
        value=named.otherwise(pl.lit(WHOLE))
    )
    points = (
        own.group_by("cell", "value", "level")
        .agg(
            mean_of(pl.col("accuracy")).alias("accuracy"),
            pl.col("accuracy_min").min(),
            pl.col("accuracy_max").max(),
            mean_of(pl.col("kept")).alias("kept"),
        )
        .sort("cell", "value", "level")
    )
    looks = {ONE: (colour(0), "-"), WHOLE: (colour(1), (0, (4, 2))), MEMBERS: (colour(2), "-")}
    handles: dict[str, Handle] = {}
    for cell, axis in axes.items():
        for value, (shade, dashes) in looks.items():
            rows = points.filter(cell=cell, value=value)
            if rows.height:
                bands = {} if value == WHOLE else {("accuracy_min", "accuracy_max"): 0.2}
                look = {"color": shade, "ls": dashes}
                handles[value] = line(axis, rows, ("level", "accuracy"), look, bands)
        axis.set_xlabel(label)
    legend(figure, handles, "")
    n = own.select(KEY).unique().height
    kept = "the most confident" if curve == "rejection" else "so confident"
    compared = (
        "Points of equal confidence count by their expected errors; 1 − AURC is the area."
        if curve == "rejection"
        else "At one confidence, models of other temperatures keep other numbers of points: "
        "accuracy-rejection compares them."
    )
    return Plot(
        f"accuracy-{curve}",
        f"Accuracy by {'rejection' if curve == 'rejection' else 'confidence'}",
        f"Accuracy of the test points that are {kept}, the others rejected. Lines: means over "
        f"runs, then over repeats; bands: least and largest of any run. {compared} "
        f"n = {counted(n, 'repeat')}.{not_drawn(left)}",
        n,
        figure,
        data=with_names(points, own),
    )
