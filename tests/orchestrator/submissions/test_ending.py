"""What was asked to stop is waited for before its work is submitted again."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from pathlib import Path

import pytest

from manyseed.orchestrator.errors import StillRunning
from manyseed.orchestrator.submissions.submitting import Request, submit
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.tasks.intent import NOW, PAUSED, STOPPED, stop_request
from tests.orchestrator.conftest import MANYSEED, inside, wait_until, write
from tests.orchestrator.test_run import SLOWER

pytestmark = pytest.mark.process  # which are suspended, and asked to end

REQUEST = Request(workers=1)


@pytest.fixture
def training(tmp_path: Path, stopped: list[Sweep]) -> Sweep:
    """A sweep whose one task is at work."""
    sweep = Sweep.plan(write(tmp_path / "slower.toml", SLOWER), tmp_path / "sweep")
    stopped.append(sweep)
    submission = sweep.submit(workers=1)
    assert submission is not None
    wait_until(lambda: bool(submission.attempts()), "a task that trains")
    return sweep


def freeze(sweep: Sweep) -> int:
    """Let its task do nothing any more, as in a fit that takes its time; return its process."""
    (attempt,) = sweep.submissions()[-1].attempts()
    pid = int(attempt.process.split()[2])
    os.kill(pid, signal.SIGSTOP)
    return pid


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_resume_right_after_a_stop_goes_on(training: Sweep, verb: str) -> None:
    getattr(training, verb)()
    code, printed = inside("resume", training.directory, "--workers", 1)
    assert code == 0, printed
    assert "Submitted" in printed
    assert len(training.submissions()) == 2
    assert training.is_running


def test_what_does_not_end_is_told_and_nothing_is_submitted(training: Sweep) -> None:
    pid = freeze(training)
    try:
        training.cancel()
        with pytest.raises(StillRunning, match=r"1 task .*(?s:.*)resume .*cancel .* --now") as end:
            submit(training.paths, dataclasses.replace(REQUEST, patience=0.0))
        assert end.value.exit_code == 3
        assert len(training.submissions()) == 1
    finally:
        os.kill(pid, signal.SIGCONT)


def test_who_interrupts_the_waiting_submits_nothing(training: Sweep) -> None:
    pid = freeze(training)
    try:
        training.cancel()
        resume = subprocess.Popen(
            [MANYSEED, "resume", training.directory],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert resume.stdout is not None
        assert "finish their fits in flight" in resume.stdout.readline()
        resume.send_signal(signal.SIGINT)
        assert resume.wait(240) == 130
    finally:
        os.kill(pid, signal.SIGCONT)
    assert len(training.submissions()) == 1


def test_a_stop_can_be_made_more_urgent_and_not_less(training: Sweep) -> None:
    (submission,) = training.submissions()
    pid = freeze(training)
    try:
        code, printed = inside("pause", training.directory)
        assert (code, "after the fits in flight" in printed) == (0, True), printed
        assert stop_request(submission.folder) == PAUSED
        code, printed = inside("cancel", training.directory)
        assert (code, "--now" in printed) == (0, True), printed
        assert stop_request(submission.folder) == STOPPED
        state = training.status()
        assert (state["stopping"], state["seconds_left"]) == (1, None)
        _, printed = inside("status", training.directory)
        assert "1 asked to stop." in printed
        assert " left." not in printed
        assert f"Continue with: manyseed resume {training.directory}" in " ".join(printed.split())
        training.pause()
        assert stop_request(submission.folder) == STOPPED
        code, printed = inside("cancel", training.directory, "--now")
        assert (code, "asked to stop now" in printed) == (0, True), printed
        training.cancel()
        assert stop_request(submission.folder) == NOW
        assert inside("cancel", training.directory, "--now", "--only", "cell = 0")[0] == 2
    finally:
        os.kill(pid, signal.SIGCONT)
