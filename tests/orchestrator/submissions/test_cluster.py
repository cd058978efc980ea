"""Arrays of a submission, on a cluster that takes them, refuses them, or does not answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.submissions.cluster import intent_for, submit_arrays
from manyseed.orchestrator.submissions.submission import Submission
from manyseed.orchestrator.tasks.intent import Intent, TaskArray
from manyseed.orchestrator.working.node import read_jobs
from manyseed.slurm import ClusterError, ClusterUnavailable, commands
from manyseed.slurm.profile import Profile, read_profile
from tests.orchestrator.conftest import write
from tests.orchestrator.slurmstub import CONFIG

ARRAYS = (TaskArray("cpu", "s-cpu", 0, 3), TaskArray("gpu", "s-gpu", 3, 2))
PROFILE = """
time = "0:10:00"
mem = "1G"
[cpu]
cpus-per-task = 1
[gpu]
gres = "gpu:1"
cpus-per-task = 1
"""

WINE = """
name = "wine"
seed = 1
repeats = 1
runs = 4
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd"]
"""


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "lab.toml").write_text(PROFILE)
    return read_profile(tmp_path / "lab.toml")


def test_a_copied_line_with_a_secret_is_named_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answers = {"sbatch": "Submitted batch job 7", "scontrol": CONFIG, "sinfo": ""}
    monkeypatch.setattr(commands, "run", lambda words, **_: answers.get(words[0], ""))
    sweep = Sweep.plan(write(tmp_path / "wine.toml", WINE), tmp_path / "sweep")
    for line, named in (("export A_TOKEN=$(cat ~/.a)", False), ("export A_TOKEN=hush", True)):
        sweep.cancel()
        text = f"setup = ['{line}']\n{PROFILE.partition('[gpu]')[0]}"
        said: list[str] = []
        sweep.submit(cluster=str(write(tmp_path / "lab.toml", text)), tell=said.append, limit=1)
        assert [text for text in said if "secret (A_TOKEN)" in text] == said[: int(named)]
        assert "hush" not in str(said)


@pytest.fixture
def submission(profile: Profile, tmp_path: Path) -> Submission:
    intent = intent_for(profile, "p", "lab", ARRAYS, tasks=5, modules="m")
    folder = tmp_path / "tasks" / "0001"
    folder.mkdir(parents=True)
    intent.write(folder)
    return Submission(folder, intent)


def submit(
    submission: Submission,
    profile: Profile,
    monkeypatch: pytest.MonkeyPatch,
    fails_at: int,
    error: Exception | None,
) -> list[str]:
    """Submit to a cluster that takes arrays of two tasks, and fails at one of them."""
    seen: list[str] = []

    def take(_profile, resource, _folder, tasks, submitted):
        seen.append(f"{tasks.name} {resource} {tasks.comment}")
        for first in range(0, len(tasks.arguments), 2):
            if error is not None and len(read_jobs(submission.folder)) == fails_at:
                raise error
            n = len(tasks.arguments[first : first + 2])
            submitted([f"{tasks.name}.{first}_{each}" for each in range(n)])

    monkeypatch.setattr("manyseed.slurm.arrays.submit_array", take)
    each = lambda array: [[str(n)] for n in range(array.first, array.first + array.count)]  # noqa: E731
    submit_arrays(submission, profile, "m:f", each, lambda: None, "manyseed resume DIR")
    return seen


def test_each_task_is_noted_with_its_job(
    submission: Submission, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = submit(submission, profile, monkeypatch, 0, None)
    assert seen == [f"s-cpu cpu {submission.folder}", f"s-gpu gpu {submission.folder}"]
    jobs = ["s-cpu.0_0", "s-cpu.0_1", "s-cpu.2_0", "s-gpu.0_0", "s-gpu.0_1"]
    assert read_jobs(submission.folder) == dict(enumerate(jobs))
    assert submission.files.submitted.exists()
    intent = Intent.read(submission.folder, "p")
    assert intent.walltime == {"cpu": 600.0, "gpu": 600.0}
    assert (intent.scheduler, intent.profile) == ("lab", str(profile.path.absolute()))


def test_a_submission_of_which_nothing_is_taken_leaves_nothing(
    submission: Submission, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="SLURM refuses: no such account"):
        submit(submission, profile, monkeypatch, 0, ClusterError("no such account"))
    assert not submission.folder.exists()


def test_what_was_taken_before_a_refusal_stays(
    submission: Submission, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = "SLURM took 2 of 5 tasks, then refused: too many jobs\n.*: manyseed resume DIR"
    with pytest.raises(UnavailableError, match=expected):
        submit(submission, profile, monkeypatch, 2, ClusterError("too many jobs"))
    assert len(read_jobs(submission.folder)) == 2
    assert submission.files.submitted.exists()


def test_a_cluster_that_does_not_answer_may_have_taken_it(
    submission: Submission, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnavailableError, match=r"(?s)silent.*answers again: manyseed resume DIR"):
        submit(submission, profile, monkeypatch, 0, ClusterUnavailable("silent"))
    assert submission.folder.exists()
    assert not submission.files.submitted.exists(), "the next submission looks for it by name"
