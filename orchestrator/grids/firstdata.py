"""What ``manyseed init`` is given as data: a file, a folder, a function or a source."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyseed.analysis.counts import some
from manyseed.jobs import datasets
from manyseed.jobs.checks import TABLES, Refused, paths_near, similar
from manyseed.jobs.datasets import DatasetInfo, arrayfile, csvfile, imagefolder
from manyseed.jobs.datasets.columns import is_mark
from manyseed.jobs.datasets.function import KEPT, OPTION
from manyseed.jobs.datasets.info import ColumnInfo
from manyseed.jobs.datasets.parts import ROW_ID
from manyseed.jobs.datasets.sources import SOURCES
from manyseed.jobs.datasets.tablefile import FORMATS
from manyseed.jobs.own import copies
from manyseed.jobs.own.table import is_entry
from manyseed.orchestrator.errors import (
    UserError,
    command,
    meant,
    refused,
    require_one_of,
    shell_word,
    toml_value,
)
from manyseed.orchestrator.grids.imagetable import NamedImages, named_images, tables_of_images
from manyseed.orchestrator.grids.own import OwnCode

if TYPE_CHECKING:
    import polars as pl

TARGETS = ("target", "label", "labels", "class", "y", "species", "diagnosis", "outcome")
"""Column names taken for the classes; without any of them, the last column is."""

_USUAL = (*TARGETS, "condition", "status", "category", "result", "response", "disease", "survived")
"""Names that columns of classes often have, but others as well."""

_BY_NAME = "its name says so"

TARGET = "target"

_SAME = "the same but for blanks or case"

UNREADABLE = "holds dates, lists or bytes"

LAST = "the last column"

LEFT_OUT: Mapping[str, str] = {
    "id": "looks like names or numbers",
    "date": "looks like dates",
    "distinct": "has labels that hardly repeat",
    "text": f"is text, whose words no classifier here reads ({command('docs', 'text')})",
    "constant": "never changes",
}
"""Looks of columns that are left out, and why."""

_PACKED: Mapping[str, str] = {
    ".zip": "unzip",
    ".tar.gz": "tar -xf",
    ".tgz": "tar -xf",
    ".tar": "tar -xf",
    ".tar.bz2": "tar -xf",
    ".tar.xz": "tar -xf",
    ".gz": "gunzip -k",
    ".bz2": "bunzip2 -k",
    ".xz": "unxz -k",
    ".7z": "7z x",
}
"""What unpacks files with these endings."""

_FEW = 10  # labels at most; numbers that are so few may be codes
_MARKS = 3  # texts beside numbers; more of them mean something

_CUT = 20  # values; a target of more numbers may be a quantity

_THIRDS = ["low", "middle", "high"]

_SIDE = 64  # pixels; images become no larger, or the first run takes long

SHOWN = 6

_SEEN = 10_000  # rows, of which different values are counted


@dataclass(frozen=True, slots=True)
class FirstData:
    """A dataset: its source, its table's options with remarks, its facts, its source's key.

    Of a file, `columns` holds each column with what it looks like, also those that are left out.
    `notes`: what to check besides. `others`: columns that may be the classes instead.
    """

    source: str
    options: Mapping[str, tuple[Any, str]]
    info: DatasetInfo
    key: str = "source"
    columns: tuple[ColumnInfo, ...] = ()
    notes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What to call it: after the file, the function's module, or the source."""
        return _name(self.source, is_function=self.key != "source")


def _name(source: str, *, is_function: bool) -> str:
    kind, colon, name = source.partition(":")
    place = name if colon and not is_function else kind
    is_file = source.startswith("file:") and not is_function
    return plain((Path(place).absolute() if is_file else Path(place)).stem) or "data"


def name_of(data: str) -> str:
    """Return what `FirstData.name` will be, without reading the data."""
    is_function = is_entry(data) and data.partition(":")[0] not in SOURCES
    return _name(f"file:{data}" if Path(data).exists() else data, is_function=is_function)


def plain(name: str) -> str:
    """Return a name with letters, digits, '.', '_' and '-' alone."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")


def require_there(data: str) -> None:
    """Refuse a file that does not exist."""
    path = Path(data.removeprefix("file:"))
    is_named = path.suffix in FORMATS or "/" in data
    is_path = data.startswith("file:") or (is_named and ":" not in data)
    if is_path and not path.exists():
        near = meant(paths_near(path))
        raise UserError("does not exist", key="DATA", value=data, remedy=near or None)


def first_data(data: str, target: str | None) -> FirstData:
    """Return the data that a file, a folder, a function or a source holds, or refuse them.

    `target`: the column of classes, if it is not the one that looks like it.
    """
    if (returned := _returned(data)) is not None:
        kept = Path(returned[KEPT])
        return replace(_of_file(data, kept, target, returned["given"]), source=data, key=OPTION)
    require_there(data)
    path = Path(data.removeprefix("file:"))
    if path.is_dir() and path.suffix not in FORMATS:
        return _of_folder(data, path)
    if path.suffix.lower() in csvfile.SPREADSHEETS:
        raise UserError(csvfile.no_spreadsheet(path), key="DATA", value=data)
    if path.is_file() and path.suffix not in FORMATS:
        if unpacks := next((how for end, how in _PACKED.items() if data.endswith(end)), None):
            remedy = f"unpack it first, such as: {unpacks} {shlex.quote(data)}"
            raise UserError("is an archive", key="DATA", value=data, remedy=remedy)
        remedy = f"known formats: {', '.join(FORMATS)}; else a function that returns X and y"
        with suppress(OSError), path.open("rb") as opened:
            begin = opened.read(1000)
            if b"\0" not in begin and re.search(rb"[,;\t]", begin):
                copy = path.with_suffix(".csv")
                remedy += f"\n  if it is a table: cp {shlex.join([data, str(copy)])}"
        raise UserError("unknown kind of file", key="DATA", value=data, remedy=remedy)
    if path.suffix not in FORMATS or (":" in data and not data.startswith("file:")):
        try:
            return FirstData(data, {}, datasets.resolve(data))
        except Refused as error:
            remedy = f"give a source, a function, or a file ({', '.join(FORMATS)})"
            if ":" in data or error.option != "source":
                raise refused(error, key="DATA", value=data, remedy=remedy) from None
            reason = "is no file or folder here, and no source"
            sources = {
                text.rpartition(":")[2].partition("@")[0]: text for text in map(str, error.allowed)
            }
            known = [sources[name] for name in similar(data, sources)]
            near = meant([*paths_near(path), *known])
            if not near:
                remedy = (
                    f"give a file ({', '.join(FORMATS)}), a folder of images, a function "
                    '("module:name"), or a source such as sklearn:iris or openml:credit-g@2'
                )
            raise UserError(reason, key="DATA", value=data, remedy=near or remedy) from None
    return _of_file(data, path, target, {})


def _of_folder(data: str, path: Path) -> FirstData:
    """Return the dataset in a folder of images; large images are made smaller."""
    source = f"file:{path}"
    try:
        try:
            info = datasets.resolve(source)
        except Refused as error:
            if imagefolder.SIZE not in error.needs:
                raise
            size = error.needs[imagefolder.SIZE]
            found = _resized(source, size, "images of other sizes become this")
            height, width, _ = found.info.image or (0, 0, 0)
            become = f"all become {height} × {width} (height × width)"
            become += ", stretched where they have other proportions"
            note = f"{error.reason.removeprefix('holds ')}; {become}"
            return replace(found, notes=(note,))
        if info.image and max(info.image[:2]) > _SIDE:
            remark = "smaller than they are, to be ready soon"
            return _resized(source, info.image[:2], remark)
    except Refused as error:
        error.value = data
        remedy = _instead(path, error)
        raise refused(error, key="DATA", value=data, remedy=remedy) from None
    return FirstData(source, {}, info)


def _instead(path: Path, error: Refused) -> str | None:
    """Return what to do about a folder that is refused, if its files tell."""
    for images in tables_of_images(path):
        names = [name for name in images.sample.columns if name != images.column]
        if images.has_header and names:
            return f"{images.table} names classes of images; {images.sorting(_target_in(names)[0])}"
    if "source" in error.needs:
        inner = os.path.relpath(error.needs["source"].removeprefix("file:"), path)
        return command("init", path / inner)
    folders = {each.name.lower(): each for each in path.iterdir() if each.is_dir()}
    if all(name in folders for name in ("train", "test")):
        moved = [
            f"mv {shlex.join([str(folders[name]), str(path / name)])}"
            for name in ("train", "test")
            if folders[name].name != name
        ]
        if moved:
            return f"such as: {' && '.join(moved)}"
    others = [name for name in ("val", "valid", "validation") if (path / name).is_dir()]
    if tables := sorted(each.name for each in path.iterdir() if each.suffix in FORMATS):
        return f"of a file there: {command('init', path / tables[0])}"
    if others and (path / "train").is_dir() and not (path / "test").exists():
        return f"such as: mv {shlex.join([str(path / others[0]), str(path / 'test')])}"
    return None


def _resized(source: str, size: Sequence[int], remark: str) -> FirstData:
    """Return the dataset in a folder of images, made as large as this or smaller."""
    small = [max(1, round(side * min(1, _SIDE / max(size)))) for side in size]
    options: dict[str, Any] = {imagefolder.SIZE: small}
    info = datasets.resolve(source, **options)
    return FirstData(source, {imagefolder.SIZE: (small, remark)}, info)


def _returned(data: str) -> Mapping[str, Any] | None:
    """Return what a function returned; None if there is no module of that name here."""
    if not is_entry(data) or data.partition(":")[0] in SOURCES:
        return None
    try:
        copies.find_modules(OPTION, [data], [Path.cwd()])
    except Refused:
        return None
    try:
        return OwnCode([Path.cwd()], {}).data(data, {})
    except Refused as error:
        raise refused(error, key="DATA", value=data) from None


def _of_file(data: str, path: Path, target: str | None, given: Mapping[str, Any]) -> FirstData:
    """Return the dataset in a file; `given` holds the options that are already known."""
    if path.is_file() and not path.stat().st_size:
        raise UserError("is empty", key="DATA", value=data)
    columns, unreadable = _columns(path)
    remark, notes = "given", tuple[str, ...]()
    is_called = path.suffix == ".npz" and "X" not in (held := _arrays_in(path))
    if columns and is_called:
        called = target or _classes_in(held)
        columns, notes = _called(data, held, called)
    if not columns:
        raise UserError("there are no classes beside it", key="DATA", value=data)
    target = given.get(TARGET) if target is None else target
    if images := named_images(path):
        notes = _named(data, images, columns, target)
    if target is None:
        target, remark = _target_in(
            [name for name in columns if not images or name != images.column]
        )
        if is_called:
            target, remark = called, "the array with a value per row"
            listed = [name for name in held if arrayfile.without_part(name) == target]
            remark += f": {' and '.join(listed)}" * (listed not in ([], [target]))
    elif path.suffix not in TABLES:
        require_one_of(target, columns, "unknown array", key="--target")
    ignored = [name for name in unreadable if name != target]
    named: dict[str, str] = {}
    source = f"file:{path}"
    options = {key: value for key, value in given.items() if key != TARGET}
    try:
        info, merged = _resolved(source, {TARGET: target, "ignore": ignored, **options})
        info, numbers = _with_numbers(
            source, info, {TARGET: target, "ignore": ignored, **options, **merged}
        )
        options |= {key: value for key, (value, _) in numbers.items()}
        found = info.columns
        suspicious = [each.name for each in found if each.looks in LEFT_OUT or is_unread(each)]
        ids = [each.name for each in found if each.looks == "id" and each.rows[2] <= 1]
        if suspicious and len(suspicious) + len(ignored) < len(found):
            named = {ROW_ID: ids[0]} if len(ids) == 1 and ids[0] and ROW_ID not in options else {}
            ignored = sorted({*ignored, *suspicious} - {*named.values()})
            options = {TARGET: target, "ignore": ignored, **options, **merged, **named}
            info = datasets.resolve(source, **options)
    except Refused as error:
        is_known = target in columns or error.option != TARGET
        remedy = _other_target(path, columns, target) if error.option == TARGET else None
        raise refused(
            error,
            file=None if given else path,
            key=error.option if is_known else "--target",
            remedy=remedy if is_known else None,
        ) from None
    remarked: dict[str, tuple[Any, str]] = {}
    if target != given.get(TARGET):
        remarked[TARGET] = (target, remark)
    if named:
        remarked[ROW_ID] = (named[ROW_ID], "what answers call rows by, not a feature")
    if ignored:
        remarked["ignore"] = (ignored, "")
    remarked |= numbers
    why = "rows without a class are left out" if info.n_dropped else _SAME
    remarked |= {key: (value, why) for key, value in merged.items()}
    is_guessed = remark in (_BY_NAME, LAST) and path.suffix in TABLES
    others = _as_plausible(columns, found, target) if is_guessed else ()
    return FirstData(source, remarked, info, columns=found, notes=notes, others=others)


def _other_target(path: Path, columns: Sequence[str], target: str) -> str | None:
    """Return what to do about a column that holds no classes: name another, or cut its numbers."""
    import polars as pl

    values, rows = dict[str, int](), 0
    is_many = False
    with suppress(Exception, pl.exceptions.PanicException):
        frame = _begin(path, _SEEN)
        rows = len(frame)
        flat = [each.name for each in frame if not each.dtype.is_nested()]
        values = {name: frame[name].drop_nulls().n_unique() for name in flat}
        is_many = frame[target].dtype.is_numeric() and values[target] > _CUT
    others = [name for name in columns if name != target]
    others = [name for name in others if not values or 1 < values.get(name, 0) <= rows / 2]
    others.sort(key=lambda name: values.get(name, _SEEN))
    remedies = []
    if others:
        remedies.append(f"name the column of classes: --target, one of {some(others, SHOWN)}")
    if is_many and path.suffix == ".csv":
        cut = path.with_stem(f"{path.stem}-cut").name
        separator = csvfile.separator(path.read_bytes(), path.suffix)
        how = f', separator="{separator}", decimal_comma=True' * (separator != ",")
        program = (
            f"import polars as pl; d = pl.read_csv({json.dumps(str(path))}{how}); "
            f"cut = pl.col({json.dumps(target)})"
            f".qcut(3, labels={json.dumps(_THIRDS)}, allow_duplicates=True); "
            f"d.with_columns(cut).write_csv({json.dumps(cut)})"
        )
        again = command("init", cut, "--target", target)
        either = "or " * bool(others)
        remedies.append(f"{either}cut it into thirds: python -c {shlex.quote(program)} && {again}")
    return "\n  ".join(remedies) or None


def is_unread(column: ColumnInfo) -> bool:
    """Return whether a column would be a category of numbers, as some are not written as such."""
    return column.looks == "numbers" and column.n_labels > _FEW


def _with_numbers(
    source: str, info: DatasetInfo, options: Mapping[str, Any]
) -> tuple[DatasetInfo, Mapping[str, tuple[list[str], str]]]:
    """Return a dataset with columns of numbers read as such, and the options that it takes.

    Marks of missing values are those that stand beside numbers and, unless they are known ones,
    are no labels of other columns.
    """
    added: dict[str, tuple[list[str], str]] = {}
    by_column = {
        each.name: {*each.shown}
        for each in filter(is_unread, info.columns)
        if 0 < len(each.shown) <= _MARKS and not any(map(_has_digit, each.shown))
    }
    marks = sorted(set[str]().union(*by_column.values()))
    if marks and csvfile.MARKS not in options and Path(source).suffix in (".csv", ".tsv"):
        before = {each.name: each.n_missing for each in info.columns}
        with suppress(Refused):
            read = datasets.resolve(source, **{**options, csvfile.MARKS: marks})
            others = [each for each in read.columns if each.name not in by_column]
            are_same = all(each.n_missing == before[each.name] for each in others)
            if (are_same or all(map(is_mark, marks))) and read.class_counts == info.class_counts:
                info = read
                added[csvfile.MARKS] = marks, f"besides numbers in {', '.join(by_column)}"
    options = {**options, **{key: value for key, (value, _) in added.items()}}
    numbers: list[str] = []
    shown: list[str] = []
    for column in filter(is_unread, info.columns):
        with suppress(Refused):
            every = [*options.get("continuous", ()), *numbers, column.name]
            info = datasets.resolve(source, **{**options, "continuous": every})
            numbers.append(column.name)
            shown += column.shown[:1]
    if numbers:
        listed = sorted({*options.get("continuous", ()), *numbers})
        said = f"numbers such as {some(shown, _MARKS)}" if shown else "numbers written as text"
        added["continuous"] = listed, said
    return info, added


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _target_in(columns: Sequence[str]) -> tuple[str, str]:
    """Return the column that is taken for the classes, and why.

    A last column of a usual name wins over species, which are as often a feature.
    """
    names = {_lower(name): name for name in reversed(columns)}
    known = next((names[name] for name in TARGETS if name in names), None)
    if known is not None and _lower(known) == "species" and _lower(columns[-1]) in _USUAL:
        known = columns[-1]
    return known or columns[-1], _BY_NAME if known else LAST


def _lower(name: str) -> str:
    return name.lower().removesuffix(".npy")


def _as_plausible(
    columns: Sequence[str], found: Sequence[ColumnInfo], target: str
) -> tuple[str, ...]:
    """Return the columns that may as well be the classes: by name, or as the last of few words."""
    of_words = {each.name for each in found if 1 < each.n_labels <= _FEW and not is_unread(each)}
    of_numbers = {each.name for each in found if each.looks == "few"}
    others = [
        name
        for name in columns
        if (_lower(name) in _USUAL and name in of_words | of_numbers)
        or (name == columns[-1] and name in of_words)
    ]
    return tuple(name for name in others if name != target)


def _named(
    data: str, images: NamedImages, columns: Sequence[str], target: str | None
) -> tuple[str, ...]:
    """Return the note on images that a table names; refuse one that says nothing else of them."""
    place = f"names images in {shell_word(str(images.folder))}"
    others = [name for name in columns if name != images.column]
    if not images.has_header or not others or (target is not None and target not in others):
        reason = f"its column {toml_value(images.column)} {place}"
        if images.has_header:
            reason, remedy = f"{reason}, and no other their classes", "add a column of classes"
        else:
            remedy = "write a line with the names of the columns above, such as: file,label"
        raise UserError(reason, key="DATA", value=data, remedy=remedy)
    target = target or _target_in(others)[0]
    read = "images are read from a folder for each class"
    if images.features(target):
        return (f"{images.column}: {place}, which are not read; {read}: {images.sorting(target)}",)
    reason = f"its column {images.column} {place}; {read}, not by a table"
    raise UserError(reason, key="DATA", value=data, remedy=images.sorting(target))


def _resolved(
    source: str, options: Mapping[str, Any]
) -> tuple[DatasetInfo, Mapping[str, Mapping[str, list[str]]]]:
    """Return a dataset, and the option that merges classes that are the same but for blanks."""
    try:
        return datasets.resolve(source, **options), {}
    except Refused as error:
        if error.needs.keys() != {"classes"}:
            raise
        return datasets.resolve(source, **options, **error.needs), error.needs


def _arrays_in(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _classes_in(held: Mapping[str, Any]) -> str:
    """Return what the classes are called among arrays of which none is X."""
    names = dict.fromkeys(map(arrayfile.without_part, held))
    found = [name for name in names if arrayfile.called(held, name)]
    return _target_in(found)[0] if found else "y"


def _called(data: str, held: Mapping[str, Any], target: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the arrays beside X of an NPZ that has none of this name, and what is not read."""
    parts = arrayfile.called(held, target)
    if not parts:
        remedy = f"save the rows as X and the classes as {target}; it has {some([*held], SHOWN)}"
        raise UserError("has no array X", key="DATA", value=data, remedy=remedy)
    unread = [name for name in held if arrayfile.OF_PART.fullmatch(name) is None]
    note = f"only its arrays for training and test are read, not {some(unread, SHOWN)}"
    return [name for name in parts[0] if name != "X"], (note,) if parts[1:] and unread else ()


def _begin(path: Path, n_rows: int) -> pl.DataFrame:
    """Return the first rows of a table."""
    import polars as pl

    if path.suffix in (".csv", ".tsv"):
        return csvfile.read(path.read_bytes(), path.suffix, n_rows=n_rows)
    return pl.read_parquet(path, n_rows=n_rows)


def _columns(path: Path) -> tuple[list[str], list[str]]:
    """Return the columns of a file, and those that cannot be features."""
    import polars as pl

    try:
        if path.suffix == ".npy":
            return sorted(each.name for each in path.parent.glob("*.npy") if each != path), []
        if path.suffix == ".zarr":
            arrays = (*path.glob("*/zarr.json"), *path.glob("*/.zarray"))
            return sorted({each.parent.name for each in arrays} - {"X"}), []
        if path.suffix == ".npz":
            return [name for name in _arrays_in(path) if name != "X"], []
        frame = _begin(path, 100)
    except (Exception, pl.exceptions.PanicException) as error:
        reason = "it is damaged, or another kind of file"
        if isinstance(error, csvfile.Unreadable | UnicodeError):
            reason = csvfile.said(error, path)
        elif isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        raise UserError(f"cannot be read: {reason}", key="DATA", value=str(path)) from None
    if not frame.columns:
        raise UserError("has no columns", key="DATA", value=str(path))
    unreadable = [
        name
        for name, dtype in frame.schema.items()
        if dtype.is_temporal() or dtype.is_nested() or dtype == pl.Binary
    ]
    return frame.columns, unreadable
