"""SLURM's commands: a long wait for one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyseed.slurm import commands
from manyseed.slurm.testcluster import TestCluster


def test_the_test_clusters_commands_hear_no_defaults_either(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = ("SINFO_FORMAT", "SQUEUE_USERS", "SACCT_FORMAT", "SLURM_JOB_ID", "SLURMD_NODENAME")
    for name in (*named, "SLURM_CLUSTERS", "SLURM_CONF_SERVER"):
        monkeypatch.setenv(name, "other")
    seen = TestCluster(tmp_path).command(["env"]).splitlines()
    assert "other" not in {line.partition("=")[2] for line in seen}
    assert f"SLURM_CONF={tmp_path}/etc/slurm.conf" in seen


def test_a_command_that_does_not_answer_at_once_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "_SILENT_SECONDS", 0.1)
    monkeypatch.setattr(commands, "_told_of", set())
    assert commands.run(["sleep", "0.5"]) == ""
    assert capsys.readouterr().err == "Waiting for SLURM: sleep has 120 s to answer.\n"
    assert commands.run(["sleep", "0.5"]) == "", "watched for minutes, it is named once"
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(commands, "_SILENT_SECONDS", 60)
    assert commands.run(["true"]) == ""
    assert capsys.readouterr().err == ""
