"""What ``--json`` prints: one object with the version of its keys, also of an error."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console

from manyseed import Sweep
from manyseed.orchestrator.cli import output, status
from manyseed.orchestrator.cli.output import SCHEMA
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.progress import watch
from manyseed.orchestrator.tasks.task import Task
from tests.orchestrator.conftest import QUICK, command, write

PAGE = Path(__file__).parents[3] / "docs" / "json.md"
ANALYSED = ("query", "howmany", "compare", "answers", "variance", "plot")
"""Commands that ask results."""


def documented(verb: str) -> set[str]:
    """Return the words that stand as code in the row of a command."""
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{verb}`")]
    return set(re.findall(r"`([^`]+)`", row))


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("verify",),
        ("show", "0:0:1"),
        ("rerun", "0:0:1"),
        ("logs", "--failed"),
        ("plan", "-n"),
        ("analyze",),
        ("query", "--table", "runs"),
        ("howmany", "--sizes", "1,2", "--draws", "10"),
        ("compare",),
        ("answers",),
        ("logs", "0:0:1"),
        ("query", "--sql", "SELECT cell FROM runs"),
        ("variance",),
        ("methods",),
        ("dee",),
        ("plot",),
        ("plot", "accuracy", "-o", "accuracy.svg"),
        ("verify", "--repair"),
        ("datasets list",),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_answers_have_the_keys_that_are_documented(
    tmp_path: Path, arguments: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    verb, *others = arguments
    known = {"dee": "quick_calibrated"} | dict.fromkeys(ANALYSED, "quick_analysed")
    made: Sweep = request.getfixturevalue(known.get(verb, "quick"))
    sweep = Sweep(shutil.copytree(made.directory, tmp_path / "copy"))
    of_sweep = [made.paths.sweep_file if verb == "plan" else sweep.directory]
    what = [] if verb in ("datasets list", "doctor") else of_sweep
    result = command(*verb.split(), *what, *others, "--json", cwd=tmp_path)
    value = json.loads(result.stdout)
    assert next(iter(value)) == "schema"
    assert value.pop("schema") == SCHEMA
    cell = {"perturb_continuous", "perturb_categorical", "perturb_hparams", "hparams", "augment"}
    assert value.keys() - cell <= documented(verb)
    assert {key for one in value.get("comparisons", []) for key in one} <= documented(verb)


def test_the_page_has_a_row_for_each_command_that_has_json() -> None:
    from typer.main import get_command

    from manyseed.orchestrator.cli.commands import app

    def having(command: Any, name: str) -> Iterator[str]:
        for own, one in getattr(command, "commands", {}).items():
            yield from having(one, f"{name} {own}".strip())
        if any("--json" in option.opts for option in command.params):
            yield name

    verbs = set(having(get_command(app), ""))
    assert {"status", "query", "datasets list"} <= verbs
    assert verbs == set(re.findall(r"^\| `([a-z ]+)` \|", PAGE.read_text(), re.MULTILINE))


def test_an_error_is_an_object_too(quick: Sweep, tmp_path: Path) -> None:
    result = command("status", tmp_path / "nothing", "--json")
    error = json.loads(result.stdout)["error"]
    assert error["exit_code"] == result.returncode == 2
    assert error["file"] == str(tmp_path / "nothing")
    assert error["remedy"]
    assert f"error: {error['message']}" in result.stderr.strip()
    assert error["problem"] in error["message"]
    assert command("status", tmp_path / "nothing").stdout == ""


def test_a_mistake_in_the_sweep_file_is_told_in_parts(tmp_path: Path) -> None:
    file = write(tmp_path / "wrong.toml", QUICK.replace("repeats = 2", "repeats = -2"))
    result = command("plan", file, "--json", "-n")
    error = json.loads(result.stdout)["error"]
    assert (error["file"], error["key"], error["value"]) == (str(file), "repeats", -2)
    assert not (tmp_path / "quick").exists()


def test_what_is_answered_is_not_followed_by_another_object(quick: Sweep, tmp_path: Path) -> None:
    """`verify` prints what it found, and ends with an error: the answer stands alone."""
    shutil.copytree(quick.directory, tmp_path / "copy")
    sweep = Sweep(tmp_path / "copy")
    chunk = next(file for file in sweep.paths.store.rglob("label/c*") if file.is_file())
    chunk.write_bytes(b"")
    result = command("verify", sweep.directory, "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["findings"]
    assert "repair it with" in result.stderr


def test_a_task_is_told_with_its_state(quick: Sweep) -> None:
    state = quick.status()
    assert state["jobs"] == {}  # of SLURM's
    told = {(one["submission"], one["task"]): one for one in state["each_task"]}
    assert sorted(told) == [(1, 0)]
    (file,) = quick.paths.submission(1).glob("task-*.json")
    done, failed = told[1, 0]["done"], told[1, 0]["failed"]
    assert done + failed == Task.read(file).n_runs
    assert told[1, 0]["state"] == "finished"


def test_a_ctrl_c_ends_the_watching_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = SimpleNamespace(cluster="local")
    directory = tmp_path / "a sweep"
    sweep: Any = SimpleNamespace(
        directory=directory, running=lambda: [one], paths=SweepPaths(directory)
    )
    shown: list[tuple[object, Console]] = []

    def interrupted(submission: object, to: Console) -> None:
        shown.append((submission, to))
        raise KeyboardInterrupt

    monkeypatch.setattr(output, "show", interrupted)
    with pytest.raises(typer.Exit) as ended:
        status.follow(sweep, as_json=True)
    assert ended.value.exit_code == 130
    assert shown == [(one, output.errors)]  # what is printed as JSON is the answer alone
    told = capsys.readouterr()
    assert told.out == ""
    assert "training continues on this machine" in " ".join(told.err.split())
    assert f"manyseed cancel '{sweep.directory}'" in told.err


def test_without_a_terminal_a_line_each_minute_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter(range(0, 1000, 25))
    monkeypatch.setattr(output.time, "monotonic", lambda: next(seconds))
    looks = [watch.Progress(2000, done=n, state="running") for n in range(7)]
    looks.append(watch.Progress(2000, done=1998, failed=2, state="finished"))
    monkeypatch.setattr(watch, "progress", lambda _: looks[0])
    monkeypatch.setattr(watch, "watch", lambda _: iter(looks))
    told = Console(file=io.StringIO(), force_terminal=False, width=200)
    submission: Any = None
    assert output.show(submission, told) == looks[-1]
    assert told.file.getvalue().splitlines() == [
        "training, running: 2 of 2,000 runs; 1 min 15 s",
        "training, running: 5 of 2,000 runs; 2 min 30 s",
        "training, finished: 1,998 of 2,000 runs, 2 failed; 3 min 45 s",
    ]
