"""Learning curves of a repeat, against a loop over its runs."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.tables.schema import describe
from manyseed.orchestrator.computing.analysis import learning_curves
from manyseed.orchestrator.store.arrays import CURVES
from tests.analysis.documented import documented
from tests.analysis.samples import regular


def test_curves_are_described_by_repeat_and_epoch():
    runs = regular(2, 2, 3).with_columns(identical=pl.col("row") == 4)
    rng = np.random.default_rng(0)
    values = {name: rng.random((14, 5)).astype(np.float32) for name in CURVES}
    values["test_loss"][1] = np.nan  # recorded none
    found = learning_curves({**values, "trained_epoch": np.arange(1, 6)}, runs)
    assert found.height == 4 * 5
    told = documented("curves")
    assert set(found.columns) == told.keys() | {"cell"}
    described = describe("curves", found.columns, ())
    assert all(unit in (None, described[name][0]) for name, unit in told.items())
    for row in found.iter_rows(named=True):
        own = runs.filter(~pl.col("identical"), cell=row["cell"], repeat_index=row["repeat_index"])[
            "row"
        ].to_numpy()
        assert row["n_runs"] == len(own)
        for name in CURVES:
            one = values[name][own, row["trained_epoch"] - 1].astype(float)
            one = one[~np.isnan(one)]
            assert row[name] == pytest.approx(one.mean())
            assert row[f"{name}_std"] == pytest.approx(one.std(ddof=1))
            assert (row[f"{name}_min"], row[f"{name}_max"]) == (one.min(), one.max())
