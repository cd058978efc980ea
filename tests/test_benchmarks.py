"""Every benchmark runs in its quick form, as `make bench` calls it."""

from __future__ import annotations

import subprocess
import sys
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
def test_a_benchmark_runs_in_its_quick_form(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run(
        [sys.executable, script, "--quick"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert any(figure.isdigit() for figure in done.stdout)
    package = COMPARED.get(script.stem)
    said = f"skipped: {package} is not installed"
    assert (said in done.stdout) == (package is not None and not is_installed(package))
    assert not any(tmp_path.iterdir()), "it leaves something behind"
