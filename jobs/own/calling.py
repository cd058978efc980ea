"""Users' code, called: what their table names is imported, built and asked."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import TrainingSet
from manyseed.jobs.training.encode import dense_encoder, pixel_encoder


class OwnError(RuntimeError):
    """Users' code did what no fit may do; the run fails, not the machine."""


class CommandError(Exception):
    """A user's command failed; the run fails, also where the command says that memory is full."""


def load(entry: str) -> Any:
    """Import what an entry point names.

    Raises
    ------
    ImportError
        Also where the module has no such name.
    """
    module_name, _, names = entry.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in names.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ImportError(f"{module_name} has no {names}") from None
    return found


def asked(function: Any, offered: Sequence[str]) -> list[str]:
    """Return what a user's own function takes, of what it is offered by name.

    Raises
    ------
    OwnError
        Where it is none, or needs something else.
    """
    if not callable(function):
        raise OwnError(f"it is {type(function).__name__}, no function")
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_named and name in offered:
            found.append(name)
        elif is_named and parameter.default is parameter.empty:
            raise OwnError(f"it asks for {name}; there are {', '.join(offered)}")
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            raise OwnError(f"{name} cannot be given by its name")
    return found


def built(value: Any) -> Any:
    """Return what a value of ``params`` stands for.

    A table with ``estimator`` is what that returns when it is called with the table's ``params``; a
    table with ``import`` is what that names; ``{ none = true }`` is None; ``{ tuple = […] }`` is a
    tuple. All else is as it is.
    """
    if isinstance(value, Mapping):
        if "estimator" in value:
            inner = {name: built(each) for name, each in value.get("params", {}).items()}
            return load(value["estimator"])(**inner)
        if {*value} == {"import"}:
            return load(value["import"])
        if {*value} == {"none"}:
            return None
        if {*value} == {"tuple"}:
            return tuple(built(each) for each in value["tuple"])
        return {name: built(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [built(each) for each in value]
    return value


def encoder(how: str, data: TrainingSet) -> Callable[[NDArray[np.float64]], NDArray[Any]]:
    """Return what makes rows as the table's ``encode`` asks for them of raw ones."""
    if how == "dense":
        return dense_encoder(data)
    if how == "pixels":
        return pixel_encoder(data)
    return lambda raw: raw


def encoded(how: str, data: TrainingSet) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return training and test rows as the table's ``encode`` asks for them."""
    encode = encoder(how, data)
    return encode(data.X), encode(data.X_test)
