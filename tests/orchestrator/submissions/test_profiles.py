"""Which cluster is meant: never a login node in silence, never one that a sweep directory names."""

from __future__ import annotations

import getpass
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.tree import DecisionTreeClassifier

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.progress.status import next_steps
from manyseed.orchestrator.submissions.profiles import (
    choose,
    needed,
    own_profile,
    remember,
    words_of_clusters,
)
from manyseed.orchestrator.submissions.submission import ELSEWHERE, Submission, last_intent
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.tasks.intent import Intent
from manyseed.slurm import discover
from manyseed.slurm.commands import ClusterUnavailable
from manyseed.slurm.processes import fingerprint
from manyseed.slurm.profile import read_profile, user_folder
from manyseed.slurm.testcluster import TestCluster
from tests.orchestrator.conftest import QUICK, command, inside, write
from tests.orchestrator.damage import as_on_a_cluster

SQUEUE = """#!/bin/sh
echo "$(basename $0) conf=$SLURM_CONF" >> {folder}/asked
case $(basename $0) in
  scontrol) echo "ClusterName = here";;
  squeue) cat {folder}/queue 2>/dev/null;;
esac
exit 0
"""
OTHERS = Intent("lab", "elsewhere boot 1 2", submitted=1.0, user="anna", scheduler="theirs")


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A login node whose SLURM commands note what configuration they are given."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scontrol", "scancel"):
        write(bin_folder / name, SQUEUE.format(folder=tmp_path)).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SLURM_JOB_ID", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def profile_of(name: str, conf: Path | None = None, folder: Path | None = None) -> Path:
    folder = folder or user_folder()
    folder.mkdir(parents=True, exist_ok=True)
    text = 'time = "60"\n' + ("" if conf is None else f'slurm-conf = "{conf}"\n')
    return write(folder / f"{name}.toml", text)


def asked(login: Path) -> list[str]:
    file = login / "asked"
    return file.read_text().splitlines() if file.exists() else []


def test_nothing_is_trained_on_a_login_node_unless_it_is_named(login: Path) -> None:
    sweep = Sweep.plan(write(login / "quick.toml", QUICK), login / "sweep")
    planned = command("plan", login / "quick.toml", "--out", sweep.directory).stdout
    (first,) = (line for line in planned.splitlines() if line.startswith("First: "))
    assert first.startswith("First: manyseed cluster init")
    assert first.endswith(
        f"; or, to train on this machine: manyseed submit {sweep.directory} --cluster local"
    )
    assert first in command("status", sweep.directory).stdout
    before = sorted(login.rglob("*"))
    for out in (sweep.directory, login / "new"):
        code, said = inside("run", login / "quick.toml", "--out", out)
        assert (code, "cluster init" in said) == (2, True), said
    refused = command("resume", sweep.directory)
    assert refused.returncode == 2, refused.stdout
    assert "manyseed cluster init" in refused.stderr
    # the second choice, which a user of a login node may decline
    assert refused.stderr.endswith("\n  to train on this machine all the same: --cluster local\n")
    with pytest.raises(UserError, match=r"(?s)on one machine.*sbatch "):
        sweep.tune()
    assert sorted(login.rglob("*")) == before
    assert sweep.tune(cluster="local") == []


def test_a_sweep_of_imported_predictions_asks_for_no_profile(login: Path) -> None:
    scores, y_true = 2 * np.eye(2)[[[0, 1, 1], [0, 0, 1]]], np.array([0, 1, 1])
    given = {"scores": scores, "y_true": y_true}
    sweep = Sweep.from_predictions(given, login / "imported")
    assert sweep.submit() is None
    for verb in ("submit", "resume"):
        code, printed = inside(verb, sweep.directory)
        assert code == 0, printed
        assert "Nothing to train: the predictions were imported." in printed


def test_an_estimator_is_trained_on_a_login_node_where_that_is_said(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = load_wine(return_X_y=True)
    asked = {"runs": 2, "directory": login / "of", "options": {"seeds": {"random_state": "init"}}}
    before = sorted(login.rglob("*"))
    monkeypatch.setenv("MANYSEED_DATA", str(login / "data"))
    told = r'\n  to train on this machine all the same: cluster="local"$'
    with pytest.raises(UserError, match=f"cluster init.*{told}"):
        Sweep.of(DecisionTreeClassifier(max_features=1), X, y, **asked)
    assert sorted(login.rglob("*")) == before
    planned = Sweep.of(DecisionTreeClassifier(max_features=1), X, y, train=False, **asked)
    with pytest.raises(UserError, match=f"cluster init.*{told}"):
        planned.submit()
    sweep = Sweep.of(DecisionTreeClassifier(max_features=1), X, y, cluster="local", **asked)
    assert sweep.results["cells"]["n_runs"].to_list() == [2]


def test_auto_is_the_one_profile_a_job_or_a_machine_without_slurm(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="cluster init"):
        choose("auto")
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_JOB_ID", "7")
        assert choose("auto") is None
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(login))
        assert choose("auto") is None
    assert choose("local") is None
    assert needed(None) is None
    profile_of("testcluster")
    with pytest.raises(UserError, match=r"(?s)manyseed cluster init.*--cluster testcluster$"):
        choose("auto")  # which is chosen by its name alone
    sweep = Sweep.plan(write(login / "quick.toml", QUICK), login / "sweep")
    refused = command("submit", sweep.directory)
    assert refused.returncode == 2
    assert f"the only profile, {user_folder()}/testcluster.toml, is a test" in refused.stderr
    assert f"manyseed submit {sweep.directory} --cluster testcluster\n" in refused.stderr
    assert needed(None) is None, "and which no command proposes"
    profile_of("lab")
    chosen = choose("auto")
    assert chosen is not None
    assert chosen.name == "lab"
    profile_of("other")
    with pytest.raises(UserError, match=r"several(?s:.*)lab, other$"):
        choose("auto")


def test_of_several_profiles_the_last_used_is_proposed_or_none_by_name(login: Path) -> None:
    for name in ("lab", "other"):
        profile_of(name)
    assert needed(None) == "NAME", "nobody knows which"
    remember(read_profile(user_folder() / "other.toml"))
    assert needed(None) == "other"
    file = profile_of("given", folder=login / "project")
    remember(read_profile(file))
    assert needed(None) == str(file)
    file.unlink()
    assert needed(None) == "NAME"
    remember(read_profile(user_folder() / "lab.toml"))
    remember(read_profile(profile_of("testcluster")))
    assert needed(None) == "lab", "a test cluster is never proposed"


def test_without_another_cluster_init_names_the_way_to_a_test_cluster(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        raise ClusterUnavailable("the cluster does not answer")

    monkeypatch.setattr(discover, "discover", silent)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    code, said = inside("cluster", "init", "mine")
    assert (code, "export" in said) == (4, False)
    conf = write(login / "slurm.conf", "")
    profile_of("testcluster", conf)
    code, said = inside("cluster", "init", "mine")
    assert (code, f"export SLURM_CONF={conf}" in said) == (2, True), said


def test_a_sweep_directory_in_place_of_its_file_is_answered_with_the_file(login: Path) -> None:
    sweep = Sweep.plan(write(login / "quick.toml", QUICK), login / "sweep")
    code, said = inside("plan", sweep.directory, "--dry-run")
    there = f"{sweep.directory}/sweep.toml --out {sweep.directory} --dry-run --cluster NAME"
    assert (code, f"manyseed plan {there}" in said) == (2, True), said


def test_a_sweep_goes_on_where_it_was_last_submitted(login: Path) -> None:
    here = Intent.now("local", "")
    assert choose("auto", last=here) is None, "this very machine was named before"
    elsewhere = replace(here, submitter="workstation boot 1 2")
    with pytest.raises(UserError, match="cluster init"):
        choose("auto", last=elsewhere)
    profile_of("lab")
    profile_of("other")
    for name in ("lab", "other"):
        chosen = choose("auto", last=replace(OTHERS, cluster=name))
        assert chosen is not None
        assert chosen.name == name
    with pytest.raises(UserError, match=r"last submitted to gone(?s:.*)cluster init"):
        choose("auto", last=replace(OTHERS, cluster="gone"))
    file = profile_of("given", folder=login / "project")
    intent = replace(OTHERS, cluster="given", profile=str(file))
    with pytest.raises(UserError, match="not one of your profiles"):
        choose("auto", last=intent)
    for _ in range(2):
        remember(read_profile(file))
    assert len((user_folder().parent / "cluster-files").read_text().splitlines()) == 1
    chosen = choose("auto", last=intent)
    assert chosen is not None
    assert chosen.path == file


def test_what_is_wrong_with_a_profile_is_told_with_file_key_and_remedy(login: Path) -> None:
    for name, told in {
        "fats": r'--cluster = "fats": there is no such .*\n  create one: manyseed cluster init',
        "testcluster": r"not running: manyseed cluster test start",
        "./no.toml": r'--cluster = "./no.toml": there is no such file',
    }.items():
        with pytest.raises(UserError, match=told):
            choose(name)
    profile_of("fast")
    with pytest.raises(UserError, match=r'\n  did you mean "fast"'):
        choose("fats")
    with pytest.raises(UserError, match='--memory = "lots": must be a number with K, M, G or T'):
        choose("fast", memory="lots")
    for text, told in {
        'time = "60"\npartitoin = "x"': r'partitoin = "x": unknown key\n  did you mean "partition"'
        r"(?s:.*)go into the table extra",
        'time = "60"\nfoo = 1': r"foo = 1: unknown key\n  valid: account, partition, qos, "
        r"cpus-per-task, mem, time, gres, gpus, setup, modules, ",
        'time = "60"\ncores = 2': r'cores = 2: unknown key; did you mean "cpus-per-task"\?',
        'time = "60"\n[cpu]\nncpus = 2': r'cpu.ncpus = 2: unknown key; .*"cpus-per-task"\?',
        'walltime = "60"': r'walltime = "60": unknown key; did you mean "time"\?',
        'time = "60"\nmemory = "4G"': r'memory = "4G": unknown key; did you mean "mem"\?',
        'time = "60"\nqueue = "x"': r'queue = "x": unknown key; did you mean "partition"\?',
        'time = "0"': r'cpu.time = "0": must be a minute or more',
        "time = ": "not a TOML file",
    }.items():
        file = write(login / "mine.toml", text)
        with pytest.raises(UserError, match=f"^{file}: {told}"):
            choose(str(file))


@pytest.mark.parametrize("key", ["profile", "cluster", "slurm_conf"])
def test_a_configuration_that_a_sweep_directory_names_reaches_no_command(
    login: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An intent in a zip of a stranger: SLURM's commands would load the plugins it names."""
    sweep = Sweep.plan(write(login / "quick.toml", QUICK), login / "sweep")
    evil = write(sweep.directory / "evil.conf", "PluginDir=.\n")
    profile = profile_of("evil", evil, folder=sweep.directory)
    values = {"slurm_conf": str(evil), "profile": str(profile), "cluster": str(profile)}
    folder = sweep.paths.submission(1)
    (folder / "lives").mkdir(parents=True)
    intent = {
        "cluster": "evil",
        "submitter": "elsewhere boot 1 2",
        "submitted": 1.0,
        "user": getpass.getuser(),
        "scheduler": "theirs",
        "arrays": [{"resource": "cpu", "name": "m", "first": 0, "count": 1}],
        "runs": 1,
        "tasks": 1,
    }
    (folder / "intent.json").write_text(json.dumps(intent | {key: values[key]}))
    (folder / "jobs.json").write_text(json.dumps({"0": f"{sum(map(ord, key))}_0"}))
    (folder / "submitted").touch()
    monkeypatch.chdir(sweep.directory)  # where evil.toml would be found by its name
    assert sweep.status()["tasks"] == {"killed": 1}
    sweep.cancel()
    with pytest.raises(UserError, match="not one of your profiles"):
        sweep.submit()
    assert {line.partition("conf=")[2] for line in asked(login)} == {""}


def test_a_users_own_profile_of_that_name_is_asked(login: Path) -> None:
    conf = write(login / "slurm.conf", "")
    profile_of("lab", conf)
    folder = login / "0001"
    (folder / "lives").mkdir(parents=True)
    submission = Submission(folder, replace(OTHERS, tasks=1))
    assert own_profile(submission.intent) == read_profile(user_folder() / "lab.toml")
    with submission.scheduler.active():
        pass
    assert submission.scheduler.cluster_name == "here"
    assert asked(login)[-1] == f"scontrol conf={conf}"
    assert "SLURM_CONF" not in os.environ
    assert submission.tasks()[0].note in ("never submitted", ELSEWHERE)


def test_a_test_cluster_of_which_nothing_runs_is_none(login: Path) -> None:
    cluster = TestCluster(login / "cluster")
    profile_of("testcluster", folder=cluster.folder)
    cluster.register()
    last = replace(OTHERS, cluster="testcluster")
    for _ in ("after a reboot", "after its folder was removed"):
        assert own_profile(last) is None
        assert needed(last) == "local"
        for asked in ("auto", "testcluster"):
            with pytest.raises(UserError) as refused:
                choose(asked, last=last)
            assert "--cluster testcluster" not in str(refused.value)
        assert "the test cluster is not running: manyseed cluster test start" in str(refused.value)
        shutil.rmtree(cluster.folder, ignore_errors=True)
    (cluster.folder / "run").mkdir(parents=True)
    profile_of("testcluster", folder=cluster.folder)
    (cluster.folder / "run" / "slurmd-1.process").write_text(fingerprint(os.getpid()))
    assert own_profile(last) is not None
    chosen = choose("auto", last=last)
    assert chosen is not None
    assert chosen.name == "testcluster"


@pytest.mark.parametrize("name", ["testcluster", "theirs"])
def test_what_was_submitted_to_a_cluster_that_is_gone_goes_on_here(login: Path, name: str) -> None:
    text = QUICK.replace('"lr-sgd", "xgb"', '"lr-sgd"')
    sweep = Sweep.plan(write(login / "quick.toml", text), login / "sweep")
    sweep.submit(cluster="local", workers=1, limit=2)
    sweep.wait()
    as_on_a_cluster(sweep.directory)
    intent = sweep.paths.submission(2) / "intent.json"
    intent.write_text(intent.read_text().replace('"far"', f'"{name}"'))
    here = f"manyseed resume {sweep.directory} --cluster local"
    for asked in ([], ["--cluster", name]):
        code, said = inside("resume", sweep.directory, *asked)
        assert code == 2
        assert f"to go on on this machine: {here}" in said.replace("\n", " "), said
    steps = [step["command"] for step in sweep.status()["next"]]
    assert (here in steps) is (name == "testcluster"), "a cluster that others may use is theirs"
    code, said = inside("resume", sweep.directory, "--cluster", "local")
    assert (code, "2 of 32 runs are finished." in said) == (0, True), said
    sweep.wait()
    profile_of("lab")
    assert needed(last_intent(sweep.paths)) is None


def test_a_silent_cluster_that_is_gone_need_not_be_waited_for(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.plan(write(login / "quick.toml", QUICK), login / "sweep")
    runs, cells = sweep.survey().counts, sweep.survey().plan.cells
    words = ["--cluster", "local"]
    monkeypatch.setattr("manyseed.orchestrator.progress.status.on_cluster", lambda paths: words)
    for states, told in ((["unknown"], True), (["unknown", "running"], False)):
        steps = [*next_steps(sweep.paths, runs, states, cells)]
        assert (("Or continue with", ("resume", sweep.directory, *words)) in steps) is told


def test_what_is_proposed_is_where_the_sweep_was_sent(login: Path) -> None:
    made = profile_of("first")
    intent = Intent("site", "a b 1 2", profile=str(login / "site.toml"))
    assert words_of_clusters() == words_of_clusters(None) == "--cluster first"
    assert words_of_clusters(intent) == f"--cluster {login / 'site.toml'}"
    assert words_of_clusters(replace(intent, cluster="first", profile=str(made))) == (
        "--cluster first"
    )
    assert words_of_clusters(replace(intent, cluster="local")) == "--cluster first"
