"""Memory of tasks: what they asked for, what they used at most, and what the next ones ask for."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from manyseed.orchestrator.submissions.submission import Submission, TaskState
from manyseed.orchestrator.tasks.attempts import Attempt

if TYPE_CHECKING:
    from manyseed.slurm.discover import Cluster
    from manyseed.slurm.profile import Profile, Resources

AUTO = "auto"

_RESERVE = 1.25  # times what was used: runs to come may need more than those so far
_MORE = 2.0  # times what was too little
_WORTH = 1.5  # times what would do, from which asking for less is proposed
_CLOSE = 1.1  # times what was used, above which little is left
_STEP = 2**28  # amounts are multiples of it
_AMOUNT = re.compile(r"(\d+)([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def asked(resources: Resources) -> float:
    """Return the bytes that a task asks for; 0 if the site decides, or it gets all of its node."""
    from manyseed.orchestrator.submissions.cluster import n_gpus  # imports polars

    options = {**resources.options, **{k: str(v) for k, v in resources.extra.items()}}
    per = {"mem": 1, "mem-per-cpu": resources.cores or 0, "mem-per-gpu": n_gpus(resources)}
    for key, times in per.items():
        if found := _AMOUNT.fullmatch(options.get(key, "")):
            return float(int(found[1]) * _UNITS[found[2].upper() or "M"] * times)
    return 0.0


def enough(used: float) -> float:
    """Return the bytes to ask for where so many were used."""
    return math.ceil(used * _RESERVE / _STEP) * _STEP


@dataclass(frozen=True, slots=True)
class Usage:
    """What the tasks of a resource class on one cluster asked for, and what they used."""

    cluster: str
    resource: str
    tasks: int  # tasks that have measured it
    processes: int  # training processes of a task, each with a core
    memory_asked: float | None  # bytes, by the last submission; None if the site decides
    memory_used: int  # bytes, the most of a task
    cores_used: float  # mean number of cores that were busy in a task

    @property
    def advice(self) -> str:
        """What to ask for instead; empty if what was asked for fits."""
        if self.memory_asked is None:
            return ""
        wanted, name = enough(self.memory_used), self.resource.upper()
        told = f"{name} tasks asked for {in_words(self.memory_asked)} and used "
        told += f"{in_words(self.memory_used)} at most: "
        if wanted * _WORTH <= self.memory_asked:
            return f'{told}mem = "{in_words(wanted)}" would do, or resume --memory auto.'
        if self.memory_used * _CLOSE > self.memory_asked:
            return f'{told}mem = "{in_words(wanted)}" would be safer.'
        return ""


def usage(submissions: Sequence[Submission]) -> list[Usage]:
    """Return what tasks used, by cluster and resource class, from their own reports."""
    found: dict[tuple[str, str], list[tuple[Submission, Attempt]]] = {}
    for submission in submissions:
        numbers = {name: tasks_in(submission, name) for name in ("cpu", "gpu")}
        for attempt in submission.attempts():
            names = [name for name, tasks in numbers.items() if attempt.task in tasks]
            if attempt.memory:
                key = (submission.cluster, names[0] if names else "")
                found.setdefault(key, []).append((submission, attempt))
    return [_usage(*key, measured) for key, measured in found.items()]


def _usage(cluster: str, resource: str, measured: Sequence[tuple[Submission, Attempt]]) -> Usage:
    attempts = [attempt for _, attempt in measured]
    intent = measured[-1][0].intent
    arrays = [array.processes for array in intent.arrays if array.resource == resource]
    seconds = sum(max(1.0, attempt.updated - attempt.started) for attempt in attempts)
    return Usage(
        cluster,
        resource,
        len({(submission.number, attempt.task) for submission, attempt in measured}),
        max(arrays, default=intent.workers),
        intent.memory.get(resource),
        max(attempt.memory for attempt in attempts),
        round(sum(attempt.cpu_seconds for attempt in attempts) / seconds, 2),
    )


def used(submissions: Sequence[Submission], resource: str) -> float:
    """Return the most bytes that a task of a resource class is known to have used; 0 if none is."""
    return max(
        (
            attempt.memory
            for submission in submissions
            for attempt in submission.attempts()
            if attempt.task in tasks_in(submission, resource)
        ),
        default=0.0,
    )


def tasks_in(submission: Submission, resource: str) -> set[int]:
    """Return the numbers of a submission's tasks of a resource class."""
    arrays = [array for array in submission.intent.arrays if array.resource == resource]
    return {n for array in arrays for n in range(array.first, array.first + array.count)}


def ran_out(submission: Submission, tasks: Sequence[TaskState]) -> set[str]:
    """Return the resource classes of which a task, or several of its processes, ran out of it."""
    short = {
        task.number
        for task in tasks
        if task.state == "out_of_memory" or (task.last.set_aside and task.last.killed)
    }
    classes = {array.resource for array in submission.intent.arrays}
    return {name for name in classes if tasks_in(submission, name) & short}


def sized(
    profile: Profile,
    classes: Sequence[str],
    earlier: Sequence[Submission],
    short: Collection[str],
    cluster: Cluster,
    *,
    auto: bool,
) -> tuple[Profile, list[str]]:
    """Return a profile whose tasks ask for the memory that they need, and a sentence per change.

    Where tasks ran out of it, twice as much is asked for once; after that, users decide. What was
    raised stays raised.

    `classes`: those to be submitted. `earlier`: submissions to this cluster, oldest first. `short`:
    classes that ran out of memory in the last of them. `auto`: whether to ask for no more than what
    tasks have used so far requires.
    """
    before = earlier[-1].intent.memory if earlier else {}
    said = []
    for name in classes:
        resources = profile.resources(name)
        usual, had, most = asked(resources), before.get(name, 0.0), used(earlier, name)
        there = min((p.memory_mb * 2.0**20 for p in cluster.asked(resources.options)), default=0.0)
        wanted = raised = had if had > usual else 0.0
        if name in short:
            more = min(_MORE * had, there or math.inf)
            if raised or more <= had:  # or the site decides, or the task had all of its node
                so = "ask for more: --memory SIZE"
            else:
                wanted, so = more, f"these ask for {in_words(more)}"
            limit = f" with {in_words(had)}" if had else ""
            said.append(f"{name.upper()} tasks ran out of memory{limit}: {so}.")
        elif auto and most and not resources.whole_node:
            wanted = max(raised, min(enough(most), there or math.inf))
            told = f"used {in_words(most)} at most: these ask for {in_words(wanted)}"
            said.append(f"{name.upper()} tasks {told}.")
        if wanted and wanted != usual:
            changed = profile.with_memory(f"{math.ceil(wanted / 2**20)}M").resources(name)
            profile = (
                replace(profile, cpu=changed) if name == "cpu" else replace(profile, gpu=changed)
            )
    return profile, said


def in_words(n_bytes: float) -> str:
    """Return an amount in the form of SLURM's options: ``1.5G``, ``768M``."""
    if n_bytes < 2**30:
        return f"{math.ceil(n_bytes / 2**20)}M"
    return f"{n_bytes / 2**30:.3g}G"
