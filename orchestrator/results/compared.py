"""The comparison of two cells: its result, and the sentences that report it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from manyseed.analysis.questions.comparison import Comparison, Saving


@dataclass(frozen=True, slots=True)
class OneCell:
    """One of the two cells of a comparison.

    Attributes
    ----------
    directory : str
        Directory of its sweep.
    cell : int
    cell_id : str
    epoch : int
        Which snapshot, in epochs trained; 0 if the training has none, or it is unknown.
    axes : mapping of str to object
        Its level of each axis in `analysis.axes.AXES`.
    """

    directory: str
    cell: int
    cell_id: str
    epoch: int
    axes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two cells compared, or why they can't be.

    Attributes
    ----------
    a, b : OneCell
    same : mapping of str to object
        The axes in which they agree.
    metric : str
    higher_is_better : bool
    confidence : float
    shared_test_sets : bool
        Whether they were compared on the same test sets.
    left_out : tuple of int
        Number of test sets of A and of B that the other was not tested on; 0 if none is shared.
    streams : tuple of str
        Streams shared by runs with the same index; runs are paired if there are any.
    result : Comparison or None
    reason : str
        Why there is no result.
    """

    a: OneCell
    b: OneCell
    same: Mapping[str, Any]
    metric: str
    higher_is_better: bool
    confidence: float
    shared_test_sets: bool
    left_out: tuple[int, int]
    streams: tuple[str, ...]
    result: Comparison | None
    reason: str = ""


def words(found: Compared) -> Iterator[str]:
    """Report a comparison, one or two sentences at a time."""
    result, sure = found.result, f"{100 * found.confidence:g} %"
    if result is None:
        yield f"Not compared: {found.reason}."
        return
    level = f"A {result.mean_a:.4f}, B {result.mean_b:.4f}"
    yield f"{level}; A - B = {result.difference:+.4f}."
    if result.seeds is not None:
        sets = "this test set" if result.sets_a == 1 else f"these {result.sets_a:,} test sets"
        yield f"Over seeds, at {sets}: {_limits(result.seeds)} ({sure})."
    else:
        yield f"No interval over seeds alone: {result.no_seeds}."
    if result.sets is not None:
        yield f"Over seeds and new test sets of these data: {_limits(result.sets)} ({sure})."
    else:
        yield f"No interval over new test sets: {result.no_sets}."
    yield _better(found, result)
    yield from _pairing(found, result)


def _limits(limits: tuple[float, float], form: str = "+.4f") -> str:
    return f"{limits[0]:{form}} to {limits[1]:{form}}"


def _better(found: Compared, result: Comparison) -> str:
    intervals = []
    if result.better_seeds is not None:
        intervals.append(f"{_limits(result.better_seeds, '.2f')} over seeds")
    if result.better_sets is not None:
        intervals.append(f"{_limits(result.better_sets, '.2f')} over new test sets, too")
    way = "higher" if found.higher_is_better else "lower"
    limits = f" ({'; '.join(intervals)})" if intervals else ""
    return f"P(A better than B) = {result.better:.2f}{limits}; {way} is better."


def _pairing(found: Compared, result: Comparison) -> Iterator[str]:
    runs = f"{result.runs_a:,} runs of A with {result.runs_b:,} of B"
    if not found.shared_test_sets:
        yield (
            f"Unpaired: the test sets differ ({result.sets_a:,} of A, {result.sets_b:,} of B), and "
            f"that adds uncertainty; {runs}."
        )
        return
    shared = "1 test set" if result.sets_a == 1 else f"{result.sets_a:,} test sets"
    how = f"run by run ({', '.join(found.streams)} shared)" if found.streams else "not run by run"
    yield f"Paired on {shared}, {how}; {runs}."
    if any(found.left_out):
        more = " and ".join(
            f"{n:,} of {name}" for n, name in zip(found.left_out, "AB", strict=True) if n
        )
        yield f"Left out: test sets that the other lacks, {more}."
    if result.saved_runs is not None:
        n = max(result.runs_a // result.sets_a, 1)
        yield _saved("Pairing runs", result.saved_runs, n, "runs")
    if result.saved_sets is not None:
        yield _saved("Sharing test sets", result.saved_sets, result.sets_a, "test sets")


def _saved(what: str, saving: Saving, n: int, noun: str) -> str:
    limits = f", {100 * saving.low:.0f} to {100 * saving.high:.0f} %"
    if saving.share <= 0:
        return f"{what} saves nothing (correlation {saving.correlation:.2f}{limits})."
    unpaired = saving.unpaired(n)
    as_much = f"{unpaired:.0f}" if unpaired < 1e6 else "more than a million"
    return (
        f"{what} saves {100 * saving.share:.0f} % of them (correlation {saving.correlation:.2f}"
        f"{limits}): {n:,} are as precise as {as_much} {noun} unpaired."
    )
