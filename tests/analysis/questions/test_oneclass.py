"""Runs that predict one class throughout: found without predictions, and named where unusual."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.claims.oneclass import sound, tables_of
from manyseed.analysis.questions.oneclass import answer, marked


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_run_predicts_one_class_where_its_labels_do(data):
    """With two classes exactly; with more, others have the same numbers on very few points only."""
    n = data.draw(st.integers(2, 12))
    classes = st.lists(st.integers(0, 1), min_size=n, max_size=n)
    true, label = (np.array(data.draw(classes)) for _ in range(2))
    if data.draw(st.booleans()):
        label[:] = label[0]
    made = tables_of({"m": (label[None, None], true[None])})
    expected = np.unique(label).size == 1 and label[0] in true and np.unique(true).size > 1
    assert marked(made)["constant"].item() == expected


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_labels_of_several_classes_are_no_constant(n_classes):
    rng = np.random.default_rng(n_classes)
    true = rng.integers(0, n_classes, (50, 60))
    label = rng.integers(0, n_classes, (50, 4, 60))
    label[:, 0] = 1
    found = marked(tables_of({"m": (label, true)}))
    assert found.filter("constant")["run_index"].to_list() == [0] * 50


def test_runs_that_collapsed_are_named_with_their_setting():
    label, true = sound(0, 0.4)
    label[1, [2, 5]] = 1
    made = tables_of({"cnn": sound(1, 0.4), "mlp": (label, true)})
    (told,) = answer(made)
    assert told.headline == "2 runs of mlp predict one class throughout: 1:1:2, 1:1:5."
    assert [(row["cell"], row["run_index"]) for row in told.rows] == [(1, 2), (1, 5)]
    level = pl.when(pl.col("cell") == 1).then(pl.lit("lr=0.1")).otherwise(pl.lit("default"))
    (told,) = answer(type(made)(made.runs.with_columns(hparams=level), *_rest(made)))
    assert told.headline.startswith("2 runs of mlp lr=0.1 predict one class")


def _rest(made):
    return made.pairs, made.repeats, made.cells


def test_a_classifier_that_always_predicts_one_class_is_said_once():
    label, true = sound(0, 0.4)
    made = tables_of({"most frequent": (np.zeros_like(label), true), "mlp": (label, true)})
    (told,) = answer(made)
    assert told.headline == "Most runs predict one class throughout: most frequent (24 of 24)."
    assert told.rows == []


@pytest.mark.parametrize("rare", [0.0, 0.01])
def test_nothing_is_said_of_runs_where_nearly_all_points_are_of_one_class(rare):
    """A test set of one class has no other to predict; a sound run may miss two points of 150."""
    label, true = sound(0, rare)
    label[0, 0] = 0
    found = list(answer(tables_of({"mlp": (label, true)})))
    assert [row for one in found for row in one.rows] == []
    if rare == 0:
        assert found == []


def test_without_the_metrics_nothing_is_said():
    made = tables_of({"mlp": sound(0, 0.4)})
    assert marked(type(made)(made.runs.drop("f1_macro"), *_rest(made))).is_empty()
