from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from manyseed.jobs.run import TrainingSet
from manyseed.jobs.training import encode
from tests.encoded import dense, pixels

RNG = np.random.default_rng(7)


def training_set(X, X_test, cardinality, image=None):
    y = np.arange(len(X)) % 2
    return TrainingSet(
        X=np.asarray(X, float),
        y=y.astype(np.uint16),
        X_test=np.asarray(X_test, float),
        n_classes=2,
        cardinality=np.asarray(cardinality, np.int32),
        image=image,
    )


def test_continuous_columns_are_standardised_by_the_training_part():
    X, X_test = RNG.normal(5, 3, (50, 4)), RNG.normal(-1, 2, (20, 4))
    scaler = StandardScaler().fit(X)
    train, test = dense(training_set(X, X_test, [0, 0, 0, 0]))
    np.testing.assert_allclose(train, scaler.transform(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(test, scaler.transform(X_test), rtol=1e-12, atol=1e-12)


def test_a_missing_value_becomes_the_training_mean():
    X = np.array([[1.0, 2.0], [np.nan, 4.0], [3.0, np.nan]])
    train, test = dense(training_set(X, [[np.nan, np.nan]], [0, 0]))
    filled = StandardScaler().fit_transform([[1.0, 2.0], [2.0, 4.0], [3.0, 3.0]])
    np.testing.assert_allclose(train, filled, atol=1e-15)
    np.testing.assert_array_equal(test, [[0, 0]])


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-30, 1 / 3, 1e15])
def test_a_column_that_is_constant_in_training_is_0_everywhere(value):
    X = np.full((49, 2), value)
    X[5, 1] = np.nan
    train, test = dense(training_set(X, [[7.0, -7.0], [np.nan, value]], [0, 0]))
    assert not train.any()
    assert not test.any()


@pytest.mark.parametrize("shape", [None, (2, 1, 2)])
def test_numbers_whose_squares_overflow_are_standardised_like_others(shape):
    X, X_test = RNG.normal(1, 2, (60, 4)), RNG.normal(1, 2, (9, 4))
    X[5, 1] = np.nan if shape is None else 1
    unit = np.array([1, 2.0**700, 2.0**1019, 2.0**520])
    encode_ = dense if shape is None else pixels
    unit = unit if shape is None else np.array([1, 2.0**700] * 2)
    plain = encode_(training_set(X, X_test, [0] * 4, shape))
    large = encode_(training_set(X * unit, X_test * unit, [0] * 4, shape))
    for one, other in zip(plain, large, strict=True):
        one, other = one.reshape(len(one), -1), other.reshape(len(other), -1)
        assert other.any(axis=0).all()
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(other[:, 0], one[:, 0])


def test_a_sum_that_overflows_has_a_mean():
    X = 1e308 * np.linspace(0.5, 1.5, 30)[:, None]
    train, _ = dense(training_set(X, X[:2], [0]))
    expected = StandardScaler().fit_transform(np.linspace(0.5, 1.5, 30)[:, None])
    np.testing.assert_allclose(train, expected, rtol=1e-12, atol=1e-12)


def test_a_column_without_any_training_value_is_0():
    train, test = dense(training_set(np.full((4, 1), np.nan), [[3.0]], [0]))
    assert not train.any()
    assert not test.any()


def test_categories_become_one_column_a_label_and_one_for_missing():
    X = np.array([[0, 5.0, 2], [1, 6.0, np.nan], [0, 7.0, 0], [np.nan, 8.0, 1]])
    train, test = dense(training_set(X, X[:2], [2, 0, 3]))
    codes = np.where(np.isnan(X), [2, 0, 3], X)[:, [0, 2]]
    encoder = OneHotEncoder(categories=[range(3), range(4)], sparse_output=False)
    np.testing.assert_array_equal(train[:, 1:], encoder.fit_transform(codes))
    np.testing.assert_array_equal(test[:, 1:], train[:2, 1:])


def test_a_label_absent_from_training_is_no_column_of_the_test_part():
    X = np.array([[0.0], [1.0], [0.0]])
    train, test = dense(training_set(X, [[2.0], [np.nan], [1.0]], [3]))
    assert train.shape[1] == test.shape[1] == 4
    np.testing.assert_array_equal(test, [[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]])


def test_test_rows_have_no_influence():
    X = np.column_stack([RNG.normal(size=30), RNG.integers(0, 4, 30)])
    few, many = X[:3], np.vstack([X[:3], X + 1e3 * np.array([1, 0])])
    one, other = (dense(training_set(X, rows, [0, 4])) for rows in (few, many))
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1][:3])


def test_pixels_are_scaled_channel_by_channel():
    images = RNG.normal([10, 20, 30], [1, 2, 3], (40, 5, 6, 3))
    train, test = pixels(
        training_set(images.reshape(40, -1), images[:4].reshape(4, -1), [0] * 90, (5, 6, 3))
    )
    assert train.dtype == test.dtype == np.float32
    assert train.shape == (40, 5, 6, 3)
    scaled = (images - images.mean((0, 1, 2))) / images.std((0, 1, 2))
    np.testing.assert_allclose(train, scaled, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(test, train[:4])


def test_pixels_need_images():
    with pytest.raises(ValueError, match="not images"):
        pixels(training_set([[1.0], [2.0]], [[1.0]], [0]))


def test_blocks_make_no_difference(monkeypatch):
    X, X_test = RNG.normal(40, 9, (30, 12)), RNG.normal(40, 9, (11, 12))
    X[RNG.random(X.shape) < 0.1] = np.nan
    data = training_set(X, X_test, np.zeros(12), image=(2, 3, 2))
    whole = (*pixels(data), *dense(data))
    monkeypatch.setattr(encode, "_BLOCK", 40)
    for one, other in zip(whole, (*pixels(data), *dense(data)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
