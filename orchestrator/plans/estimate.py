"""The estimated and the actual cost of a plan."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.groups import Groups
from manyseed.orchestrator.plans.scales import FoundScale
from manyseed.orchestrator.plans.tuned import TunedHparams
from manyseed.orchestrator.store.arrays import DONE
from manyseed.orchestrator.store.groups import find_group
from manyseed.orchestrator.store.reader import read_array

FIGURES = ("fits", "hours", "store_bytes", "store_files")
"""The figures that are estimated and counted; hours are core hours plus GPU hours."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The figures of a plan, or of its outcome; NaN if unknown.

    Attributes
    ----------
    fits, store_bytes, store_files : float
        Whole numbers.
    hours : float
        Hours of fits, without features that are computed once.
    """

    fits: float = math.nan
    store_bytes: float = math.nan
    store_files: float = math.nan
    hours: float = math.nan

    @classmethod
    def read(cls, paths: SweepPaths) -> Estimate:
        """Return a plan's estimate; all NaN if its file is missing or damaged."""
        try:
            return read_record(paths.estimate, cls)
        except (FileNotFoundError, DamagedFile):
            return cls()

    def write(self, paths: SweepPaths, before_rename: Callable[[], None] | None = None) -> None:
        """Write the estimate beside the plan."""
        write_json(paths.estimate, asdict(self), before_rename=before_rename)


def estimate_and_outcome(paths: SweepPaths) -> dict[str, tuple[float, float]]:
    """Return for each of `FIGURES` the plan's estimate and the actual value."""
    estimated, actual = asdict(Estimate.read(paths)), asdict(_outcome(paths))
    return {name: (estimated[name], actual[name]) for name in FIGURES}


def _outcome(paths: SweepPaths) -> Estimate:
    searches = [TunedHparams.read(file) for file in paths.all_tuned()]
    draws = [draw.seconds for search in searches for draw in search.draws]
    scales = [FoundScale.read(file) for file in paths.all_scales()]
    draws += [trial.seconds for search in scales for trial in search.trials]
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
    return Estimate(fits, n_bytes, n_files, seconds / 3600)
