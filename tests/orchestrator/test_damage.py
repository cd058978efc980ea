"""Whatever file of a sweep is damaged: the same answer, or a message that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.damage import Campaign, Try, make

SMALL = "^(plan|tasks|results|sweep)"
"""The files beside the store and the page."""

QUICK = ["status", "logs --failed", "query", "drop -n"]


def _misbehaved(tries: list[Try]) -> list[str]:
    return [
        f"{one.verdict}: {one.name}, {one.damage}, seed {one.seed}: {one.verb}\n"
        f"{one.answer.get('raised', '')}{one.answer.get('err', '')}"
        for one in tries
        if one.misbehaved and not _is_loss(one)
    ]


def _is_loss(one: Try) -> bool:
    """Whether what tasks told is gone with their file: a torn last line, or the whole of it."""
    is_told = one.name.startswith("tasks/") and one.verb in ("status", "logs --failed")
    return one.verdict == "wrong" and is_told


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_one_damaged_file_is_harmless_or_named(tmp_path: Path, seed: int) -> None:
    world = make(tmp_path, tuned=False)
    tries: list[Try] = []
    with Campaign(world, QUICK) as campaign:
        for name, damage, draw in campaign.sample(seed, 60, SMALL):
            tries += campaign.tries(name, damage, draw, QUICK)
    assert len(tries) > 100
    assert _misbehaved(tries) == []
