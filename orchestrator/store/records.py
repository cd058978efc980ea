"""One record of a journal, as bytes.

A header of 60 bytes, little-endian, then label, score (or margin), confidence and learning curves
as they are stored. The header has a magic number and a checksum of its own, so that a scan finds
the next good record after a damaged one; the payload's checksum is the row's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import google_crc32c

from orchestrator.store.arrays import COPY, DONE, NO_RECIPE
from orchestrator.store.rows import RowBytes

MAGIC = b"\x93mseed\x01\n"
_HEADER = struct.Struct("<8sBxHIQQIIfIII")  # checksum apart
_CRC = struct.Struct("<I")
HEADER_SIZE = _HEADER.size + _CRC.size


@dataclass(frozen=True, slots=True)
class Header:
    """What a record says before its payload.

    Attributes
    ----------
    status : int
        `DONE`, or `COPY` with the row it equals in `source`.
    recipe : int
        Index into the sweep's recipes.
    group, row : int
        Which run.
    source : int
        Row of the same group that a copy equals.
    crc : int
        CRC-32C of the payload.
    clipped : int
        Scores beyond the range of float16.
    fit_seconds : float
        Wall time of fitting.
    label, score, confidence, curves : int
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
    curves: int = 0

    @property
    def payload(self) -> int:
        """Length of the payload."""
        return self.label + self.score + self.confidence + self.curves


@dataclass(frozen=True, slots=True)
class Record:
    """A header with its payload."""

    header: Header
    values: RowBytes


def done(group: int, row: int, recipe: int, fit_seconds: float, values: RowBytes) -> bytes:
    """Encode a finished run."""
    header = Header(
        DONE,
        recipe,
        group,
        row,
        0,
        values.crc,
        values.clipped,
        fit_seconds,
        len(values.label),
        len(values.score),
        len(values.confidence),
        len(values.curves),
    )
    return _pack(header) + values.label + values.score + values.confidence + values.curves


def copy(group: int, row: int, source: int, recipe: int = NO_RECIPE) -> bytes:
    """Encode a run that equals another one of its group."""
    return _pack(Header(COPY, recipe, group, row, source, 0, 0, float("nan"), 0, 0, 0))


def parse_header(data: bytes) -> Header | None:
    """Read a header; None where these bytes are none."""
    if len(data) < HEADER_SIZE or not data.startswith(MAGIC):
        return None
    if google_crc32c.value(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:
        return None
    header = Header(*_HEADER.unpack_from(data)[1:])
    if header.status == DONE and header.source:  # the field's other meaning
        header = replace(header, source=0, curves=header.source)
    return header


def parse_payload(header: Header, data: bytes) -> RowBytes | None:
    """Cut a payload into its parts; None where it is short or its checksum does not fit."""
    if len(data) != header.payload:
        return None
    scores = header.label + header.score
    curves = scores + header.confidence
    values = RowBytes(
        data[: header.label],
        data[header.label : scores],
        data[scores:curves],
        header.clipped,
        data[curves:],
    )
    return values if values.crc == header.crc else None


def _pack(header: Header) -> bytes:
    body = _HEADER.pack(
        MAGIC,
        header.status,
        header.recipe,
        header.group,
        header.row,
        header.source if header.status == COPY else header.curves,
        header.crc,
        header.clipped,
        header.fit_seconds,
        header.label,
        header.score,
        header.confidence,
    )
    return body + _CRC.pack(google_crc32c.value(body))
