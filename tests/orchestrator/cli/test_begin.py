"""The first contact: the command alone, and the examples that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyseed.orchestrator.cli.begin import found
from manyseed.orchestrator.examples import examples
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.slurm.profile import read_profile
from tests.orchestrator.conftest import inside, write

ROOT = Path(__file__).parents[3]


def test_the_command_alone_says_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = inside()
    assert code == 0
    assert "manyseed example quickstart" in text
    assert "Sweeps here" not in text
    write(tmp_path / "mine.toml", examples()["quickstart"].text)
    write(tmp_path / "other.toml", "[tool]\nx = 1\n")
    (tmp_path / "damaged.toml").write_bytes(b"\xff\xfe[[grid]]")
    (tmp_path / "empty").mkdir()
    assert found(tmp_path) == ([], ["mine.toml"])
    assert "manyseed plan mine.toml --dry-run" in inside()[1]
    assert inside("plan", "mine.toml", "--out", "planned")[0] == 0
    assert found(tmp_path)[0] == ["planned"]
    assert "manyseed status planned" in inside()[1]
    assert found(tmp_path / "nowhere") == ([], [])


def test_examples_are_those_of_the_repository_and_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = {file.stem for file in (ROOT / "examples").glob("*.toml")}
    there |= {f"{f.parent.name}/{f.stem}" for f in (ROOT / "examples").glob("*/*.toml")}
    assert set(examples()) == there
    code, text = inside("example")
    assert code == 0
    assert all(name in text for name in there)
    assert examples()["invariance-cifar10"].title.endswith("rotated, shifted or coloured")
    assert not any(one.title.endswith((" on", " In-Domain", ".")) for one in examples().values())
    for name in there:
        file = tmp_path / f"{Path(name).name}.toml"
        assert inside("example", name)[0] == 0
        if name.startswith("clusters/"):
            assert read_profile(file).path == file
        else:
            assert read_sweep_file(file).grid
    assert (tmp_path / "mymodel.py").exists()
    before = (tmp_path / "quickstart.toml").read_bytes()
    code, text = inside("example", "quickstart")
    assert (code, "exists already" in text) == (2, True)
    assert (tmp_path / "quickstart.toml").read_bytes() == before
    code, text = inside("example", "quikstart.toml")
    assert code == 2
    assert 'did you mean "quickstart"?' in text
