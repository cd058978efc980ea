"""What a job was given on its node."""

from __future__ import annotations

import os

from slurm import local


def cores() -> int:
    """Return the cores that this process may use: the job's, or without SLURM the machine's."""
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return local.available_cores()


def gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]


def job_id() -> str | None:
    """Return the job id of the array's element that this process belongs to, ``"123_0"``."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return None if array is None or index is None else f"{array}_{index}"


def name() -> str | None:
    """Return the node's name, as SLURM knows it; None outside of a job."""
    return os.environ.get("SLURMD_NODENAME")


def restarts() -> int:
    """Return how often the job was started before."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))
