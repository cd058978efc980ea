"""Scores from a run's confusion matrix, equal to scikit-learn's: F1, Matthews' correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics.accuracy import correct
from manyseed.analysis.metrics.gram import class_counts
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part, real
from manyseed.analysis.options import Options

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

    As in ``sklearn.metrics.matthews_corrcoef``, 0 where the true or the predicted classes are all
    one class. Parameters are those of `f1_macro`.
    """
    n = int(true.sum())
    covariance = n * right.sum(axis=1) - predicted @ true
    # in floats: the product of these two can exceed 64 bits
    of_predicted = (n * n - np.square(predicted).sum(axis=1)).astype(np.float64)
    of_true = float(n * n - np.square(true).sum())
    spread = np.sqrt(of_predicted) * np.sqrt(of_true)
    return np.where(spread > 0, covariance / np.where(spread > 0, spread, 1.0), 0.0)


def _chunk(part: Part, _: Part, shared: None, options: Options) -> tuple[Counts, Counts]:
    n_classes = part.held_out.n_classes
    return correct(part.label, part.y_true, n_classes), class_counts(part.label, n_classes)


def _finish(held_out: HeldOut, partials: Sequence[Any], options: Options) -> Finished:
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
    chunk=_chunk,
    finish=_finish,
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
