"""One importable name: a user's own modules and ours never meet, however we are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestrator.conftest import inside

ROOT = Path(__file__).parents[1]
FOLDERS = ("orchestrator", "jobs", "analysis", "slurm")
SWEEP = """
name = "mine"
seed = 1
repeats = 2
runs = 2

[[grid]]
dataset    = ["sklearn:breast_cancer"]
classifier = ["lr-sgd"]
"""
OWN = """
import sys, orchestrator, jobs, analysis, slurm
assert {orchestrator.OWN, jobs.OWN, analysis.OWN, slurm.OWN} == {True}
from manyseed import Sweep
import manyseed.analysis, manyseed.orchestrator.sweep
assert Sweep is manyseed.orchestrator.sweep.Sweep
sweep = Sweep.plan("sweep.toml", "planned")
print(manyseed.__version__, sweep.directory)
"""
WHEEL = """
import sys
from setuptools import build_meta
print(build_meta.build_wheel(sys.argv[1]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder whose modules bear the names of our folders."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("orchestrator", "analysis", "slurm"):
        (folder / f"{name}.py").write_text("OWN = True\n")
    (folder / "jobs").mkdir()
    (folder / "jobs" / "__init__.py").write_text("OWN = True\n")
    (folder / "sweep.toml").write_text(SWEEP)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of a wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in (*FOLDERS, "docs", "examples", "src", "pyproject.toml", "README.md", "LICENSE"):
        _copy(ROOT / name, source / name)
    subprocess.run(
        [sys.executable, "-c", WHEEL, str(folder)], cwd=source, check=True, capture_output=True
    )
    [file] = folder.glob("*.whl")
    site = folder / "site"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(file), str(site)], check=True)
    return site


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def python(folder: Path, *arguments: str, path: str = ".") -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_project_with_modules_of_our_names_works(project: Path) -> None:
    assert "planned" in python(project, "-c", OWN)
    run = ("-m", "manyseed", "run", "sweep.toml", "--cluster", "local", "--workers", "1")
    assert "report" in python(project, *run)


@pytest.mark.slow
def test_so_it_does_with_a_wheel(project: Path, wheel: Path) -> None:
    there = sorted(file.name for file in wheel.iterdir())
    assert [name for name in there if not name.endswith(".dist-info")] == ["manyseed"]
    for name in FOLDERS:
        ours = {file.relative_to(ROOT) for file in (ROOT / name).rglob("*.py")}
        assert {file.relative_to(wheel / "manyseed") for file in ours_in(wheel, name)} == ours
    assert (wheel / "manyseed" / "examples" / "clusters" / "gpu.toml").exists()
    assert "Wrote quick" in python(
        project, *("-m", "manyseed", "example", "quickstart", "-o", "quick.toml"), path=f".:{wheel}"
    )
    ours = {file.name: file.read_bytes() for file in (ROOT / "docs").glob("*.md")}
    there = {file.name: file.read_bytes() for file in (wheel / "manyseed" / "docs").rglob("*")}
    assert there == ours  # the pages alone: no pictures, no code that draws them
    start = python(project, "-m", "manyseed", "docs", "start", path=f".:{wheel}")
    assert start == inside("docs", "start")[1]
    said = python(project, "-c", f"{OWN}\nprint(manyseed.__file__)", path=f".:{wheel}")
    assert str(wheel) in said
    run = ("-m", "manyseed", "run", "sweep.toml", "--cluster", "local", "--workers", "1")
    assert "report" in python(project, *run, path=f".:{wheel}")


@pytest.mark.slow
def test_a_torch_of_the_projects_own_hides_ours_only_where_python_is_told_so(project: Path) -> None:
    """The command and its training processes do not look for libraries in the working folder."""
    (project / "torch.py").write_text("raise SystemExit('not the library')\n")
    text = SWEEP.replace("lr-sgd", "mlp").replace("runs = 2", "runs = 1")
    (project / "sweep.toml").write_text(f"{text}\n[classifier.mlp]\nepochs = 1\n")
    command = Path(sys.executable).with_name("manyseed")
    run = [command, "run", "sweep.toml", "--cluster", "local", "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": ""}
    subprocess.run(run, cwd=project, env=environment, check=True, timeout=240)
    assert (project / "mine" / "report" / "index.html").exists()
    told = subprocess.run(
        run, cwd=project, env={**environment, "PYTHONPATH": "."}, capture_output=True, check=False
    )
    assert (told.returncode, b"torch.py" in told.stderr) == (2, True)


def ours_in(wheel: Path, name: str) -> set[Path]:
    return set((wheel / "manyseed" / name).rglob("*.py"))


def test_no_folder_of_ours_is_a_module_of_its_own(tmp_path: Path) -> None:
    """Where the package is installed, editable or not, it has one name."""
    code = "import importlib.util as u; print([n for n in {names} if u.find_spec(n)])"
    assert python(tmp_path, "-c", code.format(names=FOLDERS)).strip() == "[]"


def test_every_link_leads_to_a_folder() -> None:
    for name in FOLDERS:
        link = ROOT / "src" / "manyseed" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name
