"""Tables as spreadsheets have them: a title above, totals below."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import resolve
from manyseed.orchestrator.grids.plannotes import data_notes

N = 40
_RNG = np.random.default_rng(0)
AGES = [int(age) for age in _RNG.integers(20, 90, N)]
DOSES = [f"{dose:.1f}" for dose in _RNG.normal(5, 1, N)]
LISTED = {"ill": ["ill"], "well": ["well"]}


def rows(kind: str = "ill,well") -> list[str]:
    names = kind.split(",")
    return [
        "name,age,dose,site,kind",
        *(f"p{i},{AGES[i]},{DOSES[i]},s{i % 3},{names[i % 2]}" for i in range(N)),
    ]


def file(path: Path, lines: Sequence[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return f"file:{path}"


SUM = f"{sum(AGES)},{sum(map(float, DOSES)):.0f}"


@pytest.mark.parametrize(
    ("last", "shows"),
    [
        (f",{SUM},,", "its age is the sum of those above"),
        (f"Total:,{SUM},,", 'name is "Total:"'),
        (f",{sum(AGES)},,,", "its age is the sum of those above"),
        (f"Mittelwert,{sum(AGES) / N:.2f},,,", 'name is "Mittelwert"'),
    ],
)
def test_totals_without_a_class_are_told_and_not_counted(
    tmp_path: Path, last: str, shows: str
) -> None:
    source = file(tmp_path / "t.csv", [*rows(), last])
    info = resolve(source, target="kind", row_id="name", classes=LISTED)
    assert [*data_notes(info)] == [
        f"the last row looks like totals, as {shows}; it is left out",
    ]
    assert info.n_dropped == 1
    assert (info.missing, {column.n_missing for column in info.columns}) == ((), {0})


def test_totals_with_a_class_are_told(tmp_path: Path) -> None:
    words = [*rows(), f",{SUM},,Total"]
    source = file(tmp_path / "words.csv", words)
    said = 'the last row looks like totals, as kind is "Total"; it is taken as a row of class Total'
    assert f"{said}; delete it" in [*data_notes(resolve(source, target="kind", ignore=["name"]))]
    listed = resolve(source, target="kind", ignore=["name"], classes=LISTED)
    assert {column.n_missing for column in listed.columns} == {0}
    numbers = [*rows("0,1"), f",{SUM},,{N // 2}"]
    info = resolve(file(tmp_path / "numbers.csv", numbers), target="kind", ignore=["name"])
    assert any("taken as a row of class 20; delete it" in note for note in data_notes(info))


@pytest.mark.parametrize(
    "last",
    [
        f"p40,{AGES[0]},5.0,,",  # an ordinary row, of which some cells are empty
        f",{sum(AGES)},5.0,s1,ill",
        ",,,,",
    ],
)
def test_other_rows_are_no_totals(tmp_path: Path, last: str) -> None:
    source = file(tmp_path / "t.csv", [*rows(), last])
    info = resolve(source, target="kind", ignore=["name"], classes=LISTED)
    assert not [note for note in data_notes(info) if "totals" in note]


def test_a_rare_event_in_the_last_row_is_no_total(tmp_path: Path) -> None:
    lines = ["a,b,kind", *(f"0,{int(i == 3)},{'xy'[i % 2]}" for i in range(N)), "1,1,"]
    info = resolve(file(tmp_path / "t.csv", lines), target="kind", classes={"x": ["x"], "y": ["y"]})
    assert not [note for note in data_notes(info) if "totals" in note]


def semicolons(lines: Sequence[str]) -> list[str]:
    return [line.replace(",", ";") for line in lines]


TITLES: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "padded": lambda lines: ["Study,,,,", *lines],
    "alone": lambda lines: ["Study", "", *lines],
    "dated": lambda lines: ['"Study, Ward A"', "Date:;1.2.2024", "", *semicolons(lines)],
    "comma": lambda lines: ["Study, Ward A", *semicolons(lines)],
    "sep": lambda lines: ["sep=;", "Study;;;;", *semicolons(lines)],
    "tabs": lambda lines: ["Study", *(line.replace(",", "\t") for line in lines)],
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("how", TITLES)
def test_a_title_is_told_with_the_command_that_takes_it_away(
    tmp_path: Path, how: str, encoding: str
) -> None:
    path = tmp_path / "my table.csv"
    path.write_text("\n".join([*TITLES[how](rows()), ""]), encoding=encoding)
    with pytest.raises(Refused, match=r"line [12] looks like a title, .?Study") as error:
        resolve(f"file:{path}", target="kind", ignore=["name"])
    command = error.value.reason.partition("without it: ")[2]
    subprocess.run(command, shell=True, check=True)
    new = shlex.split(command)[-1]
    assert resolve(f"file:{new}", target="kind", ignore=["name"]).class_counts == (20, 20)


def test_names_are_no_title(tmp_path: Path) -> None:
    """A file without names, and one in which a row has more cells than names."""
    with pytest.raises(Refused, match="has 4 columns without a name"):
        resolve(file(tmp_path / "a.csv", ["y,,,,", *rows()[1:]]), target="y")
    with pytest.raises(Refused, match="line 2 has 5 fields"):
        resolve(file(tmp_path / "b.csv", ["x,y", *rows()[1:]]), target="y")


@pytest.mark.parametrize(
    ("encoding", "word"),
    [
        ("windows-1252", "männlich"),
        ("windows-1252", "Größe"),
        ("windows-1252", "€"),
        ("macintosh", "männlich"),
        ("macintosh", "Größe"),
        ("cp850", "Größe"),
        ("windows-1250", "żółty"),
        ("windows-1251", "мужской"),
        ("gb18030", "北京"),
        ("shift_jis", "はい"),
    ],
)
def test_the_encoding_that_fits_is_named_and_converted_from(
    tmp_path: Path, encoding: str, word: str
) -> None:
    path = tmp_path / "t.csv"
    text = "".join(f"{line}\n" for line in rows(f"{word},b"))
    path.write_bytes(text.encode(encoding))
    with pytest.raises(Refused, match=f'; as {encoding} it reads "{word}"; ') as error:
        resolve(f"file:{path}", target="kind")
    command = error.value.reason.partition("convert it: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert Path(shlex.split(command)[-1]).read_text() == text
