"""Store large ensemble members in files beside a checkpoint.

Every checkpoint is written anew, with all members taken so far, which may be hundreds of megabytes.
Once they reach `LEAST` bytes, members therefore go to a separate file, which is written once. It
appears whole before the checkpoint that refers to it, and never changes, as its name derives from
its content. A process killed in between leaves an earlier checkpoint with all its files, and two
processes that train the same run, one of which a cluster believes dead, never harm each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from manyseed.jobs.whole import place, remove

if TYPE_CHECKING:
    import torch

LEAST = 64_000_000
"""Bytes from which on members are written to a separate file."""

SUFFIX = ".members"


class MembersFile(TypedDict):
    """A file of float32 members (member, sample, class), as recorded in the checkpoint."""

    name: str
    sha256: str
    shape: list[int]


@dataclass(slots=True)
class Beside:
    """The files beside the checkpoint of one training.

    Attributes
    ----------
    files : list of MembersFile
        Files in the order of their members.
    """

    files: list[MembersFile] = field(default_factory=list)

    def put(self, checkpoint: Path, members: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Write new members to a file if they are large enough; return those not in any file.

        Parameters
        ----------
        checkpoint : Path
            The checkpoint that will be written next.
        members : sequence of float32 tensors (sample, class)
            All members so far, on the CPU.
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

        Parameters
        ----------
        checkpoint : Path
        files : sequence of MembersFile
            The files recorded in the checkpoint.
        rest : sequence of tensors
            What `put` returned.
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
