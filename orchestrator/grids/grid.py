"""One ``[[grid]]`` of a sweep file: multiply and zip its lists, and remove exclusions.

Columnar: a combination is a row of codes, one per axis, that index the grid's lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.jobs import datasets, hparams, images, perturb
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets.openml import SUITE as OPENML_SUITE
from manyseed.jobs.ensembling.methods import NONE, SAME_AS_NONE
from manyseed.jobs.hparams.grid import is_written
from manyseed.jobs.run import SOURCES_OF_RANDOMNESS
from manyseed.orchestrator.errors import UserError, nearest, refused, toml_value
from manyseed.orchestrator.grids.sweepfile import Exclusion, Grid

SUITE = "suite:"
GRID = "grid"  # value of the axis ``hparams``: every configuration of each classifier's hparam grid
HPARAMS = ("default", "tuned", GRID)
MAX_COMBINATIONS = 5_000_000
"""Limit for one grid: its table of cells still fits in a login node's memory."""

Codes = NDArray[np.uint32]


def present(codes: Codes) -> NDArray[np.int64]:
    """Return the codes that occur, ascending; they must be small."""
    return np.flatnonzero(np.bincount(codes))


@dataclass(frozen=True)
class Combinations:
    """The combinations of a grid.

    `values`: the values that the codes index, as in the file; suites are replaced by their
    datasets, hparam grids by their configurations. `codes`, mapping of axis to uint32 array (n,):
    the codes of every remaining combination, in the order of the lists. `removed_by`: for each
    exclusion, the codes of the combinations that it was the first to remove.
    """

    values: Mapping[str, Sequence[Any]]
    codes: Mapping[str, Codes]
    removed_by: Sequence[Mapping[str, Codes]]

    def __len__(self) -> int:
        return len(self.codes["dataset"])

    def value(self, axis: str, position: int) -> Any:
        """Return the value of an axis in one combination."""
        return self.values[axis][self.codes[axis][position]]

    def present(self, axis: str) -> set[Any]:
        """Return the values of an axis that occur."""
        return {self.values[axis][code] for code in present(self.codes[axis])}


def combine(
    grid: Grid, where: str, path: Path, configurations: Mapping[str, Sequence[str]] | None = None
) -> Combinations:
    """Multiply a grid's lists.

    `where`: the grid's key in the file, for messages. `path`: the file, for messages.
    `configurations`: the configurations of classifiers that have an hparam grid.
    """
    reader = _GridReader(grid, where, path)
    values = reader.values()
    steps = reader.steps(values)
    codes = _multiply(values, steps, where, path)
    if GRID in values["hparams"]:
        codes = _spread(values, codes, configurations or {}, where, path)
    left = np.ones(len(codes["dataset"]), dtype=bool)
    removed_by = []
    for number, rule in enumerate(grid.exclude):
        matched = reader.matches(rule, number, values, codes)
        removed = matched & left
        removed_by.append({axis: column[removed] for axis, column in codes.items()})
        left &= ~matched
    if not left.any():
        raise UserError("the rules remove every combination", file=path, key=f"{where}.exclude")
    return Combinations(values, {axis: column[left] for axis, column in codes.items()}, removed_by)


class _GridReader:
    def __init__(self, grid: Grid, where: str, path: Path) -> None:
        self.grid, self.where, self.path = grid, where, path

    def _error(self, message: str, key: str, **details: Any) -> UserError:
        return UserError(message, file=self.path, key=f"{self.where}.{key}", **details)

    def values(self) -> dict[str, list[Any]]:
        values: dict[str, list[Any]] = {axis: list(getattr(self.grid, axis)) for axis in AXES}
        values["dataset"] = [name for item in values["dataset"] for name in self._members(item)]
        for axis in AXES:
            for value in values[axis]:
                normal_form(axis, value, where=self.where, path=self.path)
        return values

    def _members(self, name: str) -> Sequence[str]:
        if not name.startswith((SUITE, OPENML_SUITE)):
            return [name]
        try:
            return datasets.suite(name.removeprefix(SUITE))
        except Refused as error:
            key = f"{self.where}.dataset"
            raise refused(error, file=self.path, key=key, value=name) from None

    def steps(self, values: Mapping[str, list[Any]]) -> list[tuple[str, ...]]:
        """Return the axes that are zipped: a tuple for each list of `zip`, other axes alone."""
        zipped: dict[str, tuple[str, ...]] = {}
        for names in self.grid.zip:
            for axis in names:
                if axis not in AXES:
                    remedy = nearest(axis, AXES)
                    raise self._error("unknown axis", "zip", value=axis, remedy=remedy)
                if axis in zipped or names.count(axis) > 1:
                    raise self._error(f"{axis} is listed twice", "zip", value=names)
                zipped[axis] = tuple(names)
            lengths = {axis: len(values[axis]) for axis in names}
            if len(names) < 2 or len(set(lengths.values())) > 1:
                shown = ", ".join(f"{axis} has {n}" for axis, n in lengths.items())
                message = f"lists that go in step are two or more of equal length; {shown}"
                raise self._error(message, "zip", value=names)
        steps = list(dict.fromkeys(zipped.get(axis, (axis,)) for axis in AXES))
        for step in steps:
            self._refuse_twice(step, values)
        return steps

    def _refuse_twice(self, step: tuple[str, ...], values: Mapping[str, list[Any]]) -> None:
        seen = set()
        for entry in zip(*(values[axis] for axis in step), strict=True):
            if entry in seen and len(step) > 1:
                text = f"these lists have {toml_value(list(entry))} twice"
                raise self._error(text, "zip", value=list(step))
            if entry in seen:
                raise self._error("is listed twice", step[0], value=entry[0])
            seen.add(entry)

    def matches(
        self,
        rule: Exclusion,
        number: int,
        values: Mapping[str, list[Any]],
        codes: Mapping[str, Codes],
    ) -> NDArray[np.bool_]:
        """Return which combinations a rule matches: bool array (combination,).

        `number`: its index among the grid's rules, for messages. `values`: the values of each axis.
        `codes`, mapping of str to integer array (combination,): for each combination, the index of
        its value among `values`.
        """
        key = f"exclude[{number}]"
        if not rule.patterns():
            remedy = f"one of {', '.join(AXES)}"
            raise self._error("a rule must name at least one axis", key, remedy=remedy)
        matched = np.ones(len(codes["dataset"]), dtype=bool)
        for axis, patterns in rule.patterns().items():
            is_hit = np.zeros(len(values[axis]), dtype=bool)
            for pattern in patterns:
                hits = np.array([_fits(pattern, axis, value) for value in values[axis]])
                if not hits.any():
                    listed = ", ".join(toml_value(value) for value in values[axis][:20])
                    remedy = f"the grid's list: {listed}"
                    raise self._error(
                        "matches nothing", f"{key}.{axis}", value=pattern, remedy=remedy
                    )
                is_hit |= hits
            matched &= is_hit[codes[axis]]
        if not matched.any():
            remedy = "each of its values is in the lists, but no combination has all of them"
            value = rule.patterns()
            raise self._error("the rule matches nothing", key, value=value, remedy=remedy)
        return matched


def normal_form(axis: str, value: Any, *, where: str, path: Path) -> str:
    """Return an axis value as results show it, as far as that follows from the value alone.

    `where`: the table that holds it, for errors. `path`: the sweep file, for errors.
    """
    try:
        match axis:
            case "perturb_continuous":
                return perturb.canonical("continuous", value)
            case "perturb_categorical":
                named = perturb.canonical("categorical", value)
                is_renamed = perturb.is_renamed("categorical", value)
                return perturb.shown("categorical", named) if is_renamed else named
            case "perturb_labels":
                return perturb.canonical("labels", value)
            case "perturb_hparams":
                return hparams.canonical(value)
            case "augment" | "test_augment":
                return images.canonical(value, axis)
            case "ensembling" if value in SAME_AS_NONE:
                return NONE
    except Refused as error:
        raise refused(error, file=path, key=f"{where}.{axis}", value=value) from None
    if axis == "hparams" and value not in HPARAMS and not is_written(value):
        raise UserError(
            "unknown hparams",
            file=path,
            key=f"{where}.{axis}",
            value=value,
            remedy=f'{nearest(value, HPARAMS)}, or values such as "lr=0.001"',
        )
    return str(value)


def _fits(pattern: Any, axis: str, value: Any) -> bool:
    if not isinstance(pattern, str):
        return bool(pattern == value)
    if axis == "vary" and "*" in pattern and {*pattern.split("*")} <= {*SOURCES_OF_RANDOMNESS}:
        return bool(value == pattern)  # crossed sources, not a pattern
    if axis == "hparams" and pattern == GRID:
        return value == GRID or is_written(value)
    # as in the file, and as results show it: "neighbour:.5" is "neighbour:0.5"
    shown = normal_form(axis, value, where="", path=Path())
    return fnmatchcase(str(value), pattern) or fnmatchcase(shown, pattern)


def _multiply(
    values: Mapping[str, list[Any]], steps: list[tuple[str, ...]], where: str, path: Path
) -> dict[str, Codes]:
    shape = [len(values[step[0]]) for step in steps]
    total = math.prod(shape)
    if total > MAX_COMBINATIONS:
        lists = " × ".join(
            f"{n} {' with '.join(step)}" for step, n in zip(steps, shape, strict=True) if n > 1
        )
        raise UserError(
            f"{lists} make {total:,} combinations; a grid holds up to {MAX_COMBINATIONS:,}",
            file=path,
            key=where,
            remedy="shorten a list, or let lists go in step with zip",
        )
    indices = np.unravel_index(np.arange(total, dtype=np.int64), shape)
    return {
        axis: index.astype(np.uint32)
        for step, index in zip(steps, indices, strict=True)
        for axis in step
    }


def _spread(
    values: dict[str, list[Any]],
    codes: dict[str, Codes],
    configurations: Mapping[str, Sequence[str]],
    where: str,
    path: Path,
) -> dict[str, Codes]:
    """Replace `GRID` by each classifier's configurations, in the codes and in `values`.

    A classifier without an hparam grid keeps it, as an exclusion may still remove that combination.
    """
    listed = values["hparams"]
    is_grid = np.array([value == GRID for value in listed])[codes["hparams"]]
    own = [configurations.get(name) or (GRID,) for name in values["classifier"]]
    more = dict.fromkeys(value for each in own for value in each if value not in listed)
    extended = [*listed, *more]
    places = {value: code for code, value in reversed([*enumerate(extended)])}
    counts = np.array([len(each) for each in own])[codes["classifier"]]
    times = np.where(is_grid, counts, 1)
    total = int(times.sum())
    if total > MAX_COMBINATIONS:
        raise UserError(
            f"with hparam grids it makes {total:,} combinations; a grid holds up to "
            f"{MAX_COMBINATIONS:,}",
            file=path,
            key=where,
            remedy="shorten a list, or let lists go in step with zip",
        )
    rows = np.repeat(np.arange(len(times)), times)
    number = np.arange(total) - np.repeat(np.cumsum(times) - times, times)
    spread = {axis: column[rows] for axis, column in codes.items()}
    flat = np.array([places[value] for each in own for value in each], dtype=np.uint32)
    starts = np.cumsum([0, *map(len, own)])[spread["classifier"]]
    from_grid = is_grid[rows]
    spread["hparams"][from_grid] = flat[(starts + number)[from_grid]]
    values["hparams"] = extended
    return spread
