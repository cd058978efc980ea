"""The kinds of hparams: continuous, ordinal, categorical (MV, Hyperparameter perturbation).

A numeric hparam is perturbed on its own scale: `position` maps a value to the scale, `settle` maps
any position back to the nearest value that the hparam can take.

A **structural** hparam defines the network, such as its depth: it is fixed or in a grid, never
moved by a scheme and never searched.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from manyseed.jobs.checks import Refused, integer, number

Value = bool | int | float | str

V = TypeVar("V", bound=Value)


@dataclass(frozen=True, slots=True)
class When:
    """The condition under which an hparam acts: another one has one of these values."""

    hparam: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Continuous:
    """A real number in [low, high], on a log10 scale if `log`."""

    name: str
    low: float
    high: float
    default: float
    log: bool = False
    when: When | None = None
    structural: bool = False

    def check(self, value: object) -> float:
        """Return the value as a float, or raise Refused with the range."""
        return number(f"hparams.{self.name}", value, least=self.low, most=self.high)

    @property
    def ends(self) -> tuple[float, float]:
        """Positions of the lowest and the highest value."""
        return self.position(self.low), self.position(self.high)

    def position(self, value: float) -> float:
        """Return a value's position on the hparam's scale."""
        return math.log10(value) if self.log else value

    def settle(self, position: float) -> float:
        """Return the value at a position, clipped to the range."""
        value = 10.0**position if self.log else position
        return min(max(value, self.low), self.high)


def _level(levels: Sequence[V], option: str, value: object) -> V:
    """Return the level that equals a value and has its type."""
    for level in levels:
        if type(value) is type(level) and value == level:
            return level
    raise Refused(f"hparams.{option}", value, allowed=levels)


@dataclass(frozen=True, slots=True)
class Ordinal:
    """One of several ascending whole numbers, on a linear scale."""

    name: str
    levels: Sequence[int]
    default: int
    when: When | None = None
    structural: bool = False

    def check(self, value: object) -> int:
        """Return the value as an int, or raise Refused with the levels."""
        if isinstance(self.levels, range):
            least, most = self.levels[0], self.levels[-1]
            return integer(f"hparams.{self.name}", value, least=least, most=most)
        return _level(self.levels, self.name, value)

    @property
    def ends(self) -> tuple[float, float]:
        """Positions of the lowest and the highest value."""
        return float(self.levels[0]), float(self.levels[-1])

    def position(self, value: float) -> float:
        """Return a value's position on the hparam's scale."""
        return float(value)

    def settle(self, position: float) -> int:
        """Return the level nearest to a position, the lower of two."""
        above = bisect_left(self.levels, position)
        neighbours = self.levels[max(above - 1, 0) : above + 1]
        return min(neighbours, key=lambda level: abs(level - position))


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of several levels without an order."""

    name: str
    levels: tuple[Value, ...]
    default: Value
    when: When | None = None
    structural: bool = False

    def check(self, value: object) -> Value:
        """Return the value, or raise Refused with the levels."""
        return _level(self.levels, self.name, value)


@dataclass(frozen=True, slots=True)
class Free:
    """A single value of any type, for code with undeclared ranges: structural."""

    name: str
    default: Value
    when: When | None = None
    structural: bool = True

    def check(self, value: object) -> Value:
        """Return the value, or raise Refused for other types and numbers that are not finite."""
        is_finite = not isinstance(value, float) or math.isfinite(value)
        if isinstance(value, bool | int | float | str) and is_finite:
            return value
        raise Refused(f"hparams.{self.name}", value, allowed="text, a finite number, true or false")


Hparam = Continuous | Ordinal | Categorical | Free
