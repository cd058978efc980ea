"""Runs trained several at once: asked for in the sweep file, journaled singly, the same again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from manyseed import Sweep
from manyseed.jobs import stacking
from manyseed.jobs.stacking import best
from manyseed.jobs.training import loop
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.change import remarks
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change
from manyseed.orchestrator.plans.stacks import choices, members_of, stacks
from manyseed.orchestrator.provenance import read_recipes
from manyseed.orchestrator.submissions.cluster import TaskSize, cut
from manyseed.orchestrator.submissions.submitting import choose
from manyseed.orchestrator.tasks.intent import LOG
from manyseed.orchestrator.tasks.task import Span, Task
from manyseed.orchestrator.working.queue import Queue
from tests.orchestrator.conftest import assert_equal, inside, shared, stored, train, write

TEXT = """
name    = "stacked"
seed    = 5
repeats = 1
runs    = 5

[[grid]]
dataset        = ["points"]
classifier     = ["mlp"]
train_fraction = [{rows}]
vary           = ["init+batch+train"]

[dataset.points]
source    = "synthetic:gaussian"
n_samples = 80

[classifier.mlp]
epochs  = 2
hparams = {{ width1 = 32, width2 = 32 }}
{more}
"""


def text(stack: int | str = 2, rows: int = 30) -> str:
    return TEXT.format(rows=rows, more=f"stack = {stack}" if stack else "")


@pytest.fixture(scope="module")
def stacked(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "stacked", text())


def test_all_runs_of_blocks_have_one_recipe_and_are_the_same_again(stacked: Sweep) -> None:
    """The last block is trained whole, with a run that is not planned."""
    [recipe] = read_recipes(stacked.paths.recipes).values()
    assert (recipe.form, recipe.members) == ("stacked", 2)
    for address in ("0:0:1", "0:0:4"):
        again = stacked.rerun(address)
        assert again["same_recipe"]
        assert again["equal"]


def test_the_option_changes_no_identity_and_scores_by_rounding_alone(
    stacked: Sweep, tmp_path: Path
) -> None:
    alone = train(write(tmp_path / "alone.toml", text(0)), tmp_path / "alone")
    ids = [Plan.read(sweep.paths).cells["cell_id"].to_list() for sweep in (stacked, alone)]
    assert ids[0] == ids[1]
    [recipe] = read_recipes(alone.paths.recipes).values()
    assert (recipe.form, recipe.members) == ("sequential", None)
    for ours, theirs in zip(scores(stacked), scores(alone), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


def scores(sweep: Sweep) -> list[np.ndarray]:
    return [values["margin"] for values in stored(sweep).values()]


def test_an_interrupted_sweep_ends_with_the_same_bits(stacked: Sweep, tmp_path: Path) -> None:
    """A block of which a run was journaled is trained again, for the others."""
    sweep = Sweep.plan(write(tmp_path / "again.toml", text()), tmp_path / "again")
    for limit in (3, None):
        sweep.submit(workers=1, limit=limit)
        sweep.wait()
    sweep.compact()
    assert sweep.status()["runs"]["missing"] == 0
    assert_equal(stored(sweep), stored(stacked))


IMAGES = """
name    = "images"
seed    = 5
repeats = 1
runs    = 3

[[grid]]
dataset        = ["digits"]
classifier     = ["cnn", "vit"]
train_fraction = [40]
augment        = ["shift-x:0.2"]

[dataset.digits]
source = "sklearn:digits"

[classifier.cnn]
epochs = 1
stack  = 3

[classifier.vit]
epochs  = 1
stack   = 3
hparams = { dropout = 0.1 }
"""


def test_networks_on_images_are_trained_at_once(tmp_path: Path) -> None:
    """An interrupted stack is trained again, with the same bits."""
    sweep = Sweep.plan(write(tmp_path / "images.toml", IMAGES), tmp_path / "images")
    for limit in (1, None):
        sweep.submit(workers=1, limit=limit)
        sweep.wait()
    sweep.compact()
    [recipe] = read_recipes(sweep.paths.recipes).values()
    assert (recipe.form, recipe.members) == ("stacked", 3)
    for address in ("0:0:0", "0:0:2", "1:0:1"):
        again = sweep.rerun(address)
        assert again["same_recipe"]
        assert again["equal"]


def test_other_numbers_at_once_are_another_recipe(tmp_path: Path) -> None:
    file = write(tmp_path / "changed.toml", text())
    sweep = Sweep.plan(file, tmp_path / "changed")
    sweep.submit(workers=1, limit=1)
    sweep.wait()
    Sweep.plan(write(file, text(5)), tmp_path / "changed")
    with pytest.raises(UserError, match="2 at a time, the others would be 5") as refused:
        sweep.submit(workers=1)
    assert "write stack = 2" in str(refused.value)
    sweep.submit(workers=1, other_recipe=True)
    sweep.wait()
    assert sweep.status()["runs"]["missing"] == 0
    assert {recipe.members for recipe in read_recipes(sweep.paths.recipes).values()} == {2, 5}
    code, said = inside("analyze", sweep.directory)
    said = " ".join(said.split())
    assert code == 0
    assert "points × mlp: in 1 of 1 repeat, runs were made in several ways" in said
    assert "(several at once; " in said
    sweep.report()
    assert "runs were made in several ways" in sweep.paths.report.read_text()


def test_a_run_that_fails_takes_none_with_it(tmp_path: Path) -> None:
    """Of two rows drawn with replacement, runs 0, 1 and 3 get a single class."""
    few = text(5, rows=2).replace("seed    = 5", "seed    = 7")
    sweep = Sweep.plan(write(tmp_path / "few.toml", few), tmp_path / "few")
    sweep.submit(workers=1)
    sweep.wait()
    assert (sweep.status()["runs"]["failed"], sweep.status()["runs"]["done"]) == (3, 2)
    sweep.compact()
    assert sweep.rerun("0:0:4")["equal"]


def test_the_plan_says_how_many_and_whether_they_divide_the_runs(tmp_path: Path) -> None:
    told = {}
    for stack in (0, 1, 2, 5, 7):
        file = write(tmp_path / "told.toml", text(stack))
        found = [line for line in remarks(plan_change(file, tmp_path / "none")) if "step" in line]
        told[stack] = " ".join(found)
    assert told[0] == told[1] == ""
    assert told[5] == told[7] == "mlp: 5 seeds a step."
    assert told[2].startswith("mlp: 2 seeds a step; the last stack of a repeat trains 1 run too")


OUT_OF_MEMORY = (
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    torch.cuda.OutOfMemoryError("CUDA out of memory"),
    MemoryError(),
)


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_a_stack_too_large_for_memory_is_halved(
    stacked: Sweep,
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five at once become two, with the bits of two at once, also after an interruption."""
    sweep = beyond_memory(tmp_path, monkeypatch, error, 2, limits=(3, None))
    assert_equal(stored(sweep), stored(stacked))
    [recipe] = read_recipes(sweep.paths.recipes).values()
    assert (recipe.form, recipe.members, recipe.halved_from) == ("stacked", 2, 5)
    again = sweep.rerun("0:0:3")
    assert again["same_recipe"]
    assert again["equal"]
    logs = [log.read_text() for log in sweep.paths.tasks.rglob(LOG)]
    assert [log.count("runs at once: 2 now") for log in logs] == [1, 1]
    assert not any("2 runs at once" in log for log in logs)


def test_where_memory_suffices_for_no_stack_runs_are_trained_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = train(write(tmp_path / "alone.toml", text(0)), tmp_path / "alone")
    sweep = beyond_memory(tmp_path, monkeypatch, OUT_OF_MEMORY[0], 1)
    assert_equal(stored(sweep), stored(alone))
    [recipe] = read_recipes(sweep.paths.recipes).values()
    assert (recipe.form, recipe.members, recipe.halved_from) == ("sequential", None, 5)


def beyond_memory(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    most: int,
    limits: tuple[int | None, ...] = (None,),
) -> Sweep:
    """Train a sweep of stacks of five where memory suffices for `most`, in one or more goes."""
    stepping = loop._stepping_together

    def stepping_together(model, members):
        update = stepping(model, members)

        def checked(epoch, step, steps):
            if epoch and len(members) > most:
                raise error
            update(epoch, step, steps)

        return checked

    monkeypatch.setattr(loop, "_stepping_together", stepping_together)
    sweep = Sweep.plan(write(folder / "large.toml", text(5)), folder / "large")
    for limit in limits:
        sweep.submit(workers=1, limit=limit)
        sweep.wait()
    sweep.compact()
    assert sweep.status()["runs"]["done"] == 5
    return sweep


SPAN = Span(group=0, shard=0, row=10, cell=0, repeat=0, run=2, count=7)
TASK = Task({0: "a/b"}, {}, (SPAN,), stacks={0: 4})


def test_blocks_are_handed_out_whole_and_stay_together_when_a_process_dies() -> None:
    queue = Queue(TASK, {0: {13}})
    taken = []
    while (batch := queue.take()) is not None:
        taken.append([run for _, run in batch.runs])
        assert batch.members == 4
        if len(taken) == 2:
            queue.put_back(batch, [row for row, _ in batch.runs[1:]])
    assert taken == [[2, 3], [4, 6, 7], [6, 7], [8]]


def test_tasks_are_cut_between_blocks() -> None:
    rows = pl.DataFrame(
        {"group": 0, "cell": [0] * 12, "repeat": 0, "run": [*range(12)], "row": [*range(12)]},
        schema=dict.fromkeys(("group", "cell", "repeat", "run", "row"), pl.UInt32),
    )
    costs = pl.DataFrame({"cell": [0], "seconds": [1000.0], "device": ["cpu"]})
    costs = costs.with_columns(pl.col("cell").cast(pl.UInt32))
    shape = TaskSize(processes=1, seconds=1e9, parallelism=5, most=5)
    none = pl.Series("cell", [], dtype=pl.UInt32)
    work = cut(rows, costs, none, {"cpu": shape}, {0: 3})
    assert work.group_by(pl.col("run") // 3).agg(pl.col("task").n_unique())["task"].max() == 1
    assert work["task"].n_unique() > 1


@pytest.mark.parametrize("stack", ["0", "1.5", '"many"', "2000"])
def test_a_number_that_makes_no_sense_is_refused(tmp_path: Path, stack: str) -> None:
    wrong = text().replace("stack = 2", f"stack = {stack}")
    with pytest.raises(UserError, match=r"classifier\.mlp\.stack"):
        Sweep.plan(write(tmp_path / "wrong.toml", wrong), tmp_path / "wrong")


def test_stacks_of_networks_on_images_are_not_in_bfloat16(tmp_path: Path) -> None:
    wrong = IMAGES.replace("stack  = 3", 'stack  = 3\nprecision = "bf16"')
    with pytest.raises(
        UserError, match=r"classifier\.cnn\.stack = 3: networks on images are stacked in float32"
    ):
        Sweep.plan(write(tmp_path / "wrong.toml", wrong), tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


AUTO = text('"auto"')


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, float]]:
    """Planted seconds a run, one entry for each probe that may be made."""
    left = [{1: 1.0, 3: 0.5, 5: 0.2}]
    monkeypatch.setattr(stacking, "seconds_a_run", lambda *_: left.pop())
    return left


def test_what_a_probe_chose_is_kept_whatever_is_submitted_later(
    timed: list[dict[int, float]], tmp_path: Path
) -> None:
    file = write(tmp_path / "auto.toml", AUTO)
    sweep = Sweep.plan(file, tmp_path / "auto")
    told: list[str] = []
    for limit in (1, None):
        sweep.submit(workers=1, limit=limit, tell=told.append)
        sweep.wait()
    assert not timed
    assert told[-1] == "mlp: 5 seeds a step, 5.0 × sequential."
    Sweep.plan(write(file, AUTO.replace("runs    = 5", "runs    = 8")), sweep.directory)
    sweep.submit(workers=1)
    sweep.wait()
    [recipe] = read_recipes(sweep.paths.recipes).values()
    assert (recipe.form, recipe.members) == ("stacked", 5)
    assert sweep.status()["runs"]["done"] == 8
    [choice] = sweep.status()["stacks"]
    assert (choice["runs"], choice["members"], choice["seconds"]["3"]) == (5, 5, 0.5)
    for shown in (
        ("status", sweep.directory),
        ("plan", file, "--dry-run", "--out", sweep.directory),
    ):
        code, said = inside(*shown)
        assert code == 0
        assert told[-1] in said


def test_a_plan_says_that_the_number_will_be_measured(tmp_path: Path) -> None:
    change = plan_change(write(tmp_path / "auto.toml", AUTO), tmp_path / "none")
    assert "mlp: how many seeds a step are fastest is measured when it is submitted." in [
        *remarks(change)
    ]


def test_the_number_is_really_measured(tmp_path: Path) -> None:
    sweep = Sweep.plan(write(tmp_path / "auto.toml", AUTO), tmp_path / "auto")
    sweep.submit(workers=1)
    sweep.wait()
    [choice] = choices(sweep.paths).values()
    assert {*choice.seconds} == {"1", "5"}
    assert choice.members == best({int(n): each for n, each in choice.seconds.items()}, 5)
    [recipe] = read_recipes(sweep.paths.recipes).values()
    assert (recipe.members or 1) == choice.members


def test_runs_that_were_trained_without_a_choice_keep_their_form(
    timed: list[dict[int, float]], tmp_path: Path
) -> None:
    file = write(tmp_path / "late.toml", text(0))
    sweep = Sweep.plan(file, tmp_path / "late")
    sweep.submit(workers=1, limit=1)
    sweep.wait()
    Sweep.plan(write(file, AUTO), sweep.directory)
    with pytest.raises(UserError, match="before a number was chosen") as refused:
        sweep.submit(workers=1)
    assert "1 if none was given" in str(refused.value)
    assert timed
    assert not choices(sweep.paths)
    sweep.submit(workers=1, other_recipe=True)
    sweep.wait()
    assert {recipe.members for recipe in read_recipes(sweep.paths.recipes).values()} == {None, 5}


def test_on_a_gpu_of_a_cluster_runs_are_trained_one_by_one(
    timed: list[dict[int, float]], tmp_path: Path
) -> None:
    auto = AUTO + 'device = "gpu"\n'
    sweep = Sweep.plan(write(tmp_path / "far.toml", auto), tmp_path / "far")
    plan = Plan.read(sweep.paths)
    found = stacks(sweep.paths, plan, plan.cells)
    told: list[str] = []
    place = {"gpu": None, "is_here": False, "check": lambda: None, "report": told.append}
    choose(sweep.paths, found, **place)  # type: ignore[arg-type]
    assert timed
    assert told[-1] == "mlp: one seed a step, as stacks were not measured."
    assert members_of(sweep.paths, found) == {}
