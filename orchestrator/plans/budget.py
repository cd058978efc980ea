"""Plan to a budget: the largest design whose expected cost is within it.

Runs are cut first, down to two, then repeats. All cells keep the same number of both, unless a grid
asked for fewer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.sweepfile import SweepFile

Summary = dict[str, Any]

_FIGURES = {
    "coreh": ("core_hours", 1.0, "core hours"),
    "gpuh": ("gpu_hours", 1.0, "GPU hours"),
    "kB": ("store_bytes", 1e-3, "kB"),
    "MB": ("store_bytes", 1e-6, "MB"),
    "GB": ("store_bytes", 1e-9, "GB"),
    "TB": ("store_bytes", 1e-12, "TB"),
    "files": ("store_files", 1.0, "files"),
}
_LIMIT = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_FIGURES)})", re.ASCII)
_FEWEST_RUNS = 2  # fewer tell nothing about how much runs vary


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a plan may cost in one figure."""

    most: float
    unit: str

    def cost(self, summary: Summary) -> float:
        """Return what a plan costs in this figure, from `Change.summary`."""
        name, scale, _ = _FIGURES[self.unit]
        return float(summary[name]) * scale

    def __str__(self) -> str:
        return f"{self.most:,.6g} {_FIGURES[self.unit][2]}"


def read(text: str) -> tuple[Limit, ...]:
    """Read limits such as ``500gpuh`` or ``1000coreh,200GB``."""
    found = [_LIMIT.fullmatch(part.strip()) for part in text.split(",")]
    limits = tuple(Limit(float(one[1]), one[2]) for one in found if one)
    if len(limits) < len(found) or not all(limit.most > 0 for limit in limits):
        units = ", ".join(_FIGURES)
        remedy = f"write numbers with a unit ({units}), such as 500gpuh or 1000coreh,200GB"
        raise UserError("is no budget", key="--budget", value=text, remedy=remedy)
    return limits


@dataclass(frozen=True, slots=True)
class BudgetedDesign:
    """A design within a budget."""

    settings: tuple[str, ...]  # what to set in the sweep file
    asked: tuple[int, int]  # repeats and runs that the file asks for, the most of all its grids
    kept: tuple[int, int]
    summary: Summary

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        repeats, runs = self.kept
        return {"settings": [*self.settings], "repeats": repeats, "runs": runs}

    def sentences(self, limits: Sequence[Limit]) -> Iterator[str]:
        """Yield what was cut, and what that costs in precision."""
        costs = " and ".join(f"{limit.cost(self.summary):,.3g} of {limit}" for limit in limits)
        if not self.settings:
            yield f"Within the budget as it is: {costs}."
            return
        names = ("repeats", "runs")
        cut = [
            f"{now} of {before} {name}"
            for name, before, now in zip(names, self.asked, self.kept, strict=True)
            if now < before
        ]
        yield f"Within the budget: {' and '.join(cut)}, {costs}."
        fewer = math.prod(self.asked) / math.prod(self.kept)
        yield (
            f"Intervals of means over seeds are about {math.sqrt(fewer):.2g} times as wide as with "
            "what the file asks for."
        )


def fit(
    limits: Sequence[Limit],
    sweep: SweepFile,
    price: Callable[[Sequence[str]], Summary],
) -> BudgetedDesign:
    """Return the largest design of a sweep file within a budget.

    `price`: returns the summary of the plan with settings, as after ``--set``.
    """
    asked = (
        max(grid.repeats or sweep.repeats for grid in sweep.grid),
        max(grid.runs or sweep.runs for grid in sweep.grid),
    )
    power = math.lcm(*(each.count("*") + 1 for grid in sweep.grid for each in grid.vary))

    def at(repeats: int, runs: int) -> BudgetedDesign:
        most = {"repeats": repeats, "runs": runs}
        tables = {"": sweep} | {f"grid[{n}].": each for n, each in enumerate(sweep.grid)}
        settings = tuple(
            f"{prefix}{key}={most[key]}"
            for prefix, table in tables.items()
            for key in most
            if (getattr(table, key) or 0) > most[key]
        )
        return BudgetedDesign(settings, asked, (repeats, runs), price(settings))

    def is_within(design: BudgetedDesign) -> bool:
        return all(limit.cost(design.summary) <= limit.most for limit in limits)

    whole = at(*asked)
    if is_within(whole):
        return whole
    runs = _counts(min(_FEWEST_RUNS, asked[1]), asked[1] - 1, power)
    if best := _largest(lambda n: at(asked[0], n), runs, is_within):
        return best
    least = min(runs, default=asked[1])
    if best := _largest(lambda n: at(n, least), range(1, asked[0]), is_within):
        return best
    smallest = at(1, least).summary
    beyond = next(limit for limit in limits if limit.cost(smallest) > limit.most)
    raise UserError(
        f"one repeat of {least} runs costs {beyond.cost(smallest):,.3g} of {beyond}",
        key="--budget",
        remedy="leave out datasets, classifiers or levels, or allow more",
    )


def _counts(low: int, high: int, power: int) -> Sequence[int]:
    """Return numbers of runs; those of crossed sources are squares or cubes."""
    if power == 1:
        return range(low, high + 1)
    return [n**power for n in range(2, math.ceil(high ** (1 / power)) + 1) if n**power <= high]


def _largest(
    design: Callable[[int], BudgetedDesign],
    counts: Sequence[int],
    is_within: Callable[[BudgetedDesign], bool],
) -> BudgetedDesign | None:
    """Return the largest design within the budget by one of these counts; None if none is."""
    best, low, high = None, 0, len(counts) - 1
    while low <= high:
        middle = (low + high) // 2
        tried = design(counts[middle])
        if is_within(tried):
            best, low = tried, middle + 1
        else:
            high = middle - 1
    return best
