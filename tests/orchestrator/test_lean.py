"""What a task's processes import: a node may start hundreds of them at once."""

import subprocess
import sys

import pytest

SLOW = ("polars", "torch", "dask", "xarray", "pandas", "sklearn", "xgboost")


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("orchestrator.cli", (*SLOW, "zarr", "numpy")),
        ("orchestrator.working.worker", (*SLOW, "zarr")),
        ("orchestrator.working.process", (*SLOW, "zarr")),
        ("orchestrator.survey", tuple({*SLOW} - {"polars"})),
    ],
)
def test_slow_libraries_are_imported_where_they_are_used(
    module: str, without: tuple[str, ...]
) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert module in loaded
    assert loaded.isdisjoint(without)
