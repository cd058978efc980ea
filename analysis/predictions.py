"""The predictions of one group: one dataset × one classifier, as lazy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import dask.array as da
import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.metric import Need, Probability
from analysis.options import Options, Probe

ArrayName = Literal["margin", "confidence", "score"]

RUN_COLUMNS = ("row", "cell", "repeat_index", "run_index", "identical")


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What the runs of one dataset and classifier predict, and which run each row is.

    Attributes
    ----------
    dataset, classifier : str
        Names, for tables and figures.
    dataset_id : str
        Identity of the dataset; with `seed` it keys the resamples of α̂, so that all cells of a
        test set share them.
    seed : int
        The sweep's seed.
    label : dask array (run, epoch, sample), unsigned integer
        Predicted class.
    margin : dask array (run, epoch, sample), float, or None
        One number a point: the logit gap for two classes, the true-class margin for more.
    score : dask array (run, epoch, sample, class), float, or None
        Scores of all classes; used where `margin` is not stored.
    confidence : dask array (run, epoch, sample), float, or None
        Probability of the predicted class.
    y_true : integer array (repeat, sample)
        True class; row r belongs to repeat index r. A row that holds what is no class is a problem
        of its repeats alone (`truth_problem`).
    class_names : tuple of str
        In the order of the class index; with two classes, index 1 is the positive one.
    probability : {"softmax", "ovr", "none"}
        How scores become probabilities.
    runs : polars frame
        The finished runs only, in any order: `row` (position on the run axis), `cell`,
        `repeat_index`, `run_index` (integers), `identical` (true where the row is a copy of
        another run of its repeat, because nothing of its training varies).
    runs_planned : int or mapping of cell to int, or None
        Runs that a repeat should have, for the coverage; None where that isn't known.
    """

    dataset: str
    classifier: str
    dataset_id: str
    seed: int
    label: da.Array
    margin: da.Array | None = None
    score: da.Array | None = None
    confidence: da.Array | None = None
    y_true: NDArray[np.integer[Any]]
    class_names: tuple[str, ...]
    probability: Probability = "softmax"
    runs: pl.DataFrame = field(repr=False)
    runs_planned: int | Mapping[int, int] | None = None

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
        if self.label.ndim != 3:
            raise ValueError(f"label has shape {self.label.shape}; (run, epoch, sample) is needed")
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
        """`y_true` with class 0 for what is no class, so that metrics need not mind it.

        What they find of such a test set is not used.
        """
        wrong = self._no_class(self.y_true)
        return np.where(wrong, 0, self.y_true) if wrong.any() else self.y_true

    def truth_problem(self, repeat_index: int) -> str | None:
        """Say why nothing can be computed on a test set, if nothing can."""
        y_true = self.y_true[repeat_index]
        wrong = y_true[self._no_class(y_true)]
        if wrong.size == 0:
            return None
        return f"a true class is {wrong[0]}, and there are {self.n_classes} classes"

    def _no_class(self, y_true: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        return np.asarray((y_true < 0) | (y_true >= self.n_classes))

    @property
    def has_margin(self) -> bool:
        """Whether one number a point can be had, as α̂ needs it."""
        return self.margin is not None or self.score is not None

    def probe(self, options: Options) -> Probe:
        """Return what a point is reduced to for α̂."""
        return options.probe or ("gap" if self.n_classes == 2 else "true_margin")

    def source(self, need: Need) -> ArrayName | None:
        """Return the array beside the labels that answers a need, None for the labels alone.

        Raises
        ------
        ValueError
            Where nothing that was kept does; the message says what would.
        """
        if need == "label":
            return None
        if need in ("confidence", "score") and self.probability == "none":
            raise ValueError("needs probabilities, and the classifier gives none")
        if self.has_margin and (need == "margin" or self.n_classes == 2):
            return "margin"
        if need == "confidence" and self.confidence is not None:
            return "confidence"
        if need != "margin" and self.score is not None:
            return "score"
        enough = need in ("margin", "confidence") or self.n_classes == 2
        raise ValueError("needs keep.scores = " + ('"margin" or "all"' if enough else '"all"'))

    def epoch_index(self, epoch: int) -> int:
        """Return the position of an epoch, counted from the first."""
        epochs = self.label.shape[1]
        if not -epochs <= epoch < epochs:
            raise ValueError(
                f"epoch is {epoch}; {epochs} are stored, so it goes from {-epochs} to {epochs - 1}"
            )
        return int(epoch % epochs)


def probe(
    score: NDArray[np.floating[Any]],
    repeat_of_row: NDArray[np.integer[Any]],
    y_true: NDArray[np.integer[Any]],
) -> NDArray[np.float32]:
    """Reduce scores to one number a point: the gap of two classes, the true-class margin of more.

    Parameters and result are those of `true_margin`.
    """
    if score.shape[2] == 2:
        gap: NDArray[np.float32] = score[..., 1].astype(np.float32) - score[..., 0]
        return gap
    return true_margin(score, repeat_of_row, y_true)


def true_margin(
    score: NDArray[np.floating[Any]],
    repeat_of_row: NDArray[np.integer[Any]],
    y_true: NDArray[np.integer[Any]],
) -> NDArray[np.float32]:
    """Return the score of the true class minus the largest other.

    Parameters
    ----------
    score : float array (run, sample, class)
    repeat_of_row : integer array (run,)
        Which row of `y_true` each run was tested on.
    y_true : integer array (repeat, sample)

    Returns
    -------
    float32 array (run, sample)
        Negative where another class scores higher.
    """
    # A copy, because the true class is blanked out below.
    others = np.array(score, dtype=np.float32)
    index = y_true[repeat_of_row].astype(np.intp)[..., None]
    true = np.take_along_axis(others, index, axis=2)[..., 0]
    np.put_along_axis(others, index, -np.inf, axis=2)
    result: NDArray[np.float32] = true - others.max(axis=2)
    return result
