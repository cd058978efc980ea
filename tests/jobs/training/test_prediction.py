from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax

from manyseed.jobs.run import gaps, prediction

RNG = np.random.default_rng(3)


def test_a_gap_of_0_predicts_the_positive_class():
    result = prediction(np.array([[-1e-30, 0.0, -0.0, 2.0]]), "softmax", 1.5)
    np.testing.assert_array_equal(result.label, [[0, 1, 1, 1]])
    assert result.label.dtype == np.uint16
    assert result.fit_seconds == 1.5


@pytest.mark.parametrize("probability", ["softmax", "ovr"])
def test_two_classes_take_the_sigmoid_of_the_gap(probability):
    gaps = RNG.normal(0, 5, (2, 30)).astype(np.float32)
    positive = expit(gaps.astype(float))
    result = prediction(gaps, probability, 0.0)
    np.testing.assert_allclose(result.confidence, np.maximum(positive, 1 - positive), rtol=1e-6)


def test_confidence_is_the_probability_of_the_label():
    scores = RNG.normal(0, 3, (2, 40, 5)).astype(np.float32)
    soft, ovr = softmax(scores.astype(float), axis=2), expit(scores.astype(float))
    ovr /= ovr.sum(axis=2, keepdims=True)
    for probability, expected in (("softmax", soft), ("ovr", ovr)):
        result = prediction(scores, probability, 0.0)
        np.testing.assert_array_equal(result.label, expected.argmax(axis=2))
        np.testing.assert_allclose(result.confidence, expected.max(axis=2), rtol=1e-6)
        assert result.confidence.dtype == np.float32


def test_confidence_stays_finite_where_all_sigmoids_underflow():
    result = prediction(np.array([[[-800.0, -801.0, -900.0]]]), "ovr", 0.0)
    np.testing.assert_allclose(result.confidence, [[1 / (1 + np.exp(-1))]], rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 3)])
def test_scores_without_probabilities_have_no_confidence(shape):
    assert np.isnan(prediction(RNG.normal(size=shape), "none", 0.0).confidence).all()


def test_labels_are_taken_from_float32():
    close = np.array([[[1.0, 1.0 + 1e-12, 0.0]]])  # equal in float32: the first wins
    assert prediction(close, "softmax", 0.0).label.item() == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_scores_that_are_not_finite_are_a_failure(bad):
    with pytest.raises(FloatingPointError, match="diverged: 1 of 4 scores"):
        prediction(np.array([[0.0, 1.0, bad, 2.0]]), "softmax", 0.0)


def test_logits_of_two_classes_become_their_gap():
    logits = RNG.normal(size=(2, 7, 2)).astype(np.float32)
    np.testing.assert_array_equal(gaps(logits), logits[..., 1] - logits[..., 0])
    three = RNG.normal(size=(2, 7, 3)).astype(np.float32)
    assert gaps(three) is three
