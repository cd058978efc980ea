"""The CPU or GPU that a fit runs on, and its faults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from manyseed.jobs.run import GpuFull, MachineError
from manyseed.jobs.training.handling import Device

if TYPE_CHECKING:  # naming a device should not import torch
    import torch

_OF_THE_GPU = re.compile(r"CUDA|cuDNN|CUBLAS|CUDNN|cudaError|NCCL")
"""Found in libraries' messages about a failing GPU; few of these errors have their own type."""

_OF_MEMORY = re.compile(
    r"DefaultCPUAllocator|out of memory|can(no|')t allocate memory|not enough memory"
    r"|bad[_ ]alloc|unable to allocate",
    re.IGNORECASE,
)
"""Found in messages about exhausted memory."""


def torch_device(device: Device) -> torch.device:
    """Return torch's device for a resource class.

    Raises
    ------
    MachineError
        If a GPU is requested and torch sees none.
    """
    import torch

    if device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MachineError("torch finds no CUDA device: train on the CPU")
    # Every run gets the same numbers, in the precision that the recipe names.
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    # Of float32's attention kernels on GPUs, this one sums gradients in no fixed order.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    return torch.device("cuda")


@contextmanager
def faults_of(device: Device) -> Iterator[None]:
    """Raise MachineError if the block exhausts memory or its GPU fails; GpuFull if of the GPU."""
    try:
        yield
    except MachineError:
        raise
    except (RuntimeError, ValueError) as error:  # XGBoost raises ValueError
        is_memory = type(error).__name__ == "OutOfMemoryError" or _OF_MEMORY.search(str(error))
        if device == "gpu" and (is_memory or _OF_THE_GPU.search(str(error))):
            kind = GpuFull if is_memory else MachineError
            raise kind(f"the GPU failed: {error}") from error
        if is_memory:
            raise MachineError(f"memory is full: {error}") from error
        raise


def gpu_model() -> str:
    """Return the model of the GPU that fits run on.

    Raises
    ------
    MachineError
        If torch sees no GPU.
    """
    import torch

    return str(torch.cuda.get_device_name(torch_device("gpu")))
