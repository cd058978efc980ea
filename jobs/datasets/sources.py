"""The table of sources; a new kind of source is one more record here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manyseed.jobs.checks import Refused, UnknownOption
from manyseed.jobs.datasets import (
    bundled,
    function,
    huggingface,
    openml,
    openml_task,
    synthetic,
    tablefile,
    vision,
)
from manyseed.jobs.datasets.openml_catalogue import SUITES
from manyseed.jobs.datasets.source import DatasetSource, DataShape

SOURCES: dict[str, DatasetSource] = {
    "sklearn": bundled.SOURCE,
    "synthetic": synthetic.SOURCE,
    "openml": openml.SOURCE,
    "openml-task": openml_task.SOURCE,
    "torchvision": vision.SOURCE,
    "hf": huggingface.SOURCE,
    "file": tablefile.SOURCE,
    "function": function.SOURCE,
}

COMMON_PARAMETERS = ("source", "classes", "positive", "test")
"""Keys of every dataset's table."""

_BARE = {entry.name: entry.source for suite in SUITES.values() for entry in suite}


def names() -> tuple[str, ...]:
    """Return all named sources, as users write them."""
    return tuple(f"{kind}:{name}" for kind, source in SOURCES.items() for name in source.names)


def bare_names() -> tuple[str, ...]:
    """Return the names that need no kind in front: those of the suites' datasets."""
    return tuple(_BARE)


def suite(name: str) -> tuple[str, ...]:
    """Return the sources of a named suite, or of one of OpenML's.

    Raises
    ------
    Refused
        For an unknown suite.
    """
    if name.startswith(openml_task.SUITE):
        return openml_task.suite(name.removeprefix(openml_task.SUITE))
    if name not in SUITES:
        raise Refused("suite", name, "unknown suite", SUITES)
    return tuple(entry.name for entry in SUITES[name])


def describe(source: str, parameters: Mapping[str, Any]) -> DataShape:
    """Return what is known of a source without loading it.

    Raises
    ------
    Refused
        For an unknown source or parameter, or a wrong value of one.
    """
    kind_name, colon, name = _BARE.get(source, source).partition(":")
    if not colon and Path(source).suffix in tablefile.FORMATS:
        raise Refused("source", source, f'unknown source; a file is written as "file:{source}"')
    if not colon or kind_name not in SOURCES:
        raise Refused("source", source, "unknown source", (*names(), *_BARE))
    kind = SOURCES[kind_name]
    for key in parameters:
        if key not in (*kind.parameters, *kind.unwritten):
            allowed = (*COMMON_PARAMETERS, *kind.parameters)
            raise UnknownOption(key, parameters[key], allowed=allowed)
    return kind.describe(name, parameters)


def of(canonical: Mapping[str, Any]) -> tuple[DatasetSource, str]:
    """Return the kind of source of a canonical description, and the name after the colon."""
    kind, _, name = canonical["source"].partition(":")
    return SOURCES[kind], name
