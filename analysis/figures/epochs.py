"""Sources of randomness side by side, and learning curves: epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import (
    COLOURS,
    NOTHING,
    colour,
    marker,
    not_drawn,
    with_names,
)
from manyseed.analysis.figures.style import (
    MAX_PANELS,
    Handle,
    Plot,
    from_zero,
    legend,
    line,
    panel_per_cell,
    shades,
)
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.components import FEWEST, covariances
from manyseed.analysis.questions.drawn import anew, drawn_in_all
from manyseed.analysis.questions.intervals import of_parts, within
from manyseed.analysis.tables.rows import CELL_KEY, VARIES, last, pooled

MAX_SOURCES = 12  # most panels of sources, one dataset and classifier each
BAR = 0.8  # width of bars, as a share of the distance between sources


def others_of(cells: pl.DataFrame) -> list[str]:
    """Return the axes but for `vary`."""
    return [one for one in AXES if one in cells.columns and one != "vary"]


def of_several_sources(cells: pl.DataFrame) -> pl.DataFrame:
    """Return the cells that differ from another one in `vary` alone."""
    return cells.filter(pl.col("vary").n_unique().over(others_of(cells)) > 1)


@kind(
    "sources-{}",
    chapter="sources",
    name={
        "accuracy_std": "spread of accuracy by source of randomness and epoch",
        "alpha_hat_mean": "mean α̂ by source of randomness and epoch",
    },
)
def sources(
    every_cells: pl.DataFrame, every_runs: pl.DataFrame, every_repeats: pl.DataFrame, name: str
) -> Plot | None:
    """Draw a column of the table of cells by source of randomness and epoch.

    RKS24, figure 4. A panel holds cells that differ only in `vary`; None if there are none.

    `every_cells`, `every_runs`, `every_repeats`: tables with all snapshots.
    """
    known = of_several_sources(every_cells.filter(pl.col(name).is_not_null()))
    same = others_of(known)
    if known.is_empty():
        return None
    first = known.with_columns(pl.col("cell").min().over(same).alias("_panel"))
    shown = last(first).filter(pl.col("cell") == pl.col("_panel")).unique("cell")
    label = _LABELS[name]
    figure, axes, left = panel_per_cell(shown.drop("vary"), MAX_SOURCES, label)
    order = first.sort("cell")["vary"].unique(maintain_order=True).to_list()
    epochs = first["epoch"].unique().sort().to_list()
    first = first.join(_intervals(name, every_runs, every_repeats), on=CELL_KEY, how="left")
    looks = shades(len(epochs)) if len(epochs) > len(COLOURS) else COLOURS
    handles = {}
    for cell, axis in axes.items():
        own = first.filter(_panel=cell)
        own_sources = [one for one in order if one in own["vary"].to_list()]
        own_epochs = own["epoch"].unique().sort().to_list()
        for place, epoch in enumerate(own_epochs):
            index = epochs.index(epoch)
            values = {
                vary: ends
                for vary, *ends in own.filter(epoch=epoch)
                .select("vary", name, "low", "high")
                .iter_rows()
            }
            bars = [values.get(one, (None,) * 3) for one in own_sources]
            if name != "alpha_hat_mean" or own[name].to_numpy().max() >= NOTHING:
                _bars(axis, bars, (place, len(own_epochs)), len(epochs), looks[index])
            handles[str(epoch)] = axis.scatter([], [], color=looks[index], marker=marker(0))
        if name == "alpha_hat_mean" and own[name].to_numpy().max() < NOTHING:
            axis.text(0.5, 0.5, "α̂ is 0", transform=axis.transAxes, ha="center")
        axis.set_xticks(range(len(own_sources)), own_sources)
        axis.tick_params(axis="x", length=0)
        axis.set_xlim(-0.6, len(own_sources) - 0.4)
    from_zero([*axes.values()])
    if len(epochs) > 1:
        ordered = {str(epoch): handles[str(epoch)] for epoch in epochs if str(epoch) in handles}
        legend(figure, ordered, "epoch")
    of_epochs = f" Colours: epochs {', '.join(map(str, epochs))}." if len(epochs) > 1 else ""
    deltas = known["delta"].drop_nulls().unique().sort()
    ends = dict.fromkeys(fixed(delta, 3) for delta in deltas)
    read = f" To be read with δ = {' to '.join([*ends][:: max(len(ends) - 1, 1)])}." if ends else ""
    runs = int(known["n_runs"].sum())
    more = drawn_in_all(first)
    also = f" Where cells have it, {anew(more)}: it is part of each bar." if more else ""
    return Plot(
        f"sources-{name.replace('_', '-')}",
        f"{_TITLES[name]} by source of randomness",
        f"{_MEANINGS[name]} for runs that differ only in these sources; one panel for cells that "
        f"agree in everything else.{_WHISKERS[name]}{also}{of_epochs}"
        f"{read if 'alpha' in name else ''} n = {counted(runs, 'run')}.{not_drawn(left)}",
        runs,
        figure,
        data=first.filter(pl.col("_panel").is_in([*axes])).select(
            *same, "vary", "epoch", name, "low", "high"
        ),
    )


def _intervals(name: str, runs: pl.DataFrame, repeats: pl.DataFrame) -> pl.DataFrame:
    """Return the ends of the 95 % intervals of bars: columns `CELL_KEY`, low and high.

    That of a spread is the one of the table of variances.
    """
    found: dict[str, list[Any]] = {one: [] for one in (*CELL_KEY, "low", "high")}
    own = (
        runs.filter(~pl.col("identical")).select(*CELL_KEY, "repeat_index", value="accuracy")
        if name == "accuracy_std"
        else repeats.filter(VARIES).select(*CELL_KEY, "repeat_index", value=name)
    ).drop_nulls()
    for key, of in own.sort(*CELL_KEY, "repeat_index").group_by(CELL_KEY, maintain_order=True):
        parts = of.partition_by("repeat_index", maintain_order=True)
        values = [part["value"].to_numpy() for part in parts]
        ends = _of_spread(values) if name == "accuracy_std" else _of_mean(np.concatenate(values))
        for column, one in zip(found, (*key, *ends), strict=True):
            found[column].append(one)
    types = {one: own.schema[one] for one in CELL_KEY} | {"low": pl.Float64, "high": pl.Float64}
    return pl.DataFrame(found, schema=types)


def _of_spread(values: Sequence[NDArray[np.float64]]) -> tuple[float | None, float | None]:
    enough = [one for one in values if one.size >= FEWEST]
    if not enough or max(np.ptp(one) for one in enough) == 0:
        return None, None
    low, high = covariances(enough, enough)[0].limits(CONFIDENCE, "variance")
    return low**0.5, high**0.5


def _of_mean(values: NDArray[np.float64]) -> tuple[float | None, float | None]:
    if values.size < 2 or np.ptp(values) == 0:
        return None, None
    mean, variance = float(values.mean()), float(values.var(ddof=1)) / values.size
    low, high = within(mean, *of_parts(mean, [(variance, values.size - 1.0)], CONFIDENCE))
    return float(low), float(high)


Ends = Sequence[float | None]


def _bars(
    axis: Axes, values: Sequence[Ends], place: tuple[int, int], count: int, look: Any
) -> None:
    """Draw a bar per source for one epoch; `place` is its position and the number of epochs.

    `values`: the height, and the ends of its interval.
    """
    width = BAR / count
    position, epochs = place
    x = np.arange(len(values)) + (position - (epochs - 1) / 2) * width
    heights, low, high = np.array(values, dtype=np.float64).T
    ends = np.maximum([heights - low, high - heights], 0)
    whiskers: dict[str, Any] = {"ecolor": "black", "error_kw": {"elinewidth": 0.8}, "capsize": 2}
    axis.bar(x, heights, width=0.9 * width, color=look, yerr=ends, **whiskers)


_WHISKERS = {
    "accuracy_std": " Whiskers: 95 % intervals, as in the table of variances.",
    "alpha_hat_mean": " Whiskers: 95 % intervals over test sets.",
}
_LABELS = {"accuracy_std": "± seeds, accuracy", "alpha_hat_mean": "mean α̂"}
_TITLES = {"accuracy_std": "Spread of accuracy", "alpha_hat_mean": "α̂"}
_MEANINGS = {
    "accuracy_std": "Standard deviation of accuracy between seeds, pooled within repeats,",
    "alpha_hat_mean": "Mean α̂ over repeats",
}


DATA = {"test": "test set", "train": "training batches"}
FEW_EPOCHS = 30  # most epochs that have markers


@kind(
    "curves-{}",
    chapter="training",
    quantity={"accuracy": "accuracy after each epoch", "loss": "cross-entropy after each epoch"},
)
def learning_curves(curves: pl.DataFrame, quantity: str, cells: pl.DataFrame) -> Plot | None:
    """Draw mean, standard deviation and range over runs, one panel per cell.

    `curves`: for each repeat and epoch `n_runs`, and the mean of the quantity on ``train`` and
    ``test`` data, with its spread over runs under the suffixes ``_std`` (n - 1), ``_min`` and
    ``_max``. `cells`: the table of cells.
    """
    shown = curves.filter(pl.col(f"test_{quantity}").is_not_null())
    drawn = cells.filter(pl.col("cell").is_in(shown["cell"].unique().implode()))
    if drawn.is_empty():
        return None
    figure, axes, left = panel_per_cell(drawn, MAX_PANELS, quantity)
    shown = shown.filter(pl.col("cell").is_in([*axes]))
    points = pl.concat(
        over_repeats(shown.filter(cell=cell), f"{data}_{quantity}").select(
            pl.lit(cell, drawn.schema["cell"]).alias("cell"), pl.lit(data).alias("data"), pl.all()
        )
        for cell in axes
        for data in DATA
    )
    mean, std, ends = pl.col("mean"), pl.col("std").fill_null(0), (pl.col("min"), pl.col("max"))
    # cut at the range: a share is at most 1
    banded = points.with_columns(low=(mean - std).clip(*ends), high=(mean + std).clip(*ends))
    handles: dict[str, Handle] = {}
    for cell, axis in axes.items():
        for index, (data, label) in enumerate(DATA.items()):
            own = banded.filter(cell=cell, data=data)
            look = {"color": colour(index), "marker": "o" if own.height <= FEW_EPOCHS else ""}
            look["ls"] = "-" if data == "test" else "--"
            bands = {("min", "max"): 0.12} if data == "test" else {}
            bands |= {("low", "high"): 0.25}
            handles[label] = line(axis, own, ("trained_epoch", "mean"), look, bands)
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
        data=with_names(points, drawn),
    )


def over_repeats(curves: pl.DataFrame, name: str) -> pl.DataFrame:
    """Pool repeats: mean and range over all runs, and standard deviation between seeds.

    Returns `trained_epoch`, ascending, `mean`, `std` (pooled within repeats, null if all have a
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
