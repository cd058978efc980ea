"""How well scores separate classes: areas under curves, equal to scikit-learn's.

Only the order and ties of the scores count. Two classes are ordered by the gap; with more, each
class is compared with all others by its probability, as log odds, which do not saturate where
probabilities near 1 become equal. Runs of a part are sorted together, a few megabytes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.metrics.metric import Finished, HeldOut, Metric, Part, real
from manyseed.analysis.metrics.probabilities import log_odds, slices
from manyseed.analysis.options import Options

Real = NDArray[np.float64]
Keys = NDArray[np.uint64]

_SIGN = np.uint64(1 << 63)
_ONE = np.uint64(1)


def areas(scores: Real, y_true: NDArray[np.integer[Any]], first: int = 0) -> tuple[Real, Real]:
    """Return the area under the ROC curve and the average precision of each class.

    Each class is compared with all others. The area is the share of pairs of a positive and a
    negative point in which the positive scores higher, ties counted half; average precision is the
    sum over thresholds of precision times the step in recall (``sklearn.metrics.roc_auc_score``,
    ``average_precision_score``).

    Parameters
    ----------
    scores : float64 array (run, class, sample)
        Overwritten. Values that differ only in the last of 53 bits are ties.
    y_true : integer array (sample,)
    first : int
        Number of the first class in `scores`.

    Returns
    -------
    float64 arrays (run, class)
        NaN where a class has no test point (the area also where it has all of them), and for runs
        with a NaN score.
    """
    unknown = np.isnan(scores).any(axis=(1, 2))
    keys = scores.view(np.uint64)
    _to_keys(keys, y_true, first)
    keys.sort(axis=2)
    roc, precision = _areas(keys)
    roc[unknown] = precision[unknown] = np.nan
    return roc, precision


@numba.njit(cache=True, nogil=True)
def _to_keys(bits: Keys, y_true: NDArray[Any], first: int) -> None:
    """Turn the bits of floats into integers of the same order whose last bit marks positives."""
    for run in range(bits.shape[0]):
        for k in range(bits.shape[1]):
            for point in range(bits.shape[2]):
                key = bits[run, k, point]
                if key == _SIGN:  # -0 is 0
                    key = np.uint64(0)
                key = ~key if key & _SIGN else key | _SIGN
                positive = np.uint64(y_true[point] == first + k)
                bits[run, k, point] = (key & ~_ONE) | positive


@numba.njit(cache=True, nogil=True)
def _areas(keys: Keys) -> tuple[Real, Real]:
    """Walk through sorted keys from the highest score down, taking ties together."""
    n_runs, n_classes, n = keys.shape
    roc, precision = np.full((n_runs, n_classes), np.nan), np.full((n_runs, n_classes), np.nan)
    for run in range(n_runs):
        for k in range(n_classes):
            ordered = keys[run, k]
            right, wrong, twice, average = 0, 0, 0, 0.0
            at = n - 1
            while at >= 0:
                level, positive, negative = ordered[at] >> _ONE, 0, 0
                while at >= 0 and ordered[at] >> _ONE == level:
                    if ordered[at] & _ONE:
                        positive += 1
                    else:
                        negative += 1
                    at -= 1
                twice += negative * (2 * right + positive)
                right += positive
                wrong += negative
                average += positive * (right / (right + wrong))
            if right > 0:
                precision[run, k] = average / right
                if wrong > 0:
                    roc[run, k] = twice / (2.0 * right * wrong)
    return roc, precision


def _chunk(part: Part, _: Part, shared: None, options: Options) -> Real:
    held_out = part.held_out
    values = np.empty((part.n_runs, 2))
    two = held_out.n_classes == 2
    width = 1 if two else held_out.n_classes
    for rows in slices(part.n_runs, 8 * width * held_out.n_test):
        if two and part.margin is not None:
            scores = part.margin[rows].astype(np.float64)[:, None]
        elif part.score is not None and held_out.probability != "none":
            scores = log_odds(part.score[rows], ovr=held_out.probability == "ovr")
        elif part.score is not None:
            scores = np.ascontiguousarray(part.score[rows].transpose(0, 2, 1), dtype=np.float64)
        else:
            raise ValueError("curves need the gap of two classes or the scores of all")
        roc, precision = areas(scores, part.y_true, first=1 if two else 0)
        values[rows] = np.stack([roc.mean(axis=1), precision.mean(axis=1)], axis=1)
    return values


def _finish(held_out: HeldOut, partials: Sequence[Real], options: Options) -> Finished:
    values = np.concatenate(partials)
    return Finished(runs={"roc_auc": values[:, 0], "average_precision": values[:, 1]})


DISCRIMINATION = Metric(
    name="discrimination",
    needs="ensemble",
    source="scikit-learn; Fawcett 2006",
    chunk=_chunk,
    finish=_finish,
    runs=(
        real(
            "roc_auc",
            "share of pairs of points",
            "Area under the ROC curve, ties counted half; with more than two classes the mean of "
            "each against all others. Null where a class has no test point.",
        ),
        real(
            "average_precision",
            "1",
            "Mean precision over the recall of class 1 of two, or mean over each class against all "
            "others. Null where such a class has no test point.",
        ),
    ),
)
