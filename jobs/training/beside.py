"""What a checkpoint holds of members that are kept one by one: beside it, where they are large.

A checkpoint is written anew each time, and with it all members so far, of which there may be
hundreds of megabytes. So those that fill `LEAST` bytes go to a file of their own, once. Such a file
appears whole, before the checkpoint that counts on it, and is never changed: its name is taken from
its content. So a process that is killed in between leaves an earlier checkpoint with all its files,
and two that train the same run, of which a cluster may hold one for dead, never harm each other.
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
"""Bytes of members from which on they are written to a file of their own."""

SUFFIX = ".members"


class MembersFile(TypedDict):
    """A file as the checkpoint names it: of float32 members, shape (member, sample, class)."""

    name: str
    sha256: str
    shape: list[int]


@dataclass(slots=True)
class Beside:
    """The files beside the checkpoint of one training.

    Attributes
    ----------
    files : list of MembersFile
        In the order of members.
    """

    files: list[MembersFile] = field(default_factory=list)

    def put(self, checkpoint: Path, members: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Write what is large enough to a file; return the members that are in none.

        Parameters
        ----------
        checkpoint : Path
            The checkpoint that will be written next.
        members : sequence of float32 tensors (sample, class)
            All so far, on the CPU.
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
        """Return all members again; None where a file is missing or damaged.

        Parameters
        ----------
        checkpoint : Path
        files : sequence of MembersFile
            As the checkpoint holds them.
        rest : sequence of tensors
            What `put` returned.
        """
        import torch

        members: list[torch.Tensor] = []
        for file in files:
            try:
                held = np.fromfile(checkpoint.with_name(file["name"]), dtype=np.uint8)
            except FileNotFoundError:
                return None
            if hashlib.sha256(held.data).hexdigest() != file["sha256"]:
                return None
            members.extend(torch.from_numpy(held.view(np.float32).reshape(file["shape"])))
        self.files = [*files]
        return [*members, *rest]


def remove_beside(checkpoint: Path) -> None:
    """Remove all files beside a checkpoint."""
    for file in checkpoint.parent.glob(f"{checkpoint.name}.*{SUFFIX}"):
        remove(file)
