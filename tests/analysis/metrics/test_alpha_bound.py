"""The bound that α̂ gives, and the test at one level."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from manyseed.analysis.alphahat.references import Reference, interpolated_stars
from manyseed.analysis.alphahat.resampling import bootstraps, disjoint_halves, generator
from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.options import Options
from tests.analysis.samples import predictions, regular

B = 12


def analysed(margin, seed=7, **options):
    runs = regular(1, 1, margin.shape[0])
    score = np.stack([np.zeros_like(margin), margin], axis=-1)[:, None].astype(np.float32)
    y_true = np.zeros((1, margin.shape[1]), dtype=np.uint16)
    asked = Options(metrics=("alpha_hat",), resamples=B, **options)
    group = analyze_group(replace(predictions(score, y_true, runs), seed=seed), asked)
    return compute([group], scheduler="synchronous")[0]


def test_delta_b_and_c_are_the_sources_and_the_bound_their_sum():
    found = analysed(np.random.default_rng(0).normal(size=(5, 300)))
    row, repeat = found.runs.row(1, named=True), found.repeats.row(0, named=True)
    epsilon, n_side = 0.01, 150
    assert 2 * 4 * math.exp(-2 * n_side * row["delta_b"] ** 2) == pytest.approx(epsilon)  # eq. 13
    assert 2 * math.exp(-2 * n_side * repeat["delta_c"] ** 2) == pytest.approx(epsilon)
    total = row["alpha_hat"] + repeat["delta"] + row["delta_b"] + repeat["delta_c"]
    assert row["alpha_hat_bound"] == pytest.approx(total)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_the_bound_holds_the_distance_of_the_distributions(share):
    """A share of the points is far away: by it the distribution functions differ, at most."""
    rng = np.random.default_rng(1)
    for seed in range(30):
        margin = rng.normal(size=(4, 1200))
        margin[0, rng.random(1200) < share] = 50
        row = analysed(margin, seed).runs.row(0, named=True)
        assert row["alpha_hat_bound"] >= share
        if share == 0.3:  # and says something: without α̂ it would be too small
            assert row["alpha_hat_bound"] < 0.7
            assert row["alpha_hat_bound"] - row["alpha_hat"] < share


def test_an_ensemble_is_one_model_and_dependent_sides_have_no_bound():
    margin = np.random.default_rng(2).normal(size=(6, 300))
    found = analysed(margin, alpha_reference="ensemble")
    assert found.runs["delta_b"].drop_nulls().to_list() == [found.repeats["delta_c"][0]] * 3
    for options in ({"alpha_mode": "paper"}, {"alpha_reference": "loo_ensemble"}):
        without = analysed(margin, **options)
        assert without.runs["alpha_hat_bound"].null_count() == 6
        assert without.repeats["delta_c"][0] is None


@pytest.mark.parametrize("level", [0.0, 0.05, 0.3])
def test_the_share_rejected_at_a_level_is_that_of_the_resamples(level):
    margin = np.random.default_rng(3).normal(size=(4, 200)).astype(np.float32)
    margin[0, :70] = 40
    margin[1] += 1
    found = analysed(margin, alpha_level=level).runs["alpha_hat_rejected"]
    drawn = disjoint_halves(generator(7, "alpha_hat", "0f" * 16, 0), 200, B)
    gamma = dkw_threshold(100, 0.01)
    for k in range(4):
        others = np.delete(margin, k, axis=0)
        levels = [
            smallest_trimming_level(
                margin[k][drawn.candidate[b] == 1],
                others[:, drawn.reference[b] == 1].ravel(),
                gamma,
            )
            for b in range(B)
        ]
        assert found[k] == np.mean(np.array(levels) > level + 1e-12)
    assert 0 < found.mean() < 1


def test_in_paper_mode_the_level_need_not_be_on_its_grid():
    margin = np.random.default_rng(4).normal(size=(4, 200)).round(2).astype(np.float32)
    margin[0, :60] = 10
    drawn = bootstraps(generator(7, "alpha_hat_drawn_halves", "0f" * 16, 0), 200, 100, B)
    nobody = np.array([-1], dtype=np.int32)
    reference, delta = Reference.sort(margin[1:]), dkw_threshold(100, 0.01)
    exact = interpolated_stars(margin[:1], reference, drawn, left_out=nobody, delta=delta)[0]
    level = float(np.median(exact)) + 1e-6
    assert level not in (0.05, 0.075, 0.1)
    found = analysed(margin, alpha_mode="paper", alpha_level=level).runs["alpha_hat_rejected"][0]
    assert found == (exact > level).mean() > 0


def test_the_test_of_corollary_1_is_at_delta_and_delta_b():
    """RKS, corollary 1: beside loops over the resamples; where there is no δ_b there is no test."""
    margin = np.random.default_rng(4).normal(size=(4, 200)).astype(np.float32)
    margin[0] += 1.2
    margin[1] += 0.5
    found = analysed(margin)
    drawn = disjoint_halves(generator(7, "alpha_hat", "0f" * 16, 0), 200, B)
    shares = []
    for k in range(4):
        others = np.delete(margin, k, axis=0)
        limit = dkw_threshold(100, 0.01) + math.sqrt(math.log(2 * 3 / 0.01) / 200)
        shares.append(
            np.mean(
                [
                    ks_2samp(
                        margin[k][drawn.candidate[b] == 1],
                        others[:, drawn.reference[b] == 1].ravel(),
                    ).statistic
                    > limit
                    for b in range(B)
                ]
            )
        )
    assert found.runs["ks_rejected_average"].to_list() == pytest.approx(shares)
    assert 0 < shares[0] < 1
    assert found.runs["ks_rejected"][0] == 1
    without = analysed(margin, alpha_reference="loo_ensemble")
    assert without.runs["ks_rejected_average"].null_count() == 4
