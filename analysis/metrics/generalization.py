"""How much better a run does on its training rows than on its test set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.metrics.accuracy import correct
from manyseed.analysis.metrics.metric import Finished, HeldOut, Metric, Part, real
from manyseed.analysis.options import Options

Real = NDArray[np.float64]


def _chunk(part: Part, _: Part, shared: None, options: Options) -> tuple[Real, Real]:
    train = part.train_accuracy
    if train is None:
        train = np.full(part.n_runs, np.nan)
    right = correct(part.label, part.y_true, part.held_out.n_classes).sum(axis=1)
    return train.astype(np.float64), right / part.held_out.n_test


def _finish(held_out: HeldOut, partials: Sequence[tuple[Real, Real]], options: Options) -> Finished:
    train, accuracy = (np.concatenate([part[k] for part in partials]) for k in (0, 1))
    return Finished(runs={"train_accuracy": train, "generalization_gap": train - accuracy})


_SUMMARIES = ("mean", "std")

GENERALIZATION = Metric(
    name="generalization",
    needs="label",
    source="accuracy on the training set minus accuracy on the test set",
    chunk=_chunk,
    finish=_finish,
    runs=(
        real(
            "train_accuracy",
            "share of training rows",
            "Share of the rows that the run was fitted on, as it was fitted on them, that its "
            "final model gets right; null where that was not kept, and before the last epoch.",
            _SUMMARIES,
        ),
        real(
            "generalization_gap",
            "difference of shares",
            "train_accuracy minus accuracy.",
            _SUMMARIES,
        ),
    ),
)
