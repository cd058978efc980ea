"""What a metric is: a record that says how it is computed part by part.

To add a metric is to add a record to `analysis.metrics`. A repeat, the runs that share a test set,
comes in one part or, where it is large, in several. A record first gathers what its parts must know
of each other, then computes each part (or each two parts) alone, and finishes the repeat from what
that gave; the result is the same bit for bit however the repeat was cut.
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
        What the table of repeats holds of it (`analysis.metrics.summaries`).
    """

    name: str
    dtype: type[pl.DataType]
    unit: str
    meaning: str
    summaries: tuple[str, ...] = ()


def real(
    name: str, unit: str, meaning: str, summaries: tuple[str, ...] = ("mean", "range")
) -> Column:
    """Return a column of real numbers, of which repeats have the mean and the range.

    Parameters
    ----------
    name, unit, meaning : str
    summaries : tuple of str
        What repeats have of it instead, names of `analysis.metrics.summaries`.
    """
    return Column(name, pl.Float64, unit, meaning, summaries)


@dataclass(frozen=True)
class HeldOut:
    """One test set, shared by all repeats with the same repeat index.

    `problem` says why nothing can be computed on it, if nothing can.
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
        """Random splits in two halves, the same for every cell tested on this test set."""
        return disjoint_halves(self.bits("alpha_hat"), self.n_test, self.resamples)

    @cached_property
    def drawn_halves(self) -> Resamples:
        """Two sides of half as many points as there are, drawn with replacement from all."""
        bits = self.bits("alpha_hat_drawn_halves")
        return bootstraps(bits, self.n_test, self.n_test // 2, self.resamples)

    @cached_property
    def bootstraps(self) -> Resamples:
        """Two sides of as many points as there are, drawn with replacement from all."""
        bits = self.bits("alpha_hat_bootstraps")
        return bootstraps(bits, self.n_test, self.n_test, self.resamples)

    def points(self, share: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the points that choose and, about `share` of all, those that are held out.

        In order; held out are those with the smallest of `n_test` raw words of the stream
        ``holdout``, one of them and one other at least where there are two.
        """
        known: dict[float, tuple[NDArray[np.intp], NDArray[np.intp]]]
        known = vars(self).setdefault("_points", {})
        if share not in known:
            n_out = min(max(round(share * self.n_test), 1), max(self.n_test - 1, 0))
            order = np.argsort(self.bits("holdout").random_raw(self.n_test), kind="stable")
            known[share] = np.sort(order[n_out:]), np.sort(order[:n_out])
        return known[share]

    def apart(self, share: float) -> HeldOut:
        """Return the test set of the points that choose (`points`)."""
        known: dict[float, HeldOut] = vars(self).setdefault("_apart", {})
        if share not in known:
            known[share] = replace(self, y_true=self.y_true[self.points(share)[0]])
        return known[share]

    def bits(self, purpose: str) -> np.random.PCG64:
        """Return the bit generator of one purpose on this test set."""
        return generator(self.seed, purpose, self.dataset_id, self.repeat_index)


@dataclass(frozen=True, slots=True)
class Part:
    """Some runs of a repeat, neighbours in the order of their run index.

    What a metric does not need may be missing.

    Attributes
    ----------
    held_out : HeldOut
    start : int
        Position of the first of them in the repeat.
    n_repeat : int
        Runs of the whole repeat (K).
    label : unsigned integer array (run, sample)
    margin : float array (run, sample) or None
        The probe: logit gap for two classes, true-class margin for more.
    confidence : float array (run, sample) or None
        Probability of the predicted class.
    score : float array (run, sample, class) or None
    reference_margin : float array (run, sample) or None
        Margin at the epoch of α̂'s reference, where that is another.
    train_accuracy : float array (run,) or None
        Share of the training rows that each run gets right, at the last snapshot; NaN where that
        is not known.
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
        In place of `pairs`, where they are too many to be listed.
    repeat : mapping of column name to array of shape ()
    failure : str or None
        Why a user's own metric could not be computed, with "it" before it.
    """

    runs: Values = field(default_factory=dict)
    pairs: Values = field(default_factory=dict)
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    repeat: Values = field(default_factory=dict)
    failure: str | None = None


def gather_nothing(part: Part, options: Options) -> None:
    """Gather nothing: parts need not know of each other."""
    del part, options


def share_nothing(held_out: HeldOut, gathered: Sequence[Any], options: Options) -> None:
    """Share nothing."""
    del held_out, gathered, options


def always(n_classes: int, n_test: int, options: Options) -> None:
    """Allow everything."""
    del n_classes, n_test, options


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is computed.

    Attributes
    ----------
    name : str
    needs : Need
        What it is computed from (`Predictions.source`).
    source : str
        Where the quantity is defined.
    chunk : callable
        (part, other part, shared, options) to a partial result. A record that isn't `pairwise` is
        given each part with itself.
    finish : callable
        (test set, partial results, options) to the values of the columns; NaN means undefined.
        Partial results come in the order of the runs: the first part with each, then the second.
    gather : callable
        (part, options) to what the others must know of it.
    share : callable
        (test set, what all parts gathered, options) to what each chunk is given.
    allowed : callable
        (number of classes, of test points, options); raises `Refused` where the metric has no
        meaning.
    pairwise : bool
        Whether parts are computed two by two, the first never after the second, from their labels
        alone; such a record gathers and shares nothing, and its partial results can be added.
    runs, pairs, repeat : tuple of Column
        The columns it gives to the tables of runs, of pairs and of repeats.
    """

    name: str
    needs: Need
    source: str
    chunk: Callable[[Part, Part, Any, Options], Any]
    finish: Callable[[HeldOut, Sequence[Any], Options], Finished]
    gather: Callable[[Part, Options], Any] = gather_nothing
    share: Callable[[HeldOut, Sequence[Any], Options], Any] = share_nothing
    allowed: Callable[[int, int, Options], None] = always
    pairwise: bool = False
    runs: tuple[Column, ...] = ()
    pairs: tuple[Column, ...] = ()
    repeat: tuple[Column, ...] = ()
