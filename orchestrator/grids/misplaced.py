"""What is meant by a key that a classifier's table does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from manyseed.jobs import classifiers
from manyseed.jobs.checks import UnknownOption, similar
from manyseed.jobs.own.table import OPTIONS, form_of
from manyseed.orchestrator.errors import toml_value
from manyseed.orchestrator.grids.loading import of_classifier

Options = Mapping[str, Any]


def meant_in_table(
    error: UnknownOption, kind: str, given: Options, refusal: Callable[[Options], str | None]
) -> str | None:
    """Return how a classifier's table writes what it gives as an unknown key; None if unknown.

    `kind`: the classifier's. `given`: the table. `refusal`: returns why one's own code cannot be
    called with a table, empty if it can, None if that is not known.
    """
    outer, _, name = error.option.rpartition(".")
    if outer not in ("", "hparams", "grid"):
        return None
    value = error.value
    if (form := form_of(given)) is not None:
        of_table = outer and name in OPTIONS[form]
        return _of_table(outer, name, value) if of_table else _of_code(error, form, given, refusal)
    if (record := classifiers.CLASSIFIERS.get(kind)) is None:
        return None
    if outer:
        of_table = name in record.options or name in record.table
        return _of_table(outer, name, value) if of_table else None
    written = of_classifier(record, name, value, given.get("hparams", {}))
    return written and f"{name} is an hparam: {written}"


def _of_table(outer: str, name: str, value: Any) -> str:
    line = f"it is no hparam, but a key of the table: {name} = {toml_value(_first(outer, value))}"
    return f"{line}; for several, give each a classifier of its own" if outer == "grid" else line


def _first(outer: str, value: Any) -> Any:
    """Return the first of a grid's values, which may be a range; any other value as it is."""
    if outer != "grid":
        return value
    if isinstance(value, Mapping):
        value = next(iter(value.values()), [])
    return next(iter(value), 1) if isinstance(value, list) else value


def _of_code(
    error: UnknownOption, kind: str, given: Options, refusal: Callable[[Options], str | None]
) -> str | None:
    """Return how an argument of one's own code is given, or that the code does not take it."""
    outer, _, name = error.option.rpartition(".")
    is_misspelt = bool(similar(name, map(str, error.allowed)))
    one = {name: _first(outer, error.value)}
    params = {**given.get("params", {}), **one}
    line = f"params = {toml_value(params)}"
    rest = {key: each for key, each in given.items() if key not in (outer, name)}
    if kind == "command":
        if is_misspelt:
            return None
        place = f"{{hparams.{name}}}"
        named = f", and {place} in its words: command = {toml_value(f'{given[kind]} {place}')}"
        return f"an hparam of a command has its value in params: {line}{named}"
    code = given[kind].rpartition(":")[2]
    why = refusal({**rest, "params": params})
    if is_misspelt and why != "":
        return None
    lacks = f" has no parameter {name}"
    if why and lacks in why:
        return f"{code}{why[why.index(lacks) :]}"
    varied = ", which the grid varies" if outer == "grid" else ""
    takes = f"{code} takes {name}:" if why == "" else f"if {code} takes {name},"
    return f"{takes} give it a value{varied}: {line}"
