"""Cells that share one answer: the name of such a group, and its part of the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl

from manyseed.analysis.axes import AXES, level_told, told
from manyseed.analysis.questions.effects import REFERENCES
from manyseed.analysis.tables.rows import Tables
from manyseed.orchestrator.errors import require_one_of

GROUP = ["dataset", "classifier"]


def named(group: pl.DataFrame, cells: pl.DataFrame) -> str:
    """Return a name for some cells: the axes in which they agree and others of `cells` differ."""
    named = [f"{axis} = {group[axis][0]}" for axis in AXES if same(group, axis)]
    if all(same(group, axis) for axis in GROUP):
        apart = [axis for axis in AXES if axis not in GROUP and not same(cells, axis)]
        named = [" × ".join(str(group[axis][0]) for axis in GROUP)]
        named += [f"{axis} = {group[axis][0]}" for axis in apart if same(group, axis)]
    which = f"cell {group['cell'][0]}" if group.height == 1 else f"{group.height:,} cells"
    return f"{', '.join(named)} ({which})"


def unusual(axes: Mapping[str, Any]) -> list[str]:
    """Return a cell's levels that are not the usual ones, without its dataset and classifier."""
    return [
        level_told(axis, level)
        for axis, level in axes.items()
        if axis in REFERENCES and level is not None and str(level) != REFERENCES[axis]
    ]


def named_apart(axes: Mapping[str, Any], every: Sequence[Mapping[str, Any]]) -> str:
    """Name levels that cells share: data, classifier, and those that are unusual or set apart."""
    levels = [
        told(axis, level)
        for axis, level in axes.items()
        if axis in REFERENCES and level is not None
        if str(level) != REFERENCES[axis] or len({str(of.get(axis)) for of in every}) > 1
    ]
    where = [str(axes[axis]) for axis in GROUP if axis in axes]
    return " with ".join(filter(None, [", ".join(where), ", ".join(levels)]))


def in_short(axes: Mapping[str, Any]) -> str:
    """Name a cell in a row of a table, below its dataset: its classifier and unusual levels."""
    return ", ".join([str(axes["classifier"]), *unusual(axes)])


One = TypeVar("One")


def usual_first(groups: Iterable[One], axes: Callable[[One], Mapping[str, Any]]) -> list[One]:
    """Order groups of cells by the number of their unusual levels."""
    return sorted(groups, key=lambda one: len(unusual(axes(one))))


def at_epoch(group: pl.DataFrame) -> str:
    """Return the part of a name that says which snapshot; empty if the training has none."""
    epochs = group["epoch"].unique().sort().to_list()
    return f" at epoch {' or '.join(map(str, epochs))}" if epochs[0] > 0 else ""


def require_axes(by: Iterable[str]) -> None:
    """Raise a UserError for a name that is not an axis."""
    for name in by:
        require_one_of(name, AXES, "not an axis of cells", key="--by")


def same(cells: pl.DataFrame, axis: str) -> bool:
    """Return whether all cells agree in a column."""
    return cells[axis].n_unique() == 1


def split(
    tables: Tables, cells: pl.DataFrame, key: Sequence[str]
) -> Iterator[tuple[pl.DataFrame, Tables]]:
    """Yield the cells of each group (they agree in `key`), and their part of the tables."""
    groups = cells.partition_by(key, maintain_order=True)
    number = pl.concat(
        group.select("cell", group=pl.lit(index, pl.UInt32)) for index, group in enumerate(groups)
    )
    parts: dict[str, dict[tuple[object, ...], pl.DataFrame]] = {}
    for name in ("runs", "pairs", "repeats", "cells"):
        frame = getattr(tables, name)
        numbered = frame.join(number, on="cell", maintain_order="left")
        parts[name] = numbered.partition_by("group", as_dict=True, include_key=False)
    for index, group in enumerate(groups):
        of_group = {
            name: frames.get((index,), getattr(tables, name).clear())
            for name, frames in parts.items()
        }
        yield group, Tables(**of_group)
