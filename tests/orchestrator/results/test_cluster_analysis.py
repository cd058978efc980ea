"""The analysis as a job of a real SLURM, and with SLURM jobs as dask's workers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator import analyses
from manyseed.orchestrator.analyses import execution
from manyseed.orchestrator.computing import workers
from manyseed.orchestrator.computing.tables import to_json
from manyseed.orchestrator.computing.workers import of_slurm
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.plans.plan import identity_of
from manyseed.orchestrator.progress.logs import _lost_prints
from manyseed.orchestrator.submissions.submission import Submission
from manyseed.orchestrator.tasks.intent import Intent
from manyseed.slurm import processes
from manyseed.slurm.arrays import STOPPED
from tests.cluster import Slurm, wait_until
from tests.orchestrator.conftest import MANYSEED, command, write

PROFILE = """
slurm-conf    = "{conf}"
time          = "0:05:00"
mem           = "700M"
[cpu]
partition     = "cpu"
cpus-per-task = 2
"""
LATER = 'begin = "now+1hour"\n'
OPTIONS = Options(resamples=5)  # as `quick_analysed`
ASKED = ("--resamples", 5)


@pytest.fixture
def profile(slurm: Slurm, tmp_path: Path) -> Path:
    return write(tmp_path / "lab.toml", PROFILE.format(conf=slurm.cluster.conf))


@pytest.fixture
def sweep(quick: Sweep, tmp_path: Path) -> Sweep:
    return Sweep(shutil.copytree(quick.directory, tmp_path / "sweep"))


@pytest.fixture(scope="module")
def expected(quick_analysed: Sweep) -> dict[str, pl.DataFrame]:
    return dict(quick_analysed.results)


def test_jobs_as_workers_find_what_threads_find(
    sweep: Sweep, profile: Path, slurm: Slurm, expected: dict[str, pl.DataFrame]
) -> None:
    told: list[str] = []
    found = sweep.analyze(OPTIONS, dask="slurm", cluster=str(profile), workers=2, tell=told.append)
    assert told[-1].endswith("of 2 workers"), told
    for name, table in expected.items():
        assert_frame_equal(found[name], table, check_exact=True)


def test_a_job_leads_and_other_jobs_compute(
    sweep: Sweep, profile: Path, expected: dict[str, pl.DataFrame]
) -> None:
    asked = ("analyze", sweep.directory, *ASKED, "--cluster", profile, "--workers", "1:2")
    refused = command(*asked, "--detach")
    assert (refused.returncode, "applies only with --dask slurm" in refused.stderr) == (2, True)
    done = command(*asked, "--dask", "slurm", "--detach")
    assert (done.returncode, "Submitted the analysis: job" in done.stdout) == (0, True), done.output
    done = command(*asked, "--dask", "slurm", "--detach", "--wait")
    job = sweep.analysis_job()
    assert job is not None
    assert done.returncode == 0, done.output + Path(job.log).read_text()
    for name, table in expected.items():
        assert_frame_equal(sweep.results[name], table, check_exact=True)


def test_workers_come_and_go_with_the_work(
    profile: Path, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ASK_SECONDS", 0.5)
    given, told = of_slurm(str(profile)), list[str]()
    with workers.slurm_workers(tmp_path / "jobs", given, (1, 2), told.append) as client:
        wait_until(lambda: "1 of 2 workers" in told, "the first worker")
        held = client.map(partial(wait_for_file, tmp_path / "enough"), range(40))
        wait_until(lambda: "2 of 2 workers" in told, "a second worker")
        (tmp_path / "enough").touch()
        assert client.gather(held) == [*range(40)]
        del held  # dask keeps workers that hold results
        wait_until(lambda: told[-1] == "1 of 2 workers", "the end of the second worker")


def wait_for_file(file: Path, number: int) -> int:
    wait_until(file.exists, str(file))
    return number


@pytest.mark.parametrize("text", ["0", "2:1", "x", ":", "1:", "٣", "1:2:3", "0:4"])
def test_what_is_no_number_of_workers(sweep: Sweep, text: str) -> None:
    done = command("analyze", sweep.directory, "--workers", text)
    assert (done.returncode, "is no number of workers" in done.stderr) == (2, True), done.output


def test_only_jobs_come_and_go(sweep: Sweep) -> None:
    done = command("analyze", sweep.directory, "--workers", "1:2")
    assert (done.returncode, "only jobs come and go" in done.stderr) == (2, True), done.output


def test_a_job_finds_what_is_found_here_and_is_not_submitted_twice(
    sweep: Sweep, profile: Path, slurm: Slurm, expected: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    later = str(write(tmp_path / "later.toml", LATER + profile.read_text()))
    assert sweep.submit_analysis(OPTIONS, cluster=later) is not None
    assert sweep.submit_analysis(OPTIONS, cluster=later) is None
    with pytest.raises(UserError, match=r"(?s)an analysis with other options is .*scancel"):
        sweep.submit_analysis(Options(resamples=6), cluster=later)
    told = sweep.analysis_job()
    assert told is not None
    with subprocess.Popen(
        [MANYSEED, "analyze", sweep.directory, *map(str, ASKED), "--cluster", later, "--wait"],
        stdout=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stdout is not None
        assert "The same analysis is already waiting" in waiting.stdout.readline()
        slurm.cluster.command(["scontrol", "update", f"JobId={told.job}", "StartTime=now"])
        printed, _ = waiting.communicate(timeout=240)
    assert waiting.returncode == 0, Path(told.log).read_text()
    assert "Tables:" in printed
    for name, table in expected.items():
        assert_frame_equal(sweep.results[name], table, check_exact=True)
    ended = sweep.analysis_job()
    assert ended is not None
    assert (ended.state, ended.exit_code, ended.cluster) == ("finished", 0, "later")
    assert ended.done == ended.blocks > 0


@pytest.mark.parametrize(
    ("walltime", "state"), [pytest.param(3600, "interrupted"), pytest.param(100, "broken")]
)
def test_a_job_that_is_asked_to_end_begins_again_except_at_its_walltime(
    sweep: Sweep, walltime: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(execution, "analyze", interrupted)
    monkeypatch.setattr(processes, "on_stop", lambda callback: None)
    monkeypatch.setattr(processes, "received", lambda: frozenset({processes.CHECKPOINT}))
    request = {"options": to_json(OPTIONS), "dask": "threads", "workers": 1}
    (sweep.paths.analyses / "0001").mkdir(parents=True)
    write_json(
        sweep.paths.analyses / "0001" / "intent.json",
        {"cluster": "lab", "submitter": "a b 1 2", "request": request}
        | {"walltime": walltime, "modules": "."},  # as versions before wrote it
    )
    if state == "broken":
        early = "the walltime, 1 min, of which the last 120 s are for ending in order, is too short"
        with pytest.raises(RuntimeError, match=early):
            execution.run(str(sweep.directory), "0001")
    else:
        assert execution.run(str(sweep.directory), "0001") == STOPPED
    (attempt,) = (sweep.paths.analyses / "0001" / "lives").glob("*/progress.json")
    assert read_json(attempt)["state"] == state
    (job,) = sweep.paths.analysis_jobs()
    submission = Submission(job, Intent.read(job, identity_of(sweep.paths)))
    assert [file.name for file in _lost_prints(submission, 0)] == [], "it prints to its job's files"
    if state == "broken":
        told = sweep.status()["analysis"]
        assert told is not None
        assert told["state"] == "broken"
        monkeypatch.undo()
        sweep.analyze(OPTIONS)
        assert sweep.status()["analysis"] is None, "there are later results"


@pytest.mark.slow
def test_what_ends_the_job_ends_the_command_that_waits(
    sweep: Sweep, profile: Path, tmp_path: Path
) -> None:
    module = (
        "import os\n\n"
        "if 'SLURM_JOB_ID' in os.environ:\n    raise ValueError('never')\n\n"
        "def wrong(part):\n    return part.label.mean(axis=1)\n"
    )
    write(tmp_path / "mine.py", module)
    asked = ("--metric", "mine:wrong", "--cluster", profile)
    done = command("analyze", sweep.directory, *asked, "--wait", cwd=tmp_path)
    assert done.returncode == 2
    assert "can't be imported: ValueError: never" in done.stderr
    assert "Traceback" not in done.stderr
    assert not sweep.paths.analysis.exists()
    told = json.loads(command("status", sweep.directory, "--json").stdout)["analysis"]
    assert (told["state"], told["exit_code"]) == ("broken", 2)
    log = command("logs", sweep.directory, told["job"])
    assert "Traceback" in log.stdout


@pytest.mark.slow
def test_a_job_that_is_cancelled_is_said_to_be(sweep: Sweep, profile: Path, slurm: Slurm) -> None:
    partition = ["scontrol", "update", "PartitionName=cpu"]
    slurm.cluster.command([*partition, "State=DOWN"])  # what is submitted waits
    try:
        done = command("analyze", sweep.directory, "--cluster", profile, "--json")
        submitted = json.loads(done.stdout)
        assert submitted["state"] == "waiting"
        slurm.cluster.command(["scancel", submitted["job"]])
    finally:
        slurm.cluster.command([*partition, "State=UP"])

    def told() -> analyses.AnalysisJob:
        found = sweep.analysis_job()
        assert found is not None
        return found

    # accounting hears of it a little later, or never of a job that did not begin
    wait_until(lambda: told().state in ("cancelled", "gone"), lambda: f"a cancelled job: {told()}")
    assert told().exit_code is None
    assert jobs_left(slurm) == []


@pytest.mark.slow
def test_workers_that_never_come_end_with_one_message_and_leave_no_job(
    sweep: Sweep, profile: Path, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "START_SECONDS", 1.0)
    monkeypatch.setattr(workers, "ASK_SECONDS", 0.5)
    later = write(tmp_path / "later.toml", LATER + profile.read_text())
    with pytest.raises(UnavailableError, match=r"no worker came within .*pending BeginTime"):
        sweep.analyze(OPTIONS, dask="slurm", cluster=str(later))
    monkeypatch.setattr(workers, "START_SECONDS", 600.0)
    broken = write(tmp_path / "broken.toml", 'python = "/no/such/python"\n' + profile.read_text())
    with pytest.raises(UnavailableError, match=r"(?s)all workers' jobs ended.*/no/such/python"):
        sweep.analyze(OPTIONS, dask="slurm", cluster=str(broken), workers=1)
    wait_until(lambda: jobs_left(slurm) == [], "an empty queue")
    assert not sweep.paths.analysis.exists()


def test_an_interrupted_analysis_leaves_no_job_behind(
    sweep: Sweep, profile: Path, slurm: Slurm
) -> None:
    def interrupt(done: int, blocks: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep.analyze(OPTIONS, dask="slurm", cluster=str(profile), progress=interrupt)
    wait_until(lambda: jobs_left(slurm) == [], "an empty queue")
    assert not sweep.paths.analysis.exists()


def test_what_slurm_refuses_leaves_nothing(sweep: Sweep, profile: Path, tmp_path: Path) -> None:
    text = profile.read_text().replace('"cpu"', '"nowhere"')
    refused = str(write(tmp_path / "refused.toml", text))
    with pytest.raises(UserError, match=r"(?s)SLURM refuses: .*partition.*nothing was submitted"):
        sweep.submit_analysis(OPTIONS, cluster=refused)
    with pytest.raises(UserError, match=r"(?s)SLURM refuses: .*partition.*nothing was submitted"):
        sweep.analyze(OPTIONS, dask="slurm", cluster=refused)
    assert not sweep.paths.analyses.is_dir() or not [
        *sweep.paths.analyses.glob("[0-9]*"),
        *sweep.paths.analyses.glob("manyseed-*"),
    ]


def test_a_cluster_must_be_there(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    silent = str(write(tmp_path / "silent.toml", PROFILE.format(conf="/no/such/slurm.conf")))
    monkeypatch.setattr(workers, "available", lambda: True)
    for dask in ("threads", "slurm"):
        submit = sweep.analyze if dask == "slurm" else sweep.submit_analysis
        with pytest.raises(UserError, match=r'^cluster = "lub": there is no such cluster profile'):
            submit(OPTIONS, dask=dask, cluster="lub")
        with pytest.raises(UnavailableError, match="no such file"):
            submit(OPTIONS, dask=dask, cluster=silent)
        with pytest.raises(UserError, match="no SLURM cluster"):
            submit(OPTIONS, dask=dask, cluster="local")
    monkeypatch.setattr(workers, "available", lambda: False)
    with pytest.raises(UnavailableError, match="sbatch is not on PATH"):
        sweep.analyze(OPTIONS, dask="slurm", cluster=silent)
    with pytest.raises(UserError, match="nothing is computed there"):
        sweep.analyze(OPTIONS, cluster=silent)
    with workers.scheduler("threads", folder=tmp_path, cluster="local") as here_alone:
        assert here_alone == "threads"
    assert sweep.analysis_job() is None
    refused = command("analyze", sweep.directory, "--wait")
    assert refused.returncode == 2
    assert "give --cluster, too" in refused.stderr


def test_one_analysis_at_a_time(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "LeaseWatch", partial(LeaseWatch, seconds=0.6))
    with (
        execution.alone(sweep.paths),
        pytest.raises(UserError, match=r"another analysis is running: .* process"),
    ):
        sweep.analyze(OPTIONS)
    assert not sweep.paths.analysis.exists()
    with execution.alone(sweep.paths) as lease:
        lease.check()


def test_json_is_all_that_is_printed(sweep: Sweep) -> None:
    printed = command("analyze", sweep.directory, "--resamples", "3", "--json").stdout
    assert json.loads(printed)["problems"] == []


def jobs_left(slurm: Slurm) -> list[str]:
    return slurm.cluster.command(["squeue", "-h", "-o", "%j"]).split()
