"""The recipes of images and of the conda package say what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"matplotlib": "matplotlib-base", "torch": "pytorch", "xgboost-cpu": "py-xgboost"}


def declared() -> tuple[dict[str, str], set[str]]:
    """Lowest versions by distribution, of the core and the extra "cpu"; all names of extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lowest = {}
    for line in project["dependencies"] + extras["train"] + extras["cpu"]:
        if not line.startswith("manyseed"):
            found = re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", line)
            assert found, line
            lowest[found[1]] = found[2]
    return lowest, set(extras)


def test_the_conda_package_needs_what_the_wheel_needs() -> None:
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    needed = dict(line.split(" >=") for line in recipe["requirements"]["run"])
    assert needed.pop("python") == "3.11"
    lowest, _ = declared()
    assert needed == {CONDA_NAMES.get(name, name): version for name, version in lowest.items()}


def test_images_are_built_from_files_and_extras_that_there_are() -> None:
    _, extras = declared()
    for name, pattern in (("Dockerfile", r"^ARG EXTRA=(\w+)$"), ("apptainer.def", r"EXTRA=(\w+)$")):
        text = (ROOT / "packaging" / name).read_text()
        assert set(re.findall(pattern, text, re.MULTILINE)) <= extras
        assert f"packaging/{name}" in text  # the command that builds it
