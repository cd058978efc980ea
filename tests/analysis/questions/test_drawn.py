"""Noise and subsamples are drawn anew for each run: no spread or flip is of a source alone then."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from benchmarks.claims.noise import noisy, points_of, spread
from manyseed.analysis.axes import AXES
from manyseed.analysis.questions import hardpoints
from manyseed.analysis.questions.drawn import and_seeds, anew, drawn, drawn_in_all, varied
from manyseed.analysis.questions.flips import flips
from manyseed.analysis.questions.variance import OWN, TOGETHER, variance
from manyseed.orchestrator.results.answers.variance import VarianceSplit

PLAIN = dict.fromkeys(AXES, "none") | {"vary": "batch", "train_fraction": 1.0, "hparams": "default"}


@pytest.mark.parametrize(
    ("more", "words", "said"),
    [
        ({}, "", "batch"),
        ({"perturb_labels": "flip:0.3"}, "label noise", "batch + label noise"),
        (
            {"train_fraction": 0.5, "perturb_continuous": "relative:0.5"},
            "subsample + feature noise",
            "batch + subsample + feature noise",
        ),
        ({"perturb_hparams": "relative:0.1"}, "hparam noise", "batch + hparam noise"),
        ({"perturb_labels": "flip:0.3", "vary": "init*batch"}, "label noise", "init*batch"),
    ],
)
def test_what_is_drawn_anew_is_named(more, words, said):
    cell = pl.DataFrame([PLAIN | more])
    assert cell.select(drawn(cell.columns)).item() == words
    assert cell.select(varied(cell.columns)).item() == said
    assert drawn_in_all(cell) == ("" if "*" in said else words)


def test_what_is_drawn_anew_is_a_part_of_a_sentence():
    assert and_seeds("") == "seeds"
    assert and_seeds("subsample + label noise") == "seeds, subsample and label noise"
    assert anew("label noise") == "label noise is drawn anew for each run, whatever vary says"
    assert anew("subsample + label noise").startswith("subsample and label noise are drawn anew")


def test_a_spread_of_noise_is_not_that_of_the_source():
    (found,) = spread(noisy(0, source=0.0, noise=1.0))
    assert "label noise" in found.headline
    assert len(found.headline.split()) <= 20
    assert "label noise is drawn anew for each run, whatever vary says" in found.evidence
    (plain,) = spread(noisy(0, source=1.0, noise=0.0))
    assert "noise" not in f"{plain.headline}{plain.evidence}"
    (one,) = spread(noisy(0, source=1.0, noise=1.0, levels=("init+batch",)))
    assert one.headline.startswith("Between seeds and label noise, sd of accuracy")


def flips_told(found):
    (told,) = [
        one
        for one in hardpoints.answer(found.lazy(), hardpoints.by_point(found.lazy()))
        if one.headline.startswith("Of the flips seen")
    ]
    return told


def test_flips_of_noise_are_not_those_of_a_source_alone():
    told = flips_told(points_of(0, source=0.0, noise=0.3))
    assert "alone" not in told.headline
    assert "init + label noise 1" in told.headline
    assert "batch + label noise 1" in told.evidence
    assert "What a source flips alone is not told: label noise is drawn anew" in told.evidence
    assert "batch alone" in flips_told(points_of(0, source=0.3, noise=0.0)).headline


def test_noise_goes_with_a_crossed_train():
    pairs = pl.DataFrame(
        [
            PLAIN
            | {"vary": "init*train", "perturb_labels": "flip:0.1", "cell": 0, "repeat_index": 0}
            | {"run_i": i, "run_j": j, "churn": 0.1 * (i + j)}
            for i in range(4)
            for j in range(i + 1, 4)
        ]
    )
    (told,) = flips(pairs)
    assert "train + label noise " in told.headline
    assert "init alone " in told.headline
    assert "train alone" not in told.headline


def test_noise_on_other_rows_has_no_part_by_itself():
    """Its stream falls on other rows in each run, so what it does is not seen in its own part."""
    found = variance(noisy(0, source=0.0, noise=1.0, levels=("batch", "train", "batch+train")))
    own = found.filter(metric="accuracy")
    assert "perturb_labels" not in own.filter(part=OWN)["source"]
    assert own.filter(part=TOGETHER).is_empty()
    (told,) = VarianceSplit("", 2, tuple(found.iter_rows(named=True))).words.values()
    assert any(one.startswith("perturb_labels by itself: not told, as it is drawn") for one in told)
    # where all runs use the same rows, it has
    paired = variance(noisy(0, source=0.0, noise=1.0, levels=("init", "batch", "init+batch")))
    noise = paired.filter(metric="accuracy", part=OWN, source="perturb_labels")
    assert noise["share"].item() == pytest.approx(1.0)
    assert np.sqrt(noise["variance"].item()) == pytest.approx(0.01, rel=0.5)
