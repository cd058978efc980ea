"""Accuracy of a run on its test set."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.metric import Column, Finished, Metric, Repeat
from analysis.options import Options


def correct(label: NDArray[np.integer[Any]], y_true: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Count the test points that each run gets right.

    Parameters
    ----------
    label : integer array (run, sample)
    y_true : integer array (sample,)
    """
    count: NDArray[np.int64] = np.count_nonzero(label == y_true, axis=1)
    return count


def _chunk(
    repeat: Repeat, prepared: None, start: int, stop: int, options: Options
) -> NDArray[np.int64]:
    return correct(repeat.label[start:stop], repeat.held_out.y_true)


def _finish(repeat: Repeat, count: NDArray[np.int64], options: Options) -> Finished:
    return Finished(runs={"accuracy": count / repeat.n_test})


ACCURACY = Metric(
    name="accuracy",
    needs="label",
    source="RKS, MV",
    chunk=_chunk,
    finish=_finish,
    runs=(
        Column(
            "accuracy",
            pl.Float64,
            "share of test points",
            "Share of the test points that the run gets right.",
            ("mean", "std", "min", "max", "range"),
        ),
    ),
)
