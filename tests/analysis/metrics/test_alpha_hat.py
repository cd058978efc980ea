"""α̂ against a slow one that resamples values and solves each resample, and planted truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from manyseed.analysis.alphahat.references import Reference, alpha_stars
from manyseed.analysis.alphahat.resampling import Resamples, disjoint_halves, generator
from manyseed.analysis.alphahat.trimming import STRETCH, dkw_threshold
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.graph.predictions import unavailable
from manyseed.analysis.options import Options
from tests.analysis.alphahat.test_trimming import level_by_linear_program
from tests.analysis.samples import noisy, predictions, regular


def levels(candidates, models, resamples, *, member, gamma=None):
    return alpha_stars(
        candidates,
        Reference.sort(models),
        resamples,
        member=member,
        gamma=dkw_threshold(resamples.n_side, 0.01) if gamma is None else gamma,
    )[0]


def halves(n_test, resamples, seed=0):
    return disjoint_halves(generator(seed, "test"), n_test, resamples)


@pytest.mark.parametrize("n_test", [12, 15])
@pytest.mark.parametrize("member", [True, False])
def test_equals_resampling_values_one_by_one(n_test, member):
    rng = np.random.default_rng(n_test)
    models = rng.integers(-4, 5, (4, n_test)).astype(np.float32)  # ties within and between runs
    models[0, :5] += 6
    candidates = models if member else rng.integers(-4, 7, (2, n_test)).astype(np.float32)
    drawn = halves(n_test, 8)
    fast = levels(candidates, models, drawn, member=member, gamma=0.3)
    for k, candidate in enumerate(candidates):
        others = np.delete(models, k, axis=0) if member else models
        for b in range(8):
            slow = level_by_linear_program(
                candidate[drawn.candidate[b] == 1],
                others[:, drawn.reference[b] == 1].ravel(),
                0.3,
            )
            assert fast[k, b] == pytest.approx(slow, abs=1e-6)
    assert 0 < (fast > 0).mean() < 1


@pytest.mark.parametrize("n_test", [STRETCH, STRETCH + 1, 2 * STRETCH + 1])
def test_the_last_value_of_a_candidate_counts(n_test):
    models = np.random.default_rng(n_test).normal(size=(3, n_test)).astype(np.float32)
    drawn = halves(n_test, 2)
    reference, equal = Reference.sort(models), np.zeros((1, n_test), dtype=np.float32)
    _, distances = alpha_stars(equal, reference, drawn, member=False, gamma=0.3)
    for b in range(2):
        own = models[:, drawn.reference[b] == 1]
        assert distances[0, b] == pytest.approx(max((own < 0).mean(), (own > 0).mean()))


def test_counts_above_one_are_repeated_points():
    rng = np.random.default_rng(3)
    models = rng.normal(size=(3, 10)).astype(np.float32)
    candidate = rng.normal(0.8, size=(1, 10)).astype(np.float32)
    counts = rng.multinomial(10, np.full(10, 0.1), size=(2, 4)).astype(np.uint8)
    fast = levels(candidate, models, Resamples(*counts, n_side=10), member=False, gamma=0.3)
    for b in range(4):
        slow = level_by_linear_program(
            np.repeat(candidate[0], counts[0, b]),
            np.repeat(models.ravel(), np.tile(counts[1, b], 3)),
            0.3,
        )
        assert fast[0, b] == pytest.approx(slow, abs=1e-6)


@pytest.mark.parametrize(
    ("contamination", "expected"), [(0.05, 0.020), (0.1, 0.073), (0.2, 0.177), (0.4, 0.383)]
)
def test_planted_contamination(contamination, expected):
    rng = np.random.default_rng(5)
    models = rng.normal(size=(10, 8000)).astype(np.float32)
    far = rng.permutation(8000) < contamination * 8000
    candidate = np.where(far, 50, rng.normal(size=8000)).astype(np.float32)[None]
    found = levels(candidate, models, halves(8000, 20), member=False).mean()
    assert found == pytest.approx(expected, abs=0.01)


def test_identical_models_need_next_to_no_trimming():
    rng = np.random.default_rng(6)
    drawn = halves(8000, 20)
    found = []
    for _ in range(20):
        models = np.stack([rng.normal(size=8000).astype(np.float32)] * 3)
        found.append(levels(models[:1], models[1:], drawn, member=False))
        assert found[-1].mean() < 0.002
    assert (np.concatenate(found) > 0).mean() < 0.02


def test_every_other_run_counts_in_the_reference():
    # A reference that collapses to one of its models would make this candidate acceptable.
    n_test = 2000
    clean = np.random.default_rng(7).normal(size=(2, n_test)).astype(np.float32)
    away = clean + 100
    models = np.concatenate([clean, away])
    found = levels(clean[:1], models, halves(n_test, 5), member=False)
    assert (found == 1).all()  # half of the reference lies where the candidate has nothing


def test_values_are_neither_clipped_nor_dropped():
    rng = np.random.default_rng(8)
    models = rng.normal(scale=30, size=(4, 400)).astype(np.float32)
    models[0] += 20
    drawn = halves(400, 5)
    small = levels(models / 64, models / 64, drawn, member=True)
    assert np.array_equal(small, levels(models, models, drawn, member=True))
    assert small[0].mean() > 0.1


def test_halves_are_disjoint_and_cover_all_but_the_odd_point():
    for n_test in (2, 7, 100):
        drawn = halves(n_test, 20)
        assert drawn.n_side == n_test // 2
        assert (drawn.candidate.sum(axis=1) == drawn.n_side).all()
        assert (drawn.reference.sum(axis=1) == drawn.n_side).all()
        assert (drawn.candidate + drawn.reference).max() == 1
    assert np.unique(halves(100, 20).candidate, axis=0).shape[0] == 20


def test_points_fall_on_either_side_equally_often():
    drawn = halves(9, 3000)
    for side in (drawn.candidate, drawn.reference):
        assert np.allclose(side.mean(axis=0), 4 / 9, atol=0.05)


def test_one_point_cannot_be_split():
    with pytest.raises(ValueError, match="1 test points"):
        halves(1, 3)


def analysed(margin, **options):
    runs = regular(1, 1, margin.shape[0])
    score, y_true = noisy(np.random.default_rng(0), runs, margin.shape[1])
    score[:, 0, :, 0], score[:, 0, :, 1] = 0, margin
    group = analyze_group(predictions(score, y_true, runs), Options(resamples=10, **options))
    return compute([group], scheduler="synchronous")[0]


def test_columns_describe_the_resamples():
    rng = np.random.default_rng(9)
    margin = rng.normal(size=(5, 1000))
    margin[2] += 1
    result = analysed(margin)
    row = result.runs.row(2, named=True)
    drawn = disjoint_halves(generator(7, "alpha_hat", "0f" * 16, 0), 1000, 10)
    margin = margin.astype(np.float32)
    own = levels(margin[2:3], np.delete(margin, 2, axis=0), drawn, member=False)[0]
    assert row["alpha_hat"] == own.mean() > 0.1
    assert row["alpha_hat_spread"] == pytest.approx(own.std(ddof=1))
    assert row["alpha_hat_mc_se"] == pytest.approx(own.std(ddof=1) / np.sqrt(10))
    assert row["alpha_hat_infeasible"] == (own == 1).mean()
    assert row["alpha_hat_references"] == 4
    repeat = result.repeats.row(0, named=True)
    assert repeat["n_side"] == 500
    assert repeat["delta"] == dkw_threshold(500, 0.01)


def test_infeasible_resamples_count_as_one_and_are_reported():
    margin = np.random.default_rng(10).normal(size=(4, 400))
    margin[0] = 0  # a collapsed run: the others have mass on both sides of its only value
    row = analysed(margin).runs.row(0, named=True)
    assert row["alpha_hat"] == row["alpha_hat_infeasible"] == 1


@pytest.mark.parametrize(("n_runs", "known"), [(1, False), (2, False), (3, True)])
def test_two_other_runs_are_needed(n_runs, known):
    result = analysed(np.random.default_rng(11).normal(size=(n_runs, 50)))
    assert result.runs["alpha_hat"].is_not_null().all() == known
    assert result.repeats["alpha_hat_n"][0] == (n_runs if known else 0)


def test_a_run_without_numbers_stands_in_no_reference():
    margin = np.random.default_rng(12).normal(size=(5, 300))
    margin[0] += 1
    without = analysed(np.delete(margin, 3, axis=0))
    margin[3, 17] = np.nan
    result = analysed(margin)
    assert result.runs["alpha_hat"].is_null().to_list() == [False, False, False, True, False]
    assert result.runs["alpha_hat_references"].to_list() == [3, 3, 3, None, 3]
    kept = result.runs.filter(result.runs["run_index"] != 3)
    assert kept["alpha_hat"].to_list() == without.runs["alpha_hat"].to_list()


def test_infinite_margins_are_values_like_others():
    margin = np.random.default_rng(13).normal(size=(4, 300))
    margin[margin > 1] = np.inf
    finite = np.where(np.isinf(margin), 50, margin)
    only = {"metrics": ("alpha_hat",)}
    infinite = analysed(margin, **only).runs
    assert infinite["wasserstein"].null_count() == 4
    expected = analysed(finite, **only).runs
    assert infinite.drop("wasserstein").equals(expected.drop("wasserstein"))


def test_the_probe_of_two_classes_can_be_the_true_class_margin():
    runs = regular(1, 1, 5)
    score, y_true = noisy(np.random.default_rng(30), runs, 200)
    gap = score[..., 1] - score[..., 0]
    flipped = gap * np.where(y_true[0] == 1, 1, -1)
    asked = Options(metrics=("alpha_hat",), resamples=5, probe="true_margin")
    given_predictions = predictions(score, y_true, runs, margin=gap)
    found = compute([analyze_group(given_predictions, asked)], scheduler="synchronous")[0].runs
    turned = replace(given_predictions, margin=flipped)
    natural = replace(asked, probe=None)
    expected = compute([analyze_group(turned, natural)], scheduler="synchronous")[0].runs
    assert found["probe"].unique().to_list() == ["true_margin"]
    assert found.drop("probe").equals(expected.drop("probe"))


@pytest.mark.parametrize("reference", ["others", "others-trimmed", "half", "ensemble"])
def test_a_probe_of_ones_own_is_as_good_as_stored_margins(reference):
    runs = regular(1, 1, 7)
    score, y_true = noisy(np.random.default_rng(32), runs, 150)
    score[3, ..., 1] += 4
    asked = Options(
        metrics=("alpha_hat",),
        resamples=5,
        alpha_reference=reference,
        probe="tests.analysis.samples:gap_of_ones",
    )

    def found(score, options, chunks=None):
        given = predictions(score, y_true, runs, chunks)
        return compute([analyze_group(given, options)], scheduler="synchronous")[0].runs

    own = found(score, asked)
    assert own["probe"].unique().to_list() == [asked.probe]
    assert own.equals(found(score, replace(asked, block_bytes=2 * 150 * 5), chunks=2))
    as_margin = score.astype(np.float64)
    as_margin[..., 0] = 0
    as_margin[..., 1] = np.where(y_true[0] == 1, 5 * (score[..., 1] - score[..., 0]), 0)
    stored = found(as_margin, replace(asked, probe="gap"))
    assert own.drop("probe").equals(stored.drop("probe"))
    assert own["alpha_hat"].max() > 0


def test_more_than_two_classes_have_no_gap():
    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(31), runs, 20, 3)
    reasons = unavailable(predictions(score, y_true, runs), Options(probe="gap"))
    assert reasons["alpha_hat"].reason == "needs two classes for the logit gap, and there are 3"


@pytest.mark.parametrize(
    ("n_test", "options", "n_side", "known"),
    [
        (11, {}, 5, False),
        (12, {}, 6, True),
        (13, {}, 6, True),
        (1, {}, 0, False),
        (5, {"alpha_reference": "loo_ensemble"}, 5, False),
        (6, {"alpha_reference": "loo_ensemble"}, 6, True),
        (12, {"epsilon": 0.001}, 6, False),
    ],
)
def test_where_no_distance_can_exceed_the_threshold_there_is_none(n_test, options, n_side, known):
    margin = np.random.default_rng(0).normal(size=(4, n_test)) + 100 * np.arange(4)[:, None]
    chosen = Options(resamples=10, **options)
    runs = regular(1, 1, 4)
    score, y_true = noisy(np.random.default_rng(0), runs, n_test)
    reasons = unavailable(predictions(score, y_true, runs), chosen)
    assert ("alpha_hat" in reasons) is not known
    result = analysed(margin, **options)
    columns = ("alpha_hat", "alpha_hat_spread", "ks_distance", "ks_rejected", "below_resolution")
    for name in columns:
        assert result.runs[name].null_count() == (0 if known else 4)
    if known:
        assert result.repeats["delta"][0] < 1
    else:
        assert f"with {n_side} on each side δ is " in reasons["alpha_hat"].reason
        assert result.repeats["alpha_hat_mean"][0] is None
        assert result.repeats["accuracy_mean"][0] is not None
