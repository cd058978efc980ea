"""A metric is a record of functions that compute it part by part.

A record in any module of this package is a metric (`analysis.metrics.registry`). A repeat, the
runs that share a test set, comes in one part or, if it is large, in several. A record first gathers
what its parts must know of each other, then computes each part (or pair of parts) alone, and
finishes the repeat from these partial results. Results are the same bit for bit however the repeat
is split. Columns over the runs or pairs of a repeat are summarised here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.alphahat.resampling import Resamples, bootstraps, disjoint_halves, generator
from manyseed.analysis.options import Options

Real = NDArray[np.float64]

MEANINGS = {
    "n": "How many are defined",
    "mean": "Mean",
    "std": "Standard deviation (n - 1)",
    "min": "Smallest",
    "max": "Largest",
    "range": "Largest minus smallest (of two or more)",
    "q05": "5 % quantile",
    "median": "Median",
    "q95": "95 % quantile",
}
QUANTILES = {"q05": 0.05, "median": 0.5, "q95": 0.95}

BETTER: Mapping[str, str] = {
    **dict.fromkeys(("accuracy", "balanced_accuracy", "f1_macro", "matthews_corrcoef"), "more"),
    **dict.fromkeys(("roc_auc", "average_precision", "log_likelihood", "cll"), "more"),
    **dict.fromkeys(("ensemble_accuracy", "holdout_accuracy", "train_accuracy"), "more"),
    **dict.fromkeys(("dee", "close"), "more"),
    **dict.fromkeys(("error", "ece", "brier", "brier_per_class", "log_loss", "aurc"), "less"),
    **dict.fromkeys(("c_ece", "c_brier", "c_aurc", "tace", "c_tace"), "less"),
    **dict.fromkeys(("alpha_hat", "alpha_hat_low", "alpha_hat_high", "alpha_hat_majority"), "less"),
    **dict.fromkeys(("alpha_hat_rejected", "alpha_hat_infeasible", "ks_distance"), "less"),
    **dict.fromkeys(("churn", "churn_points", "churn_mean", "accuracy_range"), "less"),
    **dict.fromkeys(("churn_ensemble", "churn_ensemble_points"), "less"),
    **dict.fromkeys(("churn_loo_ensemble", "churn_loo_ensemble_points"), "less"),
    "generalization_gap": "less",
}
"""Of which columns of our tables less, or more, is better; users' own metrics are not known."""

_SUMMARIES = (*("mean", "min", "max", "q05", "median", "q95", "lo", "hi"), "lower", "upper")
_ENDINGS = (*_SUMMARIES, "close", "judged")


def better(name: str) -> str:
    """Return "less" or "more", whichever is better in a column; empty for neither, or a spread."""
    if name in BETTER:
        return BETTER[name]
    of, _, ending = name.rpartition("_")
    return better(of) if of and ending in _ENDINGS else ""


DIRECTIONS = {True: " Higher is better.", False: " Lower is better."}
"""What the meaning of a user's own metric ends in, where its function says which is better."""


def higher_is_better(name: str, meaning: str = "") -> bool | None:
    """Return whether higher values of a column are better; None if that is not known.

    `meaning`: of the column, which says so of a user's own metric.
    """
    if name in BETTER:
        return BETTER[name] == "more"
    return next((way for way, words in DIRECTIONS.items() if meaning.endswith(words)), None)


def dtype_of(summary: str) -> type[pl.DataType]:
    """Return the column type of a summary."""
    return pl.UInt32 if summary == "n" else pl.Float64


def summarise(values: NDArray[np.floating[Any]], names: Sequence[str]) -> dict[str, float]:
    """Summarise the values of a column that are not NaN.

    Parameters
    ----------
    values : float array (n,)
    names : sequence of str
        Keys of `MEANINGS`, such as mean, std, range and q05.

    Returns
    -------
    dict of name to value
        NaN if no value is defined, or fewer than two for `std` and `range`.
    """
    quantiles = [name for name in names if name in QUANTILES]
    levels = np.array([QUANTILES[name] for name in quantiles], dtype=np.float64)
    contiguous = np.ascontiguousarray(values, dtype=np.float64)
    from manyseed.analysis.metrics.gram import moments

    n, mean, std, lowest, highest, at_levels = moments(contiguous, levels)
    known = {
        "mean": mean,
        "std": std,
        "min": lowest,
        "max": highest,
        "range": highest - lowest if n > 1 else np.nan,
        **dict(zip(quantiles, at_levels.tolist(), strict=True)),
    }
    return {name: float(n) if name == "n" else known.get(name, np.nan) for name in names}


UNIT = 2.0**-40  # sums are whole multiples of this, so that the order of adding changes no bit
BINS = 1 << 13  # over [-1, 1]: a bin is 1/4096 wide


@dataclass(frozen=True, slots=True)
class Spread:
    """Count, sum, extremes and histogram of values between -1 and 1.

    Attributes
    ----------
    n : int
        Number of defined values.
    total : int
        Their sum in units of 2**-40.
    low, high : float
    histogram : int64 array (8192,)
        Counts in bins of equal width over [-1, 1].
    scale : float
        Factor of every summary except the count.
    """

    n: int
    total: int
    low: float
    high: float
    histogram: NDArray[np.int64]
    scale: float = 1.0

    @classmethod
    def of(cls, values: NDArray[np.floating[Any]]) -> Spread:
        """Describe the values that are not NaN."""
        defined = values[~np.isnan(values)]
        if defined.size == 0:
            return cls(0, 0, np.inf, -np.inf, np.zeros(BINS, dtype=np.int64))
        bins = np.minimum(((defined + 1) * (BINS / 2)).astype(np.int64), BINS - 1)
        return cls(
            n=int(defined.size),
            total=int(np.rint(defined / UNIT).astype(np.int64).sum()),
            low=float(defined.min()),
            high=float(defined.max()),
            histogram=np.bincount(bins, minlength=BINS),
        )

    def __add__(self, other: Spread) -> Spread:
        return Spread(
            self.n + other.n,
            self.total + other.total,
            min(self.low, other.low),
            max(self.high, other.high),
            self.histogram + other.histogram,
        )

    def scaled(self, scale: float) -> Spread:
        """Return the distribution of the values times `scale`."""
        return replace(self, scale=self.scale * scale)

    def summary(self, names: Sequence[str]) -> dict[str, float]:
        """Summarise the values as `summarise` does.

        Quantiles are exact to half a bin, 1/8192; the standard deviation is NaN.
        """
        if self.n == 0:
            return {name: 0.0 if name == "n" else np.nan for name in names}
        known = {
            "mean": self.low if self.low == self.high else self.total * UNIT / self.n,
            "min": self.low,
            "max": self.high,
            "range": self.high - self.low if self.n > 1 else np.nan,
            **{name: self._quantile(level) for name, level in QUANTILES.items()},
        }
        return {
            name: float(self.n) if name == "n" else known.get(name, np.nan) * self.scale
            for name in names
        }

    def _quantile(self, level: float) -> float:
        """Interpolate between the two neighbouring values, as NumPy does by default."""
        rank = level * (self.n - 1)
        below, above = (self._ordered(k) for k in (int(rank), min(int(rank) + 1, self.n - 1)))
        return below + (above - below) * (rank - int(rank))

    def _ordered(self, index: int) -> float:
        """Return the value at this index in ascending order, exact to half a bin."""
        bin_ = np.searchsorted(np.cumsum(self.histogram), index, side="right")
        return float(np.clip((bin_ + 0.5) * (2 / BINS) - 1, self.low, self.high))


Need = Literal["label", "margin", "confidence", "score", "ensemble"]
Probability = Literal["softmax", "ovr", "none"]
Values = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result table.

    Attributes
    ----------
    summaries : tuple of str
        Its summaries in the table of repeats (`MEANINGS`).
    """

    name: str
    dtype: type[pl.DataType]
    unit: str
    meaning: str
    summaries: tuple[str, ...] = ()


def real(
    name: str, unit: str, meaning: str, summaries: tuple[str, ...] = ("mean", "range")
) -> Column:
    """Return a column of real numbers; by default repeats hold its mean and range."""
    return Column(name, pl.Float64, unit, meaning, summaries)


@dataclass(frozen=True)
class HeldOut:
    """One test set, shared by all repeats with the same repeat index.

    `problem` says why nothing can be computed on it, None if it can.
    """

    y_true: NDArray[np.integer[Any]]
    n_classes: int
    probability: Probability
    seed: int
    dataset_id: str
    repeat_index: int
    resamples: int
    problem: str | None = None

    @property
    def n_test(self) -> int:
        """Number of test points (N_test)."""
        return int(self.y_true.size)

    @cached_property
    def halves(self) -> Resamples:
        """Random splits into two halves, the same for every cell with this test set."""
        return disjoint_halves(self.bits("alpha_hat"), self.n_test, self.resamples)

    @cached_property
    def drawn_halves(self) -> Resamples:
        """Two sides of n_test // 2 points each, drawn with replacement from all."""
        bits = self.bits("alpha_hat_drawn_halves")
        return bootstraps(bits, self.n_test, self.n_test // 2, self.resamples)

    @cached_property
    def bootstraps(self) -> Resamples:
        """Two sides of n_test points each, drawn with replacement from all."""
        bits = self.bits("alpha_hat_bootstraps")
        return bootstraps(bits, self.n_test, self.n_test, self.resamples)

    def points(self, share: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the points that choose runs and the held-out points, about `share` of all.

        Both ascend. The held-out points are those with the smallest of `n_test` raw words of the
        stream ``holdout``; both sides have at least one point if there are two.
        """
        cache: dict[float, tuple[NDArray[np.intp], NDArray[np.intp]]]
        cache = vars(self).setdefault("_points", {})
        if share not in cache:
            n_out = min(max(round(share * self.n_test), 1), max(self.n_test - 1, 0))
            order = np.argsort(self.bits("holdout").random_raw(self.n_test), kind="stable")
            cache[share] = np.sort(order[n_out:]), np.sort(order[:n_out])
        return cache[share]

    def apart(self, share: float) -> HeldOut:
        """Return the test set without its held-out points (`points`)."""
        cache: dict[float, HeldOut] = vars(self).setdefault("_apart", {})
        if share not in cache:
            cache[share] = replace(self, y_true=self.y_true[self.points(share)[0]])
        return cache[share]

    def bits(self, purpose: str) -> np.random.PCG64:
        """Return this test set's bit generator for one purpose."""
        return generator(self.seed, purpose, self.dataset_id, self.repeat_index)


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive runs of a repeat, in the order of their run index.

    Arrays that a metric does not need may be missing.

    Attributes
    ----------
    held_out : HeldOut
    start : int
        Position of the first run in the repeat.
    n_repeat : int
        Runs of the whole repeat (K).
    label : unsigned integer array (run, sample)
    margin : float array (run, sample) or None
        The probe: logit gap for two classes, true-class margin for more.
    confidence : float array (run, sample) or None
        Probability of the predicted class.
    score : float array (run, sample, class) or None
    reference_margin : float array (run, sample) or None
        Margin at the epoch of α̂'s reference, if it differs.
    train_accuracy : float array (run,) or None
        Share of the training rows that each run gets right, at the last snapshot; NaN if unknown.
    """

    held_out: HeldOut
    start: int
    n_repeat: int
    label: NDArray[np.unsignedinteger[Any]]
    margin: NDArray[np.floating[Any]] | None = None
    confidence: NDArray[np.floating[Any]] | None = None
    score: NDArray[np.floating[Any]] | None = None
    reference_margin: NDArray[np.floating[Any]] | None = None
    train_accuracy: NDArray[np.floating[Any]] | None = None

    @property
    def n_runs(self) -> int:
        """Number of runs of the part."""
        return int(self.label.shape[0])

    @property
    def y_true(self) -> NDArray[np.integer[Any]]:
        """True class of each test point, (sample,)."""
        return self.held_out.y_true


@dataclass(frozen=True, slots=True)
class Finished:
    """A metric's values for one repeat.

    Attributes
    ----------
    runs : mapping of column name to array (run,)
    pairs : mapping of column name to array (pair,)
        Pairs i < j of run positions, i first, as `numpy.triu_indices` lists them.
    spreads : mapping of column name to Spread
        In place of `pairs`, if there are too many to list.
    repeat : mapping of column name to array of shape ()
    failure : str or None
        Why a user's own metric could not be computed: a predicate whose subject is "it".
    """

    runs: Values = field(default_factory=dict)
    pairs: Values = field(default_factory=dict)
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    repeat: Values = field(default_factory=dict)
    failure: str | None = None


def nothing(*_: Any) -> None:
    """Do nothing: the default of steps that most metrics do not need."""


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is computed.

    Attributes
    ----------
    name : str
    needs : Need
        The predictions it is computed from (`Predictions.source`).
    source : str
        Where the quantity is defined.
    chunk : callable
        (part, other part, shared, options) to a partial result. A record that isn't `pairwise` is
        given each part as both.
    finish : callable
        (test set, partial results, options) to the values of the columns; NaN means undefined.
        Partial results come in the order of the runs: the first part with each, then the second.
    gather : callable
        (part, options) to what other parts must know of it.
    share : callable
        (test set, gathered results of all parts, options) to `shared` of each chunk.
    allowed : callable
        (number of classes, number of test points, options); raises `Refused` if the metric is not
        defined for them.
    pairwise : bool
        Whether it compares pairs of parts, the first never after the second, by labels alone; such
        a record gathers and shares nothing, and its partial results can be added.
    runs, pairs, repeat : tuple of Column
        The columns it adds to the tables of runs, pairs and repeats.
    """

    name: str
    needs: Need
    source: str
    chunk: Callable[[Part, Part, Any, Options], Any]
    finish: Callable[[HeldOut, Sequence[Any], Options], Finished]
    gather: Callable[[Part, Options], Any] = nothing
    share: Callable[[HeldOut, Sequence[Any], Options], Any] = nothing
    allowed: Callable[[int, int, Options], None] = nothing
    pairwise: bool = False
    runs: tuple[Column, ...] = ()
    pairs: tuple[Column, ...] = ()
    repeat: tuple[Column, ...] = ()
