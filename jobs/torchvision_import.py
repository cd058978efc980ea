"""Import torchvision beside a CPU build of torch."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_KEPT: list[object] = []


def torchvision(module: str = "torchvision") -> ModuleType:
    """Import torchvision or one of its modules, such as ``"torchvision.datasets"``.

    torchvision's wheels are linked to CUDA. Beside a CPU build of torch their compiled operators do
    not load, and the import fails because it registers details of operators that nobody declared.
    Declaring them without an implementation is enough: models and datasets use neither.

    Raises
    ------
    ImportError
        If torchvision or torch is not installed.
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
