"""Whatever is wrong with a description, verify sees it and repair writes it again."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from manyseed.orchestrator.errors import DamagedGroup
from manyseed.orchestrator.store.metadata import consolidate, wrong_descriptions, wrong_folders
from tests.orchestrator.store.world import REPEATS, World, rows


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, n=10)


def wrong(world: World, *, mend: bool) -> list[str]:
    found = wrong_folders(world.store, [world.spec], mend=mend)
    return found + wrong_descriptions(world.store, world.spec, [rows(10)], REPEATS, mend=mend)


@pytest.mark.parametrize("n_bits", [15, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("consolidate_first", [False, True])
@pytest.mark.parametrize("folder", ["", "data", "data/clf", "data/clf/label", "data/clf/vary"])
def test_a_flipped_bit_is_mended_or_leaves_the_store_readable(
    world: World, folder: str, consolidate_first: bool, n_bits: int
) -> None:
    if consolidate_first:
        consolidate(world.store, [world.group])
    file = world.store / folder.replace("data/clf", world.spec.path).replace(
        "data", world.spec.path.partition("/")[0]
    )
    file /= "zarr.json"
    content, dice = file.read_bytes(), Random(1)
    assert wrong(world, mend=False) == []
    places = dice.sample(range(len(content)), min(len(content), n_bits))
    seen = 0
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << dice.randrange(7)
        file.write_bytes(damaged)
        seen += bool(wrong(world, mend=True))
        assert wrong(world, mend=False) == []
        try:
            consolidate(world.store, [world.group])
        except DamagedGroup as error:
            pytest.fail(f"byte {place}, {bytes(damaged[place - 20 : place + 20])!r}: {error}")
        file.write_bytes(content)
    assert seen > n_bits / 10


@pytest.mark.parametrize(
    ("before", "after"), [('"node_type"', '"nnde_type"'), ('"zarr_format": 3', '"zarr_format": 2')]
)
def test_what_other_readers_need_is_compared_too(world: World, before: str, after: str) -> None:
    for folder in ("", world.spec.path, f"{world.spec.path}/vary"):
        file = world.store / folder / "zarr.json"
        content = file.read_text()
        file.write_text(content.replace(before, after))
        assert wrong(world, mend=True) == [f"{folder}/zarr.json".lstrip("/")]
        assert wrong(world, mend=False) == []
        file.write_text(content)
