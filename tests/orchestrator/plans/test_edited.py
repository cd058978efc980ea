"""A sweep file that was edited and not planned is told of; what is trained is the plan."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from manyseed.orchestrator.plans.edited import edited, warn_of_edits
from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.conftest import QUICK, command, write

MORE = QUICK.replace("runs    = 4", "runs    = 5")
LATER = 10.0  # seconds


def later(file: Path, text: str) -> Path:
    write(file, text)
    written = file.stat().st_mtime + LATER
    os.utime(file, (written, written))
    return file


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    monkeypatch.chdir(tmp_path)
    return Sweep.plan(write(tmp_path / "sweep.toml", QUICK), tmp_path / "quick")


def test_nothing_is_told_of_what_was_planned(sweep: Sweep, tmp_path: Path) -> None:
    assert edited(sweep.paths) is None
    later(tmp_path / "sweep.toml", f"# a comment\n{QUICK}\n[analysis]\nlevel = 0.01\n")
    assert edited(sweep.paths) is None, "the same runs"
    later(sweep.paths.sweep_file, f"# a comment\n{QUICK}")
    assert edited(sweep.paths) is None, "the same runs"
    later(tmp_path / "sweep.toml", MORE.replace('"quick"', '"another"'))
    assert edited(sweep.paths) is None, "another sweep's"


@pytest.mark.parametrize("text", [MORE, QUICK.replace("runs    = 4", "runs    = 3"), "x"])
def test_the_file_beside_a_sweep(text: str, sweep: Sweep, tmp_path: Path) -> None:
    later(tmp_path / "sweep.toml", text)
    expected = None if text == "x" else Path("sweep.toml")  # `plan` tells of what is no TOML
    assert edited(sweep.paths) == expected


def test_its_own_file(sweep: Sweep) -> None:
    later(sweep.paths.sweep_file, MORE)
    assert edited(sweep.paths) == sweep.paths.sweep_file
    Sweep.plan(sweep.paths.sweep_file, sweep.directory)
    assert edited(sweep.paths) is None


def test_submit_and_resume_say_it(sweep: Sweep, tmp_path: Path) -> None:
    later(tmp_path / "sweep.toml", MORE)
    done = command("resume", sweep.directory, "--cluster", "local", "--workers", "1")
    assert done.returncode == 0
    assert "sweep.toml was edited after it was planned" in done.stderr
    assert "manyseed plan sweep.toml" in done.stderr
    sweep.wait()
    assert sweep.status()["runs"]["done"] + sweep.status()["runs"]["copy"] == 64, "the plan's runs"
    with pytest.warns(UserWarning, match="edited after it was planned"):
        assert sweep.submit() is None


def test_the_command_plans_into_the_sweep_wherever_it_is_typed(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(tmp_path / "sweep.toml", MORE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="plan it again with") as told:
        warn_of_edits(sweep.paths)
    (text,) = (str(one.message) for one in told)
    verb, *words = shlex.split(text.partition("again with: manyseed ")[2])
    assert command(verb, *words).returncode == 0
    assert sweep.status()["runs"]["runs"] == 80
    assert not list(Path().iterdir())
    assert edited(sweep.paths) is None
