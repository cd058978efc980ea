"""The known names that a misspelt one most likely means, and texts that only look different."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

MOST = 3
"""Suggestions at most."""

_CUTOFF = 0.65
"""Least share of letters in common, as `difflib` counts them."""


def similar(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are most like a wrong one: the best kind of likeness that occurs.

    In this order: equal but for case, hyphens and underscores; beginning with it; the beginning of
    it; few letters apart; with a word that begins with it. Of several, the first `MOST`.

    Parameters
    ----------
    name : str
    known : iterable of str
        Preferred names first.
    """
    wanted = _folded(name)
    names = {one: _folded(one) for one in dict.fromkeys(known)}
    if not wanted:
        return []
    n = len(wanted)
    begun = [one for one, text in names.items() if text.startswith(wanted)]
    long = {one: text[: n + 1] for one, text in names.items() if n > 3 and len(text) > n}
    found = (
        [one for one, text in names.items() if text == wanted]
        or (begun if n > 1 or len(begun) == 1 else [])
        or [one for one, text in names.items() if len(text) > 2 and wanted.startswith(text)]
        or _close(wanted, names)
        or _close(wanted, long)
        or [one for one, text in names.items() if n > 2 and _has_word(text, wanted)]
    )
    return found[:MOST]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question to append to a message about a wrong name; empty if nothing is near."""
    near = " or ".join(similar(name, known))
    return f"; did you mean {near}?" if near else ""


def spelling(text: str) -> str:
    """Return a text as it is read: composed (NFC), with single blanks, without invisible marks."""
    if text.isascii():
        return " ".join(text.split())
    composed = unicodedata.normalize("NFC", text)
    return " ".join("".join(c for c in composed if unicodedata.category(c) != "Cf").split())


def same_spelling(texts: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the different texts that are read alike, by what they share, in order."""
    same: dict[str, list[str]] = {}
    for text in sorted({*texts}):
        same.setdefault(spelling(text), []).append(text)
    return [tuple(each) for each in same.values() if len(each) > 1]


def shown(name: str) -> str:
    """Return a name for a list in a message: quoted unless it is plain words."""
    return (
        name if re.fullmatch(r"\S+( \S+)*", name) and name == quoted(name)[1:-1] else quoted(name)
    )


def quoted(text: str) -> str:
    """Return a text between quotation marks, in which what cannot be seen is escaped."""
    escaped = (
        c
        if c == " " or (c.isprintable() and c not in '"\\' and not unicodedata.combining(c))
        else f"\\{c}"
        if c in '"\\'
        else f"\\u{ord(c):04x}"
        for c in text
    )
    return f'"{"".join(escaped)}"'


def _folded(name: str) -> str:
    return spelling(name).casefold().replace("-", "_")


def _close(wanted: str, texts: dict[str, str]) -> list[str]:
    from difflib import get_close_matches  # needed for errors only

    near = get_close_matches(wanted, texts.values(), n=1, cutoff=_CUTOFF)
    return [one for one, text in texts.items() if text in near]


def _has_word(text: str, beginning: str) -> bool:
    return any(word.startswith(beginning) for word in re.split(r"[^a-z0-9]+", text))
