"""Several runs trained at once: as each alone, but for rounding, whatever becomes of the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from manyseed import alpha_hat
from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.classifiers.mlp import network
from manyseed.jobs.datasets import resolve
from manyseed.jobs.run import Run, stream
from manyseed.jobs.trainer import Trainer, block_of, made, run_hparams
from manyseed.jobs.training.handling import Handling
from manyseed.jobs.training.layers import Linear, initialise, torch_generator
from manyseed.jobs.training.loop import StackedRun, TestRows, TrainingPlan, train, train_stack
from manyseed.jobs.training.schedules import schedule
from tests.jobs.classifiers.examples import LARGER, OPTIONS, PIXELS

CPU = torch.device("cpu")
VIT = {"patch": 2, "layers": 2, "heads": 2, "width": 8, "mlp_width": 16}
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
) -> tuple[StackedRun, torch.Generator]:
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
    made = StackedRun(
        model,
        optimizer(model.parameters(), fused=True, **settings),
        *(X, y, TestRows(X_test), plan, stream(1, "batch", number), y_test),
    )
    return made, masks


def of_images(
    name: str,
    number: int,
    *,
    lr=0.01,
    decay=1e-2,
    dropout=0.2,
    dtype=torch.float64,
    batch=8,
    epochs=2,
) -> tuple[StackedRun, torch.Generator]:
    """Return run `number` of a network on images, with all that is its own."""
    fit, side = classifiers.CLASSIFIERS[name].fit, 20 if name in LARGER else 6
    rng = np.random.default_rng(number)
    X = torch.tensor(rng.normal(size=(19, side, side + 1, 3)), dtype=dtype)
    y = torch.tensor(rng.integers(0, 3, 19))
    masks = torch_generator(stream(1, "dropout", number), CPU)
    given = {**OPTIONS[name]["hparams"], "dropout": dropout}
    hparams = {**classifiers.CLASSIFIERS[name].anchors(), **given}
    model = fit.build(X.shape[1:], 3, VIT, hparams, masks)
    fit.initialise(model, stream(1, "init", number))
    model.to(dtype)
    if name == "vit":  # its head begins at zero, so that one step would tell nothing of the rest
        torch.nn.init.normal_(model[-1].heads.head.weight, generator=masks)
    plan = TrainingPlan(epochs, batch, schedule("cosine", lr, epochs), (1,), 2)
    made = StackedRun(
        model,
        torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay, fused=True),
        *(X, y, TestRows(X[:7]), plan, stream(1, "batch", number), y[:7]),
    )
    return made, masks


OWN = (
    {"lr": 0.01, "dropout": 0.0},
    {"lr": 0.003, "dropout": 0.1},
    {"lr": 0.01, "dropout": 0.5, "decay": 0.1},
)


@pytest.mark.parametrize("name", PIXELS)
def test_a_stack_of_networks_on_images_is_each_run_alone_to_rounding(name):
    """In double precision, with masks, rates and statistics of batch norm of each."""
    ones = [of_images(name, number, **given) for number, given in enumerate(OWN)]
    fitted = together(ones)
    for number, given in enumerate(OWN):
        again = of_images(name, number, **given)
        expected = alone(again)
        np.testing.assert_allclose(fitted[number].scores, expected.scores, rtol=0, atol=1e-9)
        for curve, values in expected.curves.items():
            np.testing.assert_allclose(fitted[number].curves[curve], values, atol=1e-6)
        before, after = again[0].model.state_dict(), ones[number][0].model.state_dict()
        assert before.keys() == after.keys()
        for array, values in before.items():
            torch.testing.assert_close(after[array], values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["cnn", "vit"])
def test_one_step_of_networks_on_images_in_float32_differs_by_rounding_alone(name):
    """SGD at a rate of 0.01, as Adam's first step is that of a gradient's sign."""
    given = {"dtype": torch.float32, "batch": 19, "epochs": 1, "lr": 0.0}

    def ones():
        for number in range(4):
            run, masks = of_images(name, number, **given)
            optimizer = torch.optim.SGD(run.model.parameters(), lr=0.01, fused=True)
            plan = replace(run.plan, rate=schedule("constant", 0.01, 1))
            yield run._replace(optimizer=optimizer, plan=plan), masks

    fitted = together([*ones()])
    for found, one in zip(fitted, ones(), strict=True):
        start = one[0].test_rows.logits(one[0].model.eval()).numpy()
        expected = alone(one).scores
        np.testing.assert_allclose(found.scores, expected, rtol=0, atol=1e-5)
        assert np.abs(expected - start).max() > 1e-4


@pytest.mark.parametrize("name", ["cnn", "convnet", "vit"])
def test_an_image_network_that_diverges_does_not_disturb_its_neighbours(name):
    def scores(rate):
        rates = enumerate([0.01, rate, 0.01])
        ones = [of_images(name, number, lr=lr, dtype=torch.float32) for number, lr in rates]
        return [fitted.scores for fitted in together(ones)]

    healthy, beside = scores(0.02), scores(1e30)
    assert not np.isfinite(beside[1]).all()
    for number in (0, 2):
        np.testing.assert_array_equal(beside[number], healthy[number])
        assert np.isfinite(beside[number]).all()


def alone(one: tuple[StackedRun, torch.Generator]):
    run, masks = one
    return train(*run[:-2], y_test=run.y_test, masks=masks)


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


def cell(**axes):
    data = resolve("synthetic:gaussian", n_samples=60, n_features=4)
    table = {"epochs": 1, "batch_size": 64, "hparams": {"width1": 40, "width2": 32}}
    return resolve_cell(3, data, classifiers.resolve("mlp", table, data), **axes).cell


def test_a_block_of_the_trainer_has_its_own_rates_rows_and_measures():
    """One step in float32; hparams are perturbed too little to change a width."""
    asked = cell(
        perturb_hparams="relative:0.001",
        perturb_continuous="relative:0.5",
        train_fraction=0.5,
        vary="init+batch+train",
    )
    block, trainer = block_of(Run(asked, 1, 4), 3), Trainer()
    assert [run.run for run in block] == [3, 4, 5]
    assert len({run_hparams(run)["lr"] for run in block}) == 3
    handling = Handling(curves=True, measures=("final_train_accuracy", "parameters"))
    outcomes = trainer.train_stack(block, {4: handling, 5: handling})
    for run in block[1:]:
        found, alone = made(outcomes[run.run]), trainer.train(run, handling)
        np.testing.assert_allclose(found.scores, alone.scores, rtol=0, atol=1e-5)
        for name in alone.measured:
            np.testing.assert_allclose(found.measured[name], alone.measured[name], atol=1e-5)
        for name in alone.curves:
            np.testing.assert_allclose(found.curves[name], alone.curves[name], atol=1e-5)


@pytest.mark.parametrize("name", ["cnn", "vit", "mlp"])
def test_each_run_of_a_stack_sees_its_own_transformed_images(name):
    """One step in float32, trained on images of its own and tested on transformed ones."""
    data = resolve("sklearn:digits")
    hparams = {"width1": 32, "width2": 32} if name == "mlp" else {"batch": 128}
    hparams["lr"] = 0.05
    table = {"epochs": 1, "optimizer": "sgd", "schedule": "constant", "hparams": hparams}
    info = classifiers.resolve(name, table, data)
    axes = {"augment": "crop-flip:2", "test_augment": "rotate:20", "perturb_labels": "flip:0.1"}
    asked = resolve_cell(3, data, info, train_fraction=60, vary="init+batch+train", **axes).cell
    block, trainer = block_of(Run(asked, 0, 1), 3), Trainer()
    assert len(block) == 3
    outcomes = trainer.train_stack(block, {run.run: Handling() for run in block})
    for run in block:
        found, single = made(outcomes[run.run]), trainer.train(run)
        np.testing.assert_allclose(found.scores, single.scores, rtol=0, atol=1e-5)


def test_runs_that_cannot_be_stacked_are_trained_alone():
    plain = cell()
    for asked, members in [
        (cell(perturb_hparams="relative:0.5"), 4),  # of several widths
        (replace(plain, ensembling={"name": "snapshot"}), 4),
        (plain, 1),
    ]:
        assert block_of(Run(asked, 0, 2), members) == [Run(asked, 0, 2)]
    assert len(block_of(Run(plain, 0, 2), 4)) == 4


@pytest.mark.slow
def test_accuracies_and_alpha_hat_of_whole_trainings_are_distributed_as_those_of_runs_alone():
    """200 runs of each form, none in both: two-sample tests find nothing, but another rate."""
    data = resolve("synthetic:gaussian", n_samples=200, n_features=4, test=100)
    hparams = {"width1": 32, "width2": 32, "lr": 3e-3}
    table = {"epochs": 10, "batch_size": 16, "hparams": hparams}
    info = classifiers.resolve("mlp", table, data)
    asked, trainer = resolve_cell(3, data, info, train_fraction=40).cell, Trainer()
    other = replace(asked, hparams={**asked.hparams, "lr": asked.hparams["lr"] / 5})

    def stacked(of):
        for number in range(0, 200, 50):
            block = block_of(Run(of, 0, number), 50)
            outcomes = trainer.train_stack(block, {run.run: Handling() for run in block})
            yield from map(made, outcomes.values())

    forms = {"stacked": [*stacked(asked)], "another rate": [*stacked(other)]}
    alone = [trainer.train(Run(asked, 0, number)) for number in range(200, 500)]
    forms["alone"], references = alone[:200], np.stack([one.scores[-1] for one in alone[200:]])
    y = trainer.test_set(asked, 0).y_true
    measured = {
        "accuracy": lambda one: (one.label[-1] == y).mean(),
        "alpha_hat": lambda one: (
            alpha_hat(one.scores[-1:], references, resamples=20, bootstrap=10).alpha_hat
        ),
    }
    for measure in measured.values():
        found = {form: [measure(one) for one in runs] for form, runs in forms.items()}
        assert len(set(found["alone"])) > 5
        assert ks_2samp(found["stacked"], found["alone"]).pvalue > 0.05
        assert ks_2samp(found["another rate"], found["alone"]).pvalue < 1e-3
