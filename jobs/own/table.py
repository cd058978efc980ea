"""The table of a user's own classifier, checked without importing the code.

The words of ``command = "…"`` are split as by a shell, but without one, and filled in for a run:
``{name}`` in a word is a placeholder, ``{{`` and ``}}`` are braces. Words are split before they are
filled in, so a value with blanks stays within its word.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from manyseed.jobs.checks import Option, Refused, UnknownOption, integer, number, similar, values_of
from manyseed.jobs.classifiers import record
from manyseed.jobs.classifiers.record import FORMS, Form, epochs_of, with_optimizer
from manyseed.jobs.classifiers.record import OPTIONS as OF_OPTIMIZERS
from manyseed.jobs.hparams.grid import text_of
from manyseed.jobs.hparams.kinds import Categorical, Continuous, Free, Hparam, Ordinal, Value
from manyseed.jobs.run import Json, canonical_json, text_identity

NEEDED = ("train", "test", "out")  # files: training rows, test rows, and the command's output

SEEDS: Mapping[str, str] = {
    "seed": "batch",
    "seeds.batch": "batch",
    "seeds.init": "init",
    "seeds.dropout": "dropout",
}
"""Placeholders of seeds, and the stream that each is drawn from."""

CHECKPOINT = "checkpoint"
OTHERS = ("device", "n_classes", CHECKPOINT)
HPARAM = "hparams."

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\{|\}")


def split_command(option: str, text: str) -> tuple[str, ...]:
    """Return the words of a command."""
    if "\0" in text:
        raise Refused(option, text, allowed="text without a NUL")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise Refused(option, text, f"cannot be split into words: {error}".lower()) from None
    if not words:
        raise Refused(option, text, "is empty")
    return words


def require_placeholders(option: str, words: Iterable[str], hparams: Iterable[str]) -> None:
    """Refuse unknown placeholders, and a command that lacks a placeholder that it needs.

    `option`: the option that gave the command. `hparams`: names of the hparams, all of which it
    must use.
    """
    named = [f"{HPARAM}{name}" for name in hparams]
    known = (*NEEDED, *SEEDS, *OTHERS, *named)
    used = placeholders(words)
    for name in used:
        if name not in known:
            near = similar(name, known)
            hint = f"; did you mean {{{near[0]}}}?" if near else "."
            listed = ", ".join(f"{{{each}}}" for each in known)
            reason = f"there is no {{{name}}}{hint} There are {listed}; {{{{ is a brace"
            raise Refused(option, " ".join(words), reason)
    for name in (*NEEDED, *named):
        if name not in used:
            reason = f"{{{name}}} is missing"
            if name in named:
                reason += ": the hparam would have no effect"
            elif name != "out":
                reason += (
                    "; a script that reads its own data is run for each seed instead, and its "
                    "predictions are imported"
                )
            raise Refused(option, " ".join(words), reason)


def placeholders(words: Iterable[str]) -> tuple[str, ...]:
    """Return the names in braces, each once, in order."""
    names = (piece[1] for word in words for piece in _PIECE.finditer(word))
    return tuple(dict.fromkeys(name for name in names if name is not None))


def filled_in(words: Iterable[str], values: Mapping[str, Value]) -> list[str]:
    """Return words with their placeholders replaced by values."""

    def piece(match: re.Match[str]) -> str:
        return text_of(values[match[1]]) if match[1] is not None else match[0][:1]

    return [_PIECE.sub(piece, word) for word in words]


def draws_from(words: Iterable[str]) -> list[str]:
    """Return the varying streams that a command's seeds come from (dropout goes with batch)."""
    streams = {SEEDS[name] for name in placeholders(words) if name in SEEDS}
    return sorted({"batch" if name == "dropout" else name for name in streams})


def command_name(words: Iterable[str]) -> str:
    """Return a command's name: its script, its module after ``-m``, or its program.

    The streams are keyed by it.
    """
    words = [word for word in words if "{" not in word]
    for before, word in pairwise(words):
        if before == "-m":
            return word
    for word in words:
        if not word.startswith("-") and re.fullmatch(r"\.[A-Za-z]\w*", PurePosixPath(word).suffix):
            return PurePosixPath(word).as_posix()
    return PurePosixPath(words[0]).name if words else ""


SOURCES = ("init", "batch")  # the streams that a seed may be drawn from

ENCODINGS = ("raw", "frame", "dense", "pixels")
UNCHANGED = ("raw", "frame")
"""Encodings that leave values as they are."""
SCORES: Mapping[Form, tuple[str, ...]] = {
    "estimator": ("predict_proba", "decision_function", "predict"),
    "train": ("logits", "probabilities", "decisions"),
    "module": ("logits",),
    "command": ("logits", "probabilities", "decisions", "labels"),
}
"""The kinds of scores that a fit may return, by form."""

ROWS = ("npz", "csv", "parquet")  # formats of the files that give a command its rows

ENTRY = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
"""How an entry point is written, ``"module:name"``; the name may have dots."""

LOOP: Mapping[str, str] = {"optimizer": "adam", "schedule": "constant"}
"""How modules are trained unless options say otherwise."""

_IN_FOLDER = re.compile(r"((?:\./)?(?:[A-Za-z_]\w*/)+[A-Za-z_]\w*)\.py:([\w.]+)")
_NAMED = Option(pattern=ENTRY, called='"module:name", such as "mymodel:build"')
_SINGLE = Option(kind=object)
SPACE: Mapping[str, Option] = {
    "low": Option(kind=float),
    "high": Option(kind=float),
    "log": Option(kind=bool),
    "levels": Option(
        kind=list, distinct=True, of=_SINGLE, called="a list of different values of one type"
    ),
    "default": _SINGLE,
}
"""Keys of an hparam in ``space``."""

TABLE: Mapping[str, Option] = {
    "estimator": replace(
        _NAMED, about='A class or function that makes an estimator: "module:name".'
    ),
    "train": replace(_NAMED, about='A function that trains and returns scores: "module:name".'),
    "module": replace(
        _NAMED, about='A class or function that makes a torch.nn.Module: "module:name".'
    ),
    "command": Option(
        "The command line to run, with placeholders in braces.",
        called='text such as "python train.py {train} {test} {out}"',
    ),
    "rows": Option("For a command: the format of its files of rows.", str, "npz", words=ROWS),
    "files": Option(
        "For a command: files to copy besides those that it names.",
        list,
        of=Option(),
        called='a list of files, folders or patterns beside the script, such as ["conf", "*.R"]',
    ),
    "timeout": Option(
        "For a command: seconds after which it is killed (default: never).",
        float,
        above=0,
        most=31_536_000,
        called="seconds",
    ),
    **OF_OPTIMIZERS,
    "epochs": replace(record.EPOCHS, about="For a module: how long to train.", default=20),
    "snapshots": record.SNAPSHOTS,
    "version": Option(
        "Your version number of the code, part of the identity.", int, 1, least=1, most=2**31
    ),
    "params": Option("The arguments that it is called with.", dict, called="a table of values"),
    "space": Option("Hparams that may be perturbed and tuned.", dict, called="a table of hparams"),
    "encode": Option("How rows are encoded (default: raw).", words=ENCODINGS),
    "scores": Option(
        "The method that gives scores; by default the first that the model has.",
        words=sorted({each for kinds in SCORES.values() for each in kinds}),
    ),
    "seeds": Option(
        "Parameters that take a seed, each with its stream.",
        dict,
        of=Option(words=SOURCES),
        called=f"a table of {' or '.join(SOURCES)} by parameter",
    ),
    "probe": Option("Whether planning fits it to a few made-up rows.", bool, True),
    "hparams": Option("Anchors.", dict, of=_SINGLE, called="a table of values"),
    "grid": record.TABLE["grid"],
    "device": record.TABLE["device"],
}
_COMMON = ("version", "params", "space", "encode", "probe", "hparams", "grid", "device")
OPTIONS: Mapping[Form, tuple[str, ...]] = {
    "estimator": (*_COMMON, "scores", "seeds"),
    "train": (*_COMMON, "scores"),
    "module": (*_COMMON, *OF_OPTIMIZERS, "epochs", "snapshots"),
    "command": (*_COMMON, "scores", "rows", "files", "timeout"),
}
"""Options besides the one that names the code, by form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """The table of a classifier that is the user's code.

    `form`: the option that names the code. `entry`: ``"module:name"``; the name may have dots.
    `version`: the user's own number for what the code does: part of the identity. `params`:
    constant arguments other than single values: lists, and tables that `jobs.own.calling.built`
    understands. `space`: hparams that the user declares, sorted by name, then single values of
    ``params``, which can be fixed or in a grid. `declared`: the declared ones in the form that is
    part of the identity. `encode`: the form in which the code receives rows. `scores`: one of
    `SCORES`; None if the probe is to find out. `seeds`: parameters that take a seed, each with the
    stream it is drawn from; None as for `scores`. `probe`: whether planning may fit it. `training`:
    for a module, its optimizer, schedule and epochs; part of the identity. `snapshots`: for a
    module, the epochs whose scores are kept. `command`: for a command, its words, the format of its
    files of rows, and the files to copy besides those that the words name; part of the identity.
    `options`: the table as the user wrote it.
    """

    form: Form
    entry: str
    version: int
    params: Mapping[str, Any]
    space: tuple[Hparam, ...]
    declared: list[dict[str, Json]]
    encode: str
    scores: str | None
    seeds: Mapping[str, str] | None
    probe: bool
    training: Mapping[str, Any]
    snapshots: tuple[int, ...]
    command: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def keeps_values(self) -> bool:
        """Whether the code receives values as they are, NaN where missing."""
        return self.encode in UNCHANGED

    @property
    def entries(self) -> tuple[str, ...]:
        """All code that the table names, the entry point first."""
        return entries_of({"name": self.entry, "params": self.params, **self.command})


def entries_of(canonical: Mapping[str, Any]) -> tuple[str, ...]:
    """Return all code that a canonical description names, the entry point first.

    A command's name is followed by a digest that tells it from others of the same script.
    """
    if "command" in canonical:
        whole = [canonical["command"], canonical.get("files", [])]
        return canonical["name"], f"#{text_identity(canonical_json(whole))[:8]}"

    def named(value: Any) -> Iterator[str]:
        if isinstance(value, Mapping):
            yield from (value[key] for key in ("estimator", "import") if key in value)
            value = [*value.values()]
        if isinstance(value, list | tuple):
            for inner in value:
                yield from named(inner)

    others = sorted({*named(canonical.get("params", {}))} - {canonical["name"]})
    return (canonical["name"], *others)


def form_of(options: Mapping[str, Any]) -> Form | None:
    """Return the kind of code that options name, None if they name none."""
    return next((form for form in FORMS if form in options), None)


def read(options: Mapping[str, Any], *, of_images: bool = False) -> Own:
    """Check the table of a user's own classifier.

    `options`: the table as the user wrote it. `of_images`: whether the dataset's rows are images,
    which modules receive as such by default.
    """
    form = form_of(options)
    assert form is not None
    if clash := [other for other in FORMS if other != form and other in options]:
        reason = f"{form} already names the code"
        raise Refused(clash[0], options[clash[0]], reason, needs={clash[0]: None})
    if form != "command" and (file := _IN_FOLDER.fullmatch(str(options[form]))):
        named = f"{file[1].removeprefix('./').replace('/', '.')}:{file[2]}"
        raise Refused(form, options[form], f'names a module, not a file: "{named}"')
    given = values_of(_options(form), options)
    entry = given[form]
    if form == "command":
        entry = command_name(split_command(form, entry))
    params = given["params"] or {}
    of_space = given["space"] or {}
    declared = [_declaration(name, of_space[name]) for name in sorted(of_space)]
    single: dict[str, Value] = {}
    constant: dict[str, object] = {}
    for name, value in params.items():
        if name in {each["name"] for each in declared}:
            raise Refused(f"params.{name}", value, f"space has {name}, with its default")
        check_param(f"params.{name}", value)
        if isinstance(value, Mapping | list):
            constant[name] = value
        else:
            single[name] = value
    if form == "command" and constant:
        name, value = next(iter(constant.items()))
        raise Refused(f"params.{name}", value, allowed="text, a number, true or false")
    space = (
        *of_loop(form, declared),
        *map(hparam, declared),
        *(Free(name, single[name]) for name in sorted(single)),
    )
    for one in of_loop(form, ()):
        if one.name in params:
            value = params[one.name]
            reason = "is how it is trained, not a parameter of the module"
            needs = {"hparams": {one.name: value}}
            raise Refused(f"params.{one.name}", value, reason, needs=needs)
    training: dict[str, Json] = {}
    snapshots = tuple[int, ...]()
    if form == "module":
        epochs, snapshots = epochs_of(given["epochs"], options)
        training = {**with_optimizer(LOOP, options), "epochs": epochs}
    by_default = "raw" if form != "module" else "pixels" if of_images else "dense"
    if given["encode"] == "frame" and form in ("module", "command"):
        raise Refused("encode", "frame", f"a {form} gets arrays", ("raw", "dense", "pixels"))
    return Own(
        form=form,
        entry=entry,
        version=given["version"],
        params=constant,
        space=space,
        declared=declared,
        encode=given["encode"] or by_default,
        scores=given.get("scores"),
        seeds=None if given.get("seeds") is None else dict(sorted(given["seeds"].items())),
        probe=given["probe"],
        training=training,
        snapshots=snapshots,
        command=_command(given, [each.name for each in space]) if form == "command" else {},
        options=options,
    )


def _options(form: Form) -> Mapping[str, Option]:
    """Return the options that go with a form of code."""
    table = {name: TABLE[name] for name in (form, *OPTIONS[form])}
    if "scores" in table:
        table["scores"] = replace(TABLE["scores"], words=SCORES[form])
    return table


def _command(given: Mapping[str, Any], hparams: Sequence[str]) -> dict[str, Json]:
    command = split_command("command", given["command"])
    require_placeholders("command", command, hparams)
    files = given["files"] or []
    if not all(map(_is_inside, files)):
        raise Refused("files", files, allowed=TABLE["files"].allowed)
    return {
        "command": [*command],
        "rows": given["rows"],
        **({"files": sorted({*files})} if files else {}),
    }


def timeout(options: Mapping[str, Any]) -> float:
    """Return a command's time limit in seconds, 0 for none. Not part of the identity."""
    if "timeout" not in options:
        return 0.0
    return float(TABLE["timeout"].check("timeout", options["timeout"]))


def _is_inside(pattern: str) -> bool:
    path = PurePosixPath(pattern)
    return bool(pattern) and not path.is_absolute() and ".." not in path.parts


def of_loop(form: str, declared: Sequence[Mapping[str, Any]]) -> tuple[Hparam, ...]:
    """Return the hparams of the loop that trains a module, except those that the user declares."""
    if form != "module":
        return ()
    from manyseed.jobs.own.network import TRAINED_BY

    names = {each["name"]: each for each in declared}
    for name, least in (("lr", 0.0), ("weight_decay", 0.0), ("batch", 2)):
        if (each := names.get(name)) is None:
            continue
        lowest = min(each["levels"]) if "levels" in each else each["low"]
        is_number = isinstance(lowest, int | float) and not isinstance(lowest, bool)
        if not is_number or lowest < least or (name == "batch" and type(lowest) is not int):
            what = "whole numbers" if name == "batch" else "numbers"
            raise Refused(f"space.{name}", lowest, allowed=f"{what} from {least:g}")
    return tuple(each for each in TRAINED_BY if each.name not in names)


def hparam(declared: Mapping[str, Any]) -> Hparam:
    """Return the hparam that a canonical description declares."""
    name, default = declared["name"], declared["default"]
    if "levels" in declared:
        levels = tuple(declared["levels"])
        if all(type(level) is int for level in levels):
            return Ordinal(name, levels, default)
        return Categorical(name, levels, default)
    low, high = declared["low"], declared["high"]
    if type(low) is int and type(high) is int:
        return Ordinal(name, range(low, high + 1), default)
    return Continuous(name, low, high, default, log=declared.get("log", False))


def _declaration(name: str, given: object) -> dict[str, Json]:
    option = f"space.{name}"
    if not name.isidentifier():
        raise Refused(option, given, f"{name!r} is not a parameter name")
    form = "a table of low, high and default, optionally log, or of levels and default"
    if not isinstance(given, Mapping) or "default" not in given:
        raise Refused(option, given, allowed=form)
    if "levels" in given:
        declared = _with_levels(option, name, given)
    elif "low" in given and "high" in given:
        declared = _with_range(option, name, given)
    else:
        raise Refused(option, given, allowed=form)
    if unknown := sorted({*given} - {*declared}):
        raise UnknownOption(f"{option}.{unknown[0]}", given[unknown[0]], allowed=[*declared])
    try:
        default = hparam(declared).check(declared["default"])
    except Refused as error:
        raise Refused(f"{option}.default", error.value, error.reason, error.allowed) from None
    return {**declared, "default": default}


def _with_levels(option: str, name: str, given: Mapping[str, Any]) -> dict[str, Json]:
    levels = SPACE["levels"].check(f"{option}.levels", given["levels"])
    kinds = {type(level) for level in levels}
    if len(kinds) != 1 or len({*levels}) < len(levels):
        raise Refused(f"{option}.levels", levels, allowed=SPACE["levels"].allowed)
    if kinds == {int} and levels != sorted(levels):
        raise Refused(f"{option}.levels", levels, allowed="whole numbers in ascending order")
    return {"name": name, "levels": [*levels], "default": given["default"]}


def _with_range(option: str, name: str, given: Mapping[str, Any]) -> dict[str, Json]:
    low, high = given["low"], given["high"]
    is_log = SPACE["log"].check(f"{option}.log", given.get("log", False))
    if {type(low), type(high)} <= {int, float} and high <= low:
        raise Refused(f"{option}.low", low, allowed=f"below high = {high}")
    if type(low) is int and type(high) is int and not is_log:
        integer(f"{option}.high", high, least=low + 1, most=low + 1_000_000)
        return {"name": name, "low": low, "high": high, "default": given["default"]}
    low = number(f"{option}.low", low, above=0.0 if is_log else -math.inf)
    high = number(f"{option}.high", high, above=low)
    declared = {"name": name, "low": low, "high": high, "default": given["default"]}
    return {**declared, "log": True} if is_log else declared


def is_entry(value: object) -> bool:
    """Return whether a value is ``"module:name"``."""
    return isinstance(value, str) and re.fullmatch(ENTRY, value) is not None


def check_param(option: str, value: object) -> None:
    """Refuse a value that an identity cannot hold."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            check_param(f"{option}.{name}", inner)
        for key in ("estimator", "import"):
            if key in value:
                _NAMED.check(f"{option}.{key}", value[key])
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            check_param(option, inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Refused(option, value, allowed="a finite number")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise Refused(option, value, allowed="text, a number, true, false, a list or a table")
