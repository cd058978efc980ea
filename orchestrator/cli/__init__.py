"""The ``manyseed`` command: one place that prints an error, and ends as its user expects.

Importing this imports nothing else: a Ctrl-C is heard from the first moment on.
"""

from __future__ import annotations

import sys
from contextlib import suppress

__all__ = ["main"]


def main() -> None:
    """Run the command; print an expected error as one message, without a traceback."""
    try:
        code = _guarded()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _guarded() -> int:
    """Run the command with signals and streams of its own; return its exit code."""
    from orchestrator.cli.process import CLOSED, Process, StreamClosed
    from orchestrator.errors import INTERRUPTED

    process = Process()
    try:
        with process:
            code = _ended()
            process.flush()
    except StreamClosed:
        code = CLOSED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception:
        if not process.interrupted:
            raise
        code = INTERRUPTED  # a library that was interrupted may raise anything
    process.end()
    return code


def _ended() -> int:
    """Run the command; return its exit code."""
    from orchestrator.errors import ManyseedError, UnavailableError

    try:
        from orchestrator.cli.commands import app

        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except ManyseedError as error:
        _say_error(str(error))
        return error.exit_code
    except OSError as error:  # a disk or a folder that refuses, wherever it was met
        place = f"{error.filename}: " if error.filename else ""
        _say_error(
            f"{place}{error.strerror or error}\n"
            "  make room or give permission, then give the command again"
        )
        return UnavailableError.exit_code
    return 0


def _say_error(message: str) -> None:
    from rich.text import Text

    from orchestrator.cli.output import errors, say

    with suppress(OSError):  # a terminal that is gone
        say(Text.assemble(("error:", "bold red"), f" {message}"), to=errors)
