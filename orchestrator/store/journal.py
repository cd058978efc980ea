"""Journals: the byte format of their records, encoded from predictions, and their writer.

A journal may begin with a preamble of 28 bytes, which names the plan of its rows. A record is a
header of 60 bytes, little-endian, followed by label, score (or margin), confidence, learning curves
and optional arrays as the store holds them. The header has its own magic number and checksum, so
that a scan finds the next good record after a damaged one; the payload's checksum is that of the
row.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.metrics.formulas import true_margin
from manyseed.jobs import whole
from manyseed.orchestrator.disk.placing import make_below, unavailable
from manyseed.orchestrator.errors import LeaseLost
from manyseed.orchestrator.paths import JOURNAL
from manyseed.orchestrator.store.arrays import COPY, CURVES, DONE, NO_RECIPE
from manyseed.orchestrator.store.coordinates import DECLARED, PARAMETERS
from manyseed.orchestrator.store.schema import GroupSpec

if TYPE_CHECKING:
    from manyseed.jobs.run import Prediction


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
    """A row as stored, little-endian, C order."""

    label: bytes
    score: bytes = b""
    confidence: bytes = b""
    """`score` is the score or the margin; parts that the group does not keep are empty."""
    clipped: int = 0  # number of scores beyond the range of float16
    optional: bytes = b""  # learning curves, then the group's optional arrays

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
    """The header of a record."""

    status: int  # `DONE`, or `COPY` of the row `source`
    recipe: int  # index into the sweep's recipes
    group: int
    row: int  # place of the run in the store
    source: int  # the row of the same group that a copy equals; 0 for other runs
    crc: int  # CRC-32C of the payload
    clipped: int  # number of scores beyond the range of float16
    fit_seconds: float  # wall time of fitting
    label: int
    score: int
    confidence: int
    optional: int = 0  # lengths of the payload's parts

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

    `data`, uint8 array (n, HEADER_SIZE): contiguous. Returns `fields`, structured array (n,): as in
    `Header`, but `source` is the length of `optional` unless the run is a copy. `good`, bool array
    (n,).
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


def encode_row(
    spec: GroupSpec, prediction: Prediction, y_true: NDArray[np.integer[Any]]
) -> RowBytes:
    """Reduce a prediction to the arrays that its group keeps.

    `y_true`, integer array (sample,): true classes of the run's test set; only used for the
    true-class margin.
    """
    grid = (len(spec.epochs), spec.samples)
    classes = () if spec.n_classes == 2 else (spec.n_classes,)
    if prediction.label.shape != grid or prediction.scores.shape != (*grid, *classes):
        raise ValueError(
            f"{spec.path} holds labels {grid} and scores {(*grid, *classes)}, got "
            f"{prediction.label.shape} and {prediction.scores.shape}"
        )
    if int(prediction.label.max()) >= spec.n_classes:
        raise ValueError(f"label {prediction.label.max()} of {spec.n_classes} classes")
    label = _bytes(prediction.label, spec.array("label").dtype)
    optional = (_curves(spec, prediction) if spec.curves else b"") + _optional(spec, prediction)
    if spec.scores == "none":
        return RowBytes(label, optional=optional)
    if spec.scores == "all":
        scores = _all_scores(prediction.scores, spec)
    else:
        scores = prediction.scores if classes == () else true_margin(prediction.scores, y_true)
    values, clipped = _rounded(scores, spec.dtype)
    confidence = b""
    if spec.has_confidence:
        if prediction.confidence.shape != grid:
            raise ValueError(f"confidence has shape {prediction.confidence.shape}, not {grid}")
        confidence = _bytes(prediction.confidence, spec.dtype)
    return RowBytes(label, _bytes(values, spec.dtype), confidence, clipped, optional)


def _all_scores(scores: NDArray[np.float32], spec: GroupSpec) -> NDArray[np.float32]:
    if spec.n_classes == 2:
        return np.stack([-scores / 2, scores / 2], axis=-1)
    if spec.dtype == "float16" and spec.probability == "softmax":
        # an offset common to all classes costs digits, but does not change the softmax
        centred: NDArray[np.float32] = scores - scores.mean(axis=-1, keepdims=True)
        return centred
    return scores


def _curves(spec: GroupSpec, prediction: Prediction) -> bytes:
    absent = np.full(spec.epochs[-1], np.nan, dtype=np.float32)
    curves = [(prediction.curves or {}).get(name, absent) for name in CURVES]
    if any(curve.shape != absent.shape for curve in curves):
        shapes = ", ".join(str(curve.shape) for curve in curves)
        raise ValueError(f"{spec.path} holds curves of {len(absent)} epochs, got {shapes}")
    return _bytes(np.stack(curves), "float32")


def _optional(spec: GroupSpec, prediction: Prediction) -> bytes:
    measured, encoded = prediction.measured or {}, []
    for array in spec.optional:
        values = measured.get(array.name)
        if values is None and array.name == PARAMETERS.name and spec.parameters_where:
            values = np.empty(0)  # the run's model is not kept
        if DECLARED[array.name].pads and values is not None and values.ndim == 1:
            n_absent = max(0, array.shape[0] - len(values))
            values = np.pad(values, (0, n_absent), constant_values=np.nan)
        if values is None or values.shape != array.shape:
            got = "nothing" if values is None else f"{values.shape}"
            raise ValueError(f"{spec.path} holds {array.name} {array.shape}, got {got}")
        encoded.append(_bytes(values, array.dtype))
    return b"".join(encoded)


def _rounded(values: NDArray[np.float32], dtype: str) -> tuple[NDArray[np.float32], int]:
    if dtype == "float32":
        return values, 0
    largest = float(np.finfo(np.float16).max)
    return np.clip(values, -largest, largest), int(np.count_nonzero(np.abs(values) > largest))


def _bytes(values: NDArray[Any], dtype: str) -> bytes:
    return np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()


SYNC_SECONDS = 30.0


class JournalWriter:
    """Appends records to a new file.

    `path`: a name never used before, with the suffix ``.journal``: names order records and
    distinguish attempts. `plan`: identity of the plan that numbers the rows; empty if unknown.
    """

    def __init__(self, path: Path, plan: str = "") -> None:
        if path.suffix != JOURNAL:
            raise ValueError(f"the name of a journal must end in {JOURNAL}, got {path.name!r}")
        self.path = path
        self._preamble = preamble(plan) if plan else b""
        self._end = 0
        self._synced = 0
        self._last_sync = time.monotonic()
        with unavailable("create", path):
            make_below(path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file: int | None = os.open(path, flags, 0o666)
            whole.sync(path.parent)

    def append(
        self, group: int, row: int, values: RowBytes, *, recipe: int, fit_seconds: float
    ) -> None:
        """Append the run of a group's row; it counts as finished once synced."""
        self._write(done(group, row, recipe, fit_seconds, values))

    def append_copy(self, group: int, row: int, source: int) -> None:
        """Append a run that is a copy of the row `source` of its group, including the recipe."""
        self._write(copy(group, row, source))

    def _write(self, data: bytes) -> None:
        if not self._end:
            data = self._preamble + data
        file, view, end = self._open_file(), memoryview(data), self._end
        with unavailable("append to", self.path):
            try:
                while view:
                    written = os.pwrite(file, view, end)
                    view, end = view[written:], end + written
            except BaseException:
                # what cannot be truncated now is overwritten by the next record
                with contextlib.suppress(OSError):
                    os.ftruncate(file, self._end)
                raise
        self._end = end

    @property
    def unsynced(self) -> int:
        """Number of bytes that a power cut would lose."""
        return self._end - self._synced

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._last_sync = time.monotonic()
        if self.unsynced:
            with unavailable("sync", self.path):
                os.fsync(self._open_file())
                if os.fstat(self._open_file()).st_nlink == 0:
                    raise LeaseLost(f"{self.path} was removed: this process was taken for dead")
            self._synced = self._end

    def sync_if_due(self, every: float = SYNC_SECONDS) -> bool:
        """Sync if the last sync was at least `every` seconds ago; return whether it was."""
        if time.monotonic() - self._last_sync < every:
            return False
        self.sync()
        return True

    def close(self) -> None:
        """Sync and close."""
        if self._file is not None:
            try:
                self.sync()
            finally:
                os.close(self._file)
                self._file = None

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_file(self) -> int:
        if self._file is None:
            raise ValueError(f"{self.path} is closed")
        return self._file
