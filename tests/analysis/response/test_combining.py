"""Combinations of measures, which must all rise with the gap."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from manyseed.analysis import Refused, response

RNG = np.random.default_rng(0)
G = RNG.uniform(size=30)


@pytest.mark.parametrize("by", ["rank", "npca"])
def test_a_measure_beside_itself_keeps_its_order(by) -> None:
    both = response.combine(np.column_stack([G, 2 * G]), by)
    assert (both.argsort() == G.argsort()).all()


@pytest.mark.parametrize("by", ["avg", "rank", "npca", "pca"])
def test_a_measure_beside_its_reverse_is_itself_once_both_are_oriented(by) -> None:
    columns = [response.oriented("gi", G), response.oriented("mean_accuracy", 1 - G)]
    assert (response.combine(np.column_stack(columns), by).argsort() == G.argsort()).all()


def test_simple_combinations() -> None:
    two = np.array([[0.2, 0.4], [0.5, 0.1], [0.2, 0.9]])
    np.testing.assert_allclose(response.combine(two, "avg"), [0.3, 0.3, 0.55])
    np.testing.assert_allclose(response.combine(two, "prod"), [0.08, 0.05, 0.18])
    np.testing.assert_allclose(response.combine(two, "prod+avg"), [0.38, 0.35, 0.73])
    np.testing.assert_allclose(response.combine(two, "rank"), [1.75, 2, 2.25])


@pytest.mark.parametrize("by", ["pca", "npca"])
def test_the_first_component_is_that_of_scikit_learn(by) -> None:
    three = RNG.normal(size=(40, 3)) * [1, 5, 0.2] + RNG.normal(size=(40, 1))
    values = three / three.std(axis=0) if by == "npca" else three
    model = PCA(1).fit(values)
    expected = model.transform(values)[:, 0] * np.sign(model.components_[0, 0])
    np.testing.assert_allclose(response.combine(three, by), expected, atol=1e-9)


def test_only_scale_counts_where_nothing_is_standardised() -> None:
    small, large = RNG.uniform(size=(2, 40))
    both = np.column_stack([small, 100 * large])
    assert abs(np.corrcoef(response.combine(both, "pca"), large)[0, 1]) > 0.999
    assert abs(np.corrcoef(response.combine(both, "npca"), large)[0, 1]) < 0.95


def test_measures_are_oriented() -> None:
    np.testing.assert_allclose(response.oriented("pal", [84, 42]), [0, 0.5])
    np.testing.assert_allclose(response.oriented("pal_printed", [6, 3]), [0, 0.5])
    np.testing.assert_allclose(response.oriented("end_accuracy", [1, 0.25]), [0, 0.75])
    np.testing.assert_allclose(response.oriented("dbi", [1, 4]), [0.25, 1])
    with pytest.raises(Refused, match="gi_folded"):
        response.oriented("lr", [1.0])


@pytest.mark.parametrize(
    ("measures", "by", "option"),
    [
        ([1.0, 2.0], "avg", "measures"),
        ([[1.0, np.nan]], "avg", "measures"),
        ([[1.0, 2.0]], "sum", "by"),
    ],
)
def test_what_cannot_be_combined_is_refused(measures, by, option) -> None:
    with pytest.raises(Refused) as refused:
        response.combine(measures, by)
    assert refused.value.option == option
