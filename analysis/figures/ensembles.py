"""Ensembles by size: how large one must be to stand for the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import colour, marker, not_drawn
from manyseed.analysis.figures.style import MAX_PANELS, Handle, Plot, axis_of_sizes, legend, panels

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
            look = {"color": colour(index), "marker": marker(index), "markersize": 4}
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
    values = [f"{value:.3f}" for value in (delta[0], delta[-1])][: delta.len()]
    return (
        f"δ = {' to '.join(values)} with N = {_from_to(side.reverse())} test points on each side: "
        "smaller differences of an ensemble aren't seen."
    )


def _from_to(values: pl.Series) -> str:
    return f"{values[0]:,}" if values.len() == 1 else f"{values[0]:,} to {values[-1]:,}"
