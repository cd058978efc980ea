"""A plan only grows: what a file no longer asks for, or asks for in another way, is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.jobs.checks import ARRAYS
from manyseed.jobs.datasets import DatasetInfo
from manyseed.orchestrator.errors import UserError, command, each_of, toml_key, toml_value
from manyseed.orchestrator.grids.own import OwnCode, placed
from manyseed.orchestrator.plans.code import DIGESTS
from manyseed.orchestrator.plans.plan import Plan

_RUNS = pl.col("repeats").cast(pl.Int64) * pl.col("runs").cast(pl.Int64)
"""A cell's runs."""


def check_kept(before: Plan, asked: pl.DataFrame, file: Path) -> None:
    """Refuse a file that no longer asks for runs that the plan holds."""
    held = before.cells.join(before.extents, on="cell").sort("cell")
    now = asked.select("cell_id", repeats_now="repeats", runs_now="runs")
    lost = held.join(now, on="cell_id", how="left", maintain_order="left").filter(
        pl.col("repeats_now").is_null()
        | (pl.col("repeats_now") < pl.col("repeats"))
        | (pl.col("runs_now") < pl.col("runs"))
    )
    if lost.is_empty():
        return
    row = lost.row(0, named=True)
    names = ", ".join(
        f"{axis} = {toml_value(row[axis])}"
        for axis in AXES
        if row[axis] not in ("none", "default", 1.0)
    )
    wanted = f"{row['repeats_now']} × {row['runs_now']}"
    difference = seeds = beside = ""
    grown = _grown(before, asked, lost)
    if row["repeats_now"] is None:
        wanted, difference = "none", f"\n  {_difference(lost.head(1), asked)}"
        seeds = _seeds_before(lost.head(1), asked)
        beside = _beside(lost.head(1), asked)
    raise UserError(
        f"this file would change {len(lost):,} of the sweep's {len(held):,} cells: it holds "
        f"{row['repeats']} repeats × {row['runs']} runs of {names}; the file asks for "
        f"{wanted}{difference}",
        file=file,
        remedy=f"{grown}a plan only grows: keep what it holds{seeds}{beside}, take cells out with "
        "manyseed plan --drop, or plan into another directory with --out",
    )


def _grown(before: Plan, asked: pl.DataFrame, lost: pl.DataFrame) -> str:
    """Return the lines that keep what is held and add what is asked for, if they are the same."""
    most = [pl.max_horizontal(key, f"{key}_now").alias(key) for key in ("repeats", "runs")]
    lines = lost.select("repeats_now", "runs_now", *most).unique()
    if lines.height != 1 or lost["repeats_now"].has_nulls():
        return ""
    repeats_now, runs_now, repeats, runs = lines.row(0)
    held = before.cells.join(before.extents, on="cell").select("cell_id", "repeats", "runs")
    now = asked.select("cell_id", repeats_now="repeats", runs_now="runs")
    is_told = (pl.col("repeats_now") == repeats_now) & (pl.col("runs_now") == runs_now)
    told = pl.when(is_told)
    now = now.with_columns(
        repeats_now=told.then(repeats).otherwise("repeats_now"),
        runs_now=told.then(runs).otherwise("runs_now"),
    ).join(held, on="cell_id", how="left")
    further = int(now.select(most).select(_RUNS).sum().item())
    further -= int(held.select(_RUNS).sum().item())
    more = f"{further:,} further run{'s' * (further != 1)}" if further else "what it holds"
    return f"write repeats = {repeats} and runs = {runs}: {more}\n  "


def require_same_files(
    before: Plan,
    now: Mapping[str, DatasetInfo],
    sources: Mapping[str, str | None],
    file: Path,
    directory: Path,
) -> None:
    """Refuse a dataset of the plan whose files, or what a function returns, differ now.

    `now`: the file's datasets. `sources`: as its tables name them. `directory`: the sweep's.
    """
    found = [_digests(info.canonical) for info in now.values()]
    held = before.cells.unique("dataset", keep="first", maintain_order=True)
    for name, text in held.select("dataset", "canonical").iter_rows():
        planned = _digests(json.loads(text)["dataset"])
        if name not in now or planned in found:  # perhaps under another name
            continue
        raise _changed(file, name, sources.get(name, name), directory)


def _changed(file: Path, name: str, source: str | None, directory: Path) -> UserError:
    changed = "has changed since it was planned"
    path = (source or "").removeprefix("file:")
    return UserError(
        f"{path} {changed}, or is another file" if path else f"what it returns {changed}",
        file=file,
        key=f"dataset.{toml_key(name)}",
        remedy="restore what was planned, or plan what it holds now into another directory "
        f"with --out; {command('resume', directory)} trains the rest on the prepared copy of what "
        "was planned",
    )


def why_refused(
    error: UserError,
    before: Plan,
    sources: Mapping[str, str | None],
    file: Path,
    directory: Path,
    own: OwnCode,
) -> UserError:
    """Return what `require_same_files` says if a table was refused as it has changed; else `error`.

    `before`, `sources` and `directory`: as there.
    """
    held = before.cells.unique("dataset", keep="first", maintain_order=True)
    for name, text in held.select("dataset", "canonical").iter_rows():
        key, source = f"dataset.{toml_key(name)}.", sources.get(name) or ""
        is_of_it = any((one.key or "").startswith(key) for one in each_of(error))
        if not is_of_it or not source.startswith("file:"):
            continue
        path = Path(str(placed({"source": source}, own.sweep)["source"]).removeprefix("file:"))
        planned = json.loads(text)["dataset"].get("digest")
        if path.suffix in ARRAYS or not path.is_file():
            continue
        if hashlib.sha256(path.read_bytes()).hexdigest() != planned:
            return _changed(file, name, source, directory)
    return error


def _digests(dataset: Mapping[str, Any]) -> list[Any]:
    return [dataset.get(key) for key in DIGESTS]


def _difference(cell: pl.DataFrame, asked: pl.DataFrame) -> str:
    """Say how the file's cell with the same levels differs."""
    same = asked.join(cell, on=list(AXES), how="semi")
    if same.is_empty():
        return "no grid of the file has that combination"
    before, now = (json.loads(frame["canonical"][0]) for frame in (cell, same))
    return "the same combination now differs in " + "; ".join(_changes(before, now))


def _seeds_before(cell: pl.DataFrame, asked: pl.DataFrame) -> str:
    """Say how to keep a cell whose estimator has got seeds since: its code was probed again."""
    before, *now = (
        json.loads(text)["classifier"].get("seeds", {})
        for frame in (cell, asked.join(cell, on=list(AXES), how="semi"))
        for text in frame["canonical"].head(1)
    )
    if not now or before == now[0] or not before.keys() <= now[0].keys():
        return ""
    table = f"[classifier.{toml_key(cell['classifier'][0])}]"
    return f" (seeds = {toml_value(before) if before else '{}'} in {table} keeps these cells)"


def _beside(cell: pl.DataFrame, asked: pl.DataFrame) -> str:
    """Say how to have a changed classifier or dataset beside the one of a cell."""
    now = asked.join(cell, on=list(AXES), how="semi")["canonical"].head(1)
    if now.is_empty():
        return ""
    before, after = (json.loads(text) for text in (cell["canonical"][0], now[0]))
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    kind = "dataset" if "dataset" in changed else "classifier"
    if not changed <= {kind, "hparams"}:
        return ""
    name, taken = cell[kind][0].rpartition(":")[2], {*cell[kind], *asked[kind]}
    new = next(one for k in count(2) if (one := f"{name}-{k}") not in taken)
    return f", with the change under another name ([{kind}.{toml_key(new)}])"


def _changes(before: Any, now: Any, key: str = "") -> list[str]:
    """Return the values that differ, each with its key in the description."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [f"{key}: {toml_value(before)} → {toml_value(now)}"]
    return [
        change
        for name in sorted(before | now)
        for change in _changes(before.get(name), now.get(name), f"{key}.{name}".lstrip("."))
    ]
