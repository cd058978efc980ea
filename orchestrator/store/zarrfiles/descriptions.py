"""Every ``zarr.json`` of a store follows from the plan, and is written again from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from manyseed.orchestrator.disk.placing import place, read_bytes
from manyseed.orchestrator.errors import DamagedFile, DamagedGroup, StoreUnavailable
from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store.layout.chunkfile import Format, parse
from manyseed.orchestrator.store.layout.groups import Group, array_description, find_group
from manyseed.orchestrator.store.layout.schema import GroupSpec
from manyseed.orchestrator.store.zarrfiles.creating import GroupRows
from manyseed.orchestrator.store.zarrfiles.metadata import (
    array_metadata,
    group_description,
    group_metadata,
    history_with,
)

_A_GROUP = {"zarr_format": 3, "node_type": "group"}


def wrong_folders(store: Path, specs: Iterable[GroupSpec], *, mend: bool) -> list[str]:
    """Return which ``zarr.json`` above the groups are wrong; write them again if asked to."""
    wrong = []
    there = [spec for spec in specs if (store / spec.path).exists()]
    above = {Path(spec.path).parent for spec in there} | ({Path()} if there else set())
    for folder in sorted(above):
        if not _describes_folder(store / folder):
            wrong.append((folder / METADATA).as_posix())
            if mend:
                place(store / folder / METADATA, group_metadata({}))
    return wrong


def wrong_descriptions(
    store: Path, spec: GroupSpec, parts: Sequence[GroupRows], repeats: int, *, mend: bool
) -> list[str]:
    """Compare the ``zarr.json`` of a group and its arrays with the plan; mend them if asked to.

    Nothing may use the group meanwhile. Consolidated metadata is lost with a file that is mended.

    Parameters
    ----------
    store : Path
    spec : GroupSpec
    parts : sequence of Rows
        What the plan says of its rows, part after part.
    repeats : int
        Test sets that are planned.
    mend : bool

    Returns
    -------
    list of str
        The files that were wrong, from the store's folder on; none where there is no group yet.
    """
    wrong: list[str] = []
    arrays = [spec.path + "/" + array.name for array in spec.arrays]
    forms = {
        array.name: _form(store / path) for array, path in zip(spec.arrays, arrays, strict=True)
    }
    try:
        group = find_group(store, spec)
        if group is None:
            return []
        if not _describes_folder(group.folder):
            raise DamagedGroup(group.folder / METADATA, "opens in no other reader", "")
    except DamagedGroup:
        wrong.append(f"{spec.path}/{METADATA}")
        planned = sum(spec.padded(len(rows)) for rows in parts)
        known = {
            dim: [form.rows for a in spec.arrays if a.dims[0] == dim and (form := forms[a.name])]
            for dim in ("run", "repeat")
        }
        # arrays grow before the group does
        rows = min([planned, *known["run"]])
        group = Group(store, spec, rows, min([repeats, *known["repeat"]]))
    meanings = {name: parts[0].flags[name].meanings for name in spec.flags} if parts else {}
    for array, path in zip(spec.arrays, arrays, strict=True):
        words = meanings.get(array.name)
        expected = array_metadata(spec, array, group.rows, group.repeats, words)
        if not _describes(store / path, expected):
            wrong.append(f"{path}/{METADATA}")
            if mend:
                place(store / path / METADATA, expected)
    if mend and f"{spec.path}/{METADATA}" in wrong:  # last: it says that all others are there
        place(group.folder / METADATA, group_description(group, history_with("mended", [])))
    return wrong


def _form(folder: Path) -> Format | None:
    try:
        return parse(array_description(folder))
    except DamagedGroup:
        return None


def _describes(folder: Path, expected: bytes) -> bool:
    """Whether a ``zarr.json`` says of an array what is expected; it may say that it is longer."""
    found, wanted = _form(folder), parse(expected)
    if found is None or found.rows < wanted.rows:
        return False
    names = ("row", "dtype", "length", "chunk", "sharded")
    if any(getattr(found, name) != getattr(wanted, name) for name in names):
        return False
    if found.blosc != wanted.blosc or not np.array_equal(found.fill, wanted.fill, equal_nan=True):
        return False
    content = (folder / METADATA).read_bytes()
    held, given = json.loads(content), json.loads(expected)
    if held.get("zarr_format") != 3:
        return False
    if _without_sizes(held) != _without_sizes(given) and not _opens(held, content):
        return False
    words = [str(value["attributes"].get("flag_meanings", "")).split() for value in (held, given)]
    return bool(held["dimension_names"] == given["dimension_names"]) and (
        words[0][: len(words[1])] == words[1][: len(words[0])]
    )


def _describes_folder(folder: Path) -> bool:
    try:
        content = read_bytes(folder / METADATA)
        document = json.loads(content)
    except (FileNotFoundError, DamagedFile, ValueError, RecursionError):
        return False
    except OSError as error:
        raise StoreUnavailable(f"cannot read {folder / METADATA}: {error.strerror}") from error
    if not isinstance(document, dict) or not document.items() >= _A_GROUP.items():
        return False
    return _without_sizes(document) == _A_GROUP or _opens(document, content)


def _without_sizes(document: dict[str, object]) -> dict[str, object]:
    """Return what a description says beside how long the array is, and in words."""
    apart = ("shape", "attributes")
    return {key: value for key, value in document.items() if key not in apart}


def _opens(document: object, content: bytes) -> bool:
    """Whether other readers open it, which need more than ours; zarr is slow to import."""
    from manyseed.orchestrator.store.zarrfiles.consolidated import is_node

    return is_node(document, content)
