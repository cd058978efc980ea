"""The command that installs packages which are missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires

_TOGETHER = {"torch": ("torch", "torchvision"), "xgboost": ("xgboost-cpu",)}


def install(packages: Iterable[str]) -> str:
    """Return the command that installs packages, in the versions that manyseed's extras ask for.

    It names the packages themselves: no index need have manyseed, which may be installed from a
    checkout or a file.

    Parameters
    ----------
    packages : iterable of str
        As they are imported; ``xgboost`` has two builds, of which one is named first.
    """
    packages = list(packages)
    names = dict.fromkeys(one for each in packages for one in _TOGETHER.get(each, (each,)))
    try:
        asked = [re.split(r"\s*;", one)[0] for one in requires("manyseed") or []]
    except PackageNotFoundError:  # used from its source
        asked = []
    known = {re.split(r"[^\w.-]", one)[0]: one for one in asked}
    command = f"pip install {shlex.join(known.get(name, name) for name in names)}"
    if "xgboost-cpu" in names:
        return f"{command}; on a machine with GPUs, xgboost instead of xgboost-cpu"
    return command
