"""Over which cells the rows of a grouped table average, and whether these are alike."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted, some
from manyseed.analysis.tables.rows import cells_once, compares_runs, last
from manyseed.orchestrator.asking.query import Query, ask, named_rows
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.computing.tables import Results

_NOUNS = {
    "train_fraction": "training fraction",
    "perturb_continuous": "noise level",
    "perturb_categorical": "noise level of categories",
    "perturb_hparams": "noise level of hparams",
    "hparams": "set of hparams",
    "vary": "choice of what varies",
    "augment": "augmentation",
    "ensembling": "ensembling method",
    "test_augment": "test augmentation",
    "perturb_labels": "noise level of labels",
}
_OWN = ("hparams", "vary")  # of each classifier: levels differ where cells are alike
_SIZES = ("n_runs", "n_distinct", "n_repeats")
_ROWS = "_rows"  # of a cell
_TOLD, _NAMED = 4, 3  # kinds of rows that a note describes, and rows of each that it names


@dataclass(frozen=True, slots=True)
class Covered:
    """What the rows of a grouped table are means over.

    `alike`: a key for each row, equal for rows over like cells. `note`: the cells in words.
    `is_unlike`: whether it says that rows are over unlike ones.
    """

    alike: Sequence[Hashable] = ()
    note: str = ""
    is_unlike: bool = False


def ask_warned(sweeps: Mapping[str, Results], question: Query) -> pl.DataFrame:
    """Return what `ask` does; warn where its rows are means over unlike cells."""
    frame = ask(sweeps, question)
    if question.is_grouped and "n" in frame.columns:
        over = covered(sweeps, question, frame, frame.columns)
        if over.is_unlike:
            warn(over.note)
    return frame


def covered(
    sweeps: Mapping[str, Results], question: Query, frame: pl.DataFrame, shown: Sequence[str]
) -> Covered:
    """Return the cells of each row of `frame`, which `ask` returned for a grouped question.

    `shown`: its columns that are shown.

    Rows are alike if they average over the same levels of all axes that do not tell them apart, in
    the same shares; of hparams and what varies, which are each classifier's own, over as many.
    """
    schema = next(iter(named_rows(sweeps, question.table).values())).collect_schema().names()
    by = [name for name in frame.columns[: frame.columns.index("n")] if name in schema]
    if "cell" not in schema or "cell" in by or frame.is_empty():
        return Covered()
    axes = [name for name in AXES if name in schema and name not in by]
    kept = [name for name in ("same_as", "epoch", *_SIZES) if name in schema and name not in by]
    columns = list(dict.fromkeys([*by, "cell", *axes, *kept]))
    single = replace(question, columns=columns, by=(), agg=(), sort=None)
    cells = ask(sweeps, single).select(columns)
    cells = cells.group_by(columns, maintain_order=True).agg(pl.len().alias(_ROWS))
    cells = cells if "epoch" in by or "epoch" not in schema else last(cells)
    cells = cells_once(cells, by)
    of_rows = {
        key: part.select(axes).rows(named=True)
        for key, part in cells.partition_by(by, as_dict=True, include_key=True).items()
    }
    rows = [of_rows.get(key, []) for key in frame.select(by).iter_rows()]
    over = [_in_words(row, axes) for row in rows]
    levels = [_shares([_levels(one, axes) for one in row]) for row in rows]
    alike = [*zip(levels, over, strict=True)]
    if all(len(row) < 2 for row in rows):
        is_told = "n_runs" in shown and ("n_distinct" in shown or not _copied(cells, by))
        return Covered(alike, "" if is_told else _runs(cells, by).strip())
    more = f"{_runs(cells, by)}{_weights(cells, by)}{_varying(sweeps, cells, shown)}"
    if len(dict.fromkeys(over)) == 1:
        unlike = len(dict.fromkeys(alike)) > 1
        which = ", but not the same for all" if unlike else ""
        return Covered(alike, f"Each row is a mean over {over[0]}{which}.{more}", unlike)
    groups: dict[str, list[str]] = {}
    for key, words in zip(frame.select(by).iter_rows(), over, strict=True):
        groups.setdefault(words, []).append(" × ".join(map(str, key)))
    ordered = sorted(groups.items(), key=lambda one: -len(one[1]))
    told = [f"{words} ({some(names, _NAMED)})" for words, names in ordered]
    note = f"Rows are means over unlike cells: {some(told, _TOLD)}.{more}"
    return Covered(alike, note, is_unlike=True)


def drawn_too(sweeps: Mapping[str, Results], frame: pl.DataFrame, shown: Sequence[str]) -> str:
    """Say what is drawn anew for each run beside what varies, where rows show it and a spread."""
    if "vary" not in shown or not any(re.search("_(std|sd|range)$", one) for one in shown):
        return ""
    from manyseed.analysis.questions.drawn import anew, drawn, drawn_in_all

    for results in sweeps.values():
        known = [one for one in (*AXES, "cell") if one in frame.columns and one != "classifier"]
        cells = results["cells"]
        own = cells.join(frame, on=known, how="semi", nulls_equal=True)
        if more := drawn_in_all(own):
            some = (
                "" if own.filter(drawn(own.columns) == "").is_empty() else "Where cells have it, "
            )
            text = f"{some}{anew(more)}, and is part of each spread."
            return f"{text[0].upper()}{text[1:]}"
    return ""


def _runs(cells: pl.DataFrame, by: Sequence[str]) -> str:
    """Say how many runs rows rest on, where the table of cells tells."""
    if "n_runs" not in cells.columns:
        return ""
    runs = cells.group_by(by).agg(pl.col("n_runs").sum())["n_runs"]
    sets = cells["n_repeats"] if "n_repeats" in cells.columns else pl.Series([0])
    noun = "test set" if sets.max() == 1 else "test sets"
    on = f", on {_between(sets)} {noun}{' of each cell' * (cells.height > runs.len())}"
    return f" Runs in a row: {_between(runs)}{on * bool(sets.max())}{_copied(cells, by)}."


def _copied(cells: pl.DataFrame, by: Sequence[str]) -> str:
    """Say in how many rows some runs are copies, and how many models these rows have."""
    if "n_distinct" not in cells.columns:  # of an earlier version
        return ""
    rows = cells.group_by(by).agg(pl.col("n_runs", "n_distinct").sum())
    copied = rows.filter(pl.col("n_distinct") < pl.col("n_runs"))["n_distinct"]
    if copied.is_empty():
        return ""
    which = f"in {copied.len():,} of {rows.height:,} rows, " * (rows.height > 1)
    models = "model" if copied.max() == 1 else "models"
    return f"; {which}{_between(copied)} {models} and copies of them"


def _between(numbers: pl.Series) -> str:
    """Return the smallest and the largest of some counts, or the one that all are."""
    least, *_, most = [*numbers.sort().to_list()] * 2
    return f"{least:,} to {most:,}" if least < most else f"{least:,}"


def _weights(cells: pl.DataFrame, by: Sequence[str]) -> str:
    """Say that cells of a row have different weights in its means, if they have."""
    ends = cells.group_by(by).agg(least=pl.col(_ROWS).min(), most=pl.col(_ROWS).max())
    unequal = ends.filter(pl.col("least") < pl.col("most"))
    if unequal.is_empty():
        return ""
    least, most = min(unequal["least"].to_list()), max(unequal["most"].to_list())
    return f" Cells count by their rows in the table: {least:,} to {most:,}."


def _varying(sweeps: Mapping[str, Results], cells: pl.DataFrame, shown: Sequence[str]) -> str:
    """Say of columns that compare runs that they are over fewer cells, if they are."""
    compared = [
        name
        for name in shown
        if compares_runs(name) or (name.endswith("_sd") and not name.endswith("_mean_sd"))
    ]
    if not compared or len(sweeps) > 1:  # a cell's number is of its sweep
        return ""
    (results,) = sweeps.values()
    known = last(results["cells"])
    if "n_identical_repeats" not in known.columns:  # of an earlier version
        return ""
    same = known.filter(pl.col("n_identical_repeats") == pl.col("n_repeats"))["cell"]
    numbers = cells["cell"].unique()
    left = int(numbers.is_in(same.implode()).sum())
    if not left:
        return ""
    over = f"{numbers.len() - left:,} of the {counted(numbers.len(), 'cell')}"
    spread = [one for one in compared if one.endswith(("_std", "_sd"))]
    what = ["Standard deviations between runs"] * bool(spread)
    what += ["columns that compare runs"] * (len(compared) > len(spread))
    which = ", and ".join(what)
    comma = "," * (len(what) > 1)
    return f" {which[0].upper()}{which[1:]}{comma} are over {over}: those whose runs differ."


def _levels(cell: Mapping[str, object], axes: Sequence[str]) -> tuple[object, ...]:
    return tuple(cell[name] for name in axes if name not in _OWN)


def _shares(levels: Sequence[Hashable]) -> Hashable:
    counts = Counter(levels)
    return frozenset((one, Fraction(n, len(levels))) for one, n in counts.items())


def _in_words(cells: Sequence[Mapping[str, object]], axes: Sequence[str]) -> str:
    """Return the cells of a row in words: 3 datasets × 2 noise levels."""
    numbers = {name: len({cell[name] for cell in cells}) for name in axes}
    parts = [counted(n, _NOUNS.get(name, name)) for name, n in numbers.items() if n > 1]
    if len(cells) == 1:
        return "1 cell"
    if parts and math.prod(numbers.values()) == len(cells):
        return " × ".join(parts)
    return f"{len(cells):,} cells" + (f" of {', '.join(parts)}" if parts else "")
