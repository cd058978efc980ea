"""A test set in two parts: one chooses runs, the other reports the chosen run's accuracy.

The best of many runs looks too accurate on the points that chose it. So a random part of the test
points, the same for all runs of a test set, takes no part in choosing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis import Refused
from manyseed.analysis.metrics.alpha_hat import ALPHA_HAT
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part, real
from manyseed.analysis.options import Options, is_own

Real = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TwoParts:
    """Accuracies of runs on both parts, (run,), and the partial result of α̂ on the first."""

    choosing: Real
    reported: Real
    alpha_hat: Any


def _has_alpha(held_out: HeldOut, options: Options) -> bool:
    """Return whether α̂ is computed, and can be on the points that choose."""
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
    if part.margin is None and not is_own(options.probe):
        return None
    if options.holdout is None or not _has_alpha(part.held_out, options):
        return None
    return ALPHA_HAT.gather(_chosen(part, options.holdout), options)


def _share(held_out: HeldOut, gathered: Sequence[Any], options: Options) -> Any:
    if options.holdout is None or any(part is None for part in gathered):
        return None
    return ALPHA_HAT.share(held_out.apart(options.holdout), gathered, options)


def _chunk(part: Part, _: Part, shared: Any, options: Options) -> TwoParts:
    if options.holdout is None:
        undefined = np.full(part.n_runs, np.nan)
        return TwoParts(undefined, undefined, None)
    right = part.label == part.y_true
    choosing, reported = (
        right[:, points].sum(axis=1) / max(points.size, 1)
        for points in part.held_out.points(options.holdout)
    )
    alpha_hat = None
    if shared is not None:
        chosen = _chosen(part, options.holdout)
        alpha_hat = ALPHA_HAT.chunk(chosen, chosen, shared, options)
    return TwoParts(choosing, reported, alpha_hat)


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
            parts = [part.alpha_hat for part in partials]
            finished = ALPHA_HAT.finish(held_out.apart(options.holdout), parts, options)
            runs["choosing_alpha_hat"] = finished.runs["alpha_hat"]
            repeat["choosing_delta"] = finished.repeat["delta"]
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
        real(
            "choosing_accuracy",
            "share of test points",
            "With the option holdout: accuracy on the points that choose.",
            (),
        ),
        real(
            "choosing_alpha_hat",
            "trimming level",
            "With the option holdout: α̂ on the points that choose.",
            (),
        ),
        real(
            "holdout_accuracy",
            "share of test points",
            "With the option holdout: accuracy on the points that took no part in choosing.",
            (),
        ),
    ),
    repeat=(
        real(
            "choosing_delta",
            "difference of eCDFs",
            "With the option holdout: resolution of α̂ on the points that choose.",
            (),
        ),
        Column(
            "holdout_points",
            pl.UInt32,
            "test points",
            "With the option holdout: points that took no part in choosing.",
        ),
    ),
)
