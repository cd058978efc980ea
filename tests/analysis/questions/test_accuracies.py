"""Accuracies by dataset and their differences: those of a slow computation, true of the planted."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

from manyseed.analysis.options import Options
from manyseed.analysis.questions.accuracy import Mean, accuracies, headlines, sentences
from manyseed.analysis.questions.classifiers import spreads
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.questions.question import answers
from manyseed.analysis.questions.standings import standings
from tests.analysis.planted import planted
from tests.analysis.questions.test_answers import of_classifier, without

ORDER = of_classifier(a=0.7, b=0.9, c=0.8)


def told(tables):
    return list(sentences(accuracies(tables)))


def by_hand(tables, dataset, classifier):
    """Mean accuracy on each test set, from the runs, one by one."""
    sums: dict[int, list[float]] = {}
    for row in tables.runs.iter_rows(named=True):
        if (row["dataset"], row["classifier"]) == (dataset, classifier):
            sums.setdefault(row["repeat_index"], []).append(row["accuracy"])
    return np.array([sum(values) / len(values) for _, values in sorted(sums.items())])


def half(interval):
    return (interval.high - interval.low) / 2


def test_means_and_differences_are_those_of_the_slow_computation():
    tables = planted(2, ("a", "b", "c"), repeats=5, accuracy=ORDER, between=0.03)
    for found in accuracies(tables):
        assert [row.classifier for row in found.rows] == ["b", "c", "a"]
        assert (found.test_sets, found.runs, found.context, found.more) == (5, (10, 10), (), 0)
        sets = {name: by_hand(tables, found.dataset, name) for name in "abc"}
        for row in found.rows:
            own = sets[row.classifier]
            test = stats.ttest_1samp(own, 0)
            assert row.value == pytest.approx(own.mean())
            assert row.half == pytest.approx(half(test.confidence_interval(0.95)))
        assert [row.classifier for row in found.differences] == ["c", "a"]
        for row in found.differences:
            test = stats.ttest_rel(sets["b"], sets[row.classifier])
            assert row.value == pytest.approx((sets["b"] - sets[row.classifier]).mean())
            assert row.half == pytest.approx(half(test.confidence_interval(1 - 0.05 / 3)))


def test_the_better_classifier_is_named_with_its_lead():
    tables = planted(1, ("a", "b"), repeats=5, accuracy=of_classifier(a=0.7, b=0.9))
    (one,) = accuracies(tables)
    (text,) = told(tables)
    (b, a), (lead,) = one.rows, one.differences
    assert lead.value == pytest.approx(0.2, abs=0.02)
    assert text == (
        f"Accuracy on data-00: b {b.value:.4f} ± {b.half:.4f}, a {a.value:.4f} ± {a.half:.4f} "
        "(means over runs, ± half of the 95 % interval over test sets; n = 5 test sets, 10 runs on "
        "each). Paired on the same test sets (95 %), b is better than a by "
        f"{lead.value:.4f} ± {lead.half:.4f}."
    )


def test_classifiers_that_are_alike_are_not_told_apart():
    (text,) = told(planted(1, ("a", "b"), repeats=5))
    assert "(95 %), " in text
    assert "cannot be told apart from" in text
    assert "is better than" not in text
    mixed = of_classifier(a=0.7, b=0.9, c=0.9)
    (text,) = told(planted(1, ("a", "b", "c"), repeats=8, accuracy=mixed))
    assert "is better than a by 0." in text
    assert ", but cannot be told apart from " in text
    assert "95 % for all 3 pairs of classifiers on it together" in text


def test_one_test_set_tells_of_itself_alone():
    levels = of_classifier(a=0.7, b=0.9)
    (text,) = told(planted(1, ("a", "b"), repeats=1, accuracy=levels))
    assert "(means over runs; n = 1 test set, 10 runs on each)" in text
    assert re.search(
        r"Over seeds, on this test set alone \(95 %\), b is better than a by 0\.\d{4} ± "
        r"0\.\d{4}\. One test set allows no interval over test sets, so which is better on others "
        "cannot be told",
        text,
    )
    assert "repeats = 5" in text
    (text,) = told(planted(1, ("a", "b"), repeats=1, runs=1, accuracy=levels))
    assert "is better than" not in text, "a single run tells nothing of seeds"
    (alone,) = told(planted(1, ("a",), repeats=1))
    assert "One test set allows no interval over test sets; more do, by" in alone
    (alone,) = told(planted(1, ("a",), repeats=4))
    assert alone.endswith("n = 4 test sets, 10 runs on each).")


def test_the_interval_on_one_test_set_is_welchs():
    tables = planted(1, ("a", "b"), repeats=1, accuracy=of_classifier(a=0.7, b=0.9))
    (one,) = accuracies(tables)
    of = {name: tables.runs.filter(classifier=name)["accuracy"].to_numpy() for name in "ab"}
    low, high = stats.ttest_ind(of["b"], of["a"], equal_var=False).confidence_interval(0.95)
    ((better, row),) = one.pairs
    assert (better, row.classifier) == ("b", "a")
    assert row.value == pytest.approx((low + high) / 2)
    assert row.half == pytest.approx((high - low) / 2)
    assert [mean.half for mean in one.rows] == [None, None]


def test_the_numbers_of_an_accuracy_have_the_interval_of_its_text():
    """It stays between 0 and 1, as a share's does."""
    tables = planted(1, ("a", "b"), repeats=3, between=0.02, accuracy=of_classifier(a=0.7, b=0.98))
    (found,), (text,) = accuracies(tables), told(tables)
    near, far = found.rows
    assert near.value + near.half > 1
    for row in found.rows:
        low, high = row.limits
        assert 0 < low < row.value < high < 1
        assert row.numbers == {
            "classifier": row.classifier,
            "value": row.value,
            "low": low,
            "high": high,
        }
    assert f"b {near.value:.4f} ({near.limits[0]:.4f} to {near.limits[1]:.4f})" in text
    assert far.limits == pytest.approx((far.value - far.half, far.value + far.half))
    assert Mean("a", 0.5, None).limits is None


@pytest.mark.parametrize(("repeats", "few"), [(2, True), (3, True), (4, False)])
def test_few_test_sets_are_told_once(repeats, few):
    texts = told(planted(3, ("a", "b"), repeats=repeats))
    note = f"{repeats} test sets are too few for useful intervals; more narrow them"
    assert " ".join(texts).count(note) == few
    assert "±" in texts[0]


def test_only_like_cells_are_compared_the_usual_ones_first():
    tables = planted(
        1,
        ("a", "b"),
        ("none", "noise"),
        (0.5, 1.0),
        accuracy=lambda _, name, scheme, share: (
            0.9 if (scheme, share) == ("none", 1.0) else 0.1 + (name == "a") / 10
        ),
    )
    (found,) = accuracies(tables)
    assert found.context == (("train_fraction", "1.0"), ("perturb_continuous", "none"))
    assert found.rows[1].value == pytest.approx(0.9, abs=0.05)
    (text,) = told(tables)
    assert text.startswith("Accuracy on data-00 (train fraction 1.0, perturb continuous none): ")
    usual = (pl.col("perturb_continuous") == "none") & (pl.col("train_fraction") == 1.0)
    lacks = without(tables, (pl.col("classifier") == "b") & usual)
    (found,) = accuracies(lacks)
    assert len(found.rows) == 2, "the context that most classifiers have"
    only = without(tables, (pl.col("classifier") == "b") & (pl.col("train_fraction") == 1.0))
    only = without(only, (pl.col("classifier") == "a") & (pl.col("train_fraction") == 0.5))
    (found,) = accuracies(only)
    assert [row.classifier for row in found.rows] == ["a"]
    (b,) = found.apart
    assert (b.classifier, b.levels) == ("b", (("train_fraction", "0.5"),))
    assert b.value == pytest.approx(by_cell(only, b="none"))
    assert f", b {b.value:.4f} ± {b.half:.4f} (train fraction 0.5) (means" in told(only)[0]


def by_cell(tables, **of):
    """Mean accuracy of a classifier with a scheme, over its test sets."""
    ((name, scheme),) = of.items()
    own = tables.repeats.filter(classifier=name, perturb_continuous=scheme)
    return own["accuracy_mean"].mean()


def changed(tables, where, **levels):
    """Tables with other levels of the cells of a condition."""
    frames = {
        name: getattr(tables, name).with_columns(
            **{
                axis: pl.when(where).then(pl.lit(level)).otherwise(axis)
                for axis, level in levels.items()
            }
        )
        for name in ("runs", "pairs", "repeats", "cells")
    }
    return type(tables)(**frames)


def test_a_classifier_unlike_the_others_is_told_but_not_compared():
    """As those with another vary: their pair is not judged, like that of `compare`."""
    tables = planted(1, ("a", "b", "c"), repeats=5, accuracy=ORDER)
    (one,) = accuracies(changed(tables, pl.col("classifier") == "b", vary="init"))
    assert [row.classifier for row in one.rows] == ["c", "a"]
    assert [row.classifier for row in one.every] == ["b", "c", "a"]
    assert [better for better, _ in one.pairs] == ["c"]
    first, verdict, apart = headlines(one).splitlines()
    assert re.fullmatch(r"data-00: b 0\.\d+ \(vary init\), c 0\.\d+, a 0\.\d+\.", first)
    assert verdict == "c > a."
    assert apart == "Not compared with others, as vary differs: b."
    (of_one,) = (each for each in one.every if each.classifier == "b")
    assert of_one.numbers["vary"] == "init"
    assert of_one.value == pytest.approx(by_hand(tables, "data-00", "b").mean())


def test_other_hparams_have_a_line():
    tables = planted(1, ("a", "b"), ("none", "noise"), repeats=4, accuracy=ORDER)
    noisy = (pl.col("classifier") == "b") & (pl.col("perturb_continuous") == "noise")
    tuned = changed(tables, noisy, hparams="lr=0.01", perturb_continuous="none")
    tuned = without(tuned, pl.col("perturb_continuous") == "noise")
    (one,) = accuracies(tuned)
    mean = tables.repeats.filter(noisy)["accuracy_mean"].mean()
    assert headlines(one).splitlines()[-1] == f"With other hparams: b lr=0.01 {mean:.3f}."
    assert len(one.rows) == 2
    assert f" With other hparams: b lr=0.01 {mean:.3f}." in told(tuned)[0]


def test_configurations_too_many_to_be_models_have_a_line():
    tables = planted(1, ("a", "b"), tuple("rstuvw"), repeats=4, accuracy=ORDER)
    tables = without(tables, (pl.col("classifier") == "a") & (pl.col("perturb_continuous") != "r"))
    level = pl.col("perturb_continuous")
    tables = changed(tables, pl.col("classifier") == "a", hparams="default")
    b = pl.when(pl.col("classifier") == "b").then(level).otherwise("hparams")
    frames = {
        name: getattr(tables, name).with_columns(hparams=b, perturb_continuous=pl.lit("none"))
        for name in ("runs", "pairs", "repeats", "cells")
    }
    (one,) = accuracies(type(tables)(**frames))
    assert [row.classifier for row in one.rows] == ["a"]
    ends = frames["repeats"].filter(classifier="b").group_by("cell").agg(pl.mean("accuracy_mean"))
    low, high = ends["accuracy_mean"].min(), ends["accuracy_mean"].max()
    said = f"With other hparams: b {low:.3f} to {high:.3f} (6 of them)."
    assert headlines(one).endswith(said)


@pytest.mark.parametrize(
    ("fractions", "largest", "said"),
    [((20.0, 400.0, 60.0), "400.0", "400 rows"), ((0.05, 0.5, 0.2), "0.5", "0.5")],
)
def test_the_largest_size_is_the_usual_one_if_none_has_all_rows(fractions, largest, said):
    tables = planted(1, ("a", "b"), ("none",), fractions, repeats=4)
    (one,) = accuracies(tables)
    assert one.context == (("train_fraction", largest),)
    assert headlines(one).startswith(f"data-00 ({said}): ")
    (first,) = (one.headline for one in answers_of(tables) if one.about == "usual")
    named = said if "rows" in said else f"train fraction {said}"
    assert first == f"Accuracy, spread and points are of the runs with {named}: 80 of 240."
    effect = effects(tables, by=("classifier",)).filter(metric="accuracy_mean")
    assert {*effect["reference"]} == {largest}
    assert {*effect["level"]} == {*map(str, fractions)} - {largest}
    (text,) = (one for one in answers_of(tables) if one.about == "effects")
    assert text.headline.endswith(f"\nCompared with {named}.")
    assert text.text.endswith(f" Compared with {named}.")


def answers_of(tables):
    return answers(tables, effects(tables, by=("classifier",)), None, Options())


def test_all_rows_are_the_largest_size():
    tables = planted(1, ("a",), ("none",), (1.0, 400.0, 0.5), repeats=4)
    (one,) = accuracies(tables)
    assert one.context == (("train_fraction", "1.0"),)
    assert {*effects(tables)["reference"]} == {"1.0"}


def test_only_shared_test_sets_count():
    tables = planted(1, ("a", "b"), repeats=4)
    kept = tables.repeats.filter(~((pl.col("classifier") == "b") & (pl.col("repeat_index") == 2)))
    found = accuracies(type(tables)(tables.runs, tables.pairs, kept, tables.cells))[0]
    assert found.test_sets == 3
    for row in found.rows:
        own = by_hand(tables, "data-00", row.classifier)
        assert row.value == pytest.approx(own[[0, 1, 3]].mean())
    apart = (pl.col("classifier") == "b") == (pl.col("repeat_index") < 1)
    kept = tables.repeats.filter(apart)
    found = accuracies(type(tables)(tables.runs, tables.pairs, kept, tables.cells))[0]
    assert [row.classifier for row in found.rows] == ["a"]
    assert (found.test_sets, found.more) == (3, 0)
    (b,) = found.apart
    assert b.value == pytest.approx(by_hand(tables, "data-00", "b")[0])
    assert b.where == " (own test sets)"
    assert headlines(found).endswith("Not compared with others, as test sets differ: b.")


def test_many_datasets_and_classifiers_stay_short():
    names = tuple("abcdefgh")
    tables = planted(9, names, repeats=4, runs=2)
    texts = told(tables)
    assert len(texts) == 8
    assert max(map(len, texts)) < 700
    assert all(" and 3 more (" in text for text in texts)
    assert texts[-1].endswith(" The summary has 1 more dataset.")
    assert sum("half of the 95 % interval" in text for text in texts) == 1
    found = answers(tables, effects(tables, by=("classifier",)), None, Options())
    assert [one.about for one in found[:8]] == ["accuracy"] * 8
    assert [one.text for one in found[:8]] == texts


def test_equal_accuracies_are_called_equal():
    tables = planted(1, ("a", "b"), repeats=4, sd=0.0)
    (text,) = told(tables)
    assert "a cannot be told apart from b (equal)." in text
    apart = planted(1, ("a", "b"), repeats=4, sd=0.0, accuracy=of_classifier(a=0.7, b=0.9))
    assert "b cannot be told apart from a (0.2000 better on each)." in told(apart)[0]


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_intervals_hold_what_was_planted(repeats):
    """300 sweeps: each mean's interval in 95 %, wrong leads at most in 5 %."""
    truth = {"a": 0.9, "b": 0.9, "c": 0.9}
    held = wrong = 0
    for seed in range(300):
        tables = planted(1, tuple(truth), repeats=repeats, runs=3, between=0.03, seed=seed)
        (found,) = accuracies(tables)
        held += sum(abs(row.value - truth[row.classifier]) <= row.half for row in found.rows)
        wrong += any(row.value > row.half for row in found.differences)
    # rows of a sweep share test sets, so that 900 are worth 300
    assert held >= 0.92 * 900
    assert wrong <= 26, "15 expected; 26 by chance once in 300"


def test_no_error_at_all_asks_for_a_leak():
    """Means of 1 are exact; one error in one run of one classifier is enough not to ask."""
    asked = "No run errs on any test point; look for a feature that gives the class away."
    tables = planted(1, ("a", "b"), repeats=4)
    perfect = replace(tables, repeats=tables.repeats.with_columns(accuracy_mean=pl.lit(1.0)))
    (one,) = accuracies(perfect)
    assert headlines(one) == f"data-00: a 1.000, b 1.000.\n{asked}"
    lower = pl.when(pl.col("cell") == 1, pl.col("repeat_index") == 0).then(0.9999).otherwise(1.0)
    almost = replace(tables, repeats=tables.repeats.with_columns(accuracy_mean=lower))
    (one,) = accuracies(almost)
    assert asked not in headlines(one)


def test_spread_and_ranks_are_those_of_the_cells_that_accuracies_are_of():
    """Not of half the rows or of noise, where more than seeds differs."""
    of = {1.0: 0.01, 0.5: 0.04}
    tables = planted(
        2,
        ("a", "b"),
        ("none", "relative:0.1"),
        (0.5, 1.0),
        repeats=5,
        sd=lambda dataset, name, scheme, share: of[share] * (1 if scheme == "none" else 3),
        accuracy=lambda dataset, name, scheme, share: 0.8 if (name == "a") == (share == 1) else 0.6,
    )
    usual = (tables.cells["train_fraction"] == 1) & (tables.cells["perturb_continuous"] == "none")
    clean = without(tables, ~usual)
    assert spreads(tables) == spreads(clean)
    assert standings(tables.cells) == standings(clean.cells)


def test_a_spread_says_which_cells_it_is_of_where_none_are_usual():
    tables = planted(1, ("a", "b"), ("none",), (0.25, 0.5), repeats=5)
    (headline,) = [
        one.headline
        for one in answers(tables, effects(tables), None, Options())
        if one.about == "spread"
    ]
    assert headline.startswith("Between seeds and subsample, sd of accuracy (train fraction 0.5): ")
