"""Where the variance comes from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from benchmarks.claims.record import (
    FROM_0,
    OPTIONS,
    Claim,
    Tally,
    interval,
    miss,
)
from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.question import Evidence
from manyseed.analysis.questions.variance import answer, variance
from manyseed.analysis.tables.rows import Tables
from manyseed.orchestrator.results.answers.variance import sentence
from tests.analysis.planted import Noise, normal

Real = NDArray[np.float64]


def _parts(
    seed: int,
    init: float,
    batch: float,
    together: float,
    of_set: float,
    chaos: float = 0.0,
    *,
    shape: tuple[int, int] = (4, 8),
    noise: Noise = normal,
) -> Tables:
    """Return tables of cells that vary init, batch, both, and both with noise of variance 1.

    Parts are in units of 0.01; `chaos` is drawn anew in every cell.
    """
    rng = np.random.default_rng([seed, 11])
    repeats, runs = shape
    drawn, fixed = noise(rng, (2, repeats, runs)), noise(rng, (2, repeats, 1))
    sets = of_set * rng.normal(size=(repeats, 1))
    key = dict.fromkeys(AXES, "none") | {"dataset": "one", "classifier": "mlp"}
    of_runs, of_repeats = [], []
    own = noise(rng, (repeats, runs))
    for cell, vary in enumerate(("init", "batch", "init+batch", "init+batch")):
        x = drawn[0] if "init" in vary else fixed[0]
        y = drawn[1] if "batch" in vary else fixed[1]
        value = 0.9 + 0.01 * (init * x + batch * y + together * x * y + sets + 0 * drawn[0])
        more = {"cell": cell, "vary": vary, "train_fraction": 1.0, "hparams": "default"}
        if cell == 3:
            more["perturb_continuous"] = "relative:0.1"
            value = value + 0.01 * own
        if chaos:
            value = value + 0.01 * chaos * noise(rng, (repeats, runs))
        for repeat in range(repeats):
            of_repeats.append(
                {**key, **more, "repeat_index": repeat, "n_runs": runs, "n_test": 10_000}
            )
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


Parts = tuple[float, ...]
NO_BATCH: Parts = (1.0, 0.0, 0.5, 1.0)  # batch matters only together with init
NO_OWN: Parts = (0.0, 0.0, 1.0, 1.0)
CHAOS: Parts = (0.0, 0.0, 0.0, 1.0, 1.0)  # any change of a source changes all
ALL_PARTS: Parts = (1.0, 0.7, 0.5, 1.0)
SAME: Parts = (1.0, 0.7, 0.0, 1.2)  # test sets vary as much as runs
APART: Parts = (0.5, 0.3, 0.0, 4.0)
MOST = 10  # datasets
QUIET: Parts = (0.3, 0.2, 0.0, 1.0)  # less than the noise of the perturbed cell


@cache
def varied(
    seed: int, parts: Parts, shape: tuple[int, int] = (4, 8), noise: Noise = normal
) -> pl.DataFrame:
    """Return the variance components of planted parts, of so many test sets and runs on each."""
    return variance(_parts(seed, *parts, shape=shape, noise=noise))


def _components(
    seed: int, parts: Parts, shape: tuple[int, int] = (4, 8), noise: Noise = normal
) -> Mapping[tuple[str, str], str]:
    rows = varied(seed, parts, shape, noise).filter(metric="accuracy").iter_rows(named=True)
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        found.setdefault((row["source"], row["part"]), sentence(row))
    return found


_LOW_HIGH = r"\((-?[\d.e-]+) to (-?[\d.e+-]+), 95 %"


def component(
    source: str, part: str, truth: float, noise: Noise = normal
) -> Callable[[int], Tally]:
    """Return whether the interval of a component misses the truth, in units of 1e-4."""

    def count(seed: int) -> Tally:
        text = _components(seed, ALL_PARTS, noise=noise)[source, part]
        found = re.search(_LOW_HIGH, text)
        if not found:
            return Tally(0, 0)
        low, high = float(found[1]), float(found[2])
        value = 1e-4 * truth
        return Tally(miss(low, math.sqrt(value) if ": sd" in text else value, high, 5e-6))

    return count


def distinct(source: str, part: str, parts: Parts, noise: Noise = normal) -> Callable[[int], Tally]:
    """Return whether a component is told from 0; joint parts take more runs than others."""
    shape = (8, 20) if part == "together" else (4, 8)
    return lambda seed: Tally(": sd" in _components(seed, parts, shape, noise)[source, part])


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
    tables = _parts(seed, 1, 1, 0, 0, shape=(repeats, runs))
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
        return Tally(miss(float(found[1]), truth, float(found[2]), 0.005 * truth))

    return count


@cache
def _said(
    seed: int, parts: Parts, datasets: int, shape: tuple[int, int], noise: Noise = normal
) -> str:
    """Return what is said of the sources of so many datasets, each with parts of its own."""
    made = [
        _parts(datasets * seed + number, *parts, shape=shape, noise=noise)
        for number in range(datasets)
    ]
    runs, pairs, repeats = (
        pl.concat(
            getattr(one, table).with_columns(pl.col("cell") + 4 * number)
            for number, one in enumerate(made)
        )
        for table in ("runs", "pairs", "repeats")
    )
    named = pl.format("d{}", pl.col("cell") // 4)
    tables = Tables(runs, pairs, repeats.with_columns(dataset=named), pl.DataFrame())
    of_cells = tables.repeats.select("cell", "dataset", "classifier").unique()
    found = variance(tables).join(of_cells, on="cell", maintain_order="left")
    return "\n".join(one.text for one in answer(Evidence(tables, found, found, OPTIONS)))


def sources(
    parts: Parts,
    pattern: str,
    datasets: int = 1,
    shape: tuple[int, int] = (4, 8),
    noise: Noise = normal,
) -> Callable[[int], Tally]:
    return lambda seed: Tally(bool(re.search(pattern, _said(seed, parts, datasets, shape, noise))))


CLAIMS: tuple[Claim, ...] = (
    *(
        interval(
            f"{source} {name}: sd 0.010 (0.007 to 0.014)",
            "variance",
            wording,
            component(source, part, truth),
            distinct(source, part, effect),
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
                *("test set", "between test sets", "between", 1.0, "[Bb]etween test sets, beyond"),
                *(APART, f"sd 7 times that of runs: {FROM_0}"),
            ),
            (
                *("perturb_continuous", "added", "adds", 1.0, "adds to the same cell without"),
                *(QUIET, f"nine tenths: {FROM_0}"),
            ),
        )
    ),
    *(
        interval(
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
        r"not distinguishable from 0|variance (\{\}|estimated) at|not told from 0|"
        r"how large it may be is not told",
        0.025,
        "components",
        distinct("batch", "own", NO_BATCH),
        distinct("init", "own", APART),
        "batch matters only together with init",
        "init is three quarters of the variance",
    ),
    Claim(
        "Of the variance between runs, init by itself accounts for 70 %",
        "answers",
        r"by itself (accounts for|is {} of)",
        0.05,
        "sweeps",
        sources(NO_OWN, "by itself accounts for"),
        sources(APART, "init by itself accounts for"),
        "sources matter only together",
        "init is three quarters of the variance",
    ),
    Claim(
        "… the largest share of all cells and sources",
        "answers",
        r"by itself (accounts for|is {} of)|for all {} together",
        0.05,
        "sweeps",
        sources(CHAOS, "by itself accounts for", MOST, (1, 20)),
        sources(APART, "init by itself accounts for", MOST, (1, 20)),
        f"sources matter only together, in each of {MOST} datasets: {2 * MOST} components, 1 test "
        "set of 20 runs",
        "init is three quarters of the variance in each",
    ),
    Claim(
        "Accuracy varies more between test sets than between seeds",
        "answers",
        r"varies more between test sets|vary accuracy more than|intervals are apart",
        0.05,
        "sweeps",
        sources(SAME, "varies more between test sets"),
        sources(APART, "varies more between test sets"),
        "they vary equally",
        "sd of test sets 7 times that of runs",
    ),
    Claim(
        "… in 3 of 20 cells",
        "answers",
        r"varies more between test sets|vary accuracy more than",
        0.05,
        "sweeps",
        sources(SAME, "varies more between test sets", MOST),
        sources(APART, "varies more between test sets", MOST),
        f"they vary equally in each of {2 * MOST} cells",
        "sd of test sets 7 times that of runs",
    ),
)
