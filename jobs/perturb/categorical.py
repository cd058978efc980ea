"""Perturbations of categorical features (MV, Categorical Data Perturbation).

A value is re-drawn uniformly from its feature's labels, so it may stay the same. Missing values
(NaN) stay missing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.perturb.scheme import Share

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

    def chosen(self, shape: tuple[int, int], generator: np.random.Generator) -> NDArray[np.bool_]:
        """Choose values one by one."""
        return generator.random(shape) < self.amount


CATEGORICAL: dict[str, type[CategoricalNoise]] = {
    scheme.name: scheme for scheme in (SampleLevel, LabelLevel)
}
