"""The sweep after the storm, compared bit for bit with one trained without faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import polars as pl
import zarr

from benchmarks.storm.ledger import Ledger
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.survey import survey

PREDICTIONS = ("label", "score", "margin", "confidence")
TIMES = ("seconds", "recipe", "version", "fit_")


def differences(stormy: Path, calm: Path) -> Iterator[str]:
    """Yield all differences except times."""
    yield from _failures(stormy, calm)
    yield from _predictions(stormy, calm)
    yield from _tables(stormy, calm)


def _rows(directory: Path) -> dict[str, dict[tuple[str, int, int], int]]:
    """Return the row of each run, by group and identity."""
    ledger = Ledger(SweepPaths(directory))
    ledger.read_plan()
    paths = {group.spec.number: group.spec.path for group in ledger.groups()}
    found: dict[str, dict[tuple[str, int, int], int]] = {}
    for (group, row), name in ledger.names.items():
        found.setdefault(paths[group], {})[name] = row
    return found


def _failures(stormy: Path, calm: Path) -> Iterator[str]:
    found = []
    for directory in (stormy, calm):
        state = survey(SweepPaths(directory))
        ids = state.plan.all_cells.select("cell", "cell_id")
        runs = state.runs.join(ids, on="cell").select("cell_id", "repeat", "run", "state")
        found.append({row[:3]: row[3] for row in runs.iter_rows()})
    one, other = found
    if one.keys() != other.keys():
        yield f"{len(one.keys() ^ other.keys())} runs are planned in one of both alone"
    wrong = [name for name in one.keys() & other.keys() if one[name] != other[name]]
    if wrong:
        shown = [(name, one[name], other[name]) for name in sorted(wrong)[:3]]
        yield f"{len(wrong)} runs are in another state: {shown}"


def _predictions(stormy: Path, calm: Path) -> Iterator[str]:
    one, other = _rows(stormy), _rows(calm)
    for path in sorted(one.keys() | other.keys()):
        if path not in one or path not in other:
            yield f"{path} is in one of both alone"
            continue
        names = sorted(one[path].keys() & other[path].keys())
        a, b = _open(stormy, path), _open(calm, path)
        rows = np.array([one[path][n] for n in names]), np.array([other[path][n] for n in names])
        crc = np.zeros(len(names), dtype=np.uint32)
        status = a["status"][:][rows[0]]
        there = (status == 1) | (status == 2)
        optional = [one["name"] for one in a.attrs["manyseed"].get("optional", ())]
        for name in (*PREDICTIONS, *optional, "crc", "status"):
            if name not in a:
                continue
            values = a[name][:][rows[0]], b[name][:][rows[1]]
            wrong = [
                i for i in np.flatnonzero(there) if values[0][i].tobytes() != values[1][i].tobytes()
            ]
            if wrong:
                yield f"{path} {name}: {len(wrong)} runs differ, the first is {names[wrong[0]]}"
            if name not in ("crc", "status"):
                crc = np.array(
                    [
                        google_crc32c.extend(int(c), np.ascontiguousarray(v).tobytes())
                        for c, v in zip(crc, values[0], strict=True)
                    ],
                    dtype=np.uint32,
                )
        stored = a["crc"][:][rows[0]]
        if bad := int((there & (crc != stored)).sum()):
            yield f"{path}: {bad} runs differ from their own checksum"
        for name in ("y_true", "test_index"):
            if a[name][:].tobytes() != b[name][:].tobytes():
                yield f"{path} {name} differs"


def _open(directory: Path, path: str) -> Any:
    store = zarr.storage.LocalStore(SweepPaths(directory).store, read_only=True)
    return zarr.open_group(store, path=path, mode="r", use_consolidated=False)


def _tables(stormy: Path, calm: Path) -> Iterator[str]:
    for file in sorted(SweepPaths(calm).results.glob("*.parquet")):
        other = SweepPaths(stormy).results / file.name
        if file.stem == "inputs":
            continue
        if not other.exists():
            yield f"results/{file.name} is missing"
            continue
        frames = [_sorted(pl.read_parquet(f)) for f in (other, file)]
        if frames[0].columns != frames[1].columns or len(frames[0]) != len(frames[1]):
            yield f"results/{file.name}: {frames[0].shape} instead of {frames[1].shape}"
            continue
        for name in frames[0].columns:
            if not _equal(frames[0][name], frames[1][name]):
                yield f"results/{file.name}: {name} differs"


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    """Order rows by their keys; leave out times and how runs were made."""
    kept = frame.select(c for c in frame.columns if not any(word in c for word in TIMES))
    keys = [c for c, t in kept.schema.items() if t.is_integer() or t == pl.String]
    return kept.sort(keys, maintain_order=True) if keys else kept


def _equal(one: pl.Series, other: pl.Series) -> bool:
    if one.dtype.is_float():
        a, b = one.to_numpy(), other.to_numpy()
        return bool(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))
    return one.equals(other)
