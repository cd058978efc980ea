"""What a sweep says in sentences: true of what was planted, silent where nothing can be said."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

from manyseed.analysis.options import Options
from manyseed.analysis.questions.accuracy import Accuracies, Mean, verdict
from manyseed.analysis.questions.classifiers import answer_spread, block, of_few_runs, spreads
from manyseed.analysis.questions.drawn import anew_in
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.questions.howmany import for_mean
from manyseed.analysis.questions.intervals import of_variance
from manyseed.analysis.questions.question import WORDS, Evidence, all_or_first, answers
from manyseed.analysis.questions.ranking import outlying
from manyseed.analysis.questions.standings import (
    Standing,
    Standings,
    critical_difference,
    in_words,
    standings,
)
from manyseed.analysis.questions.variance import variance as split
from manyseed.analysis.tables.rows import Tables
from tests.analysis.planted import equal_runs, one_apart, planted

OPTIONS = Options()


def said(tables, variance=None, **counts):
    """The sentences by what they are about."""
    found = answers(tables, effects(tables, by=("classifier",)), variance, OPTIONS, **counts)
    return {one.about: one.text for one in found}


def of_classifier(**values):
    return lambda dataset, classifier, *_: values[classifier]


def without(tables, gone):
    """Tables without the cells that meet a condition."""
    kept = tables.cells.filter(~gone).select("cell")
    return Tables(
        *(
            getattr(tables, name).join(kept, on="cell", how="semi", maintain_order="left")
            for name in ("runs", "pairs", "repeats", "cells")
        )
    )


def test_the_classifier_that_varies_most_is_named_with_its_interval():
    tables = planted(
        datasets=2, classifiers=("a", "b", "c"), sd=of_classifier(a=0.02, b=0.01, c=0.005)
    )
    text = said(tables)["spread"]
    start = "Between seeds, the accuracy of a varies most, with a standard deviation of 0.0"
    assert text.startswith(start)
    assert "and that of c least, with 0.00" in text
    assert "over 60 runs of each on the 2 cells that all 3 have" in text
    assert "for the ratio over all 3 pairs of classifiers together" in text
    found = spreads(tables)
    assert found.low > 1
    assert found.low < 4 < found.high
    for row, planted_sd in zip(found.rows, (0.02, 0.01, 0.005), strict=True):
        own = tables.runs.filter(classifier=row.classifier)
        variances = own.group_by("cell", "repeat_index").agg(pl.col("accuracy").var())["accuracy"]
        assert row.sd == pytest.approx(math.sqrt(variances.mean()))
        assert row.low < planted_sd < row.high


def test_repeats_with_few_runs_count_for_a_spread_as_in_tables():
    tables = planted(classifiers=("a", "b"), repeats=4, sd=of_classifier(a=0.02, b=0.01))
    kept = pl.Series([5, 3, 6, 2]).gather(tables.runs["repeat_index"].cast(pl.UInt32))
    lacks = (tables.runs["classifier"] == "b") & (tables.runs["run_index"] >= kept)
    runs = tables.runs.filter(~lacks)
    n = runs.group_by("cell", "repeat_index").agg(n=pl.len().cast(pl.UInt32))
    repeats = tables.repeats.join(n, on=["cell", "repeat_index"], maintain_order="left")
    repeats = repeats.with_columns(n_runs="n", n_distinct="n").drop("n")
    lacking = Tables(runs, tables.pairs, repeats, tables.cells)
    (one, other) = spreads(lacking).rows
    own = runs.filter(classifier="b").group_by("repeat_index")
    own = own.agg(n=pl.len(), variance=pl.col("accuracy").var())
    pooled = (own["variance"] * (own["n"] - 1)).sum() / (own["n"] - 1).sum()
    assert (one.classifier, one.runs, other.classifier, other.runs) == ("a", 40, "b", 16)
    assert other.sd == pytest.approx(math.sqrt(pooled))
    assert other.low < 0.01 < other.high
    assert "over 16 to 40 runs of each on the 1 cell that both have" in said(lacking)["spread"]


def test_configurations_are_models_whose_spreads_are_told():
    tables = planted(
        datasets=2, classifiers=("a", "b", "c"), sd=of_classifier(a=0.02, b=0.01, c=0.01)
    )
    level = pl.when(pl.col("classifier") == "a").then(pl.lit("width=8"))
    level = level.when(pl.col("classifier") == "b").then(pl.lit("width=64")).otherwise("hparams")
    name = pl.when(pl.col("classifier") == "c").then(pl.lit("c")).otherwise(pl.lit("net"))
    of_one = (level.alias("hparams"), name.alias("classifier"))
    frames = [getattr(tables, name) for name in ("runs", "pairs", "repeats", "cells")]
    made = Tables(
        *(one.with_columns(*of_one) if "hparams" in one.columns else one for one in frames)
    )
    names = [row.classifier for row in spreads(made).rows]
    assert names[0] == "net width=8"
    assert {*names} == {"net width=8", "net width=64", "c"}
    told = said(made)["spread"]
    assert "the accuracy of net width=8 varies most" in told
    few = without(made, pl.col("dataset") != made.cells["dataset"][0])
    few = Tables(few.runs, few.pairs, few.repeats.group_by("cell").head(1), few.cells)
    found, *_ = of_few_runs(few)
    assert {row.classifier for row in found} == {*names}


@pytest.mark.parametrize(
    ("sds", "claims"),
    [
        (
            {"a": 0.02, "b": 0.02, "c": 0.004},
            ("varies more than that of c,", "Which of {} and {} varies most cannot be told."),
        ),
        (
            {"a": 0.02, "b": 0.004, "c": 0.004},
            ("the accuracy of a varies most,", "Which of {} and {} varies least cannot be told."),
        ),
    ],
)
def test_spreads_that_are_the_same_share_no_superlative(sds, claims):
    tables = planted(datasets=2, classifiers=tuple(sds), sd=of_classifier(**sds))
    text = said(tables)["spread"]
    names = [row.classifier for row in spreads(tables).rows]
    pair = names[:2] if sds["a"] == sds["b"] else names[1:]
    assert claims[0] in text
    assert claims[1].format(*pair) in text
    assert ("varies most," in text) is (sds["a"] != sds["b"])
    assert ("of c varies least" in text) is (sds["a"] == sds["b"])


def test_runs_that_are_all_equal_have_no_spread_to_compare():
    """A mean of equal accuracies may differ from them by rounding, which is no spread."""
    sds = {"a": 0.02, "b": 0.01, "c": 0.0}
    tables = planted(datasets=2, classifiers=tuple(sds), sd=of_classifier(**sds))
    found = spreads(tables)
    assert [row.classifier for row in found.rows] == ["a", "b"]
    assert [one.classifier for one in found.alike] == ["c"]
    assert found.ratio == pytest.approx(2, rel=0.4)
    text = said(tables)["spread"]
    assert "the accuracy of a varies most of those whose runs differ" in text
    assert "least" not in text
    assert "all 60 runs of c are equal on their test sets, while up to 5% of further" in text
    alone = said(planted(classifiers=("a", "c"), sd=of_classifier(a=0.02, c=0.0)))["spread"]
    assert alone.startswith("Between seeds, the accuracy of a varies with a standard deviation")
    assert "runs of c are equal" in alone
    none = said(planted(classifiers=("a", "c"), sd=of_classifier(a=0.0, c=0.0)))["spread"]
    assert none.startswith("The accuracies of all 30 runs of a are equal")
    assert "standard deviation" not in none


def test_a_spread_below_one_test_point_is_not_compared():
    made = planted(classifiers=("a", "b", "c"), sd=of_classifier(a=0.1, b=0.05, c=0.01))
    made = replace(made, repeats=made.repeats.with_columns(n_test=pl.lit(40, pl.UInt32)))
    found = spreads(made)
    assert ([row.classifier for row in found.rows], found.alike[0].step) == (["a", "b"], 1 / 40)
    text = said(made)["spread"]
    assert "varies most of those whose runs differ enough" in text
    assert " least" not in text.partition("The standard deviation")[0]
    assert re.search(
        r"The standard deviation of 30 runs of c, 0\.\d+, is below one test point", text
    )


def test_a_spread_is_below_one_test_point_if_it_is_so_on_each_data_set():
    made = planted(datasets=2, classifiers=("a", "c"), sd=of_classifier(a=0.1, c=0.01))
    first = pl.col("dataset") == "data-00"
    for second, alike in ((4000, []), (40, ["c"])):
        n = pl.when(first).then(40).otherwise(second).cast(pl.UInt32)
        found = spreads(replace(made, repeats=made.repeats.with_columns(n_test=n)))
        assert [one.classifier for one in found.alike] == alike
        assert all(one.sd < one.step for one in found.alike)


@pytest.mark.slow
def test_of_two_that_vary_equally_neither_is_said_to_vary_most():
    """60 sweeps in which a and b vary equally and c less; 5 % of false claims are promised."""
    false = 0
    for seed in range(60):
        tables = planted(
            datasets=2,
            classifiers=("a", "b", "c"),
            sd=of_classifier(a=0.02, b=0.02, c=0.005),
            seed=seed,
        )
        found = spreads(tables)
        false += not found.like_first
        assert found.like_last == ()
    assert false <= 7


def test_cells_with_perturbed_hparams_say_nothing_of_seeds():
    spread = of_classifier(a=0.01, b=0.02)
    tables = planted(classifiers=("a", "b"), schemes=("none", "strong"), sd=spread)
    usual = pl.col("perturb_continuous") == "none"
    perturbed = pl.when(usual).then(pl.lit("none")).otherwise(pl.lit("relative:0.5"))
    cells, repeats = (
        getattr(tables, name).with_columns(perturb_hparams=perturbed)
        for name in ("cells", "repeats")
    )
    found = spreads(Tables(tables.runs, tables.pairs, repeats, cells))
    assert found == spreads(without(tables, ~usual))
    assert spreads(Tables(tables.runs, tables.pairs, repeats, cells.filter(~usual))) is None


def test_skewed_accuracies_are_told():
    """Of 2 datasets and 3 schemes of 60 runs each, around exponential ones."""
    size = {"datasets": 2, "schemes": ("none", "x", "y"), "repeats": 3, "runs": 20}
    skewed = planted(**size, noise=lambda rng, shape: rng.exponential(size=shape) - 1)
    assert "these are skewed, so it may miss" in said(skewed)["spread"]
    assert "skewed" not in said(planted(**size))["spread"]
    (one, other) = spreads(skewed).rows
    assert min(one.skewness, other.skewness) > 1.2  # 2, less what few runs a repeat take off


def test_spreads_that_are_alike_are_not_told_apart():
    text = said(planted(datasets=2))["spread"]
    assert text.startswith("Which classifier's accuracy varies most between seeds cannot be told")
    assert "over over" not in text


@pytest.mark.parametrize("classifiers", [("a",), ("a", "b")])
def test_spreads_are_not_compared_of_few_runs(classifiers):
    tables = planted(classifiers=classifiers, runs=3)
    assert spreads(tables) is None
    assert "most not told" not in dict(headlines(tables))["spread"]
    assert "spread" not in said(planted(classifiers=classifiers, datasets=2, runs=3))


def test_classifiers_are_compared_on_cells_that_all_have():
    tables = planted(datasets=3, classifiers=("a", "b", "cnn"), schemes=("none", "noise"))
    alone = (pl.col("classifier") == "cnn") & (pl.col("cell") != tables.cells["cell"].max())
    some = without(tables, alone)
    shared = block(some.cells)
    assert (shared.classifiers, shared.contexts, shared.left) == (("a", "b"), 6, ("cnn",))
    assert "that both have; cnn shares too few cells to be compared" in said(some)["spread"]
    apart = without(tables, (pl.col("classifier") == "a") != (pl.col("dataset") == "data-00"))
    apart = without(apart, pl.col("classifier") == "cnn")
    assert block(apart.cells) is None
    assert "spread" not in said(apart)


def test_what_moves_accuracy_beyond_chance_is_named_and_what_does_not():
    tables = planted(
        datasets=3,
        schemes=("none", "strong", "still"),
        accuracy=lambda _, classifier, scheme, __: (
            0.9 - 0.05 * (scheme == "strong" and classifier == "mlp")
        ),
        consistency=lambda _, classifier, scheme, __: 0.6 - 0.2 * (scheme == "strong"),
        repeats=5,
        runs=20,
    )
    found = said(tables)
    text = found["effects"]
    assert "Accuracy changes beyond chance in 1 of 4 comparisons (Holm, 5% for all" in text
    assert "; it is perturb continuous strong in mlp: −0.0" in text
    assert "n = 15 pairs of repeats on 15 test sets" in text
    assert "Without an interval" not in text
    assert " No effect is established of: perturb continuous still (largest " in text
    assert "changes beyond chance in 2 of 4 comparisons" in found["consistency"]
    still = said(planted(datasets=3, schemes=("none", "still"), repeats=5, runs=20))
    assert still["effects"].startswith("No factor is found to change accuracy beyond chance (")
    assert "so effects of about that size could have gone undetected. The" in still["effects"]
    assert "The largest estimates, each interval by itself: perturb continuous" in still["effects"]
    assert not {"effects", "consistency"} & set(said(planted()))


def test_differences_without_an_interval_are_named():
    tables = planted(datasets=3, schemes=("none", "equal", "still"), repeats=5, runs=20)
    by_classifier = effects(tables, by=("classifier",))
    equal = (pl.col("level") == "equal") & (pl.col("classifier") == "mlp")
    blank = [pl.when(~equal).then(pl.col(name)).alias(name) for name in ("low", "high", "p_holm")]
    found = answers(tables, by_classifier.with_columns(blank), None, OPTIONS)
    (text,) = [one.text for one in found if one.about == "effects"]
    assert text.endswith(" Without an interval, so not judged: perturb continuous equal in mlp.")


def test_runs_that_merely_differ_among_themselves_are_not_unlike_the_others():
    tables = planted(alpha=of_classifier(**{"mlp": 0.3, "lr-sgd": 0.0}), delta=0.04)
    (one,) = [
        one
        for one in answers(tables, effects(tables, by=("classifier",)), None, OPTIONS)
        if one.about == "levels"
    ]
    assert one.headline == "Runs of mlp differ among themselves (α̂ up to 0.30)."
    assert one.text.startswith(
        "In 3 repeats of mlp, runs differ among themselves, by α̂ of up to 0.30, that of run 0 of "
        "cell 1, repeat 0. There, no majority of the runs is close to each other, or"
    )
    assert "unlike the others of" not in one.text
    assert "cannot detect" not in one.text


def test_small_test_sets_are_not_too_small_for_a_large_difference():
    """It stood beside the α̂ of runs that differ, which holds on test sets of any size."""
    tables = planted(alpha=of_classifier(**{"mlp": 0.3, "lr-sgd": 0.0}), delta=0.2)
    differ = dict(headlines(tables))["levels"]
    assert differ == "Runs of mlp differ among themselves (α̂ up to 0.30)."
    assert "Test sets of about 4,240 points would be enough." in said(tables)["levels"]


def test_a_spread_below_a_test_point_is_told_beside_its_bound():
    runs = pl.when(pl.col("run_index") == 1).then(0.9).otherwise(0.92)
    tables = equal_runs(classifiers=("mlp",), repeats=1, runs=10)
    assert dict(headlines(tables))["spread"] == "Between seeds, sd of accuracy: mlp at most 0.041."
    near = replace(tables, runs=tables.runs.with_columns(accuracy=runs))
    told = dict(headlines(near))["spread"]
    assert told == "Between seeds, sd of accuracy: mlp 0.0063 (at most 0.041)."


def test_a_larger_spread_with_noise_is_told_where_a_test_tells_it():
    """The headline on spreads was about cells without noise alone."""

    def noisy(_, classifier, scheme, __):
        return 0.03 if (classifier, scheme) == ("mlp", "relative:0.5") else 0.005

    tables = planted(datasets=2, schemes=("none", "relative:0.5"), repeats=5, runs=10, sd=noisy)
    told = dict(headlines(tables))["spread"].splitlines()
    assert told[1:] == ["That sd is larger with perturb continuous relative:0.5 (mlp)."]
    assert (
        "The sd is larger beyond chance with other training data (Holm, 5% for"
        in said(tables)["spread"]
    )
    alike = planted(datasets=2, schemes=("none", "relative:0.5"), repeats=5, runs=10)
    assert "larger" not in dict(headlines(alike))["spread"]


def test_the_cell_that_takes_most_seeds_is_named():
    """The number belonged to no classifier where others were not told, or noise was in the cell."""
    tables = equal_runs("lr-sgd", schemes=("none", "relative:0.5"), repeats=2, runs=10, sd=0.03)
    told = dict(headlines(tables))["enough"]
    found = r"up to \d+ seeds \(mlp(, relative:0\.5)?\); 0 of 2 cells have enough; lr-sgd not told"
    assert re.search(found, told)
    assert len(told.split()) <= WORDS


def test_the_cell_that_takes_most_seeds_is_named_by_its_levels_and_what_it_draws():
    """It was called "cell 0", though its seeds include another draw of training rows."""

    def sd(dataset, classifier, scheme, fraction):
        return 0.05 if (classifier, fraction) == ("mlp", 0.25) else 0.01

    tables = planted(2, fractions=(0.25, 1.0), sd=sd)
    headline = dict(headlines(tables))["enough"]
    assert re.search(r"up to [\d,]+ seeds \((data-\d\d × )?mlp, train fraction 0\.25\); ", headline)
    assert len(headline.split()) <= WORDS
    evidence = said(tables)["enough"]
    assert re.search(r" in data-\d\d × mlp, train fraction 0\.25, cell \d \(", evidence)
    assert "In that cell, subsample is drawn anew for each run, whatever vary says." in evidence


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"train_fraction": 1.0}, ""),
        ({"train_fraction": 0.5, "vary": "init*batch"}, ""),
        (
            {"perturb_labels": "flip:0.1", "perturb_continuous": "relative:0.1"},
            "Here, feature noise and label noise are drawn anew for each run, whatever vary says.",
        ),
        (
            {"train_fraction": 0.5, "vary": "train"},
            "Here, subsample is drawn anew for each run, whatever vary says.",
        ),
    ],
)
def test_what_is_drawn_for_each_run_beside_vary(axes, said):
    assert anew_in({"vary": "init+batch", **axes}, "Here, ") == said


def test_runs_beyond_the_fence_of_their_cell_are_counted_and_the_farthest_named():
    """Without a majority, the runs of the cell say how much is usual."""
    tables = planted(alpha=of_classifier(**{"mlp": 0.3, "lr-sgd": 0.0}), delta=0.04)
    here = (pl.col("classifier") == "mlp") & (pl.col("run_index") == 3)
    tables = replace(
        tables,
        runs=tables.runs.with_columns(
            alpha_hat=pl.when(here & (pl.col("repeat_index") > 0))
            .then(0.8 + 0.05 * pl.col("repeat_index"))
            .otherwise("alpha_hat")
        ),
    )
    text = said(tables)["levels"]
    assert text.startswith(
        "2 of 60 runs are unlike the others of their repeat (α̂ > 0.05), mlp 2 of 30; the largest "
        "α̂, 0.90, is that of run 3 of cell 1 (data-00 × mlp), repeat 2. In 3 repeats of mlp, runs "
        "differ among themselves, by α̂ of up to 0.30, that of run 0 of"
    )


def test_one_collapsed_run_is_told_apart_from_the_nine_others():
    text = said(one_apart("mlp", run=3))["levels"]
    assert text.startswith(
        "1 of 60 runs is unlike the others of its repeat (α̂ > 0.05 against those that are close to "
        "each other), mlp 1 of 30; the largest α̂, 1.00, is that of run 3 of cell 1 (data-00 × mlp)"
    )
    assert "no majority" not in text


def fixed(tables, gone):
    """Tables in which the cells that meet a condition have one model on each test set."""
    copies = pl.when(gone)
    return replace(
        tables,
        cells=tables.cells.with_columns(
            n_distinct=copies.then(pl.col("n_repeats")).otherwise("n_distinct"),
            n_identical_repeats=copies.then(pl.col("n_repeats")).otherwise("n_identical_repeats"),
        ),
    )


def test_a_classifier_that_no_seed_reaches_is_named_so_that_its_spread_is_not_misread():
    tables = planted(classifiers=("forest", "mlp"), schemes=("none", "noise"))
    assert "sources" not in said(tables)
    is_forest = pl.col("classifier") == "forest"
    every = fixed(tables, is_forest)
    (text,) = [text for about, text in headlines(every) if about == "sources"]
    assert text == "One model per test set, whatever the seed: forest; no spread."
    assert "spread over seeds is 0 by construction" in said(every)["sources"]
    is_plain = pl.col("perturb_continuous") == "none"
    some = fixed(tables, is_forest & is_plain)
    (text,) = [text for about, text in headlines(some) if about == "sources"]
    assert text == "One model per test set, whatever the seed: forest (1 of 2 cells); no spread."
    here = is_forest & is_plain
    none = pl.when(here).then(1).otherwise("n_distinct").alias("n_distinct")
    some = replace(some, repeats=some.repeats.with_columns(none))
    spread = dict(headlines(some))["spread"]
    assert spread.splitlines()[0].endswith("; forest 0."), "its sd with noise alone is no answer"
    assert "Of forest, all runs on a test set are one model with perturb" in said(some)["spread"]
    alone = fixed(planted(classifiers=("forest",), schemes=("none", "noise")), here)
    alone = replace(alone, repeats=alone.repeats.with_columns(none))
    told = "Between seeds, sd of accuracy: forest 0, one model per test set."
    assert dict(headlines(alone))["spread"].splitlines()[0] == told
    single = fixed(planted(classifiers=("forest",), runs=1), is_forest)
    assert "sources" not in said(single)  # of one run, nothing is known of others


def without_levels(tables, points=142):
    """Tables of runs without α̂, on few points."""
    runs = tables.runs.with_columns(alpha_hat=pl.lit(None, pl.Float64))
    return replace(
        tables, runs=runs, repeats=tables.repeats.with_columns(n_test=pl.lit(points, pl.UInt32))
    )


@pytest.mark.parametrize("accuracy", [0.08, 0.5])
def test_one_run_of_six_is_named_by_its_accuracy_where_there_is_no_level(accuracy):
    tables = without_levels(planted(classifiers=("mlp",), repeats=1, runs=6))
    assert not [text for about, text in headlines(tables) if about == "levels"]
    one = pl.col("run_index") == 5
    runs = tables.runs.with_columns(accuracy=pl.when(one).then(accuracy).otherwise("accuracy"))
    others = tables.runs.filter(~one)["accuracy"]
    found = replace(tables, runs=runs)
    (text,) = [text for about, text in headlines(found) if about == "levels"]
    ends = f"{accuracy:.3f}; others {others.min():.3f} to {others.max():.3f}"
    assert text == f"1 of 6 runs is unlike the others in accuracy; see run 0:0:5 ({ends})."
    assert (
        "the farthest is run 5 of cell 0 (data-00 × mlp), repeat 0, with 0."
        in (said(found)["levels"])
    )


def test_seeds_that_one_collapsed_run_takes_are_told_without_it():
    """A single run that fell to chance made it hundreds of seeds, without a word."""
    tables = without_levels(planted(classifiers=("mlp",), repeats=2, runs=10, sd=0.004), 1000)
    sound = dict(headlines(tables))["enough"]
    assert "without" not in sound
    one = (pl.col("run_index") == 5) & (pl.col("repeat_index") == 0)
    runs = tables.runs.with_columns(accuracy=pl.when(one).then(0.5).otherwise("accuracy"))
    found = replace(tables, runs=runs)
    told = dict(headlines(found))["enough"]
    values = [own["accuracy"].to_numpy() for own in runs.filter(~one).partition_by("repeat_index")]
    others = for_mean("", values, 0.005).runs
    assert f"; {others} without run 0:0:5, unlike the others" in told
    assert int(re.search(r"takes (?:at least )?([\d,]+)", told)[1].replace(",", "")) > 10 * others
    assert "run 0:0:5 (0.500; others 0." in said(found)["enough"]


def test_runs_of_which_one_differs_by_a_point_are_not_told_apart():
    """The others agree by chance, so that their spread is 0."""
    tables = without_levels(planted(classifiers=("mlp",), repeats=1, runs=6), points=40)
    level = pl.when(pl.col("run_index") == 5).then(0.925).otherwise(0.95)
    assert outlying(tables.runs.with_columns(accuracy=level, n_test=40)).is_empty()
    equal = tables.runs.with_columns(accuracy=0.95, n_test=40)
    assert outlying(equal).is_empty()
    assert outlying(equal.head(2)).is_empty()


def test_what_tells_a_run_apart_is_students_t_and_a_binomial_error_of_all_runs():
    values = np.array([0.90, 0.91, 0.92, 0.905, 0.915, 0.78])
    tables = without_levels(planted(classifiers=("mlp",), repeats=1, runs=6))
    runs = tables.runs.with_columns(accuracy=pl.Series(values), n_test=400)
    others = values[:5]
    gap, wide = values[5] - others.mean(), np.sqrt(1 + 1 / 5)
    share = (others.mean() * 400 + 1) / 402
    t = 2 * stats.t.cdf(gap / (others.std(ddof=1) * wide), 4)
    z = 2 * stats.norm.cdf(gap / (np.sqrt(share * (1 - share) / 400) * wide))
    p = 6 * max(t, z)
    assert outlying(runs, rare=p * 1.001)["run_index"].to_list() == [5]
    assert outlying(runs, rare=p * 0.999).is_empty()


def test_where_the_test_cannot_see_it_says_so_and_how_many_points_would_do():
    blind = said(planted(delta=0.3))["levels"]
    assert blind.startswith(
        "With so few test points in data-00, α̂ cannot detect differences below δ = 0.30; a small α̂"
    )
    assert "(60 runs). Test sets of about 4,240 points would be enough." in blind
    clear = said(planted(delta=0.04))["levels"]
    assert clear.startswith(
        "No run is seen to differ from the others of its repeat by more than 5%"
    )
    assert "all 60 runs on test sets large enough to tell" in clear
    none = planted()
    runs = none.runs.with_columns(alpha_hat=pl.lit(None, pl.Float64))
    assert "levels" not in said(Tables(runs, none.pairs, none.repeats, none.cells))


def test_how_many_seeds_are_enough_is_the_answer_of_howmany():
    tables = planted(sd=of_classifier(**{"lr-sgd": 0.002, "mlp": 0.02}))
    of_cells = []
    for cell in (0, 1):
        own = tables.runs.filter(cell=cell).partition_by("repeat_index")
        values = [one["accuracy"].to_numpy() for one in own]
        of_cells.append(for_mean("", values, 0.005, among=2))
    few, many = of_cells
    text = said(tables)["enough"]
    assert f"takes {few.runs} to {many.runs} runs, by their standard deviations so far;" in text
    assert (
        f"; {many.runs} in data-00 × mlp, cell 1 ({many.low} to {many.high}, 95 % for all 2 "
        in text
    )
    assert few.runs <= 10 < many.runs
    assert "1 of 2 cells have enough runs for that in their repeats." in text
    assert said(planted(sd=0.05))["enough"].endswith("None of these has enough runs for that yet.")
    lone = said(planted(sd=0.002))["enough"]
    assert lone.endswith("Each repeat has enough runs for that.")
    one = said(planted(sd=0.02, classifiers=("mlp",)))["enough"]
    assert one.startswith("Knowing the mean accuracy of the cell to ± 0.005")
    assert "so far" not in one
    assert "together" not in one
    assert one.endswith("Its repeats have too few runs for that.")
    assert "enough" not in said(planted(runs=1))


def test_the_range_of_seeds_is_from_the_least_to_the_most_of_many_cells():
    """Cells in the order of their names, whose standard deviations rise and fall."""
    sds = dict(zip("abcdefghijkl", [9, 3, 7, 1, 12, 5, 2, 11, 4, 8, 10, 6], strict=True))
    sd = of_classifier(**{name: 0.002 * step for name, step in sds.items()})
    text = said(planted(classifiers=tuple(sds), repeats=10, sd=sd))["enough"]
    found = re.search(r"takes (\d+) to (\d+) runs, .*; (\d+) in data-00 × (\w), cell 4 ", text)
    assert int(found[1]) < 5
    assert 90 < int(found[2]) == int(found[3])
    assert found[4] == "e"


def test_equal_runs_are_not_enough_runs():
    """Three runs that happen to agree on 40 points say little about the next."""
    text = said(equal_runs(classifiers=("mlp",), repeats=1, runs=3))["enough"]
    assert text.startswith("How many seeds it takes to know the mean accuracy to ± 0.005 has no")
    assert "the accuracies of all 3 runs are equal on their test set, while up to 78% of" in text
    assert "the sd of further runs is at most 0.11 (95 %, for normal values)" in text
    assert "for which 1,875 runs are enough." in text
    few = dict(headlines(equal_runs(classifiers=("mlp",), repeats=1, runs=3)))["enough"]
    most = "Accuracy to ± 0.005 takes 1,875 seeds at most: spreads so far are below one test point."
    assert few == most
    some = said(equal_runs("lr-sgd", repeats=1, runs=3, sd=0.06))["enough"]
    assert some.startswith("In data-00 × mlp (cell 1), it cannot be told yet; at least ")
    assert " has no answer in data-00 × lr-sgd (cell 0): it cannot be told yet" in some
    assert "has no answer" not in said(planted(sd=0.002))["enough"]


def test_the_least_that_is_needed_names_its_cell():
    """Of several cells, it is about the one that varies most."""
    sd = of_classifier(a=0.06, b=0.02)
    several = dict(headlines(planted(classifiers=("a", "b"), repeats=1, runs=3, sd=sd)))["enough"]
    assert re.search(r"takes at least \d+ seeds in data-00 × a \(cell \d+\)\.$", several)
    one = dict(headlines(planted(classifiers=("a",), repeats=1, runs=3, sd=0.06)))["enough"]
    assert re.search(r"cannot be told yet: at least \d+\.$", one)


def test_classifiers_rank_across_datasets_with_a_critical_difference():
    order = of_classifier(a=0.7, b=0.9, c=0.8)
    tables = planted(datasets=12, classifiers=("a", "b", "c"), accuracy=order, runs=4)
    found = standings(tables.cells)
    assert [(row.classifier, row.rank, row.wins) for row in found.rows] == [
        ("b", 1.0, 12),
        ("c", 2.0, 0),
        ("a", 3.0, 0),
    ]
    assert found.apart == (("b", "c"), ("b", "a"), ("c", "a"))
    text = said(tables)["standings"]
    assert (
        "Across 12 datasets b ranks first so far, by mean accuracy (mean rank 1.0 of 3, 12 wins;"
        in text
    )
    assert "Beyond chance, ranks tell b from c, b from a, c from a" in text
    assert "rough" not in text
    few = said(planted(datasets=2, classifiers=("a", "b", "c"), accuracy=order, runs=4))
    assert "tell no two classifiers apart beyond chance" in few["standings"]
    assert "so few that the test is rough" in few["standings"]
    assert "standings" not in said(planted())


def test_classifiers_of_equal_rank_are_first_together():
    rows = (Standing("a", 1.5, 1), Standing("b", 1.5, 1), Standing("c", 3.0, 0))
    ((text, _),) = in_words(Standings(rows, datasets=2, critical=2.0, apart=()))
    assert (
        "Across 2 datasets a and b both rank first so far, by mean accuracy (mean rank 1.5 of 3"
        in text
    )


@pytest.mark.parametrize(
    ("classifiers", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)]
)
def test_critical_differences_are_the_published_ones(classifiers, q):
    expected = q * math.sqrt(classifiers * (classifiers + 1) / (6 * 14))
    assert critical_difference(classifiers, 14) == pytest.approx(expected, abs=5e-4)


def test_what_is_missing_comes_first():
    tables = planted(missing=4)
    found = answers(
        tables,
        effects(tables, by=("classifier",)),
        None,
        OPTIONS,
        planned=60,
        finished=48,
        failed=3,
    )
    assert found[0].about == "missing"
    text = found[0].text
    assert "of 60 planned runs, 3 failed and 9 are missing; 3 of 6 repeats lack runs" in text
    whole = said(planted(), planned=60, finished=60)
    assert "missing" not in whole


def test_a_sweep_without_results_says_nothing():
    tables = planted()
    empty = Tables(
        *(getattr(tables, name).clear() for name in ("runs", "pairs", "repeats", "cells"))
    )
    assert answers(empty, pl.DataFrame(), None, OPTIONS) == []


@pytest.mark.slow
@pytest.mark.parametrize(("repeats", "runs"), [(1, 10), (3, 10), (2, 20)])
def test_intervals_of_spreads_hold_what_was_planted(repeats, runs):
    """60 sweeps of two datasets, one of which varies more; normal runs."""
    truth = {"a": 0.02, "b": 0.01}
    held, ratios = 0, 0
    for seed in range(60):
        tables = planted(
            2,
            ("a", "b"),
            ("none", "noise"),
            repeats=repeats,
            runs=runs,
            sd=lambda dataset, classifier, *_: (
                truth[classifier] * (1.5 if dataset == "data-01" else 1)
            ),
            seed=seed,
        )
        found = spreads(tables)
        scale = math.sqrt((1 + 1.5**2) / 2)
        held += sum(row.low <= scale * truth[row.classifier] <= row.high for row in found.rows)
        ratios += found.low <= (2 if found.rows[0].classifier == "a" else 0.5) <= found.high
    assert held >= 0.9 * 120
    assert ratios >= 0.9 * 60


@pytest.mark.slow
def test_nothing_is_claimed_by_chance_more_often_than_is_said():
    """100 sweeps in which nothing differs: sentences that claim come at most as often as 5 %."""
    claims = {"spread": 0, "effects": 0, "consistency": 0, "standings": 0}
    for seed in range(100):
        tables = planted(
            3, ("a", "b", "c"), ("none", "noise"), repeats=3, runs=6, between=0.0, seed=seed
        )
        found = said(tables)
        claims["spread"] += found["spread"].startswith("Between seeds")
        claims["effects"] += "changes beyond chance" in found["effects"]
        claims["consistency"] += "changes beyond chance" in found["consistency"]
        claims["standings"] += "Beyond chance, ranks tell" in found["standings"]
    assert max(claims.values()) <= 11, claims  # 5 expected; 11 by chance once in 90


def headlines(tables, variance=None, **counts):
    """The headlines, as one text each."""
    found = answers(tables, effects(tables, by=("classifier",)), variance, OPTIONS, **counts)
    return [(one.about, one.headline) for one in found]


@pytest.mark.parametrize("classifiers", [1, 2, 12])
@pytest.mark.parametrize("delta", [0.04, 0.3])
def test_headlines_are_short_and_in_the_order_of_asking(classifiers, delta):
    names = [f"classifier-{k}" for k in range(classifiers)]
    tables = planted(
        9, names, ("none", "noise", "less"), repeats=4, runs=6, delta=delta, between=0.01,
        accuracy=lambda _, name, scheme, __: (
            0.9 - 0.002 * names.index(name) - 0.03 * (scheme != "none")
        ),
    )  # fmt: skip
    found = headlines(tables, planned=tables.runs.height + 9, finished=tables.runs.height)
    order = ["missing", "accuracy", "standings", "spread", "enough", "effects", "levels"]
    seen = list(dict.fromkeys(about for about, _ in found))
    assert [name for name in seen if name in order] == [
        name for name in order if name != "standings" or classifiers > 1
    ]
    for about, text in found:
        for line in text.splitlines():
            assert 0 < len(line.split()) <= WORDS, (about, line)
            assert line.endswith(".")


def test_every_two_classifiers_are_compared_not_the_best_with_the_rest():
    level = of_classifier(a=0.9, b=0.9, c=0.8, d=0.7)
    tables = planted(classifiers=tuple("abcd"), accuracy=level, repeats=6)
    (text,) = [text for about, text in headlines(tables) if about == "accuracy"]
    levels, told = text.splitlines()
    assert re.fullmatch(r"data-00: [ab] 0\.\d{3}, [ab] 0\.\d{3}, c 0\.\d{3}, d 0\.\d{3}\.", levels)
    assert re.fullmatch(
        r"([ab], [ab]) > c, d; c > d; [ab] and [ab] not told apart; 6 pairs judged together\.", told
    )
    rest = Accuracies(
        "d", (), (Mean("a", 0.9, 0.01), Mean("b", 0.897, 0.01)), (), 9, (9, 9), 0, (), ()
    )
    better = replace(rest, pairs=(("a", Mean("b", 0.003, 0.001)),))
    assert verdict(better) == "a > b.", "not also a ≈ b"
    alike = replace(rest, pairs=(("a", Mean("b", 0.001, 0.002)),))
    assert verdict(alike) == "a ≈ b."
    names, half = ("ResNet 50", "ViT-B/16 (ours)", "logreg"), 0.01
    of_two = Mean(names[1], 0.003, half)
    pairs = ((names[0], of_two), *((one, Mean(names[2], 0.05, half)) for one in names[:2]))
    on_one = replace(rest, rows=tuple(Mean(one, 0.8, half) for one in names), pairs=pairs)
    told = verdict(replace(on_one, test_sets=1))
    assert told == (
        "On this test set: ResNet 50, ViT-B/16 (ours) > logreg; ResNet 50, ViT-B/16 (ours): not "
        "told; on others, not told."
    ), "rather fewer words than no names"
    assert len(told.split()) <= WORDS
    levels_of_three = of_classifier(a=0.9, b=0.8, c=0.7)
    apart = planted(classifiers=tuple("abc"), accuracy=levels_of_three, repeats=6)
    assert headlines(apart)[0][1].endswith("\na > b > c; 3 pairs judged together.")
    few = planted(classifiers=tuple("abc"), accuracy=levels_of_three, repeats=3)
    assert headlines(few)[0][1].endswith("; 3 pairs judged together, on only 3 test sets.")
    same = headlines(planted(classifiers=tuple("abc"), sd=0.05, repeats=6))[0][1]
    assert same.endswith("\nWhich is better: none of 3 pairs can be told apart.")
    alike = planted(classifiers=("a", "b"), sd=0.0005, repeats=6)
    assert re.search(r"\n(a ≈ b|b ≈ a)\.$", headlines(alike)[0][1])
    one = planted(classifiers=("a", "b"), repeats=1, runs=1)
    assert headlines(one)[0][1].endswith("\nWhich is better: not told, from one test set.")
    one = planted(classifiers=("a", "b"), sd=0.05, repeats=1)
    assert headlines(one)[0][1].endswith("\nWhich is better: not told, even on this test set.")
    one = planted(classifiers=tuple("abc"), accuracy=levels_of_three, repeats=1)
    assert headlines(one)[0][1].endswith(
        "\nOn this test set: a > b > c; 3 pairs judged together; on others, not told."
    )
    assert headlines(planted(classifiers=("a",)))[0][1].startswith("data-00: a 0.")
    assert "\n" not in headlines(planted(classifiers=("a",)))[0][1]
    with_noise = planted(schemes=("none", "noise"))
    of_which, found = (one[1] for one in headlines(with_noise)[:2])
    assert of_which == "Accuracy, spread, points: 60 of 120 runs, without noise."
    assert found.startswith("data-00: ")


def test_the_spread_of_a_single_classifier_is_told_with_its_interval():
    tables = planted(classifiers=("a",), runs=20)
    text = said(tables)["spread"]
    assert re.match(
        r"Between seeds, the accuracy of a varies with a standard deviation of 0.0\d+ \(0.0\d+ to "
        r"0.0\d+\) \(95 %; over 60 runs of 1 cell; each interval is over seeds on these test sets, "
        r"and assumes roughly normal values",
        text,
    )
    ((_, short),) = [one for one in headlines(tables) if one[0] == "spread"]
    assert re.fullmatch(
        r"Between seeds, sd of accuracy: a 0\.\d{4} \(0\.\d{4} to 0\.\d{4}\)\.", short
    )


def test_one_test_set_of_few_runs_tells_how_much_its_accuracies_vary():
    tables = planted(classifiers=("a", "b"), repeats=1, runs=6)
    found = headlines(tables)
    ((_, short),) = [one for one in found if one[0] == "spread"]
    told = dict(re.findall(r"([ab]) (0\.\d{4} \(0\.\d{4} to 0\.\d{4}\))", short))
    assert short.startswith("Between seeds, sd of accuracy on this test set: ")
    for name in "ab":
        values = tables.runs.filter(classifier=name)["accuracy"].to_numpy()
        sd = values.std(ddof=1)
        ends = [sd * math.sqrt(5 / stats.chi2.ppf(p, 5)) for p in (0.975, 0.025)]
        assert told[name] == f"{sd:.4f} ({ends[0]:.4f} to {ends[1]:.4f})"
    assert "(95 %, each by itself; each interval assumes roughly normal" in said(tables)["spread"]
    assert "on this test set" not in said(planted(repeats=1, runs=7))["spread"]
    assert "spread" not in said(planted(repeats=1, runs=2))
    equal = said(planted(classifiers=("a",), repeats=1, runs=6, sd=0.0))["spread"]
    assert equal.startswith("The accuracies of all 6 runs of a are equal")


def test_few_runs_of_several_test_sets_tell_how_much_their_accuracies_vary():
    tables = planted(classifiers=("a",), repeats=3, runs=3)
    ((_, short),) = [one for one in headlines(tables) if one[0] == "spread"]
    found = re.fullmatch(
        r"Between seeds, sd of accuracy on these test sets: a (.*) \((.*) to (.*)\)\.", short
    )
    values = tables.runs.sort("repeat_index", "run_index")["accuracy"].to_numpy().reshape(3, 3)
    variances = values.var(axis=1, ddof=1)
    ends = of_variance(variances, np.full(3, 2.0), 0.95)
    expected = np.sqrt([variances.mean(), *ends])
    np.testing.assert_allclose([float(one) for one in found.groups()], expected, atol=5e-5)
    text = said(tables)["spread"]
    assert text.startswith("On these test sets, accuracy varies between seeds with a standard")
    assert "varies most" not in text
    both = said(planted(classifiers=("a", "b"), repeats=3, runs=3))["spread"]
    assert "With so few runs, they are not compared." in both
    assert "of a single" not in both


def test_a_name_that_ends_another_is_not_taken_for_told():
    """Train is in batch+train, whose number may be the same: three are told if they fit."""
    names = [f"{name} 0.0222 (0.0157 to 0.0378)" for name in ("batch+train", "train")]
    short = ["batch+train 0.0222", "train 0.0222"]
    start, end = "Between seeds, sd of accuracy on these test sets:", "; batch at most 0.021."
    told = all_or_first((names, short), lambda text: f"{start} {text}{end}")
    assert told == f"{start} batch+train 0.0222, train 0.0222{end}"


def test_alpha_is_told_only_where_test_sets_are_large_enough():
    (blind,) = [text for about, text in headlines(planted(delta=0.3)) if about == "levels"]
    assert blind == ("Test sets are too small for α̂, which takes test sets of about 4,240 points.")
    (clear,) = [text for about, text in headlines(planted()) if about == "levels"]
    assert clear == "No run is seen to differ by more than 5% of the test points."
    (one,) = [text for about, text in headlines(one_apart("mlp", run=3)) if about == "levels"]
    assert one == "1 of 60 runs is unlike the others (mlp 1); see run 1:0:3."


def test_all_of_a_few_classifiers_have_their_spread_in_the_headline():
    """Rather without intervals than two of four left out; intervals are in the evidence."""
    tables = planted(classifiers=("a", "b", "c", "d"), repeats=1, runs=4)
    ((_, short),) = [one for one in headlines(tables) if one[0] == "spread"]
    assert re.fullmatch(
        r"Between seeds, sd of accuracy on this test set: \w 0\.\d+(, \w 0\.\d+){3}\.", short
    )
    assert len(re.findall(r"[a-d] 0\.\d{4} \(0\.\d{4} to", said(tables)["spread"])) == 4


def test_cells_that_differ_in_what_varies_are_told_beside_each_other():
    both = planted(classifiers=("a", "b"), repeats=1, runs=3, sd=0.02)
    vary = pl.when(pl.col("classifier") == "a").then(pl.lit("init")).otherwise(pl.lit("batch"))
    parts = [getattr(both, name) for name in ("runs", "pairs", "repeats", "cells")]
    of_one = Tables(
        *(part.with_columns(vary=vary).with_columns(classifier=pl.lit("mlp")) for part in parts)
    )
    ((_, short),) = [one for one in headlines(of_one) if one[0] == "spread"]
    assert short.startswith("Between seeds, sd of accuracy on this test set: ")
    assert re.search(r"\binit 0\.\d+ \(", short)
    assert re.search(r"\bbatch 0\.\d+ \(", short)


def test_cells_of_one_classifier_that_differ_in_what_varies_are_not_taken_together():
    def varied(*classifiers: str, datasets: int = 1) -> Tables:
        found = planted(classifiers=classifiers, datasets=datasets, repeats=4, runs=6)
        renamed = {"b": "a"}
        vary = pl.when(classifier="b").then(pl.lit("init")).otherwise(pl.lit("init+batch"))

        def merged(frame: pl.DataFrame) -> pl.DataFrame:
            text = frame.with_columns(pl.col("classifier", "vary").cast(pl.String))
            return text.with_columns(vary=vary).with_columns(pl.col("classifier").replace(renamed))

        return replace(
            found,
            **{name: merged(getattr(found, name)) for name in ("cells", "repeats", "runs")},
        )

    one = said(varied("a", "b"))["spread"]
    assert re.search(r"deviation of init(\+batch)? 0\.\d+ \(.*\), init", one)
    ((_, of_two),) = [one for one in headlines(varied("a", "b", datasets=2)) if one[0] == "spread"]
    assert of_two.startswith("Between seeds, sd of accuracy (vary init+batch): a 0.")


def test_the_spread_between_test_sets_is_told_with_that_between_seeds():
    made = planted(repeats=10, sd=0.005, between=0.02)
    rows = split(made)
    evidence = Evidence(made, effects(made, by=("classifier",)), rows, OPTIONS)
    (told,) = answer_spread(evidence)
    of_sets = rows.filter(metric="accuracy", part="between test sets").sort("variance")
    row = of_sets.row(-1, named=True)
    sd, low, high = (f"{row[name] ** 0.5:.4f}" for name in ("variance", "low", "high"))
    assert " Between test sets, beyond what runs add, its sd is " in told.evidence
    assert f" {sd} ({low} to {high})" in told.evidence, told.evidence
