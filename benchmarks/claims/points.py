"""Which test points flip, which nearly every run gets wrong, what a verdict hangs on, and order."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.claims.record import CHEAP, Claim, Tally
from manyseed.analysis.questions.comparison import (
    OnTestSet,
    Side,
    Values,
    compare,
    hanging,
    hangs,
)
from manyseed.analysis.questions.hardpoints import answer, by_point, often_wrong, wrong_labels
from manyseed.analysis.questions.quantiles import runs_needed
from manyseed.orchestrator.importing.orders import apart, lone_orders, other_order

Right = list[tuple[NDArray[np.int64], NDArray[np.bool_]]]


def labelled(
    seed: int, wrong: int, *, alike: bool = True, n: int = 1000, classifiers: int = 3
) -> tuple[pl.DataFrame, set[int]]:
    """Return points that eight runs of each classifier predicted, and those whose label is wrong.

    `alike`: whether all classifiers err on the same points, as far as these are hard.
    """
    rng = np.random.default_rng(seed)
    at, hard = rng.choice(n, wrong, replace=False), rng.beta(0.3, 2, n)
    parts = []
    for number in range(classifiers):
        own = hard if alike else rng.beta(0.3, 1, n)
        right = rng.random((8, n)) >= np.clip(
            own + 0.1 * rng.normal(size=n), 0.01, 0.95 if alike else 1
        )
        right[:, at] = rng.random((8, wrong)) < 0.02
        margin = np.where(right, 1, -1) * rng.exponential(size=right.shape)
        facts = {"dataset": "d", "classifier": f"c{number}", "levels": "", "truth": "a"}
        values = {
            "index": np.arange(n),
            "majority": np.where(right.mean(axis=0) > 0.5, "a", "b"),
            "wrong": 1 - right.mean(axis=0),
            "margin": margin.mean(axis=0),
        }
        parts.append(pl.DataFrame({**facts, **values, "n_runs": 8, "flips": 0.1, "known": True}))
    return pl.concat(parts), set(at.tolist())


def resting(seed: int, on: int, n: int = 1000, n_runs: int = 8) -> tuple[Right, Right]:
    """Return two sides that err alike, but for `on` points that only the first gets right."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n) < 0.15
    hard[:on] = False
    sides: list[Right] = []
    for number in range(2):
        right = np.tile(~hard, (n_runs, 1))
        for run in range(0, n_runs, 2):
            right[run, rng.choice(np.flatnonzero(~hard[on:])) + on] = False
        right[:, :on] = number == 0
        sides.append([(np.arange(n), right)])
    return sides[0], sides[1]


def on_test_sets(right: Right) -> list[OnTestSet]:
    """Return a side whose runs are read in two parts."""
    return [OnTestSet(index, partial(iter, (own[:1], own[1:]))) for index, own in right]


def judged(better: Values, worse: Values) -> bool:
    """Return the verdict of `compare`."""
    found = compare([Side(own) for own in better], [Side(own) for own in worse], paired=False)
    limits = found.sets or found.seeds
    return limits is not None and limits[0] > 0


def _flipping(share: float, seed: int) -> Tally:
    """Say which of 100 points flip between 6 runs of a class that a share of points can leave."""
    rng = np.random.default_rng(seed)
    runs = rng.random((6, 100)) < 0.5 * (rng.random(100) < share)
    ones = runs.sum(axis=0)
    table = pl.DataFrame(
        {
            "dataset": "d",
            "classifier": "c",
            "vary": "init",
            "cell": 0,
            "n_cells": 1,
            "truth": "a",
            "index": np.arange(100),
            "majority": "a",
            "n_runs": 6,
            "wrong": ones / 6,
            "flips": ones * (6 - ones) / 15,
            "margin": 0.0,
            "of_flips": None,
            "runs_needed": 6,
        }
    ).lazy()
    said = answer(table, by_point(table))
    return Tally(any(one.headline.startswith("Points that change class") for one in said))


def _known(share: float, seed: int) -> Tally:
    """Count of 100 points, each predicted as one of two classes, those of known majority."""
    ones = np.random.default_rng(seed).binomial(20, share, 100)
    first = np.maximum(ones, 20 - ones)
    needed = runs_needed(first, 20 - first, np.full(100, 20))
    return Tally(int((needed <= 20).sum()), 100)


def _labels(wrong: int, seed: int, *, alike: bool) -> Tally:
    return Tally(bool(list(wrong_labels(labelled(seed, wrong, alike=alike)[0]))))


def at_chance(labels: pl.DataFrame, classifier: str, seed: int = 0) -> pl.DataFrame:
    """Return a further classifier, whose eight runs guess each point of two classes."""
    one = labels.filter(pl.col("classifier") == labels["classifier"][0])
    wrong = np.random.default_rng([seed, 7]).binomial(8, 0.5, one.height) / 8
    own = pl.Series(wrong, dtype=one.schema["wrong"])
    return one.with_columns(classifier=pl.lit(classifier), wrong=own)


def of_two_classes(labels: pl.DataFrame) -> pl.DataFrame:
    """Return points of which each fourth has another label."""
    is_fourth = pl.col("index") % 4 == 0
    return labels.with_columns(truth=pl.when(is_fourth).then(pl.lit("b")).otherwise(pl.lit("a")))


def _but_one(wrong: int, seed: int, *, alike: bool) -> Tally:
    """Say whether points are wrong in nearly every run, beside a classifier that guesses."""
    labels = of_two_classes(labelled(seed, wrong, alike=alike)[0])
    labels = pl.concat([labels, at_chance(labels, "guessing", seed)])
    return Tally(any("but guessing" in one.headline for one in wrong_labels(labels)))


def few_of_each(hard: float, seed: int) -> Tally:
    """Say whether points are wrong in nearly every run of two classifiers, of one run each.

    240 points of two classes, one of them much harder. Of the `hard` share, both are wrong.
    """
    rng, n = np.random.default_rng([seed, 6]), 240
    truth = rng.choice(2, n, p=(0.7, 0.3))
    always, share = rng.random(n) < hard, np.array([0.03, 0.3])[truth]
    labels = [
        pl.DataFrame(
            {
                "dataset": "d",
                "classifier": name,
                "levels": "",
                "index": np.arange(n),
                "truth": [f"class {each}" for each in truth],
                "majority": "a",
                "n_runs": 1,
                "wrong": (always | (rng.random(n) < share)).astype(float),
                "margin": rng.random(n),
            }
        )
        for name in "ab"
    ]
    return Tally(bool(list(wrong_labels(pl.concat(labels)))))


def _single(hard: float, seed: int) -> Tally:
    """Say whether points are wrong in nearly every run of one classifier, with two to four runs.

    240 points of three classes, which it gets wrong with another probability each; of each test
    set, half of them, there are one or two runs, whose accuracies differ. Of the `hard` share, all
    runs are wrong.
    """
    rng, n = np.random.default_rng([seed, 5]), 240
    truth = rng.choice(3, n, p=(0.5, 0.3, 0.2))
    always, share = rng.random(n) < hard, np.array([0.1, 0.25, 0.5])[truth]
    runs, wrong = np.zeros(n, np.int64), np.zeros(n)
    for _ in range(4):
        tested = rng.permutation(n) < n // 2
        for _ in range(1 + seed % 2):
            odds = share / (1 - share) * np.exp(0.2 * rng.normal())
            runs += tested
            wrong += tested & (always | (rng.random(n) < odds / (1 + odds)))
    labels = pl.DataFrame(
        {
            "dataset": "d",
            "classifier": "c",
            "levels": "",
            "index": np.arange(n),
            "truth": [f"class {each}" for each in truth],
            "majority": "a",
            "n_runs": runs,
            "wrong": wrong / np.maximum(runs, 1),
            "margin": 0.0,
        }
    )
    return Tally(bool(list(often_wrong(labels.filter(pl.col("n_runs") > 0)))))


def _even(seed: int) -> Tally:
    rng = np.random.default_rng(seed)
    better, worse = ([(np.arange(1000), rng.random((8, 1000)) < p)] for p in (0.9, 0.7))
    found = hanging(on_test_sets(better), on_test_sets(worse), judged)
    return Tally("hangs on no few" not in hangs(found, "a > b", "d").headline)


def _only_just(seed: int) -> Tally:
    """Say how often a verdict with an interval that nearly holds 0 hangs on no few points."""
    rng = np.random.default_rng([seed, 1])
    better, worse = ([(np.arange(1000), rng.random((8, 1000)) < p)] for p in (0.9, 0.888))
    sides = [on_test_sets(side) for side in (better, worse)]
    own, other = ([Side(right.mean(axis=1)) for _, right in side] for side in (better, worse))
    limits = compare(own, other, paired=False).seeds
    if limits is None or not 0 < limits[0] < (limits[1] - limits[0]) / 4:
        return Tally(0, 0)
    return Tally("hangs on no few" in hangs(hanging(*sides, judged), "a > b", "d").headline)


def _warned(seed: int) -> Tally:
    found = hanging(*(on_test_sets(side) for side in resting(seed, 14)), judged)
    return Tally("only just told hangs on few" in hangs(found, "a > b", "d").cannot_tell)


def _resting(seed: int) -> Tally:
    found = hanging(*(on_test_sets(side) for side in resting(seed, 14)), judged)
    exact = sorted(found.index) == list(range(14))
    return Tally(exact and "hangs on 14 of 1,000" in hangs(found, "a > b", "d").headline)


def _apart(seed: int, *, is_shuffled: bool) -> Tally:
    """Say which of six runs has its points in another order.

    The last is of another model, as accurate, which finds half of the others' hard points hard; or
    it is like the others, with its points shuffled within each class. How many points a run gets
    wrong has heavy tails.
    """
    rng, n = np.random.default_rng([seed, 2]), 600
    y, hard = rng.integers(0, 3, n), np.where(rng.random(n) < 0.25, 0.5, 0.03)
    runs = []
    for run in range(6):
        own = hard
        if run == 5 and not is_shuffled:
            at = rng.choice(n, n // 2, replace=False)
            own = hard.copy()
            own[at] = hard[rng.permutation(at)]
        wrong = rng.random(n) < np.minimum(own * (1 + 0.1 * rng.standard_t(2) ** 2), 0.95)
        runs.append(np.where(wrong, (y + rng.integers(1, 3, n)) % 3, y))
    if is_shuffled:
        for each in range(3):
            at = np.flatnonzero(y == each)
            runs[5][at] = runs[5][rng.permutation(at)]
    found, _ = apart(np.stack(runs), y)
    return Tally(found == [5] if is_shuffled else bool(found))


def _added(seed: int, *, is_shuffled: bool) -> Tally:
    """Say which of three added runs have their points in another order than four that are there.

    The added ones are of another model, which finds half of the others' hard points hard; or they
    are like the others, with their points shuffled alike within each class.
    """
    rng, n = np.random.default_rng([seed, 3]), 600
    y, hard = rng.integers(0, 3, n), np.where(rng.random(n) < 0.25, 0.5, 0.03)
    at, other = rng.choice(n, n // 2, replace=False), hard.copy()
    other[at] = hard[rng.permutation(at)]
    order = np.arange(n)
    for each in range(3):
        rows = np.flatnonzero(y == each)
        order[rows] = rng.permutation(rows)
    runs = []
    for run in range(7):
        own = other if run >= 4 and not is_shuffled else hard
        wrong = rng.random(n) < np.minimum(own * (1 + 0.1 * rng.standard_t(2) ** 2), 0.95)
        label = np.where(wrong, (y + rng.integers(1, 3, n)) % 3, y)
        runs.append(label[order] if run >= 4 and is_shuffled else label)
    found, _ = apart(np.stack(runs), y, 4)
    return Tally(found == [4, 5, 6] if is_shuffled else bool(found))


def _shuffled(seed: int, *, is_shuffled: bool) -> Tally:
    """Say which of six runs has all its points shuffled, if its labels were of use before.

    Else the last is far worse than the others, or its learning failed: it predicts the class that
    most points have, or classes that depend on nothing, but seldom as often as the others do.
    """
    rng, n = np.random.default_rng([seed, 4]), 600
    y = rng.choice(3, n, p=(0.5, 0.3, 0.2))
    runs = []
    for _ in range(6):
        wrong = rng.random(n) < 0.2 * (1 + 0.1 * rng.standard_t(2) ** 2)
        runs.append(np.where(wrong, (y + rng.integers(1, 3, n)) % 3, y))
    kind = seed % 3
    if is_shuffled:
        runs[5] = rng.permutation(runs[5])
    elif kind == 0:
        wrong = rng.random(n) < 0.55
        runs[5] = np.where(wrong, (y + rng.integers(1, 3, n)) % 3, y)
    elif kind == 1:
        runs[5] = np.where(rng.random(n) < 0.02, rng.integers(0, 3, n), 0)
    else:
        runs[5] = rng.choice(3, n, p=rng.dirichlet(np.ones(3)))
    found, _ = apart(np.stack(runs), y)
    return Tally(found == [5] if is_shuffled else bool(found))


def _turned(seed: int, *, is_turned: bool) -> Tally:
    """Say which of six runs has its classes, or its points, in another order.

    Else the last is far worse than the others, collapsed, of classes drawn by chance, or it takes
    one class for another more often than not.
    """
    rng, n, kind = np.random.default_rng([seed, 5]), 600, seed % 4
    n_classes = 2 + seed % 5
    y = rng.choice(n_classes, n, p=rng.dirichlet(np.full(n_classes, 20.0)))
    runs = []
    for run in range(6):
        share = 0.2 * (1 + 0.1 * rng.standard_t(2) ** 2)
        share = 0.55 if run == 5 and kind == 0 and not is_turned else share
        runs.append(np.where(rng.random(n) < share, rng.integers(0, n_classes, n), y))
    if is_turned:
        runs[5] = runs[5][::-1] if kind == 0 else np.roll(np.arange(n_classes), 1)[runs[5]]
    elif kind == 1:
        runs[5] = np.where(rng.random(n) < 0.02, rng.integers(0, n_classes, n), 0)
    elif kind == 2:
        runs[5] = rng.choice(n_classes, n, p=rng.dirichlet(np.ones(n_classes)))
    elif kind == 3:
        runs[5] = np.where((runs[5] == 1) & (rng.random(n) < 0.7), 0, runs[5])
    found = lone_orders([other_order(y, run, n_classes) for run in runs])
    return Tally(found == [5] if is_turned else bool(found))


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "seed_3.csv has the mean recall 0.10, where other runs have 0.90, and would have 0.89 with "
        "its classes in the order c, b, a",
        "import",
        r"where other runs have",
        0.05,
        "sweeps",
        partial(_turned, is_turned=False),
        partial(_turned, is_turned=True),
        "six runs, one far worse, or collapsed to a class, or of classes drawn by chance, or that "
        "takes a class for another; 2 to 6 classes, 600 points",
        "a run's classes, or its points, are in another order: it is named",
    ),
    Claim(
        "seed_3.csv disagrees with the others 2 times as often …: all its points are shuffled",
        "import",
        r"in another order",
        0.05,
        "sweeps",
        partial(_shuffled, is_shuffled=False),
        partial(_shuffled, is_shuffled=True),
        "six runs, one far worse, or collapsed to a class, or of classes drawn by chance; 600 "
        "points; how many a run gets wrong has heavy tails",
        "all points of a run are shuffled: it is named",
    ),
    Claim(
        "seed_3.csv disagrees with the others 2 times as often …, as if its points were in another "
        "order",
        "import",
        r"as if {} points were in another order",
        0.05,
        "sweeps",
        partial(_apart, is_shuffled=False),
        partial(_apart, is_shuffled=True),
        "six runs, one of another model that shares half of its hard points; 600 points; how many "
        "a run gets wrong has heavy tails",
        "a run's points are shuffled within each class: it is named",
    ),
    Claim(
        "seed_7.csv disagrees with the runs that are there 2 times as often …",
        "import DIR",
        r"times as often as these",
        0.05,
        "sweeps",
        partial(_added, is_shuffled=False),
        partial(_added, is_shuffled=True),
        "three added to four, of another model that shares half of their hard points; 600 points; "
        "how many a run gets wrong has heavy tails",
        "the points of all three are shuffled alike within each class: they are named",
    ),
    Claim(
        "Points that change class between runs: 12 of 100 of a on D",
        "answers, points",
        r"change class between runs|^Points that change class|labelled {}, mostly predicted",
        0.0,
        "sweeps",
        partial(_flipping, 0.0),
        partial(_flipping, 0.3),
        "all six runs agree on each of 100 points",
        "they do not on a third of them",
    ),
    Claim(
        "for 90 of 100 points these runs tell (95 %) which class most further runs would predict",
        "answers, points",
        r"points these runs tell|which class most further runs would",
        0.05,
        "points",
        partial(_known, 0.5),
        partial(_known, 0.85),
        "20 runs; each predicts one of two classes with probability a half",
        "one of them with 0.85",
    ),
    Claim(
        "21 of 1,000 tested points of D are wrong in nearly every run of every classifier",
        "answers, points",
        r"wrong in (nearly every run of every|at least {} of the runs of each)|"
        r"as nearly all runs err|^Hard or wrongly labelled$|"
        r"need no wrong label|: hard, or wrongly labelled",
        0.05,
        "sweeps",
        partial(_labels, 0, alike=False),
        partial(_labels, 20, alike=True),
        "3 classifiers that err independently of each other, eight runs each",
        "20 labels are wrong, and all err on the same hard points",
    ),
    Claim(
        "21 of 1,000 tested points are wrong in nearly every run, of one run of each classifier",
        "answers, points",
        r"wrong in (nearly every run of every|at least {} of the runs of each)",
        0.05,
        "sweeps",
        partial(few_of_each, 0.0),
        partial(few_of_each, 0.1),
        "2 classifiers of one run each; the points of a class are equally hard, 3 and 30 %",
        "both are wrong on a tenth of the points",
        CHEAP,
    ),
    Claim(
        "21 of 1,000 tested points of D are wrong in nearly every run of every classifier but c",
        "answers, points",
        r"not counted: not told to be better than chance",
        0.05,
        "sweeps",
        partial(_but_one, 0, alike=False),
        partial(_but_one, 20, alike=True),
        "3 classifiers that err independently of each other, and one that guesses, eight runs each",
        "20 labels are wrong, and all but the guessing one err on the same hard points",
    ),
    Claim(
        "22 of 240 points of D tested at least twice are wrong in nearly every run of a",
        "answers, points",
        r"points of \{\}$|tested at least twice|^ \{\} wrong in$|nearly every run of \{\}|"
        r"Wrong in nearly every run: |at least \{\} of the runs of \{\};",
        0.05,
        "sweeps",
        partial(_single, 0.0),
        partial(_single, 0.15),
        "one classifier with one or two runs on each of four test sets, random halves of 240 "
        "points: it errs alike on all points of a class, but 10 to 50 % of the time of its three "
        "classes",
        "all runs are wrong on 15 % of the points",
        CHEAP,
    ),
    Claim(
        "a > b on D hangs on 14 of 1,000 points (or: on no few points)",
        "points --verdicts",
        r"hangs on {} of {} points|hangs on no few points|nothing hangs on points|"
        r"is still told without the",
        0.05,
        "verdicts",
        _even,
        _resting,
        "a better by 0.2, evenly on all of 1,000 points",
        "a better on 14 points alone: it is these that are named",
    ),
    Claim(
        "… a verdict that is only just told hangs on few points, even if no point matters more",
        "points --verdicts",
        r"only just told hangs on few points",
        0.05,
        "verdicts",
        _only_just,
        _warned,
        "a better by 0.012, evenly on all of 1,000 points, and told by less than a quarter of its "
        "interval's length",
        "it is said beside every verdict that hangs on few",
    ),
)
