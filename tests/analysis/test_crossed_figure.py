"""The figure of crossed runs: which run is which field, and what is averaged over."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.crossed import crossed
from manyseed.jobs.run import crossing

K = 3


def frames(vary: str) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Runs, pairs and cells of a crossed cell, on two test sets."""
    n = K ** (vary.count("*") + 1)
    rng = np.random.default_rng(n)
    named = {"dataset": "d", "classifier": "c"}
    axes = dict.fromkeys(AXES, "none") | named | {"train_fraction": 1.0, "vary": vary}
    cells = pl.DataFrame([{**axes, "cell": 4}])
    rows = [
        {"cell": 4, "repeat_index": r, "run_index": run, "identical": False, "accuracy": x}
        for r in (0, 1)
        for run, x in enumerate(rng.uniform(0.8, 0.9, n).tolist())
    ]
    runs = pl.DataFrame(rows).with_columns(alpha_hat=pl.lit(0.0))
    pairs = [(4, 0, i, j, (i + j) / 100) for i, j in combinations(range(n), 2)]
    names = ["cell", "repeat_index", "run_i", "run_j", "ec_local"]
    return runs, pl.DataFrame(pairs, schema=names, orient="row"), cells


def test_a_field_is_a_run_of_the_first_test_set() -> None:
    runs, pairs, cells = frames("init*batch")
    plot = crossed(runs, pairs, cells)
    assert plot is not None
    accuracy, consistency = (axis.images[0].get_array() for axis in plot.figure.axes[:2])
    for run in range(K**2):
        place = crossing(2, run)
        assert accuracy[place] == pytest.approx(runs["accuracy"][run])
        own = pairs.filter((pl.col("run_i") == run) | (pl.col("run_j") == run))
        assert consistency[place] == pytest.approx(own["ec_local"].mean())
    labels = [axis.get_ylabel() for axis in plot.figure.axes[2:]]
    assert labels == ["accuracy", "local error consistency"]  # α̂ is 0 everywhere
    assert (plot.figure.axes[0].get_ylabel(), plot.figure.axes[0].get_xlabel()) == ("init", "batch")
    assert "Error consistency: the mean over" in plot.caption
    assert "α̂" not in plot.caption  # says nothing of what is not drawn
    assert plot.n == K**2
    assert plot.figure.axes[0].get_title(loc="left") == "d × c"


def test_a_third_source_is_averaged_over() -> None:
    runs, pairs, cells = frames("init*batch*train")
    plot = crossed(runs, pairs, cells)
    assert plot is not None
    assert "A third source is averaged over." in plot.caption
    fields = plot.figure.axes[0].images[0].get_array()
    own = [runs["accuracy"][run] for run in range(K**3) if crossing(3, run)[:2] == (2, 1)]
    assert len(own) == K
    assert fields[2, 1] == pytest.approx(np.mean(own))


def test_nothing_is_drawn_without_crossed_cells() -> None:
    runs, pairs, cells = frames("init*batch")
    assert crossed(runs, pairs, cells.with_columns(vary=pl.lit("init+batch"))) is None
