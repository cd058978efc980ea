"""The names of classes that predictions give: their order, and those that only look different."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from manyseed.jobs.datasets.columns import is_number, natural_order
from manyseed.jobs.similar import quoted, same_spelling, spelling
from manyseed.orchestrator.errors import UserError


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return different names in the order that datasets have: as numbers if all are, else text."""
    known = [*{*names}]
    return tuple(known[place] for place in natural_order(known))


def require_one_order(names: Sequence[str], key: str, file: Path) -> None:
    """Refuse names whose order decides what the predictions mean, if others may sort otherwise.

    Raises
    ------
    UserError
        Where sorting as text, without case, and with numbers as numbers do not agree.
    """
    orders = [sorted(names), sorted(names, key=_folded), sorted(names, key=_by_numbers)]
    if other := next((order for order in orders if order != [*names]), None):
        place = next(i for i, name in enumerate(names) if other[i] != name)
        raise UserError(
            f"names classes whose order is not certain: {quoted(names[place])} or "
            f"{quoted(other[place])} may come first",
            file=file,
            key=key,
            remedy="name all classes in the order of the scores, or of the indices of labels, with "
            "class_names",
        )


def _folded(name: str) -> tuple[str, str]:
    return name.casefold(), name


def _by_numbers(name: str) -> list[Any]:
    if is_number(name):
        return [(0, float(name.replace(",", ".", 1)), name)]
    return [
        (1, float(part), part) if part.isdecimal() else (2, 0.0, part)
        for part in re.split(r"(\d+)", name)
    ]


def require_apart(truth: Collection[str], predicted: Collection[str], key: str, file: Path) -> None:
    """Refuse labels that mean one class but are written in two ways, which would never be right.

    Raises
    ------
    UserError
        Where labels differ only in blanks, composition or invisible marks; where predictions and
        truth differ only in how they write a number, or in case.
    """
    same = same_spelling({*truth, *predicted})
    only: dict[object, str] = {}
    for name in sorted({*truth} - {*predicted}):
        only.setdefault(_meaning(name), name)
    same += [
        (only[meaning], name)
        for name in sorted({*predicted} - {*truth})
        if (meaning := _meaning(name)) in only
    ]
    if same:
        raise UserError(
            f"has classes that are one but for spelling: {' and '.join(map(quoted, same[0]))}",
            file=file,
            key=key,
            remedy="write each class in one way",
        )


def _meaning(name: str) -> object:
    plain = spelling(name)
    return float(plain.replace(",", ".", 1)) if is_number(plain) else plain.casefold()
