"""Members along one training: rates, noise, and what an interruption leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyseed.jobs import classifiers, datasets
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.classifiers import mlp
from manyseed.jobs.ensembling import methods
from manyseed.jobs.ensembling.algorithms import (
    Masked,
    Trajectory,
    cosine_cycles,
    langevin_sd,
    triangular_cycles,
)
from manyseed.jobs.ensembling.ensemble import Ensembling
from manyseed.jobs.ensembling.methods import ARRAYS, Members
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import Trainer, generators
from manyseed.jobs.training import layers, loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.encode import dense_encoder
from manyseed.jobs.training.handling import Handling

WINE = datasets.resolve("sklearn:wine")
OPTIONS = {
    "optimizer": "sgd",
    "epochs": 4,
    "batch_size": 32,
    "hparams": {"width1": 32, "width2": 32, "lr": 0.02, "dropout": 0.2},
}
CASES = {
    "snapshot": {"members": 3, "cycle": 3, "lr": 0.05, "batch_size": 32},
    "csgld": {"members": 4, "cycle": 4, "lr": 0.05, "saves": 2, "batch_size": 32},
    "fge": {"members": 3, "pretrain": 3, "cycle": 2, "lr_high": 0.02, "lr_low": 1e-3},
    "swag": {"members": 3, "pretrain": 2, "epochs": 7, "lr": 0.02, "rank": 3},
    "vi": {"members": 3, "epochs": 5, "lr": 0.01},
    "kfac-laplace": {"members": 3, "scale": 0.5},
    "dropout": {"members": 5},
}
KEPT = ("size_score", "member_score")


def run_of(name, number=0, **options):
    method = methods.resolve(name, {**CASES[name], **options})
    model = classifiers.resolve("mlp", OPTIONS, WINE)
    return Run(resolve_cell(3, WINE, model, ensembling=method).cell, 0, number)


def train(run, **handling):
    return Trainer().train(run, Handling(measures=KEPT, **handling))


def test_the_rates_of_snapshots_are_those_of_equation_16():
    one_step = cosine_cycles(2.0, 5)
    found = [one_step(epoch, 0, 1) / 2 for epoch in range(6)]
    np.testing.assert_allclose(found, [1, 0.9045, 0.6545, 0.3455, 0.0955, 1], atol=5e-5)
    # of steps, whatever their number an epoch: the same as five of one epoch
    of_steps = cosine_cycles(2.0, 1)
    np.testing.assert_allclose([of_steps(3, step, 5) / 2 for step in range(5)], found[:5])


def test_the_rates_of_fge_are_those_of_equation_17():
    rate = triangular_cycles(lambda *_: 7.0, 3, 5e-2, 5e-4, 4)
    assert [rate(epoch, 0, 10) for epoch in range(3)] == [7.0] * 3
    found = [rate(3 + epoch, 0, 10) for epoch in range(5)]
    np.testing.assert_allclose(found, [5e-2, 0.02525, 5e-4, 0.02525, 5e-2])
    assert rate(4, 5, 10) == pytest.approx((1 - 0.75) * 5e-2 + 0.75 * 5e-4)
    assert rate(5, 5, 10) == pytest.approx(rate(4, 5, 10))  # falls and rises alike


@pytest.mark.parametrize(("temperature", "variance"), [(1.0, 0.010526), (0.082, 0.000863)])
def test_noise_has_the_stationary_variance_of_the_posterior(temperature, variance):
    """θ of L = ½θ², rate .1, N = 100: 10⁵ steps of many chains at once."""
    rate, chains = 0.1, 1000
    method = methods.resolve(
        "csgld", {"members": 2, "cycle": 2, "saves": 1, "noise_epochs": 2, "lr": rate}
    )
    noise = torch.Generator().manual_seed(1)
    course = Trajectory({**method, "temperature": temperature}, 1, lambda *_: rate, 100, noise)
    weights, kept = torch.zeros(chains), []
    for step in range(200):
        weights -= rate * weights
        course.after_step([weights], rate, 0, 1)
        if step >= 100:
            kept.append(weights.numpy().copy())
    assert np.square(kept).mean() == pytest.approx(variance, rel=0.05)


def test_the_published_temperature_is_that_of_the_code():
    """Its noise: √(2·lr) divided by the batches of an epoch."""
    for rows, batches in ((50_000, 390), (224, 7)):
        found = langevin_sd(0.5, "published", rows, batches)
        assert found == pytest.approx(np.sqrt(2 * 0.5) / batches)
    assert pytest.approx(4.6, abs=0.05) == 224 / 7**2
    assert langevin_sd(0.5, 1, 224, 7) == pytest.approx(np.sqrt(2 * 0.5 / 224))


def test_noise_is_added_in_the_last_epochs_of_a_cycle_alone():
    method = methods.resolve("csgld", {"members": 2, "cycle": 5, "noise_epochs": 2, "saves": 1})
    course = Trajectory(method, 1, lambda *_: 0.1, 100, torch.Generator().manual_seed(1))
    moved = []
    for epoch in range(10):
        weights = torch.zeros(3)
        course.after_step([weights], 0.1, epoch, 1)
        moved.append(bool(weights.any()))
    assert moved == [False, False, False, True, True] * 2


@pytest.mark.parametrize("name", CASES)
def test_the_scores_are_the_log_of_the_mean_probability_of_all_members(name):
    found = train(run_of(name))
    members = found.measured["member_score"].astype(np.float64)
    assert len(members) == CASES[name]["members"]
    np.testing.assert_allclose(np.exp(members).sum(axis=2), 1, atol=1e-6)
    assert all((members[0] != other).any() for other in members[1:])  # none is another one's copy
    mean = np.exp(members).mean(axis=0)
    np.testing.assert_allclose(np.exp(found.scores[0].astype(float)), mean, atol=1e-6)
    np.testing.assert_array_equal(found.measured["size_score"][-1], found.scores[0])
    np.testing.assert_array_equal(found.label[0], mean.argmax(axis=1))
    again = train(run_of(name))
    np.testing.assert_array_equal(again.scores, found.scores)
    assert (train(run_of(name, 1)).scores != found.scores).any()
    alone = Trainer().train(run_of(name))  # what is kept changes no bit
    np.testing.assert_array_equal(alone.scores, found.scores)


def test_runs_start_as_those_of_single_models():
    """The first cycle of a cycle's rates is a training with these rates: the same network."""
    run = run_of("fge", pretrain=4, members=2)
    single = replace(run.cell, ensembling=None)
    # the first member is one epoch of a cycle beyond the whole training of a single model
    scores = {}
    for rate in (1e-12, 0.02):
        method = {**run.cell.ensembling, "lr_high": rate, "lr_low": rate}
        found = train(Run(replace(run.cell, ensembling=method), 0, 0))
        scores[rate] = found.measured["member_score"][0]
    plain = Trainer().train(Run(single, 0, 0)).scores[0].astype(np.float64)
    plain -= np.logaddexp.reduce(plain, axis=1, keepdims=True)
    # only batch norm's statistics move at a rate of nothing
    near, far = (np.abs(scores[rate] - plain).mean() for rate in (1e-12, 0.02))
    assert near < 0.2 * far


def rates_by_hand(name, method, lr, steps):
    """The rates of all steps, and after how many steps each member is taken (PIT, eq. 10, 16, 17).

    Steps are counted from 1, as there.
    """
    members, cycle = method["members"], method["cycle"]
    if name != "fge":
        whole = cycle * steps
        rates = [
            method["lr"] / 2 * (np.cos(np.pi * ((t - 1) % whole) / whole) + 1)
            for t in range(1, members * whole + 1)
        ]
        return rates, [k * whole for k in range(1, members + 1)]
    rates, pretrain = [], method["pretrain"]
    for epoch in range(pretrain):
        done = epoch / pretrain
        fallen = 1 - 0.99 * (done - 0.5) / 0.4
        rates += [lr * (1 if done <= 0.5 else 0.01 if done > 0.9 else fallen)] * steps
    first, last = method["lr_high"], method["lr_low"]
    for t in range((members * cycle - cycle // 2) * steps):
        u = t % (cycle * steps) / (cycle * steps)
        if u <= 0.5:
            rates.append((1 - 2 * u) * first + 2 * u * last)
        else:
            rates.append((2 - 2 * u) * last + (2 * u - 1) * first)
    return rates, [(pretrain + k * cycle + cycle // 2) * steps for k in range(members)]


@pytest.mark.parametrize(
    ("name", "momentum"), [("snapshot", 0.0), ("snapshot", 0.9), ("csgld", 0.0), ("fge", 0.9)]
)
def test_members_are_those_of_a_training_written_out(name, momentum):
    """Rates, velocities kept over restarts, weight decay, noise, where members are taken."""
    # short: rounding grows from step to step
    options = {} if name == "fge" else {"members": 2, "cycle": 2, "lr": 0.02, "momentum": momentum}
    options |= {"noise_epochs": 1, "saves": 1} if name == "csgld" else {}
    hparams = {**OPTIONS["hparams"], "dropout": 0.0, "weight_decay": 0.01}
    model = classifiers.resolve("mlp", {**OPTIONS, "hparams": hparams}, WINE)
    method = methods.resolve(name, {**CASES[name], **options})
    run = Run(resolve_cell(3, WINE, model, ensembling=method).cell, 0, 0)
    found = train(run).measured["member_score"]
    data, streams = Trainer().training_set(run), generators(run)
    encode = dense_encoder(data)
    X, tested = (torch.tensor(encode(rows), dtype=torch.float32) for rows in (data.X, data.X_test))
    y, n = torch.tensor(data.y.astype(np.int64)), len(data.X)
    net = mlp.network(X.shape[1:], data.n_classes, {}, hparams, torch.Generator())
    layers.initialise(net, streams.init)
    draws = None
    if name == "csgld":
        draws = layers.torch_generator(streams.langevin, torch.device("cpu"))
    steps = -(-n // 32)
    rates, taken = rates_by_hand(name, method, hparams["lr"], steps)
    weights = [*net.parameters()]
    velocities, members = [torch.zeros_like(each) for each in weights], []
    for t, rate in enumerate(rates, 1):
        if t % steps == 1:
            order = np.argsort(streams.batch.bit_generator.random_raw(n), kind="stable")
        rows = order[(t - 1) % steps * 32 :][:32]
        net.train()
        loss = torch.nn.functional.nll_loss(net(X[rows]).log_softmax(1), y[rows])
        for each, velocity, slope in zip(
            weights, velocities, torch.autograd.grad(loss, weights), strict=True
        ):
            velocity.mul_(momentum).add_(slope + 0.01 * each.detach())
            each.data -= rate * velocity
        noisy = (t - 1) // steps % method["cycle"] == method["cycle"] - 1
        for each in weights if draws is not None and noisy else ():
            each.data += np.sqrt(2 * rate / n) * torch.randn(each.shape, generator=draws)
        if t in taken:
            members.append(net.eval()(tested).log_softmax(1).detach().numpy())
    np.testing.assert_allclose(found, members, rtol=1e-3, atol=2e-3)
    assert np.abs(found[0] - found[1]).max() > 0.1


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stop", [3, 6])
@pytest.mark.parametrize("name", ["snapshot", "csgld", "fge", "swag", "vi"])
def test_a_training_that_was_cut_in_mid_cycle_ends_with_the_same_bits(
    name, stop, tmp_path, monkeypatch
):
    run, cut, begun = run_of(name), loop.batches, []
    whole = train(run, curves=True)
    checkpoint = Checkpoint(tmp_path / "run", "key", every=0)

    def batches(*arguments):
        begun.append(1)
        for number, batch in enumerate(cut(*arguments)):
            if len(begun) == stop and number == 1:
                raise Interrupted
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(loop, "batches", batches)
        with pytest.raises(Interrupted):
            train(run, curves=True, checkpoint=checkpoint)
        stop = 0
        begun.clear()
        found = train(run, curves=True, checkpoint=checkpoint)
    epochs = methods.member_epochs(run.cell.ensembling, 4)[-1]
    assert 0 < len(begun) < epochs  # it went on
    np.testing.assert_array_equal(found.scores, whole.scores)
    for array in KEPT:
        np.testing.assert_array_equal(found.measured[array], whole.measured[array])
    for curve, values in whole.curves.items():
        assert values.shape == (epochs,)
        np.testing.assert_array_equal(found.curves[curve], values)


@pytest.mark.parametrize("name", ["swag", "vi", "kfac-laplace", "dropout"])
def test_drawing_members_goes_on_where_it_was_cut(name, tmp_path, monkeypatch):
    run = run_of(name)
    whole = train(run)
    checkpoint, take = Checkpoint(tmp_path / "run", "key", every=0), Ensembling.take
    taken = []

    def stopping(self, logits):
        taken.append(self.members.taken)
        if taken == [0, 1, 2]:
            raise Interrupted
        take(self, logits)

    monkeypatch.setattr(Ensembling, "take", stopping)
    with pytest.raises(Interrupted):
        train(run, checkpoint=checkpoint)
    begun, cut = [], loop.batches
    monkeypatch.setattr(loop, "batches", lambda *args: begun.append(1) or cut(*args))
    found = train(run, checkpoint=checkpoint)
    assert taken[3] == 2  # neither trained nor drawn again
    assert not begun
    np.testing.assert_array_equal(found.scores, whole.scores)
    for array in KEPT:
        np.testing.assert_array_equal(found.measured[array], whole.measured[array])


def network(p):
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(
        layers.Linear(4, 16),
        torch.nn.BatchNorm1d(16),
        layers.Dropout(p, generator),
        layers.Linear(16, 3),
    )
    layers.initialise(model, np.random.default_rng(1))
    model.train()
    with torch.no_grad():
        model(torch.randn(50, 4, generator=torch.Generator().manual_seed(2)))
    return model


def sampled(model, rows, count, masks):
    members = Members(count, ARRAYS)
    course = Masked(1, lambda *_: 0.1, members, model, masks)
    model.eval()
    while not course.is_complete:
        with course.drawn(), torch.no_grad():
            course.take(model(rows).numpy())
    return members


def draws(model, rows, count=3, seed=5):
    found = sampled(model, rows, count, torch.Generator().manual_seed(seed))
    return found.arrays()["member_score"]


def test_dropout_of_nothing_makes_equal_members_and_masks_are_of_each_point():
    rows = torch.ones(6, 4)
    members = draws(network(0.0), rows)
    assert (members == members[0]).all()
    model = network(0.5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    members = draws(model, rows)
    assert len(np.unique(members.reshape(-1, 3), axis=0)) == members.shape[0] * 6
    np.testing.assert_array_equal(draws(model, rows), members)
    assert (draws(model, rows, seed=6) != members).any()
    for name, value in model.state_dict().items():  # batch norm's statistics too
        assert torch.equal(value, before[name])
    assert not any(layer.training for layer in model.modules())


def test_a_mean_of_many_dropout_members_is_that_of_a_slow_version():
    model, rows = network(0.5), torch.randn(4, 4, generator=torch.Generator().manual_seed(3))
    mean = sampled(model, rows, 4000, torch.Generator().manual_seed(1)).logs()
    first, norm, _, last = model
    with torch.no_grad():
        hidden = norm(first(rows)).numpy()
    kept = np.random.default_rng(1).random((20_000, *hidden.shape)) < 0.5
    weight, bias = (value.detach().numpy() for value in (last.weight, last.bias))
    logits = (2 * kept * hidden) @ weight.T + bias
    p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(np.exp(mean), p.mean(axis=0), atol=0.02)
