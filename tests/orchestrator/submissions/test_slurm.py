"""Sweeps on a real SLURM: submitted, resumed, stopped, told of. The quick ones.

After each: no row is lost, none is there twice, predictions are a local run's, bit for bit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from manyseed.orchestrator.analyses import look
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.submissions.forecast import rehearse
from manyseed.orchestrator.submissions.profiles import read
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.tasks import intent
from manyseed.orchestrator.tasks.task import Task
from manyseed.slurm import commands
from tests.cluster import MAX_ARRAY_SIZE, Slurm, wait_until
from tests.orchestrator.conftest import (
    MANYSEED,
    QUICK,
    apart,
    assert_equal,
    command,
    stored,
    write,
)
from tests.orchestrator.test_run import SINGLE_CLASS, SLOWER

PROFILE = """
slurm-conf    = "{conf}"
time          = "0:05:00"
mem           = "700M"
parallelism   = 3
[cpu]
partition     = "cpu"
cpus-per-task = 2
[gpu]
partition     = "gpu"
gres          = "gpu:1"
"""


@pytest.fixture
def profile(slurm: Slurm, tmp_path: Path) -> str:
    return str(write(tmp_path / "lab.toml", PROFILE.format(conf=slurm.cluster.conf)))


@pytest.fixture
def sweep(tmp_path: Path, small_tasks: None) -> Sweep:
    return Sweep.plan(write(tmp_path / "quick.toml", QUICK), tmp_path / "sweep")


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even a small sweep into several tasks."""
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 0.5)


def finish(sweep: Sweep, expected: Sweep) -> None:
    """Wait for a sweep, and check that it is whole and a local run's, bit for bit."""
    sweep.wait()
    state = sweep.status()
    assert state["runs"]["missing"] == state["runs"]["failed"] == 0, report(sweep)
    sweep.compact()
    assert sweep.verify()["runs_wrong"] == 0
    assert_equal(stored(sweep), stored(expected))


def tree(folder: Path) -> dict[Path, bytes]:
    """Return all that is in a folder: files by their contents."""
    return {file: file.read_bytes() if file.is_file() else b"" for file in folder.rglob("*")}


def report(sweep: Sweep) -> str:
    """All that is known of a sweep, for a message."""
    logs = [
        *sweep.paths.tasks.glob("*/lives/*/log.txt"),
        *sweep.paths.tasks.glob("*/submitit/*log*"),
    ]
    texts = [f"{log}:\n{log.read_text()[-2000:]}" for log in logs]
    return json.dumps(sweep.status(), indent=1) + "\n" + "\n".join(texts)


def test_a_sweep_is_trained_in_arrays_and_again_submits_nothing(
    sweep: Sweep, profile: str, quick: Sweep, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x1")  # of a surrounding job
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    submission = sweep.submit(cluster=profile)
    assert submission is not None
    assert submission.intent.tasks > 1
    finish(sweep, quick)
    assert sweep.status()["tasks"] == {"finished": submission.intent.tasks}
    assert sweep.submit() is None, "it goes where the runs were last submitted"
    assert "no run is missing" in command("resume", sweep.directory).stdout
    told = ["squeue", "-h", "-r", "-t", "all", "-o", "%j|%k|%w", "-j"]
    jobs = slurm.cluster.command([*told, submission.jobs()[0].id.partition("_")[0]])
    array = submission.intent.arrays[0].name
    assert array.startswith("quick-")
    assert set(jobs.split()) == {f"{array}.0|{submission.folder}|(null)"}
    assert sweep.status()["duplicates"] == 0


def test_after_a_pilot_what_was_cancelled_by_hand_goes_on_here(
    sweep: Sweep, profile: str, quick: Sweep, slurm: Slurm
) -> None:
    pilot = sweep.submit(cluster=profile, only="classifier = 'lr-sgd'", limit=8)
    assert pilot is not None
    assert pilot.n_runs == 8
    chosen = {span.cell: span.run for f in pilot.files.tasks() for span in Task.read(f).spans}
    assert len(chosen) == 4  # all cells that were asked for
    assert set(chosen.values()) <= {0, 1}
    submission = sweep.submit(cluster=profile)
    assert submission is not None
    assert submission.n_runs == 64 - 8
    slurm.cluster.command(["scancel", *{job.id for job in submission.jobs().values()}])
    sweep.wait()
    assert sweep.status()["runs"]["missing"] > 0
    assert sweep.submit(workers=2) is not None
    finish(sweep, quick)


def test_a_measurement_in_a_job_is_part_of_the_sweep(
    sweep: Sweep, profile: str, quick: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "PILOT_PAIR_SECONDS", 0.0)  # else all runs are short enough
    done = command("calibrate", sweep.directory, "--cluster", profile)
    assert done.returncode == 0, done.output
    assert "calibrate is now: manyseed submit DIR --calibrate" in done.output
    (pilot,) = sweep.submissions()
    assert 0 < pilot.n_runs <= 5 * len(Groups.read(sweep.paths).specs)
    runs = sweep.status()["runs"]
    assert pilot.n_runs <= runs["done"] + runs["copy"] < runs["runs"]
    assert sweep.submit(cluster=profile) is not None
    assert f"Measuring {pilot.n_runs} runs, which are kept." in done.stdout
    assert re.search(r"^\d+ fits left: .* of a core; before it was measured, ", done.stdout, re.M)
    finish(sweep, quick)


def test_two_submits_at_once_share_the_work_or_refuse(
    sweep: Sweep, profile: str, quick: Sweep
) -> None:
    both = [
        subprocess.Popen([MANYSEED, "submit", sweep.directory, "--cluster", profile])
        for _ in range(2)
    ]
    codes = sorted(one.wait(120) for one in both)
    assert codes in ([0, 0], [0, 4])  # the second found the lock, or nothing to do
    assert len(sweep.submissions()) == 1
    finish(sweep, quick)
    assert sweep.status()["duplicates"] == 0


def test_a_crash_between_sbatch_and_the_note_orphans_nothing(
    sweep: Sweep, profile: str, quick: Sweep, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*arguments: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("manyseed.orchestrator.submissions.submission.Submission.note_jobs", crash)
        patch.setattr(intent.processes, "fingerprint", lambda pid: "elsewhere boot 1 2")
        with pytest.raises(SystemExit):
            sweep.submit(cluster=profile)
    (submission,) = sweep.submissions()
    assert not submission.files.jobs.exists()
    assert submission.is_alive()
    assert sweep.submit(cluster=profile) is None
    finish(sweep, quick)
    assert sweep.status()["duplicates"] == 0
    jobs = slurm.cluster.command(["squeue", "-h", "-r", "-t", "all", "-o", "%j"]).split()
    name = submission.intent.arrays[0].name
    assert sum(job.rpartition(".")[0] == name for job in jobs) == submission.intent.tasks


def test_failed_runs_are_explained_and_retried_exactly(tmp_path: Path, profile: str) -> None:
    sweep = Sweep.plan(write(tmp_path / "fail.toml", SINGLE_CLASS), tmp_path / "fail")
    submission = sweep.submit(cluster=profile)
    assert submission is not None
    sweep.wait()
    assert sweep.status()["runs"]["failed"] == 4, report(sweep)
    (job,) = submission.jobs().values()
    texts = [command("logs", sweep.directory, what).stdout for what in ("1/0", job.id)]
    assert texts[0] == texts[1] != ""
    (group,) = json.loads(command("logs", sweep.directory, "--failed", "--json").stdout)["failures"]
    assert group["count"] == 4
    assert "Traceback" in group["traceback"]
    assert "Traceback" in command("logs", sweep.directory, group["runs"][0]).stdout
    wrong = command("logs", sweep.directory, "9/0")
    assert (wrong.returncode, "there is no such task" in wrong.stderr) == (2, True)
    assert sweep.submit(cluster=profile) is None
    again = sweep.submit(cluster=profile, failed=True)
    assert again is not None
    assert again.n_runs == 4
    sweep.cancel()
    sweep.wait()


@pytest.mark.slow
def test_gpu_runs_go_to_gpus_and_end_at_once_where_there_is_none(
    tmp_path: Path, profile: str, slurm: Slurm
) -> None:
    text = QUICK.replace('"xgb"', '"mlp"') + '\n[classifier.mlp]\ndevice = "gpu"\nepochs = 1\n'
    sweep = Sweep.plan(write(tmp_path / "gpu.toml", text), tmp_path / "gpu")
    submission = sweep.submit(cluster=profile)
    assert submission is not None
    assert [array.resource for array in submission.intent.arrays] == ["cpu", "gpu"]
    nodes: set[tuple[str, str]] = set()

    def both_started() -> bool:
        nodes.update(
            (task.node[:1], task.last.node[:1]) for task in submission.tasks() if task.attempts
        )
        return {node for _, node in nodes} == {"c", "g"}

    wait_until(both_started, lambda: f"lives on both kinds of nodes: {nodes}\n{report(sweep)}")
    sweep.wait()
    # its GPUs are SLURM's dream: each task that wants one ends with the reason, and fails no run
    state = sweep.status()
    assert state["runs"]["failed"] == 0
    assert {group["classifier"]: group["missing"] for group in state["groups"]}["lr-sgd"] == 0
    assert any("GPU" in problem or "CUDA" in problem for problem in state["problems"]), state


def shim(folder: Path, names: Iterable[str], lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put commands first on PATH that do something before they do what they are for: ``real``."""
    folder.mkdir()
    for name in names:
        text = f'#!/bin/sh\nname={name}\nreal() {{ {shutil.which(name)} "$@"; }}\n{lines}\n'
        write(folder / name, text).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.slow
def test_the_scheduler_is_asked_twice_at_most_and_ten_times_a_minute(
    sweep: Sweep,
    profile: str,
    quick: Sweep,
    slurm: Slurm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a site whose commands talk."""
    calls = tmp_path / "calls"
    noting = f'echo $name $(date +%s) >> {calls}\necho "*** the site speaks ***"\nreal "$@"'
    names = ("squeue", "sacct", "scontrol", "sinfo", "sbatch", "sacctmgr")
    shim(tmp_path / "shims", names, noting, monkeypatch)
    partition = ["scontrol", "update", "PartitionName=cpu"]
    slurm.cluster.command([*partition, "State=DOWN"])  # what is submitted waits to be watched
    try:
        for limit in (1, None):  # one task, then all others beside it
            submission = sweep.submit(cluster=profile, limit=limit)
            assert submission is not None
            assert (submission.intent.tasks > 1) == (limit is None)
            calls.write_text("")
            told = json.loads(command("status", sweep.directory, "--json").stdout)
            assert told["cluster_silent"] is None
            assert [line.split()[0] for line in calls.read_text().splitlines()] == ["squeue"]
        calls.write_text("")
        watching = subprocess.Popen([MANYSEED, "status", sweep.directory, "--watch"])
        wait_until(lambda: calls.read_text() != "", "a watcher's first question")
    finally:
        slurm.cluster.command([*partition, "State=UP"])
    assert watching.wait(240) == 0
    times = [int(line.split()[1]) for line in calls.read_text().splitlines()]
    assert max(sum(t <= one < t + 60 for one in times) for t in times) <= 10
    finish(sweep, quick)


def test_an_answer_of_sbatch_that_is_lost_orphans_nothing(
    sweep: Sweep, profile: str, quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller takes the array, and the connection breaks before it says so."""
    silence = 'echo "sbatch: error: Batch job submission failed: Socket timed out" >&2; exit 1'
    with monkeypatch.context() as patch:
        shim(tmp_path / "shims", ["sbatch"], f'real "$@" >/dev/null; {silence}', patch)
        lost = apart("submit", sweep.directory, "--cluster", profile)  # whose process has ended
    assert lost.returncode == 4, lost.stdout
    assert "manyseed resume" in lost.stderr
    (submission,) = sweep.submissions()
    assert not submission.files.jobs.exists()
    again = command("resume", sweep.directory, "--cluster", profile)
    assert "Nothing to submit" in again.stdout, again.stderr
    assert len(submission.noted_jobs()) == submission.intent.tasks
    finish(sweep, quick)
    assert sweep.status()["duplicates"] == 0


@pytest.mark.slow
def test_what_a_cluster_that_is_gone_was_given_is_trained_elsewhere(
    sweep: Sweep, profile: str, quick: Sweep, slurm: Slurm, tmp_path: Path
) -> None:
    conf = write(tmp_path / "gone.conf", slurm.cluster.conf.read_text())
    text = Path(profile).read_text().replace(str(slurm.cluster.conf), str(conf))
    there = write(tmp_path / "gone.toml", text.replace("[cpu]", 'begin = "now+1hour"\n[cpu]'))
    submission = sweep.submit(cluster=str(there))
    assert submission is not None
    conf.unlink()
    (tmp_path / "fresh").mkdir()
    assert command("resume", sweep.directory, "--cluster", there).returncode == 4
    assert not submission.files.stop.exists()
    went_on = command("resume", sweep.directory, "--cluster", "local", "--workers", 2)
    assert went_on.returncode == 0, went_on.stderr
    assert submission.files.stop.exists(), "what waits there must end as it starts"
    shown: dict[str, object] = {}

    def whole() -> bool:
        shown.update(json.loads(command("status", sweep.directory, "--json").stdout))
        return shown["runs"]["missing"] == 0  # type: ignore[index]

    wait_until(whole, lambda: f"a whole sweep: {shown}")
    assert "does not answer" in str(shown["cluster_silent"])
    write(conf, slurm.cluster.conf.read_text())  # it comes back
    sweep.cancel()
    finish(sweep, quick)
    assert sweep.status()["duplicates"] == 0


@pytest.mark.slow
def test_cells_that_are_cancelled_are_left_out_by_tasks_that_wait(
    sweep: Sweep, profile: str, quick: Sweep, slurm: Slurm, tmp_path: Path
) -> None:
    text = Path(profile).read_text().replace("[cpu]", 'begin = "now+1hour"\n[cpu]')
    later = str(write(tmp_path / "later.toml", text))
    submission = sweep.submit(cluster=later)
    assert submission is not None
    groups = [Task.read(file).groups.values() for file in submission.files.tasks()]
    others = {n for n, names in enumerate(groups) if any("xgb" not in name for name in names)}
    mixed = {n for n in others if any("xgb" in name for name in groups[n])}
    assert mixed, "a task that has both"
    sweep.cancel(only="classifier = 'xgb'")
    alive = {task.number for task in submission.tasks() if task.is_alive}
    assert alive == others
    for number in alive:
        job = submission.jobs()[number].id
        slurm.cluster.command(["scontrol", "update", f"JobId={job}", "StartTime=now"])
    sweep.wait()
    counts = {group["classifier"]: group["missing"] for group in sweep.status()["groups"]}
    assert counts == {"lr-sgd": 0, "xgb": 32}, report(sweep)
    sweep.submit(cluster=profile)
    finish(sweep, quick)
    assert sweep.status()["duplicates"] == 0


def test_what_slurm_refuses_is_the_users_and_leaves_nothing(
    sweep: Sweep, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(profile).read_text().replace("[cpu]", 'constraint = "nosuch"\n[cpu]')
    for profile_text, told in (
        (Path(profile).read_text().replace('"cpu"', '"nowhere"'), "partition"),
        (text, "feature"),
    ):
        wrong = write(tmp_path / "wrong.toml", profile_text)
        before = tree(tmp_path)
        with pytest.raises(UserError, match=rf"SLURM refuses: .*{told}"):
            sweep.submit(cluster=str(wrong))
        assert tree(tmp_path) == before
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none.conf"))
    gone = write(tmp_path / "gone.toml", 'time = "5"\nslurm-conf = "/none/slurm.conf"\n')
    done = command("submit", sweep.directory, "--cluster", gone)
    assert done.returncode == 4, done.stderr
    assert not sweep.submissions()


@pytest.mark.slow
def test_cancel_pause_and_throttle_reach_the_queue(
    sweep: Sweep, profile: str, quick: Sweep, slurm: Slurm
) -> None:
    partition = ["scontrol", "update", "PartitionName=cpu"]
    sweep_states = lambda: sweep.status()["tasks"]  # noqa: E731
    slurm.cluster.command([*partition, "State=DOWN"])  # what is submitted waits
    try:
        submission = sweep.submit(cluster=profile)
        assert submission is not None
        arrays = {job.id.split("_")[0] for job in submission.jobs().values()}
        assert sweep.throttle(1) == len(arrays)
        _, held = sweep.pause()
        assert sweep_states() == {"held": held}
        assert held == submission.intent.tasks > 1
        sweep.submit(cluster=profile)
        assert "held" not in sweep_states()
    finally:
        slurm.cluster.command([*partition, "State=UP"])
    sweep.cancel(only="classifier = 'xgb'")
    sweep.wait()
    counts = {group["classifier"]: group["missing"] for group in sweep.status()["groups"]}
    assert counts["lr-sgd"] == 0
    sweep.submit(cluster=profile)
    finish(sweep, quick)


@pytest.mark.slow
def test_ctrl_c_in_a_run_here_leaves_the_jobs_on_the_cluster(
    tmp_path: Path, profile: str, slurm: Slurm, small_tasks: None
) -> None:
    file, directory = write(tmp_path / "slower.toml", SLOWER), tmp_path / "sweep"
    sweep = Sweep.plan(file, directory)
    partition = ["scontrol", "update", "PartitionName=cpu"]
    slurm.cluster.command([*partition, "State=DOWN"])  # what is submitted waits
    try:
        away = sweep.submit(cluster=profile, limit=4)
        assert away is not None
        run = [MANYSEED, "run", file, "--out", directory, "--cluster", "local", "--workers", "1"]
        here = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        journals = sweep.paths.tasks / "journals"
        wait_until(lambda: any(f.stat().st_size for f in journals.glob("*.journal")), "runs here")
        here.send_signal(signal.SIGINT)
        output, _ = here.communicate(timeout=240)
        assert here.returncode == 130, output
        assert "The jobs on lab continue, without this terminal." in output
        assert [one.cluster for one in sweep.running()] == ["lab"]
        assert sweep.status()["runs"]["missing"] > 4, "the interruption came too late"
    finally:
        slurm.cluster.command([*partition, "State=UP"])
    sweep.wait()
    assert sweep.status()["runs"]["done"] >= 4
    assert sweep.status()["tasks"]["finished"] == away.intent.tasks


@pytest.mark.slow
def test_run_goes_to_a_cluster_and_to_the_report(
    tmp_path: Path, profile: str, quick: Sweep, slurm: Slurm
) -> None:
    file = write(tmp_path / "quick.toml", QUICK)
    result = command("run", file, "--out", tmp_path / "sweep", "--cluster", profile)
    assert result.returncode == 0, result.stdout + result.stderr
    sweep = Sweep(tmp_path / "sweep")
    (submission,) = sweep.submissions()
    assert submission.cluster == "lab"
    job = sweep.analysis_job()
    assert job is not None
    assert (job.cluster, job.state) == ("lab", "finished")
    assert sweep.paths.report.exists()
    finish(sweep, quick)
    again = command("resume", sweep.directory, "--watch")
    assert again.returncode == 0, again.stderr
    assert "no run is missing" in again.stdout


GROWS = """
name    = "grows"
seed    = 3
repeats = 2
runs    = 4

[[grid]]
dataset        = ["cancer"]
classifier     = ["lr-sgd"]
train_fraction = [0.25]

[dataset.cancer]
source = "sklearn:breast_cancer"
"""


@pytest.mark.slow
def test_a_sweep_grows_on_a_cluster_and_goes_on_where_it_was_interrupted(
    tmp_path: Path, profile: str, slurm: Slurm
) -> None:
    """`howmany --until`: with its command killed in the middle, the same blocks as here."""
    sweeps = [
        Sweep.plan(write(tmp_path / f"{name}.toml", GROWS), tmp_path / name)
        for name in ("there", "here")
    ]
    there, here = sweeps
    asked = ["--until", 0.004, "--most", 16, "--block", 3]
    begun = subprocess.Popen(
        [MANYSEED, "howmany", there.directory, *map(str, asked), "--cluster", profile],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(there.paths.parts()) > 1, lambda: f"a block: {report(there)}")
    finally:
        begun.kill()
        begun.wait()
    went_on = command("howmany", there.directory, *asked, "--cluster", profile, "--json")
    assert went_on.returncode == 0, went_on.stderr
    assert {one.cluster for one in there.submissions()} == {"lab"}
    found = here.howmany_until(0.004, most=16, block=3, workers=2)
    told = json.loads(went_on.stdout)["cells"]
    assert [(one["state"], one["planned"]) for one in told] == [
        (one.state, one.planned) for one in found
    ]
    assert found[0].planned > 4
    assert there.status()["duplicates"] == 0
    there.compact()
    here.compact()
    assert_equal(stored(there), stored(here))


def test_run_returns_and_the_cluster_analyses_and_tells(
    profile: str, slurm: Slurm, tmp_path: Path, small_tasks: None
) -> None:
    """``run --detach``: the analysis waits for the training, is replaced, and calls the hook."""
    told = tmp_path / "told"
    hook = f'[cpu]\non-end = "echo $MANYSEED_STATE $MANYSEED_DIR > {told}; exit 3"\n'
    text = Path(profile).read_text()
    file, out = write(tmp_path / "quick.toml", QUICK), tmp_path / "sweep"
    again = ("run", file, "--out", out, "--cluster", profile, "--detach")
    # nothing may start before both have been submitted
    write(Path(profile), 'begin = "now+1hour"\n' + text.replace("[cpu]\n", hook))
    done = command(*again)
    assert done.returncode == 0, done.output
    sweep = Sweep(out)
    first = sweep.analysis_job()
    assert first is not None
    assert first.state == "waiting"
    assert f"Job {first.job} analyses the sweep and writes its page when" in done.stdout
    assert f"Analysis: job {first.job} waiting" in command("status", out).stdout
    shown = slurm.cluster.command(["scontrol", "-o", "show", "job", first.job])
    (array,) = {job.id.partition("_")[0] for job in sweep.submissions()[0].jobs().values()}
    assert f"Dependency=afterany:{array}" in shown
    assert ", waits" in str(sweep.show("0:0:0")["stored"])  # SLURM may not have a reason yet
    slurm.cluster.command(["scancel", *{job.id for job in sweep.submissions()[0].jobs().values()}])
    wait_until(lambda: not sweep.is_running, "the end of the cancelled tasks")
    assert "; manyseed resume " in str(sweep.show("0:0:0")["stored"])
    # what was cancelled is submitted again, and another analysis waits for it
    write(Path(profile), text.replace("[cpu]\n", hook))
    done = command(*again)
    assert done.returncode == 0, done.output
    second = sweep.analysis_job()
    assert second is not None
    assert second.job != first.job
    wait_until(told.exists, "the hook")
    state = sweep.status()
    assert state["runs"]["missing"] == 0, report(sweep)
    assert told.read_text() == f"finished {out}\n"
    assert state["report"] == str(sweep.paths.report)
    job = sweep.analysis_job()
    assert job is not None
    wait_until(lambda: "code 3" in Path(job.log).read_text(), "the hook's failure in the log")
    assert command("run", file, "--out", out, "--cluster", "local", "--detach").returncode == 2


TUNED = """
name = "tuned"
seed = 1
runs = 2
repeats = 1
tune = { draws = 3, data = "runs", hours = 1 }

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["lr-sgd"]
hparams    = ["tuned"]
train_fraction = [1, 0.5]
"""


def test_a_chain_searches_trains_and_analyses_and_goes_on_wherever_it_broke(
    profile: str, slurm: Slurm, tmp_path: Path
) -> None:
    """Its search is killed in the middle, then its training; `resume` submits what is left."""
    told, text = tmp_path / "told", Path(profile).read_text()
    hook = f'[cpu]\non-end = "echo $MANYSEED_STATE >> {told}"\n'
    gate = write(tmp_path / "gate", "closed: no task trains")
    wait = f"while [[ $SLURM_JOB_NAME == *-cpu.0 && -e {gate} ]]; do sleep 0.2; done"
    write(Path(profile), f"setup = ['{wait}']\n" + text.replace("[cpu]\n", hook))
    out, file = tmp_path / "sweep", write(tmp_path / "tuned.toml", TUNED)
    done = command("run", file, "--out", out, "--cluster", profile, "--detach")
    assert done.returncode == 0, done.output
    sweep = Sweep(out)
    search, analysis = look(sweep.paths, sweep.paths.search_jobs()), sweep.analysis_job()
    assert search is not None
    assert analysis is not None
    searching = f"Job {search.job} searches for hparams in at most 6 fits"
    for told_of in (searching, f"Job {analysis.job} anal"):
        assert told_of in done.stdout
    (array,) = {job.id.partition("_")[0] for job in sweep.submissions()[0].jobs().values()}
    of_search = search.job.partition("_")[0]
    shown = slurm.cluster.command(["scontrol", "-o", "show", "job", array])
    assert f"Dependency=afterok:{of_search}" in shown
    assert f"Search: job {search.job} " in command("status", out).stdout
    # the search is killed: no task trains without its hparams, and the analysis says why
    log = sweep.paths.tasks / "tuning"
    wait_until(lambda: any(log.glob("*.jsonl")), lambda: f"a search: {report(sweep)}")
    slurm.cluster.command(["scancel", of_search])
    wait_until(told.exists, lambda: f"the hook: {report(sweep)}")
    assert told.read_text() == "broken\n"
    state = sweep.status()
    assert state["runs"]["missing"] == state["runs"]["runs"] == 4
    assert not sweep.is_running
    assert state["next"][0]["command"].startswith(f"manyseed resume {out}")
    # its training is killed
    again = command("resume", out)
    assert again.returncode == 0, again.output
    second = look(sweep.paths, sweep.paths.search_jobs())
    assert second is not None
    assert second.job != search.job
    wait_until(lambda: len(sweep.paths.all_tuned()) == 2, lambda: f"a search: {report(sweep)}")
    slurm.cluster.command(["scancel", *{job.id for job in sweep.submissions()[-1].jobs().values()}])
    wait_until(lambda: not sweep.is_running, "the end of the cancelled tasks")
    assert sweep.status()["runs"]["missing"] == 4
    gate.unlink()
    again = command("resume", out)
    assert again.returncode == 0, again.output
    assert "searches for hparams" not in again.stdout
    assert "analyses the sweep" in again.stdout
    wait_until(lambda: "finished" in told.read_text(), lambda: f"the end: {report(sweep)}")
    state = sweep.status()
    assert state["runs"]["missing"] == state["runs"]["failed"] == 0, report(sweep)
    assert state["report"] == str(sweep.paths.report)
    assert "no run is missing" in command("resume", out).stdout
    # and what it found is what a search here finds
    here = Sweep.plan(file, tmp_path / "here")
    here.tune(workers=1)
    here.submit(workers=1)
    here.wait()
    for one in (here, sweep):
        one.compact()
    assert_equal(stored(sweep), stored(here))


def test_a_rehearsal_has_the_numbers_of_the_submission(
    sweep: Sweep, profile: str, quick: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays, tasks, calls and files are as on the cluster; the sweep stays as it is."""
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 0.05)
    text = Path(profile).read_text()
    write(Path(profile), text.replace("parallelism   = 3", f"parallelism = {MAX_ARRAY_SIZE + 3}"))
    beside, before = {*sweep.directory.parent.iterdir()}, tree(sweep.directory)
    played = rehearse(sweep.paths, read(profile))
    assert played is not None
    assert played.ended == played.tasks > MAX_ARRAY_SIZE
    assert (tree(sweep.directory), {*sweep.directory.parent.iterdir()}) == (before, beside)
    calls = commands.CALLS.copy()
    submission = sweep.submit(cluster=profile)
    assert submission is not None
    assert played.calls == commands.CALLS - calls
    arrays = {job.id.partition("_")[0] for job in submission.jobs().values()}
    assert (played.runs, played.tasks) == (submission.n_runs, submission.intent.tasks)
    assert (played.arrays, played.largest_array) == (len(arrays), MAX_ARRAY_SIZE)
    finish(sweep, quick)
    there = [file for file in submission.folder.rglob("*") if file.is_file()]
    assert played.files == len(there), sorted(map(str, there))
    assert command("submit", sweep.directory, "--rehearse", profile).returncode == 0
    refused = command("submit", sweep.directory, "--rehearse", profile, "--limit", "3")
    assert (refused.returncode, "cannot be combined" in refused.stderr) == (2, True)
