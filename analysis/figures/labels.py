"""How cells and groups are named and coloured, and how α̂ is shown; imports no Matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from manyseed.analysis.axes import AXES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEPARATOR = " · "
_VALUE = pl.col("value").cast(pl.Float64)
QUANTILES = {
    "n": _VALUE.count().cast(pl.Int64),
    "min": _VALUE.min(),
    "q25": _VALUE.quantile(0.25, "linear"),
    "median": _VALUE.median(),
    "q75": _VALUE.quantile(0.75, "linear"),
    "max": _VALUE.max(),
}
"""The quantiles of `value` that bars and strokes show."""


def differing(cells: pl.DataFrame) -> list[str]:
    """Return the axes in which cells of a dataset and classifier differ."""
    others = [name for name in AXES if name not in ("dataset", "classifier")]
    return [name for name in others if name in cells.columns and cells[name].n_unique() > 1]


def coloured_by(table: pl.DataFrame) -> str:
    """Return the axis that colours models: augmentation, else the first in which they differ."""
    others = [name for name in AXES if name not in ("dataset", "classifier", "augment", "hparams")]
    order = ("augment", *others, "hparams")
    varying = (name for name in order if name in table.columns and table[name].n_unique() > 1)
    return next(varying, "classifier")


def levels_of(table: pl.DataFrame, by: str) -> list[str]:
    """Return the levels of an axis in order, none first."""
    found = table[by].cast(pl.String).unique().sort().to_list()
    return sorted(found, key=lambda level: (level != "none", level))


def described(cells: pl.DataFrame) -> pl.DataFrame:
    """Return `cell` and `_of`: its levels of the axes that differ, in words, possibly empty."""
    parts = [pl.col(name).cast(pl.String) for name in differing(cells)] or [pl.lit("")]
    words = pl.concat_str(parts, separator=SEPARATOR, ignore_nulls=True).alias("_of")
    return cells.select("cell", words).unique().sort("cell")


def titles(cells: pl.DataFrame) -> dict[int, str]:
    """Return the title of each cell: dataset and classifier, and what distinguishes it."""
    named = cells.select(
        "cell", pl.concat_str(["dataset", "classifier"], separator=" × ").alias("_name")
    )
    rows = named.unique("cell").join(described(cells), on="cell").iter_rows()
    return {cell: SEPARATOR.join(filter(None, parts)) for cell, *parts in rows}


def with_names(data: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return rows of cells with dataset, classifier and differing axes as their first columns."""
    apart = [name for name in differing(cells) if name not in data.columns]
    names = cells.select("cell", "dataset", "classifier", *apart).unique("cell")
    found = data.join(names, on="cell", how="left", maintain_order="left")
    return found.select(*names.columns, pl.exclude(names.columns))


def first_of_each(cells: pl.DataFrame, most: int) -> tuple[list[int], int]:
    """Return at most `most` cells to draw, and how many are left out.

    Every dataset and classifier gets its first cell before any gets its second.
    """
    group = ["dataset", "classifier"]
    ordered = cells.unique("cell").sort(*group, "cell")
    turn = ordered.with_columns(_turn=pl.int_range(pl.len()).over(group))
    kept = turn.sort("_turn", *group, "cell").head(most)["cell"].implode()
    chosen = ordered.filter(pl.col("cell").is_in(kept))["cell"].to_list()
    return chosen, ordered.height - len(chosen)


def not_drawn(count: int, noun: str = "cell") -> str:
    """Say how many cells, or the like, are not drawn; empty for 0."""
    if count == 1:
        return f" 1 more {noun} is not drawn: its numbers are in the tables."
    return f" {count:,} more {noun}s are not drawn: their numbers are in the tables." * bool(count)


# Okabe and Ito 2008, without black and yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
# Beyond six groups, colours repeat with another marker.
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#808080"


def colour(index: int) -> str:
    """Return the colour of the group with this index."""
    return COLOURS[index % len(COLOURS)]


def marker(index: int) -> str:
    """Return the marker of the group with this index; it changes each time colours repeat."""
    return MARKERS[index // len(COLOURS) % len(MARKERS)]


NOTHING = 5e-4  # α̂ below this is shown as 0.000
LINEAR = 0.01  # the axis of α̂ is linear up to here and logarithmic beyond
LEVELS = ("alpha_hat", "alpha_hat_mean", "alpha_hat_min", "alpha_hat_max", "choosing_alpha_hat")
PROBES = {"gap": "logit gap", "true_margin": "true-class margin"}


def axis_of_levels(axis: Axes) -> None:
    """Set up a horizontal axis for α̂, on which many zeros and few large values are readable."""
    axis.set_xscale("symlog", linthresh=LINEAR, linscale=0.5)
    axis.set_xticks([0, LINEAR, 0.1, 1], ["0", f"{LINEAR}", "0.1", "1"])
    axis.set_xticks([], minor=True)
    axis.set_xlim(-0.15 * LINEAR, 1.3)


def upright_axis_of_levels(axis: Axes) -> None:
    """Set up the vertical axis for α̂, the same in all panels."""
    from matplotlib.ticker import NullFormatter

    axis.set_yscale("symlog", linthresh=LINEAR, linscale=0.5)
    axis.set_yticks([0, LINEAR, 0.1, 1], ["0", f"{LINEAR}", "0.1", "1"])
    axis.set_yticks([0.02, 0.03, 0.05, 0.2, 0.3, 0.5], minor=True)
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_ylim(-0.15 * LINEAR, 1.3)


def mark_resolution(axis: Axes, repeats: pl.DataFrame, *, across: bool = False) -> None:
    """Draw δ as a dashed line, with its value outside the panel, away from dots."""
    line = axis.axhline if across else axis.axvline
    for value in repeats["delta"].drop_nulls().unique().sort().to_list()[:1]:
        line(value, color="black", linewidth=0.9, linestyle=(0, (4, 3)))
        axis.annotate(
            f"δ =\n{value:.3f}" if across else f"δ = {value:.3f}",
            (1, value) if across else (value, 1),
            xycoords=("axes fraction", "data") if across else ("data", "axes fraction"),
            xytext=(3, 0) if across else (0, 2),
            textcoords="offset points",
            va="center" if across else "bottom",
            ha="left" if across else "center",
            fontsize=7.5,
        )


def resolution(repeats: pl.DataFrame) -> str:
    """State δ and N, or their ranges."""
    known = repeats.filter(pl.col("alpha_hat_mean").is_not_null())
    if known.is_empty():
        return ""
    deltas, sides = known["delta"].unique().sort(), known["n_side"].unique().sort()
    if deltas.len() == 1:
        return f"δ = {deltas[0]:.3f} with N = {sides[0]:,} test points on each side."
    return (
        f"δ = {deltas[0]:.3f} to {deltas[-1]:.3f} with N = {sides[-1]:,} to {sides[0]:,} test "
        "points on each side."
    )


def probe(runs: pl.DataFrame) -> str:
    """Name the probes of α̂."""
    known = runs["probe"].drop_nulls().cast(pl.String).unique().sort().to_list()
    names = [PROBES.get(name, name) for name in known]
    both = "; the two aren't comparable" if len(names) > 1 else ""
    return f" (probe: {' and '.join(names)}{both})" if names else ""
