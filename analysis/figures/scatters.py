"""Dots of one quantity against another: runs, pairs, single ensembles and snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import (
    LINEAR,
    NOTHING,
    labelled,
    mark_resolution,
    of_datasets,
    probe,
    resolution,
    upright_axis_of_levels,
    varying,
)
from manyseed.analysis.figures.style import (
    MAX_POINTS,
    VECTORS,
    Handle,
    Mark,
    Plot,
    dots,
    from_zero,
    legend,
    panels,
    shades,
    thinned,
)
from manyseed.analysis.questions.drawn import varied
from manyseed.analysis.questions.effects import UNPERTURBED

MAX_PANELS = 12  # most panels of a scatter
BESIDE = 2.3  # inches of a panel with δ beside it
UNITS = {"ece": "ECE", "churn_ensemble": "churn against the ensemble"}
RANGES = 4  # ranges of churn with equally many pairs, as many as RKS, figure 10, has
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
    figure, axes = panels(of_datasets(datasets, shown), "α̂", BESIDE)
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
        there = {*_values(shown, by)}
        legend(figure, {name: of for name, of in handles.items() if name in there}, labelled(by))
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
    """Draw the α̂ of both runs of each pair, coloured by the pair's churn; RKS, figure 10.

    A panel per dataset or, where sources of randomness differ, per dataset and source; the ranges
    of churn are those of all pairs of the dataset.
    """
    joined = of_pairs(runs, pairs, repeats)
    if joined.is_empty():
        return None
    joined, left = _informative(joined)
    if joined.is_empty():
        return None
    joined = joined.sort("dataset", "churn", "larger", "smaller", "vary")
    place, size = pl.int_range(pl.len()).over("dataset"), pl.len().over("dataset")
    whole, more = size // RANGES, size % RANGES  # the first ranges have one more
    before = more * (whole + 1)
    joined = joined.with_columns(
        _range=pl.when(place < before)
        .then(place // (whole + 1))
        .otherwise(more + (place - before) // pl.max_horizontal(whole, 1))
    )
    joined = _by_source(joined, GROUP if joined["classifier"].n_unique() == 1 else ["dataset"])
    panel = _values(joined, "panel")[:MAX_PANELS]
    joined = joined.filter(pl.col("panel").is_in(panel))
    figure, axes = panels(panel, "α̂ of the farther run", BESIDE)
    names = ["least churn", "second quarter", "third quarter", "most churn"]
    handles: dict[str, Handle] = {}
    pieces: list[pl.DataFrame] = []
    for axis, title in zip(axes, panel, strict=True):
        rows = joined.filter(pl.col("panel") == title)
        for part, (shade, name) in enumerate(zip(shades(RANGES), names, strict=True)):
            drawn = rows.filter(pl.col("_range") == part)
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
        axis.grid(visible=True, axis="both")
        axis.set_xlabel("α̂ of the nearer run")
        upright_axis_of_levels(axis)
        axis.set_xscale("symlog", linthresh=LINEAR, linscale=0.5)
        axis.set_xticks([0, LINEAR, 0.1, 1], ["0", f"{LINEAR}", "0.1", "1"])
        axis.set_xlim(-0.15 * LINEAR, 1.3)
        own = repeats.filter(pl.col("dataset") == rows["dataset"][0])
        mark_resolution(axis, own, across=True)
    legend(figure, handles, "churn of the pair, in quarters of a dataset’s pairs")
    ends = joined.group_by("dataset", "_range", maintain_order=True).agg(pl.col("churn").max())
    quarters = [
        f"{name} {', '.join(f'{fixed(end, 3)}' for end in own.sort('_range')['churn'])}"
        for (name,), own in ends.group_by("dataset", maintain_order=True)
    ]
    sources = ", one panel per source of randomness" if "·" in "".join(panel) else ""
    return Plot(
        "alpha-hat-pairs",
        "α̂ of pairs, by their churn",
        "Each dot is a pair of runs of a repeat: the smaller and the larger of their α̂, coloured "
        "by the share of test points to which the two give different labels, in quarters of the "
        f"pairs of a dataset{sources}. Upper ends of the quarters: {'; '.join(quarters)}. "
        f"n = {counted(joined.height, 'pair')}{_identical(repeats)}. "
        f"Dashed: resolution δ. {resolution(repeats)}{left}",
        joined.height,
        figure,
        data=pl.concat(pieces).drop("classifier", "alpha_hat", "panel", "_range"),
    )


def _by_source(rows: pl.DataFrame, of: Sequence[str] = ("dataset",)) -> pl.DataFrame:
    """Return rows with the title of their `panel`: these columns, and `vary` where it differs."""
    name = pl.concat_str(pl.col(*of).cast(pl.String), separator=" × ")
    several = pl.col("vary").n_unique().over(of) > 1
    titled = pl.concat_str(name, pl.lit(" · "), pl.col("vary").cast(pl.String))
    return rows.with_columns(panel=pl.when(several).then(titled).otherwise(name))


def of_pairs(runs: pl.DataFrame, pairs: pl.DataFrame, repeats: pl.DataFrame) -> pl.DataFrame:
    """Return pairs with the smaller and the larger α̂ of their runs.

    Returns columns dataset, classifier, vary, churn, smaller, larger and alpha_hat (the larger).
    """
    if "churn" not in pairs.columns or "run_i" not in pairs.columns:
        return pl.DataFrame()
    level = runs.filter(pl.col("alpha_hat").is_not_null()).select(*_RUN, "alpha_hat")
    found = varying(pairs, repeats).select(
        "dataset", "classifier", "cell", "repeat_index", "run_i", "run_j", "churn"
    )
    source = repeats.select("cell", vary=varied(repeats.columns)).unique("cell")
    found = found.join(source, on="cell", how="left", maintain_order="left")
    for end in ("i", "j"):
        named = level.rename({"run_index": f"run_{end}", "alpha_hat": f"_{end}"})
        found = found.join(named, on=["cell", "repeat_index", f"run_{end}"], maintain_order="left")
    return found.filter(pl.col("churn").is_not_null()).select(
        "dataset",
        "classifier",
        "vary",
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


EACH = 100  # most ensembles of a size drawn in a panel
GROUP = ["dataset", "classifier"]
_AXIS = f" The axis of α̂ is linear up to {LINEAR} and logarithmic beyond."

OF_DRAWS = {
    "alpha_hat": ("α̂", "its α̂ against the other half of the runs"),
    "ks_distance": ("KS distance", "the largest difference between its eCDF and the reference's"),
    "churn": ("churn", "its churn against the average of the whole pool"),
    "ece": ("ECE", "its expected calibration error"),
}
"""Quantities of single ensembles: label of the axis, and words for the caption."""


@kind(
    "draws-{}",
    chapter="ensembles",
    name={
        name: f"{label} of each drawn ensemble against its accuracy: {words}"
        for name, (label, words) in OF_DRAWS.items()
    },
)
def single_ensembles(ensemble_draws: pl.DataFrame, name: str) -> Plot | None:
    """Draw a quantity of single ensembles against their accuracy, by size (RKS, figures 5 to 8).

    `ensemble_draws`: columns dataset, classifier, `size`, `draw`, `accuracy`, one of `OF_DRAWS`,
    `delta` and `n_side`. `name`: a key of `OF_DRAWS`.
    """
    known = ensemble_draws.filter(pl.col(name).is_not_null())
    if known.is_empty():
        return None
    label, words = OF_DRAWS[name]
    shown = known.filter(pl.col("draw") < EACH)
    found = _panels(shown, name, label, "size")
    left = known.height - found.n
    out = f"; {left:,} more are in the tables" if left else ""
    deltas, sides = known["delta"].unique().sort(), known["n_side"].unique().sort()
    delta = fixed(deltas[0], 3) + (f" to {fixed(deltas[-1], 3)}" if deltas.len() > 1 else "")
    points = f"{sides[0]:,}" + (f" to {sides[-1]:,}" if sides.len() > 1 else "")
    line = ""
    if name in ("alpha_hat", "ks_distance"):
        rejects = ", beyond which the classical test rejects" * (name == "ks_distance")
        line = f" Dashed: δ = {delta} with N = {points} test points on each side{rejects}."
    axis = _AXIS * (name == "alpha_hat")
    legend(found.figure, found.handles, "M_ens")
    return Plot(
        f"draws-{name.replace('_', '-')}",
        f"Single ensembles: {label} against accuracy",
        f"Each dot is an ensemble of M_ens runs: its test accuracy, and {words}. Members are "
        f"drawn from one half of the runs of a repeat. n = {counted(found.n, 'ensemble')}, the "
        f"first {EACH} of each size{out}.{axis}{line}",
        found.n,
        found.figure,
        data=shown.join(
            shown.select(GROUP).unique().sort(GROUP).head(MAX_PANELS), on=GROUP, how="semi"
        )
        .sort(*GROUP, "size", "accuracy", "draw")
        .select(*GROUP, "size", "draw", "accuracy", name),
    )


@kind(
    "epochs-{}",
    chapter="epochs",
    name={
        name: f"{labelled(name)} of each run against its accuracy, by epoch"
        for name in ("alpha_hat", "churn_ensemble", "ece")
    },
)
def runs_by_epoch(every_runs: pl.DataFrame, every_repeats: pl.DataFrame, name: str) -> Plot | None:
    """Draw a metric of runs against their accuracy, shaded by epoch (RKS24, figure 3).

    A panel per dataset and classifier or, where sources of randomness differ, per source, too.

    `every_runs` and `every_repeats`: with several snapshots. `name`: a column of runs.
    """
    if not {name, "accuracy", "epoch"} <= set(every_runs.columns):
        return None
    known = varying(every_runs.filter(~pl.col("identical")), every_repeats)
    known = known.filter(pl.col(name).is_not_null(), pl.col("accuracy").is_not_null())
    known = known.filter(pl.col("epoch").n_unique().over(GROUP) > 1)
    if known.is_empty():
        return None
    levels = name.startswith("alpha_hat")
    own = every_repeats.join(known.select(GROUP).unique(), on=GROUP, how="semi")
    delta = own.group_by(GROUP).agg(pl.col("delta").drop_nulls().first())
    rows = known.drop("delta", strict=False).join(delta, on=GROUP, maintain_order="left")
    rows = _by_source(rows, GROUP)
    label = labelled(name)
    found = _panels(rows, name, label, "epoch")
    legend(found.figure, found.handles, "epochs trained")
    left = known.height - found.n
    out = f"; {left:,} more are in the tables" if left else ""
    axis = f"{_AXIS} Dashed: resolution δ. {resolution(own)}" if levels else ""
    return Plot(
        f"epochs-{name.replace('_', '-')}",
        f"{label} against accuracy, by epoch",
        f"Each dot is a run at a snapshot: its accuracy and its {label} on the test set"
        f"{probe(known) if levels else ''}, shaded by the number of epochs trained. "
        f"n = {counted(found.n, 'value')} of runs{out}.{axis}",
        found.n,
        found.figure,
        found.marks,
    )


class Panels:
    """Panels that have been drawn, and how many dots they hold."""

    def __init__(self, titles: Sequence[str], label: str) -> None:
        self.figure, self.axes = panels(titles, label, BESIDE)
        self.handles: dict[str, Handle] = {}
        self.marks: list[Mark] = []
        self.n = 0


def _panels(rows: pl.DataFrame, name: str, label: str, by: str) -> Panels:
    """Draw a column against accuracy, shaded by `by`.

    One panel per `panel` or, without that column, per dataset and classifier.
    """
    if "panel" not in rows.columns:
        rows = rows.with_columns(panel=pl.concat_str(GROUP, separator=" × "))
    groups = rows.select(*GROUP, "panel").unique().sort(*GROUP, "panel").head(MAX_PANELS)
    titles = groups["panel"].to_list()
    levels = [str(level) for level in rows[by].unique().sort().to_list()]
    found = Panels(titles, label)
    upright = _upright(name)
    for axis, group in zip(found.axes, groups.iter_rows(named=True), strict=True):
        own = rows.filter(**group)
        marks, found.handles = dots(
            axis, own, ("accuracy", name), (by, levels), rows.height, shades(len(levels))
        )
        found.marks += marks
        found.n += sum(min(n, MAX_POINTS) for n in own[by].value_counts()["count"])
        axis.set_xlabel("accuracy")
        axis.locator_params(axis="x", nbins=3)
        upright(axis, own)
    if not name.startswith("alpha_hat"):
        from_zero(found.axes)
    return found


def _upright(name: str) -> Callable[[Axes, pl.DataFrame], None]:
    """Return the function that sets up the vertical axis of a panel."""

    def levels(axis: Axes, rows: pl.DataFrame) -> None:
        upright_axis_of_levels(axis)
        mark_resolution(axis, rows, across=True)

    def distances(axis: Axes, rows: pl.DataFrame) -> None:
        mark_resolution(axis, rows, across=True)

    if name.startswith("alpha_hat"):
        return levels
    return distances if name == "ks_distance" else lambda *_: None
