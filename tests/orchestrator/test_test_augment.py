"""Test-time augmentation as an axis: planned, priced, stored, trained, compared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.jobs.run import canonical_json, text_identity
from manyseed.orchestrator.computing.conventions import conventions
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
from manyseed.orchestrator.store.schema import GroupSpec
from tests.orchestrator.conftest import inside, shared, stored, write

PLAIN = """
name    = "tested"
seed    = 5
repeats = 1
runs    = 3

[[grid]]
dataset        = ["digits"]
classifier     = ["small"]
train_fraction = [100]
ensembling     = ["none", "single", "snapshot"]

[dataset.digits]
source = "sklearn:digits"
test   = 0.1

[classifier.small]
kind      = "mlp"
optimizer = "sgd"
epochs    = 2
hparams   = { width1 = 32, width2 = 32, lr = 0.05 }

[ensembling.snapshot]
members = 3
cycle   = 2

[ensembling.single]
members = 4
"""
GRID = PLAIN.replace(
    "ensembling     =", 'test_augment   = ["none", "rotate:20.0"]\nensembling     ='
)
PATHS = {
    "digits/small": 1,
    "digits/small~snapshot": 2,
    "digits/small~none~test_augment": 2,
    "digits/small~single~test_augment": 2,
    "digits/small~snapshot~test_augment": 2,
}


def plan_of(tmp_path: Path, text: str, name: str = "sweep") -> Plan:
    plan_sweep(write(tmp_path / f"{name}.toml", text), tmp_path / name)
    return Plan.read(SweepPaths(tmp_path / name))


def test_cells_and_groups_are_new_only_where_the_test_set_is_transformed(tmp_path: Path) -> None:
    plain, plan = plan_of(tmp_path, PLAIN), plan_of(tmp_path, GRID, "tta")
    assert plain.cells["ensembling"].to_list() == ["none", "snapshot"]  # single is none there
    assert "test_augment" not in pl.read_parquet_schema(SweepPaths(tmp_path / "sweep").cells)
    own = plan.cells.filter(test_augment="none")
    assert own["cell_id"].to_list() == plain.cells["cell_id"].to_list()
    new = plan.cells.filter(test_augment="rotate:20")
    assert new["ensembling"].to_list() == ["none", "single", "snapshot"]
    for row in plan.cells.iter_rows(named=True):
        description = json.loads(row["canonical"])
        assert text_identity(canonical_json(description)) == row["cell_id"]
        assert description.get("test_augment", "none") == row["test_augment"]
    single = json.loads(new["canonical"][1])["ensembling"]
    assert single == {"name": "single", "version": 1, "members": 4}
    specs = {spec.path: spec for spec in Groups.read(SweepPaths(tmp_path / "tta")).specs}
    assert {path: spec.to_attributes()["layout"] for path, spec in specs.items()} == PATHS
    for path, spec in specs.items():
        assert GroupSpec.from_attributes(spec.to_attributes()) == spec
        assert ("test_augment" in spec.flags) == path.endswith("test_augment")
        assert spec.method == (path.split("~")[1] if "~" in path else "none")


def test_a_sweep_grows_by_transformed_test_sets_and_none_of_its_groups_changes(
    tmp_path: Path,
) -> None:
    plan_of(tmp_path, PLAIN)
    paths = SweepPaths(tmp_path / "sweep")
    before = json.loads(paths.groups.read_bytes())
    change = plan_sweep(write(tmp_path / "more.toml", GRID), tmp_path / "sweep")
    assert len(change.added) == 3 * 3
    assert json.loads(paths.groups.read_bytes())[: len(before)] == before
    assert plan_sweep(tmp_path / "more.toml", tmp_path / "sweep").is_empty


def test_more_passes_have_a_price(tmp_path: Path) -> None:
    plain = plan_change(write(tmp_path / "p.toml", PLAIN), tmp_path / "s").cost
    asked = plan_change(write(tmp_path / "a.toml", GRID), tmp_path / "s").cost
    of = {row["classifier"]: row for row in asked.to_dicts()}
    before = {row["classifier"]: row for row in plain.to_dicts()}
    assert {*of} == {"small", "small~snapshot", "small~single"}
    assert of["small~snapshot"]["fits"] == 2 * before["small~snapshot"]["fits"]
    for name in before:
        assert of[name]["core_hours"] > 2 * before[name]["core_hours"]
        assert of[name]["store_files"] > 2 * before[name]["store_files"]


def test_a_single_network_is_a_method_only_where_it_sees_several_test_sets(tmp_path: Path) -> None:
    alone = GRID.replace('"none", "single", "snapshot"', '"single"')
    both = alone.replace('"none", "rotate:20.0"', '"none"')
    for name, text, on in (("tta", alone, True), ("plain", both, False)):
        plan_of(tmp_path, text, name)
        assert conventions(SweepPaths(tmp_path / name)).calibration is on


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"rotate:20.0"', '"rotate:450"', "grid.0..test_augment.*180"),
        ('"rotate:20.0"', '"turn:4"', "valid: crop-flip, rotate"),
        (
            'classifier     = ["small"]',
            'classifier     = ["lr-sgd"]',
            "single makes members of a network; lr-sgd has no epochs",
        ),
        (
            'ensembling     = ["none", "single", "snapshot"]',
            "classifier_     = 1",
            "unknown key",
        ),
        (
            'dataset        = ["digits"]',
            'dataset        = ["digits", "sklearn:wine"]',
            'rotate needs images.*exclude = .{ dataset = "sklearn:wine"',
        ),
        ("snapshot", "snap~shot", "cannot contain ~"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = GRID.replace("[ensembling.snapshot]", '[ensembling."snapshot"]\nkind = "snapshot"')
    text = text.replace(old, new).replace('kind = "snap~shot"', 'kind = "snapshot"')
    with pytest.raises(UserError, match=f"(?s){words}"):
        plan_sweep(write(tmp_path / "a.toml", text), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_what_predicts_the_test_set_as_it_is_is_refused(tmp_path: Path) -> None:
    text = GRID.replace('["none", "single", "snapshot"]', '["none"]')
    text = text.replace('classifier     = ["small"]', 'classifier     = ["lr-sgd", "small"]')
    with pytest.raises(UserError, match="lr-sgd predicts the test set as it is") as found:
        plan_sweep(write(tmp_path / "a.toml", text), tmp_path / "sweep")
    rule = 'exclude = [{ classifier = "lr-sgd", test_augment = "rotate:20.0" }]'
    assert rule in str(found.value)


def test_flips_of_digits_are_noted(tmp_path: Path) -> None:
    text = GRID.replace("rotate:20.0", "crop-flip:1")
    change = plan_change(write(tmp_path / "a.toml", text), tmp_path / "sweep")
    assert any("mirrors half of the images" in note for note in change.expansion.notes)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    options = Options(calibration=True, deep_draws=3, resamples=4)
    return shared(tmp_path_factory, "tta", GRID, lambda made: made.analyze(options))


@pytest.mark.slow
def test_a_deep_cell_agrees_in_what_the_test_set_goes_through(sweep: Sweep) -> None:
    cells = {row["cell"]: row for row in sweep.results["cells"].iter_rows(named=True)}
    table = sweep.results["dee"].filter(axis="ensembling")
    pairs = table.select("cell", "deep_cell").unique().rows()
    seen = {
        (cells[cell]["ensembling"], cells[cell]["test_augment"], cells[deep]["test_augment"])
        for cell, deep in pairs
    }
    assert seen == {
        ("snapshot", "none", "none"),
        ("snapshot", "rotate:20", "rotate:20"),
        ("single", "rotate:20", "rotate:20"),
    }
    assert all(cells[deep]["ensembling"] == "none" for _, deep in pairs)
    sizes = table.filter(metric="cll", ensembling="single")["members"].unique().sort().to_list()
    assert sizes == [1, 2, 3, 4]
    # one member of a single network is a run of none: the same network sees the same images
    runs = sweep.results["uncertainty"].filter(test_augment="rotate:20", members=1)
    single = runs.filter(ensembling="single")["log_likelihood"].sort()
    deep = runs.filter(ensembling="none")["log_likelihood"].unique().sort()
    assert set(np.round(deep.to_list(), 5)) <= set(np.round(single.to_list(), 5))


@pytest.mark.slow
def test_what_is_stored_is_read_written_and_made_again(sweep: Sweep, tmp_path: Path) -> None:
    held = stored(sweep)
    assert {*held} == {*PATHS}
    assert "test_augment" not in held["digits/small~snapshot"]
    assert sweep.verify()["runs_wrong"] == 0
    for path in ("digits/small~single~test_augment", "digits/small~none~test_augment"):
        cell = Plan.read(sweep.paths).cells.filter(path=path)["cell"][0]
        assert sweep.rerun(f"{cell}:0:1")["equal"]
    one = sweep.runs("digits", "small~snapshot~test_augment")
    assert {*one["test_augment"].values.tolist()} == {"rotate:20"}
    assert one.sizes["ensemble_size"] == 3
    table = tmp_path / "all.parquet"
    assert inside("export", sweep.directory, "--output", table)[0] == 0
    exported = pl.read_parquet(table).group_by("ensembling", "test_augment").len()
    assert exported.height == 5
    assert exported["len"].to_list() == [3] * 5
    code, said = inside("import", table, "--out", tmp_path / "again")
    assert code == 2
    assert ".zip" in said
    assert inside("query", sweep.directory, "--by", "ensembling,test_augment")[0] == 0
    said = inside("dee", sweep.directory, "--where", "test_augment = 'rotate:20'")[1]
    assert "4 members are" in " ".join(said.split())
