"""What a file of predictions gives, whatever its form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.errors import UserError, nearest
from orchestrator.store.schema import Keep, Probability, ScoreType

Positions = NDArray[np.int64]

DEFAULTS: Mapping[str, Any] = {
    "train_fraction": 1.0,
    "perturb_continuous": "none",
    "perturb_categorical": "none",
    "perturb_hparams": "none",
    "hparams": "default",
    "vary": "init+batch",
}
"""What tells cells apart, and its value where nothing is said."""

ATTRIBUTES = (*DEFAULTS, "repeat", "run", "fit_seconds")
MAX_INDEX = 2**16 - 1


@dataclass(frozen=True, slots=True)
class Names:
    """What predictions are of, as far as the user says it."""

    dataset: str | None = None
    classifier: str | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions of some runs.

    Attributes
    ----------
    label : integer array (run, epoch, sample) or None
        None where it follows from the scores.
    scores : float array (run, sample) of logit gaps or (run, sample, class), or None
    """

    label: NDArray[np.integer[Any]] | None
    scores: NDArray[np.floating[Any]] | None


@dataclass(frozen=True, slots=True)
class Source:
    """Predictions of one dataset and classifier, read when they are needed.

    Attributes
    ----------
    file : Path
        For messages and the record of where they come from.
    dataset, classifier : str
    class_names : tuple of str
    epochs : tuple of int
    keep, dtype
        What is stored of scores.
    probability
        How scores become probabilities.
    y_true, test_index : integer arrays (repeat, sample)
    runs : DataFrame
        One row a run, in the order of positions: `ATTRIBUTES` and `copy` (whether it is a copy of
        another run of its repeat).
    read : callable
        From positions to what is predicted.
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

    @property
    def canonical(self) -> dict[str, Any]:
        """Description of the dataset: equal test sets are equal datasets."""
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        for array in (self.y_true, self.test_index):
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return {"source": "imported", "digest": digest.hexdigest()[:32]}


def attributes(given: Mapping[str, Any], n_runs: int, file: Path) -> pl.DataFrame:
    """Return what is told of each run, with defaults filled in.

    Raises
    ------
    UserError
        For an unknown attribute, one of another length, or two runs that are told to be one.
    """
    for name, values in given.items():
        if name not in ATTRIBUTES:
            raise UserError(
                "not an attribute of a run", file=file, key=name, remedy=nearest(name, ATTRIBUTES)
            )
        if len(values) != n_runs:
            raise UserError(
                f"has {len(values):,} values, and there are {n_runs:,} runs", file=file, key=name
            )
    columns = {
        name: pl.Series(name, _plain(given[name]))
        if name in given
        else pl.repeat(value, n_runs, eager=True).alias(name)
        for name, value in {"repeat": 0, "fit_seconds": None, **DEFAULTS}.items()
    }
    frame = pl.DataFrame(columns)
    cell = [*DEFAULTS, "repeat"]
    numbers = (
        pl.Series(_plain(given["run"])) if "run" in given else pl.int_range(pl.len()).over(cell)
    )
    frame = frame.with_columns(run=numbers, copy=pl.lit(False))
    frame = _typed(frame, file)
    twice = frame.filter(pl.struct(*cell, "run").is_duplicated())
    if not twice.is_empty():
        repeat, run = twice.select("repeat", "run").row(0)
        raise UserError(
            f"repeat {repeat}, run {run} of a cell stands there more than once",
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
        if dtype == pl.String() and column.str.contains(r"^$|\s").any():
            bad = column.filter(column.str.contains(r"^$|\s"))[0]
            raise UserError("must have no blanks", file=file, key=name, value=bad)
        if name in ("repeat", "run") and not column.is_between(0, MAX_INDEX).all():
            raise UserError(f"must lie in 0 to {MAX_INDEX:,}", file=file, key=name)
    return frame.select(*ATTRIBUTES, "copy")


def _plain(values: Any) -> Any:
    array = np.asarray(values)
    return array.tolist() if array.dtype.kind in "US" else values


def codes(values: NDArray[Any], class_names: Sequence[str], key: str, file: Path) -> NDArray[Any]:
    """Return labels, given as names or as indices of classes, as indices.

    Raises
    ------
    UserError
        For a label that is no class.
    """
    if values.dtype.kind in "US":
        names = np.array(class_names)
        order = np.argsort(names)
        place = np.searchsorted(names[order], values.astype(names.dtype.kind))
        index = order[np.minimum(place, len(names) - 1)]
        wrong = names[index] != values
        if wrong.any():
            raise UserError(
                "not a class",
                file=file,
                key=key,
                value=str(values[wrong].flat[0]),
                remedy=nearest(str(values[wrong].flat[0]), class_names),
            )
        return index
    if values.dtype.kind not in "iub":
        raise UserError(
            f"has dtype {values.dtype}; labels are whole numbers or names", file=file, key=key
        )
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < len(class_names):
        raise UserError(
            f"goes from {values.min()} to {values.max()}, and there are {len(class_names)} classes",
            file=file,
            key=key,
            remedy="labels are indices of classes, from 0; name all classes with class_names",
        )
    return values
