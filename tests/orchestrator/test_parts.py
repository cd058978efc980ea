"""Parts of a sweep, trained on their own and merged: the same store as trained in one place."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.orchestrator import parts
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.paths import recipe_file
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.provenance import read_recipe, read_recipes, register
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.index import JournalIndex
from manyseed.orchestrator.store.journal import JournalWriter, RowBytes
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.store.shards import publish
from manyseed.slurm.processes import user_name
from manyseed.slurm.testcluster import Settings
from tests import cluster as clusters
from tests.cluster import Slurm, wait_until
from tests.orchestrator.conftest import (
    MANYSEED,
    assert_equal,
    command,
    inside,
    shared,
    stored,
    write,
)

TEXT = """
name    = "two-sites"
seed    = 3
repeats = 2
runs    = 3
[[grid]]
dataset            = ["sklearn:wine"]
classifier         = ["lr-sgd", "xgb"]
perturb_continuous = ["none", "relative:0.5"]
"""
PROFILE = """
slurm-conf    = "{conf}"
time          = "0:05:00"
mem           = "700M"
[cpu]
partition     = "cpu"
cpus-per-task = 1
"""
NOISY = "perturb_continuous = 'relative:0.5'"


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The sweep, trained in one place; tests only read it."""
    return shared(tmp_path_factory, "two-sites", TEXT)


def trained(sweep: Sweep, **options: Any) -> Sweep:
    sweep.submit(workers=1, **options)
    sweep.wait()
    return sweep


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``sweep``, of which half is trained, and ``part``, the other half."""
    folder = tmp_path_factory.mktemp("halves")
    sweep = Sweep.plan(write(folder / "two.toml", TEXT), folder / "sweep")
    code, said = inside("split", sweep.directory, "--where", NOISY, "--out", folder / "part")
    assert code == 0, said
    assert "0 of them finished" in said
    trained(sweep, only=f"NOT ({NOISY})").compact()
    trained(Sweep(folder / "part"))
    return folder


@pytest.fixture
def sites(halves: Path, tmp_path: Path) -> tuple[Sweep, Sweep]:
    """Copies of both, which a test may harm."""
    shutil.copytree(halves, tmp_path / "sites")
    return Sweep(tmp_path / "sites" / "sweep"), Sweep(tmp_path / "sites" / "part")


def files(sweep: Sweep) -> dict[str, bytes]:
    """Return what a merge may change."""
    every = (*sweep.paths.plan.rglob("*"), *sweep.paths.store.rglob("*"))
    return {str(file): file.read_bytes() for file in every if file.is_file()}


def test_what_is_merged_is_what_one_place_trains(whole: Sweep, sites: tuple[Sweep, Sweep]) -> None:
    sweep, part = sites
    n = part.status()["runs"]
    assert (n["runs"], n["missing"]) == (12, 0)
    assert sweep.status()["runs"]["missing"] == 12
    code, said = inside("merge", sweep.directory, part.directory)
    assert code == 0, said
    assert "Added 12 runs." in said
    assert_equal(stored(sweep), stored(whole))
    assert sweep.verify()["findings"] == []
    assert sweep.status()["runs"] == whole.status()["runs"]
    for group, one in zip(
        list_groups(sweep.paths.store), list_groups(part.paths.store), strict=True
    ):
        merged = read_array(one, "status") == 1
        for name in ("recipe", "fit_seconds"):
            np.testing.assert_array_equal(
                read_array(group, name)[merged], read_array(one, name)[merged]
            )
    before = files(sweep)
    again = sweep.merge([part.directory])
    assert (again["runs_added"], again["runs_equal"]) == (0, 12)
    assert files(sweep) == before
    assert not [*sweep.paths.journals.glob("*.journal")]


def test_recipes_of_another_site_get_numbers_of_their_own(sites: tuple[Sweep, Sweep]) -> None:
    sweep, part = sites
    recipe = read_recipe(part.paths.recipes, 1)
    for file in part.paths.recipes.iterdir():
        file.unlink()
    elsewhere = type(recipe)(**{**recipe.to_json(), "device_class": "another CPU"})
    assert register(part.paths.recipes, elsewhere) == 1
    assert recipe_file(part.paths.recipes, 1).exists()
    sweep.merge([part.directory])
    assert read_recipes(sweep.paths.recipes) == {1: recipe, 2: elsewhere}
    for group, one in zip(
        list_groups(sweep.paths.store), list_groups(part.paths.store), strict=True
    ):
        theirs = read_array(one, "status") > 0
        theirs &= read_array(one, "status") < 255
        assert set(read_array(group, "recipe")[theirs].tolist()) == {2}
    assert sweep.verify()["findings"] == []


def test_a_merge_that_is_killed_goes_on(
    whole: Sweep, sites: tuple[Sweep, Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, part = sites
    really = parts.JournalWriter.append
    appended = []

    def dying(self: Any, *arguments: Any, **more: Any) -> None:
        if len(appended) == 5:
            raise KeyboardInterrupt
        appended.append(arguments)
        really(self, *arguments, **more)

    monkeypatch.setattr(parts.JournalWriter, "append", dying)
    with pytest.raises(KeyboardInterrupt):
        sweep.merge([part.directory])
    monkeypatch.setattr(parts.JournalWriter, "append", really)
    assert sweep.survey().counts["missing"] == 12 - 5
    result = sweep.merge([part.directory])
    assert (result["runs_added"], result["finished"]) == (7, 24)
    assert_equal(stored(sweep), stored(whole))


class Taken:
    """Takes what a journal would be given."""

    def append(self, group: int, row: int, values: RowBytes, **more: Any) -> None:
        self.given = (group, row, replace(values, label=bytes(len(values.label)))), more


def predict_differently(sweep: Sweep) -> str:
    """Publish other labels of a run; return its address."""
    sweep.compact()  # of several records of a run the first counts
    plan, taken = Plan.read(sweep.paths), Taken()
    group = next(one for one in list_groups(sweep.paths.store) if "lr-sgd" in one.spec.path)
    row = int(np.flatnonzero(read_array(group, "status") == 1)[0])
    recipes = {1: 1}
    [*parts._take(group, np.array([row]), taken, recipes, {})]  # type: ignore[arg-type]
    arguments, more = taken.given
    file = sweep.paths.journals / "other.journal"
    with JournalWriter(file, plan.identity) as journal:
        journal.append(*arguments, **more)
    shard, watch = row // group.spec.shard_length, LeaseWatch(sweep.paths.leases)
    publish(group, shard, JournalIndex(plan.journals(sweep.paths)), watch, distrusted=[row])
    file.unlink()
    (run,) = plan.rows.filter(group=group.spec.number, row=row).iter_rows(named=True)
    return "{cell}:{repeat}:{run}".format(**run)


def test_other_bytes_of_a_run_are_refused_and_named(sites: tuple[Sweep, Sweep]) -> None:
    sweep, part = sites
    other = Sweep(shutil.copytree(part.directory, part.directory.with_name("other")))
    address = predict_differently(other)
    before = files(sweep)
    code, said = inside("merge", sweep.directory, part.directory, other.directory)
    assert code == 2
    assert f"other predictions of 1 run that {sweep.directory}" in " ".join(said.split())
    assert address in said
    assert files(sweep) == before


def test_a_part_has_the_runs_that_are_finished(halves: Path, tmp_path: Path) -> None:
    shutil.copytree(halves / "part", tmp_path / "from")
    part = Sweep(tmp_path / "from")
    made = part.split("classifier = 'xgb'", tmp_path / "smaller")
    assert (made["cells"], made["runs"], made["finished"]) == (1, 6, 6)
    smaller = Sweep(tmp_path / "smaller")
    assert smaller.submit(workers=1) is None
    (path,) = (path for path in stored(part) if "xgb" in path)
    assert_equal({path: stored(smaller)[path]}, {path: stored(part)[path]})


def test_another_sweep_is_no_part(sites: tuple[Sweep, Sweep], tmp_path: Path) -> None:
    sweep, part = sites
    before = files(sweep)
    text = TEXT.replace("seed    = 3", "seed    = 4")
    other = Sweep.plan(write(tmp_path / "other.toml", text), tmp_path / "other")
    for directory, problem in (
        (other.directory, "its plan is another"),
        (sweep.directory, "is the sweep itself"),
        (tmp_path / "nowhere", "there is no such directory"),
    ):
        code, said = inside("merge", sweep.directory, part.directory, directory)
        assert (code, problem in " ".join(said.split())) == (2, True), said
    Sweep.plan(write(tmp_path / "more.toml", TEXT.replace("= 3\n[[", "= 5\n[[")), part.directory)
    code, said = inside("merge", sweep.directory, part.directory)
    assert (code, "was planned on after the split" in " ".join(said.split())) == (2, True), said
    assert files(sweep) == before


def test_a_condition_that_no_cell_meets_makes_no_part(halves: Path, tmp_path: Path) -> None:
    code, said = inside(
        "split", halves / "sweep", "--where", "classifier = 'mlp'", "--out", tmp_path / "part"
    )
    assert (code, (tmp_path / "part").exists()) == (2, False), said
    code, said = inside("merge", halves / "sweep", halves / "part", "--json")
    assert json.loads(said)["runs_added"] == 12


@pytest.mark.slow
def test_two_clusters_without_a_common_disk_make_one_sweep(
    slurm_without_accounting: Slurm,
    whole: Sweep,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Each trains its half in a folder of its own; the jobs of one are killed and resumed."""
    one = slurm_without_accounting.cluster
    settings = Settings(cpu_nodes=1, gpu_nodes=0, cores=2, accounting=False)
    other = clusters.start(tmp_path_factory.mktemp("other"), settings)
    try:
        sites = [
            (cluster, write(tmp_path / f"{name}.toml", PROFILE.format(conf=cluster.conf)))
            for name, cluster in (("one", one), ("other", other))
        ]
        assert all("is UP" in each.command(["scontrol", "ping"]) for each in (one, other))
        sweep = Sweep.plan(write(tmp_path / "two.toml", TEXT), tmp_path / "sweep")
        (tmp_path / "elsewhere").mkdir()
        sweep.split(NOISY, tmp_path / "elsewhere" / "part")
        part = Sweep(tmp_path / "elsewhere" / "part")
        gate = write(tmp_path / "gate", "closed: no task trains")
        held = f"setup = ['while [ -e {gate} ]; do sleep 0.2; done']\n"
        write(sites[1][1], held + sites[1][1].read_text())
        assert sweep.submit(cluster=str(sites[0][1]), only=f"NOT ({NOISY})") is not None
        assert part.submit(cluster=str(sites[1][1])) is not None
        other.command(["scancel", f"--user={user_name()}"])
        wait_until(lambda: not part.is_running, "the end of the cancelled tasks")
        assert part.status()["runs"]["missing"] == 12
        gate.unlink()
        assert command("resume", part.directory, "--cluster", sites[1][1]).returncode == 0
        for half in (part, sweep):
            half.wait()
        assert {s.cluster for s in part.submissions()} == {"other"}
        assert {s.cluster for s in sweep.submissions()} == {"one"}
        assert (part.status()["runs"]["missing"], sweep.status()["runs"]["missing"]) == (0, 12)
    finally:
        other.stop()
    part = Sweep(shutil.move(part.directory, tmp_path / "brought"))
    merging = subprocess.Popen(
        [MANYSEED, "merge", sweep.directory, part.directory],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(
        lambda: merging.poll() is not None or any(sweep.paths.journals.glob("merge-*")),
        "the journal of the merge",
    )
    merging.kill()
    merging.wait()
    done = command("merge", sweep.directory, part.directory)
    assert done.returncode == 0, done.output
    sweep.compact()
    assert_equal(stored(sweep), stored(whole))
    before = files(sweep)
    assert sweep.merge([part.directory])["runs_added"] == 0
    assert files(sweep) == before
    assert sweep.verify()["findings"] == []
    address = predict_differently(part)
    refused = command("merge", sweep.directory, part.directory)
    assert (refused.returncode, address in refused.output) == (2, True), refused.output
    assert files(sweep) == before
