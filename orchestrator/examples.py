"""The example files, which are installed with the package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


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
