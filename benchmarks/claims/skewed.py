"""Sentences that rest on t, χ² or normal intervals, where accuracies are skewed as real ones are.

A run's errors are log-normal, so that accuracies have skewness -1 (`long_tailed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from benchmarks.claims import compared, components, crossed, lacking, needed, tabled
from benchmarks.claims.record import CHEAP, FROM_0, MANY, Claim, Tally, interval, miss
from benchmarks.claims.tabled import LEVEL, SD, SKEWED, each, judged, says, share
from manyseed.analysis.questions.howmany import PRECISE
from manyseed.analysis.questions.variance import INTERACTION, OWN
from tests.analysis.planted import long_tailed

OF_RUNS = "accuracies of skewness −1"
HOLDS = 0.16
"""What intervals of a standard deviation say of themselves, and of numbers of runs from it."""
MISSED = r"roughly normal values, and holds|each interval assumes"

_SIZES = f"{OF_RUNS}; 5 test sets of 6 runs, no difference on average"
_PARTS = f"{OF_RUNS}: init, batch and joint parts; 4 test sets of 8 runs"

_USUAL = {
    one.name: one for one in (*tabled.CLAIMS, *crossed.CLAIMS, *components.CLAIMS, *lacking.CLAIMS)
}


def _skewed(
    name: str, usual: str, false: Callable[[int], Tally], said: Callable[[int], Tally]
) -> Claim:
    """Return a claim on normal values, by its name, as one on skewed values."""
    one = _USUAL[usual]
    planted = f"{OF_RUNS}; {one.without}"
    return replace(one, name=f"{name} (skewed)", false=false, said=said, without=planted)


CLAIMS: tuple[Claim, ...] = (
    interval(
        "Accuracy on D: a 0.90 ± 0.01 (skewed)",
        "answers",
        r"± half of the 95 % interval over test sets",
        share(f"alike{SKEWED}", "accuracy", LEVEL, lambda value, half: abs(value - 0.9) > half),
        share(f"alike{SKEWED}", "accuracy", LEVEL, lambda value, half: abs(value - 0.8) > half),
        f"{OF_RUNS}: {MANY}",
        "excludes a value 5 sd between test sets away",
    ),
    _skewed(
        "a is better than b by …",
        "a is better than b by … (or: cannot be told apart)",
        each(f"alike{SKEWED}", r"is better than"),
        each(f"better{SKEWED}", r"a is better than"),
    ),
    _skewed(
        "a ≈ b: they differ by less than 0.005",
        "a ≈ b: they differ by less than 0.005",
        judged(f"nearly alike{SKEWED}", "≈"),
        judged(f"precise{SKEWED}", "≈"),
    ),
    _skewed(
        "Between seeds, the accuracy of a varies most",
        "Between seeds, the accuracy of a varies most (or: cannot be told), and that of b least",
        says(f"alike{SKEWED}", "spread", "^Between seeds"),
        says(f"varied{SKEWED}", "spread", "^Between seeds, the accuracy of a varies most"),
    ),
    *(
        Claim(
            name,
            "answers",
            MISSED,
            HOLDS,
            "intervals",
            share(
                f"{sweep}{SKEWED}", "spread", SD, lambda _, low, high: miss(low, 0.01, high, 5e-5)
            ),
            share(f"{sweep}{SKEWED}", "spread", SD, lambda _, low, high: miss(low, 0.04, high)),
            f"{OF_RUNS}: {planted}; 84 % or more hold, as is said",
            "excludes four times the sd",
        )
        for name, sweep, planted in (
            ("… sd of 0.02 (0.01 to 0.03), of equal ones (skewed)", "alike", MANY),
            ("… of a single classifier (skewed)", "one cell", "3 test sets of 10 runs"),
            ("… on this test set (skewed)", "one set", "1 test set of 6 runs"),
        )
    ),
    *(
        Claim(
            f"{name} takes 16 runs (11 to 30; skewed)",
            by,
            MISSED,
            HOLDS,
            "intervals",
            false,
            power,
            f"{OF_RUNS}: 3 test sets of 10 runs; 84 % or more hold, as is said",
            "excludes four times as many",
        )
        for name, by, false, power in (
            (
                "Knowing the mean",
                "answers",
                tabled.takes_misses(f"one cell{SKEWED}", tabled.needs(0.01)),
                tabled.takes_misses(f"one cell{SKEWED}", 4 * tabled.needs(0.01)),
            ),
            (
                "Accuracy ± 0.005",
                "howmany",
                needed.takes(0, tabled.needs(0.01), f"one cell{SKEWED}"),
                needed.excludes(0, tabled.needs(0.01), f"one cell{SKEWED}"),
            ),
        )
    ),
    _skewed(
        "Accuracy changes beyond chance",
        "Accuracy changes beyond chance (or: no factor is found)",
        says(f"alike{SKEWED}", "effects", "changes beyond chance"),
        says(f"moved{SKEWED}", "effects", "changes beyond chance in .*noise in"),
    ),
    Claim(
        "A > B, of a single comparison (skewed)",
        "compare",
        r"{}, {}: not told",
        0.05,
        "comparisons",
        compared.judged(" > ", 0.0, long_tailed),
        compared.judged("A > B", 0.01, long_tailed),
        _SIZES,
        "0.01",
        sweeps=CHEAP,
    ),
    Claim(
        "A ≈ B (skewed)",
        "compare",
        r"{} ≈ {}",
        0.05,
        "comparisons",
        compared.judged("≈", PRECISE, long_tailed),
        compared.judged("≈", 0.0, long_tailed),
        f"{OF_RUNS}; 5 test sets of 6 runs, a difference of 0.005 on average",
        "no difference",
        sweeps=CHEAP,
    ),
    *(
        interval(
            f"{name} (skewed, {how})",
            "compare",
            wording,
            compared.misses(of, paired=paired, noise=long_tailed),
            compared.misses(of, paired=paired, better=0.01, power=value, noise=long_tailed),
            _SIZES,
            f"0.01: excludes {value:g}",
            sweeps=CHEAP,
        )
        for paired, how in ((True, "paired"), (False, "unpaired"))
        for name, of, wording, value in (
            ("A - B over seeds", "seeds", r"{} over seeds|Over seeds and new", 0.0),
            ("A - B over new test sets", "sets", "and new test sets", 0.0),
            ("P(A better than B) over seeds", "better", r"P\(A better", 0.5),
        )
    ),
    Claim(
        "Pairing runs saves 59 % of them (skewed)",
        "compare",
        r"±1, 92 % of intervals hold",
        0.08,
        "intervals",
        compared.misses("runs", paired=True, noise=long_tailed),
        compared.misses("runs", paired=True, power=0.0, noise=long_tailed),
        f"{OF_RUNS}: correlation 0.59; 92 % hold, as is said",
        "excludes 0",
        sweeps=CHEAP,
    ),
    *(
        interval(
            f"{source} {name}: sd 0.010 (skewed)",
            "variance",
            wording,
            components.component(source, part, truth, long_tailed),
            components.distinct(source, part, components.APART, long_tailed),
            _PARTS,
            "is told from 0",
        )
        for source, part, name, truth, wording in (
            ("init+batch", "all", "varying", 1.74, "this one test set"),
            ("init", "own", "by itself", 1.0, "by itself"),
            ("init", "alone", "alone", 1.25, "alone, all else held fixed"),
            ("test set", "between test sets", "between", 1.0, "between test sets, beyond"),
        )
    ),
    *(
        Claim(
            f"{name}, of crossed runs (skewed)",
            "variance",
            MISSED,
            HOLDS,
            "intervals",
            crossed.missed(source, part, long_tailed),
            crossed.told(source, part, parts, long_tailed),
            f"{OF_RUNS}: {crossed.EQUAL}; 84 % or more hold, as is said",
            effect,
        )
        for name, source, part, parts, effect in (
            ("interaction of init × batch", "init*batch", INTERACTION, crossed.ALIKE, FROM_0),
            ("init by itself", "init", OWN, (3.0, 1.0, 1.0), f"sd 3 times as large: {FROM_0}"),
        )
    ),
    interval(
        "A - B over seeds, of crossed cells (skewed)",
        "compare",
        "Over seeds, at",
        crossed.over_seeds(0.0, long_tailed),
        crossed.over_seeds(0.03, long_tailed),
        f"{OF_RUNS}: 3 test sets of 5 × 5 crossed runs, no difference on average",
        "0.03: excludes 0",
        sweeps=CHEAP,
    ),
    interval(
        "Accuracy 0.9 ± 0.003: 60 runs are enough (at all looks; skewed)",
        "until",
        r"known to ± {} after|: \{\} runs are enough",
        partial(needed.until_misses, noise=long_tailed),
        partial(needed.until_enough, noise=long_tailed),
        f"{OF_RUNS}: sd 0.01, on a grid of 500 points; looks every 10 runs",
        "is reached within 200 runs",
        sweeps=CHEAP,
    ),
    _skewed(
        "init by itself accounts for 70 %",
        "Of the variance between runs, init by itself accounts for 70 %",
        components.sources(components.NO_OWN, "by itself accounts for", noise=long_tailed),
        components.sources(components.APART, "init by itself accounts for", noise=long_tailed),
    ),
    _skewed(
        "Accuracy varies more between test sets than between seeds",
        "Accuracy varies more between test sets than between seeds",
        components.sources(components.SAME, "varies more between test sets", noise=long_tailed),
        components.sources(components.APART, "varies more between test sets", noise=long_tailed),
    ),
    _skewed(
        "Runs were made in several ways; these differ beyond chance",
        "Runs were made in several ways; these differ beyond chance (or: is not established)",
        lacking.recipes(0.0, "differ beyond chance", long_tailed),
        lacking.recipes(0.01, "differ beyond chance: by", long_tailed),
    ),
)
