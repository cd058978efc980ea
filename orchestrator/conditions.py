"""Rows that meet a condition in a subset of SQL, which is parsed here: no engine sees the text.

::

    classifier = 'mlp' AND (accuracy > 0.9 OR alpha_hat IS NULL)
    perturb_continuous LIKE 'relative:%' AND train_fraction BETWEEN 0.25 AND 1
    dataset IN ('vehicle', 'sick') AND NOT abs(accuracy_mean - 0.5) < 1e-3

Conditions consist of columns (also in double quotes), numbers, texts in single quotes, ``TRUE``,
``FALSE`` and ``NULL``; ``OR``, ``AND``, ``NOT``; comparisons, ``[NOT] IN``, ``LIKE``, ``ILIKE`` and
``BETWEEN``, ``IS [NOT]`` with one of the three constants; ``+ - * / %``; and `FUNCTIONS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from manyseed.analysis.counts import counted
from manyseed.analysis.tables.rows import IS_LAST
from manyseed.orchestrator.errors import UserError, first_line, nearest

MAX_LENGTH = 10_000  # most characters of a condition
MAX_DEPTH = 64  # most nested brackets, signs and sums

FUNCTIONS: dict[str, tuple[range, Callable[..., pl.Expr]]] = {
    "abs": (range(1, 2), lambda x: x.abs()),
    "ceil": (range(1, 2), lambda x: x.ceil()),
    "coalesce": (range(1, 21), pl.coalesce),
    "floor": (range(1, 2), lambda x: x.floor()),
    "length": (range(1, 2), lambda x: x.str.len_chars()),
    "lower": (range(1, 2), lambda x: x.str.to_lowercase()),
    "round": (range(1, 3), lambda x, digits=None: x.round(0 if digits is None else digits)),
    "sqrt": (range(1, 2), lambda x: x.sqrt()),
    "upper": (range(1, 2), lambda x: x.str.to_uppercase()),
}
"""Functions by name: how many arguments they take, and their implementation."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<text>'(?:[^']|'')*')"
    r'|(?P<quoted>"(?:[^"]|"")*")'
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<sign><=|>=|<>|!=|==|[-+*/%<>=(),]))"
)
_COMPARISONS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_SUMS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
}
_PRODUCTS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": lambda a, b: a % b,
}
_WORDS = frozenset(
    ("AND", "BETWEEN", "FALSE", "ILIKE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE")
)
"""Words that are not columns, unless in quotes."""
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_LARGEST_WHOLE = 2**63 - 1
_LARGEST_DIGITS = 15


class NoCondition(ValueError):
    """A text that is not a condition; says why."""


class UnknownColumn(NoCondition):
    """A condition over an unknown column: `name`."""

    def __init__(self, name: str) -> None:
        self.name = name[:100]
        super().__init__(f"unknown column {name}")


@dataclass(frozen=True, slots=True)
class _Parsed:
    """An expression, its depth, its value if it is a constant, and its form in sums."""

    expression: pl.Expr
    depth: int = 1
    constant: tuple[Any, ...] = ()
    signed: pl.Expr | None = None

    @property
    def summand(self) -> pl.Expr:
        """The expression; of whole numbers as signed ones, which do not wrap around below 0."""
        return self.expression if self.signed is None else self.signed


def condition(text: str, columns: Mapping[str, pl.DataType]) -> pl.Expr:
    """Return a condition as a polars expression.

    `columns`: columns that it may use, and their types.
    """
    if len(text) > MAX_LENGTH:
        raise NoCondition(f"it has {len(text):,} characters; it may have {MAX_LENGTH:,}")
    return _Parser(_tokens(text), columns).whole()


def _tokens(text: str) -> list[tuple[str, str]]:
    """Return kind and text of each token; words in `_WORDS` become signs, in capitals."""
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise NoCondition(f"unexpected {text[at:end].strip()[:20]!r}")
        kind, token, at = match.lastgroup, match[match.lastgroup], match.end()
        if kind == "word" and token.upper() in _WORDS:
            kind, token = "sign", token.upper()
        tokens.append((kind, token))
    return tokens


class _Parser:
    """Reads tokens from left to right; one method per level of precedence, loosest first."""

    def __init__(self, tokens: list[tuple[str, str]], columns: Mapping[str, pl.DataType]) -> None:
        self._tokens = tokens
        # polars takes some names that are not identifiers as patterns
        self._columns = {name: kind for name, kind in columns.items() if name.isidentifier()}
        self._at, self._depth = 0, 0

    def whole(self) -> pl.Expr:
        found = self._any()
        if self._at < len(self._tokens):
            raise self._unexpected()
        return found.expression

    def _any(self) -> _Parsed:
        return self._list("OR", self._all, lambda a, b: a | b)

    def _all(self) -> _Parsed:
        return self._list("AND", self._not, lambda a, b: a & b)

    def _list(
        self, word: str, part: Callable[[], _Parsed], join: Callable[[pl.Expr, pl.Expr], pl.Expr]
    ) -> _Parsed:
        """Read parts separated by a word, and join them to a tree of least depth."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NoCondition("it has too many nested brackets")
        parts = [part()]
        while self._take(word):
            parts.append(part())
        self._depth -= 1
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            joined = [self._deeper(join(a.expression, b.expression), a, b) for a, b in pairs]
            parts = [*joined, *parts[len(joined) * 2 :]]
        return parts[0]

    def _not(self) -> _Parsed:
        negated = 0
        while self._take("NOT"):
            negated += 1
        found = self._comparison()
        return self._deeper(~found.expression, found) if negated % 2 else found

    def _comparison(self) -> _Parsed:
        left = self._sum()
        for sign, compare in _COMPARISONS.items():
            if self._take(sign):
                right = self._sum()
                return self._deeper(compare(left.expression, right.expression), left, right)
        if self._take("IS"):
            return self._is(left)
        negated = self._take("NOT")
        for word, read in {
            "IN": self._in,
            "LIKE": lambda node: self._like(node, "s"),
            "ILIKE": lambda node: self._like(node, "si"),
            "BETWEEN": self._between,
        }.items():
            if self._take(word):
                found = read(left)
                return self._deeper(~found.expression, found) if negated else found
        if negated:
            raise self._unexpected()
        return left

    def _is(self, left: _Parsed) -> _Parsed:
        negated = self._take("NOT")
        for word, value in _CONSTANTS.items():
            if self._take(word):
                same = left.expression.eq_missing(pl.lit(value))
                found = left.expression.is_null() if value is None else same
                return self._deeper(~found if negated else found, left)
        raise self._unexpected()

    def _in(self, left: _Parsed) -> _Parsed:
        self._need("(")
        values = [self._constant()]
        while self._take(","):
            values.append(self._constant())
        self._need(")")
        if all(isinstance(value, str) for value in values):
            return self._deeper(left.expression.is_in(values), left)
        equal = [left.expression == pl.lit(value) for value in values]
        return self._deeper(pl.any_horizontal(equal), left)

    def _like(self, left: _Parsed, flags: str) -> _Parsed:
        pattern = self._constant()
        if not isinstance(pattern, str):
            raise NoCondition("LIKE takes a text in single quotes")
        parts = {"%": ".*", "_": "."}
        expression = "".join(parts.get(letter) or re.escape(letter) for letter in pattern)
        found = left.expression.str.contains(f"(?{flags})^{expression}$")
        return self._deeper(found, left)

    def _between(self, left: _Parsed) -> _Parsed:
        low = self._sum()
        self._need("AND")
        high = self._sum()
        return self._deeper(
            (left.expression >= low.expression) & (left.expression <= high.expression),
            *(left, low, high),
        )

    def _sum(self) -> _Parsed:
        return self._chain(_SUMS, self._product)

    def _product(self) -> _Parsed:
        return self._chain(_PRODUCTS, self._signed)

    def _chain(
        self, joins: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]], part: Callable[[], _Parsed]
    ) -> _Parsed:
        found = part()
        while (sign := self._sign()) in joins:
            self._at += 1
            right = part()
            joined = joins[sign](found.summand, right.summand)
            found = self._deeper(joined, found, right)
        return found

    def _signed(self) -> _Parsed:
        negative = False
        while self._sign() in ("-", "+"):
            negative ^= self._sign() == "-"
            self._at += 1
        found = self._single()
        if not negative:
            return found
        if found.constant and isinstance(found.constant[0], int | float):
            return _Parsed(pl.lit(-found.constant[0]), constant=(-found.constant[0],))
        return self._deeper(-found.summand, found)

    def _single(self) -> _Parsed:
        if self._take("("):
            found = self._any()
            self._need(")")
            return found
        for word, value in _CONSTANTS.items():
            if self._take(word):
                return _Parsed(pl.lit(value), constant=(value,))
        if self._at == len(self._tokens) or self._tokens[self._at][0] == "sign":
            raise self._unexpected()
        kind, token = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            number = _number(token)
            return _Parsed(pl.lit(number), constant=(number,))
        if kind == "text":
            written = token[1:-1].replace("''", "'")
            return _Parsed(pl.lit(written), constant=(written,))
        if kind == "word" and self._take("("):
            return self._call(token)
        name = token[1:-1].replace('""', '"') if kind == "quoted" else token
        if name not in self._columns:
            raise UnknownColumn(name)
        column = pl.col(name)
        is_whole = self._columns[name].is_integer()
        return _Parsed(column, signed=column.cast(pl.Int64, strict=False) if is_whole else None)

    def _call(self, name: str) -> _Parsed:
        if name.lower() not in FUNCTIONS:
            raise NoCondition(f"unknown function {name[:40]}; there are {', '.join(FUNCTIONS)}")
        counts, function = FUNCTIONS[name.lower()]
        arguments = [self._any()]
        while self._take(","):
            arguments.append(self._any())
        self._need(")")
        if len(arguments) not in counts:
            raise NoCondition(f"{name} does not take {counted(len(arguments), 'argument')}")
        given: list[Any] = [argument.expression for argument in arguments]
        if name.lower() == "round" and len(arguments) == 2:
            given[1] = _digits(arguments[1])
        return self._deeper(function(*given), *arguments)

    def _constant(self) -> Any:
        found = self._signed()
        if not found.constant:
            raise NoCondition("IN and LIKE take numbers and texts in single quotes")
        return found.constant[0]

    def _deeper(self, expression: pl.Expr, *parts: _Parsed) -> _Parsed:
        depth = 1 + max(part.depth for part in parts)
        if depth > MAX_DEPTH:
            raise NoCondition("it is too long a sum, or nested too deeply")
        return _Parsed(expression, depth)

    def _sign(self) -> str | None:
        if self._at < len(self._tokens) and self._tokens[self._at][0] == "sign":
            return self._tokens[self._at][1]
        return None

    def _take(self, sign: str) -> bool:
        if self._sign() != sign:
            return False
        self._at += 1
        return True

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(f"{sign} is missing before")

    def _unexpected(self, before: str = "unexpected") -> NoCondition:
        at_end = self._at == len(self._tokens)
        return NoCondition(f"{before} {'end' if at_end else self._tokens[self._at][1][:40]}")


def _number(token: str) -> int | float:
    if token.isdecimal():
        if len(token) > 20 or int(token) > _LARGEST_WHOLE:
            raise NoCondition(f"{token[:40]} is too large a number")
        return int(token)
    number = float(token)
    if not math.isfinite(number):
        raise NoCondition(f"{token[:40]} is too large a number")
    return number


def _digits(argument: _Parsed) -> int:
    digits = argument.constant[0] if argument.constant else None
    if not isinstance(digits, int) or not 0 <= digits <= _LARGEST_DIGITS:
        raise NoCondition(f"round takes 0 to {_LARGEST_DIGITS} digits")
    return digits


_SHOWN = 200  # characters shown of a refused condition
_COMPARED = re.compile(
    r"\b(\w+)\s*(==|=|!=|<>|(?:NOT\s+)?I?LIKE\b|(?:NOT\s+)?IN\b\s*\()\s*"
    r"(\"[^\"]*\"|[^\s'\"(),]+)",
    re.IGNORECASE,
)
"""A column, its comparison, and the other side if that is not a text in single quotes."""
_VALUE = re.compile(r"\w[\w.-]*")
_OF_RUNS = re.compile(r"(run|repeat|seed)(_?(index|number|id))?|address|status|failed")
"""What runs of a cell differ in, which a condition on cells cannot use."""
_CONSTANT = re.compile(r"[\d.+-]|(true|false|null)$", re.IGNORECASE)


def matching(frame: pl.DataFrame, where: str, option: str = "--where") -> pl.DataFrame:
    """Return the rows that meet an SQL condition, which came from an option of the command."""
    return frame.filter(wanted(where, frame.schema, option))


def chosen(
    cells: pl.DataFrame, where: str | None, option: str, *, one_snapshot: bool = False
) -> pl.DataFrame:
    """Return the cells that meet an SQL condition, or all if there is none.

    `cells`: a row per cell, or per cell and snapshot. `where`: the condition. `option`: the option
    that it came from, for messages. `one_snapshot`: whether to return rows of one snapshot of each
    cell, as `at_one_snapshot`.
    """
    meets, rows = wanted(where, cells.schema, option, of_cells=True), cells.lazy()
    met = (at_one_snapshot(rows, meets) if one_snapshot else rows.filter(meets)).collect()
    if met.is_empty():
        raise UserError("no cell meets the condition", key=option, value=where)
    return met


def at_one_snapshot(frame: pl.LazyFrame, wanted: pl.Expr) -> pl.LazyFrame:
    """Return the wanted rows of a result table, at one snapshot of each cell.

    That is the cell's last or, if the condition uses epochs, the last wanted one that its dataset,
    classifier and ensembling method have.
    """
    names = frame.collect_schema().names()
    if "epoch" not in names:  # earlier versions had one snapshot
        return frame.filter(wanted)
    if "epoch" not in wanted.meta.root_names():
        return frame.filter(IS_LAST).filter(wanted)
    key = [name for name in ("dataset", "classifier", "ensembling") if name in names]
    newest = pl.col("epoch").max().over(key)
    return frame.filter(wanted).filter(pl.col("epoch") == newest)


def wanted(
    where: str | None, columns: Mapping[str, pl.DataType], option: str, *, of_cells: bool = False
) -> pl.Expr:
    """Return an SQL condition as an expression that is true or false in rows of these columns.

    All conditions of users pass through here, before any row is read: an error in reading rows is
    then never the condition's.

    `where`: the condition; None is met by all rows. `columns`: the table's schema. `option`: the
    option that it came from, for messages. `of_cells`: whether it can choose whole cells alone.
    """
    if where is None:
        return pl.lit(value=True)
    shown = where[:_SHOWN]
    try:
        met = condition(where, columns)
        # polars raises when, for instance, a number is compared with a text
        pl.LazyFrame(schema=dict(columns)).filter(met).collect()
        return met
    except UnknownColumn as error:
        near = nearest(error.name, columns)
        if "classifier" in columns and _VALUE.fullmatch(where or "") and near.startswith("valid"):
            near = f"name its column, such as: classifier = '{where}'"
        if of_cells and _OF_RUNS.fullmatch(error.name):
            near = f"{option} chooses whole cells, not single runs; {near}"
        remedy = quotes(where, columns) or near
        raise UserError(
            f"unknown column {error.name}", key=option, value=shown, remedy=remedy
        ) from None
    except (NoCondition, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise UserError(
            f"not a condition: {first_line(error)}",
            key=option,
            value=shown,
            remedy=quotes(where, columns)
            or "write SQL, such as: classifier = 'mlp' AND accuracy > 0.9",
        ) from None


def quotes(where: str | None, columns: Mapping[str, pl.DataType]) -> str | None:
    """Return a remedy if a text column is compared with a text without single quotes."""
    for name, how, value in _COMPARED.findall(where or ""):
        text = value.strip('"')
        if columns.get(name) == pl.String and text not in columns and not _CONSTANT.match(text):
            quoted = f"('{text}')" if "(" in how else f"'{text}'"
            return f"write '{text}' in single quotes: {name} {how.rstrip('(').strip()} {quoted}"
    return None
