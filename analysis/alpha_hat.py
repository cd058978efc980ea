"""α̂: how much of a run must be trimmed away before it looks like the other runs of its repeat.

RKS, algorithm 1, in the exact mode: each resample splits the test points into two disjoint halves,
the candidate's and the reference's, and takes the smallest trimming level at which the test
accepts; α̂ is the mean over the resamples. The reference is the average eCDF of the repeat's other
runs. With one other run there is no average to speak of, so α̂ needs two; a run with a margin that
is not a number has no eCDF: it gets no α̂ and stands in no reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.metric import Column, Finished, Metric, Repeat
from analysis.options import Options
from analysis.trimming import dkw_threshold, trimming_levels

MIN_OTHERS = 2

Real = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reference:
    """The values of several models, sorted once.

    Attributes
    ----------
    values : float array (models × points,)
        In ascending order.
    point_of : int32 array (models × points,)
        The test point of each value.
    n_models : int
    """

    values: NDArray[np.floating[Any]]
    point_of: NDArray[np.int32]
    n_models: int

    @classmethod
    def sort(cls, margin: NDArray[np.floating[Any]]) -> Reference:
        """Sort the margins of all models, (model, point), together."""
        n_models, n_points = margin.shape
        if margin.size >= 2**31:
            raise ValueError(
                f"{n_models} runs of {n_points} points are too many for one reference; "
                "fewer than 2**31 values fit"
            )
        order = np.argsort(margin, axis=None)
        return cls(
            values=margin.reshape(-1)[order],
            point_of=(order % max(n_points, 1)).astype(np.int32),
            n_models=n_models,
        )


def alpha_stars(
    candidates: NDArray[np.floating[Any]],
    reference: Reference,
    candidate_counts: NDArray[np.uint8],
    reference_counts: NDArray[np.uint8],
    *,
    member: bool,
    n_side: int,
    gamma: float,
) -> Real:
    """Return the smallest trimming level of each candidate in each resample.

    Parameters
    ----------
    candidates : float array (candidate, point)
        Margins without NaN.
    reference : Reference
    candidate_counts, reference_counts : uint8 array (resample, point)
        How often a point is drawn on either side, `n_side` points on each.
    member : bool
        Whether the candidates are models of the reference; each is then compared with the others,
        Ḡ₋ₖ = (K·Ḡ − Ĝₖ)/(K − 1) in integer counts.
    gamma : float
        Threshold γ.

    Returns
    -------
    float64 array (candidate, resample)
        1 where no trimming is accepted.
    """
    order = np.argsort(candidates, axis=1).astype(np.int32)
    ordered = np.take_along_axis(candidates, order, axis=1)
    last_of_tie = np.ones(ordered.shape, dtype=np.bool_)
    last_of_tie[:, :-1] = ordered[:, 1:] > ordered[:, :-1]
    below = np.searchsorted(reference.values, ordered, side="left").astype(np.int32)
    upto = np.searchsorted(reference.values, ordered, side="right").astype(np.int32)
    levels: Real = trimming_levels(
        reference.point_of,
        order,
        last_of_tie,
        below,
        upto,
        member,
        reference.n_models,
        candidate_counts,
        reference_counts,
        n_side,
        gamma,
    )
    return levels


def _ordered(margin: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Say which runs have an eCDF: those without NaN."""
    result: NDArray[np.bool_] = ~np.isnan(margin).any(axis=1)
    return result


def _margin(repeat: Repeat) -> NDArray[np.floating[Any]]:
    if repeat.margin is None:
        raise ValueError("alpha_hat needs one number a point; no margins or scores are stored")
    return repeat.margin


def _prepare(repeat: Repeat) -> Reference:
    margin = _margin(repeat)
    return Reference.sort(margin[_ordered(margin)])


def _chunk(repeat: Repeat, reference: Reference, start: int, stop: int, options: Options) -> Real:
    own = _margin(repeat)[start:stop]
    result = np.full((stop - start, options.resamples), np.nan)
    usable = _ordered(own)
    if reference.n_models <= MIN_OTHERS or repeat.n_test < 2 or not usable.any():
        return result
    halves = repeat.held_out.halves
    result[usable] = alpha_stars(
        own[usable],
        reference,
        halves.candidate,
        halves.reference,
        member=True,
        n_side=halves.n_side,
        gamma=dkw_threshold(halves.n_side, options.epsilon),
    )
    return result


def _finish(repeat: Repeat, levels: Real, options: Options) -> Finished:
    spread = levels.std(axis=1, ddof=1)
    n_side = repeat.n_test // 2
    usable = _ordered(_margin(repeat))
    references = np.where(usable, np.count_nonzero(usable) - 1, np.nan)
    return Finished(
        runs={
            "alpha_hat": levels.mean(axis=1),
            "alpha_hat_mc_se": spread / np.sqrt(options.resamples),
            "alpha_hat_spread": spread,
            "alpha_hat_infeasible": np.where(
                np.isnan(levels[:, 0]), np.nan, (levels == 1.0).mean(axis=1)
            ),
            "alpha_hat_references": references,
        },
        repeat={
            "n_side": np.asarray(n_side),
            "delta": np.asarray(dkw_threshold(n_side, options.epsilon) if n_side else np.nan),
        },
    )


ALPHA_HAT = Metric(
    name="alpha_hat",
    needs="margin",
    source="RKS, algorithm 1 and eq. 32-33; exact mode",
    prepare=_prepare,
    chunk=_chunk,
    finish=_finish,
    runs=(
        Column(
            "alpha_hat",
            pl.Float64,
            "trimming level",
            "Mean over the resamples of the smallest level at which the run, against the average "
            "eCDF of the repeat's other runs, passes the robust two-sample KS test.",
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
            "Resamples that no trimming makes acceptable; they count as level 1.",
            ("max",),
        ),
        Column(
            "alpha_hat_references",
            pl.UInt32,
            "runs",
            "Other runs of the repeat in the reference.",
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
