"""A plan only grows, whatever happens in between."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import polars as pl
import pytest

from benchmarks import trace_seed
from manyseed import Sweep
from manyseed.jobs.datasets import openml
from manyseed.orchestrator.errors import DamagedFile, ManyseedError, UnavailableError, UserError
from manyseed.orchestrator.paths import SweepPaths, open_sweep
from manyseed.orchestrator.plans import planning
from manyseed.orchestrator.plans.change import drop
from manyseed.orchestrator.plans.code import fetch_datasets, require_fetched
from manyseed.orchestrator.plans.layout import Groups, lay_out
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from manyseed.slurm.processes import fingerprint
from tests.orchestrator.conftest import assert_equal, inside, stored, train

SMALL = """
name    = "small"
seed    = 5
repeats = 2
runs    = 3

[[grid]]
dataset        = ["cancer"]
classifier     = ["lr-sgd", "xgb"]
train_fraction = [0.5, 1.0]

[dataset.cancer]
source = "sklearn:breast_cancer"
"""
LARGE = (
    SMALL.replace("repeats = 2", "repeats = 3")
    .replace("runs    = 3", "runs    = 5")
    .replace('["lr-sgd", "xgb"]', '["mlp", "xgb", "lr-sgd"]')
    .replace("[0.5, 1.0]", "[0.25, 1.0, 0.5]")
)


@pytest.fixture
def sweep(tmp_path):
    """A planned sweep: the file, the directory."""
    file = tmp_path / "sweep.toml"
    file.write_text(SMALL)
    plan_sweep(file, tmp_path / "sweep")
    return file, tmp_path / "sweep"


def runs(directory: Path) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Where each run is stored, by what it is."""
    plan = Plan.read(SweepPaths(directory))
    rows = plan.rows.join(plan.cells.select("cell", "cell_id"), on="cell")
    return {
        (cell, repeat, run): (group, row)
        for cell, repeat, run, group, row in rows.select(
            "cell_id", "repeat", "run", "group", "row"
        ).iter_rows()
    }


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_an_enlarged_file_keeps_every_run_where_it_was(sweep):
    file, directory = sweep
    before = runs(directory)
    file.write_text(LARGE)
    change = plan_sweep(file, directory)
    after = runs(directory)
    assert len(before) == 24
    assert len(after) == 3 * 3 * 3 * 5 == 24 + len(change.added)
    assert {key: after[key] for key in before} == before
    assert len(set(after.values())) == len(after)
    assert (directory / "sweep.toml").read_text() == LARGE
    assert change.summary()["runs_added"] == 111


def test_planning_the_same_again_changes_no_file(sweep):
    file, directory = sweep
    before = tree(directory)
    assert plan_sweep(file, directory).is_empty
    assert tree(directory) == before


def test_a_new_comment_is_kept_although_no_run_is_new(sweep):
    file, directory = sweep
    file.write_text("# why\n" + SMALL)
    assert plan_sweep(file, directory).is_empty
    assert (directory / "sweep.toml").read_text().startswith("# why")
    assert len(Plan.read(SweepPaths(directory)).parts) == 1


def test_the_order_of_lists_and_names_do_not_matter(sweep):
    file, directory = sweep
    before = runs(directory)
    file.write_text(
        SMALL.replace('["lr-sgd", "xgb"]', '["xgb", "lr-sgd"]')
        .replace("cancer", "breast", 1)
        .replace("[dataset.cancer]", "[dataset.breast]")
    )
    assert plan_sweep(file, directory).is_empty
    assert runs(directory) == before


def test_what_is_renamed_keeps_the_names_that_it_was_planned_with(sweep):
    file, directory = sweep
    named = SMALL.replace('"lr-sgd"', '"linear"').replace("cancer", "breast", 1)
    named = named.replace("[dataset.cancer]", "[dataset.breast]").replace("runs    = 3", "runs = 4")
    file.write_text(f'{named}\n[classifier.linear]\nkind = "lr-sgd"\n')
    for options in (["--dry-run"], []):
        code, said = inside("plan", file, "--out", directory, *options)
        assert code == 0, said
        assert "lr-sgd" in said
    for told in ("breast is cancer here", "linear is lr-sgd here"):
        assert (
            f"{told}, the name that its runs keep"
            in inside("plan", file, "--out", directory, "--dry-run")[1]
        )
    cells = Plan.read(SweepPaths(directory)).cells
    assert {*cells["classifier"]} == {"lr-sgd", "xgb"}
    assert {*cells["dataset"]} == {"cancer"}
    assert len(runs(directory)) == 4 * 2 * 4


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("seed    = 5", "seed    = 6", ["4 of the sweep's 4 cells", "seed: 5 → 6"]),
        (
            "runs    = 3",
            "runs    = 2",
            ["2 repeats × 3 runs", "asks for 2 × 2", "write repeats = 2 and runs = 3: what it"],
        ),
        (
            "repeats = 2\nruns    = 3",
            "repeats = 4\nruns    = 2",
            [
                "asks for 4 × 2",
                "\n  write repeats = 4 and runs = 3: 24 further runs\n  a plan only",
            ],
        ),
        ("repeats = 2", "repeats = 1", ["2 repeats × 3 runs", "asks for 1 × 3"]),
        ('["lr-sgd", "xgb"]', '["xgb"]', ["2 of the sweep's 4 cells", "no grid of the file"]),
        (
            'er"\n',
            'er"\ntest = 0.5\n',
            [
                "dataset.test: 0.25 → 0.5",
                "holds, with the change under another name ([dataset.cancer-2])",
            ],
        ),
        (
            "[dataset.cancer]",
            "[classifier.xgb]\nhparams = { max_depth = 2 }\n[dataset.cancer]",
            ["2 of the sweep's 4 cells", "another name ([classifier.xgb-2])"],
        ),
    ],
)
def test_what_would_change_existing_runs_is_refused_with_the_difference(sweep, old, new, told):
    file, directory = sweep
    before = tree(directory)
    file.write_text(SMALL.replace(old, new))
    with pytest.raises(UserError) as error:
        plan_sweep(file, directory)
    assert str(file) in str(error.value)
    for part in [*told, "a plan only grows"]:
        assert part in str(error.value)
    assert tree(directory) == before


def test_the_lines_that_a_refused_plan_is_told_add_as_many_runs_as_it_says(sweep):
    file, directory = sweep
    other = SMALL.replace('["lr-sgd", "xgb"]', '["lr-sgd", "xgb", "mlp"]')
    file.write_text(other.replace("repeats = 2\nruns    = 3", "repeats = 1\nruns    = 5"))
    with pytest.raises(UserError) as error:
        plan_sweep(file, directory)
    told = re.search(r"(repeats = \d+) and (runs = \d+): (\d+) further", str(error.value))
    change = plan_change(file, directory, [one.replace(" ", "") for one in told.groups()[:2]])
    assert int(told[3]) == change.summary()["runs"] - 4 * 2 * 3 == 6 * 2 * 5 - 4 * 2 * 3


@pytest.mark.parametrize(
    ("addition", "told"),
    [
        ('[keep]\nscores = "none"\n', 'keep.scores = "margin"; this file asks for "none"'),
        ('[keep]\ndtype = "float16"\n', 'keep.dtype = "float32"; this file asks for "float16"'),
    ],
)
def test_how_a_group_is_stored_cannot_change(sweep, addition, told):
    file, directory = sweep
    before = tree(directory)
    for text in (SMALL, LARGE):
        file.write_text(text + addition)
        with pytest.raises(UserError) as error:
            plan_sweep(file, directory)
        assert told in str(error.value)
    assert tree(directory) == before


def test_how_a_group_is_cut_stays_however_it_grows(tmp_path):
    many = SMALL.replace("sklearn:breast_cancer", "sklearn:digits")
    file = tmp_path / "sweep.toml"
    file.write_text(many)
    plan_sweep(file, tmp_path / "sweep")
    before = Groups.read(SweepPaths(tmp_path / "sweep")).specs
    file.write_text(many.replace("runs    = 3", "runs    = 500"))
    plan_sweep(file, tmp_path / "sweep")
    assert Groups.read(SweepPaths(tmp_path / "sweep")).specs == before
    plan_sweep(file, tmp_path / "new")
    after = Groups.read(SweepPaths(tmp_path / "new")).specs
    assert [spec.chunk_length for spec in before] < [spec.chunk_length for spec in after]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            SMALL.replace("cancer", "é" * 43, 1).replace("dataset.cancer", f'dataset."{"é" * 43}"'),
            ["dataset", "é" * 43, "258 bytes", "shorter name"],
        ),
        (
            SMALL.replace("sklearn:breast_cancer", "synthetic:gaussian").replace('"xgb"', '"mlp"')
            + "n_samples = 100_000_000\ntest = 90_000_000\n"
            f"[classifier.mlp]\nepochs = 30\nsnapshots = {list(range(1, 31))}\n",
            ["cancer", "90,000,000 points in a test set, at 30 snapshots", "fewer test points"],
        ),
    ],
    ids=["name", "test set"],
)
def test_what_the_store_cannot_hold_is_refused_by_the_plan(text, told, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        plan_sweep(file, tmp_path / "sweep")
    for part in [str(file), *told]:
        assert part in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


def test_a_device_may_change_and_is_recorded(sweep):
    file, directory = sweep
    file.write_text(SMALL + '[classifier.xgb]\ndevice = "gpu"\n')
    assert plan_sweep(file, directory).is_empty
    devices = Plan.read(SweepPaths(directory)).cells.select("classifier", "device").unique()
    assert dict(devices.iter_rows()) == {"xgb": "gpu", "lr-sgd": "cpu"}


@pytest.mark.parametrize("occupant", ["file", "folder"])
def test_a_place_that_is_taken_is_refused(occupant, tmp_path):
    file, directory = tmp_path / "sweep.toml", tmp_path / "taken"
    file.write_text(SMALL)
    if occupant == "file":
        directory.write_text("mine")
    else:
        directory.mkdir()
        (directory / "mine.txt").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(UserError, match="not a sweep directory"):
        plan_sweep(file, directory)
    assert tree(tmp_path) == before


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "sweep.toml").write_text(SMALL)
    (tmp_path / "out").mkdir()
    plan_sweep(tmp_path / "sweep.toml", tmp_path / "out")
    assert len(runs(tmp_path / "out")) == 24


class Killed(BaseException):
    """As SIGKILL: nothing is cleaned up that a dead process could not clean up."""


def kill_at(monkeypatch, step):
    """Die at the step-th system call that changes the disk; return how many there were."""
    count = [0]

    def before(call):
        def wrapped(*arguments, **options):
            count[0] += 1
            if count[0] == step:
                raise Killed
            return call(*arguments, **options)

        return wrapped

    monkeypatch.setattr(Path, "rename", before(Path.rename))
    monkeypatch.setattr(Path, "mkdir", before(Path.mkdir))
    monkeypatch.setattr(os, "fsync", before(os.fsync))
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    return count


@pytest.mark.parametrize("exists", [False, True], ids=["new", "enlarged"])
def test_a_kill_between_any_two_file_operations_is_completed_by_planning_again(
    exists, tmp_path, monkeypatch
):
    file = tmp_path / "sweep.toml"
    file.write_text(SMALL)
    plan_sweep(file, tmp_path / "origin")
    start = runs(tmp_path / "origin")
    file.write_text(LARGE)
    shutil.copytree(tmp_path / "origin", tmp_path / "whole")
    plan_sweep(file, tmp_path / "whole" if exists else tmp_path / "whole-new")
    expected = runs(tmp_path / ("whole" if exists else "whole-new"))
    step = 0
    while True:
        step += 1
        directory = tmp_path / f"sweep-{step}"
        if exists:
            shutil.copytree(tmp_path / "origin", directory)
        with monkeypatch.context() as patch:
            count = kill_at(patch, step)
            try:
                plan_sweep(file, directory)
                finished = True
            except Killed:
                finished = False
        if finished:
            assert count[0] < step
            break
        if exists:
            held = runs(directory)  # readable at any time, and nothing is lost
            assert {key: held[key] for key in start} == start
        for lock in directory.glob(".lock.*"):
            lock.unlink()  # its holder is dead
        plan_sweep(file, directory)
        assert runs(directory) == expected
        assert (directory / "sweep.toml").read_text() == LARGE
    assert step > 8


def test_what_a_killed_planning_left_is_removed_by_the_next_and_a_living_ones_is_not(tmp_path):
    (tmp_path / "sweep.toml").write_text(SMALL)
    ended = subprocess.Popen(["true"])
    dead = fingerprint(ended.pid)
    ended.wait()
    for name, maker in (("dead", dead), ("alive", fingerprint(os.getpid())), ("far", "a b 1 1 c")):
        (tmp_path / f".manyseed-{name}" / "plan").mkdir(parents=True)
        (tmp_path / f".manyseed-{name}" / ".maker").symlink_to(maker)
    plan_sweep(tmp_path / "sweep.toml", tmp_path / "out")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".manyseed-alive", ".manyseed-far", "out", "sweep.toml"]
    assert not (tmp_path / "out" / ".maker").exists()


def test_an_interrupted_enlargement_does_not_bind_the_next(sweep, monkeypatch):
    """A group that was begun and never committed may still be laid out in another way."""
    file, directory = sweep
    file.write_text(LARGE)
    groups = plan_change(file, directory).groups
    groups.write(SweepPaths(directory))
    assert len(Groups.read(SweepPaths(directory)).specs) == 3
    file.write_text(LARGE.replace('["mlp",', '["svm-sgd",'))
    plan_sweep(file, directory)
    names = {spec.classifier for spec in Groups.read(SweepPaths(directory)).specs}
    assert names == {"lr-sgd", "xgb", "svm-sgd"}


def test_the_store_is_laid_out_part_by_part_and_holds_every_run(sweep):
    file, directory = sweep
    paths = SweepPaths(directory)
    lay_out(paths, Plan.read(paths), Groups.read(paths))
    file.write_text(LARGE)
    plan_sweep(file, directory)
    lay_out(paths, Plan.read(paths), Groups.read(paths))
    plan = Plan.read(paths)
    for group in list_groups(paths.store):
        expected = plan.rows.filter(group=group.spec.number).sort("row")
        columns = [
            read_array(group, name)[expected["row"].to_numpy()]
            for name in ("cell", "repeat_index", "run_index")
        ]
        for found, name in zip(columns, ("cell", "repeat", "run"), strict=True):
            assert found.tolist() == expected[name].to_list()


def test_identical_rows_are_marked(sweep):
    _, directory = sweep
    cells = Plan.read(SweepPaths(directory)).cells
    marked = cells.filter("identical").select("classifier", "train_fraction").rows()
    assert marked == [("xgb", 1.0)]


def test_the_summary_counts_what_the_parts_hold(sweep):
    file, directory = sweep
    file.write_text(LARGE)
    change = plan_change(file, directory)
    summary = change.summary()
    assert summary["runs"] == len(change.after.rows) == 135
    assert summary["runs_identical"] == 3 * 4
    assert summary["runs_asked"] == 135
    lengths = change.after.groups.select("length").to_series()
    shards = [
        -(-length // spec.shard_length)
        for length, spec in zip(lengths, change.groups.specs, strict=True)
    ]
    assert summary["shards"] == sum(shards)
    json.dumps(summary)


def test_a_place_that_cannot_be_written_is_not_the_users_mistake(tmp_path):
    (tmp_path / "sweep.toml").write_text(SMALL)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="cannot write"):
        plan_sweep(tmp_path / "sweep.toml", tmp_path / "file" / "out")


def test_extents_of_a_plan_are_what_its_parts_hold(sweep):
    file, directory = sweep
    file.write_text(LARGE)
    plan = plan_sweep(file, directory).after
    expected = plan.rows.group_by("cell").agg(pl.len())
    product = plan.extents.select("cell", len=pl.col("repeats") * pl.col("runs"))
    assert product.sort("cell")["len"].to_list() == expected.sort("cell")["len"].to_list()


def test_a_plan_without_expected_times_is_read(sweep):
    file, directory = sweep
    paths = SweepPaths(directory)
    cells = pl.read_parquet(paths.cells)
    cells.drop("core_seconds").write_parquet(paths.cells)
    assert (Plan.read(paths).cells["core_seconds"] > 0).all()
    plan_sweep(file, directory)  # planning again tells them
    assert pl.read_parquet(paths.cells).equals(cells)


def test_a_plan_of_another_version_is_refused(sweep):
    _, directory = sweep
    paths = SweepPaths(directory)
    pl.read_parquet(paths.cells).rename({"vary": "varies"}).write_parquet(paths.cells)
    with pytest.raises(UserError, match=r"another version .*: varies, vary"):
        Plan.read(paths)


@pytest.mark.parametrize("name", ["cells.parquet", "0001.parquet", "0002.parquet"])
def test_a_plan_with_a_file_of_another_sweep_of_the_same_form_is_refused(sweep, tmp_path, name):
    file, directory = sweep
    file.write_text(LARGE)
    plan_sweep(file, directory)
    other = tmp_path / "other"
    for text in (SMALL, LARGE):
        file.write_text(re.sub(r"(?m)^seed .*$", "seed = 987", text))
        plan_sweep(file, other)
    ours, theirs = (SweepPaths(folder).plan / name for folder in (directory, other))
    shutil.copy(theirs, ours)
    with pytest.raises(DamagedFile, match=r"cells that .* was planned with") as caught:
        Plan.read(SweepPaths(directory))
    assert str(directory / "plan" / "cells.parquet") in str(caught.value)
    assert "000" in str(caught.value)


XGB = "classifier = 'xgb'"


def test_the_loss_of_the_last_part_is_noticed(sweep):
    file, directory = sweep
    file.write_text(LARGE)
    plan_sweep(file, directory)
    (directory / "plan" / "0002.parquet").unlink()
    with pytest.raises(DamagedFile, match=r"0002\.parquet: is absent, though"):
        Plan.read(SweepPaths(directory))
    with pytest.raises(DamagedFile, match=r"0002\.parquet: is absent, though"):
        plan_change(file, directory)


def test_a_lost_sweep_file_is_replaced_by_one_of_the_same_plan_alone(sweep):
    file, directory = sweep
    small, own = file.read_bytes(), directory / "sweep.toml"
    own.unlink()
    with pytest.raises(DamagedFile, match=r"is absent(?s:.*)plan SWEEP\.toml --out"):
        Sweep(directory).submit()
    changed = small.replace(b"seed    = ", b"seed    = 1")
    assert changed != small
    for other in (LARGE.encode(), changed):
        file.write_bytes(other)
        with pytest.raises(ManyseedError):
            plan_sweep(file, directory)
        assert not own.exists()
    file.write_bytes(small)
    before = Plan.read(SweepPaths(directory)).rows
    assert plan_sweep(file, directory).is_empty
    assert own.read_bytes() == small
    assert Plan.read(SweepPaths(directory)).rows.equals(before)


def test_the_loss_of_a_list_of_dropped_cells_is_noticed(sweep):
    _, directory = sweep
    paths = SweepPaths(directory)
    drop(paths, XGB)
    lost = paths.dropped(1)
    lost.unlink()
    with pytest.raises(DamagedFile, match=r"dropped-0001\.json: is absent, though") as caught:
        Plan.read(paths)
    mark = directory / "plan" / "dropped-0001.json.given"
    assert f"remove {mark.name} beside it" in str(caught.value)
    mark.unlink()
    assert Plan.read(paths).dropped.is_empty()


def test_cells_that_another_sweep_dropped_stay(sweep, tmp_path):
    file, directory = sweep
    file.write_text(SMALL.replace("seed    = 5", "seed    = 987"))
    other = SweepPaths(tmp_path / "other")
    plan_sweep(file, other.directory)
    drop(other, "classifier = 'lr-sgd'")
    paths = SweepPaths(directory)
    drop(paths, XGB)
    shutil.copy(other.dropped(1), paths.dropped(1))
    with pytest.raises(DamagedFile, match=r"dropped-0001\.json: was written for another plan"):
        Plan.read(paths)


def test_a_plan_of_an_earlier_version_is_marked_when_it_changes(sweep):
    file, directory = sweep
    paths = SweepPaths(directory)
    drop(paths, XGB)
    for mark in paths.plan.glob("*.given"):
        mark.unlink()
    file.write_text(LARGE)
    plan_sweep(file, directory)
    assert {file.name for file in paths.marked_files()} == {
        "0001.parquet", "0002.parquet", "dropped-0001.json"
    }  # fmt: skip


def test_a_file_that_has_changed_since_it_was_planned_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    table, file = tmp_path / "table.csv", tmp_path / "s.toml"
    text = "x,y\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(20))
    table.write_text(text)
    file.write_text(
        'name = "x"\nseed = 1\n[[grid]]\ndataset = ["d"]\nclassifier = ["lr-sgd"]\n'
        f'[dataset.d]\nsource = "file:{table}"\ntarget = "y"\n'
    )
    change = plan_sweep(file, tmp_path / "out")
    infos = change.expansion.datasets
    planned = {name: info.canonical for name, info in infos.items()}
    with pytest.raises(UserError, match=r"not on this machine\n.*plan .*--fetch"):
        require_fetched(planned, file)
    table.write_text(text + "20,a\n")
    with pytest.raises(UnavailableError, match="has changed"):
        fetch_datasets(infos)
    with pytest.raises(UserError, match=r"dataset\.d\.source.*has changed since it was planned"):
        require_fetched(planned, file)
    table.unlink()
    with pytest.raises(UserError, match=r"dataset\.d\.source.*does not exist"):
        require_fetched(planned, file)
    table.write_text(text)
    fetch_datasets(infos)
    table.unlink()
    require_fetched(planned, file)


def test_of_two_that_plan_a_new_sweep_at_once_one_is_told_to_repeat(tmp_path, monkeypatch):
    file, directory = tmp_path / "sweep.toml", tmp_path / "sweep"
    file.write_text(SMALL)
    ready = planning._ready

    def slowly(*given):
        change = ready(*given)
        monkeypatch.setattr(planning, "_ready", ready)
        plan_sweep(file, directory)  # the other
        return change

    monkeypatch.setattr(planning, "_ready", slowly)
    code, said = inside("plan", file, "--out", directory)
    assert code == 4, said
    assert f"{directory}: another process has planned it meanwhile\n  repeat the command" in said
    code, said = inside("plan", file, "--out", directory)
    assert (code, f"{directory} already holds it." in said) == (0, True), said


def test_a_file_edited_later_is_named_and_its_copy_as_planned_is_trained_on(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    table, file = tmp_path / "table.csv", tmp_path / "s.toml"
    text = "x,y\n" + "".join(f"{i % 7},{'ab'[i % 2]}\n" for i in range(40))
    table.write_text(text)
    file.write_text(
        'name = "x"\nseed = 1\nrepeats = 1\nruns = 2\n[[grid]]\ndataset = ["d"]\n'
        'classifier = ["lr-sgd"]\n[dataset.d]\nsource = "file:table.csv"\ntarget = "y"\n'
    )
    expected, edited = train(file, tmp_path / "unchanged"), Sweep.plan(file, tmp_path / "edited")
    for left in (text.replace("b", "a"), text.replace("b", "a", 5)):  # one class, or other rows
        table.write_text(left)
        code, said = inside("plan", file, "--out", edited.directory)
        assert code == 2
        said = " ".join(said.split())
        assert "dataset.d: table.csv has changed since it was planned, or is another file" in said
        assert "restore what was planned" in said
        assert "digest" not in said
        assert "single class" not in said
    code, said = inside("submit", edited.directory, "--workers", 1)
    assert (code, edited.submissions()) == (2, []), said
    said = " ".join(said.split())
    assert "dataset.d: " in said
    assert "table.csv has changed since it was planned restore what was planned, or plan" in said
    assert f"manyseed resume {edited.directory} trains on the prepared copy of it" in said
    with pytest.warns(UserWarning, match="its copy of then is used") as warned:
        edited.submit(workers=1)
    told = [str(each.message) for each in warned]
    assert sum("table.csv has changed since it was planned" in each for each in told) == 1
    edited.wait()
    edited.compact()
    assert_equal(stored(edited), stored(expected))


def test_a_file_that_has_changed_is_named_before_code_fails_on_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    table, file = tmp_path / "table.csv", tmp_path / "s.toml"
    text = "x,y\n" + "".join(f"{i % 7},{'ab'[i % 2]}\n" for i in range(40))
    table.write_text(text)
    (tmp_path / "mine.py").write_text(
        "def fit(X, X_test, batch):\n    return batch.normal(size=len(X_test))\n"
    )
    file.write_text(
        'name = "x"\nseed = 1\nrepeats = 1\nruns = 2\n[[grid]]\ndataset = ["d"]\n'
        'classifier = ["mine"]\n[dataset.d]\nsource = "file:table.csv"\ntarget = "y"\n'
        '[classifier.mine]\ntrain = "mine:fit"\nscores = "decisions"\n'
    )
    sweep = Sweep.plan(file, tmp_path / "out")
    table.rename(tmp_path / "older.csv")
    table.write_text(text.replace("b", "c", 1))  # a third class, which the function cannot have
    for verb in ("plan", "run"):
        code, said = inside(verb, file, "--out", sweep.directory)
        said = " ".join(said.split())
        assert code == 2
        assert "dataset.d: table.csv has changed since it was planned, or is another file" in said
        assert "mine:fit" not in said
    os.utime(table, (1e9, 1e9))  # as a copy that keeps its time
    with pytest.warns(UserWarning, match=r"table.csv has changed since it was planned"):
        sweep.submit(workers=1)
    sweep.wait()
    assert sweep.status()["runs"]["done"] == 2
    table.unlink()
    (tmp_path / "older.csv").rename(table)
    file.write_text(file.read_text().replace('"d"', '"e"').replace("dataset.d", "dataset.e"))
    assert plan_change(file, sweep.directory).is_empty, "the same data under another name"


def test_a_plan_shows_columns_as_it_takes_them(tmp_path):
    table, file = tmp_path / "table.csv", tmp_path / "s.toml"
    rows = (f"{i + 100},2020-01-{1 + i % 9:02d},{i % 3},{i / 7},1,{'ab'[i % 2]}" for i in range(40))
    table.write_text("patient,admitted,site,size,ward,y\n" + "\n".join(rows) + "\n")
    text = (
        'name = "x"\nseed = 1\n[[grid]]\ndataset = ["d"]\nclassifier = ["lr-sgd"]\n'
        f'[dataset.d]\nsource = "file:{table}"\ntarget = "y"\ncategorical = ["site"]\n'
    )
    file.write_text(text)
    notes = plan_sweep(file, tmp_path / "first").summary()["notes"]
    assert (
        "d: columns are interpreted as 3 continuous: patient, size, ward; "
        "2 categorical: admitted (9), site (3)"
    ) in notes
    assert [note for note in notes if "ignore =" in note] == [
        "d: patient looks like a row number or name, but is taken as a feature; "
        'if it is not a feature: ignore = ["patient"]',
        "d: admitted looks like dates, but is taken as a feature; "
        'if it is not a feature: ignore = ["admitted"]',
        "d: ward is constant or empty, but is taken as a feature; "
        'if it is not a feature: ignore = ["ward"]',
    ]
    table.write_text(table.read_text().removeprefix("patient"))
    notes = plan_sweep(file, tmp_path / "nameless").summary()["notes"]
    assert any(
        note.startswith("d: the column without a name looks like a ")
        and note.endswith('ignore = [""]')  # no group can be named so
        for note in notes
    )
    table.write_text("patient" + table.read_text())
    file.write_text(text + 'ignore = ["patient", "admitted", "ward"]\n')
    notes = plan_sweep(file, tmp_path / "second").summary()["notes"]
    assert not [note for note in notes if "ignore =" in note]
    assert any("3 ignored: patient, admitted, ward" in note for note in notes)
    file.write_text(
        text.replace('["site"]', "[]") + 'ignore = ["patient", "admitted"]\ngroup = "site"\n'
    )
    notes = plan_sweep(file, tmp_path / "grouped").summary()["notes"]
    assert any(
        "2 continuous: size, ward; 3 ignored: patient, admitted, site" in note for note in notes
    )
    assert (
        "d: 3 groups of 13 to 14 rows (median 13) are never split; test sets have 13 of 40 "
        "rows, as no groups have 10 together"
    ) in notes
    file.write_text(text + 'ignore = ["patent"]\n')
    with pytest.raises(UserError, match=r"dataset\.d\.ignore = .*patent.*unknown column"):
        plan_sweep(file, tmp_path / "third")


def test_a_plan_names_values_that_are_not_what_they_seem(tmp_path):
    table, file = tmp_path / "table.csv", tmp_path / "s.toml"
    y = ["yes", "no", "No", "n/a"] * 10 + ["maybe"]
    rows = (
        f"{'-' if i == 3 else i / 7},{'x' + ' ' * (i % 2)},{[f' {i}', i][i % 2]},{label}"
        for i, label in enumerate(y)
    )
    table.write_text("age,site,dose,y\n" + "\n".join(rows) + "\n")
    file.write_text(
        'name = "x"\nseed = 1\n[[grid]]\ndataset = ["d"]\nclassifier = ["lr-sgd"]\n'
        f'[dataset.d]\nsource = "file:{table}"\ntarget = "y"\n'
    )
    notes = plan_sweep(file, tmp_path / "first").summary()["notes"]
    assert notes[1:] == [
        'd: age holds numbers besides "-", so it is taken as a category; leave cells of missing '
        'values empty (null in Parquet), or write ?, NA or NaN in a CSV, or missing = ["-"]; if '
        'it is a category: categorical = ["age"]',
        'd: site has labels that are the same but for blanks or case: "x", "x "',
        "d: dose holds numbers written as text, so it is taken as a category; if they are numbers: "
        'continuous = ["dose"], if not: categorical = ["dose"]',
        'd: classes are the same but for blanks or case: "No", "no"; classes = {…} can merge them',
        'd: classes that may mark missing values: "n/a"; classes = {…} without these leaves their '
        "rows out",
        "d: classes with too few rows to be in training part and test set: maybe (1); "
        "classes = {…} can merge them, or leave their rows out",
    ]
    table.write_text(table.read_text().replace("No", "no "))
    with pytest.raises(UserError, match=r"dataset\.d\.target = \"y\": has classes that are") as e:
        plan_sweep(file, tmp_path / "second")
    added = e.value.remedy.removeprefix("add to [dataset.d]: ")
    assert "no = [" in added
    assert '"n/a" = ["n/a"]' in added
    with file.open("a") as opened:
        opened.write(f"{added}\n")
    notes = plan_sweep(file, tmp_path / "second").summary()["notes"]
    assert not any("the same but for" in note for note in notes if "site" not in note)


def test_folds_are_repeats_and_a_suite_its_tasks(tmp_path, monkeypatch):
    """Of OpenML what was asked before: no network is needed."""
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data" / "openml"
    (folder / "suites").mkdir(parents=True)
    (folder / "described").mkdir()
    tasks = {"study": {"tasks": {"task_id": ["31", "37"]}}}
    (folder / "suites" / "99.json").write_text(json.dumps(tasks))
    counts = [[[20, 20]] * 3, [[10, 10], [10, 10], [10, 11]]]
    for number in (31, 37):
        known = {
            "source": f"openml-task:{number}",
            "id": number,
            "target": "class",
            "digest": "0",
            "folds": "1",
            "n_samples": 61,
            "n_features": 4,
            "n_categorical": 0,
            "class_names": ["no", "yes"],
            "class_counts": [30, 31],
            "set_counts": counts,
        }
        (folder / "described" / f"task-{number}.json").write_text(json.dumps(known))
    file = tmp_path / "s.toml"
    file.write_text(
        'name = "x"\nseed = 1\nrepeats = 5\nruns = 2\n[[grid]]\n'
        'dataset = ["openml-suite:99"]\nclassifier = ["lr-sgd"]\n'
    )
    change = plan_sweep(file, tmp_path / "out")
    assert sorted(change.expansion.datasets) == ["openml-task:31", "openml-task:37"]
    summary = change.summary()
    assert summary["runs"] == 2 * 3 * 2
    assert (
        "openml-task:31: 3 official test sets make as many repeats at most; each has 20 rows, "
        "drawn from those of larger ones (up to 21)"
    ) in summary["notes"]
    file.write_text(file.read_text().replace("suite:99", "suite:98"))
    monkeypatch.setattr(openml, "API", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"grid\[0\]\.dataset = .*openml-suite:98.*cannot be fetch"):
        plan_sweep(file, tmp_path / "other")


def test_the_seed_takes_one_way_through_the_planner_however_many_values_axes_have():
    few = trace_seed.plan()
    noise = ", ".join(f'"relative:0.{digit}"' for digit in range(1, 10))
    more = trace_seed.plan(trace_seed.SWEEP.replace('"sig-digit:0"', noise))
    assert few["way"] == more["way"]
    assert few["files"] > 10
    assert few["returns"] <= 25


def test_a_sweep_file_in_place_of_its_directory_names_what_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "sweep.toml"
    file.write_text(SMALL)
    with pytest.raises(UserError, match="sweep file, not a sweep dir") as refused:
        open_sweep(file)
    assert f"manyseed plan {file}" in str(refused.value)
    assert f"manyseed run {file}" in str(refused.value)
    name = tomllib.loads(SMALL)["name"]
    plan_sweep(file, tmp_path / name)
    with pytest.raises(UserError, match=f"name the sweep that was planned from it: {name}"):
        open_sweep(file)
    file.write_text("name = [")
    with pytest.raises(UserError, match="sweep file, not a sweep dir"):
        open_sweep(file)
