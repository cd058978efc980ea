"""The ensemble of a repeat's runs: how good it is, and how far each run is from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics.exactsum import Digits, added, digits, labels
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part
from manyseed.analysis.options import Options


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The average of a repeat's runs (RKS, eq. 9).

    Attributes
    ----------
    label : int64 array (sample,)
        Class of the largest average score; with two classes 1 where the average gap is at least 0.
    size : int
        Runs in it: those without NaN.
    """

    label: NDArray[np.int64]
    size: int


def _gather(part: Part, options: Options) -> tuple[Digits, int]:
    two = part.held_out.n_classes == 2 and part.margin is not None
    values = part.margin if two else part.score
    if values is None:
        raise ValueError("an ensemble needs the gap of two classes or the scores of all")
    usable = [run for run in values if not np.isnan(run).any()]
    return added(digits(run) for run in usable), len(usable)


def _share(held_out: HeldOut, gathered: Sequence[tuple[Digits, int]], options: Options) -> Ensemble:
    total = added(total for total, _ in gathered)
    size = sum(size for _, size in gathered)
    return Ensemble(labels(total) if size else np.zeros(held_out.n_test, dtype=np.int64), size)


def _chunk(
    part: Part, _: Part, ensemble: Ensemble, options: Options
) -> tuple[NDArray[np.float64], Ensemble]:
    if ensemble.size == 0:
        return np.full(part.n_runs, np.nan), ensemble
    return (part.label != ensemble.label).mean(axis=1), ensemble


def _finish(
    held_out: HeldOut,
    partials: Sequence[tuple[NDArray[np.float64], Ensemble]],
    options: Options,
) -> Finished:
    ensemble = partials[0][1]
    right = (ensemble.label == held_out.y_true).mean() if ensemble.size else np.nan
    return Finished(
        runs={"churn_ensemble": np.concatenate([churn for churn, _ in partials])},
        repeat={"ensemble_accuracy": np.asarray(right)},
    )


ENSEMBLE = Metric(
    name="ensemble",
    needs="ensemble",
    source="RKS, eq. 9 and section V",
    gather=_gather,
    share=_share,
    chunk=_chunk,
    finish=_finish,
    runs=(
        Column(
            "churn_ensemble",
            pl.Float64,
            "share of test points",
            "Points to which the run gives another label than the ensemble of all runs of its "
            "repeat, itself among them.",
            ("mean", "range"),
        ),
    ),
    repeat=(
        Column(
            "ensemble_accuracy",
            pl.Float64,
            "share of test points",
            "Accuracy of the average of the repeat's logit gaps, or scores.",
        ),
    ),
)
