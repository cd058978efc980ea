"""Finished runs in Python: natural lines give right numbers, or an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from manyseed import Sweep, UserError
from manyseed.analysis.options import Options
from manyseed.orchestrator.store.lazy import FinishedRuns, with_names

TRUE = np.array([0, 1, 2, 1, 0])
RIGHT = np.array([3, 2, 4, 1])  # of 5 points, by run


@pytest.fixture
def runs() -> FinishedRuns:
    """Two runs each of two cells, the last of which is a copy."""
    label = np.tile(TRUE, (4, 1, 1))  # (run, epoch, sample)
    for run, right in enumerate(RIGHT):
        label[run, 0, right:] = (TRUE[right:] + 1) % 3
    data = {
        "label": xr.Variable(("run", "epoch", "sample"), label.astype(np.uint8)),
        "y_true": xr.Variable(("run", "sample"), np.tile(TRUE, (4, 1)).astype(np.uint8)),
    }
    coordinates = {
        "cell": ("run", [0, 0, 1, 1]),
        "repeat_index": ("run", [0, 0, 0, 0]),
        "is_copy": ("run", [False, False, False, True]),
        "vary": ("run", ["init", "init", "train", "train"]),
        "hparams": ("run", ["default"] * 4),
        "class": ("class", ["low", "mid", "high"]),
    }
    return FinishedRuns.of(
        xr.Dataset({name: one.chunk({"run": 2}) for name, one in data.items()}, coordinates)
    )


def test_where_leaves_missing_labels_out(runs: FinishedRuns) -> None:
    kept = runs.where(runs.vary == "train")
    assert float((kept.label == kept.y_true).mean()) == pytest.approx((4 + 1) / 10)
    assert float((kept.y_true == kept.label).mean()) == pytest.approx(0.5)
    assert float((kept.label != kept.y_true).mean()) == pytest.approx(0.5)
    assert float((kept.label == kept.y_true).sum()) == 5
    one = runs.label.where(runs.vary == "train")
    assert float((one == runs.y_true).mean()) == pytest.approx(0.5)
    assert float((runs.y_true == one).mean()) == pytest.approx(0.5)
    assert float((kept.y_true == "high").mean()) == pytest.approx(1 / 5)
    assert float(kept.y_true.isin(["high"]).mean()) == pytest.approx(1 / 5)
    dropped = runs.where(runs.vary == "train", drop=True)
    assert float((dropped.label == dropped.y_true).mean()) == pytest.approx(0.5)


def test_names_of_classes_compare_with_numbers(runs: FinishedRuns) -> None:
    assert int((runs.y_true == "high").sum()) == 4
    assert int((runs["y_true"] != "high").sum()) == 16
    assert int(runs.y_true.isin(["high", "low"]).sum()) == 12
    assert int((runs.isel(run=0).y_true == np.str_("mid")).sum()) == 2
    assert int((runs.y_true == 2).sum()) == 4
    with pytest.raises(UserError, match="no such class"):
        runs.y_true == "hihg"  # noqa: B015
    with pytest.raises(UserError, match="compared with names"):
        runs.y_true == np.array(["low"] * 5)  # noqa: B015


def test_labels_come_as_names_on_request(runs: FinishedRuns) -> None:
    named = FinishedRuns.of(with_names(runs))
    assert named.y_true.values[0].tolist() == ["low", "mid", "high", "mid", "low"]
    np.testing.assert_array_equal(named.label == named.y_true, runs.label == runs.y_true)
    kept = named.where(runs.vary == "train")
    assert float((kept.label == kept.y_true).mean()) == pytest.approx(0.5)
    assert int((named.y_true == "high").sum()) == 4
    with pytest.raises(UserError, match="compared with numbers"):
        named.label == runs.y_true  # noqa: B015
    with pytest.raises(UserError, match="compared with numbers"):
        named.label == 2  # noqa: B015


def test_what_a_mean_would_mix_is_said(runs: FinishedRuns) -> None:
    shown = repr(runs)
    assert "Runs of 2 cells, which differ in vary: " in shown
    assert "accuracy_by_cell()" in shown
    assert "1 runs are copies" not in shown
    assert "1 run is a copy" in shown
    assert "Runs of 2 cells" in runs._repr_html_()
    assert "Runs of" not in repr(runs.isel(run=[0, 1]))
    assert "copies" not in repr(runs.isel(run=[0, 1]))


def test_cells_are_averaged_by_one_call(runs: FinishedRuns) -> None:
    table = runs.accuracy_by_cell()
    assert table.columns == ["cell", "vary", "n_runs", "n_copies", "accuracy"]
    assert table.rows() == [
        (0, "init", 2, 0, pytest.approx(0.5)),
        (1, "train", 2, 1, pytest.approx(0.5)),
    ]


def test_accuracy_by_cell_is_that_of_the_table_of_cells(quick: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(quick.directory, tmp_path / "copy"))
    sweep.analyze(Options(metrics=("accuracy",)), workers=1)
    runs = sweep.runs("cancer", "xgb")
    found = runs.accuracy_by_cell()
    cells = sweep.results["cells"].filter(classifier="xgb").sort("cell")
    assert found.sort("cell")["accuracy"].to_list() == pytest.approx(
        cells["accuracy_mean"].to_list()
    )
    assert found["n_copies"].sum() == int(runs.is_copy.sum()) > 0
    assert {"train_fraction", "perturb_continuous"} <= {*found.columns}
    names = sweep.runs("cancer", "xgb", words=True)
    assert {*np.unique(names.y_true)} == {*runs.coords["class"].values}
    import manyseed.xarray

    assert manyseed.xarray
    data = xr.open_zarr(sweep.paths.store, group="cancer/xgb", consolidated=False)
    assert isinstance(data.manyseed.runs, FinishedRuns)
