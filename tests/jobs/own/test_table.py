"""Tables of users' own code: what they may say, and what identities and draws come of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from manyseed.jobs import classifiers, hparams
from manyseed.jobs.checks import Refused
from manyseed.jobs.hparams import grid
from manyseed.jobs.hparams.kinds import Continuous, Free, Ordinal
from manyseed.jobs.own import record, table
from manyseed.jobs.own.findings import Findings
from manyseed.jobs.run import canonical_json, text_identity
from tests.jobs.classifiers.examples import binary, info

FOREST: dict[str, Any] = {
    "estimator": "sklearn.ensemble:RandomForestClassifier",
    "params": {"n_estimators": 7, "class_weight": {"0": 1.0}},
    "space": {
        "min_samples_leaf": {"low": 1, "high": 8, "default": 2},
        "ccp_alpha": {"low": 1e-4, "high": 1.0, "default": 0.01, "log": True},
    },
}
FOUND = Findings({"random_state": "batch"}, "predict_proba")


def test_the_identity_is_entry_point_version_and_values() -> None:
    found = record.resolve("forest", FOREST, info(binary()[0]), FOUND)
    assert found.canonical == {
        "name": "sklearn.ensemble:RandomForestClassifier",
        "version": 1,
        "own": 1,
        "form": "estimator",
        "encode": "raw",
        "scores": "predict_proba",
        "seeds": {"random_state": "batch"},
        "params": {"class_weight": {"0": 1.0}},
        "space": [
            {"name": "ccp_alpha", "low": 1e-4, "high": 1.0, "default": 0.01, "log": True},
            {"name": "min_samples_leaf", "low": 1, "high": 8, "default": 2},
        ],
    }
    assert found.hparams == {"ccp_alpha": 0.01, "min_samples_leaf": 2, "n_estimators": 7}
    # golden: a change of this gives every sweep of users' code other identities
    text = canonical_json({**found.canonical, "hparams": found.hparams})
    assert text_identity(text) == "c0af8a8f4ed6333641a890b53d86cd39"


def test_streams_are_known_without_importing_anything() -> None:
    canonical = record.resolve("forest", FOREST, info(binary()[0]), FOUND).canonical
    assert classifiers.consumes(canonical, None) == {"batch"}
    assert classifiers.consumes({**canonical, "seeds": {}}, None) == frozenset()
    assert classifiers.consumes({**canonical, "own": 99}, None) is None


def test_declared_hparams_move_and_plain_ones_stay() -> None:
    found = record.resolve("forest", FOREST, info(binary()[0]), FOUND)
    space = classifiers.space(found.canonical, found.hparams)
    assert [type(each) for each in space] == [Continuous, Ordinal, Free]
    assert space == found.record.space
    moved = [
        hparams.perturb(space, found.hparams, "relative:0.5", np.random.default_rng(seed))
        for seed in range(50)
    ]
    assert {each["n_estimators"] for each in moved} == {7}
    assert len({each["ccp_alpha"] for each in moved}) == 50
    assert {each["min_samples_leaf"] for each in moved} == {1, 2, 3}
    assert hparams.unmoved(space, found.hparams, "relative:0.5") == ("n_estimators",)


def test_any_value_of_params_can_be_in_a_grid() -> None:
    options = {**FOREST, "grid": {"n_estimators": [5, 10], "min_samples_leaf": [1, 4]}}
    assert classifiers.configurations("estimator", options) == (
        "min_samples_leaf=1,n_estimators=5",
        "min_samples_leaf=4,n_estimators=5",
        "min_samples_leaf=1,n_estimators=10",
        "min_samples_leaf=4,n_estimators=10",
    )
    info_of = record.resolve("forest", options, info(binary()[0]), FOUND)
    assert info_of.at("n_estimators=10").hparams["n_estimators"] == 10


@pytest.mark.parametrize("value", [1, 1.0, -2.5e-7, True, False, "gini", "1.5x", "True"])
def test_plain_values_are_read_back_as_they_were_written(value: Any) -> None:
    again = grid.read((Free("a", 0),), grid.written({"a": value}))["a"]
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("value", ["1", "true", "a,b", "a=b", "a b", "1e3"])
def test_texts_that_read_as_something_else_are_in_no_grid(value: str) -> None:
    with pytest.raises(Refused, match="cannot be told"):
        grid.configurations((Free("a", 0),), {"a": [value]})


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"estimator": "nocolon"}, "estimator"),
        ({"estimator": 3}, "estimator"),
        ({"version": 0}, "version"),
        ({"params": [1]}, "params"),
        ({"params": {"ccp_alpha": 1.0}}, "params.ccp_alpha"),
        ({"params": {"a": [{"estimator": "bad"}]}}, "params.a.estimator"),
        ({"params": {"a": float("nan")}}, "params.a"),
        ({"space": {"a": {"low": 2, "high": 1, "default": 1}}}, "space.a.low"),
        ({"space": {"a": {"low": 2.0, "high": 1, "default": 1}}}, "space.a.low"),
        ({"space": {"a": {"low": 1, "high": 1, "default": 1}}}, "space.a.low"),
        ({"space": {"a": {"low": 1, "high": 2_000_000, "default": 1}}}, "space.a.high"),
        ({"space": {"a": {"low": 0.0, "high": 1.0, "default": 1.0, "log": True}}}, "space.a.low"),
        ({"space": {"a": {"low": 0.0, "high": 1.0, "default": 2.0}}}, "space.a.default"),
        ({"space": {"a": {"levels": [1, "b"], "default": 1}}}, "space.a.levels"),
        ({"space": {"a": {"levels": [2, 1], "default": 1}}}, "space.a.levels"),
        ({"space": {"a": {"low": 0, "high": 1, "default": 1, "step": 2}}}, "space.a.step"),
        ({"space": {"a": 3}}, "space.a"),
        ({"encode": "sparse"}, "encode"),
        ({"scores": "logits"}, "scores"),
        ({"seeds": {"random_state": "split"}}, "seeds.random_state"),
        ({"probe": 1}, "probe"),
        ({"epochs": 3}, "epochs"),
    ],
)
def test_mistakes_name_the_option(change: dict[str, Any], option: str) -> None:
    with pytest.raises(Refused) as refused:
        table.read({**FOREST, **change})
    assert refused.value.option == option


def test_all_code_that_a_table_names_is_known() -> None:
    steps = [["a", {"estimator": "x:A", "params": {"f": {"import": "y:f"}}}], ["b", 1]]
    own = table.read({"estimator": "z:P", "params": {"steps": steps}})
    assert own.entries == ("z:P", "x:A", "y:f")


@pytest.mark.parametrize("entry", ["models/net.py:build", "./models/net.py:build"])
def test_a_file_in_a_folder_is_told_how_its_module_is_named(entry: str) -> None:
    with pytest.raises(Refused, match=r'names a module, not a file: "models\.net:build"'):
        table.read({"module": entry})
