"""What verbs print fits a screen of 40 lines of 80 columns, and says nothing twice."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.analysis.questions.question import MOST_ROWS, WORDS, Answer, Reply
from manyseed.orchestrator.cli import answers, output
from tests.analysis.planted import planted
from tests.analysis.questions.test_answers import headlines
from tests.orchestrator.conftest import inside, train, write

LINES, COLUMNS = 40, 80
HOWMANY = ("howmany", "--sizes", "1,2", "--draws", "10")
VERBS = (
    ("analyze",),
    ("answers",),
    ("answers", "accuracy"),
    ("answers", "effects"),
    ("answers", "alike"),
    ("answers", "verdicts"),
    ("answers", "until", "--half-width", "0.2", "--dry-run"),
    ("compare",),
    ("compare", "--metric", "ece"),
    ("variance",),
    HOWMANY,
    ("methods",),
    ("plot",),
    ("plot", "cells", "-o", "OUT.svg"),
    ("report",),
    ("status",),
    ("status", "--usage"),
    ("query",),
    ("query", "--by", "classifier"),
    ("logs", "--failed"),
    ("show", "0:0:0"),
    ("verify",),
    ("export", "-o", "OUT.zip"),
    ("resume",),
    ("seal",),
    ("verify", "--sealed"),
)
LONG = {"methods", "show", "alike"}
"""Verbs that print a text, or a list that was asked for: as long as they are."""
REFUSED = {"until", "resume", "ece"}
"""What not every sweep of these can be asked."""


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as on a terminal of 80 columns."""
    monkeypatch.setattr(output.console, "_width", COLUMNS)
    monkeypatch.setattr(output.console, "_force_terminal", True)


def varied(folder: Path) -> Sweep:
    """Runs that differ in other sources of randomness, by level of vary."""
    text = """
name = "varied"
seed = 1
repeats = 3
runs = 4
[[grid]]
dataset = ["sklearn:iris"]
classifier = ["lr-sgd", "svm-sgd"]
vary = ["batch", "train"]
"""
    return _analysed(train(write(folder / "varied.toml", text), folder / "sweep", workers=1))


def images(folder: Path) -> Sweep:
    """Networks on images, with names as long as people give them."""
    text = """
name = "images"
seed = 1
repeats = 2
runs = 3
[[grid]]
dataset = ["handwritten-digits-of-1998"]
classifier = ["small-convolutional-network", "lr-sgd"]
[dataset.handwritten-digits-of-1998]
source = "sklearn:digits"
test = 0.8
[classifier.small-convolutional-network]
kind = "cnn"
epochs = 1
"""
    return _analysed(train(write(folder / "images.toml", text), folder / "sweep", workers=1))


def imported(folder: Path) -> Sweep:
    """Predictions of two classifiers, one of which varies little."""
    generator = np.random.default_rng(0)
    y_true = generator.integers(0, 3, 300)
    given = {}
    for name, noise in (("resnet50", 0.5), ("gradient-boosting", 1.5)):
        shown = 2 * np.eye(3)[y_true] + generator.normal(size=(300, 3))
        scores = shown + noise * generator.normal(size=(6, 300, 3))
        given[name] = {"scores": scores, "y_true": y_true}
    return _analysed(Sweep.from_predictions(given, folder / "sweep", dataset="patients-of-2024"))


def _analysed(sweep: Sweep) -> Sweep:
    sweep.analyze(Options(resamples=5), workers=1)
    return sweep


MADE = {"varied": varied, "images": images, "imported": imported}


@pytest.fixture(scope="module", params=["quick_analysed", "quick_calibrated", *MADE])
def sweep(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a finished sweep, or one made here."""
    if made := MADE.get(request.param):
        return made(tmp_path_factory.mktemp(request.param)).directory
    of: Sweep = request.getfixturevalue(request.param)
    return shutil.copytree(of.directory, tmp_path_factory.mktemp("screens") / "sweep")


def _is_whole(line: str) -> bool:
    """Return whether a line is a command to copy, or has a path that fills it: not broken."""
    return "manyseed " in line or max(map(cell_len, line.split())) > COLUMNS // 2


def lint(text: str, *, is_long: bool = False) -> list[str]:
    """Return what is wrong with what a verb printed."""
    lines = [re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", line).rstrip() for line in text.splitlines()]
    found = [f"{len(lines)} lines"] if len(lines) > LINES and not is_long else []
    found += [
        f"{cell_len(line)} columns: {line}"
        for line in lines
        if cell_len(line) > COLUMNS and not _is_whole(line)
    ]
    times: Counter[tuple[str, str]] = Counter()
    above = ""  # a row of a nested table has a name above it, and may be as that of another
    for line in lines:
        above = above if line.startswith("  ") else line
        if len(line.split()) > 2:
            times[above if line.startswith("  ") else "", line.strip()] += 1
    return [*found, *(f"{n} times: {line}" for (_, line), n in times.items() if n > 1)]


@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_output_fits_a_screen_and_says_nothing_twice(
    sweep: Path, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    name, *options = (word.replace("OUT", str(tmp_path / "out")) for word in verb)
    if "--sealed" in options:  # another process may have run the test of seal
        assert inside("seal", sweep)[0] == 0
    code, said = inside(name, sweep, *options)
    assert code == 0 or (code == 2 and REFUSED & {*verb}), said
    if code == 0:
        assert lint(said, is_long=bool(LONG & {*verb})) == [], said


@pytest.mark.usefixtures("screen")
def test_what_is_said_of_failed_runs_fits_a_screen(tmp_path: Path) -> None:
    text = """
name = "failing"
seed = 3
repeats = 4
runs = 4
[[grid]]
dataset = ["rare"]
classifier = ["lr-sgd", "svm-sgd"]
train_fraction = [3, 1.0]
[dataset.rare]
source = "synthetic:gaussian"
n_samples = 400
weights = [0.97, 0.03]
"""
    folder = train(write(tmp_path / "failing.toml", text), tmp_path / "sweep", workers=1).directory
    for verb in ("status", "logs --failed", "analyze --resamples 5", "answers", "report"):
        code, said = inside(verb.split()[0], folder, *verb.split()[1:])
        assert code in (0, 1, 3), f"{verb}: {said}"
        assert lint(said) == [], f"{verb}: {said}"


@pytest.mark.usefixtures("screen", "without_slurm")
def test_what_begins_a_sweep_fits_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = Path(__file__).parents[3] / "examples" / "quickstart.toml"
    rows = "".join(f"{n % 5}.5,{n},{'ab'[n % 2]}\n" for n in range(40))
    Path("mine.csv").write_text(f"x,number,y\n{rows}")
    np.savez("theirs.npz", labels=np.eye(4, 30, dtype=int), y_true=np.arange(30) % 2)
    for words in (
        ("plan", example, "--dry-run"),
        ("plan", example, "--out", "sweep"),
        ("plan", example, "--out", "sweep"),
        ("plan", "sweep", "--drop", "classifier = 'xgb'", "--dry-run"),
        ("status", "sweep"),
        ("init", "mine.csv"),
        ("plan", "sweep.toml", "--dry-run"),
        ("import", "theirs.npz", "--out", "theirs"),
        ("init",),
        (),
    ):
        code, said = inside(*words)
        assert code in (0, 3), said
        is_long = words == ("init",)  # it lists all examples
        assert lint(said, is_long=is_long) == [], f"{words}: {said}"


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
        if "1 comparison\n" in short:
            continue  # which says it all
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


@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize("left", [0, 5])
def test_a_table_of_many_datasets_fits_a_screen(
    left: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each dataset has a line above its rows."""
    rows = [[f"data {number}", "a, b", "not told", number] for number in range(20)]
    found = [Answer(f"data {number}", ("for a, b",)) for number in range(20)]
    heads = ["", "", "which", "runs"]
    answers._say(Reply(found, columns=heads, table=rows, below=["Notes."], left=left), why=False)
    said = capsys.readouterr().out
    assert lint(said) == [], said
    assert f"… {20 - answers._MOST_LINES // 2 + left} more; see " in said
    answers._say(Reply(found, columns=heads, table=rows), why=False, limit=20)
    assert "more; see" not in capsys.readouterr().out, "as many as were asked for"


def test_headlines_of_many_datasets_leave_room_on_a_screen() -> None:
    """At 80 columns, the quickstart's filled 42 lines, and about 50 at the end of ``run``."""
    tables = planted(
        3,
        ("lr-sgd", "svm-sgd", "xgb", "mlp"),
        ("none", "sig-digit:0", "relative:0.5"),
        (0.5, 1.0),
        repeats=3,
        runs=4,
        accuracy=lambda _, name, scheme, share: (
            0.9 - 0.02 * len(name) * (scheme != "none") - share / 50
        ),
    )
    lines = [line for _, text in headlines(tables) for line in text.splitlines()]
    assert max(len(line.split()) for line in lines) <= WORDS
    assert sum(len(textwrap.wrap(line, COLUMNS)) for line in lines) <= 24, lines


def test_the_linter_finds_what_it_is_for() -> None:
    assert lint("one two three\n" * 2) == ["2 times: one two three"]
    assert lint("x\n" * 41) == ["41 lines"]
    assert len(lint("long " * 20)) == 1
    assert len(lint(f"a/b {'long ' * 20}")) == 1
    assert lint(f"Wrote {'/folder' * 12}.") == []
