"""How many seeds do I need: for accuracy, error consistency and α̂; with intervals, in words.

To know a mean over runs to ± x at a given confidence takes the smallest n with
t(n - 1) · √Var_n ≤ x. The mean is over seeds, on one fixed test set. For a quantity of single runs,
Var_n is s² / n, with s the standard deviation between the runs of a repeat, pooled over repeats;
for a quantity of pairs of runs, which aren't independent, it is that of
`analysis.questions.hoeffding`. The interval of n comes from that of Var_n. For α̂, n is read off
Table I of RKS: `analysis.questions.ensemble_size`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.hoeffding import matrix, parts
from manyseed.analysis.questions.intervals import FEWEST, t_quantile
from manyseed.analysis.questions.quantiles import chi2_quantile
from manyseed.analysis.tables.rows import REPEAT, Tables

MAX_RUNS = 10_000_000  # more runs are no practical answer
_ROUNDING = 1e-24  # equal values below 1 may seem to have this variance
SKEWED = 1.0
"""Skewness beyond which answers warn that an interval assumes normal values."""

Real = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answer:
    """How many runs are needed for one purpose.

    Attributes
    ----------
    purpose : str
        For example "accuracy ± 0.005".
    runs : int or None
        Runs needed; None if unknown.
    low, high : int or None
        Interval of `runs` at the given confidence.
    made : int
        Runs that the answer rests on.
    repeats : int
        Repeats that these runs belong to.
    confidence : float or None
        Of the interval, and of the ± of a mean; None if the interval is the gap between two drawn
        sizes.
    seconds : float or None
        Training time of `runs`, one after the other.
    reason : str
        Why there is no answer, or what it rests on.
    """

    purpose: str
    runs: int | None
    low: int | None
    high: int | None
    made: int
    repeats: int
    confidence: float | None
    seconds: float | None = None
    reason: str = ""

    @property
    def words(self) -> str:
        """The answer as a sentence."""
        if self.runs is None:
            return f"For {self.purpose} there is no answer: {self.reason}."
        interval = ""
        if self.low is not None and (self.low, self.high) != (self.runs, self.runs):
            upper = "or more" if self.high is None else f"to {self.high:,}"
            sure = "from the sizes drawn"
            if self.confidence is not None:
                sure = f"{100 * self.confidence:g} %"
            interval = f" ({self.low:,} {upper}, {sure})"
        cost = f", about {_duration(self.seconds)} of training" if self.seconds else ""
        rest = f"; {self.reason}" if self.reason else ""
        runs = "run is" if self.runs == 1 else "runs are"
        return f"For {self.purpose}: {self.runs:,} {runs} needed{interval}{cost}{rest}."


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 10 else f"{seconds:.2g} seconds"


def fewest_runs(
    variance: Callable[[int], float], half_width: float, confidence: float = CONFIDENCE
) -> int | None:
    """Return the smallest n ≥ 2 with t(n - 1) · √Var_n ≤ half_width; None above `MAX_RUNS`.

    Parameters
    ----------
    variance : callable
        Var_n of the mean over n ≥ 2 runs; decreases with n.
    half_width : float
        Half-width of the confidence interval of the mean.
    confidence : float
    """
    if not half_width > 0:
        raise ValueError(f"± {half_width!r} has no answer; it must be positive")

    def enough(n: int) -> bool:
        return t_quantile(confidence, n - 1) * math.sqrt(variance(n)) <= half_width

    low, high = 1, 2
    while not enough(high):
        if high > MAX_RUNS:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if high <= MAX_RUNS else None


def for_mean(
    purpose: str,
    values: Sequence[Real],
    half_width: float,
    confidence: float = CONFIDENCE,
    seconds_per_run: float | None = None,
    nothing: str = "no repeat has 2 runs or more",
    resolution: float = 0.0,
    among: int = 1,
) -> Answer:
    """Answer for the mean of a quantity of single runs, such as their accuracies.

    The interval is based on χ², for approximately normal values; if they are visibly skewed
    (`SKEWED`), the answer says so. No spread seen is not no spread: if the values are equal, or
    their standard deviation is below what the test set resolves, there is no answer, but an upper
    bound, `high`, for a standard deviation of `resolution`.

    Parameters
    ----------
    purpose : str
    values : sequence of float arrays (run,)
        One array per repeat, without NaN; arrays of one run are ignored.
    half_width : float
    confidence : float
    seconds_per_run : float or None
    nothing : str
        The reason to give if no array holds two values.
    resolution : float
        Step between two values: of accuracies, one test point.
    among : int
        Number of such answers from which this one is chosen by its result: its interval then holds
        for all of them together (Bonferroni).
    """
    useful = [own for own in values if own.size > 1]
    made = sum(own.size for own in useful)
    freedom = made - len(useful)
    if freedom < 1:
        return Answer(purpose, None, None, None, made, len(useful), confidence, reason=nothing)
    squares = sum(float(np.square(own - own.mean()).sum()) for own in useful)
    if too_alike(squares / freedom, resolution):
        bound = None
        if resolution > 0:
            bound = fewest_runs(partial(operator.truediv, resolution**2), half_width, confidence)
        reason = _unresolved(squares / freedom, freedom, made, resolution, bound, confidence)
        return Answer(purpose, None, None, bound, made, len(useful), confidence, reason=reason)
    tail = (1 - confidence) / 2 / among
    runs, low, high = (
        fewest_runs(partial(operator.truediv, squares / divisor), half_width, confidence)
        for divisor in (freedom, chi2_quantile(freedom, 1 - tail), chi2_quantile(freedom, tail))
    )
    answer = _answer(purpose, (runs, low, high), made, len(useful), confidence, seconds_per_run)
    skewness = skewness_of(useful)
    if answer.runs is None or low == high or abs(skewness) <= SKEWED:
        return answer
    warning = (
        f"the interval assumes normal values, but these are skewed ({skewness:+.1f}), so it may "
        "miss the truth"
    )
    return replace(answer, reason=f"{answer.reason}; {warning}")


def too_alike(variance: float, resolution: float) -> bool:
    """Return whether values vary too little for their variance to say how much runs vary."""
    return variance <= _ROUNDING or variance < resolution**2


def _unresolved(
    variance: float,
    freedom: int,
    made: int,
    resolution: float,
    bound: int | None,
    confidence: float,
) -> str:
    """Say why so little spread is no answer, and what can be told."""
    if variance <= _ROUNDING:
        # runs that differ with probability p agree with probability (1 - p)^freedom at most
        share = 1 - (1 - confidence) ** (1 / freedom)
        reason = (
            f"it cannot be told yet, as the accuracies of all {made:,} runs are equal on their "
            f"test set, while up to {share:.0%} of further runs may differ ({100 * confidence:g} %)"
        )
    else:
        reason = (
            f"it cannot be told yet, as the standard deviation of {made:,} runs, "
            f"{math.sqrt(variance):.2g}, is below one test point ({resolution:.2g}), the least "
            "that the test set resolves"
        )
    if bound is not None:
        reason += f"; if it is at most one test point, {bound:,} runs are enough"
    return reason


def skewness_of(values: Sequence[Real]) -> float:
    """Return the skewness of values around the means of their arrays; 0 if they are all equal."""
    deviations = np.concatenate([own - own.mean() for own in values])
    spread = float(np.sqrt(np.square(deviations).mean()))
    return float((deviations**3).mean()) / spread**3 if spread > 0 else 0.0


def for_pairs(
    purpose: str,
    values: Sequence[Real],
    half_width: float,
    confidence: float = CONFIDENCE,
    seconds_per_run: float | None = None,
    nothing: str = f"no repeat has {FEWEST} runs or more",
) -> Answer:
    """Answer for the mean of a quantity of pairs of runs.

    Parameters are those of `for_mean`, but `values` holds an array (run, run) per repeat, as
    `analysis.questions.hoeffding.matrix` returns it.
    """
    found = parts(values)
    if found is None:
        return Answer(purpose, None, None, None, 0, 0, confidence, reason=nothing)
    if found.limits(FEWEST, confidence)[1] <= _ROUNDING:
        made = int(found.runs.sum())
        reason = f"it cannot be told yet, as all pairs of the {made:,} runs have the same value"
        return Answer(purpose, None, None, None, made, found.runs.size, confidence, reason=reason)

    def limit(end: int, n: int) -> float:
        return found.limits(n, confidence)[end]

    runs, low, high = (
        fewest_runs(variance, half_width, confidence)
        for variance in (found.variance, partial(limit, 0), partial(limit, 1))
    )
    made, repeats = int(found.runs.sum()), found.runs.size
    return _answer(purpose, (runs, low, high), made, repeats, confidence, seconds_per_run)


def _answer(
    purpose: str,
    needed: tuple[int | None, int | None, int | None],
    made: int,
    repeats: int,
    confidence: float,
    seconds_per_run: float | None,
) -> Answer:
    """Answer for a mean; `needed` holds the number of runs and the ends of its interval."""
    runs, low, high = needed
    basis = (made, repeats, confidence)
    if runs is None:
        return Answer(
            purpose, None, low, high, *basis, reason=f"it takes more than {MAX_RUNS:,} runs"
        )
    low = min(runs, low) if low is not None else runs
    high = max(runs, high) if high is not None else None
    basis_repeats = "repeat" if repeats == 1 else "repeats"
    reason = (
        "the mean is over seeds, on one fixed test set; "
        f"from {made:,} runs of {repeats:,} {basis_repeats}"
    )
    seconds = runs * seconds_per_run if seconds_per_run is not None else None
    return Answer(purpose, runs, low, high, *basis, seconds, reason)


def seconds_per_run(runs: pl.DataFrame) -> float | None:
    """Return the mean training time of runs, copies left out; None if unknown."""
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
        Filtered to what the answers are for, such as a cell, or a dataset and classifier. Standard
        deviations are taken within repeats; `fit_seconds` of the runs gives the cost.
    accuracy, consistency : float
        Precision (±) to which the means over runs should be known.
    confidence : float
    """
    runs = tables.runs.filter(~pl.col("identical"))
    seconds = seconds_per_run(runs)
    distinct = tables.repeats.filter(~pl.col("identical")).select(*REPEAT, "n_test")
    pairs = tables.pairs.join(distinct, on=REPEAT, how="semi")
    accuracies = [
        own["accuracy"].drop_nulls().to_numpy()
        for own in runs.join(distinct, on=REPEAT, how="semi").partition_by(REPEAT)
    ]
    consistencies = [
        matrix(
            own["run_i"].to_numpy(),
            own["run_j"].to_numpy(),
            own["ec_local"].fill_null(np.nan).to_numpy(),
        )
        for own in pairs.partition_by(REPEAT)
    ]
    few = "no repeat has {} runs or more"
    if distinct.is_empty() and not tables.repeats.is_empty():
        few = "the runs of every repeat are identical"
    confidently = f"at {100 * confidence:g} % confidence"
    return [
        for_mean(
            f"accuracy ± {accuracy:g} {confidently}",
            accuracies,
            accuracy,
            confidence,
            seconds,
            few.format(2),
            resolution_of(distinct if not distinct.is_empty() else tables.repeats),
        ),
        for_pairs(
            f"local error consistency ± {consistency:g} {confidently}",
            consistencies,
            consistency,
            confidence,
            seconds,
            _no_consistency(tables.repeats, pairs, few.format(FEWEST)),
        ),
    ]


def resolution_of(repeats: pl.DataFrame) -> float:
    """Return one test point of the smallest test set, as a share; 0 if its size is unknown."""
    points = repeats["n_test"].min()
    return 1 / points if isinstance(points, int) and points > 0 else 0.0


def _no_consistency(repeats: pl.DataFrame, pairs: pl.DataFrame, few: str) -> str:
    """Return why pairs give no estimate without each run; `few` if there are too few runs."""
    enough = repeats.filter(~pl.col("identical"), pl.col("n_runs") >= FEWEST)
    if enough.is_empty():
        return few
    wrong = enough["n_wrong_by_any"].drop_nulls().to_list()
    if not wrong:
        return "error consistency was not computed"
    if max(wrong) == 0:
        return "no run errs"
    if pairs.join(enough.select(REPEAT), on=REPEAT, how="semi").is_empty():
        return "pairs of so many runs are not listed: raise max_pair_runs"
    return "too few runs err: without one of them, no two disjoint pairs have an error"
