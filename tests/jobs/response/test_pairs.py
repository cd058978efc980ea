"""Samples and pairs: which rows, in what order, and that models share them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs.response.measure import Streams, batches, pairs, sample

STREAMS = Streams(7, "dataset", 1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_pairs_are_neighbours_of_the_sorted_or_the_random_order(classes):
    """Slow version: PRC's algorithm 3, a loop over the batch."""
    y = np.array(classes, dtype=np.uint16)
    for kind in ("intra", "inter"):
        order = sorted(range(len(y)), key=lambda i: y[i]) if kind == "intra" else range(len(y))
        expected = []
        for i in range(0, len(y) - 1, 2):
            one, other = order[i], order[i + 1]
            if (y[one] == y[other]) == (kind == "intra"):
                expected.append((one, other))
        first, second = pairs(kind, y)
        assert list(zip(first.tolist(), second.tolist(), strict=True)) == expected


def test_a_class_of_odd_rows_drops_its_last_pair_and_no_row_is_in_two():
    y = np.array([1, 0, 1, 0, 0, 1], dtype=np.uint16)
    first, second = pairs("intra", y)
    # 0: rows 1, 3, 4; 1: rows 0, 2, 5: the pair (4, 0) is of two classes
    assert (first.tolist(), second.tolist()) == ([1, 2], [3, 5])


@settings(deadline=None)
@given(st.integers(2, 60), st.data())
def test_runs_share_their_sample_as_far_as_they_share_rows(n, data):
    order = STREAMS.order("intra", 0, n)
    own = [
        np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))) for _ in range(2)
    ]
    whole = [sample(order, rows, n) for rows in own]
    for rows, found in zip(own, whole, strict=True):
        assert sorted(found) == rows.tolist()
    both = set(own[0]) & set(own[1])
    common = [[row for row in found if row in both] for found in whole]
    assert common[0] == common[1]
    rows = data.draw(st.integers(1, n))
    assert sample(order, own[0], rows).tolist() == whole[0][:rows].tolist()
    share = sample(order, own[0], 0.5)
    assert len(share) == max(1, round(0.5 * len(own[0])))


def test_draws_transforms_repeats_and_datasets_have_other_samples():
    orders = [
        STREAMS.order("intra", 0, 50),
        STREAMS.order("intra", 1, 50),
        STREAMS.order("inter", 0, 50),
        Streams(7, "dataset", 2).order("intra", 0, 50),
        Streams(7, "other", 1).order("intra", 0, 50),
        Streams(8, "dataset", 1).order("intra", 0, 50),
    ]
    assert len({tuple(order) for order in orders}) == len(orders)
    assert all(sorted(order) == list(range(50)) for order in orders)


def test_random_magnitudes_are_even_and_of_a_row():
    u = STREAMS.uniform("rotate:90", 20_000)
    assert np.histogram(u, 10, (0, 1))[0].min() > 1800
    assert STREAMS.uniform("rotate:90", 10).tolist() == u[:10].tolist()


def test_a_batch_may_be_incomplete():
    assert [len(part) for part in batches(np.arange(10), 4)] == [4, 4, 2]
