"""Runs that predict one class for all test points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.claims.record import Claim, Tally
from manyseed.analysis.axes import AXES
from manyseed.analysis.metrics.classification import correct, f1_macro, matthews_corrcoef
from manyseed.analysis.metrics.gram import class_counts
from manyseed.analysis.questions.oneclass import answer
from manyseed.analysis.tables.rows import Tables

Labels = NDArray[np.int64]
POINTS, RUNS, REPEATS = 150, 8, 3


def tables_of(cells: dict[str, tuple[Labels, Labels]]) -> Tables:
    """Return tables of classifiers: their labels (repeat, run, sample), and the true classes."""
    runs, repeats = [], []
    for cell, (name, (label, y_true)) in enumerate(cells.items()):
        n_classes = int(max(label.max(), y_true.max())) + 1
        axes = dict.fromkeys(AXES, "none") | {"dataset": "d", "classifier": name}
        axes |= {"train_fraction": 1.0, "vary": "init+batch", "hparams": "default"}
        for repeat, (own, true) in enumerate(zip(label, y_true, strict=True)):
            key = {"cell": cell, "repeat_index": repeat}
            size = np.bincount(true, minlength=n_classes)
            right = correct(own, true, n_classes)
            predicted = class_counts(own, n_classes)
            balanced = (right[:, size > 0] / size[size > 0]).mean(axis=1)
            f1 = f1_macro(right, predicted, size)
            mcc = matthews_corrcoef(right, predicted, size)
            repeats.append({**key, "n_test": true.size, "smallest_class": int(size.min())})
            runs += [
                {
                    **key,
                    **axes,
                    "run_index": run,
                    "identical": False,
                    "accuracy": right[run].sum() / true.size,
                    "balanced_accuracy": balanced[run],
                    "f1_macro": f1[run],
                    "matthews_corrcoef": mcc[run],
                }
                for run in range(len(own))
            ]
    nothing = pl.DataFrame()
    return Tables(pl.DataFrame(runs), nothing, pl.DataFrame(repeats), nothing)


def sound(
    seed: int, rare: float, recall: float = 0.5, spread: float = 1.0
) -> tuple[Labels, Labels]:
    """Return labels of runs that find a rare class, each more or less of it, and true classes."""
    rng = np.random.default_rng([seed, 8])
    true = (rng.random((REPEATS, POINTS)) < rare).astype(np.int64)
    odds = recall / (1 - recall) * np.exp(spread * rng.normal(size=(REPEATS, RUNS, 1)))
    of_rare, of_other = odds / (1 + odds), 0.01 * odds / (1 + 0.01 * odds)
    share = np.where(true[:, None] == 1, of_rare, of_other)
    return (rng.random((REPEATS, RUNS, POINTS)) < share).astype(np.int64), true


def _named(rare: float, fallen: int) -> Callable[[int], Tally]:
    """Return whether runs are named, of which so many predict one class, beside a constant cell."""

    def count(seed: int) -> Tally:
        label, true = sound(seed, rare)
        label[0, :fallen] = 0
        always = np.zeros_like(label)
        found = answer(tables_of({"mlp": (label, true), "most frequent": (always, true)}))
        return Tally(any(one.rows for one in found))

    return count


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "3 runs of mlp predict one class throughout: 0:0:0, 0:0:1, 0:0:2",
        "answers, levels",
        r"one class throughout: \{|the same class for all points of a test set that|"
        r"^ has several: |there get more points right|than independent errors would \(p below",
        0.01,
        "sweeps",
        _named(0.03, 0),
        _named(0.4, 3),
        "8 runs on each of 3 test sets of 150 points, 3 % of them in a rare class, of which runs "
        "find half on average, each more or less; another classifier predicts one class by design",
        "40 % are in the other class, and three runs predict one class",
    ),
)
