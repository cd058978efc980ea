"""Ensembles drawn from the largest repeat of each dataset and classifier, and their table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from manyseed.analysis.alphahat.trimming import dkw_threshold
from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.predictions import Predictions, unavailable
from manyseed.analysis.metrics.alpha_tests import MIN_OTHERS, side
from manyseed.analysis.options import Options
from manyseed.analysis.questions import ensemble_size
from manyseed.analysis.questions.ensembles import SIZES, RunPool, ensemble_draws, table_one
from manyseed.analysis.questions.howmany import Answer, seconds_per_run
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.keys import EPOCH, REPEAT, RUN
from manyseed.analysis.tables.schema import Tables
from manyseed.orchestrator.disk.parquet import read_parquet
from manyseed.orchestrator.errors import DamagedFile, UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.cellgroups import GROUP, named, split
from manyseed.orchestrator.results.conventions import why_not
from manyseed.orchestrator.results.inputs import KEY
from manyseed.orchestrator.results.published import Published, check_checksums, published
from manyseed.orchestrator.results.record import Analysis
from manyseed.orchestrator.results.tables import ENSEMBLES, INPUT_COLUMNS
from manyseed.orchestrator.results.writing import write_result

_PER_HALF = 1000  # runs in the reference, and in the pool, at most


def for_alpha(
    paths: SweepPaths,
    tables: Tables,
    cells: pl.DataFrame,
    options: Options,
    sizes: Sequence[int] | None,
    draws: int,
    workers: int,
    confidence: float,
) -> dict[int, tuple[list[Answer], pl.DataFrame]]:
    """Return the answers for α̂ of each dataset and classifier, and Table I, by their cell.

    Parameters
    ----------
    paths : SweepPaths
    tables : Tables
        Of `cells`.
    cells : frame
        Which to answer for; of each dataset and classifier the one with the largest repeat counts.
    options : Options
        Of the analysis.
    sizes : sequence of int or None
        M_ens; None for those of `SIZES` that the pool allows.
    draws : int
        Ensembles of each size.
    workers : int
        Threads.
    confidence : float

    Raises
    ------
    DamagedFile
        Where runs that were analysed are no longer there.
    UserError
        For a size that is larger than the pool.
    """
    groups: dict[tuple[str, str], list[Published]] = {}
    for group in published(paths, Plan.read(paths)):
        key = group.spec.dataset, group.spec.classifier
        groups.setdefault(key, []).append(_analysed(group, tables.runs))
    chosen = [
        (*own.select(GROUP).row(0), here)
        for own, here in split(tables, cells.sort(*GROUP, "cell"), GROUP)
    ]
    largest = [
        _largest(paths, groups.get((dataset, classifier), []), here, options, sizes)
        for dataset, classifier, here in chosen
    ]
    for _, repeat in largest:
        if not isinstance(repeat, str):
            drawn_from = replace(repeat.group, predictions=repeat.predictions)
            check_checksums(paths, [drawn_from], workers=workers, remember=False)
    found = {}
    for (_, _, here), (cell, repeat) in zip(chosen, largest, strict=True):
        drawn = _draw(repeat, options, sizes, draws, workers)
        if isinstance(drawn, str) or isinstance(repeat, str):
            reason = drawn if isinstance(drawn, str) else str(repeat)
            found[cell] = ensemble_size.no_ensembles(reason, options.close), pl.DataFrame()
            continue
        name = named(cells.filter(cell=cell), cells)
        answers = ensemble_size.for_alpha(
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

    group: Published
    predictions: Predictions
    cell: int
    repeat_index: int
    epoch: int | None


def _largest(
    paths: SweepPaths,
    groups: Sequence[Published],
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
    group = next((g for g in groups if cell in g.predictions.runs["cell"]), None)
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
    return cell, _Repeat(group, replace(predictions, runs=own), cell, repeat_index, epoch)


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
    columns: Mapping[str, pl.Expr] = {
        "cell": pl.lit(repeat.cell, dtype=pl.UInt32),
        "repeat_index": pl.lit(repeat.repeat_index, dtype=pl.UInt16),
        "models": pl.lit(len(pool.members), dtype=pl.UInt32),
        "n_side": pl.lit(n_side, dtype=pl.UInt32),
        "delta": pl.lit(dkw_threshold(n_side, options.epsilon), dtype=pl.Float64),
    }
    if epoch is not None:
        table = table.with_columns(pl.lit(epoch, EPOCH["epoch"]).alias("epoch"))
    return table.with_columns(**columns)


def write(
    paths: SweepPaths,
    drawn: Sequence[pl.DataFrame],
    cells: pl.DataFrame,
    inputs: pl.DataFrame,
    options: Options,
) -> None:
    """Write Table I of these groups, with what each was computed from; those of others stand.

    Parameters
    ----------
    paths : SweepPaths
    drawn : sequence of frame
        As `for_alpha` returns them; empty ones are left out.
    cells : frame
        Of the groups that were asked for.
    inputs : frame
        Digests of what the analysis was computed from.
    options : Options
    """
    file = paths.table(ENSEMBLES)
    try:
        held = read_parquet(file).join(cells, on=GROUP, how="anti")
        parts = [held.join(inputs, on=list(INPUT_COLUMNS), how="semi", maintain_order="left")]
    except (FileNotFoundError, DamagedFile, pl.exceptions.ColumnNotFoundError):
        parts = []  # what was drawn for others is lost, and can be drawn again
    described = cells.select("cell", "cell_id", *AXES)
    unsaid = (pl.col("delta") > options.close) & (pl.col("close") > 0)
    parts += [
        described.join(_with_digest(own, inputs), on="cell", how="inner").with_columns(
            close=pl.when(~unsaid).then(pl.col("close"))
        )
        for own in drawn
        if not own.is_empty()
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


def keep(paths: SweepPaths, inputs: pl.DataFrame, options: Options) -> list[str]:
    """Keep ensembles of predictions that are as they were; return whose are outdated and go."""
    try:
        outdated = set(Analysis.read(paths).outdated)
    except (FileNotFoundError, DamagedFile):
        outdated = set()
    file = paths.table(ENSEMBLES)
    try:
        drawn = read_parquet(file, INPUT_COLUMNS)
        groups = _names(drawn)
    except FileNotFoundError:
        return sorted(outdated)
    except (DamagedFile, pl.exceptions.ColumnNotFoundError):
        file.unlink()
        return sorted(outdated | _names(Plan.read(paths).cells.join(inputs, on="cell", how="semi")))
    kept = drawn.join(inputs, on=list(INPUT_COLUMNS), how="semi", maintain_order="left")
    if kept.is_empty():
        file.unlink()
    elif kept.height < drawn.height:
        write_result(paths, ENSEMBLES, kept.lazy(), options)
    return sorted((outdated | groups) - _names(kept))


def _names(frame: pl.DataFrame) -> set[str]:
    """Return the datasets × classifiers of a table."""
    return {" × ".join(names) for names in frame.select("dataset", "classifier").iter_rows()}
