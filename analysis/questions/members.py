"""Deep ensembles of a repeat's runs: averaged probabilities, measured by ensemble size.

TACE is also measured by threshold and number of bins: do all choices order models alike (PIT,
fig. 2)? And accuracy by confidence, and by the share of points that are kept (section 3.3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray
from scipy.special import log_expit, log_softmax

from manyseed.analysis.graph.chunks import Member, Stored, blocks
from manyseed.analysis.graph.predictions import Ensembled, Predictions, Sources, unavailable
from manyseed.analysis.metrics.calibration import calibrated, plain, splits_of
from manyseed.analysis.metrics.formulas import labels
from manyseed.analysis.metrics.probabilities import log_probabilities
from manyseed.analysis.options import CALIBRATION, Options
from manyseed.analysis.tables.schema import records
from manyseed.analysis.uncertainty import (
    calibrate,
    calibration_errors,
    confident,
    orders,
    prefixes,
    rejecting,
)

Real = NDArray[np.float64]

POOL_BYTES = 256_000_000  # largest pool held in memory; runs of larger ones are read when needed
TASK_VALUES = 200_000_000  # about how many probabilities one task averages


def build(predictions: Predictions, options: Options) -> list[Delayed]:
    """Return lazy frames of the table uncertainty; none if calibrated metrics are not computed.

    Each repeat with two or more runs, copies left out, has a row per draw and size at the last
    snapshot; if runs are ensembles of members, each has a row per run and size. A task holds up to
    `POOL_BYTES` of predictions, or those of one run, and about ten float64 arrays of one run's
    probabilities.
    """
    result = []
    for member, sources in scored(predictions, options):
        if (ensembled := predictions.ensembled) is not None:
            for run in range(member.row.size):
                task = partial(_measure_members, member, run, ensembled, sources, options)
                result.append(delayed(task, pure=False)())
            continue
        pool = member.first(options.deep_runs)
        if pool.row.size < 2:
            continue
        each = pool.row.size**2 // 2 * pool.held_out.n_test * predictions.n_classes
        step = max(1, TASK_VALUES // max(each, 1))
        for start in range(0, options.deep_draws, step):
            draws = range(start, min(start + step, options.deep_draws))
            result.append(delayed(partial(_measure, pool, sources, options, draws), pure=False)())
    return result


def scored(predictions: Predictions, options: Options) -> Iterator[tuple[Member, Sources]]:
    """Yield the runs of each repeat, copies left out, and where their last scores are stored.

    Yields nothing if calibrated metrics are not computed.
    """
    if CALIBRATION not in options.metrics or CALIBRATION in unavailable(predictions, options):
        return
    position = predictions.positions(options)[-1]
    sources = Sources.of(predictions, ["score"], options, position)
    distinct = replace(predictions, runs=predictions.runs.filter(~pl.col("identical")))
    for (member,) in blocks(distinct, options, 1, position):
        yield member, sources


@dataclass(frozen=True, slots=True)
class MemberPool:
    """Runs to draw from: a function that returns ln p of a run by number, and their number."""

    logs: Callable[[int], Real]
    size: int

    @classmethod
    def of(cls, member: Member, sources: Sources) -> MemberPool:
        """Take the runs without NaN; a pool within `POOL_BYTES` is read at once."""
        n = member.row.size
        if n * sources.run_bytes <= POOL_BYTES:
            part = Stored.of(member, slice(0, n), sources).part()
            logs = partial(log_probabilities, part)
        else:
            logs = partial(_read, member, sources)
        usable = [run for run in range(n) if not np.isnan(logs(run)).any()]
        return cls(lambda model: logs(usable[model]), len(usable))


def _read(member: Member, sources: Sources, run: int) -> Real:
    return log_probabilities(Stored.of(member, slice(run, run + 1), sources).part(), 0)


def _measure(member: Member, sources: Sources, options: Options, draws: range) -> pl.DataFrame:
    pool = MemberPool.of(member, sources)
    rows = _rows(member, pool, options, draws) if pool.size > 1 else ()
    frame = pl.DataFrame(list(rows), schema=dict(records()["uncertainty"].types), orient="row")
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def _rows(
    member: Member, pool: MemberPool, options: Options, draws: range
) -> Iterator[Mapping[str, float]]:
    held_out = member.held_out
    y_true, splits = held_out.y_true, splits_of(held_out, options)
    drawn = orders(
        held_out.seed, held_out.dataset_id, held_out.repeat_index, pool.size, options.deep_draws
    )
    key = {"cell": member.cell, "epoch": member.epoch, "repeat_index": held_out.repeat_index}
    for draw in draws:
        for size, logs in enumerate(prefixes(pool.logs, drawn[draw].tolist()), start=1):
            wrong = predicted(logs) != y_true
            yield {
                **key,
                "draw": draw,
                "members": size,
                "pool": pool.size,
                "n_test": held_out.n_test,
                **plain(logs, y_true, wrong, options),
                **calibrated(logs, y_true, wrong, splits, options),
            }


def _measure_members(
    member: Member, run: int, ensembled: Ensembled, sources: Sources, options: Options
) -> pl.DataFrame:
    held_out = member.held_out
    splits = splits_of(held_out, options)
    rows = []
    for size, logs in _by_size(member, run, ensembled, sources):
        if np.isnan(logs).any():
            continue
        wrong = predicted(logs) != held_out.y_true
        rows.append(
            {
                "cell": member.cell,
                "epoch": member.epoch,
                "repeat_index": held_out.repeat_index,
                "run_index": int(member.run_index[run]),
                "members": size,
                "n_test": held_out.n_test,
                **plain(logs, held_out.y_true, wrong, options),
                **calibrated(logs, held_out.y_true, wrong, splits, options),
            }
        )
    frame = pl.DataFrame(rows, schema=dict(records()["uncertainty"].types), orient="row")
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def _by_size(
    member: Member, run: int, ensembled: Ensembled, sources: Sources
) -> Iterator[tuple[int, Real]]:
    """Yield the number of members and ln p̄ (sample, class) of each ensemble of a run."""
    row, score = int(member.row[run]), ensembled.score
    if score is None:
        yield ensembled.members, _read(member, sources, run)
        return

    def logs(place: int) -> Real:
        values = np.asarray(score[row : row + 1, place], dtype=np.float64)[0]
        if values.ndim == 1:
            return np.stack([log_expit(-values), log_expit(values)], axis=1)
        return np.asarray(log_softmax(values, axis=1))

    if not ensembled.single:
        yield from ((size, logs(place)) for place, size in enumerate(ensembled.sizes))
        return
    for size, averaged in enumerate(prefixes(logs, range(ensembled.members)), start=1):
        if size in ensembled.sizes:
            yield size, averaged


def predicted(logs: Real) -> NDArray[np.int64]:
    """Return the predicted class of each row of ln p; with two classes a tie is class 1."""
    return labels(logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs)


THRESHOLDS = (0.0, 1e-3, 1e-2)
BINS = (5, 10, 15, 20, 30, 50, 100)


def tace_grid(options: Options) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the thresholds and numbers of bins, with those of the options, ascending."""
    return (
        tuple(sorted({*THRESHOLDS, options.tace_threshold})),
        tuple(sorted({*BINS, options.tace_bins})),
    )


def build_tace(predictions: Predictions, options: Options) -> list[Delayed]:
    """Return lazy frames of the table tace; none if calibrated metrics are not computed.

    Each repeat, at the last snapshot, has up to `deep_runs` runs, copies left out, and, if there
    are two or more and they are single networks, the average of all. A task holds as much as one of
    `build`.
    """
    members = 1 if predictions.ensembled is None else predictions.ensembled.members
    return [
        delayed(
            partial(_measure_tace, member.first(options.deep_runs), members, sources, options),
            pure=False,
        )()
        for member, sources in scored(predictions, options)
    ]


def _measure_tace(
    member: Member, run_members: int, sources: Sources, options: Options
) -> pl.DataFrame:
    held_out = member.held_out
    pool = MemberPool.of(member, sources)
    splits = splits_of(held_out, options)
    of_runs = [tace_errors(pool.logs(run), member, splits, options) for run in range(pool.size)]
    by_members = {run_members: of_runs}
    if run_members == 1 and pool.size > 1:
        (whole,) = deque(prefixes(pool.logs, range(pool.size)), maxlen=1)
        by_members[pool.size] = [tace_errors(whole, member, splits, options)]
    thresholds, bins = tace_grid(options)
    rows = []
    for members, measured in by_members.items():
        known = np.array([one for one in measured if one is not None])
        if not known.size:
            continue
        mean = known.mean(axis=0)
        std = known.std(axis=0, ddof=1) if len(known) > 1 else np.full(mean.shape, np.nan)
        for row, threshold in enumerate(thresholds):
            for column, of_bins in enumerate(bins):
                at = (row, column)
                values = [value for form in (0, 1) for value in (mean[form][at], std[form][at])]
                rows.append(
                    (
                        *(member.cell, member.epoch, held_out.repeat_index, members),
                        *(threshold, of_bins, len(known), held_out.n_test, *values),
                    )
                )
    frame = pl.DataFrame(rows, schema=dict(records()["tace"].types), orient="row")
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def tace_errors(
    logs: Real, member: Member, splits: NDArray[np.bool_], options: Options
) -> tuple[Real, Real] | None:
    """Return the TACE of a prediction, plain and calibrated; None without a temperature.

    `logs`, float array (sample, class): ln p. `member`: gives the true classes. `splits`, bool
    array (split, sample).

    Returns tuple of float arrays (threshold, bins), or None: in the order of `tace_grid`; the
    calibrated one is the mean over splits, each over all points.
    """
    y_true, parameters = member.held_out.y_true, tace_grid(options)
    calibrated = calibrate(logs, y_true, splits)
    if calibrated is None:
        return None
    by_split = [calibration_errors(own, y_true, *parameters) for own in calibrated.logs()]
    return calibration_errors(logs, y_true, *parameters), np.mean(by_split, axis=0)


SHARES = np.round(np.arange(1, 41) / 40, 3)  # of the points, that are kept
LEVELS = np.round(np.arange(40) / 40, 3)  # of confidence, at least


def build_rejection(predictions: Predictions, options: Options) -> list[Delayed]:
    """Return lazy frames of the table rejection; the same runs and averages as `build_tace`."""
    members = 1 if predictions.ensembled is None else predictions.ensembled.members
    return [
        delayed(partial(_reject, member.first(options.deep_runs), members, sources), pure=False)()
        for member, sources in scored(predictions, options)
    ]


def _reject(member: Member, run_members: int, sources: Sources) -> pl.DataFrame:
    held_out = member.held_out
    pool = MemberPool.of(member, sources)

    def curves(logs: Real) -> Real:
        """Return accuracies, and shares kept: (accuracy or share, curve, level)."""
        confidence, wrong = np.exp(logs.max(axis=1)), predicted(logs) != held_out.y_true
        at_level, kept = confident(confidence, wrong, LEVELS)
        at_share = rejecting(confidence, wrong, SHARES)
        return np.array([[at_share, at_level], [SHARES, kept]])

    by_members = {run_members: [curves(pool.logs(run)) for run in range(pool.size)]}
    if run_members == 1 and pool.size > 1:
        (whole,) = deque(prefixes(pool.logs, range(pool.size)), maxlen=1)
        by_members[pool.size] = [curves(whole)]
    rows = []
    for members, measured in by_members.items():
        for curve, (name, levels) in enumerate((("share", SHARES), ("confidence", LEVELS))):
            for place, level in enumerate(levels.tolist()):
                every = np.array([one[:, curve, place] for one in measured])
                known = every[~np.isnan(every[:, 0]), 0] if measured else np.empty(0)
                if known.size:
                    rows.append(
                        (
                            *(member.cell, member.epoch, held_out.repeat_index, members),
                            *(name, level, known.size, held_out.n_test),
                            *(every[:, 1].mean(), known.mean(), known.min(), known.max()),
                        )
                    )
    return pl.DataFrame(rows, schema=dict(records()["rejection"].types), orient="row")
