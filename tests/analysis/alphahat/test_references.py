"""α̂ against every reference and in the authors' mode, each beside an independent slow version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from manyseed.analysis.alphahat.references import PAPER_LEVELS, Reference, alpha_stars, ascending
from manyseed.analysis.alphahat.resampling import bootstraps, disjoint_halves, generator
from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.options import Options
from tests.analysis.samples import predictions, regular

B = 6
N_TEST = 90


def analysed(margin, **options):
    """The table of runs, from margins (run, point) or (run, epoch, point)."""
    runs = regular(1, 1, margin.shape[0])
    epochs = margin[:, None] if margin.ndim == 2 else margin
    score = np.stack([np.zeros_like(epochs), epochs], axis=-1).astype(np.float32)
    y_true = np.zeros((1, margin.shape[-1]), dtype=np.uint16)
    group = analyze_group(
        predictions(score, y_true, runs),
        Options(metrics=("alpha_hat",), resamples=B, **options),
    )
    return compute([group], scheduler="synchronous")[0].runs


def drawn(purpose, kind, *sizes):
    return kind(generator(7, purpose, "0f" * 16, 0), N_TEST, *sizes, B)


def varied(n_runs, seed=0, digits=1):
    rng = np.random.default_rng(seed)
    margin = rng.normal(0, 4, (n_runs, N_TEST)).round(digits)
    margin[-1] += 9
    margin[-2] = np.where(rng.random(N_TEST) < 0.4, 30, margin[-2])
    return margin.astype(np.float32).astype(np.float64)


def times(values, counts):
    return np.repeat(values, counts)


def accepts(levels, gates_low, gates_high, kappa):
    """Follow all h with slopes in [0, κ] through the gates: the interval of values it can reach."""
    low = high = 0.0
    for step, below, above in zip(np.diff(levels), gates_low, gates_high, strict=True):
        low, high = max(low, below), min(high + kappa * step + 1e-13, above)
        if low > high + 1e-13:
            return False
    return True


def paper_slow(candidate, reference, n_side):
    """One resample as printed (eq. 57): an interpolated reference, level after level."""
    gamma = dkw_threshold(n_side, 0.01) + 1 / n_side
    knots, counts = np.unique(reference, return_counts=True)
    values, own = np.unique(candidate, return_counts=True)
    smooth = np.interp(values, knots, np.cumsum(counts) / counts.sum(), left=0)
    mass = np.concatenate([[0], np.cumsum(own) / own.sum()])
    if smooth[0] > gamma or smooth[-1] < 1 - gamma:
        return 0.50
    low = np.append(smooth[1:] - gamma, 1.0)
    high = np.append(np.minimum(smooth[:-1] + gamma, 1.0), 1.0)
    for level in PAPER_LEVELS:
        if accepts(mass, low, high, 1 / (1 - level)):
            return level
    return 0.50


@pytest.mark.parametrize("reference", ["others", "half"])
def test_the_paper_mode_is_the_printed_procedure(reference):
    margin = varied(6)
    result = analysed(margin, alpha_mode="paper", alpha_reference=reference)
    sides = drawn("alpha_hat_drawn_halves", bootstraps, N_TEST // 2)
    clipped = np.clip(margin, -15, 15)
    seen = set()
    for k in range(6):
        if reference == "half" and k < 3:
            assert result["alpha_hat"][k] is None
            continue
        models = clipped[:3] if reference == "half" else np.delete(clipped, k, axis=0)
        levels = [
            paper_slow(
                times(clipped[k], sides.candidate[b]),
                np.concatenate([times(model, sides.reference[b]) for model in models]),
                N_TEST // 2,
            )
            for b in range(B)
        ]
        seen |= set(levels)
        assert result["alpha_hat"][k] == pytest.approx(np.mean(levels))
        assert result["alpha_hat_infeasible"][k] == np.mean(np.array(levels) == 0.5)
    assert len(seen) > 3
    assert 0.5 in seen


def test_the_first_half_is_the_reference():
    margin = varied(7)
    result = analysed(margin, alpha_reference="half")
    halves = drawn("alpha_hat", disjoint_halves)
    assert result["alpha_hat_references"].to_list() == [None] * 3 + [3] * 4
    for k in range(3, 7):
        levels = [
            smallest_trimming_level(
                margin[k][halves.candidate[b] == 1],
                margin[:3][:, halves.reference[b] == 1].ravel(),
                dkw_threshold(N_TEST // 2, 0.01),
            )
            for b in range(B)
        ]
        assert result["alpha_hat"][k] == pytest.approx(np.mean(levels))


@pytest.mark.parametrize("kind", ["loo_ensemble", "ensemble"])
@pytest.mark.parametrize("epoch", [None, 0])
def test_ensembles_are_averages_of_margins(kind, epoch):
    early, late = varied(5, seed=1), varied(5, seed=2)
    result = analysed(
        np.stack([early, late], axis=1), alpha_reference=kind, reference_snapshot=epoch
    )
    models = late if epoch is None else early
    loo = kind == "loo_ensemble"
    sides = (
        drawn("alpha_hat_bootstraps", bootstraps, N_TEST)
        if loo
        else drawn("alpha_hat", disjoint_halves)
    )
    assert sides.n_side == (N_TEST if loo else N_TEST // 2)
    for k in range(0 if loo else 2, 5):
        average = (np.delete(models, k, axis=0) if loo else models[:2]).mean(axis=0)
        levels = [
            smallest_trimming_level(
                times(late[k], sides.candidate[b]),
                times(average, sides.reference[b]),
                dkw_threshold(sides.n_side, 0.01),
            )
            for b in range(B)
        ]
        assert result["alpha_hat"][k] == pytest.approx(np.mean(levels), abs=1e-9)
    if not loo:
        assert result["alpha_hat"].to_list()[:2] == [None, None]


def test_the_distance_is_the_classical_one():
    margin = varied(5)
    result = analysed(margin)
    halves = drawn("alpha_hat", disjoint_halves)
    delta = dkw_threshold(N_TEST // 2, 0.01)
    for k in range(5):
        distances = np.array(
            [
                ks_2samp(
                    margin[k][halves.candidate[b] == 1],
                    np.delete(margin, k, axis=0)[:, halves.reference[b] == 1].ravel(),
                    method="asymp",
                ).statistic
                for b in range(B)
            ]
        )
        assert result["ks_distance"][k] == pytest.approx(distances.mean())
        assert result["ks_rejected"][k] == (distances > delta).mean()
        assert result["below_resolution"][k] == ((distances > delta).mean() <= 0.5)
    assert set(result["below_resolution"]) == {True, False}


def test_a_large_repeat_is_compared_with_its_first_runs():
    margin = varied(6)
    result = analysed(margin, max_references=4)
    assert result["alpha_hat_references"].to_list() == [3] * 4 + [4] * 2
    without = analysed(margin[:4])
    assert result["alpha_hat"][:4].to_list() == without["alpha_hat"].to_list()


def test_gaps_are_clipped_not_dropped():
    margin = varied(5)
    result = analysed(margin, clip=15.0)
    assert result.equals(analysed(np.clip(margin, -15, 15)))
    assert not result.equals(analysed(margin))


def test_standardised_margins_have_a_shape_only():
    margin = varied(5, digits=6)
    moved = margin * np.array([1, 2, 4, 8, 16])[:, None] + 3
    there = analysed(margin, standardise=True)["alpha_hat"].to_list()
    assert analysed(moved, standardise=True)["alpha_hat"].to_list() == pytest.approx(
        there, abs=0.02
    )
    assert analysed(moved)["alpha_hat"].max() > 0.1
    constant = np.vstack([margin[:3], np.ones((1, N_TEST))])
    assert analysed(constant, standardise=True)["alpha_hat"][3] == 1


def test_points_keep_their_pairing():
    # Sorted gaps would lose it: then all runs of these would look alike in every resample.
    rng = np.random.default_rng(4)
    values = rng.normal(size=N_TEST)
    margin = np.stack([rng.permutation(values) for _ in range(4)])
    alike = np.stack([values] * 4)
    assert analysed(margin)["ks_distance"].n_unique() == 4
    assert analysed(alike)["ks_distance"].n_unique() == 1


def test_sides_are_drawn_with_replacement_from_all_points():
    sides = bootstraps(generator(0, "test"), 50, 25, 200)
    for counts in (sides.candidate, sides.reference):
        assert (counts.sum(axis=1) == 25).all()
        assert np.allclose(counts.mean(axis=0), 0.5, atol=0.2)
        assert counts.max() > 1
    assert ((sides.candidate > 0) & (sides.reference > 0)).any(axis=1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha_mode": "printed"}, "alpha_mode = 'printed': allowed: exact, paper"),
        ({"alpha_reference": "all"}, "alpha_reference = 'all': allowed: others, others-trimmed, "),
        ({"alpha_bootstrap": 39}, "alpha_bootstrap = 39: allowed: 0, or a whole number from 40"),
        ({"reference_snapshot": 0}, "reference_snapshot = 0: needs another"),
        ({"clip": 0.0}, "clip = 0.0: allowed: a number above 0"),
        ({"max_references": 2}, "max_references = 2: "),
        ({"ece_bins": 0}, "ece_bins = 0: "),
    ],
)
def test_options_without_meaning_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Options(**options)


@given(
    values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40).map(
        lambda v: np.array([v], dtype=np.float32)
    )
)
@settings(deadline=None)
def test_floats_are_sorted_through_their_bits(values):
    order = ascending(values)
    assert sorted(order[0].tolist()) == list(range(values.size))
    assert np.array_equal(values[0][order[0]], np.sort(values[0]))
    assert np.array_equal(np.sort(values[0]), values[0][ascending(values.astype(np.float64))[0]])


def test_stretches_of_a_candidate_make_the_whole():
    """More points than are looked at together, with ties, against the definition."""
    rng = np.random.default_rng(40)
    models = rng.normal(size=(4, 700)).round(1).astype(np.float32)
    shifted = (models[:2] + np.float32(0.2)).round(1)
    drawn = disjoint_halves(generator(0, "stretches"), 700, 3)
    levels, distances = alpha_stars(
        shifted, Reference.sort(models), drawn, member=False, gamma=0.05
    )
    for c in range(2):
        for b in range(3):
            own = shifted[c][drawn.candidate[b] == 1]
            others = models[:, drawn.reference[b] == 1].ravel()
            assert levels[c, b] == pytest.approx(smallest_trimming_level(own, others, 0.05))
            assert distances[c, b] == pytest.approx(ks_2samp(own, others).statistic)
