"""Names of classes that are given apart from scores: as an option, or in a file beside these."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from manyseed.analysis.counts import some
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import Unread, UserError
from manyseed.orchestrator.importing.arrays import InMemory, OnDisk
from manyseed.orchestrator.importing.classes import texts
from manyseed.orchestrator.importing.predictions import unreadable

_HOLDING = (".npy", ".txt", ".json")
_NAMED = re.compile(
    r"class(es)?|(class|label|target)s?[-_]?(names?|labels?|map)|names|categories"
    r"|class_(to_idx|indices)|(idx|index)_to_class|id2label|label2id",
    re.IGNORECASE,
)
_AS_TEXT = re.compile("labels?", re.IGNORECASE)  # an NPY file called so holds those of points
_MOST_BYTES = 2**22


def given_names(given: str) -> tuple[str, ...]:
    """Return the names of classes that an option lists, or that the file of this path holds."""
    file = Path(given)
    if file.suffix.lower() in _HOLDING or file.is_file():
        return _read(file)
    return _checked([name.strip() for name in given.split(",")], None, given)


def _read(file: Path) -> tuple[str, ...]:
    if not file.is_file():
        raise UserError("there is no such file", file=file, key="--classes")
    if file.suffix.lower() == ".npy":
        with ExitStack() as stack:
            array = OnDisk.at(stack.enter_context(file.open("rb")), 0, file, file.stem)
            if len(array.shape) != 1 or array.dtype.kind not in "USiu":
                raise UserError("is not a list of names", file=file, key="--classes")
            return _checked(texts(array[np.arange(array.shape[0])], file.stem, file).tolist(), file)
    try:
        text = file.read_bytes()[:_MOST_BYTES].decode("utf-8-sig")
        if file.suffix.lower() != ".json":
            return _checked([line.strip() for line in text.splitlines() if line.strip()], file)
        held = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        what = "JSON" if file.suffix.lower() == ".json" else "text"
        raise unreadable(file, what, error) from error
    if isinstance(held, dict):  # names by index, or indices by name
        by_name = all(type(value) is int for value in held.values())
        pairs = {str(at): name for name, at in held.items()} if by_name else held
        held = [pairs.get(str(at)) for at in range(len(pairs))]
    if not isinstance(held, list):
        raise UserError("is not a list of names", file=file, key="--classes")
    return _checked(held, file)


def _checked(names: Sequence[Any], file: Path | None, value: str = "") -> tuple[str, ...]:
    """Return two or more different names, or whole numbers, as text."""
    are_some = all(isinstance(name, str | int) and str(name) for name in names)
    if not are_some or len({*map(str, names)}) < max(2, len(names)):
        what = "must name each class once, in the order of the scores: two or more"
        where: dict[str, Any] = {"file": file} if file else {"value": value}
        raise UserError(what, key="--classes", **where)
    return tuple(map(str, names))


def holds_names(file: Path) -> bool:
    """Return whether a file is called as names of classes are, and holds some."""
    if file.suffix.lower() not in _HOLDING or not file.is_file():
        return False
    is_text = file.suffix.lower() != ".npy"
    if not (_NAMED.fullmatch(file.stem) or (is_text and _AS_TEXT.fullmatch(file.stem))):
        return False
    try:
        names = _read(file)
    except (UserError, OSError):
        return False
    return not all(name.isdecimal() for name in names)


def without_class_names(files: Iterable[Any]) -> list[Any]:
    """Return the files but those that hold names of classes."""
    return [one for one in files if not (isinstance(one, Path) and holds_names(one))]


def require_read(
    given: Iterable[Any], opened: Sequence[InMemory], y_true: Any, known: Sequence[str]
) -> None:
    """Propose to read the names of classes that a file beside predictions holds.

    `given`: the files and folders of the import. `opened`: what they hold, without such names.
    `y_true`: of all or of one. `known`: the classes of the sweep to which runs are added, if any.
    """
    own = {one if one.is_dir() else one.parent for one in given if isinstance(one, Path)}
    above = {one.parent if one.name.strip(".") else one.resolve().parent for one in own}
    within = [one for folder in sorted(own) if folder.is_dir() for one in sorted(folder.iterdir())]
    outside = [one for folder in sorted(above - own) for one in sorted(folder.iterdir())]
    true = texts(np.asarray(y_true), "y_true", opened[0].file)
    widths = {len(held.large["scores"].shape) for held in opened if "scores" in held.large}
    sizes = {held.large["scores"].shape[-1] for held in opened if "scores" in held.large}
    fitting: dict[Path, tuple[str, ...]] = {}
    for file in (*within, *outside):
        if not holds_names(file):
            continue
        names = _read(file)
        has_all = (
            {*np.unique(true).tolist()} <= {*names}
            if true.dtype.kind == "U"
            else true.dtype.kind in "iufb" and 0 <= true.min(initial=0) <= len(names)
        )
        if has_all and (len(names) in sizes or len(names) == 2 or not widths):
            fitting[file] = names
        elif file in within:
            warn(f"{file.name} in {file.parent} holds names of other classes, and was not read.")
    if not fitting:
        return
    first = next(iter(fitting))
    if known and {*known} != {*fitting[first]}:
        return  # the sweep's own are others
    if other := next((one for one, names in fitting.items() if names != fitting[first]), None):
        raise UserError(
            f"names classes in another order than {first}: {some(fitting[other], 5)}; there "
            f"{some(fitting[first], 5)}",
            file=other,
            remedy="say which is that of the scores: --classes FILE",
        )
    raise Unread(
        f"holds names of classes ({some(fitting[first], 5)}) that scores, or indices of labels, "
        "seem to have",
        file=first,
        key=None,
        options={"classes": str(first)},
        before="read them, in their order: ",
        after="\n  if the order is another: --classes NAME,NAME,…",
    )
