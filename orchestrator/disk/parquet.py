"""Parquet files of a sweep directory: written whole with a checksum, read at one door.

The checksum stands in the file's own footer, where other readers pass over it: the key ``manyseed``
has the value ``crc32c=`` and the CRC-32C, in hexadecimal digits, of the whole file with zeros in
their place. Files of earlier versions have none.
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
from manyseed.orchestrator.errors import DamagedFile, StoreUnavailable, first_line

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
"""After the footer: its length, 4 bytes little-endian, and the magic."""
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
    """Write a table whole; a lazy one is written as it is computed.

    Parameters
    ----------
    path : Path
    frame : polars.DataFrame or polars.LazyFrame
    metadata : mapping, optional
        Of the file, beside its checksum.
    compression_level : int, optional
        Zstandard's; by default polars' own.
    is_new : bool
        Whether it must be a new file; not looked at for a lazy table.
    before_rename : callable, optional
        Called when the file is complete; what it raises abandons it.

    Raises
    ------
    FileExistsError
        Where `is_new` is asked for and the file exists.
    orchestrator.errors.StoreUnavailable
        Where the file system refuses.
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
        try:
            frame.sink_parquet(
                partial, compression="zstd", compression_level=compression_level, metadata=metadata
            )
        except pl.exceptions.PolarsError as error:  # of a full disk, too, polars says no more
            raise StoreUnavailable(
                f"cannot write {path}: {error}; make room or give permission, then do it again"
            ) from error
        with partial.open("r+b") as file:
            _write_checksum(file)


def read_parquet(
    path: Path,
    schema: Mapping[str, pl.DataType] | None = None,
    columns: Sequence[str] | None = None,
    remedy: str | None = None,
) -> pl.DataFrame:
    """Read a table that `write_parquet`, or an earlier version, wrote.

    Parameters
    ----------
    path : Path
        Its name is taken as it is, whatever characters are in it.
    schema : mapping, optional
        Columns that it must have, and their types; it may have others.
    columns : sequence of str, optional
        What to read; by default all.
    remedy : str, optional
        What to do where the file is damaged, if not to restore it.

    Raises
    ------
    FileNotFoundError
    DamagedFile
        For a special file, another format, a changed file, or another schema.
    """
    frame = scan_parquet(path, schema, remedy)
    with damage_named(path, remedy):
        return (frame if columns is None else frame.select(columns)).collect()


def scan_parquet(
    path: Path, schema: Mapping[str, pl.DataType] | None = None, remedy: str | None = None
) -> pl.LazyFrame:
    """Check a table as `read_parquet` does, and return it lazily; collect it in `damage_named`.

    Only the columns and rows that are needed are decoded.
    """
    try:
        require_intact(path)
    except DamagedFile as error:
        raise DamagedFile(path, error.reason, remedy) from None
    with damage_named(path, remedy):
        frame = pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)
        found = frame.collect_schema()
    for name, dtype in (schema or {}).items():
        if name not in found:
            raise DamagedFile(path, f"has no column {name}", remedy)
        if found[name] != dtype:
            raise DamagedFile(path, f"column {name} is {found[name]}, not {dtype}", remedy)
    return frame


def read_metadata(path: Path, remedy: str | None = None) -> dict[str, str]:
    """Return what a table's file says of it; its checksum is not compared.

    Raises
    ------
    FileNotFoundError
    DamagedFile
        For anything but a Parquet file.
    """
    try:
        with open_plain(path) as file, damage_named(path, remedy):
            return pl.read_parquet_metadata(file)
    except DamagedFile as error:
        raise DamagedFile(path, error.reason, remedy) from None


@contextmanager
def damage_named(path: Path, remedy: str | None = None) -> Iterator[None]:
    """Turn what polars says of a file that it cannot decode into `DamagedFile`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DamagedFile(path, f"cannot be read: {first_line(error)}", remedy) from None


def require_intact(path: Path) -> None:
    """Refuse special files, other formats, and files that differ from their own checksum.

    Raises
    ------
    FileNotFoundError
    DamagedFile
    """
    try:
        with open_plain(path) as file:
            at, digits = _find_checksum(file)
            if digits and digits != _checksum(file, at):
                raise DamagedFile(path, "is not as it was written: its checksum differs")
    except ValueError as error:
        raise DamagedFile(path, str(error)) from None


def checksum(path: Path) -> str:
    """Return the checksum that a table carries; empty where an earlier version wrote it.

    Raises
    ------
    FileNotFoundError
    DamagedFile
        For anything but a Parquet file; its checksum is not compared.
    """
    try:
        with open_plain(path) as file:
            return _find_checksum(file)[1].decode(errors="replace")
    except ValueError as error:
        raise DamagedFile(path, str(error)) from None


def _write_checksum(file: _File) -> None:
    """Write a file's checksum over the zeros in its place."""
    at, _ = _find_checksum(file)
    digits = _checksum(file, at)
    file.seek(at)
    file.write(digits)


def _find_checksum(file: _File) -> tuple[int, bytes]:
    """Return where the digits of a file's checksum are, and them; none in earlier versions' files.

    Raises
    ------
    ValueError
        For anything but a Parquet file.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read()
    footer = int.from_bytes(tail[:-4], "little") + _TAIL_BYTES
    if tail[4:] != _MAGIC or footer > size:
        raise ValueError("is no Parquet file")
    file.seek(size - footer)
    found = file.read().rfind(_MARK)
    if found < 0:
        return 0, b""
    at = size - footer + found + len(_MARK)
    file.seek(at)
    return at, file.read(len(_ZEROS))


def _checksum(file: _File, at: int) -> bytes:
    """Return the digits of a file's checksum, given where they stand, or will."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    crc = google_crc32c.extend(_extended(0, file, at), _ZEROS)
    file.seek(at + len(_ZEROS))
    return f"{_extended(crc, file, size - file.tell()):08x}".encode()


def _extended(crc: int, file: _File, n_bytes: int) -> int:
    """Return a checksum over what it was over, and the next bytes of a file."""
    while n_bytes and (block := file.read(min(n_bytes, _BLOCK_BYTES))):
        crc = google_crc32c.extend(crc, block)
        n_bytes -= len(block)
    return crc
