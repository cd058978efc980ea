"""Classifiers compared on the cells that all of them have: their spread between seeds.

The variance of a classifier is the sum of its runs' squared deviations from the means of their
repeats, divided by the degrees of freedom, as in tables of averages; its error is that of repeats
with at least `FEWEST` runs. That of a single cell has the interval of
`analysis.questions.intervals.of_variance`. In several cells, and for ratios, runs with the same
number on the same test set share streams in all cells, so they are one cluster, and repeats are
strata. The error of the log variance is that of `analysis.questions.intervals.clustered`, but at
least that of independent normal values, which few clusters may underestimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions import crossed
from manyseed.analysis.questions.drawn import and_seeds, anew, drawn_in_all
from manyseed.analysis.questions.effects import wider
from manyseed.analysis.questions.intervals import (
    ASSUMED,
    SKEWED,
    clustered,
    of_log_variance,
    of_variance,
    total,
)
from manyseed.analysis.questions.question import (
    WORDS,
    Answer,
    Evidence,
    all_or_first,
    first_ones,
)
from manyseed.analysis.questions.resolution import AlikeRuns, resolved, too_alike
from manyseed.analysis.questions.usual import (
    CONTEXT,
    between_sets,
    one_varied,
    repeats_of_models,
    scope_in_words,
    usual_cells,
    usual_models,
)
from manyseed.analysis.tables.rows import IS_CROSSED, IS_ONE_MODEL, VARIES, Tables


@dataclass(frozen=True, slots=True)
class CellBlock:
    """Classifiers and the cells of the contexts that all of them have."""

    classifiers: tuple[str, ...]
    contexts: int  # number of cells of each classifier
    left: tuple[str, ...]  # classifiers left out: they share too few cells with the others
    cells: pl.DataFrame  # columns cell, classifier and dataset


def block(cells: pl.DataFrame) -> CellBlock | None:
    """Return the block with the most cells; None if no two classifiers share a context.

    Classifiers are added in descending order of how many contexts they have.

    `cells`: columns cell and those of `AXES`.
    """
    context = pl.struct(CONTEXT).map_elements(repr, return_dtype=pl.String)
    known = (
        cells.select("cell", *AXES)
        .with_columns(pl.col("dataset", "classifier").cast(pl.String))
        .with_columns(_context=context)
        .unique("cell", maintain_order=True)
    )
    have = {
        name: set(own["_context"])
        for (name,), own in known.partition_by("classifier", as_dict=True).items()
    }
    order = sorted(have, key=lambda name: (-len(have[name]), name))
    best: tuple[int, int] = (0, 0)
    common: set[str] = set()
    shared = have[order[0]] if order else set()
    for count, name in enumerate(order, start=1):
        shared = shared & have[name]
        size = (count * len(shared), count)
        if count > 1 and shared and size >= best:
            best, common = size, shared
    if not common:
        return None
    kept = tuple(sorted(order[: best[1]]))
    inside = known.filter(
        pl.col("classifier").is_in(kept), pl.col("_context").is_in(sorted(common))
    ).select("cell", "classifier", "dataset")
    return CellBlock(kept, len(common), tuple(sorted(order[best[1] :])), inside)


FEWEST = 4  # runs of a repeat: fewer say next to nothing about a variance
FREEDOM = 6  # degrees of freedom of a classifier, likewise

_CLUSTER = ["classifier", "stratum", "cluster"]


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """One classifier's standard deviation between seeds, with an interval, and its number of runs.

    `skewness` is that of the runs' deviations from the means of their repeats.
    """

    classifier: str
    sd: float
    low: float
    high: float
    runs: int
    skewness: float


@dataclass(frozen=True, slots=True)
class Spreads:
    """Spreads of classifiers, the largest first.

    `contexts`: number of cells of each classifier. `left`: classifiers that share too few cells to
    be compared. `where`: what is unusual of the cells, in words. `drawn`: what is drawn anew in
    them for each run, whatever `vary` says, likewise.
    `ratio`, `low` and `high`: ratio of the largest to the smallest standard deviation,
    with an interval that holds for all pairs of classifiers together (Bonferroni). `pairs`: number
    of these pairs. `like_first` and `like_last`: classifiers whose spread cannot be told from the
    largest, and from the smallest, likewise. `alike`: classifiers whose runs are equal on each test
    set, or vary by less than one test point; `rows` has none of them.
    """

    rows: tuple[SeedSpread, ...]
    contexts: int
    left: tuple[str, ...]
    ratio: float
    low: float
    high: float
    pairs: int
    like_first: tuple[str, ...]
    like_last: tuple[str, ...]
    alike: tuple[AlikeRuns, ...] = ()
    where: str = ""
    drawn: str = ""


def spreads(tables: Tables, confidence: float = CONFIDENCE) -> Spreads | None:
    """Compare classifiers, or describe a single one; None if none share cells whose runs vary.

    Of each dataset, only the usual cells count: elsewhere noise and subsamples vary, too. Crossed
    ones do not, as their runs share values (`of_few_runs`).

    `tables`: with the columns of `AXES` joined, of one snapshot.
    """
    repeats = tables.repeats.filter(VARIES, pl.col("n_distinct") >= FEWEST)
    # with noise on hparams, runs differ by more than seeds
    cells, where = one_varied(*usual_models(tables.cells.filter(perturb_hparams="none")))
    cells = cells.filter(~IS_CROSSED)
    cells = cells.join(repeats.select("cell"), on="cell", how="semi", maintain_order="left")
    if cells.height and cells["classifier"].n_unique() == 1:
        own = cells.select("cell", pl.col("classifier", "dataset").cast(pl.String))
        shared: CellBlock | None = CellBlock((own["classifier"][0],), own.height, (), own)
    else:
        shared = block(cells) if cells.height else None
    if shared is None:
        return None
    key = ["cell", "repeat_index"]
    deviation = pl.col("accuracy") - pl.col("accuracy").mean().over(key)
    every = (
        tables.runs.filter(~pl.col("identical"))
        .select(*key, "run_index", "accuracy")
        .join(tables.repeats.filter(VARIES).select(key), on=key, how="semi")
        .join(shared.cells, on="cell")
        .drop_nulls("accuracy")
        .sort(*key, "run_index")
        .with_columns(n=pl.len().over(key), plain=deviation**2, cube=deviation**3)
        .filter(pl.col("n") > 1)
    )
    rows = every.join(repeats.select(key), on=key, how="semi", maintain_order="left").with_columns(
        # deviations from an estimated mean are too small: correct squares, and again their spread
        square=pl.col("plain") * ((pl.col("n") - 1) / (pl.col("n") - 2)).sqrt(),
        stratum=pl.format("{}/{}", "dataset", "repeat_index"),
        cluster=pl.col("run_index"),
    )
    by_repeat = every.group_by("classifier", *key, maintain_order=True).agg(
        total(pl.col("plain")).alias("squares"),
        total(pl.col("cube")).alias("cubes"),
        pl.len().alias("runs"),
        (pl.len() - 1).cast(pl.Float64).alias("free"),
    )
    found = by_repeat.group_by("classifier", maintain_order=True).agg(
        *(total(pl.col(name)).alias(name) for name in ("squares", "cubes", "runs")),
        total(pl.col("free")).alias("freedom"),
    )
    known = by_repeat.join(repeats.select(key), on=key, how="semi", maintain_order="left")
    error = known.group_by("classifier", maintain_order=True).agg(
        total(pl.col("squares")).alias("known"),
        total(pl.col("free")).alias("known_freedom"),
        total(2 * pl.col("squares") ** 2 / pl.col("free")).alias("normal"),
    )
    found = found.join(error, on="classifier")
    if len(found) < len(shared.classifiers) or found["known_freedom"].to_numpy().min() < FREEDOM:
        return None
    found = found.join(
        resolved(by_repeat, repeats), on="classifier", how="left", maintain_order="left"
    ).with_columns(sd=(pl.col("squares") / pl.col("freedom")).sqrt())
    is_alike = found["alike"].to_list()
    shown = ("classifier", "runs", "freedom", "sd", "step")
    alike = tuple(AlikeRuns(*row) for row in found.filter(is_alike).select(shown).rows())
    found = found.filter(~pl.Series(is_alike, dtype=pl.Boolean))
    more = drawn_in_all(tables.cells.join(shared.cells, on="cell", how="semi"))
    if found.is_empty():
        none = (1.0, 1.0, 1.0, 0, (), ())
        return Spreads((), shared.contexts, shared.left, *none, alike, where, more)
    influence = (
        rows.group_by(_CLUSTER, maintain_order=True)
        .agg(total(pl.col("square")).alias("own"))
        .join(found.select("classifier", "known"), on="classifier")
        .with_columns(own=pl.col("own") - pl.col("own").mean().over("classifier", "stratum"))
        .with_columns(u=pl.col("own") / pl.col("known"))
        .sort(_CLUSTER)
    )
    alone = clustered(influence.select([*_CLUSTER, "u"]), ["classifier"])
    found = found.join(alone, on="classifier", how="left").with_columns(
        floor=pl.col("normal") / pl.col("known") ** 2,
    )
    if found["freedom_right"].null_count():
        return None
    found = found.sort("sd", "classifier", descending=[True, False])
    of_one = by_repeat.with_columns(own=pl.col("squares") / pl.col("free"))
    by_sd = tuple(
        _spread(row, confidence, of_one.filter(classifier=row["classifier"]), shared.contexts)
        for row in found.iter_rows(named=True)
    )
    all_of = found.rows(named=True)
    pairs = len(by_sd) * (len(by_sd) - 1) // 2
    sure = 1 - (1 - confidence) / max(pairs, 1)

    def compared(one: dict[str, Any], other: dict[str, Any]) -> tuple[float, float, float]:
        variance, freedom = _of_ratio(influence, one["classifier"], other["classifier"])
        ratio, floor = one["sd"] / other["sd"], one["floor"] + other["floor"]
        return ratio, *of_log_variance(ratio, max(variance, floor), freedom, sure)

    first, last = all_of[0], all_of[-1]
    like_first = tuple(own["classifier"] for own in all_of[1:] if compared(first, own)[1] <= 1)
    like_last = tuple(own["classifier"] for own in all_of[:-1] if compared(own, last)[1] <= 1)
    ratio = compared(first, last)
    of = shared.contexts, shared.left
    return Spreads(by_sd, *of, *ratio, pairs, like_first, like_last, alike, where, more)


LEAST_FREEDOM = 2  # degrees of freedom of a classifier that is not compared


def of_few_runs(
    tables: Tables, confidence: float = CONFIDENCE
) -> tuple[list[SeedSpread], list[AlikeRuns], int, str]:
    """Describe classifiers on one dataset, where few runs allow no comparison.

    Each standard deviation has the interval `of_variance` by itself, or that of `crossed.spread`.
    Empty if a classifier has several cells.

    `tables`: as in `spreads`, with all crossed runs. Returns the spreads, the largest first,
    classifiers whose runs differ too little, the largest number of test sets, and what is drawn
    anew for each run.
    """
    every = tables.cells.filter(perturb_hparams="none")
    repeats = repeats_of_models(tables.repeats.filter(VARIES), every)
    cells = repeats.select("cell", "classifier", "dataset").unique()
    if cells["dataset"].n_unique() > 1 and repeats.select(IS_CROSSED.all()).item():
        if repeats["vary"].n_unique() == 1:
            models = usual_models(every)[0].select("cell", "classifier")
            repeats = repeats.drop("classifier").join(models, on="cell", maintain_order="left")
        both = pl.format("{} on {}", "classifier", "dataset")
        repeats = repeats.with_columns(classifier=both, dataset=pl.lit(""))
        cells = repeats.select("cell", "classifier", "dataset").unique()
    if cells["dataset"].n_unique() != 1 or cells["classifier"].is_duplicated().any():
        return [], [], 0, ""
    more = drawn_in_all(tables.cells.join(cells, on="cell", how="semi"))
    found: list[SeedSpread] = []
    alike: list[AlikeRuns] = []
    key = ["cell", "repeat_index"]
    runs = tables.runs.filter(~pl.col("identical")).drop_nulls("accuracy")
    runs = runs.select(*key, "run_index", "accuracy").join(
        repeats.select(*key, "classifier", "n_test", "vary"), on=key, maintain_order="right"
    )
    for [name], own in runs.group_by("classifier", maintain_order=True):
        one = _of_one(str(name), own, confidence)
        if isinstance(one, AlikeRuns):
            alike.append(one)
        elif one is not None:
            found.append(one)
    sets = max(repeats.group_by("cell").len()["len"], default=0)
    return sorted(found, key=lambda one: (-one.sd, one.classifier)), alike, sets, more


def _of_one(name: str, own: pl.DataFrame, confidence: float) -> SeedSpread | AlikeRuns | None:
    """Return the spread of a cell's runs; None of too few. `own`: of repeats, with `vary`."""
    values = [part["accuracy"].to_numpy() for part in own.partition_by("cell", "repeat_index")]
    values = [part for part in values if part.size > 1]
    free = np.array([part.size - 1.0 for part in values])
    if (freedom := float(free.sum())) < LEAST_FREEDOM:
        return None
    deviation = np.concatenate([part - part.mean() for part in values])
    runs, ends = deviation.size, None
    if sources := crossed.sources_of(str(own["vary"][0])):
        if (told := crossed.spread(own, sources, confidence)) is None:
            return None
        variance, ends = max(told.variance, 0.0), told.limits
        freedom, runs = told.freedom, told.runs
    else:
        variances = np.array([part.var(ddof=1) for part in values])
        variance = float(free @ variances / freedom)
        ends = of_variance(variances, free, confidence) if variance else None
    least = own["n_test"].min()
    step = 1 / float(least) if least else 0.0  # type: ignore[arg-type]
    if too_alike(variance, step):
        return AlikeRuns(name, runs, freedom, variance**0.5, step)
    low, high = (max(end, 0.0) ** 0.5 for end in ends or (0.0, math.inf))
    skewness = float(np.mean(deviation**3) / np.mean(deviation**2) ** 1.5)
    return SeedSpread(name, variance**0.5, low, high, runs, skewness)


def _spread(
    row: dict[str, float], confidence: float, repeats: pl.DataFrame, contexts: int
) -> SeedSpread:
    """Return the spread of a classifier; `repeats`: its variances and degrees of freedom."""
    error = max(row["variance"], row["floor"])
    low, high = of_log_variance(row["sd"], error, row["freedom_right"], confidence)
    if contexts == 1:
        ends = of_variance(repeats["own"].to_numpy(), repeats["free"].to_numpy(), confidence)
        low, high = (end**0.5 for end in ends)
    skewness = row["cubes"] / row["runs"] / (row["squares"] / row["runs"]) ** 1.5
    return SeedSpread(str(row["classifier"]), row["sd"], low, high, int(row["runs"]), skewness)


def _of_ratio(influence: pl.DataFrame, one: str, other: str) -> tuple[float, float]:
    """Return the variance and degrees of freedom of the difference of two log variances."""
    sign = pl.when(pl.col("classifier") == one).then(1.0).otherwise(-1.0)
    both = influence.filter(pl.col("classifier").is_in([one, other])).select(
        "stratum", "cluster", (sign * pl.col("u")).alias("u"), key=pl.lit("")
    )
    row = clustered(both, ["key"]).row(0, named=True)
    return row["variance"], row["freedom"]


def answer_spread(evidence: Evidence) -> Iterator[Answer]:
    """Say how much accuracy varies between seeds, and whether it varies more with other data."""
    more, why = wider(evidence.effects)
    still, always = _one_model_here(evidence.tables.cells)
    found = [*_of_spread(evidence)]
    if still and not found:
        nothing = f"Between seeds, sd of accuracy: {still}, one model per test set."
        found = [Answer(nothing, evidence=always, figures=_FIGURES)]
    elif still:
        first, *rest = found[0].headline.splitlines()
        both = f"{first.removesuffix('.')}; {still}."
        lines = [both] if len(both.split()) <= WORDS else [first, f"Of one model: {still}."]
        text = f"{found[0].evidence} {always}"
        found[0] = replace(found[0], headline="\n".join([*lines, *rest]), evidence=text)
    sets = between_sets(evidence)
    for one in found:
        headline = "\n".join(filter(None, (one.headline, more)))
        yield replace(one, headline=headline, evidence=f"{one.evidence}{sets}{why}")


def _one_model_here(cells: pl.DataFrame) -> tuple[str, str]:
    """Say whose sd is 0 in usual cells, as no seed reaches the fit, and not in others.

    For a headline, and with the evidence.
    """
    usual, _ = usual_cells(cells)
    here = pl.col("cell").is_in(usual["cell"].implode())
    found = cells.group_by("classifier", maintain_order=True).agg(
        here=(IS_ONE_MODEL | ~here).all() & here.any(), always=IS_ONE_MODEL.all()
    )
    names = found.filter(pl.col("here") & ~pl.col("always"))["classifier"].cast(pl.String).to_list()
    listed, where = ", ".join(names), scope_in_words(cells, of_data=True)
    return f"{listed} 0" if names else "", (
        f"Of {listed}, all runs on a test set are one model with {where}, so their "
        "sd is 0 there; elsewhere they differ."
    )


_FIGURES = ("overview-accuracy-std", "cells-1")


def _of_spread(evidence: Evidence) -> Iterator[Answer]:
    """Say how much accuracy varies between seeds, and with which classifier most and least."""
    tables = evidence.tables if evidence.every is None else evidence.every
    found = spreads(tables)
    if found is None:
        are_crossed = "vary" in tables.cells and tables.cells.select(IS_CROSSED.any()).item()
        yield from _few_runs(*of_few_runs(tables), are_crossed=are_crossed)
        return
    alike = " ".join(one.words for one in found.alike)
    seeds, which = and_seeds(found.drawn), f" ({found.where})" if found.where else ""
    of = f"Between {seeds}, sd of accuracy{which}"
    if not found.rows:
        yield Answer(_limits(found.alike), evidence=alike, figures=_FIGURES)
        return
    still = "".join(f"; {one.limit}" for one in found.alike)
    alike = f" {alike}" if alike else ""
    most, least = found.rows[0], found.rows[-1]
    rows = [asdict(row) for row in found.rows]
    few, many = (of(row.runs for row in found.rows) for of in (min, max))
    runs = f"{many:,}" if few == many else f"{few:,} to {many:,}"
    all_of = "both" if len(found.rows) == 2 else f"all {len(found.rows)}"
    single = len(found.rows) == 1
    over = f"over {runs} runs of each on the {counted(found.contexts, 'cell')} that {all_of} have"
    if single:
        over = f"over {counted(most.runs, 'run')} of {counted(found.contexts, 'cell')}"
    if found.left:
        share = "shares" if len(found.left) == 1 else "share"
        over += f"; {', '.join(found.left)} {share} too few cells to be compared"
    over += f", with {found.where}" if found.where else ""
    over += f"; in each, {anew(found.drawn)}" if found.drawn else ""
    over += "; each interval is over seeds on these test sets, and assumes "
    if max(abs(row.skewness) for row in found.rows) > SKEWED:
        over += "normal values, but these are skewed, so it may miss the truth"
    else:
        over += ASSUMED
    largest, smallest = (
        f"{fixed(row.sd)} ({fixed(row.low)} to {fixed(row.high)})" for row in (most, least)
    )
    if single:
        yield Answer(
            f"{of}: {most.classifier} {fixed(most.sd)} "
            f"({fixed(most.low)} to {fixed(most.high)}){still}.",
            evidence=f"Between seeds, the accuracy of {most.classifier} varies with a standard "
            f"deviation of {largest} (95 %; {over}).{alike}",
            rows=rows,
            figures=(*_FIGURES, "summary"),
        )
        return
    told = "which varies most is not told"
    ratio = f"{found.ratio:.1f} times ({found.low:.1f} to {found.high:.1f})"
    sure = "95 %"
    if len(found.rows) > 2:
        sure = f"95 %, for the ratio over all {found.pairs} pairs of classifiers together"
    if found.low > 1:
        varies, against = "most", f"and that of {least.classifier} least, with"
        told = f"{most.classifier} varies more than {least.classifier}"
        if found.like_first:
            varies, against = f"more than that of {least.classifier}", "against"
        elif found.like_last or found.alike:
            against = f"against that of {least.classifier},"
            varies = "most of those whose runs differ enough" if found.alike else varies
        text = (
            f"Between seeds, the accuracy of {most.classifier} varies {varies}, with a standard "
            f"deviation of {largest}, {against} {smallest}: {ratio} as much ({sure}; {over})."
        )
        if found.like_first:
            text += _alike("most", (most.classifier, *found.like_first))
        if found.like_last:
            text += _alike("least", (*found.like_last, least.classifier))
        elif found.like_first and not found.alike:
            text += f" That of {least.classifier} varies least."
    else:
        text = (
            "Which classifier's accuracy varies most between seeds cannot be told: its standard "
            f"deviation is {largest} for {most.classifier} and {smallest} for {least.classifier}, "
            f"{ratio} as much ({sure}; {over})."
        )
    sds = [f"{row.classifier} {fixed(row.sd)}" for row in found.rows]
    headline = first_ones(sds, lambda text: f"{of}: {text}; {told}{still}.")
    if ", ".join(sds) not in headline:  # rather two lines than a spread less
        headline = first_ones(sds, lambda text: f"{of}: {text}{still}.")
        headline += f"\n{told[0].upper() if told.startswith('which') else told[0]}{told[1:]}."
    yield Answer(
        headline,
        evidence=text + alike,
        rows=rows,
        figures=(*_FIGURES, "summary"),
    )


def _limits(alike: Sequence[AlikeRuns]) -> str:
    """Say how much runs vary at most that differ by less than a test point."""
    limits = [one.limit for one in alike]
    return first_ones(limits, lambda text: f"Between seeds, sd of accuracy: {text}.")


def _few_runs(
    found: Sequence[SeedSpread],
    alike: Sequence[AlikeRuns],
    sets: int,
    more: str,
    *,
    are_crossed: bool = False,
) -> Iterator[Answer]:
    """Say how much accuracy varies on one test set or several, without comparing classifiers."""
    if not found and not alike:
        return
    few = "".join(f" {one.words}" for one in alike)
    if not found:
        yield Answer(_limits(alike), evidence=few[1:], figures=_FIGURES)
        return
    sds = [f"{row.classifier} {fixed(row.sd)}" for row in found]
    own = [f"{s} ({fixed(r.low)} to {fixed(r.high)})" for s, r in zip(sds, found, strict=True)]
    sure = "95 %, each by itself" if len(found) > 1 else "95 %"
    over = ", ".join(f"{row.runs:,} of {row.classifier}" for row in found)
    rest = "".join(f"; {one.limit}" for one in alike)
    where = "this test set" if sets == 1 else "these test sets"
    why = "With crossed runs" if are_crossed else "With so few runs"
    untold = f" {why}, they are not compared." * (len(found) > 1)
    named = [one.removesuffix(f" + {more}") for one in (row.classifier for row in found)]
    with_it = bool(more) and all(row.classifier not in named for row in found)
    of = f"Between {and_seeds('' if with_it else more)}, sd of accuracy on {where}"
    headline = all_or_first((own, sds), lambda text: f"{of}: {text}{rest}.")
    if with_it and ", ".join(sds) not in headline and not alike:
        short = [f"{name} {fixed(row.sd)}" for name, row in zip(named, found, strict=True)]
        headline = first_ones(
            short, lambda text: f"{of}: {text}; each with {more.replace(' + ', ' and ')}."
        )
    untold += f" In each, {anew(more)}." if more else ""
    yield Answer(
        headline,
        evidence=f"On {where}, accuracy varies between seeds with a standard deviation of "
        f"{', '.join(own)} ({sure}; each interval assumes {ASSUMED}; runs: {over}).{untold}{few}",
        rows=[asdict(row) for row in found],
        figures=(*_FIGURES, "summary"),
    )


def _alike(superlative: str, classifiers: Sequence[str]) -> str:
    named = f"{', '.join(classifiers[:-1])} and {classifiers[-1]}"
    return f" Which of {named} varies {superlative} cannot be told."
