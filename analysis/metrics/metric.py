"""A metric is a record of functions that compute it part by part.

To add a metric, add a record to `analysis.metrics.registry`. A repeat, the runs that share a test
set, comes in one part or, if it is large, in several. A record first gathers what its parts must
know of each other, then computes each part (or pair of parts) alone, and finishes the repeat from
these partial results. Results are the same bit for bit however the repeat is split.
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
from manyseed.analysis.metrics.spread import Spread
from manyseed.analysis.options import Options

Need = Literal["label", "margin", "confidence", "score", "ensemble"]
Probability = Literal["softmax", "ovr", "none"]
Values = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result table.

    Attributes
    ----------
    summaries : tuple of str
        Its summaries in the table of repeats (`analysis.metrics.summaries`).
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
