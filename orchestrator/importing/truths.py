"""True classes in a file of their own: which one that is, and what it holds."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.counts import some
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import OtherTests, Unread, UserError, require_one_of, shell_word
from manyseed.orchestrator.importing.archive import opened, read_tensors
from manyseed.orchestrator.importing.arrays import (
    NOTHING,
    READERS,
    InMemory,
    OnDisk,
    opened_as_held,
)
from manyseed.orchestrator.importing.classes import texts
from manyseed.orchestrator.importing.frames import TABLES, read_frame
from manyseed.orchestrator.importing.mapping import is_id, meant_entries, truth_column
from manyseed.orchestrator.importing.predictions import ATTRIBUTES, TRUTHS

_HOLDING = (".npy", ".npz", ".pt", ".pth", *TABLES)
_TRUE = re.compile(
    r"(?i)y|((y|true|test|val)_?)?(true|test|truth|labels?|targets?|classes)(_?(true|test|val))?"
    r"|gold|gt|ground_?truth"
)


def truth_among(found: Sequence[Path]) -> list[Path]:
    """Return the one file that is called as true classes are, if it is beside others."""
    held = [one for one in found if one.suffix in _HOLDING]
    named = [one for one in held if _TRUE.fullmatch(one.stem) and one.stem.lower() != "test"]
    return named if len(named) == 1 < len(found) else []


def require_certain(file: Path) -> None:
    """Tell that a file in the midst of runs is read as true classes; refuse what may be a run."""
    if not _MAYBE_PREDICTED.search(file.stem):
        tell_truth(file)
        return
    options = {"truth": str(file)}
    before, after = "if it holds these: ", "\n  if it is a run, rename it"
    what = "is named like true classes, not like a run"
    raise Unread(what, file=file, key=None, options=options, before=before, after=after)


def tell_truth(file: Path) -> None:
    """Say that a file is read as the true classes because of its name."""
    warn(f"{file.name} is read as the true classes of the files beside it.")


_MAYBE_PREDICTED = re.compile("label|class", re.IGNORECASE)


def is_truth(file: Path) -> bool:
    """Return whether a file is called as true classes are, and holds no predictions."""
    return bool(_TRUE.fullmatch(file.stem)) and not holds_runs(file, None)


def truths_in(found: Sequence[Path]) -> list[Path]:
    """Return a folder's files of true classes, of which each run may have one, if all are alike."""
    stems = {one: _OF_RUN.sub("", one.stem) for one in found}
    named = [one for one, stem in stems.items() if stem in TRUTHS]
    each = [one for one, stem in stems.items() if _TRUE.fullmatch(stem) and stem != "test"]
    each = [one for one in each if not holds_runs(one, None)]
    tables = [one for one in truth_among(found) if one.suffix in TABLES]
    return named or (each if 2 * len(each) == len(found) else tables)


def truths_with_name(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return a folder's files of true classes beside runs that --name tells."""
    held = sorted(one for one in folder.iterdir() if one.suffix in suffixes and one.is_file())
    own = truths_in(held)
    return own if len(own) > 1 else [one for one in held if one.stem in TRUTHS]


def truth_with_name(
    places: Sequence[Any], is_run: Callable[[Path], object], key: Mapping[str, str] | None
) -> list[Path]:
    """Return the one file beside runs that --name tells which is called as true classes are.

    `places`: what is given; folders hold such files, too.
    """
    held = [one for one in places if isinstance(one, Path) and one.is_file()]
    folders = [one for one in places if isinstance(one, Path) and one.is_dir()]
    held += [one for folder in folders for one in sorted(folder.iterdir()) if one.is_file()]
    named = [
        one
        for one in held
        if one.suffix in _HOLDING and _TRUE.fullmatch(one.stem) and one.stem.lower() != "test"
    ]
    named = [one for one in named if not (_MAYBE_PREDICTED.search(one.stem) or is_run(one))]
    if len(named) != 1 or holds_runs(named[0], key):
        return []
    tell_truth(named[0])
    return named


_OF_RUN = re.compile(r"(^|[\W_]+)(seeds?|runs?|s|r)?[\W_]*[0-9]+($|[\W_]+)", re.IGNORECASE)


def truth_beside(
    files: Sequence[Path], error: Unread, check: Callable[[Path], object]
) -> Path | None:
    """Return a file beside those given that holds the true classes that an error misses."""
    lacks = "NAME" in (
        error.options.get("key", {}).get("y_true"),
        error.options.get("columns", {}).get("truth"),
    )
    if not lacks and error.options.get("truth") != "FILE":
        return None
    own = {file if file.is_dir() else file.parent for file in files if isinstance(file, Path)}
    above = {one.parent if one.name.strip(".") else one.resolve().parent for one in own}
    for one in (
        *_first(file for folder in own if folder.is_dir() for file in folder.iterdir()),
        *_first(file for folder in above - own if folder.is_dir() for file in folder.iterdir()),
        *_same_below([folder for folder in own if folder.is_dir()]),
    ):
        if one.suffix not in _HOLDING or not _TRUE.fullmatch(one.stem) or not one.is_file():
            continue
        try:
            check(one)
        except Unread as further:
            if further.options.get("truth"):
                continue
        except UserError:
            continue
        return one
    return None


def _same_below(folders: Sequence[Path]) -> list[Path]:
    """Return a file of true classes in the folders below, if all that are called so are equal."""
    every = _first(file for folder in folders for file in folder.glob("*/**/*"))
    held = [one for one in every if one.suffix in _HOLDING and _TRUE.fullmatch(one.stem)]
    held = [one for one in held if one.is_file() and not holds_runs(one, None)]
    return held[:1] if len({one.read_bytes() for one in held}) == 1 else []


def _first(files: Iterable[Path]) -> list[Path]:
    """Return files in the order in which they may be meant: labels may be predicted ones."""
    return sorted(files, key=lambda one: ("label" in one.stem.lower(), str(one)))


def one_truth(truths: Sequence[Path]) -> Path | None:
    """Return the file of true classes in folders: they may share one, or have equal ones."""
    if len({one.read_bytes() for one in truths}) > 1:
        problem = f"differs from {truths[0]}, but there can be one file of true classes"
        remedy = "import these folders separately"
        if len({one.parent for one in truths}) == 1:
            remedy = (
                "give one for all runs, or one for each, with the number of its run in its name"
            )
        raise UserError(problem, file=truths[1], remedy=remedy)
    return truths[0] if truths else None


def truths_of_runs(files: Sequence[Path], truths: Sequence[Path]) -> dict[Path, Path]:
    """Return the file of true classes of each file of predictions, if these are not all equal.

    `truths`: those of the given folder. A run's own has its number, or lies in a folder of its own.
    """
    numbered = {number: one for one in truths if (number := _number_of(one))}
    found: dict[Path, Path] = {}
    if len(numbered) == len(truths) > 1 and len({one.parent for one in (*files, *truths)}) == 1:
        numbers = [_number_of(file) for file in files]
        if {*numbers} == {*numbered} and len(numbers) == len(numbered):
            found = {file: numbered[at] for file, at in zip(files, numbers, strict=True)}
    elif len({file.parent for file in files}) > 1:
        found = _in_own_folders(files)
    return found if len({one.read_bytes() for one in found.values()}) > 1 else {}


def _number_of(file: Path) -> str:
    found = _OF_RUN.search(file.stem)
    return re.sub("[^0-9]", "", found[0]) if found else ""


def _in_own_folders(files: Sequence[Path]) -> dict[Path, Path]:
    """Return the true classes that lie in the folder of each file; none if any lacks them.

    Files of labels may be predicted ones: in all, each class occurs as often if they are true.
    """
    of_folder: dict[Path, Path] = {}
    lacking = list[Path]()
    for folder in dict.fromkeys(file.parent for file in files):
        if not folder.is_dir():  # of arrays in memory
            return {}
        held = [one for one in sorted(folder.iterdir()) if one.suffix in _HOLDING]
        held = [one for one in held if one not in files and is_truth(one)]
        named = [one for one in held if one.stem in TRUTHS] or held
        if len(named) != 1 or named[0].stem.lower() == "test":
            lacking.append(folder)
        else:
            of_folder[folder] = named[0]
    if lacking:
        _require_alike(of_folder, [file for file in files if file.parent in lacking])
        return {}
    if any("label" in one.stem.lower() for one in of_folder.values()):
        with suppress(UserError, OSError):
            if len({np.sort(_truth(one, None)).tobytes() for one in of_folder.values()}) == 1:
                return {file: of_folder[file.parent] for file in files}
        return {}
    return {file: of_folder[file.parent] for file in files}


def _require_alike(of_folder: Mapping[Path, Path], lacking: Sequence[Path]) -> None:
    """Refuse files without true classes beside them where others have theirs, which differ."""
    theirs = [one for one in of_folder.values() if one.stem in TRUTHS]
    if len({one.read_bytes() for one in theirs}) > 1:
        names = some(list(dict.fromkeys(one.name for one in theirs)), 3)
        more = f", nor {len(lacking) - 1:,} more files" * (len(lacking) > 1)
        raise OtherTests(
            f"has no true classes beside it{more}; others have {names}, which differ, so none is "
            "for all",
            file=lacking[0],
            remedy=f"add its {theirs[0].name}, or import the others without it",
        )


def require_no_others(files: Sequence[Path], truths: Sequence[Path], given: Path) -> None:
    """Refuse one file of true classes for all if those of each run, which lie beside, differ.

    `truths`: of the given folder. `given`: the one for all.
    """
    beside = list(dict.fromkeys([*truths, *truths_of_runs(files, truths).values()]))
    if len({one.read_bytes() for one in beside}) < 2:
        return
    others = list[Path]()
    for one in beside:
        with suppress(UserError, OSError):  # what cannot be read is told elsewhere
            mine, own = _truth(given, None), _truth(one, None)
            is_alike = own.shape == mine.shape and own.dtype.kind == mine.dtype.kind
            others += [one] * (is_alike and not np.array_equal(own, mine))
    if others:
        are, differ = ("files", "differ") if len(others) > 1 else ("file", "differs")
        names = some(list(dict.fromkeys(one.name for one in others)), 3)
        raise UserError(
            f"{len(others):,} {are} {names} beside the predictions {differ} from it, such as "
            f"{others[0]}",
            file=given,
            key="--truth",
            remedy="leave it out: each file of predictions is then read with the true classes "
            "beside it",
        )


def sorted_rows(frame: pl.DataFrame, truth: str, file: Path) -> pl.DataFrame:
    """Return a table of true classes in the order of predictions, by a column of their numbers."""
    n = len(frame)
    others = frame.drop(truth)
    unique = [one for one in others if n > 1 and one.n_unique() == n and not one.has_nulls()]
    numbers, ids = list[pl.Series](), list[pl.Series]()
    for one in unique:
        if one.dtype.is_numeric():
            whole = one.cast(pl.Float64).sort()
            first = whole[0]
            if first in (0, 1) and whole.equals(
                (pl.int_range(n, eager=True) + first).cast(whole.dtype)
            ):
                numbers.append(one)
            elif one.dtype.is_integer() or (whole == whole.round()).all():
                ids.append(one)
        elif one.dtype in (pl.String, pl.Categorical):
            ids.append(one)
    orders = {tuple(one.arg_sort()): one.name for one in numbers}
    unsorted = [one.name for one in ids if not one.is_sorted()]
    if wrong := [*orders.values()][1:] or ([] if orders else unsorted):
        raise Unread(
            f"{wrong[0]} may say in which order the rows are",
            file=file,
            key=truth,  # which is not otherwise known
            options={"key": {"y_true": truth}},
            before="sort the rows as the predictions are; if they are so already: ",
            after=f"\n  --key y_true={shell_word(truth)} reads {file.name} in the order of its "
            f"rows, which must be that of the predictions, and not {wrong[0]}",
        )
    return frame[list(next(iter(orders)))] if orders else frame


def holds_runs(truth: Path, key: Mapping[str, str] | None) -> bool:
    """Return whether a file of true classes also holds predictions."""
    if truth.suffix == ".npy" or truth.suffix not in READERS:
        return False
    with suppress(Exception), ExitStack() as stack:  # what cannot be read is told where it is used
        held = opened_as_held(truth, truth.parent, stack, key or NOTHING)
        return "y_true" in held.small and bool(held.large)
    return False


def _truth(file: Path, key: Mapping[str, str] | None) -> NDArray[Any]:
    """Return the true classes in a file of them alone, or in one that also holds others."""
    return _held(file, key)["y_true"]


def _held(file: Path, key: Mapping[str, str] | None) -> dict[str, NDArray[Any]]:
    """Return the true classes in a file, and what else it says of the test points."""
    if file.suffix in TABLES:
        given = (key or NOTHING).get("y_true", "")
        name = truth_column(read_frame(file, ()), file, given)
        frame = read_frame(file, (name,))
        frame = frame if name == given else sorted_rows(frame, name, file)
        return {"y_true": np.array(frame[name].to_list())}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if file.suffix in READERS and file.suffix != ".npy":
            keys = _keys_of(file, key or NOTHING)
            held = opened_as_held(file, scratch, stack, keys)
            if "y_true" in held.small:
                if not held.large:  # else others are of the predictions in it
                    _tell_unread(held)
                used = ("y_true", "class_names") if held.large else _OF_POINTS
                return {of: np.asarray(held.small[of]) for of in used if of in held.small}
            array = next(iter(held.large.values()), None)
            if array is None:
                raise UserError("y_true is missing", file=file)
        else:
            array = OnDisk.at(stack.enter_context(file.open("rb")), 0, file, "y_true")
        return {"y_true": array[np.arange(array.shape[0])] if array.shape else np.empty(0)}


_OF_POINTS = ("y_true", "class_names", "test_index")


def _tell_unread(held: InMemory) -> None:
    of_runs = [name for own, name in held.called.items() if own not in _OF_POINTS]
    if unread := [*held.unread, *of_runs]:
        are = "entries {} were" if len(unread) > 1 else "entry {} was"
        warn(f"{held.file.name}: {are.format(some(unread, 5))} not read.")


def _keys_of(file: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of a file of true classes: those given, or the only one named so."""
    if file.suffix == ".npz":
        with opened(
            file, "an NPZ file", "write it with numpy.savez(FILE, y_true=y_true)"
        ) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    else:
        names = [*read_tensors(file)]
    known = [name for name in (given.get("y_true"), "y_true") if name in names][:1]
    named = known or (names if len(names) == 1 else [n for n in names if _TRUE.fullmatch(n)])
    if len(named) != 1:
        return {}
    rest = {name: "" for name in names if name not in named}
    classes = given.get("class_names") or meant_entries(rest).get("class_names")
    return {"y_true": named[0], **({"class_names": classes} if classes in rest else {})}


def true_classes(truth: Path, key: Mapping[str, str] | None) -> NDArray[Any]:
    """Return the true classes in a file."""
    return entries_of_truth(truth, key)["y_true"]


def entries_of_truth(truth: Path, key: Mapping[str, str] | None) -> dict[str, NDArray[Any]]:
    """Return the true classes in a file, and maybe names of all classes and of test points."""
    try:
        return _held(truth, key)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=truth) from None


def further_entries(
    truth: Path | None, runs: Path | None, key: Mapping[str, str] | None
) -> dict[str, NDArray[Any] | list[Any]]:
    """Return the entries in the files of true classes and of runs, if given."""
    entries: dict[str, NDArray[Any] | list[Any]] = {}
    if truth is not None:
        entries |= entries_of_truth(truth, key)
    if runs is not None:
        table = read_frame(runs)
        for name in table.columns:
            require_one_of(name, ATTRIBUTES, "unknown column", file=runs)
            entries[name] = table[name].to_list()
    return entries


class _Unpaired(UserError):
    """True classes that are not as many as a file's rows; whose fault that is, others tell."""

    def __init__(
        self, truth: Path, n: int, path: Path, rows: int, *, is_truth: bool = True
    ) -> None:
        self.truth, self.n, self.path, self.rows = truth, n, path, rows
        if is_truth:
            super().__init__(
                f"holds {n:,} true classes, but {path.name} predicts {rows:,} points",
                file=truth,
                key="--truth",
                remedy="give a file with those of these points, in their order",
            )
        else:
            super().__init__(
                f"predicts {rows:,} points, but {truth.name} holds {n:,} true classes, as many as "
                "others predict",
                file=path,
                key=None,
                remedy="leave it out, or predict the same test points",
            )


@contextmanager
def blamed(paths: Sequence[Path]) -> Iterator[None]:
    """Blame a table for its number of rows, if true classes fit another of the tables."""
    try:
        yield
    except _Unpaired as error:
        others = (read_frame(path, ()).height for path in paths if path != error.path)
        if error.n not in others:
            raise
        given = error.truth, error.n, error.path, error.rows
        raise _Unpaired(*given, is_truth=False) from None


def require_lengths(opened: Sequence[InMemory], y_true: Any, truth: str | Path | None) -> None:
    """Refuse arrays of which no axis is as long as the true classes, or these if none fits."""
    if y_true is None or truth is None:
        return
    n, lengths = np.shape(y_true)[-1:], {*np.shape(y_true)}
    shapes = {
        one.file: next(iter(one.large.values())).shape
        for one in opened
        if "y_true" not in one.small and len(one.large) == 1
    }
    wrong = {
        file: shape
        for file, shape in shapes.items()
        if not lengths & {*shape, math.prod(shape[:-1])}  # or batches of one run
    }
    if n and wrong:
        file, shape = next(iter(wrong.items()))
        rows = shape[0] if len(shape) == 1 else max(shape[:2])
        raise _Unpaired(Path(truth), n[0], file, rows, is_truth=len(wrong) == len(shapes))


def with_truth(
    frame: pl.DataFrame, file: Path, named: Mapping[str, str], path: Path
) -> pl.DataFrame:
    """Return a table of predictions with the true classes of another, and their ids as row_id.

    Rows are matched by the ids that both have, or, if these have nothing but true classes, by their
    order. `file`: the table of true classes. `named`: the columns of the other, which is `path`.
    """
    own = named.get("truth", "truth")
    if file.suffix in TABLES:
        name = truth_column(read_frame(file, ()), file, own)
        other = read_frame(file, (name,))
    else:
        name, other = own, pl.DataFrame({own: texts(_truth(file, None), "y_true", file)})
    if other[name].null_count():
        raise UserError("has missing values", file=file, key=name)
    shared = [one for one in other.columns if one != name and one in frame.columns]
    ids = [one for one in shared if is_id(other[one]) and not other[one].is_duplicated().any()]
    ids = [one for one in ids if one == named.get("row_id")] or ids
    if ids:
        places = [_places(frame, other, one, path, file) for one in ids]
        if unlike := [one for one, at in zip(ids, places, strict=True) if not at.equals(places[0])]:
            what = f"its rows match those of {path.name} otherwise by {ids[0]} than by {unlike[0]}"
            remedy = f"say which tells rows apart: --columns row_id={unlike[0]}"
            raise UserError(what, file=file, key="--truth", remedy=remedy)
        truth = other[name][places[0]]
    elif len(other) == len(frame) and len(other.columns) == 1:
        truth = other[name]
    elif len(other.columns) == 1:
        raise _Unpaired(file, len(other), path, len(frame))
    else:
        what = f"has no column of ids, each once, that {path.name} has, too, by which to match rows"
        remedy = "give both a column of one name that tells rows apart, such as id"
        raise UserError(what, file=file, key="--truth", remedy=remedy)
    if own in frame.columns:
        n = int((frame[own].cast(pl.String) != truth.cast(pl.String)).sum())
        if n:
            what = f"holds true classes of its own, of which {n:,} are others in {file.name}"
            raise UserError(what, file=path, key=own, remedy="leave out the one that is wrong")
        return frame
    frame = frame.with_columns(truth.alias(own))
    if ids and "row_id" not in {*named, *frame.columns} and ids[0] not in named.values():
        frame = frame.rename({ids[0]: "row_id"})
    return frame


def _places(
    frame: pl.DataFrame, other: pl.DataFrame, name: str, path: Path, file: Path
) -> pl.Series:
    """Return which row of another table each row is, by a column of ids that both have."""
    ids = [table[name].alias("id").cast(pl.String) for table in (frame, other)]
    mine, theirs = (each.str.strip_chars().fill_null("") for each in ids)
    for here, there, it in ((mine, theirs, path), (theirs, mine, file)):
        lost = here.filter(~here.is_in(there.to_list())).unique(maintain_order=True)
        if len(lost):
            what = f"{it.name} alone has {name} {some(lost.to_list(), 3)}"
            remedy = "both must have the same rows; take those out that are not meant"
            raise UserError(what, file=file, key="--truth", remedy=remedy)
    return mine.replace_strict(theirs, pl.Series(range(len(other))), return_dtype=pl.Int64)
