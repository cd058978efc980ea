"""The pages and the examples of the documentation that are installed with the package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(?P<level>#+) (?P<title>.+)$", re.MULTILINE)


def pages() -> dict[str, str]:
    """Return the text of every page by its name."""
    folder = Path(str(files("manyseed") / "docs"))
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.md"))}


def sections(text: str) -> dict[str, tuple[str, str]]:
    """Return title and text of each section of a page, by the anchor that links use.

    A section reaches to the next heading of its level, or of a higher one.
    """
    code = [block.span() for block in _FENCE.finditer(text)]  # comments there are not headings
    headings = [
        heading
        for heading in _HEADING.finditer(text)
        if not any(begin <= heading.start() < end for begin, end in code)
    ]
    found: dict[str, tuple[str, str]] = {}
    for number, heading in enumerate(headings):
        after = (
            one for one in headings[number + 1 :] if len(one["level"]) <= len(heading["level"])
        )
        end = next((one.start() for one in after), len(text))
        name = anchor = re.sub(r"[^\w\- ]", "", heading["title"].lower()).replace(" ", "-")
        again = 0
        while anchor in found:
            again += 1
            anchor = f"{name}-{again}"
        found[anchor] = (heading["title"].replace("`", ""), text[heading.start() : end])
    return found


@dataclass(frozen=True, slots=True)
class Example:
    """One example: its title (a sentence), its text, and the code files beside it, by name."""

    title: str
    text: str
    modules: Mapping[str, str]


def examples() -> dict[str, Example]:
    """Return all examples by name: sweep files, then those in folders as ``FOLDER/NAME``."""
    folder = Path(str(files("manyseed") / "examples"))
    by_name = {}
    for file in (*sorted(folder.glob("*.toml")), *sorted(folder.glob("*/*.toml"))):
        text = file.read_text(encoding="utf-8")
        title = _first_sentence(text)
        others = (module for ending in ("*.py", "*.yaml") for module in file.parent.glob(ending))
        named = (module for module in others if re.search(rf"\b{re.escape(module.name)}\b", text))
        beside = {module.name: module.read_text(encoding="utf-8") for module in named}
        by_name[file.relative_to(folder).with_suffix("").as_posix()] = Example(title, text, beside)
    return by_name


def _first_sentence(text: str) -> str:
    """Return the first sentence of a file's leading comment, which may span several lines."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("# ") or line.startswith("#  "):  # a command is indented
            break
        lines.append(line[2:])
    return re.split(r"(?<=[.?]) (?=[A-Z])", " ".join(lines))[0].rstrip(".")
