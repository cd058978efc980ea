"""The verbs that the help lists, and earlier names of verbs, which go on working."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.orchestrator.cli.arguments import Directory, Json, takes, with_options
from tests.orchestrator.conftest import command, inside

LISTED = re.compile(r"^│ (\w+) ", re.MULTILINE)
EARLIER = {
    "pause DIR": "cancel DIR --pause",
    "throttle DIR 3": "cancel DIR --throttle 3",
    "tune DIR": "plan DIR --tune",
    "show DIR 0:0:1": "status DIR 0:0:1",
    "show DIR 0:0:1 --json": "status DIR 0:0:1 --json",
    "compact DIR": "verify DIR --compact",
    "drop DIR --where repeat=0": "plan DIR --drop repeat=0",
    "drop DIR --where cell=0 --dry-run": "plan DIR --drop cell=0 --dry-run",
    "datasets list --json": "init --datasets --json",
    "datasets fetch DIR/sweep.toml": "plan DIR/sweep.toml --fetch",
    "example": "init",
    "example nothing": "init --example nothing",
    "schema": "docs --schema",
    "doctor DIR/nowhere": "cluster check --dir DIR/nowhere",
    "testcluster status --dir DIR/none": "cluster test status --dir DIR/none",
}


def test_the_help_lists_few_verbs_by_what_one_wants_to_do() -> None:
    code, text = inside("--help")
    panels = re.findall(r"^╭─ (\w+) ─", text, re.MULTILINE)
    assert (code, panels[-5:]) == (0, ["Train", "Keep", "Ask", "Clusters", "Help"])
    listed = LISTED.findall(text)
    assert (listed[0], len(listed)) == ("init", 20)
    assert not {line.split()[0] for line in EARLIER} & {*listed}


@pytest.mark.parametrize("line", EARLIER)
def test_an_earlier_name_does_the_same_and_says_once_what_does_so_now(
    quick: Sweep, tmp_path: Path, line: str
) -> None:
    for name in ("before", "now"):
        shutil.copytree(quick.directory, tmp_path / name / "sweep")

    def done(words: str, name: str) -> tuple[int, str, str]:
        folder = tmp_path / name
        found = command(*words.replace("DIR", "sweep").split(), cwd=folder)
        printed = re.sub(r"[\d.]+", "", found.stdout.replace(str(folder), ""))  # seconds differ
        return found.returncode, printed, found.stderr

    code, printed, told = done(line, "before")
    first, _, rest = told.partition("\n")
    if "--json" in line:
        first, rest = "", told
    else:
        assert re.fullmatch(rf"{line.split()[0]}\b.* is now: manyseed \w+.*", first)
    if line.startswith("drop"):  # errors name the option as it was given
        assert "--drop" not in rest
        rest = rest.replace("--where", "--drop")
    assert done(EARLIER[line], "now") == (code, printed, rest)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("cancel DIR --pause --now", "--now"),
        ("cancel DIR --throttle 2 --only cell=0", "--only"),
        ("verify DIR --compact --repair", "--repair"),
        ("status DIR 0:0:1 --watch", "--watch"),
        ("plan DIR --tune --drop cell=0", "--drop"),
        ("plan DIR --workers 2", "--workers"),
        ("plan DIR --drop cell=0 --set runs=2", "--set"),
        ("init data.csv --example quickstart", "DATA"),
        ("init --target y", "DATA"),
        ("init --json", "--json"),
    ],
)
def test_what_does_not_go_together_is_refused(quick: Sweep, line: str, key: str) -> None:
    code, text = inside(*line.replace("DIR", str(quick.directory)).split())
    assert (code, f"{key}" in text.partition("error:")[2].splitlines()[0]) == (2, True), text


@pytest.mark.parametrize("question", ["howmany", "compare", "dee", "variance"])
def test_a_question_that_was_a_verb_is_one_still(question: str) -> None:
    code, text = inside(question, "nowhere")
    assert (code, "is now" in text) == (2, False)
    assert inside("answers", "nowhere", question)[1] == text


def test_options_are_those_of_the_method() -> None:
    @takes("submit", "limit", "failed", "cluster")
    def verb(**options: object) -> None:
        """Submit."""

    with_options(verb)
    limit, failed, cluster = vars(verb)["__signature__"].parameters.values()
    assert (limit.default, failed.default, cluster.default) == (None, False, "auto")
    (option,) = failed.annotation.__metadata__
    assert option.help == "Train only the failed runs again, with the same seeds."
    assert limit.annotation.__metadata__[0].min == 1
    assert "this machine if --workers is given" in cluster.annotation.__metadata__[0].help


def test_options_are_those_of_a_function_among_the_verbs_own() -> None:
    @takes("importing:import_predictions", "note", "truth", "classifier", truth={"metavar": "NPY"})
    def verb(
        directory: Directory, as_json: Json = False, note: str = "", **options: object
    ) -> None:
        """Import."""

    with_options(verb)
    parameters = vars(verb)["__signature__"].parameters
    assert [*parameters] == ["directory", "note", "truth", "classifier", "as_json"]
    (truth,), (classifier,) = (
        parameters[name].annotation.__metadata__ for name in ("truth", "classifier")
    )
    assert (truth.metavar, truth.help) == ("NPY", "The true classes, where the files lack them.")
    assert classifier.show_default == '"imported"'


@pytest.mark.process
def test_every_verb_is_there_without_docstrings() -> None:
    code = (
        "from manyseed.orchestrator.cli.commands import app;from typer.main import get_command;"
        "verbs = get_command(app).commands;print(*(verbs[verb].name for verb in verbs))"
    )
    done = subprocess.run(
        [sys.executable, "-OO", "-B", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {"run", "import", "query"} <= {*done.stdout.split()}


@pytest.mark.process
@pytest.mark.parametrize("flag", ["-OO", None])
def test_commands_start_again_with_assertions(tmp_path: Path, flag: str | None) -> None:
    """zarr-python opens no group without them."""
    make = "import zarr; zarr.create_group('s')"
    subprocess.run([sys.executable, "-c", make], cwd=tmp_path, check=True)
    code = (
        "import sys, manyseed.orchestrator.cli as cli, zarr; from pathlib import Path\n"
        "cli._run = lambda *_: print(sys.argv[1:], zarr.open_group('s', mode='r').path == '')\n"
        "cli.main()"
    )
    done = subprocess.run(
        [sys.executable, *([flag] if flag else []), "-c", code, "query", "-O"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONOPTIMIZE": "" if flag else "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("['query', '-O'] True\n", "")
    code = "from manyseed.orchestrator.store.metadata import is_node; is_node({}, b'')"
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, check=False)
    assert b"UserError: zarr opens no store where assertions are left out" in done.stderr
