"""The shell completes words of the command: by bash, with the script that is installed there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from tests.orchestrator.conftest import MANYSEED

ASKED = """
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
function=$(complete -p manyseed | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" manyseed
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def completed(quick: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """What bash offers after words, the last of which is begun, beside an analysed sweep."""
    folder = tmp_path_factory.mktemp("shell")
    copy = Sweep(shutil.copytree(quick.directory, folder / "sweep"))
    copy.analyze(Options(resamples=5), workers=1)
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


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["que"], ["query"]),
        (["query", "sweep", "--table", "rank"], ["ranking"]),
        (["query", "sweep", "--columns", "cell,perturb_cont"], ["cell,perturb_continuous"]),
        (["query", "sweep", "--where", "perturb_cont"], ["perturb_continuous"]),
        (["plot", "sweep", "accuracy_r"], ["accuracy_range"]),
        (["query", "sweep", "--table", "nothing-of-this-name"], [""]),
    ],
)
def test_words_are_completed(
    completed: Callable[..., list[str]], typed: list[str], offered: list[str]
) -> None:
    assert completed(*typed) == offered


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("perturb_continuous = 'rel", "perturb_continuous = 'relative:0.5'"),
        ("classifier IN ('lr-sgd', 'x", "classifier IN ('lr-sgd', 'xgb'"),
    ],
)
def test_values_of_columns_are_completed_within_quotes(
    completed: Callable[..., list[str]], condition: str, value: str
) -> None:
    assert completed("query", "sweep", "-w", f'"{condition}') == [value]
