"""Runs can be counted on a machine that lacks the weights that they need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.orchestrator.conftest import command

EXAMPLE = Path(__file__).parents[3] / "examples" / "vit-transfer-90.toml"


@pytest.fixture(autouse=True)
def _no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "none"))


def test_a_dry_run_counts_and_says_what_planning_needs(tmp_path: Path) -> None:
    done = command("plan", EXAMPLE, "--dry-run", "--out", tmp_path / "sweep")
    assert done.returncode == 0, done.output
    assert "Asked for 90 runs in " in done.stdout
    assert "weights are needed: those of swin_t are not in" in done.stdout
    value = json.loads(command("plan", EXAMPLE, "--dry-run", "--json").stdout)
    assert value["runs"] == 90
    assert len(value["absent_weights"]) == 1


def test_a_plan_is_refused_as_its_identities_would_be_wrong(tmp_path: Path) -> None:
    done = command("plan", EXAMPLE, "--out", tmp_path / "sweep")
    assert done.returncode == 2
    assert "those of swin_t are not in" in done.stderr
    assert not (tmp_path / "sweep").exists()


def test_a_wrong_path_is_an_error_of_the_file(tmp_path: Path) -> None:
    given = ("--set", 'classifier.vit-transfer.weights="no.pth"')
    done = command("plan", EXAMPLE, "--dry-run", *given, "--out", tmp_path / "sweep")
    assert done.returncode == 2
    assert '"no.pth": there is no such file' in done.stderr
