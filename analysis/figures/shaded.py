"""Dots of one quantity against another, shaded by a third: single ensembles, and snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.levels import (
    LINEAR,
    mark_resolution,
    probe,
    resolution,
    upright_axis_of_levels,
)
from manyseed.analysis.figures.quantities import labelled, varying
from manyseed.analysis.figures.style import (
    MAX_POINTS,
    Handle,
    Mark,
    Plot,
    dots,
    legend,
    panels,
    shades,
)

MAX_PANELS = 12  # one dataset and classifier each
EACH = 100  # most ensembles of a size drawn in a panel
BESIDE = 2.3  # inches of a panel with δ beside it
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

    Parameters
    ----------
    ensemble_draws : polars frame
        Columns dataset, classifier, `size`, `draw`, `accuracy`, one of `OF_DRAWS`, `delta` and
        `n_side`.
    name : str
        A key of `OF_DRAWS`.
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
    delta = f"{deltas[0]:.3f}" + (f" to {deltas[-1]:.3f}" if deltas.len() > 1 else "")
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

    Parameters
    ----------
    every_runs, every_repeats : polars frame
        With several snapshots.
    name : str
        A column of runs.
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
    """Draw a column against accuracy, one panel per dataset and classifier, shaded by `by`."""
    groups = rows.select(GROUP).unique().sort(GROUP).head(MAX_PANELS)
    titles = [" × ".join(one) for one in groups.rows()]
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
    return found


def _upright(name: str) -> Callable[[Axes, pl.DataFrame], None]:
    """Return the function that sets up the vertical axis of a panel."""

    def levels(axis: Axes, rows: pl.DataFrame) -> None:
        upright_axis_of_levels(axis)
        mark_resolution(axis, rows, across=True)

    def distances(axis: Axes, rows: pl.DataFrame) -> None:
        seen = [axis.get_ylim()[1], *(1.1 * rows["delta"].drop_nulls()).to_list()[:1]]
        axis.set_ylim(0, max(seen))
        mark_resolution(axis, rows, across=True)

    def plain(axis: Axes, _: pl.DataFrame) -> None:
        axis.set_ylim(bottom=0)

    if name.startswith("alpha_hat"):
        return levels
    return distances if name == "ks_distance" else plain
