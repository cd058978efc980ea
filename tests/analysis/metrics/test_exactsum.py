"""Sums of scores of any size, beside sums of fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.metrics import probabilities
from manyseed.analysis.metrics.ensemble import UNIT, added, digits, labels_of_sum, without
from manyseed.analysis.options import Options
from tests.analysis.samples import predictions, regular


def slow(values):
    """Classes of sums of fractions, of values (run, sample) or (run, sample, class)."""

    def rounded(value):
        return Fraction(round(Fraction(float(value)) / Fraction(UNIT))) * Fraction(UNIT)

    sums = sum(np.vectorize(rounded, otypes=[object])(run) for run in values)
    if sums.ndim == 1:
        return [int(total >= 0) for total in sums]
    return [max(range(len(row)), key=lambda k, row=row: (row[k], -k)) for row in sums]


@pytest.mark.parametrize("shape", [(5, 40), (4, 40, 3)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_labels_are_those_of_exact_sums(shape, dtype):
    rng = np.random.default_rng(0)
    highest = {np.float16: 14, np.float32: 126, np.float64: 1000}[dtype]
    for _ in range(20):
        values = rng.normal(size=shape) * 2.0 ** rng.integers(-3, highest - 2, size=shape)
        powers = 2.0 ** rng.integers(0, highest, size=shape)
        values = np.where(rng.random(shape) < 0.4, powers, values).astype(dtype)
        values[0] = -values[-1]  # what is left is small beside what cancels
        for cut in (1, 3):
            parts = [added(digits(run) for run in part) for part in (values[:cut], values[cut:])]
            assert labels_of_sum(added(parts)).tolist() == slow(values)
            assert labels_of_sum(added(parts[::-1])).tolist() == slow(values)
        own = digits(values)
        others = labels_of_sum(without(added(parts), own), gaps=values.ndim == 2)
        for k, found in enumerate(others):
            assert found.tolist() == slow(np.delete(values, k, axis=0))


def test_infinite_scores_go_before_all_finite_ones():
    runs = np.array([[np.inf, -np.inf, np.inf, 1.0], [-1e30, 1e30, -np.inf, -2.0]])
    assert labels_of_sum(added(digits(run) for run in runs)).tolist() == [1, 0, 1, 0]
    runs[1, 2] = -np.inf  # cancels: what is left is 0
    third = np.array([0.0, 0.0, -3.0, 0.0])
    assert labels_of_sum(added(digits(run) for run in (*runs, third)))[2] == 0
    of_three = np.array([[[1e300, np.inf, 0.0], [-np.inf, -np.inf, -1e300]]])
    assert labels_of_sum(added(digits(run) for run in of_three)).tolist() == [1, 2]


def tables(score):
    """Tables of one repeat of runs (run, sample, class); all points are of class 1."""
    n_runs, n_test = score.shape[:2]
    kept = predictions(
        score[:, None].astype(np.float32),
        np.ones((1, n_test), np.uint16),
        regular(1, 1, n_runs),
        keep="all" if score.shape[2] > 2 else "margin",
    )
    options = Options(resamples=2, metrics=("ensemble",))
    return compute([analyze_group(kept, options)], scheduler="synchronous")[0]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_run_of_an_ensemble_is_limited(n_classes):
    """1e6 and twice -2e4 are positive on average; limited to ±16,384 they were not."""
    score = np.zeros((3, 20, n_classes))
    score[:, :, 1] = np.array([1e6, -2e4, -2e4])[:, None]
    if n_classes == 3:
        score[:, :, 2] = -2e5
    found = tables(score)
    assert found.repeats["ensemble_accuracy"][0] == 1
    assert found.runs["churn_ensemble"].to_list() == [0, 1, 1]


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_run_is_compared_with_the_ensemble_of_all_others(n_classes, monkeypatch):
    """Run by run, among them one that is infinite and one that is no member."""
    rng = np.random.default_rng(3)
    score = rng.normal(size=(6, 50, n_classes)).astype(np.float32)
    score[:, :20] = score[:, :20].round()  # ties
    score[1] *= 1e9
    score[2, :5, 1] = np.inf
    score[4, 3, 0] = np.nan
    found = tables(score).runs
    two = n_classes == 2
    scores = (score[..., 1] - score[..., 0] if two else score).astype(np.float64)
    for k in range(6):
        others = np.delete(scores, [k, 4], axis=0).sum(axis=0)
        label = (others >= 0).astype(int) if two else others.argmax(axis=1)
        expected = int((score[k].argmax(axis=1) != label).sum())
        assert found["churn_loo_ensemble_points"][k] == expected
        assert found["churn_loo_ensemble"][k] == expected / 50
    assert (
        found["churn_ensemble"].to_list()
        == (found["churn_ensemble_points"].to_numpy() / 50).tolist()
    )
    monkeypatch.setattr(probabilities, "SLICE_BYTES", 1)
    assert tables(score).runs.equals(found)


def test_of_two_runs_each_is_compared_with_the_other_and_one_with_nothing():
    score = np.random.default_rng(4).normal(size=(2, 30, 2)).astype(np.float32)
    apart = int((score[0].argmax(axis=1) != score[1].argmax(axis=1)).sum())
    assert tables(score).runs["churn_loo_ensemble_points"].to_list() == [apart, apart]
    alone = tables(score[:1]).runs
    assert alone["churn_ensemble_points"][0] == 0
    assert alone["churn_loo_ensemble"][0] is None
    assert alone["churn_loo_ensemble_points"][0] is None
