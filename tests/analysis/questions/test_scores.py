"""What scores of response curves tell, in sentences: planted corpora, and chance."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.questions.scores import is_single, judged, numbered, sentences, telling
from manyseed.analysis.response.corpora import information
from tests.analysis.planted import curves_of_depth

HPARAMS = ["hparam_depth", "hparam_width"]
SCORES = ("gi", "mean_accuracy", "end_accuracy")


def corpus(seed=0, runs=3, told=("gi",), transforms=("intra", "inter"), turned=False):
    """Return models whose gap the scores in `told` know; all others are noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for transform in transforms:
        for run in range(runs):
            for depth in range(4):
                for width in range(4):
                    for augment in ("none", "full"):
                        gap = float(np.clip(0.3 + rng.normal(0, 0.05) + 0.02 * depth, 0, 1))
                        scores = dict(zip(SCORES, rng.uniform(0.2, 0.8, 3).tolist(), strict=True))
                        for name in told:
                            sign = -1 if name.endswith("accuracy") != turned else 1
                            scores[name] = 0.5 + sign * (gap - 0.3) + rng.normal(0, 0.01)
                        rows.append(
                            {
                                "dataset": "d", "classifier": "c", "transform": transform,
                                "layer": 0, "repeat_index": 0, "run_index": run,
                                "augment": augment, "hparam_depth": depth, "hparam_width": width,
                                "gap": gap, "gi_folded": None, "pal": None, "pal_printed": None,
                                "shifted_train_accuracy": None, "dbi": None,
                                "train_accuracy": 1.0, **scores,
                            }
                        )  # fmt: skip
    kinds = dict.fromkeys(("gi_folded", "pal", "pal_printed", "dbi"), pl.Float64)
    return pl.DataFrame(rows, schema_overrides={"layer": pl.UInt8, **kinds})


def test_a_planted_score_is_told_and_the_others_are_not():
    found = information(corpus(), HPARAMS, permutations=100)
    (one,) = telling(found)
    assert (one.compared, one.telling, one.silent) == (6, 2, [])
    assert {row["measure"] for row in one.leading} == {"gi"}
    assert [row["near"] for row in one.leading] == [0, 0]
    ((text, links),) = sentences(found)
    assert text.startswith("Of 6 scores of response curves of d × c, 2 tell beyond chance")
    best = max(one.leading, key=lambda row: row["cmi"])
    cmi = f"{best['cmi']:.0f} ± {best['cmi_sd']:.0f}"
    assert f"for {best['transform']}, the largest cmi so far is that of gi, {cmi}" in text
    assert "n = 96 models" in text
    assert "reversed" not in text
    place = numbered(found).filter(transform=best["transform"])["number"][0]
    assert links == (f"response-gap-{place}", "response-measures", "conventions")


def test_a_transform_of_which_nothing_is_told_is_named():
    both = pl.concat([corpus(transforms=("intra",)), corpus(1, told=(), transforms=("inter",))])
    ((text, _),) = sentences(information(both, HPARAMS, permutations=100))
    assert "No score for inter does." in text


def test_a_score_that_runs_against_its_promise_is_called_so():
    found = information(corpus(turned=True), HPARAMS, permutations=50)
    ((text, _),) = sentences(found)
    assert "reversed: the gap is smaller where the score predicts a larger one" in text


def test_one_seed_does_not_tell_how_much_seeds_change():
    ((text, _),) = sentences(information(corpus(runs=1), HPARAMS, permutations=100))
    assert "so its spread over seeds is unknown" in text
    assert "±" not in text


def test_scores_as_good_as_the_best_are_counted():
    found = information(corpus(told=("gi", "mean_accuracy")), HPARAMS, permutations=50)
    rows = [{**row, "cmi_sd": 30.0} for row in found.iter_rows(named=True)]
    (one,) = telling(pl.DataFrame(rows, schema=found.schema))
    assert [row["near"] for row in one.leading] == [1, 1]


def test_nothing_is_said_where_nothing_is_told():
    found = information(corpus(told=()), HPARAMS, permutations=100)
    assert list(sentences(found)) == []
    few = information(corpus().head(6), HPARAMS)
    assert judged(few)["beyond"].null_count() == few.height
    assert list(sentences(few)) == []
    assert list(sentences(few.clear())) == []


def test_combinations_are_judged_by_their_null_and_never_named():
    found = judged(information(corpus(), HPARAMS, permutations=50))
    combined = found.filter(~is_single())
    assert combined.height
    assert combined["sure"].null_count() == combined.height
    assert combined["beyond"].null_count() == 0
    assert (found.filter("sure")["cmi"] > found.filter("sure")["null_q95"]).all()


def test_what_depth_says_is_not_said_of_scores_of_depth():
    """Six scores that are depth and noise, of a gap of depth; a claim in 5 % of corpora at most."""
    claims = sum(
        bool(list(sentences(information(curves_of_depth(seed), HPARAMS, permutations=60))))
        for seed in range(6)
    )
    assert claims <= 1
    ((text, _),) = sentences(
        information(curves_of_depth(told=0.9, per_depth=24), HPARAMS, permutations=60)
    )
    assert "the largest cmi so far is that of gi" in text


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 2])
def test_noise_is_told_of_in_few_corpora(runs):
    """40 corpora of noise, 6 scores each: a claim in at most the 5 % that are promised, roughly."""
    claims = sum(
        bool(list(sentences(information(corpus(seed, runs, ()), HPARAMS, permutations=100))))
        for seed in range(40)
    )
    assert claims <= 6  # of a binomial of 40 and .05 in 98 %
