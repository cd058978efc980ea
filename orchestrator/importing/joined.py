"""Files with further runs of the same dataset and classifier, taken together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.source import (
    DEFAULTS,
    Positions,
    Predicted,
    PredictionFile,
)

ADDRESS = (*DEFAULTS, "repeat", "run")
_ALIKE = ("class_names", "epochs", "keep", "dtype", "probability")


def joined(sources: Sequence[PredictionFile]) -> list[PredictionFile]:
    """Take files of one dataset and classifier together, in their order.

    Raises
    ------
    UserError
        Where files that go by one dataset's name are of other test sets, or don't fit each other.
    """
    found: dict[tuple[str, str], list[PredictionFile]] = {}
    datasets: dict[str, PredictionFile] = {}
    for source in sources:
        first = datasets.setdefault(source.dataset, source)
        if len(source.y_true) > len(first.y_true):  # what has most repeats speaks for the others
            datasets[source.dataset] = source
        if not _same_tests(first, source):
            raise UserError(
                f"its test sets are not those of {first.file}, and both go by the name "
                f"{source.dataset}",
                file=source.file,
                key="y_true",
                remedy="import them by themselves, or leave --dataset out: each is then named "
                "after its file",
            )
        found.setdefault((source.dataset, source.classifier), []).append(source)
    return [own[0] if len(own) == 1 else _together(own) for own in found.values()]


def _same_tests(one: PredictionFile, other: PredictionFile) -> bool:
    """Return whether repeats that both have are the same test sets, of the same classes."""
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
                message = f"has {name} {getattr(other, name)}, and {one.file} {getattr(one, name)}"
                raise UserError(message, file=other.file)
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
    there: pl.DataFrame, other: PredictionFile, where: str = "in a file before it"
) -> pl.DataFrame:
    """Return further runs, behind those that are there unless they have numbers of their own.

    Parameters
    ----------
    there : DataFrame
        At least columns `ADDRESS`.
    other : PredictionFile
    where : str
        Where those are that are there, for what is refused.

    Raises
    ------
    UserError
        Where a run is there already.
    """
    runs = other.runs
    if not other.numbered:
        behind = there.group_by(*DEFAULTS, "repeat").agg(behind=pl.col("run").max() + 1)
        runs = runs.join(behind, on=[*DEFAULTS, "repeat"], how="left", maintain_order="left")
        runs = runs.with_columns(run=pl.col("run") + pl.col("behind").fill_null(0))
    twice = runs.join(there.select(ADDRESS), on=ADDRESS, how="semi")
    if not twice.is_empty():
        repeat, run = twice.select("repeat", "run").row(0)
        raise UserError(
            f"repeat {repeat}, run {run} of a cell is {where}, too",
            file=other.file,
            key="run",
            remedy="number the runs of a repeat across files, or leave run out",
        )
    return runs.select(other.runs.columns)


def _merged(parts: Sequence[tuple[NDArray[np.bool_], NDArray[Any] | None]]) -> NDArray[Any] | None:
    """Put the rows of each part where they belong."""
    if len(parts) == 1 or parts[0][1] is None:
        return parts[0][1]
    arrays = [(chosen, values) for chosen, values in parts if values is not None]
    rows = len(arrays[0][0])
    dtype = np.result_type(*(values.dtype for _, values in arrays))
    result = np.empty((rows, *arrays[0][1].shape[1:]), dtype=dtype)
    for chosen, values in arrays:
        result[chosen] = values
    return result
