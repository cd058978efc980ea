"""Tables of predictions: CSV or Parquet with OpenML's columns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl

from manyseed.analysis.counts import some
from manyseed.jobs.checks import quoted
from manyseed.jobs.datasets.columns import is_number
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import OtherTests, Unread, UserError, nearest, shell_word
from manyseed.orchestrator.importing.classes import (
    CLASS,
    CONFIDENCE,
    RIGHT,
    SCORES,
    codes,
    in_order,
    is_flag,
    require_apart,
    require_columns,
)
from manyseed.orchestrator.importing.filenames import form_of_folds
from manyseed.orchestrator.importing.frames import read_frame
from manyseed.orchestrator.importing.lacking import (
    lacking_cells,
    repeated_rows,
    require_predictions,
)
from manyseed.orchestrator.importing.mapping import (
    NAMES,
    Columns,
    Values,
    is_text,
    meant_columns,
    numbers_in,
    other_order,
    require_no_flag,
    require_one_thing,
    require_one_truth,
    two_in_one,
)
from manyseed.orchestrator.importing.predictions import (
    ATTRIBUTES,
    DEFAULTS,
    Entries,
    Names,
    Positions,
    shown_below,
)
from manyseed.orchestrator.importing.rows import NEEDED, OF_ROWS, OWN, excluding, part_of
from manyseed.orchestrator.importing.scored import classes_in_place
from manyseed.orchestrator.importing.scores import (
    Predicted,
    most_probable,
    of_logits,
    of_two,
    remedy_of_shares,
    scores_of,
)
from manyseed.orchestrator.importing.telling import (
    are_rows_placed,
    require_same_order,
    require_told_apart,
    tell_unread,
)
from manyseed.orchestrator.importing.unlike import (
    JOINED,
    other_rows,
    require_no_data_sets,
    require_no_folds,
    require_no_splits,
    require_runs_of_one,
    rows_told,
    unequal,
)
from manyseed.orchestrator.plans.ids import positions_of

_KINDS: dict[Any, str] = {pl.Int64: "whole numbers", pl.Float64: "numbers", pl.String: "names"}


def openml(
    paths: Sequence[Path],
    names: Names,
    columns: Columns = (),
    values: Sequence[Values] = (),
    classes: Sequence[str] = (),
) -> Entries:
    """Open files with OpenML's columns, each with one run or, if it has a column run, several.

    `values`: of each file. `classes`: the order in which to return the classes, if these are they.

    The folds of a repeat are combined: each of its points is predicted by the fit that didn't see
    it, and all of them form the test set. Only one file at a time is held in memory.
    """
    values = values or [()] * len(paths)
    for read_before in (_frame, _runs):  # maybe from other files of these names
        read_before.cache_clear()
    keys: list[pl.DataFrame] = []
    first: dict[int, tuple[pl.DataFrame, str]] = {}
    places: list[str] = []
    leaving: dict[str, str] = {}
    shown = shown_below(paths)
    is_numbered = any(name == "run" for each in values for name, _ in each)
    class_names, has_confidences = _classes(paths, columns, values)
    is_known = {*class_names} == {*classes} or (not has_confidences and {*class_names} < {*classes})
    class_names = tuple(classes) if is_known else class_names
    of_classes = [(own, theirs) for own, theirs in columns if own.startswith(CONFIDENCE)]
    for own, theirs in of_classes if len(of_classes) == 1 else ():
        one = own.removeprefix(CONFIDENCE)
        rest = next(name for name in class_names if name != one)
        warn(
            f"{paths[0].name}: {theirs} is read as the probability of class {quoted(one)}, and "
            f"1 − {theirs} as that of {quoted(rest)}. If it is that of {quoted(rest)}: "
            f"--columns {shlex.quote(f'{CONFIDENCE}{rest}={theirs}')}"
        )
    if columns:
        frame = part_of(paths[0], columns, values[0])
        used = _names(frame, dict(columns), paths[0])
        _tell_places(paths[0], columns, used)
        if unread := [name for name in frame.columns if name not in used]:
            tell_unread(frame, unread, columns, class_names, paths[0])
        if unread and not {"row_id", "run", "repeat", "fold"} & {*used.values()}:
            for path, said in zip(paths[1:], values[1:], strict=True):
                other = part_of(path, columns, said)
                require_same_order(frame, other, unread, columns, path)
    for number, path in enumerate(paths):
        for (repeat, run), frame in _runs(path, number, columns, values[number]).items():
            first_row = frame.row(0, named=True)
            has_run = "run" in _frame(path, columns, values[number]).columns
            is_numbered |= has_run
            model = dict(values[number]).get("classifier")
            where = shown[path] if model is None else f"{model} in {shown[path]}"
            places.append(f"run {run} of {where}" if has_run else where)
            leaving[places[-1]] = f"--exclude {shell_word(excluding(model, run))}"
            keys.append(
                pl.DataFrame(
                    {
                        "file": [number],
                        "repeat": [repeat],
                        "run": [run],
                        **{k: [first_row[k]] for k in (*DEFAULTS, "fit_seconds") if k in first_row},
                    }
                )
            )
            test_set = frame.select("row_id", "truth")
            known, place = first.setdefault(repeat, (test_set, places[-1]))
            if not known.equals(test_set):
                at = _odd(paths, number, columns, values, (repeat, test_set))
                if at != number:
                    path, test_set, known = paths[at], known, test_set
                    places[-1], place = place, places[-1]
                rows = other_rows(test_set, known, places[-1], place)
                if not any(name == "repeat" for name, _ in values[number]):
                    require_no_folds(paths, rows, {read_frame(one).height for one in paths})
                what = f"repeat {repeat} has other rows or true classes: {rows}"
                if not has_run and not values[number]:
                    require_no_splits(paths, columns, what)
                    truths = [
                        next(iter(_runs(one, at, columns, values[at]).values()))["truth"]
                        for at, one in enumerate(paths)
                    ]
                    require_no_data_sets(paths, columns, truths, what)
                if known["row_id"].equals(test_set["row_id"]):
                    _require_not_exchanged(paths, columns, values, repeat)
                remedy = rows_told(paths[0], columns)
                if has_run:
                    short = places[-1] if len(test_set) <= len(known) else place
                    remedy += f"\n  to leave {short} out: {leaving[short]}"
                raise OtherTests(what, file=path, key="row_id", remedy=remedy)
    names_in = {*_names(part_of(paths[0], columns, values[0]), dict(columns), paths[0]).values()}
    if "fold" in names_in and "row_id" not in names_in and len(keys) > 1:
        warn(
            f"{paths[0].name}: no column names the test points of folds, so they are told apart by "
            "their place; true classes have one order in all runs."
        )
    form = "" if any(name == "repeat" for name, _ in values[0]) else form_of_folds(paths)
    if form and len(paths) > 1 and len(first) == 1:
        warn(
            f"{paths[0].name}: files are named as folds, and each is a run on one test set. If "
            f"each has test points of its own: --name {shlex.quote(form)}"
        )
    test_sets = {repeat: frame for repeat, (frame, _) in first.items()}
    points = pl.concat([frame["row_id"].cast(pl.String) for frame in test_sets.values()])
    if form_of_folds(paths) and len(first) > 1 and not points.is_duplicated().any():
        warn(
            f"each of {len(first):,} folds is a test set of {len(points) // len(first):,} points, "
            f"as are spreads between seeds. For one test set of all points, {JOINED}."
        )
    sizes = {frame.height for frame in test_sets.values()}
    if len(sizes) > 1:
        raise unequal(sizes, paths[0])
    table = pl.concat(keys, how="diagonal")
    require_runs_of_one(paths, columns, table)
    order = sorted(first)
    table = table.with_columns(
        pl.col("repeat").replace_strict(dict(zip(order, range(len(order)), strict=True)))
    )
    given = {name: table[name].to_list() for name in table.columns if name in ATTRIBUTES}

    def read(positions: Positions) -> Predicted:
        labels, scores, floored, off = [], [], 0, 0.0
        for position in positions.tolist():
            row = table.row(position, named=True)
            path = paths[number := row["file"]]
            frame = _runs(path, number, columns, values[number])[order[row["repeat"]], row["run"]]
            labels.append(_codes(frame["prediction"], class_names, "prediction", path))
            if has_confidences:
                one_run = scores_of(frame, class_names, labels[-1], path, dict(columns))
                assert one_run.scores is not None
                scores.append(one_run.scores)
                floored, off = floored + one_run.floored, max(off, one_run.off)
        p = np.concatenate(scores) if scores else None
        return Predicted(np.stack(labels)[:, None], p, floored, off)

    index, ids = positions_of([test_sets[r]["row_id"] for r in order], paths[0])
    return Entries(
        file=paths[0],
        names=names,
        class_names=class_names,
        n_runs=table.height,
        n_samples=max(sizes),
        y_true=np.stack(
            [_codes(test_sets[r]["truth"], class_names, "truth", paths[0]) for r in order]
        ),
        read=read,
        attributes=given,
        test_index=index if {"row_id", "fold"} & names_in else None,
        ids=ids,
        score_type="float32" if has_confidences else None,
        are_probabilities=has_confidences,
        are_classes_seen=not has_confidences,
        places=places,
        numbered=is_numbered,
    )


def _require_not_exchanged(
    paths: Sequence[Path], columns: Columns, values: Sequence[Values], repeat: int
) -> None:
    """Refuse predictions that are the same in all runs of a repeat whose true classes differ."""
    first = None
    for number, path in enumerate(paths):
        for (at, _), frame in _runs(path, number, columns, values[number]).items():
            if at != repeat or "prediction" not in frame.columns:
                continue
            predicted = frame.select("row_id", "prediction")
            first = predicted if first is None else first
            if not first.equals(predicted):
                return
    given = dict(columns)
    names = {own: given.get(own, own) for own in ("prediction", "truth")}
    if first is None or not {*names.values()} <= {*read_frame(paths[0], ()).columns}:
        return
    kept = given if given else {one: one for one in _needed_of(paths[0])}
    meant = {**kept, "truth": names["prediction"], "prediction": names["truth"]}
    raise Unread(
        f"true classes differ between runs, and predictions ({names['prediction']}) do not",
        file=paths[0],
        key=names["truth"],
        options={"columns": meant},
        before="if truth and prediction are exchanged: ",
    )


def _needed_of(path: Path) -> list[str]:
    """Return the columns of a table that have our names: once some are given, others are unread."""
    return [name for name in read_frame(path, ()).columns if name in OWN]


def _odd(
    paths: Sequence[Path],
    number: int,
    columns: Columns,
    values: Sequence[Values],
    given: tuple[int, pl.DataFrame],
) -> int:
    """Return which file has other rows: this one, or the first if a third is like this."""
    if number != 1 or len(paths) < 3:
        return number
    runs = _runs(paths[2], 2, columns, values[2])
    third = [of.select("row_id", "truth") for (at, _), of in runs.items() if at == given[0]]
    return 0 if third and third[0].equals(given[1]) else number


def _tell_places(path: Path, columns: Columns, used: Mapping[str, str]) -> None:
    """Say so where columns of scores are numbered from 0 and classes are called otherwise."""
    form = next((of for own, of in columns if own in SCORES), "")
    of = {own.removeprefix(CONFIDENCE): name for name, own in used.items() if CONFIDENCE in own}
    moved = [name for one, name in of.items() if form and name != form.replace(CLASS, one)]
    if moved:
        names = some(list(of), _SHOWN)
        warn(f"{path.name}: {moved[0]} to {moved[-1]} are scores of {names}, in this order.")


def _codes(column: pl.Series, class_names: Sequence[str], key: str, path: Path) -> Any:
    return codes(column.cast(pl.String).to_numpy().astype(str), class_names, key, path)


def _classes(
    paths: Sequence[Path], named: Columns, values: Sequence[Values]
) -> tuple[tuple[str, ...], bool]:
    """Return the classes of all files, and whether all have confidences."""
    # what a path says may also stand in the file, which is refused later
    parts = [tuple(each for each in said if each[0] in OF_ROWS) for said in values]
    columns = [
        [c for c in _frame(path, named, part).columns if c.startswith(CONFIDENCE)]
        for path, part in zip(paths, parts, strict=True)
    ]
    for path, listed in zip(paths, columns, strict=True):
        if set(listed) != set(columns[0]):
            raise UserError(f"has other classes than {paths[0]}", file=path, key="confidence")
    if columns[0]:
        class_names = tuple(c.removeprefix(CONFIDENCE) for c in columns[0])
        form = next((of for own, of in named if own in SCORES), f"{CONFIDENCE}{CLASS}")
        for path, part in zip(paths, parts, strict=True):
            require_columns(_frame(path, named, part), class_names, form, path)
        return class_names, True
    seen: dict[str, set[str]] = {"truth": set(), "prediction": set()}
    for path, part in zip(paths, parts, strict=True):
        for column, names in seen.items():
            names.update(_frame(path, named, part)[column].unique().to_list())
        require_apart(seen["truth"], seen["prediction"], "prediction", path)
    return in_order({*seen["truth"], *seen["prediction"]}), False


def _with_values(frame: pl.DataFrame, values: Values, file: Path) -> pl.DataFrame:
    """Return a table with what its file's path says, as columns."""
    for name, value in values:
        if name in OF_ROWS:  # says which rows these are, or is there already
            continue
        if name in frame.columns:
            raise UserError("is a column, and a part of the path", file=file, key=name)
        frame = frame.with_columns(pl.lit(value).alias(name))
    return frame


@lru_cache(maxsize=1)
def _frame(path: Path, named: Columns, values: Values = ()) -> pl.DataFrame:
    """Read and check a file; the last one read is cached."""
    given = dict(named)
    found = frame = part_of(path, named, values)
    names = _names(frame, given, path) if named else {}
    if named:
        # not pl.col(name), which would take a name such as * for a pattern
        frame = pl.DataFrame([frame[name].alias(own) for name, own in names.items()])
        frame = of_logits(frame, given["logits"], path) if "logits" in given else frame
        frame = of_two(frame, path) if any(own.startswith(CONFIDENCE) for own in given) else frame
    frame = _with_values(frame, values, path)
    if "truth" not in frame.columns and "correct" in frame.columns:
        theirs = given.get("correct", "correct")
        require_no_flag(frame, theirs, path, _meant(found, given))
        frame = frame.rename({"correct": "truth"})
    if named and "prediction" not in frame.columns:
        frame = most_probable(frame)
    if "row_id" not in frame.columns and {"truth", "prediction"} <= {*frame.columns}:
        of_run = [name for name in ("repeat", "run") if name in frame.columns]
        unread = [name for name in found.columns if name not in names]
        if "fold" not in frame.columns or are_rows_placed(frame, found, unread, names):
            place = pl.int_range(pl.len())
            frame = frame.with_columns(row_id=place.over(of_run) if of_run else place)
    for name in reversed(NEEDED):
        if name not in frame.columns:
            remedy = "a row is a test point of a run and needs prediction and truth"
            remedy += ", with folds also row_id" if name == "row_id" else ""
            flags = [of for of in found.columns if RIGHT.fullmatch(of) and is_flag(found[of])]
            if name == "truth" and flags:
                remedy += f"; {flags[0]} says whether a prediction is right, not the true class"
            meant = _meant(found, given, name if name == "row_id" else "")
            require_predictions(found, meant, path)
            require_one_truth(found, meant, path)
            raise Unread(
                "a column is missing",
                file=path,
                key=name,
                options={"columns": meant},
                before=f"{remedy}\n  say which columns these are: ",
                instead=other_order(found, meant),
            )
    types: dict[str, pl.DataType] = {"prediction": pl.String(), "truth": pl.String()}
    for name in frame.columns:
        if name not in OWN and not name.startswith(CONFIDENCE):
            raise Unread(
                "unknown column",
                file=path,
                key=name,
                options={"columns": _meant(found, given)},
                before=f"{nearest(name, OWN)}\n  or say which columns to read: ",
            )
        if name in ("row_id", "repeat", "run"):
            if not (name == "row_id" and is_text(frame[name])):
                types[name] = pl.Int64()
        elif name.startswith(CONFIDENCE):
            types[name] = pl.Float64()
    if frame.is_empty():
        raise UserError("has no rows", file=path)
    for name, dtype in types.items():
        if name == "run" and named and (numbers := numbers_in(frame[name])) is not None:
            frame = frame.with_columns(numbers.alias(name))
        try:
            frame = frame.with_columns(pl.col(name).cast(dtype))
        except pl.exceptions.PolarsError:
            two = two_in_one(frame[name], given.get(name, name)) if name == "run" else None
            what = f"must be {_KINDS[dtype]}"
            raise UserError(what, file=path, key=name, remedy=two) from None
        if frame[name].has_nulls() or (dtype == pl.String and _is_some_missing(frame[name])):
            raise lacking_cells(frame, name, _are_missing(frame[name]), values, path)
        if dtype == pl.Float64 and not frame[name].is_between(0, 1.001).all():
            form = given.get("confidence", f"{CONFIDENCE}{CLASS}")
            p = frame.select(pl.col("^confidence[.].*$").cast(pl.Float64, strict=False)).to_numpy()
            what, remedy = "must be probabilities, from 0 to 1", remedy_of_shares(p, form)
            raise UserError(what, file=path, key=name, remedy=remedy)
    if named:
        require_one_thing(found, names, given, path)
        require_told_apart(found, names, given, path)
    return frame


_SHOWN = 5  # classes in a message
_MISSING = ("", "nan", "na", "n/a", "none", "null", "<na>")


def _are_missing(values: pl.Series) -> pl.Series:
    """Return which values are missing, or words that stand for that."""
    words = values.cast(pl.String).str.strip_chars().str.to_lowercase().is_in(_MISSING)
    return values.is_null() | (words & (values.dtype == pl.String and _is_some_missing(values)))


def _is_some_missing(labels: pl.Series) -> bool:
    """Return whether labels are numbers but for words that stand for missing ones."""
    seen = {str(value).strip().lower() for value in labels.unique()}
    left = {*seen} - {*_MISSING}
    return left < seen and bool(left) and all(map(is_number, left))


def _meant(frame: pl.DataFrame, given: Mapping[str, str], lacking: str = "") -> dict[str, str]:
    """Return the columns that seem to be meant, none as two things: as given, if that can be."""
    meant = ({lacking: "NAME"} if lacking else {}) | meant_columns(frame, given)
    wrong = {own for own, of in given.items() if of in {*meant.values()} - {meant.get(own, of)}}
    kept = {own: of for own, of in given.items() if own not in wrong or meant.get(own) == "NAME"}
    for own in {*meant} - {*kept}:
        meant[own] = "NAME" if meant[own] in kept.values() else meant[own]
    return {**meant, **kept} or {"prediction": "prediction"}  # of our names, others are not read


def _names(frame: pl.DataFrame, named: Mapping[str, str], path: Path) -> dict[str, str]:
    """Return our names of the columns that a user names, and of those that have our names."""

    def lacks(theirs: str) -> NoReturn:
        remedy = nearest(theirs, frame.columns)
        raise UserError("there is no such column", file=path, key=theirs, remedy=remedy)

    form = next((of for own, of in named.items() if own in SCORES), None)
    others = (*SCORES, *NAMES)
    names = {theirs: own for own, theirs in named.items() if own not in others}
    for theirs in names:
        if theirs not in frame.columns:
            lacks(theirs)
    if form is not None:
        form_of = re.compile("(.+)".join(map(re.escape, form.split(CLASS))), re.DOTALL)
        found = {
            name: match[1]
            for name in frame.columns
            if name not in OWN and name not in names and (match := form_of.fullmatch(name))
        }
        if form == CLASS:  # of all columns, those that are named like a class
            held = [name for name, own in names.items() if own in ("truth", "correct")]
            held = held or [name for name in ("truth", "correct") if name in frame.columns]
            seen = {str(value) for name in held for value in frame[name].unique()}
            found = {name: of for name, of in found.items() if of in seen}
        elif (truth := named.get("truth", "truth")) in frame.columns:
            found = classes_in_place(found, frame[truth].cast(pl.String))
        names |= {name: f"{CONFIDENCE}{of}" for name, of in found.items() if name not in names}
        if not found:
            lacks(form)
    for name in frame.columns:
        is_own = name in OWN or name.startswith(CONFIDENCE)
        if is_own and name not in names and name not in names.values():
            names[name] = name
    return names


@lru_cache(maxsize=1)
def _runs(
    path: Path, number: int, columns: Columns, values: Values = ()
) -> dict[tuple[int, int], pl.DataFrame]:
    """Return the table of each (repeat, run) of a file, sorted by row_id."""
    frame = _frame(path, columns, values)
    has_run = "run" in frame.columns
    for name, value in (("repeat", 0), ("run", number)):
        if name not in frame.columns:
            frame = frame.with_columns(pl.lit(value).alias(name))
    parts = frame.sort("row_id").partition_by("repeat", "run", as_dict=True)
    made = [name for name in DEFAULTS if name in frame.columns]
    for (repeat, run), part in parts.items():
        if mixed := [name for name in made if part[name].n_unique() > 1]:
            raise UserError(
                f"has several values in repeat {repeat}, run {run}",
                file=path,
                key=mixed[0],
                remedy="give each a file of its own, or other numbers of runs",
            )
        if (again := part.filter(part["row_id"].is_duplicated())["row_id"]).len():
            model = dict(values).get("classifier")
            if not (once := part.unique())["row_id"].is_duplicated().any():
                raise repeated_rows(frame, part.height - once.height, path)
            raise UserError(
                f"repeat {repeat}, run {run}{f' of {model}' if model else ''} predicts row "
                f"{again[0]} more than once",
                file=path,
                key="row_id",
                remedy="give each run another number in the column run"
                if has_run
                else "number the runs of a file with a column run",
            )
    return {(int(str(repeat)), int(str(run))): part for (repeat, run), part in parts.items()}
