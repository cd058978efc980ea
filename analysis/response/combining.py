"""Several measures of the same models combined into one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyseed.analysis.refused import Refused

Floats = NDArray[np.float64]


def oriented(name: str, values: ArrayLike) -> Floats:
    """Return a measure, rescaled so that it rises with the generalisation gap.

    Parameters
    ----------
    name : str
        ``gi``, ``gi_folded``, ``pal``, ``pal_printed``, ``dbi`` or the name of an accuracy.
    values : float array (model,)

    Raises
    ------
    Refused
        For other names.
    """
    measure = np.asarray(values, dtype=np.float64)
    if name in ("gi", "gi_folded"):
        return measure
    if name in _IDEAL:
        return 1 - measure / _IDEAL[name]
    if name.endswith("accuracy"):
        return 1 - measure
    if name == "dbi":
        largest = np.nanmax(measure, initial=0.0)
        return measure / largest if largest > 0 else measure
    raise Refused("measure", name, allowed=(*_ORIENTED, "an accuracy"))


_IDEAL = {"pal": 84.0, "pal_printed": 6.0}
_ORIENTED = ("gi", "gi_folded", *_IDEAL, "dbi")


def combine(measures: ArrayLike, by: str) -> Floats:
    """Combine several measures into one.

    Parameters
    ----------
    measures : float array (model, measure)
        All must rise with the gap (`oriented`), or they cancel out. PRC reverses Pal only when it
        is combined with Gi, and its tables show where that was missed.
    by : str
        ``avg`` and ``prod``, mean and product · ``prod+avg``, their sum · ``rank``, mean rank from
        1, ties averaged · ``pca``, projection on the first principal component of the values,
        ``npca`` of the standardised values, with a positive loading on the first measure.

    Returns
    -------
    float64 array (model,)

    Raises
    ------
    Refused
        For an unknown name or a number that is not finite.

    References
    ----------
    PRC, appendix A.8.
    """
    values = np.asarray(measures, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise Refused("measures", values.shape, allowed="an array (model, measure)")
    if not np.isfinite(values).all():
        raise Refused("measures", float(values[~np.isfinite(values)][0]), allowed="finite numbers")
    if by not in _WAYS:
        raise Refused("by", by, allowed=_WAYS)
    return _WAYS[by](values)


def _average(measures: Floats) -> Floats:
    return np.asarray(measures.mean(axis=1))


def _product(measures: Floats) -> Floats:
    return np.asarray(measures.prod(axis=1))


def _rank(measures: Floats) -> Floats:
    from scipy.stats import rankdata

    return _average(rankdata(measures, axis=0))


def _first_component(measures: Floats) -> Floats:
    centred = measures - measures.mean(axis=0)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    leading = direction[np.flatnonzero(direction)[0]] if direction.any() else 1.0
    return np.asarray(centred @ direction * np.sign(leading))


def _standardised_component(measures: Floats) -> Floats:
    spread = measures.std(axis=0)
    return _first_component(measures / np.where(spread > 0, spread, 1.0))


_WAYS: dict[str, Callable[[Floats], Floats]] = {
    "avg": _average,
    "prod": _product,
    "prod+avg": lambda measures: _product(measures) + _average(measures),
    "rank": _rank,
    "pca": _first_component,
    "npca": _standardised_component,
}

COMBINATIONS = tuple(_WAYS)
