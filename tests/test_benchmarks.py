"""Every benchmark runs in its quick form, as `make bench` calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = sorted((ROOT / "benchmarks").glob("bench_*.py"))
COMPARED = {
    "bench_codec": "zarrs",
    "bench_orchestration": "hydra-submitit-launcher",
    "bench_plan": "hydra-core",
    "bench_store": "h5py",
}
"""Packages of the extra ``bench``; a benchmark says which comparison it leaves out without them."""


def is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("script", BENCHMARKS, ids=lambda script: script.stem)
def test_a_benchmark_runs_in_its_quick_form(script: Path) -> None:
    # a short path, as SLURM's sockets lie below it
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        done = subprocess.run(
            [sys.executable, script, "--quick"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        left = list(Path(folder).glob("tmp*"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert any(figure.isdigit() for figure in done.stdout)
    package = COMPARED.get(script.stem)
    said = f"skipped: {package} is not installed" in done.stdout
    assert said == (package is not None and not is_installed(package))
    assert not left, "it leaves something behind"


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_the_session_on_a_gpu_is_rehearsed_without_one(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "gpu_session.py", "--rehearse"]
    subprocess.run([*command, "--out", tmp_path], check=True, capture_output=True)
    session = json.loads((tmp_path / "gpu_session.json").read_text())
    assert session["rehearsal"]
    assert not [each for each in session["found"] if each.get("failed")]
    steps = [each for each in session["found"] if each["what"].endswith("one step")]
    assert len(steps) == 3  # mlp, cnn, vit
    assert all(step["largest"] < 1e-5 for step in steps)
    assert "| mlp | 4 | 2 |" in (tmp_path / "gpu_session.md").read_text()
