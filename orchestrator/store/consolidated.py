"""Consolidated metadata: what every ``zarr.json`` says, once more in those of groups and store.

Readers then open a store by one small file. It is made by ``compact`` and for portable copies.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.group import GroupMetadata
from zarr.core.metadata import ArrayV3Metadata
from zarr.core.sync import sync
from zarr.errors import ZarrUserWarning
from zarr.storage import MemoryStore

from orchestrator.errors import DamagedFile
from orchestrator.store.errors import DamagedGroup
from orchestrator.store.files import place, read_bytes, unavailable
from orchestrator.store.groups import METADATA, Group

_KEY = "consolidated_metadata"


def consolidate(store: Path, groups: Sequence[Group]) -> None:
    """Write consolidated metadata of each group and of the store, each file whole or not at all."""
    if not groups:
        return
    for name, content in consolidated(store, groups):
        if _KEY in json.loads(content):
            with unavailable("read", store / name):
                same = (store / name).read_bytes() == content
            if not same:
                place(store / name, content)


def consolidated(store: Path, groups: Sequence[Group]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every ``zarr.json``, consolidated."""
    memory, prototype = MemoryStore(), default_buffer_prototype()
    folders = {"", *(group.spec.path.split("/")[0] for group in groups)}
    for group in groups:
        folders |= {group.spec.path, *(f"{group.spec.path}/{a.name}" for a in group.spec.arrays)}
    names = [f"{folder}/{METADATA}".lstrip("/") for folder in sorted(folders)]
    for name in names:
        document = _document(store / name)
        document.pop(_KEY, None)
        content = prototype.buffer.from_bytes(json.dumps(document, indent=2).encode())
        sync(memory.set(name, content))
    with warnings.catch_warnings():
        # Not part of the specification yet; readers that do not know it do without.
        warnings.simplefilter("ignore", ZarrUserWarning)
        for path in (*(group.spec.path for group in groups), None):
            zarr.consolidate_metadata(memory, path=path)
    for name in names:
        held = sync(memory.get(name, prototype))
        assert held is not None
        yield name, held.to_bytes()


def _document(file: Path) -> dict[str, object]:
    try:
        with unavailable("read", file):
            document = json.loads(read_bytes(file))
        if _is_node(document):
            return document  # type: ignore[no-any-return]
        reason = "describes no part of a store"
    except DamagedFile as error:
        reason = error.reason
    except (ValueError, RecursionError):
        reason = "is no JSON"
    raise DamagedGroup(
        file, reason, "run manyseed verify --repair, which writes it again from the plan"
    )


def _is_node(document: Any) -> bool:
    """Whether zarr-python reads a description: it says what is wrong with one in many ways."""
    wrong = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError)
    try:
        kinds: dict[str, Any] = {"array": ArrayV3Metadata, "group": GroupMetadata}
        kinds[document["node_type"]].from_dict(copy.deepcopy(document))
    except (*wrong, RuntimeError):
        return False
    return True
