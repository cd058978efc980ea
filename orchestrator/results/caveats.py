"""What a reader of the results must know: what could not be computed, and what is wrong."""

from __future__ import annotations

import polars as pl

from manyseed.orchestrator.results.record import Analysis

_LISTED = 3


def amounts(record: Analysis) -> str | None:
    """Say how many runs were analysed, of how many; None of an analysis that did not record it."""
    if not (runs := record.runs):
        return None
    text = "Analysed {analysed:,} of {finished:,} finished runs, of {planned:,} planned.".format(
        **runs
    )
    if runs["analysed"] == runs["finished"]:
        return text
    return f"{text} Those left out are published by the tasks that train, or once these are over."


def not_computed(record: Analysis) -> list[str]:
    """Say which metrics what was kept does not allow, or failed, a sentence each.

    Parameters
    ----------
    record : Analysis
    """
    where: dict[tuple[str, str], list[str]] = {}
    for item in record.unavailable:
        group = f"{item.dataset} × {item.classifier}"
        where.setdefault((item.metric, item.reason), []).append(group)
    return [
        f"{metric} is not computed for {_some(groups)}: it {reason}."
        for (metric, reason), groups in where.items()
    ]


def outdated(record: Analysis, ensembles: pl.DataFrame | None) -> list[str]:
    """Say whose ensembles were left out, and were not drawn again since.

    Parameters
    ----------
    record : Analysis
    ensembles : DataFrame
        Those that there are.
    """
    again = set()
    if ensembles is not None:
        rows = ensembles.select("dataset", "classifier").unique().iter_rows()
        again = {f"{dataset} × {classifier}" for dataset, classifier in rows}
    groups = [name for name in record.outdated if name not in again]
    if not groups:
        return []
    return [
        f"Ensembles of {_some(groups)} are left out: what they were drawn from has changed since. "
        "manyseed howmany draws them again."
    ]


def undefined(repeats: pl.DataFrame) -> list[str]:
    """Say where scores are not numbers."""
    found = repeats.filter(pl.col("n_undefined") > 0)
    by_group = found.group_by("dataset", "classifier", maintain_order=True).agg(
        pl.col("n_undefined").sum()
    )
    return [
        f"{dataset} × {classifier}: {runs:,} {'run has' if runs == 1 else 'runs have'} scores that "
        "are not numbers. Such a run has no α̂ and no probabilities, and stands in no reference and "
        "no ensemble."
        for dataset, classifier, runs in by_group.iter_rows()
    ]


def problems(repeats: pl.DataFrame) -> list[str]:
    """Say which repeats could not be analysed, and why."""
    found = repeats.filter(pl.col("problem").is_not_null())
    return [
        f"cell {row['cell']} ({row['dataset']} × {row['classifier']}), repeat "
        f"{row['repeat_index']}: {row['problem']}"
        for row in found.iter_rows(named=True)
    ]


def _some(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")
