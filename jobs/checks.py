"""Checks of users' values; a refusal holds facts, and whoever knows the file words them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

_LISTED = 20
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Refused(ValueError):
    """A value that cannot be taken.

    Parameters
    ----------
    option : str
        What it was given for, as the caller's parameter is named; a dot stands between a table and
        its key, as in ``hparams.alpha``.
    value : object
        What is refused: the option's value, or the part of it that is wrong.
    reason : str
        Why, where `allowed` does not say it.
    allowed : iterable of object, or str
        All values that could be taken, or a description of them.
    needs : mapping
        Options beside this one with which the value could be taken, None for one that must not be
        given; empty where there are none.
    """

    def __init__(
        self,
        option: str,
        value: object,
        reason: str = "",
        allowed: Iterable[object] | str = (),
        needs: Mapping[str, Any] = NOTHING,
    ) -> None:
        self.option, self.value, self.reason, self.needs = option, value, reason, dict(needs)
        self.allowed = allowed if isinstance(allowed, str) else tuple(allowed)
        super().__init__(option, value, reason, self.allowed)

    def __str__(self) -> str:
        said = self.reason or "unknown"
        if isinstance(self.allowed, str):
            said = f"must be {self.allowed}"
        elif self.allowed:
            listed = ", ".join(map(str, self.allowed[:_LISTED]))
            said += f"; there are {listed}" + ", …" * (len(self.allowed) > _LISTED)
        return f"{self.option} = {self.value!r}: {said}"


class UnknownOption(Refused):
    """An unknown option; `allowed` are the known ones."""


def integer(option: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return a whole number within bounds (both included).

    Parameters
    ----------
    option : str
        What it was given for.
    value : object
    least, most : int
        The bounds; no upper one by default.

    Raises
    ------
    Refused
        For another type, a truth value or a number out of bounds.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < least
        or (most is not None and value > most)
    ):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise Refused(option, value, allowed=f"a whole number {bounds}")
    return value


def number(
    option: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    what: str = "a number",
) -> float:
    """Return a finite number as a float, within bounds.

    Parameters
    ----------
    option : str
        What it was given for.
    value : object
    least, above, most, below : float
        The bounds, of which `above` and `below` are open.
    what : str
        What the number is.

    Raises
    ------
    Refused
        For another type, a truth value, NaN, infinities or a number out of bounds.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not (least <= value <= most and above < value < below)
    ):
        limits = {"at least": least, "above": above, "at most": most, "below": below}
        bounds = [f"{word} {limit:g}" for word, limit in limits.items() if math.isfinite(limit)]
        raise Refused(option, value, allowed=" ".join([what, " and ".join(bounds)]).strip())
    return float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What an option may be: one of some words, or a number within bounds.

    Attributes
    ----------
    name : str
    about : str
        What it is, in a sentence.
    words : tuple of str
        Those that it may be; beside numbers, one.
    numbers : {"none", "whole", "all"}
    least, above, most, below : float
        Bounds of numbers, of which `above` and `below` are open.
    """

    name: str
    about: str = ""
    words: tuple[str, ...] = ()
    numbers: Literal["none", "whole", "all"] = "all"
    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def check(self, value: object) -> int | float | str:
        """Return a value, numbers as a float unless they are whole.

        Raises
        ------
        Refused
        """
        if isinstance(value, str) and value in self.words:
            return value
        if self.numbers == "none":
            raise Refused(self.name, value, allowed=self.words)
        if self.words and isinstance(value, str):
            start = f"from {self.least:g}" if math.isfinite(self.least) else f"above {self.above:g}"
            said = " or ".join(map(repr, self.words))
            raise Refused(self.name, value, allowed=f"a number {start}, or {said}")
        if self.numbers == "whole":
            most = int(self.most) if math.isfinite(self.most) else None
            return integer(self.name, value, least=int(self.least), most=most)
        return number(
            self.name, value, least=self.least, above=self.above, most=self.most, below=self.below
        )
