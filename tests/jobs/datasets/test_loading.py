import numpy as np
import pytest
from scipy.stats import kstest, norm

from manyseed.jobs.datasets import load, resolve
from manyseed.jobs.run import MachineError


def test_another_version_of_the_data_is_refused():
    canonical = {**resolve("sklearn:iris").canonical, "digest": "0" * 64}
    with pytest.raises(MachineError, match=r"sklearn:iris of the installed .* differs"):
        load(canonical)


def test_merged_classes_keep_the_rows_of_the_source_in_order():
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    info = resolve("sklearn:digits", classes={"low": [0, 1], "high": [8, 9]}, positive="low")
    data = load(info.canonical)
    kept = np.isin(y, [0, 1, 8, 9])
    np.testing.assert_array_equal(data.X, X[kept])
    np.testing.assert_array_equal(data.y, (y[kept] < 2).astype(int))


def test_synthetic_data_is_written_out():
    info = resolve(
        "synthetic:gaussian",
        n_samples=12,
        n_features=3,
        n_categorical=1,
        n_labels=2,
        flip=0.25,
        weights=[1, 2],
        seed=5,
    )
    assert info.id == "43b675bb8e86ac01e65ce8c49ca1a16c"
    data = load(info.canonical)
    np.testing.assert_array_equal(
        data.X[:4],
        [
            [2.2964062690734863, -1.4193952083587646, 1.0],
            [2.4129574298858643, -0.5807267427444458, 1.0],
            [0.8122141361236572, -0.15241208672523499, 0.0],
            [1.1434251070022583, 1.5789893865585327, 0.0],
        ],
    )
    assert data.y.tolist() == [0] * 4 + [1] * 8
    assert data.cardinality.tolist() == [0, 0, 2]


def test_synthetic_classes_lie_as_far_apart_as_asked():
    info = resolve("synthetic:gaussian", n_samples=30_000, n_features=7, n_classes=3, separation=3)
    data = load(info.canonical)
    means = np.stack([data.X[data.y == c].mean(axis=0) for c in range(3)])
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert np.linalg.norm(means[a] - means[b]) == pytest.approx(3, abs=0.05)
    for c in range(3):
        centred = data.X[data.y == c] - means[c]
        assert kstest(centred.ravel(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("flip", [0.0, 0.2])
def test_the_best_accuracy_on_synthetic_data_is_the_planted_one(flip):
    info = resolve("synthetic:gaussian", n_samples=40_000, n_features=6, separation=2, flip=flip)
    data = load(info.canonical)
    # Features 0, 2, 4 are raised for class 0, the others for class 1.
    predicted = data.X[:, 1::2].sum(axis=1) >= data.X[:, 0::2].sum(axis=1)
    clean = norm.cdf(1)
    expected = (1 - flip) * clean + flip * (1 - clean)
    assert (predicted == data.y).mean() == pytest.approx(expected, abs=0.01)


def test_features_that_are_not_informative_say_nothing():
    info = resolve("synthetic:gaussian", n_samples=20_000, n_informative=2, n_features=4)
    data = load(info.canonical)
    difference = data.X[data.y == 1].mean(axis=0) - data.X[data.y == 0].mean(axis=0)
    np.testing.assert_allclose(difference, [-np.sqrt(2), np.sqrt(2), 0, 0], atol=0.05)


def test_synthetic_labels_are_equally_frequent():
    info = resolve("synthetic:gaussian", n_samples=1000, n_features=5, n_categorical=2, n_labels=8)
    data = load(info.canonical)
    assert info.n_continuous == 3
    for column in (3, 4):
        codes, counts = np.unique(data.X[:, column], return_counts=True)
        assert codes.tolist() == list(range(8))
        assert counts.tolist() == [125] * 8


def test_synthetic_values_are_stable_against_the_last_bit():
    X = load(resolve("synthetic:gaussian").canonical).X
    np.testing.assert_array_equal(X, X.astype(np.float32))
