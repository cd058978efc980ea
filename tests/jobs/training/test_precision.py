"""Matrix products in bfloat16: the same bits again, close to float32, all else in float32.

These tests need no processor that has it: without, products are slower and rounded the same way.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.classifiers.mlp import network
from manyseed.jobs.datasets import resolve
from manyseed.jobs.run import Run, stream
from manyseed.jobs.trainer import Trainer, block_of, made
from manyseed.jobs.training.handling import Handling
from manyseed.jobs.training.layers import initialise, torch_generator
from manyseed.jobs.training.loop import TestRows, TrainingPlan, train
from manyseed.jobs.training.schedules import schedule
from tests.jobs.classifiers import examples
from tests.jobs.ensembling.test_trajectory import run_of

CPU = torch.device("cpu")
BF16 = Handling(precision="bf16")
BLOBS = resolve("synthetic:gaussian", n_samples=400, n_features=6, test=200)
TABLE = {"epochs": 4, "batch_size": 32, "hparams": {"lr": 0.01, "width1": 48, "width2": 32}}


def after_one_step(precision):
    """Return weights, gradients and the optimizer's state after a step on 64 rows."""
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(64, 12)), dtype=torch.float32)
    y = torch.tensor(rng.integers(0, 3, 64))
    masks = torch_generator(stream(1, "dropout", 0), CPU)
    hparams = {"dropout": 0.1, "width1": 40, "width2": 32}
    model = network((12,), 3, {}, hparams, masks)
    initialise(model, stream(1, "init", 0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    plan = TrainingPlan(1, 64, schedule("constant", 1e-3, 1), precision=precision)
    fitted = train(model, optimizer, X, y, TestRows(X), plan, stream(1, "batch", 0), masks=masks)
    return [*model.parameters()], optimizer, fitted


def test_weights_updates_and_predictions_are_in_float32():
    parameters, optimizer, fitted = after_one_step("bf16")
    assert {weights.dtype for weights in parameters} == {torch.float32}
    assert {weights.grad.dtype for weights in parameters} == {torch.float32}
    states = [value for state in optimizer.state.values() for value in state.values()]
    assert {value.dtype for value in states} == {torch.float32}
    assert fitted.scores.dtype == np.float32
    rounded = torch.tensor(fitted.scores).bfloat16().float().numpy()
    assert (rounded != fitted.scores).mean() > 0.9


def test_gradients_of_a_step_are_those_of_float32_but_for_rounding():
    ours, theirs = after_one_step("bf16")[0], after_one_step("float32")[0]
    flat = [torch.cat([each.grad.ravel() for each in of]) for of in (ours, theirs)]
    cosine = torch.cosine_similarity(*flat, dim=0)
    assert 0.98 < cosine < 1 - 1e-6


def test_the_same_bits_again_and_accuracies_close_to_those_of_float32():
    data, y_test = examples.multiclass()
    accuracies = {"float32": [], "bf16": []}
    for number in range(8):
        seeds = {"init": number, "batch": number}
        for precision, found in accuracies.items():
            fit = examples.fit("mlp", data, precision=precision, **seeds)
            found.append((fit.label[0] == y_test).mean())
        again = examples.fit("mlp", data, precision="bf16", **seeds)
        np.testing.assert_array_equal(fit.scores, again.scores)
    assert np.mean(accuracies["float32"]) > 0.9
    assert np.mean(accuracies["bf16"]) == pytest.approx(np.mean(accuracies["float32"]), abs=0.02)


def test_a_stack_in_bfloat16_has_the_same_bits_again_and_is_close_to_runs_alone():
    asked = resolve_cell(3, BLOBS, classifiers.resolve("mlp", TABLE, BLOBS)).cell
    trainer = Trainer()
    y = trainer.test_set(asked, 0).y_true
    block = block_of(Run(asked, 0, 0), 4)
    handlings = {run.run: BF16 for run in block}
    fits = [made(each) for each in trainer.train_stack(block, handlings).values()]
    again = [made(each) for each in trainer.train_stack(block, handlings).values()]
    alone = [trainer.train(run, BF16) for run in block]
    in_float32 = trainer.train_stack(block, {run.run: Handling() for run in block})
    plain = [made(each) for each in in_float32.values()]
    for one, other in zip(fits, again, strict=True):
        np.testing.assert_array_equal(one.scores, other.scores)
    assert all((one.scores != other.scores).any() for one, other in zip(fits, plain, strict=True))
    ours, theirs = (np.mean([one.label[-1] == y for one in of]) for of in (fits, alone))
    assert ours == pytest.approx(theirs, abs=0.04)


@pytest.mark.parametrize("name", ["mlp", *examples.PIXELS])
def test_every_network_trains_in_bfloat16(name):
    """An epoch of it gives scores like those of one in float32."""
    data, _ = examples.of(name)()
    options = {**examples.OPTIONS[name], "epochs": 1}
    plain, fit = (examples.fit(name, data, options, precision=one) for one in ("float32", "bf16"))
    assert (fit.scores != plain.scores).any()
    assert np.corrcoef(fit.scores.ravel(), plain.scores.ravel())[0, 1] > 0.8


@pytest.mark.parametrize("name", ["swag", "vi"])
def test_methods_with_members_of_their_own_take_bfloat16(name):
    run = run_of(name)
    handling = Handling(measures=("member_score",), ensembling=run.cell.ensembling)
    fits = [
        Trainer().train(run, replace(handling, precision=precision))
        for precision in ("float32", "bf16", "bf16")
    ]
    members = [fit.measured["member_score"] for fit in fits]
    np.testing.assert_array_equal(members[1], members[2])
    assert np.isfinite(members[1]).all()
    assert (members[0] != members[1]).any()
