"""What a user might not expect of a plan: sentences of the command, warnings from Python."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from manyseed.analysis.counts import counted
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.plans.change import Change


def remarks(change: Change, *, all_notes: bool = True) -> Iterator[str]:
    """Yield a sentence for each remark on a plan.

    Parameters
    ----------
    change : Change
    all_notes : bool
        Whether to include remarks that only tell how it is, such as the kinds of columns.
    """
    summary = change.summary()
    for removed in summary["runs_excluded"]:
        yield f"{removed['key']} = {removed['rule']} removes {counted(removed['runs'], 'run')}."
    told = {*change.expansion.notes} - {*change.expansion.unexpected}
    for note in summary["notes"]:
        if all_notes or note not in told:
            yield f"{note}."
    if all_notes and summary["searches"]:
        yield (
            f"Tuned hparams need {counted(summary['searches'], 'search')} of "
            f"{counted(change.sweep.tune.draws, 'draw')} each."
        )
    if summary["runs_identical"]:
        yield (
            "Identical to the first run of their repeat, as nothing that varies reaches the "
            f"classifier: {counted(summary['runs_identical'], 'run')}, stored as copies, "
            "not trained."
        )
    if summary["cells_dropped"]:
        yield f"Left out, as dropped before: {counted(summary['cells_dropped'], 'cell')}."


def warn_of(change: Change) -> None:
    """Warn the caller from Python of what a user may want to change, if anything is new."""
    if not change.is_empty:
        for text in remarks(change, all_notes=False):
            warn(text)


def warn_of_estimator(change: Change) -> None:
    """As `warn_of`, in the words of `Sweep.of`; of identical runs, whatever is new."""
    if change.cells.filter(pl.col("identical") & (pl.col("runs") > 1)).is_empty():
        warn_of(change)
        return
    runs = change.summary()["runs_identical"]
    found = ". ".join(change.expansion.notes)
    warn(
        f"{runs:,} of {change.expansion.runs:,} runs are identical to the first run of their "
        "repeat, as nothing that varies reaches the estimator: they are stored as copies, and the "
        f"spread between them is 0{f' ({found})' if found else ''}. If it takes a seed, name the "
        'parameter: options={"seeds": {"random_state": "batch"}}; or vary the data: '
        'perturb_continuous=["relative:0.5"]'
    )
