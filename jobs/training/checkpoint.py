"""Checkpoints of long fits: a network that is interrupted goes on from its last saved epoch.

Everything that decides how the training continues is saved after a whole epoch: parameters and
buffers (batch norm's running statistics), the optimizer, the generators of batch order, dropout and
augmentation, what was predicted and measured so far, members of an ensemble. The learning rate
follows from the epoch, or its schedule is saved, too. So a continued training ends with the bits of
one that was never interrupted. Many large members lie `beside` it.
"""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.training.beside import Beside, remove_beside
from manyseed.jobs.whole import place, remove

if TYPE_CHECKING:  # whoever only names a checkpoint need not wait for torch
    import torch

    from manyseed.jobs.training.plateau import Plateau

_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where and how often a fit saves itself.

    Attributes
    ----------
    path : Path
        The file; no other run uses it.
    key : str
        Names the run and its recipe; a file that was saved under another one is not continued.
    every : float
        Seconds between saves, at least.
    """

    path: Path
    key: str
    every: float = 60.0

    def remove(self) -> None:
        """Remove it, or a training function's folder, once the prediction is safe."""
        if self.path.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            remove(self.path)
            remove_beside(self.path)


class Course(Protocol):
    """What takes members of an ensemble on the way of a training or after it."""

    @property
    def taken(self) -> int:
        """How many members were taken."""

    @property
    def is_complete(self) -> bool:
        """Whether all members were taken."""

    def before_epoch(self, epoch: int) -> None:
        """Prepare an epoch, counted from 0."""

    def after_step(
        self, parameters: Sequence[torch.Tensor], rate: float, epoch: int, steps: int
    ) -> None:
        """Move the weights after a step.

        Parameters
        ----------
        parameters : sequence of tensors
            The network's.
        rate : float
            The step's learning rate.
        epoch : int
            From 0.
        steps : int
            Of an epoch.
        """

    def after_epoch(self, epochs: int) -> None:
        """Look at the model after so many epochs."""

    def takes(self, epochs: int) -> bool:
        """Whether the model after so many epochs is a member."""

    def drawn(self) -> AbstractContextManager[None]:
        """Let the trained model be the next member within the block."""

    def take(self, logits: NDArray[Any]) -> None:
        """Take a member by its scores of the test set, (sample, class)."""

    def scores(self) -> NDArray[np.float64]:
        """Return those of all members together, (1, sample, class)."""

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return what is kept of them besides."""

    def state(self) -> dict[str, object]:
        """Return all that goes on from here, as numbers and tensors.

        What is kept of single members is the list ``members``, which only grows.
        """

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""


@dataclass(slots=True)
class TrainingState:
    """How far a training has come.

    Attributes
    ----------
    epoch : int
        Epochs that are done.
    seconds : float
        Time spent on them, in all attempts.
    logits : list of float32 arrays (sample, class)
        Predictions of the test set at the kept epochs so far.
    curves : dict of str to list of float
        Loss and accuracy of the epochs so far.
    """

    epoch: int = 0
    seconds: float = 0.0
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    curves: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """What changes while a network is trained, and what identifies a training.

    Attributes
    ----------
    terms : list
        What a saved training must have in common with this one, besides the checkpoint's key.
    trajectory : Course, optional
        Members taken so far, and the generator of noise.
    plateau : Plateau, optional
        The learning rate, where it follows from the training loss.
    beside : Beside
        Members that are in no checkpoint any more.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    order: np.random.Generator
    masks: torch.Generator | None = None
    terms: list[str | int | bool] = field(default_factory=list)
    augment: np.random.Generator | None = None
    trajectory: Course | None = None
    plateau: Plateau | None = None
    beside: Beside = field(default_factory=Beside)


def save(checkpoint: Checkpoint, parts: TrainingParts, progress: TrainingState) -> None:
    """Save a training between two epochs, whole or not at all."""
    import torch

    trajectory = None if parts.trajectory is None else parts.trajectory.state()
    if trajectory is not None:
        trajectory["members"] = parts.beside.put(
            checkpoint.path, cast("list[torch.Tensor]", trajectory["members"])
        )
    content = {
        "made": [checkpoint.key, *parts.terms],
        "model": parts.model.state_dict(),
        "optimizer": parts.optimizer.state_dict(),
        "order": parts.order.bit_generator.state,
        "masks": None if parts.masks is None else parts.masks.get_state(),
        "augment": None if parts.augment is None else parts.augment.bit_generator.state,
        "trajectory": trajectory,
        "beside": parts.beside.files,
        "plateau": None if parts.plateau is None else parts.plateau.state(),
        "progress": {
            **asdict(progress),
            "logits": [torch.from_numpy(logits) for logits in progress.logits],
        },
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    data = buffer.getvalue()
    place(checkpoint.path, lambda file: file.write(hashlib.sha256(data).digest() + data))


def restore(checkpoint: Checkpoint, parts: TrainingParts) -> TrainingState:
    """Put a training where it was saved.

    Without a file, or with one that is damaged, lacks one beside or was saved under another key,
    the training stays at its start: it will end the same, only later.
    """
    content = _read(checkpoint)
    if content is None or content["made"] != [checkpoint.key, *parts.terms]:
        return TrainingState()
    trajectory = content["trajectory"]
    if (trajectory is None) != (parts.trajectory is None):
        return TrainingState()
    if trajectory is not None:
        beside = content.get("beside", [])  # an earlier version has none
        members = parts.beside.get(checkpoint.path, beside, trajectory["members"])
        if members is None:
            return TrainingState()
        trajectory = {**trajectory, "members": members}
    parts.model.load_state_dict(content["model"])
    parts.optimizer.load_state_dict(content["optimizer"])
    parts.order.bit_generator.state = content["order"]
    if parts.masks is not None and content["masks"] is not None:
        parts.masks.set_state(content["masks"])
    if parts.augment is not None:
        parts.augment.bit_generator.state = content["augment"]
    if parts.trajectory is not None:
        parts.trajectory.restore(trajectory)
    if parts.plateau is not None:
        parts.plateau.restore(content["plateau"])
    progress = content["progress"]
    return TrainingState(
        **{**progress, "logits": [logits.numpy() for logits in progress["logits"]]}
    )


def _read(checkpoint: Checkpoint) -> Any:
    import torch

    try:
        data = checkpoint.path.read_bytes()
    except FileNotFoundError:
        return None
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None
    # weights_only: numbers, texts and tensors, nothing that runs when it is read.
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
