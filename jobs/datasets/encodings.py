"""Encodings of text other than UTF-8: the one that fits bytes best, by the words that it makes."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

_KNOWN = {
    "windows-1252": "windows-1252",
    "macintosh": "macintosh",
    "cp850": "cp850",
    "windows-1250": "windows-1250",
    "windows-1251": "windows-1251",
    "gb18030": "gb2312",  # its frequent characters
    "shift_jis": "shift_jis",
}
"""What iconv calls them, and how Python reads them; of equally good ones, the first is taken."""
_SEEN = 2**20  # bytes
_WORD = re.compile(rb"[A-Za-z'-]*(?:[\x80-\xff][\x30-\x7e]?[A-Za-z'-]*)+")
_WORDS = 200
_SIGNS = "€£°µ§²³½–…«»±×„“”‘’"
_OPEN, _CLOSED = "„«§", "”»²³½"  # no letter stands before the first, and none after the others
_RARE = "ªºƒˆ¸ıÐðÞþ"


def fitting(content: bytes) -> tuple[str, str]:
    """Return the encoding that makes words of bytes, and the first such word as it reads it.

    Letters of one script stand beside each other in a word, none large after a small one; of Latin
    ones with marks, hardly two.
    """
    words = [found[0] for found in _WORD.finditer(content[:_SEEN])]
    chosen = [*dict.fromkeys(words)][:_WORDS]
    best = min(_KNOWN, key=lambda name: sum(_faults(word, _KNOWN[name]) for word in chosen))
    return best, words[0].decode(best, "replace") if words else ""


def _faults(word: bytes, encoding: str) -> int:
    """Return how much of bytes is no word."""
    try:
        text = word.decode(encoding)
    except UnicodeDecodeError:
        return 10 * len(word)
    return sum(_fault(before, letter) for before, letter in pairwise(f" {text}"))


def _fault(before: str, letter: str) -> int:
    """Return how odd a letter is after another one."""
    is_apart = (before.isalpha() and letter in _OPEN) or (before in _CLOSED and letter.isalpha())
    if is_apart or (before.islower() and letter.isupper()):
        return 2
    if letter.isascii() or letter in _SIGNS:
        return 2 * (_is_foreign(before) and letter.isalpha())
    if not letter.isalpha():
        return 2
    odd = int(letter in _RARE) - (_script(letter) in ("HIRAGANA", "KATAKANA"))
    if before.isalpha() and (_is_foreign(before) or _is_foreign(letter)):
        return odd + 2 * (_script(before) != _script(letter))
    return odd + (before.isalpha() and not before.isascii() and letter != "ß")


def _is_foreign(letter: str) -> bool:
    return letter.isalpha() and letter not in _SIGNS and _script(letter) != "LATIN"


def _script(letter: str) -> str:
    """Return the script of a letter."""
    return unicodedata.name(letter, "").partition(" ")[0]
