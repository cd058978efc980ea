"""Figures as they are on the page: text that says all that the page needs.

Importing this module does not import Matplotlib; `figures.drawing` does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

CELLS = "cells-"  # prefix of the names of figures of a dataset's cells
MARKS = 8000  # most dots of a page that name their run
NUMBERS = 8000  # most rows of figures' numbers on a page

_DRAWING = ("matplotlib", "numpy", "pillow", "polars", "scipy")
_PAGE = "report"  # folder of the package that draws nothing
_SVG = "{http://www.w3.org/2000/svg}"
_ELEMENTS = {
    f"{_SVG}{name}"
    for name in ("clipPath", "defs", "g", "image", "path", "rect", "svg", "text", "use")
}
_ATTRIBUTES = {
    *("clip-path", "d", "fill", "font-family", "height", "href", "id", "stroke-linejoin", "style"),
    *("points", "transform", "version", "viewBox", "width", "x", "y"),
}
_ELSEWHERE = re.compile(r"url\((?!#)|[@\\]", re.IGNORECASE)
_LINKS = ("#", "data:image/png;base64,")


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn figure; `name`, `title`, `caption`, `n` and `dataset` are those of `style.Plot`.

    Attributes
    ----------
    svg : str
    marks : mapping or None
        Dots that name their run, as the page's script reads them; None without dots, and if they
        are more than a page holds.
    bands : sequence of (sequence of str, float, float)
        Levels, top and bottom of its rows, if these are combinations of levels.
    numbers : str
        The other numbers drawn, as CSV; empty if there are none, or more than a page holds.
    rows : int
        The rows of `numbers`.
    """

    name: str
    title: str
    caption: str
    n: int
    dataset: str
    svg: str = field(repr=False)
    marks: Mapping[str, Any] | None = field(repr=False)
    bands: Sequence[tuple[Sequence[str], float, float]] = field(repr=False)
    numbers: str = field(repr=False)
    rows: int = field(repr=False)

    @property
    def of_cells(self) -> bool:
        """Whether it shows the cells of a dataset."""
        return self.name.startswith(CELLS)


def is_picture(svg: object) -> bool:
    """Return whether text is an SVG such as `Plot.svg` makes: shapes, without scripts or links."""
    if not isinstance(svg, str) or "<!" in svg or "<?" in svg:
        return False
    try:
        root = Xml.fromstring(svg)
    except Xml.ParseError:
        return False
    return root.tag == f"{_SVG}svg" and all(
        element.tag in _ELEMENTS
        and element.attrib.keys() <= _ATTRIBUTES
        and element.get("href", "#").startswith(_LINKS)
        and not any(
            _ELSEWHERE.search(element.get(name, "")) for name in ("clip-path", "fill", "style")
        )
        for element in root.iter()
    )


def drawing_version() -> str:
    """Return a digest of the code that draws, and of the packages that it draws with."""
    here = Path(__file__).parents[1]
    files = sorted(f for f in here.rglob("*.py") if f.relative_to(here).parts[0] != _PAGE)
    digest = hashlib.sha256(repr([version(name) for name in _DRAWING]).encode())
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]
