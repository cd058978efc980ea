"""Each kind of sentence that results can say, what it promises, and sweeps planted to measure it.

`CLAIMS` holds a record per kind. One generator plants a sweep in which the sentence must not be
said (or, for an interval, one whose truth is known), the other one in which it must be said. Both
return how often that was so, and out of how many. Sentences without a rate, such as counts and
definitions, are in `PLAIN`. Nothing is trained: tables are made directly.
"""

from __future__ import annotations

from benchmarks.claims import (
    averaged,
    between,
    compared,
    components,
    crossed,
    lacking,
    levels,
    needed,
    noise,
    oneclass,
    points,
    scores,
    skewed,
    tabled,
)
from benchmarks.claims.plain import PLAIN
from benchmarks.claims.record import Claim, Tally

__all__ = ["CLAIMS", "PLAIN", "Claim", "Tally"]

CLAIMS: tuple[Claim, ...] = (
    *tabled.CLAIMS,
    *levels.CLAIMS,
    *needed.CLAIMS,
    *compared.CLAIMS,
    *between.CLAIMS,
    *components.CLAIMS,
    *crossed.CLAIMS,
    *lacking.CLAIMS,
    *scores.CLAIMS,
    *points.CLAIMS,
    *noise.CLAIMS,
    *oneclass.CLAIMS,
    *averaged.CLAIMS,
    *skewed.CLAIMS,
)
