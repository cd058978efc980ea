"""The CPU or the GPU that a fit runs on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from manyseed.jobs.run import MachineError
from manyseed.jobs.training.handling import Device

if TYPE_CHECKING:  # whoever only names a device need not wait for torch
    import torch

_OF_THE_GPU = re.compile(r"CUDA|cuDNN|CUBLAS|CUDNN|cudaError|NCCL")
"""In what libraries say of a GPU that fails: few of these errors have a type of their own."""

_OF_MEMORY = re.compile(
    r"DefaultCPUAllocator|out of memory|can(no|')t allocate memory|not enough memory"
    r"|bad[_ ]alloc|unable to allocate",
    re.IGNORECASE,
)
"""The same of memory that is full."""


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
        raise MachineError("torch finds no CUDA device: train on the CPU")
    # The same numbers in every run, of the precision that the recipe names.
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    # Of the kinds of attention that float32 has on a GPU this one sums gradients in any order.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    return torch.device("cuda")


@contextmanager
def faults_of(device: Device) -> Iterator[None]:
    """Let full memory and a GPU that fails be the machine's fault, not the run's.

    Raises
    ------
    MachineError
    """
    try:
        yield
    except MachineError:
        raise
    except (RuntimeError, ValueError) as error:  # of the latter kind are XGBoost's errors
        is_memory = type(error).__name__ == "OutOfMemoryError" or _OF_MEMORY.search(str(error))
        if device == "gpu" and (is_memory or _OF_THE_GPU.search(str(error))):
            raise MachineError(f"the GPU failed: {error}") from error
        if is_memory:
            raise MachineError(f"memory is full: {error}") from error
        raise


def gpu_model() -> str:
    """Return the model of the GPU that fits run on.

    Raises
    ------
    MachineError
        Where torch sees none.
    """
    import torch

    return str(torch.cuda.get_device_name(torch_device("gpu")))
