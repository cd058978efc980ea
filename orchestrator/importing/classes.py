"""Classes in predictions: names and their order, labels as indices, probabilities as scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from manyseed.jobs.checks import quoted, same_spelling, spelling
from manyseed.jobs.datasets.columns import is_number, natural_order
from manyseed.jobs.run import OFF, gaps, labels
from manyseed.orchestrator.errors import Unread, UserError, nearest


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions of some runs.

    `label`, integer array (run, epoch, sample) or None: none if it follows from the scores.
    `scores`, float array (run, sample) of logit gaps or (run, sample, class), or None. `floored`:
    number of test points with a probability that was raised to have a finite logarithm. `off`: how
    far the sums of rounded probabilities are from 1, if by more than `OFF`.
    """

    label: NDArray[np.integer[Any]] | None
    scores: NDArray[np.floating[Any]] | None
    floored: int = 0
    off: float = 0.0


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
    if is_number(name):
        return [(0, float(name.replace(",", ".", 1)), name)]
    return [
        (1, float(part), part) if part.isdecimal() and part.isascii() else (2, 0.0, part)
        for part in re.split("([0-9]+)", name)
    ]


def require_apart(truth: Collection[str], predicted: Collection[str], key: str, file: Path) -> None:
    """Refuse labels that mean one class but are written in two ways, which would never be right."""
    same = same_spelling({*truth, *predicted})
    only: dict[object, str] = {}
    are_apart = len({_meaning(name) for name in truth}) == len({*truth})
    for name in sorted(truth):
        # letters may be classes, of which a test set has but one case
        if name not in predicted or (are_apart and len(name) > 1):
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
    floored, off = 0, 0.0
    for run, given in enumerate(p):
        exact = given.astype(np.float64)
        if (problem := _problem(exact, _rounding(given))) is not None:
            refuse(run, *problem)
        if exact.ndim == 1:
            exact = np.stack([1 - np.minimum(exact, 1), exact], axis=1)
        off = max(off, float(abs(exact.sum(axis=1) - 1).max()))
        logs = np.log(np.maximum(exact, FLOOR))
        floored += int((exact < FLOOR).any(axis=1).sum())
        label[run] = labels(gaps(exact), exact.shape[1])
        scores[run] = gaps(logs)
    return Predicted(label[:, None], scores, floored, off if off > OFF + _EXACT else 0.0)


def gaps_of_sigmoids(scores: NDArray[Any]) -> Predicted:
    """Return the gaps whose sigmoids are the normalised sigmoids of the two classes' scores."""
    exact = scores.astype(np.float64)
    logs = log_expit(np.where(np.isfinite(exact), exact, np.nan))
    label = exact[..., 1] >= exact[..., 0]
    gap = (logs[..., 1] - logs[..., 0]).astype(np.float32)
    gap[(gap >= 0) & ~label] = -FLOOR  # both sigmoids are 0 or 1
    return Predicted(label[:, None].astype(np.int64), gap)


_MOST_OFF = 0.05
_DECIMALS = (1, 2, 3, 4)
_EXACT = 1e-9


def _rounding(p: NDArray[np.floating[Any]]) -> float:
    """Return how far a run's rows (sample, class) may sum from 1, by the decimals that they have.

    Each value may be off by half a unit of its last decimal.
    """
    if p.ndim == 1:
        return OFF
    exact, error = p.astype(np.float64), float(np.finfo(p.dtype).eps)
    for decimals in _DECIMALS:
        scaled, slack = exact * 10**decimals, 10**decimals * error
        if slack < _MOST_OFF and (abs(scaled - np.round(scaled)) <= slack + _EXACT).all():
            return float(min(_MOST_OFF, max(OFF, p.shape[1] * 0.5 / 10**decimals)) + _EXACT)
    return OFF


def _are_shares(p: NDArray[np.floating[Any]]) -> bool:
    """Return whether a run's values (sample, class) lie in 0 to 1 and sum to 1, maybe rounded."""
    if not 0 <= p.min() <= p.max() <= 1:  # or NaN
        return False
    return bool((abs(p.sum(axis=1, dtype=np.float64) - 1) <= _rounding(p)).all())


def require_logits(scores: Any, file: Path) -> None:
    """Refuse scores that in every run look like probabilities, sigmoids, percentages or votes.

    `scores`: read by arrays of positions, (run, sample) or (run, sample, class). Most logits show
    that they are some in the first run.
    """

    def refuse(problem: str, remedy: str = "", *, are_probabilities: bool = False) -> NoReturn:
        what = f"look like {problem}"
        if not are_probabilities:
            raise UserError(what, file=file, key="scores", remedy=remedy)
        options = {"probabilities": True}
        raise Unread(what, file=file, key="scores", options=options, after=remedy)

    def every(is_so: Callable[[NDArray[Any]], bool]) -> bool:
        return all(is_so(scores[np.array([run])][0]) for run in range(scores.shape[0]))

    if len(scores.shape) == 2:
        other = "logit gaps may also be given as scores (run, sample, class): -gap / 2 and gap / 2"
        if every(lambda gap: bool(0 <= gap.min() <= gap.max() <= 1)):
            refuse(
                "probabilities, not logit gaps: all lie in 0 to 1",
                f"\n  if they are probabilities of class 1; {other}",
                are_probabilities=True,
            )
        if every(lambda gap: bool(gap.min() >= 0 and _LARGEST_GAP < gap.max() <= _PERCENT)):
            refuse(
                "percentages, not logit gaps: all lie in 0 to 100",
                f"scores / 100 with --probabilities if they are of class 1; {other}",
            )
    elif every(_are_shares):
        what = "probabilities: they lie in 0 to 1 and sum to 1 over the classes"
        refuse(what, are_probabilities=True)
    elif every(lambda p: bool(0 <= p.min() <= p.max() <= 1)):
        refuse(
            "outputs of sigmoids: all lie in 0 to 1, but do not sum to 1 over the classes",
            "give their logits, log(p / (1 - p)), with --probability ovr; or divide each row by "
            "its sum and add --probabilities; of logits, scores - 1 have the same softmax",
        )
    elif (total := _total(scores[np.array([0])][0])) and every(lambda p: _total(p) == total):
        refuse(
            f"percentages or votes: all are positive or 0, and sum to {total:g} over the classes",
            f"scores / {total:g} with --probabilities",
        )


_PERCENT = 100.0
_MOST_VOTES = 1e6
_LARGEST_GAP = 20.0  # of logits; all of one sign, and larger, are percentages


def _total(shares: NDArray[np.floating[Any]]) -> float:
    """Return what each row of percentages or votes (sample, class) sums to; 0 if these are neither.

    Percentages may be rounded; votes are whole numbers, with classes that get none.
    """
    if not (np.isfinite(shares).all() and 0 <= shares.min() <= 1 < shares.max()):
        return 0.0
    exact = shares.astype(np.float64)
    total = float(exact[0].sum())
    if (exact.max(axis=1) == total).all():  # labels, in this form
        return 0.0
    if _are_shares(exact / _PERCENT):
        return _PERCENT
    are_votes = (exact == np.round(exact)).all() and (exact.sum(axis=1) == total).all()
    return total if are_votes and not shares.min() and total <= _MOST_VOTES else 0.0


def remedy_for(p: NDArray[Any]) -> str:
    """Return what to do about values (sample, class) or (sample,) that are no probabilities."""
    if p.ndim == 2 and (total := _total(p)):
        return f"divide them by {total:g}"
    if p.min() >= 0 and _LARGEST_GAP < p.max() <= _PERCENT:
        return "divide percentages by 100; without --probabilities, scores are logits or logit gaps"
    if p.ndim == 2 and 0 <= p.min() <= p.max() <= 1:
        return (
            "give them with more decimals, or divide each row by its sum; of sigmoids, give the "
            "logits, log(p / (1 - p)), with --probability ovr"
        )
    return "without --probabilities, scores are logits or logit gaps"


def _problem(p: NDArray[np.float64], off: float) -> tuple[int, str] | None:
    """Return the first test point with invalid probabilities and why; None if all are valid.

    `off`: how far their sums may be from 1.
    """
    each = p.reshape(len(p), -1)
    negative = np.asarray(~(each >= 0).all(axis=1))  # or NaN
    sums = each.sum(axis=1)
    too_much, too_little = ~(sums <= 1 + off), (sums < 1 - off) & (p.ndim > 1)
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
    within each class; the others agree far more. The number is how many times as often it
    disagrees with them as they do among themselves. `kept`: how many of the first runs are not in
    question; of three or more, those that agree are the others.
    """
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
    some = label[others[:_MOST_PAIRED]]
    pairs = [(a != b).mean() for a, b in combinations(some, 2)]
    far = np.mean([(label[one] != some).mean() for one in alone])
    times = float(far / np.mean(pairs))
    return (alone.tolist(), times) if times >= _OFTEN else ([], 1.0)


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
