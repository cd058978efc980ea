"""Train and run commands in the test's own process: starting processes is what takes time.

A test that needs real processes is marked ``process``, or calls
`tests.orchestrator.conftest.apart`.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import io
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from manyseed.jobs.checks import in_words
from manyseed.jobs.own import command, findings
from manyseed.orchestrator.cli import main
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import remedy
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.working import pool, process, worker
from manyseed.orchestrator.working.pool import Message, Pool, Worker
from manyseed.orchestrator.working.queue import Batch, Fault, journal_name
from manyseed.slurm import local
from manyseed.slurm.processes import Process

_really_submit = local.submit
_really_answered = findings.answered
_RealExecutor = pool.ProcessPoolExecutor
_are_real = False


@contextlib.contextmanager
def real_processes() -> Iterator[None]:
    """Start processes as the product does, within this block."""
    global _are_real
    before, _are_real = _are_real, True
    try:
        yield
    finally:
        _are_real = before


def install() -> None:
    """Let this process train what it submits to this machine, and make the calls of others."""
    local.submit = _submit
    findings.answered = _answered
    pool.ProcessPoolExecutor = _executor  # type: ignore[assignment,misc]


class _TrainsHere(Pool):
    """A pool of one process: this one."""

    def __init__(self, arguments: list[str], log: Path, **_: object) -> None:
        super().__init__(arguments, log)
        self._training: process.Training | None = None
        self._messages: deque[Message] = deque()

    def start(self) -> Worker:
        one = Worker(self._started, None, None, ready=True)  # type: ignore[arg-type]
        self._started += 1
        self.workers.append(one)
        return one

    def send(self, worker: Worker, batch: Batch) -> None:
        worker.batch = batch
        directory, task_file, attempt = self._arguments
        paths = SweepPaths(Path(directory))
        with (
            self._log.open("a") as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            try:
                if self._training is None:
                    journal = paths.journals / journal_name(attempt, 0)
                    self._training = process.Training(paths, Path(task_file), journal)
                value: object = self._training.train(batch)
            except process.CodeEdited as error:
                value = Fault(str(error), "", is_of_task=True)
            except Exception as error:
                value = Fault(in_words(error) + remedy(error, paths), traceback.format_exc())
        self._messages.append(Message(worker, value))

    def messages(self, timeout: float) -> Iterator[Message]:
        while self._messages:
            yield self._messages.popleft()

    @property
    def pids(self) -> list[int]:
        return []

    def end_fits(self) -> None:
        pass

    def dismiss(self, timeout: float) -> None:
        self.workers.clear()
        if self._training is not None:
            self._training.close()
            self._training = None


def _submit(
    folder: Path, function: str, arguments: Sequence[str], env: Mapping[str, str]
) -> local.LocalJob:
    if _are_real or function != "manyseed.orchestrator.working.worker:run_task":
        return _really_submit(folder, function, arguments, env)
    folder.mkdir(parents=True, exist_ok=True)
    directory, submission, number, _ = arguments
    with (
        (folder / "0_0_log.out").open("w") as out,
        (folder / "0_0_log.err").open("w") as err,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _own_modules_removed(),
        mock.patch.object(worker, "Pool", _TrainsHere),
        mock.patch.object(worker.processes, "on_stop"),
        contextlib.suppress(Exception),  # it stands in the task's report
    ):
        print("submitit INFO - Job starts in the process of a test")
        worker.run_task(directory, submission, number, "1")
    ended = replace(Process.current(), started=1)
    return local.LocalJob("0", str(ended))


@contextlib.contextmanager
def _own_modules_removed() -> Iterator[None]:
    """Forget the users' modules that a task imports, as its processes do when they end."""
    path, modules = [*sys.path], {*sys.modules}
    try:
        yield
    finally:
        added = {one for one in sys.path if one not in path}
        sys.path[:] = path
        sys.path_importer_cache.clear()
        for name in {*sys.modules} - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and any(Path(file).is_relative_to(root) for root in added):
                del sys.modules[name]


def _answered(module: str, folder: Path, timeout: float | None = None) -> dict[str, Any]:
    """Import and call users' code as the process of a probe does."""
    if _are_real:
        return _really_answered(module, folder, timeout)
    asked = importlib.import_module(f"manyseed.jobs.own.{module}")
    printed = io.StringIO()
    with (
        _own_modules_removed(),
        mock.patch.object(sys, "dont_write_bytecode", True),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        try:
            return dict(json.loads(json.dumps(asked.answer(folder))))
        except (Exception, SystemExit):
            last = [*printed.getvalue().splitlines(), *traceback.format_exc().splitlines()]
            lines = ["its process ended:", *last[-findings.LAST_LINES :]]
            raise findings.NoAnswer("\n  ".join(lines)) from None
        finally:
            command.forget(folder / "code")


class _CallsHere(Executor):
    """An executor that makes each call at once."""

    def __init__(self) -> None:
        self._ended = contextlib.ExitStack()
        self._ended.enter_context(_own_modules_removed())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._ended.close()

    def submit(  # type: ignore[override]
        self, call: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        made: Future[Any] = Future()
        try:
            made.set_result(call(*args, **kwargs))
        except Exception as error:
            made.set_exception(error)
        return made


def _executor(*arguments: Any) -> Executor:
    return _RealExecutor(*arguments) if _are_real else _CallsHere()


@dataclass(frozen=True, slots=True)
class Done:
    """A command that ended: its exit code, and what it printed."""

    returncode: int
    stdout: str
    stderr: str
    output: str
    """Both, in the order of printing."""


class _Stream(io.StringIO):
    """Standard output or error, which also adds to a common text."""

    encoding = "utf-8"

    def __init__(self, both: io.StringIO) -> None:
        super().__init__()
        self._both = both

    def write(self, text: str) -> int:
        self._both.write(text)
        return super().write(text)


def call(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    """Run ``manyseed`` in this process, as in a terminal of 80 columns without one.

    Raises whatever would be a traceback, and an AssertionError if the command leaves anything of
    this process changed.
    """
    scheduler_of.cache_clear()  # a process has asked no cluster yet, and takes answers with it
    both = io.StringIO()
    out, err = _Stream(both), _Stream(both)
    code: object = 0
    before = Path.cwd()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "80", **(env or {})}),
        mock.patch.object(sys, "argv", ["manyseed", *map(str, arguments)]),
        mock.patch.object(sys.modules["__main__"], "__package__", None),  # no `python -m pytest`
        mock.patch.object(sys, "stdin", io.StringIO()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd or before),
    ):
        state = _state()
        try:
            with _own_modules_removed():  # a command finds users' modules in its working folder
                main()
        except SystemExit as end:
            code = end.code or 0
        scheduler_of.cache_clear()
        changed = {name: now for name, now in _state().items() if now != state[name]}
        for name, now in changed.items():
            if isinstance(now, set):
                changed[name] = now ^ state[name]  # type: ignore[operator]
        assert not changed, f"the command changed the process that called it: {changed}"
    return Done(int(str(code)), out.getvalue(), err.getvalue(), both.getvalue())


def _state() -> dict[str, object]:
    """Return what a command must leave as it was."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
    return {
        # as items: a message shows those that differ; libraries set theirs when they are imported
        "environment": {
            one for one in os.environ.items() if not one[0].startswith(("TORCH", "KMP_", "_RJEM_"))
        },
        "working directory": Path.cwd(),
        "handlers of signals": [signal.getsignal(number) for number in signals],
        "umask": _umask(),
        # libraries keep pools of threads for later
        "threads": {
            one
            for one in threading.enumerate()
            if not one.daemon and not one.name.startswith("ThreadPoolExecutor-")
        },
    }


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that one of the test run's processes has made, for all of them.

    Parameters
    ----------
    factory : TempPathFactory
        Of a fixture with session scope.
    name : str
        The folder's name.
    make : callable
        Called with the new folder, unless it was made already.
    """
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = root / f"once-{name}"
    with (root / f"{folder.name}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (
            os.fstat(lock.fileno()).st_size == 0
        ):  # sweeps name their own place, so nothing is moved when it is whole
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            lock.write("made")
    return folder
