"""Messages about data files that a sweep file names wrongly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.planning import plan_change
from tests.orchestrator.conftest import inside

HEAD = 'name = "x"\nseed = 1\n[[grid]]\ndataset = ["d"]\nclassifier = ["lr-sgd"]\n'
ROWS = "a,y\n" + "".join(f"{i},{'pq'[i % 2]}\n" for i in range(40))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    (folder / "sweeps").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def said(table: str) -> str:
    file = Path("sweeps/sweep.toml")
    file.write_text(f'{HEAD}[dataset.d]\n{table}\ntarget = "y"\n')
    with pytest.raises(UserError) as error:
        plan_change(file, Path("out"))
    return str(error.value)


@pytest.mark.parametrize("name", ["d.csv", "d.npz", "d.npy", "d.zarr", "d"])
def test_a_file_that_does_not_exist(here: Path, name: str) -> None:
    message = said(f'source = "file:{name}"')
    assert f'sweeps/sweep.toml: dataset.d.source = "file:{name}": does not exist: ' in message
    assert f"there is no {here / name}; paths start at the working folder" in message
    assert "beside the sweep file" not in message


def test_a_file_beside_the_sweep_file(here: Path) -> None:
    (here / "sweeps" / "d.csv").write_text(ROWS)
    message = said('source = "file:d.csv"')
    assert f"there is no {here / 'd.csv'}" in message
    assert 'that file is beside the sweep file: source = "file:sweeps/d.csv"' in message
    (here / "d.csv").write_text(ROWS)
    (here / "sweeps" / "t.csv").write_text(ROWS)
    message = said('source = "file:d.csv"\ntest_file = "t.csv"')
    assert 'dataset.d.test_file = "t.csv": does not exist' in message
    assert 'that file is beside the sweep file: test_file = "sweeps/t.csv"' in message


def test_a_path_that_is_not_written_as_a_source(here: Path) -> None:
    (here / "d.csv").write_text(ROWS)
    message = said('source = "d.csv"')
    assert message.endswith('source = "d.csv": unknown source; a file is written as "file:d.csv"')
    Path("sweep.toml").write_text(HEAD.replace('"d"', '"d.csv"'))
    with pytest.raises(UserError, match=r"unknown dataset\n.*\[dataset.d\].*\"file:d.csv\""):
        plan_change(Path("sweep.toml"), Path("out"))


def test_a_spreadsheet(here: Path) -> None:
    assert "does not exist" in said('source = "file:prices.xlsx"')
    (here / "prices.xlsx").write_bytes(b"PK")
    message = said('source = "file:prices.xlsx"')
    assert 'dataset.d.source = "file:prices.xlsx": is a spreadsheet; save it as CSV' in message
    code, printed = inside("init", "prices.xlsx")
    assert code == 2
    printed = " ".join(printed.split())
    assert 'DATA = "prices.xlsx": is a spreadsheet; save it as CSV' in printed
    command = (
        'python -c \'import polars; polars.read_excel("prices.xlsx").write_csv("prices.csv")\''
    )
    assert f"pip install fastexcel: {command}" in printed
    code, printed = inside("import", "prices.xlsx", "--out", "out")
    assert code == 2
    assert "pip install fastexcel" in printed
    assert "read_excel(f).write_parquet" in printed


@pytest.mark.parametrize(
    ("there", "keys"),
    [
        ("data.csv", 'source = "file:dta.csv"'),
        ("Data.csv", 'source = "file:data.csv"'),
        ("data/all.csv", 'source = "file:dat/all.csv"'),
        ("data.npz", 'source = "file:data.np"'),
        ("x/X_all.npy", 'source = "file:x/X_al.npy"'),
        ("pets/cat/1.png", 'source = "file:pet"'),
        ("test.csv", 'source = "file:whole.csv"\ntest_file = "tset.csv"'),
    ],
)
def test_a_misspelt_file_is_told_with_those_it_is_like(here: Path, there: str, keys: str) -> None:
    (here / "whole.csv").write_text(ROWS)
    (here / there).parent.mkdir(parents=True, exist_ok=True)
    (here / there).write_text(ROWS)
    meant = there.partition("/cat/")[0]
    assert f"; did you mean {meant}?" in said(keys)


@pytest.mark.parametrize(
    ("there", "words", "meant"),
    [
        ("sweeps/s.toml", ["plan", "sweep/s.toml", "--dry-run"], "sweeps/s.toml"),
        ("sweep.toml", ["run", "sweap.toml"], "sweep.toml"),
        ("data.csv", ["init", "dtaa.csv"], "data.csv"),
        ("train.py", ["init", "d.csv", "trian.py"], "train.py"),
        ("train.py", ["init", "d.csv", "trian.py:fit"], "train.py:fit"),
        ("mine.toml", ["cluster", "check", "./mien.toml"], "mine.toml"),
        ("my-sweep/plan/cells.parquet", ["status", "mysweep"], "my-sweep"),
    ],
)
def test_a_misspelt_path_of_a_command_is_told_with_those_it_is_like(
    here: Path, there: str, words: list[str], meant: str
) -> None:
    (here / "d.csv").write_text(ROWS)
    (here / there).parent.mkdir(parents=True, exist_ok=True)
    (here / there).touch()
    if "plan/" in there:
        (here / "my-sweep" / "sweep.toml").touch()
    code, printed = inside(*words)
    assert (code, f'did you mean "{meant}"?' in " ".join(printed.split())) == (2, True), printed


@pytest.mark.parametrize(
    ("there", "classifier", "key", "meant"),
    [
        ("mymodel.py", "own", 'estimator = "mymodle:Net"', "mymodel"),
        (
            "mymodel.py",
            "own",
            'command = "python mymodle.py --train {train} --test {test} --out {out}"',
            "mymodel.py",
        ),
        ("all.pth", "vit-transfer", 'weights = "al.pth"', "all.pth"),
    ],
)
def test_misspelt_code_and_weights_are_told_with_those_they_are_like(
    here: Path, there: str, classifier: str, key: str, meant: str
) -> None:
    (here / there).touch()
    source = '"torchvision:CIFAR10"' if "weights" in key else '"sklearn:wine"'
    text = HEAD.replace('"lr-sgd"', f'"{classifier}"').replace('"d"', source)
    Path("s.toml").write_text(f"{text}[classifier.{classifier}]\n{key}\n")
    with pytest.raises(UserError) as error:
        plan_change(Path("s.toml"), Path("out"))
    assert re.search(rf"did you mean (\S*/)?{meant}\?", str(error.value)), error.value
