"""Distributions of margins, beside a loop over points; and a planted envelope."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.analysis.graph import chunks
from manyseed.analysis.graph.chunks import compute_all
from manyseed.analysis.options import Options
from manyseed.analysis.questions import margins
from manyseed.analysis.questions.margins import EDGES, over_repeats
from manyseed.analysis.tables.schema import records, together
from tests.analysis.documented import documented
from tests.analysis.samples import margins as true_margins
from tests.analysis.samples import noisy, predictions, regular

OPTIONS = Options()
KEY = ["cell", "epoch", "repeat_index"]


def counted(of, options=OPTIONS):
    found = compute_all(margins.build(of, options), scheduler="synchronous")
    return together("margins", found)


def slow(values):
    """Histograms of runs, point by point: bin → share of each run."""
    found = {}
    for run, points in enumerate(values.tolist()):
        for value in points:
            if math.isnan(value):
                name = ("nan", None, None)
            elif math.isinf(value):
                name = ("inf" if value > 0 else "-inf", None, None)
            else:
                below = [edge for edge in EDGES.tolist() if edge <= value]
                above = [edge for edge in EDGES.tolist() if edge > value]
                name = ("finite", below[-1] if below else None, above[0] if above else None)
            found.setdefault(name, [0] * len(values))[run] += 1
    return found


def same_as_slow(rows, values):
    """Compare the rows of one repeat with the loop."""
    n_test = values.shape[1]
    wanted = slow(values)
    told = {(r["values"], r["low"], r["high"]): r for r in rows if r["points"] > 0}
    assert told.keys() == wanted.keys()
    for name, counts in wanted.items():
        row = told[name]
        assert row["points"] == sum(counts)
        assert row["share"] == pytest.approx(np.mean(counts) / n_test)
        assert row["share_min"] == min(counts) / n_test
        assert row["share_max"] == max(counts) / n_test
    assert sum(row["points"] for row in rows) == values.size


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("keep", ["margin", "all"])
def test_bins_hold_what_a_loop_counts(n_classes, keep):
    runs = regular(2, 2, 4)
    score, y_true = noisy(np.random.default_rng(1), runs, 70, n_classes, 3)
    found = counted(predictions(score, y_true, runs, keep=keep))
    assert found.select(KEY).unique().height == 4
    gap = score[:, 0, :, 1] - score[:, 0, :, 0]
    margin = gap if n_classes == 2 else true_margins(score, y_true, runs)[:, 0]
    for (cell, _, repeat), rows in found.group_by(KEY):
        own = runs.filter(cell=cell, repeat_index=repeat)["row"].to_numpy()
        same_as_slow(rows.to_dicts(), margin[own])
        if n_classes == 3:
            assert rows["ensemble"].null_count() == rows.height
            continue
        mean = slow(margin[own].astype(float).mean(axis=0)[None])
        told = {low: share for low, share in rows.select("low", "ensemble").iter_rows() if share}
        assert told == pytest.approx({name[1]: one[0] / 70 for name, one in mean.items()})


def test_what_is_no_number_or_infinite_is_counted_apart():
    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(0), runs, 40)
    margin = (score[..., 1] - score[..., 0]).copy()
    margin[0, 0, :2], margin[1, 0, 5], margin[2, 0, 7] = np.nan, np.inf, -np.inf
    margin[2, 0, 8], margin[2, 0, 9] = 1e30, -1e30
    of = replace(predictions(score, y_true, runs), margin=margin)
    found = counted(of)
    same_as_slow(found.to_dicts(), margin[:, 0])
    apart = found.filter(pl.col("values") != "finite").select("values", "points", "ensemble")
    # the run with NaN is no member of the ensemble; infinities are
    assert apart.rows() == [("nan", 2, 0.0), ("-inf", 1, 1 / 40), ("inf", 1, 1 / 40)]
    open_ended = found.filter(values="finite").filter(pl.col("low").is_null())
    assert open_ended["points"].to_list() == [1]
    nothing = counted(replace(of, margin=np.full_like(margin, np.nan)))
    assert nothing.select("values", "points", "share_min").rows() == [("nan", 120, 1.0)]


def test_a_planted_shift_is_the_envelope():
    """Run k is wrong by moving k points of 100 from one bin to another."""
    runs = regular(1, 1, 5)
    label, y_true = noisy(np.random.default_rng(0), runs, 100)
    margin = np.full((5, 1, 100), 2.0, np.float32)
    for run in range(5):
        margin[run, 0, :run] = -3.0
    found = counted(replace(predictions(label, y_true, runs), margin=margin))
    # on average over runs the first point is at -2, the second -1, the third 0, the fourth 1
    shares = found.filter(pl.col("points") > 0).select("share", "share_min", "share_max")
    assert shares.to_numpy() == pytest.approx(np.array([[0.02, 0.0, 0.04], [0.98, 0.96, 1.0]]))
    assert found["ensemble"].sum() == pytest.approx(1)
    assert found.filter(pl.col("points") > 0)["ensemble"].to_list() == pytest.approx([0, 0.96])


def ecdf(values, edges):
    return np.array([[np.mean(run < edge) for edge in edges] for run in values])


@pytest.mark.parametrize("block_bytes", [OPTIONS.block_bytes, 3 * 60 * 4])
def test_candidates_stand_beside_the_average_of_all_others(block_bytes, monkeypatch):
    """Beside eCDFs run by run; the run that is shifted is the furthest from the others."""
    monkeypatch.setattr(margins, "PART_RUNS", 2)
    runs = regular(1, 2, 7)
    score, y_true = noisy(np.random.default_rng(5), runs, 60)
    of = predictions(score, y_true, runs)
    margin = (score[..., 1] - score[..., 0]).copy()
    margin[3] += 2.5
    of = replace(of, margin=margin)
    found = counted(of, Options(block_bytes=block_bytes))
    for repeat in range(2):
        values = margin[repeat * 7 : repeat * 7 + 7, 0].astype(float)
        others = (values.sum(axis=0) - values) / 6
        apart = np.abs(ecdf(values, EDGES) - ecdf(others, EDGES)).max(axis=1)
        own = found.filter(repeat_index=repeat)
        for name, run in (("nearest", apart.argmin()), ("furthest", apart.argmax())):
            assert own[f"{name}_run"].unique().to_list() == [run]
            assert own[name].sum() == pytest.approx(1)
            at = own.filter(pl.col("high").is_not_null())
            for column, which in ((name, values), (f"{name}_loo", others)):
                told = at[column].cum_sum().to_numpy()
                wanted = ecdf(which[[run]], at["high"].to_numpy())[0]
                assert told == pytest.approx(wanted)
    assert found.filter(repeat_index=0)["furthest_run"][0] == 3


def alike_slow(values, y_true):
    """All pairs, in loops: those within one point in both; the first of the largest difference."""
    n_runs, n_test = values.shape
    facts = []
    for k in range(n_runs):
        others = np.delete(values, k, axis=0).mean(axis=0)
        apart = np.abs(ecdf(values[[k]], EDGES) - ecdf(others[None], EDGES)).max()
        label = values[k] >= 0
        facts.append((int((label == y_true).sum()), int((label != (others >= 0)).sum()), apart))
    best, found = 0.0, None
    for i in range(n_runs):
        for j in range(i + 1, n_runs):
            near = all(
                abs(facts[i][f] - facts[j][f]) <= max(1, int(0.005 * n_test)) for f in (0, 1)
            )
            gap = abs(facts[i][2] - facts[j][2])
            if near and round(gap * n_test) > round(best * n_test):
                best, found = gap, sorted((i, j), key=lambda k: facts[k][2])
    return found


@pytest.mark.parametrize("block_bytes", [OPTIONS.block_bytes, 3 * 60 * 4])
def test_two_runs_alike_in_accuracy_and_churn_stand_beside_theirs(block_bytes, monkeypatch):
    """RKS24, figure 2: one run is twice as sure, with the labels of another."""
    monkeypatch.setattr(margins, "PART_RUNS", 2)
    runs = regular(1, 2, 7)
    score, y_true = noisy(np.random.default_rng(6), runs, 60)
    of = predictions(score, y_true, runs)
    margin = (score[..., 1] - score[..., 0]).copy()
    margin[:7] = margin[0] + 0.2 * np.random.default_rng(7).normal(size=margin[:7].shape)
    margin[3] = 6 * margin[1]
    found = counted(replace(of, margin=margin), Options(block_bytes=block_bytes))
    for repeat in range(2):
        values = margin[repeat * 7 : repeat * 7 + 7, 0].astype(float)
        wanted = alike_slow(values, y_true[repeat])
        own = found.filter(repeat_index=repeat)
        told = [own[f"alike_{end}_run"][0] for end in ("near", "far")]
        assert told == (wanted or [None, None])
        for name, run in zip(("alike_near", "alike_far"), wanted or (), strict=False):
            others = np.delete(values, run, axis=0).mean(axis=0)
            at = own.filter(pl.col("high").is_not_null())
            for column, which in ((name, values[run]), (f"{name}_loo", others)):
                shares = at[column].cum_sum().to_numpy()
                assert shares == pytest.approx(ecdf(which[None], at["high"].to_numpy())[0])
    assert found.filter(repeat_index=0)["alike_far_run"][0] == 3


def test_no_candidates_of_two_runs_or_many_classes_or_infinite_margins():
    runs = regular(1, 1, 2)
    score, y_true = noisy(np.random.default_rng(5), runs, 60)
    assert counted(predictions(score, y_true, runs))["nearest_run"].null_count() > 0
    runs = regular(1, 1, 4)
    score, y_true = noisy(np.random.default_rng(5), runs, 60)
    of = predictions(score, y_true, runs)
    margin = (score[..., 1] - score[..., 0]).copy()
    margin[1, 0, 0] = np.inf
    found = counted(replace(of, margin=margin))
    assert found["nearest_run"].null_count() == found.height == found["furthest_loo"].null_count()


def test_the_same_bits_however_runs_are_cut(monkeypatch):
    runs = regular(2, 2, 9)
    score, y_true = noisy(np.random.default_rng(2), runs, 50)
    whole = counted(predictions(score, y_true, runs))
    given_in_chunks = predictions(score, y_true, runs, chunks=4)
    monkeypatch.setattr(margins, "PART_RUNS", 2)
    monkeypatch.setattr(chunks, "PART_RUNS", 2)
    few = Options(block_bytes=3 * 50 * 4)
    assert len(margins.build(given_in_chunks, few)) > 1
    assert counted(given_in_chunks, few).equals(whole)


def test_copies_are_left_out_and_nothing_is_read_where_margins_are_not_asked_for():
    runs = regular(1, 2, 4, copies=True)
    score, y_true = noisy(np.random.default_rng(0), runs, 30)
    found = counted(predictions(score, y_true, runs))
    assert found["n_runs"].unique().to_list() == [1]
    assert (found["share_min"] == found["share_max"]).all()
    assert margins.build(predictions(score, y_true, runs), Options(metrics=("accuracy",))) == []
    assert margins.build(predictions(score, y_true, runs, keep="none"), OPTIONS) == []


def test_repeats_are_put_together_as_if_their_runs_were_one():
    runs = regular(1, 3, 4)
    score, y_true = noisy(np.random.default_rng(3), runs, 25)
    found = counted(predictions(score, y_true, runs)).with_columns(dataset=pl.lit("a"))
    together = over_repeats(found, ["dataset"])
    values = score[:, 0, :, 1] - score[:, 0, :, 0]
    as_one = together.with_columns(points=(pl.col("share") * values.size).round())
    same_as_slow(as_one.to_dicts(), values)
    assert together["ensemble"].sum() == pytest.approx(1)
    assert together["bin"].is_sorted()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.lists(st.floats(width=32), min_size=1, max_size=40),
)
def test_every_point_is_counted_once(one, other):
    n = min(len(one), len(other))
    values = np.array([one[:n], other[:n]], np.float32)
    counts = margins.histograms(values, EDGES)
    assert counts.sum(axis=1).tolist() == [n, n]
    assert (counts[:, -3] == np.isnan(values).sum(axis=1)).all()
    at_zero = int(np.searchsorted(EDGES, 0.0, side="right"))
    assert (counts[:, :at_zero].sum(axis=1) + counts[:, -2] == (values < 0).sum(axis=1)).all()


def test_edges_are_fixed():
    """Tables of several sweeps are put together: their bins must be the same for good."""
    assert (EDGES.size, EDGES[72], EDGES[73], EDGES[96]) == (145, 0.0, 0.041860, 6.822479)
    assert (np.diff(EDGES) > 0).all()
    assert (-EDGES[::-1] == EDGES).all()
    assert EDGES[-1] == pytest.approx(math.sinh(12) / 4)
    assert sorted(records()["margins"].key[:3]) == sorted(KEY)


@pytest.mark.parametrize("table", ["margins", "ensemble_draws"])
def test_columns_are_documented(table):
    units = documented(table)
    for name, (unit, meaning) in records()[table].columns.items():
        assert units[name] == unit, name
        assert meaning.endswith(".")
