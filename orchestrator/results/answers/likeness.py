"""Are A's runs like B's: α̂ and error consistency between cells, or between arrays in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from manyseed.analysis import NotKept, Refused
from manyseed.analysis.counts import counted
from manyseed.analysis.options import CLOSE, CONFIDENCE, Options
from manyseed.analysis.questions import likeness
from manyseed.analysis.questions.likeness import AlphaHatBetween, ConsistencyBetween
from manyseed.analysis.questions.question import Answer, Reply
from manyseed.analysis.tables.rows import diagonal
from manyseed.jobs.checks import Option
from manyseed.orchestrator.asking.averaging import require_confidence
from manyseed.orchestrator.computing.tables import read_analysis, without_own
from manyseed.orchestrator.errors import given, refused
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.answers.compare import both_sweeps, further_ones
from manyseed.orchestrator.results.answers.comparison import (
    AnalysedCell,
    AnalysedSweep,
    OneCell,
    two_named,
)
from manyseed.orchestrator.results.answers.sides import pairs_of
from manyseed.orchestrator.results.questions.registry import AskedSweep

if TYPE_CHECKING:  # the options of a question are read without the kernels
    from manyseed.analysis.metrics.metric import Need, Part
    from manyseed.orchestrator.computing.inputs import Published


@dataclass(frozen=True, slots=True)
class Likeness:
    """Whether the runs of one cell are like those of another.

    Attributes
    ----------
    a, b : OneCell
    alpha_hat : AlphaHatBetween or None
    error_consistency : ConsistencyBetween or None
    reason : str
        Why there is no answer, or no α̂.
    """

    a: OneCell
    b: OneCell
    alpha_hat: AlphaHatBetween | None
    error_consistency: ConsistencyBetween | None
    reason: str = ""

    @property
    def words(self) -> list[str]:
        """The answers as sentences."""
        found = [one.words for one in (self.alpha_hat, self.error_consistency) if one is not None]
        without = "No answer" if self.error_consistency is None else "α̂ is not computed"
        return [*found, *([f"{without}: {self.reason}."] if self.reason else [])]


def alpha_hat(
    a: ArrayLike,
    b: ArrayLike,
    y: ArrayLike | None = None,
    *,
    epsilon: float = 0.01,
    resamples: int = 100,
    bootstrap: int = 100,
    close: float = CLOSE,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> AlphaHatBetween:
    """Return how far A's runs are from B's average, on the same test points.

    Parameters
    ----------
    a, b : array (run, point) or (run, point, class)
        Logit gaps, or scores. B has two runs or more. Runs that `Sweep.runs` gives say which test
        set they are of: runs of each are then compared on it, which must be the same for both
        sides, as within one sweep. Other arrays are of one test set.
    y : integer array (point,) or (run, point), optional
        True classes, needed for scores of more than two classes; of each of A's runs, if there are
        several test sets.
    epsilon : float
        Probability that the threshold δ is exceeded by chance.
    resamples : int
        Random splits of the test points.
    bootstrap : int
        Bootstrap samples of the test points, for the interval; 10 or more.
    close : float
        α̂ up to which runs are called close.
    confidence : float
    seed : int
        Of the splits and samples.

    Returns
    -------
    AlphaHatBetween
        With `alpha_hat`, its interval `low` and `high`, `delta` and `words`.
    """
    for key, value, least in (("resamples", resamples, 2), ("bootstrap", bootstrap, 10)):
        given(key, int(value), Option(kind=int, least=least))
    for key, share in (("epsilon", epsilon), ("close", close)):
        given(key, float(share), Option(kind=float, above=0, below=1))
    require_confidence(confidence)
    try:
        found: list[list[NDArray[Any]]] = [[], []]
        for of_a, of_b, true in _by_test_set(a, b, y):
            sides = [likeness.probes(name, one, true) for name, one in (("a", of_a), ("b", of_b))]
            _require_same_points(*sides)
            likeness.require_one_kind(of_a, of_b)
            if sides[1].shape[0] < likeness.FEWEST_B:
                raise Refused("b", sides[1].shape, "must have 2 runs or more, as a reference")
            for side, one in zip(found, sides, strict=True):
                side.append(one)
    except Refused as error:
        raise refused(error, key=error.option) from None
    return likeness.alpha_hat_between(
        *found,
        epsilon=epsilon,
        resamples=resamples,
        bootstrap=bootstrap,
        close=close,
        confidence=confidence,
        seed=seed,
    )


def error_consistency(
    a: ArrayLike, b: ArrayLike, y: ArrayLike, *, confidence: float = CONFIDENCE
) -> ConsistencyBetween:
    """Return how consistent the errors of A's runs are with those of B's, on the same test points.

    Parameters
    ----------
    a, b : integer or text array (run, point), or float array (run, point, class)
        Predicted classes, or scores. Runs that `Sweep.runs` gives say which test set they are of:
        runs of each are then compared on it, which must be the same for both sides, as within
        one sweep. Other arrays are of one test set.
    y : integer or text array (point,) or (run, point)
        True classes; of each of A's runs, if there are several test sets.
    confidence : float

    Returns
    -------
    ConsistencyBetween
        With `ec_local`, its interval `low` and `high`, consistency within each side, and `words`.
    """
    require_confidence(confidence)
    a, b, y = _numbered(a, b, y)
    try:
        wrong: list[list[NDArray[np.bool_]]] = [[], []]
        for of_a, of_b, of_y in _by_test_set(a, b, y):
            sides = [likeness.labels(name, one) for name, one in (("a", of_a), ("b", of_b))]
            _require_same_points(*sides)
            true = likeness.classes(of_y, sides[0].shape[1])
            if np.ndim(of_a) == np.ndim(of_b):
                likeness.require_one_kind(of_a, of_b)
            for name, side, scores in (("a", sides[0], of_a), ("b", sides[1], of_b)):
                likeness.require_labels_of(true, side, scores, name)
            for errors, side in zip(wrong, sides, strict=True):
                errors.append(side != true)
    except Refused as error:
        raise refused(error, key=error.option) from None
    return likeness.consistency_between(*wrong, confidence=confidence)


def _numbered(*labels: ArrayLike) -> list[ArrayLike]:
    """Return classes as whole numbers, where all of them are words."""
    arrays = [np.asarray(each) for each in labels]
    if not all(each.size and isinstance(each.flat[0], str) for each in arrays):
        return [*labels]
    names = np.unique(np.concatenate([each.astype(str).ravel() for each in arrays]))
    return [np.searchsorted(names, each.astype(str)) for each in arrays]


_EACH = "give those of each of A's runs, (run, point), such as runs.y_true"


def _by_test_set(a: Any, b: Any, y: Any) -> list[tuple[Any, Any, Any]]:
    """Return A's and B's runs and the true classes of each test set that both have."""
    rows = y if y is None or isinstance(y, np.ma.MaskedArray) else np.asarray(y)
    of_a, of_b = _repeats("a", a), _repeats("b", b)
    several = [one for one in (of_a, of_b) if one is not None and np.unique(one).size > 1]
    if of_a is None or of_b is None:
        if several:
            name = "a" if of_a is None else "b"
            n = counted(np.unique(several[0]).size, "test set")
            reason = (
                f"does not say which test sets its runs are of, and the other side's are of {n}"
            )
            raise Refused(name, np.shape(a if name == "a" else b), f"{reason}: give runs of one")
        return [(a, b, _of_one(rows, None))]
    shared = np.intersect1d(of_a, of_b)
    if not shared.size:
        raise Refused("b", None, "has no runs of a's test sets")
    if rows is not None and several and rows.shape[:1] != of_a.shape:
        n = counted(np.unique(of_a).size, "test set")
        raise Refused("y", rows.shape, f"A's runs are of {n}: {_EACH}")
    at = [(np.flatnonzero(of_a == one), np.flatnonzero(of_b == one)) for one in shared]
    return [
        (a[own], b[other], _of_one(rows, own if len(at) > 1 or several else None))
        for own, other in at
    ]


def _repeats(name: str, runs: Any) -> NDArray[Any] | None:
    """Return the repeat of each run, (run,), where the runs are a sweep's."""
    of = getattr(runs, "coords", {}).get("repeat_index")
    if of is None:
        return None
    if not of.ndim or runs.dims[:1] != of.dims:
        raise Refused(name, np.shape(runs), "must have the runs first: (run, point)")
    return np.asarray(of)


def _of_one(y: Any, runs: NDArray[Any] | None) -> Any:
    """Return the true classes of one test set, (point,), from those of its runs."""
    if y is None or np.ndim(y) != 2:
        return y
    own = y if runs is None else y[runs]
    if not len(own) or (own != own[0]).any():
        raise Refused("y", y.shape, "runs have other true classes: give runs of one test set")
    return own[0]


def _require_same_points(a: NDArray[Any], b: NDArray[Any]) -> None:
    if a.shape[1] != b.shape[1]:
        reason = f"must have the test points of a: {a.shape[1]:,}, not {b.shape[1]:,}"
        raise Refused("b", b.shape, reason)


def alike(
    paths: SweepPaths,
    other: AskedSweep | SweepPaths | str | Path | None = None,
    *,
    by: str = "classifier",
    between: Sequence[str] = (),
    a: str | None = None,
    b: str | None = None,
    where: str | None = None,
    confidence: float = CONFIDENCE,
) -> list[Likeness]:
    """Say whether A's runs are like B's, by α̂ and error consistency between them.

    Cells are compared on the test sets that they share.

    Parameters
    ----------
    paths : SweepPaths
        An analysed sweep.
    other : Sweep or path, optional
        Another sweep: A is in the first, B in this.
    by : str
        Compare pairs of cells that differ only in this.
    between : sequence of str
        Compare these levels only, A first: classifiers, or levels of another axis, or numbers of
        cells.
    a : str, optional
        A condition on cells A; with one on B.
    b : str, optional
        A condition on cells B.
    where : str, optional
        A condition on the cells of both.
    confidence : float
        Confidence of each single interval.
    """
    require_confidence(confidence)
    first, second = both_sweeps(paths, other)
    pairs = pairs_of(first, second, by=by, between=between, a=a, b=b, where=where)
    stores = [_Store(first)]
    stores.append(stores[0] if second is first else _Store(second))
    return [_alike(stores, pair, confidence) for pair in pairs]


class _Store:
    """What is read of one sweep."""

    def __init__(self, sweep: AnalysedSweep) -> None:
        from manyseed.orchestrator.computing.inputs import published

        self.sweep = sweep
        self.options = without_own(read_analysis(sweep.paths)[0])
        self.groups: list[Published] = list(published(sweep.paths, sweep.plan))

    def test_sets(self, cell: AnalysedCell) -> dict[str, int]:
        """Return a repeat of a cell for each test set."""
        path = self.sweep.plan.all_cells.filter(cell=cell.cell)["path"][0]
        runs = self.sweep.by_cell.get((cell.cell, cell.epoch), self.sweep.runs.clear())
        own = self.sweep.digests.filter(pl.col("path") == path).join(
            runs.select("repeat_index").unique(), on="repeat_index", how="semi"
        )
        return dict(own.sort("repeat_index").select("digest", "repeat_index").iter_rows())

    def part(self, cell: AnalysedCell, repeat: int, options: Options, *needs: Need) -> Part:
        """Read the distinct runs of a repeat; of crossed ones, those that share no value."""
        from manyseed.analysis.graph.chunks import single_repeat

        group = next(g for g in self.groups if cell.cell in g.predictions.runs["cell"])
        runs = group.predictions.runs.filter(~pl.col("identical"))
        if cell.crossed:
            runs = runs.filter(pl.col("run_index").is_in(diagonal(cell.crossed)))
        predictions = replace(group.predictions, runs=runs)
        if cell.epoch and len(predictions.trained) > 1:
            options = replace(options, snapshots=(cell.epoch,))
        return single_repeat(predictions, cell.cell, repeat, needs, options)


def _alike(
    stores: Sequence[_Store], pair: tuple[AnalysedCell, AnalysedCell], confidence: float
) -> Likeness:
    from manyseed.analysis.metrics.alpha_tests import defined, values_of
    from manyseed.analysis.metrics.custom import Failed

    described = [one.sweep.described(cell) for one, cell in zip(stores, pair, strict=True)]
    sets = [one.test_sets(cell) for one, cell in zip(stores, pair, strict=True)]
    options = stores[0].options
    unknown = Likeness(described[0], described[1], None, None)
    shared = [digest for digest in sets[0] if digest in sets[1]]
    if not shared:
        return replace(unknown, reason="the cells share no test set")
    wrong: list[list[NDArray[np.bool_]]] = [[], []]
    values: list[list[Any]] = [[], []]
    reason, lacking = "", dict[str, None]()
    for digest in shared:
        for side, (store, cell) in enumerate(zip(stores, pair, strict=True)):
            repeat = sets[side][digest]
            try:
                part = store.part(cell, repeat, options, "label")
                wrong[side].append(part.label != part.y_true)
            except Refused as error:
                return replace(unknown, reason=error.reason or str(error))
            try:
                probe = values_of(store.part(cell, repeat, options, "label", "margin"), options)
            except NotKept:
                lacking["AB"[side]] = None
                continue
            except Refused as error:
                reason = reason or error.reason or str(error)
                continue
            if isinstance(probe, Failed):
                reason = reason or f"it {probe.reason}"
                continue
            values[side].append(probe[defined(probe)])
    consistency = likeness.consistency_between(*wrong, confidence=confidence)
    known = replace(unknown, error_consistency=consistency)
    if lacking:
        reason = f"it needs scores, and of {' and '.join(lacking)} only labels are kept"
    if reason:
        return replace(known, reason=reason)
    if min(one.shape[0] for one in values[1]) < likeness.FEWEST_B or not values[0][0].shape[0]:
        reason = f"it needs {likeness.FEWEST_B} distinct runs of B as a reference"
        return replace(known, reason=reason)
    tested = likeness.alpha_hat_between(
        *values, epsilon=options.epsilon, close=options.close, confidence=confidence
    )
    return replace(known, alpha_hat=tested)


def reply(
    pairs: Sequence[Likeness],
    other: AskedSweep | SweepPaths | str | Path | None = None,
    *,
    limit: int = 40,
) -> Reply:
    """Word the answer for each pair of cells.

    Parameters
    ----------
    pairs : sequence of Alike
    other
        As in `alike`.
    limit : int
        Comparisons to print.
    """
    answers = []
    for pair in pairs[:limit]:
        axes = pair.b.axes
        same = {name: level for name, level in pair.a.axes.items() if level == axes[name]}
        sides = {
            name: two_named(cell, rest, same, of_sweeps=other is not None)
            for name, cell, rest in (("a", pair.a, pair.b), ("b", pair.b, pair.a))
        }
        found = [one for one in (pair.alpha_hat, pair.error_consistency) if one is not None]
        rows = [{**sides, **asdict(one)} for one in found]
        answers.append(Answer(f"A: {sides['a']}\nB: {sides['b']}", tuple(pair.words), rows=rows))
    more = [further_ones(len(pairs) - limit)] if len(pairs) > limit else []
    values = [asdict(one) | {"words": one.words} for one in pairs]
    title = f"Are A's runs like B's, {counted(len(pairs), 'comparison')}"
    return Reply(answers, {"alike": values}, title=title, notes=more, apart=True)
