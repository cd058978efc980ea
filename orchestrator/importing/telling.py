"""Columns of a table that are not read, but tell its runs or its rows apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import polars as pl

from manyseed.analysis.counts import some
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import Unread, UserError, shell_word
from manyseed.orchestrator.importing.classes import CONFIDENCE
from manyseed.orchestrator.importing.frames import read_by
from manyseed.orchestrator.importing.mapping import Columns, is_id, is_named, numbers_in, row_id_of


def require_told_apart(
    frame: pl.DataFrame, used: Mapping[str, str], option: Mapping[str, str], file: Path
) -> None:
    """Refuse a table whose unread columns tell runs or rows apart, which would count as others.

    `used`: our names of the columns that are read; `option`: as the user gave them.
    """
    of = {own: theirs for theirs, own in used.items()}
    truth = of.get("truth", of.get("correct"))
    if truth is None:  # a form of its own, refused elsewhere
        return
    of_run = [of[own] for own in ("repeat", "run") if own in of]
    first = [frame[name] == frame[name][0] for name in of_run]
    one = frame.filter(*first) if first else frame
    unread = [name for name in frame.columns if name not in used]

    def refuse(name: str, why: str, added: Mapping[str, str]) -> NoReturn:
        raise _unread(name, why, file, {**option, **added})

    for name in unread:
        if _tells_runs(one, name, truth):
            n = one[name].n_unique()
            why = f"its {n:,} values tell runs apart, and all their rows would count as one run's"
            if _EPOCH.fullmatch(name) and one[name].dtype.is_integer():
                rows = read_by(file)
                last = f"{rows}.filter(pl.col({name!r}) == {int(one[name].to_numpy().max())})"
                remedy = f"keep those of one epoch, such as {last}, and import the file of them"
                what = f"its {n:,} values are moments of a training, not further runs"
                raise UserError(what, file=file, key=name, remedy=remedy)
            added = {}
            is_run = is_named(name, "run") and numbers_in(one[name]) is not None  # resnet18 is none
            if "run" not in of and (is_run or one[name].dtype.is_integer()):
                added = {"run": name}
                if "row_id" not in of and (row_id := row_id_of(frame, unread, [*of_run, name])):
                    added |= {"row_id": row_id}
            if not added and "classifier" not in option:
                added = {"classifier": name}
            refuse(name, why, added)
    if "row_id" in of:
        return
    for name in unread:
        if "run" in of or "fold" in of or not is_named(name, "row_id") or not is_id(one[name]):
            continue
        once = one[name].n_unique()
        if len(one) < 2 * once < 2 * len(one):
            kept = f"{read_by(file)}.unique({name!r}, maintain_order=True)"
            why = (
                f"{len(one) - once:,} of its {len(one):,} rows repeat an id, and would count twice"
            )
            remedy = f"keep one row for each: {kept}\n  or take the column out of the file if it "
            remedy += "names no test points"
            raise UserError(f"is not read, but {why}", file=file, key=name, remedy=remedy)
    for name in unread:
        if (n := _tells_rows(one, name, truth)) > 1:
            why = f"each of its values stands in {n:,} rows, as ids of test points do in {n:,} runs"
            refuse(name, why, {"run": of.get("run", "NAME"), "row_id": name})
        runs = [frame[each] for each in of_run]
        if runs and "fold" not in of and _are_shuffled(frame[name], runs):
            refuse(name, _SHUFFLED, {"row_id": name})


def tell_unread(
    frame: pl.DataFrame,
    unread: Sequence[str],
    columns: Columns,
    class_names: Sequence[str],
    file: Path,
) -> None:
    """Say which columns are not read, and how numbered ones are that seem to be probabilities."""
    of, were = ("columns", "were") if len(unread) > 1 else ("column", "was")
    said = f"{file.name}: {of} {', '.join(unread)} {were} not read."
    given = dict(columns)
    prediction = given.get("prediction", "prediction")
    numbered = [
        (found[1], int(found[2]), name)
        for name in unread
        if frame[name].dtype.is_float() and (found := _NUMBERED.fullmatch(name))
    ]
    for start in dict.fromkeys(each[0] for each in numbered):
        places = sorted((number, name) for of, number, name in numbered if of == start)
        names = [name for _, name in places]
        if len(names) != len(class_names) or prediction not in frame.columns:
            continue
        best = np.array(class_names)[frame.select(names).to_numpy().argmax(axis=1)]
        is_sum = ((frame.select(names).sum_horizontal() - 1).abs() < _OFF).all()
        if is_sum and pl.Series(best).equals(frame[prediction].cast(pl.String), check_names=False):
            pairs = dict(zip((f"{CONFIDENCE}{name}" for name in class_names), names, strict=True))
            words = ",".join(f"{own}={shell_word(of)}" for own, of in {**given, **pairs}.items())
            said += (
                f" They seem to be the probabilities of {some(class_names, _SHOWN)}, in this "
                f"order; to read them: --columns {words}"
            )
    warn(said)


_NUMBERED = re.compile(r"(.*?)([0-9]+)")
_OFF = 0.01  # of a sum of probabilities
_SHOWN = 10  # classes in a message
_EPOCH = re.compile(r"(.*[\W_])?(epochs?|steps?|iter(ation)?s?|checkpoints?|ckpt)", re.IGNORECASE)
_SHUFFLED = "its values have another order in each run, and rows are numbered in their order"


_NOT = {
    "classifier": "names no classifiers",
    "run": "numbers no runs",
    "row_id": "names no test points",
}


def _unread(name: str, why: str, file: Path, option: Mapping[str, str]) -> UserError:
    role = next((own for own, theirs in option.items() if theirs == name), "")
    if not role:
        remedy = f"import a file for each of its values, or take {name} out of the file"
        return UserError(f"is not read, but {why}", file=file, key=name, remedy=remedy)
    more = "import a file for each of its values, or " * (role == "classifier")
    return Unread(
        f"is not read, but {why}",
        file=file,
        key=name,
        options={"columns": option},
        before="read it: ",
        after=f"\n  if {name} {_NOT[role]}: {more}take it out of the file",
    )


def are_rows_placed(
    frame: pl.DataFrame, found: pl.DataFrame, unread: Sequence[str], used: Mapping[str, str]
) -> bool:
    """Return whether rows of folds can be told apart by their place, if true classes agree later.

    Where the true classes of each fold are sorted, other points would agree, too, and so they do
    if each repeat has folds of its own. A column of ids is to be read. `frame`: with our names.
    `found` and `used`: as in the file, and our names of its columns.
    """
    of_run = [theirs for theirs, own in used.items() if own in ("repeat", "run")]
    if row_id_of(found, unread, of_run) is not None:
        return False
    if "repeat" in frame.columns and frame["repeat"].n_unique() > 1:
        return False
    keys = [name for name in ("run", "fold") if name in frame.columns]
    parts = frame.select(*keys, "truth").partition_by(keys)
    return any(part["truth"].rle_id().n_unique() > part["truth"].n_unique() for part in parts)


def require_same_order(
    frame: pl.DataFrame, other: pl.DataFrame, unread: Sequence[str], option: Columns, file: Path
) -> None:
    """Refuse a file whose rows are those of another's run in another order, by an unread column."""
    for name in unread:
        if name not in other.columns or frame[name].dtype != other[name].dtype:
            continue
        numbers = np.repeat([0, 1], [len(frame), len(other)])
        if _are_shuffled(pl.concat([frame[name], other[name]]), [pl.Series(numbers)]):
            raise _unread(name, _SHUFFLED, file, {**dict(option), "row_id": name})


def _tells_runs(one: pl.DataFrame, name: str, truth: str) -> bool:
    """Return whether the rows with each value have the same true classes, or its name says so."""
    values = one[name].alias("value")  # polars may take a name such as * for a pattern
    if values.dtype.is_nested() or not 1 < values.n_unique() < len(values):
        return False
    if is_named(name, "run") and numbers_in(values) is not None:
        return True
    if values.unique_counts().n_unique() > 1 or one[truth].n_unique() == 1:
        return False
    each = pl.DataFrame([values, one[truth].alias("truth")]).group_by("value")
    return each.agg(pl.col("truth").sort())["truth"].n_unique() == 1


def _tells_rows(one: pl.DataFrame, name: str, truth: str) -> int:
    """Return in how many rows each value stands if these look like one test point; 0 otherwise."""
    values = one[name].alias("value")
    if not is_id(values) or not one[truth].n_unique() < (n := values.n_unique()) < len(values):
        return 0
    each = pl.DataFrame([values, one[truth].alias("truth")]).group_by("value")
    counts = each.agg(pl.len(), pl.col("truth").n_unique())
    if counts["len"].n_unique() > 1 or counts["truth"].max() != 1:
        return 0
    times = int(counts["len"][0])
    is_in_blocks = values.rle().struct["len"].eq(times).all() or values[n:].equals(
        values[:-n], check_names=False
    )
    return times if is_in_blocks or is_named(name, "row_id") else 0


def _are_shuffled(values: pl.Series, of_run: Sequence[pl.Series]) -> bool:
    """Return whether each run has the same values once, in an order of its own."""
    if not is_id(values):
        return False
    names = [f"run {number}" for number in range(len(of_run))]
    table = pl.DataFrame([values.alias("value"), *map(pl.Series.alias, of_run, names)])
    runs = table.group_by(names).agg("value", ids=pl.col("value").sort())
    sets = runs["ids"].list.n_unique() == runs["ids"].list.len()
    return bool(sets.all() and runs["ids"].n_unique() == 1 and runs["value"].n_unique() > 1)
