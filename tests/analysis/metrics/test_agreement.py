"""Error consistency, churn and kappa against sets of points."""

from __future__ import annotations

import math
from functools import reduce
from itertools import combinations
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import cohen_kappa_score

from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.metrics.gram import both_wrong, count, pack
from manyseed.analysis.metrics.metric import QUANTILES, Spread, summarise
from manyseed.analysis.options import Options
from tests.analysis.samples import predictions, regular


def analysed(label, y_true, n_classes, **options):
    runs = regular(1, 1, label.shape[0])
    score = np.eye(n_classes, dtype=np.float32)[label][:, None]
    group = analyze_group(
        predictions(score, y_true[None].astype(np.uint16), runs, keep="none"),
        Options(metrics=("accuracy", "agreement"), **options),
    )
    return compute([group], scheduler="synchronous")[0]


@given(
    st.data(), st.integers(2, 4), st.integers(2, 5), st.integers(1, 8), st.sampled_from([0.0, 1.0])
)
@settings(deadline=None, max_examples=40)
def test_equals_sets_of_points(data, n_classes, n_runs, n_test, empty_union):
    points = st.integers(0, n_classes - 1)
    label = data.draw(arrays(np.int64, (n_runs, n_test), elements=points))
    y_true = data.draw(arrays(np.int64, n_test, elements=points))
    wrong = [{p for p in range(n_test) if row[p] != y_true[p]} for row in label]
    for option in (math.nan, empty_union):
        result = analysed(label, y_true, n_classes, empty_union=option)
        pairs = {(p["run_i"], p["run_j"]): p for p in result.pairs.iter_rows(named=True)}
        assert list(pairs) == list(combinations(range(n_runs), 2))
        for (i, j), pair in pairs.items():
            union, both = wrong[i] | wrong[j], wrong[i] & wrong[j]
            undefined = None if math.isnan(option) else option
            assert pair["ec_local"] == (len(both) / len(union) if union else undefined)
            assert pair["ec_global"] == len(both) / n_test
            different = sum(label[i, p] != label[j, p] for p in range(n_test))
            assert pair["churn"] == different / n_test
            assert pair["agreement"] == pytest.approx(1 - different / n_test)
            everyone = set().union(*wrong)
            largest = max(len(wrong[a] | wrong[b]) for a, b in pairs)
            for name, size in (("ec_union", len(everyone)), ("ec_largest_union", largest)):
                expected = len(both) / size if size else None
                assert pair[name] == (None if expected is None else pytest.approx(expected))
            a, b = (1 - len(errors) / n_test for errors in (wrong[i], wrong[j]))
            for which in ("local", "global"):
                ec = pair[f"ec_{which}"]
                roots = (None, None) if ec is None else ((a * b * ec) ** (1 / 3), (a * b) ** 0.25)
                cube, square = pair[f"ec_{which}_cube_root"], pair[f"ec_{which}_square_root"]
                assert cube == (None if ec is None else pytest.approx(roots[0]))
                assert square == (None if ec is None else pytest.approx(roots[1] * ec**0.5))
            if len(set(label[i]) | set(label[j])) == 1:
                assert pair["label_kappa"] is None
            else:
                assert pair["label_kappa"] == pytest.approx(
                    cohen_kappa_score(label[i], label[j]), abs=1e-12
                )
            right = [[p in errors for p in range(n_test)] for errors in (wrong[i], wrong[j])]
            if len({bit for bits in right for bit in bits}) == 1:
                assert pair["ec_kappa"] is None
            else:
                assert pair["ec_kappa"] == pytest.approx(cohen_kappa_score(*right), abs=1e-12)
        churns = [
            [pair["churn"] for key, pair in pairs.items() if run in key] for run in range(n_runs)
        ]
        means = [sum(values) / len(values) for values in churns]
        assert result.runs["churn_mean"].to_list() == pytest.approx(means)
        assert result.repeats["n_wrong_by_any"][0] == len(set().union(*wrong))


def test_undefined_pairs_are_left_out_of_the_mean_and_counted():
    y_true = np.zeros(4, dtype=np.int64)
    label = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    repeat = analysed(label, y_true, 2).repeats.row(0, named=True)
    assert repeat["ec_local_n"] == 2
    assert repeat["ec_local_mean"] == 0
    assert repeat["ec_global_n"] == 3


def test_independent_errors_agree_as_often_as_chance_says():
    rng = np.random.default_rng(2)
    share = 0.3
    y_true = rng.integers(0, 2, 20_000)
    wrong = rng.random((20, 20_000)) < share
    label = np.where(wrong, 1 - y_true, y_true)
    repeat = analysed(label, y_true, 2).repeats.row(0, named=True)
    assert repeat["ec_local_mean"] == pytest.approx(share**2 / (2 * share - share**2), abs=0.003)
    assert repeat["ec_global_mean"] == pytest.approx(share**2, abs=0.002)
    assert repeat["churn_mean"] == pytest.approx(2 * share * (1 - share), abs=0.003)
    assert repeat["ec_kappa_mean"] == pytest.approx(0, abs=0.005)
    assert repeat["ec_local_range"] > 0  # different runs have different errors


def test_two_wrong_labels_can_differ():
    pair = analysed(np.array([[1, 0], [2, 0]]), np.zeros(2, dtype=int), 3).pairs.row(0, named=True)
    assert (pair["ec_local"], pair["churn"]) == (1, 0.5)


@pytest.mark.parametrize("n_test", [1, 7, 8, 63, 64, 65, 1000])
def test_bits_are_counted_whatever_part_of_a_word_they_fill(n_test):
    wrong = np.random.default_rng(n_test).random((5, n_test)) < 0.7
    expected = [[np.count_nonzero(i & j) for j in wrong] for i in wrong]
    words = pack(wrong)
    assert both_wrong(words, words).tolist() == expected
    assert both_wrong(pack(wrong[1:3]), words).tolist() == expected[1:3]
    assert count(words).tolist() == np.diag(expected).tolist()


@pytest.mark.parametrize("runs", [4, 5])
def test_pairs_are_listed_up_to_a_limit_and_always_summarised(runs):
    rng = np.random.default_rng(4)
    label = rng.integers(0, 2, (runs, 30))
    result = analysed(label, np.zeros(30, dtype=int), 2, max_pair_runs=4)
    listed = analysed(label, np.zeros(30, dtype=int), 2)
    assert result.pairs.height == (6 if runs == 4 else 0)
    for name, dtype in listed.repeats.schema.items():
        if dtype.is_float():  # listed pairs have exact quantiles, the others to 1/4096
            known = pytest.approx(listed.repeats[name].to_list(), abs=1 / 4096, nan_ok=True)
            assert result.repeats[name].to_list() == known, name
        else:
            assert result.repeats[name].equals(listed.repeats[name])
    assert result.repeats["churn_n"][0] == runs * (runs - 1) // 2
    for summary, value in (
        ("mean", listed.pairs["churn"].mean()),
        ("min", listed.pairs["churn"].min()),
        ("max", listed.pairs["churn"].max()),
        ("median", listed.pairs["churn"].median()),
        ("q05", listed.pairs["churn"].quantile(0.05, "linear")),
        ("q95", listed.pairs["churn"].quantile(0.95, "linear")),
    ):
        exact = 1e-12 if summary in ("mean", "min", "max") else 1 / 4096
        assert result.repeats[f"churn_{summary}"][0] == pytest.approx(value, abs=exact)


def test_a_single_run_has_no_pairs():
    result = analysed(np.array([[0, 1]]), np.zeros(2, dtype=int), 2)
    assert result.pairs.is_empty()
    repeat = result.repeats.row(0, named=True)
    assert repeat["accuracy_mean"] == 0.5
    assert repeat["accuracy_std"] is None
    assert (repeat["ec_local_n"], repeat["ec_local_mean"]) == (0, None)
    assert result.runs["churn_mean"].to_list() == [None]


def test_spreads_can_be_put_together_in_any_order():
    values = np.random.default_rng(6).uniform(-1, 1, 1000)
    values[::50] = np.nan
    whole = Spread.of(values)
    parts = [Spread.of(part) for part in np.array_split(values, 7)]
    names = ("n", "mean", "min", "max", "range", "q05", "median", "q95")
    for order in (parts, parts[::-1]):
        together = reduce(add, order)
        assert together.summary(names) == whole.summary(names)
    exact = summarise(values, names)
    for name, value in whole.summary(names).items():
        assert value == pytest.approx(exact[name], abs=1 / 8192 if name in QUANTILES else 1e-11)
    assert whole.scaled(2).summary(names)["mean"] == 2 * whole.summary(names)["mean"]
    assert Spread.of(np.array([np.nan])).summary(("n", "mean"))["n"] == 0


def test_the_tiles_of_a_repeat_do_not_matter():
    rng = np.random.default_rng(7)
    label, y_true = rng.integers(0, 3, (11, 40)), rng.integers(0, 3, 40)
    for listed in (3, 200):
        whole = analysed(label, y_true, 3, max_pair_runs=listed)
        for block_bytes in (1, 100, 200):
            cut = analysed(label, y_true, 3, max_pair_runs=listed, block_bytes=block_bytes)
            assert cut.repeats.equals(whole.repeats)
            assert cut.pairs.equals(whole.pairs)
            assert cut.runs.equals(whole.runs)
