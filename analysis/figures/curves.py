"""Learning curves: how runs perform on training and test data, epoch by epoch."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.colours import colour
from manyseed.analysis.figures.described import not_drawn, panel_per_cell, with_names
from manyseed.analysis.figures.style import Handle, Plot, legend, styled
from manyseed.analysis.tables.rows import pooled

MAX_PANELS = 24  # one cell each
KINDS = {"test": "test set", "train": "training batches"}
FEW_EPOCHS = 30  # most epochs that have markers


@styled
def learning_curves(curves: pl.DataFrame, quantity: str, cells: pl.DataFrame) -> Plot | None:
    """Draw mean, standard deviation and range over runs, one panel per cell.

    Parameters
    ----------
    curves : polars frame
        For each repeat and epoch `n_runs`, and the mean of the quantity on ``train`` and ``test``
        data, with its spread over runs under the suffixes ``_std`` (n - 1), ``_min`` and ``_max``.
    quantity : {"accuracy", "loss"}
    cells : polars frame
        The table of cells.
    """
    shown = curves.filter(pl.col(f"test_{quantity}").is_not_null())
    drawn = cells.filter(pl.col("cell").is_in(shown["cell"].unique().implode()))
    if drawn.is_empty():
        return None
    figure, axes, left = panel_per_cell(drawn, MAX_PANELS, quantity)
    shown = shown.filter(pl.col("cell").is_in([*axes]))
    for cell, axis in axes.items():
        own = shown.filter(cell=cell)
        handles = {
            label: _draw(axis, own, f"{kind}_{quantity}", index)
            for index, (kind, label) in enumerate(KINDS.items())
        }
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    legend(figure, handles, "")
    runs = int(shown.group_by("cell", "repeat_index").agg(pl.col("n_runs").max())["n_runs"].sum())
    unit = "share of correct predictions" if quantity == "accuracy" else "mean cross-entropy (nats)"
    return Plot(
        f"curves-{quantity}",
        f"{quantity.capitalize()} during training",
        f"The {unit} on the test set after each epoch, and on the epoch's training batches while "
        "they were trained on, one panel per cell. Lines: means over runs; dark bands: ± seeds "
        "(standard deviation between the runs of a repeat, pooled), cut at the range; light band, "
        "for the test set only: smallest to largest. "
        f"n = {counted(runs, 'run')}, identical copies left out.{not_drawn(left)}",
        runs,
        figure,
        data=with_names(
            pl.concat(
                over_repeats(shown.filter(cell=cell), f"{kind}_{quantity}").select(
                    pl.lit(cell, drawn.schema["cell"]).alias("cell"),
                    pl.lit(kind).alias("data"),
                    pl.all(),
                )
                for cell in axes
                for kind in KINDS
            ),
            drawn,
        ),
    )


def _draw(axis: Axes, curves: pl.DataFrame, name: str, index: int) -> Handle:
    """Draw one quantity and return its line."""
    over = over_repeats(curves, name)
    epoch, mean = over["trained_epoch"].to_numpy(), over["mean"].to_numpy()
    std = over["std"].fill_null(0).to_numpy()
    low, high = over["min"].to_numpy(), over["max"].to_numpy()
    if name.startswith("test"):
        axis.fill_between(epoch, low, high, color=colour(index), alpha=0.12, linewidth=0)
    # Cut at the range: a share is at most 1.
    inner = (mean - std).clip(low, high), (mean + std).clip(low, high)
    axis.fill_between(epoch, *inner, color=colour(index), alpha=0.25, linewidth=0)
    mark = "o" if epoch.size <= FEW_EPOCHS else ""
    dashes = "-" if name.startswith("test") else "--"
    (line,) = axis.plot(
        epoch, mean, color=colour(index), linewidth=1.4, marker=mark, markersize=2.5, ls=dashes
    )
    return line


def over_repeats(curves: pl.DataFrame, name: str) -> pl.DataFrame:
    """Pool repeats: mean and range over all runs, and standard deviation between seeds.

    Returns
    -------
    polars frame
        `trained_epoch`, ascending, `mean`, `std` (pooled within repeats, null if all have a single
        run), `min`, `max`.
    """
    n, mean = pl.col("n_runs"), pl.col(name)
    total = (n * mean).sum() / n.sum()
    return (
        curves.filter(mean.is_not_null())
        .group_by("trained_epoch")
        .agg(
            total.alias("mean"),
            pooled(pl.col(f"{name}_std"), n - 1).alias("std"),
            pl.col(f"{name}_min").min().alias("min"),
            pl.col(f"{name}_max").max().alias("max"),
        )
        .sort("trained_epoch")
    )
