"""Python objects → a sweep file: estimators become tables, arrays become data files."""

from __future__ import annotations

import hashlib
import inspect
import io
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from manyseed.jobs.checks import in_a_line
from manyseed.jobs.classifiers.registry import CLASSIFIERS
from manyseed.jobs.datasets.cache import given_copy
from manyseed.jobs.datasets.frame import is_frame, missing, other_rows, to_numpy, to_polars
from manyseed.jobs.own.estimator import SEEDS
from manyseed.jobs.whole import place
from manyseed.orchestrator.errors import (
    UnavailableError,
    UserError,
    each_of,
    require_one_of,
    toml_value,
)
from manyseed.orchestrator.grids.own import grids_of, with_registered
from manyseed.orchestrator.spoken import in_mapping

TARGET, GROUP = "y", "group"
_MAPPING = "the mapping"


def table_of(estimator: Any, key: str) -> dict[str, object]:
    """Return the table ``[classifier.NAME]`` that describes an estimator.

    Its seeds are left out, as each run has its own.

    `key`: where it was given, for messages.
    """
    if isinstance(estimator, str):
        return {"estimator": estimator}
    if isinstance(estimator, type):
        raise UserError(
            f"{estimator.__name__} is a class",
            key=key,
            remedy=f"give an estimator: {estimator.__name__}()",
        )
    if not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        kind = type(estimator).__name__
        raise UserError(
            f"{kind} is not an estimator: it lacks fit or get_params",
            key=key,
            remedy='give a function that returns one by its name: "mymodel:build"',
        )
    return _described(estimator) | ({"encode": "frame"} if _selects_by_name(estimator) else {})


def classifiers_in(estimator: Any) -> list[str]:
    """Return the classifiers of manyseed that are meant, by their names; none for one's own."""
    is_listed = isinstance(estimator, list | tuple)
    names = [*estimator] if is_listed else [estimator]
    if not is_listed and not (isinstance(estimator, str) and ":" not in estimator):
        return []
    if not names:
        raise UserError("names no classifier", key="estimator", value=[])
    for name in names:
        reason = 'is no classifier of manyseed; of your own, give an estimator, or "module:name"'
        if not isinstance(name, str | type) and not hasattr(name, "fit"):
            raise UserError(
                f"holds what is no classifier: {name!r}",
                key="estimator",
                remedy=f"give names ({', '.join(CLASSIFIERS)}), or one estimator",
            )
        if not isinstance(name, str):
            own = name.__name__ if isinstance(name, type) else type(name).__name__
            other = next((one for one in names if isinstance(one, str)), "xgb")
            raise UserError(
                f"a list takes names of classifiers of manyseed only, not {own}",
                key="estimator",
                remedy=f"one sweep of {own}(), one of {other}; then: "
                f'first.compare(second, "{own}", "{other}")',
            )
        require_one_of(name, CLASSIFIERS, reason, key="estimator")
    return [*dict.fromkeys(names)]


def _described(estimator: Any) -> dict[str, object]:
    kind = type(estimator)
    given = estimator.get_params(deep=False)
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()
    }
    changed = {
        name: _value(value, f"{kind.__name__}.{name}")
        for name, value in given.items()
        if name not in SEEDS and not _same(value, defaults.get(name, inspect.Parameter.empty))
    }
    return {"estimator": _entry(kind), **({"params": changed} if changed else {})}


def _selects_by_name(estimator: Any) -> bool:
    """Whether a part of an estimator selects columns by names, as only data frames have them."""
    parts = [estimator, *estimator.get_params(deep=True).values()]
    selected = [
        each[2] for part in parts for each in getattr(part, "transformers", None) or () if each[2:]
    ]
    listed = [each if isinstance(each, list | tuple) else [each] for each in selected]
    return any(isinstance(one, str) for each in listed for one in each)


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    plain = isinstance(value, bool | int | float | str | tuple | list)
    return plain and type(value) is type(default) and value == default


def _value(value: Any, where: str) -> Any:
    """Return a parameter's value in the form of sweep files (`jobs.own.calling.built`)."""
    if value is None:
        return {"none": True}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"tuple": [_value(each, where) for each in value]}
    if isinstance(value, list):
        return [_value(each, where) for each in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _value(each, where) for name, each in value.items()}
    if isinstance(value, np.ufunc):
        return {"import": f"numpy:{value.__name__}"}
    if isinstance(value, type) or inspect.isroutine(value):
        return {"import": _entry(value)}
    if hasattr(value, "get_params"):
        return _described(value)
    raise UserError(
        f"a sweep file cannot hold values of type {type(value).__name__}",
        key=where,
        remedy='write a function in a module that makes the estimator: "mymodel:build"',
    )


def _entry(named: Any) -> str:
    """Return the ``"module:name"`` by which another process can import a class or function."""
    module, name = named.__module__, named.__qualname__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None:
            raise UserError(
                f"{name} is defined in a notebook or at a prompt: no other process can import it",
                remedy="write it to a file, in a notebook with %%writefile mymodel.py, then "
                f"from mymodel import {name.partition('.')[0]}",
            )
        module = Path(file).stem
    if "<" in name:
        raise UserError(
            f"{name} is defined inside a function, where no other process finds it",
            remedy="define it at the top level of a module",
        )
    return f"{module}:{name}"


def keep_data(X: Any, y: Any, groups: Any = None) -> Path:
    """Write rows and classes to the data folder, only once for equal content; return the file.

    `X`, array (sample, feature) of numbers, or a polars or pandas data frame: columns of a data
    frame that are not numeric are categorical. `y`, array, list or series (sample,): classes: text
    or numbers, none missing. `groups`, array (sample,): text or numbers that are equal for rows
    that belong together.
    """
    buffer = io.BytesIO()
    y, groups = _column("y", y), _column("groups", groups)
    _require_same_rows({"X": X, "y": y, "groups": groups})
    if hasattr(X, "columns"):
        suffix = ".parquet"
        frame = _frame(X)
        _classes(y, len(frame))
        labels = [str(label) for label in np.asarray(y).tolist()]
        frame = _with(frame, TARGET, labels, "classes")
        if groups is not None:
            values = _groups(groups, len(frame)).astype(str)
            frame = _with(frame, GROUP, values, "groups")
        frame.write_parquet(buffer)
    else:
        suffix = ".npz"
        rows = to_numpy(X)
        if rows.ndim != 2 or rows.dtype.kind not in "biuf":
            raise UserError(
                f"is {rows.dtype} {rows.shape}; numbers (sample, feature) are needed",
                key="X",
                remedy="for columns that are not numeric, give a polars or pandas data frame",
            )
        classes = _classes(y, len(rows))
        more = {} if groups is None else {GROUP: _groups(groups, len(rows))}
        np.savez(buffer, X=rows, y=classes, **more)
    content = buffer.getvalue()
    file = given_copy(hashlib.sha256(content).hexdigest(), suffix)
    if not file.exists():
        place(file, lambda target: target.write(content))
    return file


def row_names(X: Any) -> list[str] | None:
    """Return what the index of a pandas frame calls its rows; None where it only counts them."""
    index = getattr(X, "index", None)
    if not is_frame(X) or index is None or getattr(index, "nlevels", 2) > 1:
        return None
    of = index.tolist()
    if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in of):
        return None
    names = [str(one) for one in of]
    return None if len({*names}) < len(names) or of == [*range(len(of))] else names


def _column(name: str, given: Any) -> Any:
    """Return the only column of a frame; anything else as it is."""
    given = given.collect() if hasattr(given, "collect") else given  # polars' lazy frames
    if not is_frame(given):
        return given
    if (n := len(given.columns)) != 1:
        one_hot = f", or {name}.idxmax(axis=1) of 0 and 1" * (
            name == TARGET and hasattr(given, "idxmax")
        )
        raise UserError(
            f"is a frame of {n:,} columns; one is needed",
            key=name,
            remedy=f'name it: {name}["{_with_classes(given) if n else "…"}"]{one_hot}',
        )
    return given[given.columns[0]]


def _with_classes(frame: Any) -> Any:
    """Return the column of a frame that is the likeliest to hold classes: it has few values."""
    values = {name: len({*map(str, to_numpy(frame[name]).tolist())}) for name in frame.columns}
    return min(values, key=lambda name: (values[name] < 2, values[name]))


def _require_same_rows(given: Mapping[str, Any]) -> None:
    """Refuse what pandas' indexes show to belong to other rows."""
    indexed = [(name, values) for name, values in given.items() if hasattr(values, "index")]
    for (of, rows), (name, values) in combinations(indexed, 2):
        if (found := other_rows(name, values, of, rows)) is not None:
            raise UserError(found[0], key=name, remedy=found[1])


def _frame(X: Any) -> Any:
    """Return a frame of polars or pandas as one of polars."""
    import polars as pl

    try:
        return to_polars(X)
    except (ValueError, TypeError, pl.exceptions.PolarsError) as error:
        raise UserError(f"is a frame that cannot be read: {in_a_line(error)}", key="X") from None


def _with(frame: Any, name: str, values: Any, meaning: str) -> Any:
    """Return a frame with a column of text, whose name must not be taken."""
    import polars as pl

    if name in frame.columns:
        raise UserError(
            f"X has a column {name!r}", remedy=f"rename it: that is the name of the {meaning}"
        )
    return frame.with_columns(pl.Series(name, values))


def _classes(given: Any, rows: int) -> Any:
    """Return the class of each row, as an array (sample,) of text or numbers."""
    classes = to_numpy(given)
    if count := missing(classes):
        raise UserError(
            f"{count:,} of {classes.size:,} values are missing",
            key="y",
            remedy="leave these rows out of X and y",
        )
    if classes.dtype.kind not in "biufUSM":
        raise UserError(f"is {classes.dtype}; text or numbers ({rows:,},) are needed", key="y")
    if classes.shape != (rows,):
        raise UserError(
            f"has the shape {classes.shape}; classes ({rows:,},) are needed",
            key="y",
            remedy={(rows, 1): "y.ravel()"}.get(classes.shape)
            or ("y.argmax(axis=1) if it is one-hot" if classes.ndim == 2 else None),
        )
    return classes


def _groups(given: Any, rows: int) -> Any:
    """Return the group of each row, as an array (sample,) of text or numbers."""
    groups = to_numpy(given)
    if groups.dtype.kind == "O" and (count := missing(groups)):
        raise UserError(
            f"is missing in {count:,} rows",
            key="groups",
            remedy="leave these out, or give each a group of its own",
        )
    if groups.shape == (rows,) and np.asarray(given).dtype.kind == "O":
        groups = np.asarray(given).astype(str)
    if groups.shape != (rows,) or groups.dtype.kind not in "iufUS":
        raise UserError(
            f"is {groups.dtype} {groups.shape}; text or numbers ({rows:,},) are needed",
            key="groups",
            remedy="give one value for each row of X",
        )
    return groups


def sweep_text(
    name: str,
    table: Mapping[str, Any],
    data: Path,
    classifiers: Sequence[str] = (),
    *,
    seed: int,
    repeats: int,
    runs: int,
    test: float | int,
    grid: Mapping[str, Any],
    is_grouped: bool = False,
) -> str:
    """Return the text of a sweep file with one dataset and one classifier.

    `name`: name of the sweep and of the classifier. `table`: the classifier's table. `data`: the
    dataset's file. `classifiers`: names of those of manyseed, if they are meant. `seed`, `repeats`
    and `runs`: the file's keys. `test`: a share, or a number of points. `grid`: further axes of the
    grid. `is_grouped`: whether the dataset's file has groups of rows.
    """
    lines = [
        f"name = {toml_value(name)}",
        f"seed = {_toml(seed, 'seed')}",
        f"repeats = {_toml(repeats, 'repeats')}",
        f"runs = {_toml(runs, 'runs')}",
        "",
        "[[grid]]",
        'dataset = ["data"]',
        f"classifier = {toml_value([*classifiers] or [name])}",
        *(f"{axis} = {_toml(values, axis)}" for axis, values in grid.items()),
        "",
        "[dataset.data]",
        f"source = {toml_value(f'file:{data}')}",
        f"target = {toml_value(TARGET)}",
        f"test = {_toml(test, 'test')}",
        *([f"group = {toml_value(GROUP)}"] if is_grouped else []),
        "",
        *([f"[classifier.{toml_value(name)}]"] if table else []),
        *(f"{key} = {_toml(value, key)}" for key, value in table.items()),
        "",
    ]
    return "\n".join(lines)


@contextmanager
def written(sweep: Mapping[str, Any]) -> Iterator[Path]:
    """Write a mapping to a temporary sweep file, and yield its path.

    It lies in the working folder, so that paths in it are relative to that folder.
    """
    try:
        text = "".join(f"{line}\n" for line in lines(with_registered(sweep, _entry, _value)))
    except UserError as error:
        raise error.in_file(_MAPPING) from None
    with ExitStack() as stack:
        try:
            file = stack.enter_context(
                tempfile.NamedTemporaryFile(prefix=".manyseed-", suffix=".toml", dir=Path.cwd())
            )
        except OSError as error:
            raise UnavailableError(
                f"cannot write to the working folder, {Path.cwd()}: {error.strerror}"
            ) from None
        file.write(text.encode())
        file.flush()
        try:
            yield Path(file.name)
        except UserError as error:
            for one in each_of(error):
                one.message = in_mapping(one.message)
                one.remedy = one.remedy and in_mapping(one.remedy)
            if error.file is None or Path(error.file).name != Path(file.name).name:
                raise
            raise error.in_file(_MAPPING) from None


def lines(sweep: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a sweep file: values, then ``[[grid]]``, then tables."""
    tables = {}
    for key, value in sweep.items():
        if key != "grid" and not isinstance(value, Mapping):
            yield f"{toml_value(key)} = {_toml(value, key)}"
        elif key != "grid":
            tables[key] = value
    for number, grid in enumerate(grids_of(sweep)):
        yield "\n[[grid]]"
        for axis, values in grid.items():
            yield f"{toml_value(axis)} = {_toml(values, f'grid[{number}].{axis}')}"
    for key, table in tables.items():
        subtables = {name: inner for name, inner in table.items() if isinstance(inner, Mapping)}
        yield f"\n[{toml_value(key)}]"
        for name, value in table.items():
            if name not in subtables:
                yield f"{toml_value(name)} = {_toml(value, f'{key}.{name}')}"
        for name, inner in subtables.items():
            yield f"\n[{toml_value(key)}.{toml_value(name)}]"
            if key == "classifier" and "estimator" in inner:
                inner = {**inner, **table_of(inner["estimator"], f"{key}.{name}.estimator")}
            for option, value in inner.items():
                yield f"{toml_value(option)} = {_toml(value, f'{key}.{name}.{option}')}"


def _toml(value: Any, key: str) -> str:
    """Return a value as TOML; NumPy arrays and numbers become lists and numbers."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        inner = (f"{toml_value(k)} = {_toml(v, f'{key}.{k}')}" for k, v in value.items())
        return f"{{ {', '.join(inner)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each, key) for each in value)}]"
    if isinstance(value, float):
        return repr(value)
    if not isinstance(value, str | int):
        raise UserError(
            f"is of type {type(value).__name__}, which no sweep file can hold",
            key=key,
            remedy="give text, numbers, true or false, lists or mappings, or leave the key out",
        )
    return toml_value(value)


def require_guard() -> None:
    """Refuse to begin a sweep if a training process is importing the program that begins it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith("manyseed."):
        raise UserError(
            "the program begins a sweep whenever it is imported, even by the sweep's own processes",
            remedy='put the call below: if __name__ == "__main__":',
        )
