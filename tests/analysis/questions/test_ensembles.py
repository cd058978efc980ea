"""Table I: ensembles drawn from a pool, beside loops over draws and resamples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from manyseed.analysis.alphahat.references import PAPER_LEVELS
from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level
from manyseed.analysis.metrics.metric import HeldOut
from manyseed.analysis.options import Options
from manyseed.analysis.questions.ensembles import RunPool, draw_members, ensemble_draws, table_one
from tests.analysis.metrics.test_calibration import ece_slow
from tests.analysis.samples import noisy, predictions, regular

GRID = [*PAPER_LEVELS, 0.5]
FEW = Options(resamples=4)
N_TEST = 80


def kept(n_classes=2, n_runs=12, keep="margin", seed=0):
    runs = regular(2, 2, n_runs)
    score, y_true = noisy(np.random.default_rng(seed), runs, N_TEST, n_classes, noise=2)
    return score, y_true, runs, predictions(score, y_true, runs, keep=keep)


def test_a_pool_is_the_second_half_of_a_repeat():
    score, y_true, _, given = kept()
    pool = RunPool.of(given, 1, 1, FEW)
    gap = score[36:48, 0, :, 1] - score[36:48, 0, :, 0]  # rows go by repeat, then by cell
    assert np.array_equal(pool.reference, gap[:6])
    assert np.array_equal(pool.members, gap[6:])
    assert np.array_equal(pool.held_out.y_true, y_true[1])


def test_every_draw_is_that_of_the_definition():
    _, _, _, given = kept()
    pool = RunPool.of(given, 0, 1, FEW)
    held_out = pool.held_out
    found = ensemble_draws(pool, FEW, sizes=(1, 3), draws=5, workers=2)
    assert found.select("size", "draw").rows() == [(m, r) for m in (1, 3) for r in range(5)]
    whole = pool.members.astype(float).mean(axis=0) >= 0
    delta = dkw_threshold(N_TEST // 2, 0.01)
    for size in (1, 3):
        for draw, members in enumerate(draw_members(held_out, 6, size, 5)):
            average = pool.members[members].astype(float).mean(axis=0).astype(np.float32)
            levels = [
                smallest_trimming_level(
                    average[held_out.halves.candidate[b] == 1],
                    pool.reference[:, held_out.halves.reference[b] == 1].ravel(),
                    delta,
                )
                for b in range(4)
            ]
            row = found.filter(size=size, draw=draw).row(0, named=True)
            assert row["alpha_hat"] == pytest.approx(np.mean(levels))
            assert row["alpha_hat_infeasible"] == np.mean(np.array(levels) == 1)
            assert row["accuracy"] == ((average >= 0) == held_out.y_true).mean()
            assert row["churn"] == ((average >= 0) != whole).mean()
            p = expit(np.abs(average.astype(float)))
            assert row["ece"] == pytest.approx(
                ece_slow(p, (average >= 0) == held_out.y_true, 15), abs=1e-6
            )
            assert row["ks_rejected"] == (row["ks_distance"] > delta)


def test_several_classes_average_scores():
    score, y_true, _, given = kept(n_classes=3, keep="all")
    pool = RunPool.of(given, 0, 0, FEW)
    found = ensemble_draws(pool, FEW, sizes=(6,), draws=1)
    average = score[6:12, 0].astype(float).mean(axis=0).argmax(axis=1)
    assert found["accuracy"][0] == (average == y_true[0]).mean()
    assert found["churn"][0] == 0  # all six are the pool


def test_members_are_drawn_without_replacement_and_evenly():
    held_out = HeldOut(np.zeros(4, dtype=int), 2, "softmax", 1, "ab", 0, 2)
    drawn = draw_members(held_out, 10, 4, 500)
    assert all(np.unique(members).size == 4 for members in drawn)
    counts = np.bincount(np.concatenate(drawn), minlength=10)
    assert np.allclose(counts / 500, 0.4, atol=0.08)
    with pytest.raises(ValueError, match="ensemble of 11 can't be drawn from a pool of 10"):
        draw_members(held_out, 10, 11, 1)


def test_threads_change_nothing():
    pool = RunPool.of(kept()[3], 0, 0, FEW)
    one, two = (
        ensemble_draws(pool, FEW, sizes=(2, 3, 4), draws=4, workers=workers) for workers in (1, 2)
    )
    assert one.equals(two)


def test_table_one_by_hand():
    pool = RunPool.of(kept()[3], 0, 0, FEW)
    drawn = ensemble_draws(pool, FEW, draws=6)
    assert drawn["size"].unique().to_list() == [3, 5]
    table = table_one(drawn, close=0.1)
    for row in table.iter_rows(named=True):
        own = drawn.filter(size=row["size"])
        assert row["draws"] == 6
        assert row["distinct"] == len({tuple(members) for members in own["members"]})
        assert row["close"] == (own["alpha_hat"] <= 0.1).mean()
        assert row["accepted"] == 1 - own["ks_rejected"].mean()
        assert row["accuracy"] == pytest.approx(own["accuracy"].mean())
        assert row["accuracy_std"] == pytest.approx(own["accuracy"].std())


def test_the_same_ensemble_drawn_again_counts_once():
    pool = RunPool.of(kept(n_runs=8)[3], 0, 0, FEW)  # four models: four ensembles of three
    drawn = ensemble_draws(pool, FEW, sizes=(3, 4), draws=60)
    assert table_one(drawn).select("size", "draws", "distinct").rows() == [(3, 60, 4), (4, 60, 1)]
    for members in drawn["members"]:
        assert members.to_list() == sorted(set(members))


def test_larger_ensembles_of_like_models_are_closer_to_each_other():
    rng = np.random.default_rng(3)
    base = rng.normal(size=2000) * 3
    pool = RunPool(
        HeldOut((base > 0).astype(int), 2, "none", 1, "ab", 0, 4),
        base + rng.normal(size=(60, 2000)),
        base + rng.normal(size=(60, 2000)),
    )
    table = table_one(ensemble_draws(pool, FEW, sizes=(1, 5, 30), draws=20))
    assert table["churn"].is_sorted(descending=True)
    assert table["accuracy_std"].is_sorted(descending=True)
    assert table["ece"].null_count() == 3


def test_the_paper_mode_gives_levels_of_its_grid():
    pool = RunPool.of(kept()[3], 0, 0, FEW)
    drawn = ensemble_draws(pool, Options(resamples=2, alpha_mode="paper"), sizes=(2,), draws=3)
    means = {(a + b) / 2 for a in GRID for b in GRID}
    for value in drawn["alpha_hat"]:
        assert min(abs(value - mean) for mean in means) < 1e-12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keep": "none"}, "was not kept; allowed: margin, all"),
        ({"n_classes": 3, "keep": "margin"}, "was not kept; allowed: all"),
        ({"n_runs": 3}, "has 3 runs"),
    ],
)
def test_what_gives_no_pool_is_refused(change, message):
    given = kept(**change)[3]
    with pytest.raises(ValueError, match=message):
        RunPool.of(given, 0, 0, FEW)


def test_an_unknown_repeat_is_refused():
    with pytest.raises(ValueError, match="cell 9, repeat 0 has no finished runs"):
        RunPool.of(kept()[3], 9, 0, FEW)
