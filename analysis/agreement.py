"""Agreement of two runs: error consistency, churn, kappa; all from counts of test points."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.metric import Column, Finished, Metric, Repeat
from analysis.options import Options

# Test points in one matrix product: bounds the float32 copy; counts below 2**24 are exact.
SLAB = 1 << 14

Counts = NDArray[np.int64]
Real = NDArray[np.float64]


def both_wrong(own: NDArray[np.bool_], others: NDArray[np.bool_]) -> Counts:
    """Count the test points that two runs both get wrong: a Gram matrix of error bits.

    Parameters
    ----------
    own, others : bool arrays (run, sample)
        True where the run is wrong.

    Returns
    -------
    int64 array (own run, other run)
    """
    total = np.zeros((own.shape[0], others.shape[0]), dtype=np.int64)
    for start in range(0, own.shape[1], SLAB):
        left = own[:, start : start + SLAB].astype(np.float32)
        right = others[:, start : start + SLAB].astype(np.float32)
        total += (left @ right.T).astype(np.int64)
    return total


@numba.njit(cache=True, nogil=True)
def same_label(own: NDArray[Any], others: NDArray[Any]) -> Counts:
    """Count the test points to which two runs give the same label.

    Parameters
    ----------
    own, others : integer arrays (run, sample)

    Returns
    -------
    int64 array (own run, other run)
    """
    total = np.zeros((own.shape[0], others.shape[0]), dtype=np.int64)
    for i in range(own.shape[0]):
        for j in range(others.shape[0]):
            count = 0
            for point in range(own.shape[1]):
                count += own[i, point] == others[j, point]
            total[i, j] = count
    return total


def ec_local(errors_i: Counts, errors_j: Counts, both: Counts, empty_union: float) -> Real:
    """Return the local error consistency, |e_i ∩ e_j| / |e_i ∪ e_j|.

    MV, Error consistency. `errors_i`, `errors_j` and `both` count the points that one run, the
    other, and both get wrong; `empty_union` is the value where neither makes an error.
    """
    union = errors_i + errors_j - both
    return np.where(union > 0, both / np.maximum(union, 1), empty_union)


def ec_global(both: Counts, n_test: int) -> Real:
    """Return the global error consistency, |e_i ∩ e_j| / n (MV, Error consistency).

    The share of test points that both get wrong; it is not a disagreement.
    """
    return both / n_test


def churn(same: Counts, n_test: int) -> Real:
    """Return the churn: the share of test points to which two runs give different labels (RKS)."""
    return (n_test - same) / n_test


def ec_kappa(errors_i: Counts, errors_j: Counts, both: Counts, n_test: int) -> Real:
    """Return Cohen's kappa of two correctness vectors (Geirhos et al. 2020).

    NaN where chance alone agrees everywhere: both all right or both all wrong.
    """
    observed = n_test - errors_i - errors_j + 2 * both
    # In points squared, so that "chance agrees everywhere" is an exact comparison of integers.
    by_chance = errors_i * errors_j + (n_test - errors_i) * (n_test - errors_j)
    room = n_test * n_test - by_chance
    return np.where(room > 0, (n_test * observed - by_chance) / np.maximum(room, 1), np.nan)


def _prepare(repeat: Repeat) -> NDArray[np.bool_]:
    wrong: NDArray[np.bool_] = repeat.label != repeat.held_out.y_true
    return wrong


def _chunk(
    repeat: Repeat, wrong: NDArray[np.bool_], start: int, stop: int, options: Options
) -> Counts:
    both = both_wrong(wrong[start:stop], wrong)
    if repeat.held_out.n_classes == 2:  # two wrong labels are the same label
        errors = np.count_nonzero(wrong, axis=1)
        same = repeat.n_test - errors[start:stop, None] - errors[None, :] + 2 * both
    else:
        same = same_label(repeat.label[start:stop], repeat.label)
    return np.stack([both, same], axis=-1)


def _finish(repeat: Repeat, counts: Counts, options: Options) -> Finished:
    n_runs, n_test = repeat.n_runs, repeat.n_test
    i, j = np.triu_indices(n_runs, k=1)
    both, same = counts[i, j, 0], counts[i, j, 1]
    errors = counts[np.arange(n_runs), np.arange(n_runs), 0]
    # A run agrees with itself everywhere, so the sum over all runs is the sum over the others.
    different = n_runs * n_test - counts[..., 1].sum(axis=1)
    alone = np.full(n_runs, np.nan)
    return Finished(
        runs={"churn_mean": different / ((n_runs - 1) * n_test) if n_runs > 1 else alone},
        pairs={
            "ec_local": ec_local(errors[i], errors[j], both, options.empty_union),
            "ec_global": ec_global(both, n_test),
            "churn": churn(same, n_test),
            "ec_kappa": ec_kappa(errors[i], errors[j], both, n_test),
        },
    )


_PAIR_SUMMARIES = ("n", "mean", "min", "max", "range", "q05", "median", "q95")

AGREEMENT = Metric(
    name="agreement",
    needs="label",
    source="MV, Error consistency; RKS (churn); Geirhos et al. 2020 (ec_kappa)",
    prepare=_prepare,
    chunk=_chunk,
    finish=_finish,
    runs=(
        Column(
            "churn_mean",
            pl.Float64,
            "share of test points",
            "Mean churn of the run against each other run of its repeat.",
        ),
    ),
    pairs=(
        Column(
            "ec_local",
            pl.Float64,
            "share of the union",
            "Local error consistency: points both get wrong, among those at least one gets wrong.",
            _PAIR_SUMMARIES,
        ),
        Column(
            "ec_global",
            pl.Float64,
            "share of test points",
            "Global error consistency: points both get wrong, among all.",
            _PAIR_SUMMARIES,
        ),
        Column(
            "churn",
            pl.Float64,
            "share of test points",
            "Points to which the two runs give different labels.",
            _PAIR_SUMMARIES,
        ),
        Column(
            "ec_kappa",
            pl.Float64,
            "1",
            "Cohen's kappa of the two runs' correctness.",
            _PAIR_SUMMARIES,
        ),
    ),
)
