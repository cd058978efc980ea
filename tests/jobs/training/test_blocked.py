"""Which networks are evaluated in blocks of channels, and that the numbers stay theirs."""

import pytest
import torch
from torch import nn

from manyseed.jobs.training.layers import evaluation


def network(width=16, side=8):
    torch.manual_seed(3)
    layers = [
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(width * (-(-side // 2)) ** 2, 4),
    ]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        model[1].running_mean.uniform_(-1, 1)
        model[1].running_var.uniform_(0.5, 2)
    return model.eval()


@pytest.fixture
def blocked(monkeypatch):
    """Return what was laid out in blocks."""
    shapes, whole = [], torch.Tensor.to_mkldnn

    def watched(tensor):
        shapes.append(tuple(tensor.shape))
        return whole(tensor)

    monkeypatch.setattr(torch.Tensor, "to_mkldnn", watched)
    return shapes


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@torch.no_grad()
def test_small_images_are_laid_out_in_blocks_and_large_ones_are_not(blocked):
    for width, side, rows, is_small in (
        (5, 8, 128, True), (16, 7, 128, True), (16, 8, 257, False), (64, 8, 128, False),
        (16, 28, 16, True), (16, 28, 128, False),
    ):  # fmt: skip
        model = network(width, side)
        for format_ in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(rows, 1, side, side).to(memory_format=format_)
            blocked.clear()
            found = evaluation(model)(x)
            assert blocked == ([tuple(x.shape)] if is_small else [])
            torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)
            assert torch.equal(evaluation(model)(x), found)


@torch.no_grad()
def test_what_has_no_convolutions_or_is_no_sequence_is_computed_as_it_is(blocked):
    dense = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert evaluation(dense) is dense
    module = nn.Conv2d(1, 2, 3)
    assert evaluation(module) is module
    model = network()
    doubles = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    assert torch.equal(evaluation(model.double())(doubles), model(doubles))
    assert not blocked
