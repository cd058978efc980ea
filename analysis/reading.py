"""Rows of lazy arrays, read chunk by chunk by the task that needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.core import flatten
from dask.local import get_sync
from dask.optimization import cull
from numpy.typing import NDArray

from analysis.metric import HeldOut, Need
from analysis.options import Options
from analysis.predictions import Predictions, probe

Array = NDArray[Any]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk gives: rows `there` of it are the rows `here` of what is read."""

    key: Any
    here: slice | Positions
    there: slice | Positions


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a lazy array, and the part of its graph that computes them."""

    graph: Mapping[Any, Any]
    pieces: tuple[Piece, ...]
    epoch: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    of_scores: bool

    def load(self, y_true: Array, test_set: Positions) -> Array:
        """Read the rows in this thread, a chunk at a time.

        Parameters
        ----------
        y_true : integer array (test set, sample)
            True classes, for what scores are reduced to.
        test_set : integer array (row,)
            Which of them each row was tested on.
        """
        values = np.empty(self.shape, self.dtype)
        for piece in self.pieces:
            part = get_sync(self.graph, piece.key)[piece.there, self.epoch]
            values[piece.here] = (
                probe(part, test_set[piece.here], y_true) if self.of_scores else part
            )
        return values


@dataclass(frozen=True, slots=True)
class Source:
    """One epoch of a lazy array (run, epoch, …), in chunks of whole runs.

    Attributes
    ----------
    graph : mapping
        Optimised once, for all that is read from it.
    keys : tuple
        Of the chunks.
    edges : int64 array (chunk + 1,)
        Where they begin, and where the last ends.
    epoch : int
        Position of the epoch.
    shape : tuple of int
        Of one run, as it is read.
    dtype : numpy dtype
    of_scores : bool
        Whether the array holds scores that are reduced to the probe of α̂ when they are read.
    """

    graph: Mapping[Any, Any]
    keys: tuple[Any, ...]
    edges: Positions
    epoch: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    of_scores: bool

    @classmethod
    def of(cls, array: da.Array, epoch: int, *, of_scores: bool = False) -> Source:
        """Prepare to read an array; nothing is read yet."""
        whole = array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
        keys = tuple(flatten(whole.__dask_keys__()))
        # float16 sorts slowly, and float32 holds the same values.
        narrow = of_scores or array.dtype == np.float16
        return cls(
            graph=dict(whole.__dask_optimize__(whole.__dask_graph__(), list(keys))),
            keys=keys,
            edges=np.cumsum([0, *whole.chunks[0]]),
            epoch=epoch,
            shape=array.shape[2:3] if of_scores else array.shape[2:],
            dtype=np.dtype(np.float32) if narrow else array.dtype,
            of_scores=of_scores,
        )

    @property
    def run_bytes(self) -> int:
        """Bytes of one run."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def rows(self, wanted: Positions) -> Rows:
        """Say how to read rows, in the order they are asked for."""
        chunk = np.searchsorted(self.edges, wanted, side="right") - 1
        pieces = []
        for number in np.unique(chunk):
            here = np.flatnonzero(chunk == number)
            there = wanted[here] - self.edges[number]
            pieces.append(Piece(self.keys[number], _slice(here), _slice(there)))
        graph, _ = cull(self.graph, [piece.key for piece in pieces])
        shape = (len(wanted), *self.shape)
        return Rows(graph, tuple(pieces), self.epoch, shape, self.dtype, self.of_scores)


def _slice(positions: Positions) -> slice | Positions:
    """Return neighbours in order as a slice, which copies nothing."""
    if np.all(np.diff(positions) == 1):
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions


@dataclass(frozen=True, slots=True)
class Sources:
    """The arrays that metrics need, (run, sample) or (run, sample, class), by name."""

    arrays: Mapping[str, Source]

    @classmethod
    def of(cls, predictions: Predictions, needs: Sequence[Need], options: Options) -> Sources:
        """Find the arrays behind what is needed."""
        arrays = {"label": _source(predictions, "label", options.epoch)}
        for need in needs:
            name = predictions.source(need)
            if name is not None and name not in arrays:
                arrays[name] = _source(predictions, name, options.epoch)
        if options.reference_epoch is not None and "margin" in arrays:
            arrays["reference_margin"] = _source(predictions, "margin", options.reference_epoch)
        return cls(arrays)

    @property
    def run_bytes(self) -> int:
        """Bytes of one run."""
        return sum(source.run_bytes for source in self.arrays.values())

    def only(self, name: str) -> Sources:
        """Return one of the arrays."""
        return Sources({name: self.arrays[name]})

    def rows(self, wanted: Positions) -> dict[str, Rows]:
        """Say how to read rows of each array."""
        return {name: source.rows(wanted) for name, source in self.arrays.items()}


def _source(predictions: Predictions, name: str, epoch: int) -> Source:
    of_scores = name == "margin" and predictions.margin is None
    array: da.Array = getattr(predictions, "score" if of_scores else name)
    return Source.of(array, predictions.epoch_index(epoch), of_scores=of_scores)


def load(
    rows: Mapping[str, Rows], held_out: Sequence[HeldOut], sizes: Sequence[int]
) -> dict[str, Array]:
    """Read rows of each array; the first `sizes[0]` were tested on `held_out[0]`, and so on."""
    y_true = np.stack([tested.y_true for tested in held_out])
    test_set = np.repeat(np.arange(len(sizes)), sizes)
    return {name: of.load(y_true, test_set) for name, of in rows.items()}
