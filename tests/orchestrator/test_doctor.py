"""What `manyseed doctor` finds on machines and file systems that lack something."""

from __future__ import annotations

import json
import os
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from manyseed.orchestrator import doctor
from manyseed.orchestrator.doctor import Check, examine
from manyseed.slurm.commands import ClusterUnavailable
from tests.orchestrator.conftest import inside


def problems(folder: Path) -> dict[str, Check]:
    return {check.what: check for check in examine(folder) if check.problem}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.commands, "available", lambda: False)


def test_a_machine_that_has_everything(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    assert problems(folder) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path) -> None:
    code, text = inside("doctor", tmp_path, "--json")
    found = json.loads(text)["checks"]
    assert code == 0
    named = {check["what"]: check for check in found}
    assert named["claiming names"]["answer"] == "the second is refused"
    assert not any(check["problem"] for check in found if check["what"] != "SLURM")
    assert list(tmp_path.iterdir()) == []
    code, text = inside("doctor", "/proc")
    assert code == 4
    assert "choose a folder" in text


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    (found,) = problems(tmp_path).values()
    assert found.needed
    assert "hard links" in found.problem
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_lets_two_writers_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "place_new", lambda path, data: path.write_bytes(data))
    (found,) = problems(tmp_path).values()
    assert (found.what, found.needed) == ("claiming names", True)


def test_a_file_system_that_ignores_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, read = Path.write_text, Path.read_text

    def lower(path: Path) -> Path:
        return path.with_name(path.name.lower())

    monkeypatch.setattr(Path, "write_text", lambda self, text: written(lower(self), text))
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda self, **how: read(lower(self) if self.name == "Case" else self, **how),
    )
    (found,) = problems(tmp_path).values()
    assert (found.what, found.needed) == ("names of files", False)


def test_a_clock_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr(doctor.time, "time", lambda: now() + 100)
    (found,) = problems(tmp_path).values()
    assert found.what == "clock"
    assert "100.0 s off" in found.answer


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(tmp_path)
    values = list(real)
    values[4] = 10  # blocks for users who are not root
    monkeypatch.setattr(doctor.os, "statvfs", lambda path: os.statvfs_result(values))
    (found,) = problems(tmp_path).values()
    assert (found.what, found.needed) == ("free space", False)


@pytest.mark.parametrize(
    ("missing", "what", "needed"),
    [
        ({"zarr"}, "libraries", True),
        ({"torch", "torchvision"}, "PyTorch", False),
        ({"xgboost-cpu", "xgboost"}, "XGBoost", False),
    ],
)
def test_libraries_that_are_not_installed(
    missing: set[str], what: str, needed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name in missing:
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(doctor, "version", version)
    found = problems(tmp_path)
    if what != "XGBoost":
        found.pop("XGBoost")  # here both builds are there
    assert [(check.what, check.needed) for check in found.values()] == [(what, needed)]


def test_a_controller_that_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> None:
        raise ClusterUnavailable("no answer within 20 s")

    monkeypatch.setattr(doctor.commands, "available", lambda: True)
    monkeypatch.setattr(doctor, "discover", silent)
    (found,) = problems(tmp_path).values()
    assert (found.what, found.needed) == ("SLURM", False)
