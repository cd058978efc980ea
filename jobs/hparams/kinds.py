"""The kinds of hparams: continuous, ordinal, categorical (MV, Hyperparameter perturbation).

A numeric hparam is perturbed on a scale of its own: `position` maps a value to the scale, `settle`
maps any position back to the nearest value that the hparam can take.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobs.checks import integer, number

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class When:
    """An hparam acts only where another one has one of these values."""

    hparam: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Continuous:
    """A real number in [low, high]; on a log10 scale where `log`."""

    name: str
    low: float
    high: float
    default: float
    log: bool = False
    when: When | None = None

    def check(self, value: object) -> float:
        """Return the value as a float, or raise ValueError with the range."""
        return number(self.name, value, least=self.low, most=self.high)

    @property
    def ends(self) -> tuple[float, float]:
        """Positions of the lowest and the highest value."""
        return self.position(self.low), self.position(self.high)

    def position(self, value: float) -> float:
        """Return where a value lies on the hparam's scale."""
        return math.log10(value) if self.log else value

    def settle(self, position: float) -> float:
        """Return the value at a position, clipped to the range."""
        value = 10.0**position if self.log else position
        return min(max(value, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Ordinal:
    """One of several ascending whole numbers, on a linear scale."""

    name: str
    levels: Sequence[int]
    default: int
    when: When | None = None

    def check(self, value: object) -> int:
        """Return the value as an int, or raise ValueError with the levels."""
        level = integer(self.name, value, least=self.levels[0], most=self.levels[-1])
        if level not in self.levels:
            raise ValueError(f"{self.name} is one of {_list(self.levels)}, not {level}")
        return level

    @property
    def ends(self) -> tuple[float, float]:
        """Positions of the lowest and the highest value."""
        return float(self.levels[0]), float(self.levels[-1])

    def position(self, value: float) -> float:
        """Return where a value lies on the hparam's scale."""
        return float(value)

    def settle(self, position: float) -> int:
        """Return the level nearest to a position, of two the lower."""
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

    def check(self, value: object) -> Value:
        """Return the value, or raise ValueError with the levels."""
        for level in self.levels:
            if type(value) is type(level) and value == level:
                return level
        raise ValueError(f"{self.name} is one of {_list(self.levels)}, not {value!r}")


def _list(levels: Iterable[Value]) -> str:
    return ", ".join(repr(level) for level in levels)


Hparam = Continuous | Ordinal | Categorical
