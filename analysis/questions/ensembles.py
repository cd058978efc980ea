"""How large must an ensemble be to stand for the training: RKS, section V-A and Table I.

Half of the models are the reference. From the other half, the pool, many ensembles of several sizes
are drawn, each without replacement, and each is compared with the reference like a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis import Refused
from manyseed.analysis.alphahat.references import Reference
from manyseed.analysis.alphahat.resampling import generator
from manyseed.analysis.alphahat.trimming import dkw_threshold, points_needed
from manyseed.analysis.counts import fixed
from manyseed.analysis.graph.chunks import single_repeat
from manyseed.analysis.graph.predictions import Predictions
from manyseed.analysis.metrics.alpha_tests import MIN_OTHERS, defined, probe, test
from manyseed.analysis.metrics.alpha_tests import draws as resamples
from manyseed.analysis.metrics.calibration import expected_calibration_error
from manyseed.analysis.metrics.formulas import labels, true_margin
from manyseed.analysis.metrics.metric import HeldOut, Part
from manyseed.analysis.metrics.probabilities import confidences
from manyseed.analysis.options import CLOSE, CONFIDENCE, Options
from manyseed.analysis.questions.needed import RunsNeeded
from manyseed.analysis.questions.quantiles import beta_quantile
from manyseed.analysis.questions.sequential import BLOCK, Decision, Real, decide
from manyseed.analysis.tables.rows import mean_of, std_of

SIZES = (3, 5, 10, 20, 30, 70, 100, 150, 200)
DRAWS = 500

BATCH = 512  # ensembles sorted and tested at once

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class RunPool:
    """Models to draw from, and models to compare with, on one test set.

    `members`, float array (model, sample) of logit gaps, or (model, sample, class) of scores:
    without NaN. `reference`, float array (model, sample): probe values, without NaN.
    """

    held_out: HeldOut
    members: Floats
    reference: Floats

    @classmethod
    def of(
        cls, predictions: Predictions, cell: int, repeat_index: int, options: Options
    ) -> RunPool:
        """Read one repeat: its first half is the reference, its second the pool."""
        name = predictions.source("ensemble")
        part = single_repeat(predictions, cell, repeat_index, ("margin", "ensemble"), options)
        members = part.margin if name == "margin" else part.score
        assert members is not None
        assert part.margin is not None
        usable = defined(part.margin)
        members, margin = members[usable], part.margin[usable]
        half = margin.shape[0] // 2
        if half < MIN_OTHERS:
            n = margin.shape[0]
            reason = (
                f"cell {cell}, repeat {repeat_index} has {n} runs without NaN; ensembles need 4"
            )
            raise Refused("repeat_index", repeat_index, reason)
        return cls(part.held_out, members[half:], margin[:half])

    def ensemble(self, members: NDArray[np.intp]) -> Floats:
        """Return the average of these models' gaps or scores (RKS, eq. 9)."""
        return np.asarray(self.members[members].mean(axis=0, dtype=np.float64))

    def probe(self, average: Floats) -> Floats:
        """Return the probe values of an ensemble, (sample,)."""
        if average.ndim == 1:
            return average.astype(np.float32)
        return np.asarray(true_margin(average[None], self.held_out.y_true)[0])


def draw_members(held_out: HeldOut, n_models: int, size: int, draws: int) -> list[NDArray[np.intp]]:
    """Draw ensembles of one size, each without replacement.

    Pools of the same number of models get the same draws.

    `held_out`: names the stream. `n_models`: models in the pool. `size` and `draws`: models per
    ensemble, and number of ensembles.
    """
    if not 1 <= size <= n_models:
        reason = f"an ensemble of {size} can't be drawn from a pool of {n_models} models"
        raise Refused("size", size, reason)
    bits = generator(held_out.seed, "ensembles", held_out.dataset_id, held_out.repeat_index, size)
    return [np.argsort(bits.random_raw(n_models))[:size] for _ in range(draws)]


def ensemble_draws(
    pool: RunPool,
    options: Options,
    sizes: Sequence[int] | None = None,
    draws: int = DRAWS,
    workers: int = 1,
) -> pl.DataFrame:
    """Draw ensembles and compare each with the reference.

    `options`: resamples, ε, mode and bins; the reference is the pool's. `sizes`: M_ens; by default
    the sizes of RKS (`SIZES`) that are smaller than the pool. `draws`: ensembles per size (R).
    `workers`: threads.

    Returns one row per ensemble: `size`, `draw`, `members` (their positions in the pool,
    ascending), `alpha_hat`, `alpha_hat_infeasible`, `ks_distance`, `ks_rejected` (for the mean
    distance), `accuracy`, `churn` (share of test points labelled differently from the average of
    the whole pool) and `ece` (null if scores are no probabilities).
    """
    n_models = pool.members.shape[0]
    chosen = [size for size in SIZES if size < n_models] if sizes is None else list(sizes)
    reference = Reference.sort(probe(pool.reference, pool.held_out, options))
    whole = labels(pool.ensemble(np.arange(n_models)))
    batches = []
    for size in chosen:
        members = draw_members(pool.held_out, n_models, size, draws)
        cuts = range(0, draws, BATCH)
        batches += [(size, start, members[start : start + BATCH]) for start in cuts]
    resamples(pool.held_out, options)  # draw them once, before threads share them
    test = partial(_test, pool, reference, whole, options)
    with ThreadPoolExecutor(workers) as threads:
        return pl.concat(threads.map(lambda batch: test(*batch), batches))


def _test(
    pool: RunPool,
    reference: Reference,
    whole: NDArray[np.int64],
    options: Options,
    size: int,
    start: int,
    members: Sequence[NDArray[np.intp]],
) -> pl.DataFrame:
    averages = [pool.ensemble(chosen) for chosen in members]
    label = np.stack([labels(average) for average in averages])
    margins = np.stack([pool.probe(average) for average in averages])
    candidates = probe(margins, pool.held_out, options)
    drawn = resamples(pool.held_out, options)
    delta = dkw_threshold(drawn.n_side, options.epsilon)
    nobody = np.full(len(members), -1, dtype=np.int32)
    found = test(candidates, reference, nobody, drawn, options)
    distance = found.distances.mean(axis=1)
    return pl.DataFrame(
        {
            "size": np.full(len(members), size),
            "draw": start + np.arange(len(members)),
            "members": [np.sort(chosen).tolist() for chosen in members],
            "alpha_hat": found.counted.mean(axis=1),
            "alpha_hat_infeasible": found.infeasible(options).mean(axis=1),
            "ks_distance": distance,
            "ks_rejected": distance > delta,
            "accuracy": (label == pool.held_out.y_true).mean(axis=1),
            "churn": (label != whole).mean(axis=1),
            "ece": _calibration_errors(pool.held_out, averages, label, options),
        }
    ).with_columns(pl.col("ece").fill_nan(None))


def _calibration_errors(
    held_out: HeldOut, averages: Sequence[Floats], label: NDArray[np.int64], options: Options
) -> list[float]:
    if held_out.probability == "none":
        return [float("nan")] * len(averages)
    values = np.stack(averages)
    two = values.ndim == 2
    part = Part(
        held_out=held_out,
        start=0,
        n_repeat=len(averages),
        label=label.astype(np.uint16),
        margin=values if two else None,
        score=None if two else values,
    )
    return [
        expected_calibration_error(confidence, own == held_out.y_true, options.ece_bins)
        for confidence, own in zip(confidences(part), label, strict=True)
    ]


def table_one(drawn: pl.DataFrame, close: float = CLOSE) -> pl.DataFrame:
    """Summarise ensembles by size: RKS, Table I.

    Returns `size`, `draws`, `distinct` (draws that differ in their members), `close` (share of
    ensembles with α̂ at most `close`), `accepted` (share that the classical test accepts), and for
    `accuracy`, `churn`, `ece`, `alpha_hat` and `ks_distance` the mean and, with the suffix
    ``_std``, the standard deviation (n - 1).
    """
    described = ("accuracy", "churn", "ece", "alpha_hat", "ks_distance")
    return (
        drawn.group_by("size")
        .agg(
            pl.len().alias("draws"),
            pl.col("members").n_unique().cast(pl.UInt32).alias("distinct"),
            (pl.col("alpha_hat") <= close).mean().alias("close"),
            (~pl.col("ks_rejected")).mean().alias("accepted"),
            *(mean_of(pl.col(name)) for name in described),
            *(std_of(pl.col(name)).alias(f"{name}_std") for name in described),
        )
        .sort("size")
    )


_CLOSE = "an ensemble with α̂ ≤ {:g}"
_ACCEPTED = "an ensemble that the classical KS test accepts"


def for_alpha(
    table: pl.DataFrame,
    *,
    made: int,
    epsilon: float,
    close: float = CLOSE,
    confidence: float = CONFIDENCE,
    seconds_each: float | None = None,
    drawn_from: str = "one repeat",
) -> list[RunsNeeded]:
    """Read off Table I from which size on all ensembles are close, or pass the classical test.

    That all pass is evidence only if the test could have failed them: where δ exceeds `close` it
    could not, and the answer says how many points would do.

    `table`: as `analysis.questions.ensembles.table_one` returns it, with the columns `models`
    (number of runs drawn from), `n_side` and `delta` (the resolution). `made`: runs of the
    reference and the pool together. `epsilon`: probability that δ is exceeded by chance. `close`:
    the one that the table was made with. `confidence`: of the share of ensembles that pass.
    `seconds_each`: training time of a run. `drawn_from`: what the runs are, in words.

    Returns answers for α̂ at most `close`, and for acceptance by the classical test. `low` is one
    more than the largest size that failed, so the interval is as wide as the gap between sizes. The
    reason says which well-separated contamination ν passes unseen: α̂ ≈ (ν - δ) / (1 - δ).
    """
    delta, n_side = float(table["delta"][0]), int(table["n_side"][0])
    answers = []
    for column, purpose, unseen in (
        ("close", _CLOSE.format(close), delta + close * (1 - delta)),
        ("accepted", _ACCEPTED, delta),
    ):
        size, largest, different = _all_pass(table, column)
        passes = f"contamination of up to {unseen:.0%}"
        level = f" α̂ ≤ {close:g}" if column == "close" else ""
        runs = low = seconds = None
        if size is None:
            reason = f"not all ensembles of {largest} pass, the largest size that was drawn"
        elif delta > close:
            reason = too_few_points(
                n_side, epsilon, close, f", as {passes} would pass{level} unseen"
            )
        else:
            runs, low = size, largest + 1
            seconds = size * seconds_each if seconds_each is not None else None
            # Clopper and Pearson's bound for a proportion of 1.
            bound = math.floor(1000 * beta_quantile(different, 1, 1 - confidence)) / 10
            models = f"{table['models'][0]:,} runs"
            which = (
                f"all {different:,} different ensembles of that size out of {models} pass"
                if different > 1
                else f"the one ensemble of that size out of {models} passes"
            )
            reason = (
                f"{which}, so at least {bound:.1f}% of all ensembles of these runs do "
                f"({100 * confidence:g} % confidence); with δ = {fixed(delta, 3)} at N = "
                f"{n_side:,} test "
                f"points per side, {passes} passes too"
            )
        reason = f"{reason}; from {made:,} runs of {drawn_from}"
        answers.append(RunsNeeded(purpose, runs, low, runs, made, 1, None, seconds, reason))
    return answers


ENOUGH_CLOSE = 0.95  # share of all ensembles of a size that must be close


@dataclass(frozen=True, slots=True)
class Closeness:
    """Whether all ensembles drawn at one of several looks at a growing cell are close.

    `runs`: runs there are. `size`: the smallest size from which on all drawn ensembles are close;
    None if there is none. `different`: different ensembles drawn of that size. `share`: at least
    this share of all ensembles of that size of these runs is close, at all looks at once. `level`:
    the largest α̂ that is close. `delta`: resolution of α̂. `untold`: why further runs cannot tell.
    """

    runs: int
    size: int | None
    different: int
    share: float
    level: float
    delta: float
    untold: str = ""

    @property
    def enough(self) -> bool:
        """Whether nearly all ensembles of that size are close."""
        return not self.untold and self.share >= ENOUGH_CLOSE

    @property
    def words(self) -> str:
        """What is known, as the beginning of a sentence."""
        close = f"close (α̂ ≤ {self.level:g})"
        if self.untold:
            return f"whether ensembles are {close} is not told: {self.untold}"
        if self.size is None:
            return f"not all ensembles drawn from {self.runs:,} runs are {close}"
        return (
            f"all {self.different:,} different ensembles of {self.size:,} runs drawn from half of "
            f"{self.runs:,} are {close}"
        )


def closeness(
    table: pl.DataFrame,
    look: int,
    *,
    runs: int,
    level: float,
    epsilon: float,
    confidence: float = CONFIDENCE,
) -> Closeness:
    """Decide from Table I at one look, the first being 1, whether all ensembles are close.

    RKS, section V-A, as a rule for stopping. At look k, the probability of a miss is at most
    (1 - confidence) / (k (k + 1)), which sums to 1 - confidence over all looks. Sizes need no
    correction: what is said of one also takes all larger ones to pass, and so the largest of which
    it would be wrong.

    `table`, `level` (its `close`) and `epsilon`: as `for_alpha` takes them.
    """
    delta, n_side = float(table["delta"][0]), int(table["n_side"][0])
    size, _, different = _all_pass(table, "close")
    share = ((1 - confidence) / (look * (look + 1))) ** (1 / different) if different else 0.0
    untold = ""
    if delta > level:
        untold = (
            f"δ = {fixed(delta, 3)} with {n_side:,} test points per side; about "
            f"{points_needed(level, epsilon):,} would be enough"
        )
    return Closeness(runs, size, different, share, level, delta, untold)


def too_few_points(n_side: int, epsilon: float, close: float, why: str = "") -> str:
    """Say that test sets are too small for α̂, and how many points would do."""
    delta, enough = dkw_threshold(n_side, epsilon), points_needed(close, epsilon)
    return (
        f"{n_side:,} test points per side are too few{why} (δ = {fixed(delta, 3)}); "
        f"about {enough:,} would be enough"
    )


def no_ensembles(reason: str, close: float = CLOSE) -> list[RunsNeeded]:
    """Return the answers of `for_alpha` where no ensembles could be drawn."""
    purposes = (_CLOSE.format(close), _ACCEPTED)
    return [
        RunsNeeded(purpose, None, None, None, 0, 0, None, reason=reason) for purpose in purposes
    ]


def _all_pass(table: pl.DataFrame, column: str) -> tuple[int | None, int, int]:
    """Return the size from which on all pass, the largest that failed, and distinct ensembles."""
    ordered = table.sort("size")
    failed = ordered.filter(pl.col(column) < 1)["size"]
    largest = int(failed.to_numpy().max()) if not failed.is_empty() else 0
    passing = ordered.filter(pl.col("size") > largest)
    if passing.is_empty():
        return None, largest, 0
    return int(passing["size"][0]), largest, int(passing["distinct"][0])


FIRST_BLOCKS = 8
"""Blocks before the first look at a mean α̂: with fewer, intervals miss more often."""


@dataclass(frozen=True, slots=True)
class OfBlocks(Decision):
    """What is known of a cell's mean α̂, from blocks whose runs are compared with each other alone.

    `runs`, `enough` and `predicted` count runs. `block`: runs in a block. `untold`: why it cannot
    be known.
    """

    block: int = BLOCK
    untold: str = ""


def decide_blocks(
    values: Real, half_width: float, block: int, *, confidence: float = CONFIDENCE
) -> OfBlocks:
    """Look at the means of blocks after the first `FIRST_BLOCKS`, and after every further one.

    `values`, float array (block,): mean α̂ of each block, in the order in which they were made.
    Other parameters are those of `decide`.
    """
    found = decide(values, half_width, confidence=confidence, first=FIRST_BLOCKS, block=1)
    counts = (found.runs, found.enough, found.predicted)
    runs, enough, predicted = (None if n is None else n * block for n in counts)
    return OfBlocks(
        *(runs or 0, found.mean, found.low, found.high),
        *(enough, predicted, found.skewness, block),
    )
