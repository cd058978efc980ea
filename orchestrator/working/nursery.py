"""A process that imports libraries once and forks the training processes of a task.

Forks are safe while it has a single thread, so each library is limited to one, and it is itself
started afresh: nothing of the task's process is inherited. It runs nothing of a fit: a crash, or a
side effect of users' code, stays in the training process where it happens.

The task owns it over a socket, one JSON object a packet. If the nursery ends, for whatever reason,
the kernel kills the processes it forked; if the task ends, it kills the nursery.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn

from manyseed.slurm import processes
from manyseed.slurm.signals import belong_to_parent

NURSERY = "nursery"
"""Instead of the number of a training process, in the arguments of `working.process`."""

CAN_FORK = sys.platform == "linux"
"""Elsewhere the kernel does not kill forks with their parent."""

THREADED = 75
"""Exit code of a nursery whose libraries have started threads, so that it must not fork."""

_PACKET = 2**16
_POLL_SECONDS = 0.02


class Fork:
    """A training process that a nursery has forked or will fork; used like a `subprocess.Popen`."""

    def __init__(self, nursery: Nursery, index: int) -> None:
        self._nursery, self.index = nursery, index
        self.fingerprint: str | None = None
        """Set when it is known that the process has begun."""
        self.returncode: int | None = None

    def kill(self) -> None:
        """Kill the process; if it has not begun yet, the nursery, as nothing has that trains."""
        self._nursery.kill(self)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; return its exit code.

        Raises
        ------
        subprocess.TimeoutExpired
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not wait([self._nursery.fileno()], left):
                raise subprocess.TimeoutExpired(NURSERY, timeout or 0.0)
            self._nursery.receive()
        return self.returncode


class Nursery:
    """The task's side of a nursery.

    Parameters
    ----------
    start : callable
        Starts it with the descriptor of a socket.
    """

    def __init__(self, start: Callable[[int], subprocess.Popen[bytes]]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = start(theirs.fileno())
        self._forks: dict[int, Fork] = {}
        self.returncode: int | None = None
        """Set when the nursery has ended."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when `receive` has something to do."""
        return self._socket.fileno()

    def fork(self, index: int, descriptor: int, env: Mapping[str, str]) -> Fork:
        """Have a training process forked, as soon as the libraries are imported.

        Parameters
        ----------
        index : int
            Its number within the task.
        descriptor : int
            Its end of a pipe.
        env : mapping
            Further environment variables.
        """
        self._forks[index] = fork = Fork(self, index)
        packet = json.dumps({"fork": index, "env": dict(env)}).encode()
        with suppress(OSError):  # it has ended: `receive` will find out
            socket.send_fds(self._socket, [packet], [descriptor])
        return fork

    def kill(self, fork: Fork) -> None:
        """Kill a fork."""
        if fork.fingerprint is None:
            self._process.kill()
        elif fork.returncode is None:
            with suppress(OSError):
                self._socket.send(json.dumps({"kill": fork.index}).encode())

    def receive(self) -> None:
        """Note which forks have begun and ended; wait for it, if there is nothing to be read."""
        try:
            packet = self._socket.recv(_PACKET)
        except ConnectionResetError:  # reported once, before what had been sent
            packet = self._socket.recv(_PACKET)
        if not packet:
            self.end(0.0)
            return
        news = json.loads(packet)
        if "begun" in news:
            self._forks[news["begun"]].fingerprint = news["process"]
        else:
            self._forks.pop(news["ended"]).returncode = news["code"]

    def end(self, timeout: float) -> None:
        """End the nursery, and with it all its forks; kill them after `timeout` seconds."""
        if self.returncode is not None:
            return
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.returncode = self._process.wait()
        self._socket.close()
        for fork in self._forks.values():
            fork.returncode = self.returncode
            if fork.fingerprint is not None:
                while processes.is_alive(fork.fingerprint):  # the kernel is about to kill it
                    time.sleep(_POLL_SECONDS)
                fork.returncode = -signal.SIGKILL
        self._forks.clear()


def serve(descriptor: int, libraries: Iterable[str], train: Callable[[int, int], int]) -> int:
    """Be a nursery: import libraries, then fork training processes until the socket closes.

    Parameters
    ----------
    descriptor : int
        This end of the socket.
    libraries : iterable of str
        Modules to import.
    train : callable
        Called in each fork with the number of the process and the descriptor of its pipe.

    Returns
    -------
    int
        The exit code, of the nursery or of a fork.
    """
    belong_to_parent()
    for name in libraries:
        with suppress(Exception):  # the fit that needs it tells what is wrong
            import_module(name)
    if len([*Path("/proc/self/task").iterdir()]) > 1:
        return THREADED
    gc.collect()
    gc.freeze()  # else each fork would copy the memory of all that was imported
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    task, me = socket.socket(fileno=descriptor), os.getpid()
    forks: dict[int, int] = {}
    while True:
        ready = wait([task, woken])
        if woken in ready:
            woken.recv(_PACKET)
            _reap(forks, task)
        if task not in ready:
            continue
        packet, descriptors, _, _ = socket.recv_fds(task, _PACKET, 1, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            return 0
        asked: dict[str, Any] = json.loads(packet)
        if (index := asked.get("kill")) is not None:
            for pid in [pid for pid, each in forks.items() if each == index]:
                os.kill(pid, signal.SIGKILL)
            continue
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError:
            traceback.print_exc()
            os.close(descriptors[0])
            task.send(json.dumps({"ended": asked["fork"], "code": 1}).encode())
            continue
        if pid:
            os.close(descriptors[0])
            forks[pid] = asked["fork"]
            begun = {"begun": asked["fork"], "process": processes.fingerprint(pid)}
            task.send(json.dumps(begun).encode())
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in (task, woken, waker):
            inherited.close()
        belong_to_parent(me)
        _forget_random_state()
        os.environ.update(asked["env"])
        return train(asked["fork"], descriptors[0])


def _reap(forks: dict[int, int], task: socket.socket) -> None:
    """Tell the task which forks have ended, and how."""
    while forks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        if pid in forks:
            news = {"ended": forks.pop(pid), "code": os.waitstatus_to_exitcode(status)}
            task.send(json.dumps(news).encode())


def _forget_random_state() -> None:
    """Seed NumPy's global generator anew, as in a process that starts afresh; users' code may draw.

    Python's own does so by itself, and PyTorch starts from a constant.
    """
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


def leave(code: int) -> NoReturn:
    """End this process without taking apart all modules, which takes longer than some fits."""
    with suppress(Exception):
        atexit._run_exitfuncs()
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
