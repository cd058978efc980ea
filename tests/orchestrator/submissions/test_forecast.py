"""``plan --cluster``: what a plan takes there, before and after some of it is finished."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.orchestrator.submissions import cluster
from manyseed.slurm import ClusterUnavailable, commands
from tests.orchestrator.conftest import command, write
from tests.orchestrator.slurmstub import CONFIG
from tests.orchestrator.submissions.test_cluster import WINE

PROFILE = 'time = "0:10:00"\nparallelism = 3\n[cpu]\ncpus-per-task = 2\nmem-per-cpu = "1G"\n'
NODES = "cpu*|up|infinite|infinite|2|4|4000|(null)\n"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile of a cluster of two nodes with four cores each; tasks may be short."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answers = {"sbatch": "Submitted batch job 7", "scontrol": CONFIG, "sinfo": NODES}
    monkeypatch.setattr(commands, "run", lambda words, **_: answers.get(words[0], ""))
    monkeypatch.setattr(cluster, "_LEAST_SECONDS", 1e-9)
    return write(tmp_path / "lab.toml", PROFILE)


def test_tasks_are_those_that_are_submitted(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    options = ("plan", file, "--out", out, "--cluster", lab)
    (told,) = json.loads(command(*options, "--dry-run", "--json").stdout)["on_cluster"]
    assert (told["tasks"], told["processes"], told["memory"]) == (3, 2, 2 * 2**30)
    assert (told["at_once"], told["waves"]) == (3, 1)
    assert 0 < told["task_hours"] <= told["hours"] < told["walltime_hours"] == 1 / 6
    assert not out.exists()
    shown = command(*options).stdout
    assert "On lab: 3 CPU tasks of 2 processes, 2.15 GB each, 3 at once; about " in shown
    submission = Sweep(out).submit(cluster=str(lab))
    assert submission is not None
    assert submission.intent.tasks == told["tasks"]
    # one at a time: three waves, each as long as a third
    write(lab, PROFILE.replace("parallelism = 3", "parallelism = 1\nmax-jobs = 9"))
    (told,) = json.loads(command(*options, "--set", "runs=40", "--json").stdout)["on_cluster"]
    assert (told["at_once"], told["waves"]) == (1, told["tasks"])
    assert told["hours"] >= told["task_hours"]


def test_a_cluster_that_is_away_or_unknown(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    for name in ("no-such-lab", "local"):
        done = command("plan", file, "--out", out, "--cluster", name)
        assert done.returncode == 2
        assert name in done.stderr
        assert not out.exists()

    def away(words: list[str], **_: object) -> str:
        raise ClusterUnavailable(f"{words[0]} does not answer")

    monkeypatch.setattr(commands, "run", away)
    shown = command("plan", file, "--out", out, "--cluster", lab).stdout
    assert "On lab: not known, as " in shown
    assert "Planned into" in shown
