"""Functions that tests run in jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from manyseed.slurm import processes
from manyseed.slurm.arrays import STOPPED

_NAMES = ("SLURM_", "SLURMD_", "CUDA_", "PYTHONSAFEPATH", "TEST_")


def environment(path: str) -> str:
    """Write what a job sees."""
    seen = {name: value for name, value in os.environ.items() if name.startswith(_NAMES)}
    _place(Path(path), json.dumps(seen))
    return "finished"


def work(path: str, steps: str) -> str:
    """Work step by step, in a log that all attempts share; end when asked to."""
    stops: list[int] = []
    processes.on_stop(lambda: stops.append(1))
    log = Path(path)
    with processes.shielded():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    _note(log, f"life on {os.environ['SLURMD_NODENAME']}")
    while log.read_text().count("step") < int(steps):
        time.sleep(0.1)
        _note(log, "step")
        if stops:
            assert child.poll() is None, "a shielded process must not hear what ends the job"
            child.kill()
            _note(log, "stopped")
            return STOPPED
    child.kill()
    _note(log, "finished")
    return "finished"


def twice(path: str) -> str:
    """Work until asked to end; there is nothing left to do when begun again."""
    _note(Path(path), "life")
    if Path(path).read_text().count("life") > 1:
        return "finished"
    return _until_asked(Path(path))


def deaf(path: str) -> str:
    """Work on, whatever is asked."""
    _note(Path(path), "life")
    if Path(path).read_text().count("life") > 1:
        return "finished"
    time.sleep(600)
    return STOPPED


def fail(path: str) -> str:
    raise ValueError(path)


def eat(megabytes: str) -> str:
    """Use memory, until killed for it."""
    kept = bytearray(int(megabytes) * 2**20)
    kept[:: 2**12] = bytes(1) * len(kept[:: 2**12])
    time.sleep(600)
    return "finished"


def _note(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


def _place(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


def listen(path: str) -> str:
    """Wait until asked to end."""
    _note(Path(path), "life")
    return _until_asked(Path(path))


def _until_asked(log: Path) -> str:
    stops: list[int] = []
    processes.on_stop(lambda: stops.append(1))
    while not stops:
        time.sleep(0.1)
    _note(log, "stopped")
    return STOPPED
