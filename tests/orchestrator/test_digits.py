"""A number in a text has ASCII digits: in names, addresses, options, schemes, variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import typer

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.jobs.checks import Refused, parsed
from manyseed.jobs.datasets.csvfile import read
from manyseed.jobs.hparams import canonical
from manyseed.orchestrator.cli.commands import app
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.classes import by_numbers
from manyseed.orchestrator.importing.patterns import Pattern
from tests.orchestrator.conftest import inside
from tests.orchestrator.hostile import predicted

OTHERS = ("٣", "３", "३", "²", "1٣", "1_0")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("digits")
    made = Sweep.from_predictions(predicted(), folder / "s", dataset="d", classifier="c")
    made.analyze(Options(resamples=10))
    return made


@pytest.mark.parametrize("digits", OTHERS)
def test_only_ascii_digits_are_a_number(digits: str) -> None:
    for kind in (int, float):
        with pytest.raises(ValueError, match=r"number|invalid literal"):
            parsed(kind, digits)
    assert (parsed(int, "-3"), parsed(float, "1.5e3"), parsed(float, 2)) == (-3, 1500.0, 2.0)


def numbers(verb: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every option of every verb that is a number."""
    for name, inner in getattr(verb, "commands", {}).items():
        yield from numbers(inner, (*path, name))
    for one in verb.params:
        kind = getattr(getattr(one, "type_descriptor", None), "annotation", None)
        if kind in (int, float) and one.opts[0].startswith("--"):
            yield path, one.opts[0]


def test_every_option_of_a_number_refuses_other_digits(sweep: Sweep) -> None:
    digits, tried = cycle(OTHERS), 0
    for verb, option in numbers(typer.main.get_command(app)):
        given = next(digits)
        code, said = inside(*verb, option, given)
        assert (code, "is not a valid" in said) == (2, True), (verb, option, given, said)
        tried += 1
    assert tried > 40


WORDS = {  # commands, and a number that they take
    "query DIR -w cell={}": "0",
    "query DIR -w cell<{}.5": "1",
    "howmany DIR --sizes 1,{} --draws 10": "2",
    "plot DIR accuracy -o F.svg --width {}": "90",
    "show DIR 0:0:{}": "3",
    "show DIR 0:{}:0": "0",
    "show DIR {}:0:0": "0",
    'plan t.toml --dry-run --set grid[{}].classifier=["svm-sgd"]': "0",
    'plan t.toml --dry-run --set grid.perturb_continuous=["relative:{}"]': "0.1",
    'plan t.toml --dry-run --set grid.perturb_hparams=["sig-digit:{}"]': "1",
    "plan t.toml --dry-run --budget {}coreh": "1",
}
SWEEP = 'name = "t"\nseed = 1\n[[grid]]\ndataset = ["sklearn:wine"]\nclassifier = ["lr-sgd"]\n'


@pytest.mark.parametrize("words", WORDS)
def test_no_address_condition_or_scheme_takes_other_digits(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.toml").write_text(SWEEP)
    for digits in (*OTHERS, WORDS[words]):
        asked = words.replace("DIR", str(sweep.directory)).format(digits).split()
        code, said = inside(*asked)
        assert (code, "Traceback" in said) == (2 * (digits in OTHERS), False), (asked, said)
        assert (tmp_path / "F.svg").exists() == ("F.svg" in words and digits not in OTHERS)


@pytest.mark.parametrize("digits", OTHERS)
def test_variables_and_names_of_files_take_ascii_digits(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, digits: str
) -> None:
    with pytest.raises(UserError, match="train_fraction"):
        Pattern("f={train_fraction}/a.csv").read(Path(f"/x/f=0.{digits}/a.csv"))
    assert Pattern("f={train_fraction}/a.csv").read(Path("/x/f=0.5/a.csv")) == {
        "train_fraction": 0.5
    }
    assert Pattern("r{run}.csv").read(Path(f"/x/r{digits}.csv")) is None
    monkeypatch.setenv("MANYSEED_LEASE_SECONDS", f"1{digits}")
    code, said = inside("verify", sweep.directory, "--repair")
    assert (code, "MANYSEED_LEASE_SECONDS" in said) == (2, True), said


@pytest.mark.parametrize("digits", OTHERS)
def test_strengths_of_schemes_take_ascii_digits(digits: str) -> None:
    for scheme in (f"sig-digit:{digits}", f"relative:0.{digits}", f"absolute:0.{digits}"):
        with pytest.raises(Refused):
            canonical(scheme)


@pytest.mark.parametrize("digits", ["٣", "1٣", "३"])
def test_a_table_with_other_digits_holds_text_there(tmp_path: Path, digits: str) -> None:
    file = tmp_path / "r.csv"
    file.write_text(f"row_id,truth,prediction,run\n0,a,a,{digits}\n1,b,b,{digits}\n")
    code, said = inside("import", file, "--out", tmp_path / "out")
    assert (code, "r.csv: run: must be whole numbers" in said) == (2, True), said
    frame = read(f"x,y\n{digits},1\n4,2\n".encode())
    assert frame.rows() == [(digits, 1), ("4", 2)]
    assert read(f"x;y\n{digits};1,5\n".encode()).rows() == [(digits, 1.5)]


@pytest.mark.parametrize("digits", ["٢", "２", "२", "1٢"])
def test_classes_are_ordered_by_ascii_digits(digits: str) -> None:
    for name in (digits, f"c{digits}"):
        ascii_parts = re.findall("[0-9]+", name)
        read = [part for kind, _, part in by_numbers(name) if kind < 2]
        assert read == ascii_parts, name
    assert sorted(["c10", "c2", "10", "2"], key=by_numbers) == ["2", "10", "c2", "c10"]
