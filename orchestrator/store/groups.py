"""A group on disk: where its files are and what has been published, without reading arrays."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.store.arrays import ArraySpec
from orchestrator.store.errors import StoreError
from orchestrator.store.files import unavailable
from orchestrator.store.schema import ATTRIBUTE, GroupSpec

METADATA = "zarr.json"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a store.

    Attributes
    ----------
    store : Path
        Folder of the store.
    spec : GroupSpec
        Its layout.
    rows, repeats : int
        Planned so far; rows include padding, a multiple of the shard length.
    """

    store: Path
    spec: GroupSpec
    rows: int
    repeats: int

    @property
    def folder(self) -> Path:
        """Folder of the group."""
        return self.store / self.spec.path

    @property
    def shards(self) -> int:
        """Number of shards."""
        return self.rows // self.spec.shard_length

    def span(self, shard: int) -> tuple[int, int]:
        """Return the first row of a shard and the one after its last."""
        if not 0 <= shard < self.shards:
            raise StoreError(f"{self.spec.path} has {self.shards} shards, asked for {shard}")
        return shard * self.spec.shard_length, (shard + 1) * self.spec.shard_length

    def file(self, array: ArraySpec, index: int) -> Path:
        """Return the file that holds the `index`-th shard of an array."""
        return (
            self.folder / array.name / ".".join(["c", str(index), *["0"] * (len(array.dims) - 1)])
        )

    def metadata(self, array: ArraySpec) -> bytes:
        """Return the ``zarr.json`` of an array."""
        with unavailable("read", path := self.folder / array.name / METADATA):
            return path.read_bytes()


def open_group(store: Path, path: str) -> Group:
    """Open a group by its path inside the store, ``spec.path``.

    Raises
    ------
    StoreError
        If there is no such group, or (`LayoutTooNew`) a newer version wrote it.
    """
    if not (store / path / METADATA).exists():
        raise StoreError(f"there is no group {path} in {store}: plan the sweep first")
    return _group(store, path, _document(store, path))


def list_groups(store: Path) -> list[Group]:
    """Return all groups of a store, by number."""
    found = []
    with unavailable("list", store):
        for file in store.glob(f"*/*/{METADATA}"):
            path = file.parent.relative_to(store).as_posix()
            document = _document(store, path)
            if ATTRIBUTE in document.get("attributes", {}):
                found.append(_group(store, path, document))
    return sorted(found, key=lambda group: group.spec.number)


def published_shards(group: Group) -> set[int]:
    """Return which shards have been published, at least in part, by one look at a folder."""
    with unavailable("list", folder := group.folder / "status"):
        names = (entry.name for entry in os.scandir(folder))
        return {int(name[2:]) for name in names if name.startswith("c.") and name[2:].isdigit()}


def _document(store: Path, path: str) -> dict[str, Any]:
    file = store / path / METADATA
    with unavailable("read", file):
        content = file.read_bytes()
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StoreError(f"{file} is damaged: restore it from a copy of the store")
    return document


def _group(store: Path, path: str, document: dict[str, Any]) -> Group:
    attributes = document.get("attributes", {}).get(ATTRIBUTE)
    if attributes is None:
        raise StoreError(f"{store / path} is no group of manyseed's")
    spec = GroupSpec.from_attributes(attributes, store / path)
    return Group(store, spec, int(attributes["rows"]), int(attributes["repeats"]))
