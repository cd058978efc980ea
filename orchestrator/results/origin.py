"""The origin of results, for the page: sweep file, test sets, versions, commit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import polars as pl

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.grids.sweepfile import SweepFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.provenance import read_recipes

IMPORTED = "imported"
"""The device of imported predictions."""

TEST_SHARE = 0.25  # by default


def origin(
    paths: SweepPaths, cells: pl.DataFrame, packages: Mapping[str, str], analysed: str
) -> dict[str, str]:
    """Return how results were made: descriptions in words, by heading.

    Parameters
    ----------
    paths : SweepPaths
    cells : frame
        The table of cells.
    packages : mapping
        Versions of the packages that analysed.
    analysed : str
        Time of the analysis.
    """
    recipes = read_recipes(paths.recipes)
    devices = sorted({f"{r.device} ({r.device_class})" for r in recipes.values()})
    facts = {"Analysed": analysed}
    if {r.device for r in recipes.values()} == {IMPORTED}:
        facts["Imported"] = ", ".join(sorted({str(r.device_class) for r in recipes.values()}))
    else:
        facts = {
            **_asked(paths, cells),
            **facts,
            "Devices": "; ".join(devices),
            "Recipes": str(len(recipes)),
        }
    commit = _commit()
    return {**facts, **packages, **({"Page made by commit": commit} if commit else {})}


def _asked(paths: SweepPaths, cells: pl.DataFrame) -> dict[str, str]:
    """Return what the sweep asks of runs that are trained here."""
    facts = {}
    with suppress(UserError):
        file = read_sweep_file(paths.sweep_file)
        facts = {"Seed": str(file.seed), "Test sets": _test_sets(file, cells)}
    hparams = cells["hparams"].cast(pl.String).unique().sort().to_list()
    noise = cells["perturb_hparams"].cast(pl.String).unique().sort().to_list()
    return facts | {"Hparams": ", ".join(hparams) + f"; noise on them: {', '.join(noise)}"}


def sweep_text(paths: SweepPaths) -> str:
    """Return the text of the sweep file; empty if there is none."""
    try:
        return paths.sweep_file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _test_sets(file: SweepFile, cells: pl.DataFrame) -> str:
    """Say how large the test set of each dataset is."""
    by_size: dict[str, list[str]] = {}
    for name in cells["dataset"].cast(pl.String).unique().sort().to_list():
        table = file.dataset.get(name)
        test = TEST_SHARE if table is None or table.test is None else table.test
        size = f"{test:.0%} of the samples" if isinstance(test, float) else str(test)
        by_size.setdefault(f"{size} points" if isinstance(test, int) else size, []).append(name)
    return "; ".join(f"{size}: {', '.join(names)}" for size, names in by_size.items())


def _commit() -> str:
    """Return the commit of this program if it runs from a clone, else ""."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
