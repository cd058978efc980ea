"""Deep ensembles of a repeat by size, beside loops; and cells compared with them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

from manyseed.analysis import Refused
from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.chunks import analyze_group, compute, compute_all
from manyseed.analysis.options import Options
from manyseed.analysis.questions import members
from manyseed.analysis.questions.dee import check, compared, curves, gains, worths
from manyseed.analysis.tables.schema import records, together
from manyseed.analysis.uncertainty import calibration_splits, orders
from tests.analysis.samples import noisy, predictions, regular
from tests.analysis.uncertainty.test_temperature import cll_slow

OPTIONS = Options(calibration=True, deep_draws=3, resamples=2)


def measured(given, options=OPTIONS):
    found = compute_all(members.build(given, options), scheduler="synchronous")
    return together("uncertainty", found)


def sample(n_classes=3, n_runs=4, cells=1, repeats=1, copies=False, noise=1.5):
    runs = regular(cells, repeats, n_runs, copies)
    score, y_true = noisy(np.random.default_rng(0), runs, 90, n_classes, noise)
    return score, y_true, runs


def test_metrics_are_those_of_mean_probabilities():
    score, y_true, runs = sample()
    found = measured(predictions(score, y_true, runs, keep="all"))
    assert found.height == 3 * 4
    drawn = orders(7, "0f" * 16, 0, 4, 3)
    first = calibration_splits(7, "0f" * 16, 0, 90, 5)
    p, y = softmax(score[:, 0].astype(float), axis=2), y_true[0].astype(int)
    for row in found.iter_rows(named=True):
        mean = p[drawn[row["draw"]][: row["members"]]].mean(axis=0)
        true = np.log(mean[np.arange(90), y])
        assert row["log_likelihood"] == pytest.approx(true.mean())
        assert row["error"] == pytest.approx((mean.argmax(axis=1) != y).mean())
        assert row["brier"] == pytest.approx(np.square(mean - np.eye(3)[y]).sum(axis=1).mean())
        assert (row["pool"], row["n_test"]) == (4, 90)
        if row["draw"] == 0:
            assert row["cll"] == pytest.approx(cll_slow(np.log(mean), y, first), abs=1e-6)


def test_single_runs_are_as_in_the_table_of_runs():
    score, y_true, runs = sample(n_classes=2)
    given = predictions(score, y_true, runs)
    table = compute([analyze_group(given, OPTIONS)], scheduler="synchronous")[0].runs
    ones = measured(given).filter(members=1)
    drawn = orders(7, "0f" * 16, 0, 4, 3)[:, 0]
    for name in ("cll", "c_aurc", "tace", "brier", "ece", "error", "temperature"):
        assert ones[name].to_numpy() == pytest.approx(table[name].to_numpy()[drawn], abs=1e-9), name


def test_the_same_bits_however_the_work_is_cut(monkeypatch):
    score, y_true, runs = sample(cells=2, repeats=2)
    whole = measured(predictions(score, y_true, runs, keep="all"))
    monkeypatch.setattr(members, "POOL_BYTES", 0)
    monkeypatch.setattr(members, "TASK_VALUES", 1)
    given = predictions(score, y_true, runs, chunks=3, keep="all")
    assert len(members.build(given, OPTIONS)) == 2 * 2 * 3
    assert measured(given).equals(whole)


def test_copies_and_runs_without_numbers_are_no_members():
    score, y_true, runs = sample(copies=True)
    assert measured(predictions(score, y_true, runs, keep="all")).is_empty()
    score, y_true, runs = sample()
    score[2, 0, 0] = np.nan
    found = measured(predictions(score, y_true, runs, keep="all"))
    assert found["pool"].unique().to_list() == [3]
    limited = Options(calibration=True, deep_draws=2, deep_runs=2)
    score, y_true, runs = sample()
    assert measured(predictions(score, y_true, runs, keep="all"), limited).height == 4
    assert members.build(predictions(score, y_true, runs, keep="all"), Options()) == []


def test_equal_members_gain_nothing():
    score, y_true, runs = sample()
    score[:] = score[:1]
    found = measured(predictions(score, y_true, runs, keep="all"))
    assert found["cll"].to_numpy() == pytest.approx(found["cll"][0], abs=1e-9)


def cells_of(values):
    """Cells of one dataset that differ in their classifier."""
    rows = [{"cell": n, **dict.fromkeys(AXES, "same"), "classifier": v} for n, v in values.items()]
    return pl.DataFrame(rows, schema_overrides={"cell": pl.UInt32})


def table(by_cell):
    """A table of ensembles: cell → mean by size; two draws, .01 to both sides."""
    rows = [
        {"cell": cell, "repeat_index": 0, "draw": draw, "members": size, "pool": len(means)}
        | {"cll": mean + (0.01 if draw else -0.01)}
        for cell, means in by_cell.items()
        for size, mean in enumerate(means, start=1)
        for draw in (0, 1)
    ]
    types = {name: records()["uncertainty"].types[name] for name in rows[0]}
    return pl.DataFrame(rows, schema=types)


def test_cells_that_differ_in_one_axis_are_compared():
    ensembles = table({0: [-1, -0.8, -0.7], 1: [-0.95, -0.75, -0.6]})
    cells = cells_of({0: "mlp", 1: "xgb"})
    found = compared(ensembles, cells, ["cll"])
    own = found.filter(cell=1, deep_cell=0)
    assert own["dee"].to_list() == [pytest.approx(1.25), pytest.approx(2.5), None]
    assert own["beyond"].to_list() == [None, None, 3]
    assert own["axis"].unique().to_list() == ["classifier"]
    assert own["deep_value"].unique().to_list() == ["mlp"]
    assert (own["dee_lower"] < own["dee"]).head(2).all()
    assert (own["dee_upper"] > own["dee"])[0]
    both = cells.with_columns(pl.Series("vary", ["init", "batch"]))
    assert compared(ensembles, both, ["cll"]).is_empty()
    crossed = cells.with_columns(
        pl.Series("vary", ["init*batch", "init+batch"]), classifier=pl.lit("mlp")
    )
    assert compared(ensembles, crossed, ["cll"])["deep_cell"].unique().to_list() == [1]
    other = cells.with_columns(pl.Series("dataset", ["one", "another"]), classifier=pl.lit("mlp"))
    assert compared(ensembles, other, ["cll"]).is_empty()


def test_answers_in_words():
    ensembles = table({0: [-1, -0.8, -0.7], 1: [-0.95, -0.75, -0.6]})
    cells = cells_of({0: "mlp", 1: "xgb"})
    rows = compared(ensembles, cells, ["cll"])
    single, whole = worths(rows.filter(deep_cell=0), cells)
    start = "classifier = xgb: 1 run is worth 1.3 (1.2 to 1.3 within one sd) independent"
    assert single.words.startswith(start)
    more = "classifier = xgb: 3 averaged runs are worth more, as measured, than 3 independent runs"
    assert whole.words == f"{more} with classifier = mlp."
    (two,) = worths(rows.filter(deep_cell=0), cells, members=2)
    assert (two.members, two.dee) == (2, pytest.approx(2.5))
    gain = gains(ensembles.filter(cell=0), "cll")
    assert gain.words == (
        "cll: one run -1, all 3 averaged -0.7; 1.8 bring half of the gain, 2.7 nine tenths."
    )
    worse = gains(table({0: [-0.7, -0.9]}), "cll")
    assert worse.words.endswith("no gain by averaging is seen.")


def test_equal_curves_are_worth_their_own_size():
    ensembles = table({0: [-1, -0.8, -0.7], 1: [-1, -0.8, -0.7]})
    found = compared(ensembles, cells_of({0: "a", 1: "b"}), ["cll"])
    assert found["dee"].to_list() == pytest.approx([1, 2, 3, 1, 2, 3])


def test_areas_of_misclassification_are_not_compared():
    with pytest.raises(Refused, match="not comparable between models"):
        check("misclassification_auroc")
    with pytest.raises(Refused, match="not comparable between models"):
        check("misclassification_aupr")
    with pytest.raises(Refused, match="allowed: cll"):
        check("accuracy")


def test_a_curve_that_lacks_sizes_is_none():
    ensembles = table({0: [-1, -0.8, -0.7]})
    assert curves(ensembles.filter(pl.col("members") < 3), "cll") == {}
