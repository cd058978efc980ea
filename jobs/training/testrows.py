"""The test set as each member of a run sees it: as it is, or transformed at random."""

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
        Encoded.
    augmented : Augmented, optional
        The same rows at random, anew for each member of an ensemble; a single network is the first.
        Member j takes the words that follow those of the first j: what it sees does not depend on
        what was predicted before, nor on interruptions.
    """

    __test__ = False  # pytest takes it for a test otherwise

    def __init__(self, X: Tensor, augmented: Augmented | None = None) -> None:
        self._X, self._augmented = X, augmented

    def parts(self, member: int = 0) -> Iterator[Tensor]:
        """Yield the rows that a member sees, in order, some at once."""
        if self._augmented is None:
            yield from self._X.split(PREDICTED_AT_ONCE)
            return
        n = len(self._X)
        self._augmented.skip_to(member * n)
        for index in torch.arange(n, device=self._X.device).split(PREDICTED_AT_ONCE):
            yield self._augmented(index)

    @torch.no_grad()
    def logits(self, model: nn.Module, member: int = 0) -> Tensor:
        """Return what a model in its present mode predicts of them, (row, class)."""
        found = [model(part) for part in self.parts(member)]
        return found[0] if len(found) == 1 else torch.cat(found)
