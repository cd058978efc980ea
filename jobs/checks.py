"""Check users' values. A refusal holds facts; the caller who knows the file words them."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from manyseed.jobs.similar import shown

_LISTED = 20
NOTHING: Mapping[str, Any] = MappingProxyType({})


def expanded(name: str) -> Path:
    """Return a path that may begin with ~ or ~user; without such a home, that is a name."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


class Refused(ValueError):
    """A value that is not allowed.

    Parameters
    ----------
    option : str
        The option, named as the caller's parameter; a dot separates a table from its key, as in
        ``hparams.alpha``.
    value : object
        The refused value, or the part of it that is wrong.
    reason : str
        Why, unless `allowed` says it.
    allowed : iterable of object, or str
        All allowed values, or a description of them.
    needs : mapping
        Values of other options with which this value would be allowed, None for an option that must
        not be given; empty if there are none.
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
        message = self.reason or "unknown"
        if isinstance(self.allowed, str):
            message = f"must be {self.allowed}"
        elif self.allowed:
            listed = ", ".join(shown(str(each)) for each in self.allowed[:_LISTED])
            message += f"; there are {listed}" + ", …" * (len(self.allowed) > _LISTED)
        return f"{self.option} = {self.value!r}: {message}"


class UnknownOption(Refused):
    """An unknown option; `allowed` lists the known ones."""


def integer(option: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return `value` if it is a whole number from `least` to `most`, which has no limit by default.

    Raises
    ------
    Refused
        For any other type, a truth value or a number out of bounds.
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
    """Return `value` as a float if it is a finite number within bounds.

    Parameters
    ----------
    option : str
    value : object
    least, above, most, below : float
        The bounds; `above` and `below` are exclusive.
    what : str
        What to call the number in a message.

    Raises
    ------
    Refused
        For any other type, a truth value, NaN, an infinity or a number out of bounds.
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
    """The allowed values of an option: some words, numbers within bounds, or both.

    Attributes
    ----------
    name : str
    about : str
        What the option means, in a sentence.
    words : tuple of str
        Allowed words; just one if numbers are allowed too.
    numbers : {"none", "whole", "all"}
    least, above, most, below : float
        Bounds of numbers; `above` and `below` are exclusive.
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
        """Return an allowed value; numbers become floats unless `numbers` is ``whole``.

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
            words = " or ".join(map(repr, self.words))
            raise Refused(self.name, value, allowed=f"a number {start}, or {words}")
        if self.numbers == "whole":
            most = int(self.most) if math.isfinite(self.most) else None
            return integer(self.name, value, least=int(self.least), most=most)
        return number(
            self.name, value, least=self.least, above=self.above, most=self.most, below=self.below
        )


def in_words(error: BaseException) -> str:
    """Return what was raised, without notes: its message, after its class unless that is ours."""
    if type(error).__module__.startswith("manyseed."):
        return str(error).strip() or type(error).__name__
    summary = traceback.TracebackException.from_exception(error)
    summary.__notes__ = None
    return "".join(summary.format_exception_only()).strip()


def in_a_line(error: BaseException, line: int = -1) -> str:
    """Return `in_words` in one line: all lines of our messages, of others the last, or another."""
    lines = [line.strip() for line in in_words(error).splitlines()]
    return "; ".join(lines) if type(error).__module__.startswith("manyseed.") else lines[line]
