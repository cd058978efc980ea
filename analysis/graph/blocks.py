"""One repeat: its predictions as parts, and its metrics as rows of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.metrics.gram import above
from manyseed.analysis.metrics.metric import Finished, HeldOut, Metric, Part, summarise
from manyseed.analysis.options import Options
from manyseed.analysis.tables.schema import RepeatRows

Places = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Member:
    """A repeat at one snapshot: its key, and the rows where its runs are stored."""

    cell: int
    epoch: int
    held_out: HeldOut
    run_index: Places
    identical: NDArray[np.bool_]
    row: Places
    train_accuracy: NDArray[np.float64] | None = None

    def first(self, runs: int) -> Member:
        """Return the repeat with its first `runs` runs only."""
        return replace(
            self,
            run_index=self.run_index[:runs],
            identical=self.identical[:runs],
            row=self.row[:runs],
        )


@dataclass(frozen=True, slots=True)
class InputCheck:
    """Findings about the predictions of a repeat, or of a part of it.

    Attributes
    ----------
    largest : int
        The largest label.
    undefined : int
        Runs with a NaN margin or score.
    """

    largest: int
    undefined: int

    @classmethod
    def of(cls, checks: Sequence[InputCheck]) -> InputCheck:
        """Combine the checks of a repeat's parts."""
        return cls(max(c.largest for c in checks), sum(c.undefined for c in checks))

    def problem(self, held_out: HeldOut) -> str | None:
        """Return why a repeat can't be analysed, None if it can."""
        if held_out.problem is not None or self.largest < held_out.n_classes:
            return held_out.problem
        return f"a label is {self.largest}, and there are {held_out.n_classes} classes"


def take(member: Member, runs: slice, arrays: Arrays) -> tuple[Part, InputCheck]:
    """Return some runs of a repeat, and the check of their predictions.

    Invalid labels become class 0, so that metrics can run; their values for such a repeat are not
    used.
    """
    values, label = dict(arrays), arrays["label"]
    largest = int(label.max(initial=0))
    if largest >= member.held_out.n_classes:
        values["label"] = np.where(label < member.held_out.n_classes, label, 0).astype(label.dtype)
    if member.train_accuracy is not None:
        values["train_accuracy"] = member.train_accuracy[runs]
    part = Part(held_out=member.held_out, start=runs.start, n_repeat=member.row.size, **values)
    return part, InputCheck(largest, _undefined(part))


def _undefined(part: Part) -> int:
    values = part.score if part.margin is None else part.margin
    if values is None:
        return 0
    # A sum is NaN if a term is, or if opposite infinities meet: only then look at single values.
    axes = tuple(range(1, values.ndim))
    with np.errstate(invalid="ignore", over="ignore"):
        suspect = np.isnan(values.sum(axis=axes))
    return int(np.isnan(values[suspect]).any(axis=axes).sum())


def rows_of(
    member: Member,
    metrics: Sequence[Metric],
    options: Options,
    finished: Sequence[Finished],
    check: InputCheck,
) -> RepeatRows:
    """Add keys to the values of one repeat, and summarise them.

    A repeat that can't be analysed has only its row in the table of repeats, which says why.
    `finished` holds the values of each of `metrics`.
    """
    n_runs = member.run_index.size
    problem = check.problem(member.held_out)
    repeats: dict[str, object] = {
        "n_runs": n_runs,
        "n_distinct": max(n_runs - int(np.count_nonzero(member.identical)), 1),
        "n_test": member.held_out.n_test,
        "n_undefined": check.undefined,
        "problem": problem or "",
    }
    if problem is not None:
        member = member.first(0)
        finished, n_runs = [_no_values(metric) for metric in metrics], 0
    runs: dict[str, NDArray[Any]] = {"run_index": member.run_index, "identical": member.identical}
    i, j = above(n_runs if n_runs <= options.max_pair_runs else 0)
    pairs: dict[str, NDArray[Any]] = {"run_i": member.run_index[i], "run_j": member.run_index[j]}
    failures: dict[str, str] = {}
    for metric, values in zip(metrics, finished, strict=True):
        runs |= {column.name: values.runs[column.name] for column in metric.runs}
        pairs |= {column.name: values.pairs.get(column.name, _EMPTY) for column in metric.pairs}
        for column in (*metric.runs, *metric.pairs):
            if column.name in values.spreads:
                summary = values.spreads[column.name].summary(column.summaries)
            else:
                table = values.runs if column in metric.runs else values.pairs
                summary = summarise(table[column.name], column.summaries)
            repeats |= {f"{column.name}_{name}": value for name, value in summary.items()}
        repeats |= values.repeat
        if values.failure is not None:
            failures[metric.name] = values.failure
    return RepeatRows(
        failures=failures,
        runs=_keyed(member, runs, n_runs),
        pairs=_keyed(member, pairs, i.size),
        repeats=_keyed(member, {name: np.asarray([v]) for name, v in repeats.items()}, 1),
    )


_EMPTY = np.empty(0)


def _no_values(metric: Metric) -> Finished:
    return Finished(
        runs={column.name: _EMPTY for column in metric.runs},
        pairs={column.name: _EMPTY for column in metric.pairs},
        repeat={column.name: np.asarray(np.nan) for column in metric.repeat},
    )


def _keyed(member: Member, columns: dict[str, NDArray[Any]], size: int) -> dict[str, NDArray[Any]]:
    return {
        "cell": np.full(size, member.cell, dtype=np.int64),
        "epoch": np.full(size, member.epoch, dtype=np.int64),
        "repeat_index": np.full(size, member.held_out.repeat_index, dtype=np.int64),
        **columns,
    }
