"""The guard of a user's own command: ends all processes that it started, come what may.

A script of the standard library alone: ``python -I -S guard.py PIPE SCRATCH SECONDS WORD …``. It
runs the words and writes the ending to the pipe: ``code N``, ``timeout`` or ``missing WHY``. Once
the other end of the pipe closes, or its process dies, it removes the scratch folder. On Linux
orphans become this process's children, so none of them outlives it.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_DEATH_SIGNAL, _SUBREAPER = 1, 36
_TICK = 0.05
_LINUX = sys.platform == "linux"


def run(pipe: int, scratch: str, seconds: float, words: list[str]) -> None:
    """Run a command until it ends, its time is up, or the other end of the pipe closes.

    `pipe`: descriptor to write the ending to. `scratch`: the command's temporary folder, removed at
    the end. `seconds`: the time limit; 0 for none. `words`: the program and its arguments.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    library = ctypes.CDLL(None) if _LINUX else None
    if library is not None:
        library.prctl(_SUBREAPER, 1, 0, 0, 0)

    def begin() -> None:
        if library is not None:
            library.prctl(_DEATH_SIGNAL, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    try:
        command = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, preexec_fn=begin, process_group=0
        )
    except OSError as error:
        _tell(pipe, f"missing {words[0]}: {error.strerror}")
    else:
        ending = _waited(command, pipe, seconds)
        _end_all(command)
        if ending is not None:
            _tell(pipe, ending)
    shutil.rmtree(scratch, ignore_errors=True)


def _tell(pipe: int, ending: str) -> None:
    """Report how a command ended, and wait until the other end has read its output, or is gone."""
    with suppress(OSError):
        os.write(pipe, ending.encode())
        os.read(pipe, 1)


def _waited(command: subprocess.Popen[bytes], pipe: int, seconds: float) -> str | None:
    until = time.monotonic() + seconds if seconds else float("inf")
    # not select(): a process with many open files has descriptors that it does not take
    watched = select.poll()
    watched.register(pipe, select.POLLIN)
    ended = os.pidfd_open(command.pid) if hasattr(os, "pidfd_open") else None
    if ended is not None:
        watched.register(ended, select.POLLIN)
    while True:
        left = max(0.0, until - time.monotonic())
        wait = min(left, 3600.0) if ended is not None else min(left, _TICK)
        if pipe in dict(watched.poll(wait * 1000)):
            return None
        if command.poll() is not None:
            return f"code {command.returncode}"
        if time.monotonic() >= until:
            return "timeout"


def _end_all(command: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a command, including processes that left its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(command.pid, signal.SIGKILL)
    command.wait()
    while _LINUX and (pids := [*_descendants(os.getpid())]):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _descendants(pid: int) -> Iterator[int]:
    try:
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        children = {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
    except OSError:
        return
    for child in children:
        yield child
        yield from _descendants(child)


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:])
