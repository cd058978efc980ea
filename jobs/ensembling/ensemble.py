"""An ensemble takes members during a network's training or draws them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from manyseed.jobs.ensembling.methods import Members

if TYPE_CHECKING:
    from manyseed.jobs.run import Generators
    from manyseed.jobs.training.schedules import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A network before its training, with all that an ensembling method needs.

    `model`: initialised, on its device. `optimizer`: updates the model's parameters. `X`, float32
    tensor (row, ...): encoded training rows. `y`, int64 tensor (row,): class indices. `epochs`,
    `batch_size` and `smallest_batch`: of the classifier's own training. `rate`: initial learning
    rate of the classifier's own training. `schedule`: ``schedule(rate, epochs)`` returns the
    classifier's own rates for so many epochs. `weight_decay`: λ. `generators`: the run's streams.
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
    """Takes members during a training, or draws them from the trained model.

    `epochs`: epochs of the whole training. `rate`: its learning rates. `members`: still empty.
    `generator`: the generator of the method's own draws, on the model's device.
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
        """Move the weights after a step.

        `parameters`: the network's parameters. `rate`: the step's learning rate. `epoch`: counted
        from 0. `steps`: steps per epoch.
        """

    def after_epoch(self, epochs: int) -> None:
        """Use the model as it is after so many epochs."""

    def takes(self, epochs: int) -> bool:
        """Return whether the model after so many epochs is a member."""
        del epochs
        return False

    def take(self, logits: NDArray[Any]) -> None:
        """Take a member, given its scores (sample, class) of the test set."""
        self.members.add(logits)

    @property
    def taken(self) -> int:
        """How many members have been taken."""
        return self.members.taken

    @property
    def is_complete(self) -> bool:
        """Whether all members have been taken."""
        return self.members.taken == self.members.count

    def drawn(self) -> AbstractContextManager[None]:
        """Let the trained model, in evaluation mode, be the next member within the block."""
        raise ValueError(f"{self.members.taken} of {self.members.count} members have been taken")

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return what is kept besides the whole ensemble."""
        return self.members.arrays()

    def scores(self) -> NDArray[np.float64]:
        """Return ln p̄ of all members, (1, sample, class)."""
        return self.members.logs()[None]

    def state(self) -> dict[str, object]:
        """Return the state for `restore`, without model and optimizer, as numbers and tensors.

        Single members are in the list ``members``, which only grows.
        """
        members = {name: _tensors(value) for name, value in self.members.state().items()}
        noise = None if self._generator is None else self._generator.get_state()
        return {**members, "noise": noise, "own": self._own_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.members.restore({name: _arrays(value) for name, value in state.items()})
        if self._generator is not None:
            self._generator.set_state(state["noise"])
        self._restore_own(state.get("own"))

    def _own_state(self) -> Any:
        return None

    def _restore_own(self, state: Any) -> None:
        del state


class Unchanged(Ensembling):
    """All members are the trained network; only the test images that they see differ."""

    def drawn(self) -> AbstractContextManager[None]:
        """Leave the model unchanged within the block."""
        return nullcontext()


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """Restore a model's weights and statistics after the block."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        yield
    finally:
        model.load_state_dict(state)


def _tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [_tensors(each) for each in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _arrays(value: Any) -> Any:
    if isinstance(value, list):
        return [_arrays(each) for each in value]
    return value.numpy() if isinstance(value, torch.Tensor) else value


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
