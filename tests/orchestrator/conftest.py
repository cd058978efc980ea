"""Small real sweeps, run by the real command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from manyseed.analysis.options import Options
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.sweep import Sweep
from tests.here import call as command
from tests.here import once

MANYSEED = Path(sys.executable).with_name("manyseed")

QUICK = """
name    = "quick"
seed    = 7
repeats = 2
runs    = 4

[[grid]]
dataset            = ["cancer"]
classifier         = ["lr-sgd", "xgb"]
train_fraction     = [0.5, 1.0]
perturb_continuous = ["none", "relative:0.5"]

[dataset.cancer]
source = "sklearn:breast_cancer"
"""
"""64 runs; one of the four xgb cells has identical runs."""

Arrays = dict[str, dict[str, NDArray[np.generic]]]


def apart(
    *arguments: object, cwd: Path | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run ``manyseed`` in a process of its own, in a terminal of 80 columns."""
    return subprocess.run(
        [MANYSEED, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def inside(*arguments: object) -> tuple[int, str]:
    """Run ``manyseed`` in this process; return exit code and all that it printed."""
    done = command(*arguments)
    return done.returncode, done.output


@pytest.fixture
def without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the commands of SLURM, which a machine that tests may have."""
    monkeypatch.setenv("PATH", "/nowhere")


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 240) -> None:
    """Wait for a condition, not for a time; say what did not come."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"waited {timeout:g} s for {what}"
        time.sleep(0.02)


def stored(sweep: Sweep) -> Arrays:
    """Return all that depends on training: predictions, checksums, status, test sets."""
    others = ("status", "crc", "y_true", "test_index")
    return {
        group.spec.path: {
            array.name: read_array(group, array.name)
            for array in group.spec.arrays
            if array.role == "prediction" or array.name in others
        }
        for group in list_groups(sweep.paths.store)
    }


def assert_equal(found: Arrays, expected: Arrays) -> None:
    """Every array is the same, bit for bit."""
    assert found.keys() == expected.keys()
    for path, arrays in expected.items():
        for name, values in arrays.items():
            np.testing.assert_array_equal(found[path][name], values, err_msg=f"{path} {name}")


def write(path: Path, text: str) -> Path:
    """Write a sweep file."""
    path.write_text(text)
    return path


def train(sweep_file: Path, directory: Path, workers: int = 2) -> Sweep:
    """Plan and train a sweep to its end, undisturbed."""
    sweep = Sweep.plan(sweep_file, directory)
    sweep.submit(workers=workers)
    sweep.wait()
    sweep.compact()
    assert sweep.status()["runs"]["missing"] == 0
    return sweep


def shared(
    factory: pytest.TempPathFactory,
    name: str,
    text: str,
    then: Callable[[Sweep], object] = lambda sweep: None,
) -> Sweep:
    """Return a sweep that was trained undisturbed, once per test run; tests only read it.

    Parameters
    ----------
    factory : TempPathFactory
    name : str
        No other's, in all tests.
    text : str
        The sweep file.
    then : callable
        Called with the trained sweep.
    """
    folder = once(
        factory,
        name,
        lambda folder: then(train(write(folder / f"{name}.toml", text), folder / "sweep")),
    )
    return Sweep(folder / "sweep")


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A small sweep; tests only read it."""
    return shared(tmp_path_factory, "quick", QUICK)


@pytest.fixture(scope="session")
def quick_analysed(quick: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The same, analysed with five resamples; tests copy it."""
    return _analysed(quick, tmp_path_factory, "quick-analysed", Options(resamples=5))


@pytest.fixture(scope="session")
def quick_calibrated(quick: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The same, with all that needs calibration; tests copy it."""
    options = Options(calibration=True, deep_draws=3, resamples=4)
    return _analysed(quick, tmp_path_factory, "quick-calibrated", options)


def _analysed(sweep: Sweep, factory: pytest.TempPathFactory, name: str, options: Options) -> Sweep:
    def make(folder: Path) -> None:
        Sweep(shutil.copytree(sweep.directory, folder / "sweep")).analyze(options, workers=1)

    return Sweep(once(factory, name, make) / "sweep")


def own_copy(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a copy of what is made `once`: tests of this process may write in it."""
    return Path(shutil.copytree(once(factory, name, make), factory.mktemp(name) / "copy"))


@pytest.fixture
def stopped() -> Iterator[list[Sweep]]:
    """Sweeps that a test puts in here are stopped at its end, whatever happened."""
    sweeps: list[Sweep] = []
    yield sweeps
    for sweep in sweeps:
        sweep.cancel()
        sweep.wait()
