"""Lists multiplied, zipped and thinned, against loops over tuples."""

from __future__ import annotations

import itertools
from fnmatch import fnmatch
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.analysis.axes import AXES
from manyseed.orchestrator.grids.grid import combine
from manyseed.orchestrator.grids.sweepfile import Grid

HERE = Path("sweep.toml")
DATA = ["none", "relative:0.1", "relative:0.2", "neighbour:0.5", "sig-digit:0"]


def rows(found):
    return list(zip(*([found.values[a][c] for c in found.codes[a]] for a in AXES), strict=True))


def grid(**lists):
    return Grid.model_validate({"dataset": ["vehicle"], "classifier": ["xgb"], **lists})


def subset(values, least=1):
    return st.lists(st.sampled_from(values), min_size=least, unique=True)


@settings(deadline=None)
@given(
    datasets=subset(["vehicle", "anneal", "kc1"]),
    classifiers=subset(["lr-sgd", "svm-sgd", "xgb", "mlp"]),
    schemes=subset(DATA),
    rules=st.lists(
        st.tuples(
            st.sampled_from(["*-sgd", "x*", "mlp", "*"]), st.sampled_from(["rel*", "none", "*"])
        ),
        max_size=2,
    ),
)
def test_combinations_are_the_product_less_what_rules_match(datasets, classifiers, schemes, rules):
    def matches(rule, row):
        return fnmatch(row[1], rule[0]) and fnmatch(row[3], rule[1])

    product = [
        (d, c, 1.0, s, "none", "none", "default", "init+batch", *["none"] * 4)
        for d, c, s in itertools.product(datasets, classifiers, schemes)
    ]
    left, removed = product, []
    for rule in rules:
        removed.append([row for row in left if matches(rule, row)])
        left = [row for row in left if not matches(rule, row)]
    useful = all(any(matches(rule, row) for row in product) for rule in rules)
    if not left or not useful:
        return
    found = combine(
        grid(
            dataset=datasets,
            classifier=classifiers,
            perturb_continuous=schemes,
            exclude=[{"classifier": c, "perturb_continuous": s} for c, s in rules],
        ),
        "grid[0]",
        HERE,
    )
    assert rows(found) == left
    assert [len(gone["dataset"]) for gone in found.removed_by] == [len(gone) for gone in removed]


def test_zipped_lists_go_in_step_and_the_others_multiply():
    found = combine(
        grid(
            dataset=["vehicle", "vehicle", "kc1"],
            classifier=["xgb", "mlp", "mlp"],
            train_fraction=[0.5, 1.0],
            zip=[["dataset", "classifier"]],
        ),
        "grid[0]",
        HERE,
    )
    assert [row[:3] for row in rows(found)] == [
        ("vehicle", "xgb", 0.5),
        ("vehicle", "xgb", 1.0),
        ("vehicle", "mlp", 0.5),
        ("vehicle", "mlp", 1.0),
        ("kc1", "mlp", 0.5),
        ("kc1", "mlp", 1.0),
    ]


def test_a_suite_stands_for_its_datasets():
    found = combine(grid(dataset=["suite:model-variance-37", "sklearn:digits"]), "grid[0]", HERE)
    assert len(found) == 38
    assert found.values["dataset"][3] == "vehicle"


def test_patterns_match_as_written_and_in_normal_form():
    lists = {
        "perturb_continuous": ["none", "relative:.10", "relative:0.2"],
        "train_fraction": [0.5, 1],
    }
    for pattern in ("relative:.10", "relative:0.1", "relative:?.1"):
        found = combine(grid(**lists, exclude=[{"perturb_continuous": pattern}]), "grid[0]", HERE)
        assert {row[3] for row in rows(found)} == {"none", "relative:0.2"}
    found = combine(grid(**lists, exclude=[{"train_fraction": 1.0}]), "grid[0]", HERE)
    assert {row[2] for row in rows(found)} == {0.5}
