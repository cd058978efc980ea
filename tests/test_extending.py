"""The worked examples of docs/extending.md are followed to the letter, in a copy of the tree."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "extending.md"
BLOCK = re.compile(r'^```(python|diff) title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)

COMMAND = re.compile(r"^\.venv/bin/python -m (.*)$", re.MULTILINE)


def changed(text: str, diff: str) -> str:
    """Replace the lines with a minus, which must be there once, by those with a plus."""
    sides = {"-": "", "+": ""}
    for line in diff.splitlines():
        sides[line[0]] += line[1:] + "\n"
    old, new = (side.rstrip("\n") for side in sides.values())
    assert text.count(old) == 1, old
    return text.replace(old, new)


def test_every_line_that_changes_is_there_once() -> None:
    """Else the page is out of date; what it makes is tried by the slow test."""
    texts: dict[str, str] = {}
    for kind, name, text in BLOCK.findall(PAGE.read_text()):
        if kind == "diff":
            texts[name] = changed(texts.get(name) or (ROOT / name).read_text(), text)
    assert len(texts) > 2
    assert max(map(len, texts["jobs/datasets/sources.py"].splitlines())) <= 100


@pytest.mark.parametrize("what", ["metric", "classifier", "figure", "question"])
def test_a_file_and_its_test_are_all(what: str) -> None:
    section = PAGE.read_text().split(f"\n## A {what}\n", 1)[1].split("\n## ", 1)[0]
    files = [(kind, name) for kind, name, _ in BLOCK.findall(section)]
    assert [kind for kind, _ in files] == ["python", "python"]
    assert [name.startswith("tests/") for _, name in files] == [False, True]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what is versioned, with all that the page says done to it."""
    listed = ("git", "ls-files", "-co", "--exclude-standard")
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in files.stdout.splitlines():
        source = ROOT / name
        if source.is_symlink() or source.is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tmp_path / name, follow_symlinks=False)
    for kind, name, text in BLOCK.findall(PAGE.read_text()):
        file = tmp_path / name
        if kind == "python":
            assert not file.exists(), name
        file.write_text(text if kind == "python" else changed(file.read_text(), text))
    return tmp_path


def python(copy: Path, *arguments: str) -> str:
    """Return what a module of the copy prints."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{copy}/src:{copy}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


QUIET = ("pytest", "-q", "-p", "no:cacheprovider")
LISTS = (  # what looks at all modules, metrics, classifiers and kinds of figures there are
    "tests/orchestrator/test_modules.py",
    "tests/analysis/graph/test_group.py::test_chunked_equals_whole",
    "tests/orchestrator/results/test_results.py::"
    "test_every_column_is_documented_with_its_unit_there_and_in_the_file",
)


@pytest.mark.slow
def test_the_worked_examples_work(copy: Path) -> None:
    tests = [name for kind, name, _ in BLOCK.findall(PAGE.read_text()) if kind == "python"]
    tests = [name for name in tests if name.startswith("tests/")]
    said = python(copy, *QUIET, "-rA", *tests, *LISTS)
    passed = set(re.findall(r"^PASSED (\S+?)::", said, re.MULTILINE))
    assert passed >= {*tests}
    for line in COMMAND.findall(PAGE.read_text()):
        module, *others = shlex.split(line)
        python(copy, module, *(QUIET[1:] if module == "pytest" else ()), *others)
    lint = Path(sys.executable).with_name("ruff")
    if lint.exists():
        new = [name for kind, name, _ in BLOCK.findall(PAGE.read_text()) if kind == "python"]
        of = [name for name in new if name not in tests]
        checked = subprocess.run(
            [lint, "check", "-q", *of], cwd=copy, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout
