"""``manyseed init``: a sweep file for given data and a model, with comments on what was found.

A function that returns data is called, as planning does; the model's code is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyseed.analysis.counts import some
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import DatasetInfo, csvfile
from manyseed.jobs.datasets.columns import NO_FEATURE
from manyseed.jobs.datasets.function import KEPT, OPTION
from manyseed.jobs.datasets.sources import SOURCES
from manyseed.jobs.datasets.tablefile import FORMATS, NO_SPREADSHEET, SPREADSHEETS, TABLES
from manyseed.jobs.own import modules
from manyseed.jobs.own.table import SCORES, form_of, is_entry
from manyseed.jobs.packages import install
from manyseed.orchestrator.errors import UserError, first_line, nearest, refused, toml_value
from manyseed.orchestrator.grids.own import OwnCode
from manyseed.orchestrator.grids.plannotes import data_notes
from manyseed.orchestrator.grids.remedies import lacking_packages, not_trainable
from manyseed.orchestrator.grids.sketched import entry_point, model_table

TARGETS = ("target", "label", "labels", "class", "y", "species", "diagnosis", "outcome")
"""Column names taken for the classes; without any of them, the last column is."""

TARGET = "target"

_TABULAR, _ON_IMAGES = ("lr-sgd", "xgb", "mlp"), ("cnn",)
_ALWAYS = ("lr-sgd",)
"""Can be trained in every installation."""
_REPEATS = 5
"""Test sets; fewer than four allow no useful intervals over test sets."""
_SHOWN = 6
_WIDTH = 27


@dataclass(frozen=True, slots=True)
class _Data:
    """A dataset: its source, its table's options with remarks, its facts, its source's key."""

    source: str
    options: Mapping[str, tuple[Any, str]]
    info: DatasetInfo
    key: str = "source"


def sweep_file(
    data: str, model: str | None = None, target: str | None = None, name: str | None = None
) -> str:
    """Return the text of a sweep file.

    Parameters
    ----------
    data : str
        A file, a source such as ``"sklearn:wine"``, or a function such as ``"mydata:load"``.
    model : str, optional
        A classifier, ``"module:name"`` in the working folder or installed, a script, or a Python
        file that defines a model.
    target : str, optional
        The column of classes, if it is not the one that looks like it.
    name : str, optional
        What to name the sweep after, by default the data.

    Raises
    ------
    UserError
    """
    table = {} if model is None else model_table(model)
    described = _data(entry_point(data, "DATA"), target)
    return "".join(f"{line}\n" for line in _lines(described, model, table, name))


def _data(data: str, target: str | None) -> _Data:
    if (returned := _returned(data)) is not None:
        kept = Path(returned[KEPT])
        return replace(_of_file(data, kept, target, returned["given"]), source=data, key=OPTION)
    path = Path(data.removeprefix("file:"))
    if path.is_dir() and path.suffix not in FORMATS:
        try:
            return _Data(f"file:{path}", {}, datasets.resolve(f"file:{path}"))
        except Refused as error:
            remedy = "a folder of images must hold a folder for each class"
            raise refused(error, key="DATA", value=data, remedy=remedy) from None
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


def _returned(data: str) -> Mapping[str, Any] | None:
    """Return what a function returned; None if there is no module of that name here."""
    if not is_entry(data) or data.partition(":")[0] in SOURCES:
        return None
    try:
        modules.find(OPTION, [data], [Path.cwd()])
    except Refused:
        return None
    try:
        return OwnCode([Path.cwd()], {}).data(data, {})
    except Refused as error:
        raise refused(error, key="DATA", value=data) from None


def _of_file(data: str, path: Path, target: str | None, given: Mapping[str, Any]) -> _Data:
    """Return the dataset in a file; `given` holds the options that are already known."""
    columns, unreadable = _columns(path)
    remark = "given"
    if not columns:
        raise UserError("there are no classes beside it", key="DATA", value=data)
    target = given.get(TARGET) if target is None else target
    if target is None:
        names = {name.lower().removesuffix(".npy"): name for name in reversed(columns)}
        known = next((names[name] for name in TARGETS if name in names), None)
        target, remark = known or columns[-1], "its name says so" if known else "the last column"
    elif target not in columns and path.suffix not in TABLES:
        remedy = nearest(target, columns)
        raise UserError("unknown array", key="--target", value=target, remedy=remedy)
    ignored = [name for name in unreadable if name != target]
    source = f"file:{path}"
    options = {key: value for key, value in given.items() if key != TARGET}
    try:
        info, merged = _resolved(source, {TARGET: target, "ignore": ignored, **options})
        suspicious = [each.name for each in info.columns if each.looks in NO_FEATURE]
        if suspicious:
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
        remarked["ignore"] = (ignored, "look like ids or dates, or hardly repeat")
    remarked |= {key: (value, "the same but for blanks or case") for key, value in merged.items()}
    return _Data(source, remarked, info)


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


def _columns(path: Path) -> tuple[list[str], list[str]]:
    """Return the columns of a file, and those that cannot be features."""
    import numpy as np
    import polars as pl

    try:
        if path.suffix == ".npy":
            return sorted(each.name for each in path.parent.glob("*.npy") if each != path), []
        if path.suffix == ".zarr":
            arrays = (*path.glob("*/zarr.json"), *path.glob("*/.zarray"))
            return sorted({each.parent.name for each in arrays} - {"X"}), []
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return [name for name in file.files if name != "X"], []
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


def _lines(
    data: _Data, model: str | None, table: Mapping[str, Any], name: str | None
) -> Iterator[str]:
    info = data.info
    name = name or Path(data.source.split(":", 1)[data.key == "source"]).stem
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")
    given = "mine" if table else model
    suitable = _ON_IMAGES if info.image else _TABULAR
    models = [given] if given else [each for each in suitable if not classifiers.lacking(each)]
    models = models or [*_ALWAYS]
    absent = [] if given else [each for each in suitable if each not in models]
    yield "# manyseed plan THIS-FILE --dry-run   shows what it asks for and what that costs"
    yield "# manyseed run THIS-FILE              trains, analyses and reports"
    yield _line("name", name or "sweep")
    yield _line("seed", 1, "of all random streams: another seed makes another sweep")
    remark = "test sets: there is only one" if info.n_test_sets == 1 else "test sets"
    yield _line("repeats", min(info.n_test_sets or _REPEATS, _REPEATS), remark)
    yield _line("runs", 10, "fits that share a test set")
    yield "\n[[grid]]                   # every combination of these lists"
    yield _line("dataset", ["data"])
    yield _line("classifier", models)
    if absent:
        yield f"# {not_trainable(absent)}"
        yield f"# {install(lacking_packages(absent))}"
    yield _line("vary", ["init+batch"], 'or one alone: "init", "batch", or "train" for a bootstrap')
    if info.n_continuous and not info.image:
        what = f"on {info.n_continuous} continuous features"
        yield _line("perturb_continuous", ["none", "relative:0.1"], what)
    if info.n_categorical:
        what = f"on {info.n_categorical} categorical features"
        yield _line("perturb_categorical", ["none", "label:0.1"], what)
    yield f"# {_line('train_fraction', [0.5, 1.0], 'shares of the training rows')}"
    counts = info.class_counts or (None,) * len(info.class_names)
    classes = [
        label if count is None else f"{label} ({count:,})"
        for label, count in zip(info.class_names, counts, strict=True)
    ]
    yield f"\n# {info.n_samples:,} rows of {_kind(info)}"
    yield f"# {len(classes)} classes: {some(classes, _SHOWN)}"
    yield from (f"# {note}" for note in data_notes(info))
    yield "[dataset.data]"
    yield _line(data.key, data.source)
    for key, (value, remark) in data.options.items():
        yield _line(key, value, remark)
    if info.n_test_sets != 1:
        yield _line("test", 0.25, "share of the rows, drawn for each repeat, stratified")
    if table:
        yield "\n[classifier.mine]"
        yield from (_line(key, value) for key, value in table.items())
        if (form := form_of(table)) in ("train", "command"):
            usual, *others = SCORES[form]
            last = toml_value(others.pop())
            remark = f"by default; {', '.join(map(toml_value, others))} or {last} say otherwise"
            yield f"# scores  = {toml_value(usual)}          # {remark}"
        if "command" in table:
            yield "# timeout = 600              # seconds"
            yield '# encode  = "dense"           # rows standardised and one-hot'
        else:
            yield "# params  = {}               # what it is called with"
        yield "# space   = { lr = { low = 1e-4, high = 1.0, default = 0.01, log = true } }"


def _kind(info: DatasetInfo) -> str:
    if info.image:
        height, width, channels = info.image
        return f"images, {height} × {width} × {channels}"
    return f"{info.n_features:,} features, {info.n_categorical:,} of them categorical"


def _line(key: str, value: Any, remark: str = "") -> str:
    text = f"{key} = {toml_value(value)}"
    return f"{text:<{_WIDTH - 1}} # {remark}" if remark else text
