"""How cells, groups and the quantities drawn of them are named and coloured; no Matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from manyseed.analysis import Refused
from manyseed.analysis.axes import AXES, FRACTION
from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.tables.rows import IS_ONE_MODEL, VARIES, Tables, compares_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SEPARATOR = " · "
_VALUE = pl.col("value").cast(pl.Float64)
QUANTILES = {
    "n": _VALUE.count().cast(pl.Int64),
    "min": _VALUE.min(),
    "q25": _VALUE.quantile(0.25, "linear"),
    "median": _VALUE.median(),
    "q75": _VALUE.quantile(0.75, "linear"),
    "max": _VALUE.max(),
}
"""The quantiles of `value` that bars and strokes show."""


def differing(cells: pl.DataFrame) -> list[str]:
    """Return the axes in which cells of a dataset and classifier differ."""
    others = [name for name in AXES if name not in ("dataset", "classifier")]
    return [name for name in others if name in cells.columns and cells[name].n_unique() > 1]


def coloured_by(table: pl.DataFrame) -> str:
    """Return the axis that colours models: augmentation, else the first in which they differ."""
    others = [name for name in AXES if name not in ("dataset", "classifier", "augment", "hparams")]
    order = ("augment", *others, "hparams")
    varying = (name for name in order if name in table.columns and table[name].n_unique() > 1)
    return next(varying, "classifier")


def levels_of(table: pl.DataFrame, by: str) -> list[str]:
    """Return the levels of an axis in order, none first."""
    found = table[by].cast(pl.String).unique().sort().to_list()
    return sorted(found, key=lambda level: (level != "none", level))


def described(cells: pl.DataFrame) -> pl.DataFrame:
    """Return `cell` and `_of`: its levels of the axes that differ, in words, possibly empty."""
    parts = [worded(name) for name in differing(cells)] or [pl.lit("")]
    words = pl.concat_str(parts, separator=SEPARATOR, ignore_nulls=True).alias("_of")
    return cells.select("cell", words).unique().sort("cell")


def worded(axis: str) -> pl.Expr:
    """Return levels in words, as `analysis.axes.level_told` does."""
    level = pl.col(axis).cast(pl.String)
    if axis != FRACTION:
        return level
    number = pl.col(axis).cast(pl.Float64)
    return pl.when(number > 1).then(pl.format("{} rows", number.cast(pl.Int64))).otherwise(level)


def titles(cells: pl.DataFrame) -> dict[int, str]:
    """Return the title of each cell: dataset and classifier, and what distinguishes it."""
    named = cells.select(
        "cell", pl.concat_str(["dataset", "classifier"], separator=" × ").alias("_name")
    )
    rows = named.unique("cell").join(described(cells), on="cell").iter_rows()
    return {cell: SEPARATOR.join(filter(None, parts)) for cell, *parts in rows}


def of_datasets(names: Sequence[str], rows: pl.DataFrame) -> list[str]:
    """Return the titles of panels of datasets, with the classifier if rows have a single one."""
    classifiers = rows["classifier"].cast(pl.String).unique().to_list()
    return [f"{name} × {classifiers[0]}" if len(classifiers) == 1 else name for name in names]


def with_names(data: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return rows of cells with dataset, classifier and differing axes as their first columns."""
    apart = [name for name in differing(cells) if name not in data.columns]
    names = cells.select("cell", "dataset", "classifier", *apart).unique("cell")
    found = data.join(names, on="cell", how="left", maintain_order="left")
    return found.select(*names.columns, pl.exclude(names.columns))


def first_of_each(cells: pl.DataFrame, most: int) -> tuple[list[int], int]:
    """Return at most `most` cells to draw, and how many are left out.

    Every dataset and classifier gets its first cell before any gets its second.
    """
    group = ["dataset", "classifier"]
    ordered = cells.unique("cell").sort(*group, "cell")
    turn = ordered.with_columns(_turn=pl.int_range(pl.len()).over(group))
    kept = turn.sort("_turn", *group, "cell").head(most)["cell"].implode()
    chosen = ordered.filter(pl.col("cell").is_in(kept))["cell"].to_list()
    return chosen, ordered.height - len(chosen)


def not_drawn(count: int, noun: str = "cell") -> str:
    """Say how many cells, or the like, are not drawn; empty for 0."""
    if count == 1:
        return f" 1 more {noun} is not drawn: its numbers are in the tables."
    return f" {count:,} more {noun}s are not drawn: their numbers are in the tables." * bool(count)


# Okabe and Ito 2008, without black and yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
# Beyond six groups, colours repeat with another marker.
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#808080"


def colour(index: int) -> str:
    """Return the colour of the group with this index."""
    return COLOURS[index % len(COLOURS)]


_of_sweep: ContextVar[Sequence[str]] = ContextVar("classifiers", default=())


@contextmanager
def coloured_as(classifiers: Sequence[str]) -> Iterator[None]:
    """Give classifiers the colours within the context that they have among these."""
    token = _of_sweep.set(classifiers)
    try:
        yield
    finally:
        _of_sweep.reset(token)


def among(classifiers: Sequence[str]) -> Sequence[str]:
    """Return those whose places tell the colours of classifiers: all of the sweep, else these."""
    known = _of_sweep.get()
    return known if {*classifiers} <= {*known} else classifiers


def marker(index: int) -> str:
    """Return the marker of the group with this index; it changes each time colours repeat."""
    return MARKERS[index // len(COLOURS) % len(MARKERS)]


NOTHING = 5e-4  # α̂ below this is shown as 0.000
LINEAR = 0.01  # the axis of α̂ is linear up to here and logarithmic beyond
LEVELS = ("alpha_hat", "alpha_hat_mean", "alpha_hat_min", "alpha_hat_max", "choosing_alpha_hat")
PROBES = {"gap": "logit gap", "true_margin": "true-class margin"}


def axis_of_levels(axis: Axes) -> None:
    """Set up a horizontal axis for α̂, on which many zeros and few large values are readable."""
    axis.set_xscale("symlog", linthresh=LINEAR, linscale=0.5)
    axis.set_xticks([0, LINEAR, 0.1, 1], ["0", f"{LINEAR}", "0.1", "1"])
    axis.set_xticks([], minor=True)
    axis.set_xlim(-0.15 * LINEAR, 1.3)


def upright_axis_of_levels(axis: Axes) -> None:
    """Set up the vertical axis for α̂, the same in all panels."""
    from matplotlib.ticker import NullFormatter

    axis.set_yscale("symlog", linthresh=LINEAR, linscale=0.5)
    axis.set_yticks([0, LINEAR, 0.1, 1], ["0", f"{LINEAR}", "0.1", "1"])
    axis.set_yticks([0.02, 0.03, 0.05, 0.2, 0.3, 0.5], minor=True)
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_ylim(-0.15 * LINEAR, 1.3)


def mark_resolution(axis: Axes, repeats: pl.DataFrame, *, across: bool = False) -> None:
    """Draw δ as a dashed line, with its value outside the panel, away from dots."""
    line = axis.axhline if across else axis.axvline
    for value in repeats["delta"].drop_nulls().unique().sort().to_list()[:1]:
        line(value, color="black", linewidth=0.9, linestyle=(0, (4, 3)))
        axis.annotate(
            f"δ =\n{fixed(value, 3)}" if across else f"δ = {fixed(value, 3)}",
            (1, value) if across else (value, 1),
            xycoords=("axes fraction", "data") if across else ("data", "axes fraction"),
            xytext=(3, 0) if across else (0, 2),
            textcoords="offset points",
            va="center" if across else "bottom",
            ha="left" if across else "center",
            fontsize=7.5,
        )


def runs_vary(values: pl.DataFrame, cells: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return for each group whether its density shows runs (`vary`), not its test sets alone.

    It does unless all runs of each test set have one value, or are one model in some cell.
    `values`: those of a `Quantity`. `cells`: the table of cells.
    """
    one_model = pl.lit(value=False)
    if "run_index" in values.columns:  # copies were left out
        one_model = pl.col("cell").is_in(cells.filter(IS_ONE_MODEL)["cell"].implode())
    unit = [name for name in ("cell", "repeat_index") if name in values.columns]
    units = values.group_by(list(dict.fromkeys([*by, *unit]))).agg(
        n=pl.len(), distinct=pl.col("value").n_unique(), one_model=one_model.any()
    )
    varies = (pl.col("n") == 1).all() | (pl.col("distinct") > 1).any()
    varies &= ~pl.col("one_model").any()
    return units.group_by(by or pl.lit(0)).agg(vary=varies)


def resolution(repeats: pl.DataFrame) -> str:
    """State δ and N, or their ranges."""
    known = repeats.filter(pl.col("alpha_hat_mean").is_not_null())
    if known.is_empty():
        return ""
    deltas, sides = known["delta"].unique().sort(), known["n_side"].unique().sort()
    if deltas.len() == 1:
        return f"δ = {fixed(deltas[0], 3)} with N = {sides[0]:,} test points on each side."
    return (
        f"δ = {fixed(deltas[0], 3)} to {fixed(deltas[-1], 3)} with N = {sides[-1]:,} to "
        f"{sides[0]:,} test "
        "points on each side."
    )


def probe(runs: pl.DataFrame) -> str:
    """Name the probes of α̂."""
    known = runs["probe"].drop_nulls().cast(pl.String).unique().sort().to_list()
    names = [PROBES.get(name, name) for name in known]
    both = "; the two aren't comparable" if len(names) > 1 else ""
    return f" (probe: {' and '.join(names)}{both})" if names else ""


_KEY = ["cell", "repeat_index"]
OF = ("runs", "pairs", "repeats")
"""Tables whose columns can be drawn; the first one with a column of some name counts."""

_FACTS = {
    *("cell", "epoch", "repeat_index", "run_index", "run_i", "run_j", "recipe", *AXES),
    *("alpha_hat_references", "delta", "delta_b", "delta_c", "coverage"),
}
_WORDS = {
    "alpha": "α̂", "brier": "Brier score", "matthews": "Matthews", "corrcoef": "correlation",
    "aurc": "AURC", "cll": "CLL", "ec": "EC", "ece": "ECE", "f1": "F1", "hat": "", "std": "SD of",
    "ks": "KS", "q05": "5 % quantile of", "q95": "95 % quantile of", "roc": "ROC", "auc": "AUC",
    "tace": "TACE", "n": "number of", "auroc": "AUROC", "mean": "mean", "median": "median",
    "min": "smallest", "max": "largest", "lo": "smallest", "hi": "largest", "sd": "SD of",
    "delta": "δ", "c": "calibrated", "holm": "(Holm)", "loo": "leave-one-out",
    "together": "all pairs:",
}  # fmt: skip
_FIRST = ("mean", "std", "sd", "median", "min", "max", "lo", "hi", "q05", "q95")
"""Endings that are said before what they end."""
_LAST = {"n": ", n", "close": " of close runs", "judged": " of judged runs"}
_AXES = {
    **{axis: axis.replace("_", " ") for axis in AXES},
    "train_fraction": "training fraction",
    "perturb_continuous": "continuous perturbation",
    "perturb_categorical": "categorical perturbation",
    "perturb_hparams": "hparam perturbation",
    "perturb_labels": "label perturbation",
    "vary": "what varies",
    "augment": "augmentation",
    "test_augment": "test-time augmentation",
    "repeat_index": "test set",
    "run_index": "run",
}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column of a figure: the values of each cell, and words for the caption.

    `name` and `label`: the column, and the label of its axis. `values`: columns cell, repeat_index
    and run indices if known, and value. `words`: what the values are, with n.
    """

    name: str
    label: str
    values: pl.DataFrame
    words: str


Quantities = Callable[[Tables], list[Quantity]]


def main(tables: Tables) -> list[Quantity]:
    """Return what the page shows for cells: accuracy, its range, error consistency and α̂."""
    runs = tables.runs.filter(~pl.col("identical"))
    levels = varying(tables.runs, tables.repeats).filter(pl.col("alpha_hat").is_not_null())
    pairs = varying(tables.pairs, tables.repeats)
    defined = pairs.filter(pl.col("ec_local").is_not_null())
    repeats = tables.repeats.filter(VARIES, pl.col("accuracy_range").is_not_null())
    without = pairs.height - defined.height
    copies = int(tables.runs["identical"].sum())
    same = int(tables.repeats["identical"].sum())
    no_copies = f" ({copies:,} identical copies left out)" if copies else ""
    no_identical = f" ({same:,} repeats of identical runs left out)" if same else ""
    no_errorless = f" ({without:,} pairs without any error left out)" if without else ""
    level = f"α̂: n = {counted(levels.height, 'run')}{probe(levels)}; dashed: δ. "
    level += resolution(tables.repeats)
    n_runs, n_repeats = counted(runs.height, "run"), counted(repeats.height, "repeat")
    n_defined, n_pairs = counted(defined.height, "pair"), counted(pairs.height, "pair")
    return [
        _quantity("accuracy", "accuracy", runs, f"Accuracy: n = {n_runs}{no_copies}."),
        _quantity(
            *("accuracy_range", "accuracy range", repeats),
            f"Accuracy range: n = {n_repeats}{no_identical}.",
        ),
        _quantity("ec_local", "EC local", defined, f"EC local: n = {n_defined}{no_errorless}."),
        _quantity("ec_global", "EC global", pairs, f"EC global: n = {n_pairs}."),
        _quantity("alpha_hat", "α̂", levels, level),
    ]


def _quantity(name: str, label: str, frame: pl.DataFrame, words: str) -> Quantity:
    key = [one for one in (*_KEY, "run_index") if one in frame.columns]
    values = frame.select(*key, pl.col(name).alias("value")).filter(pl.col("value").is_not_null())
    return Quantity(name, label, values, words)


def over_test_sets(values: pl.DataFrame) -> str:
    """Say over how many test sets the values of cells are drawn together; nothing with one.

    `values`: columns cell and repeat_index.
    """
    if "repeat_index" not in values.columns or values.is_empty():
        return ""
    sets = values.group_by("cell").agg(pl.col("repeat_index").n_unique())["repeat_index"].to_list()
    least, most = min(sets), max(sets)
    if most == 1:
        return ""
    number = f"{most}" if least == most else f"{least} to {most}"
    return f" Values of {number} test sets together: the spread includes that between test sets."


def varying(rows: pl.DataFrame, repeats: pl.DataFrame) -> pl.DataFrame:
    """Return the runs or pairs of repeats whose runs vary."""
    return rows.join(repeats.filter(VARIES).select(_KEY), on=_KEY, how="semi")


def schemas(tables: Tables) -> dict[str, pl.Schema]:
    """Return the schemas of the tables `OF`."""
    return {table: getattr(tables, table).schema for table in OF}


def table_of(columns: Mapping[str, pl.Schema], name: str) -> str | None:
    """Return the table that holds a numeric column that can be drawn; None if there is none.

    `columns`: the schema of each of the tables `OF`.
    """
    for table in OF:
        kind = columns[table].get(name)
        if kind is not None and not _is_fact(name) and kind.is_numeric():
            return table
    return None


def _is_fact(name: str) -> bool:
    """Return whether a column describes a row and is not a measurement."""
    return name in _FACTS or name.startswith(("n_", "hparam_")) or name.endswith("_n")


def names(tables: Tables) -> list[str]:
    """Return the columns that can be drawn and hold a value: runs, then pairs, then repeats."""
    found: dict[str, None] = {}
    for table in OF:
        frame: pl.DataFrame = getattr(tables, table)
        for name in frame.columns:
            if table_of(schemas(tables), name) == table and frame[name].null_count() < frame.height:
                found[name] = None
    return list(found)


def column(name: str, meanings: Mapping[str, tuple[str, str]] | None = None) -> Quantities:
    """Return a function that gives a column as the quantity to draw.

    `name`: a column of the tables of runs, pairs or repeats. `meanings`: unit and meaning of
    columns by name.
    """
    unit, meaning = (meanings or {}).get(name, ("", ""))
    shown = labelled(name) + (f" ({unit})" if unit not in ("", "1") else "")

    def of(tables: Tables) -> list[Quantity]:
        table = table_of(schemas(tables), name)
        if table is None:
            raise Refused("name", name, allowed=names(tables))
        frame: pl.DataFrame = getattr(tables, table)
        values, left = _varied(frame, tables, table, name)
        known = values.filter(pl.col(name).is_not_null() & pl.col(name).is_not_nan())
        undefined = values.height - known.height
        free = f", {undefined:,} without a value" if undefined else ""
        n = counted(known.height, table.removesuffix("s"))
        words = f"{_sentence(meaning)}n = {n}{left}{free}."
        if name in LEVELS:
            words += f"{probe(known)} Dashed: δ. {resolution(tables.repeats)}"
        key = [one for one in (*_KEY, "run_index", "run_i", "run_j") if one in known.columns]
        return [Quantity(name, shown, known.select(*key, pl.col(name).alias("value")), words)]

    return of


def _varied(frame: pl.DataFrame, tables: Tables, table: str, name: str) -> tuple[pl.DataFrame, str]:
    """Return the informative rows, and in words how many are left out and why."""
    if table == "runs":
        kept = frame.filter(~pl.col("identical"))
        left_out = "identical copies"
        if compares_runs(name):
            kept, left_out = varying(kept, tables.repeats), "runs of repeats of identical runs"
    elif table == "pairs":
        kept, left_out = varying(frame, tables.repeats), "pairs of identical runs"
    elif compares_runs(name):
        kept, left_out = frame.filter(VARIES), "repeats of identical runs or of a single run"
    else:
        kept, left_out = frame, ""
    left = frame.height - kept.height
    return kept, f" ({left:,} {left_out} left out)" if left else ""


def labelled(name: str) -> str:
    """Return a column's name in words: ec_local_mean is mean EC local."""
    if name in _AXES:
        return _AXES[name]
    if name == "n" or name.startswith("hparam_"):
        return name.removeprefix("hparam_")
    base, _, ending = name.rpartition("_")
    if base and ending in _FIRST:
        return f"{_WORDS[ending]} {labelled(base)}"
    if base not in ("", "n") and ending in _LAST:
        return f"{labelled(base)}{_LAST[ending]}"
    words = [_WORDS.get(word, word) for word in name.split("_")]
    return " ".join(filter(None, words)).removesuffix(" of")


def _sentence(meaning: str) -> str:
    return f"{meaning.rstrip('.')}. " if meaning else ""
