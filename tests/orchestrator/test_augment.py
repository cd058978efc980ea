"""Augmented cells: in groups of their own beside plain ones, which stay as they were."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.options import Options
from manyseed.orchestrator.asking.query import query
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
from manyseed.orchestrator.store.schema import GroupSpec
from tests.orchestrator.conftest import command, inside, stored, train, write

PLAIN = """
name    = "augmented"
seed    = 5
repeats = 1
runs    = 3

[[grid]]
dataset        = ["digits"]
classifier     = ["small", "lr-sgd"]
train_fraction = [60]

[dataset.digits]
source = "sklearn:digits"
test   = 0.2

[classifier.small]
kind    = "convnet"
epochs  = 2
hparams = { depth = 1, width = 4 }
"""
GRID = """
[[grid]]
dataset        = ["digits"]
classifier     = ["small"]
train_fraction = [60]
augment        = ["none", "rotate:45.0", "crop-flip:1"]
"""
AUGMENTED = PLAIN + GRID


@pytest.mark.slow
def test_augmented_cells_join_a_plain_sweep_and_change_nothing_of_it(tmp_path):
    file = write(tmp_path / "a.toml", PLAIN)
    sweep = train(file, tmp_path / "sweep")
    before = stored(sweep)
    groups = SweepPaths(sweep.directory).groups.read_bytes()
    assert sorted(before) == ["digits/lr-sgd", "digits/small"]
    assert "augment" not in pl.read_parquet_schema(SweepPaths(sweep.directory).cells)
    change = plan_sweep(write(file, AUGMENTED), sweep.directory)
    assert len(change.added) == 2 * 3
    assert json.loads(SweepPaths(sweep.directory).groups.read_bytes())[:2] == json.loads(groups)
    sweep.submit(workers=2)
    sweep.wait()
    after = stored(sweep)
    assert sorted(after) == ["digits/lr-sgd", "digits/small", "digits/small~none"]
    for path, arrays in before.items():
        assert arrays.keys() == after[path].keys()
        for name, values in arrays.items():
            np.testing.assert_array_equal(after[path][name], values)
    assert after["digits/small~none"].keys() == after["digits/small"].keys()
    assert plan_sweep(file, sweep.directory).is_empty
    _analysed(sweep)


def _analysed(sweep):
    sweep.analyze(Options(resamples=5))
    cells = sweep.results["cells"].filter(classifier="small").sort("cell")
    assert cells["augment"].to_list() == ["none", "rotate:45", "crop-flip:1"]
    assert cells["accuracy_mean"].n_unique() == 3
    found = query(sweep.results, "runs", where="augment = 'rotate:45'", columns=["accuracy"])
    assert len(found) == 3
    effects = sweep.results["effects"].filter(axis="augment")
    assert {*effects["level"]} == {"rotate:45", "crop-flip:1"}
    assert {*effects["reference"]} == {"none"}
    of_group = sweep.runs("digits", "small~none")
    assert [*dict.fromkeys(of_group["augment"].values.tolist())] == ["rotate:45", "crop-flip:1"]
    assert "augment" not in sweep.runs("digits", "small").coords
    named = sorted(row["classifier"] for row in sweep.status()["groups"])
    assert named == ["lr-sgd", "small", "small~none"]
    table = sweep.directory / "all.parquet"
    assert inside("export", sweep.directory, "--output", table)[0] == 0
    exported = pl.read_parquet(table)
    assert dict(exported.filter(classifier="small")["augment"].value_counts().iter_rows()) == {
        "none": 3,
        "rotate:45": 3,
        "crop-flip:1": 3,
    }
    code, said = inside("import", table, "--out", sweep.directory / "again")
    assert code == 2
    assert "rotate:45" in said
    assert ".zip" in said
    code, said = inside("verify", sweep.directory)
    assert (code, "differ" in said) == (0, False)
    code, said = inside("howmany", sweep.directory)
    assert code == 0, said
    run = inside("show", sweep.directory, "augment = 'rotate:45'")
    assert "Traceback" not in run[1]
    code, said = inside("rerun", sweep.directory, "digits/small~none/0", "--check")
    assert "Traceback" not in said


def test_a_plan_of_an_earlier_version_has_cells_without_augmentation(tmp_path):
    change = plan_sweep(write(tmp_path / "a.toml", AUGMENTED), tmp_path / "sweep")
    plan = Plan.read(SweepPaths(tmp_path / "sweep"))
    assert plan.all_cells["augment"].to_list() == ["none", "none", "rotate:45", "crop-flip:1"]
    assert plan.all_cells.equals(change.after.all_cells)
    plan_sweep(write(tmp_path / "p.toml", PLAIN), tmp_path / "plain")
    plan = Plan.read(SweepPaths(tmp_path / "plain"))
    assert plan.all_cells["augment"].to_list() == ["none", "none"]
    assert all('"augment"' not in text for text in plan.all_cells["canonical"])


def test_only_groups_of_augmented_cells_are_of_layout_2(tmp_path):
    plan_sweep(write(tmp_path / "a.toml", AUGMENTED), tmp_path / "sweep")
    specs = {spec.path: spec for spec in Groups.read(SweepPaths(tmp_path / "sweep")).specs}
    layouts = {path: spec.to_attributes()["layout"] for path, spec in specs.items()}
    assert layouts == {"digits/small": 1, "digits/lr-sgd": 1, "digits/small~none": 2}
    assert "ensembling" not in specs["digits/small"].to_attributes()
    augmented = specs["digits/small~none"]
    assert augmented.to_attributes()["ensembling"] == "none"
    assert GroupSpec.from_attributes(augmented.to_attributes()) == augmented


def test_hours_and_bytes_are_counted_of_both_groups(tmp_path):
    file = write(tmp_path / "a.toml", AUGMENTED)
    cost = {row["classifier"]: row for row in plan_change(file, tmp_path / "s").cost.to_dicts()}
    plain = plan_change(write(tmp_path / "p.toml", PLAIN), tmp_path / "s").cost.to_dicts()[0]
    assert [*cost] == ["small", "lr-sgd"]
    assert cost["small"]["fits"] == 9
    assert cost["small"]["core_hours"] > 3 * plain["core_hours"]
    assert cost["small"]["store_files"] > 2 * plain["store_files"]


@pytest.mark.parametrize(
    ("changed", "key", "words"),
    [
        (
            ('classifier     = ["small"]', 'classifier     = ["lr-sgd"]'),
            "grid[1].augment",
            'lr-sgd sees each training row once.*exclude = .{ classifier = "lr-sgd"',
        ),
        (('"rotate:45.0"', '"rotate:450"'), "grid[1].augment", "180"),
        (('"rotate:45.0"', '"turn:4"'), "grid[1].augment", "crop-flip, rotate"),
        (
            ('dataset        = ["digits"]\nclassifier     = ["small"]',
             'dataset        = ["digits", "sklearn:wine"]\nclassifier     = ["mlp"]'),
            "grid[1].augment",
            'needs images.*exclude = .{ dataset = "sklearn:wine"',
        ),
        (("small", "small~er"), "classifier", "cannot contain ~"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_key_and_remedy(tmp_path, changed, key, words):
    text = AUGMENTED.replace("[classifier.small]", '[classifier."small"]')
    text = text.replace(*changed) if "~" in changed[1] else PLAIN + GRID.replace(*changed)
    file = write(tmp_path / "a.toml", text)
    with pytest.raises(UserError, match=f"(?s){words}") as refused:
        plan_sweep(file, tmp_path / "sweep")
    assert key in str(refused.value)
    assert not (tmp_path / "sweep").exists()


def test_flips_of_digits_are_noted(tmp_path):
    file = write(tmp_path / "a.toml", AUGMENTED)
    done = command("plan", file, "--dry-run")
    assert done.returncode == 0
    assert "mirrors" in done.stdout


def test_rules_take_augmentations_out_as_written_and_in_their_normal_form(tmp_path):
    for pattern in ("rotate:45.0", "rotate:45", "rotate:*"):
        rule = f'exclude = [{{ augment = "{pattern}" }}]\n'
        file = write(tmp_path / "a.toml", AUGMENTED + rule)
        cells = plan_change(file, tmp_path / "sweep").after.cells
        assert cells["augment"].to_list() == ["none", "none", "crop-flip:1"]
