"""The ensemble of a repeat's runs: its accuracy, and the churn of each run against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics.exactsum import Digits, added, digits, labels, without
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part, real
from manyseed.analysis.metrics.probabilities import slices
from manyseed.analysis.options import Options


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The average of a repeat's runs (RKS, eq. 9).

    Attributes
    ----------
    total : Digits
        Sum of the runs' gaps (sample,) or scores (sample, class).
    label : int64 array (sample,)
        Class of the largest average score; with two classes 1 where the average gap is at least 0.
    size : int
        Its runs: those without NaN.
    """

    total: Digits
    label: NDArray[np.int64]
    size: int


@dataclass(frozen=True, slots=True)
class EnsembleChurn:
    """Test points that runs label differently from the ensemble of all runs, or of all others.

    Attributes
    ----------
    all, others : float64 arrays (run,)
        NaN where there is no such ensemble.
    right : float
        Share of the test points that the ensemble of all gets right.
    """

    all: NDArray[np.float64]
    others: NDArray[np.float64]
    right: float


def _values(part: Part) -> NDArray[np.floating[Any]]:
    two = part.held_out.n_classes == 2 and part.margin is not None
    values = part.margin if two else part.score
    if values is None:
        raise ValueError("an ensemble needs the gap of two classes or the scores of all")
    return values


def _gather(part: Part, options: Options) -> tuple[Digits, int]:
    usable = [run for run in _values(part) if not np.isnan(run).any()]
    return added(digits(run) for run in usable), len(usable)


def _share(held_out: HeldOut, gathered: Sequence[tuple[Digits, int]], options: Options) -> Ensemble:
    total = added(total for total, _ in gathered)
    size = sum(size for _, size in gathered)
    return Ensemble(total, labels(total) if size else np.zeros(held_out.n_test, np.int64), size)


def _chunk(part: Part, _: Part, ensemble: Ensemble, options: Options) -> EnsembleChurn:
    if ensemble.size == 0:
        undefined = np.full(part.n_runs, np.nan)
        return EnsembleChurn(undefined, undefined, np.nan)
    from_all = (part.label != ensemble.label).sum(axis=1).astype(np.float64)
    # for a run that is no member, the ensemble of all others is the ensemble
    from_others, values = from_all.copy(), _values(part)
    for rows in slices(part.n_runs, 8 * values[0].size):
        member = ~np.isnan(values[rows]).any(axis=tuple(range(1, values.ndim)))
        own = digits(values[rows][member])
        others = labels(without(ensemble.total, own), gaps=values.ndim == 2)
        from_others[rows][member] = (part.label[rows][member] != others).sum(axis=1)
        if ensemble.size == 1:
            from_others[rows][member] = np.nan
    right = float((ensemble.label == part.y_true).mean())
    return EnsembleChurn(from_all, from_others, right)


def _finish(held_out: HeldOut, partials: Sequence[EnsembleChurn], options: Options) -> Finished:
    from_all = np.concatenate([part.all for part in partials])
    from_others = np.concatenate([part.others for part in partials])
    return Finished(
        runs={
            "churn_ensemble": from_all / held_out.n_test,
            "churn_ensemble_points": from_all,
            "churn_loo_ensemble": from_others / held_out.n_test,
            "churn_loo_ensemble_points": from_others,
        },
        repeat={"ensemble_accuracy": np.asarray(partials[0].right)},
    )


_AS_POINTS = "The same as a number of points."

ENSEMBLE = Metric(
    name="ensemble",
    needs="ensemble",
    source="RKS, eq. 9 and section V; RKS24 (leave-one-out ensemble)",
    gather=_gather,
    share=_share,
    chunk=_chunk,
    finish=_finish,
    runs=(
        real(
            "churn_ensemble",
            "share of test points",
            "Points to which the run gives another label than the ensemble of all runs of its "
            "repeat, including itself.",
        ),
        Column("churn_ensemble_points", pl.UInt32, "test points", _AS_POINTS),
        real(
            "churn_loo_ensemble",
            "share of test points",
            "Points to which the run gives another label than the ensemble of all other runs of "
            "its repeat.",
        ),
        Column("churn_loo_ensemble_points", pl.UInt32, "test points", _AS_POINTS),
    ),
    repeat=(
        real(
            "ensemble_accuracy",
            "share of test points",
            "Accuracy of the average of the repeat's logit gaps, or scores.",
            (),
        ),
    ),
)
