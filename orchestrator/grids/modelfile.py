"""The model that ``manyseed init`` was given: a classifier, an entry point, or a file read for one.

The file is parsed; its code is not imported.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

from manyseed.jobs import classifiers
from manyseed.jobs.checks import paths_near
from manyseed.jobs.classifiers.record import FORMS, Form
from manyseed.jobs.own import network, training
from manyseed.jobs.own.advice import OF_CLASSES, OF_SHAPE
from manyseed.jobs.own.calling import load
from manyseed.jobs.own.estimator import SEEDS, SET_LATER
from manyseed.jobs.own.network import TRAINED_BY
from manyseed.jobs.own.table import command_name
from manyseed.orchestrator.errors import UserError, command, meant, nearest
from manyseed.orchestrator.grids.scriptfile import (
    ARGUMENTS,
    PROGRAMS,
    names_in,
    script_options,
    statements_of,
)

_LOOPS = {"backward", "training_step", "configure_optimizers"}
"""Names that training loops of PyTorch use."""
_PASSIVE = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Pass)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_KINDS = (
    "a class with fit (an estimator), a function with X_test (a training function) or shape (for a "
    "PyTorch module), one that needs no arguments and returns an estimator"
)


def model_table(model: str, data: str = "DATA") -> dict[str, object]:
    """Return the table of a model; empty for a built-in classifier.

    `data`: what is given beside it, for the command that a message proposes.
    """
    if model in classifiers.names():
        return {}
    model = entry_point(model, "MODEL", data)
    if re.fullmatch(r"[\w.]+:[\w.]+", model):
        return {_named(model): model}
    path = Path(model)
    if not path.is_file():
        near = [each for each in paths_near(path) if Path(each).is_file()]
        remedy = meant(near) if path.suffix else ""
        remedy = remedy or (
            f'a script, "module:name", or a classifier: {nearest(model, classifiers.names())}'
        )
        reason = "there is no such file" if path.suffix or "/" in model else "unknown model"
        raise UserError(reason, key="MODEL", value=model, remedy=remedy)
    if path.suffix == ".py" and (found := _defined(path, model, data)) is not None:
        form, name = found
        return {form: f"{_module(path, model, data=data)}:{name}"}
    start = PROGRAMS.get(path.suffix, "./" if "/" not in model else "")
    files = "--train {train} --test {test} --out {out}"
    own = script_options(path) if path.suffix == ".py" else {}
    seed = next((f"--{name}" for name in own if name.replace("-", "_") in SEEDS), "--seed")
    return {"command": f"{start}{model} {seed} {{seed}} {files}"}


def entry_point(text: str, key: str, data: str = "DATA") -> str:
    """Return FILE.py:name as module:name, and any other text as it is; `data` as `model_table`."""
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not re.fullmatch(r"[\w.]+", name):
        return text
    if not Path(file).is_file():
        near = meant([f"{one}:{name}" for one in paths_near(Path(file))])
        absent = f"there is no {file} in {Path.cwd()}"
        raise UserError(absent, key=key, value=text, remedy=near or None)
    return f"{_module(Path(file), text, key, data)}:{name}"


def _named(entry: str) -> Form:
    """Return the form of an entry point; an estimator if the source does not say otherwise."""
    file, name = _file_of(entry), entry.partition(":")[2]
    if not file.is_file():
        return "estimator"
    statements = statements_of(file, entry)
    named = {
        each.name: each for each in statements if isinstance(each, (*_FUNCTIONS, ast.ClassDef))
    }
    if name not in named and name in _objects(statements):
        return "estimator"
    if name not in named:
        remedy = nearest(name, named)
        raise UserError(f"{file} has no {name}", key="MODEL", value=entry, remedy=remedy)
    return _form(named[name]) or _maybe(named[name]) or "estimator"


def _defined(file: Path, model: str, data: str) -> tuple[Form, str] | None:
    """Return the form and name of the model that a file defines; None if the file is a script.

    A file that does something and reads its arguments is a script, and so is one that does
    something and defines no model.
    """
    statements = statements_of(file, model)
    is_script = any(map(_acts, statements))
    if is_script and not ARGUMENTS.isdisjoint(names_in(statements)):
        return None
    public = [
        each
        for each in statements
        if isinstance(each, (*_FUNCTIONS, ast.ClassDef)) and not each.name.startswith("_")
    ]
    found = [(form, each) for each in public if (form := _form(each)) is not None]
    if not found and is_script:
        return None
    module = _module(file, model, data=data)  # before what is wrong with its content
    found = found or [(form, each) for each in public if (form := _maybe(each)) is not None]
    if len(found) == 1:
        return found[0][0], found[0][1].name
    if found:
        problem = f"defines {', '.join(each.name for _, each in found)}"
        likeliest = _likeliest([each for _, each in found])
        remedy = f"name the one to train: {module}:{likeliest}"
    elif models := {n: each for n, each in _objects(statements).items() if _is_made(each)}:
        return "estimator", ([name for name in models if _predicts(models[name])] or [*models])[-1]
    elif seeded := [(each, seed) for each in public if (seed := _needed_seed(each))]:
        (function, seed), *_ = seeded
        problem = f"{function.name} cannot be called without {seed}"
        start = f"write def {function.name}(): and leave random_state out of what it returns"
        remedy = f"{start}: {SET_LATER}"
    else:
        problem = "neither runs as a script nor defines a model"
        remedy = f"it needs {_KINDS}, or code that reads its arguments"
    raise UserError(problem, key="MODEL", value=model, remedy=remedy)


def _needed_seed(node: ast.stmt) -> str:
    """Return the seed that a function needs, and nothing else, to return an estimator; or ""."""
    if not isinstance(node, ast.FunctionDef) or not _returns_made(node):
        return ""
    given, named = node.args, [*node.args.posonlyargs, *node.args.args]
    needed = [each.arg for each in named[: len(named) - len(given.defaults)]]
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    needed += [each.arg for each, default in pairs if default is None]
    return needed[0] if len(needed) == 1 and needed[0] in SEEDS else ""


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
    """Return whether it is a call, as of a class, or of scikit-learn's ``make_pipeline``."""
    name = _called(value).rpartition(".")[2]
    return name[:1].isupper() or name == "make_pipeline"


def _predicts(value: ast.expr) -> bool:
    """Return whether it is called like a classifier, or like a pipeline that may end in one."""
    return _called(value).lower().endswith(("pipeline", "classifier", "cv"))


def _called(value: ast.expr) -> str:
    return ast.unparse(value.func) if isinstance(value, ast.Call) else ""


def space(table: Mapping[str, object]) -> dict[str, object]:
    """Return a range for a parameter of the model, if its source shows one."""
    ((form, entry),) = table.items()
    if form == "module":
        lr = next(each.default for each in TRAINED_BY if each.name == "lr")
        return {"lr": _scaled(float(lr), 100)}
    if form == "command":
        script = _script(str(entry))
        own = {} if script is None else script_options(script)
        first = sorted(own.items(), key=lambda each: not isinstance(each[1], float))
        return _range((name.replace("-", "_"), value) for name, value in first)
    function = _called_at(str(entry))
    if form == "train":
        parts = [] if function is None else [*ast.walk(function)]
        keys = [ast.unparse(each.slice) for each in parts if isinstance(each, ast.Subscript)]
        return {"lr": _LEARNING_RATE} if "'lr'" in keys else {}
    return _range((name, value) for name, value in _constants(function) if _is_number(value))


def own_name(table: Mapping[str, object]) -> str:
    """Return what to call a model: after its class or function, or else after its file."""
    ((form, entry),) = table.items()
    if form == "command":
        name = Path(command_name(shlex.split(str(entry)))).stem
    else:
        module, _, called = str(entry).rpartition(":")
        name = called.rpartition(".")[2]
        name = module.rpartition(".")[2] if name in _ANY_MODEL else name
    name = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "model"
    taken = {*classifiers.names(), *FORMS}
    return f"my_{name}" if name.lower() in taken or name[0].isdigit() else name


def arguments(table: Mapping[str, object]) -> dict[str, object]:
    """Return the model's arguments that are its own, with their defaults, where these are plain."""
    ((form, entry),) = table.items()
    if form == "command":
        return {}
    of_data = {"train": training.OFFERED, "module": network.offered("dense", ())}.get(form, ())
    of_loop = [each.name for each in TRAINED_BY] if form == "module" else []
    of_loop += [*OF_CLASSES, *OF_SHAPE] if form == "module" else []
    others = {*SEEDS, *of_data, *of_loop, network.IN_CHANNELS}
    if str(entry).startswith("sklearn."):
        found = [(name, value) for name, value in _of_library(str(entry)) if _is_number(value)]
        return dict([each for each in found if each[0] not in (*others, *_NO_HPARAMS)][:_FEW])
    function = _called_at(str(entry))
    return {name: value for name, value in _constants(function) if name not in others}


def _of_library(entry: str) -> Iterator[tuple[str, object]]:
    """Yield the parameters of an estimator of scikit-learn, with their defaults."""
    try:
        known = inspect.signature(load(entry)).parameters
    except (ImportError, TypeError, ValueError):  # planning says what is wrong
        return
    yield from ((name, each.default) for name, each in known.items())


def varied(arguments: Mapping[str, object]) -> dict[str, list[object]]:
    """Return values to try of the first of a model's arguments that is a number above 0."""
    for name, value in arguments.items():
        if _is_number(value) and value > 0 and name not in _NO_HPARAMS:
            return {name: [value, 2 * value] if type(value) is int else [_short(value / 2), value]}
    return {}


def _called_at(entry: str) -> ast.stmt | None:
    """Return the function or constructor that an entry point calls, if a file here defines it."""
    file, name = _file_of(entry), entry.partition(":")[2]
    if not file.is_file():
        return None
    nodes = [each for each in statements_of(file, entry) if getattr(each, "name", "") == name]
    if nodes and isinstance(nodes[0], ast.ClassDef):
        nodes = [each for each in nodes[0].body if getattr(each, "name", "") == "__init__"]
    return nodes[0] if nodes else None


def _range(parameters: Iterable[tuple[str, int | float | None]]) -> dict[str, object]:
    """Return a range around the default of the first parameter that may be an hparam."""
    for parameter, value in parameters:
        if parameter in (*SEEDS, *_NO_HPARAMS) or value is None or value <= 0:
            continue
        if isinstance(value, int):
            return {parameter: {"low": max(1, value // 4), "high": 4 * value, "default": value}}
        if value < _SHARE or value >= 1 or re.search(_SCALES, parameter.lower()):
            return {parameter: _scaled(value, 10)}
        low, high = _short(value / 4), _short(min(4 * value, (1 + value) / 2))  # as of dropout
        return {parameter: {"low": low, "high": high, "default": value}}
    return {}


def _scaled(value: float, factor: int) -> dict[str, object]:
    """Return a range around a value that is tried in powers; one below 1 stays there."""
    high = _short(factor * value)
    high = min(high, 1.0) if value < 1 else high
    return {"low": _short(value / factor), "high": high, "default": value, "log": True}


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def with_hparam(line: str, name: str) -> str:
    """Return a command that passes an hparam to its script's option of that name."""
    own = script_options(script) if (script := _script(line)) is not None else {}
    option = next((each for each in own if each.replace("-", "_") == name), name)
    return line.replace(" --train", f" --{option} {{hparams.{name}}} --train")


def _script(line: str) -> Path | None:
    return next((Path(word) for word in shlex.split(line) if word.endswith(".py")), None)


def _constants(function: ast.stmt | None) -> Iterator[tuple[str, bool | int | float | str]]:
    """Yield parameters whose defaults are numbers, text, true or false, with these."""
    if isinstance(function, ast.FunctionDef):
        given = function.args
        listed = [*given.posonlyargs, *given.args][::-1]
        pairs = [*zip(listed, given.defaults[::-1], strict=False)][::-1]
        for parameter, default in (*pairs, *zip(given.kwonlyargs, given.kw_defaults, strict=True)):
            with suppress(ValueError, TypeError):
                value = None if default is None else ast.literal_eval(default)
                if isinstance(value, bool | int | float | str):
                    yield parameter.arg, value


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SHARE = 0.05  # from here to 1, a number may be a share or a probability
_SCALES = r"lr|learning|eta|decay|alpha|lambda|reg|penalty|tol|eps|scale"
"""In names of what is tried in powers, whatever its value."""
_LEARNING_RATE = {"low": 1e-4, "high": 1.0, "default": 0.01, "log": True}
_ANY_MODEL = (
    *("build", "build_model", "make", "make_model", "create", "create_model", "get", "get_model"),
    *("model", "clf", "estimator", "classifier", "pipe", "pipeline", "fit", "train", "main", "run"),
    *("net", "network", "factory", "train_and_predict", "fit_predict", "train_model"),
)
"""Names that tell no model from another."""
_FEW = 4  # arguments of a library's estimator
_NO_HPARAMS = (
    *("verbose", "verbosity", "n_jobs", "jobs", "n_threads", "num_threads", "nthread", "threads"),
    *("num_workers", "workers", "test_size", "val_size", "valid_size", "test_fraction", "timeout"),
    *("val_fraction", "log_interval", "patience", "folds", "fold", "device", "gpu"),
)


def model_beside(script: Path) -> str:
    """Return a model that a script defines and that needs no change, as module:name; or "".

    What runs when the file is imported is no such model.
    """
    statements = statements_of(script, str(script))
    if any(_acts(each) and not _is_guarded(each) for each in statements):
        return ""
    public = [
        each
        for each in statements
        if isinstance(each, (*_FUNCTIONS, ast.ClassDef))
        and not each.name.startswith("_")
        and (_form(each) or (isinstance(each, ast.ClassDef) and _maybe(each)))
        and _needs_nothing(each)
    ]
    if not public:
        return ""
    with suppress(UserError):
        name = _likeliest(public)
        return f"{_module(script, str(script))}:{name}"
    return ""


def loop_beside(table: Mapping[str, object]) -> str:
    """Return the file of a model that also holds a training loop, which is not used; or ""."""
    file = _file_of(str(table.get("module", "")))
    if not file.is_file():
        return ""
    return str(file) if not _LOOPS.isdisjoint(names_in(statements_of(file, str(file)))) else ""


def _file_of(entry: str) -> Path:
    return Path(f"{entry.partition(':')[0].replace('.', '/')}.py")


def _is_guarded(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _needs_nothing(node: ast.stmt) -> bool:
    """Return whether a function or class has defaults for all that it is not offered."""
    function: ast.stmt | None = node
    if isinstance(node, ast.ClassDef):
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        function = methods.get("__init__")
    if not isinstance(function, ast.FunctionDef):
        return True
    given, listed = function.args, [*function.args.posonlyargs, *function.args.args]
    needed = [each.arg for each in listed[: len(listed) - len(given.defaults)]]
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    needed += [each.arg for each, default in pairs if default is None]
    offered = network.offered("pixels", ()), network.offered("dense", ()), training.OFFERED
    return {*needed} <= {"self", *(name for names in offered for name in names)}


def _likeliest(found: Sequence[_Definition]) -> str:
    """Return the name of the function, or else class, that the others do not use."""
    candidates = [each for each in found if isinstance(each, _FUNCTIONS)] or found
    used = {name for each in found for name in names_in(each.body) if name != each.name}
    return next((each.name for each in candidates if each.name not in used), candidates[0].name)


def _acts(statement: ast.stmt) -> bool:
    """Return whether a statement of a module does more than to define, import and assign."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)  # a docstring
    if isinstance(statement, ast.If | ast.Try):
        inner = [*statement.body, *statement.orelse]
        return "__name__" in names_in([statement]) or any(map(_acts, inner))
    return not isinstance(statement, (*_PASSIVE, *_FUNCTIONS, ast.ClassDef))


def _form(node: ast.stmt) -> Form | None:
    """Return the form of a function or class by its parameters; None if they do not say."""
    function: ast.stmt | None = node
    if isinstance(node, ast.ClassDef):
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        if "fit" in methods:
            return "estimator"
        function = methods.get("__init__")
    names = {each.arg for each in _parameters(function)}
    if any(name.lower().replace("_", "") in ("xtest", "testx") for name in names):
        return "train"
    if "shape" in names:
        return "module"
    is_factory = isinstance(node, ast.FunctionDef) and _maybe(node) and _returns_made(node)
    return "estimator" if is_factory else None


def _returns_made(node: ast.FunctionDef) -> bool:
    """Return whether a function returns what a class makes."""
    made = {name for name, value in _objects(node.body).items() if _is_made(value)}
    values = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value]
    return any(
        _is_made(each) or (isinstance(each, ast.Name) and each.id in made) for each in values
    )


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


def _module(file: Path, given: str, key: str = "MODEL", data: str = "DATA") -> str:
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
    problem = "cannot be imported from the working folder"
    if not file.stem.isidentifier():
        better = file.with_stem(re.sub(r"\W", "_", f"_{file.stem}").removeprefix("_"))
        better = better if better.stem.isidentifier() else better.with_stem(f"_{better.stem}")
        problem = f"{problem}: its name must be one of letters, digits and _"
        remedy = shlex.join(["mv", str(file), str(better)])
    else:
        if Path(data).exists():
            data = os.path.relpath(data, file.parent)
        own = file.name + given.removeprefix(str(file))
        words = (data, own) if key == "MODEL" else (own,)
        remedy = f"{shlex.join(['cd', str(file.parent)])} && {command('init', *words)}"
    raise UserError(problem, key=key, value=given, remedy=remedy)
