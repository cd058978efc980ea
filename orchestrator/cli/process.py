"""The command as a process: signals, closed pipes, terminals that show only ASCII."""

from __future__ import annotations

import atexit
import codecs
import io
import os
import signal
import sys
import threading
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

CLOSED = 141
"""The exit code if nobody reads the output: 128 plus the number of SIGPIPE, as in a shell."""

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
    """The reader of the command's output is gone, which is not an error."""


class CommandProcess:
    """Handling of signals and standard streams; a context manager that restores signal handlers.

    `received` is the number of the last signal that asked the command to end; 0 if none did.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}
        self._unraisable = sys.unraisablehook
        self._is_own = sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__

    def __enter__(self) -> CommandProcess:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *_ENDS):
                usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                # under nohup, and in a shell's background jobs, some signals are ignored: keep that
                if signal.getsignal(number) == usual:
                    self._before[number] = signal.signal(number, self._end)
            sys.unraisablehook = self._resend
        if self._is_own:
            held = signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
            _replace_streams()  # not half of it: text that is left would be lost
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            for replaced in self._before:  # registered first, so done last at exit
                atexit.register(signal.signal, replaced, signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._unraisable
        for number, before in self._before.items():
            signal.signal(number, before)

    def flush(self) -> None:
        """Flush the output, which shows whether somebody reads it."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):
                stream.flush()

    def end(self) -> None:
        """Print nothing any more, neither about a second Ctrl-C nor about a closed pipe.

        From here on, a signal ends a process that still waits for threads. While Python shuts down,
        signals are ignored: they would kill the process and change the command's exit code.
        """
        if not self._is_own:
            return
        for number in self._before:
            signal.signal(number, _leave)
        for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            try:
                stream.flush()
            except (StreamClosed, OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)

    def _resend(self, lost: sys.UnraisableHookArgs) -> None:
        """Resend a signal that came while an object was destroyed, when exceptions get lost."""
        if isinstance(lost.exc_value, KeyboardInterrupt):
            number = int(signal.SIGINT)
        elif isinstance(lost.exc_value, SystemExit) and lost.exc_value.code in _CODES:
            number = _CODES[lost.exc_value.code]
        else:
            if not self.received:  # else it was being made when the signal came
                self._unraisable(lost)
            return
        self._again(number)

    @staticmethod
    def _again(number: int) -> None:
        """Send a signal once more, shortly after."""
        main = threading.main_thread().ident
        assert main is not None
        again = threading.Timer(0.02, signal.pthread_kill, (main, number))
        again.daemon = True
        again.start()

    def _end(self, number: int, frame: FrameType | None) -> None:
        """End the command by an exception; within polars, as soon as that returns.

        Its Rust calls Python, where an exception makes it panic: it prints a backtrace, and what it
        was reading seems damaged.
        """
        self.received = number
        # what a library had begun, such as a coroutine of zarr's, complains that it was left
        warnings.simplefilter("ignore")
        if "logging" in sys.modules:
            sys.modules["logging"].getLogger("asyncio").disabled = True
        end = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
        outermost = None
        while frame is not None:
            if frame.f_code is CommandProcess._resend.__code__:  # would be lost here, too
                self._again(number)
                return
            if str(frame.f_globals.get("__name__")).partition(".")[0] == "polars":
                outermost = frame
            frame = frame.f_back
        if outermost is None:
            raise end

        def returned(current: FrameType, event: str, _: object) -> None:
            if event == "return" and current is outermost:
                raise end  # Python then forgets this function

        sys.setprofile(returned)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


class _Output(io.TextIOWrapper):
    """Standard output or error that says what refuses it, as `written` does."""

    def write(self, text: str) -> int:
        with written(self.fileno()):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with written(self.fileno()):
            super().flush()


@contextmanager
def written(descriptor: int) -> Iterator[None]:
    """Name standard output or error if it refuses; raise `StreamClosed` if nobody reads."""
    try:
        yield
    except BrokenPipeError:
        if threading.current_thread() is threading.main_thread():
            raise StreamClosed from None
    except OSError as error:
        name = "standard error" if descriptor == 2 else "standard output"
        raise OSError(error.errno, error.strerror, name) from None


def _replace_streams() -> None:
    """Replace standard streams by ones that accept any text, even if they were closed."""
    for descriptor in (0, 1, 2):  # or the next opened file would get one of these descriptors
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or os.fdopen(0)
    codecs.register_error(_HANDLER, _plain)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name) or os.fdopen(descriptor, "w")
        if type(old) is not io.TextIOWrapper:
            continue
        old.flush()
        encoding, by_line = old.encoding, old.line_buffering or old.write_through
        stream = _Output(old.detach(), encoding=encoding, errors=_HANDLER, line_buffering=by_line)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return a replacement for characters that the encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(_shown, error.object[error.start : error.end])), error.end


def _shown(letter: str) -> str:
    if letter in _PLAIN:
        return _PLAIN[letter]
    if 0xDC80 <= ord(letter) <= 0xDCFF:  # an undecodable byte of a file name
        return f"\\x{ord(letter) - 0xDC00:02x}"
    base = unicodedata.normalize("NFKD", letter)[:1]
    return base if base.isascii() else "?"
