"""The GPUs that this process may use; asks the driver, and imports no library that trains."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache

_QUERY = ("nvidia-smi", "-L")
_GPU = re.compile(r"GPU (\d+): (.+) \(UUID: (GPU-\S+)\)")
_PART = re.compile(r"\s+(MIG \S+)\s+Device\s+\d+: \(UUID: (MIG-\S+)\)")
_VARIABLE = "CUDA_VISIBLE_DEVICES"


@cache
def _listed() -> tuple[tuple[str, str, str], ...]:
    """Return index, UUID and model of each GPU of the machine.

    A GPU that is cut into parts (MIG) is used by parts alone: its parts, their UUID for the index.
    """
    try:
        answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    found: dict[str, list[tuple[str, str, str]]] = {}
    for line in answer.stdout.splitlines():
        if gpu := _GPU.match(line):
            index, model, uuid = gpu.groups()
            found[index] = [(index, uuid, model)]
        elif found and (part := _PART.match(line)):
            kind, uuid = part.groups()
            parts = [known for known in found[index] if known[1].startswith("MIG")]
            found[index] = [*parts, (uuid, uuid, f"{model} {kind}")]
    return tuple(gpu for gpus in found.values() for gpu in gpus)


def gpus() -> dict[str, str]:
    """Return the model of each GPU, by the name that CUDA_VISIBLE_DEVICES has for it, in order."""
    found = _listed()
    if _VARIABLE not in os.environ:
        return {index: model for index, _, model in found}
    visible = {}
    for name in os.environ[_VARIABLE].split(","):
        named = [m for i, uuid, m in found if name and (name == i or uuid.startswith(name))]
        if not named:  # as CUDA does, which sees none of what follows
            break
        visible[name] = named[0]
    return visible


def assigned(process: int) -> dict[str, str]:
    """Return the variable that gives a training process its GPU: processes take turns.

    Parameters
    ----------
    process : int
        The process's number within its task.
    """
    given = os.environ.get(_VARIABLE)
    names = list(gpus()) if given is None else [name for name in given.split(",") if name]
    return {_VARIABLE: names[process % len(names)]} if len(names) > 1 else {}
