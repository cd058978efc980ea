"""Quantiles are SciPy's, bit for bit, and none of them waits for the rest of SciPy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import special, stats

from manyseed.analysis.questions import quantiles

ALONE = """
import sys
from manyseed.analysis.questions.quantiles import range_quantile, t_quantile
alone = t_quantile(4.0, 0.975), range_quantile(0.95, 3)
assert not {"scipy.special", "scipy.stats"} & {*sys.modules}
from scipy import stats, special
assert alone[0] == stats.t.ppf(0.975, 4.0)
assert special.expit(0.0) == 0.5
"""


def test_quantiles_are_those_of_scipy() -> None:
    rng = np.random.default_rng(5)
    p = np.concatenate([rng.random(500), [0.025, 0.95, 0.975, 1e-12, 1 - 1e-12]])
    a, b = rng.uniform(0.2, 90, (2, p.size))
    for own, theirs in (
        (quantiles.t_quantile(a, p), stats.t.ppf(p, a)),
        (quantiles.chi2_quantile(a, p), stats.chi2.ppf(p, a)),
        (quantiles.f_quantile(a, b, p), stats.f.ppf(p, a, b)),
        (quantiles.beta_quantile(a, b, p), stats.beta.ppf(p, a, b)),
        (quantiles.t_below(a, a - b), stats.t.cdf(a - b, a)),
        ([quantiles.normal_quantile(one) for one in p], stats.norm.ppf(p)),
        ([quantiles.normal_above(one) for one in p], stats.norm.sf(p)),
    ):
        np.testing.assert_array_equal(own, theirs)


@pytest.mark.parametrize("n", [2, 3, 5, 20])
def test_quantiles_of_the_range_are_those_of_the_studentized_range(n: int) -> None:
    theirs = stats.studentized_range.ppf(0.95, n, np.inf)
    assert quantiles.range_quantile(0.95, n) == pytest.approx(theirs, abs=1e-12)


def test_tied_ranks_are_averaged() -> None:
    rng = np.random.default_rng(1)
    for values in (rng.integers(0, 5, 30), rng.random(7), np.array([]), np.array([-0.0, 0.0])):
        expected = stats.rankdata(values)
        np.testing.assert_array_equal(quantiles.average_ranks(values), expected)


def test_quantiles_do_not_wait_for_the_rest_of_scipy_which_can_be_imported_later() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_scipy_with_other_compiled_modules_is_imported_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quantiles, "_COMPILED", ("_of_another_version",))
    quantiles._functions.cache_clear()
    try:
        assert quantiles._functions() is special
        assert quantiles.t_quantile(4.0, 0.975) == stats.t.ppf(0.975, 4.0)
    finally:
        quantiles._functions.cache_clear()
