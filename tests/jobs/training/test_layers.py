from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from manyseed.jobs.run import raw, stream
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


CASES = [(channels, threads) for channels in (1, 3, 7, 15) for threads in (1, 2)]
GRADIENTS = """
import os, signal
import torch
from manyseed.jobs.training.layers import Conv2d

def check(channels, threads):
    layer = Conv2d(channels, 8, 1, stride=2, bias=False)
    torch.set_num_threads(threads)
    drawn = torch.Generator().manual_seed(1)
    torch.nn.init.normal_(layer.weight, generator=drawn)
    layer = layer.to(memory_format=torch.channels_last)
    x = torch.randn(32, channels, 32, 32, generator=drawn).to(memory_format=torch.channels_last)
    x.requires_grad_(True)
    outputs = layer(x)
    gradient = torch.randn(outputs.shape, generator=drawn).to(memory_format=torch.channels_last)
    outputs.backward(gradient)
    pixels, weight = x.detach()[:, :, ::2, ::2].double(), layer.weight[:, :, 0, 0].double()
    whole = torch.zeros_like(x, dtype=torch.float64)
    whole[:, :, ::2, ::2] = torch.einsum("nohw,oc->nchw", gradient.double(), weight)
    for found, expected in (
        (outputs, torch.einsum("nchw,oc->nohw", pixels, weight)),
        (layer.weight.grad[:, :, 0, 0], torch.einsum("nchw,nohw->oc", pixels, gradient.double())),
        (x.grad, whole),
    ):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)

for case in {cases}:
    if os.fork() == 0:
        signal.alarm(60)
        check(*case)
        os._exit(0)
    print(os.wait()[1])
"""


@pytest.fixture(scope="module")
def endings():
    """How a process ended that took the gradients of a case, by case.

    Each has one of its own: where oneDNN is wrong here, it ends the process or never returns.
    """
    code = GRADIENTS.format(cases=CASES)
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    return dict(zip(CASES, map(int, done.stdout.split()), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_strided_1x1_convolutions_of_few_channels_are_right(case, endings):
    assert endings[case] == 0


def test_dropout_zeroes_a_share_and_keeps_the_mean():
    layer = Dropout(0.3, torch_generator(stream(1, "dropout"), torch.device("cpu")))
    out = layer(torch.ones(200, 100))
    zeros = int((out == 0).sum())
    assert binomtest(zeros, out.numel(), 0.3).pvalue > 1e-3
    assert torch.allclose(out[out != 0], torch.tensor(1 / 0.7))
    assert not torch.equal(layer(torch.ones(200, 100)), out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_has_the_bits_of_its_formula(dtype):
    """Values and gradients are x · mask / keep, in this order, also where training diverged."""
    generator = torch_generator(stream(1, "dropout"), torch.device("cpu"))
    again = torch.Generator()
    again.set_state(generator.get_state())
    x = torch.randn(40, 30, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[0, :5], x[1, :5] = torch.inf, torch.nan
    upstream = torch.randn(40, 30, generator=torch.Generator().manual_seed(2)).to(dtype)
    x.requires_grad_()
    out = Dropout(0.3, generator)(x)
    (gradient,) = torch.autograd.grad(out, x, upstream)
    mask = torch.rand(40, 30, generator=again) < 0.7
    torch.testing.assert_close(out, x * mask / 0.7, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(gradient, upstream / 0.7 * mask, rtol=0, atol=0)
    assert 0 < mask[0, :5].sum() < 5


def test_dropout_does_nothing_in_eval_mode_or_without_a_share():
    generator = torch_generator(stream(1, "dropout"), torch.device("cpu"))
    before = generator.get_state()
    x = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(Dropout(0.5, generator).eval()(x), x)
    assert torch.equal(Dropout(0.0, generator)(x), x)
    assert torch.equal(generator.get_state(), before)
