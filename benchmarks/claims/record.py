"""A kind of sentence, and what its planted sweeps are counted by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.options import Options

Real = NDArray[np.float64]


class Tally(NamedTuple):
    """How often something was so, and out of how many."""

    times: int
    of: int = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """One kind of sentence.

    Attributes
    ----------
    name : str
        The sentence in short.
    by : str
        What says it.
    wording : str
        A regular expression: the words in the source by which it is known, and those that are said
        instead where it cannot be told.
    promise : float
        The rate of false sentences, or of intervals that miss, that it promises at most.
    holds : str
        What the rate is of.
    false, said : callable
        Of a seed: in a sweep without the effect (or of known truth), how many sentences are false;
        in one with the effect, how many say it.
    without, effect : str
        What is planted in the two.
    sweeps : int
        How many are planted for each rate.
    """

    name: str
    by: str
    wording: str
    promise: float
    holds: str
    false: Callable[[int], Tally]
    said: Callable[[int], Tally]
    without: str
    effect: str
    sweeps: int = 200


OPTIONS = Options()
SIGNED = r"([+−-]?\d+\.\d+)"


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def numbers(pattern: str, text: str) -> Iterator[tuple[float, ...]]:
    for found in re.findall(pattern, text):
        yield tuple(map(number, found if isinstance(found, tuple) else (found,)))


def miss(low: float, truth: float, high: float, digits: float = 0.0) -> bool:
    """Return whether an interval misses the truth, by more than it was rounded."""
    return not low - digits <= truth <= high + digits


CHEAP = 1000  # sweeps of what takes milliseconds

FROM_0 = "is told from 0"

STATED = "intervals"

NOTHING = "nothing differs"

MANY = "2 datasets, 3 classifiers, 4 test sets of 6 runs"


def interval(
    name: str,
    by: str,
    wording: str,
    false: Callable[[int], Tally],
    said: Callable[[int], Tally],
    without: str,
    effect: str,
    **more: Any,
) -> Claim:
    """Return the claim of a 95 % interval; its power is how often it excludes a value."""
    return Claim(name, by, wording, 0.05, STATED, false, said, without, effect, **more)
