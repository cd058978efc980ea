"""How runs are made: the recipe, recorded with every result and never part of an identity.

A run's predictions are the same bit for bit within one recipe; a recipe is the form of training,
its threads and precision, the device class and the versions of what computes.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from orchestrator.files import read_record
from orchestrator.store.files import place_new

_PACKAGES = ("manyseed", "numpy", "scikit-learn", "scipy", "torch", "xgboost", "xgboost-cpu")
_INSTRUCTION_SETS = ("avx512f", "avx2", "avx", "asimd", "sve")


def recipe(gpu: str | None = None) -> dict[str, Any]:
    """Return the recipe of fits on this machine's CPU, or on its GPU.

    Parameters
    ----------
    gpu : str, optional
        The GPU's model.
    """
    return {
        "form": "sequential",
        "threads": 1,
        "precision": "float32",
        "device": "gpu" if gpu else "cpu",
        "device_class": gpu or cpu_class(),
        "python": platform.python_version(),
        "packages": package_versions(),
    }


def of_machine(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe without what was found for tuned cells: what depends on the machine."""
    return {name: value for name, value in recipe.items() if name != "tuned"}


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that compute."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def cpu_class() -> str:
    """Return the CPU's model and its widest instruction set."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    model = fields.get("model name") or platform.processor() or platform.machine()
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    widest = next((name for name in _INSTRUCTION_SETS if name in flags), "")
    return f"{model} {widest}".strip()


def register(folder: Path, value: dict[str, Any]) -> int:
    """Return the number of a recipe, recording it under the next one if it is new.

    Any number of processes may register at once.
    """
    text = json.dumps(value, indent=1) + "\n"
    while True:
        known = read_recipes(folder)
        for number, other in known.items():
            if other == value:
                return number
        number = max(known, default=0) + 1
        try:
            place_new(folder / f"{number:04d}.json", text.encode())
        except FileExistsError:  # another was first
            continue
        return number


def read_recipes(folder: Path) -> dict[int, dict[str, Any]]:
    """Return all recorded recipes by number."""
    return {
        int(path.stem): read_record(path, dict[str, Any])
        for path in sorted(folder.glob("[0-9]*.json"))
        if path.stem.isdigit()
    }
