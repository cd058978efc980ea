"""A sweep over an hparam grid, from the plan to its tables, enlarged on the way."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from manyseed.orchestrator.asking.query import query
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.change import choose_cells
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import grow, plan_sweep
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.submissions.requirements import require_code
from tests.orchestrator.conftest import stored, train, write

FILE = """
name    = "grids"
seed    = 5
repeats = 2
runs    = 3

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["lr-sgd", "xgb"]
hparams    = ["grid"]
exclude    = [{ classifier = "xgb", hparams = "*eta=0.1*" }]

[classifier.lr-sgd]
grid = { alpha = [1e-3, 1e-2] }

[classifier.xgb]
grid = { max_depth = [1, 2], eta = [0.1, 0.3], subsample = [0.5] }
"""
LARGER = FILE.replace(
    "alpha = [1e-3, 1e-2]", 'alpha = [1e-2, 1e-1, 1e-3], penalty = ["l2", "l1"], average = [false]'
)


@pytest.mark.slow
def test_a_grid_is_trained_analysed_and_enlarged_and_keeps_what_it_has(tmp_path):
    file = write(tmp_path / "grid.toml", FILE)
    sweep = train(file, tmp_path / "sweep")
    before, words = stored(sweep), _words(sweep)
    assert words["lr-sgd"] == ["alpha=0.001"] * 6 + ["alpha=0.01"] * 6
    sweep.analyze()
    cells = sweep.results["cells"].sort("cell")
    columns = ("hparams", "hparam_alpha", "hparam_eta", "hparam_max_depth", "hparam_subsample")
    assert cells.select(columns).rows() == [
        ("alpha=0.001", 0.001, None, None, None),
        ("alpha=0.01", 0.01, None, None, None),
        ("eta=0.3,max_depth=1,subsample=0.5", 1e-10, 0.3, 1, 0.5),
        ("eta=0.3,max_depth=2,subsample=0.5", 1e-10, 0.3, 2, 0.5),
    ]
    assert cells.schema["hparam_max_depth"] == pl.Int64
    by = query(sweep.results, by=["hparam_alpha"], where="classifier = 'lr-sgd'")
    assert by.select("hparam_alpha", "n").rows() == [(0.001, 1), (0.01, 1)]
    runs = query(sweep.results, "runs", where="hparam_max_depth > 1", columns=["accuracy"])
    assert len(runs) == 6
    # planning again changes nothing, more values keep all that was trained
    assert plan_sweep(file, sweep.directory).is_empty
    change = plan_sweep(write(file, LARGER), sweep.directory)
    assert len(change.added) == 4 * 2 * 3
    assert sweep.status()["runs"]["missing"] == 24
    sweep.submit(workers=2)
    sweep.wait()
    sweep.compact()
    after = stored(sweep)
    for path, arrays in before.items():
        for name, values in arrays.items():
            np.testing.assert_array_equal(after[path][name][: len(values)], values)
    # as if all had been asked for at once
    whole = train(file, tmp_path / "whole")
    assert _by_cell(sweep) == _by_cell(whole)
    sweep.analyze()
    cells = sweep.results["cells"].sort("cell")
    assert cells["hparams"].to_list()[:2] == ["alpha=0.001", "alpha=0.01"]
    assert cells["hparams"][4] == "alpha=0.01,average=false,penalty=l1"
    assert cells["hparam_penalty"].to_list() == ["l2", "l2", None, None, "l1", "l2", "l1", "l1"]
    assert cells["hparam_average"].to_list()[:3] == [False, False, None]
    assert "alpha=0.01,average=false,penalty=l1" in sweep.report().read_text()


def test_a_cell_that_keeps_its_name_of_a_smaller_grid_can_have_more_runs(tmp_path):
    file = write(tmp_path / "grid.toml", FILE)
    plan_sweep(file, tmp_path / "sweep")
    change = plan_sweep(write(file, LARGER), tmp_path / "sweep")
    paths = SweepPaths(tmp_path / "sweep")
    plan = Plan.read(paths)
    assert plan.cells["hparams"][0] == "alpha=0.001"
    assert len(grow(paths, {0: 5, 5: 4}, require_code).added) == 2 * (2 + 1)
    extents = Plan.read(paths).extents.sort("cell")["runs"].to_list()
    assert extents == [5, 3, 3, 3, 3, 4, 3, 3]
    chosen = choose_cells(plan, "hparam_penalty = 'l1' AND hparam_alpha >= 0.01", "--where")
    assert chosen["hparams"].to_list() == [
        "alpha=0.01,average=false,penalty=l1",
        "alpha=0.1,average=false,penalty=l1",
    ]
    assert change.summary()["runs"] == 8 * 6


def _words(sweep):
    """Return what the store's own coordinate says of each run, sorted."""
    found = {}
    for group in list_groups(sweep.paths.store):
        array = next(a for a in group.spec.arrays if a.name == "hparams")
        words = json.loads(group.metadata(array))["attributes"]["flag_meanings"].split()
        codes = read_array(group, "hparams")
        found[group.spec.classifier] = sorted(words[code] for code in codes if code >= 0)
    return found


def _by_cell(sweep):
    """Return the checksums of each cell's runs, by its identity."""
    plan, found = Plan.read(sweep.paths), {}
    for group in list_groups(sweep.paths.store):
        cell, crc = read_array(group, "cell"), read_array(group, "crc")
        for number in np.unique(cell[cell >= 0]):
            name = plan.all_cells["cell_id"][int(number)]
            found[name] = sorted(crc[cell == number].tolist())
    return found
