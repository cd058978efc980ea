"""Metrics that scikit-learn has, beside scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    log_loss,
    matthews_corrcoef,
    roc_auc_score,
)

from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.graph.predictions import unavailable
from manyseed.analysis.metrics import probabilities
from manyseed.analysis.metrics.classification import areas
from manyseed.analysis.metrics.probabilities import log_odds
from manyseed.analysis.options import Options
from tests.analysis.samples import noisy, predictions, regular

METRICS = ("confusion", "proper_scores", "discrimination")
OPTIONS = Options(metrics=METRICS)
N_RUNS, N_TEST = 4, 90


def sample(n_classes, decimals=None, seed=0):
    runs = regular(1, 1, N_RUNS)
    score, y_true = noisy(np.random.default_rng(seed), runs, N_TEST, n_classes)
    return (2 * score if decimals is None else (2 * score).round(decimals)), y_true, runs


def runs_of(*sample_, **kept):
    group = analyze_group(predictions(*sample_, **kept), OPTIONS)
    return compute([group], scheduler="synchronous")[0].runs


def as_probabilities(score, kind):
    """In the order of exact probabilities: rounding makes no ties and breaks none."""
    p = softmax(score, axis=-1) if kind == "softmax" else expit(score)
    return (p / p.sum(axis=-1, keepdims=True)).round(13)


@pytest.mark.parametrize("decimals", [None, 1, 0])
@pytest.mark.parametrize("keep", ["margin", "all"])
def test_two_classes_are_ranked_by_their_gap(keep, decimals):
    score, y_true, runs = sample(2, decimals)
    found = runs_of(score, y_true, runs, keep=keep)
    for k, gap in enumerate(score[:, 0, :, 1] - score[:, 0, :, 0]):
        assert decimals is None or np.unique(gap).size < N_TEST  # ties
        assert found["roc_auc"][k] == pytest.approx(roc_auc_score(y_true[0], gap), rel=1e-14)
        expected = average_precision_score(y_true[0], gap)
        assert found["average_precision"][k] == pytest.approx(expected, rel=1e-13)
        p = expit(gap.astype(float))
        expected = log_loss(y_true[0], p)
        assert found["log_loss"][k] == pytest.approx(expected, rel=1e-13)


# whole numbers make sigmoids whose sums are equal, though of other scores: only up to rounding
@pytest.mark.parametrize(
    ("kind", "decimals"),
    [("softmax", None), ("softmax", 1), ("softmax", 0), ("ovr", None), ("ovr", 1)],
)
@pytest.mark.parametrize("n_classes", [3, 5])
def test_more_classes_are_each_against_all_others(n_classes, kind, decimals):
    score, y_true, runs = sample(n_classes, decimals)
    half = N_TEST // 2
    score[:, :, half:] = np.roll(score[:, :, :half], 1, axis=3)  # the same scores of others
    found = runs_of(score, y_true, runs, keep="all", probability=kind)
    for k in range(N_RUNS):
        p = as_probabilities(score[k, 0].astype(float), kind)
        auc = roc_auc_score(y_true[0], p, multi_class="ovr", average="macro")
        assert found["roc_auc"][k] == pytest.approx(auc, rel=1e-13)
        precision = average_precision_score(y_true[0], p, average="macro")
        assert found["average_precision"][k] == pytest.approx(precision, rel=1e-13)
        assert found["log_loss"][k] == pytest.approx(log_loss(y_true[0], p), rel=1e-9)


@pytest.mark.parametrize("n_classes", [3, 6])
def test_equal_probabilities_are_ties_however_the_others_share_the_rest(n_classes):
    score, y_true, runs = sample(n_classes)
    votes = np.random.default_rng(5).multinomial(7, np.ones(n_classes) / n_classes, score.shape[:3])
    p = votes / 7  # as neighbours and trees vote
    with np.errstate(divide="ignore"):
        found = runs_of(np.log(p).astype(np.float32), y_true, runs, keep="all")
    for k in range(N_RUNS):
        auc = roc_auc_score(y_true[0], p[k, 0], multi_class="ovr", average="macro")
        assert found["roc_auc"][k] == pytest.approx(auc, rel=1e-13)
        precision = average_precision_score(y_true[0], p[k, 0], average="macro")
        assert found["average_precision"][k] == pytest.approx(precision, rel=1e-13)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_what_the_confusion_matrix_says(n_classes):
    score, y_true, runs = sample(n_classes)
    score[1] = score[1, 0, 0]  # one class throughout
    score[2, ..., 1] = -9  # one class never
    found = runs_of(score, y_true, runs, keep="all")
    for k, label in enumerate(score[:, 0].argmax(axis=2)):
        f1 = f1_score(y_true[0], label, average="macro")
        assert found["f1_macro"][k] == pytest.approx(f1, rel=1e-14)
        expected = matthews_corrcoef(y_true[0], label)
        assert found["matthews_corrcoef"][k] == pytest.approx(expected, rel=1e-13, abs=1e-15)
    assert found["matthews_corrcoef"][1] == 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_a_class_without_test_points_leaves_its_areas_undefined():
    score, y_true, runs = sample(3)
    y_true[y_true == 2] = 1
    found = runs_of(score, y_true, runs, keep="all")
    assert found["roc_auc"].null_count() == found["average_precision"].null_count() == N_RUNS
    p = softmax(score[0, 0].astype(float), axis=1)
    assert np.isnan(roc_auc_score(y_true[0], p, multi_class="ovr", labels=range(3)))
    with pytest.raises(ValueError, match="shape"):
        average_precision_score(y_true[0], p)
    for k, label in enumerate(score[:, 0].argmax(axis=2)):
        assert found["f1_macro"][k] == pytest.approx(f1_score(y_true[0], label, average="macro"))
        assert found["matthews_corrcoef"][k] == pytest.approx(matthews_corrcoef(y_true[0], label))
        p = softmax(score[k, 0].astype(float), axis=1)
        expected = log_loss(y_true[0], p, labels=range(3))
        assert found["log_loss"][k] == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("only", [0, 1])
def test_one_class_of_two(only):
    score, y_true, runs = sample(2)
    y_true[:] = only
    found = runs_of(score, y_true, runs)
    gap = score[0, 0, :, 1] - score[0, 0, :, 0]
    with pytest.warns(UndefinedMetricWarning):
        assert np.isnan(roc_auc_score(y_true[0], gap))
    assert found["roc_auc"].null_count() == N_RUNS
    if only == 1:
        assert average_precision_score(y_true[0], gap) == pytest.approx(1)
        assert found["average_precision"].to_list() == [1] * N_RUNS
        return
    with pytest.warns(UserWarning, match="No positive class"):
        average_precision_score(y_true[0], gap)
    assert found["average_precision"].null_count() == N_RUNS


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sure_scores_keep_their_order_and_lose_36_nats_at_most(n_classes):
    """Where probabilities are 1 to the last digit, the scores still say which is surer."""
    score, y_true, runs = sample(n_classes)
    sure = 1024 * score
    found = runs_of(sure, y_true, runs, keep="all")
    for k, own in enumerate(sure[:, 0]):
        two = n_classes == 2
        gap = (own[:, 1] - own[:, 0]).astype(float)
        p = expit(gap) if two else softmax(own.astype(float), axis=1)
        expected = log_loss(y_true[0], p)
        assert found["log_loss"][k] == pytest.approx(expected, rel=1e-9)
        assert found["log_likelihood"][k] < -100
    if n_classes == 2:
        same = runs_of(score, y_true, runs)
        assert found["roc_auc"].to_list() == same["roc_auc"].to_list()
    each = log_odds(sure[:, 0], ovr=False)
    others = np.delete(sure[:, 0].astype(float), 0, axis=2)
    most = others.max(axis=2)
    rest = np.log(np.exp(others - most[..., None]).sum(axis=2))
    assert each[:, 0] == pytest.approx(sure[:, 0, :, 0] - most - rest, rel=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_that_are_no_numbers_have_no_areas(n_classes):
    score, y_true, runs = sample(n_classes)
    score[1, 0, 7, 0] = np.nan
    score[2, 0, 7, 0] = -np.inf
    found = runs_of(score, y_true, runs, keep="all")
    for name in ("roc_auc", "average_precision", "log_loss"):
        assert found[name].is_null().to_list() == [False, True, False, False]


def test_scores_of_a_hinge_loss_are_ranked():
    score, y_true, runs = sample(3, decimals=1)
    kept = predictions(score, y_true, runs, keep="all", probability="none")
    assert set(unavailable(kept, OPTIONS)) == {"proper_scores"}
    found = compute([analyze_group(kept, OPTIONS)], scheduler="synchronous")[0].runs
    for k in range(N_RUNS):
        own = score[k, 0]
        each = [roc_auc_score(y_true[0] == c, own[:, c]) for c in range(3)]
        assert found["roc_auc"][k] == pytest.approx(np.mean(each), rel=1e-13)
        precision = average_precision_score(y_true[0], own, average="macro")
        assert found["average_precision"][k] == pytest.approx(precision, rel=1e-13)


VALUES = st.sampled_from([-np.inf, -2.5, -1e-300, -0.0, 0.0, 1e-300, 0.5, 2.5, np.inf])


@given(st.lists(st.tuples(VALUES, st.booleans()), min_size=1, max_size=30))
@settings(deadline=None)
def test_areas_are_shares_of_pairs(points):
    scores, truth = (np.array(column) for column in zip(*points, strict=True))
    given_scores = scores.astype(np.float64)[None, None].copy()
    auc, precision = (found[0, 0] for found in areas(given_scores, truth.astype(np.uint8), 1))
    high, low = scores[truth], scores[~truth]
    wins = [(h > low).sum() + (h == low).sum() / 2 for h in high]
    if high.size and low.size:
        assert auc == pytest.approx(sum(wins) / high.size / low.size)
    else:
        assert np.isnan(auc)
    # of each positive point, the precision among those that score as much or more
    of_each = [truth[scores >= h].mean() for h in high]
    assert precision == pytest.approx(np.mean(of_each) if high.size else np.nan, nan_ok=True)


def test_how_many_runs_are_sorted_together_changes_nothing(monkeypatch):
    given_sample = sample(3, decimals=1)
    whole = runs_of(*given_sample, keep="all")
    monkeypatch.setattr(probabilities, "SLICE_BYTES", 1)
    assert runs_of(*given_sample, keep="all").equals(whole)
