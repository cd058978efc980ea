"""In which order classes and points of files seem to be: others than they are given in."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

_EXACT = 1e-9


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the classes in which predictions are far better than in the one they have.

    `classes`: for each class that is predicted, the one that is meant. `given` and `better`: mean
    recall of the classes as they are, and so.
    """

    classes: tuple[int, ...]
    given: float
    better: float


def better_order(
    truth: NDArray[np.integer[Any]], label: NDArray[np.integer[Any]], n_classes: int
) -> Order | None:
    """Return the order of classes in which a run's predictions are far better, if there is one.

    It is the assignment of predicted to true classes with the highest mean recall, which must be
    the same on each half of the points, 0.1 better, and beyond chance by 4 standard errors; each
    class must have 10 points. Mean recall, as it is 1 / n_classes in every order if predictions do
    not depend on the true class, however often each is predicted.

    `truth` and `label`: indices of classes (sample,).
    """
    if not 2 <= n_classes <= _MOST_ORDERED:
        return None
    by_class, places = np.argsort(truth, kind="stable"), []
    counts = np.zeros((2, n_classes, n_classes))
    for half in (0, 1):
        rows = by_class[half::2]
        np.add.at(counts[half], (truth[rows], label[rows]), 1)
        places.append(_assigned(counts[half]))
    both = counts.sum(axis=0)
    n, every, place = both.sum(axis=1), np.arange(n_classes), _assigned(both)
    if n.min() < _FEWEST_POINTS or any((place != each).any() for each in places):
        return None
    kept, moved = both[every, every], both[every, place]
    given, better = float((kept / n).mean()), float((moved / n).mean())
    either = np.where(place == every, 0, (kept + moved + 1) / (n + 1))
    error = np.sqrt(((either - ((moved - kept) / (n + 1)) ** 2) / n).sum()) / n_classes
    if better - given < _FAR_BETTER or better - given < _BEYOND_CHANCE * error:
        return None
    return Order(tuple(np.argsort(place).tolist()), given, better)


_MOST_ORDERED = 100  # classes
_FEWEST_POINTS = 10
_FAR_BETTER = 0.1
_BEYOND_CHANCE = 4.0


def _assigned(counts: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the predicted class that stands for each true class, by mean recall."""
    from scipy.optimize import linear_sum_assignment

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.asarray(linear_sum_assignment(shares, maximize=True)[1])


def far_better(
    truth: NDArray[np.integer[Any]], given: NDArray[Any], other: NDArray[Any], n_runs: int = 1
) -> tuple[float, float] | None:
    """Return the mean recalls of two readings if the other's is far better; otherwise None.

    By 0.1, and by 4 standard errors, and better than chance by 0.1. `given` and `other`, bool
    arrays like `truth`, of indices of classes: whether a point is right; of `n_runs` runs one after
    another, which may all agree.
    """
    _, of, counts = np.unique(truth, return_inverse=True, return_counts=True)
    weight = 1 / (len(counts) * counts[of])
    difference = other.astype(np.float64) - given
    better = float((weight * difference).sum())
    error = float(np.sqrt(n_runs * (weight**2 * np.maximum(abs(difference), 0.1)).sum()))
    recall = float((weight * given).sum())
    if better < max(_FAR_BETTER, _BEYOND_CHANCE * error):
        return None
    return (recall, recall + better) if recall + better > 1 / len(counts) + _FAR_BETTER else None


def apart(
    label: NDArray[np.integer[Any]], truth: NDArray[np.integer[Any]], kept: int = 0
) -> tuple[list[int], float]:
    """Return which runs err as if their points were in another order, and how much less they agree.

    `label` (run, sample) and `truth` (sample,): indices of classes. Such a run has the recalls of
    the others, yet agrees with them, given the true class, no more than with its points shuffled
    within each class; the others agree far more. Or it is right by chance alone, unlike the others:
    all its points may be shuffled. The number is how many times as often it disagrees with them as
    they do among themselves. `kept`: how many of the first runs are not in question; of three or
    more, those that agree are the others.
    """
    if found := _at_chance(label, truth, kept):
        return found, _times(label, np.array(found), np.delete(np.arange(len(label)), found))
    if len(label) < _FEWEST_RUNS:
        return [], 1.0
    is_new = np.arange(len(label)) >= kept
    if kept >= FEWEST_KEPT:
        known = _most_alike(label[:kept], truth)
    else:
        z = _agreement(label, truth, np.arange(len(label)))
        known = np.flatnonzero(z > _NO_AGREEMENT)
        if len(known) == len(label):  # also if some are shuffled alike
            known = _most_alike(label, truth)
        if len(known) <= len(label) / 2:
            return [], 1.0
    if len(known) < _FEWEST_RUNS - 1 or len(known) == len(label):
        return [], 1.0
    z = _agreement(label, truth, known)
    is_alone = (z <= _NO_AGREEMENT) & is_new
    is_alone[known] = False
    alone, others = np.flatnonzero(is_alone), np.flatnonzero(~is_alone)
    if not alone.size:
        return [], 1.0
    z = _agreement(label, truth, others)
    least, most = z[others].min(), z[alone].max() + _NO_AGREEMENT  # and by chance
    if least < max(_MUCH_AGREEMENT, 2 * most) or most > 2 * _NO_AGREEMENT:
        return [], 1.0
    right = label == truth
    for each in np.unique(truth):
        n, recall = int((truth == each).sum()), right[:, truth == each].mean(axis=1)
        usual, spread = recall[others].mean(), recall[others].std(ddof=1)
        error = np.sqrt(usual * (1 - usual) / n + spread**2 + 1 / n**2)
        if (abs(recall[alone] - usual) > _BEYOND_CHANCE * error).any():
            return [], 1.0
    times = _times(label, alone, others)
    return (alone.tolist(), times) if times >= _OFTEN else ([], 1.0)


def _times(
    label: NDArray[np.integer[Any]], alone: NDArray[np.intp], others: NDArray[np.intp]
) -> float:
    some = label[others[:_MOST_PAIRED]]
    pairs = np.mean([(a != b).mean() for a, b in combinations(some, 2)])
    far = np.mean([(label[one] != some).mean() for one in alone])
    return float(far / max(pairs, 1 / label.shape[1]))


def _at_chance(
    label: NDArray[np.integer[Any]], truth: NDArray[np.integer[Any]], kept: int
) -> list[int]:
    """Return the runs that are right as if all their points were shuffled; few, beside good ones.

    What they predict does not depend on the true class (χ²), so their classes are in no other order
    either; and they predict each class as often as the others do, so they have not collapsed.
    """
    n, size = len(truth), int(max(label.max(), truth.max())) + 1
    true = np.bincount(truth, minlength=size) / n
    share = np.stack([np.bincount(run, minlength=size) for run in label]) / n
    mean = share @ true  # and the exact variance over all orders of the points (Hoeffding 1951)
    variance = (mean + mean**2 - (share * true * (share + true)).sum(axis=1)) / max(n - 1, 1)
    excess, error = (label == truth).mean(axis=1) - mean, np.sqrt(np.maximum(variance, _EXACT))
    is_lone = abs(excess) <= 1.5 * _NO_AGREEMENT * error
    for run in np.flatnonzero(is_lone):  # of those pairs of classes alone that occur
        pairs, counts = np.unique(label[run].astype(np.int64) * size + truth, return_counts=True)
        of_chance = share[run, pairs // size] * true[pairs % size]
        chi2 = n * (((counts / n) ** 2 / of_chance).sum() - 1)
        free = ((share[run] > 0).sum() - 1) * ((true > 0).sum() - 1)
        is_lone[run] = free > 0 and chi2 <= free + _BEYOND_CHANCE * np.sqrt(2 * free)
    lone, others = np.flatnonzero(is_lone), np.flatnonzero(~is_lone)
    if not lone.size or lone[0] < kept or len(others) < max(FEWEST_KEPT, 2 * len(lone)):
        return []
    least, most = excess[others].min(), excess[others].max()
    if least < max(_FAR_BETTER, _MUCH_AGREEMENT * error[others].max()):
        return []
    if least - excess[lone].max() < _APART * (most - least):
        return []
    usual, spread = share[others].mean(axis=0), share[others].std(axis=0, ddof=1)
    chance = np.sqrt(usual * (1 - usual) / n + spread**2 + 1 / n**2)
    return lone.tolist() if (abs(share[lone] - usual) <= _BEYOND_CHANCE * chance).all() else []


def _most_alike(
    label: NDArray[np.integer[Any]], truth: NDArray[np.integer[Any]]
) -> NDArray[np.intp]:
    """Return the runs of the largest group in which each is linked to another by agreement.

    Pairs are linked if they agree beyond what they would with points shuffled within true classes,
    by `_BEYOND_CHANCE` standard deviations, which are exact.
    """
    from scipy.sparse.csgraph import connected_components

    rows = np.unique(np.linspace(0, len(label) - 1, _MOST_LINKED).astype(np.intp))
    shape = len(rows), len(rows)
    excess, variance = np.zeros(shape), np.zeros(shape)
    for each in np.unique(truth):
        names, place = np.unique(label[np.ix_(rows, truth == each)], return_inverse=True)
        place = place.reshape(len(rows), -1)
        if (n := place.shape[1]) < 2:
            continue
        of = np.stack([place == name for name in range(len(names))], axis=2).astype(np.float32)
        counts = of.sum(axis=1, dtype=np.float64)
        expected = counts @ counts.T
        flat = of.reshape(len(rows), -1)
        excess += flat @ flat.T - expected / n
        one = counts**2 @ counts.T
        variance += (expected - (one + one.T) / n + (expected / n) ** 2) / (n - 1)
    z = excess / np.sqrt(np.maximum(variance, _EXACT))
    _, group = connected_components(z > _BEYOND_CHANCE, directed=False)
    return np.asarray(rows[group == np.bincount(group).argmax()])


_MOST_LINKED = 100
FEWEST_KEPT = 3
"""Runs that further ones are compared with alone; fewer are compared together with them."""
_FEWEST_RUNS = 4
_MOST_PAIRED = 40
_NO_AGREEMENT = 2.0  # standard errors
_MUCH_AGREEMENT = 6.0
_APART = 1.0  # ranges of the others
_OFTEN = 1.2


def _agreement(
    label: NDArray[np.integer[Any]], truth: NDArray[np.integer[Any]], others: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return how far each run agrees with others beyond what it does with its points shuffled.

    In standard deviations over all shuffles within true classes, of which mean and variance are
    exact: those of a linear permutation statistic (Hoeffding 1951).
    """
    excess, variance = np.zeros(len(label)), np.zeros(len(label))
    for each in np.unique(truth):
        rows = label[:, truth == each]
        names, place = np.unique(rows, return_inverse=True)
        place = place.reshape(rows.shape)
        n, every = rows.shape[1], np.arange(rows.shape[1])
        if n < 2:
            continue
        votes = np.zeros((n, len(names)))
        for other in others:
            votes[every, place[other]] += 1
        for run, own in enumerate(place):
            theirs = votes.copy()
            if run in others:
                theirs[every, own] -= 1
            share = np.bincount(own, minlength=len(names)) / n
            mean = theirs.mean(axis=0)
            centred = theirs - mean - (theirs @ share)[:, None] + mean @ share
            excess[run] += theirs[every, own].sum() - n * (mean @ share)
            variance[run] += n / (n - 1) * (centred**2 @ share).sum()
    return excess / np.sqrt(np.maximum(variance, _EXACT))
