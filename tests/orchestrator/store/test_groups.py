"""Whether a group is there, and in what state: one answer for all who ask."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from manyseed.orchestrator.errors import (
    DamagedFile,
    DamagedGroup,
    LayoutTooNew,
    StoreUnavailable,
    UnavailableError,
)
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.groups import find_group, list_groups, open_group
from manyseed.orchestrator.store.metadata import create_group
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.store.schema import LAYOUT_VERSION
from manyseed.orchestrator.store.shards import publish
from tests.orchestrator.store.world import REPEATS, World, rows

Spoil = Callable[[Path], object]

SPOILT: dict[str, Spoil] = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-20]),
    "a list": lambda file: file.write_text("[]"),
    "nested too deep": lambda file: file.write_text("[" * 100_000),
    "of no group": lambda file: file.write_text('{"attributes": {}}'),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "a pipe": lambda file: (file.unlink(), os.mkfifo(file)),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_description_is_named_with_its_remedy(tmp_path: Path, how: str) -> None:
    world = World(tmp_path)
    file = world.group.folder / "zarr.json"
    SPOILT[how](file)
    for ask in (lambda: find_group(world.store, world.spec), lambda: list_groups(world.store)):
        with pytest.raises(DamagedGroup, match="verify --repair") as raised:
            ask()
        assert raised.value.file == file
        assert isinstance(raised.value, DamagedFile)
    before = sorted(world.group.folder.rglob("*"))
    with pytest.raises(DamagedGroup):  # planning touches nothing of it
        create_group(world.store, world.spec, rows(10), REPEATS)
    assert sorted(world.group.folder.rglob("*")) == before


@pytest.mark.parametrize("how", [how for how in SPOILT if how != "of no group"])
def test_a_spoilt_description_of_an_array_is_named_at_once(tmp_path: Path, how: str) -> None:
    world = World(tmp_path)
    file = world.group.folder / "cell" / "zarr.json"
    SPOILT[how](file)
    for ask in (
        lambda: read_array(world.group, "cell"),
        lambda: world.group.metadata(world.spec.array("cell")),
    ):
        with pytest.raises(DamagedGroup, match="verify --repair") as raised:
            ask()
        assert raised.value.file == file


def test_without_a_description_there_is_no_group_until_runs_are_published(tmp_path: Path) -> None:
    world = World(tmp_path)
    file = world.group.folder / "zarr.json"
    content = file.read_bytes()
    file.unlink()
    assert find_group(world.store, world.spec) is None
    assert list_groups(world.store) == []
    create_group(world.store, world.spec, rows(10), REPEATS)  # completes it
    assert open_group(world.store, world.spec.path) == world.group

    world.write_splits()
    world.finish(0, 1)
    publish(world.group, 0, world.index(), world.watch)
    status = (world.group.folder / "status" / "c.0").read_bytes()
    file.unlink()
    for ask in (
        lambda: find_group(world.store, world.spec),
        lambda: list_groups(world.store),
        lambda: create_group(world.store, world.spec, rows(10), REPEATS),
    ):
        with pytest.raises(DamagedGroup, match="is absent, though runs are published"):
            ask()
    assert (world.group.folder / "status" / "c.0").read_bytes() == status
    file.write_bytes(content)
    assert find_group(world.store, world.spec) == world.group


def test_another_groups_description_is_damage_and_a_newer_one_is_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    other = dataclasses.replace(world.spec, samples=world.spec.samples + 1)
    with pytest.raises(DamagedGroup, match="another group"):
        find_group(world.store, other)
    file = world.group.folder / "zarr.json"
    document = json.loads(file.read_bytes())
    document["attributes"]["manyseed"]["layout"] = LAYOUT_VERSION + 1
    file.write_text(json.dumps(document))
    with pytest.raises(LayoutTooNew):
        find_group(world.store, world.spec)


@pytest.mark.parametrize(
    "failure", [MemoryError(), OSError(5, "Input/output error"), OSError(24, "Too many open files")]
)
def test_what_the_machine_cannot_read_now_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(encoding, "ATTEMPTS", 2)

    def refuse(*_: object) -> bytes:
        raise failure

    monkeypatch.setattr(encoding, "ChunkReader", refuse)
    with pytest.raises(StoreUnavailable) as raised:
        read_array(world.group, "cell")
    assert isinstance(raised.value, UnavailableError)
    with pytest.raises(StoreUnavailable):
        encoding.read_undamaged(
            world.group.folder / "cell",
            0,
            4,
            4,
            encoding.filled(world.spec, world.spec.array("cell"), 4),
        )
