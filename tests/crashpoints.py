"""Crash points: a process dies, or meets a full disk, at the n-th thing it does to some files.

`Disk` counts what its process does below a folder: files created, written, synced, renamed, linked
and removed, folders made and removed. At the n-th of these it kills the process, or the file system
refuses. Enumerating n therefore meets every state that a command can leave behind, without any
sleeping. A process of its own is used up by each: `Forks` makes them in some milliseconds.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

Fault = Literal["none", "kill", "full", "once"]
"""kill: the process dies. full: from the n-th on the disk is full. once: the n-th is refused."""

_GROWING = ("create", "write", "sync", "mkdir", "link")
_REMOVING = ("remove", "rmdir")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
# a lease that was being created says nothing of its owner: it has to stand still for that long
_SOON = {"MANYSEED_LEASE_SECONDS": "3"}
_SECONDS = 120


class Disk:
    """What this process does below a folder, counted, with a fault at the n-th operation.

    Parameters
    ----------
    root : Path
        The folder. What happens elsewhere neither counts nor fails.
    at : int
        Which operation, from 1.
    fault : {"none", "kill", "full", "once"}
    """

    current: Disk | None = None

    def __init__(self, root: Path, at: int = 0, fault: Fault = "none") -> None:
        self.root, self.at, self.fault = f"{root.resolve()}{os.sep}", at, fault
        self.operations: list[str] = []
        self._lock, self._resting = threading.Lock(), False

    def install(self) -> None:
        """Begin to count; this process never stops."""
        Disk.current = self
        sys.addaudithook(self._audit)
        # a process that dies takes nothing from the page cache: no disk has to be waited for
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._sync)
        for name in ("write", "pwrite", "writev", "pwritev"):
            _wrap(os, name, lambda file, *_: self._meet("write", file))
        opened = io.open

        def open_(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if not set("wxa+") & set(mode):
                return opened(file, mode, *arguments, **options)
            return self._opened(opened, file, mode, *arguments, **options)

        io.open = builtins.open = open_

    @contextlib.contextmanager
    def rest(self) -> Iterator[None]:
        """Let the block do what other processes would do: it neither counts nor fails."""
        self._resting = True
        try:
            yield
        finally:
            self._resting = False

    def _opened(
        self,
        opened: Callable[..., Any],
        file: Any,
        mode: str,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """Open a file for writing so that each write is seen."""
        plain = mode.replace("b", "").replace("t", "")
        raw = _File(file, plain, closefd=closefd, opener=opener)
        raw.disk = self
        if buffering == 0:
            return raw
        buffered: Any = io.BufferedRandom(raw) if "+" in plain else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)

    def _sync(self, file: Any) -> None:
        self._meet("sync", file)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                self._meet("create", path)
        elif event == "os.rename":
            self._meet("rename", arguments[1])
        elif event in ("os.link", "os.symlink"):
            self._meet("link", arguments[1])
        elif event in ("os.remove", "os.rmdir"):
            self._meet(event.removeprefix("os."), arguments[0], arguments[1])
        elif event == "os.mkdir":
            self._meet("mkdir", arguments[0], arguments[2])
        elif event == "os.truncate":
            self._meet("truncate", arguments[0])

    def _meet(self, kind: str, file: Any, folder: int = -1) -> bool:
        """Count an operation; die or raise where its turn has come. False: it does not concern."""
        path = _path(file, folder)
        if self._resting or not f"{path}{os.sep}".startswith(self.root):
            return False
        with self._lock:
            self.operations.append(f"{kind} {path.removeprefix(self.root)}")
            number = len(self.operations)
        if number == self.at and self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        is_full = self.fault == "full" and number >= self.at and kind in _GROWING
        is_refused = self.fault == "once" and number == self.at and kind not in _REMOVING
        if is_full or is_refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return True


class _File(io.FileIO):
    """A file that is written in two pieces, so that a fault in between leaves half of it."""

    disk: Disk

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(view) > 1 and self.disk._meet("write", self.fileno()):
            written = super().write(view[: len(view) // 2])
            self.disk._meet("write", self.fileno())
            return written + super().write(view[written:])
        return super().write(view)


def _wrap(module: Any, name: str, before: Callable[..., object]) -> None:
    original = getattr(module, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        before(*arguments)
        return original(*arguments, **options)

    setattr(module, name, wrapped)


def _path(file: Any, folder: int) -> str:
    """Return which file an operation is about: a name, one within an open folder, an open file."""
    with contextlib.suppress(OSError):
        if isinstance(file, int):
            return str(Path(f"/proc/self/fd/{file}").readlink())
        path = Path(os.fsdecode(file))
        if folder >= 0:
            path = Path(f"/proc/self/fd/{folder}").readlink() / path
        return str(Path.cwd() / path)
    return ""


class Forks:
    """Runs functions of one module, each call in a process forked from one that imported it.

    Parameters
    ----------
    module : str
        Its functions take and return JSON values; its `replace_jobs` is called first.
    """

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve({module!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_ONE_THREAD, **_SOON},
            cwd=Path(__file__).parent.parent,
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def call(
        self,
        function: str,
        *arguments: Any,
        root: Path | None = None,
        at: int = 0,
        fault: Fault = "none",
    ) -> dict[str, Any]:
        """Call a function in a process of its own, with a fault below `root`.

        Returns
        -------
        dict
            value; or error (the class of the exception, its bases) and traceback; operations, what
            was done below `root`. Nothing but killed where the process was killed.
        """
        assert self._process.stdin
        assert self._process.stdout
        request = [function, arguments, str(root or ""), at, fault]
        print(json.dumps(request, default=str), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def serve(module: str) -> None:
    """Answer the calls of a `Forks`."""
    functions = importlib.import_module(module)
    functions.replace_jobs()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed by the way is no answer
    for line in sys.stdin:
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(told)
            signal.alarm(_SECONDS)
            try:
                answer = json.dumps(_call(functions, *json.loads(line)))
                with os.fdopen(tell, "w") as pipe:
                    pipe.write(answer)
            finally:
                os._exit(0)
        os.close(tell)
        with os.fdopen(told) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status)
        print(text or json.dumps({"killed": killed}), file=out, flush=True)


def _call(
    functions: Any, name: str, arguments: list[Any], root: str, at: int, fault: Fault
) -> dict[str, Any]:
    disk = Disk(Path(root or os.devnull), at, fault)
    disk.install()
    answer: dict[str, Any] = {}
    try:
        answer["value"] = getattr(functions, name)(*arguments)
    except BaseException as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        answer |= {"error": kinds, "text": str(error), "traceback": traceback.format_exc()}
    return answer | {"operations": disk.operations}
