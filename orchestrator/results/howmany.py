"""How many seeds do I need: answers for each cell, from results and ensembles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from manyseed.analysis.alphahat.trimming import dkw_threshold
from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.predictions import Predictions, unavailable
from manyseed.analysis.metrics.alpha_tests import MIN_OTHERS, side
from manyseed.analysis.options import CONFIDENCE, Options
from manyseed.analysis.questions.ensembles import SIZES, RunPool, ensemble_draws, table_one
from manyseed.analysis.questions.howmany import (
    Answer,
    for_alpha,
    no_ensembles,
    seconds_per_run,
)
from manyseed.analysis.questions.howmany import howmany as for_means
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.keys import EPOCH, REPEAT, RUN
from manyseed.analysis.tables.schema import Tables
from manyseed.analysis.tables.snapshots import of_cells, several
from manyseed.analysis.tables.twins import cells_once
from manyseed.orchestrator.conditions import condition
from manyseed.orchestrator.disk.parquet import read_parquet
from manyseed.orchestrator.errors import DamagedFile, UserError, nearest
from manyseed.orchestrator.filtering import at_one_snapshot, refusing
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.analysing import Published, compare, published, read_analysis
from manyseed.orchestrator.results.conventions import why_not, without_own
from manyseed.orchestrator.results.inputs import KEY, Held
from manyseed.orchestrator.results.tables import ENSEMBLES, INPUT_COLUMNS, read_results
from manyseed.orchestrator.results.writing import write_result
from manyseed.slurm import local

GROUP = ["dataset", "classifier"]
_PER_HALF = 1000  # runs in the reference, and in the pool, at most


@dataclass(frozen=True, slots=True)
class GroupAnswers:
    """The answers for one cell, or for a group of cells.

    Attributes
    ----------
    name : str
        What sets it apart from the others that were asked for.
    cell : int or None
        Which cell; None for a group of several.
    cell_id : str or None
        Its identity.
    epoch : int or None
        Which snapshot: the last of those analysed, or asked for. None where it differs.
    dataset, classifier : str or None
        None where cells of the group differ in it.
    further : mapping of str to object
        What it is by the others of `analysis.axes.AXES`, likewise.
    cells : int
        Cells that the answers for means are from.
    answers : tuple of Answer
        For accuracy and for error consistency. Of the cells of a dataset and classifier, the one
        with the largest repeat has those for α̂ and for the classical test, too.
    ensembles : DataFrame
        Table I of the repeats that those are from; empty where none could be drawn.
    """

    name: str
    cell: int | None
    cell_id: str | None
    epoch: int | None
    dataset: str | None
    classifier: str | None
    further: Mapping[str, Any]
    cells: int
    answers: tuple[Answer, ...]
    ensembles: pl.DataFrame


def howmany(
    paths: SweepPaths,
    *,
    accuracy: float = 0.005,
    consistency: float = 0.02,
    confidence: float = CONFIDENCE,
    where: str | None = None,
    by: Sequence[str] = (),
    sizes: Sequence[int] | None = None,
    draws: int = 500,
    workers: int | None = None,
) -> list[GroupAnswers]:
    """Answer for every cell, and write the table of ensembles.

    Accuracy and error consistency are answered from the result tables, over all repeats of a cell.
    For α̂, ensembles are drawn for each dataset and classifier from the one repeat that has the most
    runs.

    Parameters
    ----------
    paths : SweepPaths
        Of a sweep that was analysed.
    accuracy, consistency : float
        How precisely the means over runs are to be known: ±.
    confidence : float
        Of the ±, and of the intervals.
    where : str
        An SQL condition over the table of cells: which to answer for.
    by : sequence of str
        Of `analysis.axes.AXES`: cells that agree in these are answered for together, as if runs
        differed as much in all of them; by default each cell by itself.
    sizes : sequence of int, optional
        M_ens; by default those of `analysis.questions.ensembles.SIZES` that are smaller than the
        pool.
    draws : int
        Ensembles of each size.
    workers : int, optional
        Threads; by default the cores that this process may use.

    Raises
    ------
    UserError
        Where there are no results, no cell meets the condition, or an ensemble of one of the sizes
        can't be drawn.
    """
    for name, value in (("accuracy", accuracy), ("consistency", consistency)):
        if not 0 < value < math.inf:
            raise UserError("must be positive", key=f"--{name}", value=value)
    if not 0 < confidence < 1:
        raise UserError("must be above 0 and below 1", key="--confidence", value=confidence)
    for name in by:
        if name not in AXES:
            remedy = nearest(name, AXES)
            raise UserError("not what cells differ in", key="--by", value=name, remedy=remedy)
    workers = workers or local.available_cores()
    wanted = None if sizes is None else sorted(set(sizes))
    if wanted is not None and (not wanted or wanted[0] < 1):
        remedy = "an ensemble has one member or more; such as: --sizes 1,2,5"
        raise UserError("must be positive numbers", key="--sizes", value=sizes, remedy=remedy)
    tables = read_results(paths).of_analysis((*KEY, "run_i", "run_j", "ec_local"))
    inputs = Held(paths).inputs
    options = without_own(read_analysis(paths)[0])
    with refusing(where, tables.cells.columns, "--where"):
        wanted_cells = condition(where, tables.cells.columns) if where else pl.lit(value=True)
        cells = at_one_snapshot(tables.cells.lazy(), wanted_cells).collect()
    if cells.is_empty():
        raise UserError("no cell meets the condition", key="--where", value=where)
    cells = cells_once(cells, by)
    apart = several(tables.cells)
    tables = of_cells(tables, cells)
    drawn = _ensembles(paths, tables, cells, options, wanted, draws, workers, confidence)
    found = []
    for own, here in split(tables, cells.sort(*GROUP, "cell"), list(by) or ["cell"]):
        means = for_means(here, accuracy=accuracy, consistency=consistency, confidence=confidence)
        of_ensembles = [drawn[cell] for cell in own["cell"] if cell in drawn]
        described = {axis: own[axis][0] if _same(own, axis) else None for axis in AXES}
        one = own.row(0, named=True) if own.height == 1 else {}
        found.append(
            GroupAnswers(
                name=f"{named(own, cells)}{_at_epoch(own) if apart else ''}",
                cell=one.get("cell"),
                cell_id=one.get("cell_id"),
                epoch=own["epoch"][0] if "epoch" in own.columns and _same(own, "epoch") else None,
                dataset=described.pop("dataset"),
                classifier=described.pop("classifier"),
                further=described,
                cells=own.height,
                answers=(*means, *(answer for answers, _ in of_ensembles for answer in answers)),
                ensembles=pl.concat([table for _, table in of_ensembles], how="diagonal")
                if of_ensembles
                else pl.DataFrame(),
            )
        )
    _write(paths, found, cells, inputs, options)
    return found


def named(own: pl.DataFrame, cells: pl.DataFrame) -> str:
    """Return the name of some cells: in what they agree, and others among `cells` do not."""
    named = [f"{axis} = {own[axis][0]}" for axis in AXES if _same(own, axis)]
    if all(_same(own, axis) for axis in GROUP):
        apart = [axis for axis in AXES if axis not in GROUP and not _same(cells, axis)]
        named = [" × ".join(str(own[axis][0]) for axis in GROUP)]
        named += [f"{axis} = {own[axis][0]}" for axis in apart if _same(own, axis)]
    which = f"cell {own['cell'][0]}" if own.height == 1 else f"{own.height:,} cells"
    return f"{', '.join(named)} ({which})"


def _at_epoch(own: pl.DataFrame) -> str:
    epochs = own["epoch"].unique().sort().to_list()
    return f" at epoch {' or '.join(map(str, epochs))}" if epochs[0] > 0 else ""


def _same(cells: pl.DataFrame, axis: str) -> bool:
    return cells[axis].n_unique() == 1


def split(
    tables: Tables, cells: pl.DataFrame, key: Sequence[str]
) -> Iterator[tuple[pl.DataFrame, Tables]]:
    """Yield the cells of each group, which agree in `key`, and what tables say of them."""
    groups = cells.partition_by(key, maintain_order=True)
    number = pl.concat(
        own.select("cell", group=pl.lit(number, pl.UInt32)) for number, own in enumerate(groups)
    )
    parts: dict[str, dict[tuple[object, ...], pl.DataFrame]] = {}
    for name in ("runs", "pairs", "repeats", "cells"):
        frame = getattr(tables, name)
        numbered = frame.join(number, on="cell", maintain_order="left")
        parts[name] = numbered.partition_by("group", as_dict=True, include_key=False)
    for index, own in enumerate(groups):
        yield (
            own,
            Tables(
                **{
                    name: of_group.get((index,), getattr(tables, name).clear())
                    for name, of_group in parts.items()
                }
            ),
        )


def _ensembles(
    paths: SweepPaths,
    tables: Tables,
    cells: pl.DataFrame,
    options: Options,
    sizes: Sequence[int] | None,
    draws: int,
    workers: int,
    confidence: float,
) -> dict[int, tuple[list[Answer], pl.DataFrame]]:
    """Return the answers for α̂ of each dataset and classifier, and Table I, by their cell."""
    groups = {
        (g.spec.dataset, g.spec.classifier): _analysed(g, tables.runs)
        for g in published(paths, Plan.read(paths))
    }
    chosen = [
        (*own.select(GROUP).row(0), here)
        for own, here in split(tables, cells.sort(*GROUP, "cell"), GROUP)
    ]
    largest = [
        _largest(paths, groups.get((dataset, classifier)), here, options, sizes)
        for dataset, classifier, here in chosen
    ]
    for (dataset, classifier, _), (_, repeat) in zip(chosen, largest, strict=True):
        if not isinstance(repeat, str):
            drawn_from = replace(groups[dataset, classifier], predictions=repeat.predictions)
            compare(paths, [drawn_from], workers=workers, remember=False)
    found = {}
    for (_, _, here), (cell, repeat) in zip(chosen, largest, strict=True):
        drawn = _draw(repeat, options, sizes, draws, workers)
        if isinstance(drawn, str) or isinstance(repeat, str):
            reason = drawn if isinstance(drawn, str) else str(repeat)
            found[cell] = no_ensembles(reason, options.close), pl.DataFrame()
            continue
        name = named(cells.filter(cell=cell), cells)
        answers = for_alpha(
            drawn,
            made=repeat.predictions.runs.height,
            epsilon=options.epsilon,
            close=options.close,
            confidence=confidence,
            seconds_each=seconds_per_run(here.runs.filter(cell=cell)),
            drawn_from=f"{name}, repeat {repeat.repeat_index}",
        )
        found[cell] = answers, drawn
    return found


def _analysed(group: Published, runs: pl.DataFrame) -> Published:
    """Return a group with the runs that were analysed: more may be published by now."""
    kept = group.predictions.runs.join(runs, on=RUN, how="semi", maintain_order="left")
    return replace(group, predictions=replace(group.predictions, runs=kept))


@dataclass(frozen=True, slots=True)
class _Repeat:
    """The runs to draw from: those of one repeat."""

    predictions: Predictions
    cell: int
    repeat_index: int
    epoch: int | None


def _largest(
    paths: SweepPaths,
    group: Published | None,
    tables: Tables,
    options: Options,
    sizes: Sequence[int] | None,
) -> tuple[int, _Repeat | str]:
    """Return the cell of the repeat with the most runs, and it, or why no ensemble is drawn."""
    best = tables.repeats.filter(pl.col("problem").is_null()).sort(
        "n_distinct", *REPEAT, descending=[True, False, False]
    )
    if best.is_empty():
        return int(tables.cells["cell"][0]), "no repeat could be analysed"
    cell, repeat_index, analysed = best.select(*REPEAT, "n_runs").row(0)
    of_repeat = (pl.col("cell") == cell) & (pl.col("repeat_index") == repeat_index)
    here = 0 if group is None else group.predictions.runs.filter(of_repeat).height
    if group is None or here < analysed:
        raise DamagedFile(
            paths.store,
            f"holds {here:,} runs of cell {cell}, repeat {repeat_index}; the result tables are of "
            f"{analysed:,}",
            f"resume the sweep, then analyze it again: manyseed resume {paths.directory}",
        )
    predictions = group.predictions
    needed = replace(options, metrics=("alpha_hat", "ensemble"), calibration=False)
    lacking = unavailable(predictions, needed)
    if lacking:
        return cell, f"an ensemble {why_not(next(iter(lacking.values())))}"
    own = predictions.runs.filter(of_repeat & ~pl.col("identical")).sort("run_index")
    of = "" if sizes else f" of {min(SIZES)}"
    enough = 2 * (MIN_OTHERS if sizes else min(SIZES) + 1)
    if own.height < enough:
        reason = (
            f"ensembles{of} out of half of the runs of a repeat need {enough} runs, and there are "
            f"{own.height}"
        )
        return cell, reason
    own = own.head(2 * _PER_HALF)
    pool = own.height - own.height // 2
    if sizes and max(sizes) > pool:
        raise UserError(
            f"{predictions.dataset} × {predictions.classifier}: the pool is {pool:,} of the "
            f"{own.height:,} runs of its largest repeat",
            key="--sizes",
            value=sizes,
            remedy=f"give sizes up to {pool}, or ask with --where for others alone",
        )
    epoch = best["epoch"][0] if "epoch" in best.columns else None
    return cell, _Repeat(replace(predictions, runs=own), cell, repeat_index, epoch)


def _draw(
    repeat: _Repeat | str,
    options: Options,
    sizes: Sequence[int] | None,
    draws: int,
    workers: int,
) -> pl.DataFrame | str:
    """Return Table I of a repeat, or why there is none."""
    if isinstance(repeat, str):
        return repeat
    epoch = repeat.epoch
    if epoch is not None:
        options = replace(options, snapshots=(epoch,))
    try:
        pool = RunPool.of(repeat.predictions, repeat.cell, repeat.repeat_index, options)
        drawn = ensemble_draws(pool, options, sizes, draws=draws, workers=workers)
    except Refused as error:
        return error.reason
    table = table_one(drawn, options.close)
    n_side = side(pool.held_out.n_test, options)
    named: Mapping[str, pl.Expr] = {
        "cell": pl.lit(repeat.cell, dtype=pl.UInt32),
        "repeat_index": pl.lit(repeat.repeat_index, dtype=pl.UInt16),
        "models": pl.lit(len(pool.members), dtype=pl.UInt32),
        "n_side": pl.lit(n_side, dtype=pl.UInt32),
        "delta": pl.lit(dkw_threshold(n_side, options.epsilon), dtype=pl.Float64),
    }
    if epoch is not None:
        table = table.with_columns(pl.lit(epoch, EPOCH["epoch"]).alias("epoch"))
    return table.with_columns(**named)


def _write(
    paths: SweepPaths,
    found: list[GroupAnswers],
    cells: pl.DataFrame,
    inputs: pl.DataFrame,
    options: Options,
) -> None:
    """Write Table I of these groups, with what each was computed from; those of others stand."""
    file = paths.table(ENSEMBLES)
    try:
        held = read_parquet(file).join(cells, on=GROUP, how="anti")
        parts = [held.join(inputs, on=list(INPUT_COLUMNS), how="semi", maintain_order="left")]
    except (FileNotFoundError, DamagedFile, pl.exceptions.ColumnNotFoundError):
        parts = []  # what was drawn for others is lost, and can be drawn again
    described = cells.select("cell", "cell_id", *AXES)
    unsaid = (pl.col("delta") > options.close) & (pl.col("close") > 0)
    parts += [
        described.join(_with_digest(group.ensembles, inputs), on="cell", how="inner").with_columns(
            close=pl.when(~unsaid).then(pl.col("close"))
        )
        for group in found
        if not group.ensembles.is_empty()
    ]
    # what an earlier version drew lacks columns
    table = pl.concat(parts, how="diagonal") if parts else pl.DataFrame()
    if table.is_empty():
        file.unlink(missing_ok=True)
        return
    write_result(paths, ENSEMBLES, table.sort(*REPEAT, "size").lazy(), options)


def _with_digest(ensembles: pl.DataFrame, inputs: pl.DataFrame) -> pl.DataFrame:
    key = [name for name in KEY if name in ensembles.columns and name in inputs.columns]
    return ensembles.join(inputs, on=key, how="left")
