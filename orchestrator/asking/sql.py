"""SQL over the result tables: one statement that reads them and nothing else, run by polars.

polars has functions that read files. So only `FUNCTIONS` may be called, and texts are recognised
here exactly as its parser recognises them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from manyseed.analysis.tables.schema import table_names
from manyseed.orchestrator.asking.query import damage_named, named_rows, require_table
from manyseed.orchestrator.computing.tables import Results, may_be_absent
from manyseed.orchestrator.conditions import MAX_LENGTH, quotes
from manyseed.orchestrator.errors import UserError, first_line, nearest

MAX_TOKENS = 1000
"""Words, numbers, texts and signs: the time for a sum grows with the square of its length."""
MAX_DEPTH = 32  # depth of nested brackets
MAX_PARTS = 32  # number of SELECT and JOIN together

FUNCTIONS = frozenset(
    [
        *("ABS", "CEIL", "CEILING", "FLOOR", "ROUND", "SQRT", "CBRT", "EXP", "LN", "LOG"),
        *("LOG2", "LOG10", "LOG1P", "POW", "POWER", "SIGN", "MOD", "DIV", "GREATEST", "LEAST"),
        *("COALESCE", "NULLIF", "IFNULL", "CAST", "TRY_CAST"),
        *("LOWER", "UPPER", "LENGTH", "CHAR_LENGTH", "CONCAT", "CONCAT_WS", "LEFT", "RIGHT"),
        *("SUBSTR", "REPLACE", "STARTS_WITH", "ENDS_WITH", "STRPOS", "LTRIM", "RTRIM"),
        "REGEXP_LIKE",
        *("AVG", "COUNT", "MAX", "MEDIAN", "MIN", "QUANTILE_CONT", "QUANTILE_DISC"),
        *("STDDEV", "STDDEV_SAMP", "SUM", "VARIANCE", "VAR_SAMP", "CORR", "COVAR_SAMP"),
        *("FIRST", "LAST", "RANK", "DENSE_RANK", "ROW_NUMBER", "LAG", "LEAD"),
        *("FIRST_VALUE", "LAST_VALUE"),
    ]
)
"""Functions that may be called."""

_BEFORE_BRACKETS = frozenset(
    [
        *("ALL", "AND", "AS", "BETWEEN", "BY", "CASE", "DISTINCT", "ELSE", "EXCEPT", "EXISTS"),
        *("FROM", "HAVING", "ILIKE", "IN", "INTERSECT", "JOIN", "LIKE", "NOT", "ON", "OR", "OVER"),
        *("SELECT", "THEN", "UNION", "USING", "WHEN", "WHERE", "EXCLUDE", "RENAME", "DECIMAL"),
    ]
)
"""Words that may precede brackets without being called."""

_REFUSED = frozenset(
    [
        *("ALTER", "ATTACH", "CALL", "COPY", "CREATE", "DELETE", "DROP", "EXECUTE", "EXPLAIN"),
        *("INSERT", "INTO", "LOAD", "MERGE", "SET", "SHOW", "TRUNCATE", "UNNEST", "UPDATE", "USE"),
    ]
)
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))"
    r"|(?P<text>'(?:[^'\\]|'')*')"
    r'|(?P<quoted>"[^"\\]*")'
    r"|(?P<word>[A-Za-z_]\w*)(?![\w'\"])"
    r"|(?P<sign><=|>=|<>|!=|==|\|\||::|[-+*/%<>=(),.;]))",
    re.ASCII,
)


class NoStatement(ValueError):
    """A text that is not such a statement; says why."""


def names_in(text: str) -> list[str]:
    """Check a statement; return its words and quoted names, or raise NoStatement."""
    if len(text) > MAX_LENGTH:
        raise NoStatement(f"it has {len(text):,} characters; it may have {MAX_LENGTH:,}")
    tokens = _tokens(text)
    if not tokens or tokens[0][1].upper() not in ("SELECT", "WITH"):
        raise NoStatement("it must begin with SELECT or WITH")
    if len(tokens) > MAX_TOKENS:
        raise NoStatement(f"it has {len(tokens):,} words and signs; it may have {MAX_TOKENS:,}")
    depth = parts = 0
    for (kind, token), (_, following) in zip(tokens, [*tokens[1:], ("", "")], strict=True):
        word = token.upper() if kind == "word" else ""
        depth += {"(": 1, ")": -1}.get(token, 0)
        parts += word in ("SELECT", "JOIN")
        if word in _REFUSED:
            raise NoStatement(f"{word} is not allowed: it may only read the result tables")
        if token == ";" and following:
            raise NoStatement("it must be one statement")
        if depth > MAX_DEPTH or parts > MAX_PARTS:
            raise NoStatement("it has too many nested brackets, or too many parts")
        if following == "(" and kind != "sign" and word not in FUNCTIONS | _BEFORE_BRACKETS:
            raise NoStatement(f"{token[:40]} cannot be called: it may only read the result tables")
    return [token.strip('"') for kind, token in tokens if kind in ("word", "quoted")]


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise NoStatement(f"unexpected {text[at:end].strip()[:20]!r}")
        if text.startswith(("--", "/*"), match.start(match.lastgroup)):
            raise NoStatement("it may have no comments")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


_SHOWN = 200  # characters shown of a refused statement
_OPTION = "--sql"


def ask_sql(sweeps: Mapping[str, Results], text: str) -> pl.DataFrame:
    """Return the result of a SELECT over the result tables, which go by their names.

    Tables are read lazily: only the columns and rows that are needed. With several sweeps, a table
    has the rows of all, and the column sweep.

    `text`: one SELECT, with or without WITH (`statements` says what it may contain).
    """
    shown = text[:_SHOWN]
    try:
        words = set(names_in(text))
    except NoStatement as error:
        remedy = "such as: SELECT classifier, AVG(accuracy) AS mean FROM runs GROUP BY classifier"
        raise UserError(str(error), key=_OPTION, value=shown, remedy=remedy) from None
    rows = {name: _rows(sweeps, name) for name in table_names() if name in words}
    frames = {name: frame for name, frame in rows.items() if frame is not None}
    schema = {n: t for frame in frames.values() for n, t in frame.collect_schema().items()}
    try:
        with (
            damage_named(sweeps, frames),
            pl.SQLContext(frames, register_globals=False) as context,
        ):
            return context.execute(text, eager=False).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        message = first_line(error)
        if missing := re.match(r"relation '(.*)' was not found", message):
            for tables in sweeps.values():
                require_table(tables, missing[1], _OPTION)
        column = re.search(r"unable to find column \"([^\"]*)\"", message)
        advice = quotes(text, schema)
        if column:
            message = f"unknown column {column[1]}"
            advice = advice or nearest(column[1], schema)
        raise UserError(message, key=_OPTION, value=shown, remedy=advice) from None


def _rows(sweeps: Mapping[str, Results], table: str) -> pl.LazyFrame | None:
    """Return a table of all sweeps; None if one lacks it."""
    if may_be_absent(table) and any(table not in tables for tables in sweeps.values()):
        return None
    return pl.concat(named_rows(sweeps, table).values(), how="vertical")
