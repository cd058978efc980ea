"""Schemes as users write them, ``name:number``, and their normal form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

from manyseed.jobs.checks import Refused, number


@dataclass(frozen=True, slots=True)
class Scheme(ABC):
    """A perturbation with its strength; subclasses define what the number means."""

    amount: float

    name: ClassVar[str]
    example: ClassVar[str] = "0.1"

    @classmethod
    def parse(cls, amount: str) -> Self:
        """Read the number after the colon.

        Raises
        ------
        Refused
            For anything but a number within the scheme's range.
        """
        try:
            value = float(amount)
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


def parse(axis: str, scheme: str, table: Mapping[str, type[S]]) -> S | None:
    """Read a scheme; ``none`` becomes None.

    Parameters
    ----------
    axis : str
        Refusals name the option ``perturb_AXIS``.
    table : mapping
        The axis's schemes by name.

    Raises
    ------
    Refused
        For an unknown scheme, and for a number that is missing or out of range.
    """
    if scheme == "none":
        return None
    option = f"perturb_{axis}"
    name, colon, amount = str(scheme).partition(":")
    if name not in table:
        raise Refused(option, name, "unknown scheme", ("none", *table))
    if not colon:
        raise Refused(option, scheme, f"lacks its number, as in {name}:{table[name].example}")
    try:
        return table[name].parse(amount)
    except Refused as error:
        raise Refused(option, error.value, error.reason, error.allowed) from None
