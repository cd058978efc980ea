"""Ask SLURM what there is: partitions, limits, accounting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from manyseed.slurm import commands, limits, profile
from manyseed.slurm.limits import Limits


@dataclass(frozen=True)
class Partition:
    """A partition: limits in minutes (None: unlimited), and what its nodes have, at least."""

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
        """How many GPUs a node has: ``gpu:a100:4(S:0-1),gpu:a40:2`` are 6."""
        kinds = re.sub(r"\(.*?\)", "", self.gres).split(",")
        return sum(int(kind.rpartition(":")[2]) for kind in kinds if kind.startswith("gpu:"))


@dataclass(frozen=True)
class Cluster:
    """What a cluster allows; a limit is None where it does not exist or is unknown."""

    name: str
    version: str
    max_array_size: int
    max_job_count: int
    limits: Limits
    has_accounting: bool
    partitions: tuple[Partition, ...]

    def asked(self, options: Mapping[str, str]) -> list[Partition]:
        """Return the partitions in which jobs with these options of sbatch may run."""
        names = options.get("partition", "")
        wanted = names.split(",")
        return [p for p in self.partitions if (p.name in wanted if names else p.is_default)]

    def max_submit_jobs(self, options: Mapping[str, str]) -> int | None:
        """Return how many jobs with these options of sbatch the user may have at once."""
        account, qos = options.get("account", ""), options.get("qos", "")
        limits = [self.limits.most(p.name, account, qos) for p in self.asked(options)]
        return min((limit for limit in limits if limit is not None), default=None)


def discover() -> Cluster:
    """Ask the cluster.

    Raises
    ------
    ClusterUnavailable
        When it does not answer.
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
    """Return the partitions; where a partition has several kinds of nodes, the least of each."""
    found: dict[str, Partition] = {}
    printed = commands.run(["sinfo", "-h", "-e", "-o", "%P|%a|%l|%L|%D|%c|%m|%G"])
    for line in printed.splitlines():
        fields = line.split("|")
        if len(fields) != 8:
            continue  # a site's own line
        name, up, longest, default, nodes, cores, memory, gres = map(str.strip, fields)
        plain = name.removesuffix("*")
        one = Partition(
            name=plain,
            is_default=name.endswith("*"),
            is_up=up == "up",
            max_minutes=_minutes(longest),
            default_minutes=_minutes(default),
            n_nodes=int(nodes),
            cores=int(cores.rstrip("+")),
            memory_mb=int(memory.rstrip("+")),
            gres="" if gres == "(null)" else gres,
        )
        other = found.get(plain)
        found[plain] = one if other is None else _both(other, one)
    return tuple(found.values())


def _both(one: Partition, other: Partition) -> Partition:
    return Partition(
        name=one.name,
        is_default=one.is_default,
        is_up=one.is_up,
        max_minutes=one.max_minutes,
        default_minutes=one.default_minutes,
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
