"""The layers of a network that posteriors are put on."""

from __future__ import annotations

from torch import nn

Weighted = nn.Linear | nn.Conv2d


def weighted(model: nn.Module) -> list[Weighted]:
    """Return the linear and convolution layers of a model, in the order of its modules.

    Those within attention are left out: they are one function there, which calls no layer.
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
