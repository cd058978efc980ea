"""Rows as text in several formats, for people, papers, spreadsheets and programs."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.cli.output import SCHEMA, shown
from manyseed.orchestrator.errors import UserError, nearest, require_one_of

if TYPE_CHECKING:
    import polars as pl

    from manyseed.analysis.questions.question import Reply

TABLE, CSV, JSON, MARKDOWN, LATEX, PARQUET = "table", "csv", "json", "markdown", "latex", "parquet"
FORMATS = (TABLE, CSV, JSON, MARKDOWN, LATEX, PARQUET)
_ENDINGS = {
    ".csv": CSV,
    ".json": JSON,
    ".md": MARKDOWN,
    ".tex": LATEX,
    ".parquet": PARQUET,
    ".txt": TABLE,
}
_LOW, _HIGH, _OVER = "_ci_low", "_ci_high", "over"
_IN_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{letter: "\\" + letter for letter in "&%$#_{}"},
    "[": "{[}",  # or it would be the argument of a preceding line break
    "*": "{*}",
    "–": "--",
    "—": "---",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "δ": r"$\delta$",
    "α̂": r"$\hat{\alpha}$",
    "α": r"$\alpha$",
}
_LATEX = re.compile("|".join(map(re.escape, sorted(_IN_LATEX, key=len, reverse=True))))


def chosen(name: str | None, output: Path | None) -> str:
    """Return the format given by its name, or else by the ending of the output's name."""
    if name is not None:
        require_one_of(name, FORMATS, "unknown format", key="--format")
        return name
    if output is None:
        return TABLE
    if is_pipe(output):
        return CSV
    if output.suffix not in _ENDINGS:
        near = nearest(output.suffix, _ENDINGS)
        raise UserError(
            "unknown format", key="--output", value=str(output), remedy=f"{near}; or give --format"
        )
    return _ENDINGS[output.suffix]


def asked(name: str | None, output: Path | None, *, as_json: bool) -> str:
    """Return the format as `chosen`, given also whether JSON is asked for."""
    if as_json and name not in (None, JSON):
        remedy = "leave out one of them"
        raise UserError("contradicts --json", key="--format", value=name, remedy=remedy)
    return chosen(JSON if as_json else name, output)


def is_pipe(output: Path) -> bool:
    """Return whether an output stands for standard output."""
    return str(output) == "-"


def in_format(frame: pl.DataFrame, name: str, of: Mapping[str, Any], notes: Sequence[str]) -> bytes:
    """Return rows as a file's content, with notes in formats that have a place for them.

    `name` is one of `FORMATS`; `of` is what the JSON object says about the question.
    """
    if name == PARQUET:
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        return buffer.getvalue()
    if name == CSV:
        return frame.write_csv().encode()
    if name == JSON:
        return in_json(as_json(frame, of, notes))
    columns, rows, remarks = in_cells(frame)
    write = {MARKDOWN: _markdown, LATEX: _latex, TABLE: _text}[name]
    return write(columns, rows, [*remarks, *notes]).encode()


def in_json(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object, with the schema first, as a file's content."""
    value = {"schema": SCHEMA, **value}
    return (json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n").encode()


def of_answers(found: Reply) -> pl.DataFrame:
    """Return the numbers of answers in rows; those about cells begin with their names."""
    import polars as pl

    rows = [
        ({"cells": one.headline} if one.details and "\n" not in one.headline else {}) | flat(row)
        for one in found.answers
        for row in one.rows
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None, strict=False)
    return frame.select(
        name for name in frame.columns if any(value not in (None, "") for value in frame[name])
    )


def flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return a row with a column for each number: NAME_low and NAME_high of an interval."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{name}_")
        elif isinstance(value, tuple | list) and len(value) == 2:
            found |= {f"{before}{name}_low": value[0], f"{before}{name}_high": value[1]}
        elif value is None or isinstance(value, str | int | float | bool):
            found[f"{before}{name}"] = value
    return found


def as_json(frame: pl.DataFrame, of: Mapping[str, Any], notes: Sequence[str]) -> dict[str, object]:
    """Return rows as a JSON object: schema, the question, rows and notes; null for NaN and ±inf."""
    rows = [{key: _plain(value) for key, value in row.items()} for row in frame.to_dicts()]
    return {"schema": SCHEMA, **of, "rows": rows, "notes": list(notes)}


def in_cells(frame: pl.DataFrame) -> tuple[list[str], list[list[object]], list[str]]:
    """Return column heads and rows for readers, and remarks on them.

    A mean and its interval become one cell, ``0.93 ± 0.01``, or ``0.93 (0.61 to 0.99)`` if the
    interval of a share would leave 0 to 1; a remark says what all intervals are over.
    """
    remarks = []
    if _OVER in frame.columns and any(name.endswith(_HIGH) for name in frame.columns):
        over = frame[_OVER].drop_nulls().unique().to_list()
        if len(over) == 1:
            remarks = [f"± is half of the 95 % interval over {over[0]}."]
        frame = frame if len(over) > 1 else frame.drop(_OVER)
    limits = {}
    for name in frame.columns:
        # a mean that --agg asks for has the interval of its column
        ends = name if f"{name}{_HIGH}" in frame.columns else name.removesuffix("_mean")
        if f"{ends}{_HIGH}" in frame.columns:
            limits[name] = list(zip(frame[f"{ends}{_LOW}"], frame[f"{ends}{_HIGH}"], strict=True))
    columns = [name for name in frame.columns if not name.endswith((_LOW, _HIGH))]
    cells: list[list[object]] = []
    for name in columns:
        values: list[object] = frame[name].to_list()
        if name in limits:
            values = [_with_limits(*both) for both in zip(values, limits[name], strict=True)]
        cells.append(values)
    return columns, [list(row) for row in zip(*cells, strict=True)], remarks


def _with_limits(mean: Any, limits: tuple[float | None, float | None]) -> object:
    low, high = limits
    if mean is None or low is None or high is None:
        return mean
    half = (high - low) / 2
    if abs(low + half - mean) > 1e-6 * half:
        return f"{shown(mean)} ({shown(low)} to {shown(high)})"
    return f"{shown(mean)} ± {shown(half)}"


def write_out(content: bytes, output: Path | None, name: str) -> None:
    """Write content to a file, atomically, or to standard output, but no Parquet to a terminal."""
    if output is None or is_pipe(output):
        if name == PARQUET and sys.stdout.isatty():
            remedy = "write to a file: -o rows.parquet; or to a pipe"
            raise UserError("is not text", key="--format", value=name, remedy=remedy)
        sys.stdout.flush()
        binary = getattr(sys.stdout, "buffer", None)
        if binary is None:
            sys.stdout.write(content.decode())
        else:
            binary.write(content)
            binary.flush()
        return
    if not output.absolute().parent.is_dir():
        raise UserError("its folder is not there", key="--output", value=str(output))
    from manyseed.orchestrator.disk.placing import place

    place(output, content)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str]) -> str:
    cells = [list(columns), *([shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [_are_numbers(rows, number) for number in range(len(columns))]
    lines = [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([*lines, *notes]) + "\n"


def _markdown(
    columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str]
) -> str:
    def cell(value: object) -> str:
        text = re.sub(r"\s+", " ", shown(value))
        return re.sub(r"([\\`*\[\]<>|]|(?<!\w)_|_(?!\w))", r"\\\1", text)

    rules = ["---:" if _are_numbers(rows, number) else "---" for number in range(len(columns))]
    lines = [[cell(name) for name in columns], rules, *([cell(v) for v in row] for row in rows)]
    remarks = [f"\n{cell(note)}" for note in notes]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), *remarks]) + "\n"


def _latex(columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str]) -> str:
    kinds = "".join("r" if _are_numbers(rows, number) else "l" for number in range(len(columns)))
    lines = [
        "% needs \\usepackage{booktabs}",
        *(f"% {' '.join(note.split())}" for note in notes),
        f"\\begin{{tabular}}{{{kinds}}}",
        "\\toprule",
        f"{' & '.join(map(latex, columns))} \\\\",
        "\\midrule",
        *(f"{' & '.join(_cell(value) for value in row)} \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def latex(text: str) -> str:
    """Escape a text for LaTeX."""
    plain = re.sub(r"[\s\x00-\x1f\x7f]+", " ", text)
    return _LATEX.sub(lambda match: _IN_LATEX[match[0]], plain)


def _cell(value: object) -> str:
    """Return a cell of a LaTeX table, with signed numbers in math mode."""
    text = shown(value)
    number = re.fullmatch(r"(-?[\d.,]+)(?:e([+-]\d+))?(?: ± ([\d.,]+))?", text)
    if number is None or (isinstance(value, str) and "±" not in text):
        return latex(text)
    mantissa, exponent, half = number.groups()
    parts = mantissa.replace(",", "{,}")
    parts += rf" \times 10^{{{int(exponent)}}}" if exponent else ""
    parts += rf" \pm {half.replace(',', '{,}')}" if half else ""
    return f"${parts}$" if exponent or half or "-" in mantissa else text


def _are_numbers(rows: Sequence[Sequence[object]], number: int) -> bool:
    known = [row[number] for row in rows if row[number] is not None]
    return bool(known) and all(
        (isinstance(value, int | float) and not isinstance(value, bool))
        or (isinstance(value, str) and " ± " in value)
        for value in known
    )
