"""Random splits of a test set into halves: one calibrates, the other is measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.alphahat.resampling import generator
from manyseed.analysis.refused import Refused

FEWEST = 20  # test points for calibration


def calibration_splits(
    seed: int, dataset_id: str, repeat_index: int, n_test: int, splits: int
) -> NDArray[np.bool_]:
    """Split a test set at random into halves, the same for everything measured on it.

    The first half is the ⌊n/2⌋ points with the smallest of n raw words; it is not stratified.
    Fewer splits are a prefix of more splits. `seed` is the sweep's.

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
