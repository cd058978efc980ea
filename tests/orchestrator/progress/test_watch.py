"""What a submission tells of itself whose task never came to life."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from manyseed.orchestrator.progress.watch import progress
from manyseed.orchestrator.submissions.submission import Submission
from manyseed.orchestrator.tasks.intent import Intent
from manyseed.slurm.processes import Process
from manyseed.slurm.states import JobState, named_for_memory


@pytest.fixture
def dead(tmp_path: Path) -> Submission:
    """A submission to this machine whose process ended before it wrote anything."""
    ended = str(replace(Process.current(), started=1))
    intent = Intent("local", ended, runs=3)
    return Submission(tmp_path, intent)


def test_a_task_that_says_nothing_is_gone(dead: Submission) -> None:
    now = progress(dead)
    assert (now.state, now.reason, now.details) == ("gone", "", "")


def test_the_end_of_its_log_is_the_reason(dead: Submission) -> None:
    (dead.folder / "submitit").mkdir()
    log = "Traceback (most recent call last):\n  …\nOSError: [Errno 28] No space left on device\n"
    (dead.folder / "submitit" / "77_0_log.err").write_text(log)
    now = progress(dead)
    assert now.state == "gone"
    assert now.reason == "a task could not start: OSError: [Errno 28] No space left on device"
    assert now.details == log.strip()


def test_a_pipe_in_the_place_of_a_log_blocks_nobody(dead: Submission) -> None:
    (dead.folder / "submitit").mkdir()
    os.mkfifo(dead.folder / "submitit" / "77_0_log.err")
    assert progress(dead).state == "gone"
    failed = JobState("77", "x", "failed")
    assert named_for_memory(failed, dead.folder / "submitit") == failed


def test_a_full_disk_that_took_no_log_is_the_reason(
    dead: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=4095))
    assert "no space left" in progress(dead).reason
