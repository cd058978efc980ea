"""``manyseed init``: a sweep file for given data and a model, with comments on what was found.

A function that returns data is called, as planning does; the model's code is not imported.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from manyseed.analysis.counts import counted, some
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.checks import Refused, similar
from manyseed.jobs.datasets import DatasetInfo, csvfile, imagefolder
from manyseed.jobs.datasets.function import KEPT, OPTION
from manyseed.jobs.datasets.info import ColumnInfo
from manyseed.jobs.datasets.sources import SOURCES
from manyseed.jobs.datasets.tablefile import FORMATS, NO_SPREADSHEET, SPREADSHEETS, TABLES
from manyseed.jobs.own import copies
from manyseed.jobs.own.table import SCORES, TABLE, form_of, is_entry
from manyseed.jobs.packages import install
from manyseed.jobs.run import Generators, TrainingSet
from manyseed.orchestrator.errors import (
    UserError,
    command,
    first_line,
    meant,
    refused,
    require_one_of,
    toml_key,
    toml_value,
)
from manyseed.orchestrator.grids.modelfile import PROGRAMS, entry_point, model_table
from manyseed.orchestrator.grids.own import OwnCode
from manyseed.orchestrator.grids.plannotes import NAMELESS, data_notes
from manyseed.orchestrator.grids.resolver import lacking_packages, not_trainable

TARGETS = ("target", "label", "labels", "class", "y", "species", "diagnosis", "outcome")
"""Column names taken for the classes; without any of them, the last column is."""

TARGET = "target"

_LEFT_OUT: Mapping[str, str] = {
    "id": "looks like names or numbers of rows",
    "date": "looks like dates",
    "distinct": "has labels that hardly repeat",
    "constant": "never changes",
}
"""Looks of columns that are left out, and why."""
_UNREADABLE = "holds dates, lists or bytes"
_LAST = "the last column"
_SIDE = 64  # pixels; images become no larger, or the first run takes long

_TABULAR, _ON_IMAGES = ("lr-sgd", "xgb", "mlp"), ("cnn",)
_ALWAYS = ("lr-sgd",)  # can be trained in every installation
_REPEATS = 5  # test sets; fewer than four allow no useful intervals over test sets
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


def sweep_file(
    data: str,
    model: str | None = None,
    target: str | None = None,
    name: str | None = None,
    file: Path = Path("sweep.toml"),
) -> tuple[str, list[str]]:
    """Return the text of a sweep file, and sentences on what its reader should check.

    `data`: a file, a source such as ``"sklearn:wine"``, or a function such as ``"mydata:load"``.
    `model`: a classifier, ``"module:name"`` in the working folder or installed, a script, or a
    Python file that defines a model. `target`: the column of classes, if it is not the one that
    looks like it. `name`: what to name the sweep after, by default the data. `file`: what the
    file will be called.
    """
    if Path(data).suffix in PROGRAMS and Path(data).is_file():
        remedy = f"data come first: {command('init', model or 'DATA', data)}"
        raise UserError("is a program, not data", key="DATA", value=data, remedy=remedy)
    table = {} if model is None else model_table(model)
    described = _data(entry_point(data, "DATA"), target)
    first = _first_run(described.info, model, is_own=bool(table))
    asked = [f"  {question}" for question in _questions(described)]
    told = ["Please check:", *asked] if asked else []
    told += [first.told] if first.seconds else []
    yielded = _lines(
        described, first, table, _free(_plain(name or described.name) or "sweep"), file
    )
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
        beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        near = meant([str(path.parent / each) for each in similar(path.name, beside)])
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
    remarked |= {key: (value, "the same but for blanks or case") for key, value in merged.items()}
    return _Data(source, remarked, info, columns=found)


def _questions(data: _Data) -> list[str]:
    """Return what to ask about columns, in the words of the file's comments."""
    asked = []
    target, remark = data.options.get(TARGET, ("", ""))
    if remark == _LAST:
        asked.append(f"{target}: taken for the classes, as it is the last column; else --target")
    ignored = data.options.get("ignore", ((), ""))[0]
    for column in data.columns:
        name = column.name or NAMELESS
        if column.name in ignored:
            asked.append(f"{name}: left out, as it {_LEFT_OUT.get(column.looks, _UNREADABLE)}")
        elif column.looks == "few":
            declared = f"categorical = [{toml_value(column.name)}]"
            shown = ", ".join(column.shown)
            asked.append(f"{name}: {shown} taken as numbers; if labels: {declared}")
    return asked


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
            if column.kind == kind and column.name not in ignored and column.looks != "few"
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
        raise UserError(
            f"cannot be read: {first_line(error)}", key="DATA", value=str(path)
        ) from None
    if not frame.columns:
        raise UserError("has no columns", key="DATA", value=str(path))
    unreadable = [
        name
        for name, dtype in frame.schema.items()
        if dtype.is_temporal() or dtype.is_nested() or dtype == pl.Binary
    ]
    return frame.columns, unreadable


_SECONDS = 120.0
"""What the first run may take with both cores."""
_AROUND, _MOST_AROUND = 30.0, 60.0
"""Seconds of it for starting processes, the analysis and the report, on a machine as fast as the
estimates take it to be, and at most."""
_CORES = 2
_FEWEST_EPOCHS = 5
_PROBE = 0.5  # seconds that a probe should take
_RUNS, _FEWER_RUNS, _FEWEST_ROWS = 10, 5, 1000


@dataclass(frozen=True, slots=True)
class _First:
    """The first run: what is trained how often, so that it ends within two minutes.

    `absent` are classifiers that lack a package here, `steady` those of `models` that draw no
    random number. `epochs` of each network are as many as there is time for, at most the default.
    `rows` for training, 0 for all. `seconds` that it should take, 0 if no fit was timed.
    """

    models: Sequence[str]
    absent: Sequence[str]
    steady: Sequence[str]
    runs: int = _RUNS
    epochs: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    seconds: float = 0.0

    @property
    def told(self) -> str:
        """How long it takes, in a sentence."""
        minutes = max(1, round(self.seconds / 60))
        return f"A fit was timed: the first run takes about {minutes} min on {_CORES} cores"


def _first_run(info: DatasetInfo, model: str | None, *, is_own: bool) -> _First:
    """Choose what the first run trains, and time a network to say for how long it can."""
    suitable = () if model else _ON_IMAGES if info.image else _TABULAR
    models = [each for each in suitable if not classifiers.lacking(each)] or [*_ALWAYS]
    models = models if model is None else ["mine" if is_own else model]
    absent = [each for each in suitable if each not in models]
    if is_own:
        return _First(models, absent, ())
    try:
        resolved = {name: classifiers.resolve(name, {}, info) for name in models}
    except classifiers.Unsuitable as error:
        raise refused(error, key="MODEL", value=model) from None
    except Refused:  # such as weights that are not there yet; planning says what to do
        return _First(models, absent, ())
    steady = [name for name, each in resolved.items() if not each.consumes]
    first = _First(models, absent, steady)
    networks = [name for name, each in resolved.items() if each.epochs and name not in steady]
    if not networks or any(map(classifiers.lacking, networks)):
        return first
    slower = _slower(info, networks[0])
    around = min(max(_AROUND, _AROUND * slower), _MOST_AROUND)
    repeats = min(info.n_test_sets or _REPEATS, _REPEATS)

    def seconds(name: str, epochs: int | None, runs: int, rows: int) -> float:
        options = {} if epochs is None else {"epochs": epochs}
        each = classifiers.resolve(name, options, info)
        fits = repeats * (1 if name in steady and not rows else runs)
        return slower * fits * classifiers.core_seconds(info, each, rows or info.n_train) / _CORES

    def planned(runs: int, rows: int) -> _First:
        others = sum(seconds(name, None, runs, rows) for name in models if name not in networks)
        left = _SECONDS - around - others
        once = sum(seconds(name, 1, runs, rows) for name in networks)
        epochs = {
            name: max(1, min(int(left / once), resolved[name].epochs or 1)) for name in networks
        }
        whole = around + others + sum(seconds(n, e, runs, rows) for n, e in epochs.items())
        alike = [] if rows else steady  # each run draws its own rows
        return replace(first, steady=alike, runs=runs, epochs=epochs, rows=rows, seconds=whole)

    found, rows = planned(_RUNS, 0), info.n_train
    if min(found.epochs.values()) < _FEWEST_EPOCHS:
        found = planned(_FEWER_RUNS, 0)
    while min(found.epochs.values()) < _FEWEST_EPOCHS and rows > _FEWEST_ROWS:
        rows = max(rows // 2, _FEWEST_ROWS)
        found = planned(_FEWER_RUNS, int(float(f"{rows:.1e}")))
    return found


def _slower(info: DatasetInfo, network: str) -> float:
    """Return how many times longer than estimated a fit of a network takes on this machine.

    It is trained on random numbers of the data's shape, which take as long.
    """
    model, rows = classifiers.resolve(network, {"epochs": 1}, info), info.n_train
    while rows > _FEWEST_ROWS and classifiers.core_seconds(info, model, rows) > _PROBE:
        rows //= 2
    epochs = round(_PROBE / classifiers.core_seconds(info, model, rows))
    model = classifiers.resolve(network, {"epochs": max(1, min(epochs, 20))}, info)
    rng, n_classes = np.random.default_rng(0), len(info.class_names)
    X = rng.integers(0, 255, (rows + 2, info.n_features)).astype(np.float64)
    labels = [column.n_labels for column in info.columns if column.kind != "ignored"]
    cardinality = np.array(labels or [0] * info.n_features, dtype=np.int32)
    X = np.where(cardinality > 0, X % np.maximum(cardinality, 1), X)
    y = (np.arange(rows) % n_classes).astype(np.uint16)
    data = TrainingSet(X[:rows], y, X[rows:], n_classes, cardinality, info.image)
    taken = []
    for _ in range(3):  # the first also imports and warms up
        started = process_time()
        streams = Generators(*(np.random.default_rng(seed) for seed in range(3)))
        classifiers.fit(model.canonical, model.hparams, data, streams)
        taken.append(process_time() - started)
    return min(taken) / classifiers.core_seconds(info, model, rows)


def _lines(
    data: _Data, first: _First, table: Mapping[str, Any], name: str, file: Path
) -> Iterator[str]:
    info = data.info
    yield f"# {command('plan', file, '--dry-run')}   shows what it asks for and what that costs"
    yield f"# {command('run', file)}   trains, analyses and reports"
    yield _line("name", name)
    yield _line("seed", 1, "of all random streams: another seed makes another sweep")
    remark = "test sets: there is only one" if info.n_test_sets == 1 else "test sets"
    yield _line("repeats", min(info.n_test_sets or _REPEATS, _REPEATS), remark)
    yield _line("runs", first.runs, "fits that share a test set, each with its own seed")
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
        yield from _grid(data, first.steady, first.rows, "what draws no random number")
        yield _line("runs", 1, "other seeds would make the same model")
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
    yield from (f"# {note}" for note in data_notes(info))
    yield f"[dataset.{toml_key(data.name)}]"
    yield _line(data.key, data.source)
    for key, (value, remark) in data.options.items():
        yield _line(key, value, remark)
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
        yield "# space   = { lr = { low = 1e-4, high = 1.0, default = 0.01, log = true } }"


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
