"""Cells in columns are exactly the cells that `jobs` resolves one by one."""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs import classifiers, datasets
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.run import Cell, canonical_json
from manyseed.jobs.tuning import search_id
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.expansion import expand
from manyseed.orchestrator.grids.resolver import Resolver
from manyseed.orchestrator.grids.sweepfile import SweepFile

HERE = Path("sweep.toml")
CHOICES = {
    "dataset": ["vehicle", "kr-vs-kp", "anneal", "sklearn:wine"],
    "classifier": ["lr-sgd", "xgb", "mlp"],
    "train_fraction": [0.25, 1, 100, 1.0, 0.5],
    "perturb_continuous": ["none", "relative:.10", "sig-digit:0", "neighbour:1"],
    "perturb_categorical": ["none", "label:0.1", "sample:.2"],
    "perturb_hparams": ["none", "sig-digit:0", "absolute:0.1", "relative:0.2:scaled"],
    "vary": ["init+batch", "batch+init", "train", "init"],
    "perturb_labels": ["none", "flip:.1", "pairs:0.2"],
}


def sweep(*grids, **rest):
    whole = {"name": "x", "seed": 3, "repeats": 2, "runs": 3, "grid": list(grids), **rest}
    return SweepFile.model_validate(whole)


@settings(deadline=None, max_examples=40)
@given(
    st.fixed_dictionaries(
        {
            axis: st.lists(st.sampled_from(values), min_size=1, max_size=2, unique_by=str)
            for axis, values in CHOICES.items()
        }
    )
)
def test_cells_identities_and_marks_are_those_of_one_by_one_resolution(lists):
    if lists["train_fraction"] in ([1, 1.0], [1.0, 1]):
        return  # the same number twice
    expected = {}
    for values in itertools.product(*(lists[axis] for axis in CHOICES)):
        named = dict(zip(CHOICES, values, strict=True))
        dataset = datasets.resolve(named.pop("dataset"))
        classifier = classifiers.resolve(named.pop("classifier"), {}, dataset)
        resolved = resolve_cell(3, dataset, classifier, **named)
        expected.setdefault(resolved.cell.id, (values[:2], resolved))
    cells = expand(sweep(lists), HERE).cells
    assert cells["cell_id"].to_list() == list(expected)
    for row, (names, resolved) in zip(cells.iter_rows(named=True), expected.values(), strict=True):
        assert (row["dataset"], row["classifier"]) == names
        assert row["canonical"] == canonical_json(resolved.cell.canonical()).decode()
        assert row["identical"] == resolved.identical
        assert row["train_fraction"] == resolved.cell.train_fraction
        assert row["perturb_hparams"] == resolved.cell.perturb_hparams
        assert sorted(row["vary"].split("+")) == sorted(resolved.cell.vary)


def test_descriptions_and_identities_are_frozen():
    axes = {**CHOICES, "train_fraction": [0.25, 1, 100], "vary": ["init+batch", "train"]}
    axes["dataset"] = ["vehicle", "anneal", "sklearn:wine"]
    axes["perturb_labels"] = ["none"]  # an axis that came later
    cells = expand(sweep({**axes, "hparams": ["default", "tuned"]}, tune={"draws": 7}), HERE).cells
    assert len(cells) == 2880
    for column, digest in (("cell_id", "b30ac278a8806999"), ("canonical", "ff457783edbafbf1")):
        text = "\n".join(cells[column]).encode()
        assert hashlib.sha256(text).hexdigest()[:16] == digest, column


def test_anchors_of_a_file_are_frozen_in_default_and_tuned_cells():
    """What the file fixes is a part of both, whose defaults they are decides the others."""
    grid = {
        "dataset": ["sklearn:digits"],
        "classifier": ["mlp", "lr-sgd", "xgb", "small", "vit"],
        "hparams": ["default", "tuned"],
        "perturb_hparams": ["none", "relative:0.1"],
    }
    plain = {"dataset": ["sklearn:digits"], "classifier": ["library"]}
    tables = {
        "mlp": {"epochs": 3, "hparams": {"lr": 1e-3, "width1": 64}},
        "lr-sgd": {"hparams": {"penalty": "elasticnet", "alpha": 0.01}},
        "xgb": {"hparams": {"max_depth": 3, "subsample": 0.5}},
        "small": {"kind": "cnn", "hparams": {"batch": 16}},
        "library": {"kind": "xgb", "defaults": "library", "hparams": {"eta": 0.1}},
    }
    cells = expand(sweep(grid, plain, classifier=tables), HERE).cells
    assert len(cells) == 5 * 2 * 2 + 1
    for column, digest in (("cell_id", "7946a6b3a3f1500a"), ("canonical", "49194058fb06a38f")):
        text = "\n".join(cells[column]).encode()
        assert hashlib.sha256(text).hexdigest()[:16] == digest, column


def test_runs_that_two_grids_ask_for_exist_once_with_the_larger_extent():
    one = {
        "dataset": ["vehicle"],
        "classifier": ["xgb"],
        "perturb_continuous": ["none", "relative:0.1"],
    }
    two = {"dataset": ["vehicle"], "classifier": ["xgb"], "runs": 7}
    found = expand(sweep(one, two), HERE)
    assert found.asked == 2 * 2 * 3 + 2 * 7
    assert found.cells.select("perturb_continuous", "repeats", "runs").rows() == [
        ("none", 2, 7),
        ("relative:0.1", 2, 3),
    ]


def test_a_second_name_for_the_same_fits_is_named():
    grid = {"dataset": ["vehicle", "again"], "classifier": ["xgb", "trees"]}
    found = expand(
        sweep(
            grid,
            dataset={"again": {"source": "openml:vehicle@2"}},
            classifier={"trees": {"kind": "xgb"}},
        ),
        HERE,
    )
    assert len(found.cells) == 1
    assert sum("is the same as xgb on vehicle" in note for note in found.notes) == 3


def test_an_official_test_set_makes_one_repeat_and_a_note():
    table = {"source": "torchvision:CIFAR10", "test": "official"}
    found = expand(
        sweep({"dataset": ["cifar"], "classifier": ["cnn"]}, dataset={"cifar": table}), HERE
    )
    assert (found.asked, found.runs) == (3, 3)
    assert any("one repeat" in note for note in found.notes)


@pytest.mark.parametrize(("repeats", "made"), [(2, 2), (3, 3), (5, 3)])
def test_repeats_are_those_asked_for_or_as_many_as_official_test_sets(repeats, made, monkeypatch):
    real = Resolver.dataset

    def with_three(self, name, where):
        return replace(real(self, name, where), n_test_sets=3)

    monkeypatch.setattr(Resolver, "dataset", with_three)
    grid = {"dataset": ["vehicle"], "classifier": ["lr-sgd"]}
    assert expand(sweep(grid, repeats=repeats), HERE).cells["repeats"].to_list() == [made]


def test_few_steps_an_epoch_are_told_where_a_batch_makes_them():
    """Digits have 1348 training rows."""

    def told(**grid):
        lists = {"dataset": ["sklearn:digits"], "classifier": ["resnet"], **grid}
        table = {"hparams": {"width": 4}, "grid": {"batch": [256, 512, 2048]}}
        notes = expand(sweep(lists, classifier={"resnet": table}), HERE).notes
        return [note.removeprefix("resnet takes ") for note in notes if "per epoch on" in note]

    of_all = "1,348 rows in batches of"
    assert told() == [f"2 steps per epoch on sklearn:digits: {of_all} 1,024"]
    assert told(hparams=["grid"]) == [f"1 step per epoch on sklearn:digits: {of_all} 2,048"]
    assert told(hparams=["batch=512"]) == [f"3 steps per epoch on sklearn:digits: {of_all} 512"]
    assert told(hparams=["batch=256"]) == []
    few = told(hparams=["batch=256"], train_fraction=[1.0, 0.5])
    assert few == ["3 steps per epoch on sklearn:digits: 674 rows in batches of 256"]


def test_a_number_of_rows_that_may_be_meant_as_a_percentage_is_told():
    def found(*values):
        grid = {"dataset": ["vehicle"], "classifier": ["lr-sgd", "xgb"]}
        return expand(sweep({**grid, "train_fraction": list(values)}), HERE)

    (info,) = found(50).datasets.values()
    of = f"of {info.n_train:,}"
    above = "vehicle: a train_fraction above 1 is a number of rows: "
    assert f"{above}50 {of}; for 50 % write 0.5" in found(50).notes
    assert f"{above}5, 50 {of}; for 5 % write 0.05" in found(5, 0.5, 50).notes
    assert not any("above 1" in note for note in found(50).unexpected)
    for values in ((0.5,), (1.0, 101)):
        assert not any("above 1" in note for note in found(*values).notes)


def test_a_tuned_cell_holds_the_search_and_not_what_it_will_find():
    grid = {
        "dataset": ["vehicle", "kc1"],
        "classifier": ["mlp", "xgb"],
        "hparams": ["default", "tuned"],
        "perturb_hparams": ["none", "relative:0.1"],
    }
    found = expand(
        sweep(grid, tune={"draws": 150}, classifier={"mlp": {"hparams": {"width1": 64}}}), HERE
    )
    assert len(found.cells) == 16
    assert found.searches == 4
    tuned = {
        row["classifier"]: row["canonical"]
        for row in found.cells.iter_rows(named=True)
        if row["hparams"] == "tuned"
    }
    assert '"hparams":{"tuned":{"draws":150,"space":1},"width1":64}' in tuned["mlp"]
    assert '"hparams":{"tuned":{"draws":150,"space":1}}' in tuned["xgb"]
    assert not found.cells.filter(hparams="tuned")["identical"].any()
    assert found.cells["cell_id"].n_unique() == 16


def test_searches_as_for_runs_are_counted_by_how_data_are_made():
    grid = {
        "dataset": ["vehicle"],
        "classifier": ["xgb"],
        "hparams": ["default", "tuned"],
        "train_fraction": [1, 0.5],
        "perturb_continuous": ["none", "relative:0.1"],
        "perturb_hparams": ["none", "relative:0.1"],
        "vary": ["init+batch", "batch", "init+batch+train"],
    }
    found = [
        expand(sweep(grid, tune={"draws": 9} | more), HERE)
        for more in ({}, {"data": "whole"}, {"data": "runs"}, {"data": "runs", "hours": 2})
    ]
    assert [each.searches for each in found] == [1, 1, 8, 8]
    described = [each.cells.filter(hparams="tuned")["canonical"][0] for each in found]
    assert described[0] == described[1]  # the old meaning is not written
    assert '"hparams":{"tuned":{"draws":9,"space":1}}' in described[1]
    assert '"hparams":{"tuned":{"data":"runs","draws":9,"space":1}}' in described[2]
    assert '"hparams":{"tuned":{"data":"runs","draws":9,"hours":2.0,"space":1}}' in described[3]
    for each in found[2:]:
        ids = {
            search_id(Cell.from_text(text))
            for text in each.cells.filter(hparams="tuned")["canonical"]
        }
        assert len(ids) == each.searches


def test_tables_that_no_grid_uses_and_samples_that_no_class_takes_are_named():
    table = {"source": "sklearn:digits", "classes": {"a": ["0"], "b": ["1"]}}
    found = expand(
        sweep(
            {"dataset": ["d"], "classifier": ["xgb"]},
            dataset={"d": table, "other": {"source": "sklearn:wine"}},
            classifier={"mlp": {"epochs": 3}},
        ),
        HERE,
    )
    assert "[dataset.other] is used by no grid" in found.notes
    assert "[classifier.mlp] is used by no grid" in found.notes
    assert any(
        "1,437 samples are left out: classes does not list theirs" in note for note in found.notes
    )


def test_a_single_sample_that_no_class_takes_is_told_in_the_singular(tmp_path: Path) -> None:
    rows = "".join(f"{n}.5,{'ab'[n % 2]}\n" for n in range(40))
    (tmp_path / "few.csv").write_text(f"x,y\n{rows}7.5,c\n")
    table = {"source": f"file:{tmp_path}/few.csv", "target": "y"}
    table |= {"classes": {"a": ["a"], "b": ["b"]}}
    grid = {"dataset": ["d"], "classifier": ["lr-sgd"]}
    found = expand(sweep(grid, dataset={"d": table}), HERE)
    assert any("1 sample is left out: classes does not" in note for note in found.notes)


def test_device_and_keep_are_requests_that_change_no_identity():
    grid = {"dataset": ["vehicle"], "classifier": ["mlp"]}
    plain = expand(sweep(grid), HERE)
    other = expand(
        sweep(
            grid, keep={"scores": "none"}, classifier={"mlp": {"device": "gpu", "snapshots": [2]}}
        ),
        HERE,
    )
    assert plain.cells["cell_id"].to_list() == other.cells["cell_id"].to_list()
    assert other.classifiers["mlp", "vehicle"].device == "gpu"


def test_a_table_without_source_is_about_the_source_of_its_name():
    found = expand(
        sweep({"dataset": ["vehicle"], "classifier": ["xgb"]}, dataset={"vehicle": {"test": 100}}),
        HERE,
    )
    assert found.datasets["vehicle"].n_test == 100


def test_the_larger_extent_must_be_larger_in_both():
    one = {"dataset": ["vehicle"], "classifier": ["xgb"], "repeats": 1, "runs": 9}
    with pytest.raises(UserError, match="two grids ask for the same cell"):
        expand(sweep(one, replace_extent(one)), HERE)


def replace_extent(grid):
    return {**grid, "repeats": 2, "runs": 3}


def test_every_impossible_pair_is_named_with_the_rules_that_leave_them_out():
    datasets_ = ["vehicle", "kc1", "car", "adult", "sklearn:digits"]
    grid = {"dataset": datasets_, "classifier": ["cnn", "vit", "xgb"]}
    with pytest.raises(UserError) as error:
        expand(sweep(grid), HERE)
    text = str(error.value)
    for part in ("cnn × vehicle", "cnn × adult", "vit × vehicle", "vit × car"):
        assert part in text, part
    assert "sklearn:digits" not in text
    rules = tomllib.loads("exclude = " + text.partition("exclude = ")[2])["exclude"]
    left = expand(sweep({**grid, "exclude": rules}), HERE).cells
    assert set(left.select("dataset", "classifier").iter_rows()) == {
        *((dataset, "xgb") for dataset in datasets_),
        ("sklearn:digits", "cnn"),
        ("sklearn:digits", "vit"),
    }


def test_library_defaults_are_cells_of_their_own_and_neither_perturbed_nor_tuned():
    grid = {"dataset": ["vehicle"], "classifier": ["xgb", "xgb-library"]}
    table = {"xgb-library": {"kind": "xgb", "defaults": "library"}}
    cells = expand(sweep(grid, classifier=table), HERE).cells
    assert cells["cell_id"].n_unique() == 2
    for axis, value in (("perturb_hparams", "relative:0.1"), ("hparams", "tuned")):
        with pytest.raises(UserError, match="xgb-library") as error:
            expand(sweep({**grid, axis: [value]}, classifier=table), HERE)
        assert (error.value.key, error.value.value) == (f"grid[0].{axis}", value)
        rule = tomllib.loads("exclude = " + error.value.remedy.partition("exclude = ")[2])
        left = expand(sweep({**grid, axis: [value], **rule}, classifier=table), HERE)
        assert left.cells["classifier"].to_list() == ["xgb"]
