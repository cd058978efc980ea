"""Scores in predictions: logits, probabilities, what they look like, and what is kept of a run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import log_expit, log_softmax, softmax

from manyseed.analysis.counts import some
from manyseed.jobs.checks import quoted
from manyseed.jobs.run import OFF, Prediction, Probability, gaps, labels
from manyseed.orchestrator.errors import Spoilt, Unread, UserError, shell_word
from manyseed.orchestrator.importing.classes import CLASS, CONFIDENCE, SCORES, in_order
from manyseed.orchestrator.store.schema import GroupSpec


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


def seem_shares(array: Any) -> bool:
    """Return whether the first scores sum to 1 over the last axis, whatever the others are."""
    if array.dtype.kind != "f" or len(array.shape) < 2 or not all(array.shape):
        return False
    values = array[np.arange(min(array.shape[0], 100 if len(array.shape) == 2 else 1))]
    return bool((values >= 0).all() and np.allclose(values.sum(axis=-1), 1, atol=1e-3))


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
        if every(lambda gap: bool((gap >= 0).all() and (gap == np.round(gap)).all())):
            refuse(
                "labels, not logit gaps: all are whole numbers", "save them so: labels.astype(int)"
            )
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


def remedy_of_shares(p: NDArray[np.float64], form: str) -> str:
    """Return what to do about confidences (sample, class) that are not from 0 to 1.

    `form`: of the names of their columns.
    """
    if total := _total(p):
        return "divide percentages by 100" if total == _PERCENT else f"divide them by {total:g}"
    are_logits = f"if they are logits: --columns logits={shlex.quote(form)}"
    if (p >= 0).all() and p.max() <= _PERCENT:
        return f"divide percentages by 100; {are_logits}"
    return f"{are_logits}; to import labels alone, leave them out"


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


def ordered(values: NDArray[Any], order: NDArray[np.intp], probabilities: bool) -> NDArray[Any]:
    """Return scores with their classes in another order; of two, gaps or probabilities of one."""
    if values.ndim == 3:
        return values[..., order]
    if not probabilities:
        return -values
    return np.stack([values, 1 - np.minimum(values.astype(np.float64), 1)], axis=2)


def most_probable(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the predictions that confidences imply, if there are any."""
    classes = [name for name in frame.columns if name.startswith(CONFIDENCE)]
    if not classes or not all(frame[name].dtype.is_numeric() for name in classes):
        return frame
    p = frame.select(pl.col(classes).cast(pl.Float64)).to_numpy()
    order = np.array([name.removeprefix(CONFIDENCE) for name in classes])
    return frame.with_columns(prediction=pl.Series(order[p.argmax(axis=1)]))


def of_two(frame: pl.DataFrame, file: Path) -> pl.DataFrame:
    """Add the probability of the other of two classes, if there is that of one alone."""
    columns = [name for name in frame.columns if name.startswith(CONFIDENCE)]
    if len(columns) != 1 or "truth" not in frame.columns:
        return frame
    (column,) = columns
    one, seen = column.removeprefix(CONFIDENCE), frame["truth"].cast(pl.String).unique().to_list()
    others = [name for name in seen if name != one]
    if len(others) != 1 or len(seen) > 2:
        what = f"is the probability of one class, {quoted(one)}, but true classes are "
        what += some(sorted(map(str, seen)), 5)
        remedy = "give that of each: --columns confidence='p_{class}'"
        raise UserError(what, file=file, key=column, remedy=remedy)
    values = frame[column]
    if not values.dtype.is_numeric() or not values.is_between(0, 1).all():
        what = "must be probabilities, from 0 to 1"
        raise UserError(what, file=file, key=column, remedy="leave out rows that lack it")
    both = {column: values, f"{CONFIDENCE}{others[0]}": 1 - values.cast(pl.Float64)}
    ordered = [f"{CONFIDENCE}{name}" for name in in_order([one, *others])]
    return frame.drop(column).with_columns(both[name].alias(name) for name in ordered)


def of_logits(frame: pl.DataFrame, form: str, path: Path) -> pl.DataFrame:
    """Return a table with the softmax of its columns of logits as confidences."""
    columns = [name for name in frame.columns if name.startswith(CONFIDENCE)]
    for name in columns:
        if not frame[name].dtype.is_numeric() or not frame[name].is_finite().all():
            key = form.replace(CLASS, name.removeprefix(CONFIDENCE))
            raise UserError("must be finite numbers", file=path, key=key)
    logits = frame.select(pl.col(columns).cast(pl.Float64)).to_numpy()
    if not len(logits):
        return frame
    if _are_shares(logits):
        remedy = f"if they are: --columns confidence={shlex.quote(form)}"
        what = "look like probabilities: they lie in 0 to 1 and sum to 1 over the classes"
        raise UserError(what, file=path, key=form, remedy=remedy)
    p = softmax(logits, axis=1)
    return frame.with_columns(pl.Series(name, p[:, at]) for at, name in enumerate(columns))


_BLOCK_SCORES = 2**20  # number of scores whose probabilities are computed at once


def prediction_of(given: Predicted, number: int, spec: GroupSpec) -> Prediction:
    """Return the prediction of one run as training would have returned it."""
    grid = (len(spec.epochs), spec.samples)
    shape = grid if spec.n_classes == 2 else (*grid, spec.n_classes)
    if given.scores is None:
        assert given.label is not None
        nans = np.broadcast_to(np.float32(np.nan), shape)
        label = given.label[number].astype(np.uint16)
        return Prediction(nans, label, nans[..., 0] if nans.ndim == 3 else nans, np.nan)
    if given.label is None:
        is_softmax = spec.probability == "softmax"
        scores, label = as_kept(given.scores[number], spec.n_classes, is_softmax=is_softmax)
    else:
        scores = given.scores[number].astype(np.float32, copy=False)
        label = given.label[number, 0]
    confidence = np.full(grid, np.nan, dtype=np.float32)
    if spec.has_confidence and spec.probability != "none":
        confidence[0] = _confidence(scores, label.astype(np.intp), spec.probability)
    return Prediction(scores[None], label.astype(np.uint16)[None], confidence, np.nan)


def not_finite(scores: NDArray[Any], file: Path, run: int) -> Spoilt:
    """Return the error for scores (sample,) or (sample, class) of a run that are not all finite."""
    each = scores.reshape(len(scores), -1)
    wrong = np.flatnonzero(~np.isfinite(each).all(axis=1))
    value = each[wrong[0]][~np.isfinite(each[wrong[0]])][0]
    return Spoilt(
        f"has scores that are not finite in {len(wrong):,} of {len(each):,} points, such as "
        f"{value:g} in point {wrong[0]}",
        file=file,
        key=f"run {run}",
        remedy="leave this run out, or import labels instead of scores",
    )


def _confidence(
    scores: NDArray[np.float32], label: NDArray[np.intp], probability: Probability
) -> NDArray[np.float64]:
    """Return the probabilities of the labels (sample,), computed in blocks."""
    confidence = np.empty(len(label))
    step = max(1, _BLOCK_SCORES // scores.shape[1])
    for first in range(0, len(label), step):
        block = slice(first, first + step)
        logs = scores[block] if probability == "softmax" else log_expit(scores[block])
        p = np.exp(log_softmax(logs.astype(np.float64), axis=1))
        confidence[block] = np.take_along_axis(p, label[block, None], axis=1)[:, 0]
    return confidence


def scores_of(
    frame: pl.DataFrame,
    class_names: Sequence[str],
    label: Any,
    path: Path,
    given: Mapping[str, str],
) -> Predicted:
    """Return the scores of one run's confidences; predictions must be the most probable class.

    `given`: what a user calls the columns, by ours.
    """
    form = next((f"{own}={shell_word(given[own])}" for own in SCORES if own in given), "")
    alone = "remove the columns confidence.* to import only the labels"
    alone = f"to import only the labels, leave {form} out of --columns" if form else alone

    def refuse(run: int, point: int, why: str) -> NoReturn:
        what, is_spoilt = f"row_id {frame['row_id'][point]}: {why}", not np.isfinite(p).all()
        raise (Spoilt if is_spoilt else UserError)(what, file=path, key="confidence", remedy=alone)

    p = frame.select(f"{CONFIDENCE}{name}" for name in class_names).to_numpy()
    result = predicted(p[None], refuse)
    rounded = p.astype(np.float32)
    own = rounded[np.arange(len(label)), label]
    if len(wrong := np.flatnonzero(own < rounded.max(axis=1))):
        at, run = int(wrong[0]), frame["run"][0]
        first, best = class_names[label[at]], int(p[at].argmax())
        theirs = given.get("prediction", "prediction")
        of_model = f"if {theirs} is of no model, leave prediction={shell_word(theirs)} out; "
        raise UserError(
            f"predictions disagree with their confidences in {len(wrong):,} of {len(label):,} rows "
            f"of run {run}, such as {frame['row_id'][at]}: {quoted(first)} has {own[at]:.3g}, "
            f"{quoted(class_names[best])} {p[at, best]:.3g}",
            file=path,
            key=theirs,
            remedy=of_model * ("prediction" in given and bool(form)) + alone,
        )
    return result


def require_floats(array: Any, theirs: str | None, file: Path) -> None:
    """Refuse scores that are no floats; `theirs` is what a file calls them, if it does."""
    if array.dtype.kind == "f":
        return
    what = f"has dtype {array.dtype}; floats are needed"
    if theirs and array.dtype.kind in "iu" and len(array.shape) == 2:
        options, before = {"key": {"labels": theirs}}, "if they are predicted classes: "
        raise Unread(what, file=file, key="scores", options=options, before=before)
    remedy = "give predicted classes as labels; give scores as floats: scores.astype(float)"
    raise UserError(what, file=file, key="scores", remedy=remedy)
