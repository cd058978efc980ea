"""Train a sweep in blocks of runs until accuracies or mean α̂ are known, or ensembles are alike.

Question and decisions are recorded beside the results. All of them follow from the predictions, so
that an interrupted `until` continues where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol, get_args

import polars as pl

from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.metrics.alpha_tests import MIN_OTHERS
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.ensembles import (
    DRAWS,
    FIRST_BLOCKS,
    Closeness,
    OfBlocks,
    closeness,
    decide_blocks,
)
from manyseed.analysis.questions.intervals import SKEWED
from manyseed.analysis.questions.question import Answer, Reply
from manyseed.analysis.questions.sequential import BLOCK, FIRST, Decision, Real, decide
from manyseed.analysis.tables.rows import IS_CROSSED, of_cells
from manyseed.jobs.checks import Option
from manyseed.orchestrator.asking.averaging import require_confidence, require_half_width
from manyseed.orchestrator.computing.cellgroups import named
from manyseed.orchestrator.computing.ensembles import for_alpha, of_blocks
from manyseed.orchestrator.computing.inputs import KEY, Held
from manyseed.orchestrator.computing.tables import read_analysis, read_results, without_own
from manyseed.orchestrator.conditions import at_one_snapshot, chosen
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import (
    DamagedFile,
    RunsError,
    StillRunning,
    UserError,
    command,
    given,
)
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import IS_IMPORTED, Plan
from manyseed.orchestrator.plans.planning import grow
from manyseed.orchestrator.results.caveats import tell_newer
from manyseed.orchestrator.submissions.requirements import require_code
from manyseed.orchestrator.submissions.retries import retrying
from manyseed.orchestrator.submissions.submission import is_training, watching
from manyseed.orchestrator.survey import survey
from manyseed.slurm import local

Metric = Literal["accuracy", "alpha_hat", "alpha_hat_mean"]

MOST = 200  # most runs of a cell on each test set, by default


@dataclass(frozen=True, slots=True)
class Target:
    """What `until` was asked for; another question begins a new sequence."""

    half_width: float
    confidence: float
    first: int
    block: int
    metric: Metric = "accuracy"

    @property
    def words(self) -> str:
        """The question in short."""
        of = f"± {self.half_width:g}"
        if self.metric == "alpha_hat":
            of = f"α̂ ≤ {self.half_width:g} of ensembles"
        elif self.metric == "alpha_hat_mean":
            of = f"mean α̂ {of}"
        return f"{of} at {100 * self.confidence:g} %, blocks of {self.block}"


@dataclass(frozen=True, slots=True)
class CellEstimate:
    """What is known about a cell.

    Attributes
    ----------
    cell : int
    cell_id : str
    name : str
        What distinguishes it from the others.
    repeats : int
        Number of test sets, over which each run's accuracy is averaged.
    planned : int
        Runs planned on each test set.
    decision : Decision or Closeness
        On its mean accuracy or mean α̂, or on its ensembles.
    state : str
        ``enough``, ``most`` (the most runs allowed are not enough), ``identical`` (nothing varies,
        so that one run says it all), ``untold`` (further runs cannot tell), or ``more`` (more runs
        are needed).
    """

    cell: int
    cell_id: str
    name: str
    repeats: int
    planned: int
    decision: Decision | Closeness
    state: str

    @property
    def words(self) -> str:
        """The decision as a sentence."""
        decided = self.decision
        if self.state == "identical":
            return "All runs on a test set are the same model: further runs add nothing."
        more = "the most allowed are not enough" if self.state == "most" else "more are needed"
        if isinstance(decided, Closeness):
            if decided.enough:
                held = math.floor(1000 * decided.share) / 10
                return (
                    f"{decided.words}: {decided.runs:,} runs are enough. At least {held:.1f} % of "
                    "all such ensembles of these runs are close (at all looks); other runs may "
                    "differ more."
                )
            end = "" if decided.untold else f" ({self.planned:,} planned): {more}"
            return f"{decided.words}{end}."
        what = "accuracy"
        if isinstance(decided, OfBlocks):
            if decided.untold:
                return f"mean α̂ cannot be known: {decided.untold}."
            what = "mean α̂"
        mean = decided.mean
        level = f"{what} not known yet" if math.isnan(mean) else f"{what} {fixed(mean)}"
        sets = "1 test set" if self.repeats == 1 else f"{self.repeats:,} test sets"
        if self.state == "enough":
            precision = f"± {decided.half_width:.2g} over seeds, on {sets}"
            return f"{level} {precision}: {decided.runs:,} runs are enough. {_assumed(decided)}"
        if math.isfinite(decided.half_width):
            level += f", known to ± {decided.half_width:.2g} after {counted(decided.runs, 'run')}"
        about = f"; it takes about {decided.predicted:,}" if decided.predicted else ""
        return f"{level} ({self.planned:,} planned): {more}{about}."

    def values(self) -> dict[str, object]:
        """Return all of it as JSON values: unknown numbers are null."""
        decision = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self.decision).items()
        }
        return asdict(self) | {"decision": decision, "words": self.words}


def _assumed(decided: Decision) -> str:
    """Say what the interval assumes, and what so many runs cannot exclude."""
    unseen = 1 - 0.05 ** (1 / decided.runs)
    unlike = f"up to {unseen:.0%} of further runs may be unlike all of these (95 %)."
    is_skewed = abs(decided.skewness) > SKEWED
    skewed = f", but these are skewed ({decided.skewness:+.1f})" if is_skewed else ""
    if isinstance(decided, OfBlocks):
        return (
            f"Each run is compared with the {decided.block - 1} others of its block. The interval "
            f"assumes roughly normal means of blocks{skewed}; {unlike}"
        )
    if is_skewed:
        return (
            f"The interval assumes roughly normal accuracies{skewed}: with one bad run in ten, it "
            "held in 81 to 89 % of simulations."
        )
    return f"The interval assumes roughly normal accuracies; {unlike}"


@dataclass(frozen=True)
class UntilRecord:
    """The question, and what is known about each cell, by its identity."""

    asked: Target
    cells: Mapping[str, dict[str, object]]


def until(
    paths: SweepPaths,
    half_width: float,
    *,
    train: Callable[[str | None], object],
    analyze: Callable[[], object],
    metric: Metric = "accuracy",
    confidence: float = CONFIDENCE,
    most: int = MOST,
    block: int = BLOCK,
    where: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[CellEstimate]:
    """Train blocks of runs until accuracies are known, or ensembles are close.

    Parameters
    ----------
    paths : SweepPaths
    half_width : float
        Half-width of the interval of a cell's mean accuracy, or α̂, over seeds and its test sets;
        with `metric` alpha_hat, the largest α̂ that an ensemble may have.
    train : callable
        Trains the missing runs of cells that meet an SQL condition (None: of all), and waits.
    analyze : callable
        Analyses finished runs.
    metric, confidence, most, block, where
        As in `ask_until`.
    tell : callable
        Called with a message before each step.

    Returns
    -------
    list of Answered
        By cell.
    """
    asked = checked(half_width, confidence, block, most, metric)
    _report_other_question(paths, asked, tell)
    while True:
        cells = _wanted(paths, where)
        _require_no_failed(paths, cells)
        wanted = _first(cells, asked)
        if not wanted:
            train(_condition(cells["cell"].to_list()) if where is not None else None)
            _require_finished(paths, cells)
            analyze()
            answers = look(paths, asked, most, where)
            record = UntilRecord(asked, {one.cell_id: one.values() for one in answers})
            write_json(paths.until, asdict(record))
            wanted = needed(answers, asked)
            if not wanted:
                return answers
        count = f"{len(wanted):,} cells get" if len(wanted) > 1 else "1 cell gets"
        tell(f"{count} more runs: up to {max(wanted.values()):,} on each test set.")
        grow(paths, wanted, require_code)


def preview(
    paths: SweepPaths,
    half_width: float,
    *,
    metric: Metric = "accuracy",
    confidence: float = CONFIDENCE,
    most: int = MOST,
    block: int = BLOCK,
    where: str | None = None,
) -> tuple[list[CellEstimate], int]:
    """Return what is known now, and how many runs `until` would add next; changes nothing.

    Parameters
    ----------
    paths, half_width, metric, confidence, most, block, where
        As in `until`.
    """
    asked = checked(half_width, confidence, block, most, metric)
    wanted, answers = _first(_wanted(paths, where), asked), []
    if not wanted:
        answers = look(paths, asked, most, where)
        wanted = needed(answers, asked)
    return answers, len(grow(paths, wanted, require_code, dry_run=True).added) if wanted else 0


def _first(cells: pl.DataFrame, asked: Target) -> dict[int, int]:
    """Return how many runs each cell must have that has too few for a first look."""
    few = cells.filter(pl.col("runs") < asked.first, ~pl.col("identical"))
    return dict.fromkeys(few["cell"].to_list(), asked.first)


def _condition(cells: Sequence[int]) -> str:
    """Return an SQL condition for exactly these cells, short for consecutive numbers."""
    chosen_cells = set(cells)
    starts = [n for n in cells if n - 1 not in chosen_cells]
    ends = [n for n in cells if n + 1 not in chosen_cells]
    spans = (f"cell BETWEEN {a} AND {b}" for a, b in zip(starts, ends, strict=True))
    return " OR ".join(spans)


def _report_other_question(paths: SweepPaths, asked: Target, tell: Callable[[str], None]) -> None:
    before = recorded(paths)
    if before is not None and before.asked != asked:
        tell(
            f"Another question was asked before ({before.asked.words}): intervals are valid only "
            "for a question chosen without looking at the results."
        )


def checked(
    half_width: float, confidence: float, block: int, most: int, metric: Metric = "accuracy"
) -> Target:
    """Return the question that options of `until` ask; raise a UserError for invalid ones."""
    given("--metric", metric, Option(words=get_args(Metric)))
    if metric != "accuracy":
        given("--until", half_width, Option(kind=float, above=0, below=1))
    else:
        require_half_width("--until", half_width, "accuracy")
    require_confidence(confidence)
    of_blocks = metric == "alpha_hat_mean"
    given(
        "--block",
        int(block),
        Option(kind=int, least=MIN_OTHERS + 1 if of_blocks else 1, most=60_000),
    )
    first = FIRST_BLOCKS * block if of_blocks else FIRST
    given("--most", int(most), Option(kind=int, least=first, most=60_000))
    return Target(half_width, confidence, first, block, metric)


def look(
    paths: SweepPaths, asked: Target, most: int, where: str | None = None
) -> list[CellEstimate]:
    """Decide for each cell, from the result tables.

    Parameters
    ----------
    paths : SweepPaths
    asked : Target
    most : int
        Most runs on each test set.
    where : str, optional
        An SQL condition over the cells of the plan.
    """
    cells = _wanted(paths, where)
    decide_on: Mapping[Metric, Callable[..., Mapping[int, Any]]] = {
        "accuracy": _of_accuracy,
        "alpha_hat": _of_ensembles,
        "alpha_hat_mean": _of_mean_alpha,
    }
    by_cell = decide_on[asked.metric](paths, cells, asked)
    answers = []
    for row in cells.iter_rows(named=True):
        decision = by_cell[row["cell"]]
        state = "more"
        if row["identical"]:
            state = "identical"
        elif decision.enough:
            state = "enough"
        elif isinstance(decision, Closeness | OfBlocks) and decision.untold:
            state = "untold"
        elif _next_look(decision.runs, asked) > most:
            state = "most"
        name = named(cells.filter(cell=row["cell"]), cells)
        answers.append(
            CellEstimate(
                row["cell"], row["cell_id"], name, row["repeats"], row["runs"], decision, state
            )
        )
    return answers


def _of_accuracy(paths: SweepPaths, cells: pl.DataFrame, asked: Target) -> dict[int, Decision]:
    """Decide on the mean accuracy of each cell."""
    results = read_results(paths)
    columns = ("cell", "repeat_index", "run_index", "accuracy")
    table = results.scan("runs")
    if "epoch" in table.collect_schema():  # the last of several snapshots
        table = table.filter(pl.col("epoch") == pl.col("epoch").max().over("cell"))
    runs = table.select(columns).collect()
    points = dict(
        results.scan("repeats").group_by("cell").agg(pl.col("n_test").min()).collect().rows()
    )
    by_cell = runs.partition_by("cell", as_dict=True)
    decided = {}
    for row in cells.iter_rows(named=True):
        values = means(by_cell.get((row["cell"],), runs.clear()), row["repeats"])
        # accuracy moves in steps of 1 / n_test; averaging over test sets shrinks their effect
        step = 1 / (points.get(row["cell"], 1) * math.sqrt(row["repeats"]))
        decided[row["cell"]] = decide(
            values,
            asked.half_width,
            confidence=asked.confidence,
            first=asked.first,
            block=asked.block,
            step=step,
        )
    return decided


def _of_mean_alpha(paths: SweepPaths, cells: pl.DataFrame, asked: Target) -> dict[int, OfBlocks]:
    """Decide on the mean α̂ of each cell: of blocks of runs, averaged over its test sets."""
    wanted = cells.filter(~pl.col("identical"))
    analysed = at_one_snapshot(read_results(paths).scan("runs"), pl.lit(value=True))
    runs = analysed.collect().join(wanted.select("cell"), on="cell", how="semi")
    options, cores = without_own(read_analysis(paths)[0]), local.available_cores()
    by_cell = of_blocks(paths, runs, options, asked.block, cores)
    decided = {}
    for cell, repeats in cells.select("cell", "repeats").rows():
        found = by_cell.get(cell, "")
        values = pl.DataFrame(
            schema={"run_index": pl.UInt32, "repeat_index": pl.UInt32, "alpha_hat": pl.Float64}
        )
        if not isinstance(found, str):
            values = found.rename({"block": "run_index"})
            if values["alpha_hat"].null_count():
                found = "a run has no α̂"
        decision = decide_blocks(
            means(values, repeats, "alpha_hat"),
            asked.half_width,
            asked.block,
            confidence=asked.confidence,
        )
        decided[cell] = replace(decision, untold=found) if isinstance(found, str) else decision
    return decided


def _of_ensembles(paths: SweepPaths, cells: pl.DataFrame, asked: Target) -> dict[int, Closeness]:
    """Decide on the ensembles of each cell, drawn from its repeat with the most runs."""
    whole, inputs = read_results(paths).of_analysis(KEY), Held(paths).inputs
    analysed = at_one_snapshot(whole.cells.lazy(), pl.lit(value=True)).collect()
    options = replace(without_own(read_analysis(paths)[0]), close=asked.half_width)
    nothing = Closeness(0, None, 0, 0.0, asked.half_width, math.nan)
    decided = {}
    for cell, identical in cells.select("cell", "identical").rows():
        own = analysed.filter(cell=cell)
        if identical or own.is_empty():
            decided[cell] = nothing
            continue
        tables = of_cells(whole, own)
        runs = int(tables.repeats["n_distinct"].to_numpy().max())
        (drawn,) = for_alpha(
            paths, tables, own, options, None, DRAWS, local.available_cores(), 0.95, inputs
        ).values()
        if drawn.table.is_empty():
            decided[cell] = replace(nothing, runs=runs, untold=drawn.answers[0].reason)
            continue
        decided[cell] = closeness(
            drawn.table,
            (runs - asked.first) // asked.block + 1,
            runs=runs,
            level=asked.half_width,
            epsilon=options.epsilon,
            confidence=asked.confidence,
        )
    return decided


def means(runs: pl.DataFrame, repeats: int, metric: str = "accuracy") -> Real:
    """Return the mean accuracy over test sets of each run index that all of them have.

    Runs of one index in different repeats are different fits, so these means are independent.
    """
    whole = (
        runs.drop_nulls(metric)
        .sort("run_index", "repeat_index")
        .group_by("run_index", maintain_order=True)
        .agg(pl.col(metric).mean(), n=pl.len())
        .filter(pl.col("n") == repeats)
    )
    # a missing run ends the sequence: later runs are not looked at yet
    gapless = whole.filter(pl.col("run_index") == pl.int_range(pl.len()))
    return gapless[metric].to_numpy()


def needed(found: Sequence[CellEstimate], asked: Target) -> dict[int, int]:
    """Return how many runs cells must have for their next look, if that is more than planned."""
    return {
        one.cell: runs
        for one in found
        if one.state == "more" and (runs := _next_look(one.decision.runs, asked)) > one.planned
    }


def _next_look(runs: int, asked: Target) -> int:
    if runs < asked.first:
        return asked.first
    return asked.first + ((runs - asked.first) // asked.block + 1) * asked.block


def _wanted(paths: SweepPaths, where: str | None) -> pl.DataFrame:
    """Return the cells that are asked for, with their planned repeats and runs."""
    plan = Plan.read(paths)
    cells = plan.cells.join(plan.extents, on="cell").sort("cell")
    if cells.select(IS_IMPORTED.any()).item():
        raise UserError(
            "holds imported predictions; no more of them can be trained",
            file=paths.directory,
            key="--until",
        )
    wanted = chosen(cells, where, "--where")
    if wanted.select(IS_CROSSED.any()).item():
        raise UserError(
            "runs of a crossed cell depend on each other, so looks at them have no interval, and "
            "blocks of runs leave its cross incomplete",
            file=paths.directory,
            key="--until",
            remedy="leave such cells out: --where \"vary NOT LIKE '%*%'\"; or ask howmany "
            "without --until, and raise runs or repeats",
        )
    return wanted


def _require_no_failed(paths: SweepPaths, cells: pl.DataFrame) -> None:
    state = survey(paths)
    failed = state.with_state("failed").join(cells, on="cell", how="semi").height
    if failed:
        raise RunsError(
            f"{counted(failed, 'run')} of these cells failed; more runs do not replace them\n"
            f"  see {command('logs', paths.directory, '--failed')}; "
            + (
                f"watch the tasks that train: {watching(paths)}"
                if is_training(paths)
                else f"retry them with {retrying(paths, state)}"
            )
        )


def _require_finished(paths: SweepPaths, cells: pl.DataFrame) -> None:
    _require_no_failed(paths, cells)
    missing = survey(paths).with_state("missing").join(cells, on="cell", how="semi").height
    if missing:
        verb = "is" if missing == 1 else "are"
        raise StillRunning(
            f"{counted(missing, 'run')} of these cells {verb} not trained yet\n"
            "  give the same command again to continue"
        )


def recorded(paths: SweepPaths) -> UntilRecord | None:
    """Return what was decided last; None if nothing was, or if that is damaged."""
    try:
        return read_record(paths.until, UntilRecord)
    except (FileNotFoundError, DamagedFile):  # it is only told, and written anew
        return None


class TrainableSweep(Protocol):
    """A sweep that can be trained further."""

    @property
    def paths(self) -> SweepPaths:
        """Its files."""

    def howmany_until(self, half_width: float, **options: Any) -> list[CellEstimate]:
        """Train blocks of runs; see `Sweep.howmany_until`."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is known about each cell, and how many runs would come next, if nothing was trained."""

    half_width: float
    cells: list[CellEstimate]
    added: int | None = None


def ask_until(
    sweep: TrainableSweep,
    half_width: float,
    *,
    metric: Metric = "accuracy",
    confidence: float = CONFIDENCE,
    most: int = MOST,
    block: int = BLOCK,
    where: str | None = None,
    dry_run: bool = False,
    cluster: str = "auto",
    workers: int | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Forecast:
    """Train blocks of runs until accuracies are known precisely, and say what is known.

    Blocks of runs are planned, trained and analysed until the mean accuracy of each cell has that
    precision, by an interval that holds at every look; or its mean α̂; or, with alpha_hat, until
    all ensembles drawn from each cell have at most that α̂. Runs are only added, and the same
    command continues after an interruption.

    Parameters
    ----------
    sweep : Sweep
    half_width : float
        Train more runs until accuracies are known this precisely (±).
    metric : str
        accuracy; alpha_hat_mean: the mean α̂ of a run against the others of its block; or
        alpha_hat: until all ensembles of a size, drawn from half of the runs, have at most this α̂
        against the other half.
    confidence : float
        Probability that all intervals of a cell hold at once.
    most : int
        At most N runs of a cell on each test set.
    block : int
        Runs added at once.
    where : str, optional
        Only cells that meet a condition.
    dry_run : bool
        Only say what would come next.
    cluster : str
        Where to train: a cluster profile, its file, or local, this machine. auto: where runs were
        last submitted, else SLURM if available, else this machine.
    workers : int, optional
        Maximum number of training processes on this machine.
    report : callable
        Called with a message before each step.
    """
    asked: dict[str, Any] = {
        "metric": metric,
        "confidence": confidence,
        "most": most,
        "block": block,
        "where": where,
    }
    if dry_run:
        tell_newer(sweep.paths)
        return Forecast(half_width, *preview(sweep.paths, half_width, **asked))
    more = {"cluster": cluster, "workers": workers, "tell": report}
    return Forecast(half_width, sweep.howmany_until(half_width, **more, **asked))


def reply(known: Forecast) -> Reply:
    """Word what is known about each cell, and what would come next."""
    answers = [Answer(one.name, (one.words,), rows=[one.values()]) for one in known.cells]
    if known.added is not None:
        runs = counted(known.added, "run")
        answers.append(
            Answer(f"Next: {runs} would be added." if known.added else "No run would be added.")
        )
    values = [one.values() for one in known.cells]
    asked = {"half_width": known.half_width, "runs_added_next": known.added or 0}
    return Reply(answers, {**asked, "cells": values})
