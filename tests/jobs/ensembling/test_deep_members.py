"""Ensembling methods on the deep networks for images: members, and what an interruption leaves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from manyseed.jobs import classifiers
from manyseed.jobs.cells import require_suited
from manyseed.jobs.ensembling import methods
from manyseed.jobs.run import Generators, stream
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import Handling
from tests.jobs.classifiers import examples

METHODS = {
    "snapshot": {"members": 2, "cycle": 2, "lr": 0.05, "batch_size": 32},
    "csgld": {"members": 2, "cycle": 2, "lr": 0.02, "noise_epochs": 2, "saves": 2},
    "fge": {"members": 2, "pretrain": 1, "cycle": 2, "lr_high": 0.02, "lr_low": 1e-3},
    "swag": {"members": 3, "pretrain": 1, "epochs": 4, "lr": 0.02, "rank": 2},
    "dropout": {"members": 3},
    "vi": {"members": 3, "epochs": 2, "lr": 1e-3},
}
CASES = [
    ("vgg", "dropout"),
    ("vgg", "swag"),
    ("resnet", "fge"),
    ("preresnet", "csgld"),
    ("wide-resnet", "snapshot"),
    ("wide-resnet", "swag"),
    ("convnet", "swag"),
    ("vgg", "vi"),
    ("preresnet", "vi"),
]
STREAMS = ("init", "batch", "dropout", "augment")


def fit(name, kind, checkpoint=None):
    data, _ = examples.of(name)()
    options = {**examples.OPTIONS[name], "optimizer": "sgd", "epochs": 2}
    model = classifiers.resolve(name, options, examples.info(data))
    method = methods.resolve(kind, METHODS[kind])
    require_suited(method, model)
    more = methods.METHODS[kind].streams
    drawn = Generators(**{each: stream(9, each, 0) for each in (*STREAMS, *more)})
    handling = Handling(checkpoint=checkpoint, measures=("member_score",), ensembling=method)
    return classifiers.fit(model.canonical, model.hparams, data, drawn, handling)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_members_differ_are_averaged_and_survive_an_interruption(name, kind, tmp_path, monkeypatch):
    whole = fit(name, kind)
    members = whole.measured["member_score"].astype(np.float64)
    assert members.shape == (METHODS[kind]["members"], examples.N_TEST, 3)
    assert np.isfinite(members).all()
    for one, other in itertools.pairwise(members):
        assert np.abs(one - other).max() > 1e-4
    mean = logsumexp(members, axis=0) - np.log(len(members))
    np.testing.assert_allclose(whole.scores[0], mean, rtol=1e-5, atol=1e-5)

    cut, begun = loop.batches, []

    def batches(*arguments):
        begun.append(1)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return cut(*arguments)

    checkpoint = Checkpoint(tmp_path / "run", "key", every=0)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "batches", batches)
        with pytest.raises(KeyboardInterrupt):
            fit(name, kind, checkpoint)
    found = fit(name, kind, checkpoint)
    np.testing.assert_array_equal(found.scores, whole.scores)
    np.testing.assert_array_equal(found.measured["member_score"], whole.measured["member_score"])
