"""Scores of response curves: accuracy on training data at growing magnitudes of a transform.

A curve is given by its accuracy at n magnitudes and linear between them. The axis of all scores is
u, from 0 at the first magnitude to 1 at the last.

Counts of right answers become each model's scores, and curves over a repeat's runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from manyseed.analysis import Refused
from manyseed.analysis.alphahat.references import Reference, alpha_stars
from manyseed.analysis.alphahat.resampling import Resamples
from manyseed.analysis.alphahat.trimming import dkw_threshold
from manyseed.analysis.tables.schema import records

Floats = NDArray[np.float64]


def cumulative(magnitudes: ArrayLike, accuracy: ArrayLike) -> Floats:
    """Return the perturbation cumulative density: the area under a curve up to each magnitude.

    Parameters
    ----------
    magnitudes : float array (n,)
        Strictly ascending, at least two.
    accuracy : float array (..., n)
        In [0, 1]; NaN where a curve was not measured.

    Returns
    -------
    float64 array (..., n)
        From 0 at the first magnitude to the mean of the curve at the last.

    Raises
    ------
    Refused
        If magnitudes do not ascend, shapes differ, or an accuracy lies outside [0, 1].

    References
    ----------
    PRC, section 3.3.
    """
    return _cumulative(*_curve(magnitudes, accuracy))


def gi(magnitudes: ArrayLike, accuracy: ArrayLike) -> Any:
    """Return the Gi score: twice the area between the cumulative density and the ideal line.

    0 for a model that is never wrong, 1 for one that always is, 1 − α for a constant accuracy α.
    Errors at the start of the axis count double, those at its end nothing, so it is not symmetric
    over a range with both signs: see `gi_folded`.

    Parameters and errors are those of `cumulative`; returns a float64 array (...).

    References
    ----------
    PRC, algorithm 2, on an axis that starts at 0 as in its figures: the algorithm as printed makes
    no sense for negative magnitudes.
    """
    u, curve = _curve(magnitudes, accuracy)
    return 2 * np.trapezoid(u - _cumulative(u, curve), u, axis=-1)


def gi_folded(magnitudes: ArrayLike, accuracy: ArrayLike) -> Any:
    """Return the Gi score of the mean over both signs, for magnitudes from 0 to the smaller end.

    NaN if magnitudes have one sign.

    Parameters and errors are those of `cumulative`; returns a float64 array (...).
    """
    curve = _curve(magnitudes, accuracy)[1]
    signed = np.asarray(magnitudes, dtype=np.float64)
    end = min(-signed[0], signed[-1])
    if end <= 0:
        return np.full(curve.shape[:-1], np.nan)[()]
    knots = _rounded(np.abs(signed), end)
    folded = knots[(knots > 0) & (knots < end)]
    folded = np.concatenate([[0.0], np.unique(folded), [end]])
    both = 0.5 * (_at(signed, curve, folded) + _at(signed, curve, -folded))
    return gi(folded, both)


def pal(magnitudes: ArrayLike, accuracy: ArrayLike) -> Any:
    """Return the Pal score: the area under the cumulative density above u = .4 over that below .1.

    84 for a model that is never wrong and for any other constant accuracy: it ignores the level.
    NaN if accuracy is 0 up to u = .1, and for magnitudes with both signs.

    Parameters and errors are those of `cumulative`; returns a float64 array (...).

    References
    ----------
    PRC, text of section 3.3; integrated exactly, where PRC's algorithm rounds to grid points.
    """
    u, curve = _curve(magnitudes, accuracy)
    cuts = _areas(u, curve, (0.1, 0.4, 1.0))[1]
    return _unsigned(magnitudes, _ratio(cuts[..., 2] - cuts[..., 1], cuts[..., 0]))


def pal_printed(magnitudes: ArrayLike, accuracy: ArrayLike) -> Any:
    """Return the Pal score as printed: the cumulative density at u = .6 over that at u = .1.

    6 for a model that is never wrong. It ranks models differently from `pal`; it is not known which
    of the two the published numbers are.

    Parameters and errors are those of `cumulative`; returns a float64 array (...).

    References
    ----------
    PRC, algorithm 4.
    """
    u, curve = _curve(magnitudes, accuracy)
    density = _areas(u, curve, (0.1, 0.6))[0]
    return _unsigned(magnitudes, _ratio(density[..., 1], density[..., 0]))


def mean_accuracy(magnitudes: ArrayLike, accuracy: ArrayLike) -> Any:
    """Return the mean accuracy over the magnitudes.

    Parameters and errors are those of `cumulative`; returns a float64 array (...).
    """
    return _curve(magnitudes, accuracy)[1].mean(axis=-1)


def end_accuracy(magnitudes: ArrayLike, accuracy: ArrayLike) -> Any:
    """Return the accuracy at the last magnitude.

    For interpolation within classes that ends at .5, it is PRC's Mixup; at layer 1, Manifold Mixup.

    Parameters and errors are those of `cumulative`; returns a float64 array (...).
    """
    return _curve(magnitudes, accuracy)[1][..., -1][()]


def _curve(magnitudes: ArrayLike, accuracy: ArrayLike) -> tuple[Floats, Floats]:
    """Return u (n,) and accuracy (..., n), checked."""
    x = np.asarray(magnitudes, dtype=np.float64)
    curve = np.asarray(accuracy, dtype=np.float64)
    if x.ndim != 1 or len(x) < 2 or not np.isfinite(x).all() or (np.diff(x) <= 0).any():
        raise Refused("magnitudes", x.tolist(), allowed="two or more finite numbers that rise")
    if curve.ndim == 0 or curve.shape[-1] != len(x):
        raise Refused("accuracy", curve.shape, f"its last axis must have {len(x)} magnitudes")
    outside = (curve < 0) | (curve > 1)
    if outside.any():
        raise Refused("accuracy", float(curve[outside][0]), allowed="shares, from 0 to 1")
    return (x - x[0]) / (x[-1] - x[0]), curve


def _cumulative(u: Floats, curve: Floats) -> Floats:
    pieces = 0.5 * np.diff(u) * (curve[..., :-1] + curve[..., 1:])
    return np.concatenate([np.zeros((*curve.shape[:-1], 1)), pieces.cumsum(axis=-1)], axis=-1)


def _areas(u: Floats, curve: Floats, to: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Return the cumulative density at each u in `to`, and the area under it up to there.

    In each piece the curve is linear, its integral quadratic and the area cubic: all exact.
    """
    width = np.diff(u)
    slope = np.diff(curve, axis=-1) / width
    start, density = curve[..., :-1], _cumulative(u, curve)
    pieces = density[..., :-1] * width + start * width**2 / 2 + slope * width**3 / 6
    area = np.concatenate([np.zeros((*curve.shape[:-1], 1)), pieces.cumsum(axis=-1)], axis=-1)
    end = np.asarray(to)
    piece = np.clip(np.searchsorted(u, end, side="right") - 1, 0, len(width) - 1)
    t = end - u[piece]
    at = density[..., piece] + start[..., piece] * t + slope[..., piece] * t**2 / 2
    below = density[..., piece] * t + start[..., piece] * t**2 / 2 + slope[..., piece] * t**3 / 6
    return at, area[..., piece] + below


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)


def _unsigned(magnitudes: ArrayLike, score: Floats) -> Any:
    signed = np.min(magnitudes) < 0 < np.max(magnitudes)
    return (np.full_like(score, np.nan) if signed else score)[()]


def _rounded(knots: Floats, end: float) -> Floats:
    """Return knots, made equal if they differ only by rounding."""
    return np.round(knots / end, 12) * end


def _at(magnitudes: Floats, curve: Floats, where: Floats) -> Floats:
    piece = np.clip(np.searchsorted(magnitudes, where, side="right") - 1, 0, len(magnitudes) - 2)
    width = np.diff(magnitudes)[piece]
    share = np.clip((where - magnitudes[piece]) / width, 0.0, 1.0)
    return (1 - share) * curve[..., piece] + share * curve[..., piece + 1]


Counts = NDArray[np.integer]

SHIFTED = ("train", "shifted_train", "test", "shifted_test")
"""Sets of rows that are counted besides curves, in order."""

_FUNCTIONS = (gi, gi_folded, pal, pal_printed, mean_accuracy, end_accuracy)
SCORES = {function.__name__: function for function in _FUNCTIONS}


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of a group's models: how many are right.

    Attributes
    ----------
    right, total : integer arrays (run, response, draw, magnitude)
    shifted_right, shifted_total : integer arrays (run, response, part)
        The parts are `SHIFTED`.
    transforms : sequence of str
        Transform of each response.
    layers : sequence of int
        Layer of each response.
    magnitudes : float64 array (response, magnitude)
        NaN beyond the end of a short grid.
    dbi : float array (run,) or None
        Davies–Bouldin index of the first block's outputs, if it was measured.
    """

    right: Counts
    total: Counts
    shifted_right: Counts
    shifted_total: Counts
    transforms: Sequence[str]
    layers: Sequence[int]
    magnitudes: Floats
    dbi: Floats | None = None

    def responses(self) -> Iterator[tuple[int, tuple[str, int]]]:
        """Yield each response's number, transform and layer."""
        return enumerate(zip(self.transforms, self.layers, strict=True))

    def grid(self, response: int) -> Floats:
        """Return the magnitudes of a response."""
        known: Floats = self.magnitudes[response][np.isfinite(self.magnitudes[response])]
        return known

    def accuracy(self, response: int) -> Floats:
        """Return accuracies (run, draw, magnitude), NaN where nothing was counted."""
        n = len(self.grid(response))
        return _share(self.right[:, response, :, :n], self.total[:, response, :, :n])


def _share(right: Counts, total: Counts) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where(total > 0, right / np.maximum(total, 1), np.nan)


def scores(answers: Answers, runs: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each run and response.

    Parameters
    ----------
    answers : Answers
    runs : frame
        One row per run, in the order of the arrays.

    Returns
    -------
    frame
        The columns of `runs`; transform; layer; n_pairs (rows or pairs behind a point, over all
        draws); `SCORES` of the mean curve over draws; gi_draws_sd (n - 1); the accuracy of each
        part; gap (accuracy on all training rows minus that on the test set, which is moved by
        random magnitudes for transforms with both signs); dbi, the same for all responses of a
        run. Null where nothing was counted.
    """
    parts = _share(answers.shifted_right, answers.shifted_total)
    frames = []
    for number, (transform, layer) in answers.responses():
        grid, accuracy = answers.grid(number), answers.accuracy(number)
        counted = np.isfinite(accuracy).all(axis=(1, 2))
        of_run = accuracy.mean(axis=1)
        columns = {name: np.full(len(accuracy), np.nan) for name in (*SCORES, "gi_draws_sd")}
        for name, score in SCORES.items():
            columns[name][counted] = score(grid, of_run[counted])
        if accuracy.shape[1] > 1:
            gi_of_draws = gi(grid, accuracy[counted])
            columns["gi_draws_sd"][counted] = np.std(gi_of_draws, axis=1, ddof=1)
        of_part = dict(zip(SHIFTED, parts[:, number].T, strict=True))
        columns |= {
            **{f"{name}_accuracy": values for name, values in of_part.items()},
            "gap": of_part["train"] - of_part["shifted_test" if grid[0] < 0 else "test"],
            "dbi": np.full(len(accuracy), np.nan) if answers.dbi is None else answers.dbi,
        }
        frames.append(
            runs.with_columns(
                transform=pl.lit(transform),
                layer=pl.lit(layer, dtype=pl.UInt8),
                n_pairs=pl.Series(answers.total[:, number, :, 0].sum(axis=1), dtype=pl.UInt32),
                **{
                    name: pl.Series(values, dtype=pl.Float64).fill_nan(None)
                    for name, values in columns.items()
                },
            )
        )
    return pl.concat(frames)


MOST_SAMPLES = 20  # of as many draws, as PRC has


def samples(answers: Answers, runs: pl.DataFrame) -> pl.DataFrame:
    """Return gi of samples of 1, 2, 4, … draws, and of all of them; at least two were made.

    PRC, figures 3 and 5. Samples of a size share no draw. Parameters are those of `scores`.

    Returns
    -------
    frame
        The columns of `runs`, transform, layer, draws, sample (from 0), n_pairs (rows or pairs
        behind a point of the curve) and gi, NaN where nothing was counted.
    """
    frames = []
    for number, (transform, layer) in answers.responses():
        grid = answers.grid(number)
        right, total = (
            counts[:, number, :, : len(grid)] for counts in (answers.right, answers.total)
        )
        n_runs, n_draws = right.shape[:2]
        sizes = [2**power for power in range(n_draws.bit_length()) if 2**power < n_draws]
        for size in [*sizes, n_draws]:
            n = min(n_draws // size, MOST_SAMPLES)
            pooled, of = (
                counts[:, : n * size].reshape(n_runs, n, size, -1).sum(axis=2)
                for counts in (right, total)
            )
            accuracy = _share(pooled, of).reshape(n_runs * n, -1)
            counted = np.isfinite(accuracy).all(axis=1)
            score = np.full(len(accuracy), np.nan)
            score[counted] = gi(grid, accuracy[counted])
            places = pl.Series(np.repeat(np.arange(n_runs, dtype=np.uint32), n))
            frames.append(
                runs[places].with_columns(
                    transform=pl.lit(transform),
                    layer=pl.lit(layer, dtype=pl.UInt8),
                    draws=pl.lit(size, dtype=pl.UInt32),
                    sample=pl.Series(np.tile(np.arange(n, dtype=np.uint32), n_runs)),
                    n_pairs=pl.Series(of[..., 0].reshape(-1), dtype=pl.UInt32),
                    gi=pl.Series(score, dtype=pl.Float64),
                )
            )
    return pl.concat(frames)


def spectra(
    values: NDArray[np.floating[Any]], runs: pl.DataFrame, halves: Resamples, epsilon: float
) -> pl.DataFrame:
    """Return a row for each run and singular value of its Jacobian.

    RKS, section VI, and RKS24, section 6, propose the eigen-distribution of the Jacobian as a
    probe, in place of the logit gap.

    Parameters
    ----------
    values : float array (run, point, rank)
        Singular values of runs with one test set, descending; NaN if a Jacobian is not finite.
    runs : frame
        One row per run, in the order of the array.
    halves : Resamples
        Splits of the points for α̂.
    epsilon : float
        Probability that the test rejects runs that are alike.

    Returns
    -------
    frame
        The columns of `runs`; rank, from 1; n_points with finite values; mean, and quantiles, over
        these; and for the largest value, with all other runs as the reference, alpha_hat and delta:
        null for runs with other than finite values, and if fewer than three runs are left.
    """
    values = values.astype(np.float64)
    usable = np.flatnonzero(np.isfinite(values).all(axis=(1, 2)))
    alpha_hat, delta = np.full(len(values), np.nan), np.nan
    if usable.size > 2:
        largest = values[usable, :, 0]
        delta = dkw_threshold(halves.n_side, epsilon)
        reference = Reference.sort(largest)
        levels, _ = alpha_stars(largest, reference, halves, member=True, gamma=delta)
        alpha_hat[usable] = levels.mean(axis=1)
    frames = []
    for rank, own in enumerate(np.moveaxis(values, 2, 0)):
        known = [row[np.isfinite(row)] for row in own]
        statistics: dict[str, Any] = {
            "mean": [row.mean() if row.size else np.nan for row in known],
            **{
                name: [np.quantile(row, share) if row.size else np.nan for row in known]
                for name, share in (("q05", 0.05), ("median", 0.5), ("q95", 0.95))
            },
            "alpha_hat": np.where(rank == 0, alpha_hat, np.nan),
            "delta": np.where((rank == 0) & np.isfinite(alpha_hat), delta, np.nan),
        }
        frames.append(
            runs.with_columns(
                rank=pl.lit(rank + 1, dtype=pl.UInt32),
                n_points=pl.Series([row.size for row in known], dtype=pl.UInt32),
                **{
                    name: pl.Series(column, dtype=pl.Float64).fill_nan(None)
                    for name, column in statistics.items()
                },
            )
        )
    return pl.concat(frames)


CURVE_KEY = records()["response_curves"].key


def run_curves(answers: Answers, runs: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each run, response and magnitude; parameters are those of `scores`.

    Returns
    -------
    frame
        The columns of `runs`, transform, layer, magnitude and accuracy, the mean over the draws.
    """
    frames = []
    for number, (transform, layer) in answers.responses():
        grid, accuracy = answers.grid(number), answers.accuracy(number).mean(axis=1)
        rows = pl.Series(np.repeat(np.arange(len(runs), dtype=np.uint32), len(grid)))
        frames.append(
            runs[rows].with_columns(
                transform=pl.lit(transform),
                layer=pl.lit(layer, dtype=pl.UInt8),
                magnitude=pl.Series(np.tile(grid, len(accuracy)), dtype=pl.Float64),
                accuracy=pl.Series(accuracy.reshape(-1), dtype=pl.Float64),
            )
        )
    return pl.concat(frames)


def repeat_curves(points: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each repeat, response and magnitude.

    `points` is a result of `run_curves` for runs with the columns cell and repeat_index.

    Returns
    -------
    frame
        `CURVE_KEY`, n_runs, and accuracy over runs: mean, ``_std`` (n - 1), ``_min``, ``_max``.
    """
    of_runs = pl.col("accuracy").fill_nan(None)
    return points.group_by(CURVE_KEY, maintain_order=True).agg(
        n_runs=of_runs.count().cast(pl.UInt32),
        accuracy=of_runs.mean(),
        accuracy_std=of_runs.std(),
        accuracy_min=of_runs.min(),
        accuracy_max=of_runs.max(),
    )
