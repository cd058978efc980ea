"""The model of a run as a file: what is loaded predicts what is stored, and nothing is executed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xgboost

from manyseed.jobs import parameters
from manyseed.jobs.classifiers.xgb import _matrix
from manyseed.jobs.trainer import Trainer
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.runs import find_run
from manyseed.orchestrator.store.groups import open_group
from manyseed.orchestrator.store.reader import read_rows
from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.conftest import inside, train, write

NET = """
name    = "net"
seed    = 5
repeats = 1
runs    = 1

[[grid]]
dataset        = ["digits"]
classifier     = ["net"]
train_fraction = [60]

[dataset.digits]
source = "sklearn:digits"
test   = 0.1

[classifier.net]
kind    = "convnet"
epochs  = 1
hparams = { depth = 1, width = 3, batch_norm = true }

[response]
transforms      = ["intra"]
pair_magnitudes = 3
rows            = 20
"""


def addresses(sweep: Sweep, classifier: str) -> list[str]:
    cells = Plan.read(sweep.paths).cells.filter(classifier=classifier)["cell"].to_list()
    return [f"{cell}:1:1" for cell in cells]


def stored_margins(sweep: Sweep, address: str) -> np.ndarray:
    found = find_run(sweep.paths, address)
    group = open_group(sweep.paths.store, found.spec.path)
    return read_rows(group, ["margin"], [found.row])["margin"][0, 0]


def test_trees_are_saved_as_xgboost_s_json(quick: Sweep, tmp_path: Path) -> None:
    address, file = addresses(quick, "xgb")[-1], tmp_path / "model.json"
    code, told = inside("rerun", quick.directory, address, "--save", file, "--check", "--json")
    assert code == 0, told
    assert json.loads(told)["equal"]
    assert json.loads(file.read_text())["learner"]
    data = Trainer().training_set(find_run(quick.paths, address).fitted)
    margins = xgboost.Booster(model_file=str(file)).predict(
        _matrix(data.X_test, data.cardinality), output_margin=True
    )
    np.testing.assert_array_equal(margins, stored_margins(quick, address))


def test_a_linear_model_is_saved_as_its_arrays(quick: Sweep, tmp_path: Path) -> None:
    address, file = addresses(quick, "lr-sgd")[0], tmp_path / "model.npz"
    assert quick.rerun(address, save=file)["equal"]
    with np.load(file, allow_pickle=False) as arrays:
        assert {name: arrays[name].shape for name in arrays} == {
            "coef": (1, 30),
            "intercept": (1,),
        }


def test_a_network_is_saved_as_its_state_dict_or_arrays(tmp_path: Path) -> None:
    sweep = train(write(tmp_path / "net.toml", NET), tmp_path / "sweep")
    assert sweep.rerun("0:0:0", tmp_path / "a.pt")["equal"]  # with what it was asked
    state = torch.load(tmp_path / "a.pt", weights_only=True)
    sweep.rerun("0:0:0", tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert [*arrays] == [*state]
        for name, values in state.items():
            np.testing.assert_array_equal(arrays[name], values.numpy())
    assert state["norm1.num_batches_tracked"] == 2
    told = sweep.show("0:0:0")["model"]
    assert told["save"] == f"manyseed rerun {sweep.directory} 0:0:0 --save model.pt"
    assert told["load"] == "torch.load('model.pt', weights_only=True)"
    assert not list(tmp_path.glob(".*partial"))


def test_files_that_cannot_be_the_models_are_refused_before_training(
    quick: Sweep, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(Trainer, "train", None)
    address = addresses(quick, "xgb")[0]
    there = tmp_path / "there.json"
    there.write_text("mine")
    for file, told in (
        (
            tmp_path / "a.pt",
            r"models of xgb are saved in another form",
        ),
        (there, "exists already"),
    ):
        with pytest.raises(UserError, match=told):
            quick.rerun(address, file)
    assert there.read_text() == "mine"
    code, told = inside("rerun", quick.directory, address, "--save", quick.paths.plan / "a.json")
    assert code == 2
    assert "is among the sweep's own files" in told
    assert quick.show(address)["model"]["load"] == "xgboost.Booster(model_file='model.json')"


def test_what_each_kind_is_saved_as() -> None:
    own = {"own": 1, "name": "m:F", "form": "estimator"}
    assert parameters.endings(own) == (".skops",)
    assert parameters.endings({**own, "form": "train"}) == ()
    assert parameters.endings({"source": "imported"}) == ()
    for one in (".pt", ".npz", ".json", ".skops"):
        assert "FILE" in parameters.READ[one]
