"""``manyseed init``: a sweep file for given data and a model, with comments on what was found.

A function that returns data is called, as planning does; the model's code is not imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyseed.analysis.counts import some
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.checks import Refused
from manyseed.jobs.classifiers.record import Form
from manyseed.jobs.datasets import DatasetInfo, csvfile
from manyseed.jobs.datasets.columns import NO_FEATURE
from manyseed.jobs.datasets.function import KEPT, OPTION
from manyseed.jobs.datasets.sources import SOURCES
from manyseed.jobs.datasets.tablefile import FORMATS, NO_SPREADSHEET, SPREADSHEETS, TABLES
from manyseed.jobs.own import copies
from manyseed.jobs.own.table import SCORES, TABLE, form_of, is_entry
from manyseed.jobs.packages import install
from manyseed.orchestrator.errors import (
    UserError,
    first_line,
    nearest,
    refused,
    require_one_of,
    toml_value,
)
from manyseed.orchestrator.grids.own import OwnCode
from manyseed.orchestrator.grids.plannotes import data_notes
from manyseed.orchestrator.grids.resolver import lacking_packages, not_trainable

_PROGRAMS = {".py": "python ", ".R": "Rscript ", ".jl": "julia ", ".sh": "bash "}
_ARGUMENTS = {
    *("argv", "parse_args", "parse_known_args", "argparse", "optparse", "getopt", "absl", "hydra"),
    *("click", "typer", "fire", "docopt", "tyro", "jsonargparse", "simple_parsing"),
}
"""Names that a script uses to read its arguments."""
_LONGEST = 80  # characters of a call shown in a message
_PASSIVE = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Pass)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_KINDS = (
    "a class with fit (an estimator), a function with X_test (a training function) or shape (for a "
    "PyTorch module), one that needs no arguments and returns an estimator"
)


def model_table(model: str) -> dict[str, object]:
    """Return the table of a model; empty for a built-in classifier."""
    if model in classifiers.names():
        return {}
    model = entry_point(model, "MODEL")
    if re.fullmatch(r"[\w.]+:[\w.]+", model):
        return {_named(model): model}
    path = Path(model)
    if not path.is_file():
        raise UserError(
            "unknown model",
            key="MODEL",
            value=model,
            remedy='a script, "module:name", or a classifier: '
            + nearest(model, classifiers.names()),
        )
    if path.suffix == ".py" and (found := _defined(path, model)) is not None:
        form, name = found
        return {form: f"{_module(path, model)}:{name}"}
    start = _PROGRAMS.get(path.suffix, "./" if "/" not in model else "")
    files = "--train {train} --test {test} --out {out}"
    return {"command": f"{start}{model} --seed {{seed}} {files}"}


def entry_point(text: str, key: str) -> str:
    """Return FILE.py:name as module:name, and any other text as it is."""
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not re.fullmatch(r"[\w.]+", name):
        return text
    if not Path(file).is_file():
        raise UserError(f"there is no {file} in {Path.cwd()}", key=key, value=text)
    return f"{_module(Path(file), text, key)}:{name}"


def _named(entry: str) -> Form:
    """Return the form of an entry point; an estimator if the source does not say otherwise."""
    module, _, name = entry.partition(":")
    file = Path(f"{module.replace('.', '/')}.py")
    if not file.is_file():
        return "estimator"
    statements = _statements(file, entry)
    named = {
        each.name: each for each in statements if isinstance(each, (*_FUNCTIONS, ast.ClassDef))
    }
    if name not in named and name in (values := _objects(statements)):
        raise _is_object(name, values[name], entry)
    if name not in named:
        remedy = nearest(name, named)
        raise UserError(f"{file} has no {name}", key="MODEL", value=entry, remedy=remedy)
    return _form(named[name]) or _maybe(named[name]) or "estimator"


def _defined(file: Path, model: str) -> tuple[Form, str] | None:
    """Return the form and name of the model that a file defines; None if the file is a script.

    A file that does something and reads its arguments is a script, and so is one that does
    something and defines no model.
    """
    statements = _statements(file, model)
    is_script = any(map(_acts, statements))
    if is_script and not _ARGUMENTS.isdisjoint(_names(statements)):
        return None
    public = [
        each
        for each in statements
        if isinstance(each, (*_FUNCTIONS, ast.ClassDef)) and not each.name.startswith("_")
    ]
    found = [(form, each) for each in public if (form := _form(each)) is not None]
    if not found and is_script:
        return None
    found = found or [(form, each) for each in public if (form := _maybe(each)) is not None]
    if len(found) == 1:
        return found[0][0], found[0][1].name
    if found:
        problem = f"defines {', '.join(each.name for _, each in found)}"
        likeliest = _likeliest([each for _, each in found])
        remedy = f"name the one to train: {_module(file, model)}:{likeliest}"
    elif models := {n: each for n, each in _objects(statements).items() if _is_made(each)}:
        name, value = next(iter(models.items()))
        raise _is_object(name, value, model)
    else:
        problem = "neither runs as a script nor defines a model"
        remedy = f"it needs {_KINDS}, or code that reads its arguments"
    raise UserError(problem, key="MODEL", value=model, remedy=remedy)


def _objects(statements: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Return what a module assigns to public names, where a call makes it."""
    found = dict[str, ast.expr]()
    for each in statements:
        if isinstance(each, ast.Assign | ast.AnnAssign) and isinstance(each.value, ast.Call):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            found |= {name: each.value for name in names if not name.startswith("_")}
    return found


def _is_made(value: ast.expr) -> bool:
    """Return whether a call looks like one of a class, or of scikit-learn's ``make_pipeline``."""
    name = _called(value).rpartition(".")[2]
    return name[:1].isupper() or name == "make_pipeline"


def _called(value: ast.expr) -> str:
    return ast.unparse(value.func) if isinstance(value, ast.Call) else ""


def _is_object(name: str, value: ast.expr, model: str) -> UserError:
    text = ast.unparse(value)
    shown = text if len(text) <= _LONGEST else f"{_called(value)}(…)"
    return UserError(
        f"{name} is an object, not a function or class",
        key="MODEL",
        value=model,
        remedy=f"write a function that returns it: def build(): return {shown}",
    )


def _likeliest(found: Sequence[_Definition]) -> str:
    """Return the name of the function, or else class, that the others do not use."""
    candidates = [each for each in found if isinstance(each, _FUNCTIONS)] or found
    used = {name for each in found for name in _names(each.body) if name != each.name}
    return next((each.name for each in candidates if each.name not in used), candidates[0].name)


def _statements(file: Path, model: str) -> list[ast.stmt]:
    try:
        return ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError) as error:
        message = f"{file} is not valid Python: {error}"
        raise UserError(message, key="MODEL", value=model) from None


def _acts(statement: ast.stmt) -> bool:
    """Return whether a statement of a module does more than to define, import and assign."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)  # a docstring
    if isinstance(statement, ast.If | ast.Try):
        inner = [*statement.body, *statement.orelse]
        return "__name__" in _names([statement]) or any(map(_acts, inner))
    return not isinstance(statement, (*_PASSIVE, *_FUNCTIONS, ast.ClassDef))


def _names(statements: Sequence[ast.stmt]) -> Iterator[str]:
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)


def _form(node: ast.stmt) -> Form | None:
    """Return the form of a function or class by its parameters; None if they do not say."""
    function: ast.stmt | None = node
    if isinstance(node, ast.ClassDef):
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        if "fit" in methods:
            return "estimator"
        function = methods.get("__init__")
    names = {each.arg for each in _parameters(function)}
    if "X_test" in names:
        return "train"
    return "module" if "shape" in names else None


def _parameters(function: ast.stmt | None) -> list[ast.arg]:
    if not isinstance(function, ast.FunctionDef):
        return []
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _maybe(node: ast.stmt) -> Form | None:
    """Return the likely form of a class by its bases, or of a function by what it returns."""
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(each) for each in node.bases]
        if any(base.endswith("Module") for base in bases):
            return "module"
        return "estimator" if any(base.endswith("Classifier") for base in bases) else None
    if not isinstance(node, ast.FunctionDef):
        return None
    given = node.args.defaults + [each for each in node.args.kw_defaults if each is not None]
    returns = (each for each in ast.walk(node) if isinstance(each, ast.Return))
    is_called_so = len(_parameters(node)) == len(given)  # without arguments
    return "estimator" if is_called_so and any(each.value for each in returns) else None


def _module(file: Path, given: str, key: str = "MODEL") -> str:
    """Return the name by which a file is imported from the working folder."""
    parts = (file.parent.resolve() / file.stem).parts
    here = Path.cwd().resolve().parts
    names = parts[len(here) :] if parts[: len(here)] == here else ()
    folders = [Path(*names[:n]) for n in range(1, len(names))]
    if (
        names
        and all(map(str.isidentifier, names))
        and all((each / "__init__.py").is_file() for each in folders)
    ):
        return ".".join(names)
    raise UserError(
        "cannot be imported from the working folder",
        key=key,
        value=given,
        remedy="run init in the file's own folder; its name must be one of letters, digits and _",
    )


TARGETS = ("target", "label", "labels", "class", "y", "species", "diagnosis", "outcome")
"""Column names taken for the classes; without any of them, the last column is."""

TARGET = "target"

_TABULAR, _ON_IMAGES = ("lr-sgd", "xgb", "mlp"), ("cnn",)
_ALWAYS = ("lr-sgd",)  # can be trained in every installation
_REPEATS = 5  # test sets; fewer than four allow no useful intervals over test sets
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

    `data`: a file, a source such as ``"sklearn:wine"``, or a function such as ``"mydata:load"``.
    `model`: a classifier, ``"module:name"`` in the working folder or installed, a script, or a
    Python file that defines a model. `target`: the column of classes, if it is not the one that
    looks like it. `name`: what to name the sweep after, by default the data.
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
    remark = "given"
    if not columns:
        raise UserError("there are no classes beside it", key="DATA", value=data)
    target = given.get(TARGET) if target is None else target
    if target is None:
        names = {name.lower().removesuffix(".npy"): name for name in reversed(columns)}
        known = next((names[name] for name in TARGETS if name in names), None)
        target, remark = known or columns[-1], "its name says so" if known else "the last column"
    elif path.suffix not in TABLES:
        require_one_of(target, columns, "unknown array", key="--target")
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
        yield _line("perturb_categorical", ["none", "value:0.1"], what)
    yield f"# {_line('perturb_labels', ['none', 'flip:0.1'], 'of training rows: 10 % are wrong')}"
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
        offered = {"timeout": 600, "encode": "dense"} if "command" in table else {"params": {}}
        yield from (f"# {_line(key, value, TABLE[key].about)}" for key, value in offered.items())
        yield "# space   = { lr = { low = 1e-4, high = 1.0, default = 0.01, log = true } }"


def _kind(info: DatasetInfo) -> str:
    if info.image:
        height, width, channels = info.image
        return f"images, {height} × {width} × {channels}"
    return f"{info.n_features:,} features, {info.n_categorical:,} of them categorical"


def _line(key: str, value: Any, remark: str = "") -> str:
    text = f"{key} = {toml_value(value)}"
    return f"{text:<{_WIDTH - 1}} # {remark}" if remark else text
