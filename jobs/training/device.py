"""The CPU or the GPU that a fit runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.run import MachineError
from jobs.training.handling import Device

if TYPE_CHECKING:  # whoever only names a device need not wait for torch
    import torch


def torch_device(device: Device) -> torch.device:
    """Return torch's device for a resource class.

    Raises
    ------
    MachineError
        Where a GPU is asked for and torch sees none.
    """
    import torch

    if device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MachineError("torch finds no CUDA device; train with device = 'cpu'")
    # The same numbers in every run, of the precision that the recipe names.
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    return torch.device("cuda")


@contextmanager
def faults_of(device: Device) -> Iterator[None]:
    """Let what a GPU cannot do be the machine's fault, not the run's: full memory, a broken card.

    Raises
    ------
    MachineError
    """
    if device == "cpu":
        yield
        return
    import torch

    out_of_memory = torch.OutOfMemoryError
    try:
        yield
    except (out_of_memory, getattr(torch, "AcceleratorError", out_of_memory)) as error:
        raise MachineError(f"the GPU failed: {error}") from error


def gpu_model() -> str:
    """Return the model of the GPU that fits run on.

    Raises
    ------
    MachineError
        Where torch sees none.
    """
    import torch

    return str(torch.cuda.get_device_name(torch_device("gpu")))
