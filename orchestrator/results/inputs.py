"""What a repeat's results were computed from, so that only what changed is computed again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
import xarray as xr

from analysis.options import Options
from analysis.predictions import Predictions
from analysis.tables import ORDER, Tables, cells, ordered
from analysis.version import code_version
from orchestrator.errors import DamagedFile
from orchestrator.parquet import checksum, read_parquet, require_intact, write_parquet
from orchestrator.paths import SweepPaths
from orchestrator.results.record import Analysis
from orchestrator.results.tables import INPUT_COLUMNS, INPUTS, PARTS, result_file
from orchestrator.store.schema import GroupSpec

KEY = ["cell", "repeat_index"]
_FREE = ("block_bytes",)
"""Options that change no number."""


def digests(
    data: xr.Dataset, predictions: Predictions, spec: GroupSpec, options: Options
) -> pl.DataFrame:
    """Return a digest of all that each repeat's rows in the tables depend on.

    That is which runs are finished with their status and checksum, the true classes, how they are
    stored, the options, the code, and how many runs are planned.

    Returns
    -------
    DataFrame
        Columns cell, repeat_index, digest.
    """
    runs = predictions.runs.sort(*KEY, "run_index")
    rows = runs["row"].to_numpy()
    content = np.stack(
        [
            runs["run_index"].to_numpy().astype("<u4"),
            data["status"].to_numpy()[rows].astype("<u4"),
            data["crc"].to_numpy()[rows].astype("<u4"),
        ],
        axis=1,
    )
    facts = {k: repr(v) for k, v in asdict(options).items() if k not in _FREE}
    stored = {k: v for k, v in spec.to_attributes().items() if not k.endswith("length")}
    identity = [predictions.dataset_id, predictions.seed, code_version(options.metrics)]
    common = hashlib.sha256(json.dumps([facts, stored, identity]).encode())
    test_sets = {
        index: hashlib.sha256(predictions.y_true[index].astype("<u2").tobytes()).digest()
        for index in runs["repeat_index"].unique()
    }
    planned = predictions.runs_planned
    assert isinstance(planned, Mapping)
    repeats = runs.group_by(KEY, maintain_order=True).agg(n=pl.len())
    found, start = [], 0
    for cell, repeat, n in repeats.iter_rows():
        digest = common.copy()
        digest.update(test_sets[repeat])
        digest.update(planned[cell].to_bytes(4, "little"))
        digest.update(content[start : start + n].tobytes())
        found.append(digest.hexdigest()[:32])
        start += n
    return repeats.select(*KEY, digest=pl.Series(found, dtype=pl.String))


class Held:
    """The results that lie on disk, and what they were computed from."""

    def __init__(self, paths: SweepPaths) -> None:
        self.paths = paths
        try:
            tables = Analysis.read(paths).tables
            for name in PARTS:
                require_intact(file := result_file(paths, name))
                if name in tables and tables[name] != checksum(file):
                    raise DamagedFile(file, "is of another analysis")
            file = result_file(paths, INPUTS)
            self.inputs = read_parquet(file, INPUT_COLUMNS).select(*INPUT_COLUMNS)
        except (FileNotFoundError, DamagedFile):  # all of it is computed again
            self.inputs = pl.DataFrame(schema=dict(INPUT_COLUMNS))

    def same(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """Return the repeats whose rows on disk are what would be computed: `KEY`."""
        return wanted.join(self.inputs, on=[*KEY, "digest"], how="semi").select(KEY)

    def merged(self, computed: list[Tables], same: pl.DataFrame) -> Tables:
        """Return what was computed, with the rows on disk of the repeats that are the same."""
        frames: dict[str, Any] = {}
        for name in PARTS:
            parts = [getattr(tables, name) for tables in computed]
            if not same.is_empty():
                file, wanted = result_file(self.paths, name), parts[0].schema
                again = f"remove it, then: manyseed analyze {self.paths.directory}"
                held = read_parquet(file, wanted, list(wanted), again)
                parts.append(held.join(same, on=KEY, how="semi", maintain_order="left"))
            frames[name] = ordered(pl.concat(parts), ORDER[name])
        return Tables(**frames, cells=cells(frames["repeats"]))

    def forget(self) -> None:
        """Trust no rows on disk until `remember`: they are about to be replaced."""
        result_file(self.paths, INPUTS).unlink(missing_ok=True)

    def remember(self, inputs: pl.DataFrame) -> None:
        """Record what the rows on disk were computed from."""
        write_parquet(result_file(self.paths, INPUTS), inputs)
