"""Checking every ``zarr.json`` of a store against the plan, and rewriting it from the plan."""

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
    """Return the wrong ``zarr.json`` files above the groups; rewrite them if `mend`."""
    wrong = []
    existing = [spec for spec in specs if (store / spec.path).exists()]
    above = {Path(spec.path).parent for spec in existing} | ({Path()} if existing else set())
    for folder in sorted(above):
        if not _describes_folder(store / folder):
            wrong.append((folder / METADATA).as_posix())
            if mend:
                place(store / folder / METADATA, group_metadata({}))
    return wrong


def wrong_descriptions(
    store: Path, spec: GroupSpec, parts: Sequence[GroupRows], repeats: int, *, mend: bool
) -> list[str]:
    """Compare the ``zarr.json`` of a group and its arrays with the plan; rewrite them if `mend`.

    Nothing may use the group meanwhile. Rewriting a file drops its consolidated metadata.

    Parameters
    ----------
    store : Path
    spec : GroupSpec
    parts : sequence of GroupRows
        The planned rows, one item per part of the plan.
    repeats : int
        Number of planned test sets.
    mend : bool

    Returns
    -------
    list of str
        The files that were wrong, relative to the store; empty if the group does not exist yet.
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
            raise DamagedGroup(group.folder / METADATA, "cannot be opened by other readers", "")
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
    if mend and f"{spec.path}/{METADATA}" in wrong:  # last: it implies that all others exist
        place(group.folder / METADATA, group_description(group, history_with("mended", [])))
    return wrong


def _form(folder: Path) -> Format | None:
    try:
        return parse(array_description(folder))
    except DamagedGroup:
        return None


def _describes(folder: Path, expected: bytes) -> bool:
    """Whether an array's ``zarr.json`` agrees with the expected one; the array may be longer."""
    form, wanted = _form(folder), parse(expected)
    if form is None or form.rows < wanted.rows:
        return False
    names = ("row", "dtype", "length", "chunk", "sharded", "blosc")
    if any(getattr(form, name) != getattr(wanted, name) for name in names):
        return False
    if not np.array_equal(form.fill, wanted.fill, equal_nan=True):
        return False
    content = (folder / METADATA).read_bytes()
    stored, planned = json.loads(content), json.loads(expected)
    if stored.get("zarr_format") != 3:
        return False
    if _without_sizes(stored) != _without_sizes(planned) and not _opens(stored, content):
        return False
    words, wanted_words = (
        str(document["attributes"].get("flag_meanings", "")).split()
        for document in (stored, planned)
    )
    return bool(stored["dimension_names"] == planned["dimension_names"]) and (
        words[: len(wanted_words)] == wanted_words[: len(words)]
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
    """Return a description without the array's shape and attributes."""
    return {key: value for key, value in document.items() if key not in ("shape", "attributes")}


def _opens(document: object, content: bytes) -> bool:
    """Whether other readers, which need more than ours, can open it."""
    # here, as importing zarr is slow
    from manyseed.orchestrator.store.zarrfiles.consolidated import is_node

    return is_node(document, content)
