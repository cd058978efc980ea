"""How often each kind of sentence is false, and how often it is said where it must be.

    python benchmarks/bench_claims.py [--quick] [--json] [--sweeps N] [--only REGEX]

Every kind of sentence (`benchmarks/claims/`) is measured on planted sweeps, 200 to 1,000 of each
kind: none may be false more often than it promises, plus three standard errors of so many sweeps.
The full run writes docs/claims.md, and --only writes the rows that match; with --quick or --sweeps,
nothing is written.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.claims import CLAIMS, PLAIN, Claim, Tally

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"
QUICK = 2


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something was so, over all sweeps."""

    times: int
    of: int
    sweeps: int

    @property
    def share(self) -> float:
        return self.times / self.of if self.of else 0.0

    def above(self, promise: float) -> bool:
        """Return whether it is more often so than is promised, beyond three standard errors.

        What is said several times of one sweep is counted as once: it may depend on each other.
        """
        error = math.sqrt(promise * (1 - promise) / self.sweeps) if self.sweeps else 0.0
        return self.share > promise + 3 * error


def rate(tally: Callable[[int], Tally], seeds: Iterable[int]) -> Rate:
    found = [tally(seed) for seed in seeds]
    counted = [one for one in found if one.of]
    return Rate(sum(one.times for one in found), sum(one.of for one in found), len(counted))


def measured(claim: Claim, sweeps: int | None = None) -> tuple[Rate, Rate]:
    """Return the rates of false sentences, and of sentences where there is an effect."""
    seeds = range(claim.sweeps if sweeps is None else min(sweeps, claim.sweeps))
    return rate(claim.false, seeds), rate(claim.said, seeds)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 0.995 else f"{100 * share:.0f} %"


_HEAD = """\
# How often the sentences are wrong

<!-- also: error rates, error rate of claims, false positive rate, false positive rate of claims,
false positives, type I error, type 1 error, type II error, power of the tests, false claims -->

Each kind of sentence that `answers`, `howmany`, `howmany --until`, `compare`, `variance`, the page
and its captions can say was measured on planted sweeps: tables made directly, without training,
whose truth is known. *False* is how often it is said, or its interval misses, where it must not.
*Power* is how often it is said where it must be, or how often an interval excludes the value
stated. A rate may exceed its promise by three standard errors of so many sweeps; rows in bold
exceed it by more.

`python benchmarks/bench_claims.py` writes this page: {day}, {least:,} to {most:,} planted sweeps
for each rate, or as many as the row says. The tests measure a small form of every row, and fail if
a sentence has none.

Values are normal, except in rows that say skewed: there, errors are log-normal, so that accuracies
have skewness −1. Intervals of standard deviations then miss more often than 5 %, as their sentences
say; where runs are visibly skewed, sentences warn ([how often](results.md#the-page)). Unless stated
otherwise, the standard deviation of runs is 0.01 between seeds, and that of their means 0.02
between test sets.

"""

_REST = """
## Said without a rate

These count, define, admit that something cannot be told, or give estimates without a precision:

"""


def row(claim: Claim, false: Rate, said: Rate) -> str:
    """Return the row of the page; a rate above its promise stands in bold."""
    bold = "**" if false.above(claim.promise) else ""
    cells = [
        claim.by,
        f"{bold}{claim.name}{bold}",
        percent(claim.promise),
        f"{bold}{percent(false.share)} of {false.of:,} {claim.holds}{bold}",
        percent(said.share),
        f"{claim.without}; power: {claim.effect}",
    ]
    return f"| {' | '.join(cells)} |"


def page(results: Iterable[tuple[Claim, Rate, Rate]], before: str = "") -> str:
    """Return docs/claims.md; rows of claims that were not measured are those before."""
    rows = {
        cells[1].strip("*"): line
        for line in before.splitlines()
        if len(cells := line.split(" | ")) == 6
    }
    rows |= {claim.name: row(claim, false, said) for claim, false, said in results}
    counts = [claim.sweeps for claim in CLAIMS]
    lines = ["| said by | sentence | promise | false | power | planted |", "|---" * 6 + "|"]
    lines += [rows[claim.name] for claim in CLAIMS if claim.name in rows]
    head = _HEAD.format(day=date.today().isoformat(), least=min(counts), most=max(counts))
    rest = "\n".join(f"- {reason}" for reason in PLAIN.values())
    return f"{head}{chr(10).join(lines)}\n{_REST}{rest}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few sweeps, under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sweeps", type=int, metavar="N", help="at most N of each kind")
    parser.add_argument("--only", default="", metavar="REGEX", help="sentences that match")
    options = parser.parse_args()
    sweeps = QUICK if options.quick else options.sweeps
    results = []
    for claim in CLAIMS:
        if not re.search(options.only, f"{claim.by}: {claim.name}"):
            continue
        false, said = measured(claim, sweeps)
        results.append((claim, false, said))
        if not options.json:
            print(
                f"{'ABOVE ' if false.above(claim.promise) else ''}{claim.by}: {claim.name}\n"
                f"    false {false.times} of {false.of} {claim.holds} ({percent(false.share)}; "
                f"promised {percent(claim.promise)}), power {said.times} of {said.of}",
                flush=True,
            )
    if options.json:
        rows = [
            {
                "by": claim.by,
                "sentence": claim.name,
                "promise": claim.promise,
                "false": [false.times, false.of],
                "power": [said.times, said.of],
                "holds": not false.above(claim.promise),
            }
            for claim, false, said in results
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    if sweeps is None:
        before = PAGE.read_text() if options.only and PAGE.exists() else ""
        PAGE.write_text(page(results, before))


if __name__ == "__main__":
    main()
