"""Classes in predictions: names and their order, labels as indices, probabilities as scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import quoted, same_spelling, spelling
from manyseed.jobs.datasets.columns import is_number, natural_order
from manyseed.jobs.run import OFF, gaps, labels
from manyseed.orchestrator.errors import UserError, nearest


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions of some runs.

    `label`, integer array (run, epoch, sample) or None: none if it follows from the scores.
    `scores`, float array (run, sample) of logit gaps or (run, sample, class), or None. `floored`:
    number of test points with a probability that was raised to have a finite logarithm.
    """

    label: NDArray[np.integer[Any]] | None
    scores: NDArray[np.floating[Any]] | None
    floored: int = 0


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return different names in the order that datasets have: as numbers if all are, else text."""
    known = [*{*names}]
    return tuple(known[place] for place in natural_order(known))


def require_one_order(names: Sequence[str], key: str, file: Path) -> None:
    """Refuse names whose order decides what the predictions mean, if others may sort otherwise."""
    orders = [sorted(names), sorted(names, key=_folded), sorted(names, key=by_numbers)]
    if other := next((order for order in orders if order != [*names]), None):
        place = next(i for i, name in enumerate(names) if other[i] != name)
        raise UserError(
            f"names classes whose order is not certain: {quoted(names[place])} or "
            f"{quoted(other[place])} may come first",
            file=file,
            key=key,
            remedy="name all classes in the order of the scores, or of the indices of labels, with "
            "class_names",
        )


def _folded(name: str) -> tuple[str, str]:
    return name.casefold(), name


def by_numbers(name: str) -> list[Any]:
    """Return a key that sorts names as people number them: c2 before c10, by ASCII digits."""
    if is_number(name) and all(part.isascii() for part in re.findall(r"\d", name)):
        return [(0, float(name.replace(",", ".", 1)), name)]
    return [
        (1, float(part), part) if part.isdecimal() and part.isascii() else (2, 0.0, part)
        for part in re.split("([0-9]+)", name)
    ]


def require_apart(truth: Collection[str], predicted: Collection[str], key: str, file: Path) -> None:
    """Refuse labels that mean one class but are written in two ways, which would never be right."""
    same = same_spelling({*truth, *predicted})
    only: dict[object, str] = {}
    for name in sorted({*truth} - {*predicted}):
        only.setdefault(_meaning(name), name)
    same += [
        (only[meaning], name)
        for name in sorted({*predicted} - {*truth})
        if (meaning := _meaning(name)) in only
    ]
    if same:
        raise UserError(
            f"has classes that are one but for spelling: {' and '.join(map(quoted, same[0]))}",
            file=file,
            key=key,
            remedy="write each class in one way",
        )


def _meaning(name: str) -> object:
    plain = spelling(name)
    return float(plain.replace(",", ".", 1)) if is_number(plain) else plain.casefold()


FLOOR = float(np.finfo(np.float32).tiny)
"""Smaller probabilities are raised to this value, as the logarithm of 0 is not a score."""

_LARGE = 2.0**10
"""Above it the numbers that float32 holds are more than 0.0001 apart."""


def as_kept(
    scores: NDArray[np.floating[Any]], n_classes: int, *, is_softmax: bool
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return a run's scores as float32, and its labels, which are those of the scores as given.

    `scores`, float array (sample,) of gaps or (sample, class); of two classes their gaps are
    returned. `is_softmax`: whether only differences within a row count: where rounding to float32
    would change those, rows are then taken from their largest score.
    """
    wide = scores.astype(np.promote_types(scores.dtype, np.float32), copy=False)
    narrow = wide.astype(np.float32)
    exact, kept = (gaps(wide), gaps(narrow)) if wide.ndim == 2 else (wide, narrow)
    label = labels(exact, n_classes)
    if wide.dtype == np.float32 or not np.isfinite(narrow).all():  # which is refused
        return kept, label
    if wide.ndim == 2 and (is_softmax or n_classes == 2):
        is_rounded = ((np.abs(wide) > _LARGE) & (narrow != wide)).any(axis=1)
        rows = is_rounded | (labels(kept, n_classes) != label)
        precise = exact[rows]
        kept[rows] = precise if n_classes == 2 else precise - precise.max(axis=1, keepdims=True)
    off = np.flatnonzero(labels(kept, n_classes) != label)
    if n_classes == 2:
        kept[off] = -FLOOR
    else:
        kept[off, label[off]] = np.nextafter(kept[off].max(axis=1), np.float32(np.inf))
    return kept, label


def predicted(
    p: NDArray[np.floating[Any]], refuse: Callable[[int, int, str], NoReturn]
) -> Predicted:
    """Return labels and scores for the probabilities of runs.

    `p`, float array (run, sample) or (run, sample, class): probability of the positive of two
    classes, or of each class. `refuse`: raises an error; takes the indices in `p` of a run and of a
    test point whose values are not probabilities, and what is wrong with them.

    Scores are float32: for two classes the gap log p₁ − log p₀, for more log p. Their
    softmax is p, however p was computed. Test points with a probability below `FLOOR` are counted.
    """
    label = np.empty(p.shape[:2], dtype=np.int64)
    two = p.ndim == 2 or p.shape[2] == 2
    scores = np.empty(p.shape[:2] if two else p.shape, dtype=np.float32)
    floored = 0
    for run, given in enumerate(p):
        exact = given.astype(np.float64)
        if (problem := _problem(exact)) is not None:
            refuse(run, *problem)
        if exact.ndim == 1:
            exact = np.stack([1 - np.minimum(exact, 1), exact], axis=1)
        logs = np.log(np.maximum(exact, FLOOR))
        floored += int((exact < FLOOR).any(axis=1).sum())
        label[run] = labels(gaps(exact), exact.shape[1])
        scores[run] = gaps(logs)
    return Predicted(label[:, None], scores, floored)


def _problem(p: NDArray[np.float64]) -> tuple[int, str] | None:
    """Return the first test point with invalid probabilities and why; None if all are valid."""
    each = p.reshape(len(p), -1)
    negative = np.asarray(~(each >= 0).all(axis=1))  # or NaN
    sums = each.sum(axis=1)
    too_much, too_little = ~(sums <= 1 + OFF), (sums < 1 - OFF) & (p.ndim > 1)
    if not (wrong := negative | too_much | too_little).any():
        return None
    point = int(np.argmax(wrong))
    if negative[point] or p.ndim == 1:
        return point, f"{each[point].min():g} is not a probability"
    return point, f"the probabilities sum to {sums[point]:.6g}, not to 1"


def texts(values: NDArray[Any], key: str, file: Path) -> NDArray[Any]:
    """Return an array with byte strings decoded to str; other arrays are returned as they are."""
    if values.dtype.kind != "S":
        return values
    try:
        return np.asarray(np.char.decode(values, "utf-8"))
    except UnicodeDecodeError:
        raise UserError("has bytes that are not UTF-8 text", file=file, key=key) from None


def codes(values: NDArray[Any], class_names: Sequence[str], key: str, file: Path) -> NDArray[Any]:
    """Return labels, given as names or as indices of classes, as indices.

    `key` and `file`: for errors.
    """
    values = texts(values, key, file)
    if values.dtype.kind == "U":
        names = np.array(class_names)
        order = np.argsort(names)
        place = np.searchsorted(names[order], values)
        index = order[np.minimum(place, len(names) - 1)]
        wrong = names[index] != values
        if wrong.any():
            value = str(values[wrong].flat[0])
            remedy = nearest(value, class_names)
            raise UserError("not a class", file=file, key=key, value=value, remedy=remedy)
        return index
    if values.dtype.kind not in "iub":
        raise UserError(
            f"has dtype {values.dtype}; labels are whole numbers or names",
            file=file,
            key=key,
            remedy=f"give indices of classes: {key}.astype(int)",
        )
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < len(class_names):
        raise UserError(
            f"goes from {values.min()} to {values.max()}, but there are {len(class_names)} classes",
            file=file,
            key=key,
            remedy="labels are indices of classes from 0; name all classes with class_names",
        )
    return values


def ordered(values: NDArray[Any], order: NDArray[np.intp], probabilities: bool) -> NDArray[Any]:
    """Return scores with their classes in another order; of two, gaps or probabilities of one."""
    if values.ndim == 3:
        return values[..., order]
    if not probabilities:
        return -values
    return np.stack([values, 1 - np.minimum(values.astype(np.float64), 1)], axis=2)


def require_last_of_classes(shape: tuple[int, ...], y_true: NDArray[Any], file: Path) -> None:
    """Refuse scores taken as (run, sample, class) of which the first axis may be the classes."""
    n, (first, _, last) = len(np.unique(y_true)), shape
    if first == n != last:
        raise UserError(
            f"may hold {first} runs of {last} classes, or {last} runs of {n}, as y_true has",
            file=file,
            key="scores",
            remedy="save it as (run, sample, class), or name all classes with class_names",
        )


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
