"""Ensembling methods under both augmentations in one grid: as each of them planned by itself."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.jobs.run import Run, canonical_json, text_identity
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.handling import Handling
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_sweep
from tests.orchestrator.conftest import shared, stored, write

GRID = """
name    = "crossed"
seed    = 5
repeats = 1
runs    = 2

[[grid]]
dataset        = ["digits"]
classifier     = ["small"]
train_fraction = [100]
ensembling     = ["none", "snapshot", "swag"]
augment        = ["none", "rotate:45"]
test_augment   = ["none", "rotate:20"]

[dataset.digits]
source = "sklearn:digits"
test   = 0.1

[classifier.small]
kind      = "mlp"
optimizer = "sgd"
epochs    = 2
hparams   = { width1 = 32, width2 = 32, lr = 0.05 }

[ensembling.snapshot]
members    = 3
cycle      = 2
batch_size = 32

[ensembling.swag]
members  = 3
pretrain = 2
epochs   = 4
rank     = 2
"""
METHODS, AUGMENT, TESTED = (
    ("none", "snapshot", "swag"),
    ("none", "rotate:45"),
    ("none", "rotate:20"),
)
AXES = ("ensembling", "augment", "test_augment")
CROSSED = [*itertools.product(METHODS, AUGMENT, TESTED)]


def grid(*, ensembling: object, augment: object, test_augment: object) -> str:
    """Return the file with other lists of these axes; none of those that are none alone."""
    text = GRID
    for axis, line, wanted in (
        ("ensembling", '["none", "snapshot", "swag"]', ensembling),
        ("augment", '["none", "rotate:45"]', augment),
        ("test_augment", '["none", "rotate:20"]', test_augment),
    ):
        before = f"{axis:<14} = {line}\n"
        assert before in text
        text = text.replace(
            before, "" if wanted == ["none"] else f"{axis} = {json.dumps(wanted)}\n"
        )
    for method in {"snapshot", "swag"} - {*ensembling}:
        text = text.replace(f"[ensembling.{method}]", f"[ensembling.{method}_]\nkind='{method}'")
    return text.partition("[ensembling.")[0] if ensembling == ["none"] else text


def path_of(ensembling: str, augment: str, test_augment: str) -> str:
    """Return the group of a cell: by method, and by whether the test set is transformed."""
    if (ensembling, augment, test_augment) == ("none", "none", "none"):
        return "digits/small"
    return f"digits/small~{ensembling}" + "~test_augment" * (test_augment != "none")


def cells_of(folder: Path, text: str) -> dict[tuple[str, ...], dict[str, object]]:
    folder.mkdir(exist_ok=True)
    plan_sweep(write(folder / "sweep.toml", text), folder / "sweep")
    plan = Plan.read(SweepPaths(folder / "sweep"))
    return {tuple(row[axis] for axis in AXES): row for row in plan.cells.iter_rows(named=True)}


def test_a_crossed_grid_has_the_cells_of_separate_plans(tmp_path: Path) -> None:
    whole = cells_of(tmp_path / "whole", GRID)
    assert {*whole} == {*CROSSED}
    separate: dict[tuple[str, ...], dict[str, object]] = {}
    for name, lists in {
        "methods": (METHODS, ["none"], ["none"]),
        "trained": (METHODS, ["rotate:45"], ["none"]),
        "tested": (METHODS, ["none"], ["rotate:20"]),
        "both": (METHODS, ["rotate:45"], ["rotate:20"]),
    }.items():
        asked = dict(zip(AXES, map(list, lists), strict=True))
        separate |= cells_of(tmp_path / name, grid(**asked))
    assert {*separate} == {*whole}
    for key, row in whole.items():
        own = separate[key]
        for column in ("cell_id", "canonical", "path"):
            assert own[column] == row[column]
        description = json.loads(str(row["canonical"]))
        assert text_identity(canonical_json(description)) == row["cell_id"]
        asked = {axis for axis, value in zip(AXES, key, strict=True) if value != "none"}
        assert asked == {*AXES} & {*description}
        assert row["path"] == path_of(*key)
    assert len({row["cell_id"] for row in whole.values()}) == len(CROSSED)
    specs = {spec.path: spec for spec in Groups.read(SweepPaths(tmp_path / "whole/sweep")).specs}
    assert {*specs} == {path_of(*key) for key in CROSSED}
    for path, spec in specs.items():
        assert spec.to_attributes()["layout"] == 1 + ("~" in path)
        has_members = path.split("~")[1:2] not in ([], ["none"])
        assert spec.measures == (("size_score",) if has_members else ())


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "crossed", GRID)


@pytest.mark.slow
def test_results_are_those_of_separate_plans(crossed: Sweep, tmp_path: Path) -> None:
    """What each plan asks for, trained here, is what the crossed sweep has stored of the cell."""
    whole, trainer, compared = Plan.read(crossed.paths), Trainer(), 0
    for name, asked in {
        "methods": grid(ensembling=[*METHODS], augment=["none"], test_augment=["none"]),
        "trained": grid(ensembling=["snapshot"], augment=["rotate:45"], test_augment=["none"]),
        "tested": grid(ensembling=["none", "swag"], augment=["none"], test_augment=["rotate:20"]),
        "both": grid(ensembling=[*METHODS], augment=["rotate:45"], test_augment=["rotate:20"]),
    }.items():
        for row in cells_of(tmp_path / name, asked).values():
            own = Plan.read(SweepPaths(tmp_path / name / "sweep")).cell(row["cell"])
            (cell,) = whole.cells.filter(cell_id=own.id)["cell"]
            held = xr.open_zarr(crossed.paths.store, group=str(row["path"]), consolidated=False)
            for run in range(2):
                at = whole.rows.filter(cell=cell, repeat=0, run=run)["row"].item()
                measures = ("size_score",) if row["ensembling"] != "none" else ()
                found = trainer.train(Run(own, 0, run), Handling(measures=measures))
                np.testing.assert_array_equal(held["score"][at], found.scores)
                np.testing.assert_array_equal(held["label"][at], found.label)
                if measures:
                    np.testing.assert_array_equal(
                        held["size_score"][at], found.measured["size_score"]
                    )
                compared += 1
    assert compared == 2 * (3 + 1 + 2 + 3)
    # each cell has predictions of its own
    scores = [
        values.tobytes()
        for arrays in stored(crossed).values()
        for values in arrays["score"][arrays["status"] == 1]
    ]
    assert len({*scores}) == 2 * len(CROSSED)


@pytest.mark.slow
def test_a_crossed_grid_is_analysed_and_compared_along_each_axis(crossed: Sweep) -> None:
    crossed.analyze(Options(calibration=True, deep_draws=3, resamples=4))
    assert crossed.verify()["runs_wrong"] == 0
    dee = crossed.results["dee"].filter(axis="ensembling", metric="cll")
    cells = {row["cell"]: row for row in crossed.results["cells"].iter_rows(named=True)}
    seen = set()
    for cell, deep in dee.select("cell", "deep_cell").unique().rows():
        own, other = cells[cell], cells[deep]
        assert other["ensembling"] == "none"
        assert all(own[axis] == other[axis] for axis in ("augment", "test_augment"))
        seen.add(tuple(own[axis] for axis in AXES))
    assert seen == {key for key in CROSSED if key[0] != "none"}
    effects = crossed.results["effects"]
    assert {"augment", "test_augment", "ensembling"} <= {*effects["axis"]}
    assert crossed.report().exists()
