from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from manyseed.jobs.run import stream
from manyseed.jobs.training.layers import Linear, initialise
from manyseed.jobs.training.loop import TestRows, TrainingPlan, batches, n_batches, owned, train
from manyseed.jobs.training.schedules import schedule

CPU = torch.device("cpu")


@settings(deadline=None, max_examples=50)
@given(n=st.integers(2, 200), size=st.integers(2, 70), smallest=st.sampled_from([1, 2]))
def test_every_row_is_in_one_batch(n, size, smallest):
    parts = list(batches(stream(1, "batch", n), n, size, smallest))
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert all(len(part) == size for part in parts[:-2])
    assert all(smallest <= len(part) <= size + smallest - 1 for part in parts)
    assert len(parts) == n_batches(n, size, smallest)


def test_images_are_predicted_in_small_parts_and_rows_of_a_table_in_large_ones():
    for shape, lengths in (((4, 4, 1), [128, 128, 44]), ((16,), [300])):
        X = torch.randn(300, *shape, generator=torch.Generator().manual_seed(1))
        parts = [*TestRows(X).parts()]
        assert [len(part) for part in parts] == lengths
        assert torch.equal(torch.cat(parts), X)
        assert parts[0].data_ptr() == X.data_ptr()  # not copied


def test_a_last_row_that_is_alone_joins_the_batch_before():
    assert [len(part) for part in batches(stream(1, "batch"), 9, 4, 2)] == [4, 5]
    assert [len(part) for part in batches(stream(1, "batch"), 9, 4, 1)] == [4, 4, 1]
    assert [len(part) for part in batches(stream(1, "batch"), 10, 4, 2)] == [4, 4, 2]
    assert [len(part) for part in batches(stream(1, "batch"), 1, 4, 2)] == [1]


def test_an_order_is_the_ranking_of_raw_words():
    words = stream(1, "batch").bit_generator.random_raw(20)
    shuffled = torch.cat(list(batches(stream(1, "batch"), 20, 6)))
    np.testing.assert_array_equal(shuffled, np.argsort(words, kind="stable"))


def test_training_is_plain_sgd_written_out():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10, 3)), rng.integers(0, 2, 10)
    model = Linear(3, 2).double()
    initialise(model, stream(1, "init"))
    W, b = model.weight.detach().numpy().copy(), model.bias.detach().numpy().copy()
    rates = [0.5, 0.25, 0.1]
    plan = TrainingPlan(epochs=3, batch_size=4, rate=lambda e, *_: rates[e], snapshots=(1,))
    tensors = owned(X, CPU, torch.float64), owned(y, CPU, torch.int64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    logits, seconds, curves, *_ = train(
        model, optimizer, *tensors, TestRows(tensors[0]), plan, stream(1, "batch")
    )

    order, kept = stream(1, "batch"), []
    for epoch, rate in enumerate(rates):
        for rows in batches(order, 10, 4):
            index = rows.numpy()
            scores = X[index] @ W.T + b
            shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            gradient = (shares - np.eye(2)[y[index]]) / len(index)
            W, b = W - rate * gradient.T @ X[index], b - rate * gradient.sum(axis=0)
        if epoch in (0, 2):
            kept.append(X @ W.T + b)
    np.testing.assert_allclose(logits, kept, rtol=1e-9)
    assert seconds >= 0
    assert curves is None


def test_each_step_has_its_rate_and_momentum_keeps_on_between_epochs():
    """A rate that differs from step to step; weight decay is a part of the gradient."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10, 3)), rng.integers(0, 2, 10)
    model = Linear(3, 2).double()
    initialise(model, stream(1, "init"))
    W, b = model.weight.detach().numpy().copy(), model.bias.detach().numpy().copy()
    seen = []

    def rate(epoch, step, steps):
        seen.append((epoch, step, steps))
        return 0.3 / (1 + epoch + step / steps)

    plan = TrainingPlan(epochs=4, batch_size=4, rate=rate)
    tensors = owned(X, CPU, torch.float64), owned(y, CPU, torch.int64)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=1.0, momentum=0.9, weight_decay=0.1, fused=True
    )
    logits, *_ = train(model, optimizer, *tensors, TestRows(tensors[0]), plan, stream(1, "batch"))
    assert seen == [(epoch, step, 3) for epoch in range(4) for step in range(3)]
    order, v, u = stream(1, "batch"), 0.0, 0.0
    for epoch in range(4):
        for step, rows in enumerate(batches(order, 10, 4)):
            index, now = rows.numpy(), 0.3 / (1 + epoch + step / 3)
            scores = X[index] @ W.T + b
            shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            gradient = (shares - np.eye(2)[y[index]]) / len(index)
            v = 0.9 * v + gradient.T @ X[index] + 0.1 * W
            u = 0.9 * u + gradient.sum(axis=0) + 0.1 * b
            W, b = W - now * v, b - now * u
    np.testing.assert_allclose(logits[0], X @ W.T + b, rtol=1e-9)


def test_schedules():
    def rates(name, epochs):
        rate = schedule(name, 0.2, epochs)
        each = [{rate(e, step, 7) for step in range(7)} for e in range(epochs)]
        assert all(len(of_epoch) == 1 for of_epoch in each)
        return [value for of_epoch in each for value in of_epoch]

    assert rates("constant", 3) == [0.2] * 3
    cosine = [0.2 * (1 + np.cos(np.pi * e / 5)) / 2 for e in range(5)]
    assert rates("cosine", 5) == pytest.approx(cosine)
    # PIT, eq. 10, written out for ten epochs: to .5, to .9, after
    published = [1, 1, 1, 1, 1, 1, 1 - 0.99 * 0.25, 1 - 0.99 * 0.5, 1 - 0.99 * 0.75, 0.01]
    assert rates("piecewise-linear", 10) == pytest.approx([0.2 * share for share in published])
    assert rates("piecewise-linear", 1) == [0.2]
    many = rates("piecewise-linear", 300)
    assert many[:151] == [0.2] * 151
    assert (np.diff(many[150:271]) < 0).all()
    assert many[270:] == pytest.approx([0.002] * 30)
    steps = [0.2] * 30 + [0.02] * 30 + [0.002] * 30 + [2e-4] * 2
    assert rates("step", 92) == pytest.approx(steps)


def test_all_test_rows_are_predicted_in_eval_mode():
    model = nn.Sequential(Linear(2, 4), nn.BatchNorm1d(4), Linear(4, 2))
    initialise(model, stream(1, "init"))
    X = torch.randn(2500, 2, generator=torch.Generator().manual_seed(1))
    plan = TrainingPlan(epochs=1, batch_size=8, rate=lambda *_: 0.1)
    optimizer = torch.optim.Adam(model.parameters())
    y = (X[:20, 0] > 0).long()
    logits, *_ = train(model, optimizer, X[:20], y, TestRows(X), plan, stream(1, "batch"))
    assert logits.shape == (1, 2500, 2)
    with torch.no_grad():
        np.testing.assert_allclose(logits[0], model.eval()(X).numpy(), rtol=1e-4, atol=1e-5)


def test_owned_copies():
    array = np.ones(3)
    tensor = owned(array, CPU, torch.float64)
    array[:] = 2
    assert tensor.tolist() == [1, 1, 1]
