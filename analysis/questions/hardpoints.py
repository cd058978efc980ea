"""What the table of test points says: which flip, and which nearly all runs get wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.counts import counted, fixed, unbroken
from manyseed.analysis.questions.flips import flips_by_source
from manyseed.analysis.questions.quantiles import poisson_above
from manyseed.analysis.questions.question import (
    LINE,
    NAMES,
    UNKNOWN,
    Answer,
    first_ones,
    place,
    shortest,
)
from manyseed.analysis.questions.usual import leveled, named, widest

NEARLY = float(np.float32(0.95))  # share of a classifier's runs, as exact as the table's
OFTEN = 1 / 3  # share of pairs of runs
LISTED = 10
KINDS = FLIPS, SOURCES, HARD = "flips", "sources", "hard"
"""What rows are about: points that change class, what of that each source is, and hard points."""


_GROUP = ["dataset", "classifier"]
_MOST_FREQUENT = pl.col("majority").drop_nulls().mode().sort().first()


def by_point(points: pl.LazyFrame) -> pl.DataFrame:
    """Return a row for each cell and point, with the cell's `levels` (`usual.leveled`).

    Only the cells in which most sources vary (`usual.widest`) count.

    `points`: the table, with the columns of `AXES`.
    """
    cells = leveled(points)
    kept = leveled(points, widest(cells)["cell"]).select("cell", "levels")
    return (
        points.join(kept.lazy(), on="cell", maintain_order="left")
        .select(
            pl.col(*_GROUP).cast(pl.String),
            *("levels", "cell", "index", "truth", "majority", "n_runs", "wrong", "flips", "margin"),
            known=(pl.col("runs_needed") <= pl.col("n_runs")).fill_null(value=False),
        )
        .sort(*_GROUP, "cell", "index")
        .collect()
    )


def by_classifier(labels: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each dataset, classifier and point, over the classifier's cells.

    `wrong_least` is the share of wrong runs in the cell that is right most often.

    `labels`: as `by_point` returns it.
    """
    least = pl.col("wrong").alias("wrong_least")
    if (labels["levels"] == "").all():
        return labels.with_columns(least)
    weight = pl.col("n_runs")
    return labels.group_by(*_GROUP, "index", maintain_order=True).agg(
        pl.col("truth", *(name for name in NAMES if name in labels.columns)).first(),
        _MOST_FREQUENT,
        weight.sum(),
        (pl.col("wrong") * weight).sum() / weight.sum(),
        least.min(),
        pl.col("margin").mean(),
    )


def answer(
    points: pl.LazyFrame,
    labels: pl.DataFrame,
    limit: int = LISTED,
    judged: pl.DataFrame | None = None,
) -> list[Answer]:
    """Say which points flip, what part of that each source is, and which nearly all runs miss.

    `points`: as in `by_point`, which returned `labels`. `limit`: points that are listed of each.
    `judged`: labels by which points are hard, if `labels` are chosen among these by what they are.
    """
    of, sources = _of_widest(points), flips_by_source(points)
    asked = None if judged is None else labels.select("dataset", "index").unique()
    every = labels if judged is None else judged
    wrong = *wrong_labels(every, limit, asked), *often_wrong(every, limit, asked)
    flips, hard = (
        [replace(one, evidence=f"{one.evidence}{of}") for one in found]
        for found in (_flipping(labels, limit), wrong)
    )
    found = zip(KINDS, (flips, sources, hard), strict=True)
    return [of_kind(kind, one) for kind, own in found for one in own]


def of_kind(kind: str, one: Answer) -> Answer:
    """Return an answer whose rows say which of `KINDS` they are."""
    return replace(one, rows=[{"kind": kind, **row} for row in one.rows])


def _listing(
    found: pl.DataFrame, limit: int, asked: pl.DataFrame | None
) -> tuple[pl.DataFrame, int, str]:
    """Return the first hard points of each dataset, how many are asked for, and that in words."""
    n, meet = found.height, ""
    if asked is not None:
        found = found.join(asked, on=["dataset", "index"], how="semi", maintain_order="left")
        meets = "meets" if found.height == 1 else "meet"
        meet = f" Of these {n:,}, {found.height:,} {meets} the condition."
    return found.group_by("dataset", maintain_order=True).head(limit), found.height, meet


def _of_widest(points: pl.LazyFrame) -> str:
    """Say which cells count, of classifiers with several choices of what varies."""
    cells = points.select(*_GROUP, "vary").unique().collect().cast(pl.String)
    kept = widest(cells)
    left = cells.join(kept, on=cells.columns, how="anti")
    named = kept.join(left, on=_GROUP, how="semi").select("classifier", "vary").unique()
    named = named.sort(pl.all())
    return "".join(f" Of {name}, runs with vary {vary} alone." for name, vary in named.iter_rows())


def _flipping(labels: pl.DataFrame, limit: int) -> Iterator[Answer]:
    found = (
        labels.drop_nulls("flips")
        .group_by(*_GROUP, "levels", maintain_order=True)
        .agg(
            pl.len().alias("points"),
            (pl.col("flips") > 0).sum().alias("flipping"),
            (pl.col("flips") >= OFTEN).sum().alias("often"),
            (~pl.col("known")).sum().alias("unknown"),
            pl.col("n_runs").max().alias("runs"),
        )
        .filter(pl.col("flipping") > 0)
        .sort("flipping", descending=True, maintain_order=True)
    )
    if found.is_empty():
        return
    of = [
        f"{row['flipping']:,} of {row['points']:,} of {named(row)} on {row['dataset']}"
        for row in found.iter_rows(named=True)
    ]
    what = "classifier" if found["dataset"].n_unique() == 1 else "group"
    what = "dataset" if found["classifier"].n_unique() == 1 else what
    what = "cell" if (found["levels"] != "").any() else what
    several = labels.drop_nulls("flips").filter(pl.col("flips") > 0)
    rows = several.sort(["flips", "margin"], descending=[True, False]).head(limit)
    evidence = " ".join(
        f"{named(row)} on {row['dataset']}: "
        f"{counted(row['flipping'], 'point')} change{'s' if row['flipping'] == 1 else ''} class "
        f"between runs{_how_often(row)}; for "
        f"{row['points'] - row['unknown']:,} of {row['points']:,} points these runs tell (95 %) "
        "which class most further runs would predict."
        for row in found.head(limit).iter_rows(named=True)
    )
    whole = [(" between runs", what)]
    headline = shortest(
        (
            first_ones(of, f"Points that change class{more}: {{}}.".format, what=each)
            for more, each in (*whole, ("", what), ("", ""), *whole)
        ),
        LINE,
    )
    if found.height > 1 and found.select("dataset", "points").n_unique() == 1:
        each = [f"{named(row)} {row['flipping']:,}" for row in found.iter_rows(named=True)]
        start = f"Points that change class, of {found['points'][0]:,} of {found['dataset'][0]}"
        headline = first_ones(each, f"{start}: {{}}.".format, what=what)
    yield Answer(
        headline,
        details=_listed(rows, "flips", several.height),
        rows=rows.to_dicts(),
        evidence=evidence,
        figures=("points",),
    )


_TELLING = 7
"""Fewest runs of which one that differs is in fewer than a third of the pairs: 2 / n of them."""


def _how_often(row: Mapping[str, Any]) -> str:
    """Say how many points change class often, unless any change at all is often."""
    if row["runs"] < _TELLING:
        return ""
    return f", {row['often']:,} of them in a third of the pairs of runs or more"


def wrong_labels(
    labels: pl.DataFrame, limit: int = LISTED, asked: pl.DataFrame | None = None
) -> Iterator[Answer]:
    """Name the points that nearly every run of every classifier gets wrong, the surest first.

    They are named only if there are more of them than classifiers that err independently of each
    other in each class have in common (`_are_told`). Where classes overlap there are,
    without any wrong label.

    `labels`: as `by_point` returns it. `asked`: columns dataset and index of the points to list,
    where not all are.
    """
    labels, chance = _telling(labels)
    labels = by_classifier(labels)
    ranked = suspects(labels)
    datasets = ranked["dataset"].unique(maintain_order=True).to_list()
    short, rows, evidence, but = list[str](), list[pl.DataFrame](), list[str](), ""
    for dataset in datasets:
        own = ranked.filter(dataset=dataset)
        wrong = own.filter(pl.col("wrong_least") >= NEARLY)
        of = labels.filter(dataset=dataset)
        expected = _wrong_together(of.join(own.select("index"), on="index", how="semi"))
        if not _are_told(wrong.height, expected, len(datasets)):
            continue
        n = f"{wrong.height:,} of {own.height:,} tested points of {dataset}"
        n += " is" if wrong.height == 1 else " are"
        short.append(f"{wrong.height:,}{'' if short else ' points'} of {dataset}")
        rows.append(wrong)
        evidence.append(
            f"{n} wrong in at least {NEARLY:.0%} of the runs of each of "
            f"{of['classifier'].n_unique():,} classifiers; if these erred independently of each "
            f"other in each class, about {expected:.2g} would be. "
            f"By class: {_by_class(wrong, own)}."
        )
        if left := chance.get(dataset):
            but = f" but {' and '.join(left)}"
            evidence.append(_not_counted(left))
    if not short:
        return
    found = pl.concat(rows)
    every = f"{n} wrong in nearly every run of every classifier"
    headline = shortest([f"{every}{but}: hard, or wrongly labelled.", f"{every}{but}."])
    if len(short) > 1:
        said = "Hard or wrongly labelled"
        headline = first_ones(short, f"{said}, as nearly all runs err: {{}}.".format)
        if len(headline) > LINE:
            headline = first_ones(short, f"{said}: {{}}.".format, width=LINE)
    elif found.height == 1:
        named = place(found.row(0, named=True))
        headline = shortest([f"{headline.partition('hard')[0]}{named}.", headline])
    found, n_wrong, meet = _listing(found, limit, asked)
    yield Answer(
        headline,
        details=_listed(found, "wrong", n_wrong),
        rows=found.to_dicts(),
        evidence=" ".join(evidence),
        cannot_tell=f"{meet} Where classes overlap, such points need no wrong label: look at them."
        f"{_counted_from(found)}".lstrip(),
        figures=("points",),
    )


def _by_class(some: pl.DataFrame, every: pl.DataFrame) -> str:
    """Say how many of some points have each label, out of all that have it; the most first."""
    n = dict(every["truth"].drop_nulls().value_counts().iter_rows())
    of = some["truth"].drop_nulls().value_counts().sort("count", "truth", descending=[True, False])
    return first_ones(
        [f"{unbroken(name)} {k:,} of {n[name]:,}" for name, k in of.iter_rows()], "{}".format
    )


def _telling(labels: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """Return the rows of cells that tell classes apart, and by dataset which do not.

    A cell at chance is right on some points by luck, whatever their labels. It is one if its
    mean share of right runs over k classes is not above 1/k by 1.96 standard errors, as if points
    were independent. Where no cell of a dataset is better, all are kept.
    """
    key, p, k = [*_GROUP, "levels"], 1 - pl.col("wrong"), pl.len()
    known = labels.drop_nulls("truth").group_by(*key, "truth")
    of_class = known.agg(pl.col("wrong").mean(), n=pl.len())
    noise = (p * (1 - p) / pl.col("n")).sum().sqrt() / k
    at_chance = of_class.group_by(key).agg(poor=p.mean() - 1.96 * noise <= 1 / k)
    marked = at_chance.with_columns(poor=pl.col("poor") & ~pl.col("poor").all().over("dataset"))
    left: dict[str, list[str]] = {}
    for row in marked.filter("poor").sort(key).iter_rows(named=True):
        left.setdefault(row["dataset"], []).append(named(row))
    told = labels.join(marked.filter("poor"), on=key, how="anti", maintain_order="left")
    return told, left


def _not_counted(classifiers: Sequence[str]) -> str:
    return f"{' and '.join(classifiers)} not counted: not told to be better than chance."


def _counted_from(rows: pl.DataFrame) -> str:
    """Say how rows are counted, unless points have names."""
    named = [place(row) for row in rows.iter_rows(named=True)]
    text = ""
    if any(name.startswith("row ") for name in named):
        text += " Rows count from 0, without the header."
    if "row" in rows.columns and (rows["row"] == UNKNOWN).any():
        text += (
            " Points are numbered as prepared, not as in the source, which is not known here: "
            "plan again where the data are."
        )
    return text


def often_wrong(
    labels: pl.DataFrame, limit: int = LISTED, asked: pl.DataFrame | None = None
) -> Iterator[Answer]:
    """Name the points that nearly every run gets wrong where there is a single classifier.

    They are named only if there are more of them than if its runs erred on all points of a class
    alike, as often as they do (`_are_told`). Without another classifier, nothing tells whether
    labels are wrong. A point with one run does not count. `asked`: as in `wrong_labels`.
    """
    labels, chance = _telling(labels)
    is_alone = pl.col("classifier").n_unique().over("dataset") == 1
    cells = labels.filter(is_alone)  # before points with one run are left out
    labels = by_classifier(cells)
    known = suspects(labels.filter(pl.col("n_runs") > 1), several=False)
    datasets = known["dataset"].unique(maintain_order=True).to_list()
    of = dict(labels.select("dataset", "classifier").iter_rows())
    short, rows, evidence = list[str](), list[pl.DataFrame](), list[str]()
    for dataset in datasets:
        every = known.filter(dataset=dataset)
        wrong = every.filter(pl.col("wrong_least") >= NEARLY)
        here = cells.join(every, on=["dataset", "index"], how="semi")
        n, expected = wrong.height, _wrong_by_chance(here)
        if not _are_told(n, expected, len(datasets)):
            continue
        rows.append(wrong)
        short.append(f"{f'{n:,}' if short else counted(n, 'point')} of {dataset} ({of[dataset]})")
        are = f"{n:,} of {every.height:,} tested points of {dataset}"
        if every.height < labels.filter(dataset=dataset).height:
            are = are.replace("tested points", "points") + " tested at least twice"
        are += f" {'is' if n == 1 else 'are'} wrong in"
        evidence.append(
            f"{are} at least {NEARLY:.0%} of the runs of {of[dataset]}; if these erred on all "
            f"points of a class alike, about {expected:.2g} would be. "
            f"By class: {_by_class(wrong, every)}."
        )
        if left := chance.get(dataset):
            evidence.append(_not_counted(left))
    if not short:
        return
    found = pl.concat(rows)
    headline = first_ones(short, "Wrong in nearly every run: {}.".format)
    if len(short) == 1:
        text = f"{are} nearly every run of {of[found['dataset'][0]]}: {{}}.".format
        headline = first_ones([place(row) for row in found.iter_rows(named=True)], text)
    found, n_wrong, meet = _listing(found, limit, asked)
    yield Answer(
        headline,
        details=_listed(found, "wrong", n_wrong),
        rows=found.to_dicts(),
        evidence=" ".join(evidence),
        cannot_tell=meet.lstrip(),
        figures=("points",),
    )


RARE = 0.05  # probability of naming points where none is hard


def _are_told(n: int, expected: float, datasets: int) -> bool:
    """Return whether n points are so many more than expected by chance that they may be named."""
    return n > 0 and poisson_above(n, expected) * datasets <= RARE


def _wrong_together(labels: pl.DataFrame) -> float:
    """Return how many points nearly all runs of all classifiers would get wrong by chance.

    If on the points of a class, which may be harder than others, these err independently.
    """
    shares = labels.group_by("truth", "classifier").agg(
        (pl.col("wrong_least") >= NEARLY).mean(), n=pl.len()
    )
    of_class = shares.group_by("truth").agg(pl.col("wrong_least").product() * pl.col("n").max())
    return float(of_class["wrong_least"].sum())


def _wrong_by_chance(labels: pl.DataFrame) -> float:
    """Return how many points nearly every run would get wrong if a class had no hard ones.

    `labels`: those of a dataset and a single classifier, whose cells are each taken to err by
    themselves. Runs that differ in accuracy have fewer in common than runs of their mean.
    """
    from scipy.stats import binom

    runs, alike = pl.col("n_runs"), ("levels", "truth")
    share = (pl.col("wrong") * runs).sum().over(alike) / runs.sum().over(alike)
    n, p = (labels.select(one).to_series().to_numpy() for one in (runs, share))
    nearly = pl.Series("nearly", binom.sf(np.ceil(NEARLY * n - 1e-6) - 1, n, p))
    of_point = labels.select("index", nearly).group_by("index").agg(pl.col("nearly").product())
    return float(of_point.sort("index")["nearly"].sum())


def suspects(labels: pl.DataFrame, *, several: bool = True) -> pl.DataFrame:
    """Return the points that several classifiers predicted, the likeliest wrong label first.

    Or those of datasets that a single one did. Ordered by the share of wrong runs of the classifier
    that is right most often, then by the mean share, then by the mean rank of the true class's
    margin, the lowest first.

    `labels`: as `by_classifier` returns it.
    """
    rank = pl.col("margin").rank().over("dataset", "classifier")
    return (
        labels.with_columns(_rank=rank)
        .group_by("dataset", "index", maintain_order=True)
        .agg(
            pl.col("truth", *(name for name in NAMES if name in labels.columns)).first(),
            _MOST_FREQUENT,
            pl.len().alias("classifiers"),
            pl.col("n_runs").sum(),
            pl.col("wrong").mean(),
            pl.col("wrong_least").min(),
            pl.col("_rank").mean(),
        )
        .filter(pl.col("classifiers") == pl.col("classifiers").max().over("dataset"))
        .filter((pl.col("classifiers") > 1) == several)
        .sort(
            ["dataset", "wrong_least", "wrong", "_rank", "index"],
            descending=[False, True, True, False, False],
            nulls_last=True,
        )
        .drop("_rank")
    )


def _by(row: Mapping[str, Any]) -> str:
    """Name the cell, where a row is of one."""
    return f", {named(row)}" if row.get("classifier") else ""


def _listed(rows: pl.DataFrame, column: str, n: int) -> tuple[str, ...]:
    """List points, and say how to list all `n` of them."""
    lines = (
        f"  {row['dataset']}, {place(row)}{_by(row)}: {column} {fixed(row[column], 2)}, labelled "
        f"{unbroken(row['truth'] or 'variously')}, "
        + (
            f"mostly predicted {unbroken(row['majority'])}"
            if row["majority"]
            else "predicted: a tie"
        )
        for row in rows.iter_rows(named=True)
    )
    more = (f"  {rows.height:,} of {n:,} are listed; limit = {n} lists all",)
    return (*lines, *(more if n > rows.height else ()))
