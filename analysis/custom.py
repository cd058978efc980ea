"""Users' own metrics: a Python function on a chunk, named "module:function".

    def share_of_ones(part):
        return (part.label == 1).mean(axis=1)

The function is given some runs of a repeat (`analysis.metric.Part`) and returns a number for each;
the column bears its name. It must not depend on which runs come together. What it needs beside the
labels it says by an attribute: ``share_of_ones.needs = "margin"`` (or "confidence", "score").
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.metric import Column, Finished, HeldOut, Metric, Need, Part
from analysis.options import Options

Function = Callable[[Part], Any]


class MetricFailed(ValueError):
    """A user's function raised, or did not return a number for each run."""


def load(name: str) -> Metric:
    """Make a record of a user's function.

    Parameters
    ----------
    name : str
        ``"module:function"``, the module to be found as Python finds modules.

    Raises
    ------
    ValueError
        Where there is no such module or function, or it needs what doesn't exist.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"the metric {name!r} can't be imported: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        near = difflib.get_close_matches(function_name, dir(module), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"the metric {name!r}: {module_name} has no function {function_name!r}{hint}"
        )
    needs: Any = getattr(function, "needs", "label")
    if needs not in get_args(Need):
        raise ValueError(f"{name} needs {needs!r}; there are {', '.join(get_args(Need))}")
    meaning = next(iter((function.__doc__ or "").strip().splitlines()), f"What {name} returns.")
    return Metric(
        name=name,
        needs=needs,
        source=name,
        chunk=partial(_chunk, name, function),
        finish=partial(_finish, function_name),
        runs=(Column(function_name, pl.Float64, "", meaning, ("mean", "std", "min", "max")),),
    )


def _chunk(
    name: str, function: Function, part: Part, _: Part, shared: None, options: Options
) -> NDArray[np.float64]:
    try:
        values = np.asarray(function(part), dtype=np.float64)
    except Exception as error:  # whatever a user's code raises
        raise MetricFailed(
            f"the metric {name!r} failed with {type(error).__name__}: {error}"
        ) from error
    if values.shape != (part.n_runs,):
        raise MetricFailed(
            f"{name} returned shape {values.shape} for {part.n_runs} runs; one number a run, "
            f"{(part.n_runs,)}, is needed"
        )
    return values


def _finish(
    column: str, held_out: HeldOut, partials: Sequence[NDArray[np.float64]], options: Options
) -> Finished:
    return Finished(runs={column: np.concatenate(partials)})
