from __future__ import annotations

import torch
from scipy.stats import binomtest
from torch import nn

from manyseed.jobs.streams import raw, stream
from manyseed.jobs.training.layers import Conv2d, Dropout, Linear, initialise, torch_generator


def test_weights_start_as_torch_s_own_layers_do():
    ours = nn.Sequential(Conv2d(3, 8, 3), Linear(8, 5), nn.BatchNorm1d(5), Linear(5, 2, bias=False))
    initialise(ours, stream(1, "init"))
    with torch.random.fork_rng():
        torch.manual_seed(int(raw(stream(1, "init"), 1)[0]))
        plain = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.Linear(8, 5), nn.BatchNorm1d(5), nn.Linear(5, 2, bias=False)
        )
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)


def test_building_layers_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    initialise(nn.Sequential(Conv2d(1, 2, 3), Linear(2, 2)), stream(1, "init"))
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_zeroes_a_share_and_keeps_the_mean():
    layer = Dropout(0.3, torch_generator(stream(1, "dropout"), torch.device("cpu")))
    out = layer(torch.ones(200, 100))
    zeros = int((out == 0).sum())
    assert binomtest(zeros, out.numel(), 0.3).pvalue > 1e-3
    assert torch.allclose(out[out != 0], torch.tensor(1 / 0.7))
    assert not torch.equal(layer(torch.ones(200, 100)), out)


def test_dropout_does_nothing_in_eval_mode_or_without_a_share():
    generator = torch_generator(stream(1, "dropout"), torch.device("cpu"))
    before = generator.get_state()
    x = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(Dropout(0.5, generator).eval()(x), x)
    assert torch.equal(Dropout(0.0, generator)(x), x)
    assert torch.equal(generator.get_state(), before)
