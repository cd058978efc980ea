"""How many seeds do I need: for accuracy, for error consistency, for α̂; with intervals, in words.

For a mean over runs to be known to ± x with a given confidence, n runs are needed with
t(n - 1) · s / √n ≤ x, where s is the standard deviation between runs of one repeat, pooled over
repeats. Error consistency is a mean over pairs of runs, which aren't independent; it is treated as
the mean of its jackknife pseudo-values, one a run (Tukey 1958). The interval of n comes from the
χ² interval of s. For α̂ the answer is read off Table I of RKS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import beta, chi2, t

from analysis.ensembles import CLOSE
from analysis.tables import Tables

CONFIDENCE = 0.95
MAX_RUNS = 10_000_000  # what needs more has no practical answer

Real = NDArray[np.float64]
REPEAT = ["cell", "repeat_index"]


@dataclass(frozen=True, slots=True)
class Answer:
    """How many runs are needed for one purpose.

    Attributes
    ----------
    purpose : str
        For example "accuracy ± 0.005".
    runs : int or None
        Runs needed; None where it can't be said.
    low, high : int or None
        Interval of `runs` at the given confidence.
    made : int
        Runs that the answer rests on.
    seconds : float or None
        Training time of `runs`, one after the other.
    reason : str
        Why it can't be said, or what the answer rests on.
    """

    purpose: str
    runs: int | None
    low: int | None
    high: int | None
    made: int
    seconds: float | None = None
    reason: str = ""

    @property
    def words(self) -> str:
        """Say it."""
        if self.runs is None:
            return f"For {self.purpose}: can't be said, {self.reason}."
        interval = ""
        if self.low is not None and (self.low, self.high) != (self.runs, self.runs):
            upper = "or more" if self.high is None else f"to {self.high:,}"
            interval = f" ({self.low:,} {upper})"
        cost = f", about {_duration(self.seconds)} of training" if self.seconds else ""
        rest = f"; {self.reason}" if self.reason else ""
        runs = "run is" if self.runs == 1 else "runs are"
        return f"For {self.purpose}: {self.runs:,} {runs} needed{interval}{cost}{rest}."


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 10 else f"{seconds:.2g} seconds"


def runs_for_mean(spread: float, half_width: float, confidence: float = CONFIDENCE) -> int | None:
    """Return the smallest n ≥ 2 with t(n - 1) · spread / √n ≤ half_width; None where it is huge.

    Parameters
    ----------
    spread : float
        Standard deviation of one run.
    half_width : float
        Half the width of the confidence interval of the mean.
    confidence : float
    """
    if not half_width > 0:
        raise ValueError(f"± {half_width!r} has no answer; it must be positive")

    def enough(n: int) -> bool:
        return bool(t.ppf((1 + confidence) / 2, n - 1) * spread <= half_width * math.sqrt(n))

    if not enough(MAX_RUNS):
        return None
    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def for_mean(
    purpose: str,
    values: Sequence[Real],
    half_width: float,
    confidence: float = CONFIDENCE,
    seconds_per_run: float | None = None,
    nothing: str = "no repeat has two runs or more",
) -> Answer:
    """Answer for the mean of a quantity that every run has.

    Parameters
    ----------
    purpose : str
    values : sequence of float arrays (run,)
        One array a repeat, without NaN; those of a single run say nothing.
    half_width : float
    confidence : float
    seconds_per_run : float or None
    nothing : str
        Why it can't be said where no array holds two values.
    """
    useful = [own for own in values if own.size > 1]
    made = sum(own.size for own in useful)
    freedom = made - len(useful)
    if freedom < 1:
        return Answer(purpose, None, None, None, made, reason=nothing)
    squares = sum(float(np.square(own - own.mean()).sum()) for own in useful)
    tail = (1 - confidence) / 2
    estimates = [
        runs_for_mean(math.sqrt(squares / divisor), half_width, confidence)
        for divisor in (freedom, chi2.ppf(1 - tail, freedom), chi2.ppf(tail, freedom))
    ]
    runs, low, high = estimates
    if runs is None:
        return Answer(purpose, None, low, high, made, reason=f"it takes more than {MAX_RUNS:,}")
    seconds = runs * seconds_per_run if seconds_per_run is not None else None
    return Answer(purpose, runs, low, high, made, seconds)


def pseudo_values(i: NDArray[Any], j: NDArray[Any], values: Real) -> Real:
    """Return the jackknife pseudo-values of a mean over pairs of runs, one a run.

    n · U - (n - 1) · U without the run, U the mean over the pairs that are defined.

    Parameters
    ----------
    i, j : integer arrays (pair,)
    values : float array (pair,)
        NaN where undefined.

    Returns
    -------
    float array (run,)
        Empty where a run has no mean without it: fewer than three runs.
    """
    known = ~np.isnan(values)
    names, (left, right) = np.unique([i, j], return_inverse=True)
    n = names.size
    weight, total = np.zeros(n), np.zeros(n)
    for side in (left, right):
        weight += np.bincount(side[known], minlength=n)
        total += np.bincount(side[known], weights=values[known], minlength=n)
    rest = np.count_nonzero(known) - weight
    if n < 3 or (rest == 0).any():
        return np.empty(0)
    whole = float(values[known].sum())
    result: Real = n * whole / np.count_nonzero(known) - (n - 1) * (whole - total) / rest
    return result


def for_alpha(
    table: pl.DataFrame, close: float = CLOSE, seconds_each: float | None = None
) -> list[Answer]:
    """Read Table I: the smallest ensemble from which on all draws are close, and the classical one.

    Parameters
    ----------
    table : polars frame
        As `analysis.ensembles.table_one` returns it, with the resolution: `n_side`, `delta`.
    close : float
        As the table was made with.
    seconds_each : float or None
        Training time of a run.

    Returns
    -------
    list of two Answer
        For α̂ at most `close`, and for the classical test to accept. `low` is one more than the
        largest size that failed, so that the interval is as wide as the sizes are apart. The reason
        says which contamination, well separated, would pass: α̂ ≈ (ν - δ) / (1 - δ) sees no less.
    """
    delta = float(table["delta"][0])
    return [
        _all_pass(table, "close", _CLOSE.format(close), seconds_each, delta + close * (1 - delta)),
        _all_pass(table, "accepted", _ACCEPTED, seconds_each, delta),
    ]


_CLOSE = "an ensemble with α̂ ≤ {:g}"
_ACCEPTED = "an ensemble that the classical KS test accepts"


def no_ensembles(reason: str, close: float = CLOSE) -> list[Answer]:
    """Return the answers of `for_alpha` where no ensembles could be drawn."""
    purposes = (_CLOSE.format(close), _ACCEPTED)
    return [Answer(purpose, None, None, None, 0, reason=reason) for purpose in purposes]


def _all_pass(
    table: pl.DataFrame,
    column: str,
    purpose: str,
    seconds_each: float | None,
    unseen: float,
) -> Answer:
    ordered = table.sort("size")
    made = int(ordered["draws"].sum())
    failed = ordered.filter(pl.col(column) < 1)["size"]
    largest = int(failed.to_numpy().max()) if not failed.is_empty() else 0
    passing = ordered.filter(pl.col("size") > largest)
    if passing.is_empty():
        reason = f"not all ensembles of {largest} pass, the largest that were drawn"
        return Answer(purpose, None, None, None, made, reason=reason)
    runs, draws = int(passing["size"][0]), int(passing["draws"][0])
    # Clopper and Pearson's bound for draws of draws.
    bound = beta.ppf(1 - CONFIDENCE, draws, 1)
    reason = (
        f"all {draws} ensembles of that size pass, so at least {bound:.1%} do "
        f"({CONFIDENCE:.0%} confidence); with δ = {table['delta'][0]:.3f} at N = "
        f"{table['n_side'][0]:,} test points a side, contamination of up to {unseen:.0%} passes too"
    )
    seconds = runs * seconds_each if seconds_each is not None else None
    return Answer(purpose, runs, largest + 1, runs, made, seconds, reason)


def seconds_per_run(runs: pl.DataFrame) -> float | None:
    """Return the mean training time of runs, copies left out; None where it isn't known."""
    if "fit_seconds" not in runs.columns:
        return None
    known = runs.filter(~pl.col("identical"))["fit_seconds"].drop_nulls().to_numpy()
    return float(known.mean()) if known.size else None


def howmany(
    tables: Tables,
    *,
    accuracy: float = 0.005,
    consistency: float = 0.02,
    confidence: float = CONFIDENCE,
) -> list[Answer]:
    """Answer for accuracy and for local error consistency from the result tables.

    Parameters
    ----------
    tables : Tables
        Of what is to be answered for: filter them by cell, or by dataset and classifier. Standard
        deviations are those within repeats. `fit_seconds` of the runs gives the cost.
    accuracy, consistency : float
        How precisely the means over runs are to be known: ±.
    confidence : float
    """
    runs = tables.runs.filter(~pl.col("identical"))
    seconds = seconds_per_run(runs)
    distinct = tables.repeats.filter(~pl.col("identical")).select(REPEAT)
    pairs = tables.pairs.join(distinct, on=REPEAT, how="semi")
    accuracies = [
        own["accuracy"].drop_nulls().to_numpy()
        for own in runs.join(distinct, on=REPEAT, how="semi").partition_by(REPEAT)
    ]
    consistencies = [
        pseudo_values(
            own["run_i"].to_numpy(),
            own["run_j"].to_numpy(),
            own["ec_local"].fill_null(np.nan).to_numpy(),
        )
        for own in pairs.partition_by(REPEAT)
    ]
    few = "no repeat has {} runs or more"
    if distinct.is_empty() and not tables.repeats.is_empty():
        few = "the runs of every repeat are identical"
    too_few_pairs = few.format("three")
    if pairs.is_empty() and any(own.size > 2 for own in accuracies):
        too_few_pairs = "pairs of so many runs are not listed: see analyze --max-pair-runs"
    return [
        for_mean(
            f"accuracy ± {accuracy:g}", accuracies, accuracy, confidence, seconds, few.format("two")
        ),
        for_mean(
            f"local error consistency ± {consistency:g}",
            consistencies,
            consistency,
            confidence,
            seconds,
            too_few_pairs,
        ),
    ]
