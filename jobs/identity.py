"""Identities: 128 bits of SHA-256 over a canonical JSON text.

Frozen: changing any rule here changes the identities of every existing sweep.
``docs/identity.md`` explains how to recompute them without this package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

IDENTITY_VERSION = 1

T = TypeVar("T")

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def canonical_json(value: Json) -> bytes:
    """Encode as JSON with sorted keys, no spaces, UTF-8 and shortest round-trip floats.

    Raises
    ------
    ValueError
        For NaN and infinities, which have no canonical form.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def identity(value: Mapping[str, Json]) -> str:
    """Return the identity of a canonical description as 32 hexadecimal digits.

    The description carries its own version under ``v``.
    """
    if value.get("v") != IDENTITY_VERSION:
        raise ValueError(f"a description needs v = {IDENTITY_VERSION}, got {value.get('v')!r}")
    return text_identity(canonical_json(value))


def text_identity(text: bytes) -> str:
    """Return the identity of a description that is already canonical JSON."""
    return hashlib.sha256(text).digest()[:16].hex()


def canonical_pieces(fields: Mapping[str, T], optional: Collection[str] = ()) -> list[str | T]:
    """Return the pieces that, joined, are a canonical JSON object: its punctuation and `fields`.

    Given each field's canonical JSON, as texts or as columns of texts, joining is cheaper than
    encoding every object. Fields in `optional` come from `optional_piece`; none may sort last.
    """
    names = sorted(fields)
    pieces: list[str | T] = ["{"]
    for key in names:
        if key in optional:
            pieces.append(fields[key])
        else:
            pieces += [f'"{key}":', fields[key], "}" if key == names[-1] else ","]
    return pieces


def optional_piece(key: str, value: Json) -> str:
    """Return the piece for a field that a description omits while it is ``none``: then ``""``."""
    return "" if value == "none" else f'"{key}":{canonical_json(value).decode()},'
