"""The table of sources; a further kind of source is one more record here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from jobs.checks import unknown
from jobs.datasets import bundled, openml, synthetic, tablefile, vision
from jobs.datasets.openml_catalogue import SUITES
from jobs.datasets.source import Shape, Source

SOURCES: dict[str, Source] = {
    "sklearn": bundled.SOURCE,
    "synthetic": synthetic.SOURCE,
    "openml": openml.SOURCE,
    "torchvision": vision.SOURCE,
    "file": tablefile.SOURCE,
}

COMMON_PARAMETERS = ("source", "classes", "positive", "test")
"""Keys of every dataset's table."""

_BARE = {entry.name: entry.source for suite in SUITES.values() for entry in suite}


def names() -> tuple[str, ...]:
    """Return all sources with names of their own, as they are written in a sweep file."""
    return tuple(f"{kind}:{name}" for kind, source in SOURCES.items() for name in source.names)


def bare_names() -> tuple[str, ...]:
    """Return the names that are sources without a kind before them: those of the suites."""
    return tuple(_BARE)


def suite(name: str) -> tuple[str, ...]:
    """Return the datasets of a named suite, each of them a source.

    Raises
    ------
    ValueError
        For an unknown suite.
    """
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return tuple(entry.name for entry in SUITES[name])


def describe(source: str, parameters: Mapping[str, Any]) -> Shape:
    """Return what is known of a source without loading it.

    Raises
    ------
    ValueError
        For an unknown source or parameter, or a parameter's value that is wrong.
    """
    kind, name = _find(source)
    for key in parameters:
        if key not in kind.parameters:
            raise unknown(f"parameter of {source}", key, (*COMMON_PARAMETERS, *kind.parameters))
    return kind.describe(name, parameters)


def of(canonical: Mapping[str, Any]) -> tuple[Source, str]:
    """Return the kind of source of a canonical description, and the name after the colon."""
    kind, _, name = canonical["source"].partition(":")
    return SOURCES[kind], name


def _find(source: str) -> tuple[Source, str]:
    kind, colon, name = _BARE.get(source, source).partition(":")
    if not colon or kind not in SOURCES:
        # Without its kind a name is known too, but only to be told the whole.
        whole = {name.partition(":")[2]: name for name in names()}
        whole |= {name: name for name in (*names(), *_BARE)}
        near = difflib.get_close_matches(source, whole, n=1)
        raise ValueError(
            f"unknown source {source!r}: "
            + (f"did you mean {whole[near[0]]!r}? " if near else "")
            + f"there are {', '.join(f'{kind}:…' for kind in SOURCES)}"
        )
    return SOURCES[kind], name
