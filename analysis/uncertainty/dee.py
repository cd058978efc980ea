"""Deep ensemble equivalent: how many independent models a prediction is worth.

Also ensembles of averaged probabilities that grow member by member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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

    `mean`, a float array (M,), is over the ensembles of 1…M models; larger is better.
    """
    gain = mean[-1] - mean[0]
    return _crossing(mean[0] + share * gain, mean) if gain > 0 else None


def spread(std: Real, kind: Spread) -> Real:
    """Return the standard deviation for the bounds.

    Draws share a pool of M models, so ensembles of l models differ less than independent ones, by a
    factor of about √(1 - l/M). ``"independent"`` divides by it for l ≤ M/2 and gives NaN beyond;
    ``"draws"``, as in the source, returns `std` unchanged.
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

    `seed` is the sweep's.

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
