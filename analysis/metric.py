"""What a metric is: a record that says how it is computed part by part.

To add a metric is to add a record to `analysis.metrics`. All records see one repeat at a time, the
runs that share a test set, and compute a part of its runs against the whole; so a repeat can be
computed in one go or split over tasks, with the same result bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.options import Options
from analysis.resampling import Resamples, disjoint_halves, generator

Need = Literal["label", "margin"]
Values = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result table.

    Attributes
    ----------
    summaries : tuple of str
        What the table of repeats holds of it (`analysis.summaries`).
    """

    name: str
    dtype: type[pl.DataType]
    unit: str
    meaning: str
    summaries: tuple[str, ...] = ()


@dataclass(frozen=True)
class HeldOut:
    """One test set, shared by all repeats with the same repeat index."""

    y_true: NDArray[np.integer[Any]]
    n_classes: int
    seed: int
    dataset_id: str
    repeat_index: int
    resamples: int

    @cached_property
    def halves(self) -> Resamples:
        """Random splits in two halves, the same for every cell tested on this test set."""
        bits = generator(self.seed, "alpha_hat", self.dataset_id, self.repeat_index)
        return disjoint_halves(bits, self.y_true.size, self.resamples)


@dataclass(frozen=True, slots=True)
class Repeat:
    """The runs of one cell that share a test set, in the order of their run index.

    Attributes
    ----------
    label : unsigned integer array (run, sample)
    margin : float array (run, sample) or None
    """

    held_out: HeldOut
    label: NDArray[np.unsignedinteger[Any]]
    margin: NDArray[np.floating[Any]] | None

    @property
    def n_runs(self) -> int:
        """Number of runs (K)."""
        return int(self.label.shape[0])

    @property
    def n_test(self) -> int:
        """Number of test points (N_test)."""
        return int(self.label.shape[1])


@dataclass(frozen=True, slots=True)
class Finished:
    """A metric's values for one repeat.

    Attributes
    ----------
    runs : mapping of column name to array (run,)
    pairs : mapping of column name to array (pair,)
        Pairs i < j of run positions, i first, as `numpy.triu_indices` lists them.
    repeat : mapping of column name to array of shape ()
    """

    runs: Values = field(default_factory=dict)
    pairs: Values = field(default_factory=dict)
    repeat: Values = field(default_factory=dict)


def nothing(repeat: Repeat) -> None:
    """Prepare nothing: each part needs only the repeat itself."""
    del repeat


def stack(partials: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Put the parts of a repeat's runs together, in order."""
    return np.concatenate(partials)


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is computed.

    Attributes
    ----------
    name : str
    needs : Need
        The array it is computed from.
    source : str
        Where the quantity is defined.
    runs, pairs, repeat : tuple of Column
        The columns it gives to the tables of runs, of pairs and of repeats.
    prepare : callable
        What all parts share, computed once for a repeat.
    chunk : callable
        (repeat, prepared, start, stop) to an array (stop - start, …): the runs start … stop - 1.
    combine : callable
        The arrays of consecutive parts to one array (run, …).
    finish : callable
        (repeat, array, options) to the values of the columns; NaN means undefined.
    """

    name: str
    needs: Need
    source: str
    chunk: Callable[[Repeat, Any, int, int, Options], NDArray[Any]]
    finish: Callable[[Repeat, NDArray[Any], Options], Finished]
    prepare: Callable[[Repeat], Any] = nothing
    combine: Callable[[Sequence[NDArray[Any]]], NDArray[Any]] = stack
    runs: tuple[Column, ...] = ()
    pairs: tuple[Column, ...] = ()
    repeat: tuple[Column, ...] = ()
