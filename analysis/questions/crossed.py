"""Crossed cells: what each source and each interaction adds to the variance between runs.

The runs of a repeat combine each of k values of n sources with each of the others, once. A result
is then a mean plus an independent random effect per set S of sources, with variance σ_S². The mean
square of S has (k - 1)^|S| degrees of freedom, and its expectation is the sum of k^(n - |T|) σ_T²
over all T that contain S (Searle, Casella and McCulloch 1992, chapter 4). So

    σ_S² = Σ (-1)^(|T| - |S|) MS_T / k^(n - |S|), over all T that contain S.

Intervals are those of Burdick and Graybill (1992): exact for the interaction of all sources, a
multiple of one χ²; modified large-sample limits for a sum (Graybill and Wang 1980) and for a
difference (`components.difference_limits`), each side of which has Satterthwaite's (1946) degrees
of freedom if it is a sum. With three repeats or more the t interval over repeats counts if it is
wider, as for other cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.counts import counted
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.components import Kind, Limits, around
from manyseed.analysis.questions.components import difference_limits as limits_of_difference
from manyseed.analysis.questions.howmany import (
    MAX_RUNS,
    PRECISE,
    fewest_runs,
    resolution_of,
    unresolved,
)
from manyseed.analysis.questions.howmany import answer as of_independent
from manyseed.analysis.questions.intervals import FEWEST_COMPARED
from manyseed.analysis.questions.needed import (
    RunsNeeded,
    seconds_per_run,
    short_names,
    whole_name,
)
from manyseed.analysis.questions.quantiles import chi2_quantile, t_quantile
from manyseed.analysis.questions.question import Answer, Evidence, shortest
from manyseed.analysis.questions.resolution import ROUNDING, too_alike
from manyseed.analysis.tables.rows import IS_CROSSED, REPEAT, Tables, of_cells

Real = NDArray[np.float64]
Effect = tuple[int, ...]
"""Places of sources whose joint effect is meant: (0,) the first alone, (0, 1) two interacting."""

_NOTHING = 1e-30  # equal values below 1 may seem to have this mean square


def sources_of(vary: str) -> int:
    """Return how many sources are crossed; 0 if they are not."""
    return vary.count("*") and vary.count("*") + 1


def places(sources: int, values: int) -> list[tuple[int, ...]]:
    """Return which value of each source runs 0, 1, … have, as far as the cross is full.

    Runs are numbered by the largest of their values, then by the first, the second, …
    """
    return sorted(product(range(values), repeat=sources), key=lambda one: (max(one), one))


def full(run_index: NDArray[np.integer], values: Real, sources: int) -> Real | None:
    """Return the results of a repeat's runs by value of each source: float array (k, k, …).

    The largest full cross of the first values; None if it has fewer than two values.
    """
    known = dict(zip(run_index.tolist(), values.tolist(), strict=True))
    k = 1
    while all(run in known for run in range(k**sources, (k + 1) ** sources)) and 0 in known:
        k += 1
    if k < 2:
        return None
    cross = np.empty((k,) * sources)
    for run, place in enumerate(places(sources, k)):
        cross[place] = known[run]
    return cross


def effects_of(sources: int) -> list[Effect]:
    """Return all effects: single sources, then interactions, that of all sources last."""
    return [one for size in range(1, sources + 1) for one in combinations(range(sources), size)]


def mean_squares(cross: Real) -> dict[Effect, float]:
    """Return the mean square of each effect."""
    k, found = cross.shape[0], {}
    for effect in effects_of(cross.ndim):
        own = cross
        for axis in range(cross.ndim):
            mean = own.mean(axis=axis, keepdims=True)
            own = own - mean if axis in effect else mean
        squares = float(np.square(own).sum()) * k ** (cross.ndim - len(effect))
        found[effect] = squares / (k - 1) ** len(effect)
    return found


Sum = Mapping[Effect, float]
"""A sum of mean squares: the factor of each."""


def component(effect: Effect, sources: int, k: int) -> Sum:
    """Return the variance of an effect as a sum of mean squares."""
    scale = k ** (sources - len(effect))
    return {
        other: (-1) ** (len(other) - len(effect)) / scale
        for other in effects_of(sources)
        if {*effect} <= {*other}
    }


def weighted(weights: Mapping[Effect, float], sources: int, k: int) -> Sum:
    """Return a weighted sum of the variances of effects as a sum of mean squares."""
    total = dict.fromkeys(effects_of(sources), 0.0)
    for effect, weight in weights.items():
        for other, factor in component(effect, sources, k).items():
            total[other] += weight * factor
    return {effect: factor for effect, factor in total.items() if abs(factor) > 1e-12}


def of_all(sources: int, k: int) -> Sum:
    """Return the variance between two runs that share no value, as a sum of mean squares."""
    return weighted(dict.fromkeys(effects_of(sources), 1.0), sources, k)


def of_mean(sources: int, k: int) -> Sum:
    """Return the variance of the mean over a cross, as a sum of mean squares."""
    return weighted({one: k ** -len(one) for one in effects_of(sources)}, sources, k)


@dataclass(frozen=True, slots=True)
class Crosses:
    """The mean squares of several repeats with equally many values of each source.

    `own`: by effect, float array (repeat,).
    """

    sources: int
    k: int
    own: Mapping[Effect, Real]

    @classmethod
    def of(cls, crosses: Sequence[Real]) -> Crosses:
        """Return those of crosses, cut to the smallest."""
        k, sources = min(one.shape[0] for one in crosses), crosses[0].ndim
        squares = [mean_squares(one[(slice(k),) * sources]) for one in crosses]
        own = {effect: np.array([one[effect] for one in squares]) for effect in effects_of(sources)}
        return cls(sources, k, own)

    @property
    def repeats(self) -> int:
        """Number of repeats."""
        return next(iter(self.own.values())).size

    def by_repeat(self, terms: Sum) -> Real:
        """Return a sum of mean squares in each repeat."""
        return np.asarray(sum(factor * self.own[one] for one, factor in terms.items()))

    def value(self, terms: Sum) -> float:
        """Return a sum of mean squares, the mean over repeats."""
        return float(self.by_repeat(terms).mean())

    def _freedom(self, effect: Effect) -> float:
        share = 1 / 2 if self.repeats == 2 else 1.0  # as for other cells: two count as one
        return float(share * self.repeats * (self.k - 1) ** len(effect))

    def parts(self, terms: Sum) -> list[tuple[float, float]]:
        """Return each term's absolute value and its degrees of freedom."""
        return [
            (abs(factor) * float(self.own[one].mean()), self._freedom(one))
            for one, factor in terms.items()
        ]

    def freedom(self, terms: Sum) -> float:
        """Return Satterthwaite's degrees of freedom of a sum of mean squares."""
        parts = self.parts(terms)
        squares = sum(value**2 / freedom for value, freedom in parts)
        total = sum(np.sign(f) * own for f, (own, _) in zip(terms.values(), parts, strict=True))
        return float(total**2 / squares) if squares > 0 else 0.0

    def limits(self, terms: Sum, confidence: float) -> Limits | None:
        """Return the interval of a sum of mean squares; None if nothing differs."""
        plus = {one: factor for one, factor in terms.items() if factor > 0}
        minus = {one: -factor for one, factor in terms.items() if factor < 0}
        if max(value for value, _ in self.parts(terms)) <= _NOTHING:
            return None
        if minus:
            (one, of_one), (two, of_two) = (
                (self.value(side), max(self.freedom(side), 1.0)) for side in (plus, minus)
            )
            low, high = limits_of_difference(one, of_one, two, of_two, confidence)
        else:
            low, high = _limits_of_sum(self.parts(plus), confidence)
        if self.repeats >= FEWEST_COMPARED:
            each = self.by_repeat(terms)
            half = t_quantile(self.repeats - 1, (1 + confidence) / 2) * each.std(ddof=1)
            kind: Kind = "other" if minus else "positive"
            ends = around(float(each.mean()), float(half / self.repeats**0.5), kind)
            low, high = min(low, ends[0]), max(high, ends[1])
        return float(low), float(high)


def _limits_of_sum(parts: Sequence[tuple[float, float]], confidence: float) -> Limits:
    """Return the limits of Graybill and Wang for a sum; exact if all terms but one are 0."""
    tail, value = (1 - confidence) / 2, sum(own for own, _ in parts)
    below = sum(((1 - f / chi2_quantile(f, 1 - tail)) * own) ** 2 for own, f in parts)
    above = sum(((f / chi2_quantile(f, tail) - 1) * own) ** 2 for own, f in parts)
    return float(value - below**0.5), float(value + above**0.5)


def mean_error(values: Real, sources: int) -> tuple[float, float]:
    """Return the variance of the mean of a repeat's runs over seeds, and its degrees of freedom.

    `values`, float array (run,): those of a full cross, by run index; otherwise (NaN, 0).
    """
    cross = full(np.arange(values.size), values, sources)
    if cross is None or cross.size != values.size:
        return float("nan"), 0.0
    crosses = Crosses.of([cross])
    every = effects_of(sources)
    least = {every[-1]: 1 / cross.size}  # the part of the interaction, which is never negative
    terms = max((of_mean(sources, crosses.k), least), key=crosses.value)
    if crosses.value(terms) <= _NOTHING:
        return 0.0, float(crosses.k - 1)
    return crosses.value(terms), max(crosses.freedom(terms), 1.0)


@dataclass(frozen=True, slots=True)
class CrossedSpread:
    """How much runs vary that share no value.

    `variance` has the interval `limits`, None if nothing differs. `freedom`: that of runs that
    share no value. `runs`: those of the full crosses.
    """

    variance: float
    limits: Limits | None
    freedom: float
    runs: int


def spread(runs: pl.DataFrame, sources: int, confidence: float) -> CrossedSpread | None:
    """Return the spread of a crossed cell, as the table of variances has it; None without a cross.

    `runs`: columns `repeat_index`, `run_index` and `accuracy`.
    """
    held = [
        full(own["run_index"].to_numpy(), own["accuracy"].to_numpy(), sources)
        for own in runs.drop_nulls("accuracy")
        .sort("repeat_index")
        .partition_by("repeat_index", maintain_order=True)
    ]
    known = [cross for cross in held if cross is not None]
    if not known:
        return None
    crosses = Crosses.of(known)
    terms = of_all(sources, crosses.k)
    freedom, n = crosses.repeats * (crosses.k - 1.0), crosses.repeats * crosses.k**sources
    return CrossedSpread(crosses.value(terms), crosses.limits(terms, confidence), freedom, n)


def of_pairs(both: Real, wrong: Real, sources: int) -> dict[Effect, float] | None:
    """Return the variance of each effect on being wrong, averaged over points.

    `both`, float array (run, run): how often both runs of a pair are wrong, of a full cross by run
    index. `wrong`, float array (run,). The expectation for pairs that share exactly the values of S
    is that for pairs that share none, plus σ_T² of every T within S. None if a pair is undefined.
    """
    k = round(wrong.size ** (1 / sources))
    own = np.array(places(sources, k))
    together = np.where(np.eye(wrong.size, dtype=bool), wrong[:, None], both)
    if own.shape[0] != wrong.size or np.isnan(together).any():
        return None
    same = own[:, None, :] == own[None, :, :]
    means = {}
    for shared in ((), *effects_of(sources)):
        exactly = (same == [axis in shared for axis in range(sources)]).all(axis=-1)
        means[shared] = float(together[exactly].mean())
    return {
        effect: sum(
            (-1) ** (len(effect) - len(part)) * mean
            for part, mean in means.items()
            if {*part} <= {*effect}
        )
        for effect in effects_of(sources)
    }


def howmany(
    tables: Tables, *, accuracy: float, consistency: float, confidence: float = CONFIDENCE
) -> list[RunsNeeded] | None:
    """Answer as `questions.howmany.howmany` for a crossed cell; None for others, or several kinds.

    The mean over k values of each source has the variance Σ σ_S² / k^|S|.
    """
    vary = tables.repeats["vary"].cast(pl.String).unique() if "vary" in tables.repeats else [""]
    if len(vary) != 1 or not (sources := sources_of(vary[0])):
        return None
    confidently = f"at {100 * confidence:g} % confidence"
    first = f"accuracy ± {accuracy:g} {confidently}"
    one = _of_accuracy(first, tables, sources, accuracy, confidence)
    reason = "pairs of crossed runs share values, so it cannot be told for crossed cells"
    second = f"local error consistency ± {consistency:g} {confidently}"
    return [one, replace(one, purpose=second, runs=None, seconds=None, reason=reason)]


def _of_accuracy(
    purpose: str, tables: Tables, sources: int, half_width: float, confidence: float
) -> RunsNeeded:
    """Answer for the mean accuracy over a full cross, by the variance of each of its effects."""
    runs = tables.runs.drop_nulls("accuracy").sort("run_index")
    crosses = [
        full(own["run_index"].to_numpy(), own["accuracy"].to_numpy(), sources)
        for own in runs.partition_by(REPEAT, maintain_order=True)
    ]
    known = [cross for cross in crosses if cross is not None]
    untold = RunsNeeded(purpose, None, None, None, runs.height, max(len(known), 1), confidence)
    if not known:
        return replace(untold, reason="no repeat has 2 values of each source, all combined")
    found = Crosses.of(known)
    parts = {
        effect: max(found.value(component(effect, sources, found.k)), 0.0)
        for effect in effects_of(sources)
    }
    step, whole = resolution_of(tables.repeats), sum(parts.values())
    if too_alike(whole, step):
        freedom = found.repeats * (found.k - 1)  # of runs that share no value
        reason, values = unresolved(whole, freedom, runs.height, step, half_width, confidence)
        bound = None if values is None else values**sources  # if all is of one source
        reason = reason.replace(f"{values:,} runs", f"{bound:,} runs") if bound else reason
        return replace(untold, high=bound, reason=reason)

    def variance(values: int) -> float:
        return sum(part / float(values ** len(effect)) for effect, part in parts.items())

    values = fewest_runs(variance, half_width, confidence)
    if values is None or values**sources > MAX_RUNS:
        return replace(untold, reason=f"it takes more than {MAX_RUNS:,} runs")
    each = seconds_per_run(tables.runs)
    times = " × ".join([f"{values:,}"] * sources)
    return replace(
        untold,
        runs=values**sources,
        seconds=None if each is None else values**sources * each,
        reason=f"a full cross of {times} values, by the variances of sources and interactions; the "
        f"mean is over seeds, on one fixed test set; from {counted(runs.height, 'run')} of "
        f"{counted(len(known), 'repeat')}",
    )


def answer(evidence: Evidence) -> Iterator[Answer]:
    """Say how many seeds it takes to know each cell's mean accuracy to `PRECISE`.

    Of crossed cells, apart from others, how many runs a full cross has that tells it, by all runs.
    """
    every = evidence.tables if evidence.every is None else evidence.every
    if "vary" not in every.cells.columns:
        yield from of_independent(evidence)
        return
    others = of_cells(every, every.cells.filter(~IS_CROSSED))
    yield from of_independent(replace(evidence, tables=others))
    runs, found = every.runs.filter(IS_CROSSED), list[tuple[dict[str, object], RunsNeeded]]()
    for cell in every.cells.filter(IS_CROSSED)["cell"]:
        own = of_cells(every, every.cells.filter(cell=cell))
        told = howmany(own, accuracy=PRECISE, consistency=PRECISE)
        if told and told[0].made:
            found.append((own.runs.row(0, named=True), told[0]))
    if found:
        yield _needed(found, runs)


_NAMED = 3


def _needed(found: Sequence[tuple[Mapping[str, object], RunsNeeded]], runs: pl.DataFrame) -> Answer:
    """Say how many runs the crossed cell takes that takes most, and how many cells have enough."""
    most, one = max(found, key=lambda each: (each[1].runs or 0, each[1].high or 0))
    have = f"each test set has {one.made // one.repeats:,}"
    places = [""]
    if len(found) > 1:
        places = [*short_names(most, runs), ""]
        enough = sum(each.enough is True for _, each in found)
        have = f"{enough:,} of {len(found):,} cells have enough"
    if one.runs is not None:
        k = round(one.runs ** (1 / sources_of(str(most["vary"]))))
        crossed = " × ".join([f"{k:,}"] * sources_of(str(most["vary"])))
        up_to = " up to" if len(found) > 1 else ""
        headlines = [
            f"Accuracy to ± {PRECISE:g} takes{up_to} {one.runs:,} runs, crossed{each}; {have}."
            for each in (*(f" {crossed}{place}" for place in places), "")
        ]
    elif one.high is not None:
        headlines = [
            f"Accuracy to ± {PRECISE:g} takes {one.high:,} crossed runs at most: spreads so far "
            "are below one test point."
        ]
    else:
        headlines = [f"How many crossed runs accuracy ± {PRECISE:g} takes is not told."]
    text = " ".join(f"{whole_name(row, runs)}: {each.words}" for row, each in found[:_NAMED])
    rows = [{"cell": row["cell"], "runs": each.runs, "n": each.made} for row, each in found]
    return Answer(shortest(headlines), evidence=text, rows=rows, figures=("summary",))


DESIGN = (
    "With crossed sources, such as vary = init*batch, 5 × 5 runs tell a source that makes half of "
    "the variance, and 8 × 8 one that makes a quarter, in over 8 of 10 cases."
)


def untold(variance: pl.DataFrame | None, *, together: bool = False) -> str:
    """Say why no source is told from 0, and which design would tell; empty if one is.

    `variance`: the table of variances; None if there is none. `together`: a source must be told
    where all cells are judged together.
    """
    rows = None if variance is None else variance.filter(metric="accuracy")
    if rows is None or rows.is_empty():
        return "No cell has a repeat with two runs or more that differ, so nothing has a share."
    if (rows.filter(part="all")["variance"] <= ROUNDING).all():
        return "Nothing differs: on each test set, all runs of a cell have the same accuracy."
    own = rows.filter(part="own")
    if own.is_empty():
        return f"In no cell does a source vary apart from the others. {DESIGN}"
    if told := own.filter(pl.col("low") > 0)["cell"].n_unique():
        if not together:
            return ""
        return (
            f"A source is told from 0 in {counted(told, 'cell')} taken alone, but in none where "
            f"all {own['cell'].n_unique():,} are judged together."
        )
    n = int(own["n_runs"].to_numpy().max())
    return f"Too few runs: by itself, no source is told from 0, from {n:,} runs at most. {DESIGN}"
