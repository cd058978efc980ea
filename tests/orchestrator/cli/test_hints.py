"""Printed commands can be typed as they are, also where paths have blanks."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st

from manyseed import Sweep
from manyseed.orchestrator.cli import analyze, output, status
from manyseed.orchestrator.errors import shell_word
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.questions.registry import known
from manyseed.orchestrator.submissions.profiles import user_folder
from tests.orchestrator.conftest import QUICK, inside, write

TEXT = """
name = "sweep"
seed = 1
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd"]
"""
ON_THIS_MACHINE = "--cluster local"


@pytest.mark.parametrize("verb", ["answers compare", "answers variance", "status 0:0:1", "logs 1"])
def test_a_directory_that_comes_second_is_put_first(
    quick: Sweep, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(quick.directory.parent)
    name, word = verb.split()
    code, text = inside(name, word, quick.directory.name)
    right = f"manyseed {name} {quick.directory.name} {word}"
    assert (code, f"DIR comes first: {right}" in text) == (2, True), text
    assert "no such question" not in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("run sweep.toml --local", "use --cluster local"),
        ("run sweep.toml --runs 5", "it is a key of the file: --set runs=VALUE"),
        ("plan sweep.toml --epochs 5", "--set classifier.NAME.epochs=VALUE"),
        ("compare DIR --classifier mlp", "use --where \"classifier = 'VALUE'\""),
        ("compare DIR --sort accuracy", "query has it"),
        ("compare DIR --metrics accuracy", "Possible options: --metric"),
        ("answers DIR --metric accuracy", "--metric; answers DIR until, answers DIR compare"),
        ("variance DIR --metric ece", "; between seeds: manyseed query DIR -t runs --by dataset"),
        ("status DIR --nothing", "No such option: --nothing"),
    ],
)
def test_an_option_of_another_verb_is_told(quick: Sweep, words: str, told: str) -> None:
    code, text = inside(*words.replace("DIR", str(quick.directory)).split())
    assert code == 2
    assert told in " ".join(text.replace("│", " ").split())


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that submits jobs, in a folder with a sweep file; both names have a blank."""
    folder = tmp_path / "a folder"
    for made in (folder, tmp_path / "bin", tmp_path / "config" / "manyseed" / "clusters"):
        made.mkdir(parents=True)
    for name in ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo"):
        write(tmp_path / "bin" / name, "#!/bin/sh\nexit 1\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    write(folder / "my sweep.toml", TEXT)
    monkeypatch.chdir(folder)
    return folder


def commands(text: str) -> list[str]:
    """Return the commands in a text, without their first word."""
    return [found.strip() for found in re.findall(r"manyseed ([^\n;]*)", text)]


def typed(text: str, verb: str) -> tuple[int, str]:
    """Run the command with this verb that a text names."""
    *_, found = (one for one in commands(text) if one.startswith(verb))  # after the first step
    return inside(*shlex.split(found))


def test_questions_and_tables_in_place_of_a_verb_are_told_how() -> None:
    verbs = []
    for name in known():
        code, said = inside(name, "DIR", "--help")
        if code == 0:
            verbs.append(name)
        else:
            assert f"No such command '{name}'. Ask: manyseed answers DIR {name}" in said
    assert {"compare", "methods"} <= {*verbs}
    assert not {"alike", "spread", "standings"} & {*verbs}
    code, said = inside("margins")
    assert (code, "Ask: manyseed query DIR -t margins" in said) == (2, True)
    assert "Ask" not in inside("nothing")[1]


def test_a_sweep_is_begun_and_followed_by_the_commands_that_are_printed(login: Path) -> None:
    assert inside("plan", "my sweep.toml", "--out", "my runs")[0] == 0
    for verb in ("analyze", "export"):
        code, said = inside(verb, "my runs", *(("--output", "x.zip") if verb == "export" else ()))
        assert code == 2
        assert "manyseed submit 'my runs'\n" in said
    code, said = inside("status", "my runs")
    code, refused = typed(said, "submit")
    assert code == 2
    assert "manyseed cluster init" in refused
    assert f"; or, to train on this machine: manyseed submit 'my runs' {ON_THIS_MACHINE}\n" in said
    # the second choice of a refusal
    assert refused.endswith(f"\n  to train on this machine all the same: {ON_THIS_MACHINE}\n")
    code, said = inside("submit", "my runs", "--cluster", "local")
    assert code == 0, said
    Sweep("my runs").wait()
    code, said = typed(said, "status")
    code, said = typed(said, "analyze")
    code, said = typed(said, "report")
    assert code == 0, said


@pytest.mark.usefixtures("without_slurm")
def test_names_with_a_tilde_are_names_and_printed_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("~data").mkdir()
    rows = "".join(f"{n}.5,{'ab'[n % 2]}\n" for n in range(30))
    write(Path("~data/a.csv"), f"x,y\n{rows}")
    own = '[dataset.d]\nsource = "file:~data/a.csv"\ntarget = "y"\n'
    write(Path("f.toml"), TEXT.replace("sklearn:wine", "d") + own)
    write(Path("s.toml"), TEXT)
    assert inside("plan", "f.toml", "--dry-run")[0] == 0
    code, said = inside("plan", "s.toml", "--out", "~out")
    assert (code, commands(said)) == (0, ["submit '~out'"]), said
    assert Path("~out").is_dir()
    code, said = inside("status", "~out")
    assert (code, commands(said)) == (3, ["submit '~out'"]), said
    code, said = inside("import", "~p.npz", "--out", "~q")
    assert (code, "~p.npz" in said, Path("~q").exists()) == (2, True, False), said


def test_plan_names_the_way_to_train(login: Path) -> None:
    said = inside("plan", "my sweep.toml", "--out", "my runs")[1]
    for text in (said, inside("status", "my runs")[1]):
        assert commands(text) == [
            "cluster init (what it says: manyseed docs cluster)",
            "submit 'my runs' --cluster local",
            "submit 'my runs'",
        ]
    said = inside()[1]
    assert "manyseed run 'my sweep.toml'\n" in said
    write(user_folder() / "lab.toml", 'time = "60"\n')
    assert commands(inside("status", "my runs")[1]) == ["submit 'my runs'"]
    write(user_folder() / "other.toml", 'time = "60"\n')
    assert commands(inside("status", "my runs")[1]) == ["submit 'my runs' --cluster NAME"]


def test_notes_on_a_plan_are_counted_and_the_command_prints_them(login: Path) -> None:
    text = TEXT.replace('["lr-sgd"]', '["lr-sgd"]\nperturb_categorical = ["none", "sample:0.5"]')
    write(login / "my sweep.toml", f"{text}[classifier.mlp]\nepochs = 3\n")
    for words in (("plan",), ("run", "--cluster", "local", "--metric", "accuracy")):
        code, said = inside(words[0], "my sweep.toml", "--out", words[0], *words[1:])
        assert code == 0, said
        assert said.count(f"notes: manyseed plan 'my sweep.toml' --out {words[0]} --dry-run") == 1
        code, every = typed(said, "plan")
        found = json.loads(typed(said.replace("--dry-run", "--dry-run --json"), "plan")[1])
        notes = [f"{note}." for note in found["notes"]]
        assert f"\n{len(notes)} notes: manyseed plan " in said
        assert len(notes) > 1
        assert all(note in every and note not in said for note in notes), every


def test_that_runs_are_copies_is_told_beside_the_number_of_notes(login: Path) -> None:
    text = TEXT.replace('["lr-sgd"]', '["lr-sgd", "xgb"]')
    text = text.replace("[[grid]]", '[[grid]]\nvary = ["init+batch"]\nperturb_labels = ["none"]')
    write(login / "s.toml", f"{text}[classifier.mlp]\nepochs = 3\n")
    said = inside("plan", "s.toml", "--out", "s")[1]
    assert "notes: manyseed plan s.toml --out s --dry-run" in said
    assert "Identical to the first run of their repeat" in said


def test_a_login_node_computes_on_one_core_and_says_what(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores: list[set[int]] = []

    timer = threading.Timer

    class AtOnce(timer):  # type: ignore[misc, valid-type]
        """A timer that has run out before the block begins."""

        def start(self) -> None:
            self.function(*self.args, **self.kwargs)

    monkeypatch.setattr(threading, "Timer", AtOnce)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, chosen: cores.append({*chosen}))
    said = inside("plan", "my sweep.toml", "--out", "my runs")[1]
    assert "so reading the data, and trying code of your own, keeps to one of its cores" in said
    assert [len(chosen) for chosen in cores] == [1, 4]
    scores, y_true = 2 * np.eye(2)[[[0, 1, 1], [0, 0, 1]]], np.array([0, 1, 1])
    Sweep.from_predictions({"scores": scores, "y_true": y_true}, "theirs")
    code, said = inside("analyze", "theirs")
    assert code == 0, said
    assert "so the analysis of 2 finished runs keeps to one of its cores" in said
    assert "In a job: manyseed analyze theirs --cluster NAME" in said
    said = inside("howmany", "theirs")[1]
    assert "so drawing ensembles keeps to one of its cores" in said
    assert [len(chosen) for chosen in cores] == [1, 4] * 3
    code, said = inside("analyze", "theirs", "--workers", "2")
    assert "one of its cores" not in said, "the user chose"
    monkeypatch.setattr(threading, "Timer", timer)
    code, said = inside("howmany", "theirs")
    assert "one of its cores" not in said, "it took no time"
    monkeypatch.setattr(threading, "Timer", AtOnce)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert "one of its cores" not in inside("plan", "my sweep.toml", "--dry-run")[1]


def test_a_machine_without_slurm_needs_no_cluster(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(login))
    said = inside("plan", "my sweep.toml", "--out", "my runs")[1]
    assert commands(said) == ["submit 'my runs'"]
    assert "manyseed cluster" not in inside("cluster", "check")[1]


def test_searching_is_asked_for_where_it_is_allowed(login: Path) -> None:
    text = TEXT + 'hparams = ["tuned"]\n[tune]\ndraws = 2\n'
    write(login / "my sweep.toml", text)
    said = inside("plan", "my sweep.toml", "--out", "my runs")[1]
    assert commands(said) == ["plan 'my runs' --tune"]
    code, refused = inside("plan", "my runs", "--tune")
    assert code == 2
    assert """--wrap "manyseed plan 'my runs' --tune\"""" in refused
    code, refused = inside("submit", "my runs", "--cluster", "local")
    assert code == 2
    assert "manyseed plan 'my runs' --tune\n" in refused
    code, said = inside("plan", "my runs", "--tune", "--cluster", "local")
    assert code == 0, said
    code, said = typed(said, "submit")
    assert code == 0, said


def test_settings_are_part_of_the_file_that_is_named(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.jobs.datasets.is_fetched", lambda *_: False)
    monkeypatch.setattr("manyseed.orchestrator.plans.code.prepare_read", lambda _: [])
    said = inside("plan", "my sweep.toml", "--out", "one")[1]
    assert commands(said) == ["plan 'my sweep.toml' --fetch"]
    other = ("--set", 'grid.0.dataset=["sklearn:iris"]')
    said = inside("plan", "my sweep.toml", "--out", "two", *other)[1]
    assert commands(said) == ["plan two/sweep.toml --fetch"]


def test_doctor_names_the_profiles_that_there_are(login: Path) -> None:
    assert commands(inside("cluster", "check")[1]) == ["cluster init"]
    write(user_folder() / "lab.toml", 'time = "60"\n')
    assert commands(inside("cluster", "check")[1]) == ["cluster check lab"]


def test_files_that_are_written_are_named_as_a_shell_reads_them(login: Path) -> None:
    for verb, name in (("example", "quickstart"), ("init", "sklearn:wine")):
        code, said = inside(verb, name, "--out", f"my {verb}.toml")
        assert code == 0, said
        code, said = typed(said, "plan")
        assert code == 0, said
    code, said = inside("status", "no sweep")
    assert code == 2
    assert "manyseed plan SWEEP.toml --out 'no sweep'" in said
    proposed = {
        "quick": ["plan quick.toml --out quick"],
        "quick.toml": ["plan quick.toml", "run quick.toml"],
    }
    for word, told in proposed.items():
        write(login / "quick.toml", QUICK)
        code, said = inside("submit", word)
        assert (code, commands(said)) == (2, told), said


def test_what_needs_a_cluster_names_the_users(login: Path) -> None:
    write(login / "quick.toml", QUICK)
    detached = ("run", "quick.toml", "--cluster", "local", "--detach")
    assert "give --cluster NAME" in inside(*detached)[1]
    for name in ("lab", "other"):
        write(user_folder() / f"{name}.toml", 'time = "60"\n')
    assert "give --cluster lab or --cluster other" in inside(*detached)[1]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_who_stops_watching_an_analysis_is_told_that_its_job_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SimpleNamespace(job="77", cluster="lab", state="running", reason="", blocks=0, done=0)
    sweep: Any = SimpleNamespace(analysis_job=lambda: job, directory=Path("my runs"))
    monkeypatch.setattr(analyze.time, "sleep", interrupt)
    with pytest.raises(typer.Exit) as ended:
        analyze._follow(sweep, quiet=False)
    said = capsys.readouterr().err
    assert ended.value.exit_code == 130
    assert "Only the watching has ended: job 77 on lab continues" in said
    assert "Stop it: scancel 77\n" in said
    assert "Its progress: manyseed status 'my runs'\n" in said


def test_who_stops_watching_is_told_where_training_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = [SimpleNamespace(cluster=name) for name in ("local", "lab", "lab")]
    directory = Path("my runs")
    sweep: Any = SimpleNamespace(
        running=lambda: running, directory=directory, paths=SweepPaths(directory)
    )
    monkeypatch.setattr(output, "show", interrupt)
    with pytest.raises(typer.Exit):
        status.follow(sweep)
    said = " ".join(capsys.readouterr().err.split())
    assert "training continues on this machine and lab, without this terminal." in said
    assert "manyseed cancel 'my runs'" in said


@given(st.text(st.characters(blacklist_characters="\x00", codec="utf-8")))
@example("a = 'b'")
@example("a = 'b\\'")
@example('it\'s ${HOME} `x` "!"')
@example("")
def test_what_is_quoted_is_one_word_of_a_shell(word: str) -> None:
    assert shlex.split(shell_word(word)) == [word]
    if "'" in word and word.isascii() and word.isprintable():
        done = subprocess.run(
            ["bash", "-c", f"printf %s {shell_word(word)}"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == word
