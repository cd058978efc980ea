"""Tables II to V, and notes on what is missing, beside loops over rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.questions.randomness import sources
from manyseed.analysis.questions.ranking import ranked
from manyseed.analysis.tables.schema import Tables
from tests.analysis.samples import sweep


@pytest.fixture(scope="module")
def tables():
    made = sweep({"vehicle": 60}, {"lr-sgd": 0.6, "xgb": 0.0}, repeats=2, runs=5)
    rng = np.random.default_rng(0)
    runs = made.runs.with_columns(alpha_hat=pl.Series(rng.uniform(0, 0.1, made.runs.height)))
    return Tables(runs, made.pairs, made.repeats, made.cells)


def test_sources_are_compared_row_by_row(tables):
    found = sources(tables)
    assert found["cell"].to_list() == [0, 1, 2, 3]
    assert found["n_identical_repeats"].to_list() == [0, 0, 2, 0]
    for row in found.iter_rows(named=True):
        here = pl.col("cell") == row["cell"]
        runs = tables.runs.filter(here, ~pl.col("identical"))
        identical = row["n_identical_repeats"] > 0
        close = runs.filter(pl.col("alpha_hat") <= 0.05, not identical)
        assert (row["n_runs"], row["n_distinct"], row["n_close"]) == (10, runs.height, close.height)
        own = [one["accuracy"].to_numpy() for one in runs.partition_by("repeat_index")]
        means = [one.mean() for one in own]
        assert row["accuracy_mean"] == pytest.approx(np.mean(means))
        assert row["accuracy_mean_sd"] == pytest.approx(np.std(means, ddof=1))
        if identical:
            assert row["accuracy_std"] is None
        else:
            squares = sum(np.square(one - one.mean()).sum() for one in own)
            assert row["accuracy_std"] == pytest.approx((squares / 8) ** 0.5)
        assert (row["accuracy_min"], row["accuracy_max"]) == (
            runs["accuracy"].min(),
            runs["accuracy"].max(),
        )
        assert row["accuracy_min_close"] == close["accuracy"].min()
        levels = runs.select("cell", "repeat_index", "run_index", "alpha_hat")
        alpha = {tuple(key): level for *key, level in levels.rows()}
        repeats = tables.repeats.filter(here)
        assert row["ensemble_accuracy"] == pytest.approx(repeats["ensemble_accuracy"].mean())
        if repeats["identical"].all():
            assert row["n_pairs"] is None
            continue
        pairs = tables.pairs.filter(here).select("cell", "repeat_index", "run_i", "run_j", "churn")
        near = [c for *k, i, j, c in pairs.rows() if max(alpha[*k, i], alpha[*k, j]) <= 0.05]
        assert (row["n_pairs"], row["n_pairs_close"]) == (pairs.height, len(near))
        assert (row["churn_min_close"], row["churn_max_close"]) == (
            min(near, default=None),
            max(near, default=None),
        )


def test_runs_are_ranked_by_the_sources_rule():
    runs = pl.DataFrame(
        [
            (0, 0, 0, 0.90, 0.20, False),
            (0, 0, 1, 0.85, 0.01, False),
            (0, 0, 2, 0.88, 0.05, False),
            (0, 0, 3, 0.95, None, False),
            (0, 0, 4, 0.88, 0.02, False),
            (0, 0, 5, 0.88, 0.02, True),
            (0, 1, 0, 0.70, 0.30, False),
        ],
        schema=["cell", "repeat_index", "run_index", "accuracy", "alpha_hat", "identical"],
        orient="row",
    )
    found = ranked(runs)
    assert found["run_index"].to_list() == [4, 2, 1, 3, 0, 0]
    assert found["rank"].to_list() == [1, 2, 3, 4, 5, 1]
    assert found["close"].to_list() == [True, True, True, False, False, False]
    assert ranked(runs, within=0.06)["run_index"].to_list() == [3, 0, 0]
    assert ranked(runs, close=0.01)["run_index"].to_list()[0] == 1
