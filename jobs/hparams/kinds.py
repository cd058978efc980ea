"""The kinds of hparams: continuous, ordinal, categorical (MV, Hyperparameter perturbation).

A numeric hparam is perturbed on its own scale: `position` maps a value to the scale, `settle` maps
any position back to the nearest value that the hparam can take.

A **structural** hparam defines the network, such as its depth: it is fixed or in a grid, never
moved by a scheme and never searched.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from manyseed.jobs.checks import Option

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class When:
    """The condition under which an hparam acts: another one has one of these values."""

    hparam: str
    values: tuple[Value, ...]


class _Checked(ABC):
    """An hparam checks a value by its `Option`."""

    __slots__ = ()
    name: str

    @property
    @abstractmethod
    def option(self) -> Option:
        """Which values it takes."""

    def check(self, value: object) -> Value:
        """Return the value as stored, or raise Refused with the range or levels."""
        checked: Value = self.option.check(f"hparams.{self.name}", value)
        return checked


@dataclass(frozen=True, slots=True)
class Continuous(_Checked):
    """A real number in [low, high], on a log10 scale if `log`."""

    name: str
    low: float
    high: float
    default: float
    log: bool = False
    when: When | None = None
    structural: bool = False

    @property
    def option(self) -> Option:
        """Numbers of the range."""
        return Option(kind=float, least=self.low, most=self.high)

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


@dataclass(frozen=True, slots=True)
class Ordinal(_Checked):
    """One of several ascending whole numbers, on a linear scale."""

    name: str
    levels: Sequence[int]
    default: int
    when: When | None = None
    structural: bool = False

    @property
    def option(self) -> Option:
        """Whole numbers of the range, or the levels."""
        if isinstance(self.levels, range):
            return Option(kind=int, least=self.levels[0], most=self.levels[-1])
        return Option(words=self.levels)

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
class Categorical(_Checked):
    """One of several levels without an order."""

    name: str
    levels: tuple[Value, ...]
    default: Value
    when: When | None = None
    structural: bool = False

    @property
    def option(self) -> Option:
        """The levels."""
        return Option(words=self.levels)


@dataclass(frozen=True, slots=True)
class Free(_Checked):
    """A single value of any type, for code with undeclared ranges: structural."""

    name: str
    default: Value
    when: When | None = None
    structural: bool = True

    @property
    def option(self) -> Option:
        """Any single value."""
        return Option(kind=object)


Hparam = Continuous | Ordinal | Categorical | Free
