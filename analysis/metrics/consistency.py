"""Formulas for the agreement of two runs, from counts of test points."""

from __future__ import annotations

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
    """
    return both / n_test


def ec_cube_root(accuracy_i: Real, accuracy_j: Real, consistency: Real) -> Real:
    """Return the cube root of a_i · a_j · EC (MV, accuracy-adjusted error consistency)."""
    return np.cbrt(accuracy_i * accuracy_j * consistency)


def ec_square_root(accuracy_i: Real, accuracy_j: Real, consistency: Real) -> Real:
    """Return sqrt(sqrt(a_i · a_j) · EC) (MV, accuracy-adjusted error consistency)."""
    return np.sqrt(np.sqrt(accuracy_i * accuracy_j) * consistency)


def churn(same: Counts, n_test: int) -> Real:
    """Return the churn: the share of test points to which two runs give different labels (RKS)."""
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
