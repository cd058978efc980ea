import hashlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs.datasets import load, resolve
from manyseed.jobs.datasets.split import n_points, resample, split, stratified_order, subsample
from manyseed.jobs.run import raw, stream

labels = st.lists(st.integers(0, 4), min_size=1, max_size=60).map(np.array)
seeds = st.integers(0, 2**32)


def words(seed: int, n: int) -> np.ndarray:
    return raw(stream(seed, "split", "dataset", 0), n)


def slow_order(y, draws):
    """Order samples one by one, in exact arithmetic."""
    keys = {}
    for c in {int(c) for c in y}:
        members = sorted((int(draws[i]), i) for i in range(len(y)) if y[i] == c)
        for r, (_, i) in enumerate(members):
            keys[i] = (Fraction(2 * r + 1, 2 * len(members)), c)
    return sorted(keys, key=keys.__getitem__)


@given(y=labels, seed=seeds)
@settings(deadline=None)
def test_the_order_follows_from_its_rule(y, seed):
    draws = words(seed, len(y))
    assert stratified_order(y, draws).tolist() == slow_order(y, draws)


@given(y=labels, seed=seeds)
@settings(deadline=None)
def test_every_prefix_is_stratified_within_half_a_sample_of_a_common_share(y, seed):
    order = stratified_order(y, words(seed, len(y)))
    n = np.bincount(y, minlength=5)
    present = n > 0
    for length in range(len(y) + 1):
        count = np.bincount(y[order[:length]], minlength=5)
        least = ((count - 0.5) / np.maximum(n, 1))[present].max()
        most = ((count + 0.5) / np.maximum(n, 1))[present].min()
        assert least <= most + 1e-12


def test_ties_of_words_go_to_the_earlier_sample():
    y = np.array([0, 0, 1, 0, 1])
    assert stratified_order(y, np.zeros(5, dtype=np.uint64)).tolist() == [0, 2, 1, 4, 3]


def test_an_order_is_written_out():
    y = np.array([0, 1, 1, 0, 2, 1, 0, 1])
    order = stratified_order(y, raw(stream(1, "split", "x", 0), 8))
    assert order.tolist() == [1, 6, 5, 0, 4, 7, 3, 2]


def test_a_split_and_a_subsample_are_written_out():
    info = resolve("sklearn:breast_cancer")
    y = load(info.canonical).y
    part = split(20210427, info.id, 0, y, 0.25)
    used = part.train[subsample(20210427, info.id, 0, 3, y[part.train], 0.25)]
    assert part.test.size == 142
    assert part.test[:8].tolist() == [0, 6, 9, 11, 12, 13, 17, 20]
    assert hashlib.sha256(part.test.astype("<i8").tobytes()).hexdigest()[:16] == "5f88823675453756"
    assert used.size == 107
    assert used[:8].tolist() == [10, 15, 22, 23, 26, 29, 34, 40]


@given(y=labels.filter(lambda y: len(y) >= 4), seed=seeds, repeat=st.integers(0, 5))
@settings(deadline=None)
def test_a_split_is_a_partition_into_ascending_halves(y, seed, repeat):
    part = split(seed, "dataset", repeat, y, 2)
    assert part.test.size == 2
    assert part.test.dtype == part.train.dtype == np.int64
    for side in (part.train, part.test):
        assert (np.diff(side) > 0).all()
    assert sorted([*part.train, *part.test]) == list(range(len(y)))


def test_repeats_and_seeds_have_test_sets_of_their_own():
    y = np.arange(200) % 2
    sets = [split(seed, "d", r, y, 0.25).test.tolist() for seed in (1, 2) for r in range(3)]
    assert len({tuple(indices) for indices in sets}) == len(sets)
    assert all(np.bincount(y[indices]).tolist() == [25, 25] for indices in sets)


@given(y=labels, seed=seeds, data=st.data())
@settings(deadline=None)
def test_subsamples_are_nested_over_fractions(y, seed, data):
    share = st.floats(0.01, 1.0)
    small, large = sorted([data.draw(share), data.draw(share)])
    few, many = (subsample(seed, "d", 0, 1, y, fraction) for fraction in (small, large))
    assert set(few) <= set(many)
    assert few.size == max(1, n_points(small, len(y)))
    assert (np.diff(few) > 0).all()
    assert subsample(seed, "d", 0, 1, y, 1.0).tolist() == list(range(len(y)))


def test_a_number_of_points_is_that_prefix():
    y = np.arange(40) % 3
    assert subsample(1, "d", 0, 0, y, 10).tolist() == subsample(1, "d", 0, 0, y, 0.25).tolist()


@pytest.mark.parametrize(
    ("share", "n", "expected"),
    [
        (0.25, 846, 212),
        (0.145, 100, 15),
        (0.5, 3, 2),
        (0.1, 30, 3),
        (1.0, 7, 7),
        (0.3, 5, 2),
        (9, 20, 9),
    ],
)
def test_shares_are_rounded_half_up_as_they_are_written(share, n, expected):
    assert n_points(share, n) == expected


def test_a_bootstrap_draws_the_points_that_it_is_given():
    points = np.array([3, 5, 8, 13, 21])
    drawn = np.concatenate([resample(1, "d", 0, run, points) for run in range(400)])
    assert set(drawn) == set(points)
    counts = np.array([(drawn == point).sum() for point in points])
    assert abs(counts - 400).max() < 5 * np.sqrt(400)
    first = raw(stream(1, "resample", "d", 0, 0), 5)
    assert resample(1, "d", 0, 0, points).tolist() == [points[int(w) % 5] for w in first]
