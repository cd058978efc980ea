"""From a sweep file's grids to the distinct cells that they ask for.

Columnar: each axis value is resolved and encoded once for each dataset and classifier, combinations
are integer codes, and only the distinct ones get a description and an identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.jobs import perturb
from manyseed.jobs.classifiers import ClassifierInfo
from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.ensembling.methods import METHODS, NONE
from manyseed.jobs.run import (
    CROSSED,
    LATER,
    SEARCHED,
    Cell,
    canonical_json,
    canonical_pieces,
    optional_piece,
    text_identity,
)
from manyseed.jobs.tuning import OF_DATA
from manyseed.orchestrator.errors import UserError, toml_value
from manyseed.orchestrator.grids.grid import GRID, Codes, Combinations, combine, present
from manyseed.orchestrator.grids.own import OwnCode
from manyseed.orchestrator.grids.plannotes import Notes
from manyseed.orchestrator.grids.resolver import Fit, Resolver
from manyseed.orchestrator.grids.sweepfile import Grid, SweepFile

_FITS = ("dataset", "classifier", "hparams")  # the axes that determine how the others resolve

AS_RUNS = '"data":"runs"'
"""In the canonical text of a cell whose search for hparams depends on how its data are made."""

_OF_DATA = [pl.col(axis).cast(pl.String) for axis in OF_DATA]
_BOOTSTRAPS = pl.col("vary").cast(pl.String).str.contains("train").alias("vary")

VALUES = tuple(axis for axis in AXES if axis not in _FITS)
"""The axes that resolve independently, given dataset, classifier and hparams."""


@dataclass(frozen=True)
class Expansion:
    """Everything that a sweep file asks for.

    `cells`: the distinct cells in the order of the file: cell_id, `AXES` as results show them,
    identical (all runs of a repeat are the same fit), repeats, runs, canonical. `datasets` and
    `classifiers`: the plan's information on each, by name and by (classifier, dataset). `asked`:
    number of runs before duplicate cells are merged, after exclusions. `removed`, tuple of (key,
    rule, runs): the number of runs that each exclusion removed. `notes` and `unexpected`: remarks
    on the plan, and those of them that a user may want to act on. `searches`: number of hparam
    searches that the cells need, one for each dataset and classifier, or with ``data = "runs"`` for
    each way in which their data are made.
    """

    cells: pl.DataFrame
    datasets: Mapping[str, DatasetInfo]
    classifiers: Mapping[tuple[str, str], ClassifierInfo]
    asked: int
    removed: tuple[tuple[str, str, int], ...]
    notes: tuple[str, ...]
    unexpected: tuple[str, ...]
    searches: int

    @property
    def runs(self) -> int:
        """The number of distinct runs."""
        return int((self.cells["repeats"].cast(pl.Int64) * self.cells["runs"]).sum())

    def with_names_of(self, planned: pl.DataFrame) -> Expansion:
        """Return it with the names under which a plan holds what the file calls otherwise now.

        `planned`: the plan's cells; names are no part of their identities.
        """
        pair = ["dataset", "classifier"]
        held = planned.select("cell_id", *pair)
        both = self.cells.select("cell_id", *pair).join(held, on="cell_id", suffix="_held")
        datasets, classifiers = dict(self.datasets), dict(self.classifiers)
        for names in both.drop("cell_id").unique(maintain_order=True).iter_rows():
            dataset, classifier, dataset_held, classifier_held = names
            datasets.setdefault(dataset_held, self.datasets[dataset])
            model = self.classifiers[classifier, dataset]
            classifiers.setdefault((classifier_held, dataset_held), model)
        renamed = {
            pair: None
            for new, held in (("dataset", "dataset_held"), ("classifier", "classifier_held"))
            for pair in both.select(new, held).unique(maintain_order=True).iter_rows()
            if pair[0] != pair[1]
        }
        told = tuple(f"{new} is {held} here, the name that its runs keep" for new, held in renamed)
        return replace(
            self,
            datasets=datasets,
            classifiers=classifiers,
            notes=(*self.notes, *told),
            unexpected=(*self.unexpected, *told),
        )


def expand(
    sweep: SweepFile,
    path: Path,
    own: OwnCode | None = None,
    check: Callable[[Mapping[str, DatasetInfo]], None] = lambda datasets: None,
) -> Expansion:
    """Resolve every combination of a sweep file's grids.

    `path`: the file, for messages. `own`: finds and probes the user's own code; by default the code
    beside the file. `check`: called with a grid's datasets, and earlier ones, before code is tried
    on them.
    """
    own = OwnCode.beside(path) if own is None else own
    resolver, tables, notes = Resolver(sweep, path, own), _Named(), Notes()
    used: dict[str, set[str]] = {"dataset": set(), "classifier": set(), "ensembling": set()}
    gridded: set[str] = set()
    asked, removed, frames = 0, [], []
    for number, grid in enumerate(sweep.grid):
        where = f"grid[{number}]"
        combos = combine(grid, where, path, resolver.configurations)
        test_sets = resolver.test_sets(combos.values["dataset"], where)
        check(resolver.datasets)
        _require_full(combos.present("vary"), grid, number, sweep, path)
        wanted = grid.repeats or sweep.repeats
        repeats = np.array([min(n or wanted, wanted) for n in test_sets])
        runs = grid.runs or sweep.runs
        for rule, (exclusion, gone) in enumerate(zip(grid.exclude, combos.removed_by, strict=True)):
            key = f"{where}.exclude[{rule}]"
            patterns = exclusion.patterns().items()
            text = toml_value({axis: p[0] if len(p) == 1 else p for axis, p in patterns})
            removed.append((key, text, int(repeats[gone["dataset"]].sum()) * runs))
        for kind in used:
            used[kind] |= combos.present(kind)
        if GRID in grid.hparams:
            gridded |= combos.present("classifier")
        parts = _parts(combos, resolver.single(combos.values["ensembling"]))
        fits = resolver.resolve([(part.names, part.values()) for part in parts], where)
        frames.append(_coded(combos, parts, fits, tables, repeats, runs))
        notes.resolved(fits)
        for part, fit in zip(parts, fits, strict=True):
            methods = {name: fit.cells["ensembling", name].cell.ensembling for name in part.moved()}
            own_rates = [n for n, one in methods.items() if one and METHODS[one["name"]].own_rate]
            notes.own_rates(part.names["classifier"], own_rates)
        asked += int(repeats[combos.codes["dataset"]].sum()) * runs
    distinct = _distinct(pl.concat(frames), tables, notes, path)
    notes.facts_of(resolver.datasets, used["dataset"])
    notes.grids(resolver.configurations, gridded)
    notes.unused(resolver.unused(used))
    notes.own(own.notes)
    cells = tables.described(distinct)
    cells = _as_written(cells, sweep)
    _require_deep(cells, path)
    pairs = cells.select("dataset", "classifier").unique(maintain_order=True)
    models = {
        (classifier, dataset): resolver.pairs[dataset, classifier].classifier
        for dataset, classifier in pairs.iter_rows()
    }
    notes.not_trainable(dict.fromkeys(str(each.canonical["name"]) for each in models.values()))
    return Expansion(
        cells,
        {name: resolver.datasets[name] for name in resolver.datasets if name in used["dataset"]},
        models,
        asked,
        tuple(removed),
        notes.lines(),
        notes.unexpected(),
        int(cells.select(is_search()).sum().item()),
    )


def is_search() -> pl.Expr:
    """Return whether a cell is the first of those that share a search for hparams."""
    apart = pl.col("canonical").str.contains(AS_RUNS, literal=True)
    as_made = [pl.when(apart).then(axis) for axis in (*_OF_DATA, _BOOTSTRAPS)]
    key = pl.struct("dataset", "classifier", *as_made)
    is_tuned = pl.col("hparams") == SEARCHED
    return is_tuned & pl.struct(is_tuned, key).is_first_distinct()


def _as_written(cells: pl.DataFrame, sweep: SweepFile) -> pl.DataFrame:
    """Name schemes of categorical features as in identities only if the file does so throughout."""
    asked = {value for grid in sweep.grid for value in grid.perturb_categorical}
    if not any(perturb.is_renamed("categorical", value) for value in asked):
        return cells
    held = cells["perturb_categorical"]
    names = {one: perturb.shown("categorical", one) for one in held.unique()}
    return cells.with_columns(held.replace(names))


def _require_deep(cells: pl.DataFrame, path: Path) -> None:
    """Refuse single networks with equal initial weights and batches if there are methods."""
    single = pl.col("ensembling") == NONE
    differ = pl.col("vary").cast(pl.String).str.contains("init|batch")
    if cells.filter(~single).is_empty() or (alike := cells.filter(single & ~differ)).is_empty():
        return
    vary = alike["vary"][0]
    raise UserError(
        "these runs have the same initial weights and the same batches; the deep ensemble that "
        "methods are compared with needs different ones",
        file=path,
        key="grid.vary",
        value=vary,
        remedy=f'vary = ["init+batch"], or exclude = [{{ ensembling = "none", vary = "{vary}" }}]',
    )


_POWERS = {2: "square", 3: "cube"}


def _require_full(
    varied: Iterable[str], grid: Grid, number: int, sweep: SweepFile, path: Path
) -> None:
    """Refuse a number of runs that are no full cross of the sources that a grid crosses."""
    runs = grid.runs or sweep.runs
    for vary in sorted(one for one in varied if "*" in one):
        sources = vary.count("*") + 1
        values = next(k for k in itertools.count(1) if (k + 1) ** sources > runs)
        if values**sources == runs and values > 1:
            continue
        near = [k for k in (values, values + 1) if k > 1]
        choices = (f"{k**sources} ({' × '.join([str(k)] * sources)})" for k in near)
        raise UserError(
            f"{vary} trains each combination of {sources} sources once, so the number of runs is "
            f"a {_POWERS[sources]}",
            file=path,
            key=f"grid[{number}].runs" if grid.runs else "runs",
            value=runs,
            remedy=f"runs = {' or '.join(choices)}",
        )


@dataclass(frozen=True)
class _GridPart:
    """Combinations that share dataset, classifier and hparams.

    `names`: their dataset, classifier and hparams. `places`, int64 array (n,): their positions in
    the grid. `columns`, mapping of axis to (list, uint32 array (n,)): for each of `VALUES`, its
    values, and the combinations' codes into them.
    """

    names: Mapping[str, str]
    places: NDArray[np.int64]
    columns: Mapping[str, tuple[Sequence[Any], Codes]]

    def values(self) -> list[tuple[str, Any]]:
        """Return the axis values that occur, each with its axis."""
        columns = self.columns.items()
        return [(axis, values[code]) for axis, (values, raw) in columns for code in present(raw)]

    def moved(self) -> list[str]:
        """Return the ensemblings of combinations that perturb hparams."""
        schemes, asked = self.columns["perturb_hparams"]
        names, codes = self.columns["ensembling"]
        perturbed = np.array([scheme != NONE for scheme in schemes])[asked]
        return [names[code] for code in present(codes[perturbed])]


def _parts(combos: Combinations, is_single: Sequence[bool]) -> list[_GridPart]:
    """Divide a grid; `is_single` says of each ensembling whether it is a single network."""
    shape = [len(combos.values[axis]) for axis in _FITS]
    keys = np.ravel_multi_index([combos.codes[axis] for axis in _FITS], shape)
    order = np.argsort(keys, kind="stable")
    return [
        _GridPart(
            {axis: combos.value(axis, int(places[0])) for axis in _FITS},
            places,
            {axis: _asked(combos, axis, places, is_single) for axis in VALUES},
        )
        for places in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
    ]


def _asked(
    combos: Combinations, axis: str, places: NDArray[np.int64], is_single: Sequence[bool]
) -> tuple[Sequence[Any], Codes]:
    """Return an axis' values, and the codes of combinations into them.

    A single network that sees unchanged test sets becomes `NONE`: its members would be equal.
    """
    values, codes = combos.values[axis], combos.codes[axis][places]
    if axis == "ensembling" and any(is_single):
        plain = np.array([value == NONE for value in combos.values["test_augment"]])
        alone = np.array(is_single)[codes] & plain[combos.codes["test_augment"][places]]
        if alone.any():
            return [*values, NONE], np.where(alone, len(values), codes).astype(np.uint32)
    return values, codes


def _coded(
    combos: Combinations,
    parts: Sequence[_GridPart],
    fits: Sequence[Fit],
    tables: _Named,
    repeats: NDArray[np.int64],
    runs: int,
) -> pl.DataFrame:
    """Return a grid's combinations as codes into `tables`."""
    columns = {name: np.zeros(len(combos), dtype=np.uint32) for name in (*AXES, "fit")}
    identical = np.zeros(len(combos), dtype=bool)
    descriptions = [fit.plain.cell.canonical() for fit in fits]
    texts = [canonical_json(description) for description in descriptions]
    for part, fit, text in zip(parts, fits, texts, strict=True):
        plain, places = fit.plain.cell, part.places
        columns["fit"][places] = tables.code("fit", text, plain)
        for axis, name in part.names.items():
            columns[axis][places] = tables.code(axis, fit.pair.shown(axis, name), plain)
        same_fit = np.full(len(places), part.names["hparams"] != "tuned")
        for axis, (values, raw) in part.columns.items():
            codes = np.zeros(len(values), dtype=np.uint32)
            is_same = np.zeros(len(codes), dtype=bool)
            for code in present(raw):
                resolved = fit.cells[axis, values[code]]
                shown = axis_value(resolved.cell, axis)
                if axis == "ensembling":  # a description shows the method, not the file's name
                    shown = NONE if shown is None else values[code]
                codes[code] = tables.code(axis, shown, resolved.cell)
                is_same[code] = axis not in resolved.differing
            columns[axis][places] = codes[raw]
            same_fit &= is_same[raw]
        identical[places] = same_fit
    return pl.DataFrame(
        {
            **columns,
            "identical": identical,
            "repeats": repeats[combos.codes["dataset"]].astype(np.uint32),
            "runs": np.full(len(combos), runs, dtype=np.uint32),
        }
    )


def axis_value(cell: Cell, axis: str) -> Any:
    """Return a cell's value of an axis as results show it, but numbers of points as integers."""
    return getattr(cell, "varied" if axis == "vary" else axis)


def _distinct(asked: pl.DataFrame, tables: _Named, notes: Notes, path: Path) -> pl.DataFrame:
    """Return each cell once, named as in the first combination that asks for it."""
    keys = ["fit", *VALUES]
    names = pl.struct("dataset", "classifier").rank("dense")
    whole = [pl.col(column) == pl.col(column).max() for column in ("repeats", "runs")]
    cells = (
        asked.with_columns(name=names)
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col("dataset", "classifier", "hparams", "identical").first(),
            pl.col("repeats", "runs").max(),
            whole=(whole[0] & whole[1]).any(),
            names=pl.col("name").n_unique(),
        )
    )
    torn = cells.filter(~pl.col("whole"))
    if len(torn):
        row = tables.named(torn).row(0, named=True)
        shown = ", ".join(f"{axis} = {toml_value(row[axis])}" for axis in AXES)
        raise UserError(
            f"two grids ask for the same cell ({shown}), one for more repeats, the other for more "
            "runs",
            file=path,
            key="grid",
            remedy="let one of them ask for at least as many of both",
        )
    _note_same(asked, cells.filter(pl.col("names") > 1), keys, tables, notes)
    return cells.drop("whole", "names")


def _note_same(
    asked: pl.DataFrame, cells: pl.DataFrame, keys: list[str], tables: _Named, notes: Notes
) -> None:
    """Note which datasets and classifiers of the file are the same under different names."""
    names = ["dataset", "classifier"]
    pairs = cells.select(*keys, *names).join(asked, on=keys, suffix="_asked")
    for row in (
        pairs.select(*names, *(f"{name}_asked" for name in names))
        .unique(maintain_order=True)
        .iter_rows()
    ):
        kept, other = (
            (tables.value("dataset", dataset), tables.value("classifier", classifier))
            for dataset, classifier in (row[:2], row[2:])
        )
        if kept != other:
            notes.same(other, kept)


class _Named:
    """Values by code, each with a cell that has it and all other axes at their defaults.

    The axis ``fit`` stands for everything in a cell except `VALUES`.
    """

    def __init__(self) -> None:
        self._codes: dict[str, dict[Any, int]] = {axis: {} for axis in (*AXES, "fit")}
        self._cells: dict[str, list[Cell]] = {axis: [] for axis in self._codes}

    def code(self, axis: str, value: Any, cell: Cell) -> int:
        known = self._codes[axis]
        if value not in known:
            known[value] = len(known)
            self._cells[axis].append(cell)
        return known[value]

    def value(self, axis: str, code: int) -> Any:
        return list(self._codes[axis])[code]

    def named(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Return cells with values instead of codes."""
        return cells.with_columns(
            self._gathered(
                axis, [float(v) for v in known] if axis == "train_fraction" else known, cells
            )
            for axis, known in self._codes.items()
            if axis != "fit"
        )

    def described(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Return cells with values instead of codes, and their descriptions and identities."""
        known = {
            axis: [cell.canonical() for cell in self._cells[axis]] for axis in ("fit", *VALUES)
        }
        texts = {}
        for field in (*known["fit"][0], *LATER, CROSSED):
            axis = "vary" if field == CROSSED else field if field in VALUES else "fit"
            if field in (*LATER, CROSSED):
                encoded = [optional_piece(field, each.get(field, "none")) for each in known[axis]]
            else:
                encoded = [canonical_json(each[field]).decode() for each in known[axis]]
            texts[field] = self._gathered(axis, encoded, cells)
        pieces = [pl.lit(piece) for piece in canonical_pieces(texts, (*LATER, CROSSED))]
        canonical = pl.select(pl.concat_str(pieces).alias("canonical"))["canonical"]
        ids = [text_identity(text.encode()) for text in canonical]
        return self.named(cells).select(
            pl.Series("cell_id", ids), *AXES, "identical", "repeats", "runs", canonical
        )

    def _gathered(self, column: str, values: Iterable[Any], cells: pl.DataFrame) -> pl.Series:
        return pl.Series(column, list(values)).gather(cells[column])
