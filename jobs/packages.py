"""Packages that may be missing: how to install them; torchvision beside a CPU's torch."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires
from types import ModuleType

_TOGETHER = {"torch": ("torch", "torchvision"), "xgboost": ("xgboost-cpu",)}


def install(packages: Iterable[str]) -> str:
    """Return the command that installs packages, in the versions that manyseed's extras ask for.

    It names the packages themselves: no index need have manyseed, which may be installed from a
    checkout or a file.

    `packages`: as they are imported; ``xgboost`` has two builds, of which one is named first.
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


_KEPT: list[object] = []


def torchvision(module: str = "torchvision") -> ModuleType:
    """Import torchvision or one of its modules, such as ``"torchvision.datasets"``.

    torchvision's wheels are linked to CUDA. Beside a CPU build of torch their compiled operators do
    not load, and the import fails because it registers details of operators that nobody declared.
    Declaring them without an implementation is enough: models and datasets use neither.
    """
    try:
        return importlib.import_module(module)
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    import torch

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)  # the declarations last only as long as this object
    return importlib.import_module(module)
