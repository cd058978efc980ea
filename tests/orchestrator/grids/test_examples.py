"""The studies' grids have the studies' numbers of runs."""

from __future__ import annotations

import hashlib
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.options import Options
from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
from tests.analysis.samples import noisy, predictions, regular

EXAMPLES = Path(__file__).parents[3] / "examples"

ASKED = {
    "model-variance-preliminary": 2 * 4 * 8 * 7 * 10 * 10,
    "model-variance-small": 2 * 1 * 2 * 3 * 4 * 37 * 5 * 5,
    "model-variance-recommended": 3 * 2 * 2 * 3 * 4 * 37 * 10 * 10,
    "model-variance-maximal": 4 * 2 * 4 * 4 * 4 * 37 * 10 * 10,
    "cifar10-cnn-1600": 1600,
    "cifar10-sources-600": 3 * 200,
    "vit-transfer-90": 90,
    "fashion": 3 * (200 + 20) + 3 * 10,
    "looe-2024": 4 * 100,
    "invariance-cifar10": (4 * 2 + 3) * 3 * 2 * 9,
    "invariance-digits": 3 * 2 * 2 * 3 * 3,
    "pitfalls-cifar10": 4 * 128 + 5 * (4 * 4 + 4 + 4 + 2),
    "pitfalls-cifar100": 2 * (4 * 128 + 5 * (4 * 6 + 2)) + 5 * 4,
    "pitfalls-imagenet": 2 * (50 + 4) + 1,
    "pitfalls-digits": 2 * (7 * 5 + 60),
    "quickstart": (4 * 2 + 3 * 2) * 2 * 3 * 30 + 2 * 30,
}


def test_every_example_is_counted():
    assert {path.stem for path in EXAMPLES.glob("*.toml")} == set(ASKED) == set(ANALYSED)


# of networks, and the last members of snapshot, csgld, fge, fge-vgg, swag and vi
PITFALLS = {300, 400, 4000, 1698, 558, 359, 500}
OTHERS, HALF, LOO = "others", "half", "loo_ensemble"
ANALYSED = {
    "model-variance-preliminary": (OTHERS, {0, 20}, None, 10, 9, 45),
    "model-variance-small": (OTHERS, {0, 20}, None, 5, 4, 10),
    "model-variance-recommended": (OTHERS, {0, 20}, None, 10, 9, 45),
    "model-variance-maximal": (OTHERS, {0, 20}, None, 10, 9, 45),
    "cifar10-cnn-1600": (HALF, {50}, None, 800, 800, 0),
    "cifar10-sources-600": (HALF, {50}, None, 100, 100, 200 * 199 // 2),
    "fashion": (HALF, {0, 1, 2}, None, 100, 100, 200 * 199 // 2),
    "vit-transfer-90": (HALF, {5}, None, 45, 45, 90 * 89 // 2),
    "looe-2024": (LOO, {2, 50}, 50, 100, 99, 100 * 99 // 2),
    "invariance-cifar10": (OTHERS, {100}, None, 0, 0, 0),  # one network a configuration
    "invariance-digits": (OTHERS, {40}, None, 3, 2, 3),
    "pitfalls-cifar10": (OTHERS, PITFALLS, None, 5, 4, 10),
    "pitfalls-cifar100": (OTHERS, PITFALLS, None, 5, 4, 10),
    "pitfalls-imagenet": (OTHERS, {130, 7 * 45, 160 + 198, 130 + 45}, None, 0, 0, 0),
    "pitfalls-digits": (OTHERS, {500, 129, 60, 30, 40}, None, 5, 4, 10),
    "quickstart": (OTHERS, {0, 3, 5}, None, 6, 5, 15),
}
"""What α̂ compares with, epochs, the reference's; candidates, references, and pairs of a repeat."""


@pytest.mark.parametrize("name", ANALYSED)
def test_an_example_is_analysed_as_its_comments_say(name, planned):
    """The conventions that its file makes, tried on a repeat of as many runs on few points."""
    change = planned(name)
    kind, epochs, reference, candidates, references, pairs = ANALYSED[name]
    told = change.sweep.analysis.model_dump(exclude={"metrics"})
    options = Options(
        metrics=("accuracy", "agreement", "alpha_hat"),
        **{key: value for key, value in told.items() if value is not None} | {"resamples": 2},
    )
    assert (options.alpha_reference, options.epsilon) == (kind, 0.01)
    assert told["resamples"] in (None, 100)
    found = set()
    for spec in change.groups.specs:
        runs = regular(1, 1, 3)
        score, y_true = noisy(np.random.default_rng(0), runs, 12)
        kept = np.concatenate([score] * len(spec.epochs), axis=1)
        group = predictions(kept, y_true, runs, epochs=spec.epochs)
        found |= {spec.epochs[position] for position in group.positions(options)}
        place = group.reference_position(options)
        assert (None if place is None else spec.epochs[place]) == reference
        has_curves = change.sweep.keep.curves and spec.epochs != (0,)
        assert spec.curves == bool(has_curves) == (kind != OTHERS and spec.epochs != (0,))
    assert found == epochs
    runs = regular(1, 1, change.sweep.runs)
    score, y_true = noisy(np.random.default_rng(1), runs, 12)
    kept = np.concatenate([score] * len(spec.epochs), axis=1)
    group = predictions(kept, y_true, runs, epochs=spec.epochs)
    [tables] = compute([analyze_group(group, options)], scheduler="synchronous")
    per_epoch = len(group.positions(options))
    compared = tables.runs.drop_nulls("alpha_hat")
    assert compared.height == candidates * per_epoch
    found_references = compared["alpha_hat_references"].unique().to_list()
    assert found_references == ([references] if references else [])
    assert tables.pairs.height == pairs * per_epoch


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Plan an example without writing it."""
    weights = tmp_path / "torch/hub/checkpoints/swin_t-704ceda3.pth"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"any file: its digest is what a plan needs")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    for part, label, name in product(("train", "test"), ("n01440764", "n01443537"), range(3)):
        image = tmp_path / "imagenet" / part / label / f"{name}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (90, 80), (20 * name, 0, len(part))).save(image)
    monkeypatch.chdir(tmp_path)
    return lambda name: plan_change(EXAMPLES / f"{name}.toml", tmp_path / "sweep")


@pytest.mark.parametrize("name", ASKED)
def test_an_example_asks_for_exactly_the_studys_runs(name, tmp_path, planned):
    change = planned(name)
    assert change.expansion.asked == ASKED[name]
    assert len(change.added) == change.expansion.runs == change.summary()["runs"] <= ASKED[name]
    assert not list(tmp_path.rglob("data/*"))  # a plan that is only looked at keeps no weights


def test_counts_that_the_source_prints():
    printed = [ASKED[f"model-variance-{name}"] for name in ("preliminary", "small")]
    printed += [ASKED[f"model-variance-{name}"] for name in ("recommended", "maximal")]
    assert printed == [44_800, 44_400, 532_800, 1_894_400]


def test_only_what_cannot_act_makes_asked_and_distinct_differ(tmp_path):
    """Sets without categorical features have 1 level of the 2, without continuous ones 1 of 3."""
    change = plan_change(EXAMPLES / "model-variance-recommended.toml", tmp_path / "sweep")
    cells = 0
    for info in change.expansion.datasets.values():
        continuous = 3 if info.n_continuous else 1
        categorical = 2 if info.n_categorical else 1
        cells += continuous * categorical * 2 * 3 * 4
    assert change.summary()["cells"] == cells
    assert any("value:0.1" in note and "no categorical" in note for note in change.expansion.notes)


def test_a_plan_that_is_written_keeps_the_weights(tmp_path, monkeypatch):
    weights = tmp_path / "own.pth"
    weights.write_bytes(b"weights")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    text = (EXAMPLES / "vit-transfer-90.toml").read_text()
    table = "[classifier.vit-transfer]\n"
    assert table in text
    file = tmp_path / "sweep.toml"
    file.write_text(text.replace(table, f'{table}weights = "{weights}"\n'))
    plan_sweep(file, tmp_path / "sweep")
    [kept] = (tmp_path / "data" / "weights").iterdir()
    assert kept.stem == hashlib.sha256(weights.read_bytes()).hexdigest()
