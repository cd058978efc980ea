"""What the confusion matrix says of a run, as scikit-learn has it: F1, Matthews' correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics.accuracy import correct
from manyseed.analysis.metrics.gram import class_counts
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part
from manyseed.analysis.options import Options

Counts = NDArray[np.int64]
Real = NDArray[np.float64]


def f1_macro(right: Counts, given: Counts, there: Counts) -> Real:
    """Return the mean over classes of F1 = 2 TP / (2 TP + FP + FN).

    Over the classes that have a test point or are predicted, as
    ``sklearn.metrics.f1_score(average="macro")`` takes it.

    Parameters
    ----------
    right, given : int64 arrays (run, class)
        Test points of each class that are right, and to which it is given.
    there : int64 array (class,)
        Test points of each class.
    """
    either = given + there
    seen = either > 0
    each = np.where(seen, 2 * right / np.maximum(either, 1), 0.0)
    result: Real = each.sum(axis=1) / seen.sum(axis=1)
    return result


def matthews_corrcoef(right: Counts, given: Counts, there: Counts) -> Real:
    """Return Matthews' correlation for any number of classes (Gorodkin 2004, eq. 8).

    0 where all points are of one class or are given one class, as
    ``sklearn.metrics.matthews_corrcoef`` has it; the parameters are those of `f1_macro`.
    """
    n = int(there.sum())
    both = n * right.sum(axis=1) - given @ there
    # in floats: a product of two squares of the number of points is no 64-bit number
    of_given = (n * n - np.square(given).sum(axis=1)).astype(np.float64)
    of_true = float(n * n - np.square(there).sum())
    spread = np.sqrt(of_given) * np.sqrt(of_true)
    return np.where(spread > 0, both / np.where(spread > 0, spread, 1.0), 0.0)


def _chunk(part: Part, _: Part, shared: None, options: Options) -> tuple[Counts, Counts]:
    n_classes = part.held_out.n_classes
    return correct(part.label, part.y_true, n_classes), class_counts(part.label, n_classes)


def _finish(held_out: HeldOut, partials: Sequence[Any], options: Options) -> Finished:
    right, given = (np.concatenate([part[k] for part in partials]) for k in (0, 1))
    there = np.bincount(held_out.y_true, minlength=held_out.n_classes).astype(np.int64)
    return Finished(
        runs={
            "f1_macro": f1_macro(right, given, there),
            "matthews_corrcoef": matthews_corrcoef(right, given, there),
        },
        repeat={"smallest_class": np.asarray(there.min())},
    )


CONFUSION = Metric(
    name="confusion",
    needs="label",
    source="scikit-learn; Gorodkin 2004",
    chunk=_chunk,
    finish=_finish,
    runs=(
        Column(
            "f1_macro",
            pl.Float64,
            "1",
            "Mean of F1 over the classes that have a test point or are predicted.",
            ("mean", "range"),
        ),
        Column(
            "matthews_corrcoef",
            pl.Float64,
            "1",
            "Matthews' correlation of true and predicted class, -1 to 1; 0 where either is one "
            "class throughout.",
            ("mean", "range"),
        ),
    ),
    repeat=(
        Column(
            "smallest_class",
            pl.UInt32,
            "test points",
            "Test points of the class that has the fewest: what means over classes rest on.",
        ),
    ),
)
