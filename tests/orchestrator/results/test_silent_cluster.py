"""Results of finished runs need no scheduler that answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import command, write
from tests.orchestrator.damage import as_on_a_cluster


@pytest.fixture
def sweep(quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A finished sweep, a task of which reported no end, on a machine whose cluster is away."""
    sweep = Sweep(shutil.copytree(quick.directory, tmp_path / "sweep"))
    as_on_a_cluster(sweep.directory)
    (file,) = sweep.paths.submission(2).glob("lives/*/progress.json")
    value = json.loads(file.read_bytes()) | {"state": "running"}
    file.write_text(json.dumps(value))
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scontrol", "sinfo"):
        said = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
        write(folder / name, f"#!/bin/sh\n{said}\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return sweep


def test_finished_runs_are_analysed_shown_and_exported(sweep: Sweep, tmp_path: Path) -> None:
    for verb, *options in (
        ("analyze", "--metrics", "accuracy"),
        ("query",),
        ("report",),
        ("export", "--output", tmp_path / "x.parquet"),
    ):
        done = command(verb, sweep.directory, *options)
        assert done.returncode == 0, (verb, done.output)
