"""A terminal that is closed: what was submitted from it goes on, and is not submitted again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.conftest import MANYSEED, QUICK, wait_until, write

pytestmark = pytest.mark.process  # a terminal ends them, or not

SLOW_START = """
import os, pathlib, sys, time
if "manyseed.slurm.local" in sys.orig_argv:
    pathlib.Path("{folder}/starting").touch()
    while not pathlib.Path("{folder}/go").exists():
        time.sleep(0.01)
"""


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Open a terminal: what its user sees, and what its programs do; the first may be closed."""
    ours, theirs = os.openpty()
    try:
        yield ours, theirs
    finally:
        for end in (ours, theirs):
            with suppress(OSError):
                os.close(end)


def submit(sweep: Sweep, end: int) -> subprocess.Popen[bytes]:
    """Start `manyseed submit` as the program in front of a terminal."""
    return subprocess.Popen(
        ["setsid", "--ctty", MANYSEED, "submit", sweep.directory, "--cluster", "local"],
        stdin=end,
        stdout=end,
        stderr=end,
    )


@pytest.mark.parametrize("is_starting", [True, False], ids=["as it starts", "after it"])
def test_the_end_of_a_terminal_ends_nothing_of_what_it_submits(
    tmp_path: Path, is_starting: bool, monkeypatch: pytest.MonkeyPatch, stopped: list[Sweep]
) -> None:
    text = QUICK.replace("runs    = 4", "runs    = 2")
    sweep = Sweep.plan(write(tmp_path / "quick.toml", text), tmp_path / "sweep")
    stopped.append(sweep)
    write(tmp_path / "sitecustomize.py", SLOW_START.format(folder=tmp_path))
    with monkeypatch.context() as patch, terminal() as (ours, theirs):
        patch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        command = submit(sweep, theirs)
        os.close(theirs)
        wait_until((tmp_path / "starting").exists, "a job that starts")
        if is_starting:
            os.close(ours)
        (tmp_path / "go").touch()
        # It ends by the signal, or because it can no longer be written to, whichever comes first.
        assert (command.wait(240) != 0) == is_starting
        (submission,) = sweep.submissions()
        assert (submission.folder / "job.json").exists(), "it would be submitted again"
        assert sweep.submit(workers=1) is None
    sweep.wait()
    state = sweep.status()
    assert (state["runs"]["missing"], state["duplicates"]) == (0, 0)
    assert len(state["submissions"]) == 1


HUNG_UP = """
import os, signal
from manyseed.orchestrator.working import queue

def hang_up(*_):
    os.kill(os.getpid(), signal.SIGHUP)

queue.write_shards = hang_up
from manyseed.orchestrator.sweep import Sweep
import sys
Sweep(sys.argv[1]).submit(workers=1)
"""


def test_a_terminal_that_is_closed_while_tasks_are_written_is_in_nobodys_way(
    tmp_path: Path, stopped: list[Sweep]
) -> None:
    text = QUICK.replace("runs    = 4", "runs    = 2")
    sweep = Sweep.plan(write(tmp_path / "quick.toml", text), tmp_path / "sweep")
    stopped.append(sweep)
    hung_up = subprocess.run([sys.executable, "-c", HUNG_UP, sweep.directory], check=False)
    assert hung_up.returncode == -signal.SIGHUP
    assert sweep.submissions() == []
    assert sweep.status()["tasks"] == {}
    assert sweep.submit(workers=1) is not None
    assert [folder.name for folder in sweep.paths.submissions()] == ["0001"]
    assert [one.number for one in sweep.submissions()] == [1]
