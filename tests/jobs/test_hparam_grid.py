"""Hparam grids: every combination once, written in one way and read back as it was."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs import classifiers
from manyseed.jobs.checks import Refused, UnknownOption
from manyseed.jobs.datasets import resolve
from manyseed.jobs.hparams import Categorical, Continuous, grid
from manyseed.jobs.hparams.kinds import Free, Ordinal

MLP, SGD = (classifiers.CLASSIFIERS[name].space for name in ("mlp", "lr-sgd"))
WINE = resolve("sklearn:wine")


def test_combinations_are_the_product_in_the_order_of_the_lists():
    lists = {"width1": [32, 64], "lr": [1e-3, 1], "dropout": [0]}
    with pytest.raises(Refused):
        grid.configurations(MLP, lists)
    lists["lr"] = [1e-3, 0.5]
    found = grid.configurations(MLP, lists)
    assert [tuple(each.values()) for each in found] == [
        *itertools.product([32, 64], [1e-3, 0.5], [0.0])
    ]
    assert [grid.written(each) for each in found] == [
        "dropout=0.0,lr=0.001,width1=32",
        "dropout=0.0,lr=0.5,width1=32",
        "dropout=0.0,lr=0.001,width1=64",
        "dropout=0.0,lr=0.5,width1=64",
    ]


@st.composite
def values(draw):
    name = draw(st.sampled_from(classifiers.names()))
    space = classifiers.CLASSIFIERS[name].space
    chosen = draw(st.lists(st.sampled_from(space), min_size=1, unique_by=lambda h: h.name))
    return space, {
        hparam.name: draw(
            st.floats(hparam.low, hparam.high)
            if isinstance(hparam, Continuous)
            else st.sampled_from(hparam.levels)
        )
        for hparam in chosen
    }


@given(values())
@settings(deadline=None)
def test_what_is_written_is_read_as_it_was(case):
    space, found = case
    text = grid.written(found)
    assert grid.is_written(text)
    assert text.split() == [text]  # the store's words have no blanks
    assert grid.names(text) == sorted(found)
    again = grid.read(space, text)
    assert again == found
    assert {n: type(v) for n, v in again.items()} == {n: type(v) for n, v in found.items()}


def test_a_configuration_is_read_however_a_user_writes_it():
    assert grid.read(MLP, " width1 = 64, lr=1e-3 ") == {"width1": 64, "lr": 0.001}
    assert grid.read(SGD, "average=true,penalty=none,alpha=.01") == {
        "average": True,
        "penalty": "none",
        "alpha": 0.01,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lrr=0.1", "unknown hparam; there are lr, weight_decay"),
        ("lr=0.1,lr=0.2", "names lr twice"),
        ("lr=0.1,", "unknown hparam"),
        ("lr=fast", "must be a number at least 1e-05 and at most 0.5"),
        ("lr=2", "must be a number at least 1e-05 and at most 0.5"),
        ("width1=64.0", "must be a whole number from 32 to 1024"),
    ],
)
def test_what_no_configuration_can_be_is_refused(text, message):
    with pytest.raises(Refused, match=message):
        grid.read(MLP, text)


@pytest.mark.parametrize(
    ("lists", "option", "message"),
    [
        ({}, "grid", "must be a table with a list"),
        ([1e-3], "grid", "must be a table with a list"),
        ({"lr": 1e-3}, "grid.lr", "must be a list of values"),
        ({"lr": []}, "grid.lr", "must be a list of values"),
        ({"lr": [1e-3, 0.0010]}, "grid.lr", "is listed twice"),
        ({"lr": [1]}, "grid.lr", "must be a number at least"),
        ({"lr": ["1e-3"]}, "grid.lr", "must be a number at least"),
        ({"width1": [64.0]}, "grid.width1", "must be a whole number"),
        ({"width1": [True]}, "grid.width1", "must be a whole number"),
        (
            {"width1": [*range(32, 1025)], "width2": [*range(32, 65)]},
            "grid",
            "993 width1 × 33 width2 make 32,769 configurations; a sweep holds up to 32,767",
        ),
    ],
)
def test_what_no_grid_can_be_is_refused(lists, option, message):
    with pytest.raises(Refused, match=message) as found:
        grid.configurations(MLP, lists)
    assert found.value.option == option


def test_an_unknown_hparam_names_those_there_are():
    with pytest.raises(UnknownOption) as found:
        grid.configurations(MLP, {"lrr": [1e-3]})
    assert (found.value.option, "lr" in found.value.allowed) == ("grid.lrr", True)


@pytest.mark.parametrize(
    ("name", "options", "option", "message"),
    [
        ("mlp", {"hparams": {"lr": 1e-3}, "grid": {"lr": [0.1]}}, "grid.lr", "fixes lr already"),
        ("mlp", {"grid": {"epochs": [1, 2]}}, "grid.epochs", "epochs is no hparam"),
        ("vit-transfer", {"grid": {"backbone": ["a"]}}, "grid.backbone", "is no hparam"),
        ("xgb", {"defaults": "library", "grid": {"eta": [0.1]}}, "grid", "library's defaults"),
    ],
)
def test_what_a_table_says_otherwise_is_refused(name, options, option, message):
    with pytest.raises(Refused, match=message) as found:
        classifiers.configurations(name, options)
    assert found.value.option == option


def test_a_configuration_changes_anchors_and_what_a_fit_draws_from():
    info = classifiers.resolve("xgb", {"hparams": {"eta": 0.2}}, WINE)
    other = info.at("max_depth=3,subsample=0.5")
    assert other.hparams == {**info.hparams, "max_depth": 3, "subsample": 0.5}
    assert (info.consumes, other.consumes) == (frozenset(), {"batch"})
    assert other.canonical == info.canonical
    assert info.at("eta=0.2").hparams == info.hparams
    with pytest.raises(Refused, match="the table of xgb fixes eta"):
        info.at("eta=0.3")
    library = classifiers.resolve("xgb", {"defaults": "library"}, WINE)
    with pytest.raises(Refused, match="library"):
        library.at("eta=0.3")


def test_every_kind_has_a_grid_of_any_of_its_hparams():
    for name in classifiers.names():
        for hparam in classifiers.CLASSIFIERS[name].space:
            ends = (
                hparam.levels
                if isinstance(hparam, Categorical)
                else (hparam.settle(hparam.ends[0]), hparam.settle(hparam.ends[1]))
            )
            found = classifiers.configurations(name, {"grid": {hparam.name: list(ends)}})
            assert len(found) == len(ends)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"logspace": [1e-4, 1e-1, 4]}, [1e-4, 1e-3, 1e-2, 1e-1]),
        ({"linspace": [0.1, 0.3, 3]}, [0.1, 0.2, 0.3]),
        ({"linspace": [0.3, 0.1, 2]}, [0.3, 0.1]),
        ({"logspace": [0.001, 0.01, 3]}, [0.001, 0.00316227766017, 0.01]),
    ],
)
def test_a_range_stands_for_its_values(value: dict[str, object], expected: list[float]) -> None:
    lr = Continuous("lr", 1e-5, 0.5, 3e-4, log=True)
    found = grid.configurations((lr,), {"lr": value})
    assert [each["lr"] for each in found] == expected
    assert found == grid.configurations((lr,), {"lr": expected})


def test_a_range_of_whole_numbers_holds_each_once() -> None:
    width = Ordinal("width", range(1, 1025), 8)
    found = grid.configurations((width,), {"width": {"logspace": [1, 8, 7]}})
    assert [each["width"] for each in found] == [1, 2, 3, 4, 6, 8]
    assert all(type(each["width"]) is int for each in found)
    free = Free("n", 10)
    found = grid.configurations((free,), {"n": {"linspace": [1, 4, 3]}})
    assert [each["n"] for each in found] == [1, 2, 4]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"linspace": [1, 2]}, "of linspace or logspace"),
        ({"geomspace": [1, 2, 3]}, "of linspace or logspace"),
        ({"linspace": [1, 2, 3], "logspace": [1, 2, 3]}, "of linspace or logspace"),
        ({"logspace": [0, 0.1, 3]}, "above 0"),
        ({"linspace": [0.1, 0.2, 1]}, "from 2"),
        ({"linspace": [0.1, 7.0, 3]}, "at most 0.5"),
    ],
)
def test_what_is_no_range_is_refused(value: dict[str, object], said: str) -> None:
    lr = Continuous("lr", 1e-5, 0.5, 3e-4, log=True)
    with pytest.raises(Refused, match=said):
        grid.configurations((lr,), {"lr": value})
    kind = Categorical("kind", ("a", "b"), "a")
    with pytest.raises(Refused, match="is not a number"):
        grid.configurations((kind,), {"kind": {"linspace": [0, 1, 2]}})
