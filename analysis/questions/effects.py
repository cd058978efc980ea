"""What a perturbation scheme changes: differences to the same cell without it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables.means import (
    VARIES,
    compares_runs,
    is_level,
    mean_of,
    of_one_probe,
    std_of,
)

UNPERTURBED = {
    "perturb_continuous": "none",
    "perturb_categorical": "none",
    "perturb_hparams": "none",
    "train_fraction": "1.0",
}
"""The axes along which effects are taken, and the level that each is compared with."""

EFFECTS = ("accuracy_mean", "accuracy_range", "ec_local_mean", "churn_mean", "alpha_hat_mean")


def effects(repeats: pl.DataFrame, by: Sequence[str] = ("dataset", "classifier")) -> pl.DataFrame:
    """Compare each scheme with none, all else equal, in pairs of repeats on one test set.

    Parameters
    ----------
    repeats : polars frame
        The table of repeats with the columns of `AXES`.
    by : sequence of str
        What the differences are averaged within, beside axis and scheme.

    Returns
    -------
    polars frame
        Columns of `by`, then `axis` (a key of `UNPERTURBED`), `scheme`, `n` (pairs of repeats),
        `n_identical` (pairs in which the runs of one side are identical), and for each name of
        `EFFECTS` the mean difference (scheme minus none), with the endings ``_sd`` (n - 1) and
        ``_n`` (pairs in which both sides are defined). What compares runs is undefined in pairs
        with a side whose runs don't vary. α̂ of two probes is not averaged; `probe` names them, and
        `delta_lo` and `delta_hi` are the resolutions behind it.
    """
    known = repeats.with_columns(pl.col("train_fraction").cast(pl.String))
    return pl.concat([_along(known, axis, level, by) for axis, level in UNPERTURBED.items()]).sort(
        *by, "axis", "scheme"
    )


def _along(repeats: pl.DataFrame, axis: str, level: str, by: Sequence[str]) -> pl.DataFrame:
    key = [name for name in (*AXES, "repeat_index") if name != axis]
    without = repeats.filter(pl.col(axis) == level).select(
        *key, "identical", VARIES.alias("varies"), *EFFECTS
    )
    change = {name: pl.col(name) - pl.col(f"{name}_none") for name in EFFECTS}
    both = VARIES & pl.col("varies")
    pairs = (
        repeats.filter(pl.col(axis) != level)
        .join(without, on=key, suffix="_none", nulls_equal=True)
        .with_columns(
            pl.when(both).then(of).alias(name) if compares_runs(name) else of
            for name, of in change.items()
        )
    )
    values: list[pl.Expr] = []
    for name in EFFECTS:
        column = pl.col(name)
        own = [
            mean_of(column).alias(name),
            std_of(column).alias(f"{name}_sd"),
            column.count().alias(f"{name}_n"),
        ]
        values += map(of_one_probe, own) if is_level(name) else own
    compared = pl.col("alpha_hat_mean").is_not_null()
    values += [
        pl.col("probe").filter(compared).drop_nulls().unique().sort().str.join("+"),
        pl.col("delta").filter(compared).min().alias("delta_lo"),
        pl.col("delta").filter(compared).max().alias("delta_hi"),
    ]
    return (
        pairs.sort(*key, axis)
        .group_by(
            *by, pl.lit(axis).alias("axis"), pl.col(axis).alias("scheme"), maintain_order=True
        )
        .agg(
            pl.len().alias("n"),
            (pl.col("identical") | pl.col("identical_none")).sum().alias("n_identical"),
            *values,
        )
    )
