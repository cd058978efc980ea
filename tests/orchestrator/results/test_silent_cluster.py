"""Results of finished runs need no scheduler that answers."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.orchestrator.cli.status import _training
from manyseed.orchestrator.progress import watch
from manyseed.orchestrator.submissions import patience
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.submissions.submission import running
from manyseed.slurm import commands
from tests.orchestrator.conftest import command, inside, wait_until, write
from tests.orchestrator.damage import as_on_a_cluster
from tests.orchestrator.test_run import SLOWER


@pytest.fixture
def sweep(quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A finished sweep, a task of which reported no end, on a machine whose cluster is away."""
    sweep = Sweep(shutil.copytree(quick.directory, tmp_path / "sweep"))
    as_on_a_cluster(sweep.directory)
    (file,) = sweep.paths.submission(2).glob("lives/*/progress.json")
    value = json.loads(file.read_bytes()) | {"state": "running"}
    file.write_text(json.dumps(value))
    silence(tmp_path / "bin", monkeypatch)
    return sweep


def silence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SLURM's commands, in a new folder, reach nothing."""
    folder.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scontrol", "sinfo"):
        said = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
        write(folder / name, f"#!/bin/sh\n{said}\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_finished_runs_are_analysed_shown_and_exported(sweep: Sweep, tmp_path: Path) -> None:
    for verb, *options in (
        ("analyze", "--metrics", "accuracy"),
        ("query",),
        ("report",),
        ("export", "--output", tmp_path / "x.parquet"),
    ):
        done = command(verb, sweep.directory, *options)
        assert done.returncode == 0, (verb, done.output)


def hang(folder: Path, calls: Path) -> None:
    """Let SLURM's commands note that they were called, and not answer."""
    for name in ("squeue", "sacct", "scontrol", "sinfo"):
        write(folder / name, f"#!/bin/sh\necho {name} >> {calls}\nexec sleep 600\n")


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "--watch"),
        ("status", "--usage"),
        ("logs",),
        ("analyze", "--metrics", "accuracy"),
    ],
    ids=" ".join,
)
def test_a_cluster_that_hangs_is_not_waited_for_once_all_runs_are_finished(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    for file in (*sweep.paths.submission(2).rglob("*"), *sweep.paths.leases.glob("*")):
        os.utime(file, (1e9, 1e9))
    hang(tmp_path / "bin", tmp_path / "calls")
    monkeypatch.setattr(patience, "_BRIEF_SECONDS", 0.3)
    scheduler_of.cache_clear()
    assert commands._patience.get() > 60, "which would be waited for"
    code, printed = inside(words[0], sweep.directory, *words[1:])
    assert code == 0, printed
    if words == ("status",):
        assert "squeue" in (tmp_path / "calls").read_text()
        assert "far: the cluster does not answer, but all runs are finished." in printed
    assert commands._patience.get() > 60


def test_what_another_place_took_over_is_not_watched(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (*sweep.paths.submission(2).rglob("*"), *sweep.paths.leases.glob("*")):
        os.utime(file, (1e9, 1e9))
    far = next(one for one in sweep.submissions() if one.cluster == "far")
    assert far in running(sweep.submissions(), ask=False), "it may train there"
    far.files.stop.touch()
    assert running(sweep.submissions(), ask=False) == []


def told(sweep: Sweep) -> tuple[dict[str, int], str]:
    code, printed = inside("status", sweep.directory)
    assert code == 0, printed
    for wrong in ("Training:", "Watch:", " left."):  # no run is missing
        assert wrong not in printed
    return sweep.status()["tasks"], " ".join(printed.split())


@pytest.mark.parametrize("away", ["silent", "without SLURM"])
def test_a_task_runs_only_while_it_writes(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    submission = sweep.paths.submission(2)
    if away == "without SLURM":
        monkeypatch.setenv("PATH", "/nowhere")
    assert told(sweep)[0] == {"finished": 1, "running": 1}
    for file in submission.rglob("*"):
        os.utime(file, (1e9, 1e9))
    for lease in (submission.parent / "leases").glob("*"):
        os.utime(lease, (1e9, 1e9))
    tasks, printed = told(sweep)
    if away == "silent":
        assert tasks == {"finished": 1, "unknown": 1}
        assert "1 unknown (77_[0]: the cluster does not answer)" in printed
        assert sweep.status()["each_task"][1]["state"] == "unknown"
    else:
        assert tasks == {"finished": 1, "killed": 1}
    log = submission / "submitit" / "77_0_0_log.err"
    log.write_text("slurmstepd: error: Job 77 exceeded memory limit (257490944 > 157286400)\n")
    assert told(sweep)[0] == {"finished": 1, "out_of_memory": 1}


def test_what_needs_its_answer_says_what_to_try(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "manyseed" / "clusters").mkdir(parents=True)
    write(tmp_path / "manyseed" / "clusters" / "far.toml", 'time = "10"\n')
    code, printed = inside("resume", sweep.directory)
    assert (code, "try again later: jobs go on meanwhile" in printed) == (4, True), printed


def test_watching_begins_with_what_tasks_write(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = sweep.paths.submission(2).glob("lives/*/progress.json")
    ended = file.read_text().replace('"running"', '"finished"')
    here = threading.current_thread()

    def sleep(seconds: float) -> None:
        # leases sleep in threads of their own, and readers for a moment until a file is whole
        if threading.current_thread() is here and seconds >= watch._POLL_SECONDS:
            file.write_text(ended)

    monkeypatch.setattr(time, "sleep", sleep)
    code, printed = inside("status", sweep.directory, "--watch")
    assert code == 0, printed
    assert "try again later: jobs go on meanwhile" in printed
    assert "training, finished: " in printed


def test_what_is_asked_to_stop_is_counted_as_status_does(sweep: Sweep) -> None:
    code, printed = inside("cancel", sweep.directory)
    told = "1 task asked to stop, 0 waiting tasks cancelled"
    assert (code, told in printed) == (4, True), printed
    assert sweep.status()["stopping"] == 1


def test_what_trains_is_told_by_the_runs_of_the_sweep(sweep: Sweep) -> None:
    """An attempt that has begun has finished none, whatever earlier ones did."""
    state = sweep.status() | {"workers": 4, "runs_per_hour": 0.0, "seconds_left": 60.0}
    assert _training(state) == "Training: 4 processes; about 1 min 00 s left."
    state["runs"] = dict.fromkeys(state["runs"], 0)
    assert "no run has finished yet" in _training(state)


@pytest.mark.process
@pytest.mark.parametrize("verb", [("--now",), ("--pause",), ("--only", "classifier = 'xgb'")])
def test_what_trains_here_is_stopped_while_a_cluster_is_silent(
    tmp_path: Path, stopped: list[Sweep], monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    sweep = Sweep.plan(write(tmp_path / "slower.toml", SLOWER), tmp_path / "sweep")
    stopped.append(sweep)
    first = sweep.submit(workers=1)
    assert first is not None
    wait_until(lambda: bool(first.attempts()), "a task that trains")
    sweep.cancel(now=True)
    wait_until(lambda: not sweep.is_running, "its end")
    as_on_a_cluster(sweep.directory)
    first.files.stop.replace(tmp_path / "stop")  # of both, as it was copied
    (far,) = [one for one in sweep.submissions() if one.cluster == "far"]
    far.files.stop.unlink()
    (file,) = far.folder.glob("lives/*/progress.json")
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"state": "running"}))
    for old in (*far.folder.rglob("*"), *sweep.paths.leases.iterdir()):
        os.utime(old, (1e9, 1e9))
    silence(tmp_path / "bin", monkeypatch)
    assert inside("resume", sweep.directory, "--cluster", "local", "--workers", 1)[0] == 0
    here = sweep.submissions()[-1]
    assert here.cluster == "local"
    wait_until(lambda: bool(here.attempts()), "a task that trains here")
    code, printed = inside("cancel", sweep.directory, *verb)
    assert (code, "far: the cluster does not answer" in printed) == (4, True), printed
    assert "slurm_load_jobs" not in printed
    if verb[0] == "--only":
        assert here.skipped_cells
    else:
        assert "1 task asked to stop" in printed
        wait_until(lambda: not any(task.is_alive for task in here.tasks()), "its end")
    code, printed = inside("status", sweep.directory)
    shown = sweep.status()["cluster_silent"]
    shutil.rmtree(far.folder)  # so that what is left can be stopped
    assert "far: the cluster does not answer (status --json" in " ".join(printed.split())
    assert "slurm_load_jobs" not in printed
    assert "slurm_load_jobs" in str(shown)
