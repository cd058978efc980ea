"""Asking SLURM about a cluster: partitions, limits on submitted jobs, accounting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from manyseed.slurm import commands, profile, states
from manyseed.slurm.commands import ClusterError
from manyseed.slurm.processes import user_name

_ASSOCIATION = "DefaultAccount,Cluster,Account,Partition,DefaultQOS,MaxSubmitJobs,GrpSubmitJobs"
_GROUPS = "User,Account,ParentName,GrpSubmitJobs"
_QOS = "Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs"
_DEFAULT_QOS = "normal"  # SLURM's default for associations that name none


@dataclass(frozen=True)
class Association:
    """The user's association with an account, in one partition or (if empty) in any."""

    account: str
    is_default: bool
    partition: str
    qos: str
    most: int | None


@dataclass(frozen=True)
class Limits:
    """Limits on the number of submitted jobs, waiting or running."""

    associations: tuple[Association, ...] = ()  # the user's associations on this cluster
    qos: Mapping[str, int] = field(default_factory=dict)  # the limit of each QOS that has one
    partitions: Mapping[str, str] = field(default_factory=dict)
    """The QOS of each partition that has one."""

    def most(self, partition: str, account: str = "", qos: str = "") -> int | None:
        """Return how many such jobs may be submitted at once; None if unlimited.

        In SLURM some of these limits override others; the smallest never exceeds the one in force.
        An empty `account` or `qos` is the user's default.
        """
        candidates = [
            association
            for association in self.associations
            if (association.account == account if account else association.is_default)
        ]
        specific = [one for one in candidates if one.partition == partition]
        associations = specific or [one for one in candidates if not one.partition]
        names = {qos or one.qos for one in associations} or {qos or _DEFAULT_QOS}
        limits = [one.most for one in associations]
        limits += [self.qos.get(name) for name in names | {self.partitions.get(partition, "")}]
        return min((limit for limit in limits if limit is not None), default=None)


def ask_limits(cluster: str) -> Limits:
    """Return the user's limits on a cluster; none if accounting does not answer.

    Takes three commands, and a fourth for the partitions if any QOS has a limit.
    """
    user = user_name()
    try:
        associations = tuple(_associations(user, cluster))
        qos = {name: most for name, *limits in _show("qos", _QOS) if (most := _smallest(limits))}
        return Limits(associations, qos, dict(_limited_partitions()) if qos else {})
    except ClusterError:
        return Limits()


def _associations(user: str, cluster: str) -> Iterator[Association]:
    groups = _groups(cluster)
    for default, name, account, partition, qos, *limits in _show(
        "user", _ASSOCIATION, user, "withassoc"
    ):
        if name == cluster:
            most = _smallest([*limits, *_above(account, groups)])
            yield Association(account, account == default, partition, qos or _DEFAULT_QOS, most)


def _groups(cluster: str) -> dict[str, tuple[str, str]]:
    """Return each account's parent, and its limit on the jobs of all that is in it."""
    try:
        shown = [*_show("association", _GROUPS, f"cluster={cluster}", "user=")]
    except ClusterError:  # others than these may be told
        return {}
    return {account: (parent, limit) for user, account, parent, limit in shown if not user}


def _above(account: str, groups: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield the limits of an account and of those above it; SLURM shows users no parent's."""
    left = dict(groups)
    while account in left:
        account, limit = left.pop(account)
        yield limit


def _limited_partitions() -> Iterator[tuple[str, str]]:
    for line in commands.run(["scontrol", "-o", "show", "partition"]).splitlines():
        shown = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in shown and shown.get("QoS", "N/A") != "N/A":
            yield shown["PartitionName"], shown["QoS"]


def _show(what: str, fields: str, *more: str) -> Iterator[list[str]]:
    """Yield the fields of each line from accounting; a site's additional lines have fewer."""
    printed = commands.run(["sacctmgr", "-nP", "show", what, *more, f"format={fields}"])
    for line in printed.splitlines():
        if len(values := line.split("|")) == len(fields.split(",")):
            yield values


def _smallest(limits: list[str]) -> int | None:
    found = [states.number(limit, "a limit on jobs") for limit in limits if limit]
    return min((limit for limit in found if limit is not None), default=None)


_ARRAY_SIZE, _JOB_COUNT = 1001, 10_000  # SLURM's defaults for MaxArraySize and MaxJobCount


@dataclass(frozen=True)
class Partition:
    """A partition: time limits in minutes (None if unlimited), and what all of its nodes have.

    `most_cores`, `most_memory_mb`: what none of its nodes exceeds; 0 if not known.
    """

    name: str
    is_default: bool
    is_up: bool
    max_minutes: int | None
    default_minutes: int | None
    n_nodes: int
    cores: int
    memory_mb: int
    gres: str
    most_cores: int = 0
    most_memory_mb: int = 0

    @property
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs."""
        return self.n_gpus > 0

    @property
    def n_gpus(self) -> int:
        """Number of GPUs of a node."""
        return states.n_gpus(self.gres)


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
    sums_memory: bool = (
        False  # whether jobs are killed by memory that counts for each sharing process
    )

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
    """Ask the cluster."""
    config = configuration()
    name = config.get("ClusterName", "")
    is_limited = "limits" in config.get("AccountingStorageEnforce", "")
    return Cluster(
        name=name,
        version=config.get("SLURM_VERSION", ""),
        max_array_size=max_array_size(config),
        max_job_count=states.number(config.get("MaxJobCount", ""), "MaxJobCount") or _JOB_COUNT,
        limits=ask_limits(name) if is_limited else Limits(),
        has_accounting=config.get("AccountingStorageType", "").endswith("slurmdbd"),
        partitions=_partitions(),
        sums_memory=_sums_memory(config),
    )


def _sums_memory(config: Mapping[str, str]) -> bool:
    params = {*config.get("JobAcctGatherParams", "").lower().split(",")}
    is_of_processes = config.get("JobAcctGatherType", "").endswith("/linux")
    kills = is_of_processes and "overmemorykill" in params
    return kills and not params & {"usepss", "noshared"}


def configuration() -> dict[str, str]:
    """Return SLURM's settings."""
    lines = commands.run(["scontrol", "show", "config"]).splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def max_array_size(config: Mapping[str, str]) -> int:
    """Return the number of elements that sbatch takes in one array, by the cluster's settings."""
    limits = [config.get("MaxArraySize", "")]
    for parameter in config.get("SchedulerParameters", "").split(","):
        name, _, value = parameter.strip().partition("=")
        if name == "max_array_tasks":
            limits.append(value)
    found = [states.number(limit, "the size of arrays") for limit in limits if limit]
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
    for shown_name, up, longest, default, nodes, cores, memory, gres in states.fields(printed, 8):
        name = shown_name.removesuffix("*")
        partition = Partition(
            name=name,
            is_default=shown_name.endswith("*"),
            is_up=up == "up",
            max_minutes=_minutes(longest),
            default_minutes=_minutes(default),
            n_nodes=states.number(nodes, "the number of nodes") or 0,
            cores=(n_cores := states.number(cores, "the number of CPUs")) or 1,
            memory_mb=(megabytes := states.number(memory, "the memory of a node")) or 0,
            gres="" if gres == "(null)" else gres,
            most_cores=n_cores or 0,
            most_memory_mb=megabytes or 0,
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
        gres=max(one.gres, other.gres),  # whatever their order, which sinfo changes
        most_cores=max(one.most_cores, other.most_cores),
        most_memory_mb=max(one.most_memory_mb, other.most_memory_mb),
    )


def _minutes(text: str) -> int | None:
    try:
        return profile.minutes(text)
    except ValueError:  # infinite, n/a
        return None
