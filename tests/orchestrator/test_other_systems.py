"""What Linux has and other systems lack is not needed to train, publish and analyse a sweep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = """
name = "small"
seed = 1
repeats = 1
runs = 3

[[grid]]
dataset    = ["sklearn:iris"]
classifier = ["lr-sgd"]
"""
LACKING = """
import builtins, io, os, sys

for name in ("sched_getaffinity", "sched_setaffinity", "posix_fadvise", "posix_fallocate"):
    if hasattr(os, name):
        delattr(os, name)

def hidden(path):
    # psutil stands for what another system would answer it
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return str(path).startswith("/proc") and not caller.startswith("psutil")

opened = io.open

def open_(file, *arguments, **options):
    if hidden(file):
        raise FileNotFoundError(2, "there is no /proc", str(file))
    return opened(file, *arguments, **options)

io.open = builtins.open = open_
readlink = os.readlink

def readlink_(path, *arguments, **options):
    if hidden(path):
        raise FileNotFoundError(2, "there is no /proc", str(path))
    return readlink(path, *arguments, **options)

os.readlink = readlink_
stat = os.stat

def stat_(path, *arguments, **options):
    if hidden(path):
        raise FileNotFoundError(2, "there is no /proc", str(path))
    return stat(path, *arguments, **options)

os.stat = stat_
"""


@pytest.mark.slow
def test_a_sweep_is_trained_and_resumed_without_what_only_linux_has(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LACKING)
    (tmp_path / "sweep.toml").write_text(SWEEP)

    def manyseed(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "manyseed", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    manyseed("plan", "sweep.toml", "--out", "small")
    manyseed("submit", "small", "--cluster", "local", "--limit", "1", "--watch", code=3)
    manyseed("resume", "small", "--cluster", "local", "--watch")
    assert "3 of 3" in manyseed("analyze", "small")
    assert "nothing is wrong" in manyseed("verify", "small")
    manyseed("doctor", ".")
