"""All errors that end a command, with their exit codes.

::

    ManyseedError
    ├── UserError         2  the user's mistake: file, key, value, remedy
    ├── UnavailableError  4  the cluster, the environment or the disk cannot be used now
    │   ├── DamagedFile      a file of the sweep is not what it must be: file, reason, remedy
    │   └── StoreError       all of the store's, `store.errors`; 2 where its layout is newer
    ├── StillRunning      3  what was asked for has to wait for what still runs
    └── RunsError         1  runs failed or are wrong

Further exit codes: 0 all well, 3 not finished yet, 130 interrupted.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

NOT_FINISHED = 3
INTERRUPTED = 130
_UNSET: Any = object()
_LONGEST = 1000  # of a value that a message shows


class ManyseedError(Exception):
    """An error that is printed as one message, without a traceback."""

    exit_code: ClassVar[int] = 1


class UserError(ManyseedError):
    """The user's mistake.

    Parameters
    ----------
    message : str
        What is wrong.
    file, key, value
        Where it stands; each is left out of the text when not given.
    remedy : str
        What to do about it.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        key: str | None = None,
        value: Any = _UNSET,
        remedy: str | None = None,
    ) -> None:
        self.message, self.file, self.key, self.value = message, file, key, value
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        where = [] if self.file is None else [str(self.file)]
        if self.key is not None:
            shown = "" if self.value is _UNSET else f" = {_short(toml_value(self.value))}"
            where.append(f"{self.key}{shown}")
        text = ": ".join([*where, self.message])
        return text if self.remedy is None else f"{text}\n  {self.remedy}"


class UnavailableError(ManyseedError):
    """The cluster, the environment or the disk cannot be used now."""

    exit_code = 4


class DamagedFile(UnavailableError):
    """A file of a sweep directory that cannot be what was written there.

    Parameters
    ----------
    file : path
    reason : str
        What is wrong with it.
    remedy : str
        What to do about it.
    """

    def __init__(
        self,
        file: str | Path,
        reason: str,
        remedy: str = "restore it from a copy of the sweep",
    ) -> None:
        self.file, self.reason, self.remedy = file, reason, remedy
        super().__init__(f"{file}: {reason}\n  {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.file, self.reason, self.remedy)


class StillRunning(ManyseedError):
    """What was asked for has to wait for what still runs."""

    exit_code = NOT_FINISHED


class RunsError(ManyseedError):
    """Runs failed or are wrong."""

    exit_code = 1


def nearest(value: str, options: Iterable[str]) -> str:
    """Return a remedy: the nearest valid name where there is one, and all of them."""
    options = sorted(options)
    close = difflib.get_close_matches(value, options, n=1, cutoff=0.5)
    listed = ", ".join(options) if len(options) <= 20 else ", ".join(options[:20]) + ", …"
    return f'did you mean "{close[0]}"? Valid: {listed}' if close else f"valid: {listed}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def toml_value(value: Any) -> str:
    """Show a value as it would stand in the sweep file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + " }"
    return str(value)
