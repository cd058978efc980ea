"""Classifiers that a program registers by name, for the sweeps that it plans."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from manyseed.orchestrator.calls import checked
from manyseed.orchestrator.errors import UserError, nearest

Made = TypeVar("Made", bound=Callable[..., Any])

FORMS = ("estimator", "train", "module")


@dataclass(frozen=True, slots=True)
class _Registered:
    made: Callable[..., Any]
    form: str
    options: Mapping[str, Any]


_BY_NAME: dict[str, _Registered] = {}


def _classifier(name: str, *, form: str | None = None, **options: Any) -> Callable[[Made], Made]:
    """Register a class or a function as a classifier; see `manyseed.classifier`.

    Raises
    ------
    UserError
        For an unknown form, or a name that is registered for something else.
    """
    if form not in (None, *FORMS):
        raise UserError("unknown form", key="form", value=form, remedy=nearest(str(form), FORMS))

    def register(made: Made) -> Made:
        before = _BY_NAME.get(name)
        if before is not None and _entry(before.made) != _entry(made):
            raise UserError(
                f"{_entry(before.made)} is already registered under this name",
                key="classifier",
                value=name,
                remedy=f"give {_entry(made)} another name",
            )
        default = "estimator" if inspect.isclass(made) else "train"
        _BY_NAME[name] = _Registered(made, form or default, options)
        return made

    return register


classifier = checked(_classifier, "manyseed.classifier")


def _entry(made: Any) -> str:
    return f"{made.__module__}:{made.__qualname__}"


def with_registered(
    sweep: Mapping[str, Any], describe: Callable[[Any], str], plain: Callable[[Any, str], Any]
) -> dict[str, object]:
    """Return a sweep with tables for the registered classifiers that its grids name.

    Keys that the sweep gives in a table of that name take precedence.

    Parameters
    ----------
    sweep : mapping
        The content of a sweep file.
    describe : callable
        Takes a class or function, returns the ``"module:name"`` to import it by.
    plain : callable
        Takes a value and its key, returns its form in a sweep file.
    """
    tables = sweep.get("classifier", {})
    if not isinstance(tables, Mapping):
        return {**sweep}
    tables = dict(tables)
    for name in _named(sweep):
        if (registered := _BY_NAME.get(name)) is None:
            continue
        options = {
            key: {inner: plain(each, f"{name}.{inner}") for inner, each in value.items()}
            if key == "params" and isinstance(value, Mapping)
            else value
            for key, value in registered.options.items()
        }
        made = {registered.form: describe(registered.made)}
        tables[name] = {**made, **options, **tables.get(name, {})}
    return {**sweep, "classifier": tables} if tables else {**sweep}


def _named(sweep: Mapping[str, Any]) -> Iterator[str]:
    for grid in grids_of(sweep):
        names = grid.get("classifier", ())
        if isinstance(names, Iterable):
            yield from (name for name in names if isinstance(name, str))


def grids_of(sweep: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the grids in the content of a sweep file, which may give a single one by itself.

    Raises
    ------
    UserError
        For anything but mappings.
    """
    grids = sweep.get("grid", ())
    listed = [grids] if isinstance(grids, Mapping) else grids
    if not isinstance(listed, list | tuple) or not all(isinstance(g, Mapping) for g in listed):
        remedy = 'such as: "grid": [{"dataset": ["sklearn:digits"], "classifier": ["mlp"]}]'
        raise UserError("must be a list of mappings", key="grid", remedy=remedy)
    return [*listed]
