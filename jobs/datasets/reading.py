"""The samples of a dataset's source, generated, shipped or from a prepared copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.datasets import cache
from jobs.datasets.source import Samples
from jobs.datasets.sources import of


def load(canonical: Mapping[str, Any]) -> Samples:
    """Read or generate the samples of a dataset's canonical description.

    Raises
    ------
    jobs.run.MachineError
        Where the data is missing or is not the described one; for a missing prepared copy with the
        command that makes it.
    """
    source, name = of(canonical)
    if source.load is None:
        return cache.read(canonical, cache.data_home())
    return source.load(name, canonical)
