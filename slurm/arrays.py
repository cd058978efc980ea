"""Submitting tasks as SLURM job arrays through submitit; all jobs are submitted here.

A submission has a unique name; each of its arrays is called ``<name>.<first>``, where ``first`` is
the position of its first element in the submission. The controller and accounting always keep job
names, unlike comments, so `states.ask` finds a submission even if its job ids were never recorded.
"""

from __future__ import annotations

import importlib
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import submitit
from submitit.core import utils

from manyseed.slurm import Refused, commands, processes
from manyseed.slurm.commands import ClusterError, ClusterUnavailable
from manyseed.slurm.discover import configuration, max_array_size
from manyseed.slurm.profile import Profile, Resources

STOPPED = "stopped"
"""Returned by a task's function that was asked to end with work left, to be requeued."""

_EXPANDED = re.compile(r"%\d*[AabJjNnstux%]|\\", re.ASCII)
"""What SLURM and submitit replace in names of logs, or what keeps them from it."""

_REQUEUES = 10_000  # effectively unlimited: the function decides, not submitit
_KILL_MARGIN = 0.8


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one submission to one resource class."""

    function: str
    """An importable function of strings, as ``module:name``. It registers with `processes.on_stop`,
    ends soon after it is called back, and returns `STOPPED` if work is left: the job is then
    requeued and the function called again. Any other value ends the job."""
    arguments: Sequence[Sequence[str]]  # the arguments of each task
    name: str  # unique name of the submission; letters, digits, ``-`` and ``_``
    comment: str = ""  # shown by squeue; accounting may not keep it
    parallelism: int | None = None
    """Maximum number of tasks of an array that run at once. Default: the profile's, or all."""
    signal_seconds: int = 120  # minimum time between the signal to end and the walltime
    after: Sequence[str] = ()  # jobs that must have ended, however they did, before these start
    needs: Sequence[str] = ()  # jobs that must have succeeded; if one fails, these never start
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that jobs get, also where they do not get the submitter's environment."""


def submit_array(
    profile: Profile,
    resource_class: str,
    folder: Path,
    tasks: Tasks,
    submitted: Callable[[list[str]], None] = lambda ids: None,
) -> list[str]:
    """Submit tasks to the profile's cluster; return their job ids, ``"123_0"``, in order.

    `resource_class`: ``cpu`` or ``gpu``. `folder`: folder for submitit's files, on a file system
    shared with the nodes. The output of all attempts of a task goes to ``<job id>_0_log.out`` and
    ``.err``. `submitted`: called with the job ids of each array as soon as it is submitted.
    """
    resources = require(profile, resource_class, folder, tasks.signal_seconds)
    executor = _executor(profile, resources, folder, tasks)
    call = Call(tasks.function, tasks.signal_seconds * _KILL_MARGIN)
    name, comment = tasks.name, tasks.comment or tasks.name
    ids: list[str] = []
    with commands.speaking_to(profile.slurm_conf):
        for chunk in cut(len(tasks.arguments), max_array_size(configuration())):
            executor.update_parameters(job_name=f"{name}.{chunk.start}", comment=comment)
            each = tasks.arguments[chunk.start : chunk.stop]
            jobs = executor.map_array(call, *zip(*each, strict=True))
            submitted([job.job_id for job in jobs])
            ids += [job.job_id for job in jobs]
    return ids


def require(profile: Profile, resource_class: str, folder: Path, signal_seconds: int) -> Resources:
    """Return what jobs of a class request; refuse what `submit_array` would refuse."""
    resources = profile.resources(resource_class)
    if resources.minutes * 60 <= signal_seconds:
        allowed = f"more than {signal_seconds} s, when tasks are asked to end before it"
        raise Refused(f"{resource_class}.time", f"{resources.minutes} min", allowed=allowed)
    if resources.setup_file and not Path(resources.setup_file).is_file():
        option = f"{resource_class}.setup-file"
        raise Refused(option, resources.setup_file, "there is no such file")
    if profile.template is None and (found := _EXPANDED.search(str(folder.absolute()))):
        reason = f"SLURM takes {found[0]} in it for something else, so logs would go elsewhere"
        raise Refused("folder", str(folder.absolute()), reason)
    return resources


def cut(n: int, limit: int) -> list[range]:
    """Split n elements into arrays of at most `limit`."""
    return [range(first, min(first + limit, n)) for first in range(0, n, limit)]


class Call:
    """What a job runs: a function given by name, with submitit's checkpoint protocol.

    submitit would checkpoint inside its signal handler, where little is allowed. Here the signal is
    passed on to the function, which finishes in an orderly way, and the checkpoint follows. A
    function that does not end within `seconds` is checkpointed anyway.
    """

    def __init__(self, function: str, seconds: float) -> None:
        self.function, self.seconds = function, seconds

    def __call__(self, *arguments: str) -> Any:
        """Run the function; requeue the job if the scheduler stopped it."""
        requeue: Any = signal.getsignal(processes.CHECKPOINT)  # submitit's handler

        def start_clock() -> None:
            if signal.getitimer(signal.ITIMER_REAL)[0] == 0:  # the first signal counts
                signal.setitimer(signal.ITIMER_REAL, self.seconds)

        def too_late(number: int, frame: FrameType | None) -> None:
            if _still_wanted():
                requeue(number, frame)

        signal.signal(signal.SIGALRM, too_late)
        processes.on_stop(start_clock)
        module, _, name = self.function.partition(":")
        result = getattr(importlib.import_module(module), name)(*arguments)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if result == STOPPED and processes.received() and _still_wanted():
            requeue(processes.CHECKPOINT, None)
        return result

    def checkpoint(self, *arguments: str) -> submitit.helpers.DelayedSubmission:
        """Return the next attempt's call: the same one, as the function keeps its progress."""
        return submitit.helpers.DelayedSubmission(self, *arguments)


class Executor(submitit.SlurmExecutor):
    """submitit's executor, but it always makes arrays, and can submit from within jobs."""

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[submitit.Job[Any]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = self.parameters["job_name"]
        waiting = [self.folder / f"{name}.{i}.pkl" for i in range(len(delayed_submissions))]
        for path, delayed in zip(waiting, delayed_submissions, strict=True):
            delayed.set_timeout(int(self.parameters["time"]), self.max_num_timeout)
            delayed.dump(path)
        self.parameters["map_count"] = len(waiting)
        script = self.folder / f"{name}.sh"
        script.touch(0o600)  # lines of the profile may hold secrets
        script.write_text(self._make_submission_file_text(self._submitit_command_str, ""))
        try:
            array = job_id(commands.run(["sbatch", str(script)]))
        except ClusterUnavailable:
            raise  # the cluster may have received the array nevertheless
        except ClusterError:
            for path in waiting:
                path.unlink()
            raise
        ids = [f"{array}_{index}" for index in range(len(waiting))]
        return [submitit.SlurmJob[Any](folder=self.folder, job_id=job) for job in ids]


def _take_pickle(folder: Path) -> Iterator[str]:
    """Yield script lines with which a job's first attempt moves its pickled call to its job id.

    The job does this itself because its submitter may have died before it knew the job id.
    """
    yield f"waiting={shlex.quote(str(folder))}/$SLURM_JOB_NAME.$SLURM_ARRAY_TASK_ID.pkl"
    job = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
    yield f"taken={shlex.quote(str(folder))}/{job}_submitted.pkl"
    yield '[ -e "$taken" ] || mv "$waiting" "$taken"'


def job_id(printed: str) -> str:
    """Return the job id from the output of sbatch, ignoring a site's additional lines."""
    for line in printed.splitlines():
        words = line.split()
        if words[:3] == ["Submitted", "batch", "job"] and len(words) > 3 and words[3].isdecimal():
            return words[3]
    raise ClusterError(f"sbatch printed no job id: {printed.strip()!r}")


def _executor(profile: Profile, resources: Resources, folder: Path, tasks: Tasks) -> Executor:
    python = f"{resources.python or shlex.quote(sys.executable)} -P"
    container = f"{resources.container} " if resources.container else ""
    options: dict[str, object] = {**resources.options, **resources.extra, "requeue": True}
    kinds = (("afterany", tasks.after), ("afterok", tasks.needs))
    if waited := [f"{kind}:{':'.join(jobs)}" for kind, jobs in kinds if jobs]:
        options["dependency"] = ",".join(waited)
    if tasks.needs:
        options["kill-on-invalid-dep"] = "yes"  # sites differ in whether they would wait for ever
    if resources.whole_node:
        options["exclusive"] = True
        if not any(key.startswith("mem") for key in options):
            options["mem"] = "0"  # all of the node's memory
        step = "--cpu-bind=none"  # otherwise a task of one CPU is bound to one core
    else:
        options["cpus-per-task"] = resources.cores
        step = f"--cpus-per-task={resources.cores}"  # srun does not inherit it
    executor = Executor(folder, max_num_timeout=_REQUEUES, python=container + python)
    executor.update_parameters(
        wckey=None,  # sites that enforce their own refuse submitit's
        time=resources.minutes,
        nodes=1,
        ntasks_per_node=1,
        signal_delay_s=tasks.signal_seconds,
        array_parallelism=tasks.parallelism or resources.parallelism or sys.maxsize,
        setup=[*_take_pickle(folder.resolve()), *_setup(profile, resources, tasks)],
        srun_args=[step],
        additional_parameters=options,
    )
    return executor


def _setup(profile: Profile, resources: Resources, tasks: Tasks) -> Iterator[str]:
    if profile.slurm_conf is not None:
        yield f"export SLURM_CONF={shlex.quote(str(profile.slurm_conf))}"
    yield from setup(resources, tasks.environment)
    if resources.whole_node and resources.name == "gpu":
        # the job has all GPUs of its node, but a step only gets the number requested
        yield '[ -z "$SLURM_GPUS_ON_NODE" ] || export SLURM_GPUS_PER_NODE="$SLURM_GPUS_ON_NODE"'
    # srun would obey the job's --export a second time, and start the task without an environment
    yield "export SLURM_EXPORT_ENV=ALL"


def setup(resources: Resources, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a job script before Python starts: what the profile says, for any."""
    for name, value in environment.items():
        yield f"export {name}={shlex.quote(value)}"
    if resources.modules:
        # a script is not a login shell and may lack the command
        yield "type module >/dev/null 2>&1 || source /etc/profile"
        yield f"module load {shlex.join(resources.modules)} || exit 1"
    if resources.setup_file:
        file = shlex.quote(resources.setup_file)
        yield f'[ -r {file} ] || {{ echo "cannot read "{file}" on $(hostname)" >&2; exit 1; }}'
        yield f"source {file}"
    yield from resources.setup
    yield "export PYTHONSAFEPATH=1"  # otherwise a user's own jobs/ or analysis.py is imported


def _still_wanted() -> bool:
    """Whether the job should continue, that is, nobody has cancelled or requeued it.

    These send SIGTERM. After the walltime's signal alone SLURM is not asked, as all tasks of an
    array may reach their walltime at once.
    """
    if processes.received() <= {processes.CHECKPOINT}:
        return True
    job = submitit.JobEnvironment().job_id
    with suppress(ClusterError):  # no answer is no reason to give up work
        shown = commands.run(["squeue", "-h", "-j", job, "-o", "%T"])
        return "RUNNING" in shown.split()  # beside the names of clusters, if there are several
    return True
