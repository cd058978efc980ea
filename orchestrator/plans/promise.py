"""What a plan promised, and what became of it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.errors import DamagedFile
from orchestrator.files import read_record, write_json
from orchestrator.paths import SweepPaths
from orchestrator.plans.groups import Groups
from orchestrator.plans.tuned import read_found
from orchestrator.store.arrays import DONE
from orchestrator.store.groups import find_group
from orchestrator.store.reader import read_array

FIGURES = ("fits", "hours", "store_bytes", "store_files")
"""What can be promised and counted; hours are of cores and of GPUs together."""

_NAME = "promise.json"


def write_promise(
    paths: SweepPaths, summary: dict[str, Any], before_rename: Callable[[], None] | None = None
) -> None:
    """Record the figures of a plan beside it."""
    # what is held against it are the times of fits, which leave features out
    hours = summary["core_hours"] + summary["gpu_hours"] - summary["feature_hours"]
    write_json(
        paths.plan / _NAME,
        {name: summary[name] for name in FIGURES if name != "hours"} | {"hours": hours},
        before_rename=before_rename,
    )


def promise_and_outcome(paths: SweepPaths) -> dict[str, tuple[float, float]]:
    """Return for each of `FIGURES` what the plan promised and what there is."""
    promised = _read_promise(paths.plan / _NAME)
    found = _outcome(paths)
    return {name: (promised.get(name, math.nan), found[name]) for name in FIGURES}


def _read_promise(file: Path) -> dict[str, float]:
    """Return what was promised; what cannot be read, as of a damaged file, is not a number."""
    try:
        return read_record(file, dict[str, float])
    except (FileNotFoundError, DamagedFile):
        return {}


def _outcome(paths: SweepPaths) -> dict[str, float]:
    searches = [read_found(file) for file in sorted((paths.plan / "tuned").glob("*.json"))]
    draws = [draw.seconds for search in searches for draw in search.draws]
    fits, seconds = len(draws), float(sum(draws))
    for spec in Groups.read(paths).specs:
        if (group := find_group(paths.store, spec)) is None:
            continue
        trained = read_array(group, "status") == DONE
        fits += int(trained.sum())
        seconds += float(np.nansum(read_array(group, "fit_seconds")[trained], dtype=np.float64))
    n_bytes, n_files = 0, 0
    for folder, _, names in os.walk(paths.store):
        n_files += 1 + len(names)
        n_bytes += sum(os.stat(os.path.join(folder, name)).st_size for name in names)  # noqa: PTH116, PTH118
    return {"fits": fits, "hours": seconds / 3600, "store_bytes": n_bytes, "store_files": n_files}
