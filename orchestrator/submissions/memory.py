"""Memory of tasks: what they asked for, what they used at most, and what the next ones ask for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from manyseed.analysis.counts import counted
from manyseed.orchestrator.errors import UnavailableError, UserError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.profiles import own_profile
from manyseed.orchestrator.submissions.submission import (
    Submission,
    TaskState,
    tasks_known,
    tasks_of,
    training,
)
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.tasks.intent import LOCAL

if TYPE_CHECKING:
    import polars as pl

    from manyseed.orchestrator.plans.plan import Plan
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
        if n_bytes := _bytes(options.get(key, "")):
            return n_bytes * times
    return 0.0


def _bytes(amount: str) -> float:
    """Return the bytes of an amount as options give it; 0 if it is none."""
    found = _AMOUNT.fullmatch(amount)
    return float(int(found[1]) * _UNITS[found[2].upper() or "M"]) if found else 0.0


def enough(used: float) -> float:
    """Return the bytes to ask for where so many were used."""
    return math.ceil(used * _RESERVE / _STEP) * _STEP


_OF_TASK, _OF_PROCESS, _OF_TORCH = 125 * 2**20, 55 * 2**20, 180 * 2**20
"""Bytes of a task, and of each of its processes without and with PyTorch, before any data.

Measured on Linux with two processes, of which each counts what it shares in part.
"""
_WHOLE_PROCESS, _WHOLE_OF_TORCH = 170 * 2**20, 345 * 2**20
"""The same where each process counts all that it shares, as does that which others are forked from.
"""


def scarce(
    profile: Profile,
    plan: Plan,
    rows: pl.DataFrame,
    processes: Mapping[str, int],
    cluster: Cluster,
) -> Iterator[str]:
    """Say where tasks ask for less memory than their libraries take, and the line to write.

    `rows`: the runs to submit: column cell. `processes`: training processes of a task, by resource
    class.
    """
    from manyseed.jobs.classifiers import imports

    cells = plan.cells.join(rows, on="cell", how="semi").unique("classifier", keep="first")
    for name, n in processes.items():
        resources = profile.resources(name)
        texts = cells.filter(device=name)["canonical"]
        of_torch = any("torch" in imports(json.loads(text)["classifier"]) for text in texts)
        least, why = _OF_TASK + n * (_OF_TORCH if of_torch else _OF_PROCESS), ""
        if cluster.sums_memory:
            forked = n + (n > 1 and name == "cpu")
            least = _OF_TASK + forked * (_WHOLE_OF_TORCH if of_torch else _WHOLE_PROCESS)
            why = ", as the cluster counts shared memory for each process"
        if not 0 < (given := asked(resources)) < least:
            continue
        key, share = "mem", 1
        if "mem-per-cpu" in {*resources.options, *resources.extra}:
            key, share = "mem-per-cpu", resources.cores or 1
        line = f'{key} = "{in_words(enough(least) / share)}"'
        yield (
            f"{name.upper()} tasks ask for {in_words(given)}, but {counted(n, 'process')} of one "
            f"need {in_words(least)} before any data{why}: write {line} in {profile.path}."
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """What the tasks of a resource class on one cluster asked for, and what they used."""

    cluster: str
    resource: str
    tasks: int  # tasks that have measured it
    processes: int  # training processes of a task, each with a core
    memory_asked: float | None  # bytes, by the last submission; None if the site decides
    memory_used: int  # bytes, the most that a task measured
    cores_used: float  # mean number of cores that were busy in a task
    memory_exceeded: float = 0.0  # bytes, the most that a task asked for that was killed for memory
    memory_accounted: float = 0.0  # bytes, the most that SLURM's accounting counted of a task
    has_advice: bool = True  # whether enough is known, and not more by other or later tasks
    was_short: bool = False  # whether tasks of the class, with any profile, ran out of memory

    @property
    def is_least(self) -> bool:
        """Whether tasks needed more than what is known: one was killed before it was measured."""
        return self.memory_exceeded >= max(self.memory_used, self.memory_accounted)

    @property
    def memory_known(self) -> float:
        """The bytes that a task is known to have used: at least what it was killed for."""
        return max(self.memory_used, self.memory_accounted, self.memory_exceeded)

    @property
    def advice(self) -> str:
        """What to ask for instead; empty if what was asked for fits."""
        if self.memory_asked is None or not self.has_advice:
            return ""
        wanted, name = enough(self.memory_known), self.resource.upper()
        told = f"{name} tasks asked for {in_words(self.memory_asked)} and "
        if self.memory_exceeded >= self.memory_asked:
            return (
                f'{told}were killed for it: try mem = "{in_words(_MORE * self.memory_exceeded)}".'
            )
        least = "least" if self.is_least else "most"
        told += f"used {in_words(self.memory_known)} at {least}: "
        is_known = self.was_short and wanted <= self.memory_asked
        if is_known or wanted * _WORTH <= self.memory_asked:
            return f'{told}mem = "{in_words(wanted)}" would do, or resume --memory auto.'
        if self.memory_known * _CLOSE > self.memory_asked:
            return f'{told}mem = "{in_words(wanted)}" would be safer.'
        return ""


def usage(submissions: Sequence[Submission]) -> list[Usage]:
    """Return what tasks used, by cluster and resource class, from their own reports."""
    found: dict[tuple[str, str], list[tuple[Submission, Attempt]]] = {}
    exceeded: dict[tuple[str, str], float] = {}
    counted: dict[tuple[str, str], int] = {}
    sufficed: dict[str, float] = {}
    try:
        states = tasks_of(submissions)
        for submission, name, n_bytes in _accounted(submissions):
            key = (submission.cluster, name)
            counted[key] = max(counted.get(key, 0), n_bytes)
    except UnavailableError:
        states = tasks_of(submissions, ask=False)
    for submission, tasks in zip(submissions, states, strict=True):
        for name in killed(submission, tasks):
            key = (submission.cluster, name)
            exceeded[key] = max(exceeded.get(key, 0.0), submission.intent.memory.get(name, 0.0))
        died = {task.number for task in tasks if task.state == "out_of_memory"}
        done = {task.number for task in tasks if task.state == "finished"}
        numbers = {name: tasks_in(submission, name) for name in ("cpu", "gpu")}
        for name in numbers:
            if tasks_in(submission, name) & done and name not in ran_out(submission, tasks):
                sufficed[name] = max(
                    sufficed.get(name, 0.0), submission.intent.memory.get(name, 0.0)
                )
        for attempt in submission.attempts():
            names = [name for name, tasks in numbers.items() if attempt.task in tasks]
            if attempt.memory or attempt.task in died:
                key = (submission.cluster, names[0] if names else "")
                found.setdefault(key, []).append((submission, attempt))
    rows = []
    for key, measured in found.items():
        row = _usage(*key, measured)
        mine, had = exceeded.get(key, 0.0), row.memory_asked or 0.0
        most = max((n for (_, name), n in exceeded.items() if name == key[1]), default=0.0)
        if mine and mine >= had:
            has_advice = sufficed.get(key[1], 0.0) <= mine
        else:
            has_advice = most < had and _is_telling(attempt for _, attempt in measured)
        rows.append(
            replace(
                row,
                memory_exceeded=mine,
                memory_accounted=counted.get(key, 0),
                has_advice=has_advice,
                was_short=most > 0,
            )
        )
    return rows


_TELLING_SECONDS = 300.0


def _is_telling(attempts: Iterable[Attempt]) -> bool:
    """Return whether attempts lasted long enough to show how much memory they need."""
    return any(
        attempt.state != "running" or attempt.updated - attempt.started >= _TELLING_SECONDS
        for attempt in attempts
    )


def _accounted(submissions: Sequence[Submission]) -> Iterator[tuple[Submission, str, int]]:
    """Yield what accounting counted of tasks: the submission, the resource class, and the bytes.

    Accounting may count memory that processes share several times, and the site kill by that. Where
    more was counted than a task asked for that was not killed, the site kills by something else.
    """
    jobs = {one.number: one.noted_jobs() for one in submissions if one.cluster != LOCAL}
    listed = [one for one in submissions if one.number in jobs]
    for scheduler in dict.fromkeys(one.scheduler for one in listed):
        mine = [one for one in listed if one.scheduler is scheduler]
        most = scheduler.memory(job for one in mine for job in jobs[one.number].values())
        for one in mine:
            for name in ("cpu", "gpu"):
                asked_for = one.intent.memory.get(name) or math.inf
                ids = [
                    jobs[one.number][n].id for n in tasks_in(one, name) & jobs[one.number].keys()
                ]
                yield from (
                    (one, name, most[job]) for job in ids if 0 < most.get(job, 0) <= asked_for
                )


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
    measured = (
        attempt.memory
        for submission in submissions
        for attempt in submission.attempts()
        if attempt.task in tasks_in(submission, resource)
    )
    counted = (n_bytes for _, name, n_bytes in _accounted(submissions) if name == resource)
    return max((*measured, *counted), default=0.0)


def tasks_in(submission: Submission, resource: str) -> set[int]:
    """Return the numbers of a submission's tasks of a resource class."""
    arrays = [array for array in submission.intent.arrays if array.resource == resource]
    return {n for array in arrays for n in range(array.first, array.first + array.count)}


def killed(submission: Submission, tasks: Sequence[TaskState]) -> set[str]:
    """Return the resource classes of which a task was killed for memory."""
    numbers = {task.number for task in tasks if task.state == "out_of_memory"}
    classes = {array.resource for array in submission.intent.arrays}
    return {name for name in classes if tasks_in(submission, name) & numbers}


def to_ask_for(
    listed: Sequence[Submission], states: Sequence[Sequence[TaskState]]
) -> tuple[str, str] | None:
    """Return what the next `resume` must be told, and what it then asks for, as `sized` decides.

    None if the last submission lacked no memory. The first is empty where `resume` asks for more by
    itself, and ``SIZE`` where the site decided how much there was.
    """
    last = listed[-1] if listed else None
    if last is None or last.cluster == LOCAL or not (short := ran_out(last, states[-1])):
        return None
    had = {name: last.intent.memory.get(name, 0.0) for name in short}
    if not (most := max(had.values())):
        return "SIZE", ""
    usual, profile = listed[0].intent.memory, own_profile(last.intent)
    if profile is not None:
        of_profile = {"cpu": profile.cpu, "gpu": profile.gpu}
        usual = {name: asked(given) for name, given in of_profile.items() if given is not None}
    enough_by_now = [usual[name] for name in short if usual.get(name, 0.0) > had[name]]
    return "", in_words(max(enough_by_now, default=_MORE * most))


def with_more(
    paths: SweepPaths, listed: Sequence[Submission], states: Sequence[Sequence[TaskState]]
) -> str:
    """Return the one command that goes on with more memory; empty if none was lacking."""
    if (needed := to_ask_for(listed, states)) is None:
        return ""
    told, amount = needed
    words = ("--memory", told) if told else ()
    resume = training(paths, "resume", *words)
    return resume if told else f"{resume} asks for {amount}"


def shortage(
    paths: SweepPaths, listed: Sequence[Submission], states: Sequence[Sequence[TaskState]]
) -> str:
    """Say that the last submission's tasks were killed for memory, and what to do; else nothing."""
    n = 0
    for tasks in reversed(states):
        if not (died := sum(task.state == "out_of_memory" for task in tasks)):
            break
        n += died
    if not n:
        return ""
    told = f"{n:,} {'task was' if n == 1 else 'tasks were'} killed for memory"
    had = listed[-1].intent.memory
    if most := max((had.get(name, 0.0) for name in killed(listed[-1], states[-1])), default=0.0):
        told += f"; {in_words(most)} was not enough"
    more = with_more(paths, listed, states)
    return f"{told}: {more}" if more else told


def lacking(
    paths: SweepPaths,
    listed: Sequence[Submission],
    states: Sequence[Sequence[TaskState]],
    current: Sequence[TaskState],
) -> Iterator[str]:
    """Say which tasks, and which runs of current tasks, were killed for memory; what to do once."""
    if told := shortage(paths, listed, states):
        yield told
    if n := sum(task.last.set_aside for task in current if task.last.killed):
        more = "" if told else with_more(paths, listed, states)
        yield (
            f"{n:,} {'run was' if n == 1 else 'runs were'} killed with their process, "
            f"probably for lack of memory{': ' * bool(more)}{more}"
        )


def other(paths: SweepPaths, listed: Sequence[Submission], memory: str | None) -> str:
    """Say which tasks that wait or train have other memory than they would now be given, if any.

    `memory`: what was asked for; if None, tasks are told of that have less than their profile says.
    """
    found: dict[tuple[float, float], int] = {}
    for submission, tasks in zip(listed, tasks_known(listed), strict=True):
        alive = {task.number for task in tasks if task.is_alive}
        profile = own_profile(submission.intent) if alive else None
        if profile is None:
            continue
        for name in {array.resource for array in submission.intent.arrays}:
            resources = {"cpu": profile.cpu, "gpu": profile.gpu}.get(name)
            before = submission.intent.memory.get(name, 0.0)
            now = _bytes(memory or "") or (asked(resources) if resources is not None else 0.0)
            n = len(alive & tasks_in(submission, name))
            if n and now and (before != now if _bytes(memory or "") else 0 < before < now):
                found[before, now] = found.get((before, now), 0) + n
    for (before, now), n in found.items():
        have = "1 task keeps" if n == 1 else f"{n:,} tasks keep"
        what = in_words(before) if before else "what the site gives"
        words = ("--memory", memory) if _bytes(memory or "") else ()
        return (
            f"{have} the earlier memory, {what}; for {in_words(now)}: "
            f"{command('cancel', paths.directory, '--now')}, then "
            f"{training(paths, 'resume', *words)}"
        )
    return ""


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
    states: Sequence[Sequence[TaskState]],
    cluster: Cluster,
    paths: SweepPaths,
    *,
    auto: bool,
) -> tuple[Profile, list[str]]:
    """Return a profile whose tasks ask for the memory that they need, and a sentence per change.

    Where tasks ran out of it, with whichever profile, twice as much is asked for each time, up to
    all that a node has; tasks that ran out of that are refused. What was raised stays raised.

    `classes`: those to be submitted. `earlier`, `states`: submissions, oldest first, and their
    tasks. `auto`: whether to ask for no more than what tasks have used so far requires.
    """
    said = []
    for name in classes:
        resources = profile.resources(name)
        usual, (had, is_raised, is_short) = (
            asked(resources),
            _before(profile, name, earlier, states),
        )
        own = [one for one in earlier if one.cluster == profile.name]
        most = used(own, name) if auto else 0.0
        nodes = _of_node(resources, cluster)
        wanted = raised = min(had, nodes) if is_raised else 0.0
        tasks = f"{name.upper()} tasks"
        if is_short and usual <= had:
            wanted = min(max(_MORE * had, enough(most)), nodes) if had else 0.0
            if had >= nodes:
                raise _too_small(profile, name, had, nodes, cluster, paths)
            limit = f" with {in_words(had)}" if had else ""
            so = f"these ask for {in_words(wanted)}" if had else "ask for more: --memory SIZE"
            said.append(f"{tasks} ran out of memory{limit}: {so}.")
        elif auto and most and not resources.whole_node:
            wanted = max(raised, min(enough(most), nodes))
            told = f"used {in_words(most)} at most: these ask for {in_words(wanted)}"
            said.append(f"{tasks} {told}.")
        elif raised:
            less = f", not for the profile's {in_words(usual)}" if usual else ""
            said.append(f"{tasks} ask for {in_words(raised)}, as those before{less}.")
        if wanted and wanted != usual:
            changed = profile.with_memory(f"{math.ceil(wanted / 2**20)}M").resources(name)
            profile = (
                replace(profile, cpu=changed) if name == "cpu" else replace(profile, gpu=changed)
            )
    return profile, said


def _of_node(resources: Resources, cluster: Cluster) -> float:
    """Return the bytes of the largest node that tasks may run on; infinite if not known."""
    parts = [] if "partition" in resources.extra else cluster.asked(resources.options)
    sizes = [max(part.memory_mb, part.most_memory_mb) for part in parts]
    # 1 is what SLURM says where no memory is configured
    return max(sizes) * 2.0**20 if sizes and min(sizes) > 1 else math.inf


def _too_small(
    profile: Profile, name: str, had: float, node: float, cluster: Cluster, paths: SweepPaths
) -> UserError:
    """Say that no node has more than tasks ran out of, and what else may help."""
    parts = cluster.asked(profile.resources(name).options)
    larger = [p.name for p in cluster.partitions if p.is_up and p.most_memory_mb * 2**20 > had]
    another = f"a partition with larger nodes ({', '.join(larger)}); or " if larger else ""
    return UserError(
        f"tasks ran out of memory with {in_words(had)}, and no node of "
        f"{', '.join(part.name for part in parts)} has more than {in_words(node)}",
        file=profile.path,
        key=name,
        remedy=f"name {another}"
        * bool(another)
        + f"write fewer cpus-per-task, so that fewer runs share it, then: "
        f"{training(paths, 'resume', '--memory', in_words(min(had, node)))}",
    )


def _before(
    profile: Profile,
    name: str,
    earlier: Sequence[Submission],
    states: Sequence[Sequence[TaskState]],
) -> tuple[float, bool, bool]:
    """Return what the last tasks of a resource class on a cluster asked for; see `sized`.

    Also whether it was raised above the profile's, and whether it was too little. Another profile
    may ask for more as it is, unless tasks ran out of what this one asks for.
    """
    listed = [
        (one, tasks) for one, tasks in zip(earlier, states, strict=True) if tasks_in(one, name)
    ]
    if not listed:
        return 0.0, False, False
    last, usual = listed[-1][0], asked(profile.resources(name))
    had = last.intent.memory.get(name, 0.0)
    exceeded = [
        one.intent.memory.get(name, 0.0) for one, tasks in listed if name in ran_out(one, tasks)
    ]
    is_needed = last.cluster == profile.name or max(exceeded, default=-1.0) >= usual
    return had, had > usual and is_needed, name in ran_out(*listed[-1])


def in_words(n_bytes: float) -> str:
    """Return an amount as SLURM's options take it and `squeue` shows it: ``2G``, ``1536M``."""
    megabytes = math.ceil(n_bytes / 2**20)
    return f"{megabytes}M" if megabytes % 1024 or not megabytes else f"{megabytes // 1024}G"
