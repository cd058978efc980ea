"""The byte format of journal records.

A journal may begin with a preamble of 28 bytes, which names the plan of its rows. A record is a
header of 60 bytes, little-endian, followed by label, score (or margin), confidence, learning curves
and optional arrays as the store holds them. The header has its own magic number and checksum, so
that a scan finds the next good record after a damaged one; the payload's checksum is that of the
row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.store.layout.arrays import COPY, DONE, NO_RECIPE
from manyseed.orchestrator.store.layout.schema import GroupSpec

_SEARCH_BYTES = 2**20
MAGIC = b"\x93mseed\x01\n"
_HEADER = struct.Struct("<8sBxHIQQIIfIII")  # without its checksum
_CRC = struct.Struct("<I")
HEADER_SIZE = _HEADER.size + _CRC.size
_PREAMBLE = struct.Struct("<8s16sI")
_PREAMBLE_MAGIC = b"\x93mseed\x02\n"
PREAMBLE_SIZE = _PREAMBLE.size
_FIELDS = np.dtype(
    [
        ("magic", "S8"),
        ("status", "u1"),
        ("zero", "u1"),
        ("recipe", "<u2"),
        ("group", "<u4"),
        ("row", "<u8"),
        ("source", "<u8"),
        ("crc", "<u4"),
        ("clipped", "<u4"),
        ("fit_seconds", "<f4"),
        ("label", "<u4"),
        ("score", "<u4"),
        ("confidence", "<u4"),
        ("checksum", "<u4"),
    ]
)
LENGTHS = ("label", "score", "confidence", "source")
"""Fields with the lengths of a payload's parts; ``source`` holds that of `optional`."""


@dataclass(frozen=True, slots=True)
class RowBytes:
    """A row as stored, little-endian, C order.

    Attributes
    ----------
    label, score, confidence : bytes
        `score` is the score or the margin; parts that the group does not keep are empty.
    clipped : int
        Number of scores beyond the range of float16.
    optional : bytes
        Learning curves, then the group's optional arrays.
    """

    label: bytes
    score: bytes = b""
    confidence: bytes = b""
    clipped: int = 0
    optional: bytes = b""

    def parts(self, spec: GroupSpec) -> dict[str, bytes]:
        """Return the bytes of each of the group's prediction arrays, in their order."""
        payload, parts = self.label + self.score + self.confidence + self.optional, {}
        start = 0
        for name, size in spec.array_bytes.items():
            parts[name] = payload[start : start + size]
            start += size
        return parts

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Bytes of label, score, confidence, and everything else."""
        return len(self.label), len(self.score), len(self.confidence), len(self.optional)

    @property
    def crc(self) -> int:
        """CRC-32C over label, score, confidence, curves, optional arrays."""
        crc = google_crc32c.value(self.label)
        crc = google_crc32c.extend(crc, self.score)
        crc = google_crc32c.extend(crc, self.confidence)
        return int(google_crc32c.extend(crc, self.optional))


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a record.

    Attributes
    ----------
    status : int
        `DONE`, or `COPY` of the row `source`.
    recipe : int
        Index into the sweep's recipes.
    group, row : int
        Place of the run in the store.
    source : int
        The row of the same group that a copy equals; 0 for other runs.
    crc : int
        CRC-32C of the payload.
    clipped : int
        Number of scores beyond the range of float16.
    fit_seconds : float
        Wall time of fitting.
    label, score, confidence, optional : int
        Lengths of the payload's parts.
    """

    status: int
    recipe: int
    group: int
    row: int
    source: int
    crc: int
    clipped: int
    fit_seconds: float
    label: int
    score: int
    confidence: int
    optional: int = 0

    @property
    def payload(self) -> int:
        """Length of the payload."""
        return self.label + self.score + self.confidence + self.optional


@dataclass(frozen=True, slots=True)
class Record:
    """A header with its payload."""

    header: Header
    values: RowBytes


def done(group: int, row: int, recipe: int, fit_seconds: float, values: RowBytes) -> bytes:
    """Encode a finished run; `recipe` is the number of its recipe."""
    fields = (DONE, recipe, group, row, 0, values.crc, values.clipped, fit_seconds)
    header = Header(*fields, *values.sizes)
    return _pack(header) + values.label + values.score + values.confidence + values.optional


def copy(group: int, row: int, source: int, recipe: int = NO_RECIPE) -> bytes:
    """Encode a copy of the row `source` of its group; `recipe` is its own, if it differs."""
    return _pack(Header(COPY, recipe, group, row, source, 0, 0, float("nan"), 0, 0, 0))


def preamble(plan: str) -> bytes:
    """Encode the preamble of a journal; `plan` is the plan's identity, 32 hexadecimal digits."""
    body = _PREAMBLE_MAGIC + bytes.fromhex(plan)
    return body + _CRC.pack(google_crc32c.value(body))


def parse_preamble(data: bytes) -> str | None:
    """Return the plan's identity from a journal's preamble; None for other bytes."""
    if len(data) < PREAMBLE_SIZE or not data.startswith(_PREAMBLE_MAGIC):
        return None
    _, plan, crc = _PREAMBLE.unpack_from(data)
    intact = crc == google_crc32c.value(data[: PREAMBLE_SIZE - _CRC.size])
    return bytes(plan).hex() if intact else None


def parse_header(data: bytes) -> Header | None:
    """Parse a header; return None for other bytes."""
    if len(data) < HEADER_SIZE or not data.startswith(MAGIC):
        return None
    if google_crc32c.value(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:
        return None
    header = Header(*_HEADER.unpack_from(data)[1:])
    if header.status == DONE and header.source:  # then the field holds the length of `optional`
        header = replace(header, source=0, optional=header.source)
    return header


def parse_headers(data: NDArray[np.uint8]) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Parse consecutive headers; return their fields, and which are valid.

    Parameters
    ----------
    data : uint8 array (n, HEADER_SIZE)
        Contiguous.

    Returns
    -------
    fields : structured array (n,)
        As in `Header`, but `source` is the length of `optional` unless the run is a copy.
    good : bool array (n,)
    """
    fields = data.view(_FIELDS)[:, 0]
    checksums = [google_crc32c.value(header[: _HEADER.size]) for header in data]
    good = (fields["magic"] == MAGIC) & (fields["checksum"] == checksums)
    return fields, good


def checksum(parts: Iterable[NDArray[Any]]) -> int:
    """Return the CRC-32C of a payload, given as consecutive contiguous arrays."""
    crc = 0
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    return crc


def cut(header: Header, payload: bytes) -> RowBytes:
    """Split a payload into its parts."""
    score = header.label + header.score
    confidence = score + header.confidence
    return RowBytes(
        payload[: header.label],
        payload[header.label : score],
        payload[score:confidence],
        header.clipped,
        payload[confidence:],
    )


def _pack(header: Header) -> bytes:
    body = _HEADER.pack(
        MAGIC,
        header.status,
        header.recipe,
        header.group,
        header.row,
        header.source if header.status == COPY else header.optional,
        header.crc,
        header.clipped,
        header.fit_seconds,
        header.label,
        header.score,
        header.confidence,
    )
    return body + _CRC.pack(google_crc32c.value(body))


def find_header(file: BinaryIO, start: int, size: int, besides: int) -> int | None:
    """Return the offset of the next good header from `start` on, except at `besides`, if any.

    `size` is the size of the file in bytes.
    """
    while start + HEADER_SIZE <= size:
        file.seek(start)
        block = file.read(min(_SEARCH_BYTES, size - start))
        position = block.find(MAGIC)
        while position >= 0:
            file.seek(start + position)
            good = parse_header(file.read(HEADER_SIZE)) is not None
            if good and start + position != besides:
                return start + position
            position = block.find(MAGIC, position + 1)
        start += max(1, len(block) - len(MAGIC) + 1)
    return None
