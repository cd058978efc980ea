"""``hparams = ["grid"]``: each configuration is a cell with its anchors."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import polars as pl
import pytest

from manyseed.jobs import classifiers, datasets
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.run import Cell, Run
from manyseed.jobs.trainer import run_hparams
from manyseed.jobs.tuning import drawn
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.expansion import expand
from manyseed.orchestrator.grids.sweepfile import SweepFile
from manyseed.orchestrator.plans import planning
from manyseed.orchestrator.plans.planning import plan_change
from tests.orchestrator.conftest import write

HERE = Path("sweep.toml")
GRID = {
    "dataset": ["sklearn:wine", "sklearn:digits"],
    "classifier": ["mlp", "sgd"],
    "hparams": ["grid"],
}
TABLES = {
    "mlp": {"epochs": 2, "grid": {"width1": [32, 64], "lr": [1e-3, 3e-4]}},
    "sgd": {"kind": "lr-sgd", "hparams": {"eta0": 0.01}, "grid": {"alpha": [1e-4, 1e-3, 1e-2]}},
}


def sweep(*grids, **rest):
    whole = {"name": "x", "seed": 3, "repeats": 2, "runs": 3, "grid": list(grids), **rest}
    return SweepFile.model_validate({"classifier": TABLES, **whole})


def cells(*grids, **rest):
    return expand(sweep(*grids, **rest), HERE)


def refusal(*grids, **rest):
    with pytest.raises(UserError) as found:
        cells(*grids, **rest)
    return str(found.value)


def test_each_configuration_is_the_cell_of_these_anchors():
    """As if each had been written as a table of its own, one by one, noise around each."""
    found = cells({**GRID, "perturb_hparams": ["none", "relative:0.1"]})
    expected = {}
    for source, name in itertools.product(GRID["dataset"], GRID["classifier"]):
        table = {key: value for key, value in TABLES[name].items() if key != "grid"}
        lists = TABLES[name]["grid"]
        for values in itertools.product(*lists.values()):
            anchors = {**table.get("hparams", {}), **dict(zip(lists, values, strict=True))}
            dataset = datasets.resolve(source)
            kind = table.get("kind", name)
            model = classifiers.resolve(kind, {**table, "hparams": anchors}, dataset)
            for scheme in ("none", "relative:0.1"):
                one = resolve_cell(3, dataset, model, perturb_hparams=scheme)
                shown = ",".join(f"{n}={anchors[n]}" for n in sorted(lists))
                expected[one.cell.id] = (source, name, shown, scheme)
    columns = ("dataset", "classifier", "hparams", "perturb_hparams")
    rows = found.cells.select("cell_id", *columns).rows()
    assert {row[0]: row[1:] for row in rows} == expected
    assert (len(rows), found.runs, found.asked) == (28, 168, 168)


def test_the_order_is_that_of_the_lists():
    found = cells({**GRID, "classifier": ["mlp"], "hparams": ["default", "grid", "tuned"]})
    assert found.cells["hparams"].to_list()[:6] == [
        "default",
        "lr=0.001,width1=32",
        "lr=0.0003,width1=32",
        "lr=0.001,width1=64",
        "lr=0.0003,width1=64",
        "tuned",
    ]
    assert "The hparam grid of mlp is 4 configurations: lr = 0.001 | 0.0003, width1 = 32 | 64" in (
        found.notes
    )


def test_a_point_that_is_the_default_is_one_cell():
    tables = {"mlp": {"grid": {"lr": [3e-4, 1e-3], "dropout": [0.1]}}}
    grid = {"dataset": ["sklearn:wine"], "classifier": ["mlp"], "hparams": ["default", "grid"]}
    found = cells(grid, classifier=tables)
    assert found.cells["hparams"].to_list() == ["default", "dropout=0.1,lr=0.001"]
    assert (found.asked, found.runs) == (18, 12)
    alone = cells({**grid, "hparams": ["default"]}, classifier={})
    assert found.cells["cell_id"][0] == alone.cells["cell_id"][0]


def test_rules_take_out_grids_and_configurations():
    both = {**GRID, "hparams": ["default", "grid"]}
    found = cells({**both, "exclude": [{"classifier": "sgd", "hparams": "grid"}]})
    assert found.cells.filter(classifier="sgd")["hparams"].to_list() == ["default"] * 2
    assert [runs for _, _, runs in found.removed] == [2 * 3 * 6]
    found = cells({**both, "exclude": [{"hparams": ["*width1=64", "alpha=0.01"]}]})
    assert found.cells["hparams"].unique(maintain_order=True).to_list() == [
        "default",
        "lr=0.001,width1=32",
        "lr=0.0003,width1=32",
        "alpha=0.001",  # 0.0001 is the default
    ]
    assert "matches nothing" in refusal({**both, "exclude": [{"hparams": "depth=*"}]})


def test_lists_in_step_take_a_grid_as_one_value():
    found = cells(
        {**GRID, "hparams": ["grid", "default"], "zip": [["classifier", "hparams"]]},
    )
    kept = found.cells.group_by("classifier", maintain_order=True).agg(pl.col("hparams").unique())
    assert [len(values) for values in kept["hparams"]] == [4, 1]


def test_values_can_be_written_out_in_the_grid_itself():
    grid = {**GRID, "classifier": ["mlp"], "hparams": [" width1=64, lr=1e-3"]}
    found = cells(grid)
    assert found.cells["hparams"].to_list() == ["lr=0.001,width1=64"] * 2
    whole = cells({**GRID, "classifier": ["mlp"]}).cells
    assert found.cells["cell_id"].is_in(whole["cell_id"].implode()).all()


def test_a_tuned_cell_searches_what_a_grid_varies():
    grid = {"dataset": ["sklearn:wine"], "classifier": ["mlp"], "hparams": ["tuned"]}
    with_grid = cells(grid)
    plain = cells(grid, classifier={"mlp": {"epochs": 2}})
    assert with_grid.cells["cell_id"].to_list() == plain.cells["cell_id"].to_list()
    assert any("the hparam grid of mlp is not used" in note for note in with_grid.notes)


def test_structural_hparams_are_in_grids_and_neither_moved_nor_searched():
    shape = {"depth": [1, 3], "batch_norm": [True, False]}
    tables = {"convnet": {"hparams": {"width": 8}, "grid": {**shape, "lr": [1e-3]}}}
    grid = {
        "dataset": ["sklearn:digits"],
        "classifier": ["convnet"],
        "hparams": ["grid", "tuned"],
        "perturb_hparams": ["relative:0.1"],
    }
    found = cells(grid, classifier=tables)
    assert found.cells["hparams"].to_list() == [
        "batch_norm=true,depth=1,lr=0.001",
        "batch_norm=false,depth=1,lr=0.001",
        "batch_norm=true,depth=3,lr=0.001",
        "batch_norm=false,depth=3,lr=0.001",
        "tuned",
    ]
    for canonical in found.cells["canonical"]:
        run = Run(Cell.from_text(canonical), 1, 2)
        if "tuned" in run.cell.hparams:
            assert run.cell.hparams.keys() == {"tuned", "depth", "width", "batch_norm"}
            fitted = drawn(run.cell, 3)
        else:
            fitted = run_hparams(run)
            assert fitted["lr"] != run.cell.hparams["lr"]
        for name in ("depth", "width", "batch_norm"):
            assert fitted[name] == run.cell.hparams[name]
    note = 'perturb_hparams = "relative:0.1" cannot move these hparams of convnet: batch, depth'
    assert any(line.startswith(note) for line in found.notes), found.notes


@pytest.mark.parametrize(
    ("tables", "hparams", "message"),
    [
        (
            {"mlp": {"hparams": {"lr": 0.1}, "grid": {"lr": [0.1, 0.2]}}},
            ["grid"],
            "sweep.toml: classifier.mlp.grid.lr = [0.1, 0.2]: hparams fixes lr already\n"
            "  remove hparams.lr from [classifier.mlp]",
        ),
        (
            {"mlp": {"epochs": 2}},
            ["grid"],
            'sweep.toml: grid[0].hparams = "grid": mlp has no hparam grid\n'
            "  add to [classifier.mlp]: grid = { lr = [0.0003, …] }",
        ),
        (
            {"mlp": {"grid": {"learning_rate": [0.1]}}},
            ["grid"],
            "sweep.toml: classifier.mlp.grid.learning_rate = [0.1]: unknown key\n  valid: lr",
        ),
        (
            {"mlp": {"grid": {"epochs": [2, 3]}}},
            ["grid"],
            "classifier.mlp.grid.epochs = [2, 3]: epochs is no hparam\n"
            "  give each value a classifier of its own",
        ),
        (
            {"mlp": {"grid": {"widht1": [64]}}},
            ["grid"],
            'did you mean "width1"?',
        ),
        (
            {"mlp": {"grid": {"lr": [0.1, 3]}}},
            ["grid"],
            "classifier.mlp.grid.lr = [0.1, 3]: must be a number at least 1e-05 and at most 0.5, "
            "not 3",
        ),
        (
            {"mlp": {"grid": {"lr": [0.1, 1e-1]}}},
            ["default"],
            "classifier.mlp.grid.lr = [0.1, 0.1]: 0.1 is listed twice",
        ),
        (
            {"mlp": {"grid": 3}},
            ["grid"],
            "classifier.mlp.grid = 3: must be a table with a list",
        ),
        (
            {"own": {"kind": "xgb", "defaults": "library", "grid": {"eta": [0.1]}}},
            ["default"],
            "classifier.own.grid = { eta = [0.1] }: values around the library's defaults\n"
            "  remove defaults from [classifier.own]",
        ),
        (
            {"mlp": {"grid": {"lr": [0.1]}}},
            ["grdi"],
            'grid[0].hparams = "grdi": unknown hparams\n  did you mean "grid"?',
        ),
        (
            {"mlp": {"hparams": {"lr": 0.1}}},
            ["lr=0.2"],
            'grid[0].hparams = "lr=0.2": the table of mlp fixes lr',
        ),
        ({}, ["eta=0.2"], 'grid[0].hparams = "eta=0.2": unknown hparam "eta"\n'),
    ],
)
def test_mistakes_name_key_value_and_remedy(tables, hparams, message):
    grid = {"dataset": ["sklearn:wine"], "classifier": ["mlp"], "hparams": hparams}
    assert message in refusal(grid, classifier=tables)


def test_a_classifier_without_a_grid_may_be_left_out():
    grid = {**GRID, "classifier": ["mlp", "xgb"]}
    assert 'exclude = [{ classifier = "xgb", hparams = "grid" }]' in refusal(grid)
    found = cells({**grid, "exclude": [{"classifier": "xgb", "hparams": "grid"}]})
    assert found.cells["classifier"].unique().to_list() == ["mlp"]


def test_hparams_that_noise_cannot_move_at_some_points_are_told():
    tables = {"xgb": {"grid": {"eta": [1.0, 0.5]}}}
    grid = {"dataset": ["sklearn:wine"], "classifier": ["xgb"], "hparams": ["grid"]}
    found = cells({**grid, "perturb_hparams": ["relative:0.1"]}, classifier=tables)
    assert any("eta (at some configurations)" in note for note in found.notes), found.notes


def test_a_sweep_holds_no_more_configurations_than_the_store_can_number(tmp_path, monkeypatch):
    text = (
        'name = "x"\nseed = 1\n[[grid]]\ndataset = ["sklearn:wine"]\nclassifier = ["mlp"]\n'
        'hparams = ["default", "grid"]\n[classifier.mlp]\ngrid = { lr = [1e-3, 1e-2] }\n'
    )
    file, directory = tmp_path / "sweep.toml", tmp_path / "out"
    file.write_text(text)
    monkeypatch.setattr(planning, "MAX_CONFIGURATIONS", 3)
    planning.plan_sweep(file, directory)
    file.write_text(text.replace("1e-2]", "1e-2, 1e-1]"))
    with pytest.raises(UserError, match="4 values of hparams; a sweep holds up to 3"):
        planning.plan_sweep(file, directory)


def test_each_configuration_is_priced_by_itself(tmp_path):
    (tmp_path / "sweep.toml").write_text(
        'name = "x"\nseed = 1\n[[grid]]\ndataset = ["sklearn:digits"]\nclassifier = ["mlp"]\n'
        'hparams = ["grid"]\n[classifier.mlp]\ngrid = { width1 = [32, 1024], lr = [1e-3, 1e-2] }\n'
    )
    change = plan_change(tmp_path / "sweep.toml", tmp_path / "out")
    seconds = dict(change.after.cells.select("hparams", "core_seconds").iter_rows())
    narrow, wide = seconds["lr=0.001,width1=32"], seconds["lr=0.001,width1=1024"]
    assert wide > 1.5 * narrow
    assert seconds["lr=0.01,width1=32"] == narrow
    group = change.summary()["by_group"][0]
    assert (group["cells"], group["fits"]) == (4, 400)
    assert group["core_hours"] == pytest.approx(200 * (narrow + wide) / 3600)
    assert group["longest_seconds"] == wide


def test_a_classifier_without_a_grid_stands_beside_one_with(tmp_path: Path) -> None:
    text = (
        'name = "beside"\nseed = 1\nrepeats = 1\nruns = 2\n\n[[grid]]\ndataset = ["sklearn:wine"]\n'
        'classifier = ["mlp", "xgb"]\nhparams = ["grid"]\n\n'
        "[classifier.mlp]\nepochs = 1\ngrid = { lr = [0.001, 0.01] }\n"
    )
    with pytest.raises(UserError) as refused:
        plan_change(write(tmp_path / "beside.toml", text), tmp_path / "out")
    remedy = str(refused.value).splitlines()[-1]
    hparams, rule = re.findall(r"(\[.*?\])(?:,|$)", remedy.replace(" }]", "}]"))
    mended = text.replace('hparams = ["grid"]', f"hparams = {hparams}\nexclude = {rule}")
    cells = plan_change(write(tmp_path / "beside.toml", mended), tmp_path / "out").cells
    held = cells.group_by("classifier").len().sort("classifier").rows()
    assert [(str(name), n) for name, n in held] == [("mlp", 3), ("xgb", 1)]
