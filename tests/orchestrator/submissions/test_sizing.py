"""How missing runs become tasks: every run once, breadth first, of the size that was asked for."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.orchestrator.submissions.cluster import TaskSize, cut, n_gpus, shapes, workers
from manyseed.orchestrator.working.node import EACH_CORE, EACH_GPU
from manyseed.slurm.discover import Cluster, Limits, Partition
from manyseed.slurm.profile import Resources, read_profile

SECONDS = st.floats(0.001, 5000)


@st.composite
def sweeps(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
    """Runs of a few cells, what their fits take, and which cells have identical runs."""
    n_cells, repeats, runs = (draw(st.integers(1, most)) for most in (4, 3, 5))
    rows = [
        (cell % 2, cell, repeat, run, (repeat * n_cells + cell) * runs + run)
        for repeat in range(repeats)
        for cell in range(n_cells)
        for run in range(runs)
    ]
    schema = {
        "group": pl.UInt32,
        "cell": pl.UInt32,
        "repeat": pl.UInt16,
        "run": pl.UInt16,
        "row": pl.UInt32,
    }
    costs = pl.DataFrame(
        {
            "cell": range(n_cells),
            "seconds": [draw(SECONDS) for _ in range(n_cells)],
            "device": [draw(st.sampled_from(["cpu", "gpu"])) for _ in range(n_cells)],
        },
        schema_overrides={"cell": pl.UInt32},
    )
    identical = [cell for cell in range(n_cells) if draw(st.booleans())]
    frame = pl.DataFrame(rows, schema=schema, orient="row").sample(fraction=1.0, shuffle=True)
    return frame, costs, pl.Series(identical, dtype=pl.UInt32)


SHAPES = st.builds(
    TaskSize,
    processes=st.integers(1, 8),
    seconds=st.floats(100, 5000),
    parallelism=st.integers(1, 20),
    most=st.integers(1, 30),
)


@settings(deadline=None)
@given(sweeps(), SHAPES, SHAPES)
def test_every_run_is_in_one_task_of_its_class(
    sweep: tuple[pl.DataFrame, pl.DataFrame, pl.Series], cpu: TaskSize, gpu: TaskSize
) -> None:
    rows, costs, identical = sweep
    shapes = {"cpu": cpu, "gpu": gpu}
    work = cut(rows, costs, identical, shapes)
    assert (
        work.select("group", "row")
        .sort("group", "row")
        .equals(rows.select("group", "row").sort("group", "row"))
    )
    device = work.join(costs, on="cell")
    assert (device["resource"] == device["device"]).all()
    numbers = work["task"].unique().sort().to_list()
    assert numbers == list(range(len(numbers)))
    for name, shape in shapes.items():
        mine = work.filter(resource=name)
        assert mine["task"].n_unique() <= shape.most
        # breadth first: an earlier test set is never in a later task
        tasks = mine.group_by("repeat").agg(first=pl.col("task").min(), last=pl.col("task").max())
        for before, after in zip(
            tasks.sort("repeat")["last"][:-1], tasks.sort("repeat")["first"][1:], strict=True
        ):
            assert before <= after or not identical.is_empty()
    copies = work.filter(pl.col("cell").is_in(identical.implode()))
    together = copies.group_by("group", "cell", "repeat").agg(pl.col("task").n_unique())
    assert (together["task"] == 1).all()


def test_tasks_have_the_size_that_the_walltime_allows() -> None:
    rows = pl.DataFrame(
        {"group": 0, "cell": 0, "repeat": 0, "run": range(1000), "row": range(1000)},
        schema_overrides={"cell": pl.UInt32},
    )
    costs = pl.DataFrame(
        {"cell": [0], "seconds": [36.0], "device": ["cpu"]}, schema_overrides={"cell": pl.UInt32}
    )
    none = pl.Series([], dtype=pl.UInt32)

    def tasks(**shape: int) -> pl.DataFrame:
        given = {"processes": 4, "seconds": 3600, "parallelism": 1, "most": 100} | shape
        work = cut(rows, costs, none, {"cpu": TaskSize(**given)})
        return work.group_by("task").agg(seconds=pl.len() * 36.0 / given["processes"])

    assert len(tasks()) == 3  # 10 hours of a core on 4 of them, an hour each
    assert tasks()["seconds"].max() <= 3600
    assert len(tasks(parallelism=20)) == 20  # spread over what may run at once
    assert len(tasks(parallelism=1000)) == 30  # but no task below five minutes
    assert len(tasks(most=2)) == 2  # larger than the walltime: they requeue themselves


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"gres": "gpu:2"}, 2),
        ({"gres": "gpu:a100:4,tmp:100G"}, 4),
        ({"gres": "lustre:1,gpu"}, 1),
        ({"gpus-per-node": "h100:3"}, 3),
        ({"gpus": "1"}, 1),
    ],
)
def test_the_gpus_that_a_profile_asks_for_are_counted(
    options: dict[str, str], expected: int
) -> None:
    assert n_gpus(Resources("gpu", options, 60)) == expected


@pytest.mark.parametrize(
    ("table", "expected", "told"),
    [
        ("[cpu]\ncpus-per-task = 6", 6, "6"),
        ("[cpu]\nwhole-node = true", 16, EACH_CORE),
        ('[gpu]\npartition = "fat"\ngres = "gpu:a40:1"\nprocesses-per-gpu = 3', 3, "3"),
        # who has a node for themselves are given all of its GPUs
        (
            '[gpu]\npartition = "fat"\ngres = "gpu:1"\nprocesses-per-gpu = 3\nwhole-node = true',
            18,
            f"{EACH_GPU}3",
        ),
        ('[gpu]\npartition = "gone"\ngpus = 4\nwhole-node = true', 4, f"{EACH_GPU}1"),
    ],
)
def test_a_task_has_processes_for_what_it_is_given(
    tmp_path: Path, table: str, expected: int, told: str
) -> None:
    (tmp_path / "site.toml").write_text(f'time = "1:00:00"\n{table}\n')
    profile = read_profile(tmp_path / "site.toml")
    plain = Partition("plain", True, True, None, None, 9, 16, 1, "")
    fat = Partition("fat", False, True, None, None, 2, 64, 1, "gpu:a40:2(S:0,3),gpu:h100:4")
    there = Cluster("lab", "22", 1000, 10_000, Limits(), False, (plain, fat))
    name = table[1:4]
    shape = shapes(profile, [name], there, 0)[name]
    assert shape.processes == expected
    assert workers(profile.resources(name), shape) == told


def test_the_memory_of_a_resume_replaces_the_profiles(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('time = "1:00:00"\nmem-per-cpu = "2G"\n')
    profile = read_profile(tmp_path / "site.toml").with_memory("64G")
    assert profile.cpu.options == {"mem": "64G"}
