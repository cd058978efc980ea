"""The words of ``command = "…"``: split as a shell would, without one, and filled in for a run.

``{name}`` in a word is a placeholder, ``{{`` and ``}}`` are braces. Words are split before anything
is filled in, so that a value with blanks stays within its word.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import PurePosixPath

from manyseed.jobs.checks import Refused
from manyseed.jobs.hparams.grid import text_of
from manyseed.jobs.hparams.kinds import Value

NEEDED = ("train", "test", "out")
"""Files: training rows, test rows, and what the command writes."""

SEEDS: Mapping[str, str] = {
    "seed": "batch",
    "seeds.batch": "batch",
    "seeds.init": "init",
    "seeds.dropout": "dropout",
}
"""Placeholders of seeds, with the stream that each is drawn from."""

CHECKPOINT = "checkpoint"
OTHERS = ("device", "n_classes", CHECKPOINT)
HPARAM = "hparams."

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\{|\}")


def split(option: str, text: object) -> tuple[str, ...]:
    """Return the words of a command.

    Raises
    ------
    Refused
        For what is no text, or cannot be split.
    """
    if not isinstance(text, str) or "\0" in text:
        raise Refused(option, text, allowed='text such as "python train.py {train} {test} {out}"')
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise Refused(option, text, f"cannot be split into words: {error}".lower()) from None
    if not words:
        raise Refused(option, text, "is empty")
    return words


def check(option: str, words: Iterable[str], hparams: Iterable[str]) -> None:
    """Refuse placeholders that nothing is known of, and a command that lacks one that it needs.

    Parameters
    ----------
    option : str
        That gave it.
    words : iterable of str
    hparams : iterable of str
        Names of its hparams, all of which it must use.

    Raises
    ------
    Refused
    """
    named = [f"{HPARAM}{name}" for name in hparams]
    known = (*NEEDED, *SEEDS, *OTHERS, *named)
    found = placeholders(words)
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {{{near[0]}}}?" if near else ""
            listed = ", ".join(f"{{{each}}}" for each in known)
            reason = f"there is no {{{name}}}{hint} There are {listed}; {{{{ is a brace"
            raise Refused(option, " ".join(words), reason)
    for name in (*NEEDED, *named):
        if name not in found:
            reason = f"{{{name}}} is nowhere in it"
            if name in named:
                reason += ": it would be trained the same whatever its value is"
            raise Refused(option, " ".join(words), reason)


def placeholders(words: Iterable[str]) -> tuple[str, ...]:
    """Return the names in braces, each once, as they come."""
    found = (piece[1] for word in words for piece in _PIECE.finditer(word))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def filled(words: Iterable[str], values: Mapping[str, Value]) -> list[str]:
    """Return words with values in the place of their placeholders."""

    def piece(found: re.Match[str]) -> str:
        return text_of(values[found[1]]) if found[1] is not None else found[0][:1]

    return [_PIECE.sub(piece, word) for word in words]


def draws_from(words: Iterable[str]) -> list[str]:
    """Return the varying streams that a command's seeds come from (dropout goes with batch)."""
    of = {SEEDS[name] for name in placeholders(words) if name in SEEDS}
    return sorted({"batch" if name == "dropout" else name for name in of})


def entry(words: Iterable[str]) -> str:
    """Return what a command is called: its script, of ``-m`` its module, else its program.

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
