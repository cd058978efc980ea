"""MC dropout (Gal and Ghahramani 2016, arXiv 1506.02142): members of one trained network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from manyseed.jobs.ensembling.ensemble import Ensembling
from manyseed.jobs.ensembling.members import Members
from manyseed.jobs.training.layers import Dropout
from manyseed.jobs.training.schedules import Rate


class Masked(Ensembling):
    """Members are predictions of a trained network in evaluation mode but with active dropout.

    Each point has its own masks for each member, as in PIT's code; batch norm uses its running
    statistics.

    Parameters
    ----------
    epochs, rate, members
        As in `Ensembling`.
    model : torch.nn.Module
    masks : torch.Generator
        Draws the members' masks, on the model's device.
    """

    def __init__(
        self, epochs: int, rate: Rate, members: Members, model: nn.Module, masks: torch.Generator
    ) -> None:
        super().__init__(epochs, rate, members, masks)
        self._layers = [layer for layer in model.modules() if isinstance(layer, Dropout)]
        self._masks = masks

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Activate dropout within the block."""
        generators = [layer.generator for layer in self._layers]
        for layer in self._layers:
            layer.train()
            layer.generator = self._masks
        try:
            yield
        finally:
            for layer, generator in zip(self._layers, generators, strict=True):
                layer.eval()
                layer.generator = generator
