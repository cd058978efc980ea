"""Which values of a table for a paper are bold: the best of each group, or the better side."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from manyseed.orchestrator.cli.escaping import Places
from manyseed.orchestrator.cli.output import shown
from manyseed.orchestrator.errors import UserError, require_one_of

if TYPE_CHECKING:
    import polars as pl


def best_of(
    frame: pl.DataFrame,
    columns: Sequence[str],
    within: Sequence[str] = (),
    alike: Sequence[Hashable] = (),
) -> tuple[Places, list[str]]:
    """Return the row and column of each best value, and what it is the best of.

    A metric's best is that of its dataset, or of its rows that agree in `within`, ties as they are
    shown; a spread or range is not better or worse, and never bold, nor are means if some are over
    other cells (`alike`, as `formats.Paper` has it). Of a comparison, the side that is told to be
    better is bold; of several, where that holds for all of them together.
    """
    from manyseed.analysis.figures.labels import labelled
    from manyseed.analysis.metrics.metric import better

    blocks: dict[tuple[object, ...], list[int]] = {}
    for name in within:
        require_one_of(name, frame.columns, "no column of this table", key="--bold")
    usual = [name for name in ("sweep", "cells", "dataset") if name in frame.columns]
    apart = [*within] or usual
    for number, key in enumerate(frame.select(apart).iter_rows() if apart else [()] * len(frame)):
        blocks.setdefault(key, []).append(number)
    compared = [rows for rows in blocks.values() if len({alike[row] for row in rows if alike}) < 2]
    judged = {
        name: way
        for name in columns
        if (way := better(name)) and "_range" not in name and frame[name].dtype.is_float()
    }
    found: Places = set()
    for name, way in judged.items():
        values = frame[name]
        for block in compared:
            known = [row for row in block if values[row] is not None and math.isfinite(values[row])]
            if len(known) > 1:
                best = (max if way == "more" else min)(values[row] for row in known)
                at = columns.index(name)
                found |= {(row, at) for row in known if shown(values[row]) == shown(best)}
    is_compared, of_several = "verdict" in frame.columns, "together_verdict" in frame.columns
    both = [pair for pair in _SIDES if {*pair} <= {*columns}]
    if both and is_compared:
        sides = [columns.index(name) for name in both[0]]
        of = {"a better": sides[0], "b better": sides[1]}
        verdicts = frame["together_verdict" if of_several else "verdict"]
        found |= {(row, of[said]) for row, said in enumerate(verdicts) if said in of}
    elif not judged:
        remedy = "ask for metrics, such as accuracy_mean or ece_mean"
        remedy = "add mean_a,mean_b to --columns, or a,b" if is_compared else remedy
        raise UserError(
            "no column is known to be better high or low", key="--bold", value="best", remedy=remedy
        )
    each = " and ".join(map(labelled, apart)) if within else apart[-1] if apart else ""
    each = f" of each {each}" if len(blocks) > 1 else ""
    if not judged:
        return found, [f"Bold: the better side, where that is told{_TOGETHER * of_several}."]
    told = f"Bold: only the best number{each}, not what is told to be better: see compare."
    if len(compared) < len(blocks):
        where = f", {apart[-1]} by {apart[-1]}," if each and not within else ""
        nothing = f"where rows{where} are means over unlike cells, nothing is bold."
        told = f"{told[:-1]}; {nothing}" if found else f"{nothing[0].upper()}{nothing[1:]}"
    return found, [told]


_TOGETHER = " for all pairs together"
SIDES = ("a", "b")
_SIDES = (("mean_a", "mean_b"), SIDES)
"""Columns of the two sides of a comparison, of which one is bold."""
