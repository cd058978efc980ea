"""Tuned cells from the plan to the results, with the real command."""

from __future__ import annotations

import json
import os
import resource
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.jobs import tuning as search
from manyseed.jobs.run import Cell
from manyseed.jobs.tuning import Draw
from manyseed.orchestrator import runs, tuning
from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.errors import DamagedFile, RunsError, StoreUnavailable, UserError
from manyseed.orchestrator.plans.change import estimate_and_outcome
from manyseed.orchestrator.plans.searches import require_searched, searches
from manyseed.orchestrator.provenance import Recipe, read_recipes
from manyseed.orchestrator.working import pool
from tests.orchestrator.conftest import command, write

TEXT = """
name = "tuned"
seed = 1
runs = 2
repeats = 1
tune = { draws = 4 }

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["lr-sgd"]
hparams    = ["default", "tuned"]
perturb_hparams = ["none", "relative:0.1"]
"""

KEEP = "seed = 1\nkeep = { parameters = true }"


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep.plan(write(tmp_path / "tuned.toml", TEXT), tmp_path / "sweep")


def test_submit_refuses_what_was_not_searched_for(sweep: Sweep) -> None:
    with pytest.raises(UserError, match=r"to be searched for: lr-sgd × sklearn:wine\n .*tune"):
        sweep.submit(workers=1)
    assert not sweep.paths.tasks.exists()
    plan = sweep.survey().plan
    require_searched(sweep.paths, plan.cells.filter(hparams="default"))
    assert sweep.show("1:0:0")["fitted_with"] is None or sweep.show("2:0:0")["fitted_with"] is None


def test_what_a_trained_run_was_fitted_with_is_never_said_to_be_open(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = sweep.survey().plan.cells
    (number, *_) = cells.filter(hparams="tuned")["cell"]
    assert sweep.show(f"{number}:0:0")["fitted_with"] is None
    monkeypatch.setattr(runs, "stored", lambda *_: runs.StoredRun("done"))
    with pytest.raises(
        DamagedFile, match=r"plan/tuned/\w+.json: is not there(.|\n)*manyseed plan .* --tune"
    ):
        sweep.show(f"{number}:0:0")


def test_models_whose_search_is_lost_are_asked_nothing(tmp_path: Path) -> None:
    text = TEXT.replace("draws = 4", "draws = 1").replace('"default", ', "")
    text = text.replace(', "relative:0.1"', "").replace("seed = 1", KEEP)
    sweep = Sweep.plan(write(tmp_path / "kept.toml", text), tmp_path / "kept")
    sweep.tune(workers=1)
    sweep.submit(workers=1)
    sweep.wait()
    (file,) = sweep.paths.all_tuned()
    content = file.read_bytes()
    file.unlink()
    ask = ("respond", sweep.directory, "--transforms", "intra", "--rows", "5", "--workers", "1")
    done = command(*ask)
    said = " ".join(done.stderr.split())
    told = f"{file.name}: is not there, though the run was trained"
    assert (done.returncode, told in said, "plan" in said, "--tune" in said) == (4, *[True] * 3)
    assert not [*sweep.directory.glob("responses/*")]
    file.write_bytes(content)
    assert command(*ask).returncode == 0


@pytest.mark.slow
@pytest.mark.process
def test_what_is_found_is_what_runs_are_fitted_with(sweep: Sweep) -> None:
    result = command("tune", sweep.directory, "--workers", 2, "--json")
    assert result.returncode == 0, result.stderr
    (told,) = json.loads(result.stdout)["searches"]
    (file,) = (sweep.paths.plan / "tuned").glob("*.json")
    kept = read_json(file)
    assert told["hparams"] == kept["hparams"] == kept["draws"][kept["draw"]]["hparams"]
    assert kept["accuracy"] == max(draw["accuracy"] for draw in kept["draws"])
    assert len(kept["draws"]) == told["draws"] == 4
    assert not list((sweep.paths.tasks / "tuning").iterdir())
    assert sweep.tune(workers=1) == []

    sweep.submit(workers=1)
    sweep.wait()
    sweep.compact()
    assert sweep.status()["runs"]["done"] == 8
    for cell in range(4):
        shown = sweep.show(f"{cell}:0:1")
        recipe = shown["stored"]["recipe"]
        if shown["hparams"] == "tuned":
            assert "tuned" in shown["description"]["hparams"]
            assert recipe["tuned"] == kept["hparams"]
            assert sweep.rerun(f"{cell}:0:1")["equal"]
        else:
            assert "tuned" not in recipe
        exact = shown["perturb_hparams"] == "none" and shown["hparams"] == "tuned"
        assert (shown["fitted_with"] == kept["hparams"]) == exact
    assert estimate_and_outcome(sweep.paths)["fits"] == (8 + 4, 8 + 4)
    recipes = read_recipes(sweep.paths.recipes).values()
    assert [replace(recipe, tuned=None).to_json() for recipe in recipes] == [kept["recipe"]] * 2


def test_what_another_search_found_is_not_taken(tmp_path: Path) -> None:
    """Two files under plan/tuned that changed places."""
    text = TEXT.replace('["lr-sgd"]', '["lr-sgd", "svm-sgd"]').replace("draws = 4", "draws = 1")
    sweep = Sweep.plan(write(tmp_path / "two.toml", text), tmp_path / "two")
    sweep.tune(workers=1)
    one, two = sweep.paths.all_tuned()
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    done = command("submit", sweep.directory, "--workers", "1")
    assert (done.returncode, "belongs to another search" in done.stderr) == (4, True), done.stderr
    assert not list(sweep.paths.submissions())


def test_a_search_goes_on_where_it_stopped(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []

    def stopping(calls, *_):  # type: ignore[no-untyped-def]
        for (search_id, number), call in calls:
            if len(judged) == 2:
                raise KeyboardInterrupt
            judged.append(number)
            drawn = search.drawn(Cell.from_canonical(call.args[0]), number)
            yield (search_id, number), Draw(drawn, 0.1 * number, 1.0)

    monkeypatch.setattr(tuning, "spawned", stopping)
    with pytest.raises(KeyboardInterrupt):
        sweep.tune(workers=1)
    (log,) = (sweep.paths.tasks / "tuning").iterdir()
    log.write_bytes(log.read_bytes() + b'{"number": 3, "dr')  # torn
    judged.clear()
    (done,) = sweep.tune(workers=1)
    assert judged == [2, 3]
    kept = read_json(sweep.paths.tuned(done.id))
    assert kept["draw"] == 3
    assert [draw["hparams"] for draw in kept["draws"]] == [
        search.drawn(done.cell, number) for number in range(4)
    ]


def test_draws_of_another_recipe_are_judged_again(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    (open_search,) = searches(sweep.paths, sweep.survey().plan.cells)
    log = tuning._Log(sweep.paths, open_search, Recipe(threads=1))
    log.add(0, Draw({}, 0.5, 1.0))
    assert list(tuning._Log(sweep.paths, open_search, Recipe(threads=1)).draws) == [0]
    assert not tuning._Log(sweep.paths, open_search, Recipe(threads=2)).draws


def test_a_disk_that_is_full_as_a_search_goes_on_costs_no_draw(sweep: Sweep) -> None:
    (open_search,) = searches(sweep.paths, sweep.survey().plan.cells)
    log = tuning._Log(sweep.paths, open_search, Recipe())
    for number in range(3):
        log.add(number, Draw({}, 0.5, 1.0))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises((OSError, StoreUnavailable)):
            tuning._Log(sweep.paths, open_search, Recipe())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tuning._Log(sweep.paths, open_search, Recipe()).draws) == [0, 1, 2]


def test_a_search_without_any_fit_that_worked_says_why(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(calls, *_):  # type: ignore[no-untyped-def]
        for key, _call in calls:
            yield key, Draw({}, None, 1.0, "FloatingPointError: diverged")

    monkeypatch.setattr(tuning, "spawned", failing)
    with pytest.raises(RunsError, match=r"lr-sgd × sklearn:wine: all 4 draws failed.*diverged"):
        sweep.tune(workers=1)
    assert not list((sweep.paths.plan / "tuned").glob("*"))


def test_processes_of_a_search_use_one_thread_and_leave_the_environment() -> None:
    before = dict(os.environ)
    seen: list[str | None] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.append(os.environ.get("PATH"))

    other = threading.Thread(target=look)
    other.start()
    try:
        for _ in range(300):
            with pool._one_thread():
                assert os.environ["OMP_NUM_THREADS"] == "1"
    finally:
        ended.set()
        other.join()
    assert dict(os.environ) == before
    assert set(seen) == {before["PATH"]}, "another thread's environment was emptied"


@pytest.mark.parametrize(("gpus", "device"), [({}, "cpu"), ({"0": "H100"}, "gpu")])
def test_a_request_for_a_gpu_is_met_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: dict[str, str], device: str
) -> None:
    text = TEXT.replace("lr-sgd", "mlp") + '[classifier.mlp]\ndevice = "gpu"\n'
    sweep = Sweep.plan(write(tmp_path / "tuned.toml", text), tmp_path / "sweep")
    asked = []

    def judged(calls, *_):  # type: ignore[no-untyped-def]
        for key, call in calls:
            asked.append(call.args[2])
            yield key, Draw({}, 0.5, 1.0)

    monkeypatch.setattr(tuning, "spawned", judged)
    monkeypatch.setattr(tuning, "gpus", lambda: gpus)
    (done,) = sweep.tune(workers=1)
    assert asked == [device] * 4
    assert read_json(sweep.paths.tuned(done.id))["recipe"]["device"] == device


RUNS = """
name = "tuned"
seed = 1
runs = 2
repeats = 1
tune = { draws = 4, data = "runs" }

[[grid]]
dataset        = ["sklearn:wine"]
classifier     = ["lr-sgd"]
hparams        = ["tuned"]
train_fraction = [1, 0.2]
perturb_continuous = ["none", "relative:0.5"]
perturb_hparams = ["none", "relative:0.1"]
"""


def test_hparams_are_found_for_each_way_in_which_data_are_made(tmp_path: Path) -> None:
    sweep = Sweep.plan(write(tmp_path / "tuned.toml", RUNS), tmp_path / "sweep")
    told = command("tune", sweep.directory, "--workers", 1, "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)["searches"]
    noise = {"perturb_continuous": "relative:0.5"}
    data = [{}, noise, {"train_fraction": 0.2}, {"train_fraction": 0.2, **noise}]
    assert sorted(map(str, (one.get("data", {}) for one in found))) == sorted(map(str, data))
    files = {file.stem: read_json(file) for file in sweep.paths.all_tuned()}
    assert sorted(map(str, (one.get("data", {}) for one in files.values()))) == sorted(
        map(str, data)
    )
    drawn = [[draw["hparams"] for draw in one["draws"]] for one in files.values()]
    assert drawn == [drawn[0]] * 4  # the same draws, judged on different data
    assert len({str([draw["accuracy"] for draw in one["draws"]]) for one in files.values()}) > 1

    sweep.submit(workers=1)
    sweep.wait()
    sweep.compact()
    assert sweep.status()["runs"]["done"] == 16
    for number, canonical in sweep.survey().plan.cells.select("cell", "canonical").iter_rows():
        kept = files[search.search_id(Cell.from_text(canonical))]
        assert sweep.show(f"{number}:0:1")["stored"]["recipe"]["tuned"] == kept["hparams"]
    assert sweep.rerun("0:0:1")["equal"]
    assert estimate_and_outcome(sweep.paths)["fits"] == (16 + 16, 16 + 16)


def test_what_was_found_on_other_data_is_not_taken(tmp_path: Path) -> None:
    """Searches of a dataset and classifier have the same draws, whatever their data."""
    text = RUNS.replace("draws = 4", "draws = 1").replace(', "relative:0.5"', "")
    sweep = Sweep.plan(write(tmp_path / "two.toml", text), tmp_path / "two")
    sweep.tune(workers=1)
    one, two = sweep.paths.all_tuned()
    first, second = one.read_bytes(), two.read_bytes()
    assert json.loads(first)["hparams"] == json.loads(second)["hparams"]
    one.write_bytes(second)
    two.write_bytes(first)
    done = command("submit", sweep.directory, "--workers", "1")
    assert (done.returncode, "belongs to another search" in done.stderr) == (4, True), done.stderr


HOURS = TEXT.replace("draws = 4", "draws = 9, hours = 0.001")  # 3.6 seconds


def test_a_search_begins_no_draw_after_its_hours_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.plan(write(tmp_path / "tuned.toml", HOURS), tmp_path / "sweep")
    judged: list[int] = []

    def judging(calls, *_):  # type: ignore[no-untyped-def]
        for (search_id, number), call in calls:
            judged.append(number)
            hparams = search.drawn(Cell.from_canonical(call.args[0]), number)
            yield (search_id, number), Draw(hparams, 0.1 * number, 1.0)

    (open_search,) = searches(sweep.paths, sweep.survey().plan.cells)
    monkeypatch.setattr(tuning.Recipe, "here", lambda *_: Recipe())
    monkeypatch.setattr(tuning, "spawned", judging)
    # interrupted: of four processes' draws, the second did not end, and the hours are used up
    log = tuning._Log(sweep.paths, open_search, Recipe())
    for number in (0, 2, 3):
        log.add(number, Draw(search.drawn(open_search.cell, number), 0.1 * number, 2.0))
    reported: list[tuple[int, int]] = []
    tuning.tune(sweep.paths, workers=1, report=lambda *done: reported.append(done))
    assert judged == [1]
    kept = read_json(sweep.paths.tuned(open_search.id))
    assert (kept["draw"], len(kept["draws"])) == (3, 4)
    assert reported[-1] == (9, 9)
    assert searches(sweep.paths, sweep.survey().plan.cells) == []

    other = Sweep.plan(write(tmp_path / "tuned.toml", HOURS), tmp_path / "other")
    judged.clear()
    other.tune(workers=1)
    assert judged == [0, 1, 2, 3]  # of one second each


def test_calls_are_taken_one_by_one_as_processes_are_free() -> None:
    returned: list[int] = []
    taken_after: list[int] = []

    def calls():  # type: ignore[no-untyped-def]
        for number in range(5):
            taken_after.append(len(returned))
            yield number, partial(int, number)

    for key, result in pool.spawned(calls(), 2, "a process"):
        assert key == result
        returned.append(result)
    assert sorted(returned) == [0, 1, 2, 3, 4]
    assert all(before >= number - 1 for number, before in enumerate(taken_after))
    assert list(pool.spawned([], 2, "a process")) == []


@pytest.mark.parametrize(
    ("tune", "told"),
    [
        ('data = "run"', "Valid: whole, runs"),
        ("hours = 0", "above 0"),
        ('hours = "2h"', "a number"),
        ("trials = 9", "unknown key"),
    ],
)
def test_a_search_that_cannot_be_is_refused(tmp_path: Path, tune: str, told: str) -> None:
    file = write(tmp_path / "tuned.toml", TEXT.replace("draws = 4", tune))
    done = command("plan", file, "--out", tmp_path / "sweep")
    said = " ".join(done.stderr.split())
    assert (done.returncode, told in said, f"tune.{tune.split()[0]}" in said) == (2, True, True), (
        said
    )
    assert not (tmp_path / "sweep").exists()
