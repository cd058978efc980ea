"""How large an ensemble must be to stand for the training: answers from Table I of RKS."""

from __future__ import annotations

import math

import polars as pl

from manyseed.analysis.alphahat.trimming import points_needed
from manyseed.analysis.options import CLOSE, CONFIDENCE
from manyseed.analysis.questions.howmany import Answer
from manyseed.analysis.questions.quantiles import beta_quantile

_CLOSE = "an ensemble with α̂ ≤ {:g}"
_ACCEPTED = "an ensemble that the classical KS test accepts"


def for_alpha(
    table: pl.DataFrame,
    *,
    made: int,
    epsilon: float,
    close: float = CLOSE,
    confidence: float = CONFIDENCE,
    seconds_each: float | None = None,
    drawn_from: str = "one repeat",
) -> list[Answer]:
    """Read off Table I from which size on all ensembles are close, or pass the classical test.

    That all pass is evidence only if the test could have failed them: where δ exceeds `close` it
    could not, and the answer says how many points would do.

    Parameters
    ----------
    table : polars frame
        As `analysis.questions.ensembles.table_one` returns it, with the columns `models` (number of
        runs drawn from), `n_side` and `delta` (the resolution).
    made : int
        Runs of the reference and the pool together.
    epsilon : float
        Probability that δ is exceeded by chance.
    close : float
        The one that the table was made with.
    confidence : float
        Of the share of ensembles that pass.
    seconds_each : float or None
        Training time of a run.
    drawn_from : str
        What the runs are, in words.

    Returns
    -------
    list of two Answer
        For α̂ at most `close`, and for acceptance by the classical test. `low` is one more than the
        largest size that failed, so the interval is as wide as the gap between sizes. The reason
        says which well-separated contamination ν passes unseen: α̂ ≈ (ν - δ) / (1 - δ).
    """
    delta, n_side = float(table["delta"][0]), int(table["n_side"][0])
    answers = []
    for column, purpose, unseen in (
        ("close", _CLOSE.format(close), delta + close * (1 - delta)),
        ("accepted", _ACCEPTED, delta),
    ):
        size, largest, different = _all_pass(table, column)
        passes = f"contamination of up to {unseen:.0%}"
        runs = low = seconds = None
        if size is None:
            reason = f"not all ensembles of {largest} pass, the largest size that was drawn"
        elif delta > close:
            reason = (
                f"{n_side:,} test points per side are too few, as {passes} would pass unseen (δ = "
                f"{delta:.3f}); about {points_needed(close, epsilon):,} would be enough"
            )
        else:
            runs, low = size, largest + 1
            seconds = size * seconds_each if seconds_each is not None else None
            # Clopper and Pearson's bound for a proportion of 1.
            bound = math.floor(1000 * beta_quantile(different, 1, 1 - confidence)) / 10
            models = f"{table['models'][0]:,} runs"
            which = (
                f"all {different:,} different ensembles of that size out of {models} pass"
                if different > 1
                else f"the one ensemble of that size out of {models} passes"
            )
            reason = (
                f"{which}, so at least {bound:.1f}% of all ensembles of these runs do "
                f"({100 * confidence:g} % confidence); with δ = {delta:.3f} at N = {n_side:,} test "
                f"points per side, {passes} passes too"
            )
        reason = f"{reason}; from {made:,} runs of {drawn_from}"
        answers.append(Answer(purpose, runs, low, runs, made, 1, None, seconds, reason))
    return answers


def no_ensembles(reason: str, close: float = CLOSE) -> list[Answer]:
    """Return the answers of `for_alpha` where no ensembles could be drawn."""
    purposes = (_CLOSE.format(close), _ACCEPTED)
    return [Answer(purpose, None, None, None, 0, 0, None, reason=reason) for purpose in purposes]


def _all_pass(table: pl.DataFrame, column: str) -> tuple[int | None, int, int]:
    """Return the size from which on all pass, the largest that failed, and distinct ensembles."""
    ordered = table.sort("size")
    failed = ordered.filter(pl.col(column) < 1)["size"]
    largest = int(failed.to_numpy().max()) if not failed.is_empty() else 0
    passing = ordered.filter(pl.col("size") > largest)
    if passing.is_empty():
        return None, largest, 0
    return int(passing["size"][0]), largest, int(passing["distinct"][0])
