"""The GPUs that this process may use; asks the driver, and imports no library that trains."""

from __future__ import annotations

import os
import subprocess
from functools import cache

_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader")
_VARIABLE = "CUDA_VISIBLE_DEVICES"


@cache
def _told() -> tuple[tuple[str, str, str], ...]:
    """Return index, UUID and model of each GPU of the machine."""
    try:
        told = subprocess.run(_QUERY, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    lines = [line.split(", ", 2) for line in told.stdout.splitlines() if line.count(", ") >= 2]
    return tuple((index, uuid, model) for index, uuid, model in lines)


def gpus() -> dict[str, str]:
    """Return the model of each GPU, by the name that CUDA_VISIBLE_DEVICES has for it, in order."""
    found = _told()
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
