"""States of submitted jobs: from squeue if they wait or run, from sacct if they ended.

Takes one call of squeue and at most one of sacct for any number of jobs. Without accounting, a job
that the controller has forgotten is `gone`: it ended, but nobody knows how.

Reading what SLURM prints never fails: SLURM cuts long texts, sites add lines, versions differ. What
cannot be read is named once per process on standard error, and left out.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from manyseed.slurm import commands
from manyseed.slurm.commands import ClusterError, ClusterUnavailable

CUT = "..."  # ends a list that SLURM has cut

_SPAN = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)
_NUMBER = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([KMGT]?)\+?", re.ASCII)
_ELEMENT = re.compile(r"[^_]+_(\d{1,18})", re.ASCII)
_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MOST_ELEMENTS = 10_000_000
_named: set[str] = set()


def unreadable(what: str, text: str) -> None:
    """Say once per process that a text of SLURM's was not understood."""
    _say_once(text, f"SLURM says {text!r} for {what}, which is not understood.")


def _say_once(key: str, sentence: str) -> None:
    if key not in _named:
        _named.add(key)
        print(sentence, file=sys.stderr, flush=True)  # no warning: Python may make it an error


def number(text: str, what: str) -> int | None:
    """Return a count such as ``48``, ``2K`` (2,048) or ``16000+`` (at least); None for others."""
    found = _number(text)
    if found is None:
        unreadable(what, text)
    return found


def _number(text: str) -> int | None:
    match = _NUMBER.fullmatch(text.strip())
    return None if match is None else round(float(match[1]) * _FACTORS[match[2]])


def elements(text: str) -> tuple[list[int], bool]:
    """Return the numbers of a list such as ``0,2,4-7,10-18:4%2``, and whether SLURM has cut it.

    Spans may have a step; ``%`` precedes the number of elements that may run at once. A cut list
    ends with `CUT`, and the number before it may be cut, too, so it is left out.
    """
    spans = text.partition("%")[0].split(",")
    is_cut = any(CUT in span for span in spans)
    found: list[int] = []
    for span in spans:
        match = _SPAN.fullmatch(span)
        if match is None:
            if CUT not in span:
                unreadable("the elements of an array", text)
            continue
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if step < 1 or high - low > _MOST_ELEMENTS:
            unreadable("the elements of an array", text)
            continue
        found += range(low, high + 1, step)
    return found, is_cut


def n_gpus(gres: str) -> int:
    """Return the number of GPUs of a node: 6 for ``gpu:a100:4(S:0-1),gpu:a40:2``, 1 for ``gpu``."""
    total = 0
    for kind in re.sub(r"\(.*?\)", "", gres).split(","):
        name, *more = kind.strip().split(":")
        if name == "gpu":
            count = _number(more[-1]) if more else None
            total += 1 if count is None else count
    return total


_WORDS = {
    "pending": "PENDING REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD EXPEDITING",
    # REVOKED: it was started on another cluster of the federation
    "running": "RUNNING CONFIGURING COMPLETING STAGE_OUT SUSPENDED STOPPED SIGNALING RESIZING "
    "POWER_UP_NODE UPDATE_DB REVOKED",
    "ended": "COMPLETED",
    "failed": "FAILED BOOT_FAIL LAUNCH_FAILED RECONFIG_FAIL",
    "cancelled": "CANCELLED",
    "timeout": "TIMEOUT DEADLINE",
    "out_of_memory": "OUT_OF_MEMORY",
    "node_fail": "NODE_FAIL",
    "preempted": "PREEMPTED",
}
WORDS = {raw: word for word, raws in _WORDS.items() for raw in raws.split()}
"""Our state for each of SLURM's."""

_ALIVE = ("pending", "running")
_HELD = ("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_HELD_FOR = re.compile(r"held|jobhold", re.IGNORECASE)  # JobHeldUser, launch_failed_requeued_held
_KILLED_FOR_MEMORY = re.compile(r"exceeded memory limit|oom[-_ ]kill", re.IGNORECASE)
_SQUEUE = "%F|%K|%T|%r|%N|%S|%j"
_SACCT = "JobID,State,ExitCode,Reason,NodeList,Start,End,JobName"
_UNKNOWN = ("Unknown", "None", "N/A", "(null)", "None assigned")
_TAIL_BYTES = 4096


_NEVER = {
    "PartitionTimeLimit": "time",
    "QOSMaxWallDurationPerJobLimit": "time",
    "AssocMaxWallDurationPerJobLimit": "time",
    "MaxCpuPerJob": "cpus-per-task",
    "QOSMaxCpuPerJobLimit": "cpus-per-task",
    "AssocMaxCpuPerJobLimit": "cpus-per-task",
    "QOSMaxMemoryPerJob": "mem",
    "AssocMaxMemPerJob": "mem",
    "QOSMaxGRESPerJob": "gres",
    "AssocMaxGRESPerJob": "gres",
    "PartitionConfig": "cpus-per-task, mem or time",
    "PartitionNodeLimit": "nodes",
    "BadConstraints": "constraint",
    "AccountNotAllowed": "account",
    "InvalidAccount": "account",
    "InvalidQOS": "qos",
    "QOSNotAllowed": "qos",
}
"""Reasons for which a job waits until its request, or the cluster, is changed."""


def to_start(reason: str) -> str:
    """Return what to change in a profile where a job waits for ever for a reason, else nothing."""
    if (keys := _NEVER.get(reason)) is None:
        return ""
    lower = ("time", "cpus-per-task", "mem", "gres", "nodes")
    return f"{'lower' if keys.startswith(lower) else 'change'} {keys}"


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of one job, as reported by SLURM.

    `state` is pending, running, ended, failed, cancelled, timeout, out_of_memory, node_fail,
    preempted, or gone (no longer known); `raw` is SLURM's own word; `exit_code` is like ``1:0``
    (code and signal); `started` and `ended` are ISO times. Unknown values are empty.
    """

    job_id: str
    name: str
    state: str
    raw: str = ""
    reason: str = ""
    exit_code: str = ""
    node: str = ""
    started: str = ""
    ended: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the job waits or runs."""
        return self.state in _ALIVE

    @property
    def is_held(self) -> bool:
        """Whether it waits until somebody releases it."""
        is_marked = self.raw in _HELD or _HELD_FOR.search(self.reason) is not None
        return self.state == "pending" and is_marked

    @property
    def exit_status(self) -> str:
        """Its exit code, or the signal that ended it, in words; empty if it is 0 or unknown."""
        code, _, number = self.exit_code.partition(":")
        if code.strip("0"):
            return f"exit code {code}"
        return f"signal {number}" if number.strip("0") else ""

    @property
    def submission(self) -> str:
        """The submission's name; empty if unknown."""
        return self.name.rpartition(".")[0]

    @property
    def index(self) -> int | None:
        """The task's position in its submission (`arrays.submit_array`); None for other jobs."""
        first, element = self.name.rpartition(".")[2], _ELEMENT.fullmatch(self.job_id)
        return int(first) + int(element[1]) if element and first.isdecimal() else None


def ask(
    job_ids: Iterable[str],
    since: float,
    logs: Path | None = None,
    *,
    names: Collection[str] = (),
    users: Collection[str] = (),
    certain: bool = False,
) -> dict[str, JobState]:
    """Return the states of jobs by job id.

    `job_ids`: job ids from `arrays.submit_array`. `since`: when the first of them was submitted, in
    seconds since the epoch. `logs`: the submission's folder, whose logs show kills for memory that
    SLURM does not report. `names`: names of submissions whose jobs are included too, in case the
    submitter died between sbatch and recording the job ids. `users`: who submitted all of these;
    required with `names`. `certain`: look up each array with jobs that are listed nowhere by its
    id: before runs are submitted again, for which such jobs would be gone.
    """
    wanted = set(job_ids)
    if not wanted and not names:
        return {}
    if names:
        states = _states(["-a", "-u", ",".join(sorted(users))], None, since)
    else:
        arrays = ",".join(sorted({job.partition("_")[0] for job in wanted}))
        states = _states(["-a", "-j", arrays], wanted, since)
    if certain:
        states = _looked_up(wanted - states.keys()) | states
    for job in wanted - states.keys():
        states[job] = _unlisted(job, states)
    return {
        job: named_for_memory(state, logs)
        for job, state in states.items()
        if job in wanted or (state.submission in names and state.index is not None)
    }


def _looked_up(jobs: Collection[str]) -> dict[str, JobState]:
    """Return the states of jobs that the controller still knows, array by array."""
    states: dict[str, JobState] = {}
    for array in sorted({job.partition("_")[0] for job in jobs}):
        for line in _unless_forgotten(["scontrol", "-o", "show", "job", array]).splitlines():
            words = [word.split("=", 1) for word in line.split() if "=" in word]
            shown = dict(reversed(words))  # what a comment or a path holds comes later
            numbers = shown.get("ArrayTaskId", "")
            if shown.get("ArrayJobId") != array or not numbers:
                continue
            known = (_known(shown.get("Reason", "")), "", _known(shown.get("NodeList", "")))
            for job in expand(f"{array}_[{numbers}]"):
                raw = shown.get("JobState", "")
                states[job] = JobState(job, shown.get("JobName", ""), *_word(raw), *known)
    return states


def _unlisted(job: str, states: Mapping[str, JobState]) -> JobState:
    """Return the state of a job without its own line.

    Elements that never started share a line: one that names none of them if their array was
    cancelled, or whose list SLURM has cut.
    """
    rest = states.get(job.partition("_")[0])
    if rest is not None and (rest.state == "cancelled" or rest.is_alive):
        return replace(rest, job_id=job)
    return JobState(job, "", "gone")


def _states(which: list[str], wanted: set[str] | None, since: float) -> dict[str, JobState]:
    queued = _squeue(which)
    known = queued.keys() if wanted is None else queued.keys() & wanted
    if wanted is not None and wanted == known and all(queued[job].is_alive for job in known):
        return queued
    states = dict(queued)
    for job, accounted in _sacct(which, since).items():
        seen = queued.get(job)
        if accounted.is_alive:  # accounting is late, or was never told of the end
            states.setdefault(job, replace(accounted, state="gone"))
        elif seen is None or not seen.is_alive:  # a job lost with a node waits for another attempt
            states[job] = accounted
    return states


def _squeue(which: list[str]) -> dict[str, JobState]:
    printed = _unless_forgotten(["squeue", "-h", "-r", "-t", "all", *which, "-o", _SQUEUE])
    states: dict[str, JobState] = {}
    for array, index, raw, reason, node, started, name in fields(printed, 7):
        # no index: the rest of a cancelled array, or a job that is not ours
        is_listed = index[:1].isdecimal()  # some versions list elements that wait together
        for job in (expand(f"{array}_[{index}]") if is_listed else []) or [array]:
            if raw == "REVOKED" and job in states:
                continue  # a federation shows it once for each cluster
            times = (_known(started), "")
            states[job] = JobState(job, name, *_word(raw), _known(reason), "", node, *times)
    return states


def _unless_forgotten(command: list[str]) -> str:
    """Return what a command prints of jobs: nothing if the controller has forgotten them."""
    try:
        return commands.run(command)
    except ClusterUnavailable:
        raise
    except ClusterError as error:
        if error.says("invalid job id"):
            return ""
        raise


def _sacct(which: list[str], since: float) -> dict[str, JobState]:
    """Return what accounting knows: nothing if it does not answer, as squeue has answered."""
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - 60))
    try:
        printed = commands.run(["sacct", "-X", "-n", "-P", "-S", start, *which, "-o", _SACCT])
    except ClusterError as error:
        if not (isinstance(error, ClusterUnavailable) or error.says("disabled")):
            _say_once("sacct", f"Accounting does not answer ({error}): what follows is by squeue.")
        return {}
    states: dict[str, JobState] = {}
    for jobs, raw, code, reason, node, started, ended, name in fields(printed, 8):
        known = (_known(reason), code, _known(node), _known(started), _known(ended))
        for job in expand(jobs):
            states[job] = JobState(job, name, *_word(raw), *known)
    return states


def memory(submissions: Mapping[str, str], since: float) -> dict[str, int]:
    """Return the most bytes that accounting counted in a step of each job; nothing if it is silent.

    `submissions`: the name of each job's submission, by job id. `since`: as in `ask`.
    """
    arrays = ",".join(sorted({job.partition("_")[0] for job in submissions}))
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - 60))
    words = ["sacct", "-D", "-n", "-P", "-S", start, "-a", "-j", arrays, "-o"]
    try:
        printed = commands.run([*words, "JobID,JobName,MaxRSS"]) if arrays else ""
    except ClusterError:
        return {}
    lines = [*fields(printed, 3)]
    ours = {job for job, name, _ in lines if submissions.get(job) == name.rpartition(".")[0]}
    most: dict[str, int] = {}
    for step, _, text in lines:
        job = step.partition(".")[0]
        if job in ours and (n_bytes := _number(text)):
            most[job] = max(n_bytes, most.get(job, 0))
    return most


def _word(raw: str) -> tuple[str, str]:
    """Return our word and SLURM's for a state: ``CANCELLED by 1000``, ``OUT_OF_ME+``, nothing.

    With flags, as in ``FAILED,COMPLETING``, a job is alive while one says so. One in a state that
    nobody knows counts as alive: it may still write.
    """
    shown = raw.split()[0] if raw.split() else ""
    if (parts := shown.split(","))[0] in WORDS and {*parts} <= WORDS.keys():
        flags = {WORDS[part]: part for part in reversed(parts)}
        word = next((word for word in _ALIVE[::-1] if word in flags), WORDS[parts[0]])
        return word, flags[word]
    if shown.endswith("+"):  # cut to the width of its column
        words = {word for whole, word in WORDS.items() if whole.startswith(shown[:-1])}
        if len(words) == 1:
            return words.pop(), shown
    unreadable("the state of a job", raw)
    return "running", shown


def expand(job_id: str) -> list[str]:
    """Return the job ids of a line: ``7_[0-2,5%4]`` → ``7_0``, ``7_1``, ``7_2``, ``7_5``.

    Array elements that never started share a line. If SLURM has cut the list, the array's own id is
    the last: it stands for the elements that have no line.
    """
    array, bracket, spans = job_id.partition("_[")
    if not bracket:
        return [job_id]
    found, is_cut = elements(spans.partition("]")[0])
    return [f"{array}_{index}" for index in found] + [array] * is_cut


def _known(text: str) -> str:
    return "" if text in _UNKNOWN else text


def fields(printed: str, n: int) -> Iterator[list[str]]:
    """Yield the fields of lines with n of them; a site's additional lines have fewer."""
    for line in printed.splitlines():
        found = [field.strip() for field in line.split("|", n - 1)]
        if len(found) == n:
            yield found


def named_for_memory(state: JobState, logs: Path | None) -> JobState:
    """Change a state to `out_of_memory` if the job's log shows that it was killed for memory."""
    if state.state not in ("failed", "gone", "cancelled") or logs is None:
        return state
    log = logs / f"{state.job_id}_0_log.err"
    if not log.is_file():  # a pipe would block
        return state
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            tail = file.read().decode(errors="replace")
    except OSError:
        return state
    return replace(state, state="out_of_memory") if _KILLED_FOR_MEMORY.search(tail) else state
