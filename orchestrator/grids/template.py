"""``manyseed init``: a sweep file for given data and a model, with comments on what was found.

A function that returns data is called, and a model of one's own is probed, as planning does.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from manyseed.analysis.counts import counted, some
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.checks import TABLES, Refused, paths_near
from manyseed.jobs.datasets import DatasetInfo, csvfile, imagefolder
from manyseed.jobs.datasets.function import KEPT, OPTION
from manyseed.jobs.datasets.info import ColumnInfo
from manyseed.jobs.datasets.parts import GROUP
from manyseed.jobs.datasets.sources import SOURCES
from manyseed.jobs.datasets.tablefile import FORMATS, NO_SPREADSHEET, SPREADSHEETS
from manyseed.jobs.own import copies
from manyseed.jobs.own.estimator import SET_LATER
from manyseed.jobs.own.table import SCORES, TABLE, form_of, is_entry
from manyseed.jobs.packages import install
from manyseed.orchestrator.errors import (
    UserError,
    command,
    meant,
    refused,
    require_one_of,
    toml_key,
    toml_value,
)
from manyseed.orchestrator.grids.firstrun import REPEATS, RUNS, FirstRun, first_run
from manyseed.orchestrator.grids.modelfile import PROGRAMS, entry_point, model_table, space
from manyseed.orchestrator.grids.own import OwnCode
from manyseed.orchestrator.grids.plannotes import NAMELESS, data_notes
from manyseed.orchestrator.grids.resolver import lacking_packages, not_trainable

TARGETS = ("target", "label", "labels", "class", "y", "species", "diagnosis", "outcome")
"""Column names taken for the classes; without any of them, the last column is."""

TARGET = "target"

_SAME = "the same but for blanks or case"
_LEFT_OUT: Mapping[str, str] = {
    "id": "looks like names or numbers",
    "date": "looks like dates",
    "distinct": "has labels that hardly repeat",
    "constant": "never changes",
}
"""Looks of columns that are left out, and why."""
_UNREADABLE = "holds dates, lists or bytes"
_LAST = "the last column"
_SIDE = 64  # pixels; images become no larger, or the first run takes long

_SHOWN = 6
_WIDTH = 27


@dataclass(frozen=True, slots=True)
class _Data:
    """A dataset: its source, its table's options with remarks, its facts, its source's key.

    Of a file, `columns` holds each column with what it looks like, also those that are left out.
    """

    source: str
    options: Mapping[str, tuple[Any, str]]
    info: DatasetInfo
    key: str = "source"
    columns: tuple[ColumnInfo, ...] = ()

    @property
    def name(self) -> str:
        """What to call it: after the file, the function's module, or the source."""
        kind, colon, name = self.source.partition(":")
        place = name if colon and self.key == "source" else kind
        is_file = self.source.startswith("file:") and self.key == "source"
        return _plain((Path(place).absolute() if is_file else Path(place)).stem) or "data"


def to_train(file: Path, *, submits: bool) -> Iterator[tuple[str, tuple[object, ...], str]]:
    """Yield the commands that train a sweep file: what for, their words, and what they do.

    `submits`: whether this machine submits jobs, while no profile says what they request.
    """
    run = ("run", file)
    if not submits:
        yield "Train", run, "trains, analyses and reports"
        return
    yield "Train on this machine", (*run, "--cluster", "local"), "trains on this machine"
    yield "Or, on its cluster, first", ("cluster", "init"), "first, to train on its cluster"


def sweep_file(
    data: str,
    model: str | None = None,
    target: str | None = None,
    name: str | None = None,
    file: Path = Path("sweep.toml"),
    *,
    submits: bool = False,
) -> tuple[str, list[str]]:
    """Return the text of a sweep file, and sentences on what its reader should check.

    `data`: a file, a source such as ``"sklearn:wine"``, or a function such as ``"mydata:load"``.
    `model`: a classifier, ``"module:name"`` in the working folder or installed, a script, or a
    Python file that defines a model. `target`: the column of classes, if it is not the one that
    looks like it. `name`: what to name the sweep after, by default the data. `file`: what the
    file will be called. `submits`: as in `to_train`.
    """
    if Path(data).suffix in PROGRAMS and Path(data).is_file():
        remedy = f"data come first: {command('init', model or 'DATA', data)}"
        raise UserError("is a program, not data", key="DATA", value=data, remedy=remedy)
    table = {} if model is None else model_table(model, data)
    described = _data(entry_point(data, "DATA"), target)
    first = first_run(described.info, model, table)
    questions = (
        *_questions(described),
        *_noted(described),
        *_fewer_epochs(first),
        *_seeds(first, model),
    )
    asked = [f"  {question}" for question in questions]
    told = ["Please check:", *asked] if asked else []
    told += [first.told] if first.told else []
    called = _free(_plain(name or described.name) or "sweep")
    yielded = _lines(described, first, table, called, file, submits=submits)
    lines = [_printable(line) if line.startswith("#") else line for line in yielded]
    return "".join(f"{line}\n" for line in lines), told


def _printable(line: str) -> str:
    """Return a comment in one line, whatever names of columns and classes hold."""
    return "".join(letter if letter.isprintable() else " " for letter in line)


def _plain(name: str) -> str:
    """Return a name with letters, digits, '.', '_' and '-' alone."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")


def _free(name: str) -> str:
    """Return a name of a sweep whose folder does not exist yet."""
    names = (name, f"{name}-sweep", *(f"{name}-sweep-{n}" for n in range(2, 1000)))
    return next(each for each in names if not Path(each).exists())


def _data(data: str, target: str | None) -> _Data:
    if (returned := _returned(data)) is not None:
        kept = Path(returned[KEPT])
        return replace(_of_file(data, kept, target, returned["given"]), source=data, key=OPTION)
    path = Path(data.removeprefix("file:"))
    is_named = path.suffix in FORMATS or "/" in data
    is_path = data.startswith("file:") or (is_named and ":" not in data)
    if is_path and not path.exists():
        near = meant(paths_near(path))
        raise UserError("does not exist", key="DATA", value=data, remedy=near or None)
    if path.is_dir() and path.suffix not in FORMATS:
        return _of_folder(data, path)
    if path.suffix.lower() in SPREADSHEETS:
        raise UserError(NO_SPREADSHEET, key="DATA", value=data)
    if path.is_file() and path.suffix not in FORMATS:
        remedy = f"known formats: {', '.join(FORMATS)}"
        raise UserError("unknown kind of file", key="DATA", value=data, remedy=remedy)
    if path.suffix not in FORMATS or (":" in data and not data.startswith("file:")):
        try:
            return _Data(data, {}, datasets.resolve(data))
        except Refused as error:
            remedy = f"give a source, a function, or a file ({', '.join(FORMATS)})"
            raise refused(error, key="DATA", value=data, remedy=remedy) from None
    return _of_file(data, path, target, {})


def _of_folder(data: str, path: Path) -> _Data:
    """Return the dataset in a folder of images; large images are made smaller."""
    source = f"file:{path}"
    try:
        info = datasets.resolve(source)
    except Refused as error:
        if imagefolder.SIZE not in error.needs:
            others = [name for name in ("val", "valid", "validation") if (path / name).is_dir()]
            remedy = "a folder of images must hold a folder for each class"
            if others and (path / "train").is_dir() and not (path / "test").exists():
                remedy = f"such as: mv {shlex.join([str(path / others[0]), str(path / 'test')])}"
            raise refused(error, key="DATA", value=data, remedy=remedy) from None
        return _resized(
            source, error.needs[imagefolder.SIZE], "images of several sizes become this"
        )
    if info.image and max(info.image[:2]) > _SIDE:
        remark = "smaller than they are, to be ready soon"
        return _resized(source, info.image[:2], remark)
    return _Data(source, {}, info)


def _resized(source: str, size: Sequence[int], remark: str) -> _Data:
    """Return the dataset in a folder of images, made as large as this or smaller."""
    small = [max(1, round(side * min(1, _SIDE / max(size)))) for side in size]
    options: dict[str, Any] = {imagefolder.SIZE: small}
    info = datasets.resolve(source, **options)
    return _Data(source, {imagefolder.SIZE: (small, remark)}, info)


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


def _of_file(data: str, path: Path, target: str | None, given: Mapping[str, Any]) -> _Data:
    """Return the dataset in a file; `given` holds the options that are already known."""
    if path.is_file() and not path.stat().st_size:
        raise UserError("is empty", key="DATA", value=data)
    columns, unreadable = _columns(path)
    if columns and path.suffix == ".npz" and "X" not in (held := _names_in(path)):
        remedy = f"save the rows as X and the classes as y; it has {some(held, _SHOWN)}"
        raise UserError("has no array X", key="DATA", value=data, remedy=remedy)
    remark = "given"
    if not columns:
        raise UserError("there are no classes beside it", key="DATA", value=data)
    target = given.get(TARGET) if target is None else target
    if target is None:
        names = {name.lower().removesuffix(".npy"): name for name in reversed(columns)}
        known = next((names[name] for name in TARGETS if name in names), None)
        target, remark = known or columns[-1], "its name says so" if known else _LAST
    elif path.suffix not in TABLES:
        require_one_of(target, columns, "unknown array", key="--target")
    ignored = [name for name in unreadable if name != target]
    source = f"file:{path}"
    options = {key: value for key, value in given.items() if key != TARGET}
    try:
        info, merged = _resolved(source, {TARGET: target, "ignore": ignored, **options})
        found = info.columns
        suspicious = [each.name for each in found if each.looks in _LEFT_OUT]
        if suspicious and len(suspicious) + len(ignored) < len(found):
            ignored = sorted({*ignored, *suspicious})
            options = {TARGET: target, "ignore": ignored, **options, **merged}
            info = datasets.resolve(source, **options)
    except Refused as error:
        others = [name for name in columns if name != target]
        is_known = target in columns or error.option != TARGET
        remedy = f"name the column of classes: --target, one of {some(others, _SHOWN)}"
        raise refused(
            error,
            file=None if given else path,
            key=error.option if is_known else "--target",
            remedy=remedy if error.option == TARGET and is_known and others else None,
        ) from None
    remarked: dict[str, tuple[Any, str]] = {}
    if target != given.get(TARGET):
        remarked[TARGET] = (target, remark)
    if ignored:
        remarked["ignore"] = (ignored, "")
    why = "rows without a class are left out" if info.n_dropped else _SAME
    remarked |= {key: (value, why) for key, value in merged.items()}
    return _Data(source, remarked, info, columns=found)


def _questions(data: _Data) -> list[str]:
    """Return what to ask about columns, in the words of the file's comments."""
    asked = []
    target, remark = data.options.get(TARGET, ("", ""))
    if remark == _LAST:
        asked.append(f"{target}: taken for the classes, as it is the last column; else --target")
    if data.info.n_dropped and target:
        asked.append(f"{target}: missing in {counted(data.info.n_dropped, 'row')}: left out")
    ignored = data.options.get("ignore", ((), ""))[0]
    for column in data.columns:
        name = column.name or NAMELESS
        if column.name in ignored:
            why = _LEFT_OUT.get(column.looks, _UNREADABLE)
            of_rows = " of rows" if column.looks == "id" and column.rows[2] <= 1 else ""
            asked.append(f"{name}: left out, as it {why}{of_rows}")
        elif column.looks == "few" and not column.tells:
            declared = f"categorical = [{toml_value(column.name)}]"
            shown = ", ".join(column.shown)
            asked.append(f"{name}: {shown} taken as numbers; if labels: {declared}")
    return asked


def _noted(data: _Data) -> list[str]:
    """Return the notes on columns that may not be what they seem, as the plan has them."""
    columns = replace(data.info, class_names=(), class_counts=(), columns=data.columns)
    return [*data_notes(columns)]


def _fewer_epochs(first: FirstRun) -> Iterator[str]:
    """Yield what the file trains less than usual."""
    fewer = [
        f"{network} for {epochs:,} epochs, not the usual {usual:,}"
        for network, epochs in first.epochs.items()
        if epochs < (usual := classifiers.CLASSIFIERS[network].epochs or 0)
    ]
    if fewer:
        yield f"{', '.join(fewer)}, so that the first run takes about two minutes"


def _seeds(first: FirstRun, model: str | None) -> Iterator[str]:
    """Yield which seeds the model fixes, as runs are to differ by theirs."""
    if first.fixed:
        seeds = "seeds change nothing" if first.steady else "the runs do not differ by it"
        names = ", ".join(first.fixed)
        yield f"{model}: {names} is fixed, so {seeds}: leave {names} out of the code: {SET_LATER}"


def _columns_told(data: _Data) -> Iterator[str]:
    """Yield lines of comments that name all columns: those to ask about, then the others."""
    if not data.columns:
        return
    asked = _questions(data)
    yield from (f"#   {line}" for line in asked)
    ignored = data.options.get("ignore", ((), ""))[0]
    for kind, word in (("continuous", "numbers"), ("categorical", "labels")):
        names = [
            (column.name or NAMELESS) + (f" ({column.n_labels:,})" if column.n_labels else "")
            for column in data.columns
            if column.kind == kind
            and column.name not in ignored
            and (column.looks != "few" or column.tells)
        ]
        if names:
            text = f"taken as {word}: {', '.join(names)}"
            yield from textwrap.wrap(text, 76, initial_indent="#   ", subsequent_indent="#     ")


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


def _names_in(path: Path) -> list[str]:
    with np.load(path, allow_pickle=False) as file:
        return [*file.files]


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
            return [name for name in _names_in(path) if name != "X"], []
        if path.suffix in (".csv", ".tsv"):
            frame = csvfile.read(path.read_bytes(), path.suffix, n_rows=100)
        else:
            frame = pl.read_parquet(path, n_rows=100)
    except (Exception, pl.exceptions.PanicException) as error:
        reason = "it is damaged, or another kind of file"
        if isinstance(error, csvfile.Unreadable | UnicodeError):
            reason = str(error)
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


def _lines(
    data: _Data,
    first: FirstRun,
    table: Mapping[str, Any],
    name: str,
    file: Path,
    *,
    submits: bool,
) -> Iterator[str]:
    info = data.info
    yield f"# {command('plan', file, '--dry-run')}   shows what it asks for and what that costs"
    for _, words, does in to_train(file, submits=submits):
        yield f"# {command(*words)}   {does}"
    yield _line("name", name)
    yield _line("seed", 1, "of all random streams: another seed makes another sweep")
    remark = "test sets: there is only one" if info.n_test_sets == 1 else "test sets"
    few = min(info.n_test_sets or REPEATS, REPEATS) > first.repeats
    yield _line("repeats", first.repeats, remark + f"; {REPEATS} are usual" * few)
    remark = "fits that share a test set, each with its own seed"
    yield _line("runs", first.runs, remark + f"; {RUNS} are usual" * (first.runs < RUNS))
    drawing = [each for each in first.models if each not in first.steady]
    if drawing:
        yield from _grid(data, drawing, first.rows)
        what = 'of the runs; or one alone: "init", "batch", or "train" for a bootstrap'
        yield _line("vary", ["init+batch"], what)
        yield from _perturbations(info, first.rows)
    if first.absent:
        yield f"# {not_trainable(first.absent)}"
        yield f"# {install(lacking_packages(first.absent))}"
    if first.steady:
        names = ", ".join(first.fixed)
        fixed = f"{names} is fixed in the model: leave the value out there, and runs = 1 here"
        remark = fixed if names else "what draws no random number"
        yield from _grid(data, first.steady, first.rows, remark)
        why = f"while {names} is fixed, all would be the same model" if names else ""
        yield _line("runs", 1, why or "other seeds would make the same model")
        if not drawing:
            yield from _perturbations(info, first.rows)
    counts = info.class_counts or (None,) * len(info.class_names)
    classes = [
        label if count is None else f"{label} ({count:,})"
        for label, count in zip(info.class_names, counts, strict=True)
    ]
    yield ""
    yield f"# {info.n_samples:,} rows of {_kind(info)}"
    yield f"# {len(classes)} classes: {some(classes, _SHOWN)}"
    yield from _columns_told(data)
    yield from (f"# {note}" for note in data_notes(replace(info, columns=data.columns)))
    yield f"[dataset.{toml_key(data.name)}]"
    yield _line(data.key, data.source)
    for key, (value, remark) in data.options.items():
        yield _line(key, value, remark)
    if info.n_test_sets is None and not info.group_sizes:
        ignored = data.options.get("ignore", ((), ""))[0]
        for column in data.columns:
            if column.tells == "group" and column.name:
                instead = ", then not in ignore" if column.name in ignored else ""
                yield f"# {_line(GROUP, column.name, f'keeps its rows together{instead}')}"
            elif column.rows[0] and column.looks != "id" and not column.tells and column.name:
                together = f"if rows of one {column.name} belong together"
                yield f"# {_line(GROUP, column.name, together)}"
    if info.n_test_sets != 1:
        yield _line("test", 0.25, "share of the rows, drawn for each repeat, stratified")
    for network, epochs in first.epochs.items():
        yield f"\n[classifier.{network}]"
        most = classifiers.CLASSIFIERS[network].epochs
        fewer = f"fewer than the usual {most}, so that it takes about two minutes"
        yield _line("epochs", epochs, "as usual: there is time" if epochs == most else fewer)
    if table:
        yield "\n[classifier.mine]"
        yield from (_line(key, value) for key, value in table.items())
        if (form := form_of(table)) in ("train", "command"):
            usual, *others = SCORES[form]
            last = toml_value(others.pop())
            remark = f"by default; {', '.join(map(toml_value, others))} or {last} say otherwise"
            yield f"# scores  = {toml_value(usual)}          # {remark}"
        offered = {"timeout": 600, "encode": "dense"} if "command" in table else {"params": {}}
        yield from (f"# {_line(key, value, TABLE[key].about)}" for key, value in offered.items())
        if ranges := space(table):
            yield f"# space   = {toml_value(ranges)}"


def _grid(
    data: _Data, models: Sequence[str], rows: int, remark: str = "every combination of these lists"
) -> Iterator[str]:
    yield f"\n[[grid]]                   # {remark}"
    yield _line("dataset", [data.name])
    yield _line("classifier", [*models])
    if rows:
        yield _line("train_fraction", [rows], "training rows, so that it is ready soon; 1.0: all")


def _perturbations(info: DatasetInfo, rows: int) -> Iterator[str]:
    """Yield comments that show what else a grid may vary."""
    if info.n_continuous and not info.image:
        what = f"on {counted(info.n_continuous, 'continuous feature')}"
        yield f"# {_line('perturb_continuous', ['none', 'relative:0.1'], what)}"
    if info.n_categorical:
        what = f"on {counted(info.n_categorical, 'categorical feature')}"
        yield f"# {_line('perturb_categorical', ['none', 'value:0.1'], what)}"
    yield f"# {_line('perturb_labels', ['none', 'flip:0.1'], 'of training rows: 10 % are wrong')}"
    if not rows:
        yield f"# {_line('train_fraction', [0.5, 1.0], 'shares of the training rows')}"


def _kind(info: DatasetInfo) -> str:
    if info.image:
        height, width, channels = info.image
        return f"images, {height} × {width} × {channels}"
    return f"{info.n_features:,} features, {info.n_categorical:,} of them categorical"


def _line(key: str, value: Any, remark: str = "") -> str:
    text = f"{key} = {toml_value(value)}"
    return f"{text:<{_WIDTH - 1}} # {remark}" if remark else text
