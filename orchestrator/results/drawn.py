"""The page's figures, kept in ``figures.json.z`` with what they were drawn from.

Figures depend on the tables, the conventions, and the code and packages that draw: a file of
others, or a damaged one, is not used. Losing it costs only the time to draw.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from manyseed.analysis.figures.svg import Picture, drawing_version, is_picture
from manyseed.orchestrator.disk.parquet import checksum
from manyseed.orchestrator.disk.placing import if_writable, place, read_plain
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.record import Analysis
from manyseed.orchestrator.results.tables import Results

_MOST = 1 << 26  # bytes of text that are read
_FIELDS = {one.name for one in fields(Picture)}
_TEXTS = ("name", "title", "caption", "dataset", "svg", "numbers")

Identity = Mapping[str, Any]


def identity(paths: SweepPaths, results: Results, record: Analysis) -> Identity | None:
    """Return what figures are drawn from; None if tables of an earlier version don't tell."""
    tables = checksums(paths, results)
    if not all(tables.values()):
        return None
    return {"tables": tables, "options": record.options, "drawing": drawing_version()}


def checksums(paths: SweepPaths, results: Results) -> dict[str, str]:
    """Return the checksums of all tables by name; empty ones of earlier versions."""
    files = {name: paths.table(name) for name in results}
    return {name: checksum(file) for name, file in files.items() if file.exists()}


def kept(paths: SweepPaths, of: Identity | None) -> list[Picture] | None:
    """Return the figures on disk; None unless they were drawn from the same."""
    if of is None:
        return None
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(read_plain(paths.figures), _MOST)
        written = json.loads(text) if inflate.eof else {}
        same = written.get("of") == json.loads(json.dumps(of))
        return [_read(one) for one in written["figures"]] if same else None
    except (OSError, DamagedFile, zlib.error, ValueError, RecursionError):
        return None
    except (AttributeError, KeyError, TypeError):  # another JSON value
        return None


def keep(paths: SweepPaths, of: Identity | None, figures: Sequence[Picture]) -> None:
    """Keep figures; a read-only sweep stays as it is."""
    if of is None:
        return
    text = json.dumps({"of": of, "figures": [asdict(one) for one in figures]})
    with if_writable():
        place(paths.figures, zlib.compress(text.encode()))


def _read(written: Mapping[str, Any]) -> Picture:
    """Return a figure from JSON.

    Raises
    ------
    ValueError
        Unless it is one, with a picture that can do nothing but be seen.
    """
    texts = all(isinstance(written[name], str) for name in _TEXTS)
    if written.keys() != _FIELDS or not texts or not is_picture(written["svg"]):
        raise ValueError("not a figure")
    return Picture(**written)
