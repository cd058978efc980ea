"""Tables in LaTeX are as wide as the text of a page at most, as LaTeX itself sets them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from manyseed.orchestrator.cli.escaping import in_latex
from manyseed.orchestrator.cli.formats import Paper, in_format
from manyseed.orchestrator.results.questions.registry import known
from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.conftest import inside

NUMBERS = [["sklearn:breast_cancer", "random-forest", 0.9612, "0.9441 ± 0.0112", 1234, 0.0021]] * 3
TALL = [*NUMBERS * 20]
SENTENCES = [
    ["breast-cancer", "mlp better than logistic-regression", "never told in any of 200 draws", n]
    for n in range(4)
]
TABLES = {
    "narrow": (["dataset", "runs"], [["wine", 3], ["iris", 4]]),
    "numbers": (["dataset", "classifier", "mean accuracy", "SD between", "runs", "SD"], NUMBERS),
    "long": (["dataset", "classifier", "mean accuracy", "SD between", "runs", "SD"], TALL),
    "sentences": (["dataset", "verdict", "what is said of it", "number of points"], SENTENCES),
    "heads": (["standard deviation of accuracy between runs"] * 5, [[0.1234] * 5] * 2),
}


def _document(table: str) -> str:
    packages = ",".join(re.findall(r"% needs \\usepackage{(.*)}", table))
    return (
        f"\\documentclass{{article}}\n\\usepackage{{{packages}}}\n\\begin{{document}}\n"
        f"{table}\n\\end{{document}}\n"
    )


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("caption", ["", "Some results"])
def test_a_table_fits_the_text_of_a_page(name: str, caption: str, tmp_path: Path) -> None:
    columns, rows = TABLES[name]
    best = {(0, len(columns) - 1), (1, 0)}
    table = in_latex(columns, rows, ["A note."], best, (caption, ""))
    assert "% wide" not in table
    assert (r"\setlength{\tabcolsep}" in table) == (name != "narrow")
    assert table.count("{") == table.count("}")
    if name == "sentences":
        assert r">{\raggedright\arraybackslash}p{" in table
        assert "array" in table.partition("\n")[0]
    if shutil.which("pdflatex") is None:
        return  # the widths above are estimates, which are too large rather than too small
    (tmp_path / "t.tex").write_text(_document(table), "utf-8")
    line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout, table


def test_what_cannot_fit_is_said() -> None:
    columns = [f"column{n}" for n in range(20)]
    assert in_latex(columns, [[0.1234] * 20], [], set(), ("", "")).count("% wide: about") == 1


def test_names_of_data_are_without_their_source_where_that_tells_them_apart() -> None:
    import polars as pl

    frame = pl.DataFrame({"dataset": ["sklearn:wine", "sklearn:iris"], "accuracy": [0.5, 0.6]})
    for form in ("latex", "markdown"):
        text = in_format(frame, form, {}, [], Paper()).decode()
        assert ("sklearn" in text, "wine" in text) == (False, True)
    assert "sklearn:wine" in in_format(frame, "csv", {}, [], Paper()).decode()
    both = pl.DataFrame({"dataset": ["sklearn:wine", "wine"], "accuracy": [0.5, 0.6]})
    assert "sklearn:wine" in in_format(both, "latex", {}, [], Paper()).decode()


def test_compare_and_answers_fit(quick_analysed) -> None:  # type: ignore[no-untyped-def]
    for verb in (["compare"], ["howmany"], ["answers", "accuracy"], ["answers", "variance"]):
        line = [verb[0], quick_analysed.directory, *verb[1:], "--format", "latex"]
        code, text = inside(*line)
        assert (code, "% wide" in text) == (0, False), text


def test_no_note_of_a_paper_names_an_option_or_a_command(
    quick_analysed: Sweep,
) -> None:
    told, mark = 0, r"\footnotesize\raggedright"
    for name in ("compare --bold best", *known()):
        code, text = inside("answers", quick_analysed.directory, *name.split(), "--format", "latex")
        notes = text.rpartition(mark)[2] if mark in text and code == 0 else ""
        assert not re.search(r"(?<![-\w])--[a-z]|manyseed [a-z]|in answers|see [a-z]", notes), notes
        told += bool(notes)
        lines = [line for line in notes.splitlines() if line.endswith(".")]
        assert len(lines) == len({*lines}), notes
    assert told > 3


def test_advice_is_no_part_of_a_paper() -> None:
    notes = [
        "3 test sets are too few for intervals; more narrow them, by repeats = 5 where test sets "
        "are drawn.",
        "Each interval by itself holds at 95 %: of 6, about 0.3 are expected to miss. For all of "
        "them together at 95 %, each takes 99.17 % (Bonferroni).",
        "Do not choose runs by ece: it is small by chance. Choose by brier.",
        "manyseed analyze DIR --holdout 0.5 ranks them.",
    ]
    frame = pl.DataFrame({"a": ["x"], "b": ["y"], "verdict": ["x"]})
    text = in_format(frame, "latex", {}, notes).decode()
    assert "A & B & verdict" in text
    assert "3 test sets are too few for intervals.\n" in text
    assert "holds at 95 \\%. For all of them" in text
    for advice in ("repeats = 5", "expected to miss", "choose", "Choose", "manyseed", "narrow"):
        assert advice not in text
    assert "repeats = 5" in in_format(frame, "markdown", {}, notes).decode()
