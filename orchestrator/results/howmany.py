"""How many seeds do I need: answers for each dataset and classifier, from results and ensembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analysis.alpha_hat import MIN_OTHERS, side
from analysis.ensembles import SIZES, Pool, ensemble_draws, table_one
from analysis.howmany import Answer, for_alpha, no_ensembles, seconds_per_run
from analysis.howmany import howmany as for_means
from analysis.metrics import unavailable
from analysis.options import Options
from analysis.predictions import Predictions
from analysis.tables import RUN_KEY, Tables
from analysis.trimming import dkw_threshold
from orchestrator.errors import DamagedFile, UserError
from orchestrator.parquet import read_parquet
from orchestrator.paths import SweepPaths
from orchestrator.plans.plan import Plan
from orchestrator.query import matching
from orchestrator.results.analysing import Published, compare, published, read_analysis
from orchestrator.results.conventions import without_own
from orchestrator.results.inputs import KEY, Held
from orchestrator.results.tables import (
    DESCRIPTORS,
    ENSEMBLES,
    INPUT_COLUMNS,
    read_results,
    result_file,
)
from orchestrator.results.writing import write_result

GROUP = ["dataset", "classifier"]
_PER_HALF = 1000  # runs in the reference, and in the pool, at most


@dataclass(frozen=True, slots=True)
class GroupAnswers:
    """The answers for one dataset and classifier.

    Attributes
    ----------
    dataset, classifier : str
    cells : int
        Cells that the answers for means are from.
    answers : tuple of Answer
        For accuracy, for error consistency, for α̂ and for the classical test.
    ensembles : DataFrame
        Table I of the repeat with the most runs; empty where none could be drawn.
    """

    dataset: str
    classifier: str
    cells: int
    answers: tuple[Answer, ...]
    ensembles: pl.DataFrame


def howmany(
    paths: SweepPaths,
    *,
    accuracy: float,
    consistency: float,
    where: str | None = None,
    sizes: Sequence[int] | None = None,
    draws: int = 500,
    workers: int = 1,
) -> list[GroupAnswers]:
    """Answer for every dataset and classifier, and write the table of ensembles.

    Accuracy and error consistency are answered from the result tables, over all repeats. For α̂
    ensembles are drawn from the one repeat that has the most runs.

    Parameters
    ----------
    paths : SweepPaths
        Of a sweep that was analysed.
    accuracy, consistency : float
        How precisely the means over runs are to be known: ±.
    where : str
        An SQL condition over the table of cells: which to answer for.
    sizes : sequence of int, optional
        M_ens; by default those of `analysis.ensembles.SIZES` that are smaller than the pool.
    draws : int
        Ensembles of each size.
    workers : int
        Threads.

    Raises
    ------
    UserError
        Where there are no results, no cell meets the condition, or an ensemble of one of the sizes
        can't be drawn.
    """
    for name, value in (("accuracy", accuracy), ("consistency", consistency)):
        if not value > 0:
            raise UserError("must be positive", key=f"--{name}", value=value)
    wanted = None if sizes is None else sorted(set(sizes))
    if wanted is not None and (not wanted or wanted[0] < 1):
        remedy = "an ensemble has one member or more; such as: --sizes 1,2,5"
        raise UserError("must be positive numbers", key="--sizes", value=sizes, remedy=remedy)
    tables = read_results(paths).of_analysis((*KEY, "run_i", "run_j", "ec_local"))
    inputs = Held(paths).inputs
    options = without_own(read_analysis(paths)[0])
    cells = matching(tables.cells, where) if where else tables.cells
    if cells.is_empty():
        raise UserError("no cell meets the condition", key="--where", value=where)
    tables = _only(tables, cells)
    groups = {
        (g.spec.dataset, g.spec.classifier): _analysed(g, tables.runs)
        for g in published(paths, Plan.read(paths))
    }
    chosen = sorted(cells.partition_by(GROUP, as_dict=True).items())
    largest = {
        names: _largest(paths, groups.get(names), _only(tables, own), options, wanted)
        for names, own in chosen
    }
    for names, repeat in largest.items():
        if not isinstance(repeat, str):
            drawn_from = replace(groups[names], predictions=repeat.predictions)
            compare(paths, [drawn_from], workers=workers, remember=False)
    found = []
    for (dataset, classifier), own in chosen:
        here = _only(tables, own)
        means = for_means(here, accuracy=accuracy, consistency=consistency)
        drawn = _draw(largest[dataset, classifier], options, wanted, draws, workers)
        if isinstance(drawn, str):
            of_ensembles, table = no_ensembles(drawn), pl.DataFrame()
        else:
            cost = seconds_per_run(here.runs)
            of_ensembles, table = for_alpha(drawn, seconds_each=cost), drawn
        answers = (*means, *of_ensembles)
        found.append(GroupAnswers(str(dataset), str(classifier), own.height, answers, table))
    _write(paths, found, cells, inputs, options)
    return found


def _analysed(group: Published, runs: pl.DataFrame) -> Published:
    """Return a group with the runs that were analysed: more may be published by now."""
    kept = group.predictions.runs.join(runs, on=RUN_KEY, how="semi", maintain_order="left")
    return replace(group, predictions=replace(group.predictions, runs=kept))


def _only(tables: Tables, cells: pl.DataFrame) -> Tables:
    names = ("runs", "pairs", "repeats", "cells")
    return Tables(
        **{name: getattr(tables, name).join(cells, on="cell", how="semi") for name in names}
    )


@dataclass(frozen=True, slots=True)
class _Repeat:
    """The runs to draw from: those of one repeat."""

    predictions: Predictions
    cell: int
    repeat_index: int


def _largest(
    paths: SweepPaths,
    group: Published | None,
    tables: Tables,
    options: Options,
    sizes: Sequence[int] | None,
) -> _Repeat | str:
    """Return the repeat with the most runs, or why no ensemble is drawn from it."""
    best = tables.repeats.filter(pl.col("problem").is_null()).sort(
        "n_distinct", *KEY, descending=[True, False, False]
    )
    if best.is_empty():
        return "no repeat could be analysed"
    cell, repeat_index, analysed = best.select(*KEY, "n_runs").row(0)
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
    lacking = unavailable(predictions, replace(options, metrics=("alpha_hat", "ensemble")))
    if lacking:
        return f"an ensemble {next(iter(lacking.values()))}"
    own = predictions.runs.filter(of_repeat & ~pl.col("identical")).sort("run_index")
    of = "" if sizes else f" of {min(SIZES)}"
    enough = 2 * (MIN_OTHERS if sizes else min(SIZES) + 1)
    if own.height < enough:
        return (
            f"ensembles{of} out of half of the runs of a repeat need {enough} runs, and there are "
            f"{own.height}"
        )
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
    return _Repeat(replace(predictions, runs=own), cell, repeat_index)


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
    try:
        pool = Pool.of(repeat.predictions, repeat.cell, repeat.repeat_index, options)
        drawn = ensemble_draws(pool, options, sizes, draws=draws, workers=workers)
    except ValueError as error:
        return str(error)
    table = table_one(drawn)
    n_side = side(pool.held_out.n_test, options)
    named: Mapping[str, pl.Expr] = {
        "cell": pl.lit(repeat.cell, dtype=pl.UInt32),
        "repeat_index": pl.lit(repeat.repeat_index, dtype=pl.UInt16),
        "models": pl.lit(len(pool.members), dtype=pl.UInt32),
        "n_side": pl.lit(n_side, dtype=pl.UInt32),
        "delta": pl.lit(dkw_threshold(n_side, options.epsilon), dtype=pl.Float64),
    }
    return table.with_columns(**named)


def _write(
    paths: SweepPaths,
    found: list[GroupAnswers],
    cells: pl.DataFrame,
    inputs: pl.DataFrame,
    options: Options,
) -> None:
    """Write Table I of these groups, with what each was computed from; those of others stand."""
    file = result_file(paths, ENSEMBLES)
    try:
        held = read_parquet(file).join(cells, on=GROUP, how="anti")
        parts = [held.join(inputs, on=list(INPUT_COLUMNS), how="semi", maintain_order="left")]
    except (FileNotFoundError, DamagedFile, pl.exceptions.ColumnNotFoundError):
        parts = []  # what was drawn for others is lost, and can be drawn again
    described = cells.select("cell", "cell_id", *DESCRIPTORS)
    parts += [
        described.join(group.ensembles.join(inputs, on=KEY, how="left"), on="cell", how="inner")
        for group in found
        if not group.ensembles.is_empty()
    ]
    table = pl.concat(parts) if parts else pl.DataFrame()
    if table.is_empty():
        file.unlink(missing_ok=True)
        return
    write_result(paths, ENSEMBLES, table.sort(*KEY, "size").lazy(), options)
