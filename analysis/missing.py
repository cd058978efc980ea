"""Is what is missing missing at random: if slow or bad runs fail, what is left looks too good."""

from __future__ import annotations

import polars as pl
from scipy.stats import spearmanr

SIGNIFICANT = 0.01
FEWEST = 8  # runs or cells below which a correlation says nothing


def notes(runs: pl.DataFrame, repeats: pl.DataFrame) -> list[str]:
    """Say where runs are missing and whether that goes with accuracy.

    Two signs are looked for: cells with fewer finished runs differ in accuracy, and, where runs are
    missing, slow runs do (the slow ones are those that time limits stop). Both are rank
    correlations (Spearman) at the level of 1 %, within a dataset and classifier.

    Parameters
    ----------
    runs, repeats : polars frames
        The tables with `dataset` and `classifier` joined; `fit_seconds` of runs is used if it is
        there.

    Returns
    -------
    list of str
        A sentence each; empty where nothing is missing.
    """
    key = ["dataset", "classifier"]
    short = repeats.filter(pl.col("coverage") < 1)
    if short.is_empty():
        return []
    finished = float(repeats["coverage"].drop_nulls().to_numpy().mean())
    result = [
        f"{short.height:,} of {repeats.height:,} repeats lack runs (coverage {finished:.1%}): "
        "their means, ranges and quantiles are of what is finished."
    ]
    for group in short.select(key).unique().sort(key).iter_rows():
        here = pl.all_horizontal(
            pl.col(name) == value for name, value in zip(key, group, strict=True)
        )
        name = " × ".join(group)
        goes = _correlation(repeats.filter(here), "coverage", "accuracy_mean")
        if goes is not None:
            result.append(
                f"{name}: runs are not missing at random. Accuracy goes with coverage (rank "
                f"correlation {goes:+.2f}), so comparisons of its cells may be biased."
            )
        if "fit_seconds" in runs.columns:
            goes = _correlation(runs.filter(here), "fit_seconds", "accuracy")
            if goes is not None:
                result.append(
                    f"{name}: accuracy goes with fit time (rank correlation {goes:+.2f}). If the "
                    "missing runs are slow ones, its mean accuracy is biased."
                )
    return result


def _correlation(frame: pl.DataFrame, one: str, other: str) -> float | None:
    """Return the rank correlation of two columns where it is significant."""
    known = frame.select(one, other).drop_nulls()
    if known.height < FEWEST or min(known[name].n_unique() for name in (one, other)) < 2:
        return None
    found = spearmanr(known[one].to_numpy(), known[other].to_numpy())
    return float(found.statistic) if found.pvalue < SIGNIFICANT else None
