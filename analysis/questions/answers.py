"""A sweep's answers: sentences computed from its tables, with links to the figures behind them.

A sentence states its sample (n), its uncertainty (an interval) and what cannot be concluded.
Questions without an answer have no sentence. The page begins with these sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from manyseed.analysis.options import Options
from manyseed.analysis.questions.question import PAGE, Answer, Evidence, imported, incomplete
from manyseed.analysis.tables.rows import Tables


def answers(
    tables: Tables,
    effects: pl.DataFrame,
    variance: pl.DataFrame | None,
    options: Options,
    *,
    planned: int | None = None,
    finished: int | None = None,
    failed: int = 0,
    cmi: pl.DataFrame | None = None,
) -> list[Answer]:
    """Answer what can be answered of `PAGE`, most urgent first.

    Parameters
    ----------
    tables, effects, variance, options, cmi
        As in `analysis.questions.question.Evidence`.
    planned, finished, failed : int
        Runs of the sweep; None if unknown.
    """
    if tables.runs.is_empty():
        return []
    missing: Iterator[Answer] | tuple[()] = ()
    if planned is not None and finished is not None and (short := short_repeats(tables)):
        missing = incomplete(*short, planned, finished, failed)
    evidence = Evidence(tables, effects, variance, options, cmi)
    return [
        *missing,
        *(
            replace(one, about=question.name)
            for question in PAGE
            for one in imported(question.find)(evidence)
        ),
    ]


def short_repeats(tables: Tables) -> tuple[int, int] | None:
    """Return how many repeats lack runs, and how many there are; None without runs."""
    if tables.runs.is_empty():
        return None
    return tables.repeats.filter(pl.col("coverage") < 1).height, tables.repeats.height
