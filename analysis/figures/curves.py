"""Learning curves: how runs do on training and test data, epoch after epoch."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.described import not_drawn, panel_per_cell, with_names
from manyseed.analysis.figures.style import Handle, Plot, colour, legend, styled
from manyseed.analysis.tables.means import pooled

MAX_PANELS = 24  # a cell each
KINDS = {"test": "test set", "train": "training batches"}
FEW_EPOCHS = 30  # up to so many, each has a marker


@styled
def learning_curves(curves: pl.DataFrame, quantity: str, cells: pl.DataFrame) -> Plot | None:
    """Draw mean, standard deviation and range over runs, a panel per cell.

    Parameters
    ----------
    curves : polars frame
        For each repeat and epoch `n_runs`, and of the quantity on ``train`` and ``test`` data the
        mean, and with the endings ``_std`` (n - 1), ``_min`` and ``_max`` the spread over runs.
    quantity : {"accuracy", "loss"}
    cells : polars frame
        The table of cells.
    """
    shown = curves.filter(pl.col(f"test_{quantity}").is_not_null())
    there = cells.filter(pl.col("cell").is_in(shown["cell"].unique().implode()))
    if there.is_empty():
        return None
    figure, axes, left = panel_per_cell(there, MAX_PANELS, quantity)
    shown = shown.filter(pl.col("cell").is_in([*axes]))
    for cell, axis in axes.items():
        own = shown.filter(cell=cell)
        handles = {said: _draw(axis, own, f"{of}_{quantity}", i) for i, (of, said) in _KINDS}
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    legend(figure, handles, "")
    runs = int(shown.group_by("cell", "repeat_index").agg(pl.col("n_runs").max())["n_runs"].sum())
    unit = "share of right predictions" if quantity == "accuracy" else "mean cross-entropy (nats)"
    return Plot(
        f"curves-{quantity}",
        f"{quantity.capitalize()} in training",
        f"After each epoch the {unit} on the test set, and that of the epoch's training batches as "
        "they were trained, a panel per cell. Lines: means over runs; "
        "dark band: ± seeds (standard deviation between the runs of a repeat, pooled), within the "
        "range; light band, of the test set only: smallest to largest. "
        f"n = {counted(runs, 'run')}, copies of identical ones left out.{not_drawn(left)}",
        runs,
        figure,
        data=with_names(
            pl.concat(
                over_repeats(shown.filter(cell=cell), f"{of}_{quantity}").select(
                    pl.lit(cell, there.schema["cell"]).alias("cell"),
                    pl.lit(of).alias("data"),
                    pl.all(),
                )
                for cell in axes
                for of in KINDS
            ),
            there,
        ),
    )


_KINDS = tuple(enumerate(KINDS.items()))


def _draw(axis: Axes, curves: pl.DataFrame, name: str, index: int) -> Handle:
    """Draw one quantity and return its line."""
    over = over_repeats(curves, name)
    epoch, mean = over["trained_epoch"].to_numpy(), over["mean"].to_numpy()
    std = over["std"].fill_null(0).to_numpy()
    low, high = over["min"].to_numpy(), over["max"].to_numpy()
    if name.startswith("test"):
        axis.fill_between(epoch, low, high, color=colour(index), alpha=0.12, linewidth=0)
    # No further than any run went: a share is at most 1.
    inner = (mean - std).clip(low, high), (mean + std).clip(low, high)
    axis.fill_between(epoch, *inner, color=colour(index), alpha=0.25, linewidth=0)
    mark = "o" if epoch.size <= FEW_EPOCHS else ""
    dashes = "-" if name.startswith("test") else "--"
    (line,) = axis.plot(
        epoch, mean, color=colour(index), linewidth=1.4, marker=mark, markersize=2.5, ls=dashes
    )
    return line


def over_repeats(curves: pl.DataFrame, name: str) -> pl.DataFrame:
    """Put the repeats together: mean and range over all runs, standard deviation between seeds.

    Returns
    -------
    polars frame
        trained_epoch, ascending, `mean`, `std` (pooled within repeats, null where all are of a
        single run), `min`, `max`.
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
