"""Which jobs a cluster can ever start."""

from __future__ import annotations

import math
from collections.abc import Iterable

from manyseed.jobs.checks import quoted
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.submissions import memory
from manyseed.slurm.discover import Cluster, Partition
from manyseed.slurm.profile import Profile


class ProfileError(UnavailableError):
    """A profile asks for what its scheduler does not list, and probably refuses."""


def unlisted(profile: Profile, classes: Iterable[str], cluster: Cluster) -> str:
    """Say which partition of a profile SLURM does not list; empty if it lists all.

    It is misspelt, or hidden from the user.
    """
    listed = [part.name for part in cluster.partitions]
    for name in classes:
        resources = profile.resources(name)
        asked = resources.options.get("partition", "")
        lacks = [part for part in asked.split(",") if part and part not in listed]
        if listed and lacks and "partition" not in resources.extra:
            return (
                f"SLURM lists no partition {quoted(lacks[0])} ({name}.partition); "
                f"it lists {', '.join(listed)}"
            )
    return ""


def require_possible(profile: Profile, classes: Iterable[str], cluster: Cluster) -> None:
    """Refuse jobs that would wait for ever, as none of their partitions takes so large ones.

    SLURM itself takes most of them. A QOS may lift the limit on the time.
    """
    for name in classes:
        resources = profile.resources(name)
        parts = cluster.asked(resources.options)
        if not parts or "partition" in resources.extra:
            continue
        is_free = bool({"qos", "reservation"} & {*resources.options, *resources.extra})
        asked = {
            "time": 0 if is_free else resources.minutes,
            "cpus-per-task": resources.cores or 0,
            "mem": memory.asked(resources),
        }
        for key, wanted in asked.items():
            if 0 < (most := max(_most(part)[key] for part in parts)) < wanted:
                fit = [p for p in cluster.partitions if p.is_up and _most(p)[key] >= wanted]
                others = f"; or another partition: {', '.join(p.name for p in fit)}" if fit else ""
                where = ", ".join(part.name for part in parts)
                raise UserError(
                    f"jobs would wait for ever: {where} gives {_in_words(key, most)} at most",
                    file=profile.path,
                    key=f"{name}.{key}",
                    value=_in_words(key, wanted),
                    remedy=f"write {_line(key, most)}{others}{_BY_QOS if key == 'time' else ''}",
                )


_BY_QOS = "; or name the qos that lifts this limit"


def _most(part: Partition) -> dict[str, float]:
    """Return the most that a job in a partition can have, by sbatch's options; 0 if not known."""
    minutes = math.inf if part.max_minutes is None else part.max_minutes
    memory_mb = part.most_memory_mb if part.most_memory_mb > 1 else 0  # 1 is SLURM's default
    most = {"time": minutes, "cpus-per-task": part.most_cores, "mem": memory_mb * 2**20}
    return most if part.n_nodes else dict.fromkeys(most, 0)


def _line(key: str, most: float) -> str:
    """Return the line of a profile that asks for the most; SLURM reads whole megabytes alone."""
    if key == "mem":
        return f'mem = "{math.floor(most / 2**20)}M"'
    return f'time = "{_in_words(key, most)}"' if key == "time" else f"{key} = {int(most)}"


def _in_words(key: str, wanted: float) -> str:
    if key == "time":
        return f"{int(wanted) // 60}:{int(wanted) % 60:02d}:00"
    return memory.in_words(wanted) if key == "mem" else f"{int(wanted)}"
