"""Sweeps that a profile's own commands submit: to scripts that start processes, and to SLURM.

The scripts are a scheduler in shell, made here. Elements wait while a file ``hold`` exists.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from manyseed.jobs.datasets.cache import data_home
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.submissions.submission import Submission
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.tasks import intent
from tests.cluster import Slurm, wait_until
from tests.orchestrator.conftest import QUICK, apart, command, write
from tests.orchestrator.submissions.test_slurm import finish, report
from tests.orchestrator.test_run import SLOWER

pytestmark = pytest.mark.process

# each element is a folder: `started` once it may run, `pid` of its process
QSUB = """
cd {folder}
[ -e broken ] && {{ echo 'qsub: connection refused' >&2; exit 9; }}
[ -e refuses ] && {{ echo 'qsub: no such queue' >&2; exit 1; }}
last=$1 script=$2
id=$(($(ls jobs | wc -l) + 41))
mkdir jobs/$id
for n in $(seq 1 $last); do
    mkdir jobs/$id/$n
    export MY_TASK=$n PLACE={folder}/jobs/$id/$n SCRIPT=$script HOLD={folder}/hold
    setsid bash -c 'echo $$ >$PLACE/pid
        while [ -e $HOLD ]; do sleep 0.05; done
        touch $PLACE/started; exec bash $SCRIPT' >/dev/null 2>&1 </dev/null &
done
echo "welcome"; echo "your job $id.1-$last is submitted"
"""
QSTAT = """
cd {folder}
[ -e broken ] && {{ echo 'qstat: connection refused' >&2; exit 9; }}
echo "$@" >>asked
echo 'id task state'
code=0
for id in "$@"; do
    [ -d jobs/$id ] || {{ echo "qstat: unknown job $id" >&2; code=3; continue; }}
    for n in $(ls jobs/$id); do
        if ! kill -0 $(cat jobs/$id/$n/pid 2>/dev/null || echo $$) 2>/dev/null; then state=E
        elif [ -e jobs/$id/$n/started ]; then state=R; else state=Q; fi
        [ $state = E -a -e forgets ] || echo "$id.here $n $state"
    done
done
exit $code
"""
QDEL = """
cd {folder}
echo "$1 $2" >>deleted
kill $(cat jobs/$1/$2/pid) 2>/dev/null || {{ echo "qdel: unknown job $1" >&2; exit 1; }}
"""
PROFILE = r"""
scheduler = "command"
submit    = "myqsub {count} {script}"
submitted = '^your job (\d+)'
states    = "myqstat {jobs}"
line      = '^(?P<job>\d+)\.here (?P<index>\d+) (?P<state>\w)$'
waiting   = ["Q"]
ended     = ["E"]
cancel    = "myqdel {job} {index}"
unknown   = "unknown job"
index     = "MY_TASK"
max-array = 3
time      = "0:05:00"
[cpu]
cpus-per-task = 1
setup         = ["export SEEN_BY_TASKS=1"]
"""


class Scripts:
    """The scheduler that these tests make: its folder, and what it has done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").mkdir(parents=True)
        for name, text in {"myqsub": QSUB, "myqstat": QSTAT, "myqdel": QDEL}.items():
            script = write(folder / name, "#!/bin/bash\n" + text.format(folder=folder))
            script.chmod(0o755)

    def set(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    def unset(self, name: str) -> None:
        (self.folder / name).unlink()

    def text(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    @property
    def elements(self) -> list[Path]:
        return sorted((self.folder / "jobs").glob("*/*"))

    def alive(self) -> list[int]:
        pids = [int(file.read_text() or 0) for file in self.folder.glob("jobs/*/*/pid")]
        return [pid for pid in pids if pid and Path(f"/proc/{pid}").exists()]

    def end(self) -> None:
        """Kill all tasks, also those whose processes have not noted their pids yet."""

        def are_ended() -> bool:
            for pid in self.alive():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            files = [place / "pid" for place in self.elements]
            noted = all(file.exists() and file.read_text() for file in files)
            return noted and not self.alive()

        wait_until(are_ended, lambda: f"the end of all tasks: {self.alive()} of {self.elements}")


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripts]:
    made = Scripts(tmp_path / "scheduler")
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("manyseed.orchestrator.submissions.scheduler.ASK_SECONDS", 0.2)
    scheduler_of.cache_clear()
    yield made
    made.end()


@pytest.fixture
def profile(scripts: Scripts, tmp_path: Path) -> str:
    return str(write(tmp_path / "lab.toml", PROFILE))


@pytest.fixture
def sweep(tmp_path: Path, small_tasks: None) -> Sweep:
    return Sweep.plan(write(tmp_path / "quick.toml", QUICK), tmp_path / "sweep")


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even a small sweep into several tasks."""
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 0.5)
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._PARALLELISM", 4)


def submit(sweep: Sweep, profile: str) -> Submission:
    submission = sweep.submit(cluster=profile)
    assert submission is not None
    return submission


def states_of(sweep: Sweep) -> list[str]:
    return [task.state for submission in sweep.submissions() for task in submission.tasks()]


def test_a_sweep_is_trained_and_told_of_like_slurms(
    sweep: Sweep, profile: str, quick: Sweep, scripts: Scripts
) -> None:
    scripts.set("hold")
    submission = submit(sweep, profile)
    n = submission.intent.tasks
    assert n > 3, "several arrays, as max-array = 3"
    assert [job.id for job in submission.jobs().values()][:4] == ["41_0", "41_1", "41_2", "42_0"]
    assert states_of(sweep) == ["waiting"] * n
    assert sweep.status()["jobs"]["waiting"][0] == "41_[0-2]"
    assert "no run is missing" not in command("resume", sweep.directory).stdout
    assert len(sweep.submissions()) == 1, "what waits is not submitted again"
    scripts.unset("hold")
    finish(sweep, quick)
    assert sweep.status()["tasks"] == {"finished": n}
    assert sweep.status()["duplicates"] == 0
    assert "no run is missing" in command("resume", sweep.directory).stdout
    texts = [command("logs", sweep.directory, what).stdout for what in ("1/3", "42_0")]
    assert texts[0] == texts[1]
    assert "starts manyseed.orchestrator.working.worker:run_task" in texts[0]
    assert f"with data in {data_home()}" in texts[0], "where the job looks for it"
    assert not list(sweep.paths.tasks.rglob("*.pkl")), "no job reads a pickle"


@pytest.mark.parametrize("is_seen", [True, False])
def test_tasks_without_the_submitters_environment_read_its_data(
    *, is_seen: bool, tmp_path: Path, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with sbatch's ``--export=NONE``, where the job's home is not the shell's."""
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    file = write(tmp_path / "t.csv", "x,y\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(60)))
    text = QUICK.replace('sklearn:breast_cancer"', f'file:{file}"\ntarget = "y"')
    sweep = Sweep.plan(write(tmp_path / "csv.toml", text), tmp_path / "csv")
    lines = f'"unset MANYSEED_DATA; export HOME={tmp_path}/home"'
    lab = str(write(tmp_path / "lab.toml", PROFILE.replace('SEEN_BY_TASKS=1"', f'A=1", {lines}')))
    if not is_seen:
        scripts.set("hold")
    submission = submit(sweep, lab)
    if not is_seen:
        (tmp_path / "data").rename(tmp_path / "away")
        scripts.unset("hold")
        wait_until(lambda: {*states_of(sweep)} == {"broken"}, lambda: report(sweep))
        (attempt, *_) = submission.attempts()
        there = tmp_path / "home" / ".cache" / "manyseed"
        assert f"prepared in {tmp_path}/data, but the job looks in {there}" in attempt.reason
        assert 'setup = ["export MANYSEED_DATA=…"]' in attempt.reason
        assert "--fetch" not in attempt.reason
        assert not attempt.node_at_fault
        return
    sweep.wait()
    runs = sweep.status()["runs"]
    assert (runs["missing"], runs["failed"]) == (0, 0), report(sweep)


def ended_and_resumed(tmp_path: Path, profile: str, end: Callable[[], object], state: str) -> None:
    """End all tasks of a sweep once runs are finished, and resume it."""
    sweep = Sweep.plan(write(tmp_path / "slower.toml", SLOWER), tmp_path / "sweep")
    submission = submit(sweep, profile)
    journals = sweep.paths.journals
    wait_until(
        lambda: any(file.stat().st_size > 5_000 for file in journals.glob("*.journal")),
        lambda: f"a journal with finished runs: {report(sweep)}",
    )
    end()
    wait_until(lambda: {*states_of(sweep)} <= {state, "finished"}, lambda: report(sweep))
    before = sweep.status()["runs"]
    assert before["done"] > 0
    assert before["missing"] > 0, "the end came too late"
    again = submit(sweep, profile)
    assert again.n_runs == before["missing"]
    assert again.number == submission.number + 1
    sweep.wait()
    after = sweep.status()
    assert (after["runs"]["missing"], after["runs"]["failed"]) == (0, 0), report(sweep)
    assert after["duplicates"] == 0
    sweep.compact()
    assert sweep.verify()["runs_wrong"] == 0


def test_tasks_that_are_killed_are_resumed_and_nothing_finished_is_lost(
    tmp_path: Path, profile: str, scripts: Scripts, small_tasks: None
) -> None:
    ended_and_resumed(tmp_path, profile, scripts.end, "killed")  # kill -9


def test_where_ended_jobs_are_not_listed_each_is_looked_up_before_it_is_submitted_again(
    sweep: Sweep, profile: str, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.submissions.submission._SILENT_SECONDS", 0.0)
    scripts.set("hold", "forgets")
    submission = submit(sweep, profile)
    scripts.end()
    assert set(states_of(sweep)) == {"gone"}
    asked = scripts.text("asked")
    assert sweep.status()["runs"]["missing"] == submission.n_runs
    scripts.unset("hold")
    assert submit(sweep, profile).n_runs == submission.n_runs
    looked_up = scripts.text("asked")[len(asked) :]
    assert "41" in looked_up, f"each was looked up by its id before: {looked_up}"
    sweep.wait()
    assert sweep.status()["runs"]["missing"] == 0, report(sweep)


def test_runs_that_no_task_holds_are_told_until_they_are_submitted_again(
    sweep: Sweep, profile: str, scripts: Scripts
) -> None:
    scripts.set("hold")
    only = sweep.submit(cluster=profile, only="perturb_continuous = 'none'")
    assert only is not None
    told = [text for text in sweep.status()["problems"] if "no task that waits" in text]
    assert told == [
        f"{64 - only.n_runs} missing runs belong to no task that waits or trains: "
        f"manyseed resume {sweep.directory}"
    ]
    rest = submit(sweep, profile)
    assert sweep.status()["problems"] == []
    os.kill(int((scripts.elements[0] / "pid").read_text()), signal.SIGKILL)
    wait_until(lambda: states_of(sweep)[0] != "waiting", lambda: report(sweep))
    (told,) = (text for text in sweep.status()["problems"] if "trains the remaining runs" in text)
    assert told.startswith("1 task was killed: "), told
    again = submit(sweep, profile)
    assert again.n_runs < rest.n_runs
    assert sweep.status()["problems"] == [], "others train them"


def test_a_scheduler_that_does_not_answer_is_unavailable_and_nothing_changes(
    sweep: Sweep, profile: str, scripts: Scripts
) -> None:
    scripts.set("broken")
    done = apart("submit", sweep.directory, "--cluster", profile)
    assert (done.returncode, "connection refused" in done.stderr) == (4, True), done
    assert scripts.elements == []
    scripts.unset("broken")
    scripts.set("hold")
    assert apart("resume", sweep.directory, "--cluster", profile).returncode == 0
    assert states_of(sweep).count("waiting") == (n := len(scripts.elements))
    scripts.set("broken")
    done = apart("resume", sweep.directory)
    assert (done.returncode, "does not answer" in done.stderr) == (4, True), done
    assert len(scripts.elements) == n > 0, "nothing is submitted twice"
    done = apart("status", sweep.directory)
    assert (done.returncode, "does not answer" in done.stdout) == (3, True), done


def test_a_refusal_is_the_schedulers_own_and_leaves_nothing(
    sweep: Sweep, profile: str, scripts: Scripts
) -> None:
    scripts.set("refuses")
    with pytest.raises(UserError, match=r"the scheduler refuses: .*no such queue"):
        sweep.submit(cluster=profile)
    assert sweep.submissions() == []
    assert not sweep.paths.tasks.exists() or not list(sweep.paths.tasks.glob("0*"))


def test_a_crash_between_the_command_and_the_note_orphans_nothing(
    sweep: Sweep, profile: str, quick: Sweep, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*arguments: object) -> None:
        raise SystemExit

    scripts.set("hold")
    with monkeypatch.context() as patch:
        patch.setattr("manyseed.orchestrator.submissions.submission.Submission.note_jobs", crash)
        patch.setattr(intent.processes, "fingerprint", lambda pid: "elsewhere boot 1 2")
        with pytest.raises(SystemExit):
            sweep.submit(cluster=profile)
    (submission,) = sweep.submissions()
    assert not submission.files.jobs.exists()
    n = len(scripts.elements)
    assert states_of(sweep).count("waiting") == n == 3, "one array was submitted"
    rest = sweep.submit(cluster=profile)
    assert rest is not None
    assert rest.n_runs < 64, "what waits is not submitted again"
    scripts.unset("hold")
    finish(sweep, quick)
    assert sweep.status()["duplicates"] == 0


def test_waiting_tasks_are_cancelled_and_running_ones_end_by_themselves(
    sweep: Sweep, profile: str, quick: Sweep, scripts: Scripts
) -> None:
    scripts.set("hold")
    n = submit(sweep, profile).intent.tasks
    assert sweep.cancel() == (0, n)
    assert len(scripts.text("deleted")) == n
    assert scripts.text("deleted")[0] == "41 1", "elements are numbered from 1 there"
    wait_until(lambda: not scripts.alive(), "the end of what was deleted")
    assert set(states_of(sweep)) <= {"cancelled", "killed"}
    scripts.unset("hold")
    submit(sweep, profile)
    finish(sweep, quick)


def test_what_only_slurm_can_is_refused_where_asked_for(
    sweep: Sweep, profile: str, scripts: Scripts
) -> None:
    scripts.set("hold")
    for words, key in (
        (("run", sweep.directory.parent / "quick.toml", "--out", "other", "--detach"), "--detach"),
        (("submit", sweep.directory, "--memory", "2G"), "--memory"),
        (("analyze", sweep.directory, "--dask", "slurm"), "--dask"),
        (("analyze", sweep.directory, "--dask", "slurm", "--detach"), "--dask"),
        (("cluster", "check", profile), "NAME"),
    ):
        more = () if words[0] == "cluster" else ("--cluster", profile)
        done = command(*words, *more, cwd=sweep.directory.parent)
        assert (done.returncode, key in done.stderr) == (2, True), done.output
        assert "Traceback" not in done.output
    assert scripts.elements == []
    submit(sweep, profile)
    for option in (["--pause"], ["--throttle", "2"]):
        done = command("cancel", sweep.directory, *option)
        assert (done.returncode, option[0] in done.stderr) == (2, True), done.output
        assert "that takes SLURM" in done.stderr
    assert scripts.text("deleted") == []


def test_commands_of_a_profile_that_is_not_ones_own_are_not_run(
    sweep: Sweep, profile: str, scripts: Scripts, tmp_path: Path
) -> None:
    scripts.set("hold")
    submit(sweep, profile)
    assert "waiting" in states_of(sweep)
    asked = scripts.text("asked")
    (tmp_path / "config" / "manyseed" / "cluster-files").unlink()  # as somebody else's sweep
    with suppress(UnavailableError):  # SLURM is asked, where there is one
        states_of(sweep)
    assert sweep.submissions()[0].intent.profile == profile
    assert scripts.text("asked") == asked


def test_what_a_plan_takes_there_is_told(sweep: Sweep, profile: str) -> None:
    file = sweep.directory.parent / "quick.toml"
    done = command("plan", file, "--out", sweep.directory, "--cluster", profile, "--dry-run")
    assert done.returncode == 0, done.output
    assert "lab" in done.output


def test_an_analysis_is_a_job_there(
    quick: Sweep, tmp_path: Path, profile: str, scripts: Scripts
) -> None:
    import shutil

    copy = Sweep(shutil.copytree(quick.directory, tmp_path / "copy"))
    done = command("analyze", copy.directory, "--cluster", profile, "--resamples", "5")
    assert done.returncode == 0, done.output
    wait_until(lambda: not scripts.alive(), "the end of the analysis")
    job = copy.analysis_job()
    assert job is not None
    assert (job.state, job.job, job.exit_code) == ("finished", "41_0", 0), job
    assert Path(job.log).exists()
    assert copy.paths.results.exists()


SLURM_BY_COMMANDS = r"""
scheduler = "command"
submit    = "sbatch OPTIONS -a 0-{last}%{parallelism} {script}"
submitted = 'Submitted batch job (\d+)'
states    = "squeue -h -r -t all -o '%F %K %T' -j $(echo {jobs} | tr ' ' ,)"
line      = '^(?P<job>\d+) (?P<index>\d+) (?P<state>\w+)$'
waiting   = ["PENDING"]
ended     = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"]
cancel    = "scancel {job}_{index}"
unknown   = "Invalid job id"
index     = "SLURM_ARRAY_TASK_ID"
max-array = 8
time      = "0:05:00"
mem       = "700M"
parallelism = 3
[cpu]
cpus-per-task = 2
""".replace("OPTIONS", "-p cpu -c {cores} -t {minutes} --mem={megabytes}M -J {name} -o /dev/null")


@pytest.fixture
def on_slurm(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("manyseed.orchestrator.submissions.scheduler.ASK_SECONDS", 0.5)
    return str(write(tmp_path / "lab.toml", SLURM_BY_COMMANDS))


def test_slurm_itself_is_one_of_them(
    sweep: Sweep, on_slurm: str, quick: Sweep, slurm: Slurm
) -> None:
    partition = ["scontrol", "update", "PartitionName=cpu"]
    slurm.cluster.command([*partition, "State=DOWN"])  # what is submitted waits
    try:
        first = submit(sweep, on_slurm)
        jobs = {job.id for job in first.jobs().values()}
        shown = ["squeue", "-h", "-r", "-t", "all", "-o", "%i %T"]
        waiting = {f"{job} PENDING" for job in jobs}
        assert waiting <= {*slurm.cluster.command(shown).splitlines()}
        assert states_of(sweep) == ["waiting"] * first.intent.tasks
        assert sweep.submit() is None, "it waits where the runs were last submitted"
        assert sweep.cancel() == (0, first.intent.tasks)
        wait_until(lambda: not waiting & {*slurm.cluster.command(shown).splitlines()}, "their end")
    finally:
        slurm.cluster.command([*partition, "State=UP"])
    assert sweep.submit() is not None
    finish(sweep, quick)
    assert sweep.status()["duplicates"] == 0


@pytest.mark.slow
def test_tasks_that_slurm_ends_are_resumed(
    tmp_path: Path, on_slurm: str, slurm: Slurm, small_tasks: None
) -> None:
    def end() -> None:
        arrays = slurm.cluster.command(["squeue", "-h", "-o", "%F"]).split()
        slurm.cluster.command(["scancel", *{*arrays}])

    ended_and_resumed(tmp_path, on_slurm, end, "stopped")  # they publish what they have
