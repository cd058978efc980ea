"""What users' commands make of what SLURM answers, refuses and forgets; without a cluster."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from manyseed import Sweep
from manyseed.orchestrator.analyses import execution
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.tasks.attempts import MORE_TIME, Attempt
from manyseed.slurm import ClusterError, ClusterUnavailable, commands, local
from tests.orchestrator.conftest import command, write
from tests.orchestrator.submissions.test_cluster import WINE

RUNS = 4
CONFIG = "ClusterName = lab\nMaxArraySize = 1001\nMaxJobCount = 1000\n"


class Lab:
    """SLURM's commands as one function: it takes arrays, and lists the states that it is given."""

    def __init__(self) -> None:
        self.arrays: list[tuple[str, int]] = []
        self.states: dict[str, str] = {}
        self.refuses: dict[str, str] = {}
        self.cancelled: list[str] = []
        self.updated: list[list[str]] = []
        self.is_silent = False
        self.forgotten = "RUNNING"  # the state of jobs that squeue does not list
        self.reason = "None"
        self.nodes = "cpu*|up|infinite|infinite|1|1|4000|(null)\n"

    def run(self, words: list[str]) -> str:
        kind = "show job" if "job" in words else words[0]
        if self.is_silent:
            raise ClusterUnavailable("the cluster does not answer: Unable to contact slurm")
        if kind in self.refuses:
            raise ClusterError(self.refuses[kind])
        if kind == "sbatch":
            text = Path(words[1]).read_text()
            name, last = re.search(r"--job-name=(\S+)", text), re.search(r"--array=0-(\d+)", text)
            assert name
            assert last
            self.arrays.append((name[1], int(last[1]) + 1))
            return f"Submitted batch job {len(self.arrays)}\n"
        if kind == "squeue":
            rows = ((*job.split("_"), state) for job, state in self.states.items())
            why = self.reason
            return "".join(f"{a}|{n}|{s}|{why}|n1|N/A|{self._name(a)}\n" for a, n, s in rows)
        if kind == "show job":
            a = words[-1]
            shown = f"ArrayJobId={a} ArrayTaskId=0-{RUNS - 1} JobName={self._name(a)}"
            return f"JobId=99 {shown} JobState={self.forgotten} Reason=None NodeList=n1\n"
        if kind == "scancel":
            self.cancelled += words[1:]
        if words[:2] == ["scontrol", "update"]:
            self.updated.append(words[2:])
        if kind == "sinfo":
            return self.nodes
        return CONFIG if kind == "scontrol" else ""

    def _name(self, array: str) -> str:
        return self.arrays[int(array) - 1][0]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A cluster whose commands this process calls, and its profile ``lab.toml``."""
    lab = Lab()
    scheduler_of.cache_clear()  # it remembers jobs of an earlier test
    monkeypatch.setattr(commands, "run", lab.run)
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 1e-9)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("sbatch", "srun"):
        write(tmp_path / name, "#!/bin/sh\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    write(tmp_path / "lab.toml", 'time = "0:10:00"\nmem = "1G"\n[cpu]\ncpus-per-task = 1\n')
    return lab


@pytest.fixture
def sweep(lab: Lab, tmp_path: Path) -> Sweep:
    """A sweep whose runs are the cluster's, one in each of an array's jobs."""
    sweep = Sweep.plan(write(tmp_path / "wine.toml", WINE), tmp_path / "sweep")
    sweep.submit(cluster=str(tmp_path / "lab.toml"))
    assert [n for _, n in lab.arrays] == [RUNS]
    return sweep


@pytest.mark.parametrize(
    ("table", "nodes", "said"),
    [
        (
            'time = "3:00:00"',
            "cpu*|up|2:00:00|infinite|1|4|4000|(null)\nlong|up|1-00:00:00|1:00|1|4|4000|(null)",
            'cpu.time = "3:00:00": jobs would wait for ever: cpu gives 2:00:00 at most\n'
            '  write time = "2:00:00"; or another partition: long; or name the qos that lifts this '
            "limit",
        ),
        (
            "time = 10\ncpus-per-task = 6",
            "cpu*|up|infinite|infinite|1|4|4000|(null)",
            'cpu.cpus-per-task = "6": jobs would wait for ever: cpu gives 4 at most\n'
            "  write cpus-per-task = 4",
        ),
        (
            'time = 10\nmem = "9G"',
            "cpu*|up|infinite|infinite|1|4|4000|(null)\ncpu*|up|infinite|infinite|1|4|8000|(null)",
            'cpu.mem = "9G": jobs would wait for ever: cpu gives 8000M at most\n'
            '  write mem = "8000M"',
        ),
        ('time = 10\nmem = "9G"', "cpu*|up|infinite|infinite|1|4|1|(null)", ""),
        ('time = "3:00:00"\nqos = "long"', "cpu*|up|2:00:00|infinite|1|4|4000|(null)", ""),
        ('time = "3:00:00"', "cpu*|up|2:00:00|infinite|0|4|4000|(null)", ""),
        ('time = "3:00:00"\npartition = "gone"', "cpu*|up|2:00:00|infinite|1|4|4000|(null)", ""),
        (
            'time = 10\nmem = "7G"',
            "cpu*|up|1:0:0|1:0|1|4|4000|(null)\ncpu*|up|1:0:0|1:0|1|4|8000|",
            "",
        ),
    ],
)
def test_what_would_wait_for_ever_is_refused(
    lab: Lab, tmp_path: Path, table: str, nodes: str, said: str
) -> None:
    """SLURM takes jobs that no node of their partition can ever start."""
    lab.nodes = nodes + "\n"
    write(tmp_path / "lab.toml", table)
    sweep = Sweep.plan(write(tmp_path / "wine.toml", WINE), tmp_path / "sweep")
    before = sorted(sweep.directory.rglob("*"))
    done = command("submit", sweep.directory, "--cluster", tmp_path / "lab.toml")
    assert (done.returncode == 2) == bool(said), done.output
    assert said in done.stderr
    assert bool(lab.arrays) != bool(said)
    if said:
        assert sorted(sweep.directory.rglob("*")) == before
        checked = command("cluster", "check", tmp_path / "lab.toml")
        assert checked.returncode == 2
        assert said in checked.stderr


def test_where_accounting_refuses_a_resume_goes_by_squeue(lab: Lab, sweep: Sweep) -> None:
    lab.refuses = {"sacct": "slurmdbd: Unknown error 1021"}
    lab.refuses["show job"] = "slurm_load_jobs error: Invalid job id specified"
    lab.states = {f"1_{n}": "RUNNING" for n in range(1, RUNS)}  # one has ended
    resumed = command("resume", sweep.directory)
    assert resumed.returncode == 0, resumed.stderr
    told = "Accounting does not answer (slurmdbd: Unknown error 1021): what follows is by squeue.\n"
    assert resumed.stderr.startswith(told)
    assert resumed.stderr.count("Accounting") == 1
    assert [n for _, n in lab.arrays] == [RUNS, 1]
    lab.states |= {"2_0": "PENDING"}
    shown = command("status", sweep.directory)
    assert shown.returncode == 3, shown.output
    assert "Accounting" not in shown.output, "the same process"


def test_nothing_is_submitted_again_unless_the_controller_has_forgotten_it(
    lab: Lab, sweep: Sweep
) -> None:
    """squeue lists nothing, for whatever reason, and accounting is late."""
    resumed = command("resume", sweep.directory)
    assert "all missing runs are waiting or being trained" in resumed.output
    lab.refuses = {"show job": "slurm_load_jobs error: Access/permission denied"}
    resumed = command("resume", sweep.directory)
    assert resumed.returncode == 4, resumed.output
    assert "permission denied" in resumed.stderr
    assert len(lab.arrays) == 1
    lab.refuses = {"show job": "slurm_load_jobs error: Invalid job id specified"}
    resumed = command("resume", sweep.directory)
    assert resumed.returncode == 0, resumed.output
    assert [n for _, n in lab.arrays] == [RUNS, RUNS]


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_what_squeue_does_not_list_is_throttled_and_cancelled(
    lab: Lab, sweep: Sweep, state: str
) -> None:
    """It would go on, or start later, after a command that found nothing."""
    lab.forgotten = state
    done = command("cancel", sweep.directory, "--throttle", 2)
    assert "From now on 2 tasks at once (in 1 array)." in done.stdout, done.output
    assert lab.updated == [["ArrayTaskThrottle=2", "JobId=1"]]
    done = command("cancel", sweep.directory)
    stopped = f"{RUNS} tasks asked to stop after the fits in flight."
    said = stopped if state == "RUNNING" else f"{RUNS} waiting tasks cancelled."
    assert done.stdout.startswith(said), done.output
    assert lab.cancelled == ([] if state == "RUNNING" else [f"1_[0-{RUNS - 1}]"])


def test_what_waits_to_be_released_is_named_with_the_way(lab: Lab, sweep: Sweep) -> None:
    lab.states = {f"1_{n}": "PENDING" for n in range(RUNS)}
    lab.reason = "launch_failed_requeued_held"
    shown = command("status", sweep.directory)
    assert f"Tasks: {RUNS} held (1_[0-{RUNS - 1}])" in shown.stdout, shown.output
    told = f"{RUNS} tasks are held ({lab.reason}) and will not start: scontrol release '1_[0-3]'"
    assert told in " ".join(shown.stdout.split())
    lab.reason = "QOSMaxJobsPerUserLimit"
    told = " ".join(command("status", sweep.directory).stdout.split())
    assert f"{RUNS} tasks are waiting: {lab.reason}" in told
    assert "does not pass" not in told
    lab.reason = "PartitionTimeLimit"
    told = " ".join(command("status", sweep.directory).stdout.split())
    assert f"{RUNS} tasks are waiting: {lab.reason}, which does not pass: lower time in" in told
    assert f"lab.toml, manyseed cancel {sweep.directory}, then manyseed resume" in told
    lab.reason = "JobHeldUser"
    assert command("cancel", sweep.directory, "--pause").returncode == 0
    shown = command("status", sweep.directory)
    assert "releases paused tasks" in " ".join(shown.stdout.split()), shown.output
    assert "will not start" not in shown.stdout


def test_what_ends_before_python_starts_is_told_with_its_last_line(
    lab: Lab, sweep: Sweep, tmp_path: Path
) -> None:
    """Such as a setup command of the profile that fails in the job."""
    lab.states = {f"1_{n}": "FAILED" for n in range(RUNS)}
    told = " ".join(command("status", sweep.directory).stdout.split())
    said = f"{RUNS} tasks were stopped by an error before training"
    assert f"{said}; see setup, modules and python in {tmp_path / 'lab.toml'}" in told
    logs = next(iter(sweep.directory.rglob("*.sh"))).parent
    (logs / "1_0_0_log.err").write_text("module: no torch/9.9\n\n")
    told = " ".join(command("status", sweep.directory).stdout.split())
    assert f"{said}: module: no torch/9.9; see setup" in told
    assert f"manyseed logs {sweep.directory} 1_0" in told


def test_a_line_of_setup_that_failed_is_told_while_runs_are_missing(lab: Lab, sweep: Sweep) -> None:
    """Bash goes on after it, perhaps with another Python."""
    lab.states = {f"1_{n}": "FAILED" for n in range(RUNS)}
    logs = next(iter(sweep.directory.rglob("*.sh"))).parent
    lines = "/d/slurm_script: line 9: /no/activate: No such file\nsrun: error: n1: code 1\n"
    (logs / "1_0_0_log.err").write_text(lines)
    told = " ".join(command("status", sweep.directory).stdout.split())
    assert "before training: /no/activate: No such file … srun: error: n1: code 1; see" in told
    broke(sweep, 1, 0, "this Python has no torch")
    told = " ".join(command("status", sweep.directory).stdout.split())
    assert "a line of setup failed in job 1_0, which went on: /no/activate: No such file;" in told
    more = "/d/slurm_script: line 10: module: command not found\n"
    (logs / "1_0_0_log.err").write_text(lines + more)
    told = " ".join(command("status", sweep.directory).stdout.split())
    both = "2 lines of setup failed in job 1_0, which went on: /no/activate: No such file and 1"
    assert both in told


def test_logs_of_what_ended_before_training_say_so(
    lab: Lab, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setup with ``exit 1`` prints nothing."""

    def accounted(words: list[str]) -> str:
        rows = (f"1_{n}|FAILED|1:0|None|n1|a|b|{lab.arrays[0][0]}\n" for n in range(RUNS))
        return "".join(rows) if words[0] == "sacct" else lab.run(words)

    def ended() -> str:
        scheduler_of.cache_clear()
        done = command("logs", sweep.directory, "1_0")
        assert done.returncode == 0, done.output
        return " ".join(done.stdout.split())

    lab.states = {f"1_{n}": "PENDING" for n in range(RUNS)}
    assert ended() == "The task has not begun."
    lab.states = {f"1_{n}": "FAILED" for n in range(RUNS)}
    assert ended().startswith("The task failed before training; it printed nothing. Correct setup,")
    monkeypatch.setattr(commands, "run", accounted)
    file = tmp_path / "lab.toml"
    told = f"Correct setup, modules or python in {file}, then: manyseed resume {sweep.directory}"
    printed = ended()
    assert printed.startswith("The task failed (exit code 1) before training; it printed nothing.")
    assert told in printed
    shown = command("status", sweep.directory)
    assert f"correct it, then: manyseed resume {sweep.directory}" in " ".join(shown.stdout.split())
    assert f"Once {file} is corrected: manyseed resume {sweep.directory}" in shown.stdout
    logs = next(iter(sweep.directory.rglob("*.sh"))).parent
    (logs / "1_0_0_log.err").write_text("module: no torch/9.9\n")
    assert "The task failed (exit code 1) before training. Correct" in ended()


def test_why_earlier_submissions_broke_is_told_while_their_runs_are_missing(
    lab: Lab, sweep: Sweep, tmp_path: Path
) -> None:
    """The newest submission has only what was missing when it was made."""
    reason = f"the walltime ended 3 attempts of this task in a row, and none: {MORE_TIME}"
    lab.states = {f"1_{n}": "RUNNING" for n in range(RUNS)} | {"1_0": "COMPLETED"}
    broke(sweep, 1, 0, "the disk is full")
    resumed = command("resume", sweep.directory)
    more = f"{RUNS - 1} more are waiting or being trained."
    assert f"Submitted 1 run to lab: 1 cpu task of 1 process. {more}" in " ".join(
        resumed.stdout.split()
    )
    assert [n for _, n in lab.arrays] == [RUNS, 1]
    for number in range(1, RUNS):
        broke(sweep, 1, number, reason)
    lab.states = {"2_0": "CANCELLED"}
    shown = command("status", sweep.directory)
    told = " ".join(shown.stdout.split())
    assert f"{RUNS - 1} tasks were ended: {reason}" in told
    assert "the disk is full" not in told, "its runs were submitted again"
    after = f"With more time than 10 min 00 s in {tmp_path / 'lab.toml'}: "
    after += f"manyseed resume {sweep.directory}"
    assert after in shown.stdout


def test_a_walltime_that_was_too_short_for_one_fit_is_not_asked_for_again(
    lab: Lab, sweep: Sweep, tmp_path: Path
) -> None:
    lab.states = {f"1_{n}": "RUNNING" for n in range(RUNS)}
    reason = f"the walltime ended 3 attempts of this task in a row, and none: {MORE_TIME}"
    for number in range(1, RUNS):
        broke(sweep, 1, number, reason)
        del lab.states[f"1_{number}"]
    lab.forgotten = "COMPLETED"
    file, resume = tmp_path / "lab.toml", f"manyseed resume {sweep.directory}"
    told = " ".join(command("status", sweep.directory).stdout.split())
    belong = f"{RUNS - 1} missing runs belong to no task that waits or trains."
    assert f"{belong} With more time than 10 min 00 s in {file}: {resume}" in told
    same = command("resume", sweep.directory)
    assert same.returncode == 2
    short = "was too short for one fit: 1 run of task 1/1 had 10 min 00 s three times"
    assert f'{file}: cpu.time = "0:10:00": {short}' in same.stderr
    assert f'write more, such as time = "0:20:00", then: {resume}' in same.stderr
    assert len(lab.arrays) == 1
    write(file, file.read_text().replace("0:10:00", "0:20:00"))
    more = command("resume", sweep.directory)
    assert more.returncode == 0, more.output
    assert [n for _, n in lab.arrays] == [RUNS, RUNS - 1]
    lab.states |= {f"2_{n}": "PENDING" for n in range(RUNS - 1)}
    again = f"for the 20 min 00 s that {file} gives now: "
    again += f"manyseed cancel {sweep.directory} --now, then {resume}"
    told = f"1 task has the earlier walltime of 10 min 00 s; {again}"
    assert told in " ".join(more.stdout.split())
    waits = " ".join(command("resume", sweep.directory).stdout.split())
    assert f"Nothing to submit: all missing runs are waiting or being trained. {told}" in waits


def test_memory_that_tasks_in_the_queue_do_not_get_is_told(
    lab: Lab, sweep: Sweep, tmp_path: Path
) -> None:
    lab.states = {f"1_{n}": "PENDING" for n in range(RUNS)}
    file, again = tmp_path / "lab.toml", f"manyseed cancel {sweep.directory} --now, then "

    def told(*words: str) -> str:
        done = command("resume", sweep.directory, *words)
        assert done.returncode == 0, done.output
        return " ".join(done.stdout.split()).partition("being trained. ")[2]

    resume = f"manyseed resume {sweep.directory}"
    keep = f"{RUNS} tasks keep the earlier memory, "
    least = f"{keep}1G; for 3600M: {again}{resume} --memory 3600M"
    assert told("--memory", "3600M").startswith(least)
    assert keep not in told() + told("--memory", "auto") + told("--memory", "1024M")
    (listed,) = sweep.submissions()
    replace(listed.intent, memory={}).write(listed.folder)
    assert told("--memory", "3600M").startswith(least.replace("1G", "what the site gives"))
    listed.intent.write(listed.folder)
    write(file, file.read_text().replace("1G", "2G"))
    assert told().startswith(f"{keep}1G; for 2G: {again}{resume}")


def test_where_no_node_has_more_memory_nothing_is_submitted(lab: Lab, sweep: Sweep) -> None:
    (listed,) = sweep.submissions()
    replace(listed.intent, memory={"cpu": 4000 * 2**20}).write(listed.folder)
    lab.states, lab.forgotten = {}, "OUT_OF_MEMORY"
    before = {*sweep.directory.rglob("*")}
    done = command("resume", sweep.directory)
    assert done.returncode == 2, done.output
    assert "ran out of memory with 4000M, and no node of cpu has more than 4000M" in done.stderr
    ends = listed.folder / "ends.json"  # how jobs ended, which is asked for once
    assert {*sweep.directory.rglob("*")} - {ends} == before
    proposed = f"manyseed resume {sweep.directory} --memory 4000M"
    assert done.stderr.strip().endswith(f"then: {proposed}")
    again = command(*proposed.split()[1:])
    assert again.returncode == 0, again.output
    assert len(lab.arrays) == 2


def broke(sweep: Sweep, submission: int, task: int, reason: str) -> None:
    """Let a task end as one that could not go on."""
    folder = sweep.paths.submission(submission) / "lives" / f"{task:04d}-x"
    folder.mkdir(parents=True)
    plan = sweep.survey().plan.identity
    Attempt("broken", "p", started=1.0, updated=2.0, reason=reason, plan=plan).write(folder)


def test_a_cluster_that_is_silent_is_not_throttled(lab: Lab, sweep: Sweep) -> None:
    lab.is_silent = True
    done = command("cancel", sweep.directory, "--throttle", 2)
    assert (done.returncode, lab.updated) == (4, [])
    assert "lab: the cluster does not answer" in done.stderr
    assert "nothing was changed; repeat this when it answers" in done.stderr


TUNED = f'{WINE}hparams = ["tuned"]\n[tune]\ndraws = 2\n'


def test_a_search_that_is_a_job_is_known_on_a_cluster_that_does_not_tell_of_it(
    lab: Lab, tmp_path: Path
) -> None:
    file, directory = write(tmp_path / "tuned.toml", TUNED), tmp_path / "tuned"
    profile = tmp_path / "lab.toml"
    run = command("run", file, "--out", directory, "--cluster", profile, "--detach")
    assert run.returncode == 0, run.output

    def searches() -> int:
        return sum("-search-" in name for name, _ in lab.arrays)

    assert ("-search-" in lab.arrays[0][0], searches()) == (True, 1)
    resumed = command("resume", directory)
    assert resumed.returncode in (0, 3), resumed.output
    assert searches() == 1, "squeue lists nothing, but the controller knows the job"
    lab.is_silent = True
    shown = command("status", directory)
    assert (shown.returncode, "Search: job 1_0 unknown" in shown.stdout) == (3, True), shown.output
    resumed = command("resume", directory)
    assert (resumed.returncode, searches()) == (4, 1), resumed.output
    done = command("cancel", directory)
    assert done.returncode == 4
    assert "asked to stop" in done.stderr, "what was done is told as well"
    told = "the search for hparams, job 1_0 on lab, was not cancelled: repeat this when it answers"
    assert told in " ".join(done.stderr.split())
    lab.is_silent = False
    done = command("cancel", directory)
    assert (done.returncode, "1_[0]" in lab.cancelled) == (0, True), done.output


@pytest.mark.parametrize("told", ["RUNNING", "PENDING"])
def test_some_cells_are_left_out_and_the_way_back_is_named(
    lab: Lab, sweep: Sweep, told: str
) -> None:
    lab.states = {f"1_{n}": told for n in range(RUNS)}
    done = command("cancel", sweep.directory, "--only", "classifier = 'lr-sgd'")
    assert done.returncode == 0, done.output
    said = " ".join(done.stdout.split())
    in_flight = ", once what is in flight has ended" if told == "RUNNING" else ""
    cancelled = "" if in_flight else "; 4 waiting tasks cancelled"
    assert f"No task trains the 4 missing runs of 1 cell any more{in_flight}{cancelled}." in said
    (again,) = re.findall(r"Train them after all: manyseed (.*)", done.stdout)
    lab.states = {f"1_{n}": "CANCELLED" for n in range(RUNS)} if cancelled else lab.states
    resumed = command(*again.split())
    assert (resumed.returncode, [n for _, n in lab.arrays]) == (0, [RUNS, RUNS]), resumed.output


def test_a_word_that_slurm_invents_is_said_once_and_plainly(lab: Lab, sweep: Sweep) -> None:
    lab.states = {f"1_{n}": "DREAMING" for n in range(RUNS)}
    told = "SLURM says 'DREAMING' for the state of a job, which is not understood.\n"
    for said in (told, ""):  # the same process
        shown = command("status", sweep.directory, "--json")
        assert (shown.returncode, shown.stderr) == (3, said)


def tree(folder: Path) -> dict[Path, bytes]:
    """Return all that is in a folder: files by their contents."""
    return {file: file.read_bytes() if file.is_file() else b"" for file in folder.rglob("*")}


@pytest.mark.parametrize("name", ["a%jb", "a%%b", "a\\b"])
def test_a_sweep_whose_folder_slurm_would_take_for_another_is_refused(
    lab: Lab, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    profile = tmp_path / "lab.toml"
    file = write(tmp_path / "wine.toml", WINE)
    sweep = Sweep.plan(file, tmp_path / name / "sweep")
    before = tree(tmp_path)
    for verb, *words in (
        ("submit", sweep.directory),
        ("resume", sweep.directory),
        ("analyze", sweep.directory),
        ("run", file, "--out", tmp_path / name / "other"),
    ):
        done = command(verb, *words, "--cluster", profile)
        assert done.returncode == 2, done.output
        assert f"{words[-1]}/" in done.stderr
        assert f"SLURM takes {name[1:-1]} in it for something else" in done.stderr
        assert "rename the folder" in done.stderr
        assert tree(tmp_path) == before, verb
    checked = command("cluster", "check", profile, "--dir", tmp_path / name)
    assert checked.returncode == 4, checked.output
    assert f"SLURM takes {name[1:-1]} in it" in checked.stdout
    assert lab.arrays == []


def test_what_is_refused_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    file = write(tmp_path / "wine.toml", WINE)
    sweep = Sweep.plan(file, tmp_path / "sweep")
    cpu, given = "[cpu]\ncpus-per-task = 1\n", ("--cluster", tmp_path / "odd.toml")
    for profile, told in (
        (f'time = "0:01:00"\n{cpu}', "more than 120 s"),
        (f'time = "1:00:00"\nsetup-file = "/no/such.sh"\n{cpu}', "there is no such file"),
        ('[gpu]\ntime = "1:00:00"\ngres = "gpu:1"\n', "the profile has no such table"),
    ):
        write(tmp_path / "odd.toml", profile)
        before = tree(tmp_path)
        for words in (("submit", sweep.directory), ("run", file, "--out", tmp_path / "other")):
            done = command(*words, *given)
            assert (done.returncode, told in " ".join(done.stderr.split())) == (2, True), done
            assert tree(tmp_path) == before, (told, words)
    lab.refuses = {"scontrol": "slurm_load_ctl_conf error: Unable to contact slurm controller"}
    done = command("submit", sweep.directory, "--cluster", tmp_path / "lab.toml")
    assert (done.returncode, tree(tmp_path)) == (4, before), done.output


REFUSALS = (
    "sbatch: error: Batch job submission failed: Invalid account or account/partition combination "
    "specified",
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job "
    "violates accounting/QOS policy",
    "sbatch: error: invalid partition specified: nowhere",
)
"""What only sbatch knows."""


@pytest.mark.parametrize("told", REFUSALS)
def test_what_sbatch_refuses_changes_nothing(lab: Lab, tmp_path: Path, told: str) -> None:
    sweep = Sweep.plan(write(tmp_path / "wine.toml", WINE), tmp_path / "sweep")
    before = tree(tmp_path)
    lab.refuses = {"sbatch": told}
    for words in (["submit"], ["resume"], ["submit", "--limit", 1]):
        done = command(*words, sweep.directory, "--cluster", tmp_path / "lab.toml")
        assert (done.returncode, changed(tmp_path, before)) == (2, set()), done.output
        assert "nothing was submitted" in " ".join(done.stderr.split())
    lab.refuses = {}
    sweep.submit(cluster=str(tmp_path / "lab.toml"))
    assert [n for _, n in lab.arrays] == [RUNS]
    lab.states = {f"1_{n}": "RUNNING" for n in range(RUNS)}
    more = WINE.replace('"lr-sgd"', '"lr-sgd", "xgb"')
    Sweep.plan(write(tmp_path / "wine.toml", more), sweep.directory)
    before = tree(tmp_path)
    lab.refuses = {"sbatch": told}
    with pytest.raises(UserError, match="SLURM refuses"):
        sweep.submit()
    assert changed(tmp_path, before) == set()


def test_a_partition_that_is_refused_is_told_with_those_that_there_are(
    lab: Lab, tmp_path: Path
) -> None:
    sweep = Sweep.plan(write(tmp_path / "wine.toml", WINE), tmp_path / "sweep")
    profile = tmp_path / "lab.toml"
    profile.write_text(profile.read_text().replace("[cpu]", '[cpu]\npartition = "nowhere"'))
    lab.refuses = {"sbatch": REFUSALS[-1]}
    done = command("submit", sweep.directory, "--cluster", profile)
    told = 'SLURM lists no partition "nowhere" (cpu.partition); it lists '
    assert (done.returncode, told in " ".join(done.stderr.split())) == (2, True), done


def test_a_process_that_cannot_start_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.plan(write(tmp_path / "wine.toml", WINE), tmp_path / "sweep")
    before = tree(tmp_path)
    for error in (PermissionError(13, "Permission denied", "python"), RuntimeError("it ended")):
        with monkeypatch.context() as patched:
            patched.setattr(local, "submit", mock.Mock(side_effect=error))
            done = command("submit", sweep.directory, "--cluster", "local")
        assert (done.returncode, changed(tmp_path, before)) == (4, set()), done.output
        assert "cannot submit to this machine" in done.stderr
    assert command("submit", sweep.directory, "--cluster", "local").returncode == 0


def changed(folder: Path, before: dict[Path, bytes]) -> set[str]:
    """Return the files and folders that are not as they were, relative to `folder`."""
    after = tree(folder)
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return {str(name.relative_to(folder)) for name in names}


def test_what_sbatch_refuses_to_analyse_changes_nothing(
    lab: Lab, quick: Sweep, tmp_path: Path
) -> None:
    """Except for the lease of a command that analyses itself, with jobs as its workers."""
    sweep = Sweep(shutil.copytree(quick.directory, tmp_path / "sweep"))
    shutil.rmtree(sweep.paths.analyses, ignore_errors=True)
    before = tree(tmp_path)
    lab.refuses = {"sbatch": REFUSALS[0]}
    words = ("analyze", sweep.directory, "--cluster", tmp_path / "lab.toml")
    done = command(*words)
    assert (done.returncode, changed(tmp_path, before)) == (2, set()), done.output
    done = command(*words, "--dask", "slurm", "--workers", 1)
    left = {Path(name).name for name in changed(tmp_path, before)}
    assert (done.returncode, left) == (2, {"analyses", "analysis.00000001.lease"}), done.output
    lab.refuses = {}
    assert command(*words).returncode == 0


def test_an_analysis_is_replaced_only_by_one_that_is_taken(
    lab: Lab, sweep: Sweep, tmp_path: Path
) -> None:
    lab.states = {f"1_{n}": "RUNNING" for n in range(RUNS)}
    ask = {"cluster": str(tmp_path / "lab.toml"), "dask": "threads", "workers": None}
    assert execution.submit(sweep.paths, None, **ask, after_training=True) is not None
    lab.states |= {"2_0": "PENDING"}
    before = tree(tmp_path)
    lab.refuses = {"sbatch": REFUSALS[0]}
    with pytest.raises(UserError, match="SLURM refuses"):
        execution.submit(sweep.paths, None, **ask, after_training=True)
    assert (lab.cancelled, changed(tmp_path, before)) == ([], set())
    lab.refuses = {}
    assert execution.submit(sweep.paths, None, **ask, after_training=True) is not None
    assert lab.cancelled == ["2_[0]"]


def test_a_pause_ends_only_with_a_resume_that_is_not_refused(lab: Lab, tmp_path: Path) -> None:
    sweep = Sweep.plan(write(tmp_path / "wine.toml", WINE), tmp_path / "sweep")
    sweep.submit(cluster=str(tmp_path / "lab.toml"), limit=2)
    lab.states = {"1_0": "PENDING", "1_1": "PENDING"}
    sweep.pause()
    odd = write(tmp_path / "odd.toml", 'time = "0:01:00"\nmem = "1G"\n[cpu]\n')
    before = tree(sweep.directory)
    refused = command("resume", sweep.directory, "--cluster", odd)
    assert refused.returncode == 2, refused.output
    assert tree(sweep.directory) == before
    lab.refuses = {"sbatch": REFUSALS[1]}
    refused = command("resume", sweep.directory)
    assert (refused.returncode, changed(sweep.directory, before)) == (2, set()), refused.output
    lab.refuses = {}
    resumed = command("resume", sweep.directory)
    assert resumed.returncode == 0, resumed.output
    assert [n for _, n in lab.arrays] == [2, 2]
    assert not sweep.paths.submission(1).joinpath("stop").exists()
