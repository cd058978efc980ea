"""Check whether a cluster can train: query it, then run a tiny job that reports what works."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from manyseed.orchestrator.disk.placing import read_end
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import command
from manyseed.orchestrator.submissions.possible import require_possible
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.working.node import Node
from manyseed.slurm import (
    ClusterError,
    ClusterUnavailable,
    Refused,
    arrays,
    commands,
    discover,
    states,
)
from manyseed.slurm.profile import Profile, Resources

_MODULES = (
    "manyseed.orchestrator.working.worker",
    "manyseed.orchestrator.working.process",
    "numpy",
    "sklearn",
    "torch",
    "xgboost",
)
_FUNCTION = "manyseed.orchestrator.submissions.nodecheck:report"
_ASK_SECONDS = 2.0
_SIGNAL_SECONDS = 30
_UNSTARTED = "it never started Python"
_CPU_TORCH = "not compiled with CUDA"
_MARK = "manyseed: a line of setup failed with exit code"
_FAILED = re.compile(rf"{_MARK} (\d+): (.*)")
_SCRIPT = re.compile(r"^\S*slurm_script: line \d+: ")


@dataclass(frozen=True)
class CheckResult:
    """One thing that was checked; `problem` is empty if it works."""

    what: str
    answer: str
    problem: str = ""
    needed: bool = True  # by every sweep


@dataclass(frozen=True, slots=True)
class Seen:
    """What a job found on its node: import errors by module, other errors (empty if none)."""

    node: str
    cores: int
    gpus: int
    imports: dict[str, str]
    gpu_error: str
    submission_error: str
    requeued: bool = False


def check(
    profile: Profile, folder: Path, seconds: float, waiting: Callable[[str], None]
) -> list[CheckResult]:
    """Check a cluster, with one job for each resource class.

    `folder`: a folder that the nodes share; the jobs' files lie in a temporary folder in it.
    `seconds`: longest time to wait for each job. `waiting`: called with a text that says what is
    being waited for.
    """
    scheduler = scheduler_of(profile.reached)
    remedy = f"try it with: {command('submit', 'DIR', '--cluster', profile.path, '--limit', 10)}"
    scheduler.require_slurm("NAME", "a cluster is checked by its answers", remedy)
    with scheduler.active():
        cluster = discover.discover()
        classes = [each for each in (profile.cpu, profile.gpu) if each is not None]
        findings = [
            CheckResult("cluster", f"{cluster.name}, SLURM {cluster.version}"),
            CheckResult("tasks in an array", f"at most {cluster.max_array_size:,}"),
            CheckResult("accounting", *_accounting(cluster.has_accounting)),
        ]
        require_possible(profile, [each.name for each in classes], cluster)
        for resources in classes:
            findings += _check_node(profile, resources, folder, seconds, waiting)
    return findings


def report(path: str, resource_class: str) -> str:
    """Write to a file what works on this node; run by the job, again if it is requeued."""
    file = Path(path)
    if file.exists():  # the job was requeued
        write_json(file, asdict(replace(read_record(file, Seen), requeued=True)))
        return "finished"
    here = Node.here()
    gpu_error = _gpu_error() if resource_class == "gpu" else ""
    seen = Seen(here.name, here.cores, here.n_gpus, _import_errors(), gpu_error, _may_submit())
    write_json(file, asdict(seen))
    os.kill(os.getpid(), signal.SIGUSR2)  # as SLURM does before the walltime ends
    return arrays.STOPPED


def _check_node(
    profile: Profile,
    resources: Resources,
    parent: Path,
    seconds: float,
    waiting: Callable[[str], None],
) -> Iterator[CheckResult]:
    """Submit the job and yield what it shows; cancel it if it takes too long."""
    from manyseed.orchestrator.submissions.cluster import passing, submit_jobs

    what, name = f"{resources.name} job", f"manyseed-check-{uuid.uuid4().hex[:8]}"
    folder = parent.resolve() / f".{name}"
    file = folder / "report.json"
    with passing(profile, resources.name, folder, name) as submission:
        arguments = [[str(file), resources.name]]
        try:
            arrays.require(profile, resources.name, folder, _SIGNAL_SECONDS)
            watched = _watching(resources)
            if resources.name == "cpu":
                noting = replace(profile, cpu=watched)
            else:
                noting = replace(profile, gpu=watched)
            given = (_FUNCTION, lambda _: arguments)
            submit_jobs(submission, noting, *given, signal_seconds=_SIGNAL_SECONDS)
        except ClusterUnavailable:
            raise
        except (ClusterError, Refused) as error:
            remedy = f"change [{resources.name}] of the profile, then check again"
            yield CheckResult(what, "refused", f"{error}\n{remedy}")
            return
        started = time.time()
        (job,) = submission.noted_jobs().values()
        state = states.JobState(job.id, name, "pending")
        while state.is_alive and (passed := time.time() - started) < seconds:
            waiting(f"{what}: {job.id} is {state.state} {state.reason}, {passed:.0f} s")
            time.sleep(_ASK_SECONDS)
            state = scheduler_of(profile.reached).states([job], fresh=True)[job.id]
        seen = read_record(file, Seen) if file.exists() else None
        log = _printed(submission.files.printed_errors(job.id))
        yield from _findings(what, state, seen, resources, log)


def _findings(
    what: str, state: states.JobState, seen: Seen | None, resources: Resources, log: str
) -> Iterator[CheckResult]:
    if seen is None:
        seen_state = f"{state.state} {state.reason}".strip()
        if state.state == "pending":
            remedy = "increase --wait, or see squeue"
            if change := states.to_start(state.reason):
                remedy = f"{change} in [{resources.name}] of the profile"
            yield CheckResult(what, seen_state, f"it did not start in time: {remedy}")
        else:
            remedy = "see modules, setup and python of the profile"
            last = [line for line in log.splitlines() if line and not _FAILED.match(line)]
            ends = "; its log ends:\n" + "\n".join(last[-8:]) if last else "; it printed nothing"
            status = f" ({state.exit_status})" if state.exit_status else ""
            yield CheckResult(what, f"{seen_state}{status}", f"{_UNSTARTED}: {remedy}{ends}")
            yield from _setup_failures(log)
        return
    gpus = {0: "", 1: " and a GPU"}.get(seen.gpus, f" and {seen.gpus} GPUs")
    given = f"{seen.cores} cores{gpus}"
    yield CheckResult(what, f"ran on {seen.node} with {given}")
    yield from _setup_failures(log)
    for module, error in seen.imports.items():
        yield CheckResult(f"import {module}", "failed", f"{error}; see modules, setup, python")
    if not seen.imports:
        yield CheckResult("imports", "work")
    if resources.name == "gpu":
        problem = f"{seen.gpu_error}\n{_remedy_of_gpu(seen)}" if seen.gpu_error else ""
        needed = _CPU_TORCH not in seen.gpu_error  # `cluster init` writes [gpu] unasked
        told = problem if needed else f"{problem}\nonly runs on GPUs need it"
        yield CheckResult("GPU", "failed" if seen.gpu_error else "works", told, needed)
    yield CheckResult("submits from a job", "no" if seen.submission_error else "yes")
    yield CheckResult(
        "requeues",
        "yes" if seen.requeued else "not seen",
        "" if seen.requeued else f"{state.state}: tasks cut by their walltime need manyseed resume",
    )


def _remedy_of_gpu(seen: Seen) -> str:
    """Return what to do where PyTorch cannot use a GPU."""
    if _CPU_TORCH in seen.gpu_error:
        return (
            "the profile's python has a PyTorch for CPUs: install one with CUDA there "
            "(https://pytorch.org/get-started), or name another environment with setup or python"
        )
    if not seen.gpus:
        return 'SLURM gave the job no GPU: see gres of [gpu] in the profile, such as "gpu:1"'
    return "the driver of the node may be older than this PyTorch needs: see nvidia-smi there"


def _accounting(has_accounting: bool) -> tuple[str, str]:
    if not has_accounting:
        return "none: how a job ended is known only for a few minutes", ""
    try:
        commands.run(["sacct", "-X", "-n", "-S", "now"])
    except ClusterError as error:
        return "does not answer", (
            f"{error}\nhow a job ended is then known only for a few minutes; the cluster's "
            "administrators can start slurmdbd"
        )
    return "answers", ""


def _import_errors() -> dict[str, str]:
    errors = {}
    for module in _MODULES:
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken library may raise anything
            errors[module] = f"{type(error).__name__}: {error}"
    return errors


def _gpu_error() -> str:
    import torch

    try:
        torch.zeros(1, device="cuda")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _may_submit() -> str:
    """Return why a job like this one could not submit another; nothing is submitted."""
    try:
        commands.run(["sbatch", "--test-only", "--wrap", "true"])
    except ClusterError as error:
        return str(error)
    return ""


def _watching(resources: Resources) -> Resources:
    """Return resources whose jobs note which lines of setup and setup-file fail, and go on."""
    if not (resources.setup or resources.setup_file):
        return resources
    ours = f'[ "$file" = "$0" ] || [ "$file" = {shlex.quote(resources.setup_file or "")} ]'
    # a function that fails has set BASH_COMMAND to its last command
    trap = (
        f'code=$?; file="${{BASH_SOURCE[0]}}"; if {ours}; then '
        f'printf "\\n{_MARK} %s: %s\\n" "$code" "$(sed -n "${{LINENO}}p" "$file")" >&2; fi'
    )
    lines = arrays.setup(replace(resources, modules=()), {})
    setup = (f"trap {shlex.quote(trap)} ERR", *lines, "trap - ERR")
    return replace(resources, setup_file=None, setup=setup)


def _setup_failures(log: str) -> Iterator[CheckResult]:
    """Yield the lines of the profile's setup that failed, each once, with what was printed."""
    before, told = "", set()
    for line in log.splitlines():
        if not (found := _FAILED.fullmatch(line)):
            before = line.strip() or before
            continue
        code, failed = found[1], found[2].strip()
        if failed not in told:
            told.add(failed)
            why = _SCRIPT.sub("", before) or f"exit code {code}"
            yield CheckResult("setup", "a line failed", f"{failed}\n{why}")
        before = ""


def _printed(log: Path) -> str:
    try:
        return read_end(log, 20_000)
    except FileNotFoundError:
        return "(no log)"
