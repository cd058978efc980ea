"""Join files with further runs of the same dataset and classifier."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.source import DEFAULTS, Positions, Predicted, PredictionFile

ADDRESS = (*DEFAULTS, "repeat", "run")
_ALIKE = ("class_names", "epochs", "keep", "dtype", "probability")


def joined(sources: Sequence[PredictionFile]) -> list[PredictionFile]:
    """Join the files of each dataset and classifier, in their order.

    Raises
    ------
    UserError
        If files with the same dataset name have different test sets, or don't match, or if files
        with different dataset names have the same test points.
    """
    by_pair: dict[tuple[str, str], list[PredictionFile]] = {}
    datasets: dict[str, PredictionFile] = {}
    for source in sources:
        first = datasets.setdefault(source.dataset, source)
        if len(source.y_true) > len(first.y_true):  # compare others with the one with most repeats
            datasets[source.dataset] = source
        if not _same_tests(first, source):
            raise UserError(
                f"its test sets differ from those of {first.file}, but both are named "
                f"{source.dataset}",
                file=source.file,
                key="y_true",
                remedy="import them separately, or leave out --dataset to name each after its file",
            )
        by_pair.setdefault((source.dataset, source.classifier), []).append(source)
    _require_distinct(datasets)
    return [files[0] if len(files) == 1 else _together(files) for files in by_pair.values()]


def _require_distinct(datasets: Mapping[str, PredictionFile]) -> None:
    """Refuse datasets that differ in name alone: they would have one identity."""
    by_tests: dict[tuple[object, ...], PredictionFile] = {}
    for source in datasets.values():
        # in most imports all differ: compare only those whose first test sets have one digest
        arrays = (source.y_true[0], source.test_index[0])
        digests = [hashlib.sha256(a.astype("<i8").tobytes()).digest() for a in arrays]
        other = by_tests.setdefault((source.class_names, *digests), source)
        if other is not source and _same_tests(other, source):
            raise UserError(
                f"has the same test points as {other.file}",
                file=source.file,
                remedy="if the files are seeds of one classifier, add --dataset NAME; if they are "
                "classifiers, --classifier NAME=FILE each; else import them separately",
            )


def _same_tests(one: PredictionFile, other: PredictionFile) -> bool:
    """Return whether two sources have the same classes and, in shared repeats, test sets."""
    if one.class_names != other.class_names or one.y_true.shape[1] != other.y_true.shape[1]:
        return False
    n = min(len(one.y_true), len(other.y_true))
    return all(
        np.array_equal(getattr(one, name)[:n], getattr(other, name)[:n])
        for name in ("y_true", "test_index")
    )


def _together(sources: Sequence[PredictionFile]) -> PredictionFile:
    one = sources[0]
    runs = one.runs
    for other in sources[1:]:
        for name in _ALIKE:
            if getattr(one, name) != getattr(other, name):
                message = f"has {name} {getattr(other, name)}, but {one.file} {getattr(one, name)}"
                if name == "keep":  # it follows from the classes, which are alike, and from this
                    theirs, ours = (
                        "labels" if s.keep == "none" else "scores" for s in (other, one)
                    )
                    message = f"holds {theirs}, {one.file} {ours}"
                raise UserError(message, file=other.file, remedy="import them separately")
        runs = pl.concat([runs, numbered(runs, other)])
    starts = np.cumsum([0, *(len(source.runs) for source in sources)])
    longest = max(sources, key=lambda source: len(source.y_true))

    def read(positions: Positions) -> Predicted:
        owner = np.searchsorted(starts, positions, side="right") - 1
        parts = [
            (owner == number, sources[number].read(positions[owner == number] - starts[number]))
            for number in np.unique(owner)
        ]
        return Predicted(
            _merged([(rows, part.label) for rows, part in parts]),
            _merged([(rows, part.scores) for rows, part in parts]),
            sum(part.floored for _, part in parts),
        )

    return replace(
        one,
        y_true=longest.y_true,
        test_index=longest.test_index,
        runs=runs,
        read=read,
        numbered=any(source.numbered for source in sources),
    )


def numbered(
    existing: pl.DataFrame, other: PredictionFile, where: str = "in an earlier file"
) -> pl.DataFrame:
    """Return further runs, numbered after the existing ones unless their file numbers them.

    Parameters
    ----------
    existing : DataFrame
        With at least the columns `ADDRESS`.
    other : PredictionFile
        With the further runs.
    where : str
        Where the existing runs are, for errors.

    Raises
    ------
    UserError
        If a run exists already.
    """
    runs = other.runs
    if not other.numbered:
        next_runs = existing.group_by(*DEFAULTS, "repeat").agg(next=pl.col("run").max() + 1)
        runs = runs.join(next_runs, on=[*DEFAULTS, "repeat"], how="left", maintain_order="left")
        runs = runs.with_columns(run=pl.col("run") + pl.col("next").fill_null(0))
    duplicates = runs.join(existing.select(ADDRESS), on=ADDRESS, how="semi")
    if not duplicates.is_empty():
        repeat, run = duplicates.select("repeat", "run").row(0)
        raise UserError(
            f"repeat {repeat}, run {run} of a cell is already {where}",
            file=other.file,
            key="run",
            remedy="number the runs of a repeat across files, or leave run out",
        )
    return runs.select(other.runs.columns)


def _merged(parts: Sequence[tuple[NDArray[np.bool_], NDArray[Any] | None]]) -> NDArray[Any] | None:
    """Combine parts, each given as a mask of its rows in the result and their values."""
    if len(parts) == 1 or parts[0][1] is None:
        return parts[0][1]
    arrays = [(chosen, values) for chosen, values in parts if values is not None]
    rows = len(arrays[0][0])
    dtype = np.result_type(*(values.dtype for _, values in arrays))
    result = np.empty((rows, *arrays[0][1].shape[1:]), dtype=dtype)
    for chosen, values in arrays:
        result[chosen] = values
    return result
