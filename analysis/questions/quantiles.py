"""Distribution functions and quantiles, without the start-up of SciPy.

The functions are SciPy's, bit for bit. But ``import scipy.special`` takes as long as NumPy and
polars together, and ``scipy.stats`` five times as long, nearly all of it for what is not used here.
So SciPy's compiled modules are loaded by themselves; where that fails, the package is imported.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PACKAGE = "scipy.special"
_COMPILED = ("_ufuncs_cxx", "_ellip_harm_2", "_special_ufuncs", "_gufuncs", "_ufuncs")
"""Compiled modules in the order in which they need each other; the last has the functions."""

_LOADING = Lock()

_Z = 1.959963984540054  # of 95 %, two-sided


def t_below(freedom: Any, value: Any) -> Any:
    """Return the probability that Student's t is below a value."""
    return _functions().stdtr(freedom, value)


def t_quantile(freedom: Any, probability: Any) -> Any:
    """Return a quantile of Student's t."""
    return _functions().stdtrit(freedom, probability)


def poisson_above(found: int, expected: float) -> float:
    """Return the probability of so many or more, if so many are expected on average."""
    if expected <= 0:
        return 0.0 if found else 1.0
    below = sum(
        math.exp(k * math.log(expected) - expected - math.lgamma(k + 1)) for k in range(found)
    )
    return max(1 - below, 0.0)


def runs_needed(
    first: NDArray[np.int64], second: NDArray[np.int64], runs: NDArray[Any]
) -> NDArray[np.float64]:
    """Return how many runs tell the majority from the class that is second, at 95 %.

    `first` and `second`: of `runs` runs, how many predict these two. NaN where it is a tie, and for
    a single run. The majority is known if there are as many runs.
    """
    apart = (first - second) / (first + second)  # 2 r - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        root = (_Z + np.sqrt(_Z**2 + 4 * apart)) / (2 * apart)
        needed = np.ceil(np.ceil(root**2) * runs / (first + second))
    return np.where((apart > 0) & (runs > 1), needed, np.nan)


def chi2_quantile(freedom: Any, probability: Any) -> Any:
    """Return a quantile of χ²."""
    return 2 * _functions().gammaincinv(np.divide(freedom, 2), probability)


def f_quantile(freedom_1: Any, freedom_2: Any, probability: Any) -> Any:
    """Return a quantile of F."""
    return _functions().fdtri(freedom_1, freedom_2, probability)


def beta_quantile(a: Any, b: Any, probability: Any) -> Any:
    """Return a quantile of the beta distribution."""
    return _functions().betaincinv(a, b, probability)


def normal_above(value: float) -> float:
    """Return the probability that a standard normal variable is above a value."""
    return float(_functions().ndtr(-value))


def normal_quantile(probability: float) -> float:
    """Return a quantile of the standard normal distribution."""
    return float(_functions().ndtri(probability))


@cache
def range_quantile(probability: float, n: int) -> float:
    """Return a quantile of the range of n standard normal variables, to 1e-12.

    The range is below q with probability n ∫ φ(z) (Φ(z) - Φ(z - q))^(n-1) dz. The trapezoidal rule
    is exact to rounding for such integrands, and bisection finds q.
    """
    z, step = np.linspace(-9.0, 9.0, 2**10 + 1, retstep=True)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * step
    ndtr = _functions().ndtr
    below = ndtr(z)

    def too_low(q: float) -> bool:
        shares = (below - ndtr(z - q)) ** (n - 1)
        return float(n * (density * shares).sum()) < probability

    low, high = 0.0, 1.0
    while too_low(high):
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return high


def average_ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the ranks of values without NaN, (value,), from 1; ties get the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: NDArray[np.float64] = ((2 * ends - counts + 1) / 2)[which]
    return ranks


@cache
def _functions() -> Any:
    try:
        with _LOADING:
            return _alone()
    except (ImportError, AttributeError, OSError):  # another version of SciPy
        import scipy.special

        return scipy.special


def _alone() -> Any:
    """Load the compiled modules under their own names, so that SciPy itself finds them later."""
    scipy = importlib.util.find_spec("scipy")
    if scipy is None or scipy.origin is None:
        raise ImportError("scipy is not installed")
    folder = Path(scipy.origin).parent / "special"
    module: Any = None
    for name in _COMPILED:
        full = f"{_PACKAGE}.{name}"
        if full not in sys.modules:
            files = [folder / f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES]
            file = next((one for one in files if one.exists()), None)
            spec = importlib.util.spec_from_file_location(full, file) if file else None
            if spec is None or spec.loader is None:
                raise ImportError(f"no {full}")
            loaded = importlib.util.module_from_spec(spec)
            sys.modules[full] = loaded
            try:
                spec.loader.exec_module(loaded)
            except BaseException:
                sys.modules.pop(full, None)
                raise
        module = sys.modules[full]
    return module
