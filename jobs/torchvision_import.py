"""Importing torchvision beside a CPU build of torch."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_KEPT: list[object] = []


def torchvision(module: str = "torchvision") -> ModuleType:
    """Import torchvision or one of its modules, such as ``"torchvision.datasets"``.

    torchvision's wheels are linked to CUDA. Beside a CPU build of torch their compiled operators
    stay away, and the import ends because operators are described that nobody declared. Declared
    without an implementation they satisfy it; models and datasets use neither.

    Raises
    ------
    ImportError
        Where torchvision or torch is not installed.
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
    _KEPT.append(library)  # the declarations go when it goes
    return importlib.import_module(module)
