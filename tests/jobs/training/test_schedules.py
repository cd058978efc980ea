"""The rate that falls on plateaus, against torch's own scheduler, in fits and checkpoints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs import classifiers
from manyseed.jobs.cells import Unsuited, require_suited
from manyseed.jobs.datasets import resolve
from manyseed.jobs.ensembling import methods
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.schedules import Plateau
from tests.jobs.classifiers import examples


def rates(losses):
    """Return the rate of each epoch; the losses are those of two batches, of 3 rows and of 1."""
    watch, found = Plateau(0.5), []
    for loss in losses:
        found.append(watch(0, 0, 1))
        watch.add(torch.tensor(loss), 3)
        watch.add(torch.tensor(loss), 1)
        watch.after_epoch()
    return found


def of_torch(losses):
    weights = [torch.nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(weights, lr=0.5)
    # torch counts the epochs that it endures, and falls at the next
    told = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=9, eps=0)
    found = []
    for loss in losses:
        found.append(optimizer.param_groups[0]["lr"])
        told.step(loss)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([1.0, 0.99995, 0.9998, 0.9, 0.5, 2.0, float("nan")]), max_size=60))
def test_rates_are_those_of_torch_s_scheduler(losses):
    assert rates(losses) == pytest.approx(of_torch(losses))


def test_it_falls_after_ten_epochs_without_improvement():
    assert rates([1.0] * 22) == pytest.approx([0.5] * 11 + [0.05] * 10 + [0.005])
    # improvements smaller than a ten-thousandth are none
    assert rates([1.0] + [0.99995] * 10 + [0.9])[-1] == pytest.approx(0.05)
    assert rates([1.0] + [0.99985] * 10 + [0.9])[-1] == 0.5


def test_the_mean_is_over_rows():
    watch = Plateau(1.0)
    watch.add(torch.tensor(1.0), 30)
    watch.add(torch.tensor(5.0), 10)
    watch.after_epoch()
    assert watch.state() == {"rate": 1.0, "least": 2.0, "idle": 0}


PLATEAU = {"schedule": "plateau", "epochs": 26, "hparams": {"width": 2}}


def steps(monkeypatch, data, **more):
    """Return the rate of each epoch of a fit that learns nothing."""
    seen, train = [], loop._train_epoch

    def watched(parts, *others):
        seen.append(parts.plateau.rate)
        return train(parts, *others)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "_train_epoch", watched)
        found = examples.fit("convnet", data, PLATEAU, {"lr": 1e-9}, **more)
    return seen, found


def test_a_fit_s_rate_falls_and_curves_change_nothing(monkeypatch):
    data, y_test = examples.image()
    seen, plain = steps(monkeypatch, data)
    assert seen == pytest.approx([1e-9] * 11 + [1e-10] * 10 + [1e-11] * 5)
    again, curved = steps(monkeypatch, replace(data, y_test=y_test), curves=True)
    assert again == seen
    np.testing.assert_array_equal(plain.scores, curved.scores)


def test_a_continued_training_keeps_its_rate_and_its_count(tmp_path, monkeypatch):
    data, _ = examples.image()
    data = replace(data, y=np.random.default_rng(0).permutation(data.y))  # nothing to learn
    options = {"schedule": "plateau", "epochs": 40, "hparams": {"lr": 0.1, "width": 1}}
    whole = examples.fit("convnet", data, options)
    checkpoint = Checkpoint(tmp_path / "one", "key", every=0)
    for stop in (1, 3, 15, 7):
        saved, save = [], loop.save

        def killed(*arguments, saved=saved, save=save, stop=stop):
            save(*arguments)
            saved.append(1)
            if len(saved) == stop:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(loop, "save", killed)
            with pytest.raises(KeyboardInterrupt):
                examples.fit("convnet", data, options, checkpoint=checkpoint)
    again = examples.fit("convnet", data, options, checkpoint=checkpoint)
    np.testing.assert_array_equal(again.scores, whole.scores)
    constant = examples.fit("convnet", data, {**options, "schedule": "constant"})
    assert not np.array_equal(constant.scores, whole.scores)  # it has fallen


def test_methods_with_rates_of_their_own_are_refused():
    digits = resolve("sklearn:digits")
    options = {"optimizer": "sgd", "schedule": "plateau", "hparams": {"dropout": 0.1}}
    model = classifiers.resolve("mlp", options, digits)
    for kind, method in methods.METHODS.items():
        asked = methods.resolve(kind, {})
        if not method.by_sgd:
            require_suited(asked, model)
            continue
        with pytest.raises(Unsuited, match=f"{kind} has rates of its own") as found:
            require_suited(asked, model)
        assert found.value.needs == {"schedule": None}
