"""α̂: how much of a run must be trimmed away before it looks like the other runs of its repeat.

RKS, algorithm 1: each resample draws test points for the candidate and others for the reference,
and finds the smallest trimming level at which the robust test accepts; α̂ is the mean over the
resamples. `analysis.options` lists the modes and the references. A reference averages at least two
other runs. A run with a NaN margin has no eCDF: it gets no α̂ and is in no reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis import Refused
from manyseed.analysis.alphahat.references import ROUNDING, Reference, distances
from manyseed.analysis.alphahat.resampling import (
    SPLITS,
    Resamples,
    bootstraps,
    composed,
    disjoint_halves,
    interval,
    joined,
)
from manyseed.analysis.alphahat.trimming import dkw_of_one, dkw_threshold
from manyseed.analysis.counts import fixed
from manyseed.analysis.metrics.alpha_tests import (
    MIN_OTHERS,
    Floats,
    Levels,
    Models,
    Places,
    Positions,
    Real,
    against_majority,
    defined,
    draws,
    probe,
    side,
    suspected,
    test,
    values_of,
    without_suspects,
)
from manyseed.analysis.metrics.custom import Failed
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part, real
from manyseed.analysis.options import CONFIDENCE, SORTED, Options

RUNS = (
    real(
        "alpha_hat",
        "trimming level",
        "Mean over the resamples of the smallest level at which the run passes the robust "
        "two-sample KS test against its reference.",
        ("n", "mean", "min", "max", "range"),
    ),
    real(
        "alpha_hat_mc_se",
        "trimming level",
        "Monte-Carlo error of alpha_hat: spread over the square root of the resamples. Not "
        "the uncertainty for new test points.",
        (),
    ),
    real("alpha_hat_spread", "trimming level", "Standard deviation over the resamples.", ()),
    real(
        "alpha_hat_low",
        "trimming level",
        "Lower end of a 95 % bootstrap interval over new test points for the level at infinitely "
        "many points; null unless the option alpha_bootstrap is set.",
        (),
    ),
    real("alpha_hat_high", "trimming level", "Upper end of that interval.", ()),
    real(
        "alpha_hat_rejected",
        "share of resamples",
        "Resamples in which the robust test at the level of the option alpha_level rejects.",
        ("mean",),
    ),
    real(
        "alpha_hat_infeasible",
        "share of resamples",
        "Resamples that no trimming makes acceptable; they count as level 1 (.50 in mode paper).",
        ("max",),
    ),
    Column(
        "alpha_hat_suspect",
        pl.Boolean,
        "",
        "Whether the run probably makes resamples of its repeat infeasible: without the suspects "
        "none is. With alpha_reference = others-trimmed the reference leaves them out.",
    ),
    real(
        "alpha_hat_majority",
        "trimming level",
        "Of a run that is not close to its reference: α̂ against the runs that are left if the "
        "fewest, fewer than half, are left out so that all others are close to each other. Null if "
        "no majority is, and with more than 100 runs in the reference.",
        (),
    ),
    Column("alpha_hat_references", pl.UInt32, "runs", "Runs in the reference."),
    real(
        "delta_b",
        "difference of eCDFs",
        "Bound on the distance of the reference's average eCDF from the average distribution "
        "function (with probability 1 - ε).",
        (),
    ),
    real(
        "alpha_hat_bound",
        "difference of distribution functions",
        "Bound on the largest difference between the candidate's distribution function and the "
        "reference's average one: alpha_hat + γ + δ_b + δ_c.",
        (),
    ),
    real(
        "ks_distance",
        "difference of eCDFs",
        "Mean over the resamples of the largest difference between the two eCDFs.",
        ("mean", "max"),
    ),
    real(
        "ks_rejected",
        "share of resamples",
        "Resamples in which the classical two-sample KS test rejects: the distance exceeds δ.",
        ("mean",),
    ),
    real(
        "ks_rejected_average",
        "share of resamples",
        "Resamples in which the distance exceeds δ + δ_b, so that the run's eCDF differs from the "
        "references' average distribution function, too (RKS, corollary 1).",
        (),
    ),
    Column(
        "below_resolution",
        pl.Boolean,
        "",
        "Whether the classical test accepts in at least half of the resamples: the run's "
        "difference, if any, is too small to be seen at N.",
    ),
    real(
        "wasserstein",
        "unit of the probe",
        "Wasserstein-1 distance of the run's eCDF from its reference's, over all test points: the "
        "area between them. Null where it is infinite.",
        ("mean", "max"),
    ),
)

REPEAT = (
    Column("n_side", pl.UInt32, "test points", "Points on each side of the test (N)."),
    real(
        "delta",
        "difference of eCDFs",
        "Resolution: the two-sample DKW threshold at N. Smaller contamination isn't seen.",
        (),
    ),
    real(
        "delta_c",
        "difference of eCDFs",
        "Bound on the distance of a candidate's eCDF from its distribution function (with "
        "probability 1 - ε).",
        (),
    ),
)


def _split(n_repeat: int, options: Options) -> tuple[int, int]:
    """Return how many runs, from the first, are references, and which is the first candidate."""
    if options.alpha_reference in ("half", "ensemble"):
        return min(n_repeat // 2, options.max_references), n_repeat // 2
    return min(n_repeat, options.max_references), 0


def fewest_runs(options: Options) -> int:
    """Return how many runs a repeat needs at least for one of them to have an α̂."""
    return 2 * MIN_OTHERS if options.alpha_reference in ("half", "ensemble") else MIN_OTHERS + 1


def _gather(part: Part, options: Options) -> tuple[Positions, Floats] | Failed:
    if part.reference_margin is None:
        values = values_of(part, options)
    else:
        values = probe(part.reference_margin, part.held_out, options)
    if isinstance(values, Failed):
        return values
    references = _split(part.n_repeat, options)[0]
    values = values[: max(references - part.start, 0)]
    usable = defined(values)
    return part.start + np.flatnonzero(usable), values[usable]


def _share(
    held_out: HeldOut, gathered: Sequence[tuple[Positions, Floats] | Failed], options: Options
) -> Models | Failed:
    if failed := [part for part in gathered if isinstance(part, Failed)]:
        return min(failed, key=lambda part: part.reason)
    usable = [part for part in gathered if not isinstance(part, Failed)]
    position = np.concatenate([positions for positions, _ in usable])
    values = usable[0][1] if len(usable) == 1 else np.concatenate([values for _, values in usable])
    models = Models.of(position, values)
    if options.alpha_reference == "others-trimmed":
        models = without_suspects(models, draws(held_out, options), options)
    if options.alpha_reference == "ensemble" and position.size > 0:
        return replace(models, reference=models.ensemble())
    if options.alpha_reference in SORTED:
        return replace(models, reference=Reference.sort(models.probe))
    return models


@dataclass(frozen=True, slots=True)
class Tested:
    """Results of some runs.

    Attributes
    ----------
    majority, references, distance, low, high : float64 array (run,)
        α̂ against the majority, runs in the reference, Wasserstein-1 distance, and the ends of the
        interval.
    suspects : int64 array (suspect,)
        Positions in the repeat of the runs that probably make any of these infeasible.
    """

    levels: Levels
    majority: Real
    references: Real
    distance: Real
    low: Real
    high: Real
    suspects: Positions


def _chunk(part: Part, _: Part, models: Models | Failed, options: Options) -> Tested | Failed:
    held_out, n_runs = part.held_out, part.n_runs
    if isinstance(models, Failed):
        return Failed(n_runs, models.reason)
    values = values_of(part, options)
    if isinstance(values, Failed):
        return values
    position = part.start + np.arange(n_runs)
    first = _split(part.n_repeat, options)[1]
    candidate = defined(values) & (position >= first)
    inside = np.isin(position, models.position)
    drawn = draws(held_out, options)
    samples = list(_samples(held_out, options)) if candidate.any() else []
    levels = Levels.unknown(n_runs, options.resamples)
    references, distance, low, high = (np.full(n_runs, np.nan) for _ in range(4))
    for member in (True, False):
        others = models.position.size - member
        rows = np.flatnonzero(candidate & (inside == member))
        if rows.size == 0 or others < MIN_OTHERS:
            continue
        for some, reference, left_out in _references(models, rows, position, member=member):
            tested = test(values[some], reference, left_out, drawn, options)
            levels.put(some, tested)
            distance[some] = distances(values[some], reference, left_out)
            if samples:
                again = [test(values[some], reference, left_out, s, options) for s in samples]
                bootstrapped = Levels.joined(again, axis=1).counted
                ends = interval(tested.counted, bootstrapped, CONFIDENCE)
                low[some], high[some] = ends
        references[rows] = others
    facts = (values, position, levels, models, drawn, options)
    causes, majority = suspected(*facts), against_majority(*facts)
    return Tested(levels, majority, references, distance, low, high, causes)


def _references(
    models: Models, rows: Positions, position: Positions, *, member: bool
) -> Iterator[tuple[Positions, Reference, Places]]:
    """Yield candidates, their reference, and the model in it that each is (-1: none)."""
    index = np.searchsorted(models.position, position[rows])
    none = np.full(rows.size, -1, dtype=np.int32)
    if models.reference is not None:
        yield rows, models.reference, index.astype(np.int32) if member else none
        return
    for place, model in enumerate(index):
        one = slice(place, place + 1)
        yield rows[one], models.ensemble(int(model) if member else None), none[one]


BATCH = 32  # bootstrap samples tested together


def _samples(held_out: HeldOut, options: Options) -> Iterator[Resamples]:
    """Yield resamples of bootstrap samples of the test points, `BATCH` samples at a time."""
    n_test, n_side = held_out.n_test, side(held_out.n_test, options)
    bits = held_out.bits("alpha_hat_points")

    def sample() -> Resamples:
        split = (
            bootstraps(bits, n_test, n_side, SPLITS)
            if options.with_replacement
            else disjoint_halves(bits, n_test, SPLITS)
        )
        return composed(bits, n_test, split)

    for start in range(0, options.alpha_bootstrap, BATCH):
        n = min(BATCH, options.alpha_bootstrap - start)
        yield joined([sample() for _ in range(n)])


def _finish(held_out: HeldOut, parts: Sequence[Tested | Failed], options: Options) -> Finished:
    if failed := [part.reason for part in parts if isinstance(part, Failed)]:
        return _undefined(parts, min(failed))
    partials = [part for part in parts if not isinstance(part, Failed)]

    def of_all(name: str) -> Any:
        return np.concatenate([getattr(partial, name) for partial in partials])

    tested = Levels.joined([partial.levels for partial in partials])
    levels, distances = tested.counted, tested.distances
    n_side = side(held_out.n_test, options)
    delta = dkw_threshold(n_side, options.epsilon)
    is_suspect = np.where(np.isnan(levels[:, 0]), np.nan, 0.0)
    is_suspect[of_all("suspects")] = 1.0
    if options.alpha_reference not in SORTED:
        is_suspect[:] = np.nan
    alpha_hat, spread = levels.mean(axis=1), levels.std(axis=1, ddof=1)
    rejected = _share_of(distances > delta, levels)
    references, distance = of_all("references"), of_all("distance")
    delta_b, delta_c = _deviations(references, n_side, options)
    return Finished(
        runs={
            "alpha_hat": alpha_hat,
            "alpha_hat_mc_se": spread / np.sqrt(options.resamples),
            "alpha_hat_spread": spread,
            "alpha_hat_low": of_all("low"),
            "alpha_hat_high": of_all("high"),
            "alpha_hat_rejected": _share_of(tested.exact > options.alpha_level + ROUNDING, levels),
            "alpha_hat_infeasible": _share_of(tested.infeasible(options), levels),
            "alpha_hat_suspect": is_suspect,
            "alpha_hat_majority": of_all("majority"),
            "alpha_hat_references": references,
            "delta_b": delta_b,
            "alpha_hat_bound": alpha_hat + delta + delta_b + delta_c,
            "ks_distance": distances.mean(axis=1),
            "ks_rejected": rejected,
            "ks_rejected_average": np.where(
                np.isnan(delta_b), np.nan, (distances > delta + delta_b[:, None]).mean(axis=1)
            ),
            "below_resolution": np.where(np.isnan(rejected), np.nan, rejected <= 0.5),
            "wasserstein": np.where(np.isinf(distance), np.nan, distance),
        },
        repeat={
            "n_side": np.asarray(n_side),
            "delta": np.asarray(delta),
            "delta_c": np.asarray(delta_c),
        },
    )


def _undefined(parts: Sequence[Tested | Failed], reason: str) -> Finished:
    n_runs = sum(
        part.n_runs if isinstance(part, Failed) else part.references.size for part in parts
    )
    return Finished(
        runs={column.name: np.full(n_runs, np.nan) for column in RUNS},
        repeat={column.name: np.asarray(np.nan) for column in REPEAT},
        failure=reason,
    )


def _deviations(references: Real, n_side: int, options: Options) -> tuple[Real, float]:
    """Return δ_b of each run and δ_c; NaN where the sides are not independent samples of points."""
    if options.with_replacement:
        return np.full(references.size, np.nan), math.nan
    models = np.ones_like(references) if options.alpha_reference == "ensemble" else references
    delta_b = [dkw_of_one(n_side, options.epsilon, m) for m in models]
    return np.where(np.isnan(references), np.nan, delta_b), dkw_of_one(n_side, options.epsilon)


def _share_of(resamples: NDArray[np.bool_], levels: Real) -> Real:
    return np.where(np.isnan(levels[:, 0]), np.nan, resamples.mean(axis=1))


def _allowed(n_classes: int, n_test: int, options: Options) -> None:
    if options.probe == "gap" and n_classes > 2:
        reason = f"needs two classes for the logit gap, and there are {n_classes}"
        raise Refused("probe", options.probe, reason)
    n_side = side(n_test, options)
    delta = dkw_threshold(n_side, options.epsilon) if n_side else math.inf
    if delta >= 1:
        reason = (
            f"needs more test points: with {n_side} on each side δ is {fixed(delta, 2)}, and no "
            "two "
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
    runs=RUNS,
    repeat=REPEAT,
)
