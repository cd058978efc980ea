"""Noise on training labels as an axis: planned, stored, trained, analysed, asked about."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_wine
from sklearn.tree import DecisionTreeClassifier

from manyseed import Sweep
from manyseed.jobs.run import canonical_json, text_identity
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
from manyseed.orchestrator.store.schema import GroupSpec
from tests.orchestrator.conftest import inside, shared, stored, train, write

PLAIN = """
name    = "noisy"
seed    = 5
repeats = 2
runs    = 4

[[grid]]
dataset        = ["sklearn:wine"]
classifier     = ["lr-sgd", "xgb"]
"""
GRID = f'{PLAIN}perturb_labels = ["none", "flip:.30", "pairs:0.3"]\n'
NOISY = {"sklearn%3Awine/lr-sgd~none~perturb_labels", "sklearn%3Awine/xgb~none~perturb_labels"}


def plan_of(tmp_path: Path, text: str, name: str = "sweep") -> Plan:
    plan_sweep(write(tmp_path / f"{name}.toml", text), tmp_path / name)
    return Plan.read(SweepPaths(tmp_path / name))


def test_cells_and_groups_are_new_only_where_labels_are_noisy(tmp_path: Path) -> None:
    plain, plan = plan_of(tmp_path, PLAIN), plan_of(tmp_path, GRID, "noise")
    assert "perturb_labels" not in pl.read_parquet_schema(SweepPaths(tmp_path / "sweep").cells)
    own = plan.cells.filter(perturb_labels="none")
    assert own["cell_id"].to_list() == plain.cells["cell_id"].to_list()
    assert own["canonical"].to_list() == plain.cells["canonical"].to_list()
    assert own["identical"].to_list() == plain.cells["identical"].to_list()
    noisy = plan.cells.filter(pl.col("perturb_labels") != "none")
    assert noisy["perturb_labels"].unique().sort().to_list() == ["flip:0.3", "pairs:0.3"]
    assert not noisy["identical"].any()  # xgb draws nothing else
    for row in plan.cells.iter_rows(named=True):
        description = json.loads(row["canonical"])
        assert text_identity(canonical_json(description)) == row["cell_id"]
        assert description.get("perturb_labels", "none") == row["perturb_labels"]
    specs = {spec.path: spec for spec in Groups.read(SweepPaths(tmp_path / "noise")).specs}
    assert {path for path in specs if "~" in path} == NOISY
    for path, spec in specs.items():
        assert GroupSpec.from_attributes(spec.to_attributes()) == spec
        assert ("perturb_labels" in spec.flags) == (path in NOISY)
        assert spec.method == "none"


def test_all_later_axes_can_be_together(tmp_path: Path) -> None:
    text = """
name = "all"
seed = 1
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:digits"]
classifier = ["net"]
ensembling = ["none", "snapshot"]
test_augment = ["none", "rotate:20"]
perturb_labels = ["none", "symmetric:0.2"]
[classifier.net]
kind = "mlp"
optimizer = "sgd"
epochs = 2
[ensembling.snapshot]
members = 2
cycle = 1
"""
    plan_of(tmp_path, text)
    specs = Groups.read(SweepPaths(tmp_path / "sweep")).specs
    endings = {spec.path.partition("net")[2]: (spec.method, spec.flags[5:]) for spec in specs}
    later = ("augment", "test_augment", "perturb_labels")
    assert endings == {
        "": ("none", ()),
        "~none~test_augment": ("none", later[:2]),
        "~none~perturb_labels": ("none", (later[0], later[2])),
        "~none~test_augment~perturb_labels": ("none", later),
        "~snapshot": ("snapshot", later[:1]),
        "~snapshot~test_augment": ("snapshot", later[:2]),
        "~snapshot~perturb_labels": ("snapshot", (later[0], later[2])),
        "~snapshot~test_augment~perturb_labels": ("snapshot", later),
    }


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("flip:1", "below 1"),
        ("flip", "lacks its number, as in flip:0.1"),
        ("label:0.1", "unknown scheme.*flip, symmetric, pairs"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, value: str, words: str) -> None:
    text = PLAIN + f'perturb_labels = ["{value}"]\n'
    with pytest.raises(UserError, match=f"(?s)grid.0..perturb_labels.*{words}"):
        plan_sweep(write(tmp_path / "a.toml", text), tmp_path / "sweep")


def test_noise_on_categories_has_a_name_that_is_not_noise_on_labels(tmp_path: Path) -> None:
    text = PLAIN.replace('"sklearn:wine"', '"data"').replace('"lr-sgd", "xgb"', '"lr-sgd"')
    text += 'perturb_categorical = ["none", "{name}:.20", "sample:0.1"]\n'
    text += '[dataset.data]\nsource = "synthetic:gaussian"\nn_categorical = 2\n'
    old, new = (text.replace("{name}", name) for name in ("label", "value"))
    before = plan_of(tmp_path, old)
    after = plan_of(tmp_path, new, "new")
    shown = [frame.cells["perturb_categorical"].to_list() for frame in (before, after)]
    assert shown == [["none", f"{name}:0.2", "sample:0.1"] for name in ("label", "value")]
    for column in ("cell_id", "canonical"):
        assert before.cells[column].to_list() == after.cells[column].to_list()
    # the sweep of the earlier name goes on with either file
    assert plan_sweep(tmp_path / "new.toml", tmp_path / "sweep").is_empty
    rule = new.replace("[dataset", 'exclude = [{ perturb_categorical = "value:0.2" }]\n[dataset')
    left = plan_change(write(tmp_path / "rule.toml", rule), tmp_path / "third").expansion.cells
    assert left["perturb_categorical"].to_list() == ["none", "sample:0.1"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "noisy", GRID, lambda made: made.analyze())


def test_it_is_stored_trained_again_and_grows(sweep: Sweep, tmp_path: Path) -> None:
    held = stored(sweep)
    assert {path for path in held if "~" in path} == NOISY
    assert sweep.verify()["runs_wrong"] == 0
    for row in Plan.read(sweep.paths).cells.filter(pl.col("perturb_labels") != "none").to_dicts():
        assert sweep.rerun(f"{row['cell']}:1:2")["equal"]
    runs = sweep.runs("sklearn:wine", "xgb~none~perturb_labels")
    assert {*runs["perturb_labels"].values.tolist()} == {"flip:0.3", "pairs:0.3"}
    assert inside("export", sweep.directory, "--output", tmp_path / "all.parquet")[0] == 0
    exported = pl.read_parquet(tmp_path / "all.parquet").group_by("perturb_labels").len()
    assert dict(exported.iter_rows()) == dict.fromkeys(("none", "flip:0.3", "pairs:0.3"), 16)


def test_runs_with_noise_are_named_beside_others_and_found_alone(
    sweep: Sweep, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match=r'runs\("sklearn:wine", "xgb~none~perturb_labels"\)'):
        runs = sweep.runs("sklearn:wine", "xgb")
    assert runs.sizes["run"] == 8
    assert "perturb_labels" not in runs.coords, "those without"
    alone = (
        GRID.replace('"none", ', "").replace(', "xgb"', "").replace("repeats = 2", "repeats = 1")
    )
    other = train(write(tmp_path / "alone.toml", alone), tmp_path / "alone")
    assert {*other.runs("sklearn:wine", "lr-sgd")["perturb_labels"].values.tolist()} == {
        "flip:0.3",
        "pairs:0.3",
    }


def test_it_is_an_axis_of_every_answer(sweep: Sweep) -> None:
    code, said = inside("query", sweep.directory, "--by", "perturb_labels", "--json")
    assert code == 0
    accuracy = {row["perturb_labels"]: row for row in json.loads(said)["rows"]}
    assert {*accuracy} == {"none", "flip:0.3", "pairs:0.3"}
    effects = sweep.results["effects"].filter(axis="perturb_labels", metric="accuracy_mean")
    assert effects["level"].unique().sort().to_list() == ["flip:0.3", "pairs:0.3"]
    trees = effects.filter(classifier="xgb")
    assert (trees["difference"] < 0).all()
    added = sweep.results["variance"].filter(source="perturb_labels")
    assert not added.is_empty()
    for verb in ("answers", "compare", "variance", "report"):
        assert inside(verb, sweep.directory)[0] == 0
    plotted = sweep.results["runs"].filter(perturb_labels="flip:0.3")
    assert plotted.height == 16


def test_estimators_on_data_in_memory_see_the_noise(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    own = Sweep.of(
        DecisionTreeClassifier(random_state=0),
        X,
        np.array(["a", "b", "c"])[y],
        runs=4,
        directory=tmp_path / "sweep",
        cluster="local",
        perturb_labels=["none", "symmetric:0.5"],
        train_fraction=[0.5, 1.0],
    )
    cells = own.results["cells"]
    clean, noisy = (
        cells.filter(pl.col("perturb_labels") == level)["accuracy_mean"].to_numpy()
        for level in ("none", "symmetric:0.5")
    )
    assert clean.size == noisy.size == 2
    assert noisy.max() < clean.min()
