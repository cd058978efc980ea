"""Warnings that runs are not missing at random: how often by chance, and where they are not."""

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.questions import caveats

GROUPS, CELLS, REPEATS, RUNS = 6, 4, 6, 8
SIZE = GROUPS * CELLS * REPEATS * RUNS
NOT_AT_RANDOM = "not missing at random"


def runs_of(rng: np.random.Generator, within: float = 0.0) -> pl.DataFrame:
    """All runs of a sweep in which slow cells and hard test sets differ in accuracy.

    `within` is what a second more of fit time adds to the accuracy of runs of one repeat.
    """
    grid = np.indices((GROUPS, CELLS, REPEATS, RUNS)).reshape(4, -1)
    group, cell, repeat, _ = grid
    noise = rng.normal(size=(2, SIZE))
    seconds = 1.0 + cell + rng.normal(size=(GROUPS, REPEATS))[group, repeat] + noise[0]
    accuracy = 0.5 + 0.1 * cell + rng.normal(size=(GROUPS, REPEATS))[group, repeat]
    return pl.DataFrame(
        {
            "dataset": [f"data {number}" for number in group],
            "classifier": "mlp",
            "cell": cell + CELLS * group,
            "repeat_index": repeat,
            "fit_seconds": seconds,
            "accuracy": accuracy + within * noise[0] + noise[1],
        }
    )


def said(whole: pl.DataFrame, finished: np.ndarray) -> list[str]:
    runs = whole.filter(pl.Series(finished))
    key = ["dataset", "classifier", "cell", "repeat_index"]
    repeats = runs.group_by(key, maintain_order=True).agg(
        coverage=pl.len() / RUNS, accuracy_mean=pl.col("accuracy").mean()
    )
    return caveats.missing_notes(runs, repeats)


def warned(sentences: list[str]) -> bool:
    return any(NOT_AT_RANDOM in text for text in sentences)


def at_random(rng: np.random.Generator, share: float) -> np.ndarray:
    finished = rng.random(SIZE) >= share
    finished[rng.choice(SIZE, GROUPS, replace=False)] = False
    return finished


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_sweep_whose_runs_are_missing_at_random_is_hardly_ever_warned_of(share):
    """Fit time and accuracy go together over cells and within them, as they do in real sweeps."""
    alarms = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        sentences = said(runs_of(rng, within=0.8), at_random(rng, share))
        assert "lack runs" in sentences[0]
        alarms += warned(sentences)
    assert alarms <= 4  # more come of 5 % once in 150


def test_slow_runs_that_are_missing_are_found():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        whole = runs_of(rng, within=0.8)
        of_cell = whole["fit_seconds"] - whole["cell"] % CELLS  # each has a limit of its own
        sentences = said(whole, of_cell.to_numpy() < 2)
        found = [
            text for text in sentences if "more runs are missing where fits take longer" in text
        ]
        assert len(found) >= GROUPS / 3


def test_slow_and_bad_cells_that_lack_runs_are_compared_with_themselves_alone():
    """Every other cell is worse and slower; there, and only there, runs are missing."""
    alarms = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        bad = pl.col("cell") % 2 == 1
        whole = runs_of(rng, within=0.8).with_columns(
            accuracy=pl.col("accuracy") - 9 * bad, fit_seconds=pl.col("fit_seconds") + 9 * bad
        )
        lost = whole.select(bad).to_series().to_numpy() & (rng.random(SIZE) < 0.3)
        alarms += warned(said(whole, ~lost))
    assert alarms <= 2


def test_bad_runs_that_are_missing_are_found():
    found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        whole = runs_of(rng)
        bad = rng.random((GROUPS, CELLS, REPEATS)) < 0.5  # where bad runs fail
        low = pl.col("accuracy") < pl.col("accuracy").median()
        worse = whole.select(low.over("cell", "repeat_index")).to_series().to_numpy()
        fails = np.repeat(bad.reshape(-1), RUNS) & worse
        found += any("accuracy varies with coverage" in text for text in said(whole, ~fails))
    assert found >= 9


def test_nothing_missing_says_nothing_and_too_few_no_more_than_that():
    whole = runs_of(np.random.default_rng(0), within=5)
    assert said(whole, np.ones(SIZE, bool)) == []
    few = whole.head(RUNS)
    repeats = pl.DataFrame(
        {
            "dataset": ["data 0"] * 2,
            "classifier": ["mlp"] * 2,
            "cell": [0, 0],
            "repeat_index": [0, 1],
            "coverage": [0.5, 1.0],
            "accuracy_mean": [0.1, 0.9],
        }
    )
    assert len(caveats.missing_notes(few.drop("fit_seconds"), repeats)) == 1


def test_what_a_test_set_does_to_all_cells_is_no_sign():
    """In a sweep that goes on the last repeat of every cell lacks runs; its set may be hard."""
    whole = runs_of(np.random.default_rng(0)).with_columns(
        accuracy=pl.col("accuracy") - 20 * (pl.col("repeat_index") == REPEATS - 1)
    )
    last = whole["repeat_index"].to_numpy() == REPEATS - 1
    assert not warned(said(whole, ~(last & (np.arange(SIZE) % RUNS >= RUNS / 2))))
