"""The example files, which are installed with the package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Example:
    """One file: what it is, in a sentence, its text, and the code that lies beside it."""

    title: str
    text: str
    modules: Mapping[str, str]


def examples() -> dict[str, Example]:
    """Return all examples by name: sweep files, then those of folders as ``FOLDER/NAME``."""
    folder = Path(str(files("manyseed") / "examples"))
    found = {}
    for file in (*sorted(folder.glob("*.toml")), *sorted(folder.glob("*/*.toml"))):
        text = file.read_text(encoding="utf-8")
        title = _first_sentence(text)
        others = (one for ending in ("*.py", "*.yaml") for one in file.parent.glob(ending))
        named = (one for one in others if re.search(rf"\b{re.escape(one.name)}\b", text))
        beside = {one.name: one.read_text(encoding="utf-8") for one in named}
        found[file.relative_to(folder).with_suffix("").as_posix()] = Example(title, text, beside)
    return found


def _first_sentence(text: str) -> str:
    """Return the first sentence of the comment that a file begins with, on however many lines."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("# ") or line.startswith("#  "):  # a command is indented
            break
        lines.append(line[2:])
    return re.split(r"(?<=[.?]) (?=[A-Z])", " ".join(lines))[0].rstrip(".")
