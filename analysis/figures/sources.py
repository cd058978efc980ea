"""Sources of randomness side by side: how much accuracy varies by each, and α̂, epoch by epoch."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted
from manyseed.analysis.figures.described import not_drawn, panel_per_cell
from manyseed.analysis.figures.levels import NOTHING
from manyseed.analysis.figures.style import Plot, colour, legend, marker, styled
from manyseed.analysis.tables.snapshots import last

MAX_PANELS = 12  # datasets and classifiers
BAR = 0.8  # of the room between sources


@styled
def sources(cells: pl.DataFrame, name: str) -> Plot | None:
    """Draw a column of the table of cells by source of randomness and epoch, a panel each.

    RKS24, figure 4. Panels are of cells that differ in `vary` alone; None where none do.

    Parameters
    ----------
    cells : polars frame
        The table of cells, all snapshots.
    name : {"accuracy_std", "alpha_hat_mean"}
    """
    same = [one for one in AXES if one in cells.columns and one != "vary"]
    known = cells.filter(pl.col(name).is_not_null())
    known = known.filter(pl.col("vary").n_unique().over(same) > 1)
    if known.is_empty():
        return None
    first = known.with_columns(pl.col("cell").min().over(same).alias("_panel"))
    shown = last(first).filter(pl.col("cell") == pl.col("_panel")).unique("cell")
    label = _LABELS[name]
    figure, axes, left = panel_per_cell(shown.drop("vary"), MAX_PANELS, label)
    order = first.sort("cell")["vary"].unique(maintain_order=True).to_list()
    epochs = first["epoch"].unique().sort().to_list()
    handles = {}
    for cell, axis in axes.items():
        own = first.filter(_panel=cell)
        there = [one for one in order if one in own["vary"].to_list()]
        known_here = own["epoch"].unique().sort().to_list()
        for place, epoch in enumerate(known_here):
            index = epochs.index(epoch)
            at = own.filter(epoch=epoch)
            values = dict(at.select("vary", name).iter_rows())
            bars = [values.get(one) for one in there]
            _bars(axis, bars, (place, len(known_here)), len(epochs), index)
            handles[str(epoch)] = axis.scatter([], [], color=colour(index), marker=marker(0))
        if name == "alpha_hat_mean" and own[name].to_numpy().max() < NOTHING:
            told = axis.get_title(loc="left")
            axis.clear()
            axis.set_title(told)
            axis.text(0.5, 0.5, "α̂ is 0", transform=axis.transAxes, ha="center")
            axis.set_yticks([])
        axis.set_xticks(range(len(there)), there)
        axis.tick_params(axis="x", length=0)
        axis.set_xlim(-0.6, len(there) - 0.4)
    if len(epochs) > 1:
        ordered = {str(epoch): handles[str(epoch)] for epoch in epochs if str(epoch) in handles}
        legend(figure, ordered, "epoch")
    shades = f" Colours: epochs {', '.join(map(str, epochs))}." if len(epochs) > 1 else ""
    deltas = known["delta"].drop_nulls().unique().sort()
    ends = dict.fromkeys(f"{delta:.3f}" for delta in deltas)
    read = f" To be read with δ = {' to '.join([*ends][:: max(len(ends) - 1, 1)])}." if ends else ""
    runs = int(known["n_runs"].sum())
    return Plot(
        f"sources-{name.replace('_', '-')}",
        f"{_TITLES[name]} by source of randomness",
        f"{_SAID[name]} of the runs that differ in these sources alone, a panel for cells that are "
        f"the same in all else.{shades}{read if 'alpha' in name else ''} "
        f"n = {counted(runs, 'run')}.{not_drawn(left)}",
        runs,
        figure,
        data=first.filter(pl.col("_panel").is_in([*axes])).select(*same, "vary", "epoch", name),
    )


def _bars(
    axis: Axes, values: list[float | None], place: tuple[int, int], count: int, index: int
) -> None:
    """Draw a bar for each source, at its place among those of the panel's other epochs."""
    wide = BAR / count
    at, here = place
    x = np.arange(len(values)) + (at - (here - 1) / 2) * wide
    heights = np.array([np.nan if value is None else value for value in values])
    axis.bar(x, heights, width=0.9 * wide, color=colour(index))


_LABELS = {"accuracy_std": "± seeds, accuracy", "alpha_hat_mean": "mean α̂"}
_TITLES = {"accuracy_std": "Spread of accuracy", "alpha_hat_mean": "α̂"}
_SAID = {
    "accuracy_std": "Standard deviation of accuracy between seeds, pooled within repeats,",
    "alpha_hat_mean": "Mean α̂ over repeats",
}
