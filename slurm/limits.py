"""How many jobs a user may have submitted, from accounting's associations and QOS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from manyseed.slurm import commands
from manyseed.slurm.commands import ClusterError
from manyseed.slurm.processes import user_name

_ASSOCIATION = "DefaultAccount,Cluster,Account,Partition,DefaultQOS,MaxSubmitJobs,GrpSubmitJobs"
_QOS = "Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs"
_DEFAULT_QOS = "normal"
"""SLURM's default for associations that name none."""


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
    """Limits on the number of submitted jobs, waiting or running.

    Attributes
    ----------
    associations : tuple of Association
        The user's associations on this cluster.
    qos : mapping
        The limit of each QOS that has one.
    partitions : mapping
        The QOS of each partition that has one.
    """

    associations: tuple[Association, ...] = ()
    qos: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)

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


def ask(cluster: str) -> Limits:
    """Return the user's limits on a cluster; none if accounting does not answer.

    Takes two commands, and a third for the partitions if any QOS has a limit.
    """
    user = user_name()
    try:
        associations = tuple(_associations(user, cluster))
        qos = {name: most for name, *limits in _show("qos", _QOS) if (most := _smallest(limits))}
        return Limits(associations, qos, dict(_partitions()) if qos else {})
    except ClusterError:
        return Limits()


def _associations(user: str, cluster: str) -> Iterator[Association]:
    for default, name, account, partition, qos, *limits in _show(
        "user", _ASSOCIATION, user, "withassoc"
    ):
        if name == cluster:
            yield Association(
                account, account == default, partition, qos or _DEFAULT_QOS, _smallest(limits)
            )


def _partitions() -> Iterator[tuple[str, str]]:
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
    return min((int(limit) for limit in limits if limit.isdigit()), default=None)
