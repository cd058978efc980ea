"""Whatever file of a sweep is damaged: the same answer, or a message that names it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.damage import VERBS, Campaign, Try, World, as_on_a_cluster, judge, make

SMALL = "^(plan|tasks|results|sweep)"
"""The files beside the store and the page."""

UNSEEN = {
    "failures.jsonl": ("a value", "a bit"),
    "intent.json": ("a value",),
    "jobs.json": ("a value",),
    "": ("deleted", "a value"),
}
"""What no reader can see of what tasks told: the loss of all that an attempt told, and other values
where there is no checksum, as in what is appended to and in what earlier versions wrote."""


def _misbehaved(campaign: Campaign, tries: list[Try]) -> list[str]:
    return [
        f"{one.verdict}: {one.name}, {one.damage}, seed {one.seed}: {one.verb}\n"
        f"{one.answer.get('raised', '')}{one.answer.get('err', '')}{one.answer.get('out', '')}"
        for one in tries
        if one.misbehaved and not _is_loss(one, campaign.whole[one.verb])
    ]


def _is_loss(one: Try, whole: dict[str, Any]) -> bool:
    """Whether what tasks told of themselves is gone with their file; what is finished never is."""
    if one.verdict != "wrong" or not one.name.startswith("tasks/0"):
        return False
    file = Path(one.name).name
    if one.damage not in UNSEEN.get(file, UNSEEN[""]):
        return False
    if one.verb == "logs --failed":
        return file == "failures.jsonl"
    if one.verb != "status --json" or not one.answer["out"]:
        return False
    return _finished(one.answer) == _finished(whole)


def _finished(answer: dict[str, Any]) -> list[int]:
    runs = json.loads(answer["out"])["runs"]
    return [runs["done"], runs["copy"]]


def _told(exit_code: int, out: str = "", err: str = "", raised: str = "") -> dict[str, Any]:
    return {"exit": exit_code, "out": out, "err": err, "raised": raised, "seen": None}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (_told(0, "5 runs"), "ok"),
        (_told(4, err="/copy/tasks/0001/intent.json: is not valid JSON\n  restore it"), "told"),
        (_told(4, err="something is wrong"), "silent"),
        (_told(0, "4 runs"), "wrong"),
        (_told(0, "5 runs\nRuntimeError: WOULD TRAIN"), "would train"),
        (_told(1, raised="Traceback …"), "traceback"),
    ],
)
def test_an_answer_is_judged(answer: dict[str, Any], verdict: str) -> None:
    whole = _told(0, "5 runs")
    found = judge(VERBS["status"], "tasks/0001/intent.json", answer, whole, Path("/copy"))
    assert found == verdict


@pytest.mark.parametrize("seed", [1])
def test_damage_of_a_trained_sweep_is_harmless_or_named(
    quick: Sweep, tmp_path: Path, seed: int
) -> None:
    world = World(tmp_path, {"done": 1})
    shutil.copytree(quick.directory, world.whole)
    world.other.mkdir()  # nothing to swap files with
    verbs = ["status --json", "logs --failed", "verify", "show"]
    tries: list[Try] = []
    with Campaign(world, verbs) as campaign:
        for name, damage, draw in campaign.sample(seed, 30):
            tries += campaign.tries(name, damage, draw, verbs)
        assert len(tries) > 80
        assert _misbehaved(campaign, tries) == []


def test_what_campaigns_found_is_named(quick: Sweep, tmp_path: Path) -> None:
    world = World(tmp_path, {"done": 1})
    shutil.copytree(quick.directory, world.whole)
    as_on_a_cluster(world.whole)
    attempt = next((world.whole / "tasks" / "0002" / "lives").iterdir()).name
    verbs = ["status", "status --json", "pause", "cancel", "resume", "drop", "plan -n"]
    (tmp_path / "larger.toml").write_text(
        quick.paths.sweep_file.read_text().replace("runs    = 4", "runs    = 5")
    )
    tries: list[Try] = []
    with Campaign(world, verbs) as campaign:
        for name, damage in (
            ("plan/cells.parquet", "deleted"),
            (f"tasks/0002/lives/{attempt}/progress.json", "empty"),
            (f"tasks/0002/lives/{attempt}/failures.jsonl", "garbage"),
        ):
            if not (world.whole / name).exists():
                (world.whole / name).touch()
            tries += campaign.tries(name, damage, 4, verbs)
        assert len(tries) == 3 * len(verbs)
        assert _misbehaved(campaign, tries) == []


@pytest.mark.slow
@pytest.mark.process  # their logs and those of submitit are damaged, too
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
def test_one_damaged_file_is_harmless_or_named(tmp_path: Path, seed: int) -> None:
    world = make(tmp_path, tuned=False)
    verbs = [
        "status --json",
        "logs --failed",
        "logs TASK",
        "logs RUN",
        "resume",
        "query",
        "drop -n",
    ]
    tries: list[Try] = []
    with Campaign(world, verbs) as campaign:
        for name, damage, draw in campaign.sample(seed, 60, SMALL):
            tries += campaign.tries(name, damage, draw, verbs)
        assert len(tries) > 100
        assert _misbehaved(campaign, tries) == []
