"""How many seeds are needed for accuracy, error consistency and α̂.

To know a mean over runs to ± x at a given confidence takes the smallest n with
t(n - 1) · √Var_n ≤ x. The mean is over seeds, on one fixed test set. For a quantity of single runs,
Var_n is s² / n, with s the standard deviation between the runs of a repeat, pooled over repeats;
for a quantity of pairs of runs, which aren't independent, it is that of
`analysis.questions.intervals`. The interval of n comes from that of Var_n. For α̂, n is read off
Table I of RKS: `analysis.questions.ensembles`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions import quantiles
from manyseed.analysis.questions.difference import of_two, purposes
from manyseed.analysis.questions.drawn import anew_in
from manyseed.analysis.questions.intervals import (
    FEWEST,
    assumed,
    matrix,
    may_differ,
    of_variance,
    parts,
    t_quantile,
    total,
)
from manyseed.analysis.questions.needed import (
    RunsNeeded,
    cell_named,
    classifiers_named,
    seconds_per_run,
    short_names,
    whole_name,
)
from manyseed.analysis.questions.question import LINE, Answer, Evidence, shortest
from manyseed.analysis.questions.ranking import outlier, outlying
from manyseed.analysis.questions.resolution import ROUNDING, largest_sd, too_alike
from manyseed.analysis.tables.rows import REPEAT, RUN, Tables, independent

PRECISE = 0.005  # half-width of the interval that a mean accuracy should have

MAX_RUNS = 10_000_000  # more runs are no practical answer
WIDEST = 100  # times its lower end: an interval whose upper end is larger is no answer

Real = NDArray[np.float64]
OfMean = Callable[[float, int], float]


def fewest_runs(
    variance: Callable[[int], float], half_width: float, confidence: float = CONFIDENCE
) -> int | None:
    """Return the smallest n ≥ 2 with t(n - 1) · √Var_n ≤ half_width; None above `MAX_RUNS`.

    `variance`: var_n of the mean over n ≥ 2 runs; decreases with n. `half_width`: half-width of the
    confidence interval of the mean.
    """
    if not half_width > 0:
        raise ValueError(f"± {half_width!r} has no answer; it must be positive")

    def enough(n: int) -> bool:
        return t_quantile(confidence, n - 1) * math.sqrt(variance(n)) <= half_width

    low, high = 1, 2
    while not enough(high):
        if high > MAX_RUNS:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if high <= MAX_RUNS else None


def for_mean(
    purpose: str,
    values: Sequence[Real],
    half_width: float,
    confidence: float = CONFIDENCE,
    seconds_per_run: float | None = None,
    nothing: str = "no repeat has 2 runs or more",
    resolution: float = 0.0,
    among: int = 1,
    of: OfMean = operator.truediv,
) -> RunsNeeded:
    """Answer for the mean of a quantity of single runs, such as their accuracies.

    The interval is `intervals.of_variance`, for approximately normal values; the answer says so,
    and whether they are visibly skewed or test sets unequal. No spread seen is not no spread: if
    the values are equal, or their standard deviation is below what the test set resolves, there is
    no answer, but an upper bound, `high`, for the largest one that the runs allow.

    `values`, sequence of float arrays (run,): one array per repeat, without NaN; arrays of one run
    are ignored. `nothing`: the reason to give if no array holds two values. `resolution`: step
    between two values: of accuracies, one test point. `among`: number of such answers from which
    this one is chosen by its result: its interval then holds for all of them together (Bonferroni).
    `of`: variance of the mean of n runs, from that of a run.
    """
    useful = [own for own in values if own.size > 1]
    made = sum(own.size for own in useful)
    freedom = made - len(useful)
    if freedom < 1:
        there = sum(own.size for own in values), len(values)
        return RunsNeeded(purpose, None, None, None, *there, confidence, reason=nothing)
    squares = sum(float(np.square(own - own.mean()).sum()) for own in useful)
    if too_alike(squares / freedom, resolution):
        reason, bound = unresolved(
            squares / freedom, freedom, made, resolution, half_width, confidence, of
        )
        return RunsNeeded(purpose, None, None, bound, made, len(useful), confidence, reason=reason)
    variances = np.array([own.var(ddof=1) for own in useful])
    of_each = np.array([own.size - 1.0 for own in useful])
    ends = of_variance(variances, of_each, 1 - (1 - confidence) / among)
    runs, low, high = (
        fewest_runs(partial(of, variance), half_width, confidence)
        for variance in (squares / freedom, *ends)
    )
    answer = _answer(purpose, (runs, low, high), made, len(useful), confidence, seconds_per_run)
    if answer.runs is None or low == high:
        return answer
    return replace(answer, reason=f"{answer.reason}; {assumed(useful, among)}")


def unresolved(
    variance: float,
    freedom: int,
    made: int,
    resolution: float,
    half_width: float,
    confidence: float,
    of: OfMean = operator.truediv,
) -> tuple[str, int | None]:
    """Say why so little spread is no answer, and which number of runs is enough at any rate.

    `freedom`: number of independent runs less the number of test sets.
    """
    if variance <= ROUNDING:
        reason = (
            f"it cannot be told yet, as the accuracies of all {made:,} runs are equal on their "
            f"test set, while {may_differ(freedom, confidence)}"
        )
    else:
        reason = (
            f"it cannot be told yet, as the standard deviation of {made:,} runs, "
            f"{math.sqrt(variance):.2g}, is below one test point: a test set of "
            f"{round(1 / resolution):,} points resolves no less than 1/{round(1 / resolution):,} "
            f"({resolution:.2g})"
        )
    bound = None
    if resolution > 0:
        most = largest_sd(variance, freedom, resolution, confidence)
        bound = fewest_runs(partial(of, most**2), half_width, confidence)
        sure = f"{100 * confidence:g} %, for normal values"
        reason += f"; the sd of further runs is at most {most:.2g} ({sure})"
    if bound is not None:
        reason += f", for which {bound:,} runs are enough"
    return reason, bound


def for_pairs(
    purpose: str,
    values: Sequence[Real],
    half_width: float,
    confidence: float = CONFIDENCE,
    seconds_per_run: float | None = None,
    nothing: str = f"no repeat has {FEWEST} runs or more",
    resolution: float = 0.0,
) -> RunsNeeded:
    """Answer for the mean of a quantity of pairs of runs.

    Parameters are those of `for_mean`, but `values` holds an array (run, run) per repeat, as
    `analysis.questions.intervals.matrix` returns it, and `resolution` is the least by which two
    values differ: of local error consistency, one of the points that some run gets wrong.
    """
    found = parts(values)
    if found is None:
        return RunsNeeded(purpose, None, None, None, 0, 0, confidence, reason=nothing)
    made, repeats = int(found.runs.sum()), found.runs.size
    of_pair = max(float(found.weights @ found.zeta_2), 0.0)
    is_equal = found.limits(FEWEST, confidence)[1] <= ROUNDING
    if is_equal or too_alike(of_pair, resolution):
        reason = f"it cannot be told yet, as all pairs of the {made:,} runs have the same value"
        if not is_equal:
            reason = (
                f"it cannot be told yet, as the standard deviation of pairs of {made:,} runs, "
                f"{math.sqrt(of_pair):.2g}, is below one of the points that some run gets wrong "
                f"({resolution:.2g})"
            )
        bound = None
        if resolution > 0:  # ζ₁ is at most ζ₂ / 2
            bound = fewest_runs(lambda n: 2 * resolution**2 / n, half_width, confidence)
        if bound is not None:
            reason += f"; if they vary by {resolution:.2g} at most, {bound:,} runs are enough"
        return RunsNeeded(purpose, None, None, bound, made, repeats, confidence, reason=reason)

    def limit(end: int, n: int) -> float:
        return found.limits(n, confidence)[end]

    runs, low, high = (
        fewest_runs(variance, half_width, confidence)
        for variance in (found.variance, partial(limit, 0), partial(limit, 1))
    )
    return _answer(purpose, (runs, low, high), made, repeats, confidence, seconds_per_run)


def _answer(
    purpose: str,
    needed: tuple[int | None, int | None, int | None],
    made: int,
    repeats: int,
    confidence: float,
    seconds_per_run: float | None,
) -> RunsNeeded:
    """Answer for a mean; `needed` holds the number of runs and the ends of its interval."""
    runs, low, high = needed
    basis = (made, repeats, confidence)
    if runs is None:
        return RunsNeeded(
            purpose, None, low, high, *basis, reason=f"it takes more than {MAX_RUNS:,} runs"
        )
    low = min(runs, low) if low is not None else runs
    high = max(runs, high) if high is not None else None
    basis_repeats = "repeat" if repeats == 1 else "repeats"
    if high is None or high > WIDEST * low:
        reason = (
            f"it cannot be told yet; at least {low:,} are needed ({100 * confidence:g} %), but how "
            f"many more the {made:,} runs of {repeats:,} {basis_repeats} do not tell"
        )
        return RunsNeeded(purpose, None, low, None, *basis, reason=reason)
    reason = (
        "the mean is over seeds, on one fixed test set; "
        f"from {made:,} runs of {repeats:,} {basis_repeats}"
    )
    seconds = runs * seconds_per_run if seconds_per_run is not None else None
    return RunsNeeded(purpose, runs, low, high, *basis, seconds, reason)


def howmany(
    tables: Tables,
    *,
    accuracy: float = 0.005,
    consistency: float = 0.02,
    difference: float | None = None,
    confidence: float = CONFIDENCE,
) -> list[RunsNeeded]:
    """Answer for accuracy and for local error consistency from the result tables.

    And for a `difference`, if one is given: as `questions.difference` says.

    `tables`: filtered to what the answers are for, such as a cell, or a dataset and classifier.
    Standard deviations are taken within repeats; `fit_seconds` of the runs gives the cost. Of
    crossed runs those count that share no value. `accuracy` and `consistency`: precision (±) to
    which the means over runs should be known.
    """
    confidently = f"at {100 * confidence:g} % confidence"
    tables = independent(tables)
    runs = tables.runs.filter(~pl.col("identical"))
    seconds = seconds_per_run(runs)
    distinct = tables.repeats.filter(~pl.col("identical")).select(
        *REPEAT, "n_test", "n_wrong_by_any"
    )
    pairs = tables.pairs.join(distinct, on=REPEAT, how="semi")
    accuracies = [
        own["accuracy"].drop_nulls().to_numpy()
        for own in runs.join(distinct, on=REPEAT, how="semi").partition_by(REPEAT)
    ]
    consistencies = [
        matrix(
            own["run_i"].to_numpy(),
            own["run_j"].to_numpy(),
            own["ec_local"].fill_null(np.nan).to_numpy(),
        )
        for own in pairs.partition_by(REPEAT)
    ]
    few = "no repeat has {} runs or more"
    if distinct.is_empty() and not tables.repeats.is_empty():
        few = "the runs of every repeat are identical"
    resolution = resolution_of(distinct if not distinct.is_empty() else tables.repeats)

    def of_accuracy(purpose: str, half: float, of: OfMean = operator.truediv) -> RunsNeeded:
        basis = confidence, seconds, few.format(2), resolution
        return for_mean(f"{purpose} {confidently}", accuracies, half, *basis, of=of)

    return [
        of_accuracy(f"accuracy ± {accuracy:g}", accuracy),
        for_pairs(
            f"local error consistency ± {consistency:g} {confidently}",
            consistencies,
            consistency,
            confidence,
            seconds,
            _no_consistency(tables.repeats, pairs, few.format(FEWEST)),
            _step_of(distinct["n_wrong_by_any"]),
        ),
        *(
            of_accuracy(purpose, difference or 0.0, partial(of_two, confidence, power))
            for purpose, power in (purposes(difference) if difference else ())
        ),
    ]


def resolution_of(repeats: pl.DataFrame) -> float:
    """Return one test point of the smallest test set, as a share; 0 if its size is unknown."""
    return _step_of(repeats["n_test"])


def _step_of(points: pl.Series) -> float:
    """Return one point of the fewest; 0 if it is unknown, or none."""
    fewest = points.min()
    return 1 / fewest if isinstance(fewest, int) and fewest > 0 else 0.0


def _no_consistency(repeats: pl.DataFrame, pairs: pl.DataFrame, few: str) -> str:
    """Return why pairs give no estimate without each run; `few` if there are too few runs."""
    enough = repeats.filter(~pl.col("identical"), pl.col("n_runs") >= FEWEST)
    if enough.is_empty():
        return few
    wrong = enough["n_wrong_by_any"].drop_nulls().to_list()
    if not wrong:
        return "error consistency was not computed"
    if max(wrong) == 0:
        return "no run errs"
    if pairs.join(enough.select(REPEAT), on=REPEAT, how="semi").is_empty():
        return "pairs of so many runs are not listed: raise max_pair_runs"
    return "too few runs err: without one of them, no two disjoint pairs have an error"


def answer(evidence: Evidence) -> Iterator[Answer]:
    """Say how many seeds it takes to know each cell's mean accuracy to `PRECISE`."""
    tables, key = evidence.tables, ["cell", "repeat_index"]
    own = tables.runs.filter(~pl.col("identical")).drop_nulls("accuracy").sort(*key, "run_index")
    repeats = own.group_by(key, maintain_order=True).agg(
        pl.len().alias("n"), pl.col("accuracy").implode().list.var().alias("variance")
    )
    cells = (
        repeats.filter(pl.col("n") > 1)
        .group_by("cell", maintain_order=True)
        .agg(
            total(pl.col("variance") * (pl.col("n") - 1)).alias("squares"),
            (pl.col("n") - 1).sum().alias("freedom"),
            (pl.col("n").sum() // pl.len()).alias("n"),
        )
        .with_columns(variance=pl.col("squares") / pl.col("freedom"))
        .join(tables.repeats.group_by("cell").agg(pl.col("n_test").min()), on="cell")
        .with_columns(resolution=(1 / pl.col("n_test")).fill_null(0.0))
        .sort("variance", "cell")
    )
    if cells.is_empty():
        return
    unlike = unlike_others(own, tables.repeats)
    alike = [too_alike(*row) for row in cells.select("variance", "resolution").rows()]
    unknown, cells = cells.filter(alike), cells.filter(~pl.Series(alike))
    if cells.is_empty():
        sure = 1 - (1 - CONFIDENCE) / unknown.height  # for all cells together
        shown = unknown.select("variance", "freedom", "resolution").rows()
        limit = (
            max(largest_sd(value, free, step, sure) for value, free, step in shown)
            if all(row[2] for row in shown)
            else 0
        )
        bound = fewest_runs(partial(operator.truediv, limit**2), PRECISE) if limit else None
        headline = f"How many seeds accuracy ± {PRECISE:g} takes is not told: no spread is seen."
        if bound is not None:
            headline = (
                f"Accuracy to ± {PRECISE:g} takes {bound:,} seeds at most: spreads so far are "
                "below one test point."
            )
        why = _no_spread(unknown, own)
        if bound is not None and unknown.height > 1:
            why += (
                f" For all {unknown.height:,} cells together, sds are at most {limit:.2g} (95 %), "
                f"for which {bound:,} runs are enough."
            )
        yield Answer(headline, evidence=why, figures=("summary",))
        return
    # More variance takes more runs, so the first and last cell give the range.
    least, needed = (
        _of_cell(own.filter(cell=cells["cell"][place]), among=cells.height) for place in (0, -1)
    )
    if needed.runs is None:
        if needed.low is not None:
            several = cells.height > 1
            most = ", which varies most" if several else ""
            name = cell_named(own, cells["cell"][-1])
            where = f" in {name}" if several else ""
            text = f"In {name}{most}, {needed.reason}."
            beside, why = _without(own.filter(cell=cells["cell"][-1]), unlike)
            text += why
            low, of = f"{needed.low:,}", f"{where}{beside}"
            yield Answer(
                shortest(
                    [
                        f"How many seeds accuracy ± {PRECISE:g} takes cannot be told yet: "
                        f"at least {low}{of}.",
                        f"Accuracy to ± {PRECISE:g} takes at least {low} seeds{of}.",
                    ],
                    LINE,
                ),
                evidence=f"{text} {_no_spread(unknown, own)}" if unknown.height else text,
                figures=("summary",),
            )
        return
    most_varied = own.filter(cell=cells["cell"][-1])
    row = most_varied.row(0, named=True)
    assuming = assumed(_by_test_set(most_varied), cells.height)
    interval = f"{needed.low:,} to {needed.high:,}"
    is_one = needed.low == needed.high == needed.runs
    half = quantiles.t_quantile(cells["n"].to_numpy() - 1, (1 + CONFIDENCE) / 2)
    narrow = cells.filter(half * (cells["variance"] / cells["n"]).sqrt().to_numpy() <= PRECISE)
    enough = sum(_of_cell(own.filter(cell=cell)).enough is True for cell in narrow["cell"])
    alone = cells.height == 1
    together = "" if alone else f" for all {cells.height:,} cells together"
    of_cells = "the cell" if alone else f"each of {cells.height:,} cells"
    fewest = f"{least.runs:,} to " if least.runs not in (None, needed.runs) else ""
    most = (
        f"{fewest}{needed.runs:,} runs, by their standard deviations so far; "
        f"{needed.runs:,} in {whole_name(row, own)}"
    )
    text = (
        f"Knowing the mean accuracy of {of_cells} to ± {PRECISE:g} (95 %, over seeds, on one "
        f"test set) takes {f'{needed.runs:,} runs' if alone else most} "
        f"({'' if is_one else f'{interval}, '}95 %{together}; from {needed.made:,} runs"
        f"{'' if is_one else f'; {assuming}'}). "
    )
    of = f" of {row['classifier']}" if alone and unknown.height else ""
    of += f" on {row['dataset']}" if of and own["dataset"].n_unique() > 1 else ""
    places = [""]
    takes = f"± {PRECISE:g} takes{' up to' if fewest else ''} {needed.runs:,} seeds"
    beside, why = _without(most_varied, unlike)
    if alone and not is_one:
        takes += f" ({interval})"
    elif fewest:
        places = [*short_names(row, own), ""]
    places = [f"{place}{beside}" for place in places]
    there = [part.size for part in _by_test_set(most_varied)]
    have = f"each test set has {min(there):,}{' or more' if max(there) > min(there) else ''}"
    bounded, untold = _with_enough(unknown, own)
    others = classifiers_named(untold, own, "") if untold.height else ""
    if not alone:
        number = cells.height + (bounded if others else unknown).height
        have = f"{enough + bounded.height:,} of {number:,} cells have enough"
    elif bounded.height:
        names = classifiers_named(bounded, own, "some others" if untold.height else "others")
        have += f"; {names} {'have' if ', ' in names or names.endswith('others') else 'has'} enough"
    if enough == cells.height:
        text += "Each repeat has enough runs for that."
    elif alone:
        text += "Its repeats have too few runs for that."
    elif enough:
        text += f"{enough} of {cells.height:,} cells have enough runs for that in their repeats."
    else:
        text += "None of these has enough runs for that yet."
    text += f"{why}{anew_in(row, ' In that cell, ')}"
    if unknown.height:
        text += f" {_no_spread(unknown, own)}"
    if bounded.height:
        who = classifiers_named(bounded, own, "other cells")
        have_it = "have" if ", " in who or who == "other cells" else "has"
        text += f" So {who} {have_it} enough in any case."
    rows = cells.with_columns(sd=pl.col("variance").sqrt()).select("cell", "n", "sd").to_dicts()
    if untold.height:
        have += (
            f"; {others or 'others'} not told"
            if others or alone
            else f", {untold.height:,} unknown"
        )
    starts = (f"Accuracy{of} to ", *([] if alone else ["Accuracy "]))
    headline = shortest(f"{start}{takes}{place}; {have}." for place in places for start in starts)
    yield Answer(headline, evidence=text, rows=rows, figures=("summary",))


def unlike_others(runs: pl.DataFrame, repeats: pl.DataFrame) -> pl.DataFrame:
    """Return the runs that are unlike the others of their repeat in accuracy, as `outlying`."""
    sizes = repeats.select(*REPEAT, "n_test")
    return outlying(runs.join(sizes, on=REPEAT, maintain_order="left"))


def _without(runs: pl.DataFrame, unlike: pl.DataFrame) -> tuple[str, str]:
    """Say how many seeds a cell takes without its runs that are unlike the others, if any.

    For a headline, and with the evidence. `runs`: of the cell.
    """
    unlike = unlike.join(runs.select(RUN), on=RUN, how="semi", maintain_order="left")
    if unlike.is_empty():
        return "", ""
    others = _of_cell(runs.join(unlike, on=RUN, how="anti", maintain_order="left"))
    takes = "unknown" if others.runs is None else f"{others.runs:,}"
    first = outlier(unlike.row(0, named=True))
    address = first.partition(" ")[0]
    more = f" and {unlike.height - 1:,} more" if unlike.height > 1 else ""
    are = "are" if more else "is"
    return (
        f"; {takes} without run {address}{more}, unlike the others",
        f" Of these, run {first}{more} {are} unlike the others in accuracy, and counted: without "
        f"{'them' if more else 'it'}, the number is {takes}.",
    )


def _with_enough(unknown: pl.DataFrame, runs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the cells without a seen spread whose runs are enough for the largest, and others."""
    enough = pl.Series(
        [
            _of_cell(runs.filter(cell=cell), step).enough is True
            for cell, step in unknown.select("cell", "resolution").iter_rows()
        ],
        dtype=pl.Boolean,
    )
    return unknown.filter(enough), unknown.filter(~enough)


def _no_spread(unknown: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Say in which cells runs seem to vary too little, and what is known of the first."""
    cell, resolution = unknown.select("cell", "resolution").row(0)
    found = _of_cell(runs.filter(cell=cell), resolution)
    where = "" if unknown.height == 1 else f"{unknown.height:,} cells, such as "
    return (
        f"How many seeds it takes to know the mean accuracy to ± {PRECISE:g} has no answer in "
        f"{where}{cell_named(runs, cell)}: {found.reason}."
    )


def _by_test_set(runs: pl.DataFrame) -> list[Real]:
    parts = runs.partition_by("repeat_index", maintain_order=True)
    return [one["accuracy"].to_numpy() for one in parts]


def _of_cell(runs: pl.DataFrame, resolution: float = 0.0, among: int = 1) -> RunsNeeded:
    """Return the answer of `for_mean` for the runs of a cell, one of so many."""
    values = _by_test_set(runs)
    return for_mean(f"± {PRECISE:g}", values, PRECISE, resolution=resolution, among=among)
