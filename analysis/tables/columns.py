"""Units and meanings of the columns of every result table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from manyseed.analysis.metrics.metric import Column, Metric
from manyseed.analysis.tables.means import compares_runs
from manyseed.analysis.tables.schema import OVER_REPEATS, repeat_columns

Meaning = tuple[str, str]
"""A unit, or an empty string, and a sentence."""

_POINTS, _RUNS, _REPEATS, _PAIRS = "share of test points", "runs", "repeats", "pairs"
_TEST, _ECDF = "test points", "difference of eCDFs"
_ENSEMBLES, _LEVEL = "share of ensembles", "trimming level"

_DELTA = (_ECDF, "Resolution of α̂ at N: smaller contamination isn't seen.")
_SIDE = (_TEST, "N, points on each side of the test behind α̂.")

EVERYWHERE: Mapping[str, Meaning] = {
    "cell": ("", "Which cell."),
    "epoch": ("", "Which snapshot: epochs trained, 0 where the training has none."),
    "repeat_index": ("", "Which test set."),
    "run_index": ("", "Which run of the repeat."),
    "run_i": ("", "Which run of the repeat is the first of the pair."),
    "run_j": ("", "Which run of the repeat is the second of the pair."),
    "probe": ("", "What a point is reduced to for α̂: gap or true_margin."),
    "n_test": (_TEST, "Size of the test set."),
    "n_side": _SIDE,
    "delta": _DELTA,
}

TABLES: Mapping[str, Mapping[str, Meaning]] = {
    "runs": {"identical": ("", "Whether the run is a copy of another of its repeat.")},
    "pairs": {},
    "repeats": {
        "n_runs": (_RUNS, "Finished runs."),
        "n_distinct": (_RUNS, "Finished runs, identical ones counted once."),
        "n_undefined": (_RUNS, "Finished runs with a margin or a score that is not a number."),
        "identical": ("", "Whether all runs of the repeat are one model."),
        "coverage": ("share of runs", "Planned runs that are finished."),
        "problem": ("", "Why the repeat could not be analysed."),
    },
    "cells": {
        "n_repeats": (_REPEATS, "Repeats with finished runs."),
        "n_identical_repeats": (_REPEATS, "Repeats of identical runs."),
        "n_runs": (_RUNS, "Finished runs of all repeats."),
        "n_distinct": (_RUNS, "Finished runs of all repeats, identical ones counted once."),
        "coverage": ("share of runs", "Planned runs that are finished."),
        "draws_from": (
            "",
            "Sources of randomness in vary that fits draw from: init+batch; none; or, of imported "
            "runs, unknown.",
        ),
        "same_as": ("", "Cell whose runs are the same fits and count for both; else null."),
    },
    "sources": {
        "accuracy_min": (_POINTS, "Smallest accuracy of the runs, over all test sets."),
        "accuracy_max": (_POINTS, "Largest accuracy of the runs, over all test sets."),
        "n_judged": (
            _RUNS,
            "Runs with α̂: where half of the runs are its reference, those of the other half.",
        ),
        "accuracy_mean_judged": (_POINTS, "Mean over repeats of the mean accuracy of judged runs."),
        "accuracy_std_judged": (_POINTS, "Their standard deviation within repeats, pooled."),
        "accuracy_min_judged": (_POINTS, "Smallest accuracy of judged runs."),
        "accuracy_max_judged": (_POINTS, "Largest accuracy of judged runs."),
        "n_close": (
            _RUNS,
            "Runs whose α̂ is at most the option close, in repeats whose runs vary. Null, as are "
            "all columns of close runs, where δ is above that option.",
        ),
        "accuracy_min_close": (_POINTS, "Smallest accuracy of close runs."),
        "accuracy_max_close": (_POINTS, "Largest accuracy of close runs."),
        "n_pairs": (_PAIRS, "Pairs of runs, without pairs of identical runs."),
        "churn_min": (_POINTS, "Smallest churn of these pairs."),
        "churn_max": (_POINTS, "Largest churn of these pairs."),
        "n_pairs_judged": (_PAIRS, "Pairs of judged runs."),
        "churn_min_judged": (_POINTS, "Smallest churn of pairs of judged runs."),
        "churn_max_judged": (_POINTS, "Largest churn of pairs of judged runs."),
        "n_pairs_close": (_PAIRS, "Pairs of runs that are both close."),
        "churn_min_close": (_POINTS, "Smallest churn of pairs of close runs."),
        "churn_max_close": (_POINTS, "Largest churn of pairs of close runs."),
    },
    "ranking": {
        "rank": ("", "1 is the run of the repeat to keep."),
        "close": ("", "Whether α̂ is at most the option close; null where δ is above that option."),
        "accuracy": (
            _POINTS,
            "Share of the test points that the run gets right. Optimistic: runs are ranked by it, "
            "unless points were held out (holdout_accuracy).",
        ),
    },
    "effects": {
        "axis": ("", "The axis in which the two cells differ."),
        "level": ("", "The cell's level on this axis."),
        "reference": ("", "The reference cell's level on this axis."),
        "reference_cell": ("", "Which cell is the reference."),
        "metric": ("", "What is compared: a column of the table of repeats."),
        "difference": ("", "Mean over test sets, level minus reference, in the metric's unit."),
        "sd": ("", "Standard deviation of the difference between test sets (n - 1)."),
        "n_test_sets": ("test sets", "Test sets on which both cells define the metric."),
        "n_identical": ("test sets", "Those on which one of the cells has identical runs only."),
        "over": ("", "What interval and p are over: test sets, or seeds on one test set."),
        "freedom": ("", "Degrees of freedom of the interval."),
        "low": ("", "Lower end of the 95 % interval of the difference."),
        "high": ("", "Upper end of the 95 % interval of the difference."),
        "p": ("", "Probability of a difference as large or larger if there is none."),
        "comparisons": ("comparisons", "Differences of this metric in the table that have a p."),
        "p_holm": ("", "p corrected for the number of comparisons (Holm 1979)."),
    },
    "variance": {
        "metric": ("", "What varies: accuracy, errors, ec_local or ec_global."),
        "source": ("", "A source of randomness, or all that vary, joined by +; or test set."),
        "part": ("", "own, alone, added, together, all or between test sets."),
        "variance": ("", "The component, in the metric's unit squared; may be below 0."),
        "low": ("", "Lower end of its 95 % interval."),
        "high": ("", "Upper end of its 95 % interval."),
        "share": ("", "Share of the variance of all, where parts add up to it."),
        "unequal": (
            "",
            "How unequal variances of test sets are: the standard deviation of their logarithm, "
            "beyond chance. Where it is large, intervals cover less than they say.",
        ),
        "n_repeats": (_REPEATS, "Repeats that it rests on."),
        "n_runs": (_RUNS, "Runs of the first cell that it rests on."),
        "over": ("", "What the interval is over: test sets, or seeds on one test set."),
        "cells": ("", "Numbers of the cells that it rests on, separated by commas."),
    },
    "ensembles": {
        "models": ("models", "Models that ensembles are drawn from."),
        "size": ("models", "M_ens, members of an ensemble."),
        "draws": ("ensembles", "Ensembles of this size."),
        "distinct": ("ensembles", "How many of them differ in their members."),
        "close": (
            _ENSEMBLES,
            "Ensembles whose α̂ is at most the option close; null where some are but δ is above "
            "that option.",
        ),
        "accepted": (_ENSEMBLES, "Ensembles that the classical two-sample KS test accepts."),
        "accuracy": (_POINTS, "Mean over the ensembles."),
        "churn": (_POINTS, "Churn against the average of the whole pool, mean over the ensembles."),
        "ece": (
            "difference of shares",
            "Expected calibration error, mean over the ensembles. Not a criterion for selection.",
        ),
        "alpha_hat": (_LEVEL, "α̂ against the other half of the runs, mean over the ensembles."),
        "ks_distance": (_ECDF, "Largest difference of the eCDFs, mean over the ensembles."),
    },
    "ensemble_draws": {
        "size": ("models", "M_ens, members of the ensemble."),
        "draw": ("", "Which ensemble of this size."),
        "alpha_hat": (_LEVEL, "α̂ against the other half of the runs."),
        "alpha_hat_infeasible": ("share of resamples", "Resamples that no trimming level fits."),
        "ks_distance": (_ECDF, "Largest difference of the eCDFs, mean over the resamples."),
        "ks_rejected": ("", "Whether it is above δ: the classical two-sample KS test rejects."),
        "accuracy": (_POINTS, "Share of the test points that the ensemble gets right."),
        "churn": (_POINTS, "Churn against the average of the whole pool."),
        "ece": (
            "difference of shares",
            "Expected calibration error; null where scores are no probabilities. Not a criterion "
            "for selection.",
        ),
    },
    "margins": {
        "bin": ("", "Which bin, from the lowest; the same in every sweep."),
        "values": ("", "finite; or nan, -inf, inf: margins that are not finite numbers."),
        "low": ("logits", "Lower end of the bin, inclusive; null for the lowest."),
        "high": ("logits", "Upper end of the bin; null for the highest."),
        "n_runs": (_RUNS, "Runs of the repeat, without copies."),
        "points": ("points of runs", "Test points of all these runs in the bin."),
        "share": (_POINTS, "Share of a run's points in the bin, mean over the runs."),
        "share_min": (_POINTS, "Smallest share of the runs: lower end of the envelope."),
        "share_max": (_POINTS, "Largest share of the runs: upper end of the envelope."),
        "ensemble": (
            _POINTS,
            "The same for the average of the runs' logit gaps; null for more than two classes.",
        ),
        "nearest_run": (
            "",
            "The run whose eCDF is nearest to that of the average of all others' logit gaps; null "
            "for more than two classes or fewer than three runs.",
        ),
        "nearest": (_POINTS, "Share of that run's points in the bin."),
        "nearest_loo": (_POINTS, "The same for its leave-one-out ensemble, that average."),
        "furthest_run": ("", "The run whose eCDF is furthest from that average."),
        "furthest": (_POINTS, "Share of that run's points in the bin."),
        "furthest_loo": (_POINTS, "The same for its leave-one-out ensemble."),
    },
    "uncertainty": {
        "run_index": (
            "",
            "Which run, if its own members are averaged (ensembling); null for deep ensembles.",
        ),
        "draw": (
            "",
            "Which order of the repeat's runs; its first members are averaged. Null for members "
            "of one run.",
        ),
        "members": ("models", "Runs, or members of one run, whose probabilities are averaged."),
        "pool": (_RUNS, "Runs that they are drawn from; null for members of one run."),
        "fit_seconds": (
            "s",
            "Training time: of members, that of their whole run; of runs, their number times the "
            "mean of the repeat; null if unknown.",
        ),
    },
    "dee": {
        "deep_cell": ("", "The cell whose deep ensembles this cell is compared with."),
        "axis": ("", "The only axis in which the two differ."),
        "deep_value": ("", "The level of deep_cell on this axis."),
        "metric": ("", "What is compared: a column of the table uncertainty."),
        "members": (
            "models",
            "Runs of the cell, or members of each of its runs, whose probabilities are averaged.",
        ),
        "value": ("", "The metric of these ensembles: mean over draws, or over runs."),
        "n_runs": (_RUNS, "Runs of the cell that they are drawn from, or that are averaged over."),
        "dee": (_RUNS, "Deep ensemble equivalent: members of deep_cell for the same value."),
        "dee_lower": (_RUNS, "The same with ensembles a standard deviation better."),
        "dee_upper": (_RUNS, "The same with ensembles a standard deviation worse."),
        "beyond": (_RUNS, "Where dee is null: it is more than this."),
        "pool": (_RUNS, "Runs of deep_cell that ensembles are drawn from."),
        "draws": ("ensembles", "Ensembles of each size."),
        "fit_seconds": (
            "s",
            "Training time of the cell's ensemble: mean of this column of uncertainty.",
        ),
        "deep_fit_seconds": ("s", "Training time of one run of deep_cell: mean over the repeat."),
    },
    "tace": {
        "members": ("models", "Runs, or members of one run, whose probabilities are averaged."),
        "threshold": ("probability", "θ, above which a class's probabilities count."),
        "bins": ("bins", "M, bins per class, of equally many points."),
        "n_runs": (_RUNS, "Runs averaged over; 1 where all were averaged into one."),
    },
}

ENDINGS: Mapping[str, str] = {
    "std": "Standard deviation (n - 1)",
    "sd": "Standard deviation over repeats, so between test sets (n - 1),",
    "lo": "Smallest over repeats",
    "hi": "Largest over repeats",
    "min": "Smallest",
    "max": "Largest",
    "n": "Repeats that define it: number",
}
"""Meanings of the endings that make a column's name from another's."""


def describe(
    table: str,
    names: Sequence[str],
    metrics: Sequence[Metric],
    further: Mapping[str, Meaning] | None = None,
) -> dict[str, Meaning]:
    """Return the units and meanings of a table's columns.

    Parameters
    ----------
    table : str
        A key of `TABLES`, or another table that `further` describes.
    names : sequence of str
        Its columns.
    metrics : sequence of Metric
        Those whose columns the tables have (`analysis.metrics.registry.schema`).
    further : mapping of name to `Meaning`, or None
        Meanings of columns that the caller joined.

    Raises
    ------
    KeyError
        For an unknown column.
    """
    columns: list[Column] = [c for m in metrics for c in (*m.runs, *m.pairs)]
    columns += repeat_columns(metrics)
    known = {
        **{column.name: (column.unit, column.meaning) for column in columns},
        **EVERYWHERE,
        **(further or {}),
        **(TABLES["cells"] if table == "sources" else {}),
        **TABLES.get(table, {}),
    }
    if table in ("cells", "sources"):
        for name in OVER_REPEATS:
            unit, meaning = known[name]
            known[name] = unit, f"{_over_repeats(name)}. {meaning}"
    return {name: known[name] if name in known else _with_ending(name, known) for name in names}


def _over_repeats(name: str) -> str:
    of = " whose runs vary" if compares_runs(name) else ""
    if name.endswith("_std"):
        return f"Between seeds: pooled (root of the mean of variances, by n - 1) over repeats{of}"
    return f"Mean over repeats{of}"


def _with_ending(name: str, known: Mapping[str, Meaning]) -> Meaning:
    base, _, ending = name.rpartition("_")
    unit = _REPEATS if ending == "n" else known[base][0]
    return unit, f"{ENDINGS[ending]} of {base}."
