"""Fetch data to this machine, once, before workers need it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manyseed.jobs.datasets import cache
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.datasets.sources import of
from manyseed.jobs.run import MachineError


def needs_fetching(canonical: Mapping[str, Any]) -> bool:
    """Return whether workers read a prepared copy of this dataset, rather than load its source."""
    return of(canonical)[0].fetch is not None


def is_fetched(canonical: Mapping[str, Any], home: Path | None = None) -> bool:
    """Return whether workers will find a dataset on this machine.

    Quick: checks only that the files exist and have their length; `fetch` and loading check what
    they hold.
    """
    return not needs_fetching(canonical) or cache.is_complete(canonical, home or cache.data_home())


def fetch(info: DatasetInfo, home: Path | None = None) -> bool:
    """Make the prepared copy of a dataset, unless a sound one is there.

    Safe in several processes at once.

    Parameters
    ----------
    home : Path, optional
        Folder of data; `cache.data_home` by default. OpenML's downloads are kept in its ``openml``,
        as scikit-learn keeps them; torchvision's files are read from its ``torchvision``.

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
