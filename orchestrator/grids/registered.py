"""Classifiers that a program registers by name, for sweeps that are planned from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from manyseed.orchestrator.errors import UserError, nearest

Made = TypeVar("Made", bound=Callable[..., Any])

FORMS = ("estimator", "train", "module")


@dataclass(frozen=True, slots=True)
class _Registered:
    made: Callable[..., Any]
    form: str
    options: Mapping[str, Any]


_BY_NAME: dict[str, _Registered] = {}


def classifier(name: str, *, form: str | None = None, **options: Any) -> Callable[[Made], Made]:
    """Register a class or a function as a classifier; `manyseed.classifier` says more.

    Raises
    ------
    UserError
        For an unknown form, or a name that something else in this program has.
    """
    if form not in (None, *FORMS):
        raise UserError("unknown form", key="form", value=form, remedy=nearest(str(form), FORMS))

    def register(made: Made) -> Made:
        before = _BY_NAME.get(name)
        if before is not None and _called(before.made) != _called(made):
            raise UserError(
                f"{_called(before.made)} is registered by this name",
                key="classifier",
                value=name,
                remedy=f"give {_called(made)} another",
            )
        own = form or ("estimator" if inspect.isclass(made) else "train")
        _BY_NAME[name] = _Registered(made, own, options)
        return made

    return register


def _called(made: Any) -> str:
    return f"{made.__module__}:{made.__qualname__}"


def with_registered(
    sweep: Mapping[str, Any], describe: Callable[[Any], str], plain: Callable[[Any, str], Any]
) -> dict[str, object]:
    """Return a sweep with the tables of registered classifiers that its grids name.

    What a table of that name says by itself goes first.

    Parameters
    ----------
    sweep : mapping
        What would stand in a sweep file.
    describe : callable
        From a class or function to ``"module:name"``, as another process imports it.
    plain : callable
        From a value and where it stands to its form in a sweep file.
    """
    tables = dict(sweep.get("classifier", {}))
    for name in _named(sweep):
        if (found := _BY_NAME.get(name)) is None:
            continue
        options = {
            key: {inner: plain(each, f"{name}.{inner}") for inner, each in value.items()}
            if key == "params" and isinstance(value, Mapping)
            else value
            for key, value in found.options.items()
        }
        tables[name] = {found.form: describe(found.made), **options, **tables.get(name, {})}
    return {**sweep, "classifier": tables} if tables else {**sweep}


def _named(sweep: Mapping[str, Any]) -> Iterator[str]:
    grids = sweep.get("grid", ())
    for grid in [grids] if isinstance(grids, Mapping) else grids:
        names = grid.get("classifier", ()) if isinstance(grid, Mapping) else ()
        yield from (name for name in names if isinstance(name, str))
