"""How many seeds are needed for accuracy, error consistency and α̂, before and while runs are added.

To know a mean over runs to ± x at a given confidence takes the smallest n with
t(n - 1) · √Var_n ≤ x. The mean is over seeds, on one fixed test set. For a quantity of single runs,
Var_n is s² / n, with s the standard deviation between the runs of a repeat, pooled over repeats;
for a quantity of pairs of runs, which aren't independent, it is that of
`analysis.questions.intervals`. The interval of n comes from that of Var_n. For α̂, n is read off
Table I of RKS: `analysis.questions.ensembles`.

Does a cell have enough runs already: a confidence sequence covers the mean at all numbers of runs
at once, so one may look after each block of runs and stop as soon as the interval is narrow enough.
A sequence that is equally good at every number of runs is expensive (2.4 times as many runs as an
interval at a number fixed in advance, with known variance). Here the precision is fixed in advance,
so most of the error is spent where it is reached. The sequence combines two, which miss with
probability .8 α and .2 α:

1. At the first look n at which t(n - 1) s / √n is at most the half-width h asked for, the mean is
   frozen: mean_n ± h, from then on (Chow and Robbins 1965, with quantiles of Student's t). When to
   stop depends on the standard deviations s alone, which for normal values are independent of the
   mean (Anscombe 1953). Stopping when s is small by chance adds little to .8 α, which the tests
   measure.
2. At every n: the t-test's confidence sequence, with a normal prior on the standardized mean
   (Lai 1976; Wang and Ramdas 2025, section 4): the means whose Bayes factor (Gönen et al. 2005) is
   below 1 / (.2 α). The Bayes factor is a martingale, so Ville's inequality bounds the probability
   that the true mean is ever excluded.

Both assume independent, approximately normal values. Values on a grid, such as accuracies, may
agree by chance, so s is at least that of rounding to the grid (step / √12).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions import quantiles
from manyseed.analysis.questions.intervals import (
    FEWEST,
    assumed,
    matrix,
    may_differ,
    of_variance,
    parts,
    skewness_of,
    t_quantile,
    total,
)
from manyseed.analysis.questions.needed import RunsNeeded
from manyseed.analysis.questions.question import Answer, Evidence, shortest
from manyseed.analysis.questions.resolution import ROUNDING, too_alike
from manyseed.analysis.tables.rows import REPEAT, Tables, independent

PRECISE = 0.005  # half-width of the interval that a mean accuracy should have

MAX_RUNS = 10_000_000  # more runs are no practical answer
WIDEST = 100  # times its lower end: an interval whose upper end is larger is no answer

Real = NDArray[np.float64]


def fewest_runs(
    variance: Callable[[int], float], half_width: float, confidence: float = CONFIDENCE
) -> int | None:
    """Return the smallest n ≥ 2 with t(n - 1) · √Var_n ≤ half_width; None above `MAX_RUNS`.

    `variance`: var_n of the mean over n ≥ 2 runs; decreases with n. `half_width`: half-width of the
    confidence interval of the mean.
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
) -> RunsNeeded:
    """Answer for the mean of a quantity of single runs, such as their accuracies.

    The interval is `intervals.of_variance`, for approximately normal values; the answer says so,
    and whether they are visibly skewed or test sets unequal. No spread seen is not no spread: if
    the values are equal, or their standard deviation is below what the test set resolves, there is
    no answer, but an upper bound, `high`, for a standard deviation of `resolution`.

    `values`, sequence of float arrays (run,): one array per repeat, without NaN; arrays of one run
    are ignored. `nothing`: the reason to give if no array holds two values. `resolution`: step
    between two values: of accuracies, one test point. `among`: number of such answers from which
    this one is chosen by its result: its interval then holds for all of them together (Bonferroni).
    """
    useful = [own for own in values if own.size > 1]
    made = sum(own.size for own in useful)
    freedom = made - len(useful)
    if freedom < 1:
        there = sum(own.size for own in values), len(values)
        return RunsNeeded(purpose, None, None, None, *there, confidence, reason=nothing)
    squares = sum(float(np.square(own - own.mean()).sum()) for own in useful)
    if too_alike(squares / freedom, resolution):
        bound = None
        if resolution > 0:
            bound = fewest_runs(partial(operator.truediv, resolution**2), half_width, confidence)
        reason = unresolved(squares / freedom, freedom, made, resolution, bound, confidence)
        return RunsNeeded(purpose, None, None, bound, made, len(useful), confidence, reason=reason)
    variances = np.array([own.var(ddof=1) for own in useful])
    of_each = np.array([own.size - 1.0 for own in useful])
    ends = of_variance(variances, of_each, 1 - (1 - confidence) / among)
    runs, low, high = (
        fewest_runs(partial(operator.truediv, variance), half_width, confidence)
        for variance in (squares / freedom, *ends)
    )
    answer = _answer(purpose, (runs, low, high), made, len(useful), confidence, seconds_per_run)
    if answer.runs is None or low == high:
        return answer
    return replace(answer, reason=f"{answer.reason}; {assumed(useful, among)}")


def unresolved(
    variance: float,
    freedom: int,
    made: int,
    resolution: float,
    bound: int | None,
    confidence: float,
) -> str:
    """Say why so little spread is no answer, and what can be told.

    `freedom`: number of independent runs less the number of test sets.
    """
    if variance <= ROUNDING:
        reason = (
            f"it cannot be told yet, as the accuracies of all {made:,} runs are equal on their "
            f"test set, while {may_differ(freedom, confidence)}"
        )
    else:
        reason = (
            f"it cannot be told yet, as the standard deviation of {made:,} runs, "
            f"{math.sqrt(variance):.2g}, is below one test point: a test set of "
            f"{round(1 / resolution):,} points resolves no less than 1/{round(1 / resolution):,} "
            f"({resolution:.2g})"
        )
    if bound is not None:
        reason += f"; if it is at most one test point, {bound:,} runs are enough"
    return reason


def for_pairs(
    purpose: str,
    values: Sequence[Real],
    half_width: float,
    confidence: float = CONFIDENCE,
    seconds_per_run: float | None = None,
    nothing: str = f"no repeat has {FEWEST} runs or more",
    resolution: float = 0.0,
) -> RunsNeeded:
    """Answer for the mean of a quantity of pairs of runs.

    Parameters are those of `for_mean`, but `values` holds an array (run, run) per repeat, as
    `analysis.questions.intervals.matrix` returns it, and `resolution` is the least by which two
    values differ: of local error consistency, one of the points that some run gets wrong.
    """
    found = parts(values)
    if found is None:
        return RunsNeeded(purpose, None, None, None, 0, 0, confidence, reason=nothing)
    made, repeats = int(found.runs.sum()), found.runs.size
    of_pair = max(float(found.weights @ found.zeta_2), 0.0)
    is_equal = found.limits(FEWEST, confidence)[1] <= ROUNDING
    if is_equal or too_alike(of_pair, resolution):
        reason = f"it cannot be told yet, as all pairs of the {made:,} runs have the same value"
        if not is_equal:
            reason = (
                f"it cannot be told yet, as the standard deviation of pairs of {made:,} runs, "
                f"{math.sqrt(of_pair):.2g}, is below one of the points that some run gets wrong "
                f"({resolution:.2g})"
            )
        bound = None
        if resolution > 0:  # ζ₁ is at most ζ₂ / 2
            bound = fewest_runs(lambda n: 2 * resolution**2 / n, half_width, confidence)
        if bound is not None:
            reason += f"; if they vary by {resolution:.2g} at most, {bound:,} runs are enough"
        return RunsNeeded(purpose, None, None, bound, made, repeats, confidence, reason=reason)

    def limit(end: int, n: int) -> float:
        return found.limits(n, confidence)[end]

    runs, low, high = (
        fewest_runs(variance, half_width, confidence)
        for variance in (found.variance, partial(limit, 0), partial(limit, 1))
    )
    return _answer(purpose, (runs, low, high), made, repeats, confidence, seconds_per_run)


def _answer(
    purpose: str,
    needed: tuple[int | None, int | None, int | None],
    made: int,
    repeats: int,
    confidence: float,
    seconds_per_run: float | None,
) -> RunsNeeded:
    """Answer for a mean; `needed` holds the number of runs and the ends of its interval."""
    runs, low, high = needed
    basis = (made, repeats, confidence)
    if runs is None:
        return RunsNeeded(
            purpose, None, low, high, *basis, reason=f"it takes more than {MAX_RUNS:,} runs"
        )
    low = min(runs, low) if low is not None else runs
    high = max(runs, high) if high is not None else None
    basis_repeats = "repeat" if repeats == 1 else "repeats"
    if high is None or high > WIDEST * low:
        reason = (
            f"it cannot be told yet; at least {low:,} are needed ({100 * confidence:g} %), but how "
            f"many more the {made:,} runs of {repeats:,} {basis_repeats} do not tell"
        )
        return RunsNeeded(purpose, None, low, None, *basis, reason=reason)
    reason = (
        "the mean is over seeds, on one fixed test set; "
        f"from {made:,} runs of {repeats:,} {basis_repeats}"
    )
    seconds = runs * seconds_per_run if seconds_per_run is not None else None
    return RunsNeeded(purpose, runs, low, high, *basis, seconds, reason)


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
) -> list[RunsNeeded]:
    """Answer for accuracy and for local error consistency from the result tables.

    `tables`: filtered to what the answers are for, such as a cell, or a dataset and classifier.
    Standard deviations are taken within repeats; `fit_seconds` of the runs gives the cost. Of
    crossed runs those count that share no value. `accuracy` and `consistency`: precision (±) to
    which the means over runs should be known.
    """
    confidently = f"at {100 * confidence:g} % confidence"
    tables = independent(tables)
    runs = tables.runs.filter(~pl.col("identical"))
    seconds = seconds_per_run(runs)
    distinct = tables.repeats.filter(~pl.col("identical")).select(
        *REPEAT, "n_test", "n_wrong_by_any"
    )
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
            _step_of(distinct["n_wrong_by_any"]),
        ),
    ]


def resolution_of(repeats: pl.DataFrame) -> float:
    """Return one test point of the smallest test set, as a share; 0 if its size is unknown."""
    return _step_of(repeats["n_test"])


def _step_of(points: pl.Series) -> float:
    """Return one point of the fewest; 0 if it is unknown, or none."""
    fewest = points.min()
    return 1 / fewest if isinstance(fewest, int) and fewest > 0 else 0.0


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


FIRST = 10  # runs before the first look: few runs hardly show how much they differ
BLOCK = 10  # runs between looks
_AT_TARGET = 0.8  # share of the error spent where the precision is reached
_TUNED = 30  # number of runs at which the second sequence is narrowest


@dataclass(frozen=True, slots=True)
class Decision:
    """What is known of a cell after some runs.

    `runs`: number of runs at the last look. `mean`: of these runs; if they are enough, the last
    look is the one that reached the precision. `low` and `high`: the interval; infinite before the
    first look. `enough`: number of runs at which the precision was reached; None if it was not.
    `predicted`: about how many runs it takes, judged from how much they differ so far. `skewness`:
    of the values at the last look.
    """

    runs: int
    mean: float
    low: float
    high: float
    enough: int | None
    predicted: int | None
    skewness: float = 0.0

    @property
    def half_width(self) -> float:
        """Half-width of the interval."""
        return (self.high - self.low) / 2


def running(n: int, std: float, alpha: float) -> float:
    """Return the half-width of the t-test's confidence sequence after n ≥ 2 values.

    The Bayes factor of the mean μ, with t = √n (mean - μ) / std, ν = n - 1 and a N(0, g) prior on
    the standardized mean, is (1 + n g)^(-1/2) ((1 + t²/ν) / (1 + t²/(ν (1 + n g))))^(n/2); the
    interval is where it is below 1 / alpha. Infinite if n is too small to exclude any mean.

    `std`: standard deviation of the values (n - 1). `alpha`: probability that the true mean is ever
    excluded.
    """
    level = -2 * math.log(alpha)
    more = 1 + n * (level + math.log(level) + 1) / _TUNED
    ratio = math.exp((math.log(more) + level) / n)  # ((1 + x) / (1 + x / more)) at the limit
    if ratio >= more:
        return math.inf
    return std * math.sqrt((ratio - 1) / (1 - ratio / more) * (n - 1) / n)


def decide(
    values: Real,
    half_width: float,
    *,
    confidence: float = CONFIDENCE,
    first: int = FIRST,
    block: int = BLOCK,
    step: float = 0.0,
) -> Decision:
    """Look at the values after the first `first` of them and after every further `block`.

    A decision made with fewer values stands: more values do not change it.

    `values`, float array (run,): independent values in the order in which they were made.
    `half_width`: the precision (±) asked for. `confidence`: probability that the interval contains
    the mean at all looks. `step`: step of the grid that values lie on; 0 without a grid.
    """
    if not half_width > 0:
        raise ValueError(f"± {half_width!r} has no answer; it must be positive")
    alpha = 1 - confidence
    quantile = 1 - _AT_TARGET * alpha / 2
    skewness, looked, mean, predicted = (
        0.0,
        0,
        float(values.mean()) if values.size else math.nan,
        None,
    )
    low, high = -math.inf, math.inf
    for n in range(first, values.size + 1, block):
        seen = values[:n]
        looked, mean, skewness = n, float(seen.mean()), skewness_of([seen])
        std = max(float(seen.std(ddof=1)), step / math.sqrt(12))
        wide = running(n, std, (1 - _AT_TARGET) * alpha)
        low, high = max(low, mean - wide), min(high, mean + wide)
        reached = float(quantiles.t_quantile(n - 1, quantile)) * std / math.sqrt(n)
        if reached <= half_width:
            low, high = max(low, mean - half_width), min(high, mean + half_width)
            return Decision(n, mean, low, high, n, n, skewness)
        predicted = math.ceil(n * (reached / half_width) ** 2)
        if high - low <= 2 * half_width:  # the second sequence got there first
            return Decision(n, mean, low, high, n, n, skewness)
    return Decision(looked, mean, low, high, None, predicted, skewness)


def answer(evidence: Evidence) -> Iterator[Answer]:
    """Say how many seeds it takes to know each cell's mean accuracy to `PRECISE`."""
    tables, key = evidence.tables, ["cell", "repeat_index"]
    own = tables.runs.filter(~pl.col("identical")).drop_nulls("accuracy").sort(*key, "run_index")
    repeats = own.group_by(key, maintain_order=True).agg(
        pl.len().alias("n"), pl.col("accuracy").implode().list.var().alias("variance")
    )
    cells = (
        repeats.filter(pl.col("n") > 1)
        .group_by("cell", maintain_order=True)
        .agg(
            total(pl.col("variance") * (pl.col("n") - 1)).alias("squares"),
            (pl.col("n") - 1).sum().alias("freedom"),
            (pl.col("n").sum() // pl.len()).alias("n"),
        )
        .with_columns(variance=pl.col("squares") / pl.col("freedom"))
        .join(tables.repeats.group_by("cell").agg(pl.col("n_test").min()), on="cell")
        .with_columns(resolution=(1 / pl.col("n_test")).fill_null(0.0))
        .sort("variance", "cell")
    )
    if cells.is_empty():
        return
    alike = [too_alike(*row) for row in cells.select("variance", "resolution").rows()]
    unknown, cells = cells.filter(alike), cells.filter(~pl.Series(alike))
    if cells.is_empty():
        step = min(unknown["resolution"].to_list()), max(unknown["resolution"].to_list())
        bound = fewest_runs(partial(operator.truediv, step[1] ** 2), PRECISE) if step[0] else None
        headline = f"How many seeds accuracy ± {PRECISE:g} takes is not told: no spread is seen."
        if bound is not None:
            headline = (
                f"Accuracy to ± {PRECISE:g} takes {bound:,} seeds at most, if their sd is one "
                "test point at most."
            )
        yield Answer(
            headline,
            evidence=_no_spread(unknown, own),
            figures=("summary",),
        )
        return
    # More variance takes more runs, so the first and last cell give the range.
    least, needed = (
        _of_cell(own.filter(cell=cells["cell"][place]), among=cells.height) for place in (0, -1)
    )
    if needed.runs is None:
        if needed.low is not None:
            several = cells.height > 1
            most = ", which varies most" if several else ""
            name = _cell_named(own, cells["cell"][-1])
            where = f" in {name}" if several else ""
            text = f"In {name}{most}, {needed.reason}."
            yield Answer(
                f"How many seeds accuracy ± {PRECISE:g} takes cannot be told yet: "
                f"at least {needed.low:,}{where}.",
                evidence=f"{text} {_no_spread(unknown, own)}" if unknown.height else text,
                figures=("summary",),
            )
        return
    most_varied = own.filter(cell=cells["cell"][-1])
    row = most_varied.row(0, named=True)
    assuming = assumed(_by_test_set(most_varied), cells.height)
    interval = f"{needed.low:,} to {needed.high:,}"
    is_one = needed.low == needed.high == needed.runs
    half = quantiles.t_quantile(cells["n"].to_numpy() - 1, (1 + CONFIDENCE) / 2)
    enough = int((half * (cells["variance"] / cells["n"]).sqrt().to_numpy() <= PRECISE).sum())
    alone = cells.height == 1
    together = "" if alone else f" for all {cells.height:,} cells together"
    of_cells = "the cell" if alone else f"each of {cells.height:,} cells"
    fewest = f"{least.runs:,} to " if least.runs not in (None, needed.runs) else ""
    most = (
        f"{fewest}{needed.runs:,} runs, by their standard deviations so far; "
        f"{needed.runs:,} in {row['dataset']} × {row['classifier']}, cell {row['cell']}"
    )
    text = (
        f"Knowing the mean accuracy of {of_cells} to ± {PRECISE:g} (95 %, over seeds, on one "
        f"test set) takes {f'{needed.runs:,} runs' if alone else most} "
        f"({'' if is_one else f'{interval}, '}95 %{together}; from {needed.made:,} runs"
        f"{'' if is_one else f'; {assuming}'}). "
    )
    of = f" of {row['classifier']}" if alone and unknown.height else ""
    of += f" on {row['dataset']}" if of and own["dataset"].n_unique() > 1 else ""
    takes, where = f"Accuracy{of} to ± {PRECISE:g} takes", ""
    takes += f"{' up to' if fewest else ''} {needed.runs:,} seeds"
    if alone and not is_one:
        takes += f" ({interval})"
    elif fewest:
        where = f" (most: {row['dataset']} × {row['classifier']})"
    there = [part.size for part in _by_test_set(most_varied)]
    have = f"each test set has {min(there):,}{' or more' if max(there) > min(there) else ''}"
    if not alone:
        have = f"{enough:,} of {cells.height:,} cells have enough"
    if enough == cells.height:
        text += "Each repeat has enough runs for that."
    elif alone:
        text += "Its repeats have too few runs for that."
    elif enough:
        text += f"{enough} of {cells.height:,} cells have enough runs for that in their repeats."
    else:
        text += "No cell has enough runs for that yet."
    if unknown.height:
        text += f" {_no_spread(unknown, own)}"
    rows = cells.with_columns(sd=pl.col("variance").sqrt()).select("cell", "n", "sd").to_dicts()
    have += f"; {_untold(unknown, own)} not told" if unknown.height else ""
    headline = shortest([f"{takes}{where}; {have}.", f"{takes}; {have}."])
    yield Answer(headline, evidence=text, rows=rows, figures=("summary",))


def _untold(unknown: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Name classifiers of which nothing is told, where these are few."""
    is_unknown = pl.col("cell").is_in(unknown["cell"].implode())
    of = [runs.filter(each)["classifier"].cast(pl.String) for each in (is_unknown, ~is_unknown)]
    names, others = of[0].unique(maintain_order=True).to_list(), {*of[1]}
    return ", ".join(names) if len(names) <= 2 and others.isdisjoint(names) else "others"


def _no_spread(unknown: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Say in which cells runs seem to vary too little, and what is known of the first."""
    cell, resolution = unknown.select("cell", "resolution").row(0)
    found = _of_cell(runs.filter(cell=cell), resolution)
    where = "" if unknown.height == 1 else f"{unknown.height:,} cells, such as "
    return (
        f"How many seeds it takes to know the mean accuracy to ± {PRECISE:g} has no answer in "
        f"{where}{_cell_named(runs, cell)}: {found.reason}."
    )


def _cell_named(runs: pl.DataFrame, cell: int) -> str:
    row = runs.filter(cell=cell).row(0, named=True)
    return f"{row['dataset']} × {row['classifier']} (cell {cell})"


def _by_test_set(runs: pl.DataFrame) -> list[Real]:
    parts = runs.partition_by("repeat_index", maintain_order=True)
    return [one["accuracy"].to_numpy() for one in parts]


def _of_cell(runs: pl.DataFrame, resolution: float = 0.0, among: int = 1) -> RunsNeeded:
    """Return the answer of `for_mean` for the runs of a cell, one of so many."""
    values = _by_test_set(runs)
    return for_mean(f"± {PRECISE:g}", values, PRECISE, resolution=resolution, among=among)
