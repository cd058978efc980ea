"""CSV and TSV files, including those that spreadsheets write in many countries."""

from __future__ import annotations

import codecs
import io
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

MISSING = ("", "?", "NA", "NaN", "nan")
"""Cells that hold no value."""

_DECIMAL = r"^\s*[+-]?\d+(,\d+)?([eE][+-]?\d+)?\s*$"
_REMEDY = "save it as UTF-8, or convert it: iconv -f windows-1252 -t utf-8 FILE > NEW"


class Repeated(ValueError):
    """Several columns have one name.

    Attributes
    ----------
    what : str
        How many, and the name.
    columns : list of str
        How `read` names them: polars tells them apart by a suffix.
    """

    def __init__(self, name: str, columns: list[str]) -> None:
        self.columns = columns
        called = f"called {name!r}" if name else "without a name"
        self.what = f"has {len(columns)} columns {called}"
        super().__init__(f"{self.what}; rename them, or ignore them all")


def read(
    content: bytes,
    suffix: str = ".csv",
    labels: Collection[str] = (),
    n_rows: int | None = None,
    ignored: Collection[str] | None = None,
    missing: Sequence[str] = MISSING,
) -> pl.DataFrame:
    """Read a file's bytes: UTF-8, or UTF-16 that begins with its mark.

    Tabs separate a TSV. Commas separate a CSV, or, if its first line has none, semicolons or else
    tabs. Where commas do not separate, columns with a decimal comma throughout are numbers, too.

    Parameters
    ----------
    content : bytes
    suffix : {".csv", ".tsv"}
    labels : collection of str
        Columns of labels, which stay as they are written.
    n_rows : int, optional
        The number of rows to read; by default all.
    ignored : collection of str, optional
        Columns that may share their name; by default all.
    missing : sequence of str
        Cells that hold no value, besides empty ones.

    Raises
    ------
    Repeated
        Where columns that are not ignored share a name.
    polars.exceptions.PolarsError, UnicodeError
        Where the bytes are not such a file.
    """
    import polars as pl

    content = _as_utf8(content)
    first = content.partition(b"\n")[0]
    known = ",;\t" if suffix == ".csv" else "\t"
    separator = next((each for each in known if each.encode() in first), known[0])
    if ignored is not None:
        _require_different_names(content, separator, ignored)
    frame = pl.read_csv(
        io.BytesIO(content),
        separator=separator,
        null_values=[*missing],
        infer_schema_length=None,
        n_rows=n_rows,
    )
    if separator == ",":
        return frame
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    decimal = [
        name
        for name in texts
        if name not in labels and frame[name].str.contains(_DECIMAL).all() and frame[name].count()
    ]
    return frame.with_columns(
        pl.col(decimal).str.strip_chars().str.replace(",", ".", literal=True).cast(pl.Float64)
    )


def _as_utf8(content: bytes) -> bytes:
    """Return a file's bytes as UTF-8; polars would replace invalid bytes in column names."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        content = content.decode("utf-16").encode()
    try:
        content.decode()
        wrong = content.find(b"\0", 0, content.find(b"\n"))  # as UTF-16 without its mark has
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong < 0:
        return content
    line = content.count(b"\n", 0, wrong) + 1
    raise UnicodeError(
        f"line {line} holds the byte 0x{content[wrong]:02x}, so it is not UTF-8; {_REMEDY}"
    )


def _require_different_names(content: bytes, separator: str, ignored: Collection[str]) -> None:
    import polars as pl

    header = pl.read_csv(
        io.BytesIO(content.lstrip(b"\r\n")),
        separator=separator,
        has_header=False,
        n_rows=1,
        infer_schema=False,
        truncate_ragged_lines=True,
    )
    for name, count in Counter(each or "" for each in header.row(0)).items():
        columns = [name, *(f"{name}_duplicated_{number}" for number in range(count - 1))]
        if count > 1 and not {*columns} <= {*ignored}:
            raise Repeated(name, columns)
