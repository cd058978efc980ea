"""How α̂ is drawn: on an axis suited to many zeros and few large values, with its resolution δ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
