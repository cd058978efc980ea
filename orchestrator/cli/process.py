"""The command as a process: signals, pipes that nobody reads, terminals that show ASCII alone."""

from __future__ import annotations

import atexit
import codecs
import io
import os
import signal
import sys
import threading
import unicodedata
from contextlib import suppress
from types import FrameType
from typing import Any

CLOSED = 141
"""The exit code where nobody reads what is printed: 128 and the number of SIGPIPE, as a shell's."""

_ENDS = (signal.SIGTERM, signal.SIGHUP)
_CODES = {128 + number: number for number in _ENDS}
_PLAIN = {
    "α": "a",
    "δ": "d",
    "×": "x",
    "±": "+-",
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "→": "->",
    "←": "<-",
    "≤": "<=",
    "≥": ">=",
    "·": ".",
    "✓": "v",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
    "√": "sqrt",
    "∞": "inf",
    "\u0302": "^",
    "\u00a0": " ",
}
_HANDLER = "manyseed-plain"


class StreamClosed(BaseException):
    """What reads the command's output is gone, which is nobody's error."""


class CommandProcess:
    """What the command is in for; a context manager that restores what it found.

    Attributes
    ----------
    interrupted : bool
        Whether a Ctrl-C was heard.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self._before: dict[int, Any] = {}
        self._unraisable = sys.unraisablehook
        self._is_own = sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__

    def __enter__(self) -> CommandProcess:
        if threading.current_thread() is threading.main_thread():
            for number, heard in {
                signal.SIGINT: self._interrupt,
                **dict.fromkeys(_ENDS, _end),
            }.items():
                usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                if signal.getsignal(number) == usual:  # nohup and shells' background jobs ignore
                    self._before[number] = signal.signal(number, heard)
            sys.unraisablehook = self._heard_in_vain
        if self._is_own:
            _own_streams()
            for replaced in self._before:  # first, so that it is the last thing done at exit
                atexit.register(signal.signal, replaced, signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._unraisable
        for number, before in self._before.items():
            signal.signal(number, before)

    def flush(self) -> None:
        """Write what is printed, so that it is known whether somebody reads it."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):
                stream.flush()

    def end(self) -> None:
        """Let nothing be said any more, neither of a second Ctrl-C nor of a pipe that is closed.

        A signal ends what still waits for threads. Where Python takes itself apart it would kill
        the process, whose exit code would not be the command's: there none is heard any more.
        """
        if not self._is_own:
            return
        for number in self._before:
            signal.signal(number, _leave)
        for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            try:
                stream.flush()
            except (StreamClosed, OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)

    def _heard_in_vain(self, lost: sys.UnraisableHookArgs) -> None:
        """Send a signal again that came while an object was destroyed, where nothing is raised."""
        if isinstance(lost.exc_value, KeyboardInterrupt):
            number = int(signal.SIGINT)
        elif isinstance(lost.exc_value, SystemExit) and lost.exc_value.code in _CODES:
            number = _CODES[lost.exc_value.code]
        else:
            self._unraisable(lost)
            return
        main = threading.main_thread().ident
        assert main is not None
        again = threading.Timer(0.02, signal.pthread_kill, (main, number))
        again.daemon = True
        again.start()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        raise KeyboardInterrupt


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class _Output(io.TextIOWrapper):
    """Standard output or error, which says in its own way that nobody reads it."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._closed()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._closed()

    def _closed(self) -> None:
        if threading.current_thread() is threading.main_thread():
            raise StreamClosed


def _own_streams() -> None:
    """Make standard streams that can be written to, whatever they are and whatever is written."""
    for descriptor in (0, 1, 2):  # else the next file that is opened would be one of them
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or os.fdopen(0)
    codecs.register_error(_HANDLER, _plain)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        held = getattr(sys, name) or os.fdopen(descriptor, "w")
        if type(held) is not io.TextIOWrapper:
            continue
        held.flush()
        encoding, buffered = held.encoding, not (held.line_buffering or held.write_through)
        stream = _Output(
            held.detach(), encoding=encoding, errors=_HANDLER, line_buffering=not buffered
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return what is shown in place of what an encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(_shown, error.object[error.start : error.end])), error.end


def _shown(letter: str) -> str:
    if letter in _PLAIN:
        return _PLAIN[letter]
    if 0xDC80 <= ord(letter) <= 0xDCFF:  # a byte of a file's name that is no text
        return f"\\x{ord(letter) - 0xDC00:02x}"
    base = unicodedata.normalize("NFKD", letter)[:1]
    return base if base.isascii() else "?"
