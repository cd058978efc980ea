"""The content of a file of predictions, whatever its format."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.jobs.cells import UNPERTURBED
from manyseed.jobs.run import Probability
from manyseed.jobs.similar import quoted, same_spelling
from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.paths import encode_name
from manyseed.orchestrator.store.schema import Keep, ScoreType

Positions = NDArray[np.int64]

DEFAULTS: Mapping[str, Any] = {**UNPERTURBED, "hparams": "default", "vary": "init+batch"}
"""The attributes that distinguish cells, with their default values."""

ATTRIBUTES = (*DEFAULTS, "repeat", "run", "fit_seconds")
_LARGEST = {"repeat": 2**15 - 2, "run": 2**16 - 1}  # the store counts in int16 and uint16
_MAX_WORD = 200  # letters of an attribute's value
_MAX_CLASS_NAME = 1000
MAX_CLASSES = 2**16 - 1
_MAX_POINT = 2**31 - 1
TEST_SETS_BYTES = 2**31 - 2**20  # limit for a chunk that holds all of them
_MAX_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Names:
    """The names that the user gave for the dataset and the classifier of predictions."""

    dataset: str | None = None
    classifier: str | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions of some runs.

    Attributes
    ----------
    label : integer array (run, epoch, sample) or None
        None if it follows from the scores.
    scores : float array (run, sample) of logit gaps or (run, sample, class), or None
    floored : int
        Number of test points with a probability that was raised to have a finite logarithm.
    """

    label: NDArray[np.integer[Any]] | None
    scores: NDArray[np.floating[Any]] | None
    floored: int = 0


@dataclass(frozen=True, slots=True)
class PredictionFile:
    """Predictions of one dataset and classifier, read on demand.

    Attributes
    ----------
    file : Path
        For messages, and recorded as the origin.
    dataset, classifier : str
    class_names : tuple of str
    epochs : tuple of int
    keep, dtype
        Which scores are stored, and their type.
    probability
        How scores become probabilities.
    y_true, test_index : integer arrays (repeat, sample)
    runs : DataFrame
        One row per run, in the order of positions: `ATTRIBUTES` and `copy` (whether it is a copy of
        another run of its repeat).
    read : callable
        Takes positions, returns their predictions.
    numbered : bool
        Whether the file itself numbers its runs, instead of their order.
    """

    file: Path
    dataset: str
    classifier: str
    class_names: tuple[str, ...]
    epochs: tuple[int, ...]
    keep: Keep
    dtype: ScoreType
    probability: Probability
    y_true: NDArray[np.integer[Any]]
    test_index: NDArray[np.integer[Any]]
    runs: pl.DataFrame
    read: Callable[[Positions], Predicted]
    numbered: bool = True

    @property
    def canonical(self) -> dict[str, str]:
        """The description of the dataset: equal test sets make equal datasets."""
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        for array in (self.y_true, self.test_index):
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return {"source": "imported", "digest": digest.hexdigest()[:32]}


def check(source: PredictionFile) -> None:
    """Refuse predictions that a sweep can't hold, before anything is written.

    Raises
    ------
    UserError
    """

    def refuse(key: str, message: str, value: object = None, remedy: str | None = None) -> NoReturn:
        shown = {} if value is None else {"value": value}
        raise UserError(message, file=source.file, key=key, remedy=remedy, **shown)

    for key, name in (("dataset", source.dataset), ("classifier", source.classifier)):
        if not name or not _is_plain(name):
            remedy = f"give another with --{key} NAME"
            refuse(key, "a name must not be empty or have control characters", name, remedy)
        try:
            encode_name(name)
        except ValueError as error:
            refuse(key, str(error), name, f"give another with --{key} NAME")
    if not 2 <= len(source.class_names) <= MAX_CLASSES:
        refuse("class_names", f"there are {len(source.class_names):,} classes, not 2 to 65,535")
    for name in source.class_names:
        if not 1 <= len(name) <= _MAX_CLASS_NAME or not _is_plain(name):
            limits = f"1 to {_MAX_CLASS_NAME} letters and no control characters"
            refuse("class_names", f"a class may have {limits}", name)
    epochs = source.epochs
    if list(epochs) != sorted(set(epochs)) or not 0 <= epochs[0] <= epochs[-1] <= _MAX_POINT:
        refuse("epoch", "epochs must be increasing whole numbers from 0")
    for key, values in (("y_true", source.y_true), ("test_index", source.test_index)):
        if values.dtype.kind not in "iub" or values.ndim != 2 or not values.size:
            refuse(key, f"has dtype {values.dtype}; whole numbers are needed")
        most = len(source.class_names) - 1 if key == "y_true" else _MAX_POINT
        if not 0 <= int(values.min()) <= int(values.max()) <= most:
            refuse(key, f"goes from {values.min()} to {values.max()}, not from 0 to {most:,}")
    if source.y_true.shape != source.test_index.shape:
        refuse("test_index", f"has shape {source.test_index.shape}, not {source.y_true.shape}")
    for repeat, index in enumerate(source.test_index):
        places, counts = np.unique(index, return_counts=True)
        if (counts > 1).any():
            refuse(
                "test_index",
                f"names the point {places[counts > 1][0]} twice in repeat {repeat}",
                remedy="give each point of a test set a number of its own, or leave test_index out",
            )
    if 8 * source.y_true.size > TEST_SETS_BYTES:
        shape = " × ".join(f"{n:,}" for n in source.y_true.shape)
        refuse("repeat", f"{shape} (repeats × points) are more test sets than a sweep can hold")


def _is_plain(text: str) -> bool:
    return not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


def attributes(given: Mapping[str, Any], n_runs: int, file: Path) -> pl.DataFrame:
    """Return the attributes of each run, with defaults filled in.

    Raises
    ------
    UserError
        For an unknown attribute, one of another length, or two runs with the same address.
    """
    for name, values in given.items():
        if name not in ATTRIBUTES:
            raise UserError(
                "not an attribute of a run", file=file, key=name, remedy=nearest(name, ATTRIBUTES)
            )
        if np.ndim(values) != 1:
            raise UserError("is not a list of values, one per run", file=file, key=name)
        if len(values) != n_runs:
            raise UserError(
                f"has {len(values):,} values, but there are {n_runs:,} runs", file=file, key=name
            )
    columns = {
        name: pl.Series(name, _plain(given[name], name, file))
        if name in given
        else pl.repeat(value, n_runs, eager=True).alias(name)
        for name, value in {"repeat": 0, "fit_seconds": None, **DEFAULTS}.items()
    }
    frame = pl.DataFrame(columns)
    cell = [*DEFAULTS, "repeat"]
    numbers = (
        pl.Series(_plain(given["run"], "run", file))
        if "run" in given
        else pl.int_range(pl.len()).over(cell)
    )
    frame = frame.with_columns(run=numbers, copy=pl.lit(False))
    frame = _typed(frame, file)
    duplicates = frame.filter(pl.struct(*cell, "run").is_duplicated())
    if not duplicates.is_empty():
        repeat, run = duplicates.select("repeat", "run").row(0)
        raise UserError(
            f"repeat {repeat}, run {run} occurs twice in one cell",
            file=file,
            remedy="number the runs of a repeat with the attribute run",
        )
    return frame


def _typed(frame: pl.DataFrame, file: Path) -> pl.DataFrame:
    types = {
        "repeat": pl.Int64(),
        "run": pl.Int64(),
        "fit_seconds": pl.Float64(),
        "train_fraction": pl.Float64(),
        **{name: pl.String() for name in DEFAULTS if name != "train_fraction"},
    }
    for name, dtype in types.items():
        try:
            frame = frame.with_columns(pl.col(name).cast(dtype))
        except pl.exceptions.PolarsError:
            raise UserError("must be numbers", file=file, key=name) from None
        column = frame[name]
        if name != "fit_seconds" and column.has_nulls():
            raise UserError("has missing values", file=file, key=name)
        if dtype == pl.String():
            _check_words(column.unique(), name, file)
        if name in _LARGEST and not column.is_between(0, _LARGEST[name]).all():
            raise UserError(f"must lie in 0 to {_LARGEST[name]:,}", file=file, key=name)
        if name == "train_fraction" and not column.is_between(0, 1e12, closed="right").all():
            raise UserError("must be numbers above 0", file=file, key=name)
        if name == "fit_seconds":
            frame = frame.with_columns(pl.col(name).fill_nan(None))
            if not frame[name].drop_nulls().is_between(0, _MAX_SECONDS).all():
                raise UserError("must be seconds, 0 or more", file=file, key=name)
    return frame.select(*ATTRIBUTES, "copy")


def _check_words(words: pl.Series, name: str, file: Path) -> None:
    """Refuse invalid words, and more different ones than the store can number in int16."""
    for word in words:
        if not word or any(letter.isspace() for letter in word):
            raise UserError("must not be empty or have spaces", file=file, key=name, value=word)
        if len(word) > _MAX_WORD or not _is_plain(word):
            message = f"must have at most {_MAX_WORD} letters, and no control characters"
            raise UserError(message, file=file, key=name, value=word)
    if same := same_spelling(words):
        shown = " and ".join(map(quoted, same[0]))
        raise UserError(f"{shown} only look the same", file=file, key=name, remedy="write one")
    if len(words) > 2**15 - 1:
        raise UserError(f"has {len(words):,} different values, too many", file=file, key=name)


def texts(values: NDArray[Any], key: str, file: Path) -> NDArray[Any]:
    """Return an array with byte strings decoded to str; other arrays are returned as they are.

    Raises
    ------
    UserError
        If bytes are not UTF-8.
    """
    if values.dtype.kind != "S":
        return values
    try:
        return np.asarray(np.char.decode(values, "utf-8"))
    except UnicodeDecodeError:
        raise UserError("has bytes that are not UTF-8 text", file=file, key=key) from None


def _plain(values: Any, key: str, file: Path) -> Any:
    array = np.asarray(values)
    return texts(array, key, file).tolist() if array.dtype.kind in "US" else values


def codes(values: NDArray[Any], class_names: Sequence[str], key: str, file: Path) -> NDArray[Any]:
    """Return labels, given as names or as indices of classes, as indices.

    Parameters
    ----------
    values : array of str or integers
    class_names : sequence of str
    key, file
        For errors.

    Raises
    ------
    UserError
        For a label that is not a class.
    """
    values = texts(values, key, file)
    if values.dtype.kind == "U":
        names = np.array(class_names)
        order = np.argsort(names)
        place = np.searchsorted(names[order], values)
        index = order[np.minimum(place, len(names) - 1)]
        wrong = names[index] != values
        if wrong.any():
            value = str(values[wrong].flat[0])
            remedy = nearest(value, class_names)
            raise UserError("not a class", file=file, key=key, value=value, remedy=remedy)
        return index
    if values.dtype.kind not in "iub":
        raise UserError(
            f"has dtype {values.dtype}; labels are whole numbers or names", file=file, key=key
        )
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < len(class_names):
        raise UserError(
            f"goes from {values.min()} to {values.max()}, but there are {len(class_names)} classes",
            file=file,
            key=key,
            remedy="labels are indices of classes from 0; name all classes with class_names",
        )
    return values
