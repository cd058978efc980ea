"""Ensembles of averaged probabilities that grow member by member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.alphahat.resampling import generator

Real = NDArray[np.float64]


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
