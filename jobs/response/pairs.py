"""Choose the training rows that a model is asked about, and pair them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import raw, stream

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Streams:
    """The random draws of a repeat.

    Keyed by neither run, classifier nor layer, so that all its models answer the same questions as
    far as they share rows.

    Attributes
    ----------
    seed : int
        The sweep's seed.
    dataset : str
        The dataset's identity.
    repeat : int
    """

    seed: int
    dataset: str
    repeat: int

    def order(self, transform: str, draw: int, n: int) -> Positions:
        """Return a random order of the `n` rows of the repeat's training part."""
        generator = stream(self.seed, "response", self.dataset, transform, self.repeat, draw)
        return np.argsort(raw(generator, n), kind="stable").astype(np.int64)

    def uniform(self, transform: str, n: int) -> NDArray[np.float64]:
        """Return a number in [0, 1) for each of `n` rows: the training part, then the test set."""
        generator = stream(self.seed, "response_shift", self.dataset, transform, self.repeat)
        words = raw(generator, n) >> np.uint64(11)
        return words.astype(np.float64) * 2.0**-53


def sample(order: Positions, own: Positions, rows: int | float) -> Positions:
    """Return the first of a run's own rows, in the order of the whole training part.

    Parameters
    ----------
    order : int64 array (n_part,)
        All rows of the training part.
    own : int64 array (n_own,)
        The run's training rows in any order; each counts once.
    rows : int or float
        How many, at most all; or a share of them, at least one row.

    Returns
    -------
    int64 array (n_sample,)
        Rows of the training part.
    """
    is_own = np.zeros(len(order), dtype=np.bool_)
    is_own[own] = True
    ordered = order[is_own[order]]
    n = rows if isinstance(rows, int) else max(1, round(rows * len(ordered)))
    return ordered[:n]


def batches(sampled: Positions, size: int) -> Iterator[Positions]:
    """Cut a sample into batches; the last may be incomplete."""
    for start in range(0, len(sampled), size):
        yield sampled[start : start + size]


def pairs(kind: str, classes: NDArray[np.integer]) -> tuple[Positions, Positions]:
    """Pair the rows of a batch; the question is about the first row of each pair.

    The first and second rows form a pair, then the third and fourth, and so on, in the batch's
    random order, which for ``intra`` is first sorted by class. Pairs of the wrong kind are dropped
    (PRC, algorithm 3).

    Parameters
    ----------
    kind : {"intra", "inter"}
    classes : integer array (n,)

    Returns
    -------
    tuple of int64 arrays (n_pairs,)
        Positions in the batch.
    """
    n = len(classes) // 2 * 2
    order = np.argsort(classes, kind="stable") if kind == "intra" else np.arange(len(classes))
    first, second = order[:n:2], order[1:n:2]
    same = classes[first] == classes[second]
    kept = same if kind == "intra" else ~same
    return first[kept].astype(np.int64), second[kept].astype(np.int64)
