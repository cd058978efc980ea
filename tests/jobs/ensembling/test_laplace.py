"""Laplace's approximation: Kronecker factors by loops, and the covariance of what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad

from manyseed.jobs.ensembling.ensemble import weighted
from manyseed.jobs.ensembling.laplace import Factors, Posterior, Posteriors, factors
from manyseed.jobs.training import layers

ROWS, DECAY = 30, 0.01


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def data(*shape, n_classes=3, rows=ROWS):
    X = torch.randn(rows, *shape, generator=generator(), dtype=torch.float64)
    return X, torch.arange(rows) % n_classes


def dense(bias=True):
    model = nn.Sequential(layers.Linear(3, 4), nn.Tanh(), layers.Linear(4, 3, bias=bias)).double()
    layers.initialise(model, np.random.default_rng(1))
    return model


def convolutional():
    model = nn.Sequential(
        layers.Conv2d(2, 3, 2, stride=(1, 2), padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(inplace=True),
        layers.Conv2d(3, 2, 2, bias=False),
        nn.Flatten(),
        layers.Linear(2 * 4 * 2, 3),
    ).double()
    layers.initialise(model, np.random.default_rng(1))
    return model


def by_loops(model, X, y, layer):
    """Return A and G of a layer, row by row and position by position."""
    model.eval()
    seen = {}
    hook = layer.register_forward_hook(
        lambda _, given, out: (out.retain_grad(), seen.update(given=given[0], out=out))[0]
    )
    size = layer.weight[0].numel() + (layer.bias is not None)
    A, G, positions = np.zeros((size, size)), np.zeros((len(layer.weight),) * 2), 0
    for row, label in zip(X, y, strict=True):
        # the non-linearity behind it may work in place, so the layer's output is a copy
        cross_entropy(model(row[None]), label[None]).backward()
        gradient = seen["out"].grad[0].numpy()
        given = seen["given"].detach()[0]
        if isinstance(layer, nn.Linear):
            places = [(given.numpy(), gradient)]
        else:
            (pad_y, pad_x), (step_y, step_x) = layer.padding, layer.stride
            high, wide = layer.kernel_size
            padded = pad(given, (pad_x, pad_x, pad_y, pad_y)).numpy()
            places = [
                (
                    padded[:, i * step_y : i * step_y + high, j * step_x : j * step_x + wide],
                    gradient[:, i, j],
                )
                for i in range(gradient.shape[1])
                for j in range(gradient.shape[2])
            ]
        positions = len(places)
        for a, g in places:
            a = np.append(a.ravel(), [1.0] if layer.bias is not None else [])
            A += np.outer(a, a)
            G += np.outer(g, g)
    hook.remove()
    model.zero_grad()
    return A / len(X), G / (len(X) * positions)


@pytest.mark.parametrize("make", [dense, convolutional])
def test_factors_are_those_of_loops(make, monkeypatch):
    monkeypatch.setattr("manyseed.jobs.ensembling.laplace.ROWS_AT_ONCE", 7)
    model = make()
    X, y = data(*((3,) if make is dense else (2, 4, 5)))
    found = factors(model, X, y)
    assert [*found] == weighted(model)
    for module in model.modules():  # in loops, tensors must outlive what follows them
        if isinstance(module, nn.ReLU):
            module.inplace = False
    for layer, own in found.items():
        A, G = by_loops(model, X, y, layer)
        np.testing.assert_allclose(own.inputs / own.rows, A, atol=1e-12)
        np.testing.assert_allclose(own.outputs / (own.rows * own.positions), G, atol=1e-12)
    assert all(value.grad is None for value in model.parameters())


def covariance(posterior, scale=1.0):
    """Return the covariance of (output, input) weights, flat, by feeding unit vectors for noise."""
    out, given = posterior.sd.shape
    columns = []
    for unit in torch.eye(out * given, dtype=torch.float64):
        before = [posterior.layer.weight.detach().clone()]
        if posterior.layer.bias is not None:
            before.append(posterior.layer.bias.detach().clone()[:, None])
        with pytest.MonkeyPatch.context() as patch, torch.no_grad():
            patch.setattr(torch, "randn", lambda *_, u=unit, **__: u.reshape(out, given))
            posterior.draw(generator(), scale)
            after = [posterior.layer.weight]
            if posterior.layer.bias is not None:
                after.append(posterior.layer.bias[:, None])
            moved = torch.cat(
                [
                    a.reshape(out, -1) - b.reshape(out, -1)
                    for a, b in zip(after, before, strict=True)
                ],
                1,
            )
            columns.append(moved.ravel().numpy())
            for a, b in zip(after, before, strict=True):
                a.copy_(b)
    columns = np.array(columns)
    return columns.T @ columns


@pytest.mark.parametrize("make", [dense, convolutional])
def test_draws_have_the_covariance_of_the_dense_matrix(make):
    model = make()
    X, y = data(*((3,) if make is dense else (2, 4, 5)))
    for layer, own in factors(model, X, y).items():
        A, G = (own.inputs / ROWS).numpy(), (own.outputs / (ROWS * own.positions)).numpy()
        precision = ROWS * np.kron(G, A) + ROWS * DECAY * np.eye(A.shape[0] * G.shape[0])
        found = covariance(Posterior.of(layer, own, DECAY), 0.5)
        np.testing.assert_allclose(found, 0.25 * np.linalg.inv(precision), atol=1e-9)


def test_of_one_row_the_factors_are_the_whole_fisher_matrix():
    model = nn.Sequential(layers.Linear(3, 4)).double()
    layers.initialise(model, np.random.default_rng(1))
    X, y = data(3, n_classes=4, rows=1)
    (own,) = factors(model, X, y).values()
    cross_entropy(model(X), y).backward()
    gradient = torch.cat([model[0].weight.grad, model[0].bias.grad[:, None]], dim=1).ravel()
    fisher = torch.outer(gradient, gradient)
    np.testing.assert_allclose(torch.kron(own.outputs, own.inputs), fisher, atol=1e-14)


def test_a_softmax_of_biases_alone_has_its_true_covariance():
    """With inputs of 0 the Fisher matrix of the biases is exact: draws are from its inverse."""
    model = nn.Sequential(layers.Linear(1, 3)).double()
    layers.initialise(model, np.random.default_rng(1))
    X, y = torch.zeros(ROWS, 1, dtype=torch.float64), torch.arange(ROWS) % 3
    p = model(X).softmax(dim=1).detach() - torch.eye(3, dtype=torch.float64)[y]
    G = (p.T @ p / ROWS).numpy()
    (layer,) = weighted(model)
    (own,) = factors(model, X, y).values()
    found = covariance(Posterior.of(layer, own, DECAY)).reshape(3, 2, 3, 2)
    wanted = np.linalg.inv(ROWS * G + ROWS * DECAY * np.eye(3))
    np.testing.assert_allclose(found[:, 1, :, 1], wanted, atol=1e-12)
    np.testing.assert_allclose(found[:, 0, :, 0], np.eye(3) / (ROWS * DECAY), atol=1e-12)  # prior
    posteriors, biases = Posteriors(model, X, y, DECAY), []
    noise = generator(3)
    for _ in range(20_000):
        with posteriors.drawn(noise, 1.0):
            biases.append(layer.bias.numpy().copy())
    np.testing.assert_allclose(np.cov(np.array(biases).T), wanted, rtol=0.1, atol=0.05)


def test_the_published_curvature_is_that_of_too_many_rows():
    """PIT's code multiplies the factors' sums: N times the curvature, so its scales differ."""
    model = dense()
    X, y = data(3)
    layer, own = next(iter(factors(model, X, y).items()))
    published = np.kron(own.outputs.numpy(), own.inputs.numpy())
    right = ROWS * np.kron(own.outputs.numpy() / ROWS, own.inputs.numpy() / ROWS)
    np.testing.assert_allclose(published, ROWS * right)
    damping = ROWS * DECAY * np.eye(len(right))
    found = covariance(Posterior.of(layer, own, DECAY))
    np.testing.assert_allclose(found, np.linalg.inv(right + damping), atol=1e-9)
    assert np.trace(np.linalg.inv(published + damping)) < 0.9 * np.trace(found)


def test_damping_in_the_eigenbasis_is_exact_where_divided_damping_is_not():
    model = dense()
    X, y = data(3)
    layer, own = next(iter(factors(model, X, y).items()))
    A, G = (own.inputs / ROWS).numpy(), (own.outputs / ROWS).numpy()
    exact = np.linalg.inv(ROWS * np.kron(G, A) + ROWS * DECAY * np.eye(len(A) * len(G)))
    pi = np.sqrt((np.trace(A) / len(A)) / (np.trace(G) / len(G)))
    root = np.sqrt(DECAY)
    divided = np.linalg.inv(
        ROWS * np.kron(G + root / pi * np.eye(len(G)), A + root * pi * np.eye(len(A)))
    )
    found = covariance(Posterior.of(layer, own, DECAY))
    np.testing.assert_allclose(found, exact, atol=1e-9)
    assert np.abs(divided - found).max() > 0.05 * np.abs(found).max()


def test_members_of_no_scale_are_equal_and_the_weights_come_back():
    model = convolutional()
    X, y = data(2, 4, 5)
    posteriors = Posteriors(model, X, y, DECAY)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        plain = model(X)
        with posteriors.drawn(generator(), 0.0):
            assert torch.equal(model(X), plain)
        with posteriors.drawn(generator(), 1.0):
            assert (model(X) != plain).any()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_layers_that_have_no_such_factors_are_refused():
    model = nn.Sequential(nn.Conv2d(2, 2, 2, groups=2), nn.Flatten()).double()
    with pytest.raises(ValueError, match="plain convolutions"):
        factors(model, *data(2, 2, 2, n_classes=2))
    assert not model[0]._forward_hooks
    assert Factors(layers.Linear(2, 3)).inputs.shape == (3, 3)
