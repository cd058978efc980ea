"""TACE by threshold and number of bins: do all choices order models alike (PIT, fig. 2)."""

from __future__ import annotations

from collections import deque
from functools import partial

import numpy as np
import polars as pl
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray

from manyseed.analysis.graph.chunks import Member
from manyseed.analysis.graph.predictions import Predictions, Sources
from manyseed.analysis.metrics.calibration import splits_of
from manyseed.analysis.options import Options
from manyseed.analysis.questions.members import MemberPool, scored
from manyseed.analysis.tables.schema import records
from manyseed.analysis.uncertainty import calibrate, calibration_errors, prefixes

Real = NDArray[np.float64]

THRESHOLDS = (0.0, 1e-3, 1e-2)
BINS = (5, 10, 15, 20, 30, 50, 100)
FORMS = ("tace", "c_tace")

SCHEMA = records()["tace"].types


def grid(options: Options) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the thresholds and numbers of bins, with those of the options, ascending."""
    return (
        tuple(sorted({*THRESHOLDS, options.tace_threshold})),
        tuple(sorted({*BINS, options.tace_bins})),
    )


def build(predictions: Predictions, options: Options) -> list[Delayed]:
    """Return lazy frames of `SCHEMA`; none if calibrated metrics are not computed.

    Each repeat, at the last snapshot, has up to `deep_runs` runs, copies left out, and, if there
    are two or more and they are single networks, the average of all. A task holds as much as one of
    `analysis.questions.members`.
    """
    members = 1 if predictions.ensembled is None else predictions.ensembled.members
    return [
        delayed(
            partial(_measure, member.first(options.deep_runs), members, sources, options),
            pure=False,
        )()
        for member, sources in scored(predictions, options)
    ]


def _measure(member: Member, run_members: int, sources: Sources, options: Options) -> pl.DataFrame:
    held_out = member.held_out
    pool = MemberPool.of(member, sources)
    splits = splits_of(held_out, options)
    of_runs = [errors(pool.logs(run), member, splits, options) for run in range(pool.size)]
    by_members = {run_members: of_runs}
    if run_members == 1 and pool.size > 1:
        (whole,) = deque(prefixes(pool.logs, range(pool.size)), maxlen=1)
        by_members[pool.size] = [errors(whole, member, splits, options)]
    thresholds, bins = grid(options)
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
    frame = pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def errors(
    logs: Real, member: Member, splits: NDArray[np.bool_], options: Options
) -> tuple[Real, Real] | None:
    """Return the TACE of a prediction, plain and calibrated; None without a temperature.

    `logs`, float array (sample, class): ln p. `member`: gives the true classes. `splits`, bool
    array (split, sample).

    Returns tuple of float arrays (threshold, bins), or None: in the order of `grid`; the calibrated
    one is the mean over splits, each over all points.
    """
    y_true, parameters = member.held_out.y_true, grid(options)
    calibrated = calibrate(logs, y_true, splits)
    if calibrated is None:
        return None
    by_split = [calibration_errors(own, y_true, *parameters) for own in calibrated.logs()]
    return calibration_errors(logs, y_true, *parameters), np.mean(by_split, axis=0)
