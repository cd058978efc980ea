"""The pages of the manual: their sections, the words of the glossary, how names are spelt."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"^\| (\*\*.+?\*\*) \| (.+) \|$", re.MULTILINE)
_HEADING = re.compile(r"^(?P<level>#+) (?P<title>.+)$", re.MULTILINE)


def pages() -> dict[str, str]:
    """Return the text of every page by its name."""
    folder = Path(str(files("manyseed") / "docs"))
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.md"))}


def sections(text: str) -> dict[str, tuple[str, str]]:
    """Return title and text of each section of a page, by the anchor that links use.

    A section reaches to the next heading of its level, or of a higher one.
    """
    code = [block.span() for block in FENCE.finditer(text)]  # comments there are not headings
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
        name = anchor = _anchor(heading["title"])
        again = 0
        while anchor in found:
            again += 1
            anchor = f"{name}-{again}"
        found[anchor] = (heading["title"].replace("`", ""), text[heading.start() : end])
    return found


def words(text: str) -> dict[str, tuple[str, str]]:
    """Return what a page says of each word of its glossary, as `sections` does."""
    found: dict[str, tuple[str, str]] = {}
    for row, meaning in _WORD.findall(text):
        for word in re.findall(r"\*\*(.+?)\*\*", f"{row} {meaning}"):
            found.setdefault(_anchor(word), (word, f"{row}: {meaning}\n"))
    return found


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def spelt(text: str, keep: str = "") -> str:
    """Return a text in small letters without accents and hats; Greek letters by their names."""
    plain = unicodedata.normalize("NFKD", text.lower())
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    plain = re.sub("[α-ω]", lambda m: unicodedata.name(m[0]).split()[-1].lower(), plain)
    return re.sub(r"[_ -]hat\b", "", re.sub(rf"[^\w{keep}]+", "-", plain)).strip("-")


def beginning(where: str, texts: Mapping[str, str]) -> list[str]:
    """Return a section in few lines (`_LINES`), without its heading; none of a word's meaning."""
    from rich.console import Console
    from rich.markdown import Markdown

    page, _, heading = where.partition("#")
    by_heading = sections(texts[page])
    if not any(spelt(one) == spelt(heading) for one in by_heading):
        return []
    alike = (one for one in by_heading if spelt(one) == spelt(heading))
    text = by_heading[heading if heading in by_heading else next(alike)][1]
    text = re.sub(r"\A#.*\n|<!--.*?-->", "", text)
    plain = Console(width=_WIDTH, color_system=None, force_terminal=False)
    with plain.capture() as shown:
        plain.print(Markdown(text, hyperlinks=False))
    lines = [line.rstrip() for line in shown.get().strip("\n").splitlines()]
    lines = ["", *lines, ""]
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 2], "…", ""]


_LINES, _WIDTH = 38, 78  # of a section that a search shows, below its name
