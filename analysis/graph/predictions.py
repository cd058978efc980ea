"""The predictions of one group, one dataset × one classifier, read when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics.metric import Metric, Need, Probability
from manyseed.analysis.metrics.registry import asked
from manyseed.analysis.options import Options, snapshot_index
from manyseed.analysis.refused import NotKept, Refused

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

    Attributes
    ----------
    members : int
        Members per run.
    sizes : tuple of int
        Sizes of a run's ensembles of its first members, ascending; the last has all members.
    score : LazyArray or None
        Log-probabilities of these ensembles (run, size, sample, class), or of single members (run,
        member, sample, class); for two classes their gap, without the dimension class. None if
        only the whole ensemble is stored, which is the run's prediction.
    single : bool
        Whether `score` holds single members.
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
        """Return the array that a need is computed from, None if labels are enough.

        Raises
        ------
        NotKept
            If no stored array meets the need.
        Refused
            If the classifier cannot give it.
        """
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

    Returns
    -------
    dict of metric name to Refused
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
