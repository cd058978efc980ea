"""A backbone small enough for tests, in place of one that takes a tenth of a second an image."""

from __future__ import annotations

import torch
from torch import nn

from manyseed.jobs.classifiers.features import Backbone


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, stride=4)
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).flatten(1))


tiny = Backbone(Tiny, "head", 16, "bicubic", width=8 * 16)


def write_weights(path, seed=0):
    """Write a state dict, its last layer included."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        state = Tiny().state_dict()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return state
