"""Train a sweep in blocks of runs until the mean accuracy of each cell is known well enough.

What was asked and what was decided is kept beside the results; all of it follows from the
predictions, so that an interrupted one goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import polars as pl

from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.sequential import BLOCK, FIRST, Decision, Real, decide
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import RunsError, StillRunning, UserError
from manyseed.orchestrator.filtering import chosen
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.growing import grow
from manyseed.orchestrator.plans.plan import IS_IMPORTED, Plan
from manyseed.orchestrator.results.averaging import require_confidence
from manyseed.orchestrator.results.cellgroups import named
from manyseed.orchestrator.results.tables import read_results
from manyseed.orchestrator.survey import survey

MOST = 200
"""Runs of a cell on each test set, where no other limit is given."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a driver was asked for; another question begins a sequence of its own."""

    half_width: float
    confidence: float
    first: int
    block: int


@dataclass(frozen=True, slots=True)
class Answered:
    """What is known of a cell.

    Attributes
    ----------
    cell : int
    cell_id : str
    name : str
        What sets it apart.
    repeats : int
        Test sets, over which each run's accuracy is averaged.
    planned : int
        Runs that are planned on each test set.
    decision : Decision
    state : str
        ``enough``, ``most`` (it was not reached with the most runs allowed), ``identical``
        (nothing varies, so that one run is all), or ``more`` (more runs are needed).
    """

    cell: int
    cell_id: str
    name: str
    repeats: int
    planned: int
    decision: Decision
    state: str

    @property
    def words(self) -> str:
        """Say it."""
        found = self.decision
        if self.state == "identical":
            return "All runs of a test set are one model: no further run tells more."
        level = "accuracy not known yet" if math.isnan(found.mean) else f"accuracy {found.mean:.4f}"
        sets = "1 test set" if self.repeats == 1 else f"{self.repeats:,} test sets"
        if self.state == "enough":
            return (
                f"{level} ± {found.half_width:.2g} over seeds, on {sets}: {found.runs:,} runs do."
            )
        if math.isfinite(found.half_width):
            level += f", known to ± {found.half_width:.2g} after {found.runs:,} runs"
        about = f"; it takes about {found.predicted:,}" if found.predicted else ""
        more = "not enough with the most allowed" if self.state == "most" else "more are needed"
        return f"{level} ({self.planned:,} planned): {more}{about}."

    def values(self) -> dict[str, object]:
        """Return it as JSON values: what is not known is null."""
        decision = {
            name: value if value is None or math.isfinite(value) else None
            for name, value in asdict(self.decision).items()
        }
        return asdict(self) | {"decision": decision, "words": self.words}


@dataclass(frozen=True)
class UntilRecord:
    """What is kept of it: the question, and the cells by their identity."""

    asked: Target
    cells: Mapping[str, dict[str, object]]


def until(
    paths: SweepPaths,
    half_width: float,
    *,
    train: Callable[[str | None], object],
    analyze: Callable[[], object],
    confidence: float = CONFIDENCE,
    most: int = MOST,
    block: int = BLOCK,
    where: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Answered]:
    """Train blocks of runs until the mean accuracy of each cell is known to ± `half_width`.

    Parameters
    ----------
    paths : SweepPaths
    half_width : float
        Of the mean over seeds of a cell's accuracy, averaged over its test sets.
    train : callable
        Trains what is missing of the cells that meet a condition in SQL (None: of all), and waits.
    analyze : callable
        Analyzes what is finished.
    confidence : float
        That the interval holds at all looks at once (`analysis.questions.sequential`).
    most : int
        Runs of a cell on each test set, at most.
    block : int
        Runs that are added at once.
    where : str, optional
        An SQL condition over the cells of the plan; others are left alone.
    tell : callable
        Called with what is done next.

    Returns
    -------
    list of Answered
        By cell.

    Raises
    ------
    UserError
        For what has no meaning, or a sweep of imported predictions.
    RunsError
        Where runs failed, so that a cell lacks runs which more of them would not replace.
    """
    asked = checked(half_width, confidence, block, most)
    _report_other_question(paths, asked, tell)
    while True:
        cells = _wanted(paths, where)
        _require_no_failed(paths, cells)
        wanted = _first(cells, asked)
        if not wanted:
            train(_condition(cells["cell"].to_list()) if where else None)
            _require_finished(paths, cells)
            analyze()
            found = look(paths, asked, most, where)
            record = UntilRecord(asked, {one.cell_id: one.values() for one in found})
            write_json(paths.until, asdict(record))
            wanted = needed(found, asked)
            if not wanted:
                return found
        count = f"{len(wanted):,} cells get" if len(wanted) > 1 else "1 cell gets"
        tell(f"{count} more runs: up to {max(wanted.values()):,} on each test set.")
        grow(paths, wanted)


def preview(
    paths: SweepPaths,
    half_width: float,
    *,
    confidence: float = CONFIDENCE,
    most: int = MOST,
    block: int = BLOCK,
    where: str | None = None,
) -> tuple[list[Answered], int]:
    """Return what is known by now, and how many runs `until` would add next; nothing is changed.

    Parameters
    ----------
    paths, half_width, confidence, most, block, where
        As of `until`.
    """
    asked = checked(half_width, confidence, block, most)
    wanted, found = _first(_wanted(paths, where), asked), []
    if not wanted:
        found = look(paths, asked, most, where)
        wanted = needed(found, asked)
    return found, len(grow(paths, wanted, dry_run=True).added) if wanted else 0


def _first(cells: pl.DataFrame, asked: Target) -> dict[int, int]:
    """Return how many runs the cells with too few for a first look must have."""
    few = cells.filter(pl.col("runs") < asked.first, ~pl.col("identical"))
    return dict.fromkeys(few["cell"].to_list(), asked.first)


def _condition(cells: Sequence[int]) -> str:
    """Return a condition that these cells meet: few words for many neighbours."""
    there = set(cells)
    starts = [n for n in cells if n - 1 not in there]
    ends = [n for n in cells if n + 1 not in there]
    spans = (f"cell BETWEEN {a} AND {b}" for a, b in zip(starts, ends, strict=True))
    return " OR ".join(spans)


def _report_other_question(paths: SweepPaths, asked: Target, tell: Callable[[str], None]) -> None:
    before = recorded(paths)
    if before is not None and before.asked != asked:
        tell(
            f"Another question was asked before (± {before.asked.half_width:g} at "
            f"{100 * before.asked.confidence:g} %, blocks of {before.asked.block}): intervals hold "
            "for one that was chosen without looking at the results."
        )


def checked(half_width: float, confidence: float, block: int, most: int) -> Target:
    """Return the question that the options of `until` ask.

    Parameters
    ----------
    half_width, confidence : float
        How precisely the mean accuracy is to be known, and with which confidence.
    block, most : int
        Runs that are added at a time, and the most on each test set.

    Raises
    ------
    UserError
    """
    if not 0 < half_width < 1:
        remedy = "such as 0.002: the mean accuracy is then known to ± 0.002"
        raise UserError(
            "must be above 0 and below 1", key="--until", value=half_width, remedy=remedy
        )
    require_confidence(confidence)
    for option, value, least in (("--block", block, 1), ("--most", most, FIRST)):
        if not least <= value <= 60_000:
            message = f"must be from {least} to 60,000"
            raise UserError(message, key=option, value=value)
    return Target(half_width, confidence, FIRST, block)


def look(paths: SweepPaths, asked: Target, most: int, where: str | None = None) -> list[Answered]:
    """Decide for each cell from the result tables.

    Parameters
    ----------
    paths : SweepPaths
    asked : Target
    most : int
        The most runs on each test set.
    where : str, optional
        A condition on cells.
    """
    cells = _wanted(paths, where)
    results = read_results(paths)
    columns = ("cell", "repeat_index", "run_index", "accuracy")
    table = results.scan("runs")
    if "epoch" in table.collect_schema():  # of several snapshots the last
        table = table.filter(pl.col("epoch") == pl.col("epoch").max().over("cell"))
    runs = table.select(columns).collect()
    points = dict(
        results.scan("repeats").group_by("cell").agg(pl.col("n_test").min()).collect().rows()
    )
    by_cell = runs.partition_by("cell", as_dict=True)
    found = []
    for row in cells.iter_rows(named=True):
        own = by_cell.get((row["cell"],), runs.clear())
        values = means(own, row["repeats"])
        # accuracies on a grid, averaged over test sets: so much less is what rounding adds
        step = 1 / (points.get(row["cell"], 1) * math.sqrt(row["repeats"]))
        decision = decide(
            values,
            asked.half_width,
            confidence=asked.confidence,
            first=asked.first,
            block=asked.block,
            step=step,
        )
        state = "more"
        if row["identical"]:
            state = "identical"
        elif decision.enough:
            state = "enough"
        elif _next_look(decision.runs, asked) > most:
            state = "most"
        name = named(cells.filter(cell=row["cell"]), cells)
        found.append(
            Answered(
                row["cell"], row["cell_id"], name, row["repeats"], row["runs"], decision, state
            )
        )
    return found


def means(runs: pl.DataFrame, repeats: int) -> Real:
    """Return each run's accuracy averaged over the test sets, of runs that all of them have.

    Run i of another repeat is another fit, so that these means are independent of each other.
    """
    whole = (
        runs.drop_nulls("accuracy")
        .sort("run_index", "repeat_index")
        .group_by("run_index", maintain_order=True)
        .agg(pl.col("accuracy").mean(), n=pl.len())
        .filter(pl.col("n") == repeats)
    )
    # a run that lacks ends the sequence: what comes after it is not yet looked at
    gapless = whole.filter(pl.col("run_index") == pl.int_range(pl.len()))
    return gapless["accuracy"].to_numpy()


def needed(found: Sequence[Answered], asked: Target) -> dict[int, int]:
    """Return how many runs the cells must have for their next look, where more are planned."""
    wanted = {
        one.cell: _next_look(one.decision.runs, asked) for one in found if one.state == "more"
    }
    planned = {one.cell: one.planned for one in found}
    return {cell: runs for cell, runs in wanted.items() if runs > planned[cell]}


def _next_look(runs: int, asked: Target) -> int:
    if runs < asked.first:
        return asked.first
    return asked.first + ((runs - asked.first) // asked.block + 1) * asked.block


def _wanted(paths: SweepPaths, where: str | None) -> pl.DataFrame:
    """Return the cells that are asked for, with what is planned of each.

    Raises
    ------
    UserError
    """
    plan = Plan.read(paths)
    cells = plan.cells.join(plan.extents, on="cell").sort("cell")
    if cells.select(IS_IMPORTED.any()).item():
        raise UserError(
            "holds imported predictions, of which no more can be trained",
            file=paths.directory,
            key="--until",
        )
    return chosen(cells, where or None)


def _require_no_failed(paths: SweepPaths, cells: pl.DataFrame) -> None:
    failed = survey(paths).with_state("failed").join(cells, on="cell", how="semi").height
    if failed:
        raise RunsError(
            f"{failed:,} runs of these cells failed, which more runs do not replace\n"
            f"  see manyseed logs {paths.directory} --failed; retry them with manyseed resume "
            f"{paths.directory} --failed"
        )


def _require_finished(paths: SweepPaths, cells: pl.DataFrame) -> None:
    _require_no_failed(paths, cells)
    missing = survey(paths).with_state("missing").join(cells, on="cell", how="semi").height
    if missing:
        raise StillRunning(
            f"{missing:,} runs of these cells are not trained yet\n  give the same command again: "
            "it goes on from there"
        )


def recorded(paths: SweepPaths) -> UntilRecord | None:
    """Return what was decided last; None where nothing was."""
    try:
        return read_record(paths.until, UntilRecord)
    except FileNotFoundError:
        return None
