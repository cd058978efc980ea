"""How well runs classify: accuracy, F1, Matthews' correlation, areas under curves.

Scores from the confusion matrix and areas equal scikit-learn's. Areas take only the order and ties
of scores: two classes are ordered by the gap; with more, each class is compared with all others by
its probability, as log odds, which do not saturate where probabilities near 1 become equal. Runs
of a part are sorted together, a few megabytes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics.gram import class_counts
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part, real
from manyseed.analysis.metrics.probabilities import log_odds, slices
from manyseed.analysis.options import Options


@numba.njit(cache=True, nogil=True)
def correct(label: NDArray[Any], y_true: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """Count the test points of each class that each run gets right.

    Parameters
    ----------
    label : integer array (run, sample)
    y_true : integer array (sample,)

    Returns
    -------
    int64 array (run, class)
    """
    count = np.zeros((label.shape[0], n_classes), dtype=np.int64)
    for run in range(label.shape[0]):
        for point in range(label.shape[1]):
            count[run, y_true[point]] += label[run, point] == y_true[point]
    return count


def _correct_of(part: Part, _: Part, shared: None, options: Options) -> NDArray[np.int64]:
    return correct(part.label, part.y_true, part.held_out.n_classes)


def _accuracies(
    held_out: HeldOut, partials: Sequence[NDArray[np.int64]], options: Options
) -> Finished:
    count = np.concatenate(partials)
    size = np.bincount(held_out.y_true, minlength=held_out.n_classes)
    present = size > 0
    return Finished(
        runs={
            "accuracy": count.sum(axis=1) / held_out.n_test,
            "balanced_accuracy": (count[:, present] / size[present]).mean(axis=1),
        }
    )


ACCURACY = Metric(
    name="accuracy",
    needs="label",
    source="RKS, MV",
    chunk=_correct_of,
    finish=_accuracies,
    runs=(
        real(
            "accuracy",
            "share of test points",
            "Share of the test points that the run gets right.",
            ("mean", "std", "min", "max", "range", "q05", "median", "q95"),
        ),
        real(
            "balanced_accuracy",
            "share of test points",
            "Mean over the classes in the test set of the share of their points that is right.",
        ),
    ),
)


Counts = NDArray[np.int64]
Real = NDArray[np.float64]


def f1_macro(right: Counts, predicted: Counts, true: Counts) -> Real:
    """Return the mean over classes of F1 = 2 TP / (2 TP + FP + FN).

    As in ``sklearn.metrics.f1_score(average="macro")``, the mean is over the classes that have a
    test point or are predicted.

    Parameters
    ----------
    right, predicted : int64 arrays (run, class)
        Test points of each class that are right, and those predicted to be in it.
    true : int64 array (class,)
        Test points of each class.
    """
    either = predicted + true
    seen = either > 0
    f1 = np.where(seen, 2 * right / np.maximum(either, 1), 0.0)
    result: Real = f1.sum(axis=1) / seen.sum(axis=1)
    return result


def matthews_corrcoef(right: Counts, predicted: Counts, true: Counts) -> Real:
    """Return Matthews' correlation for any number of classes (Gorodkin 2004, eq. 8).

    (n Σ_c t_c − Σ_c p_c n_c) / √((n² − Σ_c p_c²)(n² − Σ_c n_c²)), where of class c t_c points are
    right, p_c predicted and n_c there. As in ``sklearn.metrics.matthews_corrcoef``, 0 where the
    true or the predicted classes are all one class.

    Parameters
    ----------
    right, predicted : int64 arrays (run, class)
    true : int64 array (class,)

    Returns
    -------
    float64 array (run,)
        From -1 to 1.
    """
    n = int(true.sum())
    covariance = n * right.sum(axis=1) - predicted @ true
    # in floats: the product of these two can exceed 64 bits
    of_predicted = (n * n - np.square(predicted).sum(axis=1)).astype(np.float64)
    of_true = float(n * n - np.square(true).sum())
    spread = np.sqrt(of_predicted) * np.sqrt(of_true)
    return np.where(spread > 0, covariance / np.where(spread > 0, spread, 1.0), 0.0)


def _confusions(part: Part, _: Part, shared: None, options: Options) -> tuple[Counts, Counts]:
    n_classes = part.held_out.n_classes
    return correct(part.label, part.y_true, n_classes), class_counts(part.label, n_classes)


def _of_confusion(held_out: HeldOut, partials: Sequence[Any], options: Options) -> Finished:
    right, predicted = (np.concatenate([part[k] for part in partials]) for k in (0, 1))
    true = np.bincount(held_out.y_true, minlength=held_out.n_classes).astype(np.int64)
    return Finished(
        runs={
            "f1_macro": f1_macro(right, predicted, true),
            "matthews_corrcoef": matthews_corrcoef(right, predicted, true),
        },
        repeat={"smallest_class": np.asarray(true.min())},
    )


CONFUSION = Metric(
    name="confusion",
    needs="label",
    source="scikit-learn; Gorodkin 2004",
    chunk=_confusions,
    finish=_of_confusion,
    runs=(
        real(
            "f1_macro", "1", "Mean of F1 over the classes that have a test point or are predicted."
        ),
        real(
            "matthews_corrcoef",
            "1",
            "Matthews' correlation of true and predicted class, -1 to 1; 0 where either is one "
            "class throughout.",
        ),
    ),
    repeat=(
        Column(
            "smallest_class",
            pl.UInt32,
            "test points",
            "Test points of the smallest class: means over classes are no more certain than it.",
        ),
    ),
)


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


def _areas_of(part: Part, _: Part, shared: None, options: Options) -> Real:
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


def _discrimination(held_out: HeldOut, partials: Sequence[Real], options: Options) -> Finished:
    values = np.concatenate(partials)
    return Finished(runs={"roc_auc": values[:, 0], "average_precision": values[:, 1]})


DISCRIMINATION = Metric(
    name="discrimination",
    needs="ensemble",
    source="scikit-learn; Fawcett 2006",
    chunk=_areas_of,
    finish=_discrimination,
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


def _on_both(part: Part, _: Part, shared: None, options: Options) -> tuple[Real, Real]:
    train = part.train_accuracy
    if train is None:
        train = np.full(part.n_runs, np.nan)
    right = correct(part.label, part.y_true, part.held_out.n_classes).sum(axis=1)
    return train.astype(np.float64), right / part.held_out.n_test


def _gaps(held_out: HeldOut, partials: Sequence[tuple[Real, Real]], options: Options) -> Finished:
    train, accuracy = (np.concatenate([part[k] for part in partials]) for k in (0, 1))
    return Finished(runs={"train_accuracy": train, "generalization_gap": train - accuracy})


_OF_TRAINING = ("mean", "std")

GENERALIZATION = Metric(
    name="generalization",
    needs="label",
    source="accuracy on the training set minus accuracy on the test set",
    chunk=_on_both,
    finish=_gaps,
    runs=(
        real(
            "train_accuracy",
            "share of training rows",
            "Share of the rows that the run was fitted on, as it was fitted on them, that its "
            "final model gets right; null where that was not kept, and before the last epoch.",
            _OF_TRAINING,
        ),
        real(
            "generalization_gap",
            "difference of shares",
            "train_accuracy minus accuracy.",
            _OF_TRAINING,
        ),
    ),
)
