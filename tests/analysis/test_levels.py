"""Which axes have levels that are numbers, and how figures by level place and tell them."""

from __future__ import annotations

import polars as pl
import pytest

from manyseed.analysis.figures.levels import _look, levels, numeric, why_not


def cells(axis: str, found: list[object]) -> pl.DataFrame:
    return pl.DataFrame({axis: found})


@pytest.mark.parametrize(
    ("axis", "found", "scheme", "values"),
    [
        ("train_fraction", [0.25, 1.0], "", {"0.25": 0.25, "1.0": 1.0}),
        # which number of rows a share is, is not known
        ("train_fraction", [0.5, 20.0, 60.0, 1.0], "rows", {"20.0": 20.0, "60.0": 60.0}),
        ("perturb_labels", ["none", "flip:0.1"], "flip", {"flip:0.1": 0.1, "none": 0.0}),
        (
            "hparams",
            ["default", "lr=0.001", "lr=1e-05"],
            "lr",
            {"lr=0.001": 1e-3, "lr=1e-05": 1e-5},
        ),
        # fewer digits are more noise, so none has no place
        (
            *("perturb_continuous", ["none", "sig-digit:1", "sig-digit:2"], "sig-digit"),
            {"sig-digit:1": 1.0, "sig-digit:2": 2.0},
        ),
    ],
)
def test_levels_that_are_numbers(
    axis: str, found: list[object], scheme: str, values: dict[str, float]
) -> None:
    known = numeric(cells(axis, found), axis)
    assert known is not None
    assert (known.scheme, known.values) == (scheme, values)
    assert why_not(cells(axis, found)) == ""


@pytest.mark.parametrize(
    "found",
    [
        ["none", "flip:0.1", "pairs:0.1"],  # two schemes have no common axis
        ["none", "relative:0.1:scaled"],
        ["init", "batch"],
        ["none", "sig-digit:1"],
        ["depth=2,lr=0.1", "depth=3,lr=0.1"],
    ],
)
def test_others_are_none(found: list[object]) -> None:
    assert numeric(cells("perturb_labels", found), "perturb_labels") is None
    assert "levels are numbers, and cells differ in none" in why_not(cells("vary", found))


def test_no_two_lines_look_alike() -> None:
    looks = [(_look(index)["color"], _look(index)["marker"]) for index in range(36)]
    assert len({*looks}) == 36
    assert len({mark for _, mark in looks[:6]}) == 6


def test_small_levels_are_on_a_logarithmic_axis_and_have_room() -> None:
    fractions = [0.01, 0.011, 0.1, 1.0]
    averages = pl.DataFrame(
        {
            "cell": range(4),
            "dataset": "d",
            "classifier": "c",
            "train_fraction": fractions,
            "metric": "accuracy",
            "mean": [0.6, 0.7, 0.8, 0.9],
            "low": [0.5, 0.6, 0.7, None],
            "high": [0.7, 0.8, 0.9, None],
            "over": ["test sets"] * 3 + [None],
            "n_runs": 5,
        }
    )
    runs = pl.DataFrame({"cell": [0, 0], "identical": [False, True]})
    plot = levels(averages, runs)
    assert plot is not None
    (axis,) = plot.figure.axes
    assert axis.get_xscale() == "log"
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["", "0.011", "0.1", "1.0"]
    assert sum(line.get_marker() == "None" for line in axis.lines) == 3
    assert "n = 20 runs, 1 of them identical copies." in plot.caption
