"""Conditions in SQL: a small language, parsed here, bounded in size, depth, time and memory."""

from __future__ import annotations

import random
import resource
import time

import polars as pl
import pytest

from manyseed.orchestrator.conditions import (
    MAX_LENGTH,
    NoCondition,
    UnknownColumn,
    condition,
    matching,
)
from manyseed.orchestrator.errors import UserError, nearest

TABLE = pl.DataFrame(
    {
        "n": [0, 1, 2, 3, 4],
        "x": [-1.5, None, 0.0, 0.25, 1e9],
        "name": ["mlp", "xgb", None, "lr-sgd", "it's 50%"],
        "close": [True, False, None, True, False],
    }
)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("n = 2", [2]),
        ("n == 2 OR n > 3", [2, 4]),
        ("n <> 2 and n != 3 AND n < 4", [0, 1]),
        ("n < 3 AND NOT n <= 1", [2]),
        ("n = 0 OR n = 1 AND x > 0", [0]),
        ("(n = 0 OR n = 1) AND x IS NULL", [1]),
        ("NOT (n = 0 OR n = 1) AND NOT NOT n < 4", [2, 3]),
        ("x", None),
        ("close", [0, 3]),
        ("NOT close", [1, 4]),
        ("close IS NOT NULL", [0, 1, 3, 4]),
        ("close IS TRUE", [0, 3]),
        ("close IS NOT TRUE", [1, 2, 4]),
        ("close = FALSE", [1, 4]),
        ("TRUE", [0, 1, 2, 3, 4]),
        ("name = 'mlp'", [0]),
        ("name IN ('mlp', 'xgb')", [0, 1]),
        ("name NOT IN ('mlp', 'xgb')", [3, 4]),
        ("n IN (1, 2.0, -3)", [1, 2]),
        ("x in (.25)", [3]),
        ("name LIKE '%g%'", [1, 3]),
        ("name LIKE 'm_p'", [0]),
        ("name LIKE 'M%'", []),
        ("name ILIKE 'M%'", [0]),
        ("name NOT LIKE 'm%'", [1, 3, 4]),
        ("name = 'it''s 50%'", [4]),
        ("n BETWEEN 1 AND 2 + 1", [1, 2, 3]),
        ("n NOT BETWEEN 1 AND 3 AND n < 4", [0]),
        ("n * 2 - 1 = 3", [2]),
        ("n + 2 * 3 = 10", [4]),
        ("n - 1 - 1 = 0", [2]),
        ("n / 2 = 0.5", [1]),
        ("n % 2 = 1", [1, 3]),
        ("-n < -3", [4]),
        ("x > 1e-3 AND x < 1E8", [3]),
        ("abs(x) >= 1.5", [0, 4]),
        ("round(x) = 0", [2, 3]),
        ("round(x, 1) = 0.3 or ROUND(x, 2) = 0.25", [3]),
        ("floor(x) = -2 OR ceil(x) = -1 AND sqrt(n) = 0", [0]),
        ("lower(upper(name)) = 'mlp' AND length(name) = 3", [0]),
        ("coalesce(x, 7) = 7", [1]),
        ("\"name\" = 'mlp'", [0]),
    ],
)
def test_conditions_mean_what_they_mean_in_sql(where: str, expected: list[int] | None) -> None:
    if expected is None:
        with pytest.raises(UserError, match="not a condition"):
            matching(TABLE, where)
        return
    assert matching(TABLE, where)["n"].to_list() == expected
    unlike = ("/", "round(x, 1)", "ROUND", "2.0", "IS NOT TRUE", "1e-3")  # the last: before 2.0
    if not any(word in where for word in unlike):
        assert TABLE.filter(pl.sql_expr(where))["n"].to_list() == expected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "unexpected end"),
        ("n =", "unexpected end"),
        ("n = 1 n", "unexpected n"),
        ("(n = 1", r"\) is missing before end"),
        ("n = 1)", r"unexpected \)"),
        ("n IN ()", r"unexpected \)"),
        ("n IN (x)", "IN and LIKE take numbers and texts"),
        ("name LIKE name", "IN and LIKE take numbers and texts"),
        ("name LIKE 3", "LIKE takes a text"),
        ("n BETWEEN 1", "AND is missing before end"),
        ("n IS 3", "unexpected 3"),
        ("n ! 3", "unexpected '! 3'"),
        ("name = 'open", 'unexpected "\'open"'),
        ("lpad(name, 2000000000, 'x') = 'y'", "unknown function lpad; there are abs"),
        ("n = (SELECT 1)", r"unknown column|is missing"),
        ("abs(n, n) = 1", "abs does not take 2 arguments"),
        ("round(x, n) = 1", "round takes 0 to 15 digits"),
        ("n = 99999999999999999999999", "too large a number"),
        ("x < 1e999", "too large a number"),
        ("(" * 40 + "n = 1" + ")" * 40, "too many nested brackets"),
        ("n + " * 70 + "1 = 1", "too long a sum"),
        ("n = 1 OR " * 2000 + "n = 1", "it has 18,005 characters; it may have 10,000"),
    ],
)
def test_what_is_no_condition_is_told(where: str, message: str) -> None:
    with pytest.raises(NoCondition, match=message):
        condition(where, TABLE.schema)


def test_a_column_that_there_is_not_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r'--only = "nmae = 1": unknown column nmae\n.*"name"'):
        matching(TABLE, "nmae = 1", "--only")
    means = ["accuracy_std", "accuracy_mean", "accuracy_min"]
    assert nearest("accuracy", means).startswith('did you mean "accuracy_mean"?')
    for pattern in ("^n.*$", "*"):
        with pytest.raises(UnknownColumn):
            condition(f'"{pattern}" = 1', {**TABLE.schema, pattern: pl.Int64()})


@pytest.mark.parametrize(
    ("where", "remedy"),
    [
        ("name = mlp", "write 'mlp' in single quotes: name = 'mlp'"),
        ("n = 1 AND name != lr-sgd", "write 'lr-sgd' in single quotes: name != 'lr-sgd'"),
        ('name = "mlp"', "write 'mlp' in single quotes: name = 'mlp'"),
        ("name == relative:0.5", "write 'relative:0.5' in single quotes: name == 'relative:0.5'"),
        ("name in (mlp, xgb)", r"write 'mlp' in single quotes: name in \('mlp'\)"),
        ("name NOT LIKE ml%", "write 'ml%' in single quotes: name NOT LIKE 'ml%'"),
        ("n = mlp", "valid: n, "),
        ("name = 3", "write SQL, such as"),
        ("name = NULL AND nmae = 'a'", 'did you mean "name"'),
    ],
)
def test_a_text_without_single_quotes_is_told_with_them(where: str, remedy: str) -> None:
    with pytest.raises(UserError, match=f"\n  {remedy}"):
        matching(TABLE, where)


def test_a_value_alone_is_told_with_its_column() -> None:
    cells = TABLE.rename({"name": "classifier"})
    for value in ("cnn", "lr-sgd"):
        with pytest.raises(UserError, match=f"\n  name its column, .*: classifier = '{value}'$"):
            matching(cells, value, "--a")
    with pytest.raises(UserError, match='did you mean "classifier"'):
        matching(cells, "clasifier")
    with pytest.raises(UserError, match="\n  valid: n, "):
        matching(TABLE, "cnn")


def test_long_conditions_of_many_parts_are_quick() -> None:
    parts = MAX_LENGTH // len("n = 1 OR ") - 1
    assert matching(TABLE, " OR ".join(["n = 1"] * parts)).height == 1
    assert matching(TABLE, f"n IN ({', '.join(['1'] * (MAX_LENGTH // 3 - 10))})").height == 1


_PIECES = (
    *("n", "x", "name", "close", '"n"', "nmae", "1", "0", "-1", "1.5", "1e300", "9" * 30, "'a'"),
    *("'%'", "''", "TRUE", "NULL", "AND", "OR", "NOT", "IS", "IN", "LIKE", "ILIKE", "BETWEEN"),
    *("=", "<>", "<", ">=", "+", "-", "*", "/", "%", "(", ")", ",", "(", ")", "abs(", "round("),
    *("lower(", "lpad(", "repeat(", "coalesce(", "length(", "sqrt(", "--", ";", "é", "\x00", "["),
)


def written(dice: random.Random, depth: int) -> str:
    """Return a condition that the grammar allows, mostly of the right types."""

    def number(depth: int) -> str:
        if depth <= 0:
            return dice.choice(("n", "x", "1", "0.5", "-2", "9223372036854775807"))
        form = dice.choice(("{} + {}", "{} * {}", "({} - {})", "{} / {}", "abs({})", "-{}"))
        return form.format(number(depth - 1), number(depth - 1))

    if depth <= 0:
        comparison = dice.choice(("=", "<>", "<", ">="))
        return dice.choice(
            (
                f"{number(2)} {comparison} {number(1)}",
                f"lower(name) LIKE '{dice.choice(('%', '_', 'm%', 'a.*[', 'é'))}'",
                f"n IN ({', '.join(str(dice.randrange(9)) for _ in range(dice.randrange(1, 9)))})",
                f"{number(1)} BETWEEN {number(0)} AND {number(1)}",
                "coalesce(x, n) IS NOT NULL",
            )
        )
    form = dice.choice(("{} AND {}", "({} OR {})", "NOT ({})"))
    return form.format(written(dice, depth - 1), written(dice, depth - 1))


def mutated(dice: random.Random) -> str:
    """Return one with pieces taken out, doubled, replaced or put in."""
    text = written(dice, dice.randrange(4))
    for _ in range(dice.randrange(4)):
        at, to = sorted(dice.randrange(len(text) + 1) for _ in range(2))
        piece = dice.choice(_PIECES) * dice.choice((1, 1, 1, 2, 500))
        text = text[:at] + f" {piece} " + text[dice.choice((at, to)) :]
    return text


def fuzz(seed: int, count: int) -> int:
    """Ask so many conditions; return how many could be answered."""
    dice, answered = random.Random(seed), 0
    for _ in range(count):
        where = mutated(dice)
        began = time.process_time()
        try:
            matching(TABLE, where)
            answered += 1
        except UserError as error:
            assert len(str(error)) < 2000, where  # noqa: PT017
        assert time.process_time() - began < 5, where
    return answered


def test_a_condition_is_answered_or_refused_whatever_it_is() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 50 < fuzz(0, 400) < 350
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB


@pytest.mark.slow
def test_many_conditions_are_answered_or_refused() -> None:
    assert fuzz(1, 8000) > 1000
