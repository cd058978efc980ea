"""Files that ``torch.save`` wrote, of plain tensors; nothing in them is executed."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.errors import UserError, first_line

FORMATS = (".pt", ".pth")

_REMEDY = "save tensors alone: torch.save({'scores': scores, 'y_true': y_true}, FILE)"


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file by name; a tensor by itself is ``scores``, or ``labels``.

    Large ones stay in the file as long as they are not read. Tensors of bfloat16 become float32.

    Raises
    ------
    UserError
        For files that hold anything else, and without PyTorch.
    """
    try:
        import torch
    except ImportError:
        raise UserError(
            "PyTorch is not installed, which reads it",
            file=path,
            remedy="pip install 'manyseed[train]', or save NumPy arrays: numpy.savez",
        ) from None
    try:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # a form that cannot be mapped
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = f"is no file of plain tensors, and nothing else is loaded: {first_line(error)}"
        raise UserError(reason, file=path, remedy=_REMEDY) from None
    except Exception as error:  # a damaged file may lead to any
        raise UserError(f"is no PyTorch file: {first_line(error)}", file=path) from None
    if isinstance(found, torch.Tensor):
        found = {"scores" if found.is_floating_point() else "labels": found}
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        kind = type(found).__name__
        reason = f"holds a {kind}, no dict of tensors by name"
        raise UserError(reason, file=path, remedy=_REMEDY)
    return {name: _array(path, name, value) for name, value in found.items()}


def _array(path: Path, name: str, value: Any) -> NDArray[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_sparse or value.is_quantized or value.is_complex():
            raise UserError("is no plain tensor of numbers", file=path, key=name, remedy=_REMEDY)
        value = value.detach()
        found: NDArray[Any] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
        return found
    array = np.asarray(value)
    if array.dtype.kind not in "biufU":
        raise UserError(
            f"is a {type(value).__name__}, no tensor and no list of numbers or names",
            file=path,
            key=name,
            remedy=_REMEDY,
        )
    return array
