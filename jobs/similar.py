"""The known names that a misspelt one most likely means."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST = 3
"""Suggestions at most."""


def similar(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are most like a wrong one: the best kind of likeness that occurs.

    In this order: equal but for case, hyphens and underscores; beginning with it; few letters
    apart; the beginning of it, or beginning with nearly the same letters; with a word that begins
    with it. Of several, the first `MOST`.

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
    equal = [one for one, text in names.items() if text == wanted]
    begun = [one for one, text in names.items() if text.startswith(wanted)]
    if len(wanted) == 1 and len(begun) > 1:
        begun = []
    found = equal or begun or _near(wanted, names) or _begun_alike(wanted, names)
    return (found or _with_word(wanted, names))[:MOST]


def _folded(name: str) -> str:
    return name.casefold().replace("-", "_").strip()


def _near(wanted: str, names: dict[str, str]) -> list[str]:
    """Return the names with the least edit distance, if that is at most a third of the letters."""
    found: dict[int, list[str]] = {}
    for one, text in names.items():
        allowed = (max(len(wanted), len(text)) + 1) // 3
        if abs(len(wanted) - len(text)) <= allowed:
            distance = _distance(wanted, text)
            if distance <= allowed:
                found.setdefault(distance, []).append(one)
    return found[min(found)] if found else []


def _begun_alike(wanted: str, names: dict[str, str]) -> list[str]:
    """Return the names that begin `wanted`, else those that begin with nearly its letters."""
    shorter = [one for one, text in names.items() if len(text) > 2 and wanted.startswith(text)]
    n, allowed = len(wanted), len(wanted) // 4
    return shorter or [
        one
        for one, text in names.items()
        if allowed and any(_distance(wanted, text[:k]) <= allowed for k in (n - 1, n, n + 1))
    ]


def _with_word(wanted: str, names: dict[str, str]) -> list[str]:
    if len(wanted) < 3:
        return []
    return [
        one
        for one, text in names.items()
        if any(word.startswith(wanted) for word in re.split(r"[^a-z0-9]+", text))
    ]


def _distance(one: str, other: str) -> int:
    """Return how many letters to insert, remove, replace or swap with the next (as neighbours)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        above, before = before, row
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]
