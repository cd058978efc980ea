"""Parquet files of a sweep directory: written whole with a checksum, which is verified on reading.

The checksum is in the file's footer, where other readers ignore it. The value of the key
``manyseed`` is ``crc32c=`` followed by the CRC-32C, in hexadecimal digits, of the whole file with
these digits set to zero. Files of earlier versions have none.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import google_crc32c
import polars as pl

from manyseed.orchestrator.disk.placing import open_plain, place, place_new, placing
from manyseed.orchestrator.errors import DamagedFile, StoreUnavailable

_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # after the footer: its length, 4 bytes little-endian, and the magic
_MARK = b"crc32c="
_ZEROS = b"00000000"
_CHECKSUM = {"manyseed": (_MARK + _ZEROS).decode()}
_BLOCK_BYTES = 2**22

_File = io.FileIO | io.BufferedRandom | io.BytesIO


def write_parquet(
    path: Path,
    frame: pl.DataFrame | pl.LazyFrame,
    metadata: Mapping[str, str] | None = None,
    compression_level: int | None = None,
    *,
    is_new: bool = False,
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Write a table atomically; a lazy one is written as it is computed.

    `metadata`: file metadata besides the checksum. `compression_level`: zstandard level. Default:
    polars' own. `is_new`: refuse to replace a file; ignored for a lazy table. `before_rename`:
    called when the file is complete; an exception from it abandons the file. Ignored for a lazy
    table.
    """
    metadata = {**(metadata or {}), **_CHECKSUM}
    if isinstance(frame, pl.DataFrame):
        buffer = io.BytesIO()
        frame.write_parquet(
            buffer, compression="zstd", compression_level=compression_level, metadata=metadata
        )
        _write_checksum(buffer)
        (place_new if is_new else place)(path, buffer.getvalue(), before_rename)
        return
    with placing(path) as partial:
        partial.touch(exist_ok=False)  # polars does not tell a read-only folder from a full disk
        try:
            frame.sink_parquet(
                partial, compression="zstd", compression_level=compression_level, metadata=metadata
            )
        except pl.exceptions.PolarsError as error:  # polars raises the same for a full disk
            raise StoreUnavailable(
                f"cannot write {path}; make room or give permission, then do it again"
            ) from error
        with partial.open("r+b") as file:
            _write_checksum(file)


def read_parquet(
    path: Path,
    schema: Mapping[str, pl.DataType] | None = None,
    columns: Sequence[str] | None = None,
    remedy: str | None = None,
) -> pl.DataFrame:
    """Read a table written by `write_parquet` or by an earlier version.

    `path`: taken literally, never as a glob pattern. `schema`: required columns and their types;
    the table may have others. `columns`: columns to read. Default: all. `remedy`: what to do about
    a damaged file, other than restore it.
    """
    frame = scan_parquet(path, schema, remedy)
    with damage_named(path, remedy):
        return (frame if columns is None else frame.select(columns)).collect()


def scan_parquet(
    path: Path, schema: Mapping[str, pl.DataType] | None = None, remedy: str | None = None
) -> pl.LazyFrame:
    """Check a table like `read_parquet`, and return it lazily; collect it within `damage_named`."""
    try:
        require_intact(path)
    except DamagedFile as error:
        raise DamagedFile(path, error.reason, remedy) from None
    with damage_named(path, remedy):
        frame = pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)
        actual = frame.collect_schema()
    for name, dtype in (schema or {}).items():
        if name not in actual:
            raise DamagedFile(path, f"has no column {name}", remedy)
        if actual[name] != dtype:
            raise DamagedFile(path, f"column {name} is {actual[name]}, not {dtype}", remedy)
    return frame


def read_metadata(path: Path, remedy: str | None = None) -> dict[str, str]:
    """Return a table's file metadata, without verifying the checksum."""
    try:
        with open_plain(path) as file, damage_named(path, remedy):
            return pl.read_parquet_metadata(file)
    except DamagedFile as error:
        raise DamagedFile(path, error.reason, remedy) from None


@contextmanager
def damage_named(path: Path, remedy: str | None = None) -> Iterator[None]:
    """Turn the error of polars for a file that it cannot decode into `DamagedFile`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        if "<class 'KeyboardInterrupt'>" in str(error):  # Ctrl-C while polars called Python
            raise KeyboardInterrupt from error
        reason = "cannot be read: it is damaged, or is not a Parquet file"
        if isinstance(error, OSError) and error.strerror:
            reason = f"cannot be read: {error.strerror}"
        raise DamagedFile(path, reason, remedy) from None


def require_intact(path: Path) -> None:
    """Refuse special files, other formats, and files that do not match their checksum."""
    try:
        with open_plain(path) as file:
            at, digits = _find_checksum(file)
            if digits and digits != _checksum(file, at):
                raise DamagedFile(path, "is not as it was written: its checksum differs")
    except ValueError as error:
        raise DamagedFile(path, str(error)) from None


def checksum(path: Path) -> str:
    """Return a table's stored checksum, unverified; empty if an earlier version wrote it."""
    try:
        with open_plain(path) as file:
            return _find_checksum(file)[1].decode(errors="replace")
    except ValueError as error:
        raise DamagedFile(path, str(error)) from None


def _write_checksum(file: _File) -> None:
    """Overwrite the zeros in a file's footer with its checksum."""
    at, _ = _find_checksum(file)
    digits = _checksum(file, at)
    file.seek(at)
    file.write(digits)


def _find_checksum(file: _File) -> tuple[int, bytes]:
    """Return the offset and digits of a checksum; no digits if of an earlier version."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read()
    footer = int.from_bytes(tail[:-4], "little") + _TAIL_BYTES
    if tail[4:] != _MAGIC or footer > size:
        raise ValueError("is not a Parquet file")
    file.seek(size - footer)
    mark = file.read().rfind(_MARK)
    if mark < 0:
        return 0, b""
    at = size - footer + mark + len(_MARK)
    file.seek(at)
    return at, file.read(len(_ZEROS))


def _checksum(file: _File, at: int) -> bytes:
    """Compute the digits of a file's checksum, given their offset in the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    crc = google_crc32c.extend(_extended(0, file, at), _ZEROS)
    file.seek(at + len(_ZEROS))
    return f"{_extended(crc, file, size - file.tell()):08x}".encode()


def _extended(crc: int, file: _File, n_bytes: int) -> int:
    """Extend a checksum by the next bytes of a file."""
    while n_bytes and (block := file.read(min(n_bytes, _BLOCK_BYTES))):
        crc = google_crc32c.extend(crc, block)
        n_bytes -= len(block)
    return crc
