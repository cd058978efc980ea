"""Plan a sweep file: into a new directory, or as an addition to the sweep that lies there."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from jobs.identity import canonical_json
from orchestrator.errors import UserError
from orchestrator.files import locked
from orchestrator.grid import Expansion, GridCell, expand
from orchestrator.groups import Groups
from orchestrator.layout import CellExtent, assign_rows, wanted
from orchestrator.paths import SweepPaths
from orchestrator.plan import CELLS, Plan, write_plan
from orchestrator.store.files import place
from orchestrator.store.schema import GroupSpec
from orchestrator.sweepfile import SweepFile, parse_sweep_file


@dataclass(frozen=True)
class Change:
    """What planning a sweep file adds to a sweep.

    Attributes
    ----------
    sweep, expansion
        The file, and what it asks for.
    before, after : Plan
        The plan as it lies on disk, and with the additions.
    added : DataFrame
        The new runs: columns group, cell, repeat, run, row.
    groups : Groups
        The store's groups as the plan needs them.
    """

    sweep: SweepFile
    expansion: Expansion
    before: Plan
    after: Plan
    added: pl.DataFrame
    groups: Groups

    @property
    def is_empty(self) -> bool:
        """Whether the sweep holds already all that the file asks for."""
        return self.added.is_empty()

    def by_group(self) -> pl.DataFrame:
        """Count by dataset and classifier.

        Columns dataset, classifier, train, test, classes (points and classes of the dataset),
        cells, runs, identical (runs stored as copies).
        """
        by = ["dataset", "classifier"]
        cells = self.after.cells
        runs = self.after.rows.join(cells.select("cell", *by, "identical"), on="cell")
        data = pl.DataFrame(
            [
                (name, info.n_train, info.n_test, len(info.class_names))
                for name, info in self.expansion.datasets.items()
            ],
            schema={"dataset": pl.String, "train": pl.Int64, "test": pl.Int64, "classes": pl.Int64},
            orient="row",
        )
        counts = runs.group_by(by).agg(
            runs=pl.len(), identical=(pl.col("identical") & (pl.col("run") > 0)).sum()
        )
        return (
            cells.group_by(by, maintain_order=True)
            .agg(cells=pl.len())
            .join(data, on="dataset", how="left", maintain_order="left")
            .join(counts, on=by, maintain_order="left")
            .select(*by, "train", "test", "classes", "cells", "runs", "identical")
        )

    def summary(self) -> dict[str, Any]:
        """Return the plan in numbers, as ``plan --json`` prints it."""
        lengths = dict(self.after.groups.select("group", "length").iter_rows())
        repeats = dict(
            self.after.rows.group_by("group")
            .agg(pl.col("repeat").max().cast(pl.Int64) + 1)
            .iter_rows()
        )
        table = self.by_group()
        specs = self.groups.specs
        return {
            "name": self.sweep.name,
            "runs_asked": self.expansion.asked,
            "runs": len(self.after.rows),
            "runs_added": len(self.added),
            "runs_identical": int(table["identical"].sum()),
            "cells": len(self.after.cells),
            "groups": len(specs),
            "shards": sum(-(-lengths[s.number] // s.shard_length) for s in specs),
            "store_bytes": sum(s.stored_bytes(lengths[s.number], repeats[s.number]) for s in specs),
            "store_files": sum(s.files(lengths[s.number], repeats[s.number]) for s in specs),
        }


def plan_change(sweep_file: Path, directory: Path) -> tuple[Change, bytes]:
    """Return what planning `sweep_file` into `directory` would do, and the file's text.

    Nothing is written.

    Raises
    ------
    UserError
        For what is wrong in the file, or a change that would alter runs that exist.
    """
    try:
        text = sweep_file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the sweep file: {error.strerror}", file=sweep_file) from None
    try:
        sweep = parse_sweep_file(text.decode(), sweep_file)
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text", file=sweep_file) from None
    expansion = expand(sweep, sweep_file)
    paths = SweepPaths(directory)
    if paths.is_sweep:
        before, groups = Plan.read(paths), Groups.read(paths)
    else:
        _check_free(directory)
        before, groups = Plan.empty(), Groups()
    _check_kept(before, expansion, sweep_file)
    known = set(before.cells["cell_id"])
    new = [cell for cell in expansion.cells if cell.id not in known]
    groups = groups.extended(new, sweep, expansion, sweep_file)
    after, added = _extend(before, expansion, groups)
    return Change(sweep, expansion, before, after, added, groups), text


def plan_sweep(sweep_file: Path, directory: Path) -> Change:
    """Plan `sweep_file` into `directory`; an interrupted planning leaves what was there.

    Raises
    ------
    UserError
        As `plan_change`.
    """
    paths = SweepPaths(directory)
    if not paths.is_sweep:
        change, text = plan_change(sweep_file, directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        building = directory.with_name(f".{directory.name}.{os.getpid()}.planning")
        try:
            building.mkdir()
            _write(SweepPaths(building), change, text)
            building.rename(directory)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return change
    with locked(paths.lock, "planning"):
        change, text = plan_change(sweep_file, directory)
        if not change.is_empty:
            _write(paths, change, text)
    return change


def _write(paths: SweepPaths, change: Change, text: bytes) -> None:
    change.groups.write(paths)
    write_plan(paths, change.after)
    place(paths.sweep_file, text)


def _check_free(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(
            "exists and is not a sweep directory",
            file=directory,
            remedy="name another with --out DIR",
        )


def _check_kept(before: Plan, expansion: Expansion, file: Path) -> None:
    """Refuse a file that no longer asks for runs which the plan holds."""
    asked = {cell.id: cell for cell in expansion.cells}
    held = before.rows.group_by("cell").agg(
        repeats=pl.col("repeat").max() + 1, runs=pl.col("run").max() + 1
    )
    lost = []
    for row in before.cells.join(held, on="cell").sort("cell").iter_rows(named=True):
        cell = asked.get(row["cell_id"])
        if cell is None or cell.repeats < row["repeats"] or cell.runs < row["runs"]:
            lost.append((row, cell))
    if not lost:
        return
    row, cell = lost[0]
    axes = ", ".join(
        f"{axis} = {row[axis]}" for axis in ("dataset", "classifier", *_shown_axes(row))
    )
    was = f"{row['repeats']} repeats × {row['runs']} runs of {axes}"
    now = "none" if cell is None else f"{cell.repeats} × {cell.runs}"
    raise UserError(
        f"this file would change {len(lost)} of the sweep's {len(before.cells)} cells: it holds "
        f"{was}; the file asks for {now}"
        + (f"\n  {_difference(before, lost[0][0], expansion)}" if cell is None else ""),
        file=file,
        remedy="a plan only grows: keep what it holds, or plan into another directory with --out",
    )


def _shown_axes(row: dict[str, object]) -> list[str]:
    return [
        axis
        for axis in ("train_fraction", "perturb_continuous", "perturb_categorical")
        if row[axis] not in ("none", 1.0)
    ]


def _difference(before: Plan, row: dict[str, object], expansion: Expansion) -> str:
    """Say how the cell of the same names that the file asks for differs."""
    axes = [name for name in CELLS if name in ("train_fraction", "hparams", "vary")]
    axes += [name for name in CELLS if name.startswith("perturb_")]
    held = before.canonical(int(str(row["cell"])))
    for cell in expansion.cells:
        same = cell.dataset == row["dataset"] and cell.classifier == row["classifier"]
        if same and all(cell.axes[axis] == row[axis] for axis in axes):
            new = cell.cell.canonical()
            parts = [
                f"{k}: {_json(held[k])} → {_json(new[k])}" for k in new if new[k] != held.get(k)
            ]
            return "the same combination has now other " + "; ".join(parts)
    return "no grid of the file has that combination"


def _json(value: Any) -> str:
    return canonical_json(value).decode()


def _extend(before: Plan, expansion: Expansion, groups: Groups) -> tuple[Plan, pl.DataFrame]:
    """Return the enlarged plan, and its new runs with their rows."""
    part = len(before.parts) + 1
    held = {
        cell_id: (cell, group)
        for cell_id, cell, group in before.cells.select("cell_id", "cell", "group").iter_rows()
    }
    new_cells, extents = [], []
    for cell in expansion.cells:
        if cell.id not in held:
            spec = groups.find(cell.dataset, cell.classifier)
            assert spec is not None
            held[cell.id] = (len(held), spec.number)
            new_cells.append(_cell_row(len(held) - 1, spec, cell, expansion, part))
        number, group = held[cell.id]
        extents.append(CellExtent(number, group, cell.repeats, cell.runs))
    new = wanted(extents)
    if before.parts:
        keys = ["cell", "repeat", "run"]
        new = new.join(before.rows, on=keys, how="anti", maintain_order="left")
    lengths = dict(before.groups.select("group", "length").iter_rows())
    shard_lengths = {spec.number: spec.shard_length for spec in groups.specs}
    added = assign_rows(new, lengths, shard_lengths)
    if added.is_empty():
        return before, added
    cells = pl.concat([before.cells, pl.DataFrame(new_cells, schema=dict(CELLS), orient="row")])
    return Plan(cells, (*before.parts, added.drop("group"))), added


def _cell_row(
    number: int, spec: GroupSpec, cell: GridCell, expansion: Expansion, part: int
) -> tuple[object, ...]:
    info = expansion.classifiers[cell.classifier, cell.dataset]
    values = {
        "cell": number,
        "cell_id": cell.id,
        "group": spec.number,
        "path": spec.path,
        "dataset": cell.dataset,
        "classifier": cell.classifier,
        **cell.axes,
        "identical": cell.identical,
        "snapshots": list(info.snapshots),
        "canonical": canonical_json(cell.cell.canonical()).decode(),
        "part": part,
    }
    return tuple(values[name] for name in CELLS)
