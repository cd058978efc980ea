"""Whether a submission goes on in the recipe of the runs that are there."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.provenance import Recipe, read_recipes, register
from manyseed.orchestrator.submissions.requirements import left_out_before, require_same
from manyseed.orchestrator.tasks.task import Span, Task, TaskCell, held_rows
from tests.orchestrator.conftest import inside, write
from tests.orchestrator.test_lean import SGD


@pytest.fixture
def paths(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path)


def recorded(paths: SweepPaths, *gpus: str | None, **changes: Any) -> None:
    for gpu in gpus:
        register(paths.recipes, replace(Recipe.here(gpu), **changes))


def test_the_first_recipe_is_as_it_is(paths: SweepPaths) -> None:
    require_same(paths, {"cpu": False, "gpu": False}, gpu="H100", is_here=True)


@pytest.mark.parametrize(
    ("before", "has_finished", "gpu"),
    [
        ((None,), {"cpu": True}, None),
        ((None,), {"cpu": True, "gpu": False}, "H100"),  # classifiers on a GPU come to others
        ((None,), {"gpu": True}, None),  # a request that was not met before either
        ((None, "H100"), {"cpu": True, "gpu": True}, "H100"),
        (("H100",), {"cpu": False}, None),
    ],
)
def test_the_same_recipe_goes_on(
    paths: SweepPaths, before: tuple[str | None], has_finished: dict[str, bool], gpu: str | None
) -> None:
    recorded(paths, *before)
    require_same(paths, has_finished, gpu=gpu, is_here=True)


@pytest.mark.parametrize(
    ("before", "gpu", "told"),
    [
        ((None,), "H100", "device: cpu → gpu"),
        ((None, "H100"), None, "device: gpu → cpu"),
    ],
)
def test_another_device_is_refused(
    paths: SweepPaths, before: tuple[str | None], gpu: str | None, told: str
) -> None:
    recorded(paths, *before)
    with pytest.raises(UserError, match=told) as raised:
        require_same(paths, {"gpu": True}, gpu=gpu, is_here=True)
    assert "--other-recipe" in str(raised.value)


def test_another_processor_goes_on_and_is_told_other_versions_are_refused(
    paths: SweepPaths,
) -> None:
    recorded(paths, None, device_class="an older processor", threads=2)
    assert len(require_same(paths, {"cpu": True}, gpu=None, is_here=False)) == 1  # its threads
    (told,) = require_same(paths, {"cpu": True}, gpu=None, is_here=True)
    assert "threads: 2 → 1, device_class: an older processor → " in told
    recorded(paths, "H100")
    (told,) = require_same(paths, {"gpu": True}, gpu="A100", is_here=True)
    assert "device_class: H100 → A100" in told
    (paths.recipes / "0001.json").unlink()
    (paths.recipes / "0002.json").unlink()
    recorded(paths, None, device_class="an older processor", python="3.3")
    with pytest.raises(UserError, match=r"device_class: an older processor → .*python: 3\.3 → "):
        require_same(paths, {"cpu": True}, gpu=None, is_here=True)
    (paths.recipes / "0003.json").unlink()
    recorded(paths, None)
    recorded(paths, None, python="2.7")
    assert require_same(paths, {"cpu": True}, gpu=None, is_here=True) == []
    (paths.recipes / "0004.json").unlink()
    with pytest.raises(UserError, match=r"python: 2\.7 → "):
        require_same(paths, {"cpu": True}, gpu=None, is_here=False)


def test_what_was_found_for_tuned_cells_is_no_other_machine(paths: SweepPaths) -> None:
    recorded(paths, None, tuned={"alpha": 0.1})
    require_same(paths, {"cpu": True}, gpu=None, is_here=True)


def test_a_task_keeps_requests_and_its_resource_class(tmp_path: Path) -> None:
    cells = {0: TaskCell({"v": 1}, (1, 2), "gpu"), 1: TaskCell({"v": 1}, ())}
    task = Task({0: "a/b"}, cells, (Span(0, 0, 0, 0, 0, 0, 2),), "gpu")
    task.write(tmp_path / "task.json")
    assert Task.read(tmp_path / "task.json") == task


def test_recipes_are_counted_before_anything_is_trained(tmp_path: Path) -> None:
    sweep = Sweep.plan(write(tmp_path / "s.toml", SGD), tmp_path / "sweep")
    for device in ("a processor", "another processor"):
        register(sweep.paths.recipes, replace(Recipe.here(), device_class=device))
    assert sweep.status()["recipes"] == 2


def test_a_sweep_goes_on_on_another_processor_and_all_say_two_recipes(tmp_path: Path) -> None:
    text = SGD.replace('["lr-sgd"]', '["lr-sgd", "svm-sgd"]')
    sweep = Sweep.plan(write(tmp_path / "two.toml", text), tmp_path / "sweep")
    here = ("--cluster", "local", "--workers", "1")
    assert inside("submit", sweep.directory, *here, "--only", "classifier = 'lr-sgd'")[0] == 0
    (recipe,) = read_recipes(sweep.paths.recipes).values()
    for file in sweep.paths.recipes.iterdir():
        file.unlink()
    register(sweep.paths.recipes, replace(recipe, device_class="a processor with avx512"))
    assert "recipes:" not in inside("status", sweep.directory)[1]
    code, said = inside("resume", sweep.directory, *here)
    assert (code, "a processor with avx512 →" in " ".join(said.split())) == (0, True), said
    assert sweep.status()["runs"]["done"] == 4
    said = inside("status", sweep.directory)[1]
    assert "2 recipes: runs were made in several ways." in said
    sweep.analyze(Options(resamples=2))
    page = sweep.report().read_text()
    assert "<dt>Recipes</dt><dd>2</dd>" in page
    runs = sweep.results["runs"]
    assert dict(runs.select("classifier", "recipe").unique().iter_rows()) == {
        "lr-sgd": 1,
        "svm-sgd": 2,
    }


def test_a_resume_says_what_only_left_out_and_how_to_keep_to_it(tmp_path: Path) -> None:
    text = SGD.replace('["lr-sgd"]', '["lr-sgd", "svm-sgd"]')
    sweep = Sweep.plan(write(tmp_path / "two.toml", text), tmp_path / "sweep")
    here = ("--cluster", "local", "--workers", "1")
    only = "classifier = 'lr-sgd'"
    code, said = inside("submit", sweep.directory, *here, "--only", only, "--limit", "1")
    assert (code, "left out" in said) == (0, False), said
    code, said = inside("resume", sweep.directory, *here, "--only", only)
    assert (code, "left out" in said) == (0, False), "the rest of what was asked for"
    code, said = inside("resume", sweep.directory, *here)
    told = next(line for line in said.splitlines() if "left out by --only before" in line)
    assert (code, told.startswith("2 of 2 were left out")) == (0, True), said
    words = shlex.split(told.partition("keep to it: manyseed ")[2])
    assert words == ["cancel", str(sweep.directory), "--only", f"not ({only})"]
    code, said = inside(*words)
    assert (code, "of 1 cell" in said) == (0, True), said


def test_what_was_submitted_before_is_not_told_as_left_out(tmp_path: Path) -> None:
    """A whole submission, of which one classifier failed to train, then one of that alone."""
    text = SGD.replace('["lr-sgd"]', '["lr-sgd", "svm-sgd"]')
    sweep = Sweep.plan(write(tmp_path / "two.toml", text), tmp_path / "sweep")
    here = ("--cluster", "local", "--workers", "1")
    assert inside("submit", sweep.directory, *here, "--only", "classifier = 'svm-sgd'")[0] == 0
    earlier = sweep.submissions()
    rows = sweep.survey().runs
    whole = rows.join(rows.filter(cell=rows["cell"].max()), on=["group", "row"], how="semi")
    held = held_rows([one.files.task(0) for one in earlier])
    inside_of_it = whole.join(held, on=["group", "row"], how="semi")
    assert not inside_of_it.is_empty()
    assert [*left_out_before(sweep.paths, inside_of_it, earlier)] == []
