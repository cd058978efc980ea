"""CSV and TSV files, including those that spreadsheets write in many countries."""

from __future__ import annotations

import codecs
import csv
import io
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyseed.jobs.checks import Option, Refused, quoted
from manyseed.jobs.datasets import titles
from manyseed.jobs.datasets.columns import LEAVE_EMPTY, Doubt, is_mark, is_number, same_numbers
from manyseed.jobs.datasets.encodings import fitting

if TYPE_CHECKING:
    import polars as pl

MARKS = "missing"
OPTION = Option("What else marks missing values in a CSV.", list, called="a list of texts")
"""Of what marks missing values in a CSV, besides `MISSING`."""
MISSING = ("", "?", "NA", "NaN", "nan")  # cells that hold no value

_DECIMAL = r"^\s*[+-]?[0-9]+(,[0-9]+)?([eE][+-]?[0-9]+)?\s*$"
_OTHER_DIGITS = r"[\p{Nd}--[0-9]]"  # polars infers whole numbers, and then cannot read them
_SEP_LINE = re.compile(rb'"?sep=([^\r\n"])"?[ \t]*\r?\n', re.IGNORECASE)
_QUOTED = re.compile(rb'(?:^|(?<=[,;\t]))"(?:[^"]++|"")*+"(?=[,;\t\r\n]|$)')
_BLANK_LINE = re.compile(rb"\n *\r?\n")
_BLANK_LINES = re.compile(rb'("(?:[^"]++|"")*+")|\n(?: *\r?\n)+')
_BEFORE_NUMBER = np.frombuffer(b',;\t\n" +', dtype=np.uint8)
_BLOCK = 2**24  # bytes
_ZEROS = r"^[+-]?0[0-9]+$"
_THOUSANDS = {
    ",": r"^[+-]?[0-9]{1,3}(,[0-9]{3})*$",
    ".": r"^[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})*$",
}
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_HEAD = 2**22  # bytes that hold the names of columns
_LONGEST = 80
_SHOWN = 6  # names in a message
_SEEN = 1000  # rows that are compared with the first line
_COMMAND = re.compile(r"FILE(.*) > NEW-(\w+)")  # whose files `said` names


def marks(suffix: str, given: Mapping[str, Any]) -> list[str]:
    """Return what else marks missing values, sorted; `given`: keys of a dataset's table."""
    found: list[object] = OPTION.check(MARKS, given.get(MARKS, []))
    if found and suffix not in (".csv", ".tsv"):
        reason = "is for .csv and .tsv; in this file, leave missing values out"
        raise Refused(MARKS, found, reason, needs={MARKS: None})
    if wrong := [mark for mark in found if not isinstance(mark, str) or not mark]:
        raise Refused(MARKS, wrong[0], allowed='texts as they are written, such as "-999"')
    return sorted({*map(str, found)})


class Unreadable(ValueError):
    """The bytes are not a table."""


def no_spreadsheet(path: Path) -> str:
    """Return why a spreadsheet is refused, and what makes a CSV of it."""
    file, new = quoted(str(path)), quoted(str(path.with_suffix(".csv")))
    line = shlex.quote(f"import polars; polars.read_excel({file}).write_csv({new})")
    reason = "is a spreadsheet; save it as CSV in the program that made it"
    if path.suffix.lower() == ".numbers":
        return reason
    return f"{reason}, or, with pip install fastexcel: python -c {line}"


def said(error: Exception, path: Path) -> str:
    """Return what was said of the bytes of a file, with commands that name it."""

    def with_files(found: re.Match[str]) -> str:
        new = path.with_name(f"{path.stem}-{found[2]}{path.suffix}")
        return f"{shlex.quote(str(path))}{found[1]} > {shlex.quote(str(new))}"

    return _COMMAND.sub(with_files, str(error))


class Repeated(ValueError):
    """Several columns have one name.

    `what`: how many, and the name. `columns`: how `read` names them: polars tells them apart by a
    suffix.
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
    named: Collection[str] = (),
    written: Collection[str] = (),
) -> pl.DataFrame:
    """Read a file's bytes: UTF-8, or UTF-16 that begins with its mark.

    Tabs separate a TSV. A CSV's separator is that in a first line such as ``sep=;``; else a comma,
    or, if the names have none outside quotes, a semicolon or else a tab. Where commas do not
    separate, columns with a decimal comma throughout are numbers, too. Blank lines are no rows.

    `labels`: columns of labels, whose text is kept where numbers would not tell it apart. `n_rows`:
    the number of rows to read; by default all. `ignored`: columns that may share their name; by
    default all. `missing`: cells that hold no value, besides empty ones. `named`: further columns
    whose text is kept so, as of groups. `written`: columns that are kept as they are written.
    """
    try:
        frame = _read(content, suffix, labels, n_rows, ignored, missing, named, written)
    except (Unreadable, Repeated):
        _require_no_title(content, suffix)
        raise
    _require_no_title(content, suffix, frame.width)
    return frame


def _read(
    content: bytes,
    suffix: str,
    labels: Collection[str],
    n_rows: int | None,
    ignored: Collection[str] | None,
    missing: Sequence[str],
    named: Collection[str],
    written: Collection[str],
) -> pl.DataFrame:
    import polars as pl

    content, separator = _prepared(content, suffix)
    if ignored is not None:
        _require_different_names(content, separator, ignored)
    frame = _parsed(content, separator, missing, n_rows=n_rows)
    frame = _with_texts(frame, content, separator, missing, {*labels, *named}, n_rows)
    if numbers := [one for one in written if one in frame and frame[one].dtype != pl.String]:
        options = {"columns": numbers, "infer_schema": False, "n_rows": n_rows}
        frame = frame.with_columns(_parsed(content, separator, missing, **options))
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


def _parsed(
    content: bytes, separator: str, missing: Sequence[str] = MISSING, **options: Any
) -> pl.DataFrame:
    """Read a table with polars, and say in our words what is wrong with it."""
    import polars as pl

    try:
        return pl.read_csv(
            io.BytesIO(content),
            separator=separator,
            null_values=[*missing],
            **({"infer_schema_length": None} | options),
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        if not content.isascii() and not {"infer_schema", "schema_overrides"} & {*options}:
            texts = _parsed(content, separator, missing, infer_schema=False, **options)
            names = [one.name for one in texts if one.str.contains(_OTHER_DIGITS).any()]
            options["schema_overrides"] = dict.fromkeys(names, pl.String)
            return _parsed(content, separator, missing, **options)
        raise Unreadable(_what_is_wrong(content, separator)) from error


def _with_texts(
    frame: pl.DataFrame,
    content: bytes,
    separator: str,
    missing: Sequence[str],
    labels: Collection[str],
    n_rows: int | None,
) -> pl.DataFrame:
    """Return the table with the text of labels of which some are one as numbers: 01 and 1.

    1, 1.0 and 1.00 stay one label.
    """
    import polars as pl

    numeric = [name for name in labels if name in frame.columns and frame[name].dtype.is_numeric()]
    # whole numbers are one only where there are leading zeros
    if all(frame[name].dtype.is_integer() for name in numeric) and not (
        numeric and _has_leading_zeros(content)
    ):
        return frame
    texts = _parsed(content, separator, missing, columns=numeric, infer_schema=False, n_rows=n_rows)
    for name in numeric:
        written = texts[name].str.strip_chars().str.replace(r"^\+", "")
        written = written.str.replace(r"(\.[0-9]*?)0+$", "$1").str.replace(r"\.$", "")
        if written.n_unique() > frame[name].n_unique():
            frame = frame.with_columns(texts[name].str.strip_chars().cast(pl.String).alias(name))
    return frame


def _what_is_wrong(content: bytes, separator: str) -> str:
    """Return what keeps a table from being read: the first row that does not fit its names."""
    if not content.strip():
        return "it is empty"
    rows = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator)
    try:
        names = next(rows, [])
        for row in rows:
            if len(row) > len(names):
                first = content.partition(b"\n")[0].decode().strip()[:_LONGEST]
                return (
                    f"line {rows.line_num} has {len(row):,} fields, but the first line, {first!r}, "
                    f"names {len(names):,} columns; the first line must name each column"
                )
    except csv.Error:
        pass
    return "its rows cannot be told apart; are its quotation marks in pairs?"


def doubtful(
    content: bytes,
    suffix: str,
    frame: pl.DataFrame,
    missing: Sequence[str] = MISSING,
    labels: Collection[str] = (),
) -> dict[str, Doubt]:
    """Return columns of numbers that may mean something else: what they look like, and values.

    Of numbers with leading zeros, as codes have; with commas or points that may separate thousands;
    and with more digits than a float64 has, which are all different. Of `labels`, also of numbers
    that are written in several ways.

    `content`, `suffix` and `missing`: as of `read`. `frame`: what `read` returned.
    """
    content, separator = _prepared(content, suffix)
    has_zeros = _has_leading_zeros(content)
    names = [
        series.name
        for series in frame
        if (series.dtype.is_integer() and has_zeros)
        or (
            series.dtype.is_float()
            and (
                series.name in labels
                or _is_huge(series)
                or (separator != "," and _in_thousands(series))
            )
        )
    ]
    found: dict[str, Doubt] = {}
    if not names:
        return found
    for series in _parsed(content, separator, missing, columns=names, infer_schema=False):
        texts = series.drop_nulls().str.strip_chars()
        same = same_numbers(texts.unique().to_list()) if series.name in labels else ()
        if same:
            found[series.name] = "merged", same[0]
        elif (zeros := texts.filter(texts.str.contains(_ZEROS))).len():
            found[series.name] = "zeros", (str(zeros[0]),)
        elif separator != "," and (long := _with_thousands(texts)):
            found[series.name] = "thousands", (long,)
        elif _is_huge(frame[series.name]) and texts.n_unique() == series.len():
            found[series.name] = "id", ()
    return found


def _has_leading_zeros(content: bytes) -> bool:
    """Return whether a number may begin with 0 and a digit; faster than a regular expression."""
    codes = np.frombuffer(content, dtype=np.uint8)
    for start in range(0, len(codes), _BLOCK):
        block = codes[start : start + _BLOCK + 2]
        is_zero = (block[1:-1] == ord("0")) & (block[2:] - ord("0") < 10)
        if np.isin(block[:-2][is_zero], _BEFORE_NUMBER).any():
            return True
    return False


def _is_huge(series: pl.Series) -> bool:
    largest = series.abs().max()
    return isinstance(largest, int | float) and largest >= 2.0**63


def _in_thousands(series: pl.Series) -> bool:
    """Return whether all numbers have at most three decimals, and one has some."""
    thousandths = series.drop_nulls() * 1000
    is_whole = (thousandths - thousandths.round()).abs() < 1e-6 * thousandths.abs().clip(1)
    return bool(is_whole.all()) and bool((series.drop_nulls() % 1 != 0).any())


def _with_thousands(texts: pl.Series) -> str | None:
    """Return a number that may have separators of thousands, if all numbers allow for them."""
    for mark, pattern in _THOUSANDS.items():
        if texts.str.contains(pattern).all():
            marked = texts.filter(texts.str.contains(mark, literal=True))
            if marked.len():
                return str(marked[0])
    return None


def without_thousands(texts: pl.Series) -> pl.Series | None:
    """Return numbers with separators of thousands, or a decimal comma, as Python writes them.

    None unless all are written in one way, and one shows which: ``1.014,25`` or ``1,014.25``.
    """
    for thousands, decimal in ((".", ","), (",", ".")):
        whole = rf"([0-9]+|[0-9]{{1,3}}(\{thousands}[0-9]{{3}})+)"
        pattern = rf"^[+-]?{whole}(\{decimal}[0-9]+)?$"
        shows = rf"\{thousands}[0-9]{{3}}\{decimal}|\{decimal}([0-9]{{1,2}}|[0-9]{{4,}})$"
        if texts.str.contains(pattern).all() and texts.str.contains(shows).any():
            plain = texts.str.replace_all(thousands, "", literal=True)
            return plain.str.replace(decimal, ".", literal=True)
    return None


def numbers(series: pl.Series) -> pl.Series:
    """Convert a column that is declared continuous to numbers."""
    import polars as pl

    texts = series.str.strip_chars() if series.dtype == pl.String else series
    numbers = texts.cast(pl.Float64, strict=False)
    if (wrong := series.filter(numbers.is_null() & series.is_not_null())).len():
        if series.dtype == pl.String and (plain := without_thousands(texts)) is not None:
            return plain.cast(pl.Float64)
        reason = f"holds {str(wrong[0])!r}, which is not a number"
        if is_mark(str(wrong[0])):
            reason += f"; {LEAVE_EMPTY}"
        raise Refused("continuous", series.name, reason)
    return numbers


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
        content, separator = _prepared(content, suffix)
        lines = pl.read_csv(
            io.BytesIO(content),
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


def _prepared(content: bytes, suffix: str) -> tuple[bytes, str]:
    """Return a table as UTF-8, without what is neither names nor rows, and its separator."""
    content = _as_utf8(content).removeprefix(codecs.BOM_UTF8).removesuffix(b"\x1a")
    if b"\n" not in content:  # as old Macs end lines
        content = content.replace(b"\r", b"\n")
    said = _SEP_LINE.match(content)
    content = content[said.end() if said else 0 :].lstrip(b"\r\n")
    head = content[: content.find(b"\n") + 1 or len(content)]
    if b'"' in head:
        head = _QUOTED.sub(b"", content[:_HEAD]).partition(b"\n")[0]
    known = ",;\t" if suffix == ".csv" else "\t"
    separator = next((each for each in known if each.encode() in head), known[0])
    if said:
        separator = said[1].decode()
    # in a single column, a blank line is a missing value
    if separator.encode() in head and _BLANK_LINE.search(content):
        content = _BLANK_LINES.sub(lambda found: found[1] or b"\n", content)
    return content, separator


def separator(content: bytes, suffix: str) -> str:
    """Return what separates the columns of a table, as `read` takes it."""
    return _prepared(content, suffix)[1]


def _as_utf8(content: bytes) -> bytes:
    """Return a file's bytes as UTF-8; polars would replace invalid bytes in column names."""
    if content.startswith(_WIDE):
        try:
            content = content.decode("utf-16").encode()
        except UnicodeDecodeError as error:
            raise UnicodeError("it begins as UTF-16, but is cut off or damaged") from error
    try:
        content.decode()
        wrong = content.find(b"\0", 0, content.find(b"\n"))  # as UTF-16 without its mark has
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong < 0:
        return content
    line, start = content.count(b"\n", 0, wrong) + 1, content.rfind(b"\n", 0, wrong) + 1
    encoding, word = fitting(content[start:]) if content[wrong] else ("utf-16le", "")
    reads = f"; as {encoding} it reads {quoted(word)}" if word else ""
    raise UnicodeError(
        f"line {line} holds the byte 0x{content[wrong]:02x}, so it is not UTF-8{reads}; save it as "
        f"UTF-8, or convert it: iconv -f {encoding} -t utf-8 FILE > NEW-utf8"
    )


def _require_no_title(content: bytes, suffix: str, n_columns: int = 0) -> None:
    """Refuse a table with lines above the names of its columns, if it has more than were read."""
    is_wide = content.startswith(_WIDE)
    text = content[:_HEAD].decode("utf-16" if is_wide else "utf-8-sig", "ignore")
    found = titles.above_names(text, ",;\t" if suffix == ".csv" else "\t")
    if found is None or found[2] <= n_columns or "\n" not in text:
        return
    reason, line, _ = found
    tail = (
        f"iconv -f utf-16 -t utf-8 FILE | tail -n +{line}" if is_wide else f"tail -n +{line} FILE"
    )
    raise Unreadable(f"{reason}; without it: {tail} > NEW-rows")


def _require_different_names(content: bytes, separator: str, ignored: Collection[str]) -> None:
    header = _parsed(
        content,
        separator,
        missing=(),
        has_header=False,
        n_rows=1,
        infer_schema=False,
        truncate_ragged_lines=True,
    )
    names = Counter(each or "" for each in header.row(0))
    for name, count in names.items():
        columns = [name, *(f"{name}_duplicated_{number}" for number in range(count - 1))]
        if count > 1 and (not {*columns} <= {*ignored} or {*columns[1:]} & {*names}):
            raise Repeated(name, columns)
