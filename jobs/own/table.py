"""What a sweep file says of a classifier of one's own, checked; nothing of it is imported here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manyseed.jobs.checks import Refused, UnknownOption, integer, number
from manyseed.jobs.classifiers.record import FORMS, Form
from manyseed.jobs.hparams.kinds import Categorical, Continuous, Free, Hparam, Ordinal

ENCODINGS = ("raw", "dense", "pixels")
SOURCES = ("init", "batch")
"""The streams that a seed may be drawn from."""

SCORES: Mapping[Form, tuple[str, ...]] = {
    "estimator": ("predict_proba", "decision_function", "predict"),
    "train": ("logits", "probabilities", "decisions"),
}
"""What a fit's scores are, by form."""

_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
OPTIONS = ("version", "params", "space", "encode", "scores", "seeds", "probe")
_COMMON = ("hparams", "grid", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A table that names code of the user's.

    Attributes
    ----------
    form : str
        The key that names it.
    entry : str
        ``"module:name"``; the name may have dots.
    version : int
        The user's own number for what the code does: part of the identity.
    params : mapping
        What it is always called with that is no single value: lists, and tables that
        `jobs.own.calling.built` understands.
    space : tuple of Hparam
        Hparams that the table declares, sorted by name, then single values of ``params``, which can
        be fixed or in a grid.
    declared : list of dict
        The first of these, as they are part of the identity.
    encode : {"raw", "dense", "pixels"}
        How rows are given to it.
    scores : str or None
        One of `SCORES`; None: it is to be found out.
    seeds : mapping or None
        Parameters that take a seed, each with the stream it is drawn from; None: as `scores`.
    probe : bool
        Whether planning may fit it.
    """

    form: Form
    entry: str
    version: int
    params: Mapping[str, Any]
    space: tuple[Hparam, ...]
    declared: list[dict[str, Any]]
    encode: str
    scores: str | None
    seeds: Mapping[str, str] | None
    probe: bool

    @property
    def entries(self) -> tuple[str, ...]:
        """All code that the table names, the entry point first."""
        return entries_of({"name": self.entry, "params": self.params})


def entries_of(canonical: Mapping[str, Any]) -> tuple[str, ...]:
    """Return all code that a canonical description names, the entry point first."""

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
    """Return which kind of code a table names; None where it names none."""
    return next((form for form in FORMS if form in options), None)


def read(options: Mapping[str, Any]) -> Own:
    """Check the ``[classifier.NAME]`` table of a classifier of one's own.

    Raises
    ------
    Refused
        For an unknown option, or a value that is not allowed.
    """
    form = form_of(options)
    assert form is not None
    if clash := [other for other in FORMS if other != form and other in options]:
        raise Refused(clash[0], options[clash[0]], f"beside {form}: leave one of them out")
    others = [option for option in OPTIONS if form == "estimator" or option != "seeds"]
    allowed = (form, *others, *_COMMON)
    for option in options:
        if option not in allowed:
            raise UnknownOption(option, options[option], allowed=allowed)
    entry = options[form]
    if not isinstance(entry, str) or _ENTRY.fullmatch(entry) is None:
        raise Refused(form, entry, allowed='"module:name", such as "mymodel:build"')
    params = options.get("params", {})
    if not isinstance(params, Mapping):
        raise Refused("params", params, allowed="a table of values")
    declared = _declared(options.get("space", {}))
    single: dict[str, Any] = {}
    lasting: dict[str, Any] = {}
    for name, value in params.items():
        if name in {each["name"] for each in declared}:
            raise Refused(f"params.{name}", value, f"space has {name}, with its default")
        _check_param(f"params.{name}", value)
        (lasting if isinstance(value, Mapping | list) else single)[name] = value
    space = (
        *map(hparam, declared),
        *(Free(name, single[name]) for name in sorted(single)),
    )
    return Own(
        form=form,
        entry=entry,
        version=integer("version", options.get("version", 1), least=1, most=2**31),
        params=lasting,
        space=space,
        declared=declared,
        encode=_one_of("encode", options.get("encode", "raw"), ENCODINGS),
        scores=_one_of("scores", options["scores"], SCORES[form]) if "scores" in options else None,
        seeds=_seeds(options["seeds"]) if "seeds" in options else None,
        probe=_flag("probe", options.get("probe", True)),
    )


def hparam(declared: Mapping[str, Any]) -> Hparam:
    """Return an hparam of its declaration in a canonical description."""
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


def _declared(space: object) -> list[dict[str, Any]]:
    if not isinstance(space, Mapping):
        raise Refused("space", space, allowed="a table of hparams")
    return [_declaration(name, space[name]) for name in sorted(space)]


def _declaration(name: str, given: object) -> dict[str, Any]:
    option = f"space.{name}"
    if not name.isidentifier():
        raise Refused(option, given, f"{name!r} is no name of a parameter")
    form = "{ low = 0.01, high = 1.0, default = 0.1, log = true } or { levels = […], default = … }"
    if not isinstance(given, Mapping) or "default" not in given:
        raise Refused(option, given, allowed=form)
    if "levels" in given:
        found = _with_levels(option, name, given)
    elif "low" in given and "high" in given:
        found = _with_range(option, name, given)
    else:
        raise Refused(option, given, allowed=form)
    if unknown := sorted({*given} - {*found}):
        raise UnknownOption(f"{option}.{unknown[0]}", given[unknown[0]], allowed=[*found])
    try:
        checked = hparam(found).check(found["default"])
    except Refused as error:
        raise Refused(f"{option}.default", error.value, error.reason, error.allowed) from None
    return {**found, "default": checked}


def _with_levels(option: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    levels = given["levels"]
    kinds = {type(level) for level in levels} if isinstance(levels, list) else set()
    if len(kinds) != 1 or not kinds <= {int, float, str, bool} or len({*levels}) < len(levels):
        raise Refused(f"{option}.levels", levels, allowed="a list of different values of one type")
    if kinds == {int} and levels != sorted(levels):
        raise Refused(f"{option}.levels", levels, allowed="whole numbers in ascending order")
    return {"name": name, "levels": [*levels], "default": given["default"]}


def _with_range(option: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    low, high = given["low"], given["high"]
    is_log = _flag(f"{option}.log", given.get("log", False))
    if type(low) is int and type(high) is int and not is_log:
        integer(f"{option}.high", high, least=low + 1, most=low + 1_000_000)
        return {"name": name, "low": low, "high": high, "default": given["default"]}
    low = number(f"{option}.low", low, above=0.0 if is_log else -math.inf)
    high = number(f"{option}.high", high, above=low)
    found = {"name": name, "low": low, "high": high, "default": given["default"]}
    return {**found, "log": True} if is_log else found


def _check_param(option: str, value: object) -> None:
    """Refuse what has no form in an identity."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _check_param(f"{option}.{name}", inner)
        for key in ("estimator", "import"):
            entry = value.get(key, "a:b")
            if not isinstance(entry, str) or _ENTRY.fullmatch(entry) is None:
                raise Refused(f"{option}.{key}", entry, allowed='"module:name"')
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            _check_param(option, inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Refused(option, value, allowed="a finite number")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise Refused(option, value, allowed="text, a number, true, false, a list or a table")


def _seeds(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise Refused("seeds", value, allowed='a table such as { random_state = "batch" }')
    return {name: _one_of(f"seeds.{name}", value[name], SOURCES) for name in sorted(value)}


def _flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Refused(option, value, allowed="true or false")
    return value


def _one_of(option: str, value: object, known: tuple[str, ...]) -> str:
    if value not in known:
        raise Refused(option, value, allowed=known)
    return str(value)
