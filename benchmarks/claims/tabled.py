"""Accuracies, spreads, effects, numbers of seeds and ranks: sentences from planted tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.claims.record import (
    MANY,
    NOTHING,
    OPTIONS,
    SIGNED,
    Claim,
    Tally,
    interval,
    miss,
    number,
    numbers,
)
from manyseed.analysis.questions.accuracy import accuracies, verdict
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.questions.howmany import PRECISE, fewest_runs
from manyseed.analysis.questions.question import answers
from manyseed.analysis.questions.standings import in_words, standings
from manyseed.analysis.tables.rows import Tables
from tests.analysis.planted import long_tailed, normal, planted

Real = NDArray[np.float64]


NAMES = ("a", "b", "c")
BETWEEN = 0.02


def of_classifier(**values: float) -> Callable[..., float]:
    return lambda _, classifier, *__: values[classifier]


def _moved(by: float, classifier: str | None = None) -> Callable[..., float]:
    def accuracy(_: str, name: str, scheme: str, __: float) -> float:
        return 0.9 - by * (scheme == "noise" and classifier in (None, name))

    return accuracy


SWEEPS: Mapping[str, Callable[..., Tables]] = {
    "alike": lambda **more: planted(2, NAMES, ("none", "noise"), repeats=4, runs=6, **more),
    "equal on one set": lambda **more: planted(2, NAMES, repeats=1, runs=6, **more),
    "better on one set": lambda **more: planted(
        2, NAMES, repeats=1, runs=6, accuracy=of_classifier(a=0.92, b=0.9, c=0.9), **more
    ),
    "better": lambda **more: planted(
        2, NAMES, repeats=4, runs=6, accuracy=of_classifier(a=0.92, b=0.9, c=0.9), **more
    ),
    "two best": lambda **more: planted(
        2, NAMES, repeats=4, runs=6, accuracy=of_classifier(a=0.9, b=0.9, c=0.85), **more
    ),
    "nearly alike": lambda **more: planted(
        2, NAMES[:2], repeats=4, runs=6, accuracy=of_classifier(a=0.9, b=0.895), sd=0.004, **more
    ),
    "precise": lambda **more: planted(2, NAMES[:2], repeats=4, runs=6, sd=0.002, **more),
    "varied": lambda **more: planted(
        2, NAMES, repeats=4, runs=6, sd=of_classifier(a=0.02, b=0.01, c=0.005), **more
    ),
    "two most": lambda **more: planted(
        2, NAMES, repeats=4, runs=6, sd=of_classifier(a=0.02, b=0.02, c=0.005), **more
    ),
    "two least": lambda **more: planted(
        2, NAMES, repeats=4, runs=6, sd=of_classifier(a=0.02, b=0.005, c=0.005), **more
    ),
    "moved": lambda **more: planted(
        2,
        NAMES[:2],
        ("none", "noise", "still"),
        repeats=4,
        runs=6,
        accuracy=_moved(0.02),
        consistency=lambda _, __, scheme, ___: 0.6 - 0.1 * (scheme == "noise"),
        **more,
    ),
    "barely moved": lambda **more: planted(
        2,
        NAMES[:2],
        ("none", "noise", "still"),
        repeats=4,
        runs=6,
        accuracy=_moved(0.008),
        **more,
    ),
    "widened": lambda **more: planted(
        2,
        NAMES[:2],
        ("none", "noise"),
        repeats=5,
        runs=10,
        sd=lambda _, __, scheme, ___: 0.015 if scheme == "noise" else 0.005,
        **more,
    ),
    "one cell": lambda **more: planted(1, NAMES[:1], repeats=3, runs=10, **more),
    "one set": lambda **more: planted(1, NAMES[:2], repeats=1, runs=6, **more),
    "few of each": lambda **more: planted(1, NAMES[:2], repeats=3, runs=3, **more),
    "few runs": lambda **more: planted(1, NAMES[:1], repeats=1, runs=8, **more),
    "lacking": lambda **more: planted(1, NAMES[:1], repeats=3, runs=6, missing=2, **more),
    "blind": lambda **more: planted(1, NAMES[:1], repeats=3, runs=6, delta=0.3, **more),
}


WITH_EFFECTS = ("alike", "moved", "barely moved", "widened")
SKEWED = ", skewed"


@lru_cache(16)
def tables_of(sweep: str, seed: int) -> Tables:
    """Return the tables of a planted sweep; of one whose name ends in `SKEWED`, skewed ones."""
    noise = long_tailed if sweep.endswith(SKEWED) else normal
    return SWEEPS[sweep.removesuffix(SKEWED)](seed=seed, noise=noise)


@cache
def effects_of(sweep: str, seed: int) -> pl.DataFrame:
    """Return its effects by classifier."""
    return effects(tables_of(sweep, seed), by=("classifier",))


@cache
def answered(sweep: str, seed: int) -> Mapping[str, str]:
    """Return its answers, by what they are about, a line each."""
    tables = tables_of(sweep, seed)
    finished = tables.runs.height
    lines: dict[str, list[str]] = {}
    found = answers(
        tables,
        effects_of(sweep, seed)
        if sweep.removesuffix(SKEWED) in WITH_EFFECTS
        else effects_of("one cell", 0),
        None,
        OPTIONS,
        planned=finished + (6 if sweep == "lacking" else 0),
        finished=finished,
    )
    for one in found:
        lines.setdefault(one.about, []).append(one.text)
    return {about: "\n".join(texts) for about, texts in lines.items()}


@cache
def verdicts(sweep: str, seed: int) -> tuple[str, ...]:
    """Return, for each dataset, which classifiers are said to be better."""
    return tuple(verdict(one) for one in accuracies(tables_of(sweep, seed)))


def judged(sweep: str, pattern: str) -> Callable[[int], Tally]:
    """Return in how many verdicts, one per dataset, a pattern occurs."""

    def count(seed: int) -> Tally:
        found = verdicts(sweep, seed)
        return Tally(sum(bool(re.search(pattern, one)) for one in found), len(found))

    return count


def says(sweep: str, about: str, pattern: str) -> Callable[[int], Tally]:
    """Return whether an answer matches a pattern."""
    return lambda seed: Tally(bool(re.search(pattern, answered(sweep, seed).get(about, ""))))


def share(
    sweep: str, about: str, pattern: str, is_so: Callable[..., bool]
) -> Callable[[int], Tally]:
    """Return in how many places where an answer matches a pattern its numbers are so."""

    def count(seed: int) -> Tally:
        found = list(numbers(pattern, answered(sweep, seed).get(about, "")))
        return Tally(sum(is_so(*one) for one in found), len(found))

    return count


def each(sweep: str, pattern: str, datasets: int = 2) -> Callable[[int], Tally]:
    """Return in how many sentences on accuracy, one per dataset, a pattern occurs."""

    def count(seed: int) -> Tally:
        lines = answered(sweep, seed)["accuracy"].splitlines()
        return Tally(sum(bool(re.search(pattern, line)) for line in lines), datasets)

    return count


def differences(seed: int) -> Tally:
    """Return how many sentences miss a difference between the best, a, and b or c: 0.02."""
    wrong = 0
    for line in answered("better", seed)["accuracy"].splitlines():
        best = re.search(r"together\), (\w)", line)
        truth = {"a": 0.02, "b": 0.0, "c": 0.0}
        parts = re.findall(r"(?:than (\w) by |from (\w) \(|and (\w) \()(\d\.\d+) ± (\d\.\d+)", line)
        level = truth[best[1]] if best else 0.0
        wrong += any(
            abs(number(one[3]) - (level - truth[one[0] or one[1] or one[2]])) > number(one[4])
            for one in parts
        )
    return Tally(wrong, 2)


LEVEL = r"\ba (0\.\d+) ± (\d\.\d+)"
SD = r"(0\.\d+) \((0\.\d+) to (\d\.\d+)\)"
_RATIO = r"(\d+\.\d) times \((\d+\.\d) to (\d+\.\d)\)"
MOVE = rf"perturb continuous noise in \w: {SIGNED} \({SIGNED} to {SIGNED}, 95 %"


def _spread_misses(seed: int) -> Tally:
    """Return how many standard deviations of the sentence miss those of their classifiers."""
    text = answered("varied", seed)["spread"]
    names = re.findall(r"(?:accuracy of|that of|for|and \S+ \(.*?\) for) ([abc])\b", text)
    truth = {"a": 0.02, "b": 0.01, "c": 0.005}
    first = re.search(r"accuracy of (\w)", text)
    found = list(numbers(SD, text))
    ends = [first[1] if first else "a", *[name for name in names if not first or name != first[1]]]
    wrong = sum(
        miss(low, truth[name], high, 5e-5)
        for (_, low, high), name in zip(found, ends, strict=False)
    )
    return Tally(wrong, len(found))


def _known_to(seed: int) -> Tally:
    """Return how many effects, all 0, are further off than the largest half-width that is said."""
    found = re.search(r"known to ± (\d\.\d+)", answered("alike", seed).get("effects", ""))
    if not found:
        return Tally(0, 0)
    of = effects_of("alike", seed).filter(metric="accuracy_mean")["difference"]
    return Tally(int((of.abs() > float(found[1])).sum()), of.len())


def needs(sd: float, half: float = PRECISE) -> int:
    return fewest_runs(lambda n: sd**2 / n, half) or 0


_TAKES = r"\(([\d,]+) (?:to ([\d,]+)|or more), 95 %(?: for all \d+ cells together)?; from"


def takes_misses(sweep: str, truth: int) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        found = re.search(_TAKES, answered(sweep, seed).get("enough", ""))
        if not found:
            return Tally(0, 0)
        low, high = number(found[1]), number(found[2]) if found[2] else math.inf
        return Tally(miss(low, truth, high))

    return count


def sd_that_needs(runs: int) -> float:
    sd = 0.001
    while needs(sd) < runs:
        sd *= 1.02
    return sd


def _has_enough(runs: int) -> Callable[[int], Tally]:
    """Return whether 8 runs are called enough where so many are needed."""
    sd = sd_that_needs(runs)

    def count(seed: int) -> Tally:
        tables = planted(1, NAMES[:1], repeats=3, runs=8, sd=sd, seed=seed)
        text = sentence_on(tables, "enough")
        return Tally("has enough runs for that" in text)

    return count


def sentence_on(tables: Tables, about: str, found: pl.DataFrame | None = None) -> str:
    """Return a sentence of a sweep of one cell."""
    return "\n".join(
        one.text
        for one in answers(tables, effects_of("one cell", 0), found, OPTIONS)
        if one.about == about
    )


def _ranks(accuracy: Any, pattern: str) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        tables = planted(10, NAMES, repeats=2, runs=3, accuracy=accuracy, seed=seed)
        ((text, _),) = in_words(standings(tables.cells))
        return Tally(bool(re.search(pattern, text)))

    return count


def _incomplete(sweep: str) -> Callable[[int], Tally]:
    return says(sweep, "missing", "^The results are incomplete: of 18 planned runs, 6 are missing")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "The results are incomplete",
        "answers",
        r"results are incomplete|repeats lack runs|^Incomplete: of",
        0.0,
        "sweeps",
        says("one cell", "missing", "."),
        _incomplete("lacking"),
        "all runs finished",
        "6 of 18 runs missing, to be counted",
    ),
    interval(
        "Accuracy on D: a 0.90 ± 0.01",
        "answers",
        r"± half of the 95 % interval over test sets",
        share("alike", "accuracy", LEVEL, lambda value, half: abs(value - 0.9) > half),
        share("alike", "accuracy", LEVEL, lambda value, half: abs(value - 0.8) > half),
        MANY,
        "excludes a value 5 sd between test sets away",
    ),
    Claim(
        "a is better than b by … (or: cannot be told apart)",
        "answers",
        r"Paired on the same test sets|^is better \{\}|which is better on others|"
        r"cannot be told apart from|pairs of classifiers|^\{\} better on each",
        0.05,
        "sentences",
        each("alike", r"is better than"),
        each("better", r"a is better than"),
        f"{NOTHING}: {MANY}",
        "one better by 0.02 (2 sd between seeds)",
    ),
    Claim(
        "a is better than b, of two that are best",
        "answers",
        r"cannot be told apart from",
        0.05,
        "sentences",
        each(
            "two best",
            r"(a is better than b|b is better than a|than [ab] by|is better .*and than [ab])",
        ),
        each("two best", r"is better than c by"),
        "two equal, the third worse by 0.05",
        "the third",
    ),
    Claim(
        "a > b, of any two (or: not told)",
        "answers",
        r"other pair|\{\} not told apart|pairs are told apart|^\{\} told apart|"
        r"^none told apart|"
        r"^Which is better: |^none of \{\} pairs can be told apart|^, on only \{\} test sets",
        0.05,
        "verdicts",
        judged("alike", " > "),
        judged("better", r"^a(, [bc])? > "),
        f"{NOTHING}: {MANY}",
        "one better by 0.02 (2 sd between seeds)",
    ),
    Claim(
        "On this test set: a > b; on others, not told",
        "answers",
        r"^On this test set: |^, even on this test set|^ Over seeds, on this test set alone",
        0.05,
        "verdicts",
        judged("equal on one set", " > "),
        judged("better on one set", r": a(, [bc])? > "),
        f"{NOTHING}: 2 datasets, 3 classifiers, one test set of 6 runs",
        "one better by 0.02 (2 sd between seeds)",
    ),
    Claim(
        "a > b, of two that are equal",
        "answers",
        r"pairs are told apart|other pair|\{\} not told apart",
        0.05,
        "verdicts",
        judged("two best", r"\ba > [^;]*\bb\b|\bb > [^;]*\ba\b"),
        judged("two best", "> c"),
        "two equal, the third worse by 0.05",
        "the third",
    ),
    Claim(
        "a ≈ b: they differ by less than 0.005",
        "answers",
        r"{} ≈ {}",
        0.05,
        "verdicts",
        judged("nearly alike", "≈"),
        judged("precise", "≈"),
        "2 classifiers that differ by 0.005, sd of 0.004",
        "equal ones, sd of 0.002",
    ),
    interval(
        "… by 0.02 ± 0.01 (all differences from the best)",
        "answers",
        r"Paired on the same test sets",
        differences,
        each("better", r"a is better than"),
        "one better by 0.02",
        "excludes 0",
    ),
    Claim(
        "Between seeds, the accuracy of a varies most (or: cannot be told), and that of b least",
        "answers",
        r"varies most (between seeds cannot|is not told)|accuracy of {} varies|of {} least|"
        r"most of those whose runs differ enough$|more than that|Between seeds, sd of|"
        r"^\{\} varies more than \{\}$",
        0.05,
        "sweeps",
        says("alike", "spread", "^Between seeds"),
        says("varied", "spread", "^Between seeds, the accuracy of a varies most.* that of c least"),
        f"{NOTHING}: {MANY}",
        "sd of 0.02, 0.01 and 0.005",
    ),
    Claim(
        "… varies most, of two that do (or: which cannot be told)",
        "answers",
        r"Which of {} varies {} cannot be told",
        0.05,
        "sweeps",
        says("two most", "spread", "varies most,"),
        says("two most", "spread", "varies more than that of c"),
        "sd of 0.02, 0.02 and 0.005",
        "more than the third",
    ),
    Claim(
        "… varies least, of two that do (or: which cannot be told)",
        "answers",
        r"That of {} varies least|Which of {} varies {} cannot be told",
        0.05,
        "sweeps",
        says("two least", "spread", r"(that of [bc] least|That of [bc] varies least)"),
        says("two most", "spread", r"That of c varies least"),
        "sd of 0.02, 0.005 and 0.005",
        "sd of 0.02, 0.02 and 0.005",
    ),
    interval(
        "… with a standard deviation of 0.02 (0.01 to 0.03)",
        "answers",
        r"with a standard deviation of|over {} on the",
        _spread_misses,
        share("varied", "spread", SD, lambda _, low, high: miss(low, 0.01, high)),
        "sd of 0.02, 0.01 and 0.005; largest and smallest stated",
        "excludes 0.01",
    ),
    interval(
        "… of the largest and smallest of equal ones",
        "answers",
        r"with a standard deviation of|its standard deviation is",
        share("alike", "spread", SD, lambda _, low, high: miss(low, 0.01, high, 5e-5)),
        share("alike", "spread", SD, lambda _, low, high: miss(low, 0.02, high)),
        f"{NOTHING}: {MANY}",
        "excludes twice the sd",
    ),
    interval(
        "… of a single classifier",
        "answers",
        r"varies with a standard deviation",
        share("one cell", "spread", SD, lambda _, low, high: miss(low, 0.01, high, 5e-5)),
        share("one cell", "spread", SD, lambda _, low, high: miss(low, 0.02, high)),
        "3 test sets of 10 runs",
        "excludes twice the sd",
    ),
    interval(
        "Between seeds, sd of accuracy on this test set: a 0.010 (0.006 to 0.025)",
        "answers",
        r"sd of accuracy on \{\}: |^On \{\}, accuracy varies|each by itself$|"
        r"which classifier varies most\.",
        share("one set", "spread", SD, lambda _, low, high: miss(low, 0.01, high, 5e-5)),
        share("one set", "spread", SD, lambda _, low, high: miss(low, 0.04, high)),
        "2 classifiers, 1 test set of 6 runs; each interval",
        "excludes four times the sd",
    ),
    interval(
        "… on these test sets",
        "answers",
        r"sd of accuracy on \{\}: |^On \{\}, accuracy varies",
        share("few of each", "spread", SD, lambda _, low, high: miss(low, 0.01, high, 5e-5)),
        share("few of each", "spread", SD, lambda _, low, high: miss(low, 0.04, high)),
        "2 classifiers, 3 test sets of 3 runs; each interval",
        "excludes four times the sd",
    ),
    interval(
        "… 4 times (2 to 8) as much",
        "answers",
        r"for the ratio over all {} pairs",
        share("alike", "spread", _RATIO, lambda _, low, __: low > 1),
        share("varied", "spread", _RATIO, lambda _, low, __: low > 1),
        f"{NOTHING}: {MANY}",
        "sd of 0.02, 0.01 and 0.005: excludes 1",
    ),
    Claim(
        "Accuracy changes beyond chance (or: no factor is found)",
        "answers, effects",
        r"changes beyond chance|No factor is found|^Nothing is found|Holm, {} for all|"
        r"when corrected for multiple|"
        r"^Matters for \{\}$|^the largest estimates:$|^ \(largest \{\} ± \{\}, in",
        0.05,
        "sweeps",
        says("alike", "effects", "changes beyond chance"),
        says("moved", "effects", "changes beyond chance in .*noise in"),
        f"{NOTHING}: 3 comparisons over 8 test sets",
        "a scheme that costs 0.02 (2 sd between seeds)",
    ),
    Claim(
        "… of a level without an effect, beside one with (or: no effect is established)",
        "answers, effects",
        r"No effect is established of",
        0.05,
        "sweeps",
        says("moved", "effects", "estimates:.*still in .*No effect|in [34] of"),
        says("moved", "effects", "estimates:.*noise in .*noise in"),
        "of two levels, one costs 0.02",
        "that one, in both classifiers",
    ),
    Claim(
        "Local error consistency changes beyond chance (or: no factor is found)",
        "answers, effects",
        r"changes beyond chance in|No factor is found|^Nothing is found",
        0.05,
        "sweeps",
        says("alike", "consistency", "changes beyond chance"),
        says("moved", "consistency", "changes beyond chance in .*noise in"),
        f"{NOTHING}: 3 comparisons over 8 test sets",
        "a scheme that costs 0.1 (2 sd of a run's part)",
    ),
    *(
        Claim(
            f"The sd between seeds is larger with noise{more}",
            "answers",
            r"sd is larger with|sd is larger beyond chance|^ These, and all others",
            0.05,
            "sweeps",
            says(f"moved{more}", "spread", "is larger beyond chance"),
            says(f"widened{more}", "spread", "is larger beyond chance .* noise in"),
            "two schemes that move accuracies, not their sd; 8 test sets",
            "three times the sd, on 10 test sets",
        )
        for more in ("", SKEWED)
    ),
    interval(
        "… noise in a: −0.02 (−0.03 to −0.01, 95 %)",
        "answers, effects",
        r"changes beyond chance in|\(\{\} to \{\}, 95 %\{\}; \{\}\)",
        share("moved", "effects", MOVE, lambda _, low, high: miss(low, -0.02, high)),
        share("moved", "effects", MOVE, lambda _, low, high: miss(low, -0.01, high)),
        "a scheme that costs 0.02, nearly always named",
        "excludes half of it",
    ),
    interval(
        "… of effects that are named only if large by chance",
        "answers, effects",
        r"changes beyond chance in",
        share("barely moved", "effects", MOVE, lambda _, low, high: miss(low, -0.008, high)),
        says("barely moved", "effects", "changes beyond chance"),
        "a scheme that costs 0.008; intervals of those named",
        "is named",
    ),
    interval(
        "Each effect is known to ± 0.005 or better",
        "answers, effects",
        r"effect is known to|^ or better$",
        _known_to,
        says("moved", "effects", "changes beyond chance"),
        f"{NOTHING}: the largest half-width for each of 3 comparisons",
        "an effect of 0.02 is found",
    ),
    Claim(
        "With so few test points, α̂ cannot detect differences",
        "answers",
        r"With so few test points|too small for|"
        r"takes test sets of about {} points",
        0.0,
        "sweeps",
        says("one cell", "levels", "With so few"),
        says("blind", "levels", "With so few"),
        "δ = 0.04",
        "δ = 0.3",
    ),
    interval(
        "Knowing the mean to ± 0.005 takes 16 runs (11 to 30), of one cell",
        "answers",
        r"Knowing the mean accuracy of",
        takes_misses("one cell", needs(0.01)),
        takes_misses("one cell", 4 * needs(0.01)),
        "3 test sets of 10 runs",
        "excludes four times as many",
    ),
    interval(
        "… of the cell with the largest standard deviation of 12",
        "answers",
        r"by their standard deviations so far|for all {} cells together",
        takes_misses("alike", needs(0.01)),
        takes_misses("alike", 4 * needs(0.01)),
        "12 cells with one sd, 4 test sets of 6 runs",
        "excludes four times as many",
    ),
    Claim(
        "Each repeat has enough runs for that (or: too few)",
        "answers",
        r"enough runs for that|too few runs for that|cells have enough|enough in any case|"
        r"^each test set has \{\}",
        0.05,
        "sweeps",
        _has_enough(16),
        _has_enough(4),
        "twice as many runs are needed as there are",
        "half as many",
    ),
    Claim(
        "Beyond chance, ranks tell a from b (or: no two apart)",
        "answers, captions",
        r"anks tell|those less than {} apart|the test is rough|critical difference",
        0.05,
        "sweeps",
        _ranks(0.9, "Beyond chance"),
        _ranks(of_classifier(a=0.91, b=0.9, c=0.89), "tell .*a from c"),
        f"{NOTHING}: 3 classifiers on 10 datasets",
        "steps of 0.01 (2.4 standard errors)",
    ),
)
