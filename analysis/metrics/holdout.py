"""A test set in two parts: what runs are chosen by, and what is reported of the chosen.

The accuracy of the best of many runs, on the points by which it is the best, is too high. So a
random part of the test points, the same for all runs of a test set, takes no part in choosing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics.alpha_hat import ALPHA_HAT
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part
from manyseed.analysis.options import Options, is_own
from manyseed.analysis.refused import Refused

Real = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TwoParts:
    """Accuracies of runs on both parts, (run,), and what α̂ gives on the first."""

    choosing: Real
    reported: Real
    alpha_hat: Any


def _has_alpha(held_out: HeldOut, options: Options) -> bool:
    """Whether α̂ is computed, and can be of the points that choose."""
    if options.holdout is None or "alpha_hat" not in options.metrics:
        return False
    try:
        ALPHA_HAT.allowed(held_out.n_classes, held_out.apart(options.holdout).n_test, options)
    except Refused:
        return False
    return True


def _chosen(part: Part, share: float) -> Part:
    """Return the same runs on the points that choose."""
    points = part.held_out.points(share)[0]

    def chosen(values: NDArray[np.floating[Any]] | None) -> NDArray[np.floating[Any]] | None:
        return None if values is None else values[:, points]

    return replace(
        part,
        held_out=part.held_out.apart(share),
        label=part.label[:, points],
        margin=chosen(part.margin),
        confidence=chosen(part.confidence),
        score=chosen(part.score),
        reference_margin=chosen(part.reference_margin),
    )


def _gather(part: Part, options: Options) -> Any:
    own = options.probe is not None and is_own(options.probe)
    if part.margin is None and not own:
        return None
    if options.holdout is None or not _has_alpha(part.held_out, options):
        return None
    return ALPHA_HAT.gather(_chosen(part, options.holdout), options)


def _share(held_out: HeldOut, gathered: Sequence[Any], options: Options) -> Any:
    if options.holdout is None or any(one is None for one in gathered):
        return None
    return ALPHA_HAT.share(held_out.apart(options.holdout), gathered, options)


def _chunk(part: Part, _: Part, shared: Any, options: Options) -> TwoParts:
    if options.holdout is None:
        nothing = np.full(part.n_runs, np.nan)
        return TwoParts(nothing, nothing, None)
    right = part.label == part.y_true
    choosing, reported = (
        right[:, points].sum(axis=1) / max(points.size, 1)
        for points in part.held_out.points(options.holdout)
    )
    own = None
    if shared is not None:
        chosen = _chosen(part, options.holdout)
        own = ALPHA_HAT.chunk(chosen, chosen, shared, options)
    return TwoParts(choosing, reported, own)


def _finish(held_out: HeldOut, partials: Sequence[TwoParts], options: Options) -> Finished:
    choosing = np.concatenate([part.choosing for part in partials])
    runs = {
        "choosing_accuracy": choosing,
        "choosing_alpha_hat": np.full(choosing.size, np.nan),
        "holdout_accuracy": np.concatenate([part.reported for part in partials]),
    }
    repeat = dict.fromkeys(("choosing_delta", "holdout_points"), np.asarray(np.nan))
    if options.holdout is not None:
        repeat["holdout_points"] = np.asarray(held_out.points(options.holdout)[1].size)
        if all(part.alpha_hat is not None for part in partials):
            own = [part.alpha_hat for part in partials]
            found = ALPHA_HAT.finish(held_out.apart(options.holdout), own, options)
            runs["choosing_alpha_hat"] = found.runs["alpha_hat"]
            repeat["choosing_delta"] = found.repeat["delta"]
    return Finished(runs=runs, repeat=repeat)


HOLDOUT = Metric(
    name="holdout",
    needs="label",
    source="RKS, Tables IV and V, on two parts of the test points",
    gather=_gather,
    share=_share,
    chunk=_chunk,
    finish=_finish,
    runs=(
        Column(
            "choosing_accuracy",
            pl.Float64,
            "share of test points",
            "With the option holdout: accuracy on the points that choose.",
        ),
        Column(
            "choosing_alpha_hat",
            pl.Float64,
            "trimming level",
            "With the option holdout: α̂ on the points that choose.",
        ),
        Column(
            "holdout_accuracy",
            pl.Float64,
            "share of test points",
            "With the option holdout: accuracy on the points that took no part in choosing.",
        ),
    ),
    repeat=(
        Column(
            "choosing_delta",
            pl.Float64,
            "difference of eCDFs",
            "With the option holdout: resolution of α̂ on the points that choose.",
        ),
        Column(
            "holdout_points",
            pl.UInt32,
            "test points",
            "With the option holdout: points that took no part in choosing.",
        ),
    ),
)
