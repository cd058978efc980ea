"""CSV and TSV files, including those that spreadsheets write in many countries."""

from __future__ import annotations

import codecs
import io
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from manyseed.jobs.datasets.columns import is_number

if TYPE_CHECKING:
    import polars as pl

MISSING = ("", "?", "NA", "NaN", "nan")
"""Cells that hold no value."""

_DECIMAL = r"^\s*[+-]?\d+(,\d+)?([eE][+-]?\d+)?\s*$"
_SHOWN = 6  # names in a message
_SEEN = 1000  # rows that are compared with the first line
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
    separator = _separator(content, suffix)
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


def data_as_header(content: bytes, suffix: str) -> str | None:
    """Return a file's first line if it is data rather than names of columns.

    It is data if every name looks like its column's values: a number above numbers, or a label that
    the column has among others; at least two must. Empty names, and names of columns whose values
    do not repeat, say nothing. Whole numbers in equal steps are names, as pandas numbers columns.
    None stands for any other file, also for one that cannot be read.
    """
    import polars as pl

    if suffix not in (".csv", ".tsv"):
        return None
    try:
        content = _as_utf8(content)
        separator = _separator(content, suffix)
        lines = pl.read_csv(
            io.BytesIO(content.lstrip(b"\r\n")),
            separator=separator,
            has_header=False,
            n_rows=_SEEN + 1,
            infer_schema=False,
            null_values=[*MISSING],
            truncate_ragged_lines=True,
        )
    except (pl.exceptions.PolarsError, UnicodeError):
        return None
    names = [name for name in lines.row(0) if name is not None] if lines.height > 1 else []
    numbers = [float(name) for name in names if is_number(name) and "," not in name]
    steps = {after - before for before, after in pairwise(numbers)}
    is_range = len(steps) == 1 and min(steps) > 0 and all(map(float.is_integer, numbers))
    if is_range or numbers == [0]:
        return None
    n_alike = 0
    for column in lines:
        is_value = _is_value(*column.to_list())
        if is_value is False:
            return None
        n_alike += is_value is True
    if n_alike < 2:
        return None
    return separator.join([*names[:_SHOWN], *("…" for _ in names[_SHOWN : _SHOWN + 1])])


def _is_value(name: str | None, *values: str | None) -> bool | None:
    """Return whether a name is like a column's values; None if that cannot be told."""
    known = [value for value in values if value is not None]
    if name is None or not known:
        return None
    if is_number(name):
        return 2 * sum(map(is_number, known)) > len(known)
    different = {*known}
    if len(different) == 1 or (len(different) == len(known) and not any(map(is_number, known))):
        return None
    return name in different


def _separator(content: bytes, suffix: str) -> str:
    first = content.partition(b"\n")[0]
    known = ",;\t" if suffix == ".csv" else "\t"
    return next((each for each in known if each.encode() in first), known[0])


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
