"""Users' own metrics and probes: Python functions, named "module:function".

    def share_of_ones(part):
        return (part.label == 1).mean(axis=1)

A metric takes some runs of a repeat (`analysis.metrics.metric.Part`) and returns one number per
run, which must not depend on the other runs; the column has the function's name. An attribute says
what it needs besides labels: ``share_of_ones.needs = "margin"`` (or "confidence", "score");
another, which values are better: ``share_of_ones.higher_is_better = False``; another, that values
are from 0 to 1, and so intervals too: ``share_of_ones.is_share = True``.

A metric of pairs takes the labels of two runs and the true classes, (sample,) each, and returns one
number; an attribute says so:

    def double_fault(one, other, y_true):
        return ((one != y_true) & (other != y_true)).mean()

    double_fault.pairs = True

A probe returns one number per run and test point instead, (run, sample).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis import NoModule, Refused
from manyseed.analysis.counts import masked
from manyseed.analysis.metrics.gram import above
from manyseed.analysis.metrics.metric import (
    DIRECTIONS,
    Column,
    Finished,
    HeldOut,
    Metric,
    Need,
    Part,
)
from manyseed.analysis.options import Options

Function = Callable[..., Any]

_MOST_LETTERS = 300  # of an error that a function raises


@dataclass(frozen=True, slots=True)
class Failed:
    """A user's function raised, or did not return the numbers of `n_runs` runs."""

    n_runs: int
    reason: str


def load(name: str) -> Metric:
    """Make a record of a user's function.

    Parameters
    ----------
    name : str
        ``"module:function"``, the module on Python's path.
    """
    function, needs = _find("metrics", name)
    function_name = name.partition(":")[2]
    meaning = next(iter((function.__doc__ or "").strip().splitlines()), f"What {name} returns.")
    higher, is_share = (_told(function, name, each) for each in ("higher_is_better", "is_share"))
    meaning = f"{meaning.rstrip('.')}." + ("" if higher is None else DIRECTIONS[higher])
    of_pairs = bool(getattr(function, "pairs", False))
    spread = "range" if of_pairs else "std"
    unit = "share" if is_share else ""
    column = Column(function_name, pl.Float64, unit, meaning, ("mean", spread, "min", "max"))
    if of_pairs:
        return Metric(
            name=name,
            needs=needs,
            source=name,
            chunk=partial(_tile, function),
            finish=partial(_finish_pairs, function_name),
            pairwise=True,
            pairs=(column,),
        )
    return Metric(
        name=name,
        needs=needs,
        source=name,
        chunk=partial(_chunk, function),
        finish=partial(_finish, function_name),
        runs=(column,),
    )


def _told(function: Function, name: str, attribute: str) -> bool | None:
    """Return what an attribute of a user's function says; None if it has none."""
    value = getattr(function, attribute, None)
    if value is not None and not isinstance(value, bool):
        raise Refused("metrics", name, f"{attribute} is {value!r}, not True or False")
    return value


def _of_share(function: Function, values: NDArray[np.float64]) -> str:
    """Return what is wrong with values of a share; empty if nothing is, or they are none."""
    outside = values[(values < 0) | (values > 1)]
    if not getattr(function, "is_share", False) or not outside.size:
        return ""
    return f"returned {outside.flat[0]:g}, and is_share says that values are from 0 to 1"


def _find(option: str, name: str) -> tuple[Function, Need]:
    """Return a user's function and what it needs."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's code raises
        text = error if isinstance(error, ImportError) else _one_line(error)
        raise NoModule(option, name, f"can't be imported: {text}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [f"{module_name}:{public}" for public in dir(module) if not public.startswith("_")]
        raise Refused(option, name, "the module has no such function", names)
    needs: Any = getattr(function, "needs", "label")
    if needs not in get_args(Need):
        reason = f"needs {needs!r}; there are {', '.join(get_args(Need))}"
        raise Refused(option, name, reason)
    if getattr(function, "pairs", False) and (option != "metrics" or needs != "label"):
        raise Refused(option, name, "a function of two runs is a metric of their labels")
    return function, needs


def probe_needs(name: str) -> Need:
    """Return what a user's own probe needs."""
    return _find("probe", name)[1]


def probe_values(name: str, part: Part) -> NDArray[np.float64] | Failed:
    """Return a user's own probe of some runs, (run, sample)."""
    function = _find("probe", name)[0]
    try:
        values = _numbers(function(part))
    except Exception as error:  # whatever a user's code raises
        return Failed(part.n_runs, f"needs the probe {name}, which failed with {_one_line(error)}")
    if values.shape != part.label.shape:
        reason = f"needs the probe {name}, which returned shape {values.shape}; one number for each"
        return Failed(part.n_runs, f"{reason} run and test point, {part.label.shape}, is needed")
    return values


def _chunk(
    function: Function, part: Part, _: Part, shared: None, options: Options
) -> NDArray[np.float64] | Failed:
    try:
        values = _numbers(function(part))
    except Exception as error:  # whatever a user's code raises
        return Failed(part.n_runs, f"failed with {_one_line(error)}")
    if values.shape != (part.n_runs,):
        reason = f"returned shape {values.shape} for {part.n_runs} runs; one number per run, "
        return Failed(part.n_runs, f"{reason}{(part.n_runs,)}, is needed")
    if reason := _of_share(function, values):
        return Failed(part.n_runs, reason)
    return values


def _numbers(values: Any) -> NDArray[np.float64]:
    """Return what a function returned; masked values are missing, not what is behind the mask."""
    if count := masked(values):
        raise ValueError(f"{count:,} of {np.size(values):,} values that it returns are masked")
    return np.asarray(values, dtype=np.float64)


def _one_line(error: Exception) -> str:
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def _finish(
    column: str,
    held_out: HeldOut,
    partials: Sequence[NDArray[np.float64] | Failed],
    options: Options,
) -> Finished:
    values = [np.full(p.n_runs, np.nan) if isinstance(p, Failed) else p for p in partials]
    reasons = [p.reason for p in partials if isinstance(p, Failed)]
    return Finished(runs={column: np.concatenate(values)}, failure=min(reasons, default=None))


@dataclass(frozen=True, slots=True)
class OwnPairs:
    """Values of pairs between parts of a repeat.

    `n_runs`: runs of the repeat whose pairs are listed. `listed`: where each part starts, and
    values (run, other run).
    """

    n_runs: int
    listed: tuple[tuple[int, int, NDArray[np.float64]], ...] = ()
    reasons: tuple[str, ...] = ()

    def __add__(self, other: OwnPairs) -> OwnPairs:
        return replace(
            self, listed=self.listed + other.listed, reasons=self.reasons + other.reasons
        )


def _tile(function: Function, own: Part, other: Part, shared: None, options: Options) -> OwnPairs:
    if own.n_repeat > options.max_pair_runs:
        reason = f"needs the pairs of its runs, listed of up to {options.max_pair_runs:,} runs"
        return OwnPairs(0, reasons=(f"{reason} (max_pair_runs), and there are {own.n_repeat:,}",))
    values = np.full((own.n_runs, other.n_runs), np.nan)
    for i, one in enumerate(own.label):
        for j in range(i + 1 if other is own else 0, other.n_runs):
            try:
                value = _numbers(function(one, other.label[j], own.y_true))
            except Exception as error:  # whatever a user's code raises
                return OwnPairs(own.n_repeat, reasons=(f"failed with {_one_line(error)}",))
            if value.shape != ():
                reason = f"returned shape {value.shape}; one number is needed"
                return OwnPairs(own.n_repeat, reasons=(reason,))
            values[i, j] = value
    if reason := _of_share(function, values):
        return OwnPairs(own.n_repeat, reasons=(reason,))
    return OwnPairs(own.n_repeat, ((own.start, other.start, values),))


def _finish_pairs(
    column: str, held_out: HeldOut, partials: Sequence[OwnPairs], options: Options
) -> Finished:
    tiles = reduce(add, partials)
    matrix = np.full((tiles.n_runs, tiles.n_runs), np.nan)
    for start, other, part in tiles.listed:
        matrix[start : start + part.shape[0], other : other + part.shape[1]] = part
    return Finished(
        pairs={column: matrix[above(tiles.n_runs)]}, failure=min(tiles.reasons, default=None)
    )
