"""The small files of a sweep directory keep their bytes, and those of earlier versions are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from manyseed.jobs.tuning import Draw
from manyseed.orchestrator.disk.lease import LeaseRecord
from manyseed.orchestrator.paths import LEDGER, SweepPaths
from manyseed.orchestrator.plans.change import Estimate
from manyseed.orchestrator.plans.plan import Dropped
from manyseed.orchestrator.plans.searches import TunedHparams
from manyseed.orchestrator.provenance import Recipe, read_recipes, register
from manyseed.orchestrator.store.ledger import Ledger
from manyseed.orchestrator.tasks.attempts import (
    Attempt,
    Failure,
    add_failures,
    read_attempts,
    read_failures,
)
from manyseed.orchestrator.tasks.intent import Intent, SubmissionPaths, skip_cells, skipped_cells
from manyseed.orchestrator.working.node import read_jobs, write_jobs
from manyseed.slurm.processes import Process
from tests.orchestrator.tasks.test_intent import WHOLE

ATTEMPT = Attempt(
    "running",
    "h b 1 2",
    "n1",
    "7_1",
    started=5.0,
    updated=99.5,
    runs=9,
    pending=4,
    set_aside=1,
    killed=2,
    done={"0": 3, "2": 1},
    failed={"1": 1},
    workers=2,
)
FAILURE = Failure(0, 4, 2, 1, 5, "ValueError: x", "T")
RECIPE = Recipe("sequential", 1, "float32", "gpu", "H100", "3.11.1", {"numpy": "2"})
FOUND = TunedHparams(
    "wine",
    "mlp",
    {"tuned": {"draws": 1, "space": 1}},
    hparams={"alpha": 0.1},
    draw=0,
    accuracy=0.5,
    recipe=RECIPE,
    draws=(Draw({"alpha": 0.1}, 0.5, 1.5),),
)
PROGRESS = (
    '"state":"running","process":"h b 1 2","node":"n1","job_id":"7_1","started":5.0,"updated":99.5,'
    '"runs":9,"pending":4,"set_aside":1,"killed":2,"done":{"0":3,"2":1},"failed":{"1":1},'
    '"workers":2'
)


@pytest.mark.parametrize(
    ("write", "file", "text"),
    [
        (
            WHOLE.write,
            "intent.json",
            '{"crc32c":"08ba4e7a","cluster":"lab","submitter":"host boot 1 2","submitted":12.5,'
            '"user":"me","runs":7,"tasks":2,"scheduler":"theirs","profile":"/home/me/lab.toml",'
            '"arrays":[{"resource":"cpu","name":"quick-1","first":0,"count":2,"processes":8}],'
            '"excluded":{"c1":"no disk"},"exclude":{"cpu":"c9"},"walltime":{"cpu":300.0},'
            '"request":{"options":{"resamples":5},"dask":"threads","workers":null},'
            '"modules":"/home/me"}\n',
        ),
        (
            Intent("local", "h b 1 2", 3.0, "me", 3, workers=3, gpu="none").write,
            "intent.json",
            '{"crc32c":"6202ca22","cluster":"local","submitter":"h b 1 2","submitted":3.0,'
            '"user":"me","runs":3,"workers":3,"gpu":"none"}\n',
        ),
        (ATTEMPT.write, "progress.json", f'{{"crc32c":"f833fd2e",{PROGRESS}}}\n'),
        (
            replace(ATTEMPT, state="broken", reason="why").write,
            "progress.json",
            f'{{"crc32c":"12b69e0a",{PROGRESS.replace("running", "broken")},'
            '"reason":"why","details":"","node_at_fault":false}\n',
        ),
        (
            lambda folder: add_failures(folder, [FAILURE], ""),
            "failures.jsonl",
            '{"group": 0, "row": 4, "cell": 2, "repeat": 1, "run": 5, "error": "ValueError: x", '
            '"traceback": "T"}\n',
        ),
        (
            lambda folder: write_jobs(folder, {0: "7_0", 1: "7_1"}),
            "jobs.json",
            '{"crc32c":"31b99e35","0":"7_0","1":"7_1"}\n',
        ),
        (
            lambda folder: skip_cells(folder, {2, 1}),
            "skip.json",
            '{"crc32c":"9ba8b2eb","cells":[1,2]}\n',
        ),
        (
            Ledger(3, frozenset({"a", "b"})).write,
            LEDGER,
            '{"crc32c":"4049e40a","count":3,"journals":["a","b"]}\n',
        ),
        (
            lambda folder: Estimate(3, 99, 7, 3.25).write(SweepPaths(folder)),
            "plan/promise.json",
            '{"crc32c":"9dcdbd19","fits":3,"store_bytes":99,"store_files":7,"hours":3.25}\n',
        ),
        (
            lambda folder: Dropped((1, 3), "cell = 1", "2026").write(SweepPaths(folder)),
            "plan/dropped-0001.json",
            '{"crc32c":"cfcbad09","cells":[1,3],"where":"cell = 1","dropped":"2026"}\n',
        ),
        (
            lambda folder: register(folder / "plan", replace(RECIPE, tuned={"alpha": 0.1})),
            "plan/0001.json",
            '{"crc32c":"e2acc24a","form":"sequential","threads":1,"precision":"float32","device":"gpu"'
            ',"device_class":"H100","python":"3.11.1","packages":{"numpy":"2"},"tuned":{"alpha":0.1}}\n',
        ),
        (
            lambda folder: FOUND.write(folder / "found.json", lambda: None),
            "found.json",
            '{"crc32c":"65826bed","dataset":"wine","classifier":"mlp",'
            '"search":{"tuned":{"draws":1,"space":1}},"hparams":{"alpha":0.1},"draw":0,'
            '"accuracy":0.5,"recipe":{"form":"sequential","threads":1,"precision":"float32",'
            '"device":"gpu","device_class":"H100","python":"3.11.1","packages":{"numpy":"2"}},'
            '"draws":[{"hparams":{"alpha":0.1},"accuracy":0.5,"seconds":1.5,"error":null}]}\n',
        ),
    ],
)
def test_a_record_keeps_its_bytes(
    write: Callable[[Path], object], file: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "plan").mkdir()
    write(tmp_path)
    assert (tmp_path / file).read_text() == text


def test_a_lease_keeps_its_bytes() -> None:
    record = LeaseRecord("ab", Process("h", "boot", "ns", 1, 2), 4, False, "planning")
    assert record.content() == (
        b'{"id": "ab", "owner": {"host": "h", "machine": "boot ns", "pid": 1, "started": 2}, '
        b'"counter": 4, "state": "held", "doing": "planning"}'
    )
    assert LeaseRecord.parse(record.content()) == record


def test_what_is_written_is_read(tmp_path: Path) -> None:
    paths, files = SweepPaths(tmp_path), SubmissionPaths(tmp_path)
    paths.plan.mkdir()
    attempt = files.attempt(3, "a")
    attempt.mkdir(parents=True)
    ATTEMPT.write(attempt)
    add_failures(attempt, [FAILURE], "")
    assert read_attempts(tmp_path, 3, plan="") == [ATTEMPT]
    assert read_attempts(tmp_path, 4, plan="") == []
    assert (ATTEMPT.n_done, ATTEMPT.n_failed, read_attempts(tmp_path, plan="")[0].task) == (4, 1, 3)
    assert read_failures(attempt, "") == [replace(FAILURE, file=attempt / "failures.jsonl")]
    write_jobs(tmp_path, {0: "7_0"})
    assert read_jobs(tmp_path) == {0: "7_0"}
    assert skip_cells(tmp_path, {3}) | skip_cells(tmp_path, {1}) == {1, 3}
    assert skipped_cells(tmp_path) == [1, 3]
    assert [register(paths.recipes, RECIPE), register(paths.recipes, RECIPE)] == [1, 1]
    assert read_recipes(paths.recipes) == {1: RECIPE}
    FOUND.write(tmp_path / "found.json", lambda: None)
    assert TunedHparams.read(tmp_path / "found.json") == FOUND
    Estimate(3, 99, 7, 3.25).write(paths)
    assert Estimate.read(paths) == Estimate(3, 99, 7, 3.25)


def test_the_attempt_of_an_earlier_versions_analysis_is_read(tmp_path: Path) -> None:
    """It told no counts of runs, and its end beside them."""
    attempt = SubmissionPaths(tmp_path).attempt(0, "a")
    attempt.mkdir(parents=True)
    old = {"state": "broken", "started": 5.5, "node": "n1", "job_id": "7_0", "process": "h b 1 2"}
    old |= {"done": {"blocks": 2}, "failed": {}, "blocks": 3, "reason": "why", "exit_code": 4}
    (attempt / "progress.json").write_text(json.dumps(old))
    (read,) = read_attempts(tmp_path, plan="")
    assert {name: value for name, value in asdict(read).items() if name in old} == old
    assert (read.updated, read.workers, read.node_at_fault) == (0.0, 0, False)
    read.write(attempt)
    assert read_attempts(tmp_path, plan="") == [read]


def test_recipes_and_drops_of_earlier_versions_are_read(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    paths.recipes.mkdir(parents=True)
    imported = {"form": "imported", "device": "imported", "device_class": "f.npz"}
    (paths.recipes / "0001.json").write_text(json.dumps(imported))
    assert read_recipes(paths.recipes)[1].to_json() == imported
    (tmp_path / "found.json").write_text(
        '{"hparams":{"alpha":1},"draw":0,"accuracy":1,'
        '"draws":[{"hparams":{"alpha":1},"accuracy":1,"seconds":2}]}'
    )
    assert TunedHparams.read(tmp_path / "found.json").recipe == Recipe()
    paths.estimate.write_text('{"fits":"many"}')
    assert str(Estimate.read(paths).hours) == "nan"
