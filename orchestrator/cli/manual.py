"""The pages of the manual: their sections, the words of the glossary, how names are spelt."""

from __future__ import annotations

import re
import unicodedata
from importlib.resources import files
from pathlib import Path

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"^\| (\*\*.+?\*\*) \| (.+) \|$", re.MULTILINE)
_ALSO = re.compile(r"^<!-- also: ([^>]*?)\s-->\n+", re.MULTILINE)
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


def also(text: str) -> list[str]:
    """Return the other words for what a section is about, from the comment below its heading."""
    found = _ALSO.search(text)
    return " ".join(found[1].split()).split(", ") if found else []


def without_also(text: str) -> str:
    """Return a page or section without these comments, as it is read."""
    return _ALSO.sub("", text)


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


def from_paragraph(text: str, sentence: str) -> str:
    """Return a text from the paragraph, item or row on that has a sentence, maybe a cut one.

    A row comes after the head of its table.
    """
    wanted = spelt(sentence.strip("… "))[:_FIRST]
    lines = text.splitlines(keepends=True)
    begin, is_code = 0, False
    for at, line in enumerate(lines):
        is_new = not line.strip() or line.startswith(("- ", "|", "#"))
        begin = at if is_new and not is_code else begin
        is_code ^= line.startswith("```")
        if wanted in spelt("".join(lines[begin : at + 1])):
            break
    else:
        begin = 0
    head = begin
    while lines[begin : begin + 1] and lines[begin][0] == lines[head - 1][0] == "|" and head:
        head -= 1
    rows = [*lines[head : min(head + 2, begin)], *lines[begin:]]
    return "".join(rows).lstrip("\n")


_FIRST = 40  # letters that find it
