"""Twins: cells whose runs are the same fits, because their settings differ without effect.

``vary`` may name a source that the classifier does not consume, and two fractions may give the same
number of points. Twins are planned once, under one of their names; if a plan already holds several,
results count them once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import polars as pl

from manyseed.analysis.axes import AXES, UNKNOWN, VARY
from manyseed.analysis.counts import counted
from manyseed.jobs.cells import consumed
from manyseed.jobs.datasets.split import n_points
from manyseed.jobs.run import CROSSED, SEARCHED, SOURCES_OF_RANDOMNESS, Cell, canonical_json
from manyseed.orchestrator.errors import toml_value
from manyseed.orchestrator.plans.plan import IS_IMPORTED

SETTING_APART = ("train_fraction", "vary")  # the axes in which twins may differ

_ALIKE = [axis for axis in AXES if axis not in SETTING_APART]
_SIZE = ("repeats", "runs")

State = Literal["left out", "held", "dropped"]


@dataclass(frozen=True, slots=True)
class Twin:
    """Requested cells of a dataset and classifier whose fits are those of other cells.

    `is_`: their levels, for the axes in which they differ from the other cells. `same_as`: the
    levels of the other cells, for the same axes. `draws_from`: the sources of randomness that both
    vary and that their fits draw from. `points`: training points of both, if their fractions
    differ. `state`: whether they are not planned; were planned before and stay; or are not planned
    because the other cells were dropped. `cells` and `runs`: how many are asked for.
    """

    dataset: str
    classifier: str
    is_: Mapping[str, Any]
    same_as: Mapping[str, Any]
    draws_from: tuple[str, ...]
    points: int | None
    state: State
    cells: int
    runs: int

    def to_json(self) -> dict[str, object]:
        """Return the object that ``plan --json`` prints."""
        return {key.rstrip("_"): value for key, value in asdict(self).items()}


class Torn(ValueError):
    """One of two twins is asked for with more repeats, the other with more runs."""

    def __init__(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        super().__init__("of two twins, one asks for more repeats, the other for more runs")
        self.one, self.other = one, other


def fits(cells: pl.DataFrame, n_train: Mapping[str, int] | None = None) -> pl.Series:
    """Return a text for each cell that describes its fits: twins, and only twins, share a text.

    An imported cell has no twin under another dataset name, even if their test sets are equal:
    nothing else is known of the data, and predictions may differ.

    `cells`: columns cell_id, canonical and `AXES`; each cell once. `n_train`: training points.
    Without them, only twins that differ in ``vary`` are found.
    """
    columns = cells.select("cell_id", "canonical", *_ALIKE, points=_points(cells, n_train or {}))
    # most cells have no possible twin, so their descriptions need not be parsed
    has_candidate = columns.select(pl.struct(*_ALIKE, "points").is_duplicated()).to_series()
    alone = pl.when(IS_IMPORTED).then(pl.format("{} {}", "cell_id", "dataset")).otherwise("cell_id")
    texts = [
        _reduced(canonical, points) if candidate else cell
        for candidate, cell, canonical, points in zip(
            has_candidate, *columns.select(alone, "canonical", "points"), strict=True
        )
    ]
    return pl.Series("fits", texts, dtype=pl.String)


def _points(cells: pl.DataFrame, n_train: Mapping[str, int]) -> pl.Series:
    """Return the number of training points of each cell's fits, or the fraction if unknown."""
    sizes = cells.select("dataset", "train_fraction").unique()
    points = [
        float(_training_points(fraction, n_train[dataset])) if dataset in n_train else fraction
        for dataset, fraction in sizes.iter_rows()
    ]
    sizes = sizes.with_columns(pl.Series("points", points, dtype=pl.Float64))
    by = ["dataset", "train_fraction"]
    return cells.select(by).join(sizes, on=by, how="left", maintain_order="left")["points"]


def _training_points(fraction: float, n_train: int) -> int:
    return n_points(int(fraction) if fraction > 1 else fraction, n_train)


def _reduced(canonical: str, points: float) -> str:
    description = json.loads(canonical)
    reduced = {**description, "vary": list(_drawn(description))}
    if "data" not in description["hparams"].get(SEARCHED, {}):  # else searches differ, too
        reduced["train_fraction"] = points
    return canonical_json(reduced).decode()


def sources_drawn(cells: pl.DataFrame) -> pl.Series:
    """Return the varied sources that each cell's fits draw from, as shown in results.

    ``none`` if they draw from none; ``unknown`` for imported runs, unless the import names other
    sources than those of the default. `cells` has the column canonical.
    """
    drawn = []
    for canonical, imported in cells.select("canonical", _=IS_IMPORTED).iter_rows():
        description = json.loads(canonical)
        sign = "*" if CROSSED in description else "+"
        words = sign.join(_drawn(description)) or "none"
        drawn.append(UNKNOWN if imported and words == VARY else words)
    return pl.Series("draws_from", drawn, dtype=pl.String)


def _drawn(description: Mapping[str, Any]) -> tuple[str, ...]:
    sources = consumed(Cell.from_canonical(description))
    return tuple(source for source in SOURCES_OF_RANDOMNESS if source in sources)


def merge_twins(
    asked: pl.DataFrame,
    planned: pl.DataFrame,
    dropped: pl.Series,
    n_train: Mapping[str, int],
) -> tuple[pl.DataFrame, tuple[Twin, ...]]:
    """Return the cells to plan: one of several new twins, or none if a twin was planned before.

    Twins that were planned before all stay. Among new ones, the cell with the default ``vary`` is
    kept, or else the one that names the fewest sources, whatever the order in the file. It gets the
    most repeats and the most runs that any of its twins asks for. Twins of a dropped cell do not
    bring it back.

    `asked`: columns of `Expansion.cells`, and cell and group, which are null for cells not planned
    yet. `planned`: all cells of the current plan, including dropped ones, with repeats and runs.
    `dropped`: numbers of dropped cells. `n_train`: training points.

    Returns columns of `asked`, and the cells that are the same as others, in the order in which
    they were asked for.
    """
    others = planned.join(asked, on="cell_id", how="anti").select(asked.columns)
    others = others.join(asked, on=_ALIKE, how="semi", maintain_order="left")
    pool = pl.concat(
        [
            asked.with_columns(asked=pl.lit(value=True)),
            others.with_columns(asked=pl.lit(value=False)),
        ]
    )
    pool = pool.with_columns(fits=fits(pool, n_train)).with_row_index("place")
    crowded = pool.filter(pl.col("fits").is_duplicated(), pl.col("asked").any().over("fits"))
    if crowded.is_empty():
        return asked, ()
    is_dropped = pl.col("cell").is_in(dropped.implode()).fill_null(value=False)
    crowded = crowded.with_columns(
        dropped=is_dropped, held=pl.col("cell").is_not_null() & ~is_dropped
    )
    kept: list[_Row] = []
    twins: list[tuple[int, Twin]] = []
    for _, group in groupby(_in_order(crowded).to_dicts(), key=itemgetter("fits")):
        rows, merged = _kept(list(group))
        kept += rows
        twins += [(row["place"], _twin(row, first, state, n_train)) for row, first, state in merged]
    alone = pool.filter("asked").join(crowded, on="place", how="anti")
    chosen = pl.DataFrame(kept, schema=crowded.schema).select(pool.columns)
    result = pl.concat([alone, chosen]).sort("place").select(asked.columns)
    return result, _counted(twin for _, twin in sorted(twins, key=itemgetter(0)))


def _in_order(crowded: pl.DataFrame) -> pl.DataFrame:
    """Sort by fits; among twins, the one to keep comes first."""
    sources = pl.col("vary").str.split("+")  # no other cell has the fits of crossed ones
    place = sum(
        pl.when(sources.list.contains(source)).then(2**number).otherwise(0)
        for number, source in enumerate(SOURCES_OF_RANDOMNESS)
    )
    return crowded.sort(
        "fits",
        ~pl.col("held"),
        ~pl.col("asked"),
        ~pl.col("dropped"),
        pl.when("held").then("cell"),
        pl.col("train_fraction") != 1,
        pl.col("vary") != VARY,
        sources.list.len(),
        place,
        "train_fraction",
    )


_Row = dict[str, Any]  # a row of a frame, by column


def _kept(rows: Sequence[_Row]) -> tuple[list[_Row], list[tuple[_Row, _Row, State]]]:
    """Return which of these ordered twins to plan, and which twin is the same as which."""
    first, *others = rows
    if not first["held"] and first["dropped"]:
        asked = [row for row in others if row["asked"] and not row["dropped"]]
        gone = [row for row in rows if row["asked"] and row["dropped"]]
        return gone, [(row, first, "dropped") for row in asked]
    held = [row for row in others if row["held"] and row["asked"]]
    new = [row for row in others if not row["held"] and not row["dropped"] and row["asked"]]
    gone = [row for row in others if row["dropped"] and row["asked"]]
    merged: list[tuple[_Row, _Row, State]] = [(row, first, "held") for row in held]
    merged += [(row, first, "left out") for row in new]
    sizes = {name: max(row[name] for row in (first, *new)) for name in _SIZE}
    if not any(all(row[name] == sizes[name] for name in _SIZE) for row in (first, *new)):
        raise Torn(*(max((first, *new), key=itemgetter(name)) for name in _SIZE))
    return [{**first, **sizes}, *held, *gone], merged


def _twin(row: _Row, first: _Row, state: State, n_train: Mapping[str, int]) -> Twin:
    apart = [axis for axis in SETTING_APART if row[axis] != first[axis]]
    points = _training_points(row["train_fraction"], n_train[row["dataset"]])
    return Twin(
        dataset=row["dataset"],
        classifier=row["classifier"],
        is_={axis: row[axis] for axis in apart},
        same_as={axis: first[axis] for axis in apart},
        draws_from=_drawn(json.loads(row["canonical"])),
        points=points if "train_fraction" in apart else None,
        state=state,
        cells=1,
        runs=int(row["repeats"]) * int(row["runs"]),
    )


def _counted(twins: Iterable[Twin]) -> tuple[Twin, ...]:
    """Merge twins that differ only in their schemes, and count their cells and runs."""
    counted: dict[str, Twin] = {}
    for twin in twins:
        key = repr(replace(twin, runs=0))
        known = counted.setdefault(key, replace(twin, cells=0, runs=0))
        counted[key] = replace(known, cells=known.cells + 1, runs=known.runs + twin.runs)
    return tuple(counted.values())


_OUTCOMES: Mapping[State, str] = {
    "left out": "not planned a second time",
    "held": "planned before; they stay, and results count them once",
    "dropped": "not planned, as those were dropped",
}


def sentences(twins: Sequence[Twin]) -> list[str]:
    """Say which cells are the same as others, why, and what happens to them, without full stops."""
    values: dict[tuple[str, object, str], dict[object, None]] = {}
    names: dict[tuple[str, object, str], dict[str, None]] = {}
    for twin in twins:
        for axis, value in twin.is_.items():
            key = axis, twin.same_as[axis], _reason(twin, axis)
            values.setdefault(key, {})[value] = None
            name = twin.classifier if axis == "vary" else twin.dataset
            names.setdefault(key, {})[name] = None
    lines = [
        f"{axis} = {' | '.join(map(_toml, values[key]))} is the same as {_toml(same_as)} "
        f"{'for' if axis == 'vary' else 'on'} {', '.join(names[key])}: {reason}"
        for key in values
        for axis, same_as, reason in [key]
    ]
    for state, outcome in _OUTCOMES.items():
        if these := [twin for twin in twins if twin.state == state]:
            cells, runs = sum(twin.cells for twin in these), sum(twin.runs for twin in these)
            subject = f"{cells:,} {'cell is' if cells == 1 else 'cells are'}"
            lines.append(f"{subject} the same fits as others ({counted(runs, 'run')}): {outcome}")
    return lines


def _reason(twin: Twin, axis: str) -> str:
    if axis == "train_fraction":
        return f"both are {twin.points:,} training points"
    drawn = " and ".join(twin.draws_from)
    return f"fits draw from {drawn} alone" if drawn else "fits draw from none of these"


def _toml(value: Any) -> str:
    whole = isinstance(value, float) and value > 1
    return toml_value(int(value) if whole else value)
