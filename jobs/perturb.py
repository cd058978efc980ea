"""Perturbations of training data by schemes ``name:number``.

The source is MV, Continuous and Categorical Data. There is one axis for continuous and one for
categorical features, and beyond it one for labels of training rows; a new scheme is one more
dataclass in its axis's table. Generators are passed as arguments.

Schemes of continuous features act on raw values, before scaling, and are symmetric about each
value; the published formulas of `relative` and `percentile` would shift the mean by the value
itself. A categorical value is re-drawn uniformly from its feature's labels, so it may stay the
same. Missing values (NaN) stay missing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused, number, parsed
from manyseed.jobs.run import MachineError, raw


@dataclass(frozen=True, slots=True)
class Scheme(ABC):
    """A perturbation with its strength; subclasses define what the number means."""

    amount: float

    name: ClassVar[str]
    written: ClassVar[str] = ""
    """The name in sweep files, where identities have an earlier one."""
    example: ClassVar[str] = "0.1"

    @classmethod
    def parse(cls, amount: str) -> Self:
        """Read the number after the colon."""
        try:
            value = parsed(float, amount)
        except ValueError:
            raise Refused(cls.name, amount, allowed="a number") from None
        return cls(cls.check(value))

    @classmethod
    @abstractmethod
    def check(cls, amount: float) -> float:
        """Return the amount if it is in the scheme's range, else raise Refused."""

    @property
    def text(self) -> str:
        """The normal form, part of identities and of stream keys."""
        return f"{self.name}:{self.amount!r}"


@dataclass(frozen=True, slots=True)
class Share(Scheme):
    """A scheme whose number is a fraction below 1, so that 10, meant as 10 %, is refused."""

    @classmethod
    def check(cls, amount: float) -> float:
        """Accept (0, 1): 0.1 is 10 %, or the 10th percentile."""
        return number(cls.name, amount, above=0, below=1, what="a fraction (0.1 is 10 %)")


S = TypeVar("S", bound=Scheme)


def _written(table: Mapping[str, type[Scheme]]) -> list[str]:
    return [kind.written or name for name, kind in table.items()]


def parse(axis: str, scheme: str, table: Mapping[str, type[S]]) -> S | None:
    """Read a scheme; ``none`` becomes None.

    Parameters
    ----------
    axis : str
        Refusals name the option ``perturb_AXIS``.
    table : mapping
        The axis's schemes by name.
    """
    if scheme == "none":
        return None
    option = f"perturb_{axis}"
    name, colon, amount = str(scheme).partition(":")
    kinds = {**table, **{kind.written: kind for kind in table.values() if kind.written}}
    if name not in kinds:
        plain = () if colon else ("none",)  # which has no number
        raise Refused(option, name, "unknown scheme", (*plain, *_written(table)))
    if not colon:
        raise Refused(option, scheme, f"lacks its number, as in {name}:{kinds[name].example}")
    try:
        return kinds[name].parse(amount)
    except Refused as error:
        raise Refused(option, error.value, error.reason, error.allowed) from None


Values = NDArray[np.float64]
Codes = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CategoricalNoise(Share):
    """A scheme that re-draws labels."""

    @abstractmethod
    def chosen(self, shape: tuple[int, int], generator: np.random.Generator) -> NDArray[np.bool_]:
        """Return which values to re-draw (sample, feature)."""

    def __call__(
        self, X: Codes, cardinality: NDArray[np.int32], generator: np.random.Generator
    ) -> Codes:
        """Return perturbed codes.

        Parameters
        ----------
        X : float64 array (n, n_categorical)
            Codes of the training predictors.
        cardinality : int32 array (n_categorical,)
            Number of labels of each feature.
        generator : numpy.random.Generator
            The only source of randomness.
        """
        n, c = X.shape
        chosen = self.chosen((n, c), generator) & ~np.isnan(X)
        return np.where(chosen, np.floor(generator.random((n, c)) * cardinality), X)


@dataclass(frozen=True, slots=True)
class SampleLevel(CategoricalNoise):
    """In ⌈p·n⌉ samples, each of the c categorical values is re-drawn with probability 1/c."""

    name: ClassVar[str] = "sample"

    def chosen(self, shape: tuple[int, int], generator: np.random.Generator) -> NDArray[np.bool_]:
        """Choose samples, then values."""
        n, c = shape
        chosen = generator.random((n, c)) < 1 / c
        # p as the decimal that is written: in floats ⌈0.07 · 100⌉ would be 8.
        kept = n - math.ceil(Fraction(repr(self.amount)) * n)
        chosen[generator.permutation(n)[:kept]] = False
        return chosen


@dataclass(frozen=True, slots=True)
class LabelLevel(CategoricalNoise):
    """Each value is re-drawn with probability p."""

    name: ClassVar[str] = "label"
    written: ClassVar[str] = "value"

    def chosen(self, shape: tuple[int, int], generator: np.random.Generator) -> NDArray[np.bool_]:
        """Choose values one by one."""
        return generator.random(shape) < self.amount


CATEGORICAL: dict[str, type[CategoricalNoise]] = {
    scheme.name: scheme for scheme in (SampleLevel, LabelLevel)
}


Classes = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class LabelNoise(Share):
    """A scheme that replaces each training label with probability p."""

    @abstractmethod
    def replaced(self, y: NDArray[np.int64], n_classes: int, u: Values) -> NDArray[np.int64]:
        """Return the class of each label if it is replaced.

        Parameters
        ----------
        y : int64 array (n,)
            Class index.
        u : float64 array (n,)
            Uniform in [0, 1).
        """

    def __call__(self, y: Classes, n_classes: int, generator: np.random.Generator) -> Classes:
        """Return labels after replacement; each takes two words, whether it is replaced or not."""
        chance, which = (raw(generator, 2 * len(y)) >> np.uint64(11)).reshape(-1, 2).T * 2.0**-53
        replaced = self.replaced(y.astype(np.int64), n_classes, which)
        return np.where(chance < self.amount, replaced, y).astype(y.dtype)


@dataclass(frozen=True, slots=True)
class Flip(LabelNoise):
    """By another class, each as likely."""

    name: ClassVar[str] = "flip"

    def replaced(self, y: NDArray[np.int64], n_classes: int, u: Values) -> NDArray[np.int64]:
        """Move on by 1 to K - 1 classes, in a circle."""
        return (y + 1 + (u * (n_classes - 1)).astype(np.int64)) % n_classes


@dataclass(frozen=True, slots=True)
class Symmetric(LabelNoise):
    """By any class, each as likely, so that it may stay the same."""

    name: ClassVar[str] = "symmetric"

    def replaced(self, y: NDArray[np.int64], n_classes: int, u: Values) -> NDArray[np.int64]:
        """Draw from all classes."""
        return (u * n_classes).astype(np.int64)


@dataclass(frozen=True, slots=True)
class NextClass(LabelNoise):
    """By the next class; the first follows the last."""

    name: ClassVar[str] = "pairs"

    def replaced(self, y: NDArray[np.int64], n_classes: int, u: Values) -> NDArray[np.int64]:
        """Move on by one class."""
        return (y + 1) % n_classes


LABELS: dict[str, type[LabelNoise]] = {
    scheme.name: scheme for scheme in (Flip, Symmetric, NextClass)
}


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Nearest-neighbour distances in a repeat's whole training part.

    Attributes
    ----------
    scale : float64 array (n_continuous,)
        Standard deviation of each feature, 0 where it is constant.
    distance : float64 array (n_train,)
        Euclidean distance to the nearest neighbour on standardized values; 0 for duplicates.
    """

    scale: NDArray[np.float64]
    distance: NDArray[np.float64]

    def at(self, points: NDArray[np.int64]) -> Neighbours:
        """Return the distances of some points, given by position in the training part."""
        return Neighbours(self.scale, self.distance[points])

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return self.scale.nbytes + self.distance.nbytes


def find_neighbours(X: NDArray[np.float64]) -> Neighbours:
    """Find the exact nearest neighbours of all points.

    Parameters
    ----------
    X : float64 array (n_train, n_continuous)
        Continuous features of the whole training part, before downsampling; NaN (missing) counts
        as the feature's mean.

    Raises
    ------
    jobs.run.MachineError
        Where scikit-learn is missing.
    """
    try:
        from sklearn.neighbors import NearestNeighbors
    except ImportError as error:
        raise MachineError(f"neighbour perturbations need scikit-learn: {error}") from error
    # NumPy warns about features without any value; here they count as constant.
    known = np.where(np.isnan(X).all(axis=0), 0.0, X)
    scale = np.nanstd(known, axis=0)
    scale[np.nanmin(known, axis=0) == np.nanmax(known, axis=0)] = 0.0
    standardized = (known - np.nanmean(known, axis=0)) / np.where(scale > 0, scale, 1.0)
    standardized = np.nan_to_num(standardized, nan=0.0)
    index = NearestNeighbors(n_neighbors=1).fit(standardized)
    nearest = index.kneighbors(return_distance=False)[:, 0]
    # Recomputed, as scikit-learn's distance between duplicates may not be exactly 0.
    return Neighbours(scale, np.linalg.norm(standardized - standardized[nearest], axis=1))


@dataclass(frozen=True, slots=True)
class ContinuousNoise(Scheme):
    """A scheme that moves continuous values."""

    uses_neighbours: ClassVar[bool] = False

    @abstractmethod
    def __call__(
        self, X: Values, generator: np.random.Generator, near: Neighbours | None
    ) -> Values:
        """Return perturbed values.

        Parameters
        ----------
        X : float64 array (n, n_continuous)
            Raw training predictors.
        generator : numpy.random.Generator
            The only source of randomness.
        near : Neighbours or None
            Those of the rows of `X`, if the scheme uses neighbours.
        """


@dataclass(frozen=True, slots=True)
class SigDigit(ContinuousNoise):
    """For x = d.ddd·10^N add Unif(-10^(N-k), 10^(N-k)); zero stays zero."""

    name: ClassVar[str] = "sig-digit"
    example: ClassVar[str] = "0"

    @classmethod
    def check(cls, amount: float) -> float:
        """Accept the position of a digit, from 0 for the first."""
        if not (np.isfinite(amount) and amount >= 0 and amount == int(amount)):
            raise Refused(cls.name, amount, allowed="a whole number 0, 1, 2, …")
        return int(amount)

    def __call__(self, X: Values, generator: np.random.Generator, near: object) -> Values:
        """Add noise the size of the k-th digit after the first."""
        width = np.where(X == 0, 0.0, 10.0 ** (exponent(X) - self.amount))
        return X + _symmetric(generator, X.shape) * width


@dataclass(frozen=True, slots=True)
class Relative(ContinuousNoise, Share):
    """Add Unif(-p·|x|, p·|x|)."""

    name: ClassVar[str] = "relative"

    def __call__(self, X: Values, generator: np.random.Generator, near: object) -> Values:
        """Add noise proportional to each value."""
        return X + _symmetric(generator, X.shape) * (self.amount * np.abs(X))


@dataclass(frozen=True, slots=True)
class Percentile(ContinuousNoise, Share):
    """Add Unif(-q/2, q/2), where q is the p-quantile of the feature's |x|; clamp to its range."""

    name: ClassVar[str] = "percentile"

    def __call__(self, X: Values, generator: np.random.Generator, near: object) -> Values:
        """Add noise of the same width to all values of a feature."""
        # NumPy warns about features without any value, so they get 0 here; they stay missing.
        known = np.where(np.isnan(X).all(axis=0), 0.0, X)
        # The slower one works feature by feature.
        quantile = np.nanquantile if np.isnan(known).any() else np.quantile
        width = quantile(np.abs(known), self.amount, axis=0)
        low, high = np.nanmin(known, axis=0), np.nanmax(known, axis=0)
        moved = X + _symmetric(generator, X.shape) * (width / 2)
        return np.asarray(np.clip(moved, low, high))


@dataclass(frozen=True, slots=True)
class Neighbour(ContinuousNoise):
    """Move x to a uniform point in the ball of radius c·‖x - nearest neighbour‖.

    This is done on standardized values, then mapped back. Neighbours are from the repeat's whole
    training part, so a subsample moves no farther; duplicates and constant features stay.
    """

    name: ClassVar[str] = "neighbour"
    uses_neighbours: ClassVar[bool] = True

    @classmethod
    def check(cls, amount: float) -> float:
        """Accept c above 0."""
        return number(cls.name, amount, above=0)

    def __call__(
        self, X: Values, generator: np.random.Generator, near: Neighbours | None
    ) -> Values:
        """Move each row within its ball."""
        if near is None:
            raise ValueError("neighbour needs the distances to the nearest neighbours")
        moving = near.scale > 0
        if not moving.any():
            return X.copy()
        direction = generator.standard_normal((len(X), int(moving.sum())))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        radius = self.amount * near.distance * generator.random(len(X)) ** (1 / moving.sum())
        moved = X.copy()
        moved[:, moving] += direction * radius[:, None] * near.scale[moving]
        return moved


CONTINUOUS: dict[str, type[ContinuousNoise]] = {
    scheme.name: scheme for scheme in (SigDigit, Relative, Percentile, Neighbour)
}

_LEAST_EXPONENT, _MOST_EXPONENT = -325, 310
_POWERS_OF_TEN = np.array([float(f"1e{n}") for n in range(_LEAST_EXPONENT, _MOST_EXPONENT + 1)])


def exponent(X: Values) -> Values:
    """Return N of x = d.ddd·10^N; 0 for zero, NaN for NaN."""
    size = np.where(X == 0, 1.0, np.abs(X))
    N = np.floor(np.log10(size))
    # The logarithm is rounded: just below a power of ten it may give the next exponent.
    N -= size < _power_of_ten(N)
    N += size >= _power_of_ten(N + 1)
    return N


def _power_of_ten(N: Values) -> Values:
    """Return 10^N rounded like a literal; NumPy's power may be off by one bit."""
    known = np.nan_to_num(N).clip(_LEAST_EXPONENT, _MOST_EXPONENT).astype(np.intp)
    powers: Values = _POWERS_OF_TEN[known - _LEAST_EXPONENT]
    return powers


def _symmetric(generator: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Draw from Unif(-1, 1)."""
    return 2.0 * generator.random(shape) - 1.0


Axis = Literal["continuous", "categorical", "labels"]
TABLES: Mapping[Axis, Mapping[str, type[Scheme]]] = {
    "continuous": CONTINUOUS,
    "categorical": CATEGORICAL,
    "labels": LABELS,
}


def names(axis: Axis) -> tuple[str, ...]:
    """Return the names of an axis's schemes in sweep files, without their numbers."""
    return ("none", *_written(TABLES[axis]))


def is_renamed(axis: Axis, scheme: str) -> bool:
    """Return whether identities have another name for a scheme as it is written."""
    name = scheme.partition(":")[0]
    return any(kind.written == name for kind in TABLES[axis].values())


def shown(axis: Axis, scheme: str) -> str:
    """Return a normal form with the scheme's name in sweep files: ``value:0.1``."""
    name, colon, amount = scheme.partition(":")
    kind = TABLES[axis].get(name)
    return f"{kind.written}{colon}{amount}" if kind and kind.written else scheme


def canonical(axis: Axis, scheme: str) -> str:
    """Return the normal form of a scheme, as in identities: ``relative:.10`` is ``relative:0.1``.

    Raises
    ------
    jobs.checks.Refused
        For an unknown scheme, and for a number that is missing or out of range.
    """
    noise = parse(axis, scheme, TABLES[axis])
    return "none" if noise is None else noise.text


def uses_neighbours(scheme: str) -> bool:
    """Return whether a continuous scheme needs the distances to the nearest neighbours."""
    noise = parse("continuous", scheme, CONTINUOUS)
    return noise is not None and noise.uses_neighbours


def perturb_continuous(
    X: NDArray[np.float64],
    cardinality: NDArray[np.int32],
    scheme: str,
    generator: np.random.Generator,
    near: Neighbours | None = None,
) -> NDArray[np.float64]:
    """Perturb the continuous columns of training predictors.

    Parameters
    ----------
    X : float64 array (n, n_features)
        Raw values; not modified.
    cardinality : int32 array (n_features,)
        0 marks a continuous column.
    scheme : str
        In normal form.
    generator : numpy.random.Generator
        Stream ``perturb_continuous``.
    near : Neighbours, optional
        Those of the rows and continuous columns of `X`, if the scheme `uses_neighbours`.

    Returns
    -------
    float64 array (n, n_features)
    """
    noise = parse("continuous", scheme, CONTINUOUS)
    columns = cardinality == 0
    if noise is None or not columns.any():
        return X
    if columns.all():  # nothing to copy
        return noise(X, generator, near)
    moved = X.copy()
    moved[:, columns] = noise(X[:, columns], generator, near)
    return moved


def perturb_categorical(
    X: NDArray[np.float64],
    cardinality: NDArray[np.int32],
    scheme: str,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Perturb the categorical columns of training predictors.

    Parameters
    ----------
    X : float64 array (n, n_features)
        Codes in categorical columns; not modified.
    cardinality : int32 array (n_features,)
        Number of labels, above 0 for a categorical column.
    scheme : str
        In normal form.
    generator : numpy.random.Generator
        Stream ``perturb_categorical``.

    Returns
    -------
    float64 array (n, n_features)
    """
    noise = parse("categorical", scheme, CATEGORICAL)
    columns = cardinality > 0
    if noise is None or not columns.any():
        return X
    moved = X.copy()
    moved[:, columns] = noise(X[:, columns], cardinality[columns], generator)
    return moved


def perturb_labels(
    y: NDArray[np.uint16], n_classes: int, scheme: str, generator: np.random.Generator
) -> NDArray[np.uint16]:
    """Perturb training labels.

    Parameters
    ----------
    y : uint16 array (n,)
        Class index; not modified.
    n_classes : int
        Classes of the dataset.
    scheme : str
        In normal form.
    generator : numpy.random.Generator
        Stream ``perturb_labels``.

    Returns
    -------
    uint16 array (n,)
    """
    noise = parse("labels", scheme, LABELS)
    return y if noise is None else noise(y, n_classes, generator)
