"""What is said of infeasible resamples, and of whom."""

from __future__ import annotations

import polars as pl
import pytest

from manyseed.analysis.options import Options
from manyseed.analysis.questions import caveats

KEY = {"dataset": "cancer", "classifier": "mlp"}


def said(infeasible, suspected, **options):
    """Sentences of as many repeats of one cell, of four runs each."""
    n = len(infeasible)
    repeats = pl.DataFrame(
        {
            **KEY,
            "cell": [5] * n,
            "repeat_index": range(n),
            "n_distinct": 4,
            "alpha_hat_infeasible_max": infeasible,
        }
    )
    rows = [(5, repeat, run) for repeat in range(n) for run in range(4)]
    runs = pl.DataFrame(rows, schema=["cell", "repeat_index", "run_index"], orient="row")
    found = [run in suspected[repeat] if suspected else None for _, repeat, run in rows]
    runs = runs.with_columns(alpha_hat_suspect=pl.Series(found, dtype=pl.Boolean))
    return caveats.suspect_notes(repeats.lazy(), runs.lazy(), Options(**options))


def test_the_likely_cause_is_named_with_its_place():
    (note,) = said([0.0, 1.0, None], [[], [2], []])
    assert note == (
        "cancer × mlp: in one repeat, the test rejects some resamples at every trimming level; "
        "each of these counts as α̂ = 1. Without run 2 (cell 5, repeat 1), "
        "no resample is rejected at every level. With alpha_reference = others-trimmed all runs "
        "are compared with the rest."
    )


def test_who_is_left_out_is_told_even_where_all_pass():
    (note,) = said([0.0, 0.0], [[], [0, 3]], alpha_reference="others-trimmed")
    assert note == (
        "cancer × mlp: left out of references, because others fail against them: run 0 "
        "(cell 5, repeat 1), run 3 (cell 5, repeat 1)."
    )


def test_many_are_counted_and_paper_counts_half():
    (note,) = said([0.2] * 7, [[1]] * 7, alpha_mode="paper")
    assert "in 7 repeats, the test rejects some resamples" in note
    assert "counts as α̂ = 0.5. " in note
    assert "run 1 (cell 5, repeat 4) and 2 more, no resample is rejected" in note


def test_where_no_majority_agrees_nobody_is_named():
    told = "There, no majority of the runs agrees, so no run is named as the cause."
    assert said([1.0], [[]])[0].endswith(told)
    (note,) = said([1.0, 1.0], [[2], []])
    assert "Without run 2 (cell 5, repeat 0), no resample" in note
    assert note.endswith(f"In 1 of these repeats{told.removeprefix('There')}")


def test_an_average_points_to_another_reference():
    (note,) = said([1.0], None, alpha_reference="loo_ensemble")
    assert note.endswith("alpha_reference = others shows which runs are the likely cause.")


@pytest.mark.parametrize("of", ["feasible", "identical", "earlier"])
def test_nothing_is_said_where_there_is_nothing(of):
    frame = pl.DataFrame({**KEY, "cell": [0], "repeat_index": [0], "n_distinct": [4]})
    repeats = frame.with_columns(alpha_hat_infeasible_max=pl.lit(0.0 if of == "feasible" else 1.0))
    runs = pl.DataFrame({"cell": [0], "repeat_index": [0], "run_index": [0]})
    if of == "identical":
        repeats = repeats.with_columns(n_distinct=1)
    if of != "earlier":  # results of an earlier version have no such column
        runs = runs.with_columns(alpha_hat_suspect=pl.lit(False))
    assert caveats.suspect_notes(repeats.lazy(), runs.lazy(), Options()) == []
