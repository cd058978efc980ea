"""Each kind of sentence that results can say, what it promises, and sweeps planted to measure it.

`CLAIMS` holds a record per kind. A null generator plants a sweep in which the sentence must not be
said (or, for an interval, one whose truth is known); an effect generator plants one in which it
must be said. Both return how often that was so, and out of how many. Sentences without a rate,
such as counts and definitions, are in `PLAIN`. Nothing is trained: tables are made directly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.group import analyze_group, compute
from manyseed.analysis.options import Options
from manyseed.analysis.questions import missing, suspects
from manyseed.analysis.questions.answers import PRECISE, answers
from manyseed.analysis.questions.comparing import Side, compare, compare_apart
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.questions.ensemble_size import for_alpha
from manyseed.analysis.questions.howmany import fewest_runs, for_mean, howmany
from manyseed.analysis.questions.sequential import decide
from manyseed.analysis.questions.standings import in_words, standings
from manyseed.analysis.questions.variance import variance
from manyseed.analysis.response.corpora import information
from manyseed.analysis.tables.schema import Tables
from manyseed.orchestrator.results.compared import Compared, OneCell, words
from manyseed.orchestrator.results.until import Answered
from manyseed.orchestrator.results.variance import sentence
from tests.analysis.planted import planted
from tests.analysis.samples import predictions, regular

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
    why : str
        Why the promise is not kept, if it is not.
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
    sweeps: int = 250
    why: str = ""


OPTIONS = Options()
SIGNED = r"([+−-]?\d+\.\d+)"


def _number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def _numbers(pattern: str, text: str) -> Iterator[tuple[float, ...]]:
    for found in re.findall(pattern, text):
        yield tuple(map(_number, found if isinstance(found, tuple) else (found,)))


def _miss(low: float, truth: float, high: float, digits: float = 0.0) -> bool:
    """Return whether an interval misses the truth, by more than it was rounded."""
    return not low - digits <= truth <= high + digits


# ---- answers: planted tables

NAMES = ("a", "b", "c")
BETWEEN = 0.02


def _of(**values: float) -> Callable[..., float]:
    return lambda _, classifier, *__: values[classifier]


def _moved(by: float, classifier: str | None = None) -> Callable[..., float]:
    def accuracy(_: str, name: str, scheme: str, __: float) -> float:
        return 0.9 - by * (scheme == "noise" and classifier in (None, name))

    return accuracy


SWEEPS: Mapping[str, Callable[[int], Tables]] = {
    "alike": lambda seed: planted(2, NAMES, ("none", "noise"), repeats=4, runs=6, seed=seed),
    "better": lambda seed: planted(
        2, NAMES, repeats=4, runs=6, accuracy=_of(a=0.92, b=0.9, c=0.9), seed=seed
    ),
    "two best": lambda seed: planted(
        2, NAMES, repeats=4, runs=6, accuracy=_of(a=0.9, b=0.9, c=0.85), seed=seed
    ),
    "varied": lambda seed: planted(
        2, NAMES, repeats=4, runs=6, sd=_of(a=0.02, b=0.01, c=0.005), seed=seed
    ),
    "two most": lambda seed: planted(
        2, NAMES, repeats=4, runs=6, sd=_of(a=0.02, b=0.02, c=0.005), seed=seed
    ),
    "two least": lambda seed: planted(
        2, NAMES, repeats=4, runs=6, sd=_of(a=0.02, b=0.005, c=0.005), seed=seed
    ),
    "moved": lambda seed: planted(
        2,
        NAMES[:2],
        ("none", "noise", "still"),
        repeats=4,
        runs=6,
        accuracy=_moved(0.02),
        consistency=lambda _, __, scheme, ___: 0.6 - 0.1 * (scheme == "noise"),
        seed=seed,
    ),
    "barely moved": lambda seed: planted(
        2,
        NAMES[:2],
        ("none", "noise", "still"),
        repeats=4,
        runs=6,
        accuracy=_moved(0.008),
        seed=seed,
    ),
    "one cell": lambda seed: planted(1, NAMES[:1], repeats=3, runs=10, seed=seed),
    "few runs": lambda seed: planted(1, NAMES[:1], repeats=1, runs=8, seed=seed),
    "lacking": lambda seed: planted(1, NAMES[:1], repeats=3, runs=6, missing=2, seed=seed),
    "blind": lambda seed: planted(1, NAMES[:1], repeats=3, runs=6, delta=0.3, seed=seed),
}


@lru_cache(16)
def tables_of(sweep: str, seed: int) -> Tables:
    """Return the tables of a planted sweep."""
    return SWEEPS[sweep](seed)


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
        effects_of(sweep, seed),
        None,
        OPTIONS,
        planned=finished + (6 if sweep == "lacking" else 0),
        finished=finished,
    )
    for one in found:
        lines.setdefault(one.about, []).append(one.text)
    return {about: "\n".join(texts) for about, texts in lines.items()}


def _says(sweep: str, about: str, pattern: str) -> Callable[[int], Tally]:
    """Return whether an answer matches a pattern."""
    return lambda seed: Tally(bool(re.search(pattern, answered(sweep, seed).get(about, ""))))


def _share(
    sweep: str, about: str, pattern: str, is_so: Callable[..., bool]
) -> Callable[[int], Tally]:
    """Return in how many places where an answer matches a pattern its numbers are so."""

    def count(seed: int) -> Tally:
        found = list(_numbers(pattern, answered(sweep, seed).get(about, "")))
        return Tally(sum(is_so(*one) for one in found), len(found))

    return count


def _each(sweep: str, pattern: str, datasets: int = 2) -> Callable[[int], Tally]:
    """Return in how many sentences on accuracy, one per dataset, a pattern occurs."""

    def count(seed: int) -> Tally:
        lines = answered(sweep, seed)["accuracy"].splitlines()
        return Tally(sum(bool(re.search(pattern, line)) for line in lines), datasets)

    return count


def _differences(seed: int) -> Tally:
    """Return how many sentences miss a difference between the best, a, and b or c: 0.02."""
    wrong = 0
    for line in answered("better", seed)["accuracy"].splitlines():
        best = re.search(r"together\), (\w)", line)
        truth = {"a": 0.02, "b": 0.0, "c": 0.0}
        parts = re.findall(r"(?:than (\w) by |from (\w) \(|and (\w) \()(\d\.\d+) ± (\d\.\d+)", line)
        level = truth[best[1]] if best else 0.0
        wrong += any(
            abs(_number(one[3]) - (level - truth[one[0] or one[1] or one[2]])) > _number(one[4])
            for one in parts
        )
    return Tally(wrong, 2)


_LEVEL = r"\ba (0\.\d+) ± (\d\.\d+)"
_SD = r"(0\.\d+) \((0\.\d+) to (\d\.\d+)\)"
_RATIO = r"(\d+\.\d) times \((\d+\.\d) to (\d+\.\d)\)"
_MOVE = rf"perturb continuous noise in \w: {SIGNED} \({SIGNED} to {SIGNED}, 95 %"


def _spread_misses(seed: int) -> Tally:
    """Return how many standard deviations of the sentence miss those of their classifiers."""
    text = answered("varied", seed)["spread"]
    names = re.findall(r"(?:accuracy of|that of|for|and \S+ \(.*?\) for) ([abc])\b", text)
    truth = {"a": 0.02, "b": 0.01, "c": 0.005}
    first = re.search(r"accuracy of (\w)", text)
    found = list(_numbers(_SD, text))
    ends = [first[1] if first else "a", *[name for name in names if not first or name != first[1]]]
    wrong = sum(
        _miss(low, truth[name], high, 5e-5)
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


def _needs(sd: float, half: float = PRECISE) -> int:
    return fewest_runs(lambda n: sd**2 / n, half) or 0


_TAKES = r"\(([\d,]+) (?:to ([\d,]+)|or more), 95 %(?: for all \d+ cells together)?; from"


def _takes_misses(sweep: str, truth: int) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        found = re.search(_TAKES, answered(sweep, seed).get("enough", ""))
        if not found:
            return Tally(0, 0)
        low, high = _number(found[1]), _number(found[2]) if found[2] else math.inf
        return Tally(_miss(low, truth, high))

    return count


def _has_enough(runs: int) -> Callable[[int], Tally]:
    """Return whether 8 runs are called enough where so many are needed."""
    sd = 0.001
    while _needs(sd) < runs:
        sd *= 1.02

    def count(seed: int) -> Tally:
        tables = planted(1, NAMES[:1], repeats=3, runs=8, sd=sd, seed=seed)
        text = _sentence_on(tables, "enough")
        return Tally("has enough runs for that" in text)

    return count


def _sentence_on(tables: Tables, about: str, found: pl.DataFrame | None = None) -> str:
    """Return a sentence of a sweep of one cell."""
    return "\n".join(
        one.text
        for one in answers(tables, effects_of("one cell", 0), found, OPTIONS)
        if one.about == about
    )


# ---- ranks


def _ranks(accuracy: Any, pattern: str) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        tables = planted(10, NAMES, repeats=2, runs=3, accuracy=accuracy, seed=seed)
        ((text, _),) = in_words(standings(tables.cells))
        return Tally(bool(re.search(pattern, text)))

    return count


# ---- α̂: planted scores

POINTS, RUNS = 4400, 6
_ALPHA = Options(metrics=("alpha_hat",), resamples=20, alpha_bootstrap=0)
_WITH_INTERVAL = replace(_ALPHA, alpha_bootstrap=40)


@cache
def levels(seed: int, apart: tuple[float, ...], options: Options = _ALPHA) -> Tables:
    """Return the analysis of six runs; `apart` are shares of the points moved, by run.

    They are moved far off, each run's to their own place; if all six have some, among the others.
    """
    rng = np.random.default_rng([abs(seed), seed < 0, 17])
    gap = rng.normal(size=POINTS) + 0.5 * rng.normal(size=(RUNS, POINTS))
    for run, share in enumerate(apart):
        moved = rng.permutation(POINTS)[: round(share * POINTS)]
        place = 0.5 * run - 1.25 if len(apart) == RUNS else 20 + 5 * run
        gap[run, moved] = place + 0.1 * rng.normal(size=moved.size)
    score = np.zeros((RUNS, 1, POINTS, 2), np.float32)
    score[:, 0, :, 1] = gap
    y_true = rng.integers(0, 2, (1, POINTS)).astype(np.uint16)
    (found,) = compute([analyze_group(predictions(score, y_true, regular(1, 1, RUNS)), options)])
    own = {"dataset": pl.lit("data-00"), "classifier": pl.lit("a")}
    return replace(
        found, runs=found.runs.with_columns(**own), repeats=found.repeats.with_columns(**own)
    )


def _alike(seed: int, apart: tuple[float, ...], options: Options = _ALPHA) -> str:
    """Return the sentence on runs that are unlike the others."""
    found = levels(seed, apart, options)
    tables = planted(1, NAMES[:1], repeats=1, runs=RUNS, seed=seed)
    key = ["cell", "repeat_index", "run_index"]
    names = [name for name in found.runs.columns if name.startswith("alpha_hat")]
    runs = tables.runs.drop("alpha_hat").join(found.runs.select(*key, *names), on=key)
    delta = float(found.repeats["delta"][0])
    return _sentence_on(
        replace(tables, runs=runs, repeats=tables.repeats.with_columns(delta=pl.lit(delta))),
        "levels",
    )


NONE = (0.0,) * RUNS
ONE, COLLAPSED, DIVIDED = (0.0, 0.0, 0.0, 0.2), (0.0, 0.0, 1.0), (1.0, 1.0, 1.0)
SCATTERED = (0.25,) * RUNS


def _level(
    apart: tuple[float, ...], pattern: str, options: Options = _ALPHA
) -> Callable[[int], Tally]:
    return lambda seed: Tally(bool(re.search(pattern, _alike(seed, apart, options))))


def _unlike(seed: int) -> Tally:
    """Return how many of six like runs are said to be unlike."""
    found = re.search(r"^(\d) of 6 runs", _alike(seed, NONE))
    return Tally(int(found[1]) if found else 0, RUNS)


ALPHA_OF_SCATTERED = (0.2545, 0.2411, 0.2330, 0.2330, 0.2411, 0.2545)
"""Mean α̂ of each run over 60 test sets, those in the same place on either side together."""


def _level_interval(seed: int, *, power: bool = False) -> Tally:
    text = _alike(seed, SCATTERED, _WITH_INTERVAL)
    found = re.search(r"\((\d\.\d+) to (\d\.\d+), 95 % for new.*? run (\d) of cell", text)
    if not found:
        return Tally(0, 0)
    low, high = float(found[1]), float(found[2])
    return Tally(
        low > OPTIONS.close if power else _miss(low, ALPHA_OF_SCATTERED[int(found[3])], high, 0.005)
    )


def _suspects(apart: tuple[float, ...], pattern: str) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        found = levels(seed, apart)
        notes = suspects.notes(found.repeats.lazy(), found.runs.lazy(), _ALPHA)
        return Tally(bool(re.search(pattern, " ".join(notes))))

    return count


# ---- howmany


def _howmany(of: int, truth: int) -> Callable[[int], Tally]:
    """Return whether the interval of an answer misses the truth."""

    def count(seed: int) -> Tally:
        text = howmany(tables_of("one cell", seed))[of].words
        found = re.search(r"needed \(([\d,]+) (?:to ([\d,]+)|or more), 95 %\)", text)
        if not found:
            return Tally(0, 0)
        high = _number(found[2]) if found[2] else math.inf
        return Tally(_miss(_number(found[1]), truth, high))

    return count


def _more_than_twice(of: int, truth: int) -> Callable[[int], Tally]:
    """Return whether the interval of an answer excludes four times the truth."""

    def count(seed: int) -> Tally:
        answer = howmany(tables_of("one cell", seed))[of]
        return Tally(answer.high is not None and answer.high < 4 * truth)

    return count


def _differing(share: float) -> Callable[[int], Tally]:
    """Return whether runs of which `share` differ are said to differ less."""

    def count(seed: int) -> Tally:
        drawn = np.random.default_rng([seed, 3]).random((1, 12)) < share
        answer = for_mean("x", [0.9 + 0.025 * drawn[0]], PRECISE, resolution=1 / 40)
        found = re.search(r"up to (\d+)% of further", answer.words)
        return Tally(bool(found) and share > int(found[1]) / 100 + 0.005)  # type: ignore[index]

    return count


def _says_equal(seed: int) -> Tally:
    same = for_mean("x", [np.full(12, 0.9)], PRECISE, resolution=1 / 40)
    return Tally(same.runs is None and "of further runs may differ" in same.words)


def _ensembles(passing: float) -> Callable[[int], Tally]:
    """Return whether a larger share of ensembles is said to pass than does."""

    def count(seed: int) -> Tally:
        rng = np.random.default_rng([seed, 5])
        draws = 60
        close = rng.binomial(draws, [passing, passing, 1.0], 3) / draws
        table = pl.DataFrame(
            {
                "size": [5, 10, 30],
                "close": close,
                "accepted": close,
                "distinct": draws,
                "models": 60,
                "delta": 0.04,
                "n_side": 4000,
            }
        )
        text = for_alpha(table, made=120, epsilon=0.01)[0].words
        found = re.search(r"needed.*different ensembles .*at least (\d+\.\d)%", text)
        size = re.search(r": (\d+) runs are needed", text)
        if not found or not size:
            return Tally(0)
        truth = 1.0 if size[1] == "30" else passing
        return Tally(100 * truth < float(found[1]) if passing < 1 else size[1] == "5")

    return count


# ---- compare

_CELL = OneCell("sweep", 0, "", 0, dict.fromkeys(AXES, ""))
SEED, SHARED, MOVES, EASY = 0.005, 0.006, 0.004, 0.02  # standard deviations


@cache
def compared(
    seed: int, better: float, *, paired: bool, sets: int = 5, apart: bool = False
) -> tuple[str, Real]:
    """Return what is said of A and B of 6 runs on each test set, and A - B of each test set."""
    rng = np.random.default_rng([seed, 7])
    runs = 6
    easy, moves = EASY * rng.normal(size=(2, sets, 1)), MOVES * rng.normal(size=(sets, 1))
    shared = SHARED * rng.normal(size=(sets, runs)) * paired
    a = 0.9 + better + easy[0] + moves + shared + SEED * rng.normal(size=(sets, runs))
    b = 0.9 + easy[int(apart)] + shared + SEED * rng.normal(size=(sets, runs))
    sides = [Side(own) for own in a], [Side(own) for own in b]
    result = compare_apart(*sides) if apart else compare(*sides, paired=paired)
    found = Compared(
        _CELL, _CELL, {}, "accuracy", True, 0.95, not apart, (0, 0), ("init",) * paired, result
    )
    return " ".join(words(found)), better + moves[:, 0]


_ENDS = {
    "seeds": rf"Over seeds, at these.*?: {SIGNED} to {SIGNED} ",
    "sets": rf"Over seeds and new test sets.*?: {SIGNED} to {SIGNED} ",
    "better": r"P\(A better than B\) = [\d.]+ \((\d\.\d+) to (\d\.\d+) over seeds",
    "better sets": r"(\d\.\d+) to (\d\.\d+) over new test sets, too",
    "runs": r"Pairing runs saves .*?, (-?\d+) to (-?\d+) %",
    "test sets": r"Sharing test sets saves .*?, (-?\d+) to (-?\d+) %",
}


def _truth(of: str, moved: Real, *, paired: bool) -> float:
    wide = math.hypot(SEED, SHARED * paired) * math.sqrt(2)  # two runs that share nothing
    if of == "better sets":
        return 0.5
    return {
        "seeds": float(moved.mean()),
        "sets": 0.0,
        "better": float(stats.norm.cdf(moved / wide).mean()),
        "runs": 100 * SHARED**2 / (SHARED**2 + SEED**2),
        "test sets": 100
        * (
            1
            - (MOVES**2 + 2 * SEED**2 / 6)
            / (2 * EASY**2 + MOVES**2 + 2 * (SEED**2 + SHARED**2) / 6)
        ),
    }[of]


def _compared(
    of: str, *, paired: bool, better: float = 0.0, power: float | None = None, apart: bool = False
) -> Callable[[int], Tally]:
    """Return whether an interval misses the truth or, given `power`, excludes that value."""
    rounded = {"better": 0.005, "better sets": 0.005, "runs": 0.5, "test sets": 0.5}.get(of, 5e-5)

    def count(seed: int) -> Tally:
        text, moved = compared(seed, better, paired=paired, apart=apart)
        found = re.search(_ENDS[of], text)
        if not found:
            return Tally(0, 0)
        low, high = map(_number, found.groups())
        if power is not None:
            return Tally(_miss(low, power, high))
        return Tally(_miss(low, _truth(of, moved, paired=paired), high, rounded))

    return count


# ---- variance


def _parts(
    seed: int,
    init: float,
    batch: float,
    together: float,
    of_set: float,
    shape: tuple[int, int] = (4, 8),
) -> Tables:
    """Return tables of cells that vary init, batch, both, and both with noise of variance 1.

    Parts are in units of 0.01.
    """
    rng = np.random.default_rng([seed, 11])
    repeats, runs = shape
    drawn, fixed = rng.normal(size=(2, repeats, runs)), rng.normal(size=(2, repeats, 1))
    sets = of_set * rng.normal(size=(repeats, 1))
    key = dict.fromkeys(AXES, "none") | {"dataset": "one", "classifier": "mlp"}
    of_runs, of_repeats = [], []
    noise = rng.normal(size=(repeats, runs))
    for cell, vary in enumerate(("init", "batch", "init+batch", "init+batch")):
        x = drawn[0] if "init" in vary else fixed[0]
        y = drawn[1] if "batch" in vary else fixed[1]
        value = 0.9 + 0.01 * (init * x + batch * y + together * x * y + sets + 0 * drawn[0])
        more = {"cell": cell, "vary": vary, "train_fraction": 1.0, "hparams": "default"}
        if cell == 3:
            more["perturb_continuous"] = "relative:0.1"
            value = value + 0.01 * noise
        for repeat in range(repeats):
            of_repeats.append({**key, **more, "repeat_index": repeat, "n_runs": runs})
            of_runs += [(cell, repeat, run, float(value[repeat, run])) for run in range(runs)]
    types = {"cell": pl.UInt32, "repeat_index": pl.UInt16}
    ends = {"run_i": pl.UInt16, "run_j": pl.UInt16, "ec_local": pl.Float64, "ec_global": pl.Float64}
    return Tables(
        pl.DataFrame(
            of_runs,
            schema={**types, "run_index": pl.UInt16, "accuracy": pl.Float64},
            orient="row",
        ),
        pl.DataFrame(schema={**types, **ends}),
        pl.DataFrame(of_repeats).cast(types),  # type: ignore[arg-type]
        pl.DataFrame(),
    )


Parts = tuple[float, float, float, float]
NO_BATCH: Parts = (1.0, 0.0, 0.5, 1.0)  # batch matters only together with init
NO_OWN: Parts = (0.0, 0.0, 1.0, 1.0)
ALL_PARTS: Parts = (1.0, 0.7, 0.5, 1.0)
SAME: Parts = (1.0, 0.7, 0.0, 1.2)  # test sets vary as much as runs
APART: Parts = (0.5, 0.3, 0.0, 4.0)
QUIET: Parts = (0.3, 0.2, 0.0, 1.0)  # less than the noise of the perturbed cell


@cache
def varied(seed: int, parts: Parts, shape: tuple[int, int] = (4, 8)) -> pl.DataFrame:
    """Return the variance components of planted parts, of so many test sets and runs on each."""
    return variance(_parts(seed, *parts, shape))


def _components(
    seed: int, parts: Parts, shape: tuple[int, int] = (4, 8)
) -> Mapping[tuple[str, str], str]:
    rows = varied(seed, parts, shape).filter(metric="accuracy").iter_rows(named=True)
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        found.setdefault((row["source"], row["part"]), sentence(row))
    return found


_LOW_HIGH = r"\((-?[\d.e-]+) to (-?[\d.e+-]+), 95 %"


def _component(source: str, part: str, truth: float) -> Callable[[int], Tally]:
    """Return whether the interval of a component misses the truth, in units of 1e-4."""

    def count(seed: int) -> Tally:
        text = _components(seed, ALL_PARTS)[source, part]
        found = re.search(_LOW_HIGH, text)
        if not found:
            return Tally(0, 0)
        low, high = float(found[1]), float(found[2])
        value = 1e-4 * truth
        return Tally(_miss(low, math.sqrt(value) if ": sd" in text else value, high, 5e-6))

    return count


def _distinct(source: str, part: str, parts: Parts) -> Callable[[int], Tally]:
    """Return whether a component is told from 0; joint parts take more runs than others."""
    shape = (8, 20) if part == "together" else (4, 8)
    return lambda seed: Tally(": sd" in _components(seed, parts, shape)[source, part])


def _hard(rng: np.random.Generator, shape: tuple[int, ...], scales: Sequence[float]) -> Any:
    """Return which of 200 points are wrong: those whose difficulty and parts of runs exceed 1.5."""
    parts = [scale * rng.normal(size=shape) for scale in scales]
    return rng.normal(size=(*shape[:-2], 1, shape[-1])), parts


INIT, BATCH, LIMIT = 0.6, 0.3, 1.5


@cache
def varied_errors(seed: int) -> Mapping[tuple[str, str, str], str]:
    """Return the sentences on errors, by metric, source and part; 3 test sets of 6 runs."""
    rng = np.random.default_rng([seed, 29])
    repeats, runs, points = 3, 6, 200
    hard, (init, batch) = _hard(rng, (repeats, runs, points), (INIT, BATCH))
    tables = _parts(seed, 1, 1, 0, 0, (repeats, runs))
    i, j = np.triu_indices(runs, 1)
    rows, of_runs = [], []
    for cell, vary in enumerate(("init", "batch", "init+batch")):
        x = init if "init" in vary else init[:, :1]
        y = batch if "batch" in vary else batch[:, :1]
        wrong = hard + x + y + 0 * init > LIMIT
        both = (wrong[:, i] & wrong[:, j]).mean(axis=2)
        either = (wrong[:, i] | wrong[:, j]).mean(axis=2)
        accuracy = 1 - wrong.mean(axis=2)
        of_runs += [(cell, r, k, accuracy[r, k]) for r, k in np.ndindex(repeats, runs)]
        rows += [
            (cell, r, i[k], j[k], both[r, k] / either[r, k], both[r, k])
            for r, k in np.ndindex(*both.shape)
        ]
    tables = replace(
        tables,
        runs=pl.DataFrame(of_runs, schema=tables.runs.schema, orient="row"),
        pairs=pl.DataFrame(rows, schema=tables.pairs.schema, orient="row"),
        repeats=tables.repeats.filter(pl.col("cell") < 3),
    )
    return {
        (row["metric"], row["source"], row["part"]): sentence(row)
        for row in variance(tables).iter_rows(named=True)
    }


@cache
def _variance_of_errors(metric: str, part: str) -> float:
    """Return the true variance: of all sources, or the own part of init."""
    if metric == "ec_local":  # of a pair of runs, over pairs, from many test sets
        rng = np.random.default_rng(31)
        hard, (own,) = _hard(rng, (1000, 40, 200), (math.hypot(INIT, BATCH),))
        wrong = hard + own > LIMIT
        one, two = wrong[:, ::2], wrong[:, 1::2]
        values = (one & two).mean(axis=2) / (one | two).mean(axis=2)
        return float(values.var(axis=1, ddof=1).mean())
    x = np.linspace(-9, 9, 4001)
    weight = stats.norm.pdf(x) * (x[1] - x[0])

    def both_wrong(shared: float, drawn: float) -> float:
        return float(weight @ stats.norm.sf((LIMIT - math.hypot(1, shared) * x) / drawn) ** 2)

    apart = both_wrong(0, math.hypot(INIT, BATCH))
    if part == "own":  # what runs with one init have in common, beyond others
        return both_wrong(INIT, BATCH) - apart
    return float(stats.norm.sf(LIMIT / math.sqrt(1 + INIT**2 + BATCH**2))) - apart


def _of_errors(metric: str, source: str, part: str) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        text = varied_errors(seed)[metric, source, part]
        found = re.search(_LOW_HIGH, text)
        if not found:
            return Tally(0, 0)
        truth = _variance_of_errors(metric, part)
        truth = math.sqrt(truth) if ": sd" in text else truth
        return Tally(_miss(float(found[1]), truth, float(found[2]), 0.005 * truth))

    return count


def _sources(parts: Parts, pattern: str) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        known = {"dataset": pl.lit("one"), "classifier": pl.lit("mlp")}
        found = varied(seed, parts).with_columns(**known)
        return Tally(
            bool(re.search(pattern, _sentence_on(tables_of("one cell", 0), "sources", found)))
        )

    return count


# ---- until

UNTIL = 0.003
STEP = 1 / 500


@cache
def _until(seed: int, most: int = 200) -> Answered:
    values = np.random.default_rng([seed, 13]).normal(0.9, 0.01, most)
    decision = decide(np.round(values / STEP) * STEP, UNTIL, step=STEP)
    state = "enough" if decision.enough else "most"
    return Answered(0, "", "", 1, most, decision, state)


def _until_misses(seed: int) -> Tally:
    """Return whether the interval of any look misses the mean."""
    for most in range(10, 201, 10):
        decision = _until(seed, most).decision
        if _miss(decision.low, 0.9, decision.high):
            return Tally(1)
        if decision.enough:
            break
    return Tally(0)


# ---- missing runs


def _lacking(seed: int, pattern: str, *, slow: float = 0.0, bad: bool = False) -> Tally:
    """Return whether a warning is given of two groups of four cells whose runs are missing."""
    rng = np.random.default_rng([seed, 19])
    groups, cells, repeats, runs = 2, 4, 6, 8
    grid = np.indices((groups, cells, repeats, runs)).reshape(4, -1)
    group, cell, repeat, run = grid
    noise = rng.normal(size=(2, run.size))
    easy, long = rng.normal(size=(2, groups, repeats))[:, group, repeat]
    of_run = 0.8 * noise[0] + noise[1]
    gone = rng.random(run.size) < 0.1
    if slow:
        gone = noise[0] + long > slow
    if bad:  # where bad runs fail
        gone = (rng.random((groups, cells, repeats)) < 0.5)[group, cell, repeat] & (of_run < 0)
    gone[0] = True
    whole = pl.DataFrame(
        {
            "dataset": [f"data {number}" for number in group],
            "classifier": "mlp",
            "cell": cell + cells * group,
            "repeat_index": repeat,
            "fit_seconds": 1.0 + cell + long + noise[0],
            "accuracy": 0.5 + 0.1 * cell + easy + of_run,
        }
    ).filter(pl.Series(~gone))
    key = ["dataset", "classifier", "cell", "repeat_index"]
    repeats_left = whole.group_by(key, maintain_order=True).agg(
        coverage=pl.len() / runs, accuracy_mean=pl.col("accuracy").mean()
    )
    return Tally(bool(re.search(pattern, " ".join(missing.notes(whole, repeats_left)))))


# ---- scores of response curves

_NO_SCORES = ("gi_folded", "pal", "pal_printed", "shifted_train_accuracy", "dbi")
_HPARAMS = ["hparam_depth", "hparam_width"]


@lru_cache(16)
def corpus(seed: int, depth: float, told: float) -> pl.DataFrame:
    """Return scores of models.

    The gap and scores rise with depth, an hparam, in proportion to `depth`; a part `told` of what
    else gi is made of is the gap's.
    """
    rng = np.random.default_rng([seed, 23])
    of_depth = np.repeat(np.arange(4), 8)
    n = of_depth.size
    frames = []
    for run in range(1):
        own = rng.normal(size=(4, n))
        values = depth * of_depth + 0.5 * own
        values[1] += 0.5 * (told * own[0] - (1 - math.sqrt(1 - told**2)) * own[1])
        frames.append(
            pl.DataFrame(
                {
                    "dataset": "d",
                    "classifier": "c",
                    "transform": "intra",
                    "layer": pl.Series([0] * n, dtype=pl.UInt8),
                    "repeat_index": 0,
                    "run_index": run,
                    "cell": np.arange(n),
                    "augment": "none",
                    "excluded": False,
                    "hparam_depth": of_depth,
                    "hparam_width": np.tile(np.arange(2), n // 2),
                    "gap": 0.3 + 0.05 * values[0],
                    "gi": 0.5 + 0.05 * values[1],
                    "mean_accuracy": 0.5 - 0.05 * values[2],
                    "end_accuracy": 0.5 - 0.05 * values[3],
                    "train_accuracy": 1.0,
                    **dict.fromkeys(_NO_SCORES, pl.Series([None] * n, dtype=pl.Float64)),
                }
            )
        )
    return pl.concat(frames)


@cache
def told_by(seed: int, depth: float, told: float) -> pl.DataFrame:
    """Return how much scores say about the gap."""
    return information(corpus(seed, depth, told), _HPARAMS, permutations=60)


def _telling(depth: float, told: float) -> Callable[[int], Tally]:
    from manyseed.analysis.questions.telling import sentences

    return lambda seed: Tally(bool(list(sentences(told_by(seed, depth, told)))))


def _beyond(depth: float, told: float, measure: str | None = None) -> Callable[[int], Tally]:
    """Return how many scores the page does not call "as by chance"."""
    from manyseed.analysis.questions.telling import is_single, judged

    def count(seed: int) -> Tally:
        found = judged(told_by(seed, depth, told)).filter(is_single())
        if measure:
            found = found.filter(measure=measure)
        return Tally(int(found["beyond"].sum()), found.height)

    return count


# ---- the claims

COSTLY, CHEAP = 200, 1000
FROM_0 = "is told from 0"
_STATED = "intervals"
_NOTHING = "nothing differs"
_MANY_SAMPLE = "2 datasets, 3 classifiers, 4 test sets of 6 runs"


def _interval(
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
    return Claim(name, by, wording, 0.05, _STATED, false, said, without, effect, **more)


def _never(_: int) -> Tally:
    return Tally(0)


def _incomplete(sweep: str) -> Callable[[int], Tally]:
    return _says(sweep, "missing", "^The results are incomplete: they lack 6 of 18")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "The results are incomplete",
        "answers",
        r"results are incomplete|repeats lack runs",
        0.0,
        "sweeps",
        _says("one cell", "missing", "."),
        _incomplete("lacking"),
        "all runs finished",
        "6 of 18 runs missing, to be counted",
    ),
    _interval(
        "Accuracy on D: a 0.90 ± 0.01",
        "answers",
        r"± half of the 95 % interval over test sets",
        _share("alike", "accuracy", _LEVEL, lambda value, half: abs(value - 0.9) > half),
        _share("alike", "accuracy", _LEVEL, lambda value, half: abs(value - 0.8) > half),
        _MANY_SAMPLE,
        "excludes a value 5 sd between test sets away",
    ),
    Claim(
        "a is better than b by … (or: cannot be told apart)",
        "answers",
        r"Paired on the same test sets|is better|cannot be told apart from|pairs of classifiers",
        0.05,
        "sentences",
        _each("alike", r"is better than"),
        _each("better", r"a is better than"),
        f"{_NOTHING}: {_MANY_SAMPLE}",
        "one better by 0.02 (2 sd between seeds)",
    ),
    Claim(
        "a is better than b, of two that are best",
        "answers",
        r"cannot be told apart from",
        0.05,
        "sentences",
        _each(
            "two best",
            r"(a is better than b|b is better than a|than [ab] by|is better .*and than [ab])",
        ),
        _each("two best", r"is better than c by"),
        "two equal, the third worse by 0.05",
        "the third",
    ),
    _interval(
        "… by 0.02 ± 0.01 (all differences from the best)",
        "answers",
        r"Paired on the same test sets",
        _differences,
        _each("better", r"a is better than"),
        "one better by 0.02",
        "excludes 0",
    ),
    Claim(
        "Between seeds, the accuracy of a varies most (or: cannot be told), and that of b least",
        "answers",
        r"varies most between seeds cannot|accuracy of {} varies|of {} least|more than that",
        0.05,
        "sweeps",
        _says("alike", "spread", "^Between seeds"),
        _says(
            "varied", "spread", "^Between seeds, the accuracy of a varies most.* that of c least"
        ),
        f"{_NOTHING}: {_MANY_SAMPLE}",
        "sd of 0.02, 0.01 and 0.005",
    ),
    Claim(
        "… varies most, of two that do (or: which cannot be told)",
        "answers",
        r"Which of {} varies {} cannot be told",
        0.05,
        "sweeps",
        _says("two most", "spread", "varies most,"),
        _says("two most", "spread", "varies more than that of c"),
        "sd of 0.02, 0.02 and 0.005",
        "more than the third",
    ),
    Claim(
        "… varies least, of two that do (or: which cannot be told)",
        "answers",
        r"That of {} varies least|Which of {} varies {} cannot be told",
        0.05,
        "sweeps",
        _says("two least", "spread", r"(that of [bc] least|That of [bc] varies least)"),
        _says("two most", "spread", r"That of c varies least"),
        "sd of 0.02, 0.005 and 0.005",
        "sd of 0.02, 0.02 and 0.005",
    ),
    _interval(
        "… with a standard deviation of 0.02 (0.01 to 0.03)",
        "answers",
        r"with a standard deviation of|over {} on the",
        _spread_misses,
        _share("varied", "spread", _SD, lambda _, low, high: _miss(low, 0.01, high)),
        "sd of 0.02, 0.01 and 0.005; largest and smallest stated",
        "excludes 0.01",
    ),
    _interval(
        "… of the largest and smallest of equal ones",
        "answers",
        r"with a standard deviation of|its standard deviation is",
        _share("alike", "spread", _SD, lambda _, low, high: _miss(low, 0.01, high, 5e-5)),
        _share("alike", "spread", _SD, lambda _, low, high: _miss(low, 0.02, high)),
        f"{_NOTHING}: {_MANY_SAMPLE}",
        "excludes twice the sd",
    ),
    _interval(
        "… 4 times (2 to 8) as much",
        "answers",
        r"for the ratio over all {} pairs",
        _share("alike", "spread", _RATIO, lambda _, low, __: low > 1),
        _share("varied", "spread", _RATIO, lambda _, low, __: low > 1),
        f"{_NOTHING}: {_MANY_SAMPLE}",
        "sd of 0.02, 0.01 and 0.005: excludes 1",
    ),
    Claim(
        "Accuracy changes beyond chance (or: no factor is found)",
        "answers, effects",
        r"changes beyond chance|No factor is found|Holm, {} for all|when corrected for multiple",
        0.05,
        "sweeps",
        _says("alike", "effects", "changes beyond chance"),
        _says("moved", "effects", "changes beyond chance in .*noise in"),
        f"{_NOTHING}: 3 comparisons over 8 test sets",
        "a scheme that costs 0.02 (2 sd between seeds)",
    ),
    Claim(
        "… of a level without an effect, beside one with (or: no effect is established)",
        "answers, effects",
        r"No effect is established of",
        0.05,
        "sweeps",
        _says("moved", "effects", "estimates:.*still in .*No effect|in [34] of"),
        _says("moved", "effects", "estimates:.*noise in .*noise in"),
        "of two levels, one costs 0.02",
        "that one, in both classifiers",
    ),
    Claim(
        "Local error consistency changes beyond chance (or: no factor is found)",
        "answers, effects",
        r"changes beyond chance in|No factor is found",
        0.05,
        "sweeps",
        _says("alike", "consistency", "changes beyond chance"),
        _says("moved", "consistency", "changes beyond chance in .*noise in"),
        f"{_NOTHING}: 3 comparisons over 8 test sets",
        "a scheme that costs 0.1 (2 sd of a run's part)",
    ),
    _interval(
        "… noise in a: −0.02 (−0.03 to −0.01, 95 %)",
        "answers, effects",
        r"changes beyond chance in",
        _share("moved", "effects", _MOVE, lambda _, low, high: _miss(low, -0.02, high)),
        _share("moved", "effects", _MOVE, lambda _, low, high: _miss(low, -0.01, high)),
        "a scheme that costs 0.02, nearly always named",
        "excludes half of it",
    ),
    _interval(
        "… of effects that are named only if large by chance",
        "answers, effects",
        r"changes beyond chance in",
        _share("barely moved", "effects", _MOVE, lambda _, low, high: _miss(low, -0.008, high)),
        _says("barely moved", "effects", "changes beyond chance"),
        "a scheme that costs 0.008; intervals of those named",
        "is named",
    ),
    _interval(
        "Each effect is known to ± 0.005 or better",
        "answers, effects",
        r"effect is known to",
        _known_to,
        _says("moved", "effects", "changes beyond chance"),
        f"{_NOTHING}: the largest half-width for each of 3 comparisons",
        "an effect of 0.02 is found",
    ),
    Claim(
        "1 of 6 runs is unlike the others (α̂ > 0.05)",
        "answers",
        r"unlike the others of {} repeat|those that are close to each other",
        0.01,
        "runs (ε)",
        _unlike,
        _level(ONE, r"^1 of 6 runs is unlike .* run 3 of"),
        f"six runs of one distribution, {POINTS:,} points",
        "a fifth of the scores of one run elsewhere: it is named",
        sweeps=COSTLY,
    ),
    Claim(
        "No run is seen to differ by more than 5 %",
        "answers",
        r"No run is seen to differ",
        0.05,
        "sweeps",
        _level(ONE, r"^No run is seen"),
        _level(NONE, r"^No run is seen"),
        "a fifth of the scores of one run elsewhere",
        "six runs of one distribution",
        sweeps=COSTLY,
    ),
    Claim(
        "No majority is close to each other, so which are unlike cannot be told",
        "answers",
        r"no majority of the runs is close to each other",
        0.05,
        "sweeps",
        _level(ONE, "no majority"),
        _level(DIVIDED, "no majority"),
        "one run of six apart",
        "three runs of six apart",
        sweeps=COSTLY,
    ),
    _interval(
        "The largest α̂, 0.20 (0.18 to 0.23)",
        "answers",
        r"95 % for new test points",
        _level_interval,
        partial(_level_interval, power=True),
        "a quarter of the scores of each run elsewhere; the largest of six",
        "excludes 0.05",
        sweeps=COSTLY,
    ),
    Claim(
        "With so few test points, α̂ cannot detect differences",
        "answers",
        r"With so few test points",
        0.0,
        "sweeps",
        _says("one cell", "levels", "With so few"),
        _says("blind", "levels", "With so few"),
        "δ = 0.04",
        "δ = 0.3",
    ),
    Claim(
        "The likely cause: run 3",
        "page",
        r"rejects some resamples|The likely cause: |out of references, because",
        0.01,
        "sweeps (ε)",
        _suspects(NONE, "."),
        _suspects(COLLAPSED, r"The likely cause: run 2 \(cell 0, repeat 0\);"),
        "six runs of one distribution",
        "one collapsed run, alone to be named",
        sweeps=COSTLY,
    ),
    Claim(
        "No majority of the runs agrees, so no run is named as the cause",
        "page",
        r"no majority of the runs agrees|In {} of these repeats",
        0.05,
        "sweeps",
        _suspects(COLLAPSED, "no majority"),
        _suspects(DIVIDED, "no majority"),
        "one collapsed run of six",
        "three collapsed runs of six",
        sweeps=COSTLY,
    ),
    _interval(
        "Knowing the mean to ± 0.005 takes 16 runs (11 to 30), of one cell",
        "answers",
        r"Knowing the mean accuracy of",
        _takes_misses("one cell", _needs(0.01)),
        _takes_misses("one cell", 4 * _needs(0.01)),
        "3 test sets of 10 runs",
        "excludes four times as many",
    ),
    _interval(
        "… of the cell with the largest standard deviation of 12",
        "answers",
        r"by their standard deviations so far|for all {} cells together",
        _takes_misses("alike", _needs(0.01)),
        _takes_misses("alike", 4 * _needs(0.01)),
        "12 cells with one sd, 4 test sets of 6 runs",
        "excludes four times as many",
    ),
    Claim(
        "Each repeat has enough runs for that (or: too few)",
        "answers",
        r"enough runs for that|too few runs for that",
        0.05,
        "sweeps",
        _has_enough(16),
        _has_enough(4),
        "twice as many runs are needed as there are",
        "half as many",
    ),
    _interval(
        "For accuracy ± 0.005: 16 runs are needed (11 to 30)",
        "howmany",
        r"fixed test set; from {} runs",
        _howmany(0, _needs(0.01)),
        _more_than_twice(0, _needs(0.01)),
        "3 test sets of 10 runs",
        "excludes four times as many",
    ),
    _interval(
        "For local error consistency ± 0.02: 96 runs are needed (65 to 157)",
        "howmany",
        r"fixed test set; from {} runs",
        _howmany(1, fewest_runs(lambda n: 4 * 0.05**2 / n, 0.02) or 0),
        _more_than_twice(1, fewest_runs(lambda n: 4 * 0.05**2 / n, 0.02) or 0),
        "3 test sets of 10 runs, whose parts add up",
        "excludes four times as many",
    ),
    _interval(
        "The accuracies of all 12 runs are equal, while up to 24 % of further runs may differ",
        "howmany, answers",
        r"it cannot be told yet, as the|enough'? if it is at most|may differ",
        _differing(0.25),
        _says_equal,
        "a quarter of the runs differ",
        "all runs are equal",
        sweeps=CHEAP,
    ),
    Claim(
        "At least 95 % of all ensembles of that size are close (α̂ ≤ 0.05)",
        "howmany",
        r"of all ensembles of these runs do|different ensembles of that size|the one ensemble of",
        0.05,
        "answers",
        _ensembles(0.95),
        _ensembles(1.0),
        "95 % of the two smaller sizes, 60 draws",
        "all of all sizes: the smallest",
        sweeps=CHEAP,
    ),
    *(
        _interval(
            f"{name} ({how})",
            "compare",
            wording,
            _compared(of, paired=paired),
            _compared(of, paired=paired, better=0.01, power=value),
            "5 test sets of 6 runs, no difference on average",
            effect,
            sweeps=CHEAP,
        )
        for paired, how in ((True, "paired"), (False, "unpaired"))
        for name, of, wording, value, effect in (
            (
                "A - B over seeds, at these test sets",
                "seeds",
                r"{} over seeds|Over seeds and new",
                0.0,
                "0.01: excludes 0",
            ),
            (
                "A - B over seeds and new test sets",
                "sets",
                "and new test sets",
                0.0,
                "0.01: excludes 0",
            ),
            ("P(A better than B) over seeds", "better", r"P\(A better", 0.5, "0.01: excludes 0.5"),
            (
                "P(A better than B) over new test sets",
                "better sets",
                "over new test sets, too",
                0.5,
                "0.01: excludes 0.5",
            ),
        )
    ),
    _interval(
        "A - B over new test sets, which differ",
        "compare",
        "Unpaired: the test sets differ",
        _compared("sets", paired=False, apart=True),
        _compared("sets", paired=False, apart=True, better=0.08, power=0.0),
        "5 test sets of 6 runs each",
        "0.08 (4 sd between test sets): excludes 0",
        sweeps=CHEAP,
    ),
    _interval(
        "Pairing runs saves 59 % of them (20 to 80 %)",
        "compare",
        r"are as precise as|saves nothing",
        _compared("runs", paired=True),
        _compared("runs", paired=True, power=0.0),
        "correlation 0.59",
        "excludes 0",
        sweeps=CHEAP,
    ),
    _interval(
        "Sharing test sets saves 95 % of them (70 to 99 %)",
        "compare",
        r"are as precise as|saves nothing",
        _compared("test sets", paired=True),
        _compared("test sets", paired=True, power=0.0),
        "correlation 0.97 over 5 test sets",
        "excludes 0",
        sweeps=CHEAP,
    ),
    *(
        _interval(
            f"{source} {name}: sd 0.010 (0.007 to 0.014)",
            "variance",
            wording,
            _component(source, part, truth),
            _distinct(source, part, effect),
            "init, batch and joint parts of variance 1, 0.49 and 0.25; 4 test sets of 8 runs",
            told,
        )
        for source, part, name, truth, wording, effect, told in (
            ("init+batch", "all", "varying", 1.74, "this one test set", APART, FROM_0),
            ("init", "own", "by itself", 1.0, "by itself", APART, f"three quarters: {FROM_0}"),
            ("init", "alone", "alone", 1.25, "alone, all else held fixed", APART, FROM_0),
            (
                *("init+batch", "together", "together", 0.25, "what sources do together", NO_OWN),
                f"no other part, 8 test sets of 20 runs: {FROM_0}",
            ),
            (
                *("test set", "between test sets", "between", 1.0, "between test sets, beyond"),
                *(APART, f"sd 7 times that of runs: {FROM_0}"),
            ),
            (
                *("perturb_continuous", "added", "adds", 1.0, "adds to the same cell without"),
                *(QUIET, f"nine tenths: {FROM_0}"),
            ),
        )
    ),
    *(
        _interval(
            f"{name}: sd 0.2 (0.15 to 0.25)",
            "variance",
            wording,
            _of_errors(metric, source, part),
            lambda seed, key=(metric, source, part): Tally(": sd" in varied_errors(seed)[key]),
            "200 points of which runs err on different ones; 3 test sets of 6 runs",
            "is told from 0",
        )
        for metric, source, part, name, wording in (
            (
                "errors",
                "init+batch",
                "all",
                "errors, init+batch varying",
                r"between runs, \{\} varying",
            ),
            ("errors", "init", "own", "errors, init by itself", "by itself"),
            (
                "ec_local",
                "init+batch",
                "all",
                "error consistency of a pair",
                r"between runs, \{\} varying",
            ),
        )
    ),
    Claim(
        "batch by itself: sd … (or: not distinguishable from 0)",
        "variance",
        r"not distinguishable from 0|variance {} at",
        0.025,
        "components",
        _distinct("batch", "own", NO_BATCH),
        _distinct("init", "own", APART),
        "batch matters only together with init",
        "init is three quarters of the variance",
    ),
    Claim(
        "Of the variance between runs, init by itself accounts for 70 %",
        "answers",
        r"by itself accounts for",
        0.05,
        "sweeps",
        _sources(NO_OWN, "by itself accounts for"),
        _sources(APART, "init by itself accounts for"),
        "sources matter only together",
        "init is three quarters of the variance",
    ),
    Claim(
        "Accuracy varies more between test sets than between seeds",
        "answers",
        r"varies more between test sets",
        0.05,
        "sweeps",
        _sources(SAME, "varies more between test sets"),
        _sources(APART, "varies more between test sets"),
        "they vary equally",
        "sd of test sets 7 times that of runs",
    ),
    _interval(
        "Accuracy 0.9 ± 0.003: 60 runs are enough (at all looks)",
        "until",
        r"known to ± {} after|are enough|accuracy not known yet|the most allowed",
        _until_misses,
        lambda seed: Tally(_until(seed).words.endswith("runs are enough.")),
        "sd 0.01, on a grid of 500 points; looks every 10 runs",
        "is reached within 200 runs",
        sweeps=CHEAP,
    ),
    Claim(
        "Beyond chance, ranks tell a from b (or: no two apart)",
        "answers, captions",
        r"anks tell|those less than {} apart|the test is rough|critical difference",
        0.05,
        "sweeps",
        _ranks(0.9, "Beyond chance"),
        _ranks(_of(a=0.91, b=0.9, c=0.89), "tell .*a from c"),
        f"{_NOTHING}: 3 classifiers on 10 datasets",
        "steps of 0.01 (2.4 standard errors)",
    ),
    Claim(
        "2 of 3 scores tell beyond chance which model has the larger gap; scores are noise",
        "answers",
        r"tell beyond chance|has the largest cmi|No score for|by chance up to|within that spread",
        0.05,
        "corpora",
        _telling(0.0, 0.0),
        _telling(0.0, 0.95),
        "32 models whose scores are noise",
        "0.95 of one score is the gap",
        sweeps=COSTLY,
    ),
    Claim(
        "… scores know depth, an hparam, and nothing else",
        "answers",
        r"tell beyond chance",
        0.05,
        "corpora",
        _telling(1.0, 0.0),
        _telling(1.0, 0.95),
        "gap and scores of 32 models rise with depth",
        "given depth, 0.95 of one score is the gap",
        sweeps=COSTLY,
    ),
    Claim(
        "cmi 12 ± 3 (or: as by chance)",
        "captions, page",
        r"as by chance|by the chance|when the measure is assigned|within its own chance",
        0.05,
        "scores",
        _beyond(0.0, 0.0),
        _beyond(0.0, 0.95, "gi"),
        "32 models whose scores are noise",
        "0.95 of the score is the gap",
        sweeps=COSTLY,
    ),
    Claim(
        "Runs are not missing at random: accuracy varies with coverage",
        "page, analyze",
        r"not missing at random. Within a cell, accuracy",
        0.05,
        "sweeps",
        lambda seed: _lacking(seed, "accuracy varies with coverage"),
        lambda seed: _lacking(seed, "accuracy varies with coverage", bad=True),
        "a tenth of the runs missing at random",
        "bad runs fail in half of the repeats",
    ),
    Claim(
        "Runs are not missing at random: slow fits",
        "page, analyze",
        r"not missing at random. Within a cell, {} runs are missing",
        0.05,
        "sweeps",
        lambda seed: _lacking(seed, "fits take longer"),
        lambda seed: _lacking(seed, "more runs are missing where fits take longer", slow=1.0),
        "a tenth of the runs missing at random",
        "slow runs fail",
    ),
)

PLAIN: Mapping[str, str] = {
    r"One test set allows no|more repeats do,|too few for useful intervals": (
        "One test set allows no interval; two or three are too few for useful ones."
    ),
    r"Without an interval, so not judged": "Effects without an interval are named, not judged.",
    r"has no answer in|there is no answer|more than {} runs|no repeat has|too few runs err|"
    r"runs of every repeat are identical|was not computed|raise max_pair_runs|pairs of the {}": (
        "Why `howmany` has no answer: too few runs, nothing differs, or more than ten million."
    ),
    r"assumes? normal values": "Intervals that assume normal values where accuracies are skewed.",
    r"too few cells to be compared": "Classifiers that share too few cells with the others.",
    r"compares runs with each other|there is one test set|same on all test sets|single test set|"
    r"has a single run|all runs agree, which|No interval over": (
        "Why `compare` has no interval: one run or test set, or nothing differs."
    ),
    r"runs of A with|run by run|Left out: test sets": (
        "What `compare` compares: runs, shared streams, test sets left out."
    ),
    r"not all ensembles of|points per side are too few|contamination of up to|classical KS test "
    r"accepts|from the sizes drawn|can't be drawn from|ensembles need 4": (
        "Ensembles: which sizes were drawn, that not all pass, or that δ hides what is asked."
    ),
    r"first by mean accuracy": "Mean ranks, wins, and which classifier is first on these datasets.",
    r"The reference is an average of models": "Which reference of α̂ shows the likely cause.",
    r", reversed: |spread over seeds is unknown|and those for {} more": (
        "Of scores: the sign of the correlation in these models; one seed shows no spread."
    ),
    r"one run {}, all {} averaged|nothing is gained|where that is a gain|half of the gain|worth "
    r"more than|are at a bound|is not comparable between": (
        "`dee`: means of what was measured, and how far one standard deviation goes."
    ),
    r"Whether a point is wrong|error consistency of a pair|dropout with it": (
        "`variance`: names of metrics and sources."
    ),
    r"are the same model|more runs: up to|Another question was asked": (
        "`howmany --until`: that nothing varies, what is trained next, that the question changed."
    ),
    r"95 % quantile of the same|end of the 95 % interval|half of the 95 % interval over": (
        "Columns of tables, and what their intervals are over."
    ),
    r"The others are published by|Analysed \{analysed|no finished run that was analysed|their "
    r"predictions have changed|is not computed for|calibration \(cll|scores that are not numbers|"
    r"runs were made in several ways": (
        "Notes that count: runs analysed, runs made in several ways, what is not computed and why."
    ),
    r"Do not choose runs by ece|accuracy is optimistic|Runs are ranked by|can't be said whether|a "
    r"class has no test point|the smallest class has": (
        "Notes on reading numbers: rankings, small classes, calibration error, δ above `close`."
    ),
    r"alpha_hat_infeasible_max|must be from {}": "Names of columns, and limits of options.",
}
"""Words without a rate, by how they are known in the source: why they promise none."""
