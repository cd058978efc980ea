"""TACE by threshold and bins: beside loops, on planted errors, and drawn."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures import uncertainty as drawn
from manyseed.analysis.graph.chunks import analyze_group, compute, compute_all
from manyseed.analysis.options import Options
from manyseed.analysis.questions import members
from manyseed.analysis.tables.schema import together
from manyseed.analysis.uncertainty import calibration_errors, calibration_splits
from tests.analysis.samples import noisy, predictions, regular
from tests.analysis.uncertainty.test_scores import slow

OPTIONS = Options(calibration=True, resamples=2, tace_threshold=0.05, tace_bins=7)


def measured(given, options=OPTIONS):
    found = compute_all(members.build_tace(given, options), scheduler="synchronous")
    return together("tace", found)


def sample(n_classes=3, n_runs=4, cells=1, repeats=1, copies=False):
    runs = regular(cells, repeats, n_runs, copies)
    score, y_true = noisy(np.random.default_rng(0), runs, 90, n_classes, 1.5)
    return score, y_true, runs


def calibrated_slow(logs, y, first):
    """Return the probabilities of each split, each half at the temperature of the other."""
    for half in first:
        p = np.empty(logs.shape)
        for fitted, other in ((half, ~half), (~half, half)):

            def loss(log_t, fitted=fitted):
                own = log_softmax(logs[fitted] / np.exp(log_t), axis=1)
                return -own[np.arange(own.shape[0]), y[fitted]].sum()

            limit = np.log(20)
            found = minimize_scalar(loss, bounds=(-limit, limit), options={"xatol": 1e-9})
            p[other] = softmax(logs[other] / np.exp(found.x), axis=1)
        yield p


def test_every_threshold_and_number_of_bins_is_beside_loops():
    score, y_true, runs = sample()
    found = measured(predictions(score, y_true, runs, keep="all"))
    thresholds, bins = [0.0, 1e-3, 0.01, 0.05], [5, 7, 10, 15, 20, 30, 50, 100]
    grid = [*product((1, 4), thresholds, bins)]
    assert found.select("members", "threshold", "bins").rows() == grid
    y = y_true[0].astype(int)
    first = calibration_splits(7, "0f" * 16, 0, 90, 5)
    logs = log_softmax(score[:, 0].astype(float), axis=2)
    whole = np.log(np.exp(logs).mean(axis=0))
    forms = {1: [*logs], 4: [whole]}
    split = {size: [[*calibrated_slow(own, y, first)] for own in forms[size]] for size in forms}
    for row in found.iter_rows(named=True):
        at = (y, row["threshold"], row["bins"])
        own = [slow(np.exp(one), *at) for one in forms[row["members"]]]
        calibrated = [np.mean([slow(p, *at) for p in of_run]) for of_run in split[row["members"]]]
        assert row["tace"] == pytest.approx(np.mean(own), abs=1e-7)
        assert row["c_tace"] == pytest.approx(np.mean(calibrated), abs=1e-4)  # bins may swap points
        assert (row["n_runs"], row["n_test"]) == (len(own), 90)
        if row["members"] == 1:
            assert row["tace_std"] == pytest.approx(np.std(own, ddof=1), abs=1e-7)
        else:
            assert row["tace_std"] is row["c_tace_std"] is None


def test_the_options_own_are_those_of_the_table_of_runs():
    score, y_true, runs = sample(n_classes=2)
    given = predictions(score, y_true, runs)
    table = compute([analyze_group(given, OPTIONS)], scheduler="synchronous")[0].runs
    [row] = measured(given).filter(members=1, threshold=0.05, bins=7).rows(named=True)
    for name in ("tace", "c_tace"):
        assert row[name] == pytest.approx(table[name].mean(), abs=1e-12)
        assert row[f"{name}_std"] == pytest.approx(table[name].std(), abs=1e-12)


def test_copies_and_runs_without_numbers_are_left_out():
    score, y_true, runs = sample(copies=True)
    one = measured(predictions(score, y_true, runs, keep="all"))
    assert one["members"].unique().to_list() == [1]
    assert one["n_runs"].unique().to_list() == [1]
    assert one["tace_std"].null_count() == one.height
    score, y_true, runs = sample()
    score[2, 0, 0] = np.nan
    found = measured(predictions(score, y_true, runs, keep="all"))
    assert found.select("members", "n_runs").unique().sort("members").rows() == [(1, 3), (3, 1)]
    limited = Options(calibration=True, deep_runs=2)
    score, y_true, runs = sample()
    found = measured(predictions(score, y_true, runs, keep="all"), limited)
    assert found.select("members", "n_runs").unique().sort("members").rows() == [(1, 2), (2, 1)]
    assert members.build_tace(predictions(score, y_true, runs, keep="all"), Options()) == []


POINTS = 6000  # bins of all sizes are of even numbers of points
BALANCED = np.arange(POINTS) % 2  # two of twelve classes, in turns


def test_planted_small_probabilities_count_below_their_threshold_alone():
    timid = np.full((POINTS, 12), 0.009)  # of ten classes that never come
    timid[:, :2] = 0.455
    bold = np.full((POINTS, 12), 1e-9)
    bold[:, 0], bold[:, 1] = 0.56, 0.44
    values = [
        calibration_errors(np.log(p), BALANCED, (0.0, 0.01), members.BINS) for p in (timid, bold)
    ]
    np.testing.assert_allclose(values[0], [[0.18 / 12] * 7, [0.09 / 12] * 7], atol=1e-6)
    np.testing.assert_allclose(values[1], 0.12 / 12, atol=1e-6)  # so the order turns


def test_planted_errors_that_cancel_are_seen_with_enough_bins():
    p = np.linspace(0.30, 0.32, POINTS)
    place = np.arange(POINTS)
    y_true = np.where(place < POINTS // 2, place % 5 < 2, place % 50 < 11).astype(int)  # .40, .22
    logs = np.log(np.stack([1 - p, p], axis=1))
    [[one, two, ten]] = calibration_errors(logs, y_true, [0.0], [1, 2, 10])
    assert one == pytest.approx(0, abs=1e-4)
    assert two == pytest.approx((0.4 - 0.305 + 0.315 - 0.22) / 2, abs=1e-4)
    assert ten == pytest.approx(two, abs=1e-3)


def planted(worse):
    """A table of single runs, their average and a method; `worse(θ, M)` adds to the method's."""
    rows = [
        {"cell": cell, **dict.fromkeys(AXES, "none"), "dataset": "photos", "classifier": "cnn"}
        | {"ensembling": ensembling, "repeat_index": repeat, "members": members}
        | {"threshold": threshold, "bins": bins, "n_runs": 3}
        | {"c_tace": value + worse(threshold, bins) * (cell == 1) + 0.001 * repeat}
        for cell, ensembling, members, value in (
            (0, "none", 1, 0.05),
            (0, "none", 20, 0.02),
            (1, "snapshot", 8, 0.03),
        )
        for repeat in (0, 1)
        for threshold in (0.0, 0.001)
        for bins in (5, 15, 50)
    ]
    return pl.DataFrame(rows, schema_overrides={"cell": pl.UInt32})


def test_a_panel_a_threshold_has_a_line_for_each_kind_of_ensemble():
    plot = drawn.calibration_by_bins(planted(lambda threshold, bins: 0))
    assert [axis.get_title(loc="left") for axis in plot.figure.axes] == [
        "photos × cnn: θ\xa0=\xa00",
        "photos × cnn: θ\xa0=\xa00.001",
    ]
    assert [text.get_text() for text in plot.figure.legends[0].get_texts()] == [
        "none: one run",
        "none: deep ensemble",
        "snapshot",
    ]
    for axis in plot.figure.axes:
        lines = sorted(axis.get_lines(), key=lambda line: line.get_ydata()[0])
        assert [line.get_xdata().tolist() for line in lines] == [[5, 15, 50]] * 3
        means = [line.get_ydata().tolist() for line in lines]
        np.testing.assert_allclose(means, [[each] * 3 for each in (0.0205, 0.0305, 0.0505)])
    of = plot.data.group_by("ensembling").agg(pl.len(), pl.col("c_tace").mean()).sort("c_tace")
    np.testing.assert_allclose(of["c_tace"], (0.0205, 0.0305, 0.0505))
    assert of["len"].to_list() == [6] * 3  # thresholds and numbers of bins
    assert "Of 3 pairs of lines 0 change their order" in plot.caption
    assert plot.n == 4  # repeats of two cells


def test_lines_that_cross_are_counted():
    turned = drawn.calibration_by_bins(planted(lambda threshold, bins: -0.02 * (threshold > 0)))
    assert "Of 3 pairs of lines 1 change their order" in turned.caption
    turned = drawn.calibration_by_bins(planted(lambda threshold, bins: 0.001 * (bins - 15)))
    assert "Of 3 pairs of lines 2 change their order" in turned.caption
    nothing = planted(lambda threshold, bins: 0).with_columns(c_tace=pl.lit(None, pl.Float64))
    assert drawn.calibration_by_bins(nothing) is None
