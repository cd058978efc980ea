"""A release is one command, which a clone can rehearse; one version stands everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import manyseed

ROOT = Path(__file__).parents[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with what is here."""
    target = tmp_path / "clone"
    listed = ("git", "ls-files", "-co", "--exclude-standard")
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in files.stdout.splitlines():
        source = ROOT / name
        if source.is_symlink() or source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    git(target, "init", "-q")
    git(target, "config", "user.name", "Tests")
    git(target, "config", "user.email", "tests@example.org")
    git(target, "add", "-A")
    git(target, "commit", "-qm", "All of it")
    return target


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def release(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ".ci/release", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_a_release_is_rehearsed_refused_and_made(clone: Path) -> None:
    done = release(clone, "9.8.7", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "would write 9.8.7" in done.stdout
    assert git(clone, "tag") == ""
    assert "no version" in release(clone, "9.8").stderr
    (clone / "README.md").write_text("changed")
    assert "not committed" in release(clone, "9.8.7").stderr
    git(clone, "checkout", "README.md")
    assert "need the address of the public repository" in release(clone, "9.8.7").stderr
    git(clone, "remote", "add", "origin", "git@example.org:lab/manyseed.git")
    done = release(clone, "9.8.7")
    assert done.returncode == 0, done.stderr
    urls = tomllib.loads((clone / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Repository"] == "https://example.org/lab/manyseed"
    assert urls["Issues"] == "https://example.org/lab/manyseed/issues"
    cited = yaml.safe_load((clone / "CITATION.cff").read_text())
    assert cited["repository-code"] == urls["Repository"]
    day = git(clone, "log", "-1", "--format=%cs")
    assert (cited["version"], str(cited["date-released"])) == ("9.8.7", day)
    git(clone, "remote", "set-url", "origin", "https://example.org/other/manyseed")
    (clone / "CHANGELOG.md").write_text("## Unreleased\n\n- One thing.\n")
    git(clone, "commit", "-qam", "One thing")
    done = release(clone, "9.8.9", "--dry-run")
    assert "its pages: https://example.org/other/manyseed" in done.stdout
    git(clone, "reset", "-q", "--hard", "HEAD~1")
    assert git(clone, "tag") == "v9.8.7"
    assert (clone / "dist" / "manyseed-9.8.7-py3-none-any.whl").exists()
    assert re.search(r"^## 9\.8\.7 \(", (clone / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert "is released" in release(clone, "9.8.7").stderr
    assert "says of nothing" in release(clone, "9.8.8").stderr


def test_one_version_stands_everywhere() -> None:
    declared = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert declared
    conda = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())["context"]
    assert declared[1] == cited["version"] == manyseed.__version__ == version("manyseed")
    assert declared[1] == conda["version"]


def test_forms_and_the_workflow_are_read() -> None:
    for file in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(file.read_text())
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert any(step.get("run") == ".ci/run" for step in jobs["all"]["steps"])
