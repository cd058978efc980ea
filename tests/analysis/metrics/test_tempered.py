"""Columns of calibrated probabilities, beside loops over splits, halves and points."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import average_precision_score, roc_auc_score

from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.graph.predictions import unavailable
from manyseed.analysis.metrics.registry import METRICS
from manyseed.analysis.options import DEFAULT_METRICS, Options
from manyseed.analysis.uncertainty import calibration_splits
from tests.analysis.metrics.test_calibration import ece_slow
from tests.analysis.samples import noisy, predictions, regular
from tests.analysis.uncertainty.test_rejection import aurc_slow
from tests.analysis.uncertainty.test_scores import slow as tace_slow
from tests.analysis.uncertainty.test_temperature import cll_slow, mean_log

NEW = [column.name for name in ("rejection", "calibration") for column in METRICS[name].runs]


def sample(n_classes, n_runs=3, n_test=120, repeats=1, seed=0):
    runs = regular(1, repeats, n_runs)
    score, y_true = noisy(np.random.default_rng(seed), runs, n_test, n_classes)
    return 2 * score, y_true, runs


def analysed(given, **options):
    options = {"resamples": 2, "calibration": True, **options}
    return compute([analyze_group(given, Options(**options))], scheduler="threads")[0]


def probabilities(score, kind):
    if kind == "softmax" or score.shape[-1] == 2:
        return softmax(score.astype(float), axis=-1)
    p = expit(score.astype(float))
    return p / p.sum(axis=-1, keepdims=True)


def calibrated_slow(p, y_true, first):
    """Return c_brier, c_ece, c_tace of each split, by a search over temperatures."""
    from scipy.optimize import minimize_scalar

    logs, found = np.log(p), []
    for half in first:
        q = np.empty_like(p)
        for own, other in ((half, ~half), (~half, half)):
            t = minimize_scalar(
                lambda t, own=own: -mean_log(logs[own], y_true[own], np.exp(-t)).mean(),
                bounds=(-3, 3),
                method="bounded",
                options={"xatol": 1e-9},
            ).x
            q[other] = softmax(logs[other] / np.exp(t), axis=1)
        one_hot = np.eye(p.shape[1])[y_true]
        right = p.argmax(axis=1) == y_true
        found.append(
            (
                np.square(q - one_hot).sum(axis=1).mean(),
                ece_slow(q.max(axis=1), right, 15),
                tace_slow(q, y_true, 1e-3, 15),
            )
        )
    return np.mean(found, axis=0)


@pytest.mark.parametrize(
    ("n_classes", "keep", "kind"),
    [(2, "margin", "softmax"), (2, "all", "ovr"), (3, "all", "softmax"), (5, "all", "ovr")],
)
def test_columns_are_those_of_loops(n_classes, keep, kind):
    score, y_true, runs = sample(n_classes)
    result = analysed(predictions(score, y_true, runs, keep=keep, probability=kind)).runs
    first = calibration_splits(7, "0f" * 16, 0, 120, 5)
    for k in range(2):
        p, y = probabilities(score[k, 0], kind), y_true[0].astype(int)
        wrong = p.argmax(axis=1) != y
        row = result.row(k, named=True)
        assert row["error"] == pytest.approx(wrong.mean())
        assert row["error"] == pytest.approx(1 - row["accuracy"])
        assert row["cll"] == pytest.approx(cll_slow(np.log(p), y, first), abs=1e-6)
        assert row["cll"] > row["log_likelihood"]
        c_brier, c_ece, c_tace = calibrated_slow(p, y, first)
        assert row["c_brier"] == pytest.approx(c_brier, abs=1e-5)
        assert row["c_ece"] == pytest.approx(c_ece, abs=1e-5)
        assert row["tace"] == pytest.approx(tace_slow(p, y, 1e-3, 15), abs=1e-6)
        assert row["c_tace"] == pytest.approx(c_tace, abs=1e-5)
        risks = np.cumsum(wrong[np.argsort(-p.max(axis=1))]) / np.arange(1, 121)
        assert row["aurc"] == pytest.approx(risks.mean(), abs=1e-6)
        auc = roc_auc_score(wrong, -p.max(axis=1))
        assert row["misclassification_auroc"] == pytest.approx(auc, abs=1e-6)
        entropy = -(p * np.log(p)).sum(axis=1)
        assert row["misclassification_auroc_entropy"] == pytest.approx(
            roc_auc_score(wrong, entropy), abs=1e-6
        )
        for name, order in (("", -p.max(axis=1)), ("_entropy", entropy)):
            found = row[f"misclassification_aupr{name}"]
            assert found == pytest.approx(average_precision_score(wrong, order), abs=1e-5)
        assert kind == "ovr" or row["temperature"] > 1  # scores are twice what they should be
        assert row["temperature_bounded"] == 0
        assert 0 < row["cll_split_sd"] < 0.1
        assert row["temperature_sd"] > 0


def test_uniform_probabilities():
    runs = regular(1, 1, 2)
    score = np.zeros((2, 1, 200, 10), dtype=np.float32)
    y_true = (np.arange(200) % 10).astype(np.uint16)[None]
    row = analysed(predictions(score, y_true, runs, keep="all")).runs.row(0, named=True)
    assert row["brier"] == pytest.approx(0.9)
    assert row["brier_per_class"] == pytest.approx(0.09)
    assert row["log_likelihood"] == pytest.approx(-np.log(10))
    assert row["cll"] == pytest.approx(-np.log(10))
    assert row["temperature"] == 1
    assert row["aurc"] == pytest.approx(row["error"])
    assert aurc_slow(np.ones(4), [1, 0, 0, 0]) == pytest.approx(0.25)


def test_confidence_of_eight_tenths_with_six_tenths_right_is_off_by_two():
    runs = regular(1, 1, 2)
    score = np.zeros((2, 1, 100, 2), dtype=np.float32)
    score[..., 1] = np.log(4)
    y_true = (np.arange(100) % 5 < 3).astype(np.uint16)[None]
    row = analysed(predictions(score, y_true, runs, keep="all")).runs.row(0, named=True)
    assert row["ece"] == pytest.approx(0.2)
    assert row["c_ece"] < 0.1


def test_the_same_bits_however_repeats_are_cut():
    score, y_true, runs = sample(3, n_runs=7, repeats=2)
    whole = analysed(predictions(score, y_true, runs, keep="all"))
    cut = analysed(predictions(score, y_true, runs, chunks=2, keep="all"), block_bytes=1)
    assert whole.runs.equals(cut.runs)
    assert whole.repeats.equals(cut.repeats)


def test_every_cell_of_a_test_set_has_the_same_splits():
    runs = regular(2, 1, 3)
    score, y_true = noisy(np.random.default_rng(1), runs, 60, 3)
    score[3:] = score[:3]
    result = analysed(predictions(score, y_true, runs, keep="all")).runs
    assert result.filter(cell=0).select(NEW).equals(result.filter(cell=1).select(NEW))


def test_half_precision_changes_little():
    score, y_true, runs = sample(4, n_test=400)
    exact, half = (
        analysed(predictions(score.astype(t), y_true, runs, keep="all")).runs
        for t in (np.float32, np.float16)
    )
    assert exact["cll"].to_numpy() == pytest.approx(half["cll"].to_numpy(), abs=1e-3)


def test_it_is_off_unless_asked_for():
    assert "calibration" not in Options().metrics
    assert Options(calibration=True).metrics == (*DEFAULT_METRICS, "calibration")
    assert Options(metrics=("accuracy",), calibration=True).metrics == ("accuracy", "calibration")
    score, y_true, runs = sample(3)
    result = analysed(predictions(score, y_true, runs, keep="all"), calibration=False).runs
    assert result["cll"].is_null().all()
    assert result["aurc"].is_not_null().all()


def test_what_cannot_be_calibrated_is_null_and_named():
    score, y_true, runs = sample(3, n_test=14)
    given = predictions(score, y_true, runs, keep="all")
    options = Options(calibration=True)
    told = unavailable(given, options)["calibration"].reason
    assert told == "a test set of 14 points is too small to calibrate on (20)"
    assert analysed(given).runs["cll"].is_null().all()
    score, y_true, runs = sample(3)
    assert "calibration" in unavailable(predictions(score, y_true, runs), options)
    hinge = predictions(score, y_true, runs, keep="all", probability="none")
    assert {"calibration", "rejection"} <= unavailable(hinge, options).keys()
    assert analysed(hinge).runs.select(pl.col(NEW).is_null().all()).row(0) == (True,) * len(NEW)


def test_a_run_that_is_not_a_number_is_null_alone():
    score, y_true, runs = sample(3)
    whole = analysed(predictions(score, y_true, runs, keep="all")).runs
    score[1, 0, 5] = np.nan
    result = analysed(predictions(score, y_true, runs, keep="all")).runs
    assert result["cll"][1] is None
    assert result["tace"][1] is None
    assert result["cll"][0] == whole["cll"][0]
