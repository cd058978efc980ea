"""GPUs as the driver tells of them; a program of the driver's name answers here."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyseed.orchestrator import devices
from manyseed.orchestrator.devices import assigned, gpus

TOLD = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aa11)\nGPU 1: NVIDIA A100 (UUID: GPU-bb22)\n"
PARTS = (
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa11)\n"
    "  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4)\n"
    "  MIG 2g.10gb     Device  1: (UUID: MIG-cba6)\n"
    "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb22)\n"
)


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<END\n{TOLD}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "_listed", devices._listed.__wrapped__)  # not from another test
    return program


def test_a_machine_without_a_driver_has_no_gpu(driver: Path) -> None:
    driver.unlink()
    assert gpus() == {}
    driver.write_text("#!/bin/sh\necho no devices; exit 9\n")
    driver.chmod(0o755)
    assert gpus() == {}
    assert assigned(0) == {}


@pytest.mark.parametrize(
    ("visible", "models"),
    [
        (None, {"0": "NVIDIA H100 80GB HBM3", "1": "NVIDIA A100"}),
        ("1", {"1": "NVIDIA A100"}),
        ("GPU-bb", {"GPU-bb": "NVIDIA A100"}),
        ("1,7,0", {"1": "NVIDIA A100"}),
        ("", {}),
        ("-1", {}),
        ("NoDevFiles", {}),
    ],
)
def test_those_are_seen_that_the_scheduler_gave(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, models: dict[str, str]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == models


@pytest.mark.parametrize(
    ("visible", "models"),
    [
        (
            None,
            {
                "MIG-c6d4": "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
                "MIG-cba6": "NVIDIA A100-SXM4-40GB MIG 2g.10gb",
                "1": "NVIDIA A100-SXM4-40GB",
            },
        ),
        ("MIG-cba6", {"MIG-cba6": "NVIDIA A100-SXM4-40GB MIG 2g.10gb"}),
    ],
)
def test_parts_of_a_gpu_are_gpus(
    driver: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, models: dict[str, str]
) -> None:
    driver.write_text(f"#!/bin/sh\ncat <<END\n{PARTS}END\n")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == models


def test_processes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [assigned(n)["CUDA_VISIBLE_DEVICES"] for n in range(4)] == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert assigned(3) == {}  # all share the one that they have
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3,2")
    assert [assigned(n)["CUDA_VISIBLE_DEVICES"] for n in (0, 4)] == ["5", "3"]
