"""α̂: how much of a run must be trimmed away before it looks like the other runs of its repeat.

RKS, algorithm 1: each resample draws test points for the candidate and others for the reference,
and takes the smallest trimming level at which the robust test accepts; α̂ is the mean over the
resamples. `analysis.options` lists the modes and the references. A reference of one other run would
be no average to speak of, so α̂ needs two; a run with a margin that is not a number has no eCDF: it
gets no α̂ and stands in no reference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.alphahat.outlying import suspects
from manyseed.analysis.alphahat.references import (
    PAPER_INFEASIBLE,
    Reference,
    alpha_stars,
    paper_levels,
)
from manyseed.analysis.alphahat.resampling import Resamples
from manyseed.analysis.alphahat.trimming import dkw_threshold
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part
from manyseed.analysis.options import Options
from manyseed.analysis.refused import Refused

MIN_OTHERS = 2
SORTED = ("others", "others-trimmed", "half")  # references of all models' values

Real = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Positions = NDArray[np.int64]


def _nobody() -> Positions:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Models:
    """The runs that references are made of.

    Attributes
    ----------
    position : int64 array (model,)
        Their places in the repeat, ascending.
    probe : float array (model, point)
    total : float64 array (point,)
        Sum over the models.
    reference : Reference or None
        Sorted; None where every candidate has a reference of its own.
    left_out : int64 array (model,)
        Places of runs that are left out because they make resamples infeasible.
    """

    position: Positions
    probe: Floats
    total: Real
    reference: Reference | None
    left_out: Positions = field(default_factory=_nobody)

    @classmethod
    def of(cls, position: Positions, values: Floats) -> Models:
        """Take some runs, unsorted."""
        return cls(position, values, values.sum(axis=0, dtype=np.float64), None)

    def ensemble(self, left_out: int | None = None) -> Reference:
        """Return the ensemble of all models, or of all but one (RKS, eq. 9; RKS24)."""
        total, size = self.total, self.position.size
        if left_out is not None:
            total, size = total - self.probe[left_out], size - 1
        return Reference.sort((total / size)[None])


def probe(margin: Floats | None, held_out: HeldOut, options: Options) -> Floats:
    """Return what the eCDFs are of: margins, limited and standardised as the options say."""
    if margin is None:
        raise ValueError("alpha_hat needs one number a point; no margins or scores are stored")
    if held_out.n_classes == 2 and options.probe == "true_margin":
        margin = np.where(held_out.y_true == 1, margin, -margin)
    limit = options.probe_limit
    if limit is not None:
        margin = np.clip(margin, -limit, limit)
    if options.standardise:
        exact = margin.astype(np.float64)
        spread = exact.std(axis=1, keepdims=True)
        margin = (exact - exact.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    return margin


def defined(margin: Floats) -> NDArray[np.bool_]:
    """Say which runs have an eCDF: those without NaN."""
    return np.asarray(~np.isnan(margin).any(axis=1))


def draws(held_out: HeldOut, options: Options) -> Resamples:
    """Return the resamples that the mode and the reference ask for."""
    if options.alpha_reference == "loo_ensemble":
        return held_out.bootstraps
    return held_out.drawn_halves if options.alpha_mode == "paper" else held_out.halves


def side(n_test: int, options: Options) -> int:
    """Return N, the points on each side."""
    return n_test if options.alpha_reference == "loo_ensemble" else n_test // 2


def _split(n_repeat: int, options: Options) -> tuple[int, int]:
    """Return how many runs, the first ones, are references, and which is the first candidate."""
    if options.alpha_reference in ("half", "ensemble"):
        return min(n_repeat // 2, options.max_references), n_repeat // 2
    return min(n_repeat, options.max_references), 0


def _gather(part: Part, options: Options) -> tuple[Positions, Floats]:
    references = _split(part.n_repeat, options)[0]
    here = slice(0, max(references - part.start, 0))
    own = part.margin if part.reference_margin is None else part.reference_margin
    values = probe(own, part.held_out, options)[here]
    usable = defined(values)
    return part.start + np.flatnonzero(usable), values[usable]


def _share(
    held_out: HeldOut, gathered: Sequence[tuple[Positions, Floats]], options: Options
) -> Models:
    position = np.concatenate([positions for positions, _ in gathered])
    values = (
        gathered[0][1] if len(gathered) == 1 else np.concatenate([values for _, values in gathered])
    )
    models = Models.of(position, values)
    if options.alpha_reference == "others-trimmed":
        models = _without_suspects(models, held_out, options)
    if options.alpha_reference == "ensemble" and position.size > 0:
        return replace(models, reference=models.ensemble())
    if options.alpha_reference in SORTED:
        return replace(models, reference=Reference.sort(models.probe))
    return models


def _without_suspects(models: Models, held_out: HeldOut, options: Options) -> Models:
    """Leave out the models without which no resample of any other one is infeasible.

    Nobody is left out where fewer than half of them do not explain it.
    """

    def feasible(kept: Positions) -> bool:
        values = models.probe[kept]
        members = np.arange(kept.size, dtype=np.int32)
        tested = _test(values, Reference.sort(values), members, held_out, options)
        return not (tested[:, : options.resamples] == worst(options)).any()

    found = suspects(models.probe, feasible)
    if found is None or found.size == 0:
        return models
    kept = np.delete(np.arange(models.position.size), found)
    trimmed = Models.of(models.position[kept], models.probe[kept])
    return replace(trimmed, left_out=models.position[found])


def _suspects(
    own: Floats, position: Positions, levels: Real, models: Models, options: Options, of: HeldOut
) -> Positions:
    """Return the places of runs that are likely why resamples of these runs are infeasible.

    They are models of the reference, and runs beside it that are infeasible without these, too.
    """
    infeasible = (levels == worst(options)).any(axis=1)
    if options.alpha_reference not in SORTED or not infeasible.any():
        return models.left_out
    rest = models
    if options.alpha_reference != "others-trimmed":
        rest = _without_suspects(models, of, options)
    rows = np.flatnonzero(infeasible & ~np.isin(position, models.position))
    if rows.size and rest is not models:
        nobody = np.full(rows.size, -1, dtype=np.int32)
        again = _test(own[rows], Reference.sort(rest.probe), nobody, of, options)
        rows = rows[(again[:, : options.resamples] == worst(options)).any(axis=1)]
    return np.union1d(rest.left_out, position[rows])


def worst(options: Options) -> float:
    """Return what counts as the level of a resample that no trimming makes acceptable."""
    return PAPER_INFEASIBLE if options.alpha_mode == "paper" else 1.0


@dataclass(frozen=True, slots=True)
class Tested:
    """What was found of some runs.

    Attributes
    ----------
    values : float64 array (run, 2 × resample + 1)
        Level and distance in each resample, and the runs in the reference.
    suspects : int64 array (suspect,)
        Places of the repeat's runs that are likely why any of these are infeasible.
    """

    values: Real
    suspects: Positions


def _chunk(part: Part, _: Part, models: Models, options: Options) -> Tested:
    n_resamples = options.resamples
    result: Real = np.full((part.n_runs, 2 * n_resamples + 1), np.nan)
    held_out = part.held_out
    own = probe(part.margin, held_out, options)
    position = part.start + np.arange(part.n_runs)
    first = _split(part.n_repeat, options)[1]
    candidate = defined(own) & (position >= first)
    inside = np.isin(position, models.position)
    for member in (True, False):
        others = models.position.size - member
        rows = np.flatnonzero(candidate & (inside == member))
        if rows.size == 0 or others < MIN_OTHERS:
            continue
        index = np.searchsorted(models.position, position[rows])
        if models.reference is None:
            for row, model in zip(rows, index, strict=True):
                rest = models.ensemble(int(model) if member else None)
                result[row, :-1] = _test(own[row : row + 1], rest, _NONE, held_out, options)[0]
        else:
            left_out = index.astype(np.int32) if member else np.full(rows.size, -1, dtype=np.int32)
            result[rows, :-1] = _test(own[rows], models.reference, left_out, held_out, options)
        result[rows, -1] = others
    levels = result[:, :n_resamples]
    return Tested(result, _suspects(own, position, levels, models, options, held_out))


_NONE = np.array([-1], dtype=np.int32)


def _test(
    candidates: Floats,
    reference: Reference,
    left_out: NDArray[np.int32],
    held_out: HeldOut,
    options: Options,
) -> Real:
    """Return levels and, after them, distances: (candidate, 2 × resample)."""
    drawn = draws(held_out, options)
    delta = dkw_threshold(drawn.n_side, options.epsilon)
    levels, distances = alpha_stars(
        candidates, reference, drawn, member=bool(left_out[0] >= 0), gamma=delta
    )
    if options.alpha_mode == "paper":
        levels = paper_levels(candidates, reference, drawn, left_out=left_out, delta=delta)
    return np.concatenate([levels, distances], axis=1)


def _finish(held_out: HeldOut, partials: Sequence[Tested], options: Options) -> Finished:
    values = np.concatenate([partial.values for partial in partials])
    causes = np.concatenate([partial.suspects for partial in partials])
    levels, distances = values[:, : options.resamples], values[:, options.resamples : -1]
    n_side = side(held_out.n_test, options)
    delta = dkw_threshold(n_side, options.epsilon)
    is_suspect = np.where(np.isnan(levels[:, 0]), np.nan, 0.0)
    is_suspect[causes] = 1.0
    if options.alpha_reference not in SORTED:
        is_suspect[:] = np.nan
    spread = levels.std(axis=1, ddof=1)
    rejected = _share_of(distances > delta, levels)
    return Finished(
        runs={
            "alpha_hat": levels.mean(axis=1),
            "alpha_hat_mc_se": spread / np.sqrt(options.resamples),
            "alpha_hat_spread": spread,
            "alpha_hat_infeasible": _share_of(levels == worst(options), levels),
            "alpha_hat_suspect": is_suspect,
            "alpha_hat_references": values[:, -1],
            "ks_distance": distances.mean(axis=1),
            "ks_rejected": rejected,
            "below_resolution": np.where(np.isnan(rejected), np.nan, rejected <= 0.5),
        },
        repeat={"n_side": np.asarray(n_side), "delta": np.asarray(delta)},
    )


def _share_of(found: NDArray[np.bool_], levels: Real) -> Real:
    return np.where(np.isnan(levels[:, 0]), np.nan, found.mean(axis=1))


def _allowed(n_classes: int, n_test: int, options: Options) -> None:
    if options.probe == "gap" and n_classes > 2:
        reason = f"needs two classes for the logit gap, and there are {n_classes}"
        raise Refused("probe", options.probe, reason)
    n_side = side(n_test, options)
    delta = dkw_threshold(n_side, options.epsilon) if n_side else math.inf
    if delta >= 1:
        reason = (
            f"needs more test points: with {n_side} on each side δ is {delta:.2f}, and no two "
            "distributions are more than 1 apart"
        )
        raise Refused("n_test", n_test, reason)


ALPHA_HAT = Metric(
    name="alpha_hat",
    needs="margin",
    allowed=_allowed,
    source="RKS, algorithm 1; RKS24 (leave-one-out ensemble)",
    gather=_gather,
    share=_share,
    chunk=_chunk,
    finish=_finish,
    runs=(
        Column(
            "alpha_hat",
            pl.Float64,
            "trimming level",
            "Mean over the resamples of the smallest level at which the run passes the robust "
            "two-sample KS test against its reference.",
            ("n", "mean", "min", "max", "range"),
        ),
        Column(
            "alpha_hat_mc_se",
            pl.Float64,
            "trimming level",
            "Monte-Carlo error of alpha_hat: spread over the square root of the resamples. Not "
            "the uncertainty for new test points.",
        ),
        Column(
            "alpha_hat_spread",
            pl.Float64,
            "trimming level",
            "Standard deviation over the resamples.",
        ),
        Column(
            "alpha_hat_infeasible",
            pl.Float64,
            "share of resamples",
            "Resamples that no trimming makes acceptable; they count as level 1 (.50 in mode "
            "paper).",
            ("max",),
        ),
        Column(
            "alpha_hat_suspect",
            pl.Boolean,
            "",
            "Whether the run is likely why resamples of its repeat are infeasible: without the "
            "suspects none is. With the reference others-trimmed they are left out of it.",
        ),
        Column("alpha_hat_references", pl.UInt32, "runs", "Runs in the reference."),
        Column(
            "ks_distance",
            pl.Float64,
            "difference of eCDFs",
            "Mean over the resamples of the largest difference of the two eCDFs.",
            ("mean", "max"),
        ),
        Column(
            "ks_rejected",
            pl.Float64,
            "share of resamples",
            "Resamples in which the classical two-sample KS test rejects: the distance exceeds δ.",
            ("mean",),
        ),
        Column(
            "below_resolution",
            pl.Boolean,
            "",
            "Whether the classical test accepts in at least half of the resamples: what sets the "
            "run apart, if anything, is too little to be seen at N.",
        ),
    ),
    repeat=(
        Column("n_side", pl.UInt32, "test points", "Points on each side of the test (N)."),
        Column(
            "delta",
            pl.Float64,
            "difference of eCDFs",
            "Resolution: the two-sample DKW threshold at N. Smaller contamination isn't seen.",
        ),
    ),
)
