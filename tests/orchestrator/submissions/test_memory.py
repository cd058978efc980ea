"""Memory that tasks asked for and used, and what the next ones ask for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.progress import status as progress
from manyseed.orchestrator.submissions.memory import (
    Usage,
    asked,
    in_words,
    scarce,
    shortage,
    sized,
    usage,
)
from manyseed.orchestrator.submissions.submission import Submission, TaskState
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.tasks.intent import Intent, SubmissionPaths, TaskArray
from manyseed.orchestrator.working.node import used
from manyseed.slurm.discover import Cluster, Limits, Partition
from manyseed.slurm.profile import Profile, read_profile
from tests.orchestrator.conftest import command

G, M = 2**30, 2**20
LAB = """
time = "1:00:00"
[cpu]
partition = "long"
cpus-per-task = 4
"""


def cluster(memory_mb: int) -> Cluster:
    long = Partition("long", True, True, None, None, 2, 8, memory_mb, "")
    return Cluster("lab", "23", 1001, 10_000, Limits(), True, (long,))


def profile(folder: Path, memory: str = "") -> Profile:
    (folder / "lab.toml").write_text(LAB + memory)
    return read_profile(folder / "lab.toml")


def submission(folder: Path, number: int, asked: float, *memory: int) -> Submission:
    """Return a submission of one task, which has used these amounts in its attempts."""
    folder = folder / f"{number:04d}"
    array = TaskArray("cpu", f"lab-{number}", 0, 1, 4)
    intent = Intent("lab", "host boot 1 2", arrays=(array,), memory={"cpu": asked} if asked else {})
    for index, n_bytes in enumerate(memory):
        attempt = SubmissionPaths(folder).attempt(0, f"{index}")
        attempt.mkdir(parents=True)
        report = Attempt("finished", "host boot 1 2", started=100.0, updated=200.0, memory=n_bytes)
        replace(report, cpu_seconds=250.0).write(attempt)
    return Submission(folder, intent)


def test_what_is_asked_for_is_read_in_each_of_slurms_ways(tmp_path: Path) -> None:
    for text, n_bytes in {
        'mem = "2G"': 2 * G,
        "mem = 500": 500 * M,
        'mem-per-cpu = "1500M"': 6000 * M,
        'mem = "0"': 0,  # all of the node
        'extra = { mem = "3G" }': 3 * G,
        "": 0,
    }.items():
        assert asked(profile(tmp_path, text).resources("cpu")) == n_bytes, text
    gpus = 'time = "1:00:00"\n[gpu]\ngres = "gpu:a100:2"\nmem-per-gpu = "10G"\n'
    (tmp_path / "lab.toml").write_text(gpus)
    assert asked(read_profile(tmp_path / "lab.toml").resources("gpu")) == 20 * G


def ask(
    folder: Path, text: str, earlier: list[Submission], *, short: bool, auto: bool = False
) -> tuple[str, list[str]]:
    given = profile(folder, text)
    states = [[TaskState(0, "finished")] for _ in earlier]
    if short:
        states[-1] = [TaskState(0, "out_of_memory")]
    answer = sized(
        given, ["cpu"], earlier, states, cluster(16_000), SweepPaths(folder / "sweep"), auto=auto
    )
    return answer[0].resources("cpu").options.get("mem", ""), answer[1]


def test_where_a_site_counts_shared_memory_for_each_process_more_is_needed(
    quick: Sweep, tmp_path: Path
) -> None:
    given, there = profile(tmp_path, 'mem = "300M"'), cluster(16_000)
    plan = quick.survey().plan

    def told(there: Cluster) -> list[str]:
        return [*scarce(given, plan, plan.cells.select("cell"), {"cpu": 2}, there)]

    assert told(there) == []
    (line,) = told(replace(there, sums_memory=True))
    assert line.startswith("CPU tasks ask for 300M, but 2 processes of one need 635M before any")
    assert 'shared memory for each process: write mem = "1G" in ' in line


@pytest.mark.usefixtures("without_slurm")
def test_a_job_that_died_while_training_is_named_with_its_log(
    quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.plan(quick.paths.sweep_file, tmp_path / "planned")
    listed = [submission(tmp_path, 1, G, 600 * M)]
    attempts = tuple(listed[0].attempts())
    ended = TaskState(0, "failed", attempts=attempts, job_id="16_2", note="signal 9")
    monkeypatch.setattr(progress, "submissions", lambda _: listed)
    monkeypatch.setattr(progress, "tasks_of", lambda *_, **__: [[ended]])
    (told,) = sweep.status()["problems"]
    logs, resume = (f"manyseed {verb} {sweep.directory}" for verb in ("logs", "resume"))
    assert told == (
        f"1 task was ended while training (signal 9; see {logs} 16_2): {resume} trains the "
        "remaining runs"
    )


def test_tasks_that_ended_badly_are_settled_once_nothing_is_missing(
    quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {"out_of_memory": 6, "finished": 1}
    real, told = Sweep.status, []
    for sweep in (quick, Sweep.plan(quick.paths.sweep_file, tmp_path / "planned")):
        monkeypatch.setattr(Sweep, "status", lambda one: {**real(one), "tasks": states})
        told.append("others have trained since" in command("status", sweep.directory).stdout)
    assert told == [True, False]


def test_what_ran_out_is_doubled_each_time_and_stays(tmp_path: Path) -> None:
    one = 'mem = "1G"'
    first = submission(tmp_path, 1, G, 900 * M)
    assert ask(tmp_path, one, [], short=False) == ("1G", [])
    assert ask(tmp_path, one, [first], short=False) == ("1G", [])
    memory, said = ask(tmp_path, one, [first], short=True)
    assert memory == "2048M"
    assert said == ["CPU tasks ran out of memory with 1G: these ask for 2G."]
    second = submission(tmp_path, 2, 2 * G)
    said = ["CPU tasks ask for 2G, as those before, not for the profile's 1G."]
    assert ask(tmp_path, one, [first, second], short=False) == ("2048M", said)
    for auto in (False, True):
        memory, said = ask(tmp_path, one, [first, second], short=True, auto=auto)
        assert memory == "4096M"
        assert said == ["CPU tasks ran out of memory with 2G: these ask for 4G."]
    far = submission(tmp_path, 3, 2 * G, 4 * G)  # it used more than twice as much before it died
    assert ask(tmp_path, one, [first, far], short=True, auto=True)[0] == "5120M"
    # a profile that asks for as much or more is what counts
    assert ask(tmp_path, 'mem = "4G"', [first, second], short=False) == ("4G", [])


def test_what_ran_out_with_another_profile_is_doubled_too(tmp_path: Path) -> None:
    def elsewhere(number: int, asked: float) -> Submission:
        one = submission(tmp_path, number, asked)
        return Submission(one.folder, replace(one.intent, cluster="other"))

    said = ["CPU tasks ran out of memory with 1G: these ask for 2G."]
    one, other = 'mem = "1G"', elsewhere(1, G)
    assert ask(tmp_path, one, [other], short=True) == ("2048M", said)
    assert ask(tmp_path, 'mem = "4G"', [other], short=True) == ("4G", []), "it is more already"
    assert ask(tmp_path, one, [elsewhere(1, 64 * G)], short=False) == ("1G", []), "its own habit"
    here = [submission(tmp_path, 1, G), elsewhere(2, 2 * G)]
    over, fine = [TaskState(0, "out_of_memory")], [TaskState(0, "finished")]
    given = profile(tmp_path, one)
    known = ["cpu"], here, [over, fine], cluster(16_000), SweepPaths(tmp_path / "sweep")
    again, told = sized(given, *known, auto=False)
    assert asked(again.resources("cpu")) == 2 * G, "1G has failed"
    assert told == ["CPU tasks ask for 2G, as those before, not for the profile's 1G."]


def test_a_profile_that_asks_for_more_by_now_is_not_doubled(tmp_path: Path) -> None:
    first = submission(tmp_path, 1, G)
    assert ask(tmp_path, 'mem = "4G"', [first], short=True) == ("4G", [])


def test_no_more_is_asked_for_than_nodes_have(tmp_path: Path) -> None:
    last = submission(tmp_path, 1, 12 * G)
    memory, said = ask(tmp_path, 'mem = "12G"', [last], short=True)
    assert (memory, len(said)) == ("16000M", 1)
    last = submission(tmp_path, 2, 16_000 * M)
    with pytest.raises(UserError, match="16000M, and no node of long has more than") as error:
        ask(tmp_path, 'mem = "12G"', [last], short=True)
    assert str(error.value).endswith(
        f"then: manyseed resume {tmp_path / 'sweep'} --memory 16000M"
    ), "a command that is not refused"
    assert ask(tmp_path, 'mem = "16000M"', [last], short=False) == ("16000M", [])


def test_the_largest_node_of_a_partition_counts(tmp_path: Path) -> None:
    last, paths = submission(tmp_path, 1, 12 * G), SweepPaths(tmp_path / "sweep")
    (long,) = cluster(16_000).partitions
    big = replace(long, name="big", is_default=False, most_memory_mb=64_000)

    def asks(*partitions: Partition) -> float:
        there = replace(cluster(16_000), partitions=partitions)
        over = [[TaskState(0, "out_of_memory")]]
        known = ["cpu"], [last], over, there, paths
        return asked(sized(profile(tmp_path), *known, auto=False)[0].resources("cpu"))

    assert asks(replace(long, most_memory_mb=20_000), big) == 20_000 * M
    assert asks(replace(long, memory_mb=1, most_memory_mb=1), big) == 24 * G, "it is not known"
    with pytest.raises(UserError, match=r"name a partition with larger nodes \(big\)"):
        asks(replace(long, memory_mb=10_000), big)


@pytest.mark.parametrize("is_whole", [False, True])
def test_where_the_site_or_the_node_decides_nothing_is_guessed(
    tmp_path: Path, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured before a kill may be less than what was too little."""
    if is_whole:
        whole = LAB.replace("cpus-per-task = 4", "whole-node = true")
        monkeypatch.setattr(sys.modules[__name__], "LAB", whole)
    measured = submission(tmp_path, 1, 0.0, 700 * M)
    said = ["CPU tasks ran out of memory: ask for more: --memory SIZE."]
    assert ask(tmp_path, "", [measured], short=True) == ("", said)
    memory = ask(tmp_path, "", [measured], short=False, auto=True)[0]
    assert memory == ("" if is_whole else "1024M"), "less for one task is no gain on its own node"


def test_auto_asks_for_what_was_used_and_a_quarter(tmp_path: Path) -> None:
    assert ask(tmp_path, 'mem = "8G"', [], short=False, auto=True) == ("8G", [])
    two = [
        submission(tmp_path, 1, 8 * G, 500 * M, 800 * M),
        submission(tmp_path, 2, 8 * G, 300 * M),
    ]
    memory, said = ask(tmp_path, 'mem = "8G"', two, short=False, auto=True)
    assert memory == "1024M"
    assert said == ["CPU tasks used 800M at most: these ask for 1G."]
    # what was raised was needed, though no report came in time to tell
    raised = [*two, submission(tmp_path, 3, 12 * G, 300 * M)]
    assert ask(tmp_path, 'mem = "8G"', raised, short=False, auto=True)[0] == f"{12 * 1024}M"


def test_usage_is_the_most_of_all_attempts_and_advises_what_would_do(tmp_path: Path) -> None:
    found = usage(
        [submission(tmp_path, 1, 8 * G, 500 * M, 600 * M), submission(tmp_path, 2, 8 * G, 100 * M)]
    )
    (cpu,) = found
    assert cpu == Usage("lab", "cpu", 2, 4, 8 * G, 600 * M, 2.5)
    assert 'mem = "768M" would do' in cpu.advice
    assert replace(cpu, memory_asked=None).advice == ""
    assert replace(cpu, memory_asked=800 * M).advice == ""
    assert "safer" in replace(cpu, memory_asked=620 * M).advice
    assert usage([submission(tmp_path, 3, 0.0, 0)]) == []
    assert [in_words(n) for n in (G, 1.5 * G, 700 * M, 1)] == ["1G", "1536M", "700M", "1M"]


KILLED = "slurmstepd: error: Job 7 exceeded memory limit (257490944 > 157286400), being killed"


def killed(folder: Path, number: int, asked: float, memory: int) -> Submission:
    """Return a submission whose task measured so much before it was killed, as its log says."""
    one = submission(folder, number, asked, memory)
    (attempt,) = one.attempts()
    replace(attempt, state="running").write(attempt.folder)
    for file in (attempt.folder / "progress.json", attempt.folder):
        os.utime(file, (1e9, 1e9))
    one.note_jobs({0: f"{number}_0"})
    one.files.submitted.touch()
    one.files.submitit.mkdir()
    one.files.printed_errors(f"{number}_0").write_text(KILLED)
    return one


@pytest.mark.usefixtures("without_slurm")
def test_a_task_that_was_killed_for_memory_has_used_its_limit_at_least(tmp_path: Path) -> None:
    first = killed(tmp_path, 1, 150 * M, 61 * M)
    (cpu,) = usage([first])
    assert (cpu.memory_used, cpu.memory_known, cpu.is_least) == (61 * M, 150 * M, True)
    assert 'were killed for it: try mem = "300M"' in cpu.advice
    (cpu,) = usage([first, killed(tmp_path, 2, 300 * M, 0)])
    assert (cpu.memory_known, cpu.is_least) == (300 * M, True)
    assert 'were killed for it: try mem = "600M"' in cpu.advice
    (cpu,) = usage([first, submission(tmp_path, 3, G, 400 * M)])
    assert (cpu.memory_known, cpu.is_least) == (400 * M, False)
    assert 'used 400M at most: mem = "512M" would do' in cpu.advice


@pytest.mark.usefixtures("without_slurm")
def test_advice_on_memory_is_of_the_last_that_is_known(tmp_path: Path) -> None:
    def elsewhere(number: int, asked: float, memory: int, state: str) -> Submission:
        one = submission(tmp_path, number, asked, memory)
        (attempt,) = one.attempts()
        replace(attempt, state=state).write(attempt.folder)
        intent = replace(one.intent, cluster="other", tasks=1)
        return Submission(one.folder, intent)

    first = killed(tmp_path, 1, G, 600 * M)
    young = elsewhere(2, G, 348 * M, "running")
    here, there = usage([first, young])
    assert 'were killed for it: try mem = "2G"' in here.advice
    assert there.advice == "", "less is no advice where as much was too little"
    done = elsewhere(3, 2 * G, 1200 * M, "finished")
    here, there = usage([first, done])
    assert here.advice == "", "more has sufficed since"
    assert there.advice == (
        'CPU tasks asked for 2G and used 1200M at most: mem = "1536M" would do, '
        "or resume --memory auto."
    )
    (alone,) = usage([elsewhere(4, 8 * G, 348 * M, "running")])
    assert alone.advice == "", "it has just begun"


@pytest.mark.usefixtures("without_slurm")
def test_usage_prints_that_a_task_was_killed(
    quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(shutil.copytree(quick.directory, tmp_path / "sweep"))
    first = killed(tmp_path, 1, 150 * M, 61 * M)
    monkeypatch.setattr(Sweep, "submissions", lambda _: [first])
    done = command("status", sweep.directory, "--usage")
    assert "at least 150M (killed)" in " ".join(done.stdout.split()), done.output


def test_what_was_killed_twice_is_told_with_what_comes_next(
    quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    over, fine = [TaskState(0, "out_of_memory")], [TaskState(0, "finished")]
    listed = [submission(tmp_path, n, n * 512 * M) for n in (1, 2)]

    def told(n: int, *states: list[TaskState]) -> str:
        return shortage(quick.paths, listed[:n], states)

    assert told(1, fine) == told(2, over, fine) == ""
    once = told(1, over)
    assert once.startswith("1 task was killed for memory; 512M was not enough: manyseed resume ")
    assert once.endswith(" asks for 1G"), "which it does by itself"
    twice = told(2, over, over)
    assert twice.startswith("2 tasks were killed for memory; 1G was not enough: manyseed resume ")
    assert twice.endswith(" asks for 2G")
    assert told(2, fine, over).startswith("1 task was killed for memory; 1G was not enough: ")
    listed = [submission(tmp_path, 3, 0.0)]  # the site decides
    assert told(1, over).endswith(" --memory SIZE")


@pytest.mark.parametrize("is_whole", [True, False])
def test_after_a_lack_of_memory_one_command_is_named(
    quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """Of a whole task that was killed, or of processes that were, and took their runs along."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    sweep = Sweep.plan(quick.paths.sweep_file, tmp_path / "planned")
    listed = [submission(tmp_path, n, n * 512 * M, 600 * M) for n in (1, 2)]
    over = [TaskState(0, "out_of_memory")]
    if not is_whole:
        lost = [replace(one, set_aside=3, killed=2) for one in listed[0].attempts()]
        over = [TaskState(0, "finished", attempts=tuple(lost))]
    for n, more in {1: " asks for 1G", 2: " asks for 2G"}.items():
        monkeypatch.setattr(progress, "submissions", lambda _, n=n: listed[:n])
        monkeypatch.setattr(progress, "tasks_of", lambda *_, n=n, **__: [over] * n)
        state = sweep.status()
        (step,) = state["next"]
        (problem,) = state["problems"]
        assert problem.endswith(more)
        asked = problem.partition(": ")[2].removesuffix(more)
        assert asked == step["command"], "no other command than the next one"


def test_a_damaged_report_is_named(quick: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(quick.directory, tmp_path / "sweep"))
    report = next(sweep.paths.tasks.glob("*/lives/*/progress.json"))
    report.write_bytes(report.read_bytes()[:40])
    done = command("status", sweep.directory, "--usage")
    assert str(report) in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_peak_that_is_over_and_shared_memory_are_measured() -> None:
    script = """
import mmap, os, sys
big = bytearray(os.urandom(1)) * 200_000_000
del big
shared = mmap.mmap(-1, 100_000_000)
shared[:] = bytes(range(250)) * 400_000
pids = [os.getpid()]
for _ in range(2):
    pid = os.fork()
    if not pid:
        sum(shared[::4096])  # maps each page
        os.write(1, b".")
        sys.stdin.read()
        os._exit(0)
    pids.append(pid)
print(*pids, flush=True)
sys.stdin.read()
"""
    run = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert run.stdout is not None
        text = run.stdout.readline()
        while text.count(".") < 2:
            text += run.stdout.read(1)
        memory, seconds = used(map(int, text.replace(".", " ").split()))
        # the peak of the first, and the shared part once, not three times
        assert 200e6 < memory < 350e6
        assert 0 < seconds < 60
    finally:
        run.communicate("")
    assert used([run.pid]) == (0, 0.0)
    assert used([os.getpid()])[0] > 10 * M
