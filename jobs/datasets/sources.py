"""The table of sources; a further kind of source is one more record here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.checks import unknown
from jobs.datasets import bundled, synthetic
from jobs.datasets.source import Samples, Shape, Source

SOURCES: dict[str, Source] = {"sklearn": bundled.SOURCE, "synthetic": synthetic.SOURCE}

COMMON_PARAMETERS = ("source", "classes", "positive", "test")
"""Keys of every dataset's table."""


def names() -> tuple[str, ...]:
    """Return all sources, as they are written in a sweep file."""
    return tuple(f"{kind}:{name}" for kind, source in SOURCES.items() for name in source.names)


def describe(source: str, parameters: Mapping[str, Any]) -> Shape:
    """Return what is known of a source without reading data.

    Raises
    ------
    ValueError
        For an unknown source or parameter, or a parameter's value that is wrong.
    """
    kind, name = _find(source)
    own = kind.parameters[name]
    for key in parameters:
        if key not in own:
            raise unknown(f"parameter of {source}", key, (*COMMON_PARAMETERS, *own))
    return kind.describe(name, parameters)


def load(canonical: Mapping[str, Any]) -> Samples:
    """Read or generate the samples of a dataset's canonical description.

    Raises
    ------
    jobs.run.MachineError
        Where the data is missing or is not the described one.
    """
    kind, name = _find(canonical["source"])
    return kind.load(name, canonical)


def _find(source: str) -> tuple[Source, str]:
    prefix, _, name = str(source).partition(":")
    if prefix not in SOURCES or name not in SOURCES[prefix].names:
        raise unknown("source", source, names())
    return SOURCES[prefix], name
