"""Messages about data files that a sweep file names wrongly."""

from __future__ import annotations

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
    assert 'DATA = "prices.xlsx": is a spreadsheet; save it as CSV' in " ".join(printed.split())
