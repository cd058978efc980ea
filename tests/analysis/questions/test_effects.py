"""Effects of schemes: paired differences, recomputed row by row."""

from __future__ import annotations

import polars as pl
import pytest

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.effects import EFFECTS, effects
from tests.analysis.samples import sweep


@pytest.fixture(scope="module")
def repeats():
    return sweep({"one": 40, "two": 30}, {"lr-sgd": 0.6, "xgb": 0.0}, repeats=2, runs=3).repeats


def test_differences_are_paired_by_everything_else(repeats):
    found = effects(repeats)
    assert found["scheme"].unique().to_list() == ["neighbour:0.5"]
    assert found["axis"].unique().to_list() == ["perturb_continuous"]
    assert found.height == 4
    for row in found.iter_rows(named=True):
        differences = []
        for repeat in (0, 1):
            sides = [
                repeats.filter(
                    pl.col("dataset") == row["dataset"],
                    pl.col("classifier") == row["classifier"],
                    pl.col("repeat_index") == repeat,
                    pl.col("perturb_continuous") == scheme,
                )["accuracy_mean"].item()
                for scheme in ("neighbour:0.5", "none")
            ]
            differences.append(sides[0] - sides[1])
        assert row["n"] == row["accuracy_mean_n"] == 2
        assert row["accuracy_mean"] == pytest.approx(sum(differences) / 2)
        assert row["accuracy_mean_sd"] == pytest.approx(
            abs(differences[0] - differences[1]) / 2**0.5
        )
        assert row["n_identical"] == (2 if row["classifier"] == "xgb" else 0)


def test_datasets_can_be_averaged(repeats):
    found = effects(repeats, by=("classifier",))
    assert found["n"].to_list() == [4, 4]
    apart = effects(repeats).filter(pl.col("classifier") == "lr-sgd")["churn_mean"].mean()
    together = found.filter(pl.col("classifier") == "lr-sgd")["churn_mean"].item()
    assert together == pytest.approx(apart)


def test_what_identical_runs_do_not_vary_in_is_no_effect(repeats):
    found = effects(repeats, by=("classifier",)).filter(pl.col("classifier") == "xgb")
    row = found.row(0, named=True)
    assert (row["n"], row["n_identical"], row["accuracy_mean_n"]) == (4, 4, 4)
    for name in ("accuracy_range", "ec_local_mean", "churn_mean", "alpha_hat_mean"):
        assert (row[name], row[f"{name}_n"]) == (None, 0)


def test_levels_of_two_probes_are_not_averaged_and_their_resolution_is_told(repeats):
    other = pl.when(pl.col("dataset") == "two").then(pl.lit("true_margin")).otherwise("probe")
    mixed = repeats.filter(classifier="lr-sgd").with_columns(other.alias("probe"))
    apart = effects(mixed)
    assert apart["probe"].to_list() == ["gap", "true_margin"]
    assert apart["alpha_hat_mean"].null_count() == 0
    assert apart["delta_lo"].to_list() == apart["delta_hi"].to_list()
    row = effects(mixed, by=("classifier",)).row(0, named=True)
    assert (row["probe"], row["alpha_hat_mean"]) == ("gap+true_margin", None)
    assert (row["delta_lo"], row["delta_hi"]) == tuple(sorted(apart["delta_lo"]))
    assert row["accuracy_mean"] == pytest.approx(apart["accuracy_mean"].mean())
    one = effects(repeats, by=("classifier",)).filter(classifier="lr-sgd")
    assert one["alpha_hat_mean"].null_count() == 0
    assert one["delta_lo"].item() < one["delta_hi"].item()


def test_fractions_are_compared_with_the_whole_training_set(repeats):
    half = repeats.with_columns(train_fraction=pl.lit(0.5), accuracy_mean=pl.lit(0.25))
    points = repeats.with_columns(train_fraction=pl.lit(100.0))
    found = effects(pl.concat([repeats, half, points])).filter(pl.col("axis") == "train_fraction")
    assert sorted(found["scheme"].unique()) == ["0.5", "100.0"]
    half_of_one = found.filter(
        pl.col("scheme") == "0.5", pl.col("dataset") == "one", pl.col("classifier") == "lr-sgd"
    )
    whole = repeats.filter(pl.col("dataset") == "one", pl.col("classifier") == "lr-sgd")
    assert half_of_one["n"].item() == whole.height
    assert half_of_one["accuracy_mean"].item() == pytest.approx(
        0.25 - whole["accuracy_mean"].mean()
    )
    assert found.filter(pl.col("scheme") == "100.0")["accuracy_mean"].to_list() == [0] * 4


def test_without_an_unperturbed_cell_there_is_no_effect(repeats):
    found = effects(repeats.filter(pl.col("perturb_continuous") != "none"))
    assert found.is_empty()
    assert {"axis", "scheme", "n", "n_identical", *EFFECTS} <= set(found.columns)
    assert set(AXES) <= set(repeats.columns)
