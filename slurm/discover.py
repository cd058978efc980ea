"""Ask SLURM what there is: partitions, limits, accounting."""

from __future__ import annotations

import getpass
from dataclasses import dataclass

from slurm import commands, profile
from slurm.commands import ClusterError


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


@dataclass(frozen=True)
class Cluster:
    """What a cluster allows; a limit is None where there is none, or nobody tells."""

    name: str
    version: str
    max_array_size: int
    max_job_count: int
    max_submit_jobs: int | None
    has_accounting: bool
    partitions: tuple[Partition, ...]


def discover() -> Cluster:
    """Ask the cluster.

    Raises
    ------
    ClusterUnavailable
        When it does not answer.
    """
    config = configuration()
    accounting = config.get("AccountingStorageType", "").endswith("slurmdbd")
    return Cluster(
        name=config.get("ClusterName", ""),
        version=config.get("SLURM_VERSION", ""),
        max_array_size=int(config["MaxArraySize"]),
        max_job_count=int(config["MaxJobCount"]),
        max_submit_jobs=_max_submit_jobs() if accounting else None,
        has_accounting=accounting,
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


def _max_submit_jobs() -> int | None:
    """Return how many jobs the user may have at once, by the tightest of all limits told."""
    fields = "format=MaxSubmitJobs,GrpSubmitJobs"
    try:
        printed = commands.run(
            ["sacctmgr", "-nP", "show", "associations", f"user={getpass.getuser()}", fields]
        )
    except ClusterError:
        return None
    limits = [
        int(word) for line in printed.splitlines() for word in line.split("|") if word.isdigit()
    ]
    return min(limits, default=None)
