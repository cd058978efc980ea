"""What a comparison takes whose interval is lacking, or too wide to tell."""

from __future__ import annotations

from manyseed.analysis.questions.comparison import SINGLE, Comparison
from manyseed.analysis.questions.needed import MOST_SETS, sets_needed

FEWEST_ESTIMATED = 3  # test sets whose spread estimates how many it takes


def more_runs(result: Comparison) -> str:
    """Say what gives a side with single runs an interval; nothing where neither side has such."""
    if result.no_seeds != SINGLE:
        return ""
    sides = {"A": (result.runs_a, result.sets_a), "B": (result.runs_b, result.sets_b)}
    whose = [name for name, (runs, sets) in sides.items() if runs < 2 * sets]
    return (
        f" More runs of {' and '.join(whose or sides)} allow one (runs = 5); where no seed "
        'reaches the fit, other training rows (vary = ["train"]) make them differ, or other test '
        "sets (repeats = 5) tell without."
    )


def limited_by_sets(result: Comparison, confidence: float) -> str:
    """Say about how many test sets would tell a difference that seeds alone tell."""
    n = repeats_needed(result, confidence)
    enough = f"about {n:,} repeats would tell it" if n else f"{MOST_SETS:,} would not tell it"
    return (
        f"Test sets limit this, not seeds: {enough}, if the difference and its spread between test "
        "sets stay as they are (an estimate)."
    )


def repeats_needed(result: Comparison, confidence: float, among: int = 1) -> int | None:
    """Return how many test sets tell a difference, at the spread so far; None if too many do.

    `among`: comparisons that have the confidence together.
    """
    assert result.sets is not None
    half = (result.sets[1] - result.sets[0]) / 2
    return sets_needed(result.difference, half, result.sets_a, confidence, among)
