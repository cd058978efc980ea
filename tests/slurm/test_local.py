"""The local machine as a cluster of one node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from manyseed.slurm import local, processes

MARK = """
import os, sys, time
from pathlib import Path

def write(path, text):
    Path(path).write_text(text + " " + os.environ["GREETING"] + " " + str(os.getsid(0)))

def sleep(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that jobs can import."""
    (tmp_path / "for_jobs.py").write_text(MARK)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    return tmp_path


def test_a_job_runs_detached_with_its_arguments_and_environment(module: Path) -> None:
    result = module / 'it\'s a "result".txt'
    folder = module / "a folder"
    job = local.submit(folder, "for_jobs:write", [str(result), "hello"], {"GREETING": "world"})
    wait_until(lambda: result.exists() and len(result.read_text().split()) == 3)
    text, greeting, session = result.read_text().split()
    assert (text, greeting) == ("hello", "world")
    assert int(session) != os.getsid(0), "a job must not end with its submitter's terminal"
    wait_until(lambda: not processes.is_alive(job.process))
    assert list(folder.glob(f"{job.job_id}_0_log.out"))


def test_a_job_outlives_the_process_that_submitted_it(module: Path) -> None:
    mark = module / "pid.txt"
    code = (
        "from pathlib import Path; from manyseed.slurm import local;"
        f"local.submit(Path({str(module / 'jobs')!r}), 'for_jobs:sleep', [{str(mark)!r}], {{}})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    wait_until(lambda: mark.exists() and mark.read_text() != "")
    pid = int(mark.read_text())
    assert processes.is_alive(processes.fingerprint(pid))
    os.kill(pid, signal.SIGKILL)


def test_a_job_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no_such_module"):
        local.submit(tmp_path, "no_such_module:function", [], {})


def wait_until(condition: Callable[[], bool], timeout: float = 240) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
