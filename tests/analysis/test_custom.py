"""Users' own metrics."""

from __future__ import annotations

import numpy as np
import pytest

from analysis import custom
from analysis.group import analyze_group, compute
from analysis.metrics import select, unavailable
from analysis.options import Options
from tests.analysis.samples import noisy, predictions, regular

HERE = "tests.analysis.test_custom"


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


def test_what_was_not_kept_is_said(kept):
    options = Options(metrics=(f"{HERE}:widest",))
    without = predictions(*kept, keep="none")
    assert list(unavailable(without, options)) == [f"{HERE}:widest"]
    tables = compute([analyze_group(without, options)], scheduler="synchronous")[0]
    assert tables.runs["widest"].null_count() == 6


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{HERE}:widset", "no function 'widset'; did you mean widest"),
        ("no_such_module_here:f", "can't be imported: No module named"),
        (f"{HERE}:needy", "needs 'labels'; there are label, margin"),
        (f"{HERE}:accuracy", "gives a column 'accuracy', and there is one already"),
        ("agrement", "did you mean agreement"),
    ],
)
def test_what_is_no_metric_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        select([name])


def test_a_function_must_give_a_number_a_run(kept):
    group = analyze_group(predictions(*kept), Options(metrics=(f"{HERE}:one_number",)))
    with pytest.raises(ValueError, match=r"returned shape \(\) for 3 runs"):
        compute([group], scheduler="synchronous")


def test_what_a_function_raises_is_told_with_its_name(kept):
    group = analyze_group(predictions(*kept), Options(metrics=(f"{HERE}:broken",)))
    with pytest.raises(custom.MetricFailed, match=f"{HERE}:broken.*AttributeError.*y_ture"):
        compute([group], scheduler="synchronous")
