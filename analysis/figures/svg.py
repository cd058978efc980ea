"""Figures as they are on the page: compact SVG that is safe to show; imports no Matplotlib.

Matplotlib's SVG becomes a third of its size: metadata, groups without a meaning, and decimals
beyond a tenth of a point are dropped. Ids get the figure's name as a prefix, so that several
figures fit on one page. Black becomes the colour of the surrounding text, so that figures are
readable in light and dark mode.
"""

from __future__ import annotations

import hashlib
import itertools
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

    `marks`: dots that name their run, as the page's script reads them; None without dots, and if
    they are more than a page holds. `bands`, sequence of (sequence of str, float, float): levels,
    top and bottom of its rows, if these are combinations of levels. `numbers`: the other numbers
    drawn, as CSV; empty if there are none, or more than a page holds. `rows`: the rows of
    `numbers`.
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


SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
FONT = "'DejaVu Sans','Helvetica Neue',Arial,sans-serif"

_NUMBER = re.compile(r"-?\d*\.?\d+(?:e-?\d+)?")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_FAMILY = re.compile(r"\s*font-family:[^;]*;?")
_SHORTHAND = re.compile(r"font:\s*(?:(\w+)\s+)?(\d[\d.]*px)\s[^;]*")
_STROKES = ("M", "L", "Z", "z")
_UNSEEN = {"fill:none", "fill:none;opacity:0", "fill:none;stroke:none"}

Xml.register_namespace("", SVG)


def compact(svg: str, name: str) -> str:
    """Return a smaller SVG, for use within an HTML page and as a file.

    `svg`: as matplotlib writes it. `name`: prefix of all ids.
    """
    root = Xml.fromstring(svg)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        _shorten(element)
    used = _references(root)
    short = {old: f"{name}-{number}" for number, old in enumerate(sorted(used))}
    for element in root.iter():
        _rename(element, short)
    _prune(root)
    for element in root.iter():
        element.text = (element.text or "").strip() if element.tag == f"{{{SVG}}}text" else None
        element.tail = None
    root.set("fill", "currentColor")
    root.set("font-family", FONT)
    root.set("stroke-linejoin", "round")
    return Xml.tostring(root, encoding="unicode")


def _shorten(element: Xml.Element) -> None:
    """Shorten the attributes of an element."""
    link = element.attrib.pop(f"{{{XLINK}}}href", None)
    if link is not None:
        element.set("href", link)
    if "style" in element.attrib:
        style = _SHORTHAND.sub(_font, _FAMILY.sub("", element.attrib["style"]))
        style = style.replace("stroke: #000000", "stroke: currentColor")
        parts = sorted(part.strip().replace(": ", ":") for part in style.split(";") if part.strip())
        if style := ";".join(parts):
            element.set("style", style)
        else:
            del element.attrib["style"]
    if element.attrib.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for key in ("x", "y", "width", "height", "transform", "points"):
        if key in element.attrib and element.tag != f"{{{SVG}}}svg":
            places = 4 if "scale(" in element.attrib[key] or "matrix(" in element.attrib[key] else 1
            element.set(key, _rounded(element.attrib[key], places))
    if "d" in element.attrib:
        element.set("d", _path(element.attrib["d"]))


def _font(found: re.Match[str]) -> str:
    weight = f"font-weight:{found[1]};" if found[1] else ""
    return f"{weight}font-size:{found[2]}"


def _rounded(text: str, places: int) -> str:
    return _NUMBER.sub(lambda number: _plain(round(float(number[0]), places)), text)


def _plain(value: float) -> str:
    """Write a number with as few characters as possible."""
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    text = text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
    return "0" if text in ("-0", "", "-") else text


def _path(d: str) -> str:
    """Write a path of straight strokes with relative coordinates; round other paths."""
    commands = re.findall(r"([A-Za-z])([^A-Za-z]*)", d)
    if any(letter not in _STROKES for letter, _ in commands):
        return _rounded(" ".join(d.split()), 1)
    parts: list[str] = []
    at, before = (0, 0), ""
    for letter, numbers in commands:
        if letter in "Zz":
            parts.append("z")
            before = "z"
            continue
        values = [round(10 * float(number)) for number in numbers.split()]
        for x, y in zip(values[::2], values[1::2], strict=True):
            if letter == "M":
                parts.append(f"M{_tenths(x)}{_next(y)}")
            else:
                step = f"{_tenths(x - at[0])}{_next(y - at[1])}"
                glue = "l" if before != "L" else "" if step[0] == "-" else " "
                parts.append(glue + step)
            at, before = (x, y), letter
    return "".join(parts)


def _tenths(value: int) -> str:
    return _plain(value / 10)


def _next(value: int) -> str:
    text = _tenths(value)
    return text if text[0] == "-" else f" {text}"


def _references(root: Xml.Element) -> set[str]:
    found = set()
    for element in root.iter():
        for value in element.attrib.values():
            found.update(_REFERENCE.findall(value))
            if value.startswith("#"):
                found.add(value[1:])
    return found


def _rename(element: Xml.Element, short: dict[str, str]) -> None:
    for key, value in list(element.attrib.items()):
        if key == "id":
            if value in short:
                element.set("id", short[value])
            else:
                del element.attrib["id"]
        elif key == "href" and value.startswith("#"):
            element.set(key, f"#{short[value[1:]]}")
        elif "url(#" in value:
            element.set(key, _REFERENCE.sub(lambda found: f"url(#{short[found[1]]})", value))


def _prune(element: Xml.Element) -> None:
    """Remove elements that draw nothing and empty groups; give neighbours of one style a group."""
    kept: list[Xml.Element] = []
    for child in element:
        _prune(child)
        empty_group = child.tag in (f"{{{SVG}}}g", f"{{{SVG}}}defs") and len(child) == 0
        unseen = child.tag == f"{{{SVG}}}path" and child.get("style") in _UNSEEN
        unseen |= child.tag == f"{{{SVG}}}style"  # would style the page; the root has it as well
        if empty_group or (unseen and "id" not in child.attrib):
            continue
        if child.tag == f"{{{SVG}}}g" and not child.attrib:
            kept += list(child)
        else:
            kept.append(child)
    shared: list[Xml.Element] = []
    for style, run in itertools.groupby(kept, lambda one: one.get("style")):
        members = list(run)
        if style is None or len(members) == 1 or ";opacity:" in f";{style}":
            shared += members
            continue
        group = Xml.Element(f"{{{SVG}}}g", {"style": style})
        for member in members:
            del member.attrib["style"]
            group.append(member)
        shared.append(group)
    element[:] = shared
