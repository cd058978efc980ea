"""How well scores tell classes apart: areas under curves, as scikit-learn has them.

Only the order of the scores counts, and ties. With two classes it is that of the gap; with more,
each class against all others by its probability, taken as log odds, which do not saturate: a
probability next to 1 has no neighbours left. All runs of a part are sorted together, a few
megabytes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part
from manyseed.analysis.metrics.probabilities import log_odds, slices
from manyseed.analysis.options import Options

Real = NDArray[np.float64]
Keys = NDArray[np.uint64]

_SIGN = np.uint64(1 << 63)
_ONE = np.uint64(1)


def areas(scores: Real, y_true: NDArray[np.integer[Any]], first: int = 0) -> tuple[Real, Real]:
    """Return the area under the ROC curve and the average precision of each class.

    Of a class against all others: the share of pairs of a positive and a negative point in which
    the positive has the higher score, ties counted half; and the sum of precision times the step in
    recall over all thresholds (``sklearn.metrics.roc_auc_score``, ``average_precision_score``).

    Parameters
    ----------
    scores : float64 array (run, class, sample)
        Overwritten. Values that differ in nothing but the last of 53 bits are ties.
    y_true : integer array (sample,)
    first : int
        The class that the first scores are of.

    Returns
    -------
    float64 arrays (run, class)
        NaN where a class has no test point, the first also where it has all of them, and of runs
        with a score that is not a number.
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
    """Turn the bits of floats into whole numbers of the same order whose last bit is the truth."""
    for run in range(bits.shape[0]):
        for k in range(bits.shape[1]):
            for point in range(bits.shape[2]):
                own = bits[run, k, point]
                if own == _SIGN:  # -0 is 0
                    own = np.uint64(0)
                own = ~own if own & _SIGN else own | _SIGN
                positive = np.uint64(y_true[point] == first + k)
                bits[run, k, point] = (own & ~_ONE) | positive


@numba.njit(cache=True, nogil=True)
def _areas(keys: Keys) -> tuple[Real, Real]:
    """Walk through sorted keys from the highest score on, ties at once."""
    n_runs, n_classes, n = keys.shape
    roc, precision = np.full((n_runs, n_classes), np.nan), np.full((n_runs, n_classes), np.nan)
    for run in range(n_runs):
        for k in range(n_classes):
            own = keys[run, k]
            right, wrong, twice, average = 0, 0, 0, 0.0
            at = n - 1
            while at >= 0:
                level, positive, negative = own[at] >> _ONE, 0, 0
                while at >= 0 and own[at] >> _ONE == level:
                    if own[at] & _ONE:
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
    found = np.empty((part.n_runs, 2))
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
        each = areas(scores, part.y_true, first=1 if two else 0)
        found[rows] = np.stack([of.mean(axis=1) for of in each], axis=1)
    return found


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
        Column(
            "roc_auc",
            pl.Float64,
            "share of pairs of points",
            "Area under the ROC curve, ties counted half; of more than two classes the mean of "
            "each against all others. Null where a class has no test point.",
            ("mean", "range"),
        ),
        Column(
            "average_precision",
            pl.Float64,
            "1",
            "Mean precision over the recall of class 1 of two, or mean over each class against all "
            "others. Null where such a class has no test point.",
            ("mean", "range"),
        ),
    ),
)
