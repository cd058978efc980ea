"""Asking SLURM about a cluster: partitions, limits, accounting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from manyseed.slurm import commands, limits, profile, texts
from manyseed.slurm.commands import ClusterError
from manyseed.slurm.limits import Limits

_ARRAY_SIZE, _JOB_COUNT = 1001, 10_000
"""SLURM's defaults for MaxArraySize and MaxJobCount."""


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
        return self.n_gpus > 0

    @property
    def n_gpus(self) -> int:
        """Number of GPUs of a node."""
        return texts.n_gpus(self.gres)


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
        max_array_size=max_array_size(config),
        max_job_count=texts.number(config.get("MaxJobCount", ""), "MaxJobCount") or _JOB_COUNT,
        limits=limits.ask(name) if is_limited else Limits(),
        has_accounting=config.get("AccountingStorageType", "").endswith("slurmdbd"),
        partitions=_partitions(),
    )


def configuration() -> dict[str, str]:
    """Return SLURM's settings."""
    lines = commands.run(["scontrol", "show", "config"]).splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def max_array_size(config: Mapping[str, str]) -> int:
    """Return the number of elements that sbatch takes in one array, by the cluster's settings.

    Raises
    ------
    ClusterError
        If it takes no arrays.
    """
    limits = [config.get("MaxArraySize", "")]
    for parameter in config.get("SchedulerParameters", "").split(","):
        name, _, value = parameter.strip().partition("=")
        if name == "max_array_tasks":
            limits.append(value)
    found = [texts.number(limit, "the size of arrays") for limit in limits if limit]
    size = min((limit for limit in found if limit is not None), default=_ARRAY_SIZE)
    if size < 1:
        raise ClusterError(
            "this cluster takes no job arrays (MaxArraySize or max_array_tasks is 0): "
            "ask its administrators to allow them"
        )
    return size


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
            n_nodes=texts.number(nodes, "the number of nodes") or 0,
            cores=texts.number(cores, "the number of CPUs") or 1,
            memory_mb=texts.number(memory, "the memory of a node") or 0,
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
