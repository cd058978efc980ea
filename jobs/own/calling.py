"""Call users' code: import, build and inspect what their table names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import did_you_mean
from manyseed.jobs.run import TrainingSet
from manyseed.jobs.training.encode import dense_encoder, pixel_encoder


class OwnError(RuntimeError):
    """Users' code misbehaved; the run fails, not the machine."""


class CommandError(Exception):
    """A user's command failed; the run fails, even if the command ran out of memory."""


def load(entry: str) -> Any:
    """Import the object that an entry point names.

    Raises
    ------
    ImportError
        Also where the module has no such name.
    """
    module_name, _, names = entry.partition(":")
    named: Any = importlib.import_module(module_name)
    for name in names.split("."):
        try:
            named = getattr(named, name)
        except AttributeError:
            near = did_you_mean(name, (one for one in dir(named) if not one.startswith("_")))
            raise ImportError(f"{module_name} has no {names}{near}") from None
    return named


def asked(function: Any, offered: Sequence[str]) -> list[str]:
    """Return the offered arguments that a user's function takes, by name.

    Raises
    ------
    OwnError
        Where it is not a function, or needs other arguments.
    """
    if not callable(function):
        raise OwnError(f"it is {type(function).__name__}, not a function")
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_named and name in offered:
            names.append(name)
        elif is_named and parameter.default is parameter.empty:
            hint = did_you_mean(name, offered) or f"; there are {', '.join(offered)}"
            raise OwnError(f"it asks for {name}{hint}")
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            raise OwnError(f"{name} cannot be given by its name")
    return names


def called(entry: str, params: Mapping[str, Any]) -> Any:
    """Return what an entry point returns for these parameters.

    Raises
    ------
    OwnError
        If it has no parameter of some name.
    """
    function = load(entry)
    if not callable(function):
        kind = type(function).__name__
        reason = f"it is an object, {kind}, not a function or class"
        raise OwnError(f"{reason}; write a function that returns it")
    try:
        return function(**params)
    except TypeError:
        try:
            known = dict(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # of some functions in C
            known = {}
        is_open = not known or any(one.kind is one.VAR_KEYWORD for one in known.values())
        for name in () if is_open else params:
            if name not in known:
                hint = did_you_mean(name, known) or f"; it has {', '.join(known)}"
                raise OwnError(f"{function.__qualname__} has no parameter {name}{hint}") from None
        raise


def built(value: Any) -> Any:
    """Return the object that a value of ``params`` stands for.

    A table with ``estimator`` stands for what that returns when called with the table's ``params``;
    one with ``import`` for the object it names; ``{ none = true }`` for None; ``{ tuple = […] }``
    for a tuple. Other values stand for themselves.
    """
    if isinstance(value, Mapping):
        if "estimator" in value:
            inner = {name: built(each) for name, each in value.get("params", {}).items()}
            return called(value["estimator"], inner)
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
    """Return a function from raw rows to the form that the table's ``encode`` asks for."""
    if how == "dense":
        return dense_encoder(data)
    if how == "pixels":
        return pixel_encoder(data)
    return lambda raw: raw


def encoded(how: str, data: TrainingSet) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return training and test rows in the form that the table's ``encode`` asks for."""
    encode = encoder(how, data)
    return encode(data.X), encode(data.X_test)
