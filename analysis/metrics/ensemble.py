"""The ensemble of a repeat's runs: its accuracy, and the churn of each run against it.

Sums of scores are the same bit for bit in any order and grouping: a score is split into digits of
46 bits, the lowest of which counts multiples of `UNIT`, and each digit is summed in integers.
Scores below 2**14 have the lowest digit alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part, real
from manyseed.analysis.metrics.probabilities import slices
from manyseed.analysis.options import Options

UNIT = 2.0**-32  # scores are rounded to multiples of this
BITS = 46  # of a digit; 2**17 digits can be summed in 64 bits
INFINITE = 1 << 16  # place of the digit for infinite scores, above all others

Digits = Mapping[int, NDArray[np.int64]]
"""Integers by the place of their digit, 0 the lowest; missing places are zero."""


def digits(values: NDArray[np.floating[Any]]) -> Digits:
    """Return the digits of scores without NaN; opposite infinities cancel in a sum."""
    rest = values.astype(np.float64)
    by_place: dict[int, NDArray[np.int64]] = {}
    infinite = np.isinf(rest)
    if infinite.any():
        by_place[INFINITE] = np.where(infinite, np.sign(rest), 0).astype(np.int64)
        rest[infinite] = 0
    largest = float(np.abs(rest).max(initial=0))
    exponent = math.frexp(largest)[1] + 32  # largest < 2**exponent units
    for place in range(max((exponent - 1) // BITS, 0), 0, -1):
        unit = 2.0 ** (BITS * place) * UNIT
        digit = np.trunc(rest / unit)
        rest -= digit * unit  # exact: only removes leading bits
        by_place[place] = digit.astype(np.int64)
    by_place[0] = np.rint(rest / UNIT).astype(np.int64)
    return by_place


def added(sums: Iterable[Digits]) -> Digits:
    """Return the sum of sums."""
    total: dict[int, NDArray[np.int64]] = {}
    for each in sums:
        for place, digit in each.items():
            if place in total:
                total[place] += digit
            else:
                total[place] = digit.copy()
    return total


def without(total: Digits, own: Digits) -> Digits:
    """Return sums (…) minus each run's own part of them (run, …)."""
    none = np.zeros(1, dtype=np.int64)
    return {place: total.get(place, none) - own.get(place, none) for place in {*total, *own}}


def labels_of_sum(total: Digits, *, gaps: bool | None = None) -> NDArray[np.int64]:
    """Return the class that sums of gaps (…, sample) or of scores (…, sample, class) predict.

    As for single scores, a tie is the positive class of two, or the first of more. Without `gaps`,
    sums with one axis are sums of gaps.
    """
    finite = {place: digit for place, digit in total.items() if place != INFINITE}
    ordered = _carried(finite)
    infinite = total.get(INFINITE)
    if ordered[0].ndim == 1 if gaps is None else gaps:  # the sign is that of the highest digit
        highest = ordered[0]
        leading = highest if infinite is None else np.where(infinite != 0, infinite, highest)
        positive: NDArray[np.int64] = (leading >= 0).astype(np.int64)
        return positive
    leads = np.ones(ordered[0].shape, dtype=np.bool_)
    for digit in ordered if infinite is None else [infinite, *ordered]:
        best = np.where(leads, digit, np.iinfo(np.int64).min)
        leads &= digit == best.max(axis=-1, keepdims=True)
    first: NDArray[np.int64] = leads.argmax(axis=-1).astype(np.int64)
    return first


def _carried(total: Digits) -> list[NDArray[np.int64]]:
    """Return the digits, highest first; all but the highest are in 0 … 2**46 - 1."""
    carried = []
    carry = np.zeros_like(total[0])
    for place in range(max(total)):
        digit = total.get(place, 0) + carry
        carry = digit >> BITS
        carried.append(digit - (carry << BITS))
    carried.append(total[max(total)] + carry)
    return carried[::-1]


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The average of a repeat's runs (RKS, eq. 9).

    Attributes
    ----------
    total : Digits
        Sum of the runs' gaps (sample,) or scores (sample, class).
    label : int64 array (sample,)
        Class of the largest average score; with two classes 1 where the average gap is at least 0.
    size : int
        Its runs: those without NaN.
    """

    total: Digits
    label: NDArray[np.int64]
    size: int


@dataclass(frozen=True, slots=True)
class EnsembleChurn:
    """Test points that runs label differently from the ensemble of all runs, or of all others.

    Attributes
    ----------
    all, others : float64 arrays (run,)
        NaN where there is no such ensemble.
    right : float
        Share of the test points that the ensemble of all gets right.
    """

    all: NDArray[np.float64]
    others: NDArray[np.float64]
    right: float


def _values(part: Part) -> NDArray[np.floating[Any]]:
    two = part.held_out.n_classes == 2 and part.margin is not None
    values = part.margin if two else part.score
    if values is None:
        raise ValueError("an ensemble needs the gap of two classes or the scores of all")
    return values


def _gather(part: Part, options: Options) -> tuple[Digits, int]:
    usable = [run for run in _values(part) if not np.isnan(run).any()]
    return added(digits(run) for run in usable), len(usable)


def _share(held_out: HeldOut, gathered: Sequence[tuple[Digits, int]], options: Options) -> Ensemble:
    total = added(total for total, _ in gathered)
    size = sum(size for _, size in gathered)
    return Ensemble(
        total, labels_of_sum(total) if size else np.zeros(held_out.n_test, np.int64), size
    )


def _chunk(part: Part, _: Part, ensemble: Ensemble, options: Options) -> EnsembleChurn:
    if ensemble.size == 0:
        undefined = np.full(part.n_runs, np.nan)
        return EnsembleChurn(undefined, undefined, np.nan)
    from_all = (part.label != ensemble.label).sum(axis=1).astype(np.float64)
    # for a run that is no member, the ensemble of all others is the ensemble
    from_others, values = from_all.copy(), _values(part)
    for rows in slices(part.n_runs, 8 * values[0].size):
        member = ~np.isnan(values[rows]).any(axis=tuple(range(1, values.ndim)))
        own = digits(values[rows][member])
        others = labels_of_sum(without(ensemble.total, own), gaps=values.ndim == 2)
        from_others[rows][member] = (part.label[rows][member] != others).sum(axis=1)
        if ensemble.size == 1:
            from_others[rows][member] = np.nan
    right = float((ensemble.label == part.y_true).mean())
    return EnsembleChurn(from_all, from_others, right)


def _finish(held_out: HeldOut, partials: Sequence[EnsembleChurn], options: Options) -> Finished:
    from_all = np.concatenate([part.all for part in partials])
    from_others = np.concatenate([part.others for part in partials])
    return Finished(
        runs={
            "churn_ensemble": from_all / held_out.n_test,
            "churn_ensemble_points": from_all,
            "churn_loo_ensemble": from_others / held_out.n_test,
            "churn_loo_ensemble_points": from_others,
        },
        repeat={"ensemble_accuracy": np.asarray(partials[0].right)},
    )


_AS_POINTS = "The same as a number of points."

ENSEMBLE = Metric(
    name="ensemble",
    needs="ensemble",
    source="RKS, eq. 9 and section V; RKS24 (leave-one-out ensemble)",
    gather=_gather,
    share=_share,
    chunk=_chunk,
    finish=_finish,
    runs=(
        real(
            "churn_ensemble",
            "share of test points",
            "Points to which the run gives another label than the ensemble of all runs of its "
            "repeat, including itself.",
        ),
        Column("churn_ensemble_points", pl.UInt32, "test points", _AS_POINTS),
        real(
            "churn_loo_ensemble",
            "share of test points",
            "Points to which the run gives another label than the ensemble of all other runs of "
            "its repeat.",
        ),
        Column("churn_loo_ensemble_points", pl.UInt32, "test points", _AS_POINTS),
    ),
    repeat=(
        real(
            "ensemble_accuracy",
            "share of test points",
            "Accuracy of the average of the repeat's logit gaps, or scores.",
            (),
        ),
    ),
)
