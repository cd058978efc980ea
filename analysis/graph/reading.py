"""Rows of lazy arrays, read chunk by chunk by the task that needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.graph.predictions import LazyArray, Predictions
from manyseed.analysis.metrics.metric import HeldOut, Need
from manyseed.analysis.metrics.scores import probe
from manyseed.analysis.options import Options

Array = NDArray[Any]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows from one chunk: `in_chunk` are their positions there, `in_result` in what is read."""

    chunk: int
    in_result: slice | Positions
    in_chunk: slice | Positions


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an array, repeat after repeat: the pieces of each repeat."""

    source: Source
    pieces: tuple[tuple[Piece, ...], ...]


class Reader:
    """Reads rows in this thread; keeps the last chunk, where the next repeat mostly begins."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._number: int | None = None
        self._chunk: Any = None

    def read(self, number: int, y_true: Array) -> Array:
        """Return the rows of one repeat, which must not be changed.

        Contiguous rows of one chunk are not copied.

        Parameters
        ----------
        number : int
            Which of the repeats.
        y_true : integer array (sample,)
            Its true classes, for reducing scores.
        """
        source, pieces = self._rows.source, self._rows.pieces[number]
        parts = [self._part(piece, y_true) for piece in pieces]
        if len(pieces) == 1 and isinstance(pieces[0].in_result, slice):
            return parts[0]
        values = np.empty((sum(map(len, parts)), *source.shape), source.dtype)
        for piece, part in zip(pieces, parts, strict=True):
            values[piece.in_result] = part
        return values

    def _part(self, piece: Piece, y_true: Array) -> Array:
        source = self._rows.source
        if piece.chunk != self._number:
            self._number = self._chunk = None  # make room first
            self._chunk = source.chunk(piece.chunk)
            self._number = piece.chunk
        part = self._chunk[piece.in_chunk]
        if source.of_scores:
            return probe(part, np.zeros(len(part), dtype=np.intp), y_true[None])
        return np.ascontiguousarray(part, dtype=source.dtype)


@dataclass(frozen=True, slots=True)
class Source:
    """One epoch of an array (run, epoch, …), in chunks of whole runs.

    Attributes
    ----------
    array : LazyArray
    length : int
        Runs per chunk.
    epoch : int
        Position of the epoch.
    shape : tuple of int
        Shape of one run as read.
    dtype : numpy dtype
        Type as read.
    of_scores : bool
        Whether the array holds scores, to be reduced to the probe of α̂ when read.
    """

    array: LazyArray
    length: int
    epoch: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    of_scores: bool

    @classmethod
    def of(cls, array: LazyArray, epoch: int, *, of_scores: bool = False) -> Source:
        """Prepare to read an array; nothing is read yet."""
        length, *_ = getattr(array, "chunks", None) or array.shape
        # float16 sorts slowly, and float32 holds the same values.
        narrow = of_scores or array.dtype == np.float16
        return cls(
            array=array,
            length=max(1, length),
            epoch=epoch,
            shape=array.shape[2:3] if of_scores else array.shape[2:],
            dtype=np.dtype(np.float32) if narrow else array.dtype,
            of_scores=of_scores,
        )

    @property
    def run_bytes(self) -> int:
        """Bytes of one run."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def chunk(self, number: int) -> Array:
        """Read the runs of a chunk."""
        first = number * self.length
        last = min(first + self.length, self.array.shape[0])
        return np.asarray(self.array[first:last, self.epoch])

    def rows(self, wanted: Sequence[Positions]) -> Rows:
        """Plan the reading of each repeat's rows, in the given order."""
        return Rows(self, tuple(tuple(self._pieces(rows)) for rows in wanted))

    def _pieces(self, wanted: Positions) -> Iterator[Piece]:
        chunk = wanted // self.length
        for number in np.unique(chunk).tolist():
            here = np.flatnonzero(chunk == number)
            yield Piece(number, _slice(here), _slice(wanted[here] - number * self.length))


def _slice(positions: Positions) -> slice | Positions:
    """Return consecutive positions as a slice, which copies nothing."""
    if np.all(np.diff(positions) == 1):
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions


@dataclass(frozen=True, slots=True)
class Sources:
    """The arrays that metrics need, (run, sample) or (run, sample, class), by name."""

    arrays: Mapping[str, Source]

    @classmethod
    def of(
        cls, predictions: Predictions, needs: Sequence[Need], options: Options, position: int
    ) -> Sources:
        """Find the arrays that meet `needs` at the position of one snapshot."""
        arrays = {"label": _source(predictions, "label", position)}
        for need in needs:
            name = predictions.source(need)
            if name is not None and name not in arrays:
                arrays[name] = _source(predictions, name, position)
        reference = predictions.reference_position(options)
        if reference not in (None, position) and "margin" in arrays:
            arrays["reference_margin"] = _source(predictions, "margin", reference)
        return cls(arrays)

    @property
    def run_bytes(self) -> int:
        """Bytes of one run."""
        return sum(source.run_bytes for source in self.arrays.values())

    def only(self, name: str) -> Sources:
        """Return one of the arrays alone."""
        return Sources({name: self.arrays[name]})

    def rows(self, wanted: Sequence[Positions]) -> dict[str, Rows]:
        """Plan the reading of each repeat's rows, for each array."""
        return {name: source.rows(wanted) for name, source in self.arrays.items()}


def _source(predictions: Predictions, name: str, epoch: int) -> Source:
    of_scores = name == "margin" and predictions.margin is None
    array: LazyArray = getattr(predictions, "score" if of_scores else name)
    return Source.of(array, epoch, of_scores=of_scores)


def readers(rows: Mapping[str, Rows]) -> dict[str, Reader]:
    """Open the rows of each array, for one task."""
    return {name: Reader(of_array) for name, of_array in rows.items()}


def read(opened: Mapping[str, Reader], number: int, held_out: HeldOut) -> dict[str, Array]:
    """Read one repeat's rows of each array."""
    return {name: reader.read(number, held_out.y_true) for name, reader in opened.items()}
