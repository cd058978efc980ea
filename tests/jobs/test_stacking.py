"""How many runs are tried at once, what is timed, and when a stack is chosen."""

from __future__ import annotations

import pytest

from manyseed.jobs import classifiers, datasets, stacking
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.stacking import best, seconds_a_run, sizes


def test_blocks_are_about_8_and_32_runs_and_even() -> None:
    tried = {runs: sizes(runs) for runs in (1, 2, 8, 10, 33, 100, 800)}
    assert tried == {
        1: (),
        2: (2,),
        8: (8,),
        10: (5, 10),
        33: (7, 17),
        100: (8, 25),
        800: (8, 32),
    }


@pytest.mark.parametrize(
    ("seconds", "runs", "chosen"),
    [
        ({1: 1.0, 5: 0.5, 10: 0.3}, 10, 10),
        ({1: 1.0, 5: 0.3, 10: 0.4}, 10, 5),
        ({1: 1.0, 5: 0.95, 10: 0.95}, 10, 1),  # hardly faster
        ({1: 1.0, 8: 0.6}, 9, 1),  # seven runs too many are trained
        ({1: 1.0}, 10, 1),
    ],
)
def test_the_fastest_form_of_all_runs_is_chosen_if_it_is_clearly_faster(
    seconds: dict[int, float], runs: int, chosen: int
) -> None:
    assert best(seconds, runs) == chosen


def test_single_runs_and_stacks_of_a_cell_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "_ROUNDS", 1)
    shape = datasets.resolve("synthetic:gaussian", n_samples=60, n_features=5)
    mlp = classifiers.resolve("mlp", {"hparams": {"width1": 32, "width2": 32}}, shape)
    cell = resolve_cell(1, shape, mlp).cell
    seconds = seconds_a_run(cell.canonical(), (2, 3))
    assert seconds.keys() == {1, 2, 3}
    assert all(each > 0 for each in seconds.values())
    monkeypatch.setattr(stacking, "_BYTES", 3 * 60 * 5 * 4 - 1)
    assert seconds_a_run(cell.canonical(), (2, 3)).keys() == {1, 2}


def test_networks_on_images_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "_ROUNDS", 1)
    digits = datasets.resolve("sklearn:digits")
    cnn = classifiers.resolve("cnn", {"epochs": 1}, digits)
    cell = resolve_cell(1, digits, cnn, train_fraction=40, augment="shift-x:0.2").cell
    assert seconds_a_run(cell.canonical(), (2,)).keys() == {1, 2}


def test_heads_are_timed_without_their_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "_ROUNDS", 1)
    cell = {
        "v": 1,
        "seed": 1,
        "dataset": dict(datasets.resolve("sklearn:digits").canonical),
        "classifier": {
            "name": "vit-transfer",
            "version": 1,
            "backbone": "swin_t",
            "epochs": 5,
            "weights": "of no file",
            "optimizer": "adam",
            "schedule": "constant",
        },
        "hparams": classifiers.CLASSIFIERS["vit-transfer"].anchors(),
        "perturb_continuous": "none",
        "perturb_categorical": "none",
        "perturb_hparams": "none",
        "train_fraction": 0.1,
        "vary": ["batch", "init"],
    }
    assert seconds_a_run(cell, (4,)).keys() == {1, 4}
