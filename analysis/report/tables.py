"""Tables of the page: source studies, ensembling methods (PIT, tables 4 to 9), times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import EQUAL, below, fixed
from manyseed.analysis.figures.labels import NOTHING, described
from manyseed.analysis.questions.drawn import varied
from manyseed.analysis.tables.rows import IS_METHOD, REPEAT, Tables

MINUS = "\N{MINUS SIGN}"
SIMILAR = 4  # runs of similar accuracy
MOST = 12  # most pairs of dataset and classifier with such runs
QUANTILES = (0.5, 0.75, 0.95, 0.975, 0.99, 1.0)

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small image: its address with its data, whether it is enlarged, words for and below it."""

    source: str
    enlarged: bool
    alt: str
    caption: Sequence[str]


@dataclass(frozen=True, slots=True)
class Strip:
    """Images of one kind in a row."""

    title: str
    images: Sequence[Thumbnail]


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table of the page.

    `name`, `title` and `legend`: anchor; heading above the table; text below it. `words`: number of
    leading columns that hold words; the others hold numbers. `of`: the columns of tables that heads
    stand for, where more or less is better. `strips` and `notes`: images below it, and why some are
    not there.
    """

    name: str
    title: str
    legend: str
    heads: Sequence[str]
    words: int
    rows: Sequence[Row]
    of: Mapping[str, str] = field(default_factory=dict)
    strips: Sequence[Strip] = ()
    notes: Sequence[str] = ()


def listed(
    tables: Tables, close: float, ensembles: pl.DataFrame | None, sources: pl.DataFrame | None
) -> list[PageTable]:
    """Return the tables that have rows.

    `tables`: of one snapshot, without duplicate fits. `close`: the option that the other tables
    were made with. `ensembles` and `sources`: these tables, if present.
    """
    found = [
        _ensembles(ensembles, close),
        _sources(tables.cells, sources, close),
        _similar(tables),
        times(tables.runs),
    ]
    return [one for one in found if one is not None]


def filled(table: PageTable) -> PageTable:
    """Return a table without number columns that hold only dashes."""
    kept = [
        n
        for n in range(len(table.heads))
        if n < table.words or any(row[n] != "–" for row in table.rows)
    ]
    return replace(
        table,
        heads=[table.heads[n] for n in kept],
        rows=[tuple(row[n] for n in kept) for row in table.rows],
    )


def _ensembles(ensembles: pl.DataFrame | None, close: float) -> PageTable | None:
    """Return table I of RKS."""
    if ensembles is None or ensembles.is_empty():
        return None
    metrics = {"accuracy": "Accuracy", "churn": "Churn", "ece": "ECE"}
    metrics = {name: head for name, head in metrics.items() if name in ensembles.columns}
    heads = [
        *("Dataset", "Classifier", "M_ens", "Ensembles", f"α̂ ≤ {close:g}, %"),
        *(f"{head} ± sd" for head in metrics.values()),
        "δ",
    ]
    of = {f"{head} ± sd": name for name, head in metrics.items()}
    rows = [
        (
            str(row["dataset"]),
            str(row["classifier"]),
            f"{row['size']:,}",
            f"{row['draws']:,}",
            number(None if row["close"] is None else 100 * row["close"], 1),
            *(with_sd(row[one], row[f"{one}_std"]) for one in metrics),
            number(row["delta"], 3),
        )
        for row in ensembles.sort("dataset", "classifier", "size").iter_rows(named=True)
    ]
    return PageTable(
        "ensembles",
        "Ensembles by size",
        "Ensembles of M_ens members, drawn without replacement from one half of the runs of a "
        "repeat; the other half is the reference of α̂. Mean ± standard deviation over the "
        "ensembles. Churn: against the average of the whole half. A dash: δ is above the level, "
        "so a small α̂ says nothing; or scores are not probabilities.",
        heads,
        2,
        rows,
        {**of, heads[4]: "close"},
    )


def _judged(row: Mapping[str, Any], name: str) -> Any:
    """Return a value of judged runs, or of all if none is judged."""
    return row[f"{name}_judged"] if row.get("n_judged") else row[name]


def _of_judged(n: int | None, judged: int | None) -> str:
    """Return how many of the judged runs or pairs, and their share."""
    if n is None or not judged:
        return "–" if n is None else f"{n:,}"
    return f"{n:,} of {judged:,} ({n / judged:.0%})"


def _sources(cells: pl.DataFrame, sources: pl.DataFrame | None, close: float) -> PageTable | None:
    """Return tables II and III of RKS, for cells that differ only in their sources."""
    if sources is None or cells["vary"].n_unique() < 2:
        return None
    words = described(cells.drop("vary"))
    shown = sources.join(cells.select("cell", "epoch"), on=["cell", "epoch"], how="semi")
    shown = shown.join(words, on="cell", how="left", maintain_order="left")
    drawn = cells.select("cell", _varied=varied(cells.columns)).unique("cell")
    shown = shown.join(drawn, on="cell", how="left", maintain_order="left")
    key = ["dataset", "classifier", "_of"]
    shown = shown.filter(pl.col("vary").n_unique().over(key) > 1)
    if shown.is_empty():
        return None
    apart = shown["_of"].n_unique() > 1
    heads = [
        *("Dataset", "Classifier", *(["Cell"] if apart else []), "Sources", "Runs"),
        *("Judged", "Accuracy ± seeds", "Accuracy, range", "Ensemble", f"Runs with α̂ ≤ {close:g}"),
        *("Their accuracy, range", "Churn of pairs, range", "Pairs of such runs", "Their churn"),
    ]
    rows = [
        (
            str(row["dataset"]),
            str(row["classifier"]),
            *([row["_of"]] if apart else []),
            row["_varied"],
            f"{row['n_runs']:,}",
            f"{row.get('n_judged') or 0:,}",
            with_sd(of("accuracy_mean"), of("accuracy_std")),
            _range(of("accuracy_min"), of("accuracy_max")),
            number(row["ensemble_accuracy"], 4),
            _of_judged(row["n_close"], row.get("n_judged")),
            _range(row["accuracy_min_close"], row["accuracy_max_close"]),
            _range(of("churn_min"), of("churn_max")),
            _of_judged(row["n_pairs_close"], row.get("n_pairs_judged")),
            _range(row["churn_min_close"], row["churn_max_close"]),
        )
        for row in shown.sort(*key, "cell").iter_rows(named=True)
        for of in [partial(_judged, row)]
    ]
    return PageTable(
        "sources",
        "Sources of randomness",
        "Cells that differ only in their sources of randomness. Judged: runs with α̂; where half "
        "of the runs are its reference, the other half. Accuracy, churn and shares are of judged "
        "runs, if there are any. Accuracy: mean over repeats ± standard deviation between the runs "
        "of a repeat, pooled; ranges are over the runs of all "
        "test sets, those of churn over pairs within repeats. Ensemble: accuracy of the average "
        "of all runs of a repeat. A dash: δ is above the level, so a small α̂ says nothing, or "
        "there is no such run.",
        heads,
        3 + apart,
        rows,
        {"Accuracy ± seeds": "accuracy_mean", "Ensemble": "ensemble_accuracy"},
    )


def similar(runs: pl.DataFrame) -> pl.DataFrame:
    """Return runs of similar accuracy that differ most in α̂, for each dataset and classifier.

    Runs of a repeat are ordered by accuracy. Of all windows of four neighbours, the one with the
    largest range of α̂ is taken; ties go to the first.

    `runs`: the table of runs. Returns its rows, sorted by dataset, classifier and α̂.
    """
    repeat = ["dataset", "classifier", "cell", "repeat_index"]
    known = runs.filter(~pl.col("identical") & pl.col("alpha_hat").is_not_null())
    known = known.sort(*repeat, "accuracy", "run_index")
    level = pl.col("alpha_hat")
    high, low = level.rolling_max(SIMILAR), level.rolling_min(SIMILAR)
    spread = known.with_columns(
        (high - low).over(repeat).alias("_spread"),
        pl.int_range(pl.len()).over(repeat).alias("_at"),
    )
    group = ["dataset", "classifier"]
    best = (
        spread.filter(pl.col("_spread") >= NOTHING)
        .sort("_spread", *repeat, "_at", descending=[True, *[False] * (len(repeat) + 1)])
        .unique(group, keep="first", maintain_order=True)
        .select(*repeat, pl.col("_at").alias("_last"))
    )
    found = spread.join(best, on=repeat, maintain_order="left")
    inside = pl.col("_at").is_between(pl.col("_last") - SIMILAR + 1, pl.col("_last"))
    return found.filter(inside).sort(*group, "alpha_hat", "run_index")


def _is_told(runs: pl.DataFrame) -> pl.Series:
    """Return whether some α̂ of a run's repeat is at least its resolution δ: else none is told."""
    told = pl.col("alpha_hat").ge(pl.col("_delta")).any().over(REPEAT)
    return runs.select(told | pl.col("_delta").is_null()).to_series()


def _similar(tables: Tables) -> PageTable | None:
    """Return tables IV and V of RKS."""
    deltas = tables.repeats.select(*REPEAT, _delta="delta")
    runs = tables.runs.join(deltas, on=REPEAT, how="left", maintain_order="left")
    found = similar(runs.filter(_is_told(runs)))
    if found.is_empty():
        return None
    words = dict(described(tables.cells).iter_rows())
    apart = any(words.values())
    groups = found.select("dataset", "classifier").unique(maintain_order=True)
    shown = found.join(groups.head(MOST), on=groups.columns, how="semi", maintain_order="left")
    metrics = {
        "Accuracy": ("accuracy", 4),
        "α̂": ("alpha_hat", 4),
        "ECE": ("ece", 4),
        "Churn against the ensemble": ("churn_ensemble", 4),
        "Average churn": ("churn_mean", 4),
    }
    metrics = {head: one for head, one in metrics.items() if one[0] in shown.columns}
    heads = ["Dataset", "Classifier", *(["Cell"] if apart else []), "Run", *metrics]
    rows = [
        (
            str(row["dataset"]),
            str(row["classifier"]),
            *([words.get(row["cell"], "")] if apart else []),
            f"{row['cell']}:{row['repeat_index']}:{row['run_index']}",
            *(
                (below(row[name], row["_delta"]) if name == "alpha_hat" else "")
                or number(row[name], digits)
                for name, digits in metrics.values()
            ),
        )
        for row in shown.iter_rows(named=True)
    ]
    more = groups.height - MOST
    return PageTable(
        "similar",
        "Runs of similar accuracy",
        f"For each dataset and classifier, the {SIMILAR} neighbours in accuracy within a repeat "
        "whose α̂ differ most; so chosen, they are not typical runs. Run: its address, "
        "cell:repeat:run. To be read with δ (Summary)."
        + (f" {more:,} more datasets and classifiers are not shown." if more > 0 else ""),
        heads,
        3 + apart,
        rows,
        {head: name for head, (name, _) in metrics.items()},
    )


CLASSES = (("fast", 10), ("mid", 60), ("slow", 600), ("very slow", math.inf))
"""Classes of datasets by run time (MV): seconds below which the slowest classifier's median is."""


def times(runs: pl.DataFrame) -> PageTable | None:
    """Return quantiles of fit times by classifier and class of datasets, copies left out.

    Datasets are in classes, as in MV, if they are not all in the same.
    """
    if "fit_seconds" not in runs.columns:
        return None
    known = runs.filter(~pl.col("identical") & pl.col("fit_seconds").is_not_null())
    if known.is_empty():
        return None
    names = [f"{100 * one:g} %" for one in QUANTILES[:-1]]
    medians = known.group_by("dataset", "classifier").agg(pl.col("fit_seconds").median())
    slowest = dict(medians.group_by("dataset").agg(pl.col("fit_seconds").max()).rows())
    order = {
        name: next(place for place, (_, below) in enumerate(CLASSES) if seconds < below)
        for name, seconds in slowest.items()
    }
    several = len({*order.values()}) > 1
    known = known.with_columns(
        _class=pl.col("dataset").cast(pl.String).replace_strict(order, return_dtype=pl.Int8)
    ).sort("classifier", "_class")
    rows: list[Row] = []
    for (classifier, of), own in known.group_by("classifier", "_class", maintain_order=True):
        seconds = own["fit_seconds"]
        at = [seconds.quantile(one, "linear") for one in QUANTILES]
        named = [str(classifier), CLASSES[int(str(of))][0]][: 1 + several]
        rows.append((*named, f"{own.height:,}", *map(_seconds, [seconds.mean(), *at])))
    limits = ", ".join(f"{name} below {below:g} s" for name, below in CLASSES[:-1])
    classes = ""
    if several:
        classes = f" Datasets are in classes by the median of their slowest classifier: {limits}."
    return PageTable(
        "times",
        "Times of fits",
        "Seconds per fit over all runs of a classifier, copies left out: mean, quantiles and "
        f"maximum. Fits ran in parallel, on the devices listed under Provenance.{classes}",
        ["Classifier", *["Datasets"][:several], "Runs", "Mean, s", *names, "Longest"],
        1 + several,
        rows,
    )


def number(value: float | None, digits: int = 3) -> str:
    """Write a number with fixed digits; a dash if it is undefined."""
    return "–" if value is None else fixed(value, digits).replace("-", MINUS)


def with_sd(value: float | None, sd: float | None, digits: int = 4) -> str:
    """Write a number and its standard deviation, if that is known: 0 where none was seen."""
    if sd is None:
        return number(value, digits)
    return f"{number(value, digits)} ± {'0' if sd < EQUAL else number(sd, digits)}"


def _range(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{fixed(low)} to {fixed(high)}"


def _seconds(value: Any) -> str:
    return fixed(value, 3) if value < 10 else f"{value:,.1f}"


SHOWN = (1, 5, 10, 50, 100)  # sizes in PIT's tables; each cell's largest is shown as well

COLUMNS: Mapping[str, tuple[str, int]] = {
    "log_likelihood": ("Log-likelihood", 3),
    "cll": ("Calibrated", 3),
    "c_brier": ("Brier, calibrated", 3),
    "error": ("Error, %", 2),
    "c_ece": ("ECE, calibrated", 3),
    "c_aurc": ("AURC, calibrated", 4),
}
MOST_METHODS = 300  # most rows
_DEEP = "none (deep ensemble)"
_CONTEXT = [axis for axis in AXES if axis not in ("ensembling", "test_augment")]


def of_methods(uncertainty: pl.DataFrame | None, dee: pl.DataFrame | None) -> list[PageTable]:
    """Return the table of methods and deep ensembles; empty without methods.

    `uncertainty` and `dee`: the tables of these names.
    """
    if uncertainty is None or "fit_seconds" not in uncertainty.columns:
        return []
    known = uncertainty.filter(pl.col("cll").is_not_null())
    methods = known.filter(IS_METHOD | (pl.col("test_augment") != "none"))
    if methods.is_empty():
        return []
    own = known.join(methods.select(_CONTEXT).unique(), on=_CONTEXT, how="semi")
    largest = pl.col("members").max().over("cell")
    own = own.filter(pl.col("members").is_in(SHOWN) | (pl.col("members") == largest))
    by_repeat = own.group_by("cell", "repeat_index", "members").agg(
        pl.col(*COLUMNS, "fit_seconds").mean(), pl.col("cll").std().alias("_sd")
    )
    means = by_repeat.group_by("cell", "members").agg(
        pl.col(*COLUMNS, "fit_seconds").mean(), (pl.col("_sd") ** 2).mean().sqrt()
    )
    cells = own.select("cell", *AXES).unique()
    table = (
        means.join(cells, on="cell")
        .join(described(cells.drop("ensembling", "test_augment")), on="cell")
        .join(_worth(dee), on=["cell", "members"], how="left")
        .sort("dataset", "classifier", "_of", "ensembling", "test_augment", "members")
    )
    rows = table.rows(named=True)
    plain = {
        (*(row[axis] for axis in _CONTEXT), row["ensembling"], row["members"]): row
        for row in rows
        if row["test_augment"] == "none"
    }
    apart, seen = any(row["_of"] for row in rows), table["test_augment"].n_unique() > 1
    heads = [
        *("Dataset", "Classifier", *(["Cell"] if apart else []), "Ensembling"),
        *(["Test images"] if seen else []),
        *("Members", *(head for head, _ in COLUMNS.values()), "Worth, runs", "Fit, s"),
    ]
    shown: list[Row] = []
    for row in rows[:MOST_METHODS]:
        key = (*(row[axis] for axis in _CONTEXT), row["ensembling"], row["members"])
        other = plain.get(key) if row["test_augment"] != "none" else None
        shown.append(
            (
                str(row["dataset"]),
                str(row["classifier"]),
                *([row["_of"]] if apart else []),
                _DEEP if row["ensembling"] == "none" else str(row["ensembling"]),
                *([str(row["test_augment"])] if seen else []),
                f"{row['members']:,}",
                *(_cell(row, other, name) for name in COLUMNS),
                f"> {row['_beyond']}" if row["_beyond"] is not None else number(row["_dee"], 1),
                "–" if row["fit_seconds"] is None else f"{row['fit_seconds']:.3g}",
            )
        )
    more = len(rows) - MOST_METHODS
    arrows = (
        " With transformed test images, ↑ and ↓ show in which direction the printed number differs "
        "from that of the same ensemble without."
        if seen
        else ""
    )
    return [
        PageTable(
            "methods",
            "Ensembling methods and deep ensembles",
            "Probabilities averaged over members of one training, or over independent runs: means "
            "over runs (for deep ensembles over draws), then over repeats; calibrated "
            "log-likelihood ± standard deviation between runs or draws. Calibrated: at the "
            "temperature fitted on the other half of the test set. Worth: deep ensemble equivalent "
            "by calibrated log-likelihood (> M: more than all M runs). Fit: training time, for "
            "members of their whole run, for deep ensembles of all their runs; a method that "
            f"trains longer may owe what it gains to that.{arrows}"
            + (f" {more:,} more rows are not shown." if more > 0 else ""),
            heads,
            3 + apart + seen,
            shown,
            {**{head: name for name, (head, _) in COLUMNS.items()}, "Worth, runs": "dee"},
        )
    ]


def _worth(dee: pl.DataFrame | None) -> pl.DataFrame:
    """Return equivalents by cll: means over repeats, and the pool if some repeat exceeds it."""
    schema = {"cell": pl.UInt32, "members": pl.UInt32, "_dee": pl.Float64, "_beyond": pl.UInt32}
    if dee is None:
        return pl.DataFrame(schema=schema)
    own = dee.filter((pl.col("axis") == "ensembling") & (pl.col("metric") == "cll"))
    found = own.group_by("cell", "members").agg(
        _dee=pl.col("dee").mean(), _beyond=pl.col("beyond").min()
    )
    return found.cast(schema)  # type: ignore[arg-type]


def _cell(row: Mapping[str, Any], plain: Mapping[str, Any] | None, name: str) -> str:
    """Write a number, with an arrow if it is printed differently from that without augmentation."""
    digits = COLUMNS[name][1]
    text = _printed(row, name)
    if name == "cll" and row["_sd"] is not None:
        text += f" ± {number(row['_sd'], digits)}"
    if plain is None or row[name] is None or plain[name] is None:
        return text
    if _printed(plain, name) == _printed(row, name):
        return text
    return f"{'↑' if row[name] > plain[name] else '↓'} {text}"


def _printed(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    return number(100 * value if name == "error" and value is not None else value, COLUMNS[name][1])
