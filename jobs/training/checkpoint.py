"""Checkpoints of long fits: an interrupted network resumes from its last saved epoch.

A checkpoint holds everything that determines how training continues after a whole epoch: parameters
and buffers (batch norm's running statistics), the optimizer, the generators of batch order, dropout
and augmentation, predictions and curves so far, members of an ensemble. The learning rate follows
from the epoch, or its schedule is saved too. A resumed training therefore ends with the same bits
as an uninterrupted one.

Every checkpoint is written anew, with all members taken so far, which may be hundreds of megabytes.
Once they reach `LEAST` bytes, members therefore go to a separate file, which is written once. It
appears whole before the checkpoint that refers to it, and never changes, as its name derives from
its content. A process killed in between leaves an earlier checkpoint with all its files, and two
processes that train the same run, one of which a cluster believes dead, never harm each other.
"""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.whole import place, remove

if TYPE_CHECKING:  # naming a checkpoint should not import torch
    import torch

    from manyseed.jobs.ensembling.ensemble import Ensembling
    from manyseed.jobs.training.schedules import Plateau


LEAST = 64_000_000  # bytes from which on members are written to a separate file

SUFFIX = ".members"


class MembersFile(TypedDict):
    """A file of float32 members (member, sample, class), as recorded in the checkpoint."""

    name: str
    sha256: str
    shape: list[int]


@dataclass(slots=True)
class SideFiles:
    """The files beside the checkpoint of one training."""

    files: list[MembersFile] = field(default_factory=list)  # files in the order of their members

    def put(self, checkpoint: Path, members: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Write new members to a file if they are large enough; return those not in any file.

        `checkpoint`: the checkpoint that will be written next. `members`, sequence of float32
        tensors (sample, class): all members so far, on the CPU.
        """
        rest = [*members[sum(file["shape"][0] for file in self.files) :]]
        if not rest or sum(each.nbytes for each in rest) < LEAST:
            return rest
        arrays = [np.ascontiguousarray(each.numpy(), dtype=np.float32) for each in rest]
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(array.data)
        name = f"{checkpoint.name}.{digest.hexdigest()[:32]}{SUFFIX}"
        path = checkpoint.with_name(name)
        place(path, lambda file: [file.write(array.data) for array in arrays])
        shape = [len(arrays), *arrays[0].shape]
        self.files.append({"name": name, "sha256": digest.hexdigest(), "shape": shape})
        return []

    def get(
        self, checkpoint: Path, files: Sequence[MembersFile], rest: Sequence[torch.Tensor]
    ) -> list[torch.Tensor] | None:
        """Return all members, or None if a file is missing or damaged.

        `files`: the files recorded in the checkpoint. `rest`: what `put` returned.
        """
        import torch

        members: list[torch.Tensor] = []
        for file in files:
            try:
                content = np.fromfile(checkpoint.with_name(file["name"]), dtype=np.uint8)
            except FileNotFoundError:
                return None
            if hashlib.sha256(content.data).hexdigest() != file["sha256"]:
                return None
            members.extend(torch.from_numpy(content.view(np.float32).reshape(file["shape"])))
        self.files = [*files]
        return [*members, *rest]


def remove_beside(checkpoint: Path) -> None:
    """Remove all files beside a checkpoint."""
    for file in checkpoint.parent.glob(f"{checkpoint.name}.*{SUFFIX}"):
        remove(file)


_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where and how often a fit saves itself."""

    path: Path  # the file; no other run uses it
    key: str  # identifies the run and its recipe; a file saved under another key is ignored
    every: float = 60.0  # least seconds between saves

    def remove(self) -> None:
        """Remove the file, or a training function's folder, once the prediction is safe."""
        if self.path.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            remove(self.path)
            remove_beside(self.path)


@dataclass(slots=True)
class TrainingState:
    """How far a training has come.

    `epoch`: completed epochs. `seconds`: time spent on them, over all attempts. `logits`, list of
    float32 arrays (sample, class): predictions of the test set at the kept epochs so far. `curves`:
    loss and accuracy of the epochs so far.
    """

    epoch: int = 0
    seconds: float = 0.0
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    curves: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """The changing state of a training, and what identifies the training.

    `terms`: what must match for a saved training to be resumed, besides the checkpoint's key.
    `trajectory`: members taken so far, and the generator of noise. `plateau`: the learning rate, if
    it follows from the training loss. `beside`: members that have moved out of the checkpoint.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    order: np.random.Generator
    masks: torch.Generator | None = None
    terms: list[str | int | bool] = field(default_factory=list)
    augment: np.random.Generator | None = None
    trajectory: Ensembling | None = None
    plateau: Plateau | None = None
    beside: SideFiles = field(default_factory=SideFiles)


def save(checkpoint: Checkpoint, parts: TrainingParts, progress: TrainingState) -> None:
    """Save a training between two epochs, atomically."""
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
    """Put a training into its saved state.

    If the file is missing, damaged, lacks a file beside it or was saved under another key, the
    training stays at its start: it ends the same, only later.
    """
    content = _read(checkpoint)
    if content is None or content["made"] != [checkpoint.key, *parts.terms]:
        return TrainingState()
    trajectory = content["trajectory"]
    if (trajectory is None) != (parts.trajectory is None):
        return TrainingState()
    if trajectory is not None:
        beside = content.get("beside", [])  # absent in files of earlier versions
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
    # weights_only: reads numbers, texts and tensors, and never executes code.
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
