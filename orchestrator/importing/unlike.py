"""Files that should be of one dataset, or of several, and in what they differ."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.counts import counted, some, unbroken
from manyseed.jobs.checks import quoted
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import OtherTests, Unread, UserError
from manyseed.orchestrator.importing.classes import codes
from manyseed.orchestrator.importing.filenames import (
    MODEL,
    common_name,
    form_of_folds,
    is_of_runs,
    models_apart,
    models_of,
)
from manyseed.orchestrator.importing.frames import read_frame
from manyseed.orchestrator.importing.mapping import (
    Columns,
    entries_naming_rows,
    is_id,
    is_named,
)
from manyseed.orchestrator.importing.predictions import Entries, Positions, PredictionFile
from manyseed.orchestrator.importing.scores import Predicted
from manyseed.orchestrator.plans.ids import positions_of

_SHOWN = 10  # classes or rows in a message


def _rows_alone(first: PredictionFile, source: PredictionFile) -> str:
    """Return which rows one of two sources lacks."""
    if (source.ids is None) != (first.ids is None):
        return ""
    rows = [str(row) for row in np.setxor1d(source.rows(0), first.rows(0))]
    are = "is" if len(rows) == 1 else "are"
    return f" (row_id {some(rows, _SHOWN)} {are} in one of them alone)" if rows else ""


def _where_unlike(first: PredictionFile, source: PredictionFile) -> str:
    """Return in how many points two sources differ, and how in the first."""
    n = min(len(first.y_true), len(source.y_true))
    if not np.array_equal(first.test_index[:n], source.test_index[:n]) or other_ids(first, source):
        return _rows_alone(first, source)
    repeats, points = np.nonzero(first.y_true[:n] != source.y_true[:n])
    at = repeats[0], points[0]
    one, other = (each.class_names[each.y_true[at]] for each in (source, first))
    return (
        f" in {len(points):,} of {n * first.y_true.shape[1]:,} points: the true class is "
        f"{quoted(one)} in row {source.rows(at[0])[at[1]]}, not {quoted(other)}"
    )


def other_ids(first: PredictionFile, source: PredictionFile) -> bool:
    """Return whether points of one number have other ids, where both sources have ids."""
    if first.ids is None or source.ids is None or first.ids.equals(source.ids):
        return False
    n = min(len(first.y_true), len(source.y_true))
    index = np.unique(first.test_index[:n])
    return not first.ids.gather(index).equals(source.ids.gather(index, null_on_oob=True))


def not_alike(
    first: PredictionFile, source: PredictionFile, key: str, *, is_dataset_given: bool
) -> UserError:
    """Return the error for a source whose `key` is another than that of its dataset's first."""
    is_one_file = source.file == first.file  # which holds several classifiers
    it, other = (source.classifier, first.classifier) if is_one_file else ("its", str(first.file))
    its = f"{it}'s" if is_one_file else it
    n = source.y_true.shape[1], first.y_true.shape[1]
    if key == "class_names":
        shown = [some([*map(unbroken, each.class_names)], _SHOWN) for each in (source, first)]
        what = f"{its} classes are {shown[0]}, not {shown[1]}, as those of {other}"
    elif n[0] != n[1]:
        what = f"{its} test sets have {n[0]:,} points, not {n[1]:,}, as those of {other}"
        what += _rows_alone(first, source) if is_one_file else ""
    elif (
        key == "y_true"
        and not other_ids(first, source)
        and np.array_equal(np.sort(source.y_true), np.sort(first.y_true))
    ):
        names = entries_naming_rows(source.file)
        whose = (
            f"{it} has the true classes of {other}"
            if is_one_file
            else f"has the classes of {other}"
        )
        return OtherTests(
            f"{whose}, in another order",
            file=source.file,
            key=key,
            remedy="if these are the same points, sort the rows of every file alike"
            f"{f', such as by {names[0]}' if names else ''}, or give ids of points, by which they "
            "are sorted (test_index in an NPZ, a column row_id in tables); if not, import them "
            "separately",
        )
    else:
        key = "row_id" if other_ids(first, source) else key
        what = f"{its} test sets differ from those of {other}{_where_unlike(first, source)}"
    remedy = "import them separately"
    remedy += ", or leave out --dataset to name each after its file" * is_dataset_given
    if is_one_file:
        remedy = "classifiers of one dataset predict the same rows; import others from own files"
    what += f", but both are {'of dataset' if is_one_file else 'named'} {source.dataset}"
    return OtherTests(what, file=source.file, key=key, remedy=remedy)


def require_distinct(datasets: Mapping[str, PredictionFile]) -> None:
    """Refuse datasets that differ in name alone: they would have one identity."""
    by_tests: dict[tuple[object, ...], PredictionFile] = {}
    for source in datasets.values():
        # in most imports all differ: compare only those whose first test sets have one digest
        arrays = (source.y_true[0], source.test_index[0])
        digests = [hashlib.sha256(a.astype("<i8").tobytes()).digest() for a in arrays]
        other = by_tests.setdefault((source.class_names, *digests), source)
        if other is source or (unlike := other_tests(other, source)) not in (None, "row_id"):
            continue
        if unlike:
            what = f"has the true classes of {other.file}, and other points"
            remedy = "import them separately"
            raise UserError(what, file=source.file, key=unlike, remedy=remedy)
        raise Unread(
            f"has the same test points as {other.file}",
            file=source.file,
            key=None,
            options={"dataset": common_name([each.file for each in datasets.values()])},
            before="if the files are seeds of one classifier: ",
            after="\n  if they are classifiers, --classifier NAME=FILE each; else import them "
            "separately",
        )


def other_tests(one: PredictionFile, other: PredictionFile) -> str | None:
    """Return in what two sources differ: classes, or test sets of repeats that both have."""
    if one.class_names != other.class_names:
        return "class_names"
    if one.y_true.shape[1] != other.y_true.shape[1]:
        return "y_true"
    n = min(len(one.y_true), len(other.y_true))
    for name in ("y_true", "test_index"):
        if not np.array_equal(getattr(one, name)[:n], getattr(other, name)[:n]):
            return name
    return "row_id" if other_ids(one, other) else None


def in_one_order(entries: Sequence[Entries]) -> list[Entries]:
    """Return arrays of one data set with their points in the order of its first file, and tell it.

    By their ids or numbers, if these are the same points with the same true classes.
    """
    first: dict[str, Entries] = {}
    found, moved = [], dict[str, int]()
    for one in entries:
        dataset = one.names.dataset or one.file.stem
        other = first.setdefault(dataset, one)
        order = None if other is one else _order_of(one, other)
        if order is not None:
            moved[dataset] = moved.get(dataset, 0) + 1
            one = replace(
                one,
                y_true=np.asarray(one.y_true)[order],
                test_index=other.test_index,
                read=partial(_in_order, one.read, order),
            )
        found.append(one)
    for dataset, n in moved.items():
        warn(
            f"{dataset}: the points of {counted(n, 'file')} were put into the order of "
            f"{first[dataset].file.name}, by test_index."
        )
    return found


def _order_of(one: Entries, first: Entries) -> NDArray[np.intp] | None:
    """Return which rows of a file are those of another, by their ids; None if they are as there."""
    if (
        one.test_index is None
        or first.test_index is None
        or (one.ids is None) != (first.ids is None)
    ):
        return None
    if {np.ndim(each) for each in (one.test_index, first.test_index, one.y_true)} != {1}:
        return None
    own, others = (np.asarray(_names(each)) for each in (one, first))
    if own.shape != others.shape or np.array_equal(own, others):
        return None
    mine, theirs = np.argsort(own), np.argsort(others)
    sorted_own = own[mine]
    if (sorted_own[1:] == sorted_own[:-1]).any() or not np.array_equal(sorted_own, others[theirs]):
        return None
    order = np.empty(len(own), dtype=np.intp)
    order[theirs] = mine
    return order


def _in_order(
    read: Callable[[Positions], Predicted], order: NDArray[np.intp], positions: Positions
) -> Predicted:
    found = read(positions)
    label = None if found.label is None else found.label[..., order]
    scores = None if found.scores is None else found.scores[:, order]
    return replace(found, label=label, scores=scores)


def stacked(entries: Sequence[Entries], repeats: Sequence[Any]) -> list[Entries]:
    """Return arrays of a test set each with those of their whole data set.

    `repeats`: the number of each file's test set, as its path says; None if it does not.
    """
    found: dict[str, list[tuple[int, Entries]]] = {}
    for one, repeat in zip(entries, repeats, strict=True):
        if repeat is not None and np.ndim(one.y_true) == 1:
            found.setdefault(one.names.dataset or one.file.stem, []).append((int(repeat), one))
    every = {id(one): one for one in entries}
    for own in found.values():
        first = dict(reversed(own))
        if len(first) == 1 or all(_have_one_set(one, own[0][1]) for _, one in own):
            continue
        sizes = {one.n_samples for _, one in own}
        if len(sizes) > 1:
            raise unequal(sizes, own[0][1].file)
        order = sorted(first)
        sets = [first[repeat] for repeat in order]
        y_true = [np.array(one.class_names)[_true(one)] for one in sets]
        index, ids = [one.test_index for one in sets if one.test_index is not None], None
        names = [pl.Series(_names(one)) for one in sets if one.ids is not None]
        if len(names) == len(sets):
            index, ids = positions_of(names, sets[0].file)
        is_numbered = len(index) == len(sets) and len(names) in (0, len(sets))
        for repeat, one in own:
            if not _have_one_set(one, first[repeat]):
                what = f"its test set differs from that of {first[repeat].file}, of the same repeat"
                remedy = "import them separately"
                raise UserError(what, file=one.file, key="y_true", remedy=remedy)
            at = order.index(repeat)
            every[id(one)] = replace(
                one,
                y_true=np.stack(y_true[: at + 1]),
                test_index=np.stack([*index[: at + 1]]) if is_numbered else None,
                ids=ids,
                attributes={**one.attributes, "repeat": [at] * one.n_runs},
            )
    return [every[id(one)] for one in entries]


def _true(one: Entries) -> Any:
    return codes(np.asarray(one.y_true), one.class_names, "y_true", one.file)


def _names(one: Entries) -> Any:
    """Return the ids or numbers of a single test set's points."""
    index = np.arange(one.n_samples) if one.test_index is None else one.test_index
    return index if one.ids is None else one.ids.gather(index).to_numpy()


def _have_one_set(one: Entries, other: Entries) -> bool:
    return (
        one.class_names == other.class_names
        and np.array_equal(_true(one), _true(other))
        and np.array_equal(_names(one), _names(other))
    )


JOINED = "put the folds of each run into one table, with columns fold and row_id"
"""How folds become one test set."""


def unequal(sizes: Collection[int], file: Path) -> UserError:
    """Return the error for test sets of one data set that are not equally large."""
    return UserError(
        f"test sets have {min(sizes):,} to {max(sizes):,} points; all must have equally many",
        file=file,
        key="repeat",
        remedy="make each a data set of its own: --name with {dataset} in the place of {repeat}\n  "
        f"or, if they are folds, {JOINED}",
    )


def require_no_folds(paths: Sequence[Path], rows: str, sizes: Collection[int]) -> None:
    """Refuse files of a fold each: these are test sets of their own, if they are equally large."""
    name = form_of_folds(paths)
    if not name:
        return
    what = f"is of another fold, with rows of its own{f': {rows}' if rows else ''}"
    if len(sizes) > 1:
        what += f"; folds have {min(sizes):,} to {max(sizes):,} rows"
        raise UserError(what, file=paths[1], key="fold", remedy=JOINED)
    options, each = {"name": name}, "each fold is then a test set: "
    also = f"\n  to have one test set, {JOINED}"
    raise Unread(what, file=paths[1], key=None, options=options, before=each, after=also)


_ONE_RUN_EACH = (
    "\n  each test set then has one run, so spreads between seeds hold those between test sets"
)


def form_of_splits(paths: Sequence[Path]) -> str:
    """Return the pattern by which each seed's file is a test set of its own; "" if none is."""
    name, counts = models_of(paths)
    is_plain = len(counts) == 1 and name.count("{run}") == 1 and MODEL not in name
    return name.replace("{run}", "{repeat}") if is_plain and len(paths) > 1 else ""


def _own_datasets(form: str, sizes: Collection[int]) -> Mapping[str, Any]:
    """Return what `Unread` says of files that are test sets of other sizes, by their pattern."""
    name = re.sub(r"[^/]*\{repeat\}(?=[./])", "{dataset}", form).replace("{repeat}", "{dataset}")
    return {
        "options": {"name": name},
        "before": f"if each seed splits the data itself, test sets have {min(sizes):,} to "
        f"{max(sizes):,} points, and each is a data set of its own: ",
        "after": "\n  all test sets of one data set must have equally many points",
    }


def require_no_splits_of_arrays(sources: Sequence[PredictionFile], error: UserError) -> None:
    """Refuse arrays of a seed each that were split by it: no two have the same true classes.

    `error`: what else is said of them.
    """
    name = form_of_splits([one.file for one in sources])
    sizes = [one.y_true.shape[1] for one in sources]
    is_equal = len({*sizes}) == 1
    if not name or {len(one.y_true) for one in sources} != {len(sources[0].y_true)}:
        return
    if not is_equal and (len(sources) < _FEWEST or 2 * len({*sizes}) <= len(sizes)):
        return
    for at, one in enumerate(sources):
        for other in sources[:at]:
            n = min(one.y_true.shape[1], other.y_true.shape[1])
            if np.mean(one.y_true[:, :n] != other.y_true[:, :n]) < _FEWEST_OTHERS:
                return
    said: Mapping[str, Any] = {
        "options": {"name": name},
        "before": "if each seed splits the data itself, each file is a test set: ",
        "after": _ONE_RUN_EACH,
    }
    said = said if is_equal else _own_datasets(name, sizes)
    said = {**said, "after": f"{said['after']}\n  else {error.remedy}"}
    raise Unread(error.message, file=error.file, key=error.key, **said)


_FEWEST = 3  # files of which some may be cut off
_FEWEST_OTHERS = 0.05  # share of points whose true class is another one in other test sets


def require_no_splits(paths: Sequence[Path], columns: Columns, what: str) -> None:
    """Refuse tables of a seed each that were split by it: each has rows of its own.

    If they are not equally large, each is a data set of its own. `what`: what is said.
    """
    frames = [read_frame(path) for path in paths]
    form, sizes = form_of_splits(paths), [len(frame) for frame in frames]
    if not form:
        return
    given, (one, other) = dict(columns), frames[:2]
    row_id = given.get("row_id", "row_id")
    free = [name for name in one.columns if name not in given.values()]
    ids = [
        name
        for name in ([row_id] if row_id in one.columns else free)
        if all(_names_rows(frame, name) for frame in frames)
        and not one[name].sort().equals(other[name].sort())
    ]
    if not ids:
        return
    best = min(ids, key=lambda name: not is_named(name, "row_id"))
    added = {} if row_id in one.columns else {"row_id": best}
    said: Mapping[str, Any] = {
        "options": {"name": form},
        "before": "if each seed splits the data itself, each file is a test set: ",
        "after": _ONE_RUN_EACH,
    }
    if len({*sizes}) > 1:
        rows = [frozenset(frame[best].to_list()) for frame in frames]
        if any(a <= b or b <= a for at, a in enumerate(rows) for b in rows[:at][:_FEWEST]):
            return  # some are cut off
        said = _own_datasets(form, sizes)
    read = {"columns": {**given, **added}} if given or added else {}
    said = {**said, "options": {**said["options"], **read}}
    raise Unread(what, file=paths[1], key="row_id", **said)


def require_no_data_sets(
    paths: Sequence[Path], columns: Columns, truths: Sequence[pl.Series], what: str
) -> None:
    """Refuse tables of other sizes whose true classes, by place, are others: each a data set.

    `truths`: of each table. `what`: what is said.
    """
    form, words = models_apart(paths)
    form = form.replace(MODEL, "{dataset}") if words else form_of_splits(paths)
    sizes = [len(one) for one in truths]
    is_few = not words and len(paths) < _FEWEST
    if not form or is_few or 2 * len({*sizes}) <= len(sizes):
        return
    for at, one in enumerate(truths):
        for other in truths[:at]:
            n = min(len(one), len(other))
            if (one[:n] != other[:n]).sum() < n * _FEWEST_OTHERS:
                return  # some are cut off
    said = _own_datasets(form, sizes)
    if words:
        before = (
            f"if each file is a data set of its own, of {min(sizes):,} to {max(sizes):,} points: "
        )
        said = {**said, "before": before}
    read = {"columns": dict(columns)} if columns else {}
    said = {**said, "options": {**said["options"], **read}}
    raise Unread(what, file=paths[1], key="row_id", **said)


def require_runs_of_one(paths: Sequence[Path], columns: Columns, keys: pl.DataFrame) -> None:
    """Refuse tables of several runs each whose numbers are the same: those of a classifier each.

    `keys`: the number of its file, repeat and run of each run.
    """
    same = keys.filter(keys.select("repeat", "run").is_duplicated())
    form, words = models_apart(paths)
    if same["file"].n_unique() < 2 or not words:
        return
    options: dict[str, Any] = {"name": form, **({"columns": dict(columns)} if columns else {})}
    raise Unread(
        f"holds run {same['run'][0]}, as {paths[same['file'][0]].name} does",
        file=paths[same["file"][-1]],
        key="run",
        options=options,
        before="if each file is of a classifier: ",
    )


def _names_rows(frame: pl.DataFrame, name: str) -> bool:
    return name in frame.columns and is_id(frame[name]) and frame[name].is_unique().all()


def other_rows(frame: pl.DataFrame, first: pl.DataFrame, whose: str, other: str) -> str:
    """Return how a run's rows differ from those of the repeat's first run: columns row_id, truth.

    `whose` and `other`: the names of the two runs.
    """
    ids = [table["row_id"].cast(pl.String) for table in (frame, first)]
    for own, theirs, lacks in (
        (ids[1], ids[0], f"{whose} lacks the {{}} of {other}"),
        (ids[0], ids[1], f"{whose} has the {{}}, which {other} lacks"),
    ):
        missing = own.filter(~own.is_in(theirs.to_list())).to_list()
        if missing:
            n = f"; they have {len(frame):,} and {len(first):,} rows" * (len(frame) != len(first))
            rows = f"row {missing[0]}" if len(missing) == 1 else f"rows {some(missing, _SHOWN)}"
            return lacks.format(rows) + n
    row = next(
        number
        for number, (one, two) in enumerate(zip(frame["truth"], first["truth"], strict=True))
        if one != two
    )
    classes = quoted(str(frame["truth"][row])), quoted(str(first["truth"][row]))
    return f"{whose} has the true class {classes[0]} in row {ids[0][row]}, {other} {classes[1]}"


def rows_told(one: Path, columns: Columns) -> str:
    """Return a remedy for files with other rows, of which no unread column has the same values."""
    if "row_id" in read_frame(one).columns or "row_id" in dict(columns):
        return "all runs of a repeat predict the same rows; a column repeat numbers test sets"
    return (
        "without row_id, rows are numbered in their order; bring all runs into one order, or give "
        "each row a column row_id that names its test point"
    )


def tell_numbers(files: Sequence[Path], sources: Sequence[PredictionFile]) -> None:
    """Say that numbers in files' names, such as of seeds, are not those of the runs."""
    name, counts = models_of(files)
    if len(files) < 2 or len(counts) != 1 or name.count("{run}") != 1 or MODEL in name:
        return
    if any(one.numbered for one in sources) or sum(len(one.runs) for one in sources) > len(files):
        return
    start, end = name.split("{run}")
    rest = re.compile(f"(?:.*/)?{re.escape(start)}([0-9]+){re.escape(end)}", re.DOTALL)
    found = [rest.fullmatch(file.as_posix()) for file in files]
    numbers = [int(each[1]) for each in found if each]
    if len(numbers) == len(files) and numbers != [*range(len(numbers))]:
        warn(
            f"runs are numbered 0 to {len(numbers) - 1}, in the order of their files' numbers "
            f"({some([str(number) for number in numbers], _SHOWN)}). To keep those: "
            f"--name {shlex.quote(name)}"
        )


def require_one_model(files: Sequence[Path], sources: Sequence[PredictionFile]) -> None:
    """Refuse runs of one test set whose files' names seem to be of several classifiers."""
    tests = [(each.y_true, each.test_index) for each in sources]
    if len(files) < 2 or not all(all(map(np.array_equal, of, tests[0])) for of in tests):
        return
    name, counts = models_of(files)
    if len(counts) < 2:
        name, words = models_apart(files)
        counts = dict.fromkeys(words, 1)
    if len(counts) < 2:
        return
    if sum(len(each.runs) for each in sources) > len(files) or any(s.numbered for s in sources):
        name = name.replace("{run}", "*")
    is_one_each = max(counts.values()) == 1
    shown = some([model if is_one_each else f"{model} ({n:,})" for model, n in counts.items()], 5)
    what = f"the names of files are of {len(counts)} kinds, {shown}, but all are of one classifier"
    if all(is_of_runs(model) for model in counts):
        warn(f"{what}. If these are several: --name {shlex.quote(name)}")
        return
    raise Unread(
        what,
        file=files[0],
        key=None,
        options={"name": name},
        before="read them from the names: ",
        after="\n  if they are one classifier: --classifier NAME",
    )
