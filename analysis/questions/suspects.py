"""Where no trimming makes resamples acceptable, and which runs are the likely cause."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.alphahat import worst
from manyseed.analysis.counts import some
from manyseed.analysis.options import SORTED, Options
from manyseed.analysis.tables.rows import REPEAT, VARIES

SUSPECT = "alpha_hat_suspect"
INFEASIBLE = "alpha_hat_infeasible_max"

_LISTED = 5


def concerned(repeats: pl.LazyFrame, runs: pl.LazyFrame, options: Options) -> pl.DataFrame:
    """Return the repeats with infeasible resamples, or with suspects left out to avoid them.

    Parameters
    ----------
    repeats, runs : polars lazy frames
        The tables with `dataset` and `classifier` joined.
    options : Options
        Those that the tables were computed with.

    Returns
    -------
    polars frame
        Columns dataset, classifier, cell, repeat_index, `infeasible` (whether resamples are) and
        `suspects` (list of run indices). Empty for tables of an earlier version.
    """
    key = ["dataset", "classifier", *REPEAT]
    if SUSPECT not in runs.collect_schema():
        return repeats.head(0).select(key).collect()
    found = runs.filter(pl.col(SUSPECT)).group_by(REPEAT).agg(suspects=pl.col("run_index").sort())
    infeasible = (pl.col(INFEASIBLE) > 0).fill_null(False)
    return (
        repeats.filter(VARIES)
        .select(*key, infeasible=infeasible)
        .join(found, on=REPEAT, how="left")
        .filter("infeasible" if options.alpha_reference not in SORTED else _ANY)
        .with_columns(pl.col("suspects").fill_null([]))
        .sort(key)
        .collect()
    )


_ANY = pl.col("infeasible") | pl.col("suspects").is_not_null()


def notes(repeats: pl.LazyFrame, runs: pl.LazyFrame, options: Options) -> list[str]:
    """Say for each group where resamples are infeasible and which runs are the likely cause.

    Parameters are those of `concerned`.
    """
    found = concerned(repeats, runs, options)
    parts = found.partition_by("dataset", "classifier", maintain_order=True)
    return [_note(part, options) for part in parts]


def _note(part: pl.DataFrame, options: Options) -> str:
    dataset, classifier = part.row(0)[:2]
    named = [
        (cell, repeat, run)
        for cell, repeat, runs in part.select(*REPEAT, "suspects").iter_rows()
        for run in runs
    ]
    trimmed = options.alpha_reference == "others-trimmed"
    n_infeasible, n = int(part["infeasible"].sum()), part.height
    words = [f"{dataset} × {classifier}:"]
    if n_infeasible:
        where = "one repeat" if n_infeasible == 1 else f"{n_infeasible:,} repeats"
        words.append(
            f"in {where}, the test rejects some resamples at every trimming level; each of these "
            f"counts as α̂ = {worst(options.alpha_mode):g}."
        )
    if named and trimmed:
        left = "Left" if n_infeasible else "left"
        words.append(f"{left} out of references, because others fail against them: {_some(named)}.")
    elif named:
        words.append(
            f"The likely cause: {_some(named)}; without these, no resample is rejected at every "
            "level. With alpha_reference = others-trimmed all runs are compared with the rest."
        )
    if options.alpha_reference not in SORTED:
        words.append(
            "The reference is an average of models; alpha_reference = others shows which runs are "
            "the likely cause."
        )
    elif n_unexplained := part.filter(pl.col("suspects").list.len() == 0).height:
        where = "There" if n_unexplained == n else f"In {n_unexplained:,} of these repeats"
        words.append(f"{where}, no majority of the runs agrees, so no run is named as the cause.")
    return " ".join(words)


def _some(named: list[tuple[int, int, int]]) -> str:
    listed = [f"run {run} (cell {cell}, repeat {repeat})" for cell, repeat, run in named]
    return some(listed, _LISTED)
