"""From counts of right answers to each model's scores, and to curves over a repeat's runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.response import curves

Counts = NDArray[np.integer]
Floats = NDArray[np.float64]

SHIFTED = ("train", "shifted_train", "test", "shifted_test")
"""Sets of rows that are counted besides curves, in order."""

SCORES = ("gi", "gi_folded", "pal", "pal_printed", "mean_accuracy", "end_accuracy")


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
        for name in SCORES:
            columns[name][counted] = getattr(curves, name)(grid, of_run[counted])
        if accuracy.shape[1] > 1:
            gi_of_draws = curves.gi(grid, accuracy[counted])
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


CURVE_KEY = ("cell", "repeat_index", "transform", "layer", "magnitude")


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
