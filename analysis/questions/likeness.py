"""Are A's runs like B's: α̂ and error consistency between two groups of runs on one test set.

α̂ takes each run of A as a candidate and the average eCDF of B's runs as the reference, in random
disjoint halves of the test points, as α̂ of a repeat does (RKS, algorithm 1). Error consistency is
the mean over all pairs of a run of A and one of B; that A's errors differ from B's is told by how
much less consistent such pairs are than pairs within A and within B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyseed.analysis import Refused
from manyseed.analysis.counts import below, counted, fixed, masked, signed
from manyseed.analysis.options import CLOSE, CONFIDENCE
from manyseed.analysis.questions.intervals import of_parts, of_share

Real = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.intp]

FEWEST_B = 2  # runs in a reference
SCALES = 1.25  # ratio of two sides' scores from which their scales are told
BATCH = 32  # bootstrap samples tested together


@dataclass(frozen=True, slots=True)
class AlphaHatBetween:
    """How far A's runs are from B's average.

    `alpha_hat`: mean over A's runs and the test sets. `low` and `high`: its interval for new test
    points. `levels`: α̂ of each run of A, mean over the test sets. `within`: mean α̂ of B's runs,
    each against the others; None with fewer than three. `infeasible`: share of resamples that no
    trimming makes acceptable; each counts as 1. `n_side`: test points on each side. `delta`:
    resolution: smaller contamination is not seen. `close`: α̂ up to which runs are called close.
    `scale`: typical size of A's values over that of B's, medians of absolute values; None if
    either is 0.
    """

    alpha_hat: float
    low: float
    high: float
    levels: tuple[float, ...]
    within: float | None
    infeasible: float
    runs_a: int
    runs_b: int
    test_sets: int
    n_side: int
    delta: float
    close: float
    confidence: float
    scale: float | None = field(default=None, compare=False)

    @property
    def alike(self) -> bool | None:
        """Whether A's runs are like B's; None if it cannot be told."""
        if self.low > self.close:
            return False
        return True if self.high <= self.close and self.delta <= self.close else None

    def __str__(self) -> str:
        return self.words

    @property
    def words(self) -> str:
        """The answer in two sentences."""
        why = "δ is" if self.delta > self.close else "the interval reaches from below to"
        verdict = {
            True: "A's runs are like B's",
            False: "A's runs are unlike B's",
            None: f"Whether A's runs are like B's cannot be told, as {why} above {self.close:g}",
        }[self.alike]
        far = sum(level > self.close for level in self.levels)
        low, high = (below(end, self.delta) or fixed(end, 3) for end in (self.low, self.high))
        ends = "" if self.high < self.delta else f"{low} to {high}, "
        at = below(self.alpha_hat, self.delta) or f"= {fixed(self.alpha_hat, 3)}"
        own = ""
        if self.within is not None:
            among = below(self.within, self.delta) or fixed(self.within, 3)
            own = f" B's runs among themselves: {among}."
        resolved = ""
        if self.delta > self.close:
            resolved = f", so that differences up to about {self.delta:.0%} are not seen"
        sets = "" if self.test_sets == 1 else f" on {self.test_sets:,} test sets"
        return (
            f"{verdict}: α̂ {at} ({ends}{100 * self.confidence:g} % for new test points); "
            f"{far:,} of {self.runs_a:,} runs of A are above {self.close:g} "
            f"against {counted(self.runs_b, 'run')} of B{sets}.{own} "
            f"δ = {fixed(self.delta, 3)} at N = {self.n_side:,} test points per side{resolved}."
            f"{self._doubts()}"
        )

    def _doubts(self) -> str:
        """Say where α̂ counts splits as 1, and where scores of another scale alone may do it."""
        text = ""
        if round(self.infeasible, 2) > 0:
            text = (
                f" In {self.infeasible:.0%} of splits no trimming makes A's runs acceptable, which "
                "counts as 1."
            )
        if self.alike is False and self.scale is not None and not 1 / SCALES < self.scale < SCALES:
            text += (
                f" A's scores are typically {self.scale:.2g} times as large as B's: that alone is "
                "seen as unlike, whatever classes are predicted."
            )
        return text


def alpha_hat_between(
    a: Sequence[Floats],
    b: Sequence[Floats],
    *,
    epsilon: float = 0.01,
    resamples: int = 100,
    bootstrap: int = 100,
    close: float = CLOSE,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> AlphaHatBetween:
    """Test each run of A against the average of B's runs.

    `a` and `b`, sequence of float arrays (run, point): probe values without NaN, one array per test
    set, on the same points. `epsilon`: probability that the threshold δ is exceeded by chance.
    `resamples`: random splits of each test set. `bootstrap`: bootstrap samples of the test points,
    for the interval. `seed`: of the splits and samples.
    """
    from manyseed.analysis.alphahat import resampling
    from manyseed.analysis.alphahat.references import Reference, alpha_stars
    from manyseed.analysis.alphahat.resampling import disjoint_halves, generator
    from manyseed.analysis.alphahat.trimming import dkw_threshold

    levels, means, drawn, own = [], [], [], []
    deltas, sides = [], []
    for place, (runs_a, runs_b) in enumerate(zip(a, b, strict=True)):
        n_test = runs_a.shape[1]
        halves = disjoint_halves(generator(seed, "alike", place), n_test, resamples)
        delta = dkw_threshold(halves.n_side, epsilon)
        reference = Reference.sort(runs_b)
        found, _ = alpha_stars(runs_a, reference, halves, member=False, gamma=delta)
        levels.append(found)
        means.append(found.mean(axis=0))
        if runs_b.shape[0] > FEWEST_B:
            own.append(alpha_stars(runs_b, reference, halves, member=True, gamma=delta)[0].mean())
        bits, parts = generator(seed, "alike points", place), []
        for start in range(0, bootstrap, BATCH):
            samples = [
                resampling.composed(bits, n_test, disjoint_halves(bits, n_test, resampling.SPLITS))
                for _ in range(min(BATCH, bootstrap - start))
            ]
            again = alpha_stars(
                runs_a, reference, resampling.joined(samples), member=False, gamma=delta
            )
            parts.append(again[0].mean(axis=0))
        drawn.append(np.concatenate(parts))
        deltas.append(delta)
        sides.append(halves.n_side)
    low, high = resampling.interval(
        np.mean(means, axis=0)[None], np.mean(drawn, axis=0)[None], confidence
    )
    together = np.concatenate(levels)
    each = [one.mean(axis=1) for one in levels]
    same = len({one.size for one in each}) == 1
    by_run = np.mean(each, axis=0) if same else np.concatenate(each)
    return AlphaHatBetween(
        alpha_hat=float(np.mean(means)),
        low=float(low[0]),
        high=float(high[0]),
        levels=tuple(by_run.tolist()),
        within=float(np.mean(own)) if own else None,
        infeasible=float((together == 1).mean()),
        runs_a=by_run.size,
        runs_b=max(one.shape[0] for one in b),
        test_sets=len(a),
        n_side=min(sides),
        delta=max(deltas),
        close=close,
        confidence=confidence,
        scale=_scale(a, b),
    )


def _scale(a: Sequence[Floats], b: Sequence[Floats]) -> float | None:
    """Return the typical size of A's values over that of B's."""
    of_a, of_b = (float(np.median([np.median(np.abs(one)) for one in side])) for side in (a, b))
    return of_a / of_b if min(of_a, of_b) > 0 and math.isfinite(of_a / of_b) else None


@dataclass(frozen=True, slots=True)
class ConsistencyBetween:
    """How consistent the errors of A's runs are with those of B's.

    `ec_local`, `ec_global` and `ec_kappa`: means over all pairs of a run of A and one of B; NaN
    where no pair has an error. `low` and `high`: interval of `ec_local` over seeds; None if a side
    has a single run. `within_a` and `within_b`: mean local error consistency of pairs within each
    side; None with fewer than two runs. `less`: by how much pairs between are less consistent than
    the average of both within. `less_low` and `less_high`: its interval over seeds; None with fewer
    than three runs on a side. `n_test`: points of a test set.
    """

    ec_local: float
    ec_global: float
    ec_kappa: float
    low: float | None
    high: float | None
    within_a: float | None
    within_b: float | None
    less: float | None
    less_low: float | None
    less_high: float | None
    runs_a: int
    runs_b: int
    n_test: int
    confidence: float
    test_sets: int = 1

    def __str__(self) -> str:
        return self.words

    @property
    def words(self) -> str:
        """The answer in a sentence or two."""
        sure = f"{100 * self.confidence:g} %, over seeds"
        interval = ""
        if self.low is not None and self.high is not None:
            interval = f" ({fixed(self.low, 3)} to {fixed(self.high, 3)}, {sure})"
        on = f"on {self.n_test:,} test points"
        if self.test_sets > 1:
            on = f"on each of {self.test_sets:,} test sets of {self.n_test:,} points"
        text = (
            f"Local error consistency between A and B is {fixed(self.ec_local, 3)}{interval}, over "
            f"{self.runs_a:,} × {self.runs_b:,} pairs of runs {on}"
        )
        if self.less is None or self.within_a is None or self.within_b is None:
            return f"{text}."
        text += f"; within A {fixed(self.within_a, 3)}, within B {fixed(self.within_b, 3)}. "
        if self.less_low is None or self.less_high is None:
            return f"{text}With so few runs, whether A errs where B does not cannot be told."
        less, low, high = (signed(one, 3) for one in (self.less, self.less_low, self.less_high))
        ends = f"{less} ({low} to {high}, {sure})"
        if self.less_low > 0:
            return (
                f"{text}A's errors are unlike B's: less consistent between than within by {ends}."
            )
        return (
            f"{text}That A's errors are unlike B's is not seen: between less than within by {ends}."
        )


def consistency_between(
    wrong_a: Sequence[NDArray[np.bool_]],
    wrong_b: Sequence[NDArray[np.bool_]],
    *,
    confidence: float = CONFIDENCE,
) -> ConsistencyBetween:
    """Compare the errors of A's runs with those of B's, over all pairs on each test set.

    Intervals are t intervals with the jackknife over the runs of both sides.

    `wrong_a` and `wrong_b`, sequence of bool arrays (run, point): which points each run gets wrong,
    one array per test set, on the same points.
    """
    found = [_Errors(x, y) for x, y in zip(wrong_a, wrong_b, strict=True)]
    few = min(min(one.m, one.n) for one in found)
    between, less = (
        float(np.mean([getattr(one, name)(*one.rows) for one in found]))
        for name in ("between", "less")
    )
    low = high = ends = None
    if few > 1 and not math.isnan(between):
        half = of_parts(0.0, _jackknifed(found, "between"), confidence)[1]
        low, high = (float(end) for end in of_share(between, half))
    if few > 2 and not math.isnan(less):
        ends = of_parts(less, _jackknifed(found, "less"), confidence)
    within_a, within_b = (
        float(np.mean([one.mean(one.rows[side], one.rows[side]) for one in found]))
        if few > 1
        else None
        for side in (0, 1)
    )
    return ConsistencyBetween(
        ec_local=between,
        ec_global=float(np.mean([one.ec_global for one in found])),
        ec_kappa=float(np.mean([one.ec_kappa for one in found])),
        low=low,
        high=high,
        within_a=within_a,
        within_b=within_b,
        less=less if few > 1 else None,
        less_low=None if ends is None else ends[0],
        less_high=None if ends is None else ends[1],
        runs_a=max(one.m for one in found),
        runs_b=max(one.n for one in found),
        n_test=max(one.n_test for one in found),
        confidence=confidence,
        test_sets=len(found),
    )


class _Errors:
    """Error consistency of all pairs of runs of A and B on one test set."""

    def __init__(self, wrong_a: NDArray[np.bool_], wrong_b: NDArray[np.bool_]) -> None:
        from manyseed.analysis.metrics import formulas
        from manyseed.analysis.metrics.gram import both_wrong, count, pack

        self.m, self.n, self.n_test = wrong_a.shape[0], wrong_b.shape[0], wrong_a.shape[1]
        self.rows = np.arange(self.m), np.arange(self.m, self.m + self.n)
        words = pack(np.concatenate([wrong_a, wrong_b]))
        both, errors = both_wrong(words, words), count(words)
        self.local = formulas.ec_local(errors[:, None], errors[None], both, math.nan)
        np.fill_diagonal(self.local, np.nan)
        across = both[: self.m, self.m :]
        kappa = formulas.ec_kappa(
            errors[: self.m, None], errors[None, self.m :], across, self.n_test
        )
        self.ec_kappa = _mean(kappa)
        self.ec_global = float(formulas.ec_global(across, self.n_test).mean())

    def mean(self, one: Rows, other: Rows) -> float:
        """Return the mean over pairs of these runs."""
        return _mean(self.local[np.ix_(one, other)])

    def between(self, of_a: Rows, of_b: Rows) -> float:
        """Return the mean over pairs of a run of A and one of B."""
        return self.mean(of_a, of_b)

    def less(self, of_a: Rows, of_b: Rows) -> float:
        """Return how much less that is than the average of both sides within."""
        return (self.mean(of_a, of_a) + self.mean(of_b, of_b)) / 2 - self.mean(of_a, of_b)


def _mean(values: Real) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def _jackknifed(found: Sequence[_Errors], statistic: str) -> list[tuple[float, float]]:
    """Return variances of a mean over test sets, with degrees of freedom, by side and test set."""
    parts = []
    for one in found:
        value = getattr(one, statistic)
        of_a, of_b = one.rows
        for without in (
            [value(np.delete(of_a, k), of_b) for k in range(one.m)],
            [value(of_a, np.delete(of_b, k)) for k in range(one.n)],
        ):
            squares = float(np.square(np.array(without) - np.mean(without)).sum())
            size = len(without)
            parts.append(((1 - 1 / size) * squares / len(found) ** 2, size - 1.0))
    return parts


def probes(name: str, values: ArrayLike, y: ArrayLike | None) -> Floats:
    """Return one number per run and point: a logit gap, or the margin of the true class.

    `name`: of the argument, for messages. `values`, array (run, point) or (run, point, class):
    probe values, or scores: with two classes, the gap between them; with more, the true class's
    score minus the largest other, which needs `y`. `y`, integer array (point,) or None: true
    classes.
    """
    array = _known(name, values)
    if array.dtype.kind in "biu":
        raise Refused(name, str(array.dtype), "must be logit gaps or scores, not labels")
    n_classes = array.shape[2] if array.ndim == 3 else 2
    if array.ndim in (2, 3) and (y is not None or n_classes > 2):
        true = classes(y, array.shape[1])
        _require_classes(true, n_classes, name)
    if array.ndim == 3 and n_classes == 2:
        array = array[..., 1] - array[..., 0]
    elif array.ndim == 3 and n_classes > 2:
        points = np.arange(array.shape[1])
        own = array[:, points, true]
        rest = array.astype(np.float64)
        rest[:, points, true] = -np.inf
        array = own - rest.max(axis=2)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        reason = "must be margins (run, point) or scores (run, point, class), of 2 points or more"
        raise Refused(name, np.shape(values), reason)
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float64)
    _require_numbers(name, array)
    return array


def require_one_kind(a: ArrayLike, b: ArrayLike) -> None:
    """Refuse sides that cannot be compared: of other classes, or probabilities beside logits."""
    of = [np.shape(side)[2] if np.ndim(side) == 3 else 2 for side in (a, b)]
    if of[0] != of[1]:
        raise Refused("b", of[1], f"a has scores of {of[0]} classes")
    shares = [_are_shares(np.asarray(side)) for side in (a, b)]
    if shares[0] != shares[1]:
        name, other = "ba" if shares[0] else "ab"
        raise Refused(name, None, f"must be probabilities, as {other} are, or both logits")


def _are_shares(values: NDArray[Any]) -> bool:
    """Return whether scores look like probabilities, and gaps like one class's probability."""
    if not values.size or values.min() < 0 or values.max() > 1:
        return False
    if values.ndim == 3:
        return bool(np.abs(values.sum(axis=2) - 1).max() < 0.01)
    return bool(values.min() < 0.5 < values.max())


def require_labels_of(
    true: NDArray[Any], predicted: NDArray[Any], scores: ArrayLike, name: str
) -> None:
    """Refuse predicted classes that are not counted as the true ones are.

    `scores`: what the labels were taken from, if it was scores.
    """
    if np.ndim(scores) == 3:
        _require_classes(true, np.shape(scores)[2], name)
    elif true.size and predicted.size:
        shift = int(predicted.min()) - int(true.min())
        if abs(shift) == 1 and int(predicted.max()) - int(true.max()) == shift:
            reason = f"must count classes as y does: from {true.min()}, not {predicted.min()}"
            raise Refused(name, None, reason)


def _require_classes(true: NDArray[Any], n_classes: int, name: str) -> None:
    if true.max(initial=0) >= n_classes:
        raise Refused("y", int(true.max()), f"{name} has scores of {n_classes} classes")


def labels(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return predicted classes (run, point): `values` itself, or the largest of scores."""
    array = _known(name, values)
    if array.ndim == 3:
        _require_numbers(name, array)
        array = array.argmax(axis=2)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        reason = "must be labels (run, point), whole numbers, or scores (run, point, class)"
        raise Refused(name, np.shape(values), reason)
    return array


def classes(y: ArrayLike | None, n_points: int) -> NDArray[Any]:
    """Return true classes, (point,)."""
    array = _known("y", y) if y is not None else np.empty(0)
    if array.shape != (n_points,) or not np.issubdtype(array.dtype, np.integer):
        reason = f"must be the true classes of the {n_points:,} points, whole numbers from 0"
        reason += "; of one run alone, give a[None]" * (array.ndim == 1 and y is not None)
        raise Refused("y", None if y is None else array.shape, reason)
    if array.min(initial=0) < 0:
        raise Refused("y", int(array.min()), "true classes are whole numbers from 0")
    return array


def _known(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return an array; masked values are missing, never what is behind the mask."""
    if count := masked(values):
        reason = (
            f"{count:,} of {np.size(values):,} values are missing; leave their runs or points out"
        )
        raise Refused(name, None, reason)
    return np.asarray(values)


def _require_numbers(name: str, array: NDArray[Any]) -> None:
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise Refused(name, math.nan, allowed="numbers; leave out runs with NaN")
