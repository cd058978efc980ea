"""Asking SLURM about a cluster: partitions, limits, accounting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from manyseed.slurm import commands, limits, profile
from manyseed.slurm.limits import Limits


@dataclass(frozen=True)
class Partition:
    """A partition: time limits in minutes (None if unlimited), and what all of its nodes have."""

    name: str
    is_default: bool
    is_up: bool
    max_minutes: int | None
    default_minutes: int | None
    n_nodes: int
    cores: int
    memory_mb: int
    gres: str

    @property
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs."""
        return "gpu" in self.gres

    @property
    def n_gpus(self) -> int:
        """Number of GPUs of a node: 6 for ``gpu:a100:4(S:0-1),gpu:a40:2``."""
        kinds = re.sub(r"\(.*?\)", "", self.gres).split(",")
        return sum(int(kind.rpartition(":")[2]) for kind in kinds if kind.startswith("gpu:"))


@dataclass(frozen=True)
class Cluster:
    """A cluster and its limits."""

    name: str
    version: str
    max_array_size: int
    max_job_count: int
    limits: Limits
    has_accounting: bool
    partitions: tuple[Partition, ...]

    def asked(self, options: Mapping[str, str]) -> list[Partition]:
        """Return the partitions in which jobs with these sbatch options may run."""
        names = options.get("partition", "")
        wanted = names.split(",")
        return [p for p in self.partitions if (p.name in wanted if names else p.is_default)]

    def max_submit_jobs(self, options: Mapping[str, str]) -> int | None:
        """Return how many jobs with these sbatch options the user may have at once, if limited."""
        account, qos = options.get("account", ""), options.get("qos", "")
        limits = [self.limits.most(p.name, account, qos) for p in self.asked(options)]
        return min((limit for limit in limits if limit is not None), default=None)


def discover() -> Cluster:
    """Ask the cluster.

    Raises
    ------
    ClusterUnavailable
        If it does not answer.
    """
    config = configuration()
    name = config.get("ClusterName", "")
    is_limited = "limits" in config.get("AccountingStorageEnforce", "")
    return Cluster(
        name=name,
        version=config.get("SLURM_VERSION", ""),
        max_array_size=int(config["MaxArraySize"]),
        max_job_count=int(config["MaxJobCount"]),
        limits=limits.ask(name) if is_limited else Limits(),
        has_accounting=config.get("AccountingStorageType", "").endswith("slurmdbd"),
        partitions=_partitions(),
    )


def configuration() -> dict[str, str]:
    """Return SLURM's settings."""
    lines = commands.run(["scontrol", "show", "config"]).splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _partitions() -> tuple[Partition, ...]:
    """Return the partitions; if a partition has several kinds of nodes, their minimum."""
    partitions: dict[str, Partition] = {}
    printed = commands.run(["sinfo", "-h", "-e", "-o", "%P|%a|%l|%L|%D|%c|%m|%G"])
    for line in printed.splitlines():
        fields = line.split("|")
        if len(fields) != 8:
            continue  # an additional line of the site
        shown_name, up, longest, default, nodes, cores, memory, gres = map(str.strip, fields)
        name = shown_name.removesuffix("*")
        partition = Partition(
            name=name,
            is_default=shown_name.endswith("*"),
            is_up=up == "up",
            max_minutes=_minutes(longest),
            default_minutes=_minutes(default),
            n_nodes=int(nodes),
            cores=int(cores.rstrip("+")),
            memory_mb=int(memory.rstrip("+")),
            gres="" if gres == "(null)" else gres,
        )
        other = partitions.get(name)
        partitions[name] = partition if other is None else _both(other, partition)
    return tuple(partitions.values())


def _both(one: Partition, other: Partition) -> Partition:
    return replace(
        one,
        n_nodes=one.n_nodes + other.n_nodes,
        cores=min(one.cores, other.cores),
        memory_mb=min(one.memory_mb, other.memory_mb),
        gres=one.gres or other.gres,
    )


def _minutes(text: str) -> int | None:
    try:
        return profile.minutes(text)
    except ValueError:  # infinite, n/a
        return None
