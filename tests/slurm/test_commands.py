"""SLURM's commands: a long wait for one is told."""

from __future__ import annotations

import pytest

from manyseed.slurm import commands


def test_a_command_that_does_not_answer_at_once_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "_SILENT_SECONDS", 0.1)
    assert commands.run(["sleep", "0.5"]) == ""
    assert capsys.readouterr().err == "Waiting for SLURM: sleep has 120 s to answer.\n"
    monkeypatch.setattr(commands, "_SILENT_SECONDS", 60)
    assert commands.run(["true"]) == ""
    assert capsys.readouterr().err == ""
