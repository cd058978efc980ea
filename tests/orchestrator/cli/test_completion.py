"""The shell completes words of the command: by bash, with the script that is installed there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import MANYSEED, command

ASKED = """
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
function=$(complete -p manyseed | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" manyseed
printf '%s\\n' "${COMPREPLY[@]}"
"""


Complete = Callable[..., list[str]]


@pytest.fixture(scope="module")
def folder(quick_analysed: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an analysed sweep."""
    made = tmp_path_factory.mktemp("shell")
    shutil.copytree(quick_analysed.directory, made / "sweep")
    return made


@pytest.fixture
def by_bash(folder: Path) -> Complete:
    """What bash offers after words, the last of which is begun."""
    path = f"{MANYSEED.parent}{os.pathsep}{os.environ['PATH']}"
    bash = ["bash", "--norc", "--noprofile", "-c"]

    def run(script: str, *words: str) -> str:
        return subprocess.run(
            [*bash, script, "bash", *words],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
            timeout=110,
        ).stdout

    # --show-completion asks which shell its caller is, and may find none
    registers = run("_MANYSEED_COMPLETE=source_bash manyseed")
    return lambda *words: run(registers + ASKED, "manyseed", *words).split("\n")[:-1]


@pytest.fixture
def completed(folder: Path) -> Complete:
    """What the command answers where bash asks it so."""

    def answered(*words: str) -> list[str]:
        asked = {"COMP_WORDS": "\n".join(("manyseed", *words)), "COMP_CWORD": str(len(words))}
        done = command(cwd=folder, env={"_MANYSEED_COMPLETE": "complete_bash", **asked})
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split("\n")[:-1]

    return answered


@pytest.mark.process
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["query", "sweep", "--where", "perturb_cont"], ["perturb_continuous"]),
        (
            ["query", "sweep", "-w", "\"perturb_continuous = 'rel"],
            ["perturb_continuous = 'relative:0.5'"],
        ),
        (["query", "sweep", "--table", "nothing-of-this-name"], [""]),
    ],
)
def test_bash_completes_words(by_bash: Complete, typed: list[str], offered: list[str]) -> None:
    assert by_bash(*typed) == offered


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["que"], ["query"]),
        (["query", "sweep", "--table", "rank"], ["ranking"]),
        (["query", "sweep", "--columns", "cell,perturb_cont"], ["cell,perturb_continuous"]),
        (["plot", "sweep", "accuracy_r"], ["accuracy_range"]),
        (
            ["query", "sweep", "-w", "\"classifier IN ('lr-sgd', 'x"],
            ["classifier IN ('lr-sgd', 'xgb'"],
        ),
    ],
)
def test_words_are_completed(completed: Complete, typed: list[str], offered: list[str]) -> None:
    assert completed(*typed) == offered
