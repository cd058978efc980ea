"""How many jobs a user may have submitted: what accounting says of associations and of QOS."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from manyseed.slurm import commands
from manyseed.slurm.commands import ClusterError

_ASSOCIATION = "DefaultAccount,Cluster,Account,Partition,DefaultQOS,MaxSubmitJobs,GrpSubmitJobs"
_QOS = "Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs"
_DEFAULT_QOS = "normal"
"""SLURM's own, where an association names none."""


@dataclass(frozen=True)
class Association:
    """What the user may do with an account, in one partition or (empty) in any."""

    account: str
    is_default: bool
    partition: str
    qos: str
    most: int | None


@dataclass(frozen=True)
class Limits:
    """Limits of submitted jobs, which wait or run.

    Attributes
    ----------
    associations : tuple of Association
        The user's, on this cluster.
    qos : mapping
        The limit of each QOS that has one.
    partitions : mapping
        The QOS of each partition that has one.
    """

    associations: tuple[Association, ...] = ()
    qos: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)

    def most(self, partition: str, account: str = "", qos: str = "") -> int | None:
        """Return how many jobs of a kind may be submitted at once; None: as many as one likes.

        SLURM lets some of these limits go before others; the smallest of them is always kept.

        Parameters
        ----------
        partition : str
        account, qos : str
            That the jobs name; empty: the user's default.
        """
        mine = [
            one
            for one in self.associations
            if (one.account == account if account else one.is_default)
        ]
        own = [one for one in mine if one.partition == partition]
        found = own or [one for one in mine if not one.partition]
        names = {qos or one.qos for one in found} or {qos or _DEFAULT_QOS}
        limits = [one.most for one in found]
        limits += [self.qos.get(name) for name in names | {self.partitions.get(partition, "")}]
        return min((limit for limit in limits if limit is not None), default=None)


def ask(cluster: str) -> Limits:
    """Return the limits of the user on a cluster; none where accounting does not answer.

    Two questions, and one for the partitions where a QOS limits anything.
    """
    user = getpass.getuser()
    try:
        associations = tuple(_associations(user, cluster))
        qos = {name: least for name, *numbers in _show("qos", _QOS) if (least := _least(numbers))}
        return Limits(associations, qos, dict(_partitions()) if qos else {})
    except ClusterError:
        return Limits()


def _associations(user: str, cluster: str) -> Iterator[Association]:
    for default, where, account, partition, qos, *numbers in _show(
        "user", _ASSOCIATION, user, "withassoc"
    ):
        if where == cluster:
            yield Association(
                account, account == default, partition, qos or _DEFAULT_QOS, _least(numbers)
            )


def _partitions() -> Iterator[tuple[str, str]]:
    for line in commands.run(["scontrol", "-o", "show", "partition"]).splitlines():
        shown = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in shown and shown.get("QoS", "N/A") != "N/A":
            yield shown["PartitionName"], shown["QoS"]


def _show(what: str, fields: str, *more: str) -> Iterator[list[str]]:
    """Yield what accounting prints, a line of fields each; a site's own lines have fewer."""
    printed = commands.run(["sacctmgr", "-nP", "show", what, *more, f"format={fields}"])
    for line in printed.splitlines():
        if len(found := line.split("|")) == len(fields.split(",")):
            yield found


def _least(numbers: list[str]) -> int | None:
    return min((int(word) for word in numbers if word.isdigit()), default=None)
