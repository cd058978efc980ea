"""The predictions of one group, one dataset × one classifier, read chunk by chunk when needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis import NotKept, Refused
from manyseed.analysis.metrics.formulas import probe
from manyseed.analysis.metrics.metric import HeldOut, Metric, Need, Probability
from manyseed.analysis.metrics.registry import asked
from manyseed.analysis.options import Options, snapshot_index

ArrayName = Literal["margin", "confidence", "score"]

RUN_COLUMNS = ("row", "cell", "repeat_index", "run_index", "identical")
TRAIN_ACCURACY = "train_accuracy"


class LazyArray(Protocol):
    """An array that is read when it is indexed: from Zarr, from HDF5, or in memory.

    If it has ``chunks``, the shape of a chunk, it is read in chunks of that many runs; else whole.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Length along each dimension."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its values."""

    def __getitem__(self, key: Any) -> Any:
        """Read a slice of runs at the position of one epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensembled:
    """Stored arrays of runs that are ensembles themselves, each of several members.

    `members`: members per run. `sizes`: sizes of a run's ensembles of its first members, ascending;
    the last has all members. `score`: log-probabilities of these ensembles (run, size, sample,
    class), or of single members (run, member, sample, class); for two classes their gap, without
    the dimension class. None if only the whole ensemble is stored, which is the run's prediction.
    `single`: whether `score` holds single members.
    """

    members: int
    sizes: tuple[int, ...]
    score: LazyArray | None = None
    single: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """The predictions of one dataset and classifier, and which run each row is.

    Attributes
    ----------
    dataset, classifier : str
        Names, for tables and figures.
    dataset_id : str
        Identity of the dataset; with `seed` it keys the resamples of α̂, so that all cells with the
        same test set share them.
    seed : int
        The sweep's seed.
    label : LazyArray (run, epoch, sample), unsigned integer
        Predicted class.
    margin : LazyArray (run, epoch, sample), float, or None
        One number per point: the logit gap for two classes, the true-class margin for more.
    score : LazyArray (run, epoch, sample, class), float, or None
        Scores of all classes; used where `margin` is not stored.
    confidence : LazyArray (run, epoch, sample), float, or None
        Probability of the predicted class.
    y_true : integer array (repeat, sample)
        True class; row r belongs to repeat index r. A row with an invalid class is a problem of
        its repeats only (`truth_problem`).
    class_names : tuple of str
        In the order of the class index; with two classes, index 1 is the positive one.
    probability : {"softmax", "ovr", "none"}
        How scores become probabilities.
    runs : polars frame
        The finished runs only, in any order: `row` (position on the run axis), `cell`,
        `repeat_index`, `run_index` (integers), `identical` (true if the row is a copy of another
        run of its repeat, because nothing in its training varies). Optionally `train_accuracy`
        (float): the share of its training rows that the run's final model gets right, null if
        unknown.
    runs_planned : int or mapping of cell to int, or None
        Planned runs of a repeat, for the coverage; None if unknown.
    epochs : tuple of int or None
        Epochs trained at each snapshot, ascending; None numbers them from 0.
    ensembled : Ensembled or None
        Set if each run is an ensemble from one training.
    test_index : integer array (repeat, sample) or None
        Row of the source that each test point is; None if unknown.
    """

    dataset: str
    classifier: str
    dataset_id: str
    seed: int
    label: LazyArray
    margin: LazyArray | None = None
    score: LazyArray | None = None
    confidence: LazyArray | None = None
    y_true: NDArray[np.integer[Any]]
    class_names: tuple[str, ...]
    probability: Probability = "softmax"
    runs: pl.DataFrame = field(repr=False)
    runs_planned: int | Mapping[int, int] | None = None
    epochs: tuple[int, ...] | None = None
    ensembled: Ensembled | None = None
    test_index: NDArray[np.integer[Any]] | None = None

    def __post_init__(self) -> None:
        """Refuse arrays and frames that don't fit each other."""
        if self.probability not in get_args(Probability):
            raise ValueError(
                f"probability is {self.probability!r}; there are {', '.join(get_args(Probability))}"
            )
        if len(self.class_names) < 2:
            raise ValueError(f"a classifier needs two classes or more, got {self.class_names!r}")
        missing = [name for name in RUN_COLUMNS if name not in self.runs.columns]
        if missing:
            raise ValueError(f"the frame of runs lacks {', '.join(missing)}")
        if len(self.label.shape) != 3:
            raise ValueError(f"label has shape {self.label.shape}; (run, epoch, sample) is needed")
        if len(self.trained) != self.label.shape[1]:
            raise ValueError(
                f"{len(self.trained)} epochs are named; label has {self.label.shape[1]}"
            )
        for name in ("margin", "confidence"):
            array = getattr(self, name)
            if array is not None and array.shape != self.label.shape:
                raise ValueError(f"{name} has shape {array.shape}, label {self.label.shape}")
        if self.score is not None and self.score.shape != (*self.label.shape, self.n_classes):
            raise ValueError(
                f"score has shape {self.score.shape}; label {self.label.shape} and "
                f"{self.n_classes} classes need {(*self.label.shape, self.n_classes)}"
            )
        if self.y_true.ndim != 2 or self.y_true.shape[1] != self.label.shape[2]:
            raise ValueError(
                f"y_true has shape {self.y_true.shape}; (repeat, {self.label.shape[2]}) is needed"
            )
        self._check_runs()

    def _check_runs(self) -> None:
        if self.runs.is_empty():
            return
        for name, size in (("row", self.label.shape[0]), ("repeat_index", self.y_true.shape[0])):
            column = self.runs[name].to_numpy()
            if column.min() < 0 or column.max() >= size:
                raise ValueError(
                    f"{name} goes from {column.min()} to {column.max()}; the arrays have {size}"
                )
        for key in (["row"], ["cell", "repeat_index", "run_index"]):
            twice = self.runs.filter(pl.struct(key).is_duplicated())
            if not twice.is_empty():
                values = ", ".join(f"{name} {twice[name][0]}" for name in key)
                raise ValueError(f"the frame of runs has {values} more than once")

    @property
    def n_classes(self) -> int:
        """Number of classes of the dataset."""
        return len(self.class_names)

    @property
    def n_test(self) -> int:
        """Number of test points."""
        return int(self.label.shape[2])

    @property
    def true_class(self) -> NDArray[np.integer[Any]]:
        """`y_true` with 0 for invalid classes, so that metrics can run; the results are unused."""
        invalid = self._is_invalid(self.y_true)
        return np.where(invalid, 0, self.y_true) if invalid.any() else self.y_true

    def truth_problem(self, repeat_index: int) -> str | None:
        """Return why nothing can be computed on a test set, None if it can."""
        y_true = self.y_true[repeat_index]
        invalid = y_true[self._is_invalid(y_true)]
        if invalid.size == 0:
            return None
        return f"a true class is {invalid[0]}, and there are {self.n_classes} classes"

    def _is_invalid(self, y_true: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        return np.asarray((y_true < 0) | (y_true >= self.n_classes))

    @property
    def has_margin(self) -> bool:
        """Whether there is one number per point for α̂, or scores to derive it from."""
        return self.margin is not None or self.score is not None

    def probe(self, options: Options) -> str:
        """Return the probe of α̂."""
        return options.probe or ("gap" if self.n_classes == 2 else "true_margin")

    def source(self, need: Need) -> ArrayName | None:
        """Return the array that a need is computed from, None if labels are enough."""
        if need == "label":
            return None
        if need in ("confidence", "score") and self.probability == "none":
            raise Refused("needs", need, "needs probabilities, and the classifier gives none")
        if self.has_margin and (need == "margin" or self.n_classes == 2):
            return "margin"
        if need == "confidence" and self.confidence is not None:
            return "confidence"
        if need != "margin" and self.score is not None:
            return "score"
        enough = need in ("margin", "confidence") or self.n_classes == 2
        raise NotKept("needs", need, "was not kept", ("margin", "all") if enough else ("all",))

    @property
    def trained(self) -> tuple[int, ...]:
        """Epochs trained at each snapshot."""
        return tuple(range(self.label.shape[1])) if self.epochs is None else self.epochs

    def positions(self, options: Options) -> tuple[int, ...]:
        """Return the positions on the epoch axis of the snapshots to analyse, ascending."""
        return tuple(sorted({self._position("snapshots", each) for each in options.snapshots}))

    def reference_position(self, options: Options) -> int | None:
        """Return the position of α̂'s reference snapshot; None for the candidate's."""
        if options.reference_snapshot is None:
            return None
        return self._position("reference_snapshot", options.reference_snapshot)

    def _position(self, option: str, snapshot: int) -> int:
        index = snapshot_index(self.trained, snapshot)
        if index is None:
            reason = f"{self.dataset} × {self.classifier} does not have it"
            raise Refused(option, snapshot, reason, self.trained)
        return index


def unavailable(predictions: Predictions, options: Options) -> dict[str, Refused]:
    """Return which requested metrics can't be computed from the stored predictions, and why.

    Their columns are null in the tables.
    """
    reasons = {}
    for metric in asked(options):
        try:
            predictions.source(metric.needs)
            metric.allowed(predictions.n_classes, predictions.n_test, options)
        except Refused as reason:
            reasons[metric.name] = reason
    return reasons


def computed(predictions: Predictions, options: Options) -> tuple[Metric, ...]:
    """Return the requested metrics that the stored predictions allow."""
    missing = unavailable(predictions, options)
    return tuple(metric for metric in asked(options) if metric.name not in missing)


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

        `number`: which of the repeats. `y_true`, integer array (sample,): its true classes, for
        reducing scores.
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
    """One epoch of an array (run, epoch, …), in chunks of whole runs."""

    array: LazyArray
    length: int  # runs per chunk
    epoch: int  # position of the epoch
    shape: tuple[int, ...]  # shape of one run as read
    dtype: np.dtype[Any]  # type as read
    of_scores: bool  # whether the array holds scores, to be reduced to the probe of α̂ when read

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
