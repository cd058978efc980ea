"""Cells that are answered for together: their name, and what tables hold of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables.schema import Tables
from manyseed.orchestrator.errors import UserError, nearest

GROUP = ["dataset", "classifier"]


def named(own: pl.DataFrame, cells: pl.DataFrame) -> str:
    """Return the name of some cells: in what they agree, and others among `cells` do not."""
    named = [f"{axis} = {own[axis][0]}" for axis in AXES if same(own, axis)]
    if all(same(own, axis) for axis in GROUP):
        apart = [axis for axis in AXES if axis not in GROUP and not same(cells, axis)]
        named = [" × ".join(str(own[axis][0]) for axis in GROUP)]
        named += [f"{axis} = {own[axis][0]}" for axis in apart if same(own, axis)]
    which = f"cell {own['cell'][0]}" if own.height == 1 else f"{own.height:,} cells"
    return f"{', '.join(named)} ({which})"


def at_epoch(own: pl.DataFrame) -> str:
    """Return what a name says of the snapshot; nothing where the training has none."""
    epochs = own["epoch"].unique().sort().to_list()
    return f" at epoch {' or '.join(map(str, epochs))}" if epochs[0] > 0 else ""


def require_axes(by: Iterable[str]) -> None:
    """Refuse to group by what cells do not differ in.

    Raises
    ------
    UserError
    """
    for name in by:
        if name not in AXES:
            remedy = nearest(name, AXES)
            raise UserError("not what cells differ in", key="--by", value=name, remedy=remedy)


def same(cells: pl.DataFrame, axis: str) -> bool:
    """Return whether all cells agree in a column."""
    return cells[axis].n_unique() == 1


def split(
    tables: Tables, cells: pl.DataFrame, key: Sequence[str]
) -> Iterator[tuple[pl.DataFrame, Tables]]:
    """Yield the cells of each group, which agree in `key`, and what tables say of them."""
    groups = cells.partition_by(key, maintain_order=True)
    number = pl.concat(
        own.select("cell", group=pl.lit(number, pl.UInt32)) for number, own in enumerate(groups)
    )
    parts: dict[str, dict[tuple[object, ...], pl.DataFrame]] = {}
    for name in ("runs", "pairs", "repeats", "cells"):
        frame = getattr(tables, name)
        numbered = frame.join(number, on="cell", maintain_order="left")
        parts[name] = numbered.partition_by("group", as_dict=True, include_key=False)
    for index, own in enumerate(groups):
        yield (
            own,
            Tables(
                **{
                    name: of_group.get((index,), getattr(tables, name).clear())
                    for name, of_group in parts.items()
                }
            ),
        )
