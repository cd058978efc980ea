"""Whether a node is at fault when tasks break on it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.working.node import (
    EACH_CORE,
    EACH_GPU,
    Node,
    broken_nodes,
    is_environment,
    used,
)


def attempt(node: str, *, done: int = 0, broke: bool = False, age: float = 0.0) -> Attempt:
    now = time.time() - age
    told = Attempt("broken", "", node, started=now, updated=now, done={"0": done}, reason="why")
    return replace(told, node_at_fault=broke)


@pytest.mark.parametrize(
    ("variable", "given", "n"),
    [
        ("CUDA_VISIBLE_DEVICES", "0,3", 2),
        ("ROCR_VISIBLE_DEVICES", "2", 1),
        ("CUDA_VISIBLE_DEVICES", "NoDevFiles", 0),
        ("CUDA_VISIBLE_DEVICES", "", 0),
    ],
)
def test_a_job_counts_the_gpus_that_it_was_given(
    monkeypatch: pytest.MonkeyPatch, variable: str, given: str, n: int
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    told = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    for name, value in {**told, "SLURM_CPUS_ON_NODE": "12", variable: given}.items():
        monkeypatch.setenv(name, value)
    node = Node.here()
    assert node.n_gpus == n
    assert [node.processes(given) for given in ("5", EACH_CORE, f"{EACH_GPU}3")] == [5, 12, 3 * n]


def test_a_node_is_broken_until_it_works_or_a_day_has_gone() -> None:
    assert broken_nodes([attempt("a", done=3, age=9), attempt("b", broke=True, age=5)]) == {
        "b": "why"
    }
    assert broken_nodes([attempt("b", broke=True, age=9), attempt("b", done=1, age=5)]) == {}
    assert broken_nodes([attempt("b", broke=True, age=25 * 3600)]) == {}


def test_where_several_break_and_none_works_it_is_not_the_nodes() -> None:
    three = [attempt(node, broke=True) for node in "abc"]
    assert not is_environment(three[:2])
    assert is_environment(three)
    assert not is_environment([*three, attempt("d", done=1)])


def test_a_process_that_ends_while_it_is_measured_counts_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The status of a process that has just ended holds no sizes."""
    read = Path.read_bytes

    def of_ended(path: Path) -> bytes:
        content = read(path)
        if path.parts[1:] != ("proc", str(os.getppid()), "status"):
            return content
        return b"".join(line for line in content.splitlines(True) if not line.startswith(b"Vm"))

    alone, _ = used([os.getpid()])
    assert alone > 1_000_000
    monkeypatch.setattr(Path, "read_bytes", of_ended)
    memory, seconds = used([os.getppid(), os.getpid()])
    assert 0 < memory < 2 * alone
    assert seconds > 0
