"""Rows of lazy arrays, read chunk by chunk by the task that needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    """Rows of a lazy array, repeat after repeat, and the part of its graph that computes them.

    Attributes
    ----------
    graph : mapping
    pieces : tuple of tuple of Piece
        Of each repeat.
    epoch, shape, dtype, of_scores
        As `Source` has them.
    """

    graph: Mapping[Any, Any]
    pieces: tuple[tuple[Piece, ...], ...]
    epoch: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    of_scores: bool


class Reader:
    """Reads rows in this thread; the last chunk is kept: the next repeat mostly begins in it."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._key: Any = None
        self._chunk: Any = None

    def read(self, number: int, y_true: Array) -> Array:
        """Return the rows of one repeat, to be looked at only.

        Rows that lie side by side in one chunk are not copied out of it.

        Parameters
        ----------
        number : int
            Which of the repeats.
        y_true : integer array (sample,)
            Its true classes, for what scores are reduced to.
        """
        rows = self._rows
        pieces = rows.pieces[number]
        parts = [self._part(piece, y_true) for piece in pieces]
        if len(pieces) == 1 and isinstance(pieces[0].here, slice):
            return parts[0]
        values = np.empty((sum(map(len, parts)), *rows.shape), rows.dtype)
        for piece, part in zip(pieces, parts, strict=True):
            values[piece.here] = part
        return values

    def _part(self, piece: Piece, y_true: Array) -> Array:
        if piece.key != self._key:
            self._key = self._chunk = None  # make room first
            graph, _ = cull(self._rows.graph, [piece.key])  # dask orders all that it is given
            self._chunk = get_sync(graph, piece.key)
            self._key = piece.key
        part = self._chunk[piece.there, self._rows.epoch]
        if self._rows.of_scores:
            return probe(part, np.zeros(len(part), dtype=np.intp), y_true[None])
        return np.ascontiguousarray(part, dtype=self._rows.dtype)


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

    def rows(self, wanted: Sequence[Positions]) -> Rows:
        """Say how to read the rows of each repeat, in the order they are asked for."""
        pieces = tuple(tuple(self._pieces(own)) for own in wanted)
        keys = dict.fromkeys(piece.key for own in pieces for piece in own)
        graph, _ = cull(self.graph, list(keys))
        return Rows(graph, pieces, self.epoch, self.shape, self.dtype, self.of_scores)

    def _pieces(self, wanted: Positions) -> Iterator[Piece]:
        chunk = np.searchsorted(self.edges, wanted, side="right") - 1
        for number in np.unique(chunk):
            here = np.flatnonzero(chunk == number)
            there = wanted[here] - self.edges[number]
            yield Piece(self.keys[number], _slice(here), _slice(there))


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

    def rows(self, wanted: Sequence[Positions]) -> dict[str, Rows]:
        """Say how to read the rows of each repeat, of each array."""
        return {name: source.rows(wanted) for name, source in self.arrays.items()}


def _source(predictions: Predictions, name: str, epoch: int) -> Source:
    of_scores = name == "margin" and predictions.margin is None
    array: da.Array = getattr(predictions, "score" if of_scores else name)
    return Source.of(array, predictions.epoch_index(epoch), of_scores=of_scores)


def readers(rows: Mapping[str, Rows]) -> dict[str, Reader]:
    """Open the rows of each array, for one task."""
    return {name: Reader(of) for name, of in rows.items()}


def read(opened: Mapping[str, Reader], number: int, held_out: HeldOut) -> dict[str, Array]:
    """Read the rows of one repeat, of each array."""
    return {name: reader.read(number, held_out.y_true) for name, reader in opened.items()}
