"""Users' own metrics."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from polars.testing import assert_frame_equal

from manyseed.analysis import NoModule
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.graph.predictions import unavailable
from manyseed.analysis.metrics import custom
from manyseed.analysis.metrics.formulas import phi, yule_q
from manyseed.analysis.metrics.metric import BETTER, better
from manyseed.analysis.metrics.registry import METRICS, select
from manyseed.analysis.options import Options
from manyseed.analysis.tables.schema import records, repeat_columns
from tests.analysis.samples import noisy, predictions, regular

HERE = "tests.analysis.metrics.test_custom"


def widest(part):
    """Largest margin.

    More of it.
    """
    return np.abs(part.margin).max(axis=1)


widest.needs = "margin"


def accuracy(part):
    return (part.label == part.y_true).mean(axis=1)


def one_number(part):
    return part.label.mean()


def broken(part):
    return part.y_ture


def needy(part):
    return accuracy(part)


needy.needs = "labels"


@pytest.fixture
def kept():
    runs = regular(1, 2, 3)
    score, y_true = noisy(np.random.default_rng(0), runs, 20)
    return score, y_true, runs


def test_a_function_gives_a_column(kept):
    options = Options(metrics=("accuracy", f"{HERE}:widest"), resamples=2)
    tables = compute([analyze_group(predictions(*kept), options)], scheduler="synchronous")[0]
    gap = kept[0][:, 0, :, 1] - kept[0][:, 0, :, 0]
    assert tables.runs["widest"].to_list() == np.abs(gap).max(axis=1).tolist()
    assert tables.repeats["widest_max"][0] == np.abs(gap[:3]).max()
    assert custom.load(f"{HERE}:widest").runs[0].meaning == "Largest margin."


def differing(one, other, y_true):
    """Points that differ."""
    return int((one != other).sum())


def half_broken(one, other, y_true):
    if one is not other and (one != other).mean() >= 0:
        raise RuntimeError("no")


def two_numbers(one, other, y_true):
    return np.array([1.0, 2.0])


for of_two in (differing, half_broken, two_numbers):
    of_two.pairs = True


@pytest.mark.parametrize("block_bytes", [1, 64_000_000])
def test_a_function_of_two_runs_gives_a_column_of_pairs(kept, block_bytes):
    """φ and Q beside NumPy's correlation and a count of the four cases."""
    ours = "manyseed.analysis.metrics.formulas"
    names = (f"{HERE}:differing", f"{ours}:phi", f"{ours}:yule_q")
    options = Options(metrics=("agreement", *names), block_bytes=block_bytes)
    found = compute([analyze_group(predictions(*kept), options)], scheduler="synchronous")[0]
    score, y_true, runs = kept
    label = (score[:, 0, :, 1] >= score[:, 0, :, 0]).astype(int)
    place = {run: k for k, run in enumerate(runs.select("repeat_index", "run_index").rows())}
    assert found.pairs.height == 6
    for row in found.pairs.iter_rows(named=True):
        repeat = row["repeat_index"]
        one, other = (label[place[repeat, row[f"run_{end}"]]] for end in "ij")
        right, too = one == y_true[repeat], other == y_true[repeat]
        a, d = (right & too).sum(), (~right & ~too).sum()
        b, c = (right & ~too).sum(), (~right & too).sum()
        assert row["differing"] == row["churn_points"]
        assert row["phi"] == pytest.approx(np.corrcoef(right, too)[0, 1])
        assert row["yule_q"] == pytest.approx((a * d - b * c) / (a * d + b * c))
        assert row["ec_global"] == pytest.approx(d / 20)
    first = found.pairs.filter(repeat_index=0)["differing"]
    assert found.repeats["differing_max"][0] == first.max()
    assert found.repeats["differing_range"][0] == first.max() - first.min()


@pytest.mark.parametrize("block_bytes", [1, 64_000_000])
@pytest.mark.parametrize(
    ("function", "most", "reason"),
    [
        ("half_broken", 200, "failed with RuntimeError: no"),
        ("two_numbers", 200, "returned shape (2,); one number is needed"),
        (
            "differing",
            2,
            "needs the pairs of its runs, listed of up to 2 runs (max_pair_runs), and there are 3",
        ),
    ],
)
def test_a_function_of_two_runs_that_fails_costs_itself_alone(
    kept, function, most, reason, block_bytes
):
    options = Options(
        metrics=("agreement", f"{HERE}:{function}"), max_pair_runs=most, block_bytes=block_bytes
    )
    found = compute([analyze_group(predictions(*kept), options)], scheduler="synchronous")[0]
    assert dict(found.failures) == {f"{HERE}:{function}": reason}
    assert found.pairs[function].null_count() == found.pairs.height
    assert found.repeats["churn_mean"].null_count() == 0


def test_pairs_of_constant_runs_have_no_correlation():
    y_true = np.array([0, 1, 0, 1])
    for measure in (phi, yule_q):
        assert np.isnan(measure(y_true, y_true, y_true))
    with pytest.raises(ValueError, match="a function of two runs is a metric of their labels"):
        custom.probe_needs(f"{HERE}:differing")


def test_what_was_not_kept_is_said(kept):
    options = Options(metrics=(f"{HERE}:widest",))
    without = predictions(*kept, keep="none")
    assert list(unavailable(without, options)) == [f"{HERE}:widest"]
    tables = compute([analyze_group(without, options)], scheduler="synchronous")[0]
    assert tables.runs["widest"].null_count() == 6


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{HERE}:widset", "the module has no such function; allowed: .*:widest"),
        ("no_such_module_here:f", "can't be imported: No module named"),
        (f"{HERE}:needy", "needs 'labels'; there are label, margin"),
        (f"{HERE}:accuracy", "gives a column 'accuracy', and there is one already"),
        ("agrement", "metrics = 'agrement': there is no such metric; allowed: .*agreement"),
    ],
)
def test_what_is_no_metric_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        select([name])


def masks_one(part):
    return np.ma.array(accuracy(part), mask=np.arange(part.n_runs) == 0)


def masks_a_point(part):
    return np.ma.array(part.label.astype(float), mask=part.label == part.label.max())


def test_a_probe_that_masks_values_fails():
    part = SimpleNamespace(label=np.arange(6).reshape(2, 3), n_runs=2)
    found = custom.probe_values(f"{HERE}:masks_a_point", part)
    assert found.reason.endswith("failed with ValueError: 1 of 6 values that it returns are masked")


def fails_in_the_second_repeat(part):
    if part.held_out.repeat_index == 1:
        raise RuntimeError("no such\n  file")
    return accuracy(part)


@pytest.mark.parametrize("block_bytes", [1, 64_000_000])
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("one_number", r"returned shape () for {n} runs; one number per run, ({n},), is needed"),
        ("broken", "failed with AttributeError: 'Part' object has no attribute 'y_ture'"),
        ("fails_in_the_second_repeat", "failed with RuntimeError: no such file"),
        ("masks_one", "failed with ValueError: 1 of {n} values that it returns are masked"),
    ],
)
def test_a_function_that_fails_costs_itself_alone(kept, function, reason, block_bytes):
    options = Options(resamples=2, block_bytes=block_bytes)
    name = f"{HERE}:{function}"
    mixed = replace(options, metrics=(*options.metrics, name, f"{HERE}:widest"))
    found = compute([analyze_group(predictions(*kept), mixed)], scheduler="synchronous")[0]
    n = 1 if block_bytes == 1 else 3
    assert dict(found.failures) == {name: reason.format(n=n)}
    assert found.runs[function].null_count() == found.runs.height == 6
    for ending in ("mean", "std", "min", "max"):
        assert found.repeats[f"{function}_{ending}"].null_count() == 2
    sound = replace(options, metrics=(*options.metrics, f"{HERE}:widest"))
    expected = compute([analyze_group(predictions(*kept), sound)], scheduler="synchronous")[0]
    for table in ("runs", "pairs", "repeats", "cells"):
        columns = getattr(expected, table).columns
        assert_frame_equal(getattr(found, table).select(columns), getattr(expected, table))
    assert expected.failures == {}


def test_a_module_that_raises_is_one_message(tmp_path, monkeypatch):
    (tmp_path / "raising_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NoModule, match="can't be imported: ZeroDivisionError: division by zero"):
        select(["raising_module:f"])


def test_what_is_better_is_known_of_our_columns_alone():
    known = [column.name for one in METRICS.values() for column in (*one.runs, *one.pairs)]
    known += [column.name for column in repeat_columns([*METRICS.values()])]
    known += [name for table in records().values() for name in table.columns]
    assert set(BETTER) <= set(known)
    more = ("accuracy_mean", "accuracy_min_close", "accuracy_mean_lo", "cll_mean", "dee_lower")
    less = ("error", "c_brier_mean", "alpha_hat_mean", "accuracy_range", "churn_q05_hi")
    neither = (
        "accuracy_std",
        "accuracy_mean_sd",
        "brier_skill",
        "error_free",
        "deep_value",
        "mean",
    )
    for way, names in (("more", more), ("less", less), ("", neither)):
        assert [better(name) for name in names] == [way] * len(names)


def test_the_metrics_of_the_manual_are_those_of_numpy():
    text = (Path(__file__).parents[3] / "docs" / "results.md").read_text(encoding="utf-8")
    section = text.partition("## Metrics of your own")[2].partition("\n## ")[0]
    names = {}
    for block in re.findall(r"```python[^\n]*\n(.*?)```", section, re.DOTALL):
        exec(block, names)
    y_true = np.array([0, 0, 0, 1, 1])
    label = np.array([[0, 1, 1, 1, 0], [1, 0, 0, 1, 1]])
    found = names["false_positives"](SimpleNamespace(label=label, y_true=y_true))
    assert found.tolist() == [2 / 3, 1 / 3]
    assert names["rescued"](*label, y_true) == 4 / 5
