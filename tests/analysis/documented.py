"""What docs/results.md says of the columns of a result table."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "results.md"


def documented(table: str) -> dict[str, str | None]:
    """Return the unit of each column that the table's section names.

    None where it names a column in the prose after its table, by a base and endings: the unit is
    the base's then.
    """
    section = PAGE.read_text().split(f"## {table}.parquet")[1].split("\n## ")[0]
    units: dict[str, str | None] = {}
    endings = [""] if table != "curves" else []
    for line in re.findall(r"^\| (.*) \|$", section, flags=re.MULTILINE):
        first, *others = re.split(r"(?<!\\) ?\| ?", line)
        endings += re.findall(r"`(_\w+)`", first)
        units |= dict.fromkeys(re.findall(r"`([a-z]\w*)`", first), others[0])
    if "\nand " not in section:
        return units
    prose = section.split("\nand ")[1].split("\n\n|")[0]
    if table == "cells":
        named = [base + e for base in re.findall(r"`([a-z]\w*)`", prose) for e in endings]
    elif table == "repeats":
        named = [
            base + ending
            for group in prose.split(": ", 1)[1].split(";")
            for base in re.findall(r"`([a-z]\w*)`", group)
            for ending in re.findall(r"`(_\w+)`", group)
        ]
    else:
        own = [name for name in units if name.startswith(("train_", "test_"))]
        named = [base + e for base in own for e in re.findall(r"`(_\w+)`", prose)]
    return dict.fromkeys(named) | units
