"""Read files of plain tensors that ``torch.save`` wrote, without executing anything in them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.packages import install
from manyseed.orchestrator.errors import UserError, first_line

FORMATS = (".pt", ".pth")

_REMEDY = "save only tensors: torch.save({'scores': scores, 'y_true': y_true}, FILE)"


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file by name; a single tensor is ``scores``, or ``labels`` if integer.

    Arrays stay in the file until they are read, if it can be mapped. bfloat16 becomes float32.

    Raises
    ------
    UserError
        For files that hold anything else, and without PyTorch.
    """
    try:
        import torch
    except ImportError:
        raise UserError(
            "reading it needs PyTorch, which is not installed",
            file=path,
            remedy=f"{install(['torch'])}; or save NumPy arrays: numpy.savez",
        ) from None
    try:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # a format that cannot be mapped
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = f"does not hold plain tensors, and nothing else is loaded: {first_line(error)}"
        raise UserError(reason, file=path, remedy=_REMEDY) from None
    except Exception as error:  # a damaged file may cause any error
        raise UserError(f"is not a PyTorch file: {first_line(error)}", file=path) from None
    if isinstance(content, torch.Tensor):
        content = {"scores" if content.is_floating_point() else "labels": content}
    if not isinstance(content, Mapping) or not all(isinstance(name, str) for name in content):
        reason = f"holds a {type(content).__name__}, not a dict of tensors by name"
        raise UserError(reason, file=path, remedy=_REMEDY)
    return {name: _array(path, name, value) for name, value in content.items()}


def _array(path: Path, name: str, value: Any) -> NDArray[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_sparse or value.is_quantized or value.is_complex():
            raise UserError("is not a plain tensor of numbers", file=path, key=name, remedy=_REMEDY)
        value = value.detach()
        value = value.float() if value.dtype == torch.bfloat16 else value
        return np.asarray(value.numpy())
    array = np.asarray(value)
    if array.dtype.kind not in "biufU":
        raise UserError(
            f"is a {type(value).__name__}, not a tensor or a list of numbers or names",
            file=path,
            key=name,
            remedy=_REMEDY,
        )
    return array
