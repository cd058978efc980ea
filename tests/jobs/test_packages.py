"""Commands that install what is missing need no index that has manyseed itself."""

from __future__ import annotations

from importlib.metadata import requires
from pathlib import Path

import pytest

import manyseed
from manyseed.jobs import packages

ROOT = Path(manyseed.__file__).parent


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        (["torch"], "pip install 'torch>=2.6' 'torchvision>=0.21'"),
        (["torchvision"], "pip install 'torchvision>=0.21'"),
        (["torch", "torchvision"], "pip install 'torch>=2.6' 'torchvision>=0.21'"),
        (["datasets"], "pip install 'datasets>=4'"),
        (["cryptography"], "pip install 'cryptography>=42'"),
        (["skops"], "pip install skops"),
    ],
)
def test_packages_are_named_with_the_versions_that_the_extras_ask_for(
    missing: list[str], command: str
) -> None:
    assert packages.install(missing) == command


def test_there_are_two_builds_of_xgboost() -> None:
    assert packages.install(["xgboost"]) == (
        "pip install 'xgboost-cpu>=2.1.3'; on a machine with GPUs, xgboost instead of xgboost-cpu"
    )
    assert {"xgboost-cpu>=2.1.3", "xgboost>=2.1.3"} <= {
        one.partition(";")[0].strip() for one in requires("manyseed") or []
    }


def test_no_message_asks_an_index_for_manyseed() -> None:
    for package in ("orchestrator", "jobs", "slurm", "analysis"):
        for file in (ROOT / package).rglob("*.py"):
            assert "manyseed[" not in file.read_text(), file
