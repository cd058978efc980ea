"""The next steps for a sweep's user, given its status."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.errors import ManyseedError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.hints import on_cluster

if TYPE_CHECKING:
    import polars as pl

Step = tuple[str, tuple[object, ...]]
"""The purpose of a command, and its arguments."""


def next_steps(
    paths: SweepPaths,
    runs: Mapping[str, int],
    tasks: Collection[str],
    cells: pl.DataFrame,
    *,
    analysing: bool = False,
) -> Iterator[Step]:
    """Yield the next commands for a sweep.

    Parameters
    ----------
    runs : mapping
        The number of its runs by state.
    tasks : collection of str
        The states of its tasks.
    cells : DataFrame
        The cells of its plan.
    analysing : bool
        Whether an analysis job waits or runs.
    """
    from manyseed.orchestrator.plans.plan import IS_IMPORTED  # imports polars

    directory = paths.directory
    if runs["failed"]:
        yield "Tracebacks", ("logs", directory, "--failed")
    if set(tasks) & {"waiting", "running"}:
        yield "Watch", ("status", directory, "--watch")
        return
    if runs["missing"] and cells.select(IS_IMPORTED.any()).item():
        yield "Check", ("verify", directory)
        return
    if runs["missing"]:
        yield _training(paths, bool(tasks or runs["done"]), cells)
        return
    if runs["failed"]:
        yield "Retry", ("resume", directory, "--failed", *on_cluster(paths))
    if not runs["done"]:
        return
    if analysing:
        yield "Look again", ("status", directory)
    elif unanalysed(paths, runs):
        yield "Without them" if runs["failed"] else "Next", ("analyze", directory)
    elif unreported(paths):
        yield "Next", ("report", directory)
    else:
        yield "Next", ("query", directory, "--by", "classifier")


def in_words(step: Step) -> dict[str, str]:
    """Return a step as JSON values: its purpose ``what``, and its ``command``."""
    what, arguments = step
    return {"what": what, "command": command(*arguments)}


def _training(paths: SweepPaths, submitted: bool, cells: pl.DataFrame) -> Step:
    """Return the step that missing runs need: fetching data, tuning, or submitting."""
    from manyseed.orchestrator.plans.tuned import scale_searches, searches, to_tune

    directory = paths.directory
    try:
        if not submitted and not _has_data(cells):
            return "Next", ("datasets", "fetch", paths.sweep_file)
        if searches(paths, cells) or scale_searches(paths, cells):
            return "Next", to_tune(paths)
    except ManyseedError:
        pass  # submitting reports what is wrong
    what, verb = ("Continue with", "resume") if submitted else ("Next", "submit")
    return what, (verb, directory, *on_cluster(paths))


def _has_data(cells: pl.DataFrame) -> bool:
    """Return whether the data of all cells is on this machine."""
    from manyseed.jobs import datasets
    from manyseed.jobs.run import Cell

    canonicals = cells.unique("dataset", maintain_order=True)["canonical"]
    return all(datasets.is_fetched(Cell.from_text(text).dataset) for text in canonicals)


def unanalysed(paths: SweepPaths, runs: Mapping[str, int]) -> str:
    """Return why the result tables do not cover all finished runs; empty if they do."""
    finished = runs["done"] + runs["copy"]
    try:
        analysed = read_json(paths.analysis)["runs"]["analysed"]
    except FileNotFoundError:
        return f"there is no {paths.analysis}"
    except ManyseedError as error:
        return str(error)
    except (LookupError, TypeError):
        return f"{paths.analysis} does not say what was analysed"
    if analysed < finished:
        return f"the results cover {analysed:,} of {finished:,} finished runs"
    if analysed > finished:
        return f"{paths.analysis} covers {analysed} runs, but {finished} are finished"
    return ""


def unreported(paths: SweepPaths) -> str:
    """Return why the report does not show all results; empty if it is newer than all of them."""
    from manyseed.orchestrator.computing.tables import DRAWS, ENSEMBLES

    try:
        written = paths.report.stat().st_mtime_ns
        for file in (paths.analysis, *sorted(paths.results.glob("*.parquet"))):
            if file.stem in (ENSEMBLES, DRAWS):
                continue  # howmany draws them from results that did not change
            if file.stat().st_mtime_ns > written:
                return f"{file} is newer than {paths.report}"
    except FileNotFoundError as error:
        return f"there is no {error.filename}"
    return ""
