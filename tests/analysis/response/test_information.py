"""Conditional mutual information: dictionaries over all pairs, planted corpora, the null."""

import itertools
from collections import defaultdict
from math import log2

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from manyseed.analysis import Refused, response


def entropy(counts) -> float:
    total = sum(counts)
    return -sum(c / total * log2(c / total) for c in counts if c)


def over_bins(pairs) -> tuple[float, float]:
    """Σ I and Σ H of pairs (bin, gap's sign, measure's sign)."""
    bins = defaultdict(lambda: defaultdict(int))
    for where, one, other in pairs:
        bins[where][one, other] += 1
    information = together = 0.0
    for counts in bins.values():
        gap, measure = defaultdict(int), defaultdict(int)
        for (one, other), count in counts.items():
            gap[one] += count
            measure[other] += count
        h = entropy(gap.values())
        information += h + entropy(measure.values()) - entropy(counts.values())
        together += h
    return information, together


def slow(measure, gap, hparams, sizes=(0, 1, 2)) -> float | None:
    names = [name for name, values in hparams.items() if len(set(values)) > 1]
    found = []
    for size in sizes:
        for given in itertools.combinations(names, size):
            pairs = [
                (
                    tuple((hparams[n][i], hparams[n][j]) for n in given),
                    np.sign(gap[i] - gap[j]),
                    np.sign(measure[i] - measure[j]),
                )
                for i, j in itertools.permutations(range(len(gap)), 2)
                if gap[i] != gap[j]
            ]
            information, together = over_bins(pairs)
            if together > 1e-12:
                found.append(100 * information / together)
    return min(found, default=None)


def competition(measure, gap, hparams) -> float | None:
    """The scoring program's rules: a model is its own partner, ties count as smaller."""
    names = [name for name, values in hparams.items() if len(set(values)) > 1]
    found = []
    for given in itertools.combinations(names, 2):
        pairs = [
            (
                tuple((hparams[n][i], hparams[n][j]) for n in given),
                gap[i] > gap[j],
                measure[i] > measure[j],
            )
            for i, j in itertools.product(range(len(gap)), repeat=2)
        ]
        information, together = over_bins(pairs)
        if together > 1e-12:
            found.append(100 * information / together)
    return min(found, default=None)


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(st.integers(0, 10**6), st.integers(2, 12), st.integers(0, 3), st.integers(2, 6))
def test_it_equals_a_count_over_all_pairs(seed, n_models, n_hparams, n_values) -> None:
    rng = np.random.default_rng(seed)
    measure, gap = rng.integers(0, n_values, (2, n_models)).astype(float)
    hparams = {f"h{i}": rng.integers(0, 3, n_models) for i in range(n_hparams)}
    found = response.cmi(measure, gap, hparams, permutations=0)
    expected = slow(measure, gap, hparams)
    assert found.cmi == (None if expected is None else pytest.approx(expected, abs=1e-9))
    published = competition(measure, gap, hparams)
    assert found.cmi_paper == (None if published is None else pytest.approx(published, abs=1e-9))


@pytest.mark.parametrize(("n_models", "paper"), [(2, 15.1), (4, 36.4), (16, 72.2)])
def test_a_measure_and_its_reverse_tell_the_same(n_models, paper) -> None:
    gap = np.arange(n_models, dtype=float)
    # two hparams that vary beside one bin of all models, as the program asks for two
    gaps = np.concatenate([gap, [100.0, 200.0]])
    hparams = {"a": [*[0] * n_models, 1, 2], "b": [*[0] * n_models, 1, 2]}
    for sign in (1, -1):
        assert response.cmi(sign * gaps, gaps, {}, permutations=0).cmi == pytest.approx(100)
    found = response.cmi(-gaps, gaps, hparams, permutations=0)
    assert found.cmi == pytest.approx(100)
    assert found.cmi_paper == pytest.approx(competition(-gaps, gaps, hparams), abs=1e-9)
    assert found.cmi_paper == pytest.approx(paper, abs=0.05)


def test_a_constant_measure_tells_nothing() -> None:
    found = response.cmi(np.ones(9), np.arange(9.0), {"a": np.arange(9) % 3}, permutations=20)
    assert (found.cmi, found.tied, found.n_pairs, found.pearson) == (0, 1, 72, None)
    assert found.null_q95 == 0


def test_equal_gaps_leave_nothing_to_tell() -> None:
    found = response.cmi(np.arange(9.0), np.ones(9), {"a": np.arange(9) % 3}, permutations=5)
    assert (found.cmi, found.null_mean, found.null_q95, found.given) == (None, None, None, ())


def test_what_a_hparam_tells_is_not_the_measures_merit() -> None:
    rng = np.random.default_rng(3)
    depth = np.repeat([1, 2, 3], 8)
    for noise in (0.1, 0.5):  # with the former depth alone decides the order of gaps between depths
        gap = 0.5 * depth + rng.normal(0, noise, 24)
        found = response.cmi(depth.astype(float), gap, {"depth": depth, "lr": np.tile([1, 2], 12)})
        assert found.cmi == pytest.approx(0, abs=1e-9)
        assert "depth" in found.given
        assert found.spearman is not None
        assert found.spearman > 0.5


def test_one_model_a_combination_leaves_sets_of_one() -> None:
    a, b = np.divmod(np.arange(12), 4)
    rng = np.random.default_rng(0)
    gap = rng.normal(size=12)
    found = response.cmi(gap, gap, {"a": a, "b": b}, permutations=0)
    assert found.cmi == pytest.approx(100)
    assert len(found.given) < 2


def test_noise_lowers_it_and_depth_takes_its_part() -> None:
    rng = np.random.default_rng(5)
    depth = np.repeat(np.arange(3), 40)
    gap = 0.5 * depth + rng.normal(0, 0.3, 120)
    noise = rng.normal(size=120)
    found = [
        response.cmi(gap + s * noise, gap, {"depth": depth}, permutations=0).cmi
        for s in (0, 0.1, 0.3, 1)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(100)
    assert found[-1] < 20


def test_bias_of_few_models_is_in_the_null() -> None:
    rng = np.random.default_rng(7)
    hparams = {"a": np.arange(18) // 2 % 3, "b": np.arange(18) // 6}
    corpora = rng.normal(size=(60, 2, 18))
    within = [slow(*one, hparams, sizes=(2,)) for one in corpora]
    assert np.mean([v for v in within if v is not None]) > 25
    found = [response.cmi(*one, hparams, permutations=30, seed=1) for one in corpora]
    bias = []
    for sets in zip(*(one.sets for one in found), strict=True):  # each set has its own
        bias.append(np.mean([one.null_mean for one in sets]))
        error = np.std([one.value - one.null_mean for one in sets]) / np.sqrt(len(sets))
        assert np.mean([one.value for one in sets]) == pytest.approx(bias[-1], abs=3 * error)
    assert bias[0] < 5
    assert bias[-1] > 25  # without the null this would be taken for a finding
    assert np.mean([one.cmi <= one.null_q95 for one in found]) > 0.9


def test_the_null_keeps_what_the_hparams_say() -> None:
    """Within depth the measure says nothing, and the set {depth} knows."""
    rng = np.random.default_rng(4)
    depth = np.repeat(np.arange(4), 12)
    gap = depth + rng.normal(0, 0.5, 48)
    found = response.cmi(depth + rng.normal(0, 0.5, 48), gap, {"depth": depth})
    by = {one.hparams: one for one in found.sets}
    assert by[()].p < 1e-4
    assert by["depth",].p > 0.05
    assert by["depth",].null_mean == pytest.approx(by["depth",].value, abs=8)
    assert found.p == by["depth",].p
    assert found.cmi <= found.null_q95
    told = response.cmi(gap + rng.normal(0, 0.1, 48), gap, {"depth": depth})
    assert told.p < 0.001
    assert told.cmi > told.null_q95


@pytest.mark.slow
def test_a_random_measure_is_within_its_null() -> None:
    rng = np.random.default_rng(11)
    hparams = {"a": np.arange(72) % 3, "b": np.arange(72) // 3 % 2, "c": np.arange(72) // 6 % 2}
    inside = 0
    for seed in range(200):
        measure, gap = rng.normal(size=(2, 72))
        found = response.cmi(measure, gap, hparams, seed=seed)
        assert found.cmi is not None
        assert found.null_q95 is not None
        inside += found.cmi <= found.null_q95
    assert inside / 200 >= 0.92  # the weakest of all sets says nothing, too


def test_the_same_seed_gives_the_same_null() -> None:
    rng = np.random.default_rng(2)
    measure, gap = rng.normal(size=(2, 20))
    hparams = {"a": np.arange(20) % 4}
    one, other = (response.cmi(measure, gap, hparams, permutations=20, seed=4) for _ in range(2))
    assert one == other
    assert one != response.cmi(measure, gap, hparams, permutations=20, seed=5)


@pytest.mark.parametrize(
    ("measure", "gap", "hparams", "option"),
    [
        ([1.0], [1.0], {}, "measure"),
        ([1.0, np.nan], [1.0, 2.0], {}, "measure"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], {}, "gap"),
        ([1.0, 2.0], [1.0, 2.0], {"a": [1]}, "hparams"),
    ],
)
def test_what_is_no_corpus_is_refused(measure, gap, hparams, option) -> None:
    with pytest.raises(Refused) as refused:
        response.cmi(measure, gap, hparams)
    assert refused.value.option == option
