"""The pages of the documentation that are installed with the package."""

from __future__ import annotations

import re
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
