"""Train accuracy and generalisation gap, against a loop over runs."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.metrics.classification import GENERALIZATION
from manyseed.analysis.options import Options
from manyseed.analysis.tables.schema import describe
from tests.analysis.samples import noisy, predictions, regular

ONLY = Options(metrics=("accuracy", "generalization"), resamples=3)


def tables(given, options):
    return compute([analyze_group(given, options)], scheduler="synchronous")[0]


def planted(epochs: int = 1):
    runs = regular(2, 2, 5)
    rng = np.random.default_rng(3)
    score, y_true = noisy(rng, runs, 40, 3)
    score = np.concatenate([score] + [score[::-1]] * (epochs - 1), axis=1)
    train = rng.integers(0, 17, runs.height) / 16
    runs = runs.with_columns(train_accuracy=pl.Series(train))
    return score, y_true, runs


def test_the_gap_is_the_difference_of_both_accuracies():
    score, y_true, runs = planted()
    found = tables(predictions(score, y_true, runs), ONLY)
    joined = found.runs.join(runs, on=["cell", "repeat_index", "run_index"], suffix="_given")
    assert joined.height == runs.height == 20
    for row in joined.iter_rows(named=True):
        right = score[row["row"], 0].argmax(axis=1) == y_true[row["repeat_index"]]
        assert row["train_accuracy"] == row["train_accuracy_given"]
        assert row["generalization_gap"] == pytest.approx(row["train_accuracy"] - right.mean())
    for row in found.repeats.iter_rows(named=True):
        own = joined.filter(cell=row["cell"], repeat_index=row["repeat_index"])
        for name in ("train_accuracy", "generalization_gap"):
            values = own[name].to_numpy()
            assert row[f"{name}_mean"] == pytest.approx(values.mean())
            assert row[f"{name}_std"] == pytest.approx(values.std(ddof=1))
    for row in found.cells.iter_rows(named=True):
        own = found.repeats.filter(cell=row["cell"])
        variances = own["generalization_gap_std"].to_numpy() ** 2
        assert row["generalization_gap_std"] == pytest.approx(np.sqrt(variances.mean()))
        means = own["generalization_gap_mean"].to_numpy()
        assert row["generalization_gap_mean"] == pytest.approx(means.mean())
        assert row["generalization_gap_mean_sd"] == pytest.approx(means.std(ddof=1))


def test_before_the_last_snapshot_it_is_not_known():
    score, y_true, runs = planted(epochs=3)
    given = predictions(score, y_true, runs)
    found = tables(given, Options(metrics=ONLY.metrics, snapshots=(0, 1, 2))).runs
    for epoch in (0, 1):
        here = found.filter(epoch=epoch)
        assert here["train_accuracy"].is_null().all()
        assert here["generalization_gap"].is_null().all()
        assert here["accuracy"].null_count() == 0
    assert found.filter(epoch=2)["generalization_gap"].null_count() == 0


def test_where_nothing_was_kept_it_is_null_and_all_else_the_same():
    score, y_true, runs = planted()
    kept = tables(predictions(score, y_true, runs), ONLY)
    plain = tables(predictions(score, y_true, runs.drop("train_accuracy")), ONLY)
    names = ["train_accuracy", "generalization_gap"]
    assert plain.runs.schema == kept.runs.schema
    assert plain.runs.drop(names).equals(kept.runs.drop(names))
    assert plain.runs.select(pl.col(names).is_null().all()).row(0) == (True, True)
    assert plain.cells["generalization_gap_mean_n"].to_list() == [0, 0]


@pytest.mark.parametrize("lost", [None, float("nan")])
def test_runs_without_are_left_out_of_the_means(lost):
    score, y_true, runs = planted()
    first = pl.col("row") == 0
    runs = runs.with_columns(
        train_accuracy=pl.when(first).then(pl.lit(lost, pl.Float64)).otherwise("train_accuracy")
    )
    found = tables(predictions(score, y_true, runs), ONLY)
    row = found.runs.row(0, named=True)
    assert (row["train_accuracy"], row["generalization_gap"]) == (None, None)
    own = found.runs.filter(cell=0, repeat_index=0)["train_accuracy"].drop_nulls()
    assert own.len() == 4
    assert found.repeats["train_accuracy_mean"][0] == pytest.approx(own.mean())


def test_columns_say_what_they_hold():
    named = describe("runs", ["train_accuracy", "generalization_gap"], (GENERALIZATION,))
    assert named["generalization_gap"] == (
        "difference of shares",
        "train_accuracy minus accuracy.",
    )
    assert named["train_accuracy"][0] == "share of training rows"
