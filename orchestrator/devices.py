"""The GPUs that this process may use: asks the driver, imports no library that trains."""

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

    A GPU that is partitioned (MIG) is replaced by its parts, with their UUID as the index.
    """
    try:
        answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    by_index: dict[str, list[tuple[str, str, str]]] = {}
    for line in answer.stdout.splitlines():
        if gpu := _GPU.match(line):
            index, model, uuid = gpu.groups()
            by_index[index] = [(index, uuid, model)]
        elif by_index and (part := _PART.match(line)):
            kind, uuid = part.groups()
            parts = [known for known in by_index[index] if known[1].startswith("MIG")]
            by_index[index] = [*parts, (uuid, uuid, f"{model} {kind}")]
    return tuple(gpu for gpus in by_index.values() for gpu in gpus)


def gpus() -> dict[str, str]:
    """Return the model of each usable GPU, in order, by its name in CUDA_VISIBLE_DEVICES."""
    listed = _listed()
    if _VARIABLE not in os.environ:
        return {index: model for index, _, model in listed}
    visible = {}
    for name in os.environ[_VARIABLE].split(","):
        named = [m for i, uuid, m in listed if name and (name == i or uuid.startswith(name))]
        if not named:  # like CUDA, which ignores this name and all that follow
            break
        visible[name] = named[0]
    return visible


def assigned(process: int) -> dict[str, str]:
    """Return the variable that gives a training process its GPU: processes take turns.

    `process`: the process's number within its task.
    """
    given = os.environ.get(_VARIABLE)
    names = list(gpus()) if given is None else [name for name in given.split(",") if name]
    return {_VARIABLE: names[process % len(names)]} if len(names) > 1 else {}
