"""A group on disk: where its files are and which shards are published, without reading arrays."""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from manyseed.orchestrator.disk.placing import read_bytes, unavailable
from manyseed.orchestrator.errors import (
    DamagedFile,
    DamagedGroup,
    LayoutTooNew,
    StoreError,
    StoreUnavailable,
)
from manyseed.orchestrator.paths import METADATA, REPLICA
from manyseed.orchestrator.store.arrays import ArraySpec
from manyseed.orchestrator.store.chunkfile import file_name, parse
from manyseed.orchestrator.store.schema import ATTRIBUTE, GroupSpec

REMEDY = "run manyseed verify --repair, which rewrites it from the plan"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a store."""

    store: Path  # folder of the store
    spec: GroupSpec  # its layout
    rows: int
    repeats: int  # planned so far; `rows` includes padding and is a multiple of the shard length

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
        return self.folder / array.name / file_name(index, len(array.dims))

    def replica(self, shard: int) -> Path:
        """Return the file that holds a shard's record arrays a second time.

        It lies where Zarr readers list nothing, apart from what it replaces. Earlier versions
        wrote none.
        """
        return self.folder / "label" / f"{REPLICA}.{shard}"

    def metadata(self, array: ArraySpec) -> bytes:
        """Return the ``zarr.json`` of an array; raises like `array_description`."""
        return array_description(self.folder / array.name)

    def meanings(self, array: ArraySpec) -> list[str]:
        """Return the words for a flag's codes; raises like `metadata`."""
        words = json.loads(self.metadata(array))["attributes"].get("flag_meanings")
        if not isinstance(words, str):
            file = self.folder / array.name / METADATA
            raise DamagedGroup(file, "does not say what its codes mean", REMEDY)
        return words.split()


def find_group(store: Path, wanted: GroupSpec | str) -> Group | None:
    """Return a group of a store; None if it was not laid out completely.

    This is the only function that decides whether a group exists.

    `store`: folder of the store; need not exist. `wanted`: the group's planned layout, or its path
    inside the store.
    """
    path = wanted if isinstance(wanted, str) else wanted.path
    file = store / path / METADATA
    with unavailable("read", file):
        try:
            content = read_bytes(file)
        except (FileNotFoundError, NotADirectoryError):
            if not published_shards(store / path):
                return None
            raise DamagedGroup(file, "is absent, though runs are published", REMEDY) from None
        except DamagedFile as error:
            raise DamagedGroup(file, error.reason, REMEDY) from None
    group = _parse(store, file, content)
    if group.spec.path != path or (isinstance(wanted, GroupSpec) and group.spec != wanted):
        raise DamagedGroup(file, "describes another group than was planned", REMEDY)
    return group


def open_group(store: Path, path: str) -> Group:
    """Open a group by its path inside the store, ``spec.path``."""
    if (group := find_group(store, path)) is None:
        raise StoreError(f"there is no group {path} in {store}: plan the sweep first")
    return group


def list_groups(store: Path) -> list[Group]:
    """Return all groups of a store, by number; raises like `find_group`."""
    with unavailable("list", store):
        paths = [folder.relative_to(store).as_posix() for folder in store.glob("*/*/")]
        groups = [group for path in paths if (group := find_group(store, path)) is not None]
    return sorted(groups, key=lambda group: group.spec.number)


def published_shards(group: Path, array: str = "status") -> set[int]:
    """Return the shards of a group folder that are published, at least in part."""
    with unavailable("list", folder := group / array):
        try:
            names = [entry.name for entry in os.scandir(folder)]
        except (FileNotFoundError, NotADirectoryError):
            return set()
        found = (re.fullmatch(r"c\.([0-9]{1,9})", name) for name in names)
        return {int(match[1]) for match in found if match}


def array_description(folder: Path) -> bytes:
    """Read and check the ``zarr.json`` of an array."""
    file = folder / METADATA
    try:
        with unavailable("read", file):
            content = read_bytes(file)
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        reason = "is absent"
    except DamagedFile as error:
        reason = error.reason
    else:
        if _describes_array(content):
            return content
        reason = "does not describe an array of manyseed"
    raise DamagedGroup(file, reason, REMEDY)


@functools.lru_cache(maxsize=1024)
def _describes_array(content: bytes) -> bool:
    try:
        parse(content)
        return isinstance(json.loads(content)["attributes"], dict)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, StoreError):
        return False


def _parse(store: Path, file: Path, content: bytes) -> Group:
    try:
        return Group(store, *_described(content, file))
    except StoreError as error:
        if isinstance(error, LayoutTooNew):
            raise
        reason = str(error)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        reason = "does not describe a group of manyseed"
    raise DamagedGroup(file, reason, REMEDY)


@functools.lru_cache(maxsize=1024)
def _described(content: bytes, file: Path) -> tuple[GroupSpec, int, int]:
    """Return a group's layout, rows and repeats from its ``zarr.json``."""
    attributes = json.loads(content)["attributes"][ATTRIBUTE]
    spec = GroupSpec.from_attributes(attributes, file)
    return spec, int(attributes["rows"]), int(attributes["repeats"])
