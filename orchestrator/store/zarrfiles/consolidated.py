"""Consolidated metadata: the ``zarr.json`` of groups and store repeat every one below them.

Readers can then open a store from one small file. ``compact`` and portable copies write it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.buffer import Buffer
from zarr.buffer import cpu
from zarr.errors import ZarrUserWarning
from zarr.storage import MemoryStore

from manyseed.orchestrator.disk.placing import place, read_bytes, unavailable
from manyseed.orchestrator.errors import DamagedFile, DamagedGroup
from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store.layout.groups import REMEDY, Group

_KEY = "consolidated_metadata"


def consolidate(store: Path, groups: Sequence[Group]) -> None:
    """Write the consolidated metadata of each group and of the store, each file atomically."""
    if not groups:
        return
    for name, content in consolidated(store, groups):
        if _KEY in json.loads(content):
            with unavailable("read", store / name):
                same = (store / name).read_bytes() == content
            if not same:
                place(store / name, content)


def consolidated(store: Path, groups: Sequence[Group]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and consolidated content of every ``zarr.json``."""
    contents: dict[str, Buffer] = {}
    folders = {"", *(group.spec.path.split("/")[0] for group in groups)}
    for group in groups:
        folders |= {group.spec.path, *(f"{group.spec.path}/{a.name}" for a in group.spec.arrays)}
    names = [f"{folder}/{METADATA}".lstrip("/") for folder in sorted(folders)]
    for name in names:
        document = _document(store / name)
        document.pop(_KEY, None)
        contents[name] = cpu.Buffer.from_bytes(json.dumps(document, indent=2).encode())
    with warnings.catch_warnings():
        # Not part of the specification yet; readers that do not know it ignore it.
        warnings.simplefilter("ignore", ZarrUserWarning)
        for path in (*(group.spec.path for group in groups), None):
            zarr.consolidate_metadata(MemoryStore(contents), path=path)
    for name in names:
        yield name, contents[name].to_bytes()


def _document(file: Path) -> dict[str, object]:
    try:
        with unavailable("read", file):
            content = read_bytes(file)
        document = json.loads(content)
        if is_node(document, content):
            return document  # type: ignore[no-any-return]
        reason = "does not describe a part of a store"
    except DamagedFile as error:
        reason = error.reason
    except (ValueError, RecursionError):
        reason = "is not valid JSON"
    raise DamagedGroup(file, reason, REMEDY)


def is_node(document: Any, content: bytes) -> bool:
    """Whether zarr-python can open a node with this ``zarr.json``."""
    store = MemoryStore({METADATA: cpu.Buffer.from_bytes(content)})
    try:
        array, group = zarr.open_array, zarr.open_group
        opening: dict[str, Callable[..., object]] = {"array": array, "group": group}
        opening[document["node_type"]](store, mode="r", zarr_format=3)
    except Exception:  # zarr-python raises errors of many types
        return False
    return True
