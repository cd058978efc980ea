"""The ``manyseed`` command: runs it, prints its errors and returns its exit code.

Importing this module imports nothing else, so that Ctrl-C works from the first moment on.
"""

from __future__ import annotations

import itertools
import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from manyseed.orchestrator.cli.process import CommandProcess

LIBRARIES = (
    *("dask", "jinja2", "matplotlib", "numba", "numpy", "polars", "pydantic", "rich", "scipy"),
    *("sklearn", "submitit", "torch", "torchvision", "typer", "xarray", "xgboost", "zarr"),
)
"""Packages, all of them folders, that a file of the same name on ``PYTHONPATH`` would hide."""

_AFTER_SIGNALS = (129, 130, 143)  # exit codes
_PATIENCE = 5.0  # seconds for what threads have in flight

_OBJECTS = 50_000  # new ones before garbage is looked for
_DIGITS = 6  # fewest of a terminal's size that is none


def entry() -> NoReturn:
    """Run the command as a process of its own, in a way that starts and ends it at once."""
    import gc

    gc.set_threshold(_OBJECTS)  # else libraries are searched for garbage while they are imported
    # threads that OpenBLAS starts when NumPy is imported; os.environ, which tasks get, stays
    if not any(name in os.environ for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")):
        os.putenv("OPENBLAS_NUM_THREADS", "1")
    try:
        main()
    except SystemExit as end:
        if end.code in _AFTER_SIGNALS:
            _end_soon(int(end.code))
        if "polars" in sys.modules and _may_leave():
            from manyseed.slurm.processes import leave

            _hush_libraries()
            leave(int(end.code or 0))
        raise
    raise AssertionError("main ends by an exit")


def _end_soon(code: int) -> NoReturn:
    """End after a signal, which may have come while a library took a lock: it is held for good.

    Threads that wait for it never end, and coroutines that it stopped complain when they are
    taken apart.
    """
    import threading

    from manyseed.slurm.processes import leave

    late = threading.Timer(_PATIENCE, os._exit, (code,))
    late.daemon = True
    late.start()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that still work
    _hush_libraries()
    leave(code)


def _hush_libraries() -> None:
    """Let no library complain at exit of its own threads, which need not end in time.

    They may work on what nobody waits for, on a busy machine or after a signal: zarr waits 0.2 s.
    """
    import logging

    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    told = sys.unraisablehook

    def hushed(lost: sys.UnraisableHookArgs) -> None:
        if str(getattr(lost.object, "__module__", "")).partition(".")[0] not in LIBRARIES:
            told(lost)

    sys.unraisablehook = hushed


def _may_leave() -> bool:
    """Return whether no thread is waited for, and no debugger or profiler shows what it saw."""
    import threading

    others = (one for one in threading.enumerate() if one is not threading.main_thread())
    watched = sys.gettrace() or sys.getprofile() or sys.flags.interactive
    return not watched and all(thread.daemon for thread in others)


def main() -> None:
    """Run the command; print an expected error as one message, without a traceback."""
    if sys.flags.optimize:
        _with_assertions()
    try:
        code = _guarded()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _with_assertions() -> None:
    """Start again without ``python -O``: zarr opens no group where assertions are left out."""
    os.environ.pop("PYTHONOPTIMIZE", None)
    words = sys.orig_argv[1:]
    own = next((place for place, word in enumerate(words) if not word.startswith("-O")), 0)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *words[own:]])


def _guarded() -> int:
    """Run the command with its own handling of signals and streams; return its exit code."""
    from manyseed.orchestrator.cli.process import CLOSED, CommandProcess, StreamClosed

    process = CommandProcess()
    try:
        with process:
            code = _run(process)
            try:
                process.flush()
            except OSError as error:
                code = _refused(error)
    except StreamClosed:
        code = CLOSED
    except KeyboardInterrupt:
        code = _interrupted()
    except Exception as error:
        if not process.received or _is_in_handling(error):
            raise
        code = _ended(process)  # an interrupted library may raise anything
    process.end()
    return code


def _is_in_handling(error: BaseException) -> bool:
    """Return whether an error arose in manyseed's own handling of Ctrl-C, or of another end."""
    inner, ours = error.__traceback__, False
    while inner is not None:
        if _is_ours(inner):
            ours = inner.tb_next is None or inner.tb_next.tb_frame.f_code.co_name != "__exit__"
        inner = inner.tb_next
    before = error.__cause__ or error.__context__
    while before is not None and not isinstance(before, (KeyboardInterrupt, SystemExit)):
        before = before.__cause__ or before.__context__
    # its traceback begins where it was caught
    return ours and before is not None and _is_ours(before.__traceback__)


def _is_ours(entry: TracebackType | None) -> bool:
    name = "" if entry is None else str(entry.tb_frame.f_globals.get("__name__"))
    return name.startswith("manyseed.") and name != __name__


def _run(process: CommandProcess) -> int:
    """Run the command; return its exit code."""
    from manyseed.orchestrator.errors import DamagedFile, ManyseedError

    try:
        _forget_odd_sizes()
        _refuse_shadows()
        from manyseed.orchestrator.cli.commands import app
        from manyseed.orchestrator.cli.output import answers

        answers.clear()
        app()
    except SystemExit as end:
        # typer replaces Ctrl-C by an exit; commands with a message of their own exit by themselves
        if end.__context__ and isinstance(end.__context__.__cause__, KeyboardInterrupt):
            return _interrupted()
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except ManyseedError as error:
        if process.received and isinstance(error, DamagedFile) and not _is_in_handling(error):
            return _ended(process)  # what was not read to its end seems damaged
        _say_error(str(error), error.exit_code, error.facts)
        return error.exit_code
    except OSError as error:
        return _refused(error)
    return 0


def _refused(error: OSError) -> int:
    """Say that a disk or a folder refuses, anywhere; return the exit code."""
    from manyseed.orchestrator.errors import UnavailableError, way_out

    place = f"{error.filename}: " if error.filename else ""
    refusal = UnavailableError(f"{place}{error.strerror or error}\n  {way_out(error)}")
    _say_error(str(refusal), refusal.exit_code)
    return refusal.exit_code


def _forget_odd_sizes() -> None:
    """Forget sizes of the terminal that are none, which libraries would believe or fail at."""
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        value = os.environ.get(name, "1")
        if not (value.isascii() and value.isdecimal() and 0 < len(value.lstrip("0")) < _DIGITS):
            del os.environ[name]


def _has_folder() -> bool:
    """Return whether the current folder exists."""
    from pathlib import Path

    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _ended(process: CommandProcess) -> int:
    """Return the exit code after a signal; after Ctrl-C, say what to do."""
    return _interrupted() if process.received == 2 else 128 + process.received


def _interrupted() -> int:
    """Say what to do after Ctrl-C; return the exit code."""
    from manyseed.orchestrator.errors import INTERRUPTED

    with suppress(OSError):
        print("Interrupted. To continue, run the same command again.", file=sys.stderr)
    return INTERRUPTED


def _refuse_shadows() -> None:
    """Refuse a user's file that would be imported instead of a library, here and by tasks."""
    from importlib.machinery import PathFinder

    for name in LIBRARIES:
        spec = PathFinder.find_spec(name)
        if spec and spec.origin and spec.submodule_search_locations is None:
            from manyseed.orchestrator.errors import UserError

            raise UserError(
                f"this file hides the library {name}",
                file=spec.origin,
                remedy="rename it, or take its folder out of PYTHONPATH",
            )


def _say_error(message: str, code: int, facts: dict[str, object] | None = None) -> None:
    """Print an error; with --json also as an object instead of the answer."""
    from rich.text import Text

    from manyseed.orchestrator.cli.output import answers, errors, print_json, say

    if not _has_folder():
        message += "\n  the current folder no longer exists: change to another, then try again"
    with suppress(OSError):  # a terminal that is gone
        say(Text.assemble(("error:", "bold red"), f" {message}"), to=errors)
    if _as_json(sys.argv[1:]) and not answers:
        with suppress(OSError):  # a full disk
            print_json({"error": {"message": message, **(facts or {}), "exit_code": code}})


def _as_json(arguments: list[str]) -> bool:
    """Return whether these arguments ask for JSON."""
    pairs = itertools.pairwise(arguments)
    return (
        "--json" in arguments
        or "--format=json" in arguments
        or any(option in ("-f", "--format") and value == "json" for option, value in pairs)
    )
