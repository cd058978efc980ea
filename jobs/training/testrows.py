"""The test set as presented to each member of a run: unchanged, or transformed at random."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from manyseed.jobs.training.handling import PREDICTED_AT_ONCE

if TYPE_CHECKING:
    from manyseed.jobs.images.augment import Augmented


class TestRows:
    """Rows that models predict.

    Parameters
    ----------
    X : float32 tensor (row, ...)
        Encoded rows.
    augmented : Augmented, optional
        Transforms the same rows at random, anew for each member; a single network is member 0.
        Member j uses the random words after those of the first j members, so what it sees depends
        neither on earlier predictions nor on interruptions.
    """

    __test__ = False  # keeps pytest from collecting it

    def __init__(self, X: Tensor, augmented: Augmented | None = None) -> None:
        self._X, self._augmented = X, augmented

    def parts(self, member: int = 0) -> Iterator[Tensor]:
        """Yield the rows that a member sees, in order, `PREDICTED_AT_ONCE` at a time."""
        if self._augmented is None:
            yield from self._X.split(PREDICTED_AT_ONCE)
            return
        n = len(self._X)
        self._augmented.skip_to(member * n)
        for index in torch.arange(n, device=self._X.device).split(PREDICTED_AT_ONCE):
            yield self._augmented(index)

    @torch.no_grad()
    def logits(self, model: nn.Module, member: int = 0) -> Tensor:
        """Return the logits (row, class) of a model in its current mode."""
        logits = [model(part) for part in self.parts(member)]
        return logits[0] if len(logits) == 1 else torch.cat(logits)
