"""Who makes resamples infeasible: planted runs, and the search beside all subsets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy.stats import ks_2samp

from manyseed.analysis.alphahat.references import distances_from_median, suspects
from manyseed.analysis.alphahat.resampling import disjoint_halves, generator
from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.options import Options
from tests.analysis.samples import predictions, regular

B = 5


def margins(n_runs=10, n_test=1000, seed=0):
    return np.random.default_rng(seed).normal(size=(n_runs, n_test)).astype(np.float32)


def analysed(margin, chunk_runs=None, **options):
    runs = regular(1, 1, margin.shape[0])
    score = np.stack([np.zeros_like(margin), margin], axis=-1)[:, None]
    y_true = np.zeros((1, margin.shape[1]), dtype=np.uint16)
    asked = Options(metrics=("alpha_hat",), resamples=B, **options)
    group = analyze_group(predictions(score, y_true, runs, chunk_runs), asked)
    return compute([group], scheduler="synchronous")[0].runs


def slow_levels(candidate, others):
    """Level of each resample, from values."""
    n_test = candidate.size
    drawn = disjoint_halves(generator(7, "alpha_hat", "0f" * 16, 0), n_test, B)
    return np.array(
        [
            smallest_trimming_level(
                candidate[drawn.candidate[b] == 1],
                others[:, drawn.reference[b] == 1].ravel(),
                dkw_threshold(n_test // 2, 0.01),
            )
            for b in range(B)
        ]
    )


def feasible_slow(values, kept):
    return all(
        (slow_levels(values[k], values[[j for j in kept if j != k]]) < 1).all() for k in kept
    )


@pytest.mark.parametrize("where", [0.0, 50.0])
def test_one_collapsed_run_of_ten(where):
    """At 4000 points a ninth of the reference at one value is more than 2δ, within or beyond."""
    margin = margins(n_test=4000)
    margin[3] = where
    others = analysed(margin)
    assert others["alpha_hat"].min() == 1  # as the definition has it
    trimmed = analysed(margin, alpha_reference="others-trimmed")
    clean = np.arange(10) != 3
    assert trimmed["alpha_hat"].to_numpy()[clean].max() < 0.01
    assert trimmed["alpha_hat"][3] == 1
    against = others["alpha_hat_majority"].to_numpy()
    assert against[clean].max() < 0.01
    assert against[3] == 1
    for runs in (others, trimmed):
        assert runs["alpha_hat_suspect"].to_list() == [k == 3 for k in range(10)]
    assert trimmed["alpha_hat_references"].to_list() == [9 if k == 3 else 8 for k in range(10)]


def test_a_narrow_run_within_the_others_is_the_one_apart():
    """No resample is infeasible, but all ten are far from an average with it."""
    margin = margins(n_test=4000)
    margin[3] = 0.3 + 0.01 * margin[3]
    found = analysed(margin)
    assert found["alpha_hat"].min() > 0.05
    assert not found["alpha_hat_suspect"].to_numpy()[np.arange(10) != 3].any()
    assert (found["alpha_hat_majority"] > 0.05).to_list() == [k == 3 for k in range(10)]


@pytest.mark.parametrize("reference", ["others", "others-trimmed", "half"])
def test_the_majority_is_the_same_in_chunks(reference):
    margin = margins(n_test=4000)
    margin[3] = 50.0
    whole, parts = (
        analysed(margin, alpha_reference=reference, block_bytes=size)["alpha_hat_majority"]
        for size in (10**9, 70_000)
    )
    assert whole.to_list() == parts.to_list()
    assert whole.null_count() == {"others": 0, "others-trimmed": 10, "half": 5}[reference]


@pytest.mark.parametrize("n_apart", [1, 2, 3, 4])
def test_the_majority_is_the_largest_that_is_close(n_apart):
    """Beside a search that tests all runs at each step, by values."""
    margin = margins(n_test=600, seed=n_apart)
    apart = np.random.default_rng(n_apart).permutation(10)[:n_apart]
    margin[apart] += np.linspace(1, 3, n_apart, dtype=np.float32)[:, None]
    order = np.argsort(-distances_from_median(margin), kind="stable")

    def levels(kept):
        return {k: slow_levels(margin[k], margin[[j for j in kept if j != k]]).mean() for k in kept}

    tried = (order[n_out:] for n_out in range(5))
    kept = next(each for each in tried if max(levels(each).values()) <= 0.05)
    assert sorted(set(range(10)) - set(kept)) == sorted(apart)
    alone = {k: slow_levels(margin[k], margin[kept]).mean() for k in apart}
    expected = levels(kept) | alone
    found = analysed(margin)
    far = found["alpha_hat"].to_numpy() > 0.05
    assert far[apart].all()
    for k, level in enumerate(found["alpha_hat_majority"]):
        assert level == (pytest.approx(expected[k], abs=1e-12) if far[k] else None)


def test_without_a_majority_or_a_run_apart_there_is_no_level_against_one():
    clean = margins(n_test=4000)
    assert analysed(clean)["alpha_hat_majority"].null_count() == 10
    apart = clean + 3 * np.arange(10, dtype=np.float32)[:, None]
    found = analysed(apart)
    assert found["alpha_hat"].min() > 0.05
    assert found["alpha_hat_majority"].null_count() == 10


def test_levels_are_those_against_the_kept_runs():
    margin = margins(n_test=300)
    margin[0] += 0.7
    margin[[2, 7]] = 50
    found = analysed(margin, alpha_reference="others-trimmed")
    kept = [k for k in range(10) if k not in (2, 7)]
    assert found["alpha_hat_suspect"].to_list() == [k not in kept for k in range(10)]
    for k in range(10):
        level = slow_levels(margin[k], margin[[j for j in kept if j != k]]).mean()
        assert found["alpha_hat"][k] == pytest.approx(level)
    assert 0 < found["alpha_hat"][0] < 1


def test_a_suspect_that_passes_itself():
    """Half of its points are far away: trimmed off as a candidate, in the way as a reference."""
    margin = margins(n_test=4000)
    margin[5, :2000] = 50
    found = analysed(margin)
    assert found["alpha_hat"][5] < 0.6
    assert found["alpha_hat_infeasible"][0] == 1
    assert found["alpha_hat_suspect"].to_list() == [k == 5 for k in range(10)]
    trimmed = analysed(margin, alpha_reference="others-trimmed")
    assert trimmed["alpha_hat_infeasible"].max() == 0


def test_nobody_is_suspected_where_all_agree():
    plain, trimmed = (analysed(margins(), alpha_reference=r) for r in ("others", "others-trimmed"))
    assert not plain["alpha_hat_suspect"].any()
    assert plain.equals(trimmed)


def test_without_a_majority_nobody_is_named():
    margin = margins(n_test=300)
    margin[5:] += 100
    for reference in ("others", "others-trimmed"):
        found = analysed(margin, alpha_reference=reference)
        assert found["alpha_hat"].min() == 1
        assert not found["alpha_hat_suspect"].any()


def test_with_a_reference_half_both_sides_are_looked_at():
    margin = margins()
    margin[1], margin[8] = 50, -50
    found = analysed(margin, alpha_reference="half")
    assert found["alpha_hat_suspect"].to_list() == [
        *(True if k == 1 else None for k in range(5)),
        *(k == 8 for k in range(5, 10)),
    ]


def test_runs_beyond_the_references_are_suspects_by_themselves():
    margin = margins()
    margin[9] = 50
    for reference in ("others", "others-trimmed"):
        found = analysed(margin, alpha_reference=reference, max_references=6)
        assert found["alpha_hat_suspect"].to_list() == [k == 9 for k in range(10)]
        assert found["alpha_hat"].head(9).max() < 0.01


@pytest.mark.parametrize("reference", ["others", "others-trimmed", "half"])
def test_a_repeat_that_is_cut_gives_the_same(reference):
    margin = margins()
    margin[1], margin[8] = 50, -50
    margin[2:5] += 0.2
    whole = analysed(margin, alpha_reference=reference)
    cut = analysed(margin, 3, alpha_reference=reference, block_bytes=3 * 1000 * 5)
    assert cut.equals(whole)


def test_an_ensemble_names_nobody():
    found = analysed(margins(), alpha_reference="loo_ensemble")
    assert found["alpha_hat_suspect"].null_count() == 10


def test_distances_are_from_the_median_of_each_order_statistic():
    values = np.random.default_rng(4).integers(-3, 4, (6, 25)).astype(np.float32)
    middle = np.sort(np.sort(values, axis=1), axis=0)[2]
    expected = [ks_2samp(own, middle).statistic for own in values]
    assert distances_from_median(values) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(6))
def test_no_smaller_number_of_the_farthest_would_do(seed):
    """Beside every number of them, with runs that are wrong in several ways."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(9, 200)).astype(np.float32)
    for k in rng.choice(9, rng.integers(0, 5), replace=False):
        values[k, : rng.integers(60, 200)] = rng.choice([-40, 0, 40])
    found = suspects(values, lambda kept: feasible_slow(values, kept))
    order = np.lexsort((-np.arange(9), -distances_from_median(values)))
    does = [n for n in range(5) if feasible_slow(values, np.sort(order[n:]))]
    assert (found is None) == (not does)
    if found is not None:
        assert found.tolist() == sorted(order[: does[0]].tolist())


def test_of_any_set_of_that_size_the_suspects_are_the_one_that_does():
    values = margins(6, 400, seed=9)
    values[4, :300] = 30
    found = suspects(values, lambda kept: feasible_slow(values, kept))
    does = [
        left
        for left in combinations(range(6), 1)
        if feasible_slow(values, [k for k in range(6) if k not in left])
    ]
    assert does == [(4,)]
    assert found.tolist() == [4]


@pytest.mark.parametrize("n_runs", [3, 4])
def test_three_runs_are_kept(n_runs):
    margin = margins(n_runs, 1000)
    margin[0] = 50
    found = analysed(margin, alpha_reference="others-trimmed")
    assert found["alpha_hat_suspect"].to_list() == [n_runs == 4, *[False] * (n_runs - 1)]
    assert found.filter(pl.col("run_index") > 0)["alpha_hat"].max() == (0 if n_runs == 4 else 1)
