"""Schemes as they are written in a sweep file, ``name:number``, and their one normal form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

from jobs.checks import number, unknown


@dataclass(frozen=True, slots=True)
class Scheme(ABC):
    """A perturbation with its strength; subclasses say what the number means."""

    amount: float

    name: ClassVar[str]
    example: ClassVar[str] = "0.1"

    @classmethod
    def parse(cls, amount: str) -> Self:
        """Read the number after the colon.

        Raises
        ------
        ValueError
            For what is no number or out of the scheme's range.
        """
        try:
            value = float(amount)
        except ValueError:
            raise ValueError(f"{amount!r} is not a number") from None
        return cls(cls.check(value))

    @classmethod
    @abstractmethod
    def check(cls, amount: float) -> float:
        """Return the amount if it is in the scheme's range, else raise ValueError."""

    @property
    def text(self) -> str:
        """The normal form, part of identities and of stream keys."""
        return f"{self.name}:{self.amount!r}"


@dataclass(frozen=True, slots=True)
class Share(Scheme):
    """A scheme whose number is a fraction below 1: 10 for 10 % would make other noise unseen."""

    @classmethod
    def check(cls, amount: float) -> float:
        """Accept (0, 1): 0.1 is 10 %, for percentiles the 10th."""
        return number("a fraction (0.1 is 10 %)", amount, above=0, below=1)


S = TypeVar("S", bound=Scheme)


def parse(axis: str, scheme: str, table: Mapping[str, type[S]]) -> S | None:
    """Read a scheme; None is the scheme ``none``.

    Parameters
    ----------
    axis : str
        Named in messages.
    table : mapping
        The axis's schemes by name.

    Raises
    ------
    ValueError
        For an unknown scheme and a number that is missing or out of range.
    """
    if scheme == "none":
        return None
    name, colon, amount = str(scheme).partition(":")
    if name not in table:
        raise unknown(f"{axis} scheme", name, ("none", *table))
    if not colon:
        raise ValueError(
            f"scheme {scheme!r} lacks its number, as in {f'{name}:{table[name].example}'!r}"
        )
    try:
        return table[name].parse(amount)
    except ValueError as error:
        raise ValueError(f"scheme {scheme!r}: {error}") from None
