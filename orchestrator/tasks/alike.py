"""Failures of one kind: the same exception, raised by the same line of the user's code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from manyseed.orchestrator.tasks.attempts import Failure

MOST_LINES = 22
"""The most lines of a traceback that are shown of many failures."""

_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ')
_OURS = re.compile(r"[/\\](?:manyseed)[/\\](?:orchestrator|jobs|slurm|analysis)[/\\]")
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python3[^/\\]*)[/\\]|^<")
_PATH = re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?[/\\][^\s'\"<>:,;()]+")
_DIGITS = re.compile(r"0x[0-9a-fA-F]+|\d(?:[\d_,.]*\d)?(?:e[-+]?\d+)?")
_WIDEST = 500


def kind(failure: Failure) -> tuple[str, str]:
    """Return what failures of one cause share.

    Returns
    -------
    error : str
        Exception and message without paths and digits, which differ from run to run.
    line : str
        The innermost line of the user's own code that raised it; empty if none did.
    """
    files = [_FRAME.match(line) for line in failure.traceback.splitlines()]
    own = [found for found in files if found and not _foreign(found[1])]
    line = f"{own[-1][1].rpartition('/')[2]}:{own[-1][2]}" if own else ""
    return _DIGITS.sub("#", _PATH.sub("…", failure.error)), line


def shortened(traceback: str) -> str:
    """Return a traceback without manyseed's own frames and cut in its middle, if it is long."""
    lines = [line[:_WIDEST] for line in _without_ours(traceback)]
    if len(lines) > MOST_LINES:
        first = MOST_LINES // 4
        left = len(lines) - MOST_LINES + 1
        lines[first : first + left] = [f"  … {left:,} lines"]
    return "\n".join(lines)


def _without_ours(traceback: str) -> Iterator[str]:
    is_ours = False
    for line in traceback.strip().splitlines():
        if found := _FRAME.match(line):
            is_ours = _OURS.search(found[1]) is not None
        elif not line.startswith("   "):  # no line of a frame's code
            is_ours = False
        if not is_ours:
            yield line


def _foreign(file: str) -> bool:
    return bool(_OURS.search(file) or _INSTALLED.search(file))
