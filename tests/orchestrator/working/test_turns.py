"""Half a sweep is a balanced study: at any moment, all cells are about as far."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_sweep
from manyseed.orchestrator.submissions.cluster import TaskSize, cut
from manyseed.orchestrator.tasks.task import Task, make_tasks
from manyseed.orchestrator.working.queue import Queue

TEXT = """
name    = "turns"
seed    = 1
repeats = {repeats}
runs    = {runs}

[[grid]]
dataset            = ["points"]
classifier         = ["lr-sgd", "svm-sgd", "xgb"]
train_fraction     = [0.5, 1.0]
perturb_continuous = ["none", "relative:0.1"]

[dataset.points]
source = "synthetic:gaussian"
"""
"""12 cells of three classifiers; one of xgb's has identical runs."""


def tasks(folder: Path, repeats: int, runs: int, number: int) -> tuple[Plan, list[Task]]:
    """Plan a sweep and cut it into tasks."""
    file = folder / "sweep.toml"
    file.write_text(TEXT.format(repeats=repeats, runs=runs))
    plan_sweep(file, folder / "sweep")
    paths = SweepPaths(folder / "sweep")
    plan = Plan.read(paths)
    lengths = {spec.number: spec.shard_length for spec in Groups.read(paths).specs}
    costs = plan.cells.select("cell", "device", seconds=pl.lit(1000.0))
    shape = TaskSize(processes=1, seconds=1e9, parallelism=number, most=number)
    identical = plan.cells.filter("identical")["cell"]
    work = cut(plan.rows.sample(fraction=1.0, shuffle=True), costs, identical, {"cpu": shape})
    return plan, list(make_tasks(plan, work, lengths))


def first_half(task: Task) -> Counter[int]:
    """Return how many runs of each cell are among the first half of those that a task trains."""
    queue, trained = Queue(task, {}), []
    while (batch := queue.take()) is not None:
        trained += [(batch.cell, run) for _, run in batch.runs]
    assert len(set(trained)) == len(trained) or len({s.repeat for s in task.spans}) > 1
    return Counter(cell for cell, _ in trained[: len(trained) // 2])


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize(("repeats", "runs"), [(1, 12), (1, 10), (2, 8)])
def test_after_half_of_the_runs_every_cell_has_some_and_none_has_most(
    repeats: int, runs: int, number: int, tmp_path: Path
) -> None:
    plan, made = tasks(tmp_path, repeats, runs, number)
    assert sum(task.n_runs for task in made) == 12 * repeats * runs
    done: Counter[int] = Counter()
    for task in made:
        done.update(first_half(task))
    for cell in plan.cells.filter(~pl.col("identical"))["cell"]:
        assert 0.25 <= done[cell] / (repeats * runs) <= 0.75


def test_a_sweep_of_many_repeats_keeps_the_runs_of_a_repeat_together(tmp_path: Path) -> None:
    """Else processes change cells for nothing: its first half is balanced anyway."""
    _, (task,) = tasks(tmp_path, 4, 8, 1)
    spans = [span for span in task.spans if span.source < 0]
    assert len(spans) == 11 * 4
    assert {span.count for span in spans} == {8}
