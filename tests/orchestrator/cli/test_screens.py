"""What verbs print fits a screen of 40 lines of 80 columns, and says nothing twice."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from rich.cells import cell_len

from manyseed import Sweep
from manyseed.analysis.questions.question import MOST_ROWS, WORDS, Answer, Reply
from manyseed.orchestrator.cli import answers, output
from tests.orchestrator.conftest import inside

LINES, COLUMNS = 40, 80
VERBS = (
    ("analyze",),
    ("answers",),
    ("answers", "accuracy"),
    ("answers", "effects"),
    ("compare",),
    ("compare", "--metric", "ece"),
    ("variance",),
    ("howmany", "--sizes", "1,2", "--draws", "10"),
    ("report",),
    ("status",),
    ("query", "--by", "classifier"),
)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as on a terminal of 80 columns."""
    monkeypatch.setattr(output.console, "_width", COLUMNS)
    monkeypatch.setattr(output.console, "_force_terminal", True)


@pytest.fixture(scope="module", params=["quick_analysed", "quick_calibrated"])
def sweep(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a finished sweep."""
    of: Sweep = request.getfixturevalue(request.param)
    return shutil.copytree(of.directory, tmp_path_factory.mktemp("screens") / "sweep")


def lint(text: str) -> list[str]:
    """Return what is wrong with what a verb printed."""
    lines = [line.rstrip() for line in text.splitlines()]
    found = [f"{len(lines)} lines"] if len(lines) > LINES else []
    # a command to copy is not broken
    found += [
        f"{cell_len(line)} columns: {line}"
        for line in lines
        if cell_len(line) > COLUMNS and "manyseed " not in line and "/" not in line
    ]
    times = Counter(line.strip() for line in lines if len(line.split()) > 2)
    return [*found, *(f"{n} times: {line}" for line, n in times.items() if n > 1)]


@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_output_fits_a_screen_and_says_nothing_twice(sweep: Path, verb: tuple[str, ...]) -> None:
    name, *options = verb
    code, said = inside(name, sweep, *options)
    assert code == 0
    assert lint(said) == [], said


@pytest.mark.usefixtures("screen")
def test_the_evidence_is_printed_when_asked_for(sweep: Path) -> None:
    code, said = inside("answers", sweep)
    assert "manyseed answers " in said
    assert "95 %" not in said
    why, more = inside("answers", sweep, "--why")
    assert (code, why) == (0, 0)
    every = " ".join(more.split())
    for one in json.loads(inside("answers", sweep, "--json")[1])["answers"]:
        assert one["headline"].splitlines()[0] in " ".join(said.split())
        assert " ".join(one["text"].split()) in every
        for line in one["headline"].splitlines():
            assert len(line.split()) <= WORDS, line
    for question in ("variance", "compare"):
        short, full = (inside("answers", sweep, question, *why)[1] for why in ((), ("--why",)))
        assert "--why" in short
        assert len(full.splitlines()) > 2 * len(short.splitlines())


@pytest.mark.usefixtures("screen")
def test_a_long_table_is_cut_and_the_rest_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Answer(f"cell {number}", (f"for {number}",)) for number in range(90)]
    rows = [["data", f"cell {number}", number] for number in range(90)]
    notes = ["One of them.", "", "Another."]
    reply = Reply(
        found, columns=["", "", "runs"], table=rows, below=["What they are."], notes=notes
    )
    answers._say(reply, why=False)
    said = capsys.readouterr().out.splitlines()
    assert len(said) <= LINES
    assert said[-3].startswith(f"… {90 - MOST_ROWS} more;")
    assert said[-2:] == ["What they are.", "2 notes, and the evidence: --why"]
    lines = str(reply).splitlines()  # as Python prints it
    assert lines[1:3] == ["data", "  cell 0   0"]
    assert lines[-2:] == [f"… {90 - MOST_ROWS} more", "What they are."]
    assert len(lines) == 2 + MOST_ROWS + 2
    answers._say(reply, why=True)
    assert len(capsys.readouterr().out.splitlines()) == 2 * 90 + 3


def test_the_linter_finds_what_it_is_for() -> None:
    assert lint("one two three\n" * 2) == ["2 times: one two three"]
    assert lint("x\n" * 41) == ["41 lines"]
    assert len(lint("long " * 20)) == 1
