"""The words of ``command = "…"``: split as by a shell, but without one, and filled in for a run.

``{name}`` in a word is a placeholder, ``{{`` and ``}}`` are braces. Words are split before they are
filled in, so a value with blanks stays within its word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import PurePosixPath

from manyseed.jobs.checks import Refused, similar
from manyseed.jobs.hparams.grid import text_of
from manyseed.jobs.hparams.kinds import Value

NEEDED = ("train", "test", "out")
"""Files: training rows, test rows, and the command's output."""

SEEDS: Mapping[str, str] = {
    "seed": "batch",
    "seeds.batch": "batch",
    "seeds.init": "init",
    "seeds.dropout": "dropout",
}
"""Placeholders of seeds, and the stream that each is drawn from."""

CHECKPOINT = "checkpoint"
OTHERS = ("device", "n_classes", CHECKPOINT)
HPARAM = "hparams."

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\{|\}")


def split_command(option: str, text: str) -> tuple[str, ...]:
    """Return the words of a command.

    Raises
    ------
    Refused
        For text that cannot be split.
    """
    if "\0" in text:
        raise Refused(option, text, allowed="text without a NUL")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise Refused(option, text, f"cannot be split into words: {error}".lower()) from None
    if not words:
        raise Refused(option, text, "is empty")
    return words


def require_placeholders(option: str, words: Iterable[str], hparams: Iterable[str]) -> None:
    """Refuse unknown placeholders, and a command that lacks a placeholder that it needs.

    Parameters
    ----------
    option : str
        The option that gave the command.
    words : iterable of str
    hparams : iterable of str
        Names of the hparams, all of which it must use.

    Raises
    ------
    Refused
    """
    named = [f"{HPARAM}{name}" for name in hparams]
    known = (*NEEDED, *SEEDS, *OTHERS, *named)
    used = placeholders(words)
    for name in used:
        if name not in known:
            near = similar(name, known)
            hint = f"; did you mean {{{near[0]}}}?" if near else "."
            listed = ", ".join(f"{{{each}}}" for each in known)
            reason = f"there is no {{{name}}}{hint} There are {listed}; {{{{ is a brace"
            raise Refused(option, " ".join(words), reason)
    for name in (*NEEDED, *named):
        if name not in used:
            reason = f"{{{name}}} is missing"
            if name in named:
                reason += ": the hparam would have no effect"
            raise Refused(option, " ".join(words), reason)


def placeholders(words: Iterable[str]) -> tuple[str, ...]:
    """Return the names in braces, each once, in order."""
    names = (piece[1] for word in words for piece in _PIECE.finditer(word))
    return tuple(dict.fromkeys(name for name in names if name is not None))


def filled_in(words: Iterable[str], values: Mapping[str, Value]) -> list[str]:
    """Return words with their placeholders replaced by values."""

    def piece(match: re.Match[str]) -> str:
        return text_of(values[match[1]]) if match[1] is not None else match[0][:1]

    return [_PIECE.sub(piece, word) for word in words]


def draws_from(words: Iterable[str]) -> list[str]:
    """Return the varying streams that a command's seeds come from (dropout goes with batch)."""
    streams = {SEEDS[name] for name in placeholders(words) if name in SEEDS}
    return sorted({"batch" if name == "dropout" else name for name in streams})


def command_name(words: Iterable[str]) -> str:
    """Return a command's name: its script, its module after ``-m``, or its program.

    The streams are keyed by it.
    """
    words = [word for word in words if "{" not in word]
    for before, word in pairwise(words):
        if before == "-m":
            return word
    for word in words:
        if not word.startswith("-") and re.fullmatch(r"\.[A-Za-z]\w*", PurePosixPath(word).suffix):
            return PurePosixPath(word).as_posix()
    return PurePosixPath(words[0]).name if words else ""
