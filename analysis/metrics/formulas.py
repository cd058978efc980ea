"""Formulas in NumPy alone: agreement of two runs from counts, class and margin from scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Real = NDArray[np.float64]


def ec_local(errors_i: Counts, errors_j: Counts, both: Counts, empty_union: float) -> Real:
    """Return the local error consistency, |e_i ∩ e_j| / |e_i ∪ e_j| (MV, Error consistency).

    Parameters
    ----------
    errors_i, errors_j, both : int64 arrays
        Points that one run, the other, and both get wrong.
    empty_union : float
        The value where neither makes an error.
    """
    union = errors_i + errors_j - both
    return np.where(union > 0, both / np.maximum(union, 1), empty_union)


def ec_global(both: Counts, n_test: int) -> Real:
    """Return the global error consistency, |e_i ∩ e_j| / n (MV, Error consistency).

    The share of test points that both get wrong; it is not a disagreement.

    Parameters
    ----------
    both : int64 array (pair,)
        Test points that both runs get wrong.
    n_test : int

    Returns
    -------
    float64 array (pair,)
        From 0 to 1.
    """
    return both / n_test


def ec_cube_root(accuracy_i: Real, accuracy_j: Real, consistency: Real) -> Real:
    """Return the cube root of a_i · a_j · EC (MV, accuracy-adjusted error consistency).

    Parameters
    ----------
    accuracy_i, accuracy_j : float64 arrays (pair,)
        Accuracy of each run of a pair, from 0 to 1.
    consistency : float64 array (pair,)
        Their error consistency, local or global.

    Returns
    -------
    float64 array (pair,)
        From 0 to 1.
    """
    return np.cbrt(accuracy_i * accuracy_j * consistency)


def ec_square_root(accuracy_i: Real, accuracy_j: Real, consistency: Real) -> Real:
    """Return sqrt(sqrt(a_i · a_j) · EC) (MV, accuracy-adjusted error consistency).

    Parameters, shapes and range are those of `ec_cube_root`.
    """
    return np.sqrt(np.sqrt(accuracy_i * accuracy_j) * consistency)


def churn(same: Counts, n_test: int) -> Real:
    """Return the churn: the share of test points to which two runs give different labels (RKS).

    Parameters
    ----------
    same : int64 array (pair,)
        Test points to which both give the same label.
    n_test : int

    Returns
    -------
    float64 array (pair,)
        From 0 to 1.
    """
    return (n_test - same) / n_test


def ec_kappa(errors_i: Counts, errors_j: Counts, both: Counts, n_test: int) -> Real:
    """Return Cohen's kappa of two correctness vectors (Geirhos et al. 2020).

    NaN where chance alone gives full agreement: both all right or both all wrong.

    Parameters
    ----------
    errors_i, errors_j, both : int64 arrays
        Points that one run, the other, and both get wrong.
    n_test : int
    """
    observed = n_test - errors_i - errors_j + 2 * both
    by_chance = errors_i * errors_j + (n_test - errors_i) * (n_test - errors_j)
    return kappa(observed, by_chance, n_test)


def kappa(observed: Counts, by_chance: Counts, n_test: int) -> Real:
    """Return Cohen's kappa (Cohen 1960).

    Parameters
    ----------
    observed : int64 array
        Points on which the two agree.
    by_chance : int64 array
        Σ_c n_ic · n_jc: n_test times the points on which independent labels with these frequencies
        are expected to agree. Full agreement by chance, an exact test of integers, gives NaN.
    n_test : int
    """
    room = n_test * n_test - by_chance
    return np.where(room > 0, (n_test * observed - by_chance) / np.maximum(room, 1), np.nan)


Floats = NDArray[np.floating[Any]]


def labels(scores: NDArray[np.number[Any]]) -> NDArray[np.int64]:
    """Return the predicted classes for gaps (sample,) or scores (sample, class).

    A tie is the positive class of two, or the first of more, as in `jobs.run`,
    which cannot be imported here: ``tests/test_ties.py`` compares them.

    Parameters
    ----------
    scores : array (sample,) or (sample, class)
        Of two classes the gap: the positive class's score minus the other's.

    Returns
    -------
    int64 array (sample,)
    """
    classes = scores >= 0 if scores.ndim == 1 else scores.argmax(axis=1)
    return classes.astype(np.int64)


def probe(
    score: Floats, repeat_of_row: NDArray[np.integer[Any]], y_true: NDArray[np.integer[Any]]
) -> NDArray[np.float32]:
    """Reduce scores to one number per point: the gap of two classes, or the true-class margin.

    Parameters
    ----------
    score : float array (run, sample, class)
    repeat_of_row : integer array (run,)
        The row of `y_true` that each run was tested on.
    y_true : integer array (repeat, sample)

    Returns
    -------
    float32 array (run, sample)
    """
    if score.shape[2] == 2:
        return _difference(score[..., 1], score[..., 0])
    return true_margin(score, y_true[repeat_of_row])


def true_margin(score: Floats, y_true: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """Return the score of the true class minus the largest other.

    Parameters
    ----------
    score : float array (row, sample, class)
    y_true : integer array (row, sample), or (sample,) if all rows share it

    Returns
    -------
    float32 array (row, sample)
    """
    others = np.array(score, dtype=np.float32)  # a copy: the true class is masked below
    index = np.broadcast_to(y_true, others.shape[:2])[..., None].astype(np.intp)
    true = np.take_along_axis(others, index, axis=2)[..., 0]
    np.put_along_axis(others, index, -np.inf, axis=2)
    return _difference(true, others.max(axis=2))


def _difference(one: Floats, other: Floats) -> NDArray[np.float32]:
    """Return the difference, rounded once; beyond the range of float32, its largest number."""
    most = np.finfo(np.float32).max
    exact = np.subtract(one, other, dtype=np.float64)
    return np.clip(exact, -most, most, out=exact).astype(np.float32)


Labels = NDArray[np.integer[Any]]


def phi(one: Labels, other: Labels, y_true: Labels) -> float:
    """Return φ, the correlation of what two runs get right; NaN where one is all right or wrong.

    Kuncheva and Whitaker (2003). A metric of pairs (`analysis.metrics.custom`): labels and true
    classes, (sample,) each.
    """
    from sklearn.metrics import matthews_corrcoef

    right = one == y_true, other == y_true
    if any(own.all() or not own.any() for own in right):
        return np.nan
    return float(matthews_corrcoef(*right))


def yule_q(one: Labels, other: Labels, y_true: Labels) -> float:
    """Return Yule's Q of what two runs get right, (ad - bc) / (ad + bc); NaN where both are 0.

    Kuncheva and Whitaker (2003). A metric of pairs, as `phi`.
    """
    right, too = one == y_true, other == y_true
    alike = int((right & too).sum()) * int((~right & ~too).sum())
    apart = int((right & ~too).sum()) * int((~right & too).sum())
    return (alike - apart) / (alike + apart) if alike + apart else np.nan


for _measure in (phi, yule_q):
    _measure.pairs = True  # type: ignore[attr-defined]
