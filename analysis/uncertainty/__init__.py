"""How good probabilities are, before and after calibration, and what ensembles are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numba
import numpy as np
from numpy.typing import NDArray

from manyseed.analysis import Refused
from manyseed.analysis.alphahat.resampling import generator

Real = NDArray[np.float64]
Spread = Literal["draws", "independent"]

COMPARABLE = (
    *("cll", "log_likelihood", "error", "brier", "brier_per_class", "ece", "tace", "aurc"),
    *("c_brier", "c_ece", "c_tace", "c_aurc"),
)
"""Metrics by which models can be compared."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """How many models an equally good deep ensemble has; None if more than there are.

    Attributes
    ----------
    dee : float or None
        From the mean over the ensembles of each size.
    lower, upper : float or None
        From a mean that is one standard deviation better, or worse.
    """

    dee: float | None
    lower: float | None
    upper: float | None


def equivalent(value: float, mean: Real, std: Real, *, less_is_better: bool) -> Equivalent:
    """Return the deep ensemble equivalent of a value (PIT, eq. 5).

    DEE = min{l ≥ 1 : μ(l) ≥ value}, μ linear between natural numbers: the first crossing, even if
    μ is not monotone. PIT's published code keeps one pointer into the curve for all values, so that
    DEE can never fall, and returns the largest size if none reaches the value.

    Parameters
    ----------
    value : float
    mean, std : float array (M,)
        Over the ensembles of 1…M models; bounds are unknown where `std` is NaN.
    less_is_better : bool
    """
    sign = -1.0 if less_is_better else 1.0
    mean = sign * mean
    return Equivalent(
        _crossing(sign * value, mean),
        _crossing(sign * value, mean + std),
        _crossing(sign * value, mean - std),
    )


def _crossing(value: float, curve: Real) -> float | None:
    reached = np.flatnonzero(curve >= value)
    if reached.size == 0:
        return None
    first = int(reached[0])
    if first == 0:
        return 1.0
    before, here = curve[first - 1], curve[first]
    if not np.isfinite(before):
        return first + 1.0
    return float(first + (value - before) / (here - before))


def size_for(share: float, mean: Real) -> float | None:
    """Return how many models give a share of the gain of all over one; None if there is no gain.

    Parameters
    ----------
    share : float
        Of the gain, such as 0.9.
    mean : float array (M,)
        The mean score of ensembles of 1…M models; larger is better. Between two sizes it is taken
        to be linear.

    Returns
    -------
    float or None
        From 1 to M.
    """
    gain = mean[-1] - mean[0]
    return _crossing(mean[0] + share * gain, mean) if gain > 0 else None


def spread(std: Real, kind: Spread) -> Real:
    """Return the standard deviation for the bounds.

    Draws share a pool of M models, so ensembles of l models differ less than independent ones, by a
    factor of about √(1 - l/M). ``"independent"`` divides by it for l ≤ M/2 and gives NaN beyond;
    ``"draws"``, as in the source, returns `std` unchanged.

    Parameters
    ----------
    std : float64 array (M,)
        Standard deviations over draws of ensembles of 1…M models.
    kind : {"independent", "draws"}

    Returns
    -------
    float64 array (M,)
    """
    if kind == "draws":
        return std
    size, pool = np.arange(1, std.size + 1), std.size
    factor = np.where(size <= pool / 2, np.sqrt(1 - np.minimum(size / pool, 0.5)), np.nan)
    return np.asarray(std / factor)


def orders(
    seed: int, dataset_id: str, repeat_index: int, n_models: int, draws: int
) -> NDArray[np.int64]:
    """Draw orders of models, whose first k are deep ensembles; the same for every cell.

    Parameters
    ----------
    seed : int
        The sweep's.
    dataset_id : str
    repeat_index, n_models, draws : int

    Returns
    -------
    int64 array (draw, model)
        Each row is a permutation. Fewer draws are a prefix of more draws.
    """
    result = np.empty((draws, n_models), dtype=np.int64)
    for draw, order in enumerate(result):
        bits = generator(seed, "deep_ensemble", dataset_id, repeat_index, draw)
        order[:] = np.argsort(bits.random_raw(n_models), kind="stable")
    return result


def prefixes(logs: Callable[[int], Real], order: Sequence[int]) -> Iterator[Real]:
    """Yield ln p̄_k of the first k members, k = 1…K: p̄_k = (1/k) Σ_{j≤k} p_j (PIT, eq. 3).

    This averages probabilities, not their logarithms, adding members in order.

    Parameters
    ----------
    logs : callable
        Returns ln p of a model, (sample, class).
    order : sequence of int
        The models.
    """
    total: Real | None = None
    for size, model in enumerate(order, start=1):
        if total is None:
            total = logs(model).copy()
        else:
            # in logarithms, so that a small probability of all members does not become 0
            np.logaddexp(total, logs(model), out=total)
        yield total - np.log(size)


def area_under_risk_coverage(confidence: Real, wrong: NDArray[np.bool_]) -> float:
    """Return AURC: the mean over j = 1…n of the share wrong among the j most confident points.

    Points of equal confidence have no order: the risk among them is the expectation over random
    orders. PIT's AU-ARC is 1 - AURC; its published code omits full coverage and divides by one too
    many, +0.001 for every model.

    Parameters
    ----------
    confidence : float array (sample,)
        Any NaN makes the result NaN.
    wrong : bool array (sample,)
    """
    if np.isnan(confidence).any():
        return float("nan")
    order = np.argsort(-confidence)  # ties may be in any order
    return float(_mean_risk(confidence[order], wrong[order]))


def rejecting(confidence: Real, wrong: NDArray[np.bool_], shares: Real) -> Real:
    """Return the accuracy of the most confident points, by the share of the points that is kept.

    The accuracy-rejection curve (PIT, section 3.3; Nadeem et al. 2009): of ⌈share · n⌉ points.
    Points of equal confidence have no order: their expected number of errors counts.

    Parameters
    ----------
    confidence : float array (sample,)
    wrong : bool array (sample,)
    shares : float array (share,)
        Above 0, to 1.

    Returns
    -------
    float64 array (share,)
    """
    n = confidence.size
    order = np.argsort(-confidence)
    ordered, errors = confidence[order], np.cumsum(wrong[order])
    ends = np.flatnonzero(np.diff(ordered, append=-np.inf)) + 1  # where groups of ties end
    kept = np.ceil(shares * n - 1e-9)
    return np.asarray(1 - np.interp(kept, [0, *ends], [0, *errors[ends - 1]]) / kept)


def confident(confidence: Real, wrong: NDArray[np.bool_], thresholds: Real) -> tuple[Real, Real]:
    """Return the accuracy of points of at least some confidence, and what share of all they are.

    The accuracy-confidence curve (PIT, section 3.3). Parameters are those of `rejecting`;
    `thresholds`, float array (threshold,). Accuracy is NaN where no point has so much confidence.
    """
    order = np.argsort(confidence)
    first = np.searchsorted(confidence[order], thresholds)
    kept = confidence.size - first
    errors = np.append(np.cumsum(wrong[order][::-1])[::-1], 0)[first]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(kept > 0, 1 - errors / kept, np.nan), kept / confidence.size


@numba.njit(cache=True, nogil=True)
def _mean_risk(confidence: Real, wrong: NDArray[Any]) -> float:
    n, start, before, total = confidence.size, 0, 0.0, 0.0
    while start < n:
        stop, errors = start, 0.0
        while stop < n and confidence[stop] == confidence[start]:
            errors += wrong[stop]
            stop += 1
        rate = errors / (stop - start)
        for j in range(start + 1, stop + 1):
            total += (before + rate * (j - start)) / j
        before += errors
        start = stop
    return total / n


def auroc(score: Real, positive: NDArray[np.bool_]) -> float:
    """Return P(a positive point scores higher than another) + ½ P(they tie).

    Parameters
    ----------
    score : float array (sample,)
        Any NaN makes the result NaN.
    positive : bool array (sample,)

    Returns
    -------
    float
        NaN without positive points, or without others.
    """
    n_positive = int(positive.sum())
    n_others = positive.size - n_positive
    if n_positive == 0 or n_others == 0 or np.isnan(score).any():
        return float("nan")
    order = np.argsort(score)  # ties may be in any order
    return float(_pairs_won(score[order], positive[order])) / (n_positive * n_others)


@numba.njit(cache=True, nogil=True)
def _pairs_won(score: Real, positive: NDArray[Any]) -> float:
    n, start, below, won = score.size, 0, 0.0, 0.0
    while start < n:
        stop, positives, others = start, 0.0, 0.0
        while stop < n and score[stop] == score[start]:
            positives += positive[stop]
            others += not positive[stop]
            stop += 1
        won += positives * (below + others / 2)
        below += others
        start = stop
    return won


def entropy(logs: Real) -> Real:
    """Return the entropy in nats, −Σ_c p_c ln p_c.

    Parameters
    ----------
    logs : float64 array (sample, class)
        Logarithms of probabilities, -inf for 0.

    Returns
    -------
    float64 array (sample,)
        From 0 to ln C.
    """
    p = np.exp(logs)
    return np.asarray(-np.where(p > 0, p * np.where(p > 0, logs, 0), 0).sum(axis=1))


def thresholded_adaptive_calibration_error(
    logs: Real, y_true: NDArray[np.integer[Any]], threshold: float, bins: int
) -> float:
    """Return TACE: calibration error of all classes, in bins of equally many points.

    For each class c, the m points with p_c above the threshold, ascending (ties by index), are put
    in R = min(bins, m) bins of ⌊m/R⌋, the last with the rest. As in PIT's published code, TACE is
    (1/(nC)) Σ_c Σ_r |Σ_{i in r} (1[y_i = c] - p_ic)|. PIT's equation 2 also divides by the number
    of bins, and its code gives NaN for a class with fewer points than bins.

    Parameters
    ----------
    logs : float array (sample, class)
        Logarithms of probabilities; any NaN makes the result NaN.
    y_true : integer array (sample,)
    threshold : float
        θ.
    bins : int
        M.
    """
    return float(calibration_errors(logs, y_true, [threshold], [bins])[0, 0])


def calibration_errors(
    logs: Real, y_true: NDArray[np.integer[Any]], thresholds: Sequence[float], bins: Sequence[int]
) -> Real:
    """Return TACE for every threshold and number of bins, sorting once.

    Parameters
    ----------
    logs, y_true
        As in `thresholded_adaptive_calibration_error`.
    thresholds : sequence of float
    bins : sequence of int

    Returns
    -------
    float64 array (threshold, bins)
        NaN if any of `logs` is.
    """
    if np.isnan(logs).any():
        return np.full((len(thresholds), len(bins)), np.nan)
    n, classes = logs.shape
    total = np.zeros((len(thresholds), len(bins)))
    for c in range(classes):
        p = np.exp(logs[:, c])
        above = np.flatnonzero(p > min(thresholds))
        order = above[np.argsort(p[above], kind="stable")]
        p, of_class = p[order], y_true[order] == c
        for row, threshold in enumerate(thresholds):
            first = int(np.searchsorted(p, threshold, side="right"))
            for column, most in enumerate(bins):
                if p.size > first:
                    above_it = p[first:]
                    gap = _gap(above_it, of_class[first:], min(most, above_it.size))
                    total[row, column] += gap
    return np.asarray(total / (n * classes))


@numba.njit(cache=True, nogil=True)
def _gap(p: Real, of_class: NDArray[Any], bins: int) -> float:
    size, total = p.size // bins, 0.0
    for index in range(bins):
        stop = p.size if index == bins - 1 else (index + 1) * size
        gap = 0.0
        for place in range(index * size, stop):
            gap += of_class[place] - p[place]
        total += abs(gap)
    return total


LEAST, MOST = 1 / 20, 20.0  # bounds of β
NEARBY = 1.25  # factor around the start within which a half's optimum usually is
EXACT = 1e-12  # relative error of β


@numba.njit(cache=True, nogil=True)
def slope(below: Real, y_true: NDArray[Any], rows: NDArray[Any], beta: float) -> float:
    """Return the derivative of Σ ln softmax(β L)[y] in β: Σ (L_y - E L), E over softmax(β L).

    Parameters
    ----------
    below : float array (sample, class)
        Logarithms of probabilities, or scores, minus the largest of their row.
    y_true : integer array (sample,)
    rows : integer array (n,)
        The points to sum over.
    beta : float
    """
    summed = 0.0
    for row in rows:
        total = one = 0.0
        for c in range(below.shape[1]):
            d = below[row, c]
            p = np.exp(beta * d)
            if p > 0:  # a class of probability 0 adds nothing, even if d is infinite
                total += p
                one += p * d
        summed += below[row, y_true[row]] - one / total
    return summed


def fit(below: Real, y_true: NDArray[Any], rows: NDArray[Any], start: float) -> tuple[float, bool]:
    """Return the β in [1/20, 20] that maximises the log-likelihood, and whether it is at a bound.

    If nothing depends on β, for example if all rows are constant, it is 1.

    Parameters
    ----------
    below, y_true, rows
        As `slope` takes them.
    start : float
        Where the optimum is expected.
    """

    @cache
    def uphill(beta: float) -> float:
        return slope(below, y_true, rows, beta)

    from scipy.optimize import brentq

    low, high = (min(max(start * by, LEAST), MOST) for by in (1 / NEARBY, NEARBY))
    if uphill(low) <= 0:
        low, high = LEAST, low
    elif uphill(high) >= 0:
        low, high = high, MOST
    if uphill(high) >= 0:
        if uphill(low) > 0 or _depends(below[rows]):
            return MOST, True
        return 1.0, False
    if uphill(low) <= 0:
        return LEAST, True
    return float(brentq(uphill, low, high, xtol=EXACT * low, rtol=EXACT)), False


def _depends(below: Real) -> bool:
    """Return whether probabilities depend on β, be it by less than their slope can show."""
    return bool((np.isfinite(below) & (below < 0)).any())


@numba.njit(cache=True, nogil=True)
def tempered(below: Real, beta: Real) -> Real:
    """Return ln softmax(β L), (sample, class), with a β for each row, (sample,)."""
    n, classes = below.shape
    logs = np.empty((n, classes))
    for row in range(n):
        total = 0.0
        for c in range(classes):
            # the product is NaN only for 0 times infinity, but β is above 0
            logs[row, c] = beta[row] * below[row, c]
            total += np.exp(logs[row, c])
        total = np.log(total)
        for c in range(classes):
            logs[row, c] -= total
    return logs


@dataclass(frozen=True, slots=True)
class Calibration:
    """A prediction with the temperatures fitted on each half of each split.

    Attributes
    ----------
    beta : float array (split, 2)
        1/T fitted on the first half, and on the second.
    bounded : bool array (split, 2)
        Whether `beta` is at a bound.
    below : float array (sample, class)
        Logarithms of probabilities minus the largest of their row.
    first : bool array (split, sample)
        The first half.
    """

    beta: Real
    bounded: NDArray[np.bool_]
    below: Real
    first: NDArray[np.bool_]

    def logs(self) -> Iterator[Real]:
        """Yield ln p (sample, class) for each split, each half at the other's temperature."""
        for (of_first, of_second), first in zip(self.beta, self.first, strict=True):
            yield tempered(self.below, np.where(first, of_second, of_first))

    @property
    def temperature(self) -> float:
        """Geometric mean of the temperatures."""
        return float(np.exp(-np.log(self.beta).mean()))

    @property
    def temperature_sd(self) -> float:
        """Standard deviation (n - 1) of the temperatures."""
        return float((1 / self.beta).std(ddof=1))

    @property
    def share_bounded(self) -> float:
        """Share of the fits that end at a bound."""
        return float(self.bounded.mean())


def calibrate(
    logs: Real, y_true: NDArray[np.integer[Any]], splits: NDArray[np.bool_]
) -> Calibration | None:
    """Fit the temperature on both halves of each split (PIT, section 4).

    Parameters
    ----------
    logs : float array (sample, class)
        Logarithms of probabilities, up to a constant per row.
    y_true : integer array (sample,)
    splits : bool array (split, sample)
        As `calibration_splits` gives them.

    Returns
    -------
    Calibration or None
        None if a value is NaN, or a true class has probability 0, which no temperature changes.
    """
    largest = logs.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        below = np.ascontiguousarray(logs - largest, dtype=np.float64)
    true = y_true.astype(np.int64)
    if np.isnan(below).any() or np.isneginf(below[np.arange(true.size), true]).any():
        return None
    start, _ = fit(below, true, np.arange(true.size), 1.0)
    fits = [
        [fit(below, true, np.flatnonzero(half), start) for half in (first, ~first)]
        for first in splits
    ]
    beta = np.array([[beta for beta, _ in of_split] for of_split in fits])
    bounded = np.array([[at_bound for _, at_bound in of_split] for of_split in fits])
    return Calibration(beta, bounded, below, splits)


FEWEST = 20  # test points for calibration


def calibration_splits(
    seed: int, dataset_id: str, repeat_index: int, n_test: int, splits: int
) -> NDArray[np.bool_]:
    """Split a test set at random into halves, the same for everything measured on it.

    The first half is the ⌊n/2⌋ points with the smallest of n raw words; it is not stratified.
    Fewer splits are a prefix of more splits.

    Parameters
    ----------
    seed : int
        The sweep's.
    dataset_id : str
    repeat_index, n_test, splits : int

    Returns
    -------
    bool array (split, sample)
        True for the first half.

    Raises
    ------
    Refused
        For a test set of fewer than `FEWEST` points.
    """
    require_enough(n_test)
    bits = generator(seed, "calibration", dataset_id, repeat_index)
    first = np.zeros((splits, n_test), dtype=np.bool_)
    for half in first:
        half[np.argsort(bits.random_raw(n_test), kind="stable")[: n_test // 2]] = True
    return first


def require_enough(n_test: int) -> None:
    """Refuse a test set that is too small to calibrate on."""
    if n_test < FEWEST:
        reason = f"a test set of {n_test} points is too small to calibrate on ({FEWEST})"
        raise Refused("n_test", n_test, reason)
