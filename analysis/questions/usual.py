"""Which cells of a dataset a headline is about: those without noise on all training rows, if any.

The context that most classifiers have is chosen; of several, the one nearest to the references of
the axes, then the one with most training rows, then the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES, FRACTION, condition, told
from manyseed.analysis.counts import fixed, some
from manyseed.analysis.questions.drawn import varied
from manyseed.analysis.questions.effects import REFERENCES, UNPERTURBED
from manyseed.analysis.questions.question import LINE, Answer, Evidence, shortest
from manyseed.analysis.tables.rows import SIZE, Tables

CONTEXT = [name for name in AXES if name != "classifier"]
"""The axes that describe a cell, without its classifier."""

_OTHERS = [name for name in CONTEXT if name != "dataset"]
CONFIGURATIONS = 5  # most of a classifier that are models of their own
ALONE = "_alone"
"""The column of `models` that holds the classifier."""
_DATA = [*UNPERTURBED]
"""The axes along which training data or hparams are drawn or changed: no matter of seeds alone."""


def chosen(own: pl.DataFrame) -> pl.DataFrame:
    """Return the context of a dataset, in one row; `own`: columns cell and those of `AXES`."""
    return (
        own.group_by(_OTHERS, maintain_order=True)
        .agg(pl.col("classifier").n_unique().alias("_many"), pl.col("cell").min().alias("_first"))
        .with_columns(_usual=_usual_levels(own), _size=SIZE)
        .sort("_many", "_usual", "_size", "_first", descending=[True, True, True, False])
        .head(1)
        .select(_OTHERS)
    )


def _usual_levels(own: pl.DataFrame) -> pl.Expr:
    """Return how many levels of a cell are usual; of training sizes, the largest is."""
    usual = [
        pl.col(name).cast(pl.String) == REFERENCES[name] for name in _OTHERS if name != FRACTION
    ]
    largest = own.select(SIZE.max()).item()
    return pl.sum_horizontal(one.fill_null(value=False) for one in (*usual, largest == SIZE))


def models(own: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the models of a dataset that are compared: those of the chosen context.

    A classifier that lacks its hparams, or of which none are usual, has a model for each of its
    configurations, if these are few: in the column classifier it is called after both, and `ALONE`
    holds the classifier.

    `own`: columns cell and those of `AXES`, of one dataset.
    """
    context = chosen(own)
    level, rest = context["hparams"][0], [name for name in _OTHERS if name != "hparams"]
    like = own.join(context.select(rest), on=rest, how="semi", nulls_equal=True)
    n, is_usual = pl.col("hparams").n_unique().over("classifier"), pl.col("hparams") == level
    is_first = (n == 1) | (n > CONFIGURATIONS) | pl.lit(level == REFERENCES["hparams"])
    as_usual = is_usual.any().over("classifier") & is_first
    named = pl.format("{} {}", "classifier", "hparams")
    is_named = ~pl.col("_as_usual") & (pl.col("_n") > 1)
    return (
        like.with_columns(pl.col("classifier").alias(ALONE), _as_usual=as_usual, _n=n)
        .filter(pl.when("_as_usual").then(is_usual).otherwise(pl.col("_n") <= CONFIGURATIONS))
        .with_columns(classifier=pl.when(is_named).then(named).otherwise("classifier"))
    )


def nearest(own: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a cell of each classifier that no model is of: the likest to the chosen.

    `own`: as in `models`.
    """
    context = chosen(own).row(0, named=True)
    rest = [name for name in _OTHERS if name != "hparams"]
    there = {*models(own)[ALONE]}
    like = own.join(chosen(own).select(rest), on=rest, how="semi", nulls_equal=True)
    there |= {*like["classifier"]}  # has too many configurations, but else what others have
    same = [pl.col(name).eq_missing(pl.lit(context[name])) for name in rest]
    cells = (
        own.filter(~pl.col("classifier").is_in([*there]))
        .with_columns(_same=pl.sum_horizontal(same), _usual=_usual_levels(own), _size=SIZE)
        .sort("_same", "_usual", "_size", "cell", descending=[True, True, True, False])
        .unique("classifier", keep="first", maintain_order=True)
    )
    return own.join(cells, on="cell", how="semi", maintain_order="left")


def as_models(cells: pl.DataFrame) -> pl.DataFrame:
    """Return the cells of `models`, as if hparams were usual, where configurations are models.

    Else all cells as they are. `cells`: columns cell and those of `AXES`.
    """
    if cells.is_empty():
        return cells
    known = cells.with_columns(pl.col("classifier").cast(pl.String))
    parts = known.partition_by("dataset", maintain_order=True)
    found = pl.concat([models(one.sort("cell")) for one in parts], how="vertical_relaxed")
    if (found["classifier"] == found[ALONE]).all():
        return cells
    usual = pl.lit(REFERENCES["hparams"]).alias("hparams")
    return found.with_columns(usual).select(cells.columns)


def usual_cells(rows: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Return the cells whose training data are those of the chosen context, in a column `cell`.

    With them, in words, what is unusual of them where a dataset has other cells; mostly nothing.

    `rows`: columns cell and those of `AXES`.
    """
    known = rows.select("cell", *AXES).unique("cell", maintain_order=True).sort("cell")
    kept, levels = [known.select("cell").clear()], dict[str, None]()
    for own in known.partition_by("dataset", maintain_order=True):
        context = chosen(own).select(_DATA)
        kept.append(own.join(context, on=_DATA, how="semi", nulls_equal=True).select("cell"))
        levels |= {
            told(axis, level): None
            for axis, level in context.row(0, named=True).items()
            if own[axis].n_unique() > 1 and str(level) != str(REFERENCES[axis])
        }
    return pl.concat(kept), ", ".join(levels)


def scope(rows: pl.DataFrame, *, of_data: bool = False) -> dict[str, tuple[str, ...]]:
    """Return the levels that usual cells have of each axis in which they differ from other cells.

    Of what varies, the level whose accuracies are told counts, if all classifiers have it. Empty if
    all cells are usual. `rows`: columns cell and those of `AXES`. `of_data`: leave out what varies.
    """
    known = rows.select("cell", *AXES).unique("cell", maintain_order=True).sort("cell")
    found: dict[str, dict[str, None]] = {}
    for own in known.partition_by("dataset", maintain_order=True):
        context = chosen(own)
        for axis, level in context.select(_DATA).row(0, named=True).items():
            if own[axis].n_unique() > 1:
                found.setdefault(axis, {})[str(level)] = None
        usual = own.join(context, on=_DATA, how="semi", nulls_equal=True)
        with_it = usual.join(context, on="vary", how="semi")["classifier"].n_unique()
        is_shared = with_it == usual["classifier"].n_unique()
        if not of_data and is_shared and usual["vary"].n_unique() > 1:
            found.setdefault("vary", {})[str(context["vary"][0])] = None
    return {axis: (*levels,) for axis, levels in found.items()}


def scope_in_words(rows: pl.DataFrame, *, of_data: bool = False) -> str:
    """Return `scope` in words, such as perturb labels none; empty if all cells are usual."""
    return ", ".join(told(axis, *levels) for axis, levels in scope(rows, of_data=of_data).items())


def other_level(rows: pl.DataFrame) -> str | None:
    """Return a condition on runs of no usual cell; None if all cells are usual."""
    for axis, usual in scope(rows).items():
        levels = rows[axis].unique().sort()
        if others := [level for level in levels if str(level) not in usual]:
            return condition(axis, others[-1])
    return None


def only_usual(points: pl.LazyFrame, where: str | None = None) -> str:
    """Say that answers of points are of usual cells alone, and which condition asks of others.

    `points`: columns cell, n_cells and those of `AXES`, of the rows that meet `where`.
    """
    cells = points.select("cell", "n_cells", *AXES).unique().collect().sort("cell")
    if cells["n_cells"].max() != 1 or not (which := scope_in_words(cells)):
        return ""
    asked = " and ".join(filter(None, (where and f"({where})", other_level(cells))))
    others = f'; of others: where = "{asked}"' if '"' not in asked else ""
    return f"Of the runs with {which} alone{others}"


def _scope_in_short(rows: pl.DataFrame) -> str:
    """Return `scope` in few words, such as without noise, on all rows."""
    said: dict[str, None] = {}
    for axis, levels in scope(rows).items():
        if levels != (str(REFERENCES[axis]),):
            said[told(axis, *levels)] = None
        elif axis.startswith("perturb_"):
            said["without noise"] = None
        else:
            said["on all rows"] = None
    return ", ".join(said)


def answer(tables: Tables) -> Iterator[Answer]:
    """Say which runs headlines are about, where there are others.

    `tables`: with the columns of `AXES` joined, of one snapshot.
    """
    if not (which := scope_in_words(tables.cells)):
        return
    usual, _ = usual_cells(tables.cells)
    known = tables.cells.join(usual, on="cell", how="semi", maintain_order="left")
    which_vary = scope(known).get("vary", ())
    told_of = {
        "Accuracy": "mean accuracies",
        "ranks": "ranks",
        "spread": "the spread between seeds",
    }
    told_of["points"], apart = "points that flip or are hard", ""
    if which_vary:
        usual = known.filter(pl.col("vary").cast(pl.String).is_in(which_vary)).select("cell")
        del told_of["ranks"]
        apart = " Mean ranks are over all that varies."
        spread, _ = one_varied(*usual_models(tables.cells))
        if not _have(spread, which_vary):
            del told_of["spread"]
            apart += " The spread between seeds is not of these alone."
        if not _have(widest(known), which_vary):
            del told_of["points"]
            apart += " Points are of the cells in which most sources vary."
    runs = tables.runs.filter(~pl.col("identical"))
    own = runs.join(usual, on="cell", how="semi")
    counts = f"{own.height:,} of {runs.height:,}"
    *first, last = (name for name in told_of if name != "ranks")
    *these, ending = told_of.values()
    which_of = f"{', '.join(these)}{',' * bool(these[1:])}{' and ' * bool(these)}{ending}"
    yield Answer(
        shortest(
            [
                f"{' and '.join(filter(None, (', '.join(first), last)))} "
                f"{'are' if first else 'is'} of the runs with {which}: {counts}.",
                f"{', '.join((*first, last))}: {counts} runs, {_scope_in_short(tables.cells)}.",
            ],
            LINE,
        ),
        evidence=f"{which_of[0].upper()}{which_of[1:]} are of the runs with {which} alone: "
        f"{counts}, without copies.{apart} How many seeds are enough, what matters, and which runs "
        "are unlike others, is of all runs.",
        figures=("classifiers",),
        about="usual",
    )


def _have(cells: pl.DataFrame, levels: Collection[str]) -> bool:
    """Return whether there are cells, all of which vary in one of these ways."""
    return cells.height > 0 and {*cells["vary"].cast(pl.String)} <= {*levels}


def usual_models(cells: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Return the usual cells as `as_models`, and in words what is unusual of them."""
    usual, where = usual_cells(cells)
    named = as_models(cells)
    return named.join(usual, on="cell", how="semi", maintain_order="left"), where


_SOURCES = pl.col("vary").cast(pl.String).str.count_matches("[+*]")


def widest(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep, of each dataset and classifier, the cells in which most sources vary.

    Runs in which fewer vary differ by less, so that taken together they would tell of neither.

    `rows`: columns dataset, classifier and vary.
    """
    return rows.filter(_SOURCES.max().over("dataset", "classifier") == _SOURCES)


def one_varied(cells: pl.DataFrame, where: str) -> tuple[pl.DataFrame, str]:
    """Return the `widest` cells of a single classifier, and `where` with what varies in them.

    None of them where the cells of one dataset can be told beside each other.
    """
    if cells["classifier"].n_unique() != 1 or cells["vary"].n_unique() == 1:
        return cells, where
    if cells["dataset"].n_unique() == 1:
        return cells.clear(), where
    kept = widest(cells)
    which = kept["vary"].unique(maintain_order=True)
    return kept, ", ".join(filter(None, (where, f"vary {' or '.join(which)}")))


def repeats_of_models(repeats: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return the repeats of usual cells, called as `as_models` does.

    Cells of one classifier that differ in what varies are named so, with what is drawn anew.
    """
    named, _ = usual_models(cells)
    named = named.select("cell", "classifier")
    repeats = repeats.drop("classifier").join(named, on="cell", maintain_order="left")
    several = repeats.select("cell", "classifier", "vary").unique()
    if not several["classifier"].is_duplicated().any():
        return repeats
    is_one, which = several["classifier"].n_unique() == 1, varied(repeats.columns)
    both = which if is_one else pl.format("{} ({})", "classifier", which)
    return repeats.with_columns(classifier=both)


def of_usual(points: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of usual cells of the table of points; all where cells were added up."""
    cells = points.select("cell", "n_cells", *AXES).unique().collect()
    if cells["n_cells"].max() != 1:
        return points
    usual, _ = usual_cells(cells)
    return points.filter(pl.col("cell").is_in(usual["cell"].to_list()))


def leveled(
    points: pl.LazyFrame, kept: Collection[int] | None = None, but: str = ""
) -> pl.DataFrame:
    """Return the cells of the table of points, with their `levels`, in words.

    These are those of the axes in which the cells of a classifier on a dataset differ. Where cells
    were added up, only what varies is that of all of them.

    `points`: with columns of `AXES`. `kept`: only these cells. `but`: an axis that is not named.
    """
    axes = [axis for axis in AXES if axis in points.collect_schema().names()]
    cells = points.select("cell", "n_cells", *axes).unique().collect().sort("cell")
    cells = cells.with_columns(pl.col(*axes).cast(pl.String))
    if kept is not None:
        cells = cells.filter(pl.col("cell").is_in([*kept]))
    in_words = partial(told, FRACTION)
    words = {FRACTION: pl.col(FRACTION).map_elements(in_words, return_dtype=pl.String)}
    levels: list[pl.Expr] = [
        pl.when(
            pl.col(axis).n_unique().over("dataset", "classifier") > 1,
            (pl.col("n_cells") == 1) | (axis == "vary"),
        ).then(words.get(axis, pl.col(axis)))
        for axis in axes
        if axis not in ("dataset", "classifier", but)
    ]
    levels = levels or [pl.lit("")]
    return cells.with_columns(levels=pl.concat_str(levels, separator=" ", ignore_nulls=True))


def named(row: Mapping[str, Any]) -> str:
    """Name the cell of a row by its classifier, and its levels if the classifier has several."""
    return f"{row['classifier']} {row.get('levels') or ''}".rstrip()


def between_sets(evidence: Evidence) -> str:
    """Say how much the accuracy of usual cells varies between test sets, where that is told."""
    if evidence.variance is None or evidence.variance.is_empty():
        return ""
    cells, _ = usual_models(evidence.tables.cells)
    of_sets = evidence.variance.filter(
        pl.col("low") > 0, metric="accuracy", part="between test sets"
    )
    rows = of_sets.select("cell", "variance", "low", "high").join(cells, on="cell")
    told = [
        f"{row['classifier']} on {row['dataset']} {fixed(row['variance'] ** 0.5)} "
        f"({fixed(row['low'] ** 0.5)} to {fixed(row['high'] ** 0.5)})"
        for row in rows.sort("variance", "cell", descending=[True, False]).iter_rows(named=True)
    ]
    return f" Between test sets, beyond what runs add, its sd is {some(told, 5)} (95 %)." * bool(
        told
    )
