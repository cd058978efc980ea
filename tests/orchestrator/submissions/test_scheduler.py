"""How often a scheduler is asked, and what is made of its silence: SLURM's commands are counted."""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from manyseed.orchestrator.errors import UnavailableError
from manyseed.orchestrator.progress import watch
from manyseed.orchestrator.submissions import scheduler as schedulers
from manyseed.orchestrator.submissions.scheduler import Scheduler
from manyseed.orchestrator.submissions.stopping import unpause
from manyseed.orchestrator.submissions.submission import ELSEWHERE, UNSEEN, Submission, tasks_of
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.tasks.intent import PAUSED, Intent
from manyseed.orchestrator.tasks.task import Span, Task, TaskCell
from manyseed.slurm import ClusterError, ClusterUnavailable, commands

SECONDS_A_MINUTE = 60.0


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 5000, "somebody watches for ever"


class Cluster:
    """SLURM's commands, which note when they are asked; `rows` are what squeue prints."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[tuple[float, str]] = []
        self.rows: list[str] = []
        self.silent, self.takes = False, 0.0
        self.shown: str | ClusterError = ""  # of a job that is asked for by its id

    def run(self, arguments: list[str]) -> str:
        self.asked.append((self.clock.now, arguments[0]))
        if self.silent:
            self.clock.now += self.takes
            raise ClusterUnavailable("the cluster does not answer: it is being mended")
        if arguments[:4] == ["scontrol", "-o", "show", "job"]:
            if isinstance(self.shown, ClusterError):
                raise self.shown
            return self.shown
        if arguments[0] == "scontrol":
            return "ClusterName = theirs\n"
        return "\n".join(self.rows) if arguments[0] == "squeue" else ""

    def most_in_a_minute(self) -> int:
        times = [when for when, _ in self.asked]
        return max(sum(t <= when < t + SECONDS_A_MINUTE for when in times) for t in times)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (schedulers, watch):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def cluster(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(clock)
    monkeypatch.setattr(commands, "run", cluster.run)
    monkeypatch.setattr(schedulers, "available", lambda: True)
    fresh: dict[Path | None, Scheduler] = {}
    monkeypatch.setattr(
        "manyseed.orchestrator.submissions.submission.scheduler_of",
        lambda conf: fresh.setdefault(conf, Scheduler(conf)),
    )
    return cluster


@pytest.fixture
def submit(tmp_path: Path) -> Callable[..., Submission]:
    """Write a submission as a submitter leaves it."""

    def write(tasks: int, *, noted: bool = True, number: int = 1, **more: Any) -> Submission:
        folder = tmp_path / f"{number:04d}"
        (folder / "lives").mkdir(parents=True)
        intent = {
            "cluster": "lab",
            "scheduler": "lab",
            "submitter": "elsewhere boot 1 2",
            "submitted": 0.0,
            "user": getpass.getuser(),
            "runs": tasks,
            "tasks": tasks,
            "arrays": [{"name": f"m{number}-cpu", "first": 0, "count": tasks}],
        }
        (folder / "intent.json").write_text(json.dumps(intent | more))
        submission = Submission(folder, Intent.read(folder))
        if noted:
            submission.note_jobs({n: f"{number}_{n}" for n in range(tasks)})
            (folder / "submitted").touch()
        return submission

    return write


def row(number: int, index: int, state: str = "RUNNING", reason: str = "None") -> str:
    return f"{number}|{index}|{state}|{reason}|c1|N/A|m{number}-cpu.0"


@pytest.mark.parametrize("tasks", [1, 5000])
@pytest.mark.parametrize("noted", [True, False])
def test_one_look_asks_twice_whatever_the_size(
    cluster: Cluster, submit: Callable[..., Submission], tasks: int, noted: bool
) -> None:
    both = [submit(tasks, number=1, noted=noted), submit(tasks, number=2)]
    cluster.rows = [
        row(n, i, "COMPLETED" if i else "RUNNING") for n in (1, 2) for i in range(tasks)
    ]
    states = tasks_of(both)
    assert [states[n][0].state for n in (0, 1)] == ["running", "running"]
    assert [states[n][0].job_id for n in (0, 1)] == ["1_0", "2_0"]
    assert sum(task.is_alive for found in states for task in found) == 2
    assert len(cluster.asked) <= 2
    assert len({name for _, name in cluster.asked}) == len(cluster.asked)


@pytest.mark.parametrize("noted", [True, False])
def test_who_watches_asks_ten_times_a_minute_at_most(
    cluster: Cluster, clock: Clock, submit: Callable[..., Submission], noted: bool
) -> None:
    submission = submit(3, noted=noted)
    cluster.rows = [row(1, 0), row(1, 1, "PENDING"), row(1, 2, "COMPLETED")]
    began = clock.now
    looks = []
    for now in watch.watch(submission):
        looks.append(now.state)
        if clock.now - began > 180:
            cluster.rows = []
    assert looks == ["running"] * (len(looks) - 1) + ["gone"]
    assert len(looks) > 700
    assert 180 < clock.now - began < 196, "an end is seen at the next question"
    assert 20 <= len(cluster.asked) <= 28
    assert cluster.most_in_a_minute() <= 10


def test_another_cluster_is_told_apart_once(
    cluster: Cluster, submit: Callable[..., Submission]
) -> None:
    """What is reached here may be another cluster than the one that has the jobs."""
    submission = submit(2)
    (submission.folder / "lives" / "0000-a").mkdir()
    attempt = {"state": "running", "started": 1.0, "process": "elsewhere boot 3 4", "node": "n7"}
    attempt |= {"workers": 2, "done": {"0": 1}, "failed": {}}
    (submission.folder / "lives" / "0000-a" / "progress.json").write_text(json.dumps(attempt))
    for _ in range(3):
        tasks = submission.tasks()
        assert [(task.state, task.note) for task in tasks] == [
            ("running", ELSEWHERE),
            ("killed", ELSEWHERE),
        ]
    assert [name for _, name in cluster.asked].count("scontrol") == 1


def test_of_what_never_began_it_is_told_who_cancelled_it(
    cluster: Cluster, submit: Callable[..., Submission]
) -> None:
    """Accounting may leave out jobs that were cancelled while they waited."""
    submission = submit(3, scheduler="theirs")
    for number, cells in enumerate(([1], [1, 2], [2])):
        asked = {cell: TaskCell({}, ()) for cell in cells}
        span = Span(0, 0, 0, cells[0], 0, 0, 1)
        Task({0: "a/b"}, asked, (span,)).write(submission.files.task(number))
    (submission.folder / "lives" / "0002-a").mkdir()
    attempt = {"state": "running", "started": 1.0, "process": "elsewhere boot 3 4", "done": {}}
    (submission.folder / "lives" / "0002-a" / "progress.json").write_text(json.dumps(attempt))
    os.utime(submission.folder / "lives" / "0002-a" / "progress.json", (0, 0))

    def states() -> list[str]:
        return [task.state for task in submission.tasks()]

    assert states() == ["gone", "gone", "killed"]
    (submission.folder / "skip.json").write_text("[1]")
    assert states() == ["cancelled", "gone", "killed"]
    submission.files.stop.write_text(PAUSED)  # which cancels nothing
    assert states() == ["cancelled", "gone", "killed"]
    submission.files.stop.write_text("")
    assert states() == ["cancelled", "cancelled", "killed"]
    assert cluster.asked


def test_where_slurm_is_gone_from_path_its_jobs_are_elsewhere(
    submit: Callable[..., Submission], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from manyseed.slurm import processes

    submission = submit(1, submitter=processes.fingerprint(1))
    monkeypatch.setattr(schedulers, "available", lambda: False)
    assert [(task.state, task.note) for task in submission.tasks()] == [("killed", ELSEWHERE)]
    assert cluster.asked == []


def test_a_watcher_outlives_a_controller_that_is_restarted(
    cluster: Cluster, clock: Clock, submit: Callable[..., Submission]
) -> None:
    submission = submit(1)
    cluster.rows = [row(1, 0)]
    began = clock.now
    for _ in watch.watch(submission):
        elapsed = clock.now - began
        cluster.silent = 60 < elapsed < 150
        if elapsed > 180:
            cluster.rows = []
    assert 180 < clock.now - began < 196
    assert cluster.most_in_a_minute() <= 10


def test_a_cluster_that_stays_silent_ends_the_watching(
    cluster: Cluster, clock: Clock, submit: Callable[..., Submission]
) -> None:
    submission = submit(1)
    cluster.silent = True
    began = clock.now
    with pytest.raises(UnavailableError, match="being mended"):
        list(watch.watch(submission))
    assert 900 < clock.now - began < 960


def test_a_cluster_that_takes_its_time_to_stay_silent_is_waited_for_once(
    cluster: Cluster, clock: Clock, submit: Callable[..., Submission]
) -> None:
    submission = submit(1)
    cluster.rows = [row(1, 0)]
    cluster.takes = 120.0
    cluster.silent = True
    for _ in range(3):  # as a status that looks at runs, a search and an analysis
        with pytest.raises(UnavailableError, match="try again later: jobs go on meanwhile"):
            submission.tasks()
    assert clock.now == 1120.0
    seen = [clock.now]
    for _ in watch.watch(submission):
        seen.append(clock.now)
        if clock.now > 1600:
            break
    waits = [later - now for now, later in pairwise(seen)]
    assert max(waits) < 130
    assert len(waits) > 100, "progress is shown meanwhile"


def test_only_a_cluster_that_is_not_needed_may_be_silent(
    cluster: Cluster, submit: Callable[..., Submission], tmp_path: Path
) -> None:
    """Who goes on elsewhere takes over what a silent cluster was given, held or lost."""
    paused, lost = submit(1, number=1), submit(1, number=2, noted=False)
    paused.files.stop.write_text("pause\n")
    cluster.silent = True
    with pytest.raises(UnavailableError):
        tasks_of([paused, lost], fresh=True)
    found = tasks_of([paused, lost], fresh=True, dispensable=lambda scheduler: True)
    assert [[(t.state, t.note) for t in tasks] for tasks in found] == [[("killed", ELSEWHERE)]] * 2
    with pytest.raises(UnavailableError):
        unpause([paused], lambda scheduler: False)
    assert paused.files.stop.read_text() == "pause\n"
    unpause([paused], lambda scheduler: True)
    assert paused.files.stop.read_text() == ""
    cluster.silent = False
    cluster.rows = [row(1, 0, "PENDING", "JobHeldUser")]
    unpause([paused], lambda scheduler: False)
    assert paused.files.stop.exists(), "it was taken over: others have its runs"


def test_a_job_that_is_not_listed_is_looked_up_before_it_is_lost(
    cluster: Cluster, submit: Callable[..., Submission]
) -> None:
    submission = submit(3, scheduler="theirs")
    job = "JobId=5 ArrayJobId=1 ArrayTaskId={} JobName=m1-cpu.0 JobState={} Reason=None NodeList=c1"
    cluster.rows = [row(1, 0)]
    cluster.shown = f"{job.format(1, 'RUNNING')}\n{job.format('2', 'COMPLETED')}\n"

    def states(**options: bool) -> list[str]:
        return [task.state for task in tasks_of([submission], **options)[0]]

    assert states() == ["running", "gone", "gone"]
    assert states(fresh=True) == ["running", "running", "killed"]
    cluster.shown = ClusterError("slurm_load_jobs error: Invalid job id specified")
    assert states(fresh=True) == ["running", "gone", "gone"]
    cluster.shown = ClusterError("slurm_load_jobs error: Access/permission denied")
    with pytest.raises(UnavailableError, match="permission denied"):
        states(fresh=True)


def test_jobs_that_a_colleague_submitted_are_looked_for_under_their_name(
    cluster: Cluster, submit: Callable[..., Submission], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def run(arguments: list[str]) -> str:
        seen.append(arguments)
        return cluster.run(arguments)

    monkeypatch.setattr(commands, "run", run)
    cluster.rows = [row(1, 0), row(1, 1)]
    lost = submit(2, noted=False, user="anna")
    assert {n: job.id for n, job in lost.jobs().items()} == {0: "1_0", 1: "1_1"}
    assert all(call[call.index("-u") + 1] == "anna" for call in seen)


@pytest.mark.parametrize("ahead", [0, 86_400], ids=["same clock", "a clock a day ahead"])
@pytest.mark.parametrize("told", ["progress", "lease"])
def test_what_writes_is_alive_though_slurm_does_not_show_it(
    cluster: Cluster,
    submit: Callable[..., Submission],
    monkeypatch: pytest.MonkeyPatch,
    told: str,
    ahead: float,
) -> None:
    """A site keeps jobs private, or another host has this one's name: squeue prints nothing."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + ahead)
    ours = submit(2, number=1, user=getpass.getuser(), scheduler="theirs")
    annas = submit(2, number=2, user="anna", scheduler="theirs")
    leases = ours.folder.parent / "leases"
    leases.mkdir()
    for submission in (ours, annas):
        for number in range(2):
            attempt = submission.folder / "lives" / f"000{number}-{submission.number}"
            attempt.mkdir()
            value = {"state": "running", "started": 1.0, "process": "elsewhere boot 3 4"}
            value |= {"workers": 2, "done": {"0": 1}, "failed": {}}
            (attempt / "progress.json").write_text(json.dumps(value))
            (leases / f"life-{attempt.name}.00000001.lease").write_text("{}")
            silent = [attempt / "progress.json"] if told == "lease" and number == 0 else []
            for file in silent or (
                attempt / "progress.json",
                *leases.glob(f"life-{attempt.name}.*"),
            ):
                if number or silent:
                    os.utime(file, (0, 0))
    states = tasks_of([ours, annas])
    assert [[task.state for task in tasks] for tasks in states] == [["running", "killed"]] * 2
    assert [[task.is_out_of_sight for task in tasks] for tasks in states] == [
        [True, False],
        [True, True],  # nothing says that what she has in the queue is over
    ]
    assert states[0][0].note == UNSEEN


def test_what_slurm_says_has_ended_is_over_however_lately_it_wrote(
    cluster: Cluster, submit: Callable[..., Submission]
) -> None:
    submission = submit(1)
    attempt = submission.folder / "lives" / "0000-a"
    attempt.mkdir()
    value = {"state": "running", "started": 1.0, "process": "elsewhere boot 3 4"}
    value |= {"workers": 2, "done": {"0": 1}, "failed": {}}
    (attempt / "progress.json").write_text(json.dumps(value))
    cluster.rows = [row(1, 0, "CANCELLED")]
    assert [task.state for task in submission.tasks()] == ["cancelled"]


def test_an_end_that_the_scheduler_told_is_known_when_it_is_silent(
    cluster: Cluster, clock: Clock, submit: Callable[..., Submission], tmp_path: Path
) -> None:
    submission = submit(4)
    told = {"TIMEOUT": "timeout", "FAILED": "failed", "RUNNING": "running", "PENDING": "waiting"}
    cluster.rows = [row(1, index, state) for index, state in enumerate(told)]
    (states,) = tasks_of([submission])
    assert [task.state for task in states] == [*told.values()]
    assert submission.noted_ends() == {"0": ("timeout", 0), "1": ("failed", 0)}
    before = submission.files.ends.stat().st_mtime_ns

    def silent() -> list[str]:
        cluster.silent = True
        clock.now += 60
        with pytest.raises(UnavailableError):
            tasks_of([submission])
        (states,) = tasks_of([submission], ask=False)
        return [task.state for task in states]

    assert silent() == ["timeout", "failed", "unknown", "unknown"]
    attempt = submission.files.attempt(0, "later")  # it was begun again since
    attempt.mkdir()
    Attempt("running", "elsewhere boot 1 2", started=1.0).write(attempt)
    os.utime(attempt / "progress.json", (1e9, 1e9))
    assert silent() == ["unknown", "failed", "unknown", "unknown"]
    assert submission.files.ends.stat().st_mtime_ns == before
    for damage in (b"", b"[1]", b'{"1":["running",0]}', b'{"1":7}', b"\xff"):
        submission.files.ends.write_bytes(damage)
        assert silent() == ["unknown"] * 4


def test_an_end_in_a_sweep_that_can_only_be_read_is_told(
    cluster: Cluster, submit: Callable[..., Submission], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("it can only be read")

    monkeypatch.setattr("manyseed.orchestrator.submissions.submission.write_json", refuse)
    cluster.rows = [row(1, 0, "TIMEOUT")]
    submission = submit(1)
    assert [task.state for task in submission.tasks()] == ["timeout"]
    assert not submission.files.ends.exists()
