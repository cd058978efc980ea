"""Sources of randomness side by side: how much accuracy varies with each, and α̂, by epoch."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted
from manyseed.analysis.figures.colours import colour, marker
from manyseed.analysis.figures.described import not_drawn, panel_per_cell
from manyseed.analysis.figures.levels import NOTHING
from manyseed.analysis.figures.style import Plot, legend, styled
from manyseed.analysis.tables.rows import last

MAX_PANELS = 12  # one dataset and classifier each
BAR = 0.8  # width of bars, as a share of the distance between sources


@styled
def sources(cells: pl.DataFrame, name: str) -> Plot | None:
    """Draw a column of the table of cells by source of randomness and epoch.

    RKS24, figure 4. A panel holds cells that differ only in `vary`; None if there are none.

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
        own_sources = [one for one in order if one in own["vary"].to_list()]
        own_epochs = own["epoch"].unique().sort().to_list()
        for place, epoch in enumerate(own_epochs):
            index = epochs.index(epoch)
            values = dict(own.filter(epoch=epoch).select("vary", name).iter_rows())
            bars = [values.get(one) for one in own_sources]
            _bars(axis, bars, (place, len(own_epochs)), len(epochs), index)
            handles[str(epoch)] = axis.scatter([], [], color=colour(index), marker=marker(0))
        if name == "alpha_hat_mean" and own[name].to_numpy().max() < NOTHING:
            title = axis.get_title(loc="left")
            axis.clear()
            axis.set_title(title)
            axis.text(0.5, 0.5, "α̂ is 0", transform=axis.transAxes, ha="center")
            axis.set_yticks([])
        axis.set_xticks(range(len(own_sources)), own_sources)
        axis.tick_params(axis="x", length=0)
        axis.set_xlim(-0.6, len(own_sources) - 0.4)
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
        f"{_MEANINGS[name]} for runs that differ only in these sources; one panel for cells that "
        f"agree in everything else.{shades}{read if 'alpha' in name else ''} "
        f"n = {counted(runs, 'run')}.{not_drawn(left)}",
        runs,
        figure,
        data=first.filter(pl.col("_panel").is_in([*axes])).select(*same, "vary", "epoch", name),
    )


def _bars(
    axis: Axes, values: list[float | None], place: tuple[int, int], count: int, index: int
) -> None:
    """Draw a bar per source for one epoch; `place` is its position and the number of epochs."""
    width = BAR / count
    position, epochs = place
    x = np.arange(len(values)) + (position - (epochs - 1) / 2) * width
    heights = np.array([np.nan if value is None else value for value in values])
    axis.bar(x, heights, width=0.9 * width, color=colour(index))


_LABELS = {"accuracy_std": "± seeds, accuracy", "alpha_hat_mean": "mean α̂"}
_TITLES = {"accuracy_std": "Spread of accuracy", "alpha_hat_mean": "α̂"}
_MEANINGS = {
    "accuracy_std": "Standard deviation of accuracy between seeds, pooled within repeats,",
    "alpha_hat_mean": "Mean α̂ over repeats",
}
