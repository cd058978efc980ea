"""The analysis as one job of a cluster: submitted, looked at, and what it does on its node.

It is a submission of one task, in ``tasks/analyses``, so that it is found, followed and told of as
those that train. Its life tells how far it is, and at its end how `analyze` ended.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ManyseedError, UnavailableError, UserError
from orchestrator.files import locked, write_json
from orchestrator.paths import SweepPaths, open_sweep
from orchestrator.results.own_metrics import modules_folder
from orchestrator.results.schedulers import of_slurm
from orchestrator.store.lease import Lease
from orchestrator.submissions import profiles
from orchestrator.submissions.cluster import SIGNAL_SECONDS, logs, unique_name
from orchestrator.submissions.intent import FILE, Intent, TaskArray
from orchestrator.submissions.submission import Submission, tasks_of
from orchestrator.submissions.taskstate import OVER, TaskState
from orchestrator.working.node import Node
from slurm import ClusterError, ClusterUnavailable, arrays, processes, signals
from slurm.discover import configuration
from slurm.profile import Profile

if TYPE_CHECKING:
    from analysis.options import Options

_FUNCTION = "orchestrator.results.job:run"
_TELL_SECONDS = 1.0
_LAST_SECONDS = SIGNAL_SECONDS + 60.0
"""A life that is asked to end so long before its walltime, or later, is ended by it."""


def last_job(paths: SweepPaths) -> Submission | None:
    """Return the analysis that was submitted last."""
    folders = sorted(paths.analyses.glob("[0-9][0-9][0-9][0-9]"))
    found = [folder for folder in folders if (folder / FILE).exists()]
    return Submission(found[-1], Intent.read(found[-1])) if found else None


def submit(
    paths: SweepPaths,
    options: Options | None,
    *,
    cluster: str,
    dask: str,
    workers: int | None,
) -> Submission | None:
    """Submit an analysis; return None where one with the same wishes waits or runs.

    Parameters
    ----------
    paths : SweepPaths
    options : Options, optional
        By default the sweep's conventions.
    cluster : str
        A cluster profile, its file, or auto; what the job asks for is its ``cpu`` class.
    dask : str
        Who computes within the job.
    workers : int, optional
        Threads or processes there; by default the job's cores.

    Raises
    ------
    UserError
        While an analysis with other wishes waits or runs, and when SLURM refuses.
    UnavailableError
        When the cluster does not answer.
    """
    from orchestrator.results.analysing import check
    from orchestrator.results.conventions import conventions, to_json

    profile = of_slurm(cluster)
    options = options or conventions(paths)
    check(paths, options)
    wishes = {"options": to_json(options), "dask": dask, "workers": workers}
    request = json.loads(json.dumps(wishes))  # as it is read back
    paths.analyses.mkdir(parents=True, exist_ok=True)
    with locked(paths.lock, "submitting an analysis") as lease:
        before = last_job(paths)
        if before is not None:
            ((task,),) = tasks_of([before], fresh=True)
            if task.is_alive:
                if before.intent.request == request:
                    return None
                raise UserError(
                    f"an analysis with other options is {task.state}, job {task.job_id}",
                    file=paths.directory,
                    remedy=f"wait for it, or end it with: scancel {task.job_id}",
                )
        number = 1 if before is None else before.number + 1
        folder = paths.analyses / f"{number:04d}"
        return _submit(paths, folder, profile, request, lease)


def _submit(
    paths: SweepPaths, folder: Path, profile: Profile, request: dict[str, Any], lease: Lease
) -> Submission:
    name = unique_name(paths, "analysis")
    lease.check()
    shutil.rmtree(folder, ignore_errors=True)  # of a submitter that died before its intent
    try:
        with profile.active():
            cluster_name = configuration()["ClusterName"]
    except ClusterError as error:
        raise UnavailableError(str(error)) from None
    folder_of_modules = modules_folder(paths)
    intent = replace(
        Intent.now(profile.name),
        scheduler=cluster_name,
        profile=str(profile.path.absolute()),
        arrays=(TaskArray("cpu", name, first=0, count=1),),
        walltime={"cpu": profile.cpu.minutes * 60.0},
        request=request,
        modules="" if folder_of_modules is None else str(folder_of_modules),
    )
    profiles.remember(profile)
    (folder / "lives").mkdir(parents=True)
    intent.write(folder)
    submission = Submission(folder, intent)
    lease.check()
    try:
        with profile.active():
            arrays.submit_array(
                profile,
                "cpu",
                logs(folder),
                _FUNCTION,
                [[str(paths.directory.resolve()), folder.name]],
                name,
                comment=str(folder.absolute()),
                timeout_signal_seconds=SIGNAL_SECONDS,
                submitted=lambda ids: submission.note_jobs(dict(enumerate(ids))),
            )
    except ClusterUnavailable as error:
        # it may have got the job all the same: who looks next finds it by its name
        raise UnavailableError(str(error)) from None
    except (ClusterError, ValueError) as error:
        shutil.rmtree(folder)
        raise UserError(
            f"SLURM refuses: {error}",
            file=profile.path,
            remedy="nothing was submitted; mend the profile (manyseed cluster check)",
        ) from None
    (folder / "submitted").touch()
    return submission


def look(job: Submission) -> TaskState:
    """Return what SLURM says of it now; where it does not answer, what the job tells of itself."""
    try:
        ((task,),) = tasks_of([job])
    except UnavailableError:
        ((task,),) = tasks_of([job], ask=False)
    return task


def describe(job: Submission, task: TaskState) -> dict[str, Any]:
    """Return what has become of an analysis, as JSON values.

    Returns
    -------
    dict
        cluster; job (its id); state, as of tasks; done and blocks (pieces of its work; 0 before
        they are known); submitted (seconds since the epoch); reason (why it is not finished, or
        waits); exit_code (of `analyze`, None before its end); log (a file).
    """
    life = task.last
    over = task.state in OVER
    return {
        "cluster": job.cluster,
        "job": task.job_id,
        "state": task.state,
        "done": task.done,
        "blocks": life.get("blocks", 0),
        "submitted": job.intent.submitted,
        "reason": life["reason"] if over else task.note,
        "exit_code": life["exit_code"] if over else None,
        "log": str(logs(job.folder) / f"{task.job_id}_0_log.err"),
    }


def run(directory: str, number: str) -> str:
    """Analyse, in a job; return how it ended: finished, or stopped with all its work left.

    Raises
    ------
    RuntimeError
        When it ended with an error, so that SLURM says so, too.
    """
    from orchestrator.results.conventions import from_json
    from orchestrator.results.here import analyze

    paths = open_sweep(Path(directory))
    folder = paths.analyses / number
    intent = Intent.read(folder)
    request, walltime = intent.request, intent.walltime["cpu"]
    own = any(":" in metric for metric in request["options"]["metrics"])
    if own and intent.modules:
        sys.path.append(intent.modules)
    life = _Life(folder)
    asked: list[bool] = []

    def interrupt() -> None:
        if not asked:  # the first time: what follows is not to be disturbed
            asked.append(True)
            raise KeyboardInterrupt

    signals.on_stop(interrupt)
    try:
        analyze(
            paths,
            from_json(request["options"]),
            dask=request["dask"],
            workers=request["workers"],
            progress=life.progress,
        )
    except BaseException as error:
        # processes that compute hear the signal, too, and may end first
        if not signals.received():
            reason, code = _ending(error)
        elif time.time() - life.started < walltime - _LAST_SECONDS:
            life.end("interrupted", "", None)
            return arrays.STOPPED
        else:
            minutes = walltime // 60
            reason = f"the walltime, {minutes:.0f} min, is too short: give more time in the profile"
            code = UnavailableError.exit_code
        life.end("broken", reason, code)
        raise RuntimeError(reason) from error
    life.end("finished", "", 0)
    return "finished"


def _ending(error: BaseException) -> tuple[str, int]:
    """Return the reason and the exit code that `analyze` ends with."""
    if isinstance(error, ManyseedError):
        return str(error), error.exit_code
    return f"{type(error).__name__}: {error}", UnavailableError.exit_code


class _Life:
    """What the job tells of itself."""

    def __init__(self, folder: Path) -> None:
        node = Node.here()
        self.started = time.time()
        self._told = 0.0
        self._file = folder / "lives" / f"0000-{uuid.uuid4().hex[:8]}" / "progress.json"
        self._value: dict[str, Any] = {
            "state": "running",
            "started": self.started,
            "node": node.name,
            "job_id": node.job_id,
            "process": processes.fingerprint(os.getpid()),
            "done": {"blocks": 0},
            "failed": {},
            "blocks": 0,
        }
        self._file.parent.mkdir(parents=True)
        self._write()

    def progress(self, done: int, blocks: int) -> None:
        self._value |= {"done": {"blocks": done}, "blocks": blocks}
        if time.time() - self._told > _TELL_SECONDS:
            self._write()

    def end(self, state: str, reason: str, exit_code: int | None) -> None:
        self._value |= {"state": state, "reason": reason, "exit_code": exit_code}
        self._write()

    def _write(self) -> None:
        write_json(self._file, self._value)
        self._told = time.time()
