"""What a scheduler is: one record of four functions. SLURM is one, a profile's commands another.

A job of a profile's commands runs this module: a task's function, with plain strings from a file.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from manyseed.slurm import ClusterError, ClusterUnavailable, Refused, commands, states
from manyseed.slurm.commands import NO_CLUSTER
from manyseed.slurm.processes import CHECKPOINT, JOB_NAME
from manyseed.slurm.profile import Profile, Resources, Template, filled
from manyseed.slurm.states import JobState

if TYPE_CHECKING:
    from manyseed.slurm.arrays import Tasks
    from manyseed.slurm.discover import Cluster

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*", re.ASCII)
_UNITS = {"K": 2**-10, "": 1, "M": 1, "G": 2**10, "T": 2**20}
_MANY = 10**9


@dataclass(frozen=True, slots=True)
class BatchSystem:
    """One scheduler, as all that submits to it sees it.

    Each function raises `ClusterUnavailable` if the scheduler does not answer, and `ClusterError`
    with its own words if it refuses. Ids of jobs are ``<array>_<element>``, from 0.
    """

    name: str  # in messages
    program: str
    """The command without which jobs are those of another machine."""
    submit: Callable[[Profile, str, Path, Tasks, Callable[[list[str]], None]], list[str]]
    """Submit an array; as `arrays.submit_array`."""
    states: Callable[..., dict[str, JobState]]
    """Return the states of jobs: called with their ids, the time since when, the names of lost
    arrays with the folders of their files, the users, and whether to look unlisted jobs up."""
    cancel: Callable[[Iterable[str]], None]
    """End jobs; those that have ended are no error."""
    limits: Callable[[], Cluster]
    """Return how many jobs it takes, and in arrays of which size."""


def system_of(reached: Path | Template | None) -> BatchSystem:
    """Return the scheduler that a profile reaches (`Profile.reached`)."""
    if not isinstance(reached, Template):
        return BatchSystem("SLURM", "sbatch", _slurm_submit, _slurm_states, _slurm_cancel, _limits)
    return BatchSystem(
        "the scheduler",
        _program(reached.states),
        partial(_submit, reached),
        partial(_states, reached),
        partial(_cancel, reached),
        partial(_given_limits, reached),
    )


def _slurm_submit(*given: Any) -> list[str]:
    from manyseed.slurm.arrays import submit_array  # imports submitit

    return submit_array(*given)


def _slurm_states(
    jobs: Collection[str], since: float, lost: Mapping[str, Path], users: set[str], certain: bool
) -> dict[str, JobState]:
    return states.ask(jobs, since, names={*lost}, users=users, certain=certain)


def _slurm_cancel(jobs: Iterable[str]) -> None:
    commands.cancel(jobs)


def _limits() -> Cluster:
    from manyseed.slurm import discover

    return discover.discover()


def _submit(
    template: Template,
    profile: Profile,
    resource_class: str,
    folder: Path,
    tasks: Tasks,
    submitted: Callable[[list[str]], None],
) -> list[str]:
    """Submit tasks as `arrays.submit_array` does, by the profile's command.

    What the command prints goes straight into a file, in which `_states` finds the id if the
    submitter dies before it knows it.
    """
    from manyseed.slurm.arrays import cut, require

    resources = require(profile, resource_class, folder, tasks.signal_seconds)
    if tasks.after or tasks.needs:
        raise Refused("submit", resources.submit, "its jobs cannot wait for others")
    folder.mkdir(parents=True, exist_ok=True)
    seconds, ids = resources.minutes * 60, list[str]()
    for chunk in cut(len(tasks.arguments), template.max_array):
        stem = folder.resolve() / f"{tasks.name}.{chunk.start}"
        files = [stem.with_name(f"{stem.name}.{kind}") for kind in ("json", "sh", "printed")]
        call, script, printed = files
        each = [[*arguments] for arguments in tasks.arguments[chunk.start : chunk.stop]]
        left = seconds - tasks.signal_seconds
        call.write_text(json.dumps({"function": tasks.function, "left": left, "arguments": each}))
        script.touch(0o600)  # lines of the profile may hold secrets
        script.write_text(
            "\n".join(_script(template, resources, stem, tasks.environment, len(each))) + "\n"
        )
        values = {
            "script": shlex.quote(str(script)),
            "name": stem.name,
            "folder": shlex.quote(str(stem.parent)),
            "last": len(each) - 1,
            "count": len(each),
            "minutes": resources.minutes,
            "seconds": seconds,
            "cores": resources.cores,
            "megabytes": _megabytes(resources.options.get("mem", "0")),
            "gpus": resources.options.get("gpus", "0"),
            "parallelism": tasks.parallelism or resources.parallelism,
        }
        text = f"{{ {filled(resources.submit, values)}\n}} >{shlex.quote(str(printed))}"
        try:
            _run(text, resources.submit)
            if (array := _printed_id(template, printed)) is None:
                said = printed.read_text(errors="replace").strip()
                raise ClusterError(f"submitted finds no job id in what was printed: {said!r}")
        except ClusterUnavailable:
            raise  # the scheduler may have received the array nevertheless
        except ClusterError:
            for file in files:
                file.unlink(missing_ok=True)
            raise
        jobs = [f"{array}_{element}" for element in range(len(each))]
        submitted(jobs)
        ids += jobs
    return ids


def _script(
    template: Template,
    resources: Resources,
    stem: Path,
    environment: Mapping[str, str],
    count: int,
) -> Iterator[str]:
    from manyseed.slurm.arrays import setup

    name, _, first = stem.name.rpartition(".")
    yield "#!/bin/bash"
    if template.index:
        yield f"element=$((${{{template.index}:?}} - {template.base}))"
    else:
        yield "element=0"
    yield f'[ "$element" -lt {count} ] || exit 0'  # where a scheduler takes no array of one
    yield f"export {JOB_NAME}={name}.$(({first} + element))"
    log = f'{shlex.quote(str(stem.parent))}/"${JOB_NAME}"_0_log'
    yield f"exec >>{log}.out 2>>{log}.err </dev/null"
    yield from setup(resources, environment)
    python = resources.python or shlex.quote(sys.executable)
    words = [*filter(None, [resources.container]), python, "-P -m manyseed.slurm.batch"]
    # the signals of the scheduler must reach the task
    yield f'exec {" ".join(words)} {shlex.quote(f"{stem}.json")} "$element"'


def _states(
    template: Template,
    jobs: Collection[str],
    since: float,
    lost: Mapping[str, Path],
    users: set[str],
    certain: bool,
) -> dict[str, JobState]:
    names = dict.fromkeys(jobs, "")
    for name, folder in lost.items():
        for printed in folder.glob(f"{name}.*.printed"):
            if (array := _printed_id(template, printed)) is not None:
                n = _count(printed.with_suffix(".json"), array)
                names |= {f"{array}_{element}": printed.stem for element in range(n)}
    listed = _listed(template, {job.partition("_")[0] for job in names})

    def raw(job: str) -> str | None:
        return listed.get(job, listed.get(job.partition("_")[0]))

    if certain and filled(template.states, {"jobs": ""}) != template.states:
        for array in sorted({job.partition("_")[0] for job in names if raw(job) is None}):
            listed |= _listed(template, {array})
    return {job: JobState(job, name, *_word(template, raw(job))) for job, name in names.items()}


def _count(call: Path, array: str) -> int:
    """Return how many elements an array has, by the file that they read."""
    try:
        return len(json.loads(call.read_text())["arguments"])
    except (OSError, ValueError, KeyError, TypeError):
        remedy = f"restore it, or cancel job {array}, then remove the file .printed beside it"
        raise ClusterError(f"{call} is damaged or lost: {remedy}") from None


def _listed(template: Template, arrays: Collection[str]) -> dict[str, str]:
    """Return the scheduler's words for jobs; an array's own id stands for its unlisted elements."""
    found: dict[str, str] = {}
    if not arrays:
        return found
    text = filled(template.states, {"jobs": " ".join(sorted(arrays))})
    try:
        printed = _run(text, template.states)
    except ClusterUnavailable:
        raise
    except ClusterError as error:
        if not _is_unknown(template, error):  # an empty list would say that all have ended
            raise ClusterUnavailable(f"the scheduler does not answer: {error}") from None
        printed = error.printed
    for line in printed.splitlines():
        if (match := re.search(template.line, line)) is None:
            continue
        groups = match.groupdict()
        array, index, word = groups["job"], groups.get("index") or "", groups.get("state") or ""
        if array not in arrays:
            continue
        is_whole = template.max_array > 1 and not index
        numbers, is_cut = states.elements(index) if index else ([template.base], False)
        if is_whole or is_cut:
            found[array] = word
        if not is_whole:
            found |= {f"{array}_{number - template.base}": word for number in numbers}
    return found


def _word(template: Template, raw: str | None) -> tuple[str, str]:
    """Return our word for a state and the scheduler's: what is listed in any other state runs."""
    if raw is None:
        return "gone", ""
    kinds = {**dict.fromkeys(template.waiting, "pending"), **dict.fromkeys(template.ended, "ended")}
    return kinds.get(raw, "running"), raw


def _cancel(template: Template, jobs: Iterable[str]) -> None:
    for job in jobs:
        array, _, element = job.partition("_")
        values = {"job": array, "index": int(element) + template.base}
        try:
            _run(filled(template.cancel, values), template.cancel)
        except ClusterUnavailable:
            raise
        except ClusterError as error:
            if not _is_unknown(template, error):
                raise


def _given_limits(template: Template) -> Cluster:
    from manyseed.slurm.discover import Cluster, Limits

    return Cluster(NO_CLUSTER, "", template.max_array, _MANY, Limits(), False, ())


def _run(text: str, command: str) -> str:
    return commands.run(["bash", "-o", "pipefail", "-c", text], _program(command))


def _program(command: str) -> str:
    """Return the first word of a command that is no assignment to a variable."""
    return next((word for word in command.split() if "=" not in word), "bash")


def _is_unknown(template: Template, error: ClusterError) -> bool:
    """Whether a command failed only because it was asked for jobs that have ended."""
    lines = [line for line in error.said.splitlines() if line.strip()]
    is_told = bool(template.unknown) and bool(lines)
    return is_told and all(re.search(template.unknown, line) for line in lines)


def _printed_id(template: Template, printed: Path) -> str | None:
    """Return the job id in what the submitting command printed."""
    try:
        text = printed.read_text(errors="replace")
    except OSError:
        return None
    match = re.search(template.submitted, text, re.MULTILINE)
    return match[1] if match and _ID.fullmatch(match[1] or "") else None


def _megabytes(memory: str) -> int:
    found = re.match(r"(\d+)([KMGT]?)", memory.upper(), re.ASCII)
    return round(int(found[1]) * _UNITS[found[2]]) if found else 0


def _run_element(arguments: Sequence[str]) -> None:
    """Call a task's function in its job, and ask it to end before the walltime does."""
    file, element = arguments
    call = json.loads(Path(file).read_text())
    given = call["arguments"][int(element)]
    print(f"job {os.environ[JOB_NAME]} starts {call['function']} {' '.join(given)}", flush=True)
    clock = Timer(call["left"], os.kill, (os.getpid(), CHECKPOINT))
    clock.daemon = True
    clock.start()
    module, _, name = call["function"].partition(":")
    getattr(importlib.import_module(module), name)(*given)


if __name__ == "__main__":
    _run_element(sys.argv[1:])
