"""How frequent classes are in the test sets of a sweep."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import polars as pl

from manyseed.orchestrator.errors import ManyseedError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.testsets import read_splits
from manyseed.orchestrator.sweepstore import stored_groups


def most_frequent(paths: SweepPaths, plan: Plan) -> pl.DataFrame:
    """Return the share of the most frequent class in each test set that can be read."""
    rows = []
    with suppress(ManyseedError, OSError):
        for group in stored_groups(paths, plan):
            y_true, index = read_splits(group)
            for repeat in np.flatnonzero((index >= 0).all(axis=1)).tolist():
                share = np.bincount(y_true[repeat]).max() / y_true.shape[1]
                rows.append((group.spec.dataset, group.spec.classifier, repeat, float(share)))
    schema = {
        **dict.fromkeys(("dataset", "classifier"), pl.String()),
        "repeat_index": pl.Int64(),
        "share": pl.Float64(),
    }
    found = pl.DataFrame(rows, schema=schema, orient="row")
    return found.unique([*schema][:3], keep="first", maintain_order=True)  # of several groups


def most_frequent_shares(paths: SweepPaths) -> dict[str, float]:
    """Return the mean share of the most frequent class in test sets, by dataset."""
    shares = most_frequent(paths, Plan.read(paths)).group_by("dataset").agg(pl.col("share").mean())
    return dict(shares.iter_rows())
