"""What a submission intends, as it is written, and as versions before wrote it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.tasks.intent import AnalysisRequest, Intent, TaskArray

WHOLE = Intent(
    cluster="lab",
    submitter="host boot 1 2",
    submitted=12.5,
    user="me",
    runs=7,
    tasks=2,
    scheduler="theirs",
    profile="/home/me/lab.toml",
    arrays=(TaskArray("cpu", "quick-1", 0, 2, 8),),
    excluded={"c1": "no disk"},
    exclude={"cpu": "c9"},
    walltime={"cpu": 300.0},
    request=AnalysisRequest({"resamples": 5}, "threads", None),
    modules="/home/me",
)


@pytest.mark.parametrize("intent", [WHOLE, Intent("local", "host boot 1 2", workers=3, gpu="none")])
def test_an_intent_is_read_as_it_was_written(intent: Intent, tmp_path: Path) -> None:
    intent.write(tmp_path)
    assert Intent.read(tmp_path) == intent


def test_intents_of_versions_before_are_read(tmp_path: Path) -> None:
    """A training's walltimes by class, an analysis' as one number; both name a slurm.conf."""
    old = {
        "cluster": "lab",
        "submitter": "host boot 1 2",
        "submitted": 1,
        "slurm_conf": "/etc/slurm.conf",
        "arrays": [{"resource": "gpu", "name": "m", "first": 0, "count": 1, "processes": 4}],
        "tasks": 1,
    }
    for given, kept in ((600, {"cpu": 600.0}), ({"gpu": 600}, {"gpu": 600.0})):
        (tmp_path / "intent.json").write_text(json.dumps(old | {"walltime": given}))
        intent = Intent.read(tmp_path)
        assert intent.walltime == kept
        assert intent.arrays == (TaskArray("gpu", "m", 0, 1, 4),)
        assert (intent.runs, intent.user, intent.request) == (0, "", None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"cluster": 7}, "cluster is not a string"),
        ({"submitter": None}, "submitter is not a string"),
        ({"submitted": 1e300}, "submitted is not a time"),
        ({"submitted": float("nan")}, "submitted is not a time"),
        ({"tasks": -1}, "tasks is not a nonnegative integer"),
        ({"runs": 2**40}, "runs is not a nonnegative integer"),
        ({"arrays": {"name": "m"}}, "arrays is not a list"),
        ({"arrays": [{"name": "m", "first": 0}]}, "lacks 'count'"),
        ({"excluded": {"c1": 3}}, "excluded is not a string"),
        ({"walltime": {"cpu": "long"}}, "walltime is not a time"),
        ({"request": []}, "request is not an object"),
    ],
)
def test_what_is_no_intent_is_named(change: dict[str, object], named: str, tmp_path: Path) -> None:
    WHOLE.write(tmp_path)
    file = tmp_path / "intent.json"
    write_json(file, read_json(file) | change)
    with pytest.raises(DamagedFile, match=rf"intent\.json: .*{named}"):
        Intent.read(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"cluster": "lab"}'])
def test_what_lacks_the_least_is_no_intent(text: str, tmp_path: Path) -> None:
    (tmp_path / "intent.json").write_text(text)
    with pytest.raises(DamagedFile, match=r"is not an object|lacks '(cluster|submitter)'"):
        Intent.read(tmp_path)


def test_an_intent_of_another_plan_is_refused(tmp_path: Path) -> None:
    intent = replace(WHOLE, plan="5e0f")
    intent.write(tmp_path)
    assert Intent.read(tmp_path, "5e0f") == intent
    with pytest.raises(DamagedFile, match=r"intent\.json: .*another sweep's"):
        Intent.read(tmp_path, "c1a0")
    WHOLE.write(tmp_path)  # as earlier versions
    assert Intent.read(tmp_path, "c1a0").cluster == "lab"
