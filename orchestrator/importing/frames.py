"""Tables as others write them: CSV, Parquet and JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import polars.selectors as cs

from manyseed.jobs.datasets import csvfile
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.predictions import unheard, unreadable

LABELS = ("prediction", "truth", "correct")  # columns whose text is kept as it is written
MAX_ROWS = 200_000_000


TABLES = (".csv", ".parquet", ".jsonl", ".ndjson")
"""Suffixes of tables: of JSON, those of an object in each line."""


def read_by(path: Path) -> str:
    """Return how polars reads a table, for a remedy."""
    return f"pl.read_{'ndjson' if path.suffix in _JSON else path.suffix[1:]}({str(path)!r})"


_JSON = TABLES[2:]
_MOST_LISTED = 4096  # values in a list


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with lists of equally many numbers as columns ``logits.0``, ``logits.1``.

    An object of numbers by class becomes columns, too: ``probs.cat``, ``probs.dog``.
    """
    for name, dtype in frame.schema.items():
        if isinstance(dtype, pl.Struct):
            frame = _with_fields(frame, name, dtype)
            continue
        if isinstance(dtype, pl.Array) and len(dtype.shape) == 1:
            frame = frame.with_columns(frame[name].arr.to_list())
        values = frame[name]
        if not isinstance(values.dtype, pl.List) or not values.dtype.inner.is_numeric():
            continue
        lengths = values.list.len().unique()
        if values.has_nulls() or len(lengths) != 1 or not 1 < lengths[0] <= _MOST_LISTED:
            continue
        new = [values.list.get(n).alias(f"{name}.{n}") for n in range(lengths[0])]
        if not {*frame.columns} & {one.name for one in new}:
            frame = pl.DataFrame(
                [
                    column
                    for own in frame.iter_columns()
                    for column in (new if own.name == name else [own])
                ]
            )
    return frame


def _with_fields(frame: pl.DataFrame, name: str, dtype: pl.Struct) -> pl.DataFrame:
    """Return a table with the fields of a column as columns, if all are numbers."""
    new = {f"{name}.{of.name}": of.name for of in dtype.fields}
    are_numbers = all(pl.Series(dtype=of.dtype).dtype.is_numeric() for of in dtype.fields)
    if not are_numbers or len(new) < 2 or {*frame.columns} & {*new}:
        return frame
    at = frame.columns.index(name)
    fields = [frame[name].struct.field(of).alias(own) for own, of in new.items()]
    columns = frame.get_columns()
    return pl.DataFrame([*columns[:at], *fields, *columns[at + 1 :]])


def read_frame(path: Path, labels: Sequence[str] = LABELS) -> pl.DataFrame:
    """Read an entire table of predictions or of runs' attributes.

    `labels` are the columns whose text is kept as it is written.
    """
    if path.suffix != ".csv":
        with reading(path):
            texts = cs.by_dtype(pl.Categorical, pl.Enum, pl.Binary)
            is_json = path.suffix in _JSON
            read = (
                pl.scan_ndjson(path.read_bytes(), infer_schema_length=None)
                if is_json
                else scan(path)
            )
            return _flat(collected(path, read).with_columns(texts.cast(pl.String)))
    with reading(path):
        content = path.read_bytes()
        try:
            frame = csvfile.read(content, labels=labels, ignored=(), missing=())
            without = {"": "index"} if "index" not in frame.columns else {}  # as pandas writes it
            return frame.rename(without, strict=False)
        except csvfile.Repeated as error:
            is_data = csvfile.data_as_header(content, path.suffix) is not None
            remedy = (
                "put a line with the names of columns above its first" if is_data else "rename them"
            )
            raise UserError(error.what, file=path, remedy=remedy) from None
        except csvfile.Unreadable as error:
            raise UserError(f"cannot be read: {error}", file=path) from None


def scan(path: Path) -> pl.LazyFrame:
    """Open a Parquet file; it is named where it cannot be read."""
    with reading(path):
        return pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)


def collected(path: Path, frame: pl.LazyFrame) -> pl.DataFrame:
    """Read all rows, unless there are too many: even a tiny file may claim any number of rows."""
    with reading(path):
        rows = frame.select(pl.len()).collect().item()
        if rows > MAX_ROWS:
            raise UserError(f"has {rows:,} rows, more than {MAX_ROWS:,}", file=path)
        return frame.collect()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn polars' errors in an unreadable file into a user error."""
    try:
        with unheard():
            yield
    except (
        *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
        *(OSError, UnicodeError),
    ) as error:
        if type(error) is UnicodeError:  # of csvfile, which says what is wrong
            raise UserError(f"cannot be read: {csvfile.said(error, path)}", file=path) from None
        what = {".parquet": "a Parquet file", ".csv": "a CSV"}.get(path.suffix, "JSON Lines")
        raise unreadable(path, what, error) from error
