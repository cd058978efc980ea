"""In which order classes, points, axes and rows of files seem to be: others than as given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.counts import some
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.classes import codes

_EXACT = 1e-9


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the classes in which predictions are far better than in the one they have.

    `classes`: for each class that is predicted, the one that is meant; none if it is the points
    that have another order. `given` and `better`: mean recall of the classes as they are, and so.
    """

    classes: tuple[int, ...]
    given: float
    better: float

    def words(self, names: Sequence[str]) -> str:
        """Say which order it is, by the names of the classes."""
        if not self.classes:
            return "points from the last to the first"
        return f"classes in the order {some([names[number] for number in self.classes], _SHOWN)}"


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
    pairs, size = truth.astype(np.intp) * n_classes + label, n_classes**2
    both = np.bincount(pairs, minlength=size).reshape(n_classes, n_classes)
    n, every = both.sum(axis=1), np.arange(n_classes)
    if n.min() < _FEWEST_POINTS:
        return None
    # no order is better than the most frequent prediction of each class
    if ((both.max(axis=1) - both[every, every]) / n).mean() < _FAR_BETTER:
        return None
    place, by_class = _assigned(both), np.argsort(truth, kind="stable")
    for rows in (by_class[::2], by_class[1::2]):
        half = np.bincount(pairs[rows], minlength=size).reshape(n_classes, n_classes)
        if (place != _assigned(half)).any():
            return None
    kept, moved = both[every, every], both[every, place]
    given, better = float((kept / n).mean()), float((moved / n).mean())
    either = np.where(place == every, 0, (kept + moved + 1) / (n + 1))
    error = np.sqrt(((either - ((moved - kept) / (n + 1)) ** 2) / n).sum()) / n_classes
    if better - given < _FAR_BETTER or better - given < _BEYOND_CHANCE * error:
        return None
    return Order(tuple(np.argsort(place).tolist()), given, better)


def other_order(
    truth: NDArray[np.integer[Any]], label: NDArray[np.integer[Any]], n_classes: int
) -> tuple[float, Order | None]:
    """Return a run's mean recall, and the order in which it is far better, if there is one.

    Of classes, or of points: from the last to the first.
    """
    truth = truth.astype(np.intp, copy=False)
    right, turned = label == truth, label[::-1] == truth
    recall = _recall(truth, right)
    if recall > 1 - _FAR_BETTER:
        return recall, None
    found = better_order(truth, label, n_classes)
    if found is None and _recall(truth, turned) > recall + _FAR_BETTER / 2:  # else in vain
        better = far_better(truth, right, turned)
        found = None if better is None else Order((), *better)
    return recall, found


def _recall(truth: NDArray[np.integer[Any]], right: NDArray[np.bool_]) -> float:
    """Return the mean recall of the classes that occur."""
    counts = np.bincount(truth)
    return float((np.bincount(truth, right)[counts > 0] / counts[counts > 0]).mean())


def lone_orders(seen: Sequence[tuple[float, Order | None]]) -> list[int]:
    """Return which runs, a minority, are in another order while the others are in none.

    In it they have the others' mean recall, or miss it by 0.1 at most. `seen`: `other_order` of
    each run.
    """
    others = [recall for recall, order in seen if order is None]
    if not others or len(seen) - len(others) > max(1, (len(seen) - 1) // 2):
        return []
    least = sum(others) / len(others) - _FAR_BETTER
    return [at for at, (_, order) in enumerate(seen) if order is not None and order.better >= least]


_MOST_ORDERED = 100  # classes
_FEWEST_POINTS = 10
_FAR_BETTER = 0.1
_BEYOND_CHANCE = 4.0


def _assigned(counts: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
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
    if len(truth) > _MOST_COMPARED:
        some_of = np.random.default_rng(0).choice(len(truth), _MOST_COMPARED, replace=False)
        label, truth = label[:, some_of], truth[some_of]
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


_MOST_COMPARED = 2**16  # points, drawn at random from more
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


def by_run(array: Any, given: Mapping[str, Any], key: str, path: Path) -> Any:
    """Return an array as (run, sample) or (run, sample, class); true classes tell which is which.

    Of one run the axis may be lacking: (sample), or (sample, class) of scores.
    """
    shape, n = array.shape, np.shape(given["y_true"])[-1:]
    if key == "scores" and len(shape) in (2, 3) and shape[-1] == 1 and n != (1,):
        # of the positive class, as Keras gives them
        flat = array[..., 0] if isinstance(array, np.ndarray) else replace(array, shape=shape[:-1])
        return by_run(flat, given, key, path)
    places = [axis for axis, length in enumerate(shape) if (length,) == n]
    if key == "scores" and len(shape) == 3 and not places and (shape[0] * shape[1],) == n:
        if isinstance(array, np.ndarray):
            return array.reshape(1, *n, shape[2])  # batches of one run
        if not array.fortran:
            return replace(array, shape=(1, *n, shape[2]))
    if key == "scores" and shape[-1:] == n and len(shape) <= 2:
        _require_two_classes(array, given, path)
    if shape[1:2] == n or not places or not 1 <= len(shape) <= (2 if key == "labels" else 3):
        return array
    if array.dtype.itemsize * math.prod(shape) > _MOST_TURNED:
        remedy = "save it in this order, which can be read in parts"
        needed = f"has shape {shape}; (run, sample, …) is needed"
        raise UserError(needed, file=path, key=key, remedy=remedy)
    whole = array[np.arange(shape[0])]
    if len(shape) == 1:
        return whole[None]
    if key == "labels":
        return whole.T
    if len(shape) == 2:
        _require_classes(given, shape, path)
        return whole[None]
    whole = np.moveaxis(whole, places[0], 1)
    if "class_names" not in given:
        _require_last_of_classes(whole.shape, np.asarray(given["y_true"]), path)
    return whole


def _require_classes(given: Mapping[str, Any], shape: tuple[int, ...], path: Path) -> None:
    """Refuse scores (sample, …) whose other axis may be runs instead of classes."""
    classes = np.unique(np.asarray(given["y_true"]))
    n = len(given["class_names"]) if "class_names" in given else len(classes)
    if shape[1] != n and "class_names" not in given:
        raise UserError(
            f"has shape {shape}, (sample, class) by y_true, which has {n} different classes",
            file=path,
            key="scores",
            remedy="name all classes with class_names; or, if the second axis is runs, give "
            "scores.T, the logit gaps (run, sample)",
        )


def _require_two_classes(array: Any, given: Mapping[str, Any], path: Path) -> None:
    """Refuse scores without an axis of classes, if there are more than two, or it is the first."""
    shape, first = array.shape, array[np.array([0])]
    classes = np.asarray(given.get("class_names", np.unique(np.asarray(given["y_true"]))))
    n = len(classes)
    if (first == np.round(first)).all() or n < 2:  # labels, which is told elsewhere
        return
    is_turned = len(shape) == 2 and shape[0] == n
    if is_turned and n == 2:
        both = array[np.arange(2)]
        is_turned = bool((both >= 0).all() and np.allclose(both.sum(axis=0), 1, atol=1e-3))
    if is_turned:
        what = f"has shape {shape}, which looks like (class, sample), as there are {n} classes"
        raise UserError(what, file=path, key="scores", remedy="save scores.T")
    if n > 2:
        raise UserError(
            f"has shape {shape}, one number for each point of a run, but there are {n} classes",
            file=path,
            key="scores",
            remedy="save the scores of each class, (run, sample, class), or the predicted classes, "
            "labels; a largest probability does not say of which class it is",
        )


_MOST_TURNED = 2**31  # bytes


def _require_last_of_classes(shape: tuple[int, ...], y_true: NDArray[Any], file: Path) -> None:
    """Refuse scores taken as (run, sample, class) of which the first axis may be the classes."""
    n, (first, _, last) = len(np.unique(y_true)), shape
    if first == n != last:
        raise UserError(
            f"may hold {first} runs of {last} classes, or {last} runs of {n}, as y_true has",
            file=file,
            key="scores",
            remedy="save it as (run, sample, class), or name all classes with class_names",
        )


_MOST_POINTS = 5000  # that are looked at for other axes
_MOST_BYTES = 2**27
_AXES = ("run", "sample", "class")


def require_axes(
    array: Any, given: Mapping[str, Any], key: str, class_names: Sequence[str], file: Path
) -> None:
    """Refuse arrays that fit the truth far better with other axes, which their lengths allow.

    `array`: (run, sample, class) of scores, or (run, sample) of labels or scores, read by
    positions. `given`: `y_true`, and maybe `repeat` and `class_names`.
    """
    truth = codes(np.asarray(given["y_true"]), class_names, "y_true", file)
    truth = truth[0] if truth.ndim == 2 and len(truth) == 1 else truth
    if truth.ndim == 2 and np.shape(given.get("repeat", ())) == array.shape[:1]:
        repeat = np.asarray(given["repeat"])
        if repeat.dtype.kind not in "iu" or not 0 <= repeat.min() <= repeat.max() < len(truth):
            return  # refused later
        truth = truth[repeat]
    if truth.shape in (array.shape[1:2], array.shape[:2]):
        n_classes = len(class_names) if "class_names" in given else len(np.unique(truth))
        _require_axes(array, truth, key, n_classes, file)


def _require_axes(
    array: Any, truth: NDArray[np.integer[Any]], key: str, n_classes: int, file: Path
) -> None:
    """Do so for the truth (sample,), or (run, sample); the last axis may have so many classes."""
    shape = array.shape
    if array.dtype.itemsize * np.prod(shape, dtype=float) > _MOST_BYTES:
        return
    orders = [
        order
        for order in [*permutations(range(len(shape)))][1:]
        if shape[order[1]] == shape[1]
        and (len(shape) == 2 or shape[order[2]] in (shape[2], n_classes))
        and (truth.ndim == 1 or shape[order[0]] == shape[0])
    ]
    if not orders:
        return
    whole = array[np.arange(shape[0])]
    points = np.linspace(0, shape[1] - 1, min(shape[1], _MOST_POINTS)).astype(np.intp)

    def right(order: Sequence[int]) -> NDArray[Any]:
        values = whole.transpose(order)[:, points]
        if key == "scores":
            values = values.argmax(axis=2) if values.ndim == 3 else values >= 0
        return np.asarray(values == truth[..., points])

    given = right(range(len(shape)))
    for order in orders:
        other = right(order)
        n_runs = min(len(given), len(other))
        truths = np.broadcast_to(truth[..., points], given.shape)[:n_runs]
        parts = given[:n_runs].ravel(), other[:n_runs].ravel()
        if (recalls := far_better(truths.ravel(), *parts, n_runs)) is not None:
            asked = ", ".join(_AXES[: len(shape)])
            read = ", ".join(_AXES[order.index(axis)] for axis in range(len(shape)))
            raise UserError(
                f"has shape {shape}: as ({asked}) its mean recall is {recalls[0]:.2f}, as ({read}) "
                f"{recalls[1]:.2f}",
                file=file,
                key=key,
                remedy=f"save {key}.transpose{order}",
            )


_SHOWN = 10  # classes in a message
