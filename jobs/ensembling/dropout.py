"""MC dropout (Gal and Ghahramani 2016, arXiv 1506.02142): members of one trained network."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from manyseed.jobs.ensembling.members import Members
from manyseed.jobs.training.layers import Dropout
from manyseed.jobs.training.loop import PREDICTED_AT_ONCE


@torch.no_grad()
def sampled(
    model: nn.Module, X: Tensor, count: int, masks: torch.Generator, keep: Iterable[str] = ()
) -> Members:
    """Predict rows with dropout active, all else as in evaluation.

    Each point of each member has masks of its own, as in PIT's code; batch norm uses its running
    statistics.

    Parameters
    ----------
    model : torch.nn.Module
        Trained; its dropout layers draw from `masks` from now on.
    X : tensor (row, ...)
    count : int
        Members.
    masks : torch.Generator
        On the model's device.
    keep : iterable of str
        Of `jobs.ensembling.members.ARRAYS`; others are passed over.
    """
    members = Members(count, keep)
    model.eval()
    for layer in model.modules():
        if isinstance(layer, Dropout):
            layer.train()
            layer.generator = masks
    for _ in range(count):
        logits = torch.cat([model(part) for part in X.split(PREDICTED_AT_ONCE)])
        members.add(logits.cpu().numpy())
    model.eval()
    return members
