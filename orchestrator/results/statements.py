"""The SQL that a query may use: one statement that reads the result tables, and nothing else.

polars runs the statement, and polars has functions that read files. So only `FUNCTIONS` may be
called, and texts are recognised here exactly as its parser recognises them.
"""

from __future__ import annotations

import re

from manyseed.orchestrator.conditions import MAX_LENGTH

MAX_TOKENS = 1000
"""Words, numbers, texts and signs: the time for a sum grows with the square of its length."""
MAX_DEPTH = 32
"""Depth of nested brackets."""
MAX_PARTS = 32
"""Number of SELECT and JOIN together."""

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
