"""Bringing data to this machine, once, before workers need it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manyseed.jobs.datasets import cache
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.datasets.sources import of
from manyseed.jobs.run import MachineError


def needs_fetching(canonical: Mapping[str, Any]) -> bool:
    """Return whether workers read a prepared copy of this dataset rather than make one."""
    return of(canonical)[0].fetch is not None


def is_fetched(canonical: Mapping[str, Any], home: Path | None = None) -> bool:
    """Return whether workers will find a dataset on this machine.

    Quick: files are there and as long as they should be; what they hold is checked by `fetch` and
    on loading.
    """
    return not needs_fetching(canonical) or cache.is_complete(canonical, home or cache.data_home())


def fetch(info: DatasetInfo, home: Path | None = None) -> bool:
    """Make the prepared copy of a dataset, unless a sound one is there.

    Safe in several processes at once.

    Parameters
    ----------
    home : Path, optional
        Folder of data; `cache.data_home` by default. Downloads are kept there too: OpenML's as
        scikit-learn keeps them, below ``openml``. Files of torchvision's datasets that lie below
        ``torchvision`` are used.

    Returns
    -------
    bool
        Whether a copy was made.

    Raises
    ------
    jobs.run.MachineError
        Where data cannot be reached or written, or is not what the catalogue or the plan says.
    """
    source, _ = of(info.canonical)
    if source.fetch is None:
        return False
    home = home or cache.data_home()
    try:
        cache.read(info.canonical, home)
    except MachineError:
        cache.write(source.fetch(info.canonical, info.locations, home), info.canonical, home)
        return True
    return False
