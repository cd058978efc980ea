"""Which runs headlines are of, where cells differ in what varies."""

from __future__ import annotations

import polars as pl
import pytest

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.usual import answer, leveled, named, scope
from manyseed.analysis.tables.rows import Tables
from tests.analysis.planted import planted

NOISY = pl.col("perturb_continuous") == "noise"
LESS = pl.col("train_fraction") < 1


def varying(*, grid: bool, without: pl.Expr | None = None) -> Tables:
    """Tables of cells in which fewer sources vary, of two sets of hparams if there is a `grid`."""
    tables = planted(classifiers=("a", "b"), schemes=("none", "noise"), fractions=(1.0, 0.5))

    def changed(frame: pl.DataFrame) -> pl.DataFrame:
        frame = frame if grid else frame.filter(~LESS)
        frame = frame if without is None else frame.filter(~without)
        return frame.with_columns(
            vary=pl.when(NOISY).then(pl.lit("init")).otherwise(pl.lit("init+batch")),
            hparams=pl.when(LESS).then(pl.lit("lr=0.1")).otherwise(pl.lit("lr=0.2")),
            perturb_continuous=pl.lit("none"),
            train_fraction=pl.lit(1.0),
        )

    runs, repeats, cells = map(changed, (tables.runs, tables.repeats, tables.cells))
    return Tables(runs, tables.pairs, repeats, cells)


@pytest.mark.parametrize("grid", [True, False])
def test_headlines_say_what_varies_in_their_runs(grid):
    """They did not, where cells differ in nothing but what varies."""
    (one,) = answer(varying(grid=grid))
    if grid:  # of several sets of hparams, only those cells are compared
        what, counts = "Accuracy, spread and points", "120 of 240"
    else:
        what, counts = "Accuracy and points", "60 of 120"
    assert one.headline == f"{what} are of the runs with vary init+batch: {counts}."
    assert ("The spread between seeds is not of these alone." in one.text) is not grid
    assert f"hard are of the runs with vary init+batch alone: {counts}, without" in one.text


def test_points_of_other_cells_are_not_said_to_be_of_these():
    """One classifier lacks the cells in which most sources vary, so accuracies are of others."""
    (one,) = answer(varying(grid=False, without=~NOISY & (pl.col("classifier") == "b")))
    assert one.headline.startswith("Accuracy is of the runs with vary init: 60 of 90.")
    assert "Points are of the cells in which most sources vary." in one.text


def test_one_choice_of_what_varies_for_each_classifier_is_no_scope():
    tables = varying(grid=False, without=(pl.col("classifier") == "a") == NOISY)
    assert scope(tables.cells) == {}
    assert [*answer(tables)] == []


def test_cells_of_points_are_named_by_shares_and_by_rows():
    """Numbers of rows were called train fraction 40.0."""
    cells = pl.DataFrame(
        {axis: ["none"] * 3 for axis in AXES}
        | {"cell": [0, 1, 2], "n_cells": [1, 1, 1], "classifier": ["a", "a", "b"]}
        | {"train_fraction": [40.0, 0.5, 40.0]}
    )
    said = [named(row) for row in leveled(cells.lazy()).iter_rows(named=True)]
    assert said == ["a 40 rows", "a train fraction 0.5", "b"]
