"""How well a measure, or several combined, predicts which of two models generalises worse."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyseed.analysis import Refused

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class GivenHparams:
    """What a measure says about the order of gaps, given one set of hparams.

    Attributes
    ----------
    hparams : tuple of str
    value : float
        In percent.
    null_mean, null_q95 : float
        Mean and 95 % quantile when the measure is permuted among models that are equal in these
        hparams, so that it keeps all that they say.
    """

    hparams: tuple[str, ...]
    value: float
    null_mean: float
    null_q95: float

    @property
    def p(self) -> float:
        """Probability of such a value by chance: of the gamma distribution with the null's ends."""
        if self.null_mean <= 0:
            return float(self.value <= self.null_q95)
        from scipy import stats  # every analysis imports this module, few come here

        shape = _SHAPES[np.abs(_ratios() - self.null_q95 / self.null_mean).argmin()]
        return float(stats.gamma.sf(self.value * shape / self.null_mean, shape))


_SHAPES = np.geomspace(0.3, 1e4, 400)


@cache
def _ratios() -> Floats:
    """Return the 95 % quantile over the mean of gamma distributions with these shapes."""
    from scipy import stats

    return np.asarray(stats.gamma.ppf(0.95, _SHAPES) / _SHAPES)


def weakest(sets: Sequence[GivenHparams]) -> GivenHparams | None:
    """Return the set given which the measure most likely says nothing; None without any.

    The measure says something beyond the hparams only if it does given each set: its p is the
    largest of all, and needs no correction for their number.
    """
    return max(sets, key=lambda one: (one.p, one.null_q95 - one.value), default=None)


@dataclass(frozen=True, slots=True)
class Cmi:
    """Conditional mutual information of a measure and the generalisation gap.

    Attributes
    ----------
    cmi : float or None
        In percent, 0 to 100; None if no set of hparams leaves the order of gaps open.
    cmi_paper : float or None
        By the rules of the competition's scoring program, for comparison with published numbers
        only; None if fewer than two hparams vary.
    given : tuple of str
        The set of hparams that attains the minimum; the measure gets no credit for what they
        explain.
    n_models, n_pairs, n_bins : int
        Models; ordered pairs and bins of that set that were counted.
    tied : float
        Share of the pairs with equal gaps, which are left out, or with equal measures, about which
        the measure says nothing.
    null_mean, null_q95 : float or None
        What `cmi` would be, on average and with probability 5 % at least, if the measure said
        nothing given the weakest set of hparams: its bias, which differs between sets, is that of
        its own null. A measure whose `cmi` is not above `null_q95` says nothing.
    pearson, spearman : float or None
        Correlations of measure and gap; None if either is constant.
    sets : tuple of GivenHparams
        Every set of hparams with its null; empty without permutations.
    """

    cmi: float | None
    cmi_paper: float | None
    given: tuple[str, ...]
    n_models: int
    n_pairs: int
    n_bins: int
    tied: float
    null_mean: float | None
    null_q95: float | None
    pearson: float | None
    spearman: float | None
    sets: tuple[GivenHparams, ...] = ()

    @property
    def p(self) -> float | None:
        """Probability by chance of so much information given each set of hparams."""
        least = weakest(self.sets)
        return None if least is None else least.p


def cmi(
    measure: ArrayLike,
    gap: ArrayLike,
    hparams: Mapping[str, ArrayLike],
    *,
    permutations: int = 200,
    seed: int = 0,
) -> Cmi:
    """Return how much the order of two models' measures says about the order of their gaps.

    100 · min over S of Σ I / Σ H. Sums are over bins of ordered pairs of models, one for each
    combination of the two models' values of the hparams S. I is the mutual information of the signs
    of both differences, H the entropy of the gaps' sign. S runs through all sets of at most two
    hparams that vary. Pairs of equal gaps are left out; equal measures are a third sign, so that a
    measure is never credited for the pairs that it alone separates.

    Parameters
    ----------
    measure, gap : float array (model,)
        The measure may rise or fall with the gap.
    hparams : mapping of arrays (model,)
        By name; values are compared for equality.
    permutations : int
        Permutations for the null of each set, within the levels of its hparams; 0 for none.
    seed : int
        Seed of the permutations.

    Returns
    -------
    Cmi

    Raises
    ------
    Refused
        If shapes differ, a number is not finite, or there are fewer than two models.

    References
    ----------
    PRC, appendix A.2; Jiang et al.: NeurIPS 2020 Competition: Predicting Generalization in Deep
    Learning, arXiv:2012.07976. Both leave details open that the competition's program decides
    (`cmi_paper`): it also pairs each model with itself, counts ties as smaller, and takes sets S of
    exactly two hparams.
    """
    from scipy import stats

    mu, g = _models("measure", measure), _models("gap", gap)
    if len(mu) != len(g):
        raise Refused("gap", len(g), f"the measure has {len(mu)} models")
    codes = {name: _codes(name, values, len(mu)) for name, values in hparams.items()}
    codes = {name: values for name, values in codes.items() if values.any()}
    pairs = _PairCounts(g, codes)
    best, given = pairs.information(mu)
    rng = np.random.default_rng(seed)
    sets = tuple(pairs.given(mu, rng, permutations)) if permutations else ()
    least = weakest(sets)
    shift = 0.0 if least is None or best is None else best - least.value
    varies = bool(np.ptp(mu) > 0 and np.ptp(g) > 0)
    n_pairs, n_bins = pairs.counted(given)
    return Cmi(
        cmi=best,
        cmi_paper=_as_published(mu, g, codes),
        given=given,
        n_models=len(mu),
        n_pairs=n_pairs,
        n_bins=n_bins,
        tied=pairs.tied(mu),
        null_mean=None if least is None else least.null_mean + shift,
        null_q95=None if least is None else least.null_q95 + shift,
        pearson=float(stats.pearsonr(mu, g).statistic) if varies else None,
        spearman=float(stats.spearmanr(mu, g).statistic) if varies else None,
        sets=sets,
    )


class _PairCounts:
    """All pairs of models and their bins, for each set of hparams.

    The pair (j, i) has the signs of (i, j) reversed, so half of the pairs suffice; those whose
    first model has the later values are reversed. A bin counts twice, because the bin of reversed
    pairs has the same entropies; if both models have the same values, one bin has both orders.
    """

    def __init__(self, gap: Floats, codes: Mapping[str, Integers]) -> None:
        first, second = np.triu_indices(len(gap), 1)
        untied = gap[first] != gap[second]
        self.n_pairs = len(untied)
        self.first, self.second = first[untied], second[untied]
        self.larger = gap[self.first] > gap[self.second]
        self.levels = dict(_sets(codes, len(gap)))
        self.sets = {names: self._binned(values) for names, values in self.levels.items()}

    def _binned(self, values: Integers) -> _Bins:
        one, other = values[self.first], values[self.second]
        low, high, reverse = np.minimum(one, other), np.maximum(one, other), one > other
        n_values = values.max() + 1
        keys, bins = np.unique(low * n_values + high, return_inverse=True)
        equal = keys // n_values == keys % n_values
        gaps = np.bincount(2 * bins + (self.larger ^ reverse), minlength=2 * len(keys))
        gaps = gaps.reshape(-1, 2)
        gaps[equal] += gaps[equal][:, ::-1]
        number = gaps.sum(axis=1)[:, None]
        return _Bins(
            place=6 * bins + 3 * (self.larger ^ reverse) + 1,
            turn=np.where(reverse, -1, 1),
            equal=equal,
            number=number,
            entropy=_entropy(gaps / number),
            weights=np.where(equal, 1, 2),
        )

    def information(self, measure: Floats) -> tuple[float | None, tuple[str, ...]]:
        """Return the cmi in percent, and the set that attains it."""
        found = [(self._given(names, measure), names) for names in self._open()]
        return min(found, key=lambda one: one[0], default=(None, ()))

    def given(
        self, measure: Floats, rng: np.random.Generator, permutations: int
    ) -> Iterator[GivenHparams]:
        """Yield what the measure says given each set of hparams, and by chance."""
        for names in self._open():
            levels = self.levels[names]
            places = np.argsort(levels, kind="stable")  # models level by level
            null, permuted = np.empty(permutations), np.empty_like(measure)
            for k in range(permutations):
                permuted[places] = measure[np.lexsort((rng.random(levels.size), levels))]
                null[k] = self._given(names, permuted)
            q95 = float(np.quantile(null, 0.95))
            yield GivenHparams(names, self._given(names, measure), float(null.mean()), q95)

    def _open(self) -> Iterator[tuple[str, ...]]:
        """Yield the sets of hparams that leave the order of gaps open."""
        for names, bins in self.sets.items():
            if (bins.weights * bins.entropy).sum() > 0:
                yield names

    def _given(self, names: tuple[str, ...], measure: Floats) -> float:
        """Return what the measure says given a set, in percent."""
        bins = self.sets[names]
        sign = np.sign(measure[self.first] - measure[self.second]).astype(np.int64)
        information = float((bins.weights * bins.information(sign)).sum())
        return 100 * information / float((bins.weights * bins.entropy).sum())

    def tied(self, measure: Floats) -> float:
        """Return the share of pairs with equal gaps or measures."""
        open_ = int((measure[self.first] != measure[self.second]).sum())
        return 1 - open_ / self.n_pairs

    def counted(self, names: tuple[str, ...]) -> tuple[int, int]:
        """Return the numbers of ordered pairs with unequal gaps and of their bins for a set."""
        return 2 * len(self.first), int(self.sets[names].weights.sum())


@dataclass(frozen=True, slots=True)
class _Bins:
    """The pairs of models in bins, and all that does not depend on the measure.

    `place`, int array (pair,): of a pair with equal measures in the counts (bin, gap's sign,
    measure's sign). `turn`, int array (pair,): -1 where the pair is reversed, else 1. `equal`, bool
    array (bin,): whether both models have the same values. `number`, int array (bin, 1): pairs.
    `entropy`, float array (bin,): of the gap's sign, in bits. `weights`, int array (bin,): how
    often a bin counts.
    """

    place: Integers
    turn: Integers
    equal: Bools
    number: Integers
    entropy: Floats
    weights: Integers

    def information(self, sign: Integers) -> Floats:
        """Return each bin's mutual information of the gap's and the measure's sign (pair,)."""
        place = self.place + self.turn * sign
        counts = np.bincount(place, minlength=6 * len(self.equal)).reshape(-1, 2, 3)
        counts[self.equal] += counts[self.equal][:, ::-1, ::-1]
        of_measure = _entropy(counts.sum(axis=1) / self.number)
        together = _entropy(counts.reshape(-1, 6) / self.number)
        return np.maximum(self.entropy + of_measure - together, 0.0)


def _as_published(measure: Floats, gap: Floats, codes: Mapping[str, Integers]) -> float | None:
    larger_gap = (gap[:, None] > gap).ravel()
    larger = (measure[:, None] > measure).ravel().astype(np.int64)
    kept = np.ones(len(larger), dtype=np.bool_)
    shares = []
    for names, values in _sets(codes, len(gap)):
        if len(names) == 2:
            bins = np.unique(values[:, None] * (values.max() + 1) + values, return_inverse=True)[1]
            bins = bins.ravel()
            counts = _counts(bins, larger_gap, larger, kept, (int(bins.max()) + 1, 2, 2))
            information, entropy = _entropies(counts)
            if entropy.sum() > 0:
                shares.append(100 * float(information.sum() / entropy.sum()))
    return min(shares, default=None)


def _sets(
    codes: Mapping[str, Integers], n_models: int
) -> Iterator[tuple[tuple[str, ...], Integers]]:
    """Yield sets of at most two hparams, and a number for each combination of their values."""
    yield (), np.zeros(n_models, dtype=np.int64)
    for name in codes:
        yield (name,), codes[name]
    for one, other in itertools.combinations(codes, 2):
        together = codes[one] * (codes[other].max() + 1) + codes[other]
        yield (one, other), np.unique(together, return_inverse=True)[1].astype(np.int64)


def _counts(
    bins: Integers, gap: Bools, measure: Integers, kept: Bools, shape: tuple[int, int, int]
) -> Floats:
    """Count the pairs of each bin by their signs: (bin, gap's sign, measure's sign)."""
    place = np.ravel_multi_index((bins, gap.astype(np.int64), measure), shape)
    counts = np.bincount(place[kept], minlength=math.prod(shape))
    return counts.reshape(shape).astype(np.float64)


def _entropies(counts: Floats) -> tuple[Floats, Floats]:
    """Return each bin's mutual information of both signs and entropy of the gap's, in bits."""
    total = np.maximum(counts.sum(axis=(1, 2)), 1)[:, None]
    of_gap = _entropy(counts.sum(axis=2) / total)
    of_measure = _entropy(counts.sum(axis=1) / total)
    together = _entropy(counts.reshape(len(counts), -1) / total)
    return np.maximum(of_gap + of_measure - together, 0.0), of_gap


def _entropy(shares: Floats) -> Floats:
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(np.abs((shares * logs).sum(axis=-1)))


def _models(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < 2:
        raise Refused(name, array.shape, "must have one number per model, for two models or more")
    if not np.isfinite(array).all():
        raise Refused(name, float(array[~np.isfinite(array)][0]), allowed="finite numbers")
    return array


def _codes(name: str, values: ArrayLike, n_models: int) -> Integers:
    array = np.asarray(values)
    if array.shape != (n_models,):
        reason = f"must have one value per model: {n_models}, not {array.shape}"
        raise Refused("hparams", name, reason)
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


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
