"""How many runs are needed for one purpose, as a record and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from manyseed.analysis.axes import FRACTION, told
from manyseed.analysis.questions.effects import REFERENCES
from manyseed.analysis.questions.intervals import t_quantile

MOST_SETS = 1000  # test sets beyond which an estimate of how many it takes says nothing


def sets_needed(
    difference: float, half: float, n: int, confidence: float, among: int = 1
) -> int | None:
    """Return how many test sets tell a difference from 0, at the spread between the n so far.

    `half`: half of the t interval of the n. `among`: so many differences have the confidence
    together (Bonferroni). None beyond `MOST_SETS`.
    """
    error = half / t_quantile(confidence, n - 1) * n**0.5
    sure = 1 - (1 - confidence) / among
    for more in range(n + 1, MOST_SETS + 1):
        if t_quantile(sure, more - 1) * error < abs(difference) * more**0.5:
            return more
    return None


@dataclass(frozen=True, slots=True)
class RunsNeeded:
    """How many runs are needed for one purpose.

    `purpose`: for example "accuracy ± 0.005". `runs`: runs needed; None if unknown. `low` and
    `high`: interval of `runs` at the given confidence; of one that is too wide for an answer, `low`
    alone. `made`: runs that the answer rests on.
    `repeats`: repeats that these runs belong to. `confidence`: of the interval, and of the ± of a
    mean; None if the interval is the gap between two drawn sizes. `seconds`: training time of
    `runs`, one after the other. `reason`: why there is no answer, or what it rests on.
    """

    purpose: str
    runs: int | None
    low: int | None
    high: int | None
    made: int
    repeats: int
    confidence: float | None
    seconds: float | None = None
    reason: str = ""

    @property
    def enough(self) -> bool | None:
        """Whether test sets have as many runs, on average; None if it is not told."""
        there = self.made // max(self.repeats, 1)
        if self.runs is not None:
            return there >= self.runs
        if self.high and there >= self.high:
            return True
        return False if self.low and there < self.low else None

    @property
    def words(self) -> str:
        """The answer as a sentence."""
        if self.runs is None:
            return f"For {self.purpose} there is no answer: {self.reason}."
        interval = ""
        if self.low is not None and (self.low, self.high) != (self.runs, self.runs):
            upper = "or more" if self.high is None else f"to {self.high:,}"
            sure = "from the sizes drawn"
            if self.confidence is not None:
                sure = f"{100 * self.confidence:g} %"
            interval = f" ({self.low:,} {upper}, {sure})"
        cost = f", about {_duration(self.seconds)} of training" if self.seconds else ""
        rest = f"; {self.reason}" if self.reason else ""
        runs = "run is" if self.runs == 1 else "runs are"
        return f"For {self.purpose}: {self.runs:,} {runs} needed{interval}{cost}{rest}."


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 10 else f"{seconds:.2g} seconds"


def seconds_per_run(runs: pl.DataFrame) -> float | None:
    """Return the mean training time of runs, copies left out; None if unknown."""
    if "fit_seconds" not in runs.columns:
        return None
    known = runs.filter(~pl.col("identical"))["fit_seconds"].drop_nulls().to_numpy()
    return float(known.mean()) if known.size else None


def classifiers_named(cells: pl.DataFrame, runs: pl.DataFrame, others: str) -> str:
    """Name the classifiers of cells where these are few, and all of theirs; else `others`."""
    is_meant = pl.col("cell").is_in(cells["cell"].implode())
    of = [runs.filter(each)["classifier"].cast(pl.String) for each in (is_meant, ~is_meant)]
    names, rest = of[0].unique(maintain_order=True).to_list(), {*of[1]}
    return ", ".join(names) if len(names) <= 2 and rest.isdisjoint(names) else others


def cell_named(runs: pl.DataFrame, cell: int) -> str:
    """Name a cell of these runs by its data, classifier, unusual levels and number."""
    name, _, number = whole_name(runs.filter(cell=cell).row(0, named=True), runs).rpartition(", ")
    return f"{name} ({number})"


def whole_name(row: Mapping[str, Any], runs: pl.DataFrame) -> str:
    """Name the cell of a row by its data, classifier, unusual levels and number."""
    first = f"{row['dataset']} × {row['classifier']}"
    return ", ".join([first, *_levels(row, runs), f"cell {row['cell']}"])


def cell_in_short(row: Mapping[str, Any], runs: pl.DataFrame) -> str:
    """Name the cell of a row by its classifier, its unusual levels and its data, if these differ.

    What varies is left out.
    """
    levels = _levels({**row, "vary": None}, runs)
    on = f" on {row['dataset']}" if runs["dataset"].n_unique() > 1 else ""
    return f"{' '.join([str(row['classifier']), *levels])}{on}"


def short_names(row: Mapping[str, Any], runs: pl.DataFrame) -> tuple[str, str]:
    """Name the cell of a row by its levels, and shorter without its dataset."""
    dataset = f"{row['dataset']} × " if runs["dataset"].n_unique() > 1 else ""
    name = ", ".join([str(row["classifier"]), *_levels(row, runs)])
    return f" ({dataset}{name})", f" ({name})"


def _levels(row: Mapping[str, Any], runs: pl.DataFrame) -> list[str]:
    """Return the levels of a cell that are unusual, in axes in which cells differ."""
    return [
        told(axis, row[axis]) if axis == FRACTION else str(row[axis])
        for axis, usual in REFERENCES.items()
        if row.get(axis) is not None and str(row[axis]) != usual and runs[axis].n_unique() > 1
    ]
