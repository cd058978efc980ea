"""An ensemble in the making: what a network's training, and what follows it, yields members of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from manyseed.jobs.ensembling.members import Members

if TYPE_CHECKING:
    from manyseed.jobs.run import Generators
    from manyseed.jobs.training.loop import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A network that is going to be trained, as an ensembling method finds it.

    Attributes
    ----------
    model : torch.nn.Module
        Initialised, on its device.
    optimizer : torch.optim.Optimizer
        Of its parameters.
    X : float32 tensor (row, ...)
        Encoded training rows.
    y : int64 tensor (row,)
    epochs, batch_size, smallest_batch : int
        Of its own training.
    rate : float
        Of its own training, the first.
    schedule : callable
        ``schedule(rate, epochs)``: the rates of its own training, were it of this length.
    weight_decay : float
        λ.
    generators : Generators
        Of the run.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    X: torch.Tensor
    y: torch.Tensor
    epochs: int
    batch_size: int
    smallest_batch: int
    rate: float
    schedule: Callable[[float, int], Rate]
    weight_decay: float
    generators: Generators


class Ensembling:
    """Takes members on the way of a training, or draws them from what it ended with.

    Parameters
    ----------
    epochs : int
        Of all of the training.
    rate : Rate
        Its learning rates.
    members : Members
        Empty.
    generator : torch.Generator, optional
        Of what the method draws, on the model's device.
    """

    def __init__(
        self, epochs: int, rate: Rate, members: Members, generator: torch.Generator | None = None
    ) -> None:
        self.epochs, self.rate, self.members = epochs, rate, members
        self._generator = generator

    def before_epoch(self, epoch: int) -> None:
        """Prepare an epoch, counted from 0."""

    def after_step(
        self, parameters: Sequence[torch.Tensor], rate: float, epoch: int, steps: int
    ) -> None:
        """Move the weights after a step, as `jobs.training.checkpoint.Course` says."""

    def after_epoch(self, epochs: int) -> None:
        """Look at the model after so many epochs."""

    def takes(self, epochs: int) -> bool:
        """Whether the model after so many epochs is a member."""
        del epochs
        return False

    def take(self, logits: NDArray[Any]) -> None:
        """Take a member by its scores of the test set, (sample, class)."""
        self.members.add(logits)

    @property
    def taken(self) -> int:
        """How many members were taken."""
        return self.members.taken

    @property
    def is_complete(self) -> bool:
        """Whether all members were taken."""
        return self.members.taken == self.members.count

    def drawn(self) -> AbstractContextManager[None]:
        """Let the trained model, in evaluation mode, be the next member within the block."""
        raise ValueError(f"{self.members.taken} members of {self.members.count} were taken")

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return what is kept of members besides the whole ensemble."""
        return self.members.arrays()

    def scores(self) -> NDArray[np.float64]:
        """Return ln p̄ of all members, (1, sample, class)."""
        return self.members.logs()[None]

    def state(self) -> dict[str, object]:
        """Return all that goes on from here besides model and optimizer, as a checkpoint takes it.

        Arrays are tensors.
        """
        found = {name: _tensors(value) for name, value in self.members.state().items()}
        noise = None if self._generator is None else self._generator.get_state()
        return {**found, "noise": noise, "own": self._own_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        others = ("noise", "own")
        self.members.restore(
            {name: _arrays(value) for name, value in state.items() if name not in others}
        )
        if self._generator is not None:
            self._generator.set_state(state["noise"])
        self._restore_own(state.get("own"))

    def _own_state(self) -> Any:
        return None

    def _restore_own(self, state: Any) -> None:
        del state


class Unchanged(Ensembling):
    """Members are one trained network: they differ by what they see of the test set alone."""

    def drawn(self) -> AbstractContextManager[None]:
        """Let the model be as it is within the block."""
        return nullcontext()


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """Give a model its weights and statistics back after the block."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        yield
    finally:
        model.load_state_dict(before)


def _tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [_tensors(each) for each in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _arrays(value: Any) -> Any:
    if isinstance(value, list):
        return [_arrays(each) for each in value]
    return value.numpy() if isinstance(value, torch.Tensor) else value
