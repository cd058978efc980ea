"""What `plan` says of a plan, and of cells that are dropped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from manyseed.orchestrator.cli import planned
from tests.orchestrator.conftest import inside

SWEEP = """
name    = "small"
seed    = 1
repeats = 1
runs    = 2

[[grid]]
dataset    = ["sklearn:iris"]
classifier = ["mlp", "lr-sgd"]
vary       = ["init", "batch", "train"]

[classifier.mlp]
epochs = 2
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = Path("small.toml")
    file.write_text(SWEEP)
    assert inside("plan", file)[0] == 0
    return file


@pytest.mark.usefixtures("small")
def test_a_condition_is_refused_by_the_option_that_was_given() -> None:
    for condition in ("run_index = 1", "clasifier = 'mlp'", "cell >", "cell >= 0", "cell > 99"):
        for words in (("plan", "small", "--drop"), ("drop", "small", "--where")):
            code, text = inside(*words, condition)
            named = {word for word in ("--drop", "--where", "--only") if f"error: {word}" in text}
            assert (code, named) == (2, {words[-1]}), text
    for words in (("plan", "small", "--drop"), ("submit", "small", "--cluster", "local", "--only")):
        for column in ("run_index", "run", "seed", "repeat"):
            text = inside(*words, f"{column} = 1")[1]
            assert f"{words[-1]} chooses whole cells, not single runs" in text
    assert "single runs" not in inside("plan", "small", "--drop", "clasifier = 'mlp'")[1]


@pytest.mark.usefixtures("small")
def test_cells_to_drop_are_shown_with_what_tells_them_apart() -> None:
    code, text = inside("plan", "small", "--drop", "classifier = 'mlp' AND vary = 'train'", "-n")
    head, row = (line.split() for line in text.splitlines()[:2])
    assert (code, head, row[1:]) == (
        0,
        ["cell", "dataset", "classifier", "vary"],
        ["sklearn:iris", "mlp", "train"],
    )


def test_a_gpu_that_is_asked_for_where_none_responds_is_told(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    told = 'No GPU responds here: on this machine, device = "gpu" trains on the CPU.'
    assert told not in inside("plan", small, "--dry-run")[1]
    small.write_text(SWEEP + 'device = "gpu"\n')
    assert told in inside("plan", small, "--dry-run")[1]
    assert told in inside("plan", small)[1]
    tools = Path("tools")
    tools.mkdir()
    (tools / "nvidia-smi").write_text('#!/bin/sh\necho "GPU 0: Model (UUID: GPU-1)"\n')
    (tools / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools.resolve()}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    from manyseed.orchestrator import devices

    devices._listed.cache_clear()
    try:
        assert told not in inside("plan", small, "--dry-run")[1]
    finally:
        devices._listed.cache_clear()


def test_very_little_time_is_less_than_it_not_about_less() -> None:
    assert planned._about(planned._few(0.0001)) == "less than 0.001"
    assert planned._about(planned._few(2)) == "about 2.00"
