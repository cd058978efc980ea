"""From a point's scores to its class and its margin."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def labels(scores: NDArray[np.number[Any]]) -> NDArray[np.int64]:
    """Return the predicted classes for gaps (sample,) or scores (sample, class).

    A tie is the positive class of two, or the first of more, as in `jobs.run`,
    which cannot be imported here: ``tests/test_ties.py`` compares them.
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
