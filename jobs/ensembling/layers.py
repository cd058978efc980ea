"""The layers of a network whose weights get a posterior."""

from __future__ import annotations

from torch import nn

Weighted = nn.Linear | nn.Conv2d


def weighted(model: nn.Module) -> list[Weighted]:
    """Return the linear and convolutional layers of a model, in module order.

    Layers within attention are left out: attention is a single function that never calls them.
    """
    within = {
        id(layer)
        for attention in model.modules()
        if isinstance(attention, nn.MultiheadAttention)
        for layer in attention.modules()
    }
    return [
        layer
        for layer in model.modules()
        if isinstance(layer, nn.Linear | nn.Conv2d) and id(layer) not in within
    ]
