"""``plan --cluster``: what a plan takes there, before and after some of it is finished."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.submissions import cluster
from manyseed.slurm import ClusterUnavailable, commands
from manyseed.slurm.profile import user_folder
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
    assert "On lab: 3 CPU tasks of 2 processes, 2G per task, 3 at once; about " in shown
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


def test_jobs_that_would_wait_for_ever_are_told_as_submit_does(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"sbatch": "", "scontrol": CONFIG, "sinfo": NODES.replace("infinite", "0:03:00")}
    monkeypatch.setattr(commands, "run", lambda words, **_: short.get(words[0], ""))
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    shown = command("plan", file, "--out", out, "--cluster", lab).stdout
    assert "the longest task" not in shown
    refused = command("submit", out, "--cluster", lab)
    assert refused.returncode == 2
    told = 'cpu.time = "0:10:00": jobs would wait for ever: cpu gives 0:03:00 at most'
    assert told in refused.stderr
    assert f"On lab: not known, as submit refuses it: {lab}: {told}\n  write time" in shown


@pytest.mark.parametrize("minutes", ["1", "2", "0:02:00"])
def test_walltimes_that_leave_no_time_to_train(minutes: str, lab: Path, tmp_path: Path) -> None:
    write(lab, PROFILE.replace("0:10:00", minutes))
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    shown = command("plan", file, "--out", out, "--cluster", lab)
    assert shown.returncode == 0
    assert "On lab: not known, as submit refuses it" in shown.stdout
    assert "more than 120 s, when tasks are asked to end before it" in shown.stdout
    refused = command("submit", out, "--cluster", lab)
    assert refused.returncode == 2
    assert "more than 120 s" in refused.stderr


def test_a_partition_that_slurm_does_not_list(lab: Path, tmp_path: Path) -> None:
    write(lab, PROFILE.replace("[cpu]", '[cpu]\npartition = "cpu,long"'))
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    shown = command("plan", file, "--out", out, "--cluster", lab).stdout
    assert 'On lab: not known, as SLURM lists no partition "long" (cpu.partition); ' in shown
    assert "it lists cpu" in shown
    assert f"\nOnce {lab} is corrected: manyseed submit {out} --cluster {lab}\n" in shown


def test_runs_of_a_plan_that_is_written_count_once(lab: Path, tmp_path: Path) -> None:
    write(lab, PROFILE.replace("parallelism = 3", "parallelism = 64"))
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    for _ in range(2):  # not planned before, and again
        done = command("plan", file, "--out", out, "--cluster", lab, "--json")
        (told,) = json.loads(done.stdout)["on_cluster"]
        assert told["tasks"] == 4


def test_the_next_command_names_the_cluster_as_it_was_given(lab: Path, tmp_path: Path) -> None:
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    user_folder().mkdir(parents=True)
    write(user_folder() / "testcluster.toml", PROFILE)
    done = command("plan", file, "--out", out, "--cluster", lab)
    assert done.stdout.splitlines()[-1] == f"Next: manyseed submit {out} --cluster {lab}"


def test_each_task_takes_the_time_to_start(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"

    def told() -> dict[str, float]:
        done = command("plan", file, "--out", out, "--cluster", lab, "--json")
        (one,) = json.loads(done.stdout)["on_cluster"]
        return one

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "START_SECONDS", 0.0)
        trained = told()
    whole = told()
    start = cluster.START_SECONDS / 3600
    assert whole["task_hours"] == pytest.approx(trained["task_hours"] + start)
    assert whole["hours"] >= trained["hours"] + start


LONG = """
name = "long"
seed = 1
repeats = 1
runs = 4
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["NAME"]
[classifier.mlp]
epochs = 20
"""


@pytest.mark.parametrize("name", ["mlp", "xgb"])
def test_a_fit_that_is_longer_than_the_walltime(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Networks go on from a checkpoint; others would be cut off again and again."""
    text = LONG.replace("NAME", name)
    text = text if name == "mlp" else text.partition("[classifier")[0]
    file, out = write(tmp_path / "long.toml", text), tmp_path / "sweep"
    write(lab, PROFILE.replace("0:10:00", "0:03:00"))
    Sweep.plan(file, out)
    priced = cost._priced
    monkeypatch.setattr(
        cost, "_priced", lambda *given: priced(*given).with_columns(seconds=pl.lit(526.0))
    )
    shown = command("plan", file, "--out", out, "--cluster", lab)
    submitted = command("submit", out, "--cluster", lab)
    if name == "mlp":
        told = (
            "A fit of mlp is expected to take 8 min 46 s, longer than a task trains in its "
            "walltime of 3 min 00 s: it goes on from its checkpoint when the task is started again."
        )
        assert told in shown.stdout
        assert (submitted.returncode, told in submitted.stdout) == (0, True), submitted.output
        return
    told = (
        f"{lab}: time: the walltime is too short for one fit: xgb on sklearn:wine is expected to "
        "train for 8 min 46 s without a checkpoint, a task for 1 min 00 s: it would be cut off "
        'again and again\n  write time = "0:20:00", or '
    )
    assert told in shown.stdout, shown.output
    assert "checkpoint when" not in shown.stdout
    assert (submitted.returncode, told in submitted.stderr) == (2, True), submitted.output
    write(lab, PROFILE.replace("0:10:00", "0:01:00"))
    shown = command("plan", file, "--out", out, "--cluster", lab)
    assert "must be more than 120 s, when tasks are asked to end before it" in shown.stdout
    assert list(out.glob("tasks/0*")) == []


def test_too_little_memory_is_told_with_the_line_to_write(lab: Path, tmp_path: Path) -> None:
    file, out = write(tmp_path / "wine.toml", WINE), tmp_path / "sweep"
    options = ("plan", file, "--out", out, "--cluster", lab)
    assert "before any data" not in " ".join(command(*options).stdout.split())
    for given, key, share in (("mem-per-cpu", "mem-per-cpu", 2), ("mem", "mem", 1)):
        write(lab, PROFILE.replace('mem-per-cpu = "1G"', f'{given} = "60M"'))
        told = " ".join(command(*options, "--dry-run").stdout.split())
        line = f'write {key} = "{512 // share}M" in {lab}.'
        assert "CPU tasks ask for " in told
        assert f"but 2 processes of one need 235M before any data: {line}" in told
        done = " ".join(command("submit", out, "--cluster", lab, "--limit", 1).stdout.split())
        assert line in done
        write(lab, PROFILE.replace('mem-per-cpu = "1G"', f'{key} = "{512 // share}M"'))
        assert "before any data" not in command(*options, "--dry-run").stdout
