"""SQL over the result tables: it answers as polars does, and reads nothing else."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.orchestrator.asking.sql import FUNCTIONS, NoStatement, ask_sql, names_in
from manyseed.orchestrator.computing.tables import Results
from manyseed.orchestrator.conditions import MAX_LENGTH
from manyseed.orchestrator.errors import UserError

RUNS = {
    "cell": [0, 0, 1, 1],
    "repeat_index": [0, 1, 0, 1],
    "run_index": [0, 0, 3, 3],
    "classifier": ["mlp", "mlp", "xgb", "xgb"],
    "accuracy": [0.5, 0.7, 0.9, 0.8],
}
CELLS = {"cell": [0, 1], "classifier": ["mlp", "xgb"], "over": ["seeds", "test sets"]}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("sql")
    files = {}
    for name, columns in {"runs": RUNS, "cells": CELLS, "pairs": CELLS, "repeats": CELLS}.items():
        files[name] = folder / f"{name}.parquet"
        pl.DataFrame(columns).write_parquet(files[name])
    return Results(files, {}, "")


def answer(results: Results, text: str) -> list[tuple[object, ...]]:
    return ask_sql({"": results}, text).rows()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT MAX(accuracy) FROM runs", [(0.9,)]),
        (
            "select address from runs where accuracy > 0.75 order by accuracy;",
            [("1:1:3",), ("1:0:3",)],
        ),
        (
            "SELECT c.classifier, COUNT(*) AS n FROM runs r JOIN cells c ON r.cell = c.cell "
            "WHERE r.accuracy BETWEEN 0.6 AND 0.85 GROUP BY c.classifier ORDER BY 1",
            [("mlp", 1), ("xgb", 1)],
        ),
        (
            "WITH best AS (SELECT cell, MAX(accuracy) AS most FROM runs GROUP BY cell) "
            "SELECT most FROM best WHERE most IN (SELECT accuracy FROM runs) ORDER BY most",
            [(0.7,), (0.9,)],
        ),
        (
            "SELECT RANK() OVER (PARTITION BY cell ORDER BY accuracy DESC) AS r FROM runs "
            "ORDER BY cell, accuracy",
            [(2,), (1,), (2,), (1,)],
        ),
        (
            "SELECT \"over\", 'it''s (a; text)' AS t FROM cells LIMIT 1",
            [("seeds", "it's (a; text)")],
        ),
        ("SELECT CAST(cell AS INT) + -1 AS x FROM cells ORDER BY x", [(-1,), (0,)]),
        (
            "SELECT cell FROM cells UNION ALL SELECT cell FROM runs WHERE accuracy > 0.85",
            [(0,), (1,), (1,)],  # in any order
        ),
    ],
)
def test_statements_mean_what_they_mean_in_sql(
    results: Results, text: str, expected: list[tuple[object, ...]]
) -> None:
    found = answer(results, text)
    assert (sorted(found) if "UNION" in text else found) == expected


ARGUMENTS = {
    "NULLIF": "accuracy, 0.5", "IFNULL": "accuracy, 0.5", "MOD": "cell, 2", "DIV": "cell, 2",
    "POW": "accuracy, 2", "POWER": "accuracy, 2", "LOG": "accuracy, 10",
    "GREATEST": "accuracy, 0.6", "LEAST": "accuracy, 0.6", "COALESCE": "accuracy, 0.6",
    "CAST": "cell AS DOUBLE", "TRY_CAST": "classifier AS DOUBLE", "LEFT": "classifier, 1",
    "RIGHT": "classifier, 1", "SUBSTR": "classifier, 1, 2", "REPLACE": "classifier, 'm', 'n'",
    "STARTS_WITH": "classifier, 'm'", "ENDS_WITH": "classifier, 'p'",
    "STRPOS": "classifier, 'l'", "REGEXP_LIKE": "classifier, '^m'",
    "CONCAT": "classifier, '!'", "CONCAT_WS": "'-', classifier, 'a'",
    "QUANTILE_CONT": "accuracy, 0.5", "QUANTILE_DISC": "accuracy, 0.5",
    "CORR": "accuracy, cell", "COVAR_SAMP": "accuracy, cell",
    **dict.fromkeys(("LOWER", "UPPER", "LENGTH", "CHAR_LENGTH", "LTRIM", "RTRIM"), "classifier"),
}  # fmt: skip
WINDOWS = ("RANK", "DENSE_RANK", "ROW_NUMBER", "LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE")


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_there(results: Results, name: str) -> None:
    given = "" if name in WINDOWS[:3] else ARGUMENTS.get(name, "accuracy")
    over = " OVER (PARTITION BY cell ORDER BY accuracy)" if name in WINDOWS else ""
    assert answer(results, f"SELECT {name}({given}){over} AS x FROM runs")


READ = "SELECT * FROM read_parquet('{file}')"


@pytest.mark.parametrize(
    "text",
    [
        READ,
        READ.replace("read_parquet", "READ_CSV"),
        READ.replace("read_parquet", '"read_parquet"'),
        READ.replace("read_parquet(", "read_parquet ("),
        READ.replace("read_parquet(", "read_parquet\n\t("),
        READ.replace("read_parquet(", "read_parquet/**/("),
        READ.replace("read_parquet(", "read_parquet -- x\n("),
        "SELECT * FROM runs JOIN read_ipc('{file}') AS o ON runs.cell = o.cell",
        "SELECT * FROM runs WHERE cell IN (SELECT cell FROM read_json('{file}'))",
        "WITH q AS (SELECT * FROM read_parquet('{file}')) SELECT * FROM q",
        r"SELECT '\' FROM read_parquet('{file}') WHERE 'a' = '\''",
        "SELECT E'' FROM runs",
        "SELECT $$ FROM runs",
        "SELECT * FROM '{file}'",
        'SELECT * FROM "{file}"',
        "SELECT * FROM scan_parquet('{file}')",
        "SELECT cell FROM runs; DROP TABLE runs",
        "CREATE TABLE x AS SELECT * FROM runs",
        "SELECT * INTO x FROM runs",
        "COPY runs TO '{file}'",
        "EXPLAIN SELECT * FROM runs",
        "SHOW TABLES",
        "SELECT * FROM frame",
        "SELECT * FROM RUNS.x",
        "",
        "SELECT",
        "SELECT accuracy FROM runs WHERE",
        "SELECT lpad(classifier, 2000000000, 'x') FROM runs",
    ],
)
def test_nothing_else_is_read_and_all_else_is_one_message(
    results: Results, tmp_path: Path, text: str
) -> None:
    file, frame = tmp_path / "secret.parquet", pl.DataFrame({"cell": [1], "secret": [2]})
    frame.write_parquet(file)
    before = file.read_bytes()
    with pytest.raises(UserError, match="--sql") as raised:
        answer(results, text.replace("{file}", str(file)))
    assert "secret" not in str(raised.value).replace(str(file), "").replace("secret.parquet", "")
    assert file.read_bytes() == before


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="'\"\\/*-;() \n\tEX$`@[{ré", max_size=12), st.sampled_from(("", "(", " (")))
def test_no_letters_before_it_let_a_function_that_reads_pass(before: str, bracket: str) -> None:
    """However texts and comments begin and end: polars never meets the name outside of a text."""
    text = f"SELECT {before} read_parquet{bracket or '('}'x')"
    try:
        names_in(text)
    except NoStatement:
        return
    # it stands in a text, for us; for polars, too, as neither escapes nor comments are let in
    assert "\\" not in before
    assert "--" not in text
    assert "/*" not in text
    assert text.replace("''", "").count("'") % 2 == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT acuracy FROM runs", 'unknown column acuracy\n  did you mean "accuracy"'),
        ("SELECT accuracy FROM rums", '"rums": unknown table\n  did you mean "runs"'),
        ("SELECT dee FROM dee", '"dee": there is none yet'),
        ("SELECT cell FROM runs WHERE classifier = mlp", "write 'mlp' in single quotes"),
        ("SELECT cell FROM runs WHERE classifier > 3", "--sql"),
        ("SELECT 1 " + "+ 1 " * 3000 + "FROM runs", f"may have {MAX_LENGTH:,}"),
        ("SELECT 1" + "+1" * 600 + " FROM runs", "words and signs"),
        ("SELECT " + "(" * 40 + "1" + ")" * 40 + " FROM runs", "too many nested brackets"),
        (" UNION ALL ".join(["SELECT cell FROM runs"] * 40), "too many parts"),
    ],
)
def test_what_is_wrong_is_told(results: Results, text: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        answer(results, text)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 1000


def test_as_long_as_may_be_is_answered(results: Results) -> None:
    assert answer(results, "SELECT 1" + "+1" * 490 + " AS x FROM cells LIMIT 1") == [(491,)]
    parts = " UNION ALL ".join(["SELECT cell FROM cells"] * 32)
    assert len(answer(results, parts)) == 64


def test_of_several_sweeps_a_table_has_the_rows_of_all(results: Results) -> None:
    text = "SELECT sweep, MAX(accuracy) AS best FROM runs GROUP BY sweep ORDER BY sweep"
    found = ask_sql({"a": results, "b": results}, text)
    assert found.rows() == [("a", 0.9), ("b", 0.9)]
