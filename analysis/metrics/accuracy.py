"""Accuracy of a run on its test set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.metrics.metric import Finished, HeldOut, Metric, Part, real
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


def _chunk(part: Part, _: Part, shared: None, options: Options) -> NDArray[np.int64]:
    return correct(part.label, part.y_true, part.held_out.n_classes)


def _finish(held_out: HeldOut, partials: Sequence[NDArray[np.int64]], options: Options) -> Finished:
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
    chunk=_chunk,
    finish=_finish,
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
