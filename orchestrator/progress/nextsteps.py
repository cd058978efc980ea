"""What a sweep's user does next, from its status."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping

import polars as pl

from manyseed.jobs import datasets
from manyseed.jobs.run import Cell
from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.errors import ManyseedError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.tuned import scale_searches, searches

Step = tuple[str, tuple[object, ...]]
"""What it is for, and the arguments of the command."""


def next_steps(
    paths: SweepPaths,
    runs: Mapping[str, int],
    tasks: Collection[str],
    cells: pl.DataFrame,
    *,
    analysing: bool = False,
) -> Iterator[Step]:
    """Yield the commands that go on from where a sweep is.

    Parameters
    ----------
    paths : SweepPaths
    runs : mapping
        Its runs by state.
    tasks : collection of str
        The states of its tasks.
    cells : DataFrame
        Those of its plan.
    analysing : bool
        Whether a job analyses it, or will.
    """
    directory = paths.directory
    if runs["failed"]:
        yield "Tracebacks", ("logs", directory, "--failed")
    if set(tasks) & {"waiting", "running"}:
        yield "Watch", ("status", directory, "--watch")
        return
    if runs["missing"]:
        yield _training(paths, bool(tasks or runs["done"]), cells)
        return
    if runs["failed"]:
        yield "Retry", ("resume", directory, "--failed")
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
    """Return a step as JSON values: ``what`` it is for, and its ``command``."""
    what, arguments = step
    return {"what": what, "command": f"manyseed {shlex.join(map(str, arguments))}"}


def _training(paths: SweepPaths, submitted: bool, cells: pl.DataFrame) -> Step:
    """Return what missing runs wait for: their data, searches for their hparams, or to be sent."""
    directory = paths.directory
    try:
        if not submitted and not _has_data(cells):
            return "Next", ("datasets", "fetch", paths.sweep_file)
        if searches(paths, cells) or scale_searches(paths, cells):
            return "Next", ("tune", directory)
    except ManyseedError:
        pass  # whoever submits is told what is wrong
    return ("Go on with", ("resume", directory)) if submitted else ("Next", ("submit", directory))


def _has_data(cells: pl.DataFrame) -> bool:
    """Whether the data of all cells lies on this machine."""
    one_each = cells.unique("dataset", maintain_order=True)["canonical"]
    return all(datasets.is_fetched(Cell.from_text(text).dataset) for text in one_each)


def unanalysed(paths: SweepPaths, runs: Mapping[str, int]) -> str:
    """Return why the result tables are not of all runs that are finished; empty where they are."""
    finished = runs["done"] + runs["copy"]
    try:
        analysed = read_json(paths.analysis)["runs"]["analysed"]
    except FileNotFoundError:
        return f"there is no {paths.analysis}"
    except ManyseedError as error:
        return str(error)
    except (LookupError, TypeError):
        return f"{paths.analysis} does not say what was analysed"
    if analysed != finished:
        return f"{paths.analysis} is of {analysed} runs, and {finished} are finished"
    return ""


def unreported(paths: SweepPaths) -> str:
    """Return why the page does not show all results; empty where it is older than none of them."""
    try:
        page = paths.report.stat().st_mtime_ns
        for one in (paths.analysis, *sorted(paths.results.glob("*.parquet"))):
            if one.stat().st_mtime_ns > page:
                return f"{one} is newer than {paths.report}"
    except FileNotFoundError as error:
        return f"there is no {error.filename}"
    return ""
