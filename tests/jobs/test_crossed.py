"""Crossed sources: which values a run has, and that they are those of runs of other cells."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import resolve
from manyseed.jobs.run import Cell, Run, crossing
from manyseed.jobs.trainer import Trainer, stream_keys

DATA = resolve("sklearn:wine")


def cell(vary: str, classifier: str = "mlp", **axes: object) -> Cell:
    options = {"epochs": 2} if classifier == "mlp" else {}
    model = classifiers.resolve(classifier, options, DATA)
    return resolve_cell(7, DATA, model, vary=vary, **axes).cell


@pytest.mark.parametrize(("sources", "values"), [(2, 5), (3, 3)])
def test_the_first_runs_are_a_full_cross_of_the_first_values(sources, values):
    for k in range(1, values + 1):
        made = {crossing(sources, run) for run in range(k**sources)}
        assert made == set(itertools.product(range(k), repeat=sources))


def test_runs_keep_their_values():
    assert [crossing(2, run) for run in range(7)] == [
        *((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2), (2, 0)),
    ]
    assert crossing(3, 8) == (0, 0, 2)


@pytest.mark.parametrize("vary", ["init*batch", "init*train", "batch*train", "init*batch*train"])
@pytest.mark.parametrize(
    "axes", [{}, {"train_fraction": 0.5, "perturb_continuous": "relative:0.1"}]
)
def test_streams_are_those_of_the_values_in_cells_that_are_not_crossed(vary, axes):
    sources = vary.split("*")
    crossed, plain = cell(vary, **axes), cell("+".join(sources), **axes)
    for run in range(3 ** len(sources)):
        values = dict(zip(sources, crossing(len(sources), run), strict=True))
        own = stream_keys(Run(crossed, 1, run))
        data = stream_keys(Run(plain, 1, values.get("train", 0)))
        others = {one: stream_keys(Run(plain, 1, values[one])) for one in sources}
        assert own.keys() == data.keys()
        for name in ("init", "batch"):
            assert own[name] == others.get(name, data)[name]
        assert own["dropout"] == others.get("batch", data)["dropout"]
        for name in own.keys() - {"init", "batch", "dropout"}:
            assert own[name] == data[name]


def test_the_diagonal_is_the_cell_that_is_not_crossed_bit_for_bit():
    trainer = Trainer()
    crossed, plain = cell("init*batch"), cell("init+batch")
    for run, same in ((0, 0), (3, 1), (8, 2)):
        one, other = trainer.train(Run(crossed, 0, run)), trainer.train(Run(plain, 0, same))
        assert np.array_equal(one.scores, other.scores)
    row = [trainer.train(Run(crossed, 0, run)).scores for run in (0, 1, 2)]
    assert not np.array_equal(row[0], row[1])
    assert not np.array_equal(row[0], row[2])


def test_a_crossed_cell_has_an_identity_of_its_own_and_others_keep_theirs():
    plain, crossed = cell("init+batch"), cell("batch*init")
    assert "crossed" not in plain.canonical()
    assert crossed.canonical() == {**plain.canonical(), "crossed": True}
    assert crossed.id == replace(plain, crossed=True).id != plain.id
    assert Cell.from_canonical(crossed.canonical()) == crossed
    assert (plain.varied, crossed.varied) == ("init+batch", "init*batch")


@pytest.mark.parametrize(
    ("vary", "classifier", "words"),
    [
        ("init*batch", "lr-sgd", "lr-sgd draws nothing from init"),
        ("init*batch+train", "mlp", r"joined by \+: 'init\+batch\+train', or all crossed"),
        ("init*", "mlp", "joined by"),
        ("init*init", "mlp", "twice"),
        ("init*seed", "mlp", "unknown source"),
    ],
)
def test_what_cannot_be_crossed_is_refused(vary, classifier, words):
    with pytest.raises(Refused, match=words):
        cell(vary, classifier)
