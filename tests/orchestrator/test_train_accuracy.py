"""Accuracy on the training rows: kept with every run, from the fit to tables, copies and page."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xarray as xr

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.jobs.classifiers import fit
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import Trainer, generators, run_hparams
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.sweepfile import Keep
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from tests.orchestrator.conftest import command, inside, shared, train, write

GRID = """
name    = "kept"
seed    = 3
repeats = 2
runs    = 3
keep    = { train_accuracy = true }

[[grid]]
dataset            = ["cancer"]
classifier         = ["lr-sgd", "xgb", "mlp"]
train_fraction     = [0.2, 1.0]
perturb_continuous = ["none", "relative:0.5"]
vary               = ["init+batch", "init+batch+train"]
exclude            = [
    { train_fraction = 1.0, vary = "*train" },
    { train_fraction = 0.2, perturb_continuous = "none" },
]

[dataset.cancer]
source = "sklearn:breast_cancer"

[classifier.mlp]
epochs    = 3
snapshots = [1]
hparams   = { width1 = 32, width2 = 32 }
"""

OPTIONS = Options(resamples=5, snapshots=(1, -1))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "train-accuracy", GRID, lambda sweep: sweep.analyze(OPTIONS))


def test_each_run_has_that_of_the_same_model_tested_on_its_training_rows(kept: Sweep) -> None:
    runs = kept.results["runs"].filter(pl.col("epoch").is_in([0, 3]))
    plan, trainer, checked = Plan.read(kept.paths), Trainer(), set()
    for row in runs.iter_rows(named=True):
        if row["identical"] or row["run_index"] > 1:
            continue
        run = Run(plan.cell(row["cell"]), row["repeat_index"], row["run_index"])
        data = trainer.training_set(run)
        data = replace(data, X_test=data.X)  # no fit looks at its test rows
        one = fit(run.cell.classifier, run_hparams(run), data, generators(run))
        assert row["train_accuracy"] == np.float32((one.label[-1] == data.y).mean())
        gap = row["train_accuracy"] - row["accuracy"]
        assert row["generalization_gap"] == pytest.approx(gap, abs=1e-12)
        checked.add(row["cell"])
    assert len(checked) == runs["cell"].n_unique() == 12


def test_copies_have_that_of_their_source(kept: Sweep) -> None:
    copies = kept.results["runs"].filter(pl.col("identical"))
    assert set(copies["classifier"].to_list()) == {"xgb"}
    source = kept.results["runs"].filter(~pl.col("identical"), classifier="xgb")
    both = copies.join(source, on=["cell", "epoch", "repeat_index"], suffix="_of")
    assert both.height == copies.height > 0
    assert (both["train_accuracy"] == both["train_accuracy_of"]).all()
    assert both["train_accuracy"].null_count() == 0


def test_it_is_of_the_final_model_alone(kept: Sweep) -> None:
    first = kept.results["runs"].filter(epoch=1)
    assert first.height > 0
    assert first["train_accuracy"].is_null().all()
    assert first["generalization_gap"].is_null().all()
    assert first["accuracy"].null_count() == 0
    cells = kept.results["cells"]
    assert cells.filter(epoch=1)["generalization_gap_mean"].is_null().all()
    assert cells.filter(epoch=3)["generalization_gap_mean"].null_count() == 0


def test_repeats_and_cells_summarise_it(kept: Sweep) -> None:
    runs = kept.results["runs"].filter(classifier="mlp", epoch=3)
    for name in ("train_accuracy", "generalization_gap"):
        own = runs.group_by("cell", "repeat_index", maintain_order=True).agg(
            mean=pl.col(name).mean(), variance=pl.col(name).var()
        )
        repeats = kept.results["repeats"].filter(classifier="mlp", epoch=3)
        joined = own.join(repeats, on=["cell", "repeat_index"])
        assert joined["mean"].to_list() == pytest.approx(joined[f"{name}_mean"].to_list())
        std = (joined["variance"] ** 0.5).to_list()
        assert std == pytest.approx(joined[f"{name}_std"].to_list())
        cells = kept.results["cells"].filter(classifier="mlp", epoch=3)
        both = own.group_by("cell").agg(
            pl.col("mean").mean(), sd=pl.col("mean").std(), pooled=pl.col("variance").mean() ** 0.5
        )
        both = both.join(cells, on="cell")
        assert both["mean"].to_list() == pytest.approx(both[f"{name}_mean"].to_list())
        assert both["pooled"].to_list() == pytest.approx(both[f"{name}_std"].to_list())
        assert both["sd"].to_list() == pytest.approx(both[f"{name}_mean_sd"].to_list())


def test_query_and_report_show_it(kept: Sweep) -> None:
    shown = ["train_accuracy_mean", "generalization_gap_mean", "generalization_gap_std"]
    assert kept.query("cells").columns[-3:] == shown
    assert kept.query("runs").columns[-2:] == ["train_accuracy", "generalization_gap"]
    code, told = inside(
        *("query", kept.directory, "--columns", "classifier," + ",".join(shown)),
        *("--where", "generalization_gap_mean > -1"),
    )
    assert code == 0, told
    page = kept.report().read_text()
    assert "On training rows" in page
    assert "Gap ±" in page
    assert "Gap: that minus accuracy" in page


@pytest.mark.slow
def test_predictions_are_those_of_a_sweep_that_does_not_keep_it(
    kept: Sweep, tmp_path: Path
) -> None:
    text = GRID.replace("keep    = { train_accuracy = true }", "")
    other = train(write(tmp_path / "kept.toml", text), tmp_path / "sweep", workers=2)
    for one, same in zip(
        list_groups(kept.paths.store), list_groups(other.paths.store), strict=True
    ):
        assert {"manyseed": one.spec.to_attributes()["layout"]} == {"manyseed": 2}
        assert same.spec.to_attributes()["layout"] == 1
        assert replace(one.spec, optional=()) == same.spec
        for array in same.spec.arrays:
            if array.role == "prediction":
                np.testing.assert_array_equal(
                    read_array(one, array.name), read_array(same, array.name)
                )
    assert Plan.read(kept.paths).cells["cell_id"].to_list() == (
        Plan.read(other.paths).cells["cell_id"].to_list()
    )
    other.analyze(OPTIONS)
    runs = other.results["runs"]
    assert runs["train_accuracy"].is_null().all()
    assert "train_accuracy" not in other.query("runs").columns
    page = other.report().read_text()
    assert "On training rows" not in page
    assert "Gap: that minus" not in page


def test_a_run_is_rerun_bit_for_bit_with_it(kept: Sweep) -> None:
    for path in ("cancer/mlp", "cancer/xgb"):
        group = next(one for one in list_groups(kept.paths.store) if one.spec.path == path)
        cell = int(read_array(group, "cell")[0])
        assert kept.rerun(f"{cell}:1:0")["equal"]


def test_python_and_portable_copies_have_it(kept: Sweep, tmp_path: Path) -> None:
    one = kept.predictions["cancer/mlp"]
    runs = kept.results["runs"].filter(classifier="mlp", epoch=3)
    found = sorted(one.final_train_accuracy.values.tolist())
    assert found == sorted(runs["train_accuracy"].to_list())
    kept.export(tmp_path / "a.parquet")
    table = pl.read_parquet(tmp_path / "a.parquet").filter(classifier="mlp", epoch=3)
    assert sorted(table["train_accuracy"].to_list()) == found
    kept.export(tmp_path / "a.zip")
    result = command("import", tmp_path / "a.zip", "--out", tmp_path / "again")
    assert result.returncode == 0, result.stderr
    again = Sweep(tmp_path / "again")
    again.analyze(OPTIONS)
    assert again.results["runs"].equals(kept.results["runs"])
    assert again.verify()["findings"] == []


def test_a_group_that_exists_takes_it_no_more(kept: Sweep, tmp_path: Path) -> None:
    directory = shutil.copytree(kept.directory, tmp_path / "sweep")
    without = GRID.replace("keep    = { train_accuracy = true }", "")
    before = (directory / "plan" / "groups.json").read_bytes()
    for text in (without, without.replace("runs    = 3", "runs    = 5")):
        with pytest.raises(UserError) as error:
            Sweep.plan(write(tmp_path / "kept.toml", text), directory)
        told = "is stored with keep.train_accuracy = true; this file asks for false"
        assert told in str(error.value)
        assert "plan into another directory" in str(error.value)
    assert (directory / "plan" / "groups.json").read_bytes() == before
    # what is new takes what the file asks for it
    other = GRID.replace('["cancer"]', '["cancer", "other"]')
    other += '\n[dataset.other]\nsource = "sklearn:wine"\nkeep = { train_accuracy = false }\n'
    Sweep.plan(write(tmp_path / "kept.toml", other), directory)
    layouts = {
        (spec.dataset, len(spec.optional)) for spec in Groups.read(Sweep(directory).paths).specs
    }
    assert layouts == {("cancer", 1), ("other", 0)}


def test_of_the_file_and_of_a_dataset_the_latter_goes_first() -> None:
    assert Keep().train_accuracy is None
    assert Keep(train_accuracy=False).over(Keep(train_accuracy=True)).train_accuracy is False
    assert Keep(curves=True).over(Keep(train_accuracy=True)).train_accuracy


def test_other_readers_see_it(kept: Sweep) -> None:
    one = xr.open_zarr(kept.paths.store, group="cancer/xgb", consolidated=False)
    assert one.final_train_accuracy.attrs["units"] == "1"
    done = one.isel(run=np.isin(one.status.values, (1, 2)))
    assert ((done.final_train_accuracy > 0.9) & (done.final_train_accuracy <= 1)).all()
