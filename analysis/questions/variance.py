"""Where the variance comes from: accuracy and error consistency split over sources of randomness.

On one test set, a run's accuracy is a function of its sources: f(init, batch, …), a sum of one part
per source and of joint parts of several sources (Hoeffding 1948; Sobol 1993). Cells that differ
only in `vary` share streams: run k has the same init wherever init varies, and a source that does
not vary has one value for all runs of a repeat, the same in all these cells. So

- the variance between the runs of the cell that varies s only (`ALONE`) is the effect of s with all
  other sources fixed, averaged over their fixed values: the own part of s and its joint parts;
- the covariance, over runs, between two cells that have only s in common and together vary all
  sources (`OWN`) is the own part of s, its first-order effect; so is the variance of the cell that
  varies all sources minus that of the cell that varies all but s;
- what all own parts leave of the variance of the cell that varies all sources (`ALL`) is that of
  the joint parts (`TOGETHER`).

A training fraction and noise schemes draw anew for each run, whatever `vary` says: they are sources
in every cell that has them. Noise on data falls on other rows where train or a subsample varies:
there it has no own part, and neither has the rest (`components.has_own`). If the own part of such a
source cannot be estimated, what it adds to the variance of the same cell without it is reported
(`ADDED`); this includes its effect on other sources.

A crossed cell is split by itself (`analysis.questions.crossed`): its sources' own parts, and what
each set of sources adds only together (`INTERACTION`). It holds fixed what is not crossed.

Dropout is part of batch; the two cannot be separated. `TEST_SET` is the variance of the repeats'
means minus the contribution of runs; training rows change with the test set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions import crossed
from manyseed.analysis.questions.components import (
    CONSISTENCY,
    CONTEXT,
    CellResults,
    Estimates,
    Kind,
    Limits,
    Term,
    around,
    combined,
    contexts,
    difference_limits,
    errors,
    has_own,
    ordered,
    sharing,
)
from manyseed.analysis.questions.drawn import ON_ROWS
from manyseed.analysis.questions.effects import UNPERTURBED
from manyseed.analysis.questions.intervals import (
    FEWEST_COMPARED,
    SEEDS,
    TEST_SETS,
    mean_variance,
    of_variance,
    parts,
    t_quantile,
)
from manyseed.analysis.questions.needed import whole_name
from manyseed.analysis.questions.question import LINE, Answer, Evidence, first_ones, shortest
from manyseed.analysis.questions.resolution import largest_sd, too_alike
from manyseed.analysis.tables.rows import IS_ONE_MODEL, Tables, cells_once
from manyseed.analysis.tables.schema import records

OWN, ALONE, ADDED, TOGETHER, INTERACTION, ALL, TEST_SET = (
    *("own", "alone", "added", "together", "interaction", "all", "between test sets"),
)
ACCURACY, ERRORS = "accuracy", "errors"
METRICS = (ACCURACY, ERRORS, *CONSISTENCY)
"""Accuracy; whether a point is wrong, with variance between runs, averaged over points, 1 -
accuracy - global error consistency; and error consistency itself, of a pair of runs."""

_ROUNDING = 1e-24  # equal values below 1 may seem to have this variance

SCHEMA = records()["variance"].types


Row = Mapping[str, Any]  # columns `SCHEMA`


def variance(tables: Tables, confidence: float = CONFIDENCE) -> pl.DataFrame:
    """Split the variance of every context, that is of cells that differ only in `vary`.

    `tables`: with the columns of `analysis.axes.AXES` in the repeats.

    Returns columns `SCHEMA`: `cell`, the one of the context that varies most; `metric` (of
    `METRICS`); `source` (of `vary`; subsample; an axis of schemes; all sources that vary, joined by
    +, crossed ones by *); `part` (of the parts above); `variance`, whose estimate may be negative,
    and its interval; `share` of the variance of all, if parts add up to it; `unequal`, by how much
    the variance differs between test sets (sd of its logarithm), and `n_equal`, on how many it is
    0; `seeds_low` and `seeds_high`, the
    interval over seeds alone of `ALL` of accuracy, as `howmany` has it; `n_repeats` and
    `n_runs` that it rests on; `over`, what the interval is over; `cells` that it is estimated from.
    Error consistency is a different quantity in each cell, so it has only `ALONE` and `ALL`, the
    variances of a pair of runs, and `TEST_SET`.
    """
    cells = contexts(tables)
    rows: list[Row] = []
    for key, own in cells.items():
        rows += _of_context(own, dict(zip(CONTEXT, key, strict=True)), cells, confidence)
    for own in contexts(tables, crossed=True).values():
        for one in own:
            rows += _of_crossed(one, confidence)
    found = pl.DataFrame(rows, schema=dict(SCHEMA))
    order = pl.col("metric").replace_strict({name: i for i, name in enumerate(METRICS)})
    return found.sort("cell", order, maintain_order=True)


def without_alike(rows: pl.DataFrame, repeats: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return components without intervals of the accuracy of runs that are `too_alike`.

    Of these `low` is null, and `high` the square of `largest_sd`, over seeds on these test sets; of
    a single model, both are null. `repeats` and `cells`: the tables.
    """
    sizes = repeats.group_by("cell").agg(pl.col("n_test").min())
    one = [] if cells.is_empty() else cells.filter(IS_ONE_MODEL)["cell"].to_list()
    here = (pl.col("metric") == ACCURACY) & pl.col("part").is_in([ALL, ALONE])
    asked = rows.with_row_index("_row").filter(here & ~pl.col("cell").is_in(one))
    found: list[tuple[int, float | None]] = []
    for row in asked.join(sizes, on="cell", how="left", maintain_order="left").iter_rows(
        named=True
    ):
        step = 1 / row["n_test"] if row["n_test"] else 0.0
        if too_alike(row["variance"], step):
            sources, sets = row["source"].count("*") + 1, row["n_repeats"]  # crossed ones share
            freedom = sets * ((row["n_runs"] / sets) ** (1 / sources) - 1)
            most = largest_sd(row["variance"], freedom, step) ** 2 if step else None
            found.append((row["_row"], most))
    alike = pl.DataFrame(found, schema={"_row": pl.UInt32, "_most": pl.Float64}, orient="row")
    is_alike, limits = (
        pl.col("_row").is_in(alike["_row"].implode()),
        ["low", "seeds_low", "seeds_high"],
    )
    return (
        rows.with_row_index("_row")
        .join(alike, on="_row", how="left", maintain_order="left")
        .with_columns(
            pl.when(~is_alike).then(pl.col(name)).alias(name)
            for name in limits
            if name in rows.columns
        )
        .with_columns(
            high=pl.when(is_alike).then("_most").otherwise("high"),
            over=pl.when(is_alike & pl.col("_most").is_not_null())
            .then(pl.lit(SEEDS))
            .when(~is_alike)
            .then("over"),
        )
        .drop("_row", "_most")
    )


def _of_context(
    own: Sequence[CellResults],
    key: Mapping[str, Any],
    cells: Mapping[tuple[Any, ...], Sequence[CellResults]],
    confidence: float,
) -> Iterator[Row]:
    report = _Report(own, confidence)
    yield from report.of_accuracy()
    yield from report.of_errors()
    for axis, level in UNPERTURBED.items():
        source = "subsample" if axis == "train_fraction" else axis
        if source in report.full.sources and source not in report.reported:
            without = cells.get(tuple({**key, axis: level}.values()), ())
            wanted = report.full.sources - {source}
            for cell in without:
                if cell.sources == wanted:
                    yield from report.added(source, cell)
    for name in CONSISTENCY:
        yield from report.of_pairs(name)


class _Report:
    """The rows of one context."""

    def __init__(self, own: Sequence[CellResults], confidence: float) -> None:
        self.own, self.confidence = own, confidence
        self.full = max(own, key=lambda one: (len(one.sources), -one.cell))
        self.everything = frozenset().union(*(one.sources for one in own))
        self.name = "+".join(ordered(self.full.sources))
        self.terms = sharing(own, self.full)
        self.reported: set[str] = set()
        self.all: dict[str, float] = {}
        self.most: dict[str, float] = {}

    def alone(self) -> Iterator[tuple[str, CellResults]]:
        """Yield (source, cell) for the cells that vary a single source, except the fullest cell."""
        for cell in self.own:
            if len(cell.sources) == 1 and cell is not self.full:
                yield next(iter(cell.sources)), cell

    def row(
        self,
        metric: str,
        source: str,
        part: str,
        found: Estimates,
        kind: Kind,
        cells: Sequence[CellResults],
        scale: Limits | None = None,
    ) -> Row:
        """Return the row of an estimate, without an interval if nothing differs."""
        limits = None
        if max(found.within, found.between) > _ROUNDING:
            limits = found.limits(self.confidence, kind, scale)
        if part == ALL:
            self.all[metric] = found.value
            self.most[metric] = math.inf if limits is None else limits[1]
        over = TEST_SETS if found.own.size > 1 else SEEDS
        return self._as_row(metric, source, part, found.value, limits, found, cells, over)

    def _as_row(
        self,
        metric: str,
        source: str,
        part: str,
        value: float,
        limits: Limits | None,
        found: Estimates,
        cells: Sequence[CellResults],
        over: str,
    ) -> Row:
        is_share = metric not in CONSISTENCY and part not in (ALONE, TEST_SET)
        whole = self.all.get(metric) if is_share else None
        low, high = limits or (None, None)
        if limits is not None and part in (OWN, TOGETHER, TEST_SET):  # no variance is negative
            low, high = max(limits[0], 0.0), max(limits[1], 0.0)
            if part != TEST_SET:  # a part is no more than the whole
                low, high = (min(end, self.most.get(metric, math.inf)) for end in (low, high))
        seeds = None
        if limits is not None and metric == ACCURACY and part == ALL:
            seeds = of_variance(found.own, found.freedom, self.confidence)
        return {
            "cell": self.full.cell,
            "metric": metric,
            "source": source,
            "part": part,
            "variance": value,
            "low": low,
            "high": high,
            "share": value / whole if whole is not None and whole > _ROUNDING else None,
            "unequal": found.unequal if part in (ALL, ALONE) else None,
            "seeds_low": None if seeds is None else seeds[0],
            "seeds_high": None if seeds is None else seeds[1],
            "n_repeats": found.own.size,
            "n_runs": sum(one.size for one in found.left_out),
            "n_equal": found.still if part in (ALL, ALONE) else None,
            "over": over if limits else None,
            "cells": ",".join(dict.fromkeys(str(one.cell) for one in cells)),
        }

    def test_set(
        self, metric: str, means: Sequence[float], noise: float, freedom: float, found: Estimates
    ) -> Iterator[Row]:
        """Yield the variance of the repeats' means, minus the contribution of runs."""
        if len(means) < 2:
            return
        between = float(np.var(means, ddof=1))
        limits = None
        if max(between, noise) > _ROUNDING:
            limits = difference_limits(between, len(means) - 1.0, noise, freedom, self.confidence)
        row = self._as_row(
            *(metric, "test set", TEST_SET, between - noise, limits, found, [self.full], TEST_SETS)
        )
        yield {**row, "n_repeats": len(means)}

    def of_accuracy(self) -> Iterator[Row]:
        """Yield the parts of the variance of accuracy."""
        full = self.full
        whole = combined([(1.0, full, full)])
        if whole is None:
            return
        yield self.row(ACCURACY, self.name, ALL, whole[0], "variance", [full])
        for source in ordered(self.everything):
            terms = self.terms.get(source, [])
            if terms and (own := combined(terms)):
                self.reported.add(source)
                one = len(terms) == 1
                kind: Kind = "covariance" if one else "other"
                cells, scale = _cells(terms), own[1] if one else None
                yield self.row(ACCURACY, source, OWN, own[0], kind, cells, scale)
            for name, cell in self.alone():
                if name == source and (found := combined([(1.0, cell, cell)])):
                    yield self.row(ACCURACY, source, ALONE, found[0], "variance", [cell])
        if self.reported == self.everything == full.sources and self.reported:
            rest: list[Term] = [(1.0, full, full)]
            for terms in self.terms.values():
                rest += [(-times, one, other) for times, one, other in terms]
            if left := combined(rest):
                yield self.row(ACCURACY, self.name, TOGETHER, left[0], "other", _cells(rest))
        runs = [values for _, values in full.accuracy.values() if values.size > 1]
        means = [float(values.mean()) for values in runs]
        noise = whole[0].value * float(np.mean([1 / values.size for values in runs]))
        yield from self.test_set(ACCURACY, means, noise, float(whole[0].freedom.sum()), whole[0])

    def of_errors(self) -> Iterator[Row]:
        """Yield the parts of the variance of being wrong, for cells whose pairs are listed."""
        if not (whole := errors([self.full])):
            return
        yield self.row(ERRORS, self.name, ALL, whole[0], "positive", [self.full])
        for source in ordered(self.everything):
            for one in self.own:
                if one.sources and one.sources == self.full.sources - {source} != self.full.sources:
                    both = [self.full, one]
                    if found := errors(both):
                        less = found[0].plus(found[1], -1.0)
                        yield self.row(ERRORS, source, OWN, less, "other", both)
            for name, one in self.alone():
                if name == source and (found := errors([one])):
                    yield self.row(ERRORS, source, ALONE, found[0], "positive", [one])

    def added(self, source: str, without: CellResults) -> Iterator[Row]:
        """Yield what a scheme adds to the variance of the same cell without the scheme."""
        cells = [self.full, without]
        if more := combined([(1.0, self.full, self.full), (-1.0, without, without)]):
            yield self.row(ACCURACY, source, ADDED, more[0], "other", cells)
        if both := errors(cells):
            yield self.row(ERRORS, source, ADDED, both[0].plus(both[1], -1.0), "other", cells)

    def of_pairs(self, metric: str) -> Iterator[Row]:
        """Yield the variance of the error consistency of a pair, and between test sets."""
        for name, one in [(self.name, self.full), *self.alone()]:
            by_repeat = sorted(one.pairs.get(metric, {}).items())
            known = [values for _, values in by_repeat if parts([values]) is not None]
            found = parts(known)
            if found is None:
                continue
            pair = Estimates(found.zeta_2, tuple(second for _, second in found.left_out))
            part = ALL if one is self.full else ALONE
            yield self.row(metric, name, part, pair, "positive", [one])
            if one is self.full:
                n = found.runs
                own = mean_variance(n, found.zeta_1, found.zeta_2)
                without = zip(n, found.left_out, strict=True)
                left_out = tuple(mean_variance(size, *both) for size, both in without)
                mean = Estimates(own, left_out)
                noise = max(float(own.mean()), 0.0)
                freedom = float(mean.freedom.sum())
                if mean.within > 0:  # Satterthwaite's
                    freedom = min(max(2 * noise**2 / mean.within, 1.0), freedom)
                means = [float(np.nanmean(values)) for values in known]
                yield from self.test_set(metric, means, noise, freedom, mean)


def _of_crossed(one: CellResults, confidence: float) -> Iterator[Row]:
    """Yield the parts of the variance of accuracy, and of being wrong, in a crossed cell."""
    sources = ordered(one.sources)
    n = len(sources)
    held = {repeat: crossed.full(*own, n) for repeat, own in sorted(one.accuracy.items())}
    known = {repeat: cross for repeat, cross in held.items() if cross is not None}
    if not known:
        return
    crosses = crossed.Crosses.of([*known.values()])
    k, effects = crosses.k, crossed.effects_of(n)
    names = {effect: "*".join(sources[place] for place in effect) for effect in effects}
    parts = {effect: OWN if len(effect) == 1 else INTERACTION for effect in effects}

    def row(
        *key: str, value: float, total: float, limits: Limits | None, repeats: int = crosses.repeats
    ) -> Row:
        low, high = (None, None) if limits is None else (max(end, 0.0) for end in limits)
        over = TEST_SETS if repeats > 1 else SEEDS
        numbers = (value, low, high, value / total if total > 0 else None, None, None, None)
        basis = (repeats, repeats * k**n, None, over if limits else None, str(one.cell))
        return dict(zip(SCHEMA, (one.cell, *key, *numbers, *basis), strict=True))

    total = crosses.value(crossed.of_all(n, k))
    sums = {(names[effects[-1]], ALL): crossed.of_all(n, k)}
    sums |= {(names[own], parts[own]): crossed.component(own, n, k) for own in effects}
    for key, terms in sums.items():
        limits = crosses.limits(terms, confidence)
        yield row(ACCURACY, *key, value=crosses.value(terms), total=total, limits=limits)
    means = [float(cross[(slice(k),) * n].mean()) for cross in known.values()]
    if len(means) > 1:
        between, of_mean, limits = float(np.var(means, ddof=1)), crossed.of_mean(n, k), None
        noise, freedom = max(crosses.value(of_mean), 0.0), max(crosses.freedom(of_mean), 1.0)
        if max(between, noise) > _ROUNDING:
            limits = difference_limits(between, len(means) - 1.0, noise, freedom, confidence)
        key = ("test set", TEST_SET)
        yield row(ACCURACY, *key, value=between - noise, total=0.0, limits=limits)
    wrong = [own for repeat in known if (own := _of_points(one, repeat, n, k)) is not None]
    if len(wrong) >= FEWEST_COMPARED:  # the interval is over test sets alone
        each = {key: np.array([own[effect] for own in wrong]) for effect, key in names.items()}
        whole = np.sum([*each.values()], axis=0)
        told = {(names[effects[-1]], ALL): whole}
        told |= {(names[effect], parts[effect]): each[names[effect]] for effect in effects}
        for key, values in told.items():
            half = t_quantile(confidence, len(wrong) - 1) * values.std(ddof=1) / len(wrong) ** 0.5
            kind: Kind = "positive" if key[1] == ALL else "other"
            value, most = float(values.mean()), float(whole.mean())
            limits = around(value, float(half), kind) if values.std() > _ROUNDING else None
            yield row(ERRORS, *key, value=value, total=most, limits=limits, repeats=len(wrong))


def _of_points(one: CellResults, repeat: int, n: int, k: int) -> dict[crossed.Effect, float] | None:
    """Return the variance of each effect on being wrong, on one test set; None if unknown."""
    index, values = one.accuracy[repeat]
    both, size = one.pairs.get("ec_global", {}).get(repeat), k**n
    if both is None or repeat not in one.errors or index[size - 1] != size - 1:
        return None
    return crossed.of_pairs(both[:size, :size], 1 - values[:size], n)


def _cells(terms: Sequence[Term]) -> list[CellResults]:
    return [one for _, *both in terms for one in both]


def splits(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the table without what earlier versions took for parts of noise, by itself and not.

    `rows`: columns `SCHEMA`.
    """
    own = rows.filter(part=ALL).select("cell", "source").unique().rows()
    sources = {cell: source.split("+") for cell, source in own}
    blurred = [
        cell
        for cell, names in sources.items()
        if not all(has_own(source, names) for source in names)
    ]
    is_blurred = pl.col("cell").is_in(blurred)
    is_noise = (pl.col("part") == OWN) & pl.col("source").is_in(ON_ROWS)
    return rows.filter(~(is_blurred & (is_noise | (pl.col("part") == TOGETHER))))


def answer(evidence: Evidence) -> Iterator[Answer]:
    """Say which classifiers no seed reaches, and what accounts for the variance of the others."""
    yield from _of_one_model(evidence.tables.cells)
    yield from _sources(evidence)


def _of_one_model(cells: pl.DataFrame) -> Iterator[Answer]:
    """Say in which cells all runs on a test set are one model, so that no spread is seen."""
    if cells.is_empty():
        return
    still = (
        cells_once(cells)
        .group_by("classifier", maintain_order=True)
        .agg(still=IS_ONE_MODEL.sum(), cells=pl.len())
        .filter(pl.col("still") > 0)
    )
    if still.is_empty():
        return
    some = {name: f" ({n:,} of {of:,} cells)" * (n < of) for name, n, of in still.iter_rows()}
    names = [f"{name}{of}" for name, of in some.items()]
    yield Answer(
        first_ones(
            names, lambda text: f"One model per test set, whatever the seed: {text}; no spread."
        ),
        evidence=f"Of {', '.join(names)}, all runs on a test set are one model, as no seed reaches "
        "the fit: their spread over seeds is 0 by construction. Other test sets, training rows or "
        "noise move them, if these vary.",
        rows=still.to_dicts(),
        figures=("summary",),
    )


def _sources(evidence: Evidence) -> Iterator[Answer]:
    """Say what share of the variance of accuracy a source accounts for, where that is known.

    What is named is chosen by its result among all cells, so its interval holds for all of them.
    """
    if evidence.variance is None or evidence.variance.is_empty():
        return
    tables = evidence.tables if evidence.every is None else evidence.every
    known = without_alike(splits(evidence.variance), tables.repeats, tables.cells)
    own = known.filter(pl.col("metric") == ACCURACY, pl.col("low").is_not_null())
    parts, lines = [], []
    shared = own.filter(pl.col("part") == OWN, pl.col("share").is_not_null())
    sources = _for_all(tables, shared, shared.height).filter(pl.col("low") > 0)
    if sources.height:
        first = sources.sort("share", "cell", "source", descending=[True, False, False])
        row = first.row(0, named=True)
        ends = (
            f"sd {fixed(row['low'] ** 0.5)} to {fixed(row['high'] ** 0.5)}, {_sure(shared.height)}"
        )
        where = whole_name(row, known).rpartition(", ")[0]
        parts.append(
            f"Of the variance between runs, {row['source']} by itself accounts for "
            f"{row['share']:.0%} in {where} (cell {row['cell']}; "
            f"{ends}; n = {row['n_runs']:,} runs)"
        )
        lines.append(
            f"{row['source']} by itself is {row['share']:.0%} of the variance between runs "
            f"({where})."
        )
    of_sets = own.filter(pl.col("part").is_in([TEST_SET, ALL]))
    cells = of_sets.filter(pl.col("part") == TEST_SET).height
    both = _for_all(tables, of_sets, cells).filter(pl.col("low") > 0)
    runs_differ = pl.col("part") == ALL, pl.col("variance") > _ROUNDING
    differ = known.filter(pl.col("metric") == ACCURACY, *runs_differ)["cell"].n_unique()
    of = f"of {counted(min(cells, differ), 'cell')}{_DIFFERING * (differ < cells)}"
    sets, runs = (both.filter(pl.col("part") == part) for part in (TEST_SET, ALL))
    apart = sets.join(runs, on="cell", suffix="_all").filter(pl.col("low") > pl.col("high_all"))
    if apart.height:
        row = apart.sort("variance", "cell", descending=[True, False]).row(0, named=True)
        parts.append(
            f"accuracy varies more between test sets than between seeds in {apart.height:,} "
            f"{of} (whose two intervals do not overlap), such as "
            f"{whole_name(row, known).rpartition(', ')[0]} (cell {row['cell']}): "
            f"sd {fixed(row['variance'] ** 0.5)} "
            f"({fixed(row['low'] ** 0.5)} to {fixed(row['high'] ** 0.5)}, {_sure(cells)}; n = "
            f"{counted(row['n_repeats'], 'test set')}) against {fixed(row['variance_all'] ** 0.5)} "
            f"({fixed(row['low_all'] ** 0.5)} to {fixed(row['high_all'] ** 0.5)}) between runs"
        )
        such = "" if apart.height == 1 else "such as "
        said = f"Test sets vary accuracy more than seeds in {apart.height:,}"
        cell = f"{such}{row['classifier']}", f"cell {row['cell']}"
        lines.append(
            shortest(
                [
                    f"{said} {of} ({cell[0]} on {row['dataset']}, {cell[1]}).",
                    f"{said} {of} ({', '.join(cell)}).",
                    f"{said} {of.removesuffix(_DIFFERING)} ({', '.join(cell)}).",
                ],
                LINE,
            )
        )
    if parts:
        text = "; ".join(parts) + "."
        yield Answer(
            "\n".join(lines),
            evidence=text[0].upper() + text[1:],
            rows=own.to_dicts(),
            figures=("overview-accuracy-std", "summary"),
        )


_DIFFERING = " whose runs differ"


def _sure(among: int) -> str:
    return "95 %" if among < 2 else f"95 % for all {among:,} together"


def _for_all(tables: Tables, rows: pl.DataFrame, among: int) -> pl.DataFrame:
    """Return rows on accuracy whose intervals hold for so many together (Bonferroni)."""
    if among < 2 or not (rows["low"] > 0).any():
        return rows
    alone = replace(tables, pairs=tables.pairs.clear())
    key, limits = ["cell", "metric", "source", "part"], ["low", "high"]
    sure = variance(alone, 1 - (1 - CONFIDENCE) / among).select(*key, *limits)
    return rows.drop(limits).join(sure, on=key, maintain_order="left")
