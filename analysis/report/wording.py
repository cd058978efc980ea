"""Repeats, snapshots and conventions behind the numbers, in words; the rows of the summary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.labels import PROBES
from manyseed.analysis.options import Options
from manyseed.analysis.tables import rows
from manyseed.analysis.tables.rows import Tables, last, several

REFERENCES = {
    "others": "the other runs of the repeat",
    "others-trimmed": "the other runs of the repeat, suspects left out",
    "half": "the first half of the repeat's runs",
    "loo_ensemble": "the ensemble of the other runs of the repeat",
    "ensemble": "the ensemble of the first half of the repeat's runs",
}
"""The reference of α̂ in words."""

_MORE = ("Accuracy", "Ensemble", "Log-likelihood", "Calibrated", "Worth, runs")
_LESS = (
    *("Accuracy range", "Churn", "Churn against the ensemble", "Average churn", "α̂", "ECE"),
    *("Error, %", "Brier, calibrated", "ECE, calibrated", "AURC, calibrated"),
)


def better(head: str) -> str:
    """Return "more" or "less", whichever is better in a column; empty for neither."""
    name = head.partition(" ±")[0]
    if name in _MORE or name.startswith("α̂ ≤"):
        return "more"
    return "less" if name in _LESS else ""


def below(alpha_hat: float | None, delta: float | None, digits: int = 3) -> str:
    """Write what contamination is below where none is seen, as α̂ is 0; empty elsewhere."""
    if alpha_hat is None or delta is None or round(alpha_hat, digits) > 0:
        return ""
    return f"< {delta:.2f}"


def repeats_in_words(cells: pl.DataFrame) -> str:
    """Say how many repeats, cells and test sets per cell there are."""
    cells = last(cells)
    if cells.is_empty():
        return "No repeat has finished runs."
    same = cells.height
    cells = rows.cells_once(cells)
    same -= cells.height
    each = cells["n_repeats"].unique().sort().to_list()
    sets = str(each[-1]) if len(each) == 1 else f"{each[0]:,} to {each[-1]:,}"
    total, n = int(cells["n_repeats"].sum()), cells.height
    return (
        f"{total:,} {'repeat' if total == 1 else 'repeats'}: {n:,} {'cell' if n == 1 else 'cells'} "
        f"on {sets} test {'set' if each == [1] else 'sets'}{'' if n == 1 else ' each'}."
        + (
            f" {same:,} more {'is' if same == 1 else 'are'} the same fits again (‡)."
            if same
            else ""
        )
    )


def snapshots_in_words(cells: pl.DataFrame) -> list[str]:
    """Say which snapshots were analysed, if there are several."""
    if not several(cells):
        return []
    epochs = cells["epoch"].unique().sort().to_list()
    shown = ", ".join(str(epoch) for epoch in epochs if epoch > 0)
    return [
        f"Several snapshots were analysed, each by itself: epochs {shown}. The summary shows all; "
        "figures, effects and everything else use the last one of each cell."
    ]


def conventions(tables: Tables, options: Options) -> list[str]:
    """State the conventions behind the numbers."""
    empty = (
        "is left undefined"
        if math.isnan(options.empty_union)
        else f"counts as {options.empty_union:.0f}"
    )
    notes = [
        "A repeat consists of the runs of one cell (one combination of dataset, classifier, "
        "schemes and training fraction) that share a test set."
    ]
    consistency = (
        "Local error consistency is the number of test points that both runs of a pair get wrong, "
        "divided by the number that at least one gets wrong; global error consistency divides by "
        "all test points, so it does not measure disagreement. Churn does: the share of test "
        "points to which the two runs give different labels. Local error consistency of a pair "
        f"without any error {empty}. The quantity called error consistency in the vision "
        "literature (Cohen's kappa of correctness) is the column ec_kappa of the tables."
    )
    if tables.cells["ec_global_mean"].is_not_null().any():
        notes.append(consistency)
    probes = tables.runs["probe"].drop_nulls().unique().sort().to_list()
    if probes and tables.cells["alpha_hat_mean"].is_not_null().any():
        names = " and ".join(f"the {PROBES.get(probe, f'probe {probe}')}" for probe in probes)
        apart = " Values of α̂ for the two are not comparable." if len(probes) > 1 else ""
        sides = (
            "pairs of samples drawn with replacement from the test points"
            if options.with_replacement
            else "random splits of the test points into two halves"
        )
        notes.append(
            f"α̂ compares the distribution of {names} on the test set with that of "
            f"{REFERENCES[options.alpha_reference]}: it is the smallest trimming level at which "
            f"the robust Kolmogorov–Smirnov test accepts (ε = {options.epsilon:g}), averaged over "
            f"{options.resamples} {sides}. δ is the resolution: contamination below it isn't seen, "
            "and on a small test set α̂ is 0 almost everywhere: figures leave it out where δ > "
            f"{options.close:g}.{apart}"
        )
    identical = int(tables.repeats["identical"].sum())
    if identical:
        notes.append(
            f"† marks rows with repeats of identical runs ({identical} in total): nothing in their "
            "training varies, so one run was trained and the others are copies. They are left out "
            "of the spread between seeds, accuracy range, error consistency, churn and α̂, in "
            "tables, figures and effects, and are counted separately."
        )
    if same := rows.in_words(tables.cells):
        notes.append(
            "‡ marks cells whose runs are the same fits as those of another cell, since no fit "
            "depends on what sets them apart: they are listed in the summary, and counted once in "
            f"figures and effects. {'; '.join(same)}."
        )
    return notes


Rows = tuple[Mapping[str, Any], ...]


def summary(cells: pl.DataFrame) -> Rows:
    """Return the rows of the summary: the table of cells, sorted by dataset and classifier.

    Cells are not averaged: with and without a scheme, or with all and half of the data, they are
    different trainings. `copies` is the number of copied runs; `same_as` is the cell that counts in
    place of one with the same fits.
    """
    if rows.SAME_AS not in cells.columns:
        cells = cells.with_columns(pl.lit(None, pl.UInt32).alias(rows.SAME_AS))
    copies = (pl.col("n_runs") - pl.col("n_distinct")).alias("copies")
    if "epoch" in cells.columns:
        trained = pl.when(pl.col("epoch") > 0).then(pl.format("epoch {}", "epoch"))
        cells = cells.sort("epoch").with_columns(trained.fill_null("no epochs").alias("epoch"))
    key = ("dataset", "classifier", "cell")
    return tuple(cells.with_columns(copies).sort(key, maintain_order=True).iter_rows(named=True))


def varying_axes(cells: pl.DataFrame) -> list[str]:
    """Return the axes in which rows of a dataset and classifier differ, epoch last."""
    others = [name for name in AXES if name not in ("dataset", "classifier")]
    found = [name for name in others if cells[name].n_unique() > 1]
    return [*found, "epoch"] if several(cells) else found
