"""Several runs trained at once: as each alone, but for rounding, whatever becomes of the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from manyseed.jobs.classifiers.mlp import network
from manyseed.jobs.run import stream
from manyseed.jobs.training.layers import Linear, initialise, torch_generator
from manyseed.jobs.training.loop import Member, TestRows, TrainingPlan, train, train_stack
from manyseed.jobs.training.schedules import schedule

CPU = torch.device("cpu")
KINDS = {
    "adam": lambda lr, decay: (torch.optim.Adam, {"lr": lr, "weight_decay": decay}),
    "adamw": lambda lr, decay: (torch.optim.AdamW, {"lr": lr, "weight_decay": decay}),
    "sgd": lambda lr, decay: (torch.optim.SGD, {"lr": lr, "weight_decay": decay, "momentum": 0.9}),
}


def member(
    number: int,
    *,
    dtype=torch.float64,
    kind="adamw",
    lr=3e-3,
    decay=1e-2,
    dropout=0.2,
    name="cosine",
    epochs=4,
    batch=16,
    curves=False,
    head=False,
) -> tuple[Member, torch.Generator]:
    """Return run `number`: its own rows, initial weights, order, masks, rate and weight decay."""
    rng = np.random.default_rng(number)
    X = torch.tensor(rng.normal(size=(45, 6)), dtype=dtype)
    y = torch.tensor(rng.integers(0, 3, 45))
    X_test = torch.tensor(np.random.default_rng(99).normal(size=(20, 6)), dtype=dtype)
    masks = torch_generator(stream(1, "dropout", number), CPU)
    hparams = {"dropout": dropout, "width1": 24, "width2": 10}
    model = Linear(6, 3) if head else network((6,), 3, {}, hparams, masks)
    initialise(model, stream(1, "init", number))
    model.to(dtype)
    optimizer, settings = KINDS[kind](lr, decay)
    plan = TrainingPlan(epochs, batch, schedule(name, lr, epochs), (2,), 2)
    y_test = torch.arange(20) % 3 if curves else None
    made = Member(
        model,
        optimizer(model.parameters(), fused=True, **settings),
        *(X, y, TestRows(X_test), plan, stream(1, "batch", number), y_test),
    )
    return made, masks


def alone(one: tuple[Member, torch.Generator]):
    run, masks = one
    return train(*run[:-1], y_test=run.y_test, masks=masks)


def together(ones):
    return train_stack([run for run, _ in ones])


VARIED = {
    "seeds": [{}] * 4,
    "seeds, adam": [{"kind": "adam"}] * 3,
    "seeds, sgd": [{"kind": "sgd", "lr": 0.05, "name": "piecewise-linear"}] * 3,
    "rates": [{"lr": lr, "decay": decay} for lr in (1e-3, 1e-2) for decay in (0.0, 0.1)],
    "rates, sgd": [{"kind": "sgd", "lr": lr} for lr in (0.1, 0.01, 0.1)],
    "masks": [{"dropout": dropout} for dropout in (0.0, 0.1, 0.5)],
    "plateau": [{"name": "plateau", "epochs": 25, "lr": lr} for lr in (1e-4, 0.1, 0.1)],
    "heads": [{"head": True, "lr": lr} for lr in (0.1, 0.1, 0.2)],
    "a last batch joined": [{"batch": 11}] * 3,
    "curves": [{"curves": True}] * 2,
}


@pytest.mark.parametrize("varied", VARIED)
def test_a_stack_is_each_run_alone_to_rounding(varied):
    ones = [member(number, **given) for number, given in enumerate(VARIED[varied])]
    fitted = together(ones)
    for number, given in enumerate(VARIED[varied]):
        again = member(number, **given)
        expected = alone(again)
        np.testing.assert_allclose(fitted[number].scores, expected.scores, rtol=0, atol=1e-9)
        for name, curve in (expected.curves or {}).items():
            np.testing.assert_allclose(fitted[number].curves[name], curve, atol=1e-6)
        before, after = again[0].model.state_dict(), ones[number][0].model.state_dict()
        for name, values in before.items():
            torch.testing.assert_close(after[name], values, rtol=0, atol=1e-9)
        assert (expected.curves is None) == (fitted[number].curves is None)


def test_one_step_in_float32_differs_by_rounding_alone():
    given = {"dtype": torch.float32, "epochs": 1, "batch": 45}
    fitted = together([member(number, **given) for number in range(5)])
    for number in range(5):
        expected = alone(member(number, **given)).scores
        np.testing.assert_allclose(fitted[number].scores, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_member_that_diverges_does_not_disturb_its_neighbours(kind):
    """The stack around it has the same bits as one in which all is well."""

    def scores(rate):
        rates = [0.01, rate, 0.01]
        given = {"dtype": torch.float32, "kind": kind}
        ones = [member(number, lr=lr, **given) for number, lr in enumerate(rates)]
        return [fitted.scores for fitted in together(ones)]

    healthy, beside = scores(0.02), scores(1e12)
    assert not np.isfinite(beside[1]).all()
    for number in (0, 2):
        np.testing.assert_array_equal(beside[number], healthy[number])
        assert np.isfinite(beside[number]).all()


def test_rows_that_members_share_are_kept_once():
    def ones():
        made = [member(number) for number in range(4)]
        return [run._replace(X=made[0][0].X) if n != 2 else run for n, (run, _) in enumerate(made)]

    shared = train_stack(ones())
    copied = train_stack([run._replace(X=run.X.clone()) for run in ones()])
    for one, other in zip(shared, copied, strict=True):
        np.testing.assert_array_equal(one.scores, other.scores)
