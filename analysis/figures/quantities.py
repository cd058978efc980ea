"""The quantities drawn for cells: columns of runs, pairs and repeats, with words for captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted
from manyseed.analysis.figures.labels import LEVELS, probe, resolution
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.rows import VARIES, Tables, compares_runs

_KEY = ["cell", "repeat_index"]
OF = ("runs", "pairs", "repeats")
"""Tables whose columns can be drawn; the first one with a column of some name counts."""

_FACTS = {
    *("cell", "epoch", "repeat_index", "run_index", "run_i", "run_j", "recipe", *AXES),
    *("alpha_hat_references", "delta", "delta_b", "delta_c", "coverage"),
}
_WORDS = {
    "alpha": "α̂", "brier": "Brier score",
    "aurc": "AURC", "cll": "CLL", "ec": "EC", "ece": "ECE", "f1": "F1", "hat": "",
    "ks": "KS", "q05": "5 %", "q95": "95 %", "roc": "ROC", "auc": "AUC", "tace": "TACE",
    "n": "number of", "auroc": "AUROC",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column of a figure: the values of each cell, and words for the caption.

    Attributes
    ----------
    name, label : str
        The column, and the label of its axis.
    values : polars frame
        Columns cell, repeat_index and run indices if known, and value.
    words : str
        What the values are, with n.
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


def varying(rows: pl.DataFrame, repeats: pl.DataFrame) -> pl.DataFrame:
    """Return the runs or pairs of repeats whose runs vary."""
    return rows.join(repeats.filter(VARIES).select(_KEY), on=_KEY, how="semi")


def schemas(tables: Tables) -> dict[str, pl.Schema]:
    """Return the schemas of the tables `OF`."""
    return {table: getattr(tables, table).schema for table in OF}


def table_of(columns: Mapping[str, pl.Schema], name: str) -> str | None:
    """Return the table that holds a numeric column that can be drawn; None if there is none.

    Parameters
    ----------
    columns : mapping
        The schema of each of the tables `OF`.
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

    Parameters
    ----------
    name : str
        A column of the tables of runs, pairs or repeats.
    meanings : mapping or None
        Unit and meaning of columns by name.
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
    """Return a column's name in words: ec_local_mean is EC local mean."""
    words = [_WORDS.get(word, word) for word in name.split("_")]
    return " ".join(filter(None, words))


def _sentence(meaning: str) -> str:
    return f"{meaning.rstrip('.')}. " if meaning else ""
