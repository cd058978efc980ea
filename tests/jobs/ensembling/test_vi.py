"""Variational inference: the divergence, the gradients of the loss, noise, and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from manyseed.jobs.ensembling.algorithms import Noisy, Variational, divergence, then
from manyseed.jobs.ensembling.ensemble import Material, weighted
from manyseed.jobs.ensembling.methods import Members, resolve
from manyseed.jobs.run import Generators
from manyseed.jobs.training import layers
from manyseed.jobs.training.schedules import schedule
from tests.jobs.ensembling.test_trajectory import run_of, train

ROWS, DECAY = 40, 0.01


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def network():
    model = nn.Sequential(
        layers.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), layers.Linear(3 * 4, 2, bias=False)
    )
    layers.initialise(model, np.random.default_rng(1))
    return model


def made(model, **options):
    method = resolve("vi", {"members": 3, "epochs": 4, **options})
    X = torch.randn(ROWS, 1, 3, 3, generator=generator())
    y = torch.arange(ROWS) % 2
    material = Material(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        X=X,
        y=y,
        epochs=2,
        batch_size=20,
        smallest_batch=1,
        rate=0.1,
        schedule=lambda rate, epochs: schedule("constant", rate, epochs),
        weight_decay=DECAY,
        generators=Generators(*(np.random.default_rng(i) for i in range(3))),
    )
    return Variational(method, Members(3), material, generator(7)), material


def test_the_divergence_is_what_is_planted():
    found = divergence(torch.full((3,), -5.0, dtype=torch.float64), 0.2**2)
    assert float(found) / 3 == pytest.approx(2.8911, abs=5e-5)
    assert float(divergence(torch.tensor([math.log(0.2)]), 0.2**2)) == pytest.approx(0, abs=1e-6)


def test_a_step_follows_the_gradient_of_the_whole_loss():
    """Written out, with the same noise, and left to autograd: what Adam is given, both parts."""
    course, material = made(network(), beta=0.3)
    course.before_epoch(2)
    material.model.train()
    state = course._generator.get_state()
    cross_entropy(material.model(material.X), material.y).backward()
    seen = []
    course._adam.step = lambda: seen.extend(one.log_sd.grad.clone() for one in course.noisy)
    course.after_step([], 0.1, 2, 2)
    course._generator.set_state(state)
    conv, linear = weighted(material.model)
    log_sd = [torch.full_like(each.weight, -5.0).requires_grad_() for each in (conv, linear)]
    noise = torch.randn(conv.weight.shape, generator=course._generator)
    hidden = nn.functional.conv2d(
        material.X, conv.weight.detach() + log_sd[0].exp() * noise, conv.bias.detach()
    )
    hidden = hidden.relu().flatten(1)
    weights = linear.weight.detach()
    sd = (hidden.square() @ log_sd[1].exp().square().T).sqrt()
    drawn = torch.randn(ROWS, 2, generator=course._generator)
    loss = cross_entropy(hidden @ weights.T + sd * drawn, material.y)
    loss = loss + 0.3 / ROWS * sum(divergence(each, 1 / (ROWS * DECAY)) for each in log_sd)
    for own, wanted in zip(seen, torch.autograd.grad(loss, log_sd), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-4, atol=1e-9)
    assert all(one.log_sd.grad is None for one in course.noisy)


def test_what_a_linear_layer_draws_is_distributed_as_with_drawn_weights():
    layer = layers.Linear(3, 1)
    layers.initialise(nn.Sequential(layer), np.random.default_rng(2))
    log_sd = torch.tensor([[-1.0, 0.0, -2.0]])
    x = torch.tensor([[1.0, -0.5, 2.0]]).expand(60_000, 3)
    with torch.no_grad():
        local = Noisy(layer, log_sd, generator())(x)[:, 0]
        weights = layer.weight + log_sd.exp() * torch.randn(60_000, 3, generator=generator(2))
        explicit = (weights * x).sum(dim=1) + layer.bias
    assert local.mean() == pytest.approx(float(explicit.mean()), abs=0.02)
    assert local.std() == pytest.approx(float(explicit.std()), rel=0.02)
    variance = (log_sd.exp().square() * x[0].square()).sum()
    assert local.var() == pytest.approx(float(variance), rel=0.03)


def test_without_variance_it_is_the_network():
    model = network()
    course, material = made(model, log_sd=-30.0)
    model.eval()
    with torch.no_grad():
        plain = model(material.X)
        course.before_epoch(2)
        assert torch.equal(model(material.X), plain)  # the means
        model.train()
        np.testing.assert_allclose(model(material.X), plain, atol=1e-6)
        model.eval()
        with course.drawn():
            np.testing.assert_allclose(model(material.X), plain, atol=1e-6)


def test_a_member_is_one_draw_of_all_weights_for_all_rows():
    model = network()
    course, material = made(model, log_sd=-1.0)
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = material.X[:1].expand(5, -1, -1, -1)
    seen = []
    with torch.no_grad():
        plain = model(rows)
        for _ in range(3):
            with course.drawn():
                drawn = model(rows)
                assert torch.equal(drawn, model(rows))
            np.testing.assert_allclose(drawn, drawn[:1].expand_as(drawn), rtol=1e-5, atol=1e-6)
            seen.append(drawn[0])
        np.testing.assert_allclose(model(rows), plain)
    assert len({tuple(each.tolist()) for each in seen}) == 3
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_rates_are_those_of_training_then_of_equation_10_then_a_thousandth():
    rate = then(lambda *_: 7.0, 3, 0.01, 40)
    assert [rate(epoch, 0, 5) for epoch in range(3)] == [7.0] * 3
    assert [rate(3 + epoch, 0, 5) for epoch in range(11)] == [0.01] * 11
    assert rate(3 + 14, 0, 5) == pytest.approx(0.01 * (1 - 0.99 / 2))
    assert rate(3 + 19, 0, 5) == pytest.approx(1e-4)
    assert [rate(3 + epoch, 0, 5) for epoch in (20, 39)] == [1e-5] * 2
    assert then(lambda *_: 7.0, 0, 0.01, 1)(0, 0, 5) == 1e-5


def test_no_weight_within_attention_has_a_posterior():
    model = nn.Sequential(layers.Linear(4, 4), nn.MultiheadAttention(4, 2))
    assert weighted(model) == [model[0]]


def test_the_standard_deviations_are_trained():
    """With much of the divergence they go towards the prior's, whose variance is larger."""
    far, near = (
        train(run_of("vi", beta=beta, epochs=30)).measured["member_score"].std(axis=0).mean()
        for beta in (0.0, 100.0)
    )
    assert near > 1.02 * far
