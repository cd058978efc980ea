"""Where results come from, as the page reports it: sweep file, test sets, versions, commit."""

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
"""The device of predictions that were made elsewhere."""

TEST_SHARE = 0.25  # where a sweep file says nothing


def origin(
    paths: SweepPaths, cells: pl.DataFrame, packages: Mapping[str, str], analysed: str
) -> dict[str, str]:
    """Return what is known of how results were made, in words, by what it is of.

    Parameters
    ----------
    paths : SweepPaths
    cells : frame
        The table of cells.
    packages : mapping
        Versions of what analysed.
    analysed : str
        When.
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
    """Return what was asked for of what is trained here."""
    facts = {}
    with suppress(UserError):
        file = read_sweep_file(paths.sweep_file)
        facts = {"Seed": str(file.seed), "Test sets": _test_sets(file, cells)}
    hparams = cells["hparams"].cast(pl.String).unique().sort().to_list()
    noise = cells["perturb_hparams"].cast(pl.String).unique().sort().to_list()
    return facts | {"Hparams": ", ".join(hparams) + f"; noise on them: {', '.join(noise)}"}


def sweep_text(paths: SweepPaths) -> str:
    """Return the text of the sweep file; empty where there is none."""
    try:
        return paths.sweep_file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _test_sets(file: SweepFile, cells: pl.DataFrame) -> str:
    """Say how large the test set of each dataset is."""
    said: dict[str, list[str]] = {}
    for name in cells["dataset"].cast(pl.String).unique().sort().to_list():
        table = file.dataset.get(name)
        test = TEST_SHARE if table is None or table.test is None else table.test
        of = f"{test:.0%} of the samples" if isinstance(test, float) else str(test)
        said.setdefault(f"{of} points" if isinstance(test, int) else of, []).append(name)
    return "; ".join(f"{of}: {', '.join(names)}" for of, names in said.items())


def _commit() -> str:
    """Return the commit of this program, if it runs from a clone."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    asked = [
        "git",
        "-C",
        str(root),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
