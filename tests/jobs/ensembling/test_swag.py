"""SWAG: moments of the iterates, draws from them, and batch norm that goes with each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import parameters_to_vector

from manyseed.jobs.ensembling.algorithms import Moments, falling_to, renew_statistics
from tests.jobs.ensembling.test_trajectory import network, run_of, train


def moments(iterates, rank):
    found = Moments(rank)
    for vector in iterates:
        found.add(torch.as_tensor(vector))
    return found


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def explicit(iterates, rank):
    """Mean and covariance (weight, weight) of members, written out, in float64."""
    iterates = np.asarray(iterates, dtype=np.float64)
    deviations = np.array([w - iterates[: t + 1].mean(axis=0) for t, w in enumerate(iterates)])
    kept = deviations[-rank:]
    diagonal = np.diag(iterates.var(axis=0))
    return iterates.mean(axis=0), (diagonal + kept.T @ kept / (len(kept) - 1)) / 2


def test_alternating_weights_have_the_variance_that_is_planted():
    found = moments([[(-1.0) ** (t + 1)] for t in range(20)], 20)
    mean, covariance = explicit([[(-1.0) ** (t + 1)] for t in range(20)], 20)
    assert covariance[0, 0] == pytest.approx(0.9458, abs=5e-5)
    draws = torch.cat([found.draw(g) for g in [generator()] for _ in range(40_000)])
    assert draws.mean() == pytest.approx(float(mean[0]), abs=0.02)
    assert draws.var() == pytest.approx(0.9458, rel=0.03)
    # what deviations from the final mean would give lies beyond
    assert draws.var() < 0.97 * 1.0263


@settings(deadline=None, max_examples=20)
@given(st.integers(3, 12), st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_draws_are_a_linear_map_of_noise_with_the_explicit_covariance(epochs, rank, seed):
    """The map's matrix is found by feeding it unit vectors: no sampling error."""
    weights = np.random.default_rng(seed).standard_normal((epochs, 4))
    found = moments(weights, rank)
    kept = min(rank, epochs)
    assert len(found.deviations) == kept
    mean, covariance = explicit(weights, rank)
    columns = []
    for unit in torch.eye(4 + kept, dtype=torch.float64):
        noise = iter([unit[:4], unit[4:]])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "randn", lambda *_, noise=noise, **__: next(noise))
            columns.append(found.draw(generator()).numpy() - mean)
    columns = np.array(columns)
    np.testing.assert_allclose(columns.T @ columns, covariance, atol=1e-12)


def test_the_published_draws_have_less_variance_where_fewer_epochs_than_the_rank_were_averaged():
    """PIT's code divides by the rank that was asked for, not by the deviations that there are."""
    weights = np.random.default_rng(1).standard_normal((5, 3))
    own = moments(weights, 20)
    assert len(own.deviations) == 5
    _, right = explicit(weights, 20)
    kept = torch.stack(own.deviations).numpy()
    published = (np.diag(weights.var(axis=0)) + kept.T @ kept / 19) / 2
    draws = torch.stack([own.draw(g) for g in [generator()] for _ in range(20_000)]).numpy()
    measured = np.trace(np.cov(draws.T))
    assert measured == pytest.approx(np.trace(right), rel=0.05)
    assert np.trace(published) < 0.8 * measured


def test_equal_weights_make_equal_members():
    vector = torch.rand(6, generator=generator())
    found = moments([vector] * 7, 3)
    assert all(not deviation.any() for deviation in found.deviations)
    assert torch.equal(found.mean, vector.double())
    np.testing.assert_allclose(found.draw(generator()), vector, rtol=1e-6)
    found = train(run_of("swag", lr=1e-30)).measured["member_score"]
    np.testing.assert_allclose(found[1:], np.broadcast_to(found[0], found[1:].shape), atol=1e-4)


def test_the_rate_falls_to_that_of_the_average_not_to_a_hundredth():
    rate = falling_to(0.1, 0.02, 10)
    found = [rate(epoch, 0, 5) for epoch in range(13)]
    np.testing.assert_allclose(found[:6], 0.1)
    np.testing.assert_allclose(found[6:9], [0.08, 0.06, 0.04])
    np.testing.assert_allclose(found[9:], 0.02)


def test_statistics_are_those_of_one_pass_and_nothing_else_changes():
    model, rows = network(0.5), torch.randn(30, 4, generator=generator())
    before = parameters_to_vector(model.parameters()).clone()
    passes = [torch.arange(20), torch.arange(20, 30)]
    model.eval()
    renew_statistics(model, rows, passes)
    with torch.no_grad():
        hidden = model[0](rows).double().numpy()
    first, last = hidden[:20], hidden[20:]
    np.testing.assert_allclose(
        model[1].running_mean, (20 * first.mean(axis=0) + 10 * last.mean(axis=0)) / 30, atol=1e-6
    )
    variance = (20 * first.var(axis=0, ddof=1) + 10 * last.var(axis=0, ddof=1)) / 30
    np.testing.assert_allclose(model[1].running_var, variance, rtol=1e-5)
    assert model[1].momentum == 0.1
    assert not any(layer.training for layer in model.modules())
    assert torch.equal(parameters_to_vector(model.parameters()), before)


def test_members_are_not_the_last_weights_and_leave_them_alone():
    """What is measured of the trained model is of SGD's last weights, not of a member."""
    found = train(run_of("swag"))
    members = found.measured["member_score"]
    assert len(np.unique(members[:, 0], axis=0)) == len(members)
    one, other = (train(run_of("swag", members=count)).measured["member_score"] for count in (2, 3))
    np.testing.assert_array_equal(one, other[:2])  # drawn in order, from one stream
