"""Rows as text in several formats, for people, papers, spreadsheets and programs."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.analysis.axes import AXES, level_told
from manyseed.analysis.counts import EQUAL
from manyseed.orchestrator.cli.bold import SIDES, best_of
from manyseed.orchestrator.cli.columns import SPREADS, sides_named
from manyseed.orchestrator.cli.decimals import Limits, decimals, of_ends, with_places
from manyseed.orchestrator.cli.escaping import (
    Places,
    Rows,
    are_numbers,
    in_latex,
    latex,
    of_other_engines,
)
from manyseed.orchestrator.cli.output import SCHEMA, Decimals, Numeral, shown
from manyseed.orchestrator.cli.process import written
from manyseed.orchestrator.errors import UserError, nearest, require_one_of

if TYPE_CHECKING:
    import polars as pl

    from manyseed.analysis.questions.question import Answer, Reply

TABLE, CSV, JSON, MARKDOWN, LATEX, PARQUET = "table", "csv", "json", "markdown", "latex", "parquet"
FORMATS = (TABLE, CSV, JSON, MARKDOWN, LATEX, PARQUET)
BIBTEX = "bibtex"
_ENDINGS = {
    ".csv": CSV,
    ".json": JSON,
    ".md": MARKDOWN,
    ".tex": LATEX,
    ".parquet": PARQUET,
    ".txt": TABLE,
    ".bib": BIBTEX,
}
IN_WORDS = (MARKDOWN, LATEX)
"""Formats with words as heads, a caption, and bold values."""
LEAST = 0.0001  # what `shown` resolves
_LOW, _HIGH, _OVER, _BELOW_IT = "_ci_low", "_ci_high", "over", "_below"


def chosen(name: str | None, output: Path | None, more: Sequence[str] = ()) -> str:
    """Return the format given by its name, or else by the ending of the output's name.

    `more`: formats besides `FORMATS`.
    """
    known = (*FORMATS, *more)
    if name is not None:
        require_one_of(name, known, "unknown format", key="--format")
        _require_fitting(name, output)
        return name
    if output is None:
        return TABLE
    if is_pipe(output):
        return CSV
    endings = {ending: form for ending, form in _ENDINGS.items() if form in known}
    if output.suffix not in endings:
        near = nearest(output.suffix, endings)
        raise UserError(
            "unknown format", key="--out", value=str(output), remedy=f"{near}; or give --format"
        )
    return endings[output.suffix]


_OF_PROGRAMS = (".pdf", ".html", ".doc", ".docx", ".odt", ".xls", ".xlsx", ".ods", ".png", ".svg")
"""Endings of files that hold no format's text."""


def _require_fitting(form: str, output: Path | None) -> None:
    """Refuse the name of a file which says that it is of another format."""
    if output is None or output.suffix not in (*_OF_PROGRAMS, *_ENDINGS) or output.suffix == ".txt":
        return
    if _ENDINGS.get(output.suffix) != form:
        ending = next((one for one, its in _ENDINGS.items() if its == form), ".txt")
        remedy = f"{output.with_suffix(ending)}"
        raise UserError(f"no name of a {form} file", key="--out", value=str(output), remedy=remedy)


def asked(name: str | None, output: Path | None, *, as_json: bool, more: Sequence[str] = ()) -> str:
    """Return the format as `chosen`, given also whether JSON is asked for."""
    if as_json and name not in (None, JSON):
        remedy = "leave out one of them"
        raise UserError("contradicts --json", key="--format", value=name, remedy=remedy)
    return chosen(JSON if as_json else name, output, more)


def is_pipe(output: Path) -> bool:
    """Return whether an output stands for standard output."""
    return str(output) == "-"


@dataclass(frozen=True, slots=True)
class Paper:
    """What a table for a paper has beside its rows: its caption, label, and what is bold in it.

    `columns`: those that are shown, in this order, after those that name the rows; empty for all.
    `within`: columns in whose groups the best is bold; empty for data sets. `named`: whether heads
    are names that the user gave, so that they stay as they are. `alike`: of rows that are means, a
    key for each, equal for means over like cells; empty for other rows.
    """

    caption: str = ""
    label: str = ""
    bold: str = ""
    columns: Sequence[str] = ()
    within: Sequence[str] = ()
    named: bool = False
    alike: Sequence[Hashable] = ()


def for_paper(form: str, caption: str | None, label: str | None, bold: str | None) -> Paper:
    """Return what a table for a paper has, of options; refuse those that its format cannot hold."""
    for key, value in (("--caption", caption), ("--label", label), ("--bold", bold)):
        if value is not None and form not in IN_WORDS:
            remedy = "add --format latex, or markdown"
            raise UserError(
                f"the format {form} has no place for it", key=key, value=value, remedy=remedy
            )
    best, colon, within = (bold or "").partition(":")
    if bold is not None:
        require_one_of(best, ("best",), "unknown choice", key="--bold")
    if label is not None and not caption:
        raise UserError(
            "a label refers to a caption", key="--label", value=label, remedy="--caption"
        )
    if label is not None and not re.fullmatch(r"[\w:.+/-]+", label):
        remedy = "letters, digits and : . + / - _, such as tab:accuracy"
        raise UserError("not a label", key="--label", value=label, remedy=remedy)
    columns = tuple(one.strip() for one in within.split(",") if one.strip())
    if colon and not columns:
        remedy = "--bold best:dataset,train_fraction; or --bold best"
        raise UserError("names no columns", key="--bold", value=bold, remedy=remedy)
    return Paper(caption or "", label or "", best, within=columns)


def in_format(
    frame: pl.DataFrame,
    name: str,
    of: Mapping[str, Any],
    notes: Sequence[str],
    paper: Paper = Paper(),
) -> bytes:
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
    if name == TABLE:
        columns, rows, remarks = in_cells(frame)
        return _text(columns, rows, [*remarks, *notes]).encode()
    columns, rows, remarks = in_cells(ordered(frame, paper.columns), aligned=True)
    best, told = set[tuple[int, int]](), list[str]()
    if paper.bold:
        best, told = best_of(frame, columns, paper.within, paper.alike)
    if not paper.named:
        heads, rows = _in_words(columns, rows)
        columns, rows = sides_named(frame, columns, heads, rows)
    notes = [*remarks, *told, *notes]
    if name == MARKDOWN:
        return _markdown(columns, rows, notes, best, paper).encode()
    notes = [*filter(None, map(_without_advice, notes))]
    return in_latex(columns, rows, notes, best, (paper.caption, paper.label)).encode()


def _without_advice(note: str) -> str:
    """Return a note without what it tells the author to do, which is no part of a paper."""
    told = (re.sub(_ADVICE, "", one) for one in re.split(r"(?<=\.) (?=\S)", note))
    return " ".join(one for one in told if not _COMMAND.search(one))


_COMMAND = re.compile(r"`?manyseed [a-z]|^Do not |^Choose |(?<![-\w])--[a-z]")
_ADVICE = re.compile(
    r"; more (narrow|allow)[^.]*|: of [\d,]+, about [\d.e+-]+ are expected to miss"
    r"|: see compare|, as in answers and howmany|; --[a-z][^.;]*"
)


def ordered(frame: pl.DataFrame, asked: Sequence[str]) -> pl.DataFrame:
    """Return the columns asked for, in this order, with their intervals; first those of `--by`."""
    if not asked:
        return frame
    names = frame.columns
    by = names[: names.index("n")] if "n" in names and "n" not in asked else []
    kept = [name for name in by if name not in asked]
    for one in asked:
        # of a column that --agg asks for, one for each function
        of = [name for name in names if name == one] or [
            name
            for name in names
            if re.fullmatch(rf"{one}_(mean|sd|median|min|max|count|q\d+)", name)
        ]
        kept += [
            *of,
            *(f"{one}{end}" for end in (_LOW, _HIGH, _BELOW_IT) if f"{one}{end}" in names),
        ]
    over = [_OVER] if _OVER in names else []
    return frame.select(list(dict.fromkeys([*kept, *over])))


def _in_words(columns: Sequence[str], rows: Rows) -> tuple[list[str], list[list[object]]]:
    """Return heads in words, and so the names of metrics, axes and data in cells."""
    from manyseed.analysis.figures.labels import labelled

    named = [name in ("metric", "axis") for name in columns]
    short = [_without_sources([row[at] for row in rows]) for at in range(len(columns))]
    return [name.upper() if name in SIDES else labelled(name) for name in columns], [
        [
            labelled(cell) if is_name and isinstance(cell, str) else of.get(cell, cell)
            for cell, is_name, of in zip(row, named, short, strict=True)
        ]
        for row in rows
    ]


_SOURCE = re.compile(r"(sklearn|torchvision|openml|synthetic|hf):(?=\w)")


def _without_sources(cells: Sequence[object]) -> dict[object, object]:
    """Return names without the source before them (sklearn:wine), where they stay apart."""
    texts = {cell for cell in cells if isinstance(cell, str)}
    short: dict[object, object] = {
        text: _SOURCE.sub("", text) for text in texts if _SOURCE.match(text)
    }
    return short if len({short.get(text, text) for text in texts}) == len(texts) else {}


def of_table(found: Reply) -> pl.DataFrame:
    """Return the table that a question prints, in which datasets head its rows."""
    import polars as pl

    names = iter(("dataset", "verdict"))
    columns, table, _ = found.paper if found.paper[0] else (found.columns, found.table, ())
    heads = [head or next(names) for head in columns]
    cells = [["" if cell is None else shown(cell) for cell in row] for row in table]
    frame = pl.DataFrame(cells, schema=dict.fromkeys(heads, pl.String), orient="row")
    return frame.select(name for name in heads if name == "verdict" or (frame[name] != "").any())


def in_json(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object, with the schema first, as a file's content."""
    value = {"schema": SCHEMA, **value}
    return (json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n").encode()


def of_text(found: Reply, form: str) -> bytes:
    """Return sections of a text in Markdown or LaTeX, or what they cite in BibTeX."""
    from manyseed.analysis.report.wording import NOTE

    if form == BIBTEX:
        return "\n".join(one.bibtex(key) for key, one in found.sources.items()).encode()
    parts = [(str(row["section"]), str(row["text"])) for one in found.answers for row in one.rows]
    if form == LATEX:
        told = [
            f"\\paragraph{{{latex(name)}.}} {re.sub(_CITED, _cite, latex(text))}"
            if name != NOTE
            else f"% {text}"
            for name, text in parts
        ]
        return "\n\n".join([*of_other_engines("".join(told)), *told, ""]).encode()
    listed = [f"- @{key}: {one.text}" for key, one in found.sources.items()]
    told = [f"**{name}.** {text}" if name != NOTE else f"<!-- {text} -->" for name, text in parts]
    return "\n\n".join([*told, "\n".join(listed), ""]).encode()


_CITED = re.compile(r"\{\[\}@(\w+)\]")  # as `latex` writes [@key]


def _cite(match: re.Match[str]) -> str:
    return rf"\cite{{{match[1]}}}"


def of_answers(found: Reply, *, in_words: bool = False) -> pl.DataFrame:
    """Return the numbers of answers in rows; those about cells begin with their names.

    `in_words`: rows for readers, in which sentences name no cells.
    """
    import polars as pl

    def is_name(one: Answer) -> bool:
        return "\n" not in one.headline and not (in_words and one.headline.endswith("."))

    rows = [
        ({"cells": one.headline} if one.details and is_name(one) else {}) | flat(row)
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


def in_cells(
    frame: pl.DataFrame, *, aligned: bool = False
) -> tuple[list[str], list[list[object]], list[str]]:
    """Return column heads and rows for readers, and remarks on them.

    A mean and its interval become one cell, ``0.93 ± 0.01``, or ``0.93 (0.61 to 0.99)`` in a
    column of shares of which an interval would leave 0 to 1; a remark says what all intervals are
    over. An α̂ that `bounded` leaves out is written as its bound, a spread of none as 0, and one
    that would be 0.0000 as below what is printed. `aligned`: all numbers of a column have as many
    decimals.
    """
    over: list[str] = []
    if _OVER in frame.columns and any(name.endswith(_HIGH) for name in frame.columns):
        over = frame[_OVER].drop_nulls().unique().to_list()
        frame = frame if len(over) > 1 else frame.drop(_OVER)
    limits = {}
    for name in frame.columns:
        # a mean that --agg asks for has the interval of its column
        ends = name if f"{name}{_HIGH}" in frame.columns else name.removesuffix("_mean")
        if f"{ends}{_HIGH}" in frame.columns:
            limits[name] = list(zip(frame[f"{ends}{_LOW}"], frame[f"{ends}{_HIGH}"], strict=True))
    bounds = {f"{name}{_BELOW_IT}" for name in LEVELS}
    columns = [
        name for name in frame.columns if not name.endswith((_LOW, _HIGH)) and name not in bounds
    ]
    cells: list[list[object]] = []
    kinds, is_still = set[bool](), False
    for name in columns:
        values: list[object] = frame[name].to_list()
        if name in _PLACES and frame[name].dtype.is_integer():
            values = [value if value is None else Numeral(str(value)) for value in values]
        told: list[str | Numeral] = [""] * len(values)
        if f"{name}{_BELOW_IT}" in frame.columns:
            from manyseed.analysis.counts import below

            told = [below(0, bound) for bound in frame[f"{name}{_BELOW_IT}"]]
        elif name.endswith(SPREADS) and frame[name].dtype.is_float():
            told = [_seen(one) for one in frame[name]]
            is_still |= _NONE in told
        own = limits.get(name, [(None, None)] * len(values))
        if name in AXES:
            values = [level_told(name, one) if isinstance(one, float) else one for one in values]
        elif aligned:
            beside = of_ends(frame, name)
            places = decimals(*(beside or (values, own)), of_ends=beside is not None)
            values = with_places(values, places)
        if name in limits:
            both = list(zip(values, limits[name], strict=True))
            around = all(_is_around(*one) for one, text in zip(both, told, strict=True) if not text)
            values = [_with_limits(*one, around=around) for one in both]
            kinds |= {around} if any(isinstance(value, str) for value in values) else set()
        cells.append(
            [value if text == "" else text for text, value in zip(told, values, strict=True)]
        )
    remarks = []
    if kinds and len(over) == 1:
        meant = ["± is half of", "± is half of, and (… to …) is,", "(… to …) is"]
        form = meant[1 if len(kinds) == 2 else 0 if True in kinds else 2]
        remarks.append(f"{form} the 95 % interval over {over[0]}.")
    if is_still:
        remarks.append("A standard deviation of 0: no spread was seen; further runs may differ.")
    if {"n", "coverage"} <= {*frame.columns}:
        remarks.append("n: cells of the group, or rows of another table.")
    return columns, [list(row) for row in zip(*cells, strict=True)], remarks


_NUMBERED = "index row cell cell_a cell_b repeat_index run_index run_i run_j"
_PLACES = _NUMBERED.split()
"""Columns of numbers that count nothing, and so have no commas."""
LEVELS = ("alpha_hat", "alpha_hat_mean")
"""Columns of α̂ that say nothing below their resolution δ."""
LARGEST = ("alpha_hat_max", "largest")
"""The largest α̂ of those that a mean is over: in a table, and of a group of its rows."""


def bounded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows without each α̂, and its interval, that is below δ; where there is a column δ.

    The column NAME_below then has δ. What is below it cannot be told: it is no number. A mean of
    which one value is above δ, in a column `LARGEST`, is shown.
    """
    import polars as pl

    if "delta" not in frame.columns:
        return frame
    for name in [one for one in LEVELS if one in frame.columns]:
        is_below = (pl.col(name) < pl.col("delta")).fill_null(value=False)
        for largest in [one for one in LARGEST if one in frame.columns]:
            is_below &= (pl.col(largest) < pl.col("delta")).fill_null(value=True)
        of = [name, *(one for end in (_LOW, _HIGH) if (one := f"{name}{end}") in frame.columns)]
        bound = pl.when(is_below).then("delta").alias(f"{name}{_BELOW_IT}")
        frame = frame.with_columns(bound, pl.when(~is_below).then(pl.col(of)))
        names = [one for one in frame.columns if one != bound.meta.output_name()]
        names.insert(names.index(of[-1]) + 1, bound.meta.output_name())
        frame = frame.select(names)
    return frame


_NONE = Numeral("0")


def _seen(spread: float | None) -> str | Numeral:
    """Return 0 for no spread, below what one is that would be printed as 0.0000, or ""."""
    if spread is None or not abs(spread) < LEAST / 2:
        return ""
    return _NONE if abs(spread) < EQUAL else f"< {shown(LEAST)}"


def _is_around(mean: Any, limits: Limits) -> bool:
    """Return whether a mean is in the middle of its interval, if it has one."""
    low, high = limits
    if mean is None or low is None or high is None:
        return True
    half = (high - low) / 2
    return bool(abs(low + half - mean) <= 1e-6 * half)


def _with_limits(mean: Any, limits: Limits, *, around: bool) -> object:
    low, high = limits
    if mean is None or low is None or high is None:
        return mean
    half, places = (high - low) / 2, getattr(mean, "places", None)
    if places is not None:  # as the mean has
        low, high, half = (Decimals(one, places) for one in (low, high, half))
    if around:
        return f"{shown(mean)} ± {shown(half)}"
    return f"{shown(mean)} ({shown(low)} to {shown(high)})"


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
            return
        with written(1):
            binary.write(content)
            binary.flush()
        return
    if not output.absolute().parent.is_dir():
        raise UserError("its folder is not there", key="--out", value=str(output))
    from manyseed.orchestrator.disk.placing import place

    place(output, content)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(columns: Sequence[str], rows: Rows, notes: Sequence[str]) -> str:
    cells = [list(columns), *([shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [are_numbers(rows, number) for number in range(len(columns))]
    lines = [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([*lines, *notes]) + "\n"


def _markdown(
    columns: Sequence[str], rows: Rows, notes: Sequence[str], best: Places, paper: Paper
) -> str:
    def cell(value: object) -> str:
        text = re.sub(r"\s+", " ", shown(value))
        return re.sub(r"([\\`*\[\]<>|]|(?<!\w)_|_(?!\w))", r"\\\1", text)

    rules = ["---:" if are_numbers(rows, number) else "---" for number in range(len(columns))]
    body = [
        [f"**{cell(v)}**" if (y, x) in best else cell(v) for x, v in enumerate(row)]
        for y, row in enumerate(rows)
    ]
    lines = [[cell(name) for name in columns], rules, *body]
    anchor = f" {{#{paper.label}}}" if paper.label else ""
    above = [f"\nTable: {cell(paper.caption)}{anchor}"] if paper.caption else []
    remarks = [*above, *(f"\n{cell(note)}" for note in notes)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), *remarks]) + "\n"
