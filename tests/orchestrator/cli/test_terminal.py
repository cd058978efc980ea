"""The command at a real terminal, where watching ends by Ctrl-C, and in a pipe."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from manyseed import Sweep
from manyseed.orchestrator.cli import output
from manyseed.orchestrator.progress import watch
from tests.orchestrator.conftest import MANYSEED, apart, write

HELD = """
import time
from pathlib import Path

def train(X, y, X_test, n_classes):
    while not Path("{folder}/go").exists():
        time.sleep(0.01)
    return [[0.0] * n_classes for _ in X_test]
"""

SWEEP = """
name    = "held"
seed    = 1
repeats = 1
runs    = 2

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["held"]

[classifier.held]
train = "held:train"
probe = false
"""


class Terminal:
    """A program in front of a terminal, what it writes there, and its user's keys."""

    def __init__(self, *words: object, cwd: Path, kind: str) -> None:
        self._ours, theirs = os.openpty()
        self.said = ""
        self.program = subprocess.Popen(
            ["setsid", "--ctty", *map(str, words)],
            cwd=cwd,
            env=os.environ | {"TERM": kind, "PS1": "> ", "COLUMNS": "200"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)

    def keys(self, keys: str) -> None:
        """Press keys; what was said before is forgotten."""
        self.said = ""
        os.write(self._ours, keys.encode())

    def read(self, until: str, timeout: float = 120) -> str:
        """Return what is said until a text stands in it, or the program ends."""
        ends = time.monotonic() + timeout
        while until not in self.said and time.monotonic() < ends:
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self._ours, 4096).decode(errors="replace")
                except OSError:  # nobody writes any more
                    break
        assert until in self.said, self.said
        return self.said

    def close(self) -> None:
        """Hang up."""
        os.close(self._ours)
        self.program.kill()
        self.program.wait()


@contextmanager
def terminal(*words: object, cwd: Path, kind: str = "xterm") -> Iterator[Terminal]:
    opened = Terminal(*words, cwd=cwd, kind=kind)
    try:
        yield opened
    finally:
        with suppress(OSError):
            opened.close()


@pytest.mark.process
def test_watching_ends_by_ctrl_c_and_the_sweep_goes_on(
    tmp_path: Path, stopped: list[Sweep]
) -> None:
    write(tmp_path / "held.py", HELD.format(folder=tmp_path))
    sweep = Sweep.plan(write(tmp_path / "held.toml", SWEEP), tmp_path / "sweep")
    stopped.append(sweep)
    assert sweep.submit(workers=1) is not None
    try:
        with terminal(MANYSEED, "status", sweep.directory, "--watch", cwd=tmp_path) as shown:
            shown.read("0/2")
            shown.keys("\x03")
            told = shown.read("manyseed cancel")
            assert "Only the watching has ended: training continues on this machine" in " ".join(
                told.split()
            )
            assert f"manyseed status {sweep.directory} --watch" in told
            assert shown.program.wait(60) == 130
        assert sweep.status()["tasks"] == {"running": 1}
    finally:
        (tmp_path / "go").touch()
    sweep.wait()
    assert sweep.status()["runs"]["missing"] == 0


def test_forced_colours_bring_no_cursor_into_a_pipe(
    quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(quick.directory, tmp_path / "sweep")
    shutil.rmtree(copy / "results", ignore_errors=True)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    done = apart("analyze", copy, "--metrics", "accuracy", "--cluster", "local")
    assert done.returncode == 0, done.stderr
    assert "✓ analysing" in done.stdout
    assert "\x1b[1" in done.stdout, "colours were asked for"
    codes = set(re.findall(r"\x1b\[[?0-9;]*([A-Za-z])", done.stdout + done.stderr))
    assert codes == {"m"}
    assert "\r" not in done.stdout


def test_elsewhere_a_line_tells_that_a_task_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    states = ["starting"] * 20 + ["running"] * 70 + ["finished"]

    def watched(_: object) -> Iterator[watch.Progress]:
        for state in states:
            now[0] += 1
            yield watch.Progress(9, done=9 * (state == "finished"), state=state)

    monkeypatch.setattr(watch, "watch", watched)
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    output.show(SimpleNamespace(n_runs=9), Console(file=sys.stdout, width=200))  # type: ignore[arg-type]
    lines = [line.partition(";")[0] for line in capsys.readouterr().out.splitlines()]
    running = "training, running: 0 of 9 runs"
    assert lines == [running, running, "training, finished: 9 of 9 runs"]
