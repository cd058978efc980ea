"""What to do about code that fails in a probe: how its rows and classes arrive."""

from __future__ import annotations

import dis
import inspect
import json
import re
import sys
from typing import Any

from manyseed.jobs.own import network
from manyseed.jobs.own.calling import CodeFailed, load
from manyseed.jobs.own.findings import ProbeRequest
from manyseed.jobs.own.table import Own

_OF_FRAMES = (
    *("only supported for dataframes", "only be applied to pandas dataframes"),
    r"only integers, slices \(`:`\)",
    r"'numpy\.ndarray' object has no attribute '[a-z]",
)
"""What code says that takes its rows for a data frame."""
_OF_SIZES = r"shape|size|mismatch|dimension|channel|elements|to unpack"
"""What layers say that are made for other rows."""
_OF_PRODUCTS = r"cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)"
"""What torch says of a linear layer whose input has another size."""
_OF_CLASSES = "not return numbers|could not convert|Object arrays|given the labels"
"""What is said of code that returns classes in another form than it got them."""
_OF_OUTPUTS = r"^the module of \S+ returned shape \(\d+, (\d+)\)"
OF_CLASSES = (
    *("num_classes", "n_classes", "n_class", "classes", "num_labels", "n_labels"),
    *("n_out", "num_out", "out_features", "out_dim", "output_dim", "output_size"),
)
OF_SHAPE = (
    *("in_channels", "n_channels", "num_channels", "channels", "in_chans", "in_ch"),
    *("in_features", "in_dim", "n_features", "num_features", "input_dim", "input_size", "n_inputs"),
)
"""What modules call the number of classes, and the first of the shape of their rows."""
_DRAWN = "int(batch.integers(2**31))"
_OF_TRAINING = {
    "X": ("x", "xtrain", "trainx", "xtr", "data", "features"),
    "y": ("y", "ytrain", "trainy", "ytr", "labels", "targets", "target"),
    "X_test": ("xtest", "testx", "xte", "xval", "xvalid"),
    "n_classes": ("nclasses", "numclasses", "k"),
    _DRAWN: ("seed", "randomstate", "randomseed"),
}
"""What training functions call their arguments, in lower case without underscores."""
_NAMED = 20  # columns and classes that a message names


def of_failure(own: Own, request: ProbeRequest, error: BaseException) -> str:
    """Return what to do about code that failed as its arguments are not what it takes them for.

    It begins on a new line; empty if nothing is known to help.
    """
    return _of_rows(own, request, error) + _of_lists(own)


def _of_lists(own: Own) -> str:
    """Say how values of a list are tried one by one, as it is one argument."""
    for name, value in own.params.items():
        if isinstance(value, list) and len(value) > 1 and {*map(type, value)} <= {int, float, str}:
            return (
                f"\n  {name} is the whole list; values to try one by one are an hparam grid of "
                f"this classifier: params = {{ {name} = {json.dumps(value[0])} }} and "
                f"grid = {{ {name} = {json.dumps(value)} }}"
            )
    return ""


def _of_rows(own: Own, request: ProbeRequest, error: BaseException) -> str:
    said = str(error)
    if isinstance(error, CodeFailed) and re.search(_OF_CLASSES, said):
        return f"\n  classes arrive as {_classes(request)} and must be returned so"
    if own.form == "module" and (found := re.search(_OF_OUTPUTS, said)):
        return of_arguments(own, load(own.entry), int(found[1]))
    if wants_frames(own, request, error):
        return "\n  rows arrive as an array unless its table asks for a data frame"
    if _takes_frames(error):
        return _by_number(own, request)
    if own.form == "command" and own.command["rows"] != "npz" and _names_a_column(request, said):
        return f"\n  columns are called by number: {_columns(request, 'x')}"
    of_layers = own.form in ("module", "train") and not isinstance(error, CodeFailed)
    if of_layers and re.search(_OF_SIZES, said) and (rows := _encoded(own, request)):
        if own.form == "module" and _reads(load(own.entry), "shape"):
            return f"\n  rows arrive as {rows}, as shape says{_of_a_layer(said)}"
        where = "X.shape" if own.form == "train" else "shape"
        taken = where if own.encode == "pixels" else f"{where}[{int(own.form == 'train')}]"
        return f"\n  rows arrive as {rows}: take {taken}"
    is_mixed = request.n_continuous > 0 and request.n_categorical > 0
    if own.encode != "raw" or request.columns or not is_mixed:
        return ""
    return (
        "\n  the order of its columns is not known when planned: the made-up rows have "
        f"{request.n_continuous} of numbers first, then {request.n_categorical} of labels; "
        "for code that selects columns by position add to its table: probe = false"
    )


def _reads(factory: Any, name: str) -> bool:
    """Return whether a function, or a class when it is made, uses an argument of this name."""
    made = factory.__init__ if inspect.isclass(factory) else factory
    code = getattr(inspect.unwrap(made), "__code__", None)
    if code is None or name not in (*code.co_varnames, *code.co_cellvars):
        return False
    return any(
        one.opname.startswith("LOAD") and name in _names(one.argval)
        for one in dis.get_instructions(code)
    )


def _names(argument: Any) -> tuple[Any, ...]:
    """Return what an instruction loads, which may be two variables at once."""
    return argument if isinstance(argument, tuple) else (argument,)


def _of_a_layer(said: str) -> str:
    """Say which layer does not fit the one before it, where the error tells."""
    found = re.search(_OF_PRODUCTS, said)
    if not found:
        return ""
    return f"; a linear layer is made for {found[2]} values of each and gets {found[1]}"


def wants_frames(own: Own, request: ProbeRequest, error: BaseException) -> bool:
    """Return whether code failed as it took an array for a data frame, and could get one."""
    is_possible = own.form in ("estimator", "train") and own.encode == "raw" and request.columns
    return bool(is_possible) and _takes_frames(error)


def _takes_frames(error: BaseException) -> bool:
    return any(re.search(words, str(error)) for words in _OF_FRAMES)


def of_arguments(own: Own, factory: Any, width: int = 0) -> str:
    """Return how a module is made for any data, by a function beside it; on a new line.

    `width`: how many scores it returned, if it did.
    """
    try:
        known = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # of some classes in C
        return ""
    given: dict[str, str] = {}
    others = False  # arguments that the function beside it passes on
    for name, one in known.items():
        if name in OF_CLASSES or (width and one.default == width):
            given[name] = "n_classes"
        elif name in OF_SHAPE:
            given[name] = "shape[0]"
        elif name in network.OFFERED:
            given[name] = name
        elif one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            given[name] = "…"
        else:
            others = others or one.default is not one.empty
    if "n_classes" not in given.values():
        return ""
    takes = [name for name in network.OFFERED if any(name in value for value in given.values())]
    call = ", ".join(f"{name}={value}" for name, value in given.items())
    module, _, called = own.entry.rpartition(":")
    if others:
        takes, call = [*takes, "**params"], f"{call}, **params"
    name = _unused(module, "build")
    made = f"def {name}({', '.join(takes)}): return {called}({call})"
    return f'\n  write a function beside it: {made}; and module = "{module}:{name}"'


def of_training(own: Own, function: Any) -> str:
    """Return how a training function of other arguments is called by one beside it; on a new line.

    Empty unless all that it needs is known.
    """
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ""
    given: dict[str, str] = {}
    for name, one in known.items():
        plain = name.lower().replace("_", "")
        part = next((one for one, names in _OF_TRAINING.items() if plain in names), None)
        if part is not None:
            given[name] = part
        elif one.default is one.empty:
            return ""
    made = [name for name in ("X", "y", "X_test", "n_classes") if name in given.values()]
    if _DRAWN in given.values():
        made.append("batch")
    module, _, called = own.entry.rpartition(":")
    call = ", ".join(f"{name}={value}" for name, value in given.items())
    if len(given) < len(known):
        made, call = [*made, "**params"], f"{call}, **params"
    name = _unused(module, "fit")
    line = f"def {name}({', '.join(made)}): return {called}({call})"
    return f'\n  write a function beside it: {line}; and train = "{module}:{name}"'


def _unused(module: str, name: str) -> str:
    """Return a name that an imported module does not have yet."""
    names = (name, *(f"{name}_{n}" for n in range(2, 100)))
    return next(each for each in names if not hasattr(sys.modules[module], each))


def _by_number(own: Own, request: ProbeRequest) -> str:
    if own.encode == "frame":
        return "\n  X is a data frame, y an array of the classes' numbers"
    remedy = "\n  rows arrive as an array, not as a data frame"
    if own.encode != "raw":
        rows = _encoded(own, request)
        return f"{remedy}: as {rows}" if rows else remedy
    if not request.columns:
        return remedy
    labelled = [number for number, (_, n_labels) in enumerate(request.columns) if n_labels]
    numbers = [number for number in range(len(request.columns)) if number not in labelled]
    kinds = f"; numbers are {numbers}, labels {labelled}, as codes 0, 1, …" * bool(labelled)
    return f"{remedy}; select columns by number: {_columns(request)}{kinds}"


def _columns(request: ProbeRequest, start: str = "") -> str:
    names = [f"{start}{number} {name}" for number, (name, _) in enumerate(request.columns)]
    return _listed(names)


def _names_a_column(request: ProbeRequest, said: str) -> bool:
    return any(f"'{name}'" in said or f'"{name}"' in said for name, _ in request.columns)


def _classes(request: ProbeRequest) -> str:
    return _listed([f"{number} = {name}" for number, name in enumerate(request.class_names)])


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + ", …" * (len(names) > _NAMED)


def _encoded(own: Own, request: ProbeRequest) -> str:
    """Return the form in which code gets its rows; empty if it is not known when planned."""
    encode = f'encode = "{own.encode}"'
    if own.encode == "pixels" and request.image is not None:
        height, width, channels = request.image
        if own.form == "module":
            return f"images (channels, height, width) of {(channels, height, width)}"
        return f"images (height, width, channels) of {(height, width, channels)} ({encode})"
    n_continuous, n_categorical = request.n_continuous, request.n_categorical
    if own.encode == "raw" or not n_categorical:
        return f"{n_continuous + n_categorical} columns ({encode})"
    if not request.columns:
        return ""
    widths = {name: n_labels + 1 for name, n_labels in request.columns if n_labels}  # 1: missing
    parts = [f"{n_continuous} of numbers"] * (n_continuous > 0)
    parts.append(_listed([f"{width} of {name}" for name, width in widths.items()]))
    return f"{n_continuous + sum(widths.values())} columns ({encode}: {', '.join(parts)})"
