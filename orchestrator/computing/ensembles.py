"""Draw ensembles from the largest repeat of each dataset and classifier; write their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from manyseed.analysis import Refused
from manyseed.analysis.alphahat.trimming import dkw_threshold
from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.graph.predictions import Predictions, unavailable
from manyseed.analysis.metrics.alpha_tests import MIN_OTHERS, side
from manyseed.analysis.options import Options
from manyseed.analysis.questions import ensembles
from manyseed.analysis.questions.ensembles import SIZES, RunPool, ensemble_draws, table_one
from manyseed.analysis.questions.needed import RunsNeeded, seconds_per_run
from manyseed.analysis.tables.rows import EPOCH, REPEAT, RUN, Tables, mean_of
from manyseed.analysis.tables.schema import records
from manyseed.orchestrator.computing.cellgroups import GROUP, named, split
from manyseed.orchestrator.computing.conventions import why_not
from manyseed.orchestrator.computing.inputs import KEY, Published, check_checksums, published
from manyseed.orchestrator.computing.tables import (
    DRAWS,
    ENSEMBLES,
    INPUT_COLUMNS,
    Analysis,
    write_result,
)
from manyseed.orchestrator.disk.parquet import read_parquet
from manyseed.orchestrator.errors import DamagedFile, UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.submissions.submission import training

_PER_HALF = 1000  # most runs in the reference, and in the pool
EACH = 500  # most ensembles of a size that are stored one by one


@dataclass(frozen=True, slots=True)
class Drawn:
    """The ensembles drawn for a dataset and classifier.

    `table`: table I; empty if no ensembles could be drawn. `each`: the first `EACH` ensembles of
    each size, one row each.
    """

    answers: list[RunsNeeded]
    table: pl.DataFrame = field(default_factory=pl.DataFrame)
    each: pl.DataFrame = field(default_factory=pl.DataFrame)


def for_alpha(
    paths: SweepPaths,
    tables: Tables,
    cells: pl.DataFrame,
    options: Options,
    sizes: Sequence[int] | None,
    draws: int,
    workers: int,
    confidence: float,
    inputs: pl.DataFrame,
) -> dict[int, Drawn]:
    """Return the answers for α̂ of each dataset and classifier, by the cell drawn from.

    Ensembles that are on disk are not drawn again.

    `tables`: the tables of `cells`. `cells`: the cells to answer for; for each dataset and
    classifier, the one with the largest repeat is drawn from. `options`: options of the analysis.
    `sizes`: M_ens; None for all in `SIZES` that the pool allows. `draws`: ensembles of each size.
    `workers`: threads. `inputs`: digests of the inputs of the analysis.
    """
    groups: dict[tuple[str, str], list[Published]] = {}
    for group in published(paths, Plan.read(paths)):
        key = group.spec.dataset, group.spec.classifier
        groups.setdefault(key, []).append(_analysed(group, tables.runs))
    chosen = [
        (group.select(GROUP).row(0), of_group)
        for group, of_group in split(tables, cells.sort(*GROUP, "cell"), GROUP)
    ]
    largest = [
        _largest(paths, groups.get(key, []), of_group, options, sizes) for key, of_group in chosen
    ]
    held = _held(paths, inputs)
    kept = {
        cell: _as_drawn(held, repeat, sizes, draws, options.close)
        for cell, repeat in largest
        if not isinstance(repeat, str)
    }
    for cell, repeat in largest:
        if not isinstance(repeat, str) and kept[cell] is None:
            drawn_from = replace(repeat.group, predictions=repeat.predictions)
            check_checksums(paths, [drawn_from], workers=workers, remember=False)
    by_cell = {}
    for (_, of_group), (cell, repeat) in zip(chosen, largest, strict=True):
        drawn = kept.get(cell) or _draw(repeat, options, sizes, draws, workers)
        if isinstance(drawn, str) or isinstance(repeat, str):
            reason = drawn if isinstance(drawn, str) else str(repeat)
            by_cell[cell] = Drawn(ensembles.no_ensembles(reason, options.close))
            continue
        name = named(cells.filter(cell=cell), cells)
        table, each = drawn
        answers = ensembles.for_alpha(
            table,
            made=repeat.predictions.runs.height,
            epsilon=options.epsilon,
            close=options.close,
            confidence=confidence,
            seconds_each=seconds_per_run(of_group.runs.filter(cell=cell)),
            drawn_from=f"{name}, repeat {repeat.repeat_index}",
        )
        by_cell[cell] = Drawn(answers, table, each)
    return by_cell


def _analysed(group: Published, runs: pl.DataFrame) -> Published:
    """Return a group with only the runs that were analysed: more may be published by now."""
    kept = group.predictions.runs.join(runs, on=RUN, how="semi", maintain_order="left")
    return replace(group, predictions=replace(group.predictions, runs=kept))


@dataclass(frozen=True, slots=True)
class _Repeat:
    """The repeat whose runs are drawn from."""

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
    """Return the cell with the largest repeat, and that repeat or why no ensemble is drawn."""
    best = tables.repeats.filter(pl.col("problem").is_null()).sort(
        "n_distinct", *REPEAT, descending=[True, False, False]
    )
    if best.is_empty():
        return int(tables.cells["cell"][0]), "no repeat could be analysed"
    cell, repeat_index, analysed = best.select(*REPEAT, "n_runs").row(0)
    of_repeat = (pl.col("cell") == cell) & (pl.col("repeat_index") == repeat_index)
    group = next((g for g in groups if cell in g.predictions.runs["cell"]), None)
    stored = 0 if group is None else group.predictions.runs.filter(of_repeat).height
    if group is None or stored < analysed:
        raise DamagedFile(
            paths.store,
            f"holds {counted(stored, 'run')} of cell {cell}, repeat {repeat_index}; the result "
            f"tables have {analysed:,}",
            f"resume the sweep, then analyze it again: {training(paths, 'resume')}",
        )
    predictions = group.predictions
    needed = replace(options, metrics=("alpha_hat", "ensemble"), calibration=False)
    lacking = unavailable(predictions, needed)
    if lacking:
        return cell, f"an ensemble {why_not(next(iter(lacking.values())))}"
    runs = predictions.runs.filter(of_repeat & ~pl.col("identical")).sort("run_index")
    size = "" if sizes else f" of {min(SIZES)}"
    enough = 2 * (MIN_OTHERS if sizes else min(SIZES) + 1)
    if runs.height < enough:
        reason = (
            f"ensembles{size} out of half of the runs of a repeat need {enough} runs, and there "
            f"{'is' if runs.height == 1 else 'are'} {runs.height}"
        )
        n_side = side(int(best["n_test"][0]), options)
        if dkw_threshold(n_side, options.epsilon) > options.close:  # more runs would not help
            few = ensembles.too_few_points(n_side, options.epsilon, options.close)
            reason = f"{few}; besides, {reason}"
        return cell, reason
    runs = runs.head(2 * _PER_HALF)
    pool = runs.height - runs.height // 2
    if sizes and max(sizes) > pool:
        raise UserError(
            f"{predictions.dataset} × {predictions.classifier}: the pool is {pool:,} of the "
            f"{runs.height:,} runs of its largest repeat",
            key="--sizes",
            value=sizes,
            remedy=f"give sizes up to {pool}, or leave these out with --where",
        )
    epoch = best["epoch"][0] if "epoch" in best.columns else None
    return cell, _Repeat(group, replace(predictions, runs=runs), cell, repeat_index, epoch)


def of_blocks(
    paths: SweepPaths, runs: pl.DataFrame, options: Options, block: int, workers: int
) -> dict[int, pl.DataFrame | str]:
    """Return the mean α̂ of each cell's blocks of runs; a run's reference is the rest of its block.

    Blocks share no run, so their means are independent given the test sets.

    `runs`: the analysed runs of the cells, at one snapshot each. `block`: consecutive runs in a
    block; an incomplete one is left out.

    Returns, by cell, a row per test set and block (repeat_index, block, alpha_hat), null if it is
    undefined; or why α̂ is not known.
    """
    found: dict[int, pl.DataFrame | str] = {}
    options = replace(options, metrics=("alpha_hat",), calibration=False)
    for every in published(paths, Plan.read(paths)):
        group = _analysed(every, runs)
        own = group.predictions.runs.with_columns(block=pl.col("run_index") // block)
        if own.is_empty():
            continue
        cells = own["cell"].unique().to_list()
        if lacking := unavailable(group.predictions, options):
            found |= dict.fromkeys(cells, f"α̂ {why_not(next(iter(lacking.values())))}")
            continue
        key = ["cell", "repeat_index", "block"]
        whole = own.filter(pl.len().over(key) == block).sort(*key, "run_index")
        # each block stands for a cell, so that its runs are compared with each other alone
        blocks = whole.select("cell", "block").unique(maintain_order=True)
        blocks = blocks.with_columns(number=pl.int_range(pl.len()).cast(own.schema["cell"]))
        apart = whole.join(blocks, on=["cell", "block"], maintain_order="left")
        apart = apart.with_columns(cell="number").drop("block", "number")
        predictions = replace(group.predictions, runs=apart, runs_planned=None)
        check_checksums(
            paths, [replace(group, predictions=predictions)], workers=workers, remember=False
        )
        epochs, at_last = runs.join(own, on=RUN, how="semi"), options
        if "epoch" in epochs.columns:
            at_last = replace(options, snapshots=(int(epochs["epoch"][0]),))
        (tables,) = compute([analyze_group(predictions, at_last)], workers=workers)
        means = tables.runs.group_by("cell", "repeat_index").agg(
            # one run without α̂ leaves its block without a mean
            pl.when(pl.col("alpha_hat").is_not_null().all()).then(mean_of(pl.col("alpha_hat")))
        )
        named_blocks = blocks.rename({"cell": "of", "number": "cell"})
        joined = means.join(named_blocks, on="cell").drop("cell").sort("of", "block")
        found |= {cell: joined.filter(of=cell).drop("of") for cell in cells}
    return found


_OF_TABLE_ONE = (
    *("size", "draws", "distinct", "close", "accepted"),
    *("accuracy", "churn", "ece", "alpha_hat", "ks_distance"),
    *("accuracy_std", "churn_std", "ece_std", "alpha_hat_std", "ks_distance_std"),
    *("cell", "epoch", "repeat_index", "models", "n_side", "delta"),
)
"""Columns of a table that `_draw` returns; those on disk also describe the cell."""


def _held(paths: SweepPaths, inputs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Return Table I and the ensembles on disk that were drawn from the runs in the tables."""
    try:
        table, each = (
            read_parquet(paths.table(name)).join(
                inputs, on=list(INPUT_COLUMNS), how="semi", maintain_order="left"
            )
            for name in (ENSEMBLES, DRAWS)
        )
        is_whole = {*_OF_TABLE_ONE} - {"epoch"} <= {*table.columns}  # not from earlier versions
        return (table, each) if is_whole else None
    except (FileNotFoundError, DamagedFile, pl.exceptions.PolarsError):
        return None  # they are drawn again


def _as_drawn(
    held: tuple[pl.DataFrame, pl.DataFrame] | None,
    repeat: _Repeat,
    sizes: Sequence[int] | None,
    draws: int,
    close: float,
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Return what `_draw` would, from the ensembles on disk; None unless they are the same."""
    if held is None:
        return None
    of_repeat = pl.col("cell").eq(repeat.cell) & pl.col("repeat_index").eq(repeat.repeat_index)
    if repeat.epoch is not None:
        of_repeat &= pl.col("epoch") == repeat.epoch
    table, each = (frame.filter(of_repeat) for frame in held)
    n_runs = repeat.predictions.runs.height
    models = n_runs - n_runs // 2
    if table.is_empty() or table["models"][0] != models:
        return None
    wanted = [size for size in SIZES if size < models] if sizes is None else list(sizes)
    counts = each.group_by("size", maintain_order=True).len().rows()
    if table["size"].to_list() != wanted or counts != [(size, draws) for size in wanted]:
        return None
    # where δ is too large to tell, the table on disk has no share of close ensembles
    are_close = each.group_by("size").agg(close=(pl.col("alpha_hat") <= close).mean())
    table = table.drop("close").join(are_close, on="size", maintain_order="left")
    described = [*AXES, "cell_id", "digest"]
    return (
        table.select(name for name in _OF_TABLE_ONE if name in table.columns),
        each.drop(described, strict=False),
    )


def _draw(
    repeat: _Repeat | str,
    options: Options,
    sizes: Sequence[int] | None,
    draws: int,
    workers: int,
) -> tuple[pl.DataFrame, pl.DataFrame] | str:
    """Return Table I of a repeat and the rows of its ensembles, or why there are none."""
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
    n_side = side(pool.held_out.n_test, options)
    key = {"cell": pl.lit(repeat.cell, dtype=pl.UInt32)}
    if epoch is not None:
        key["epoch"] = pl.lit(epoch, EPOCH["epoch"])
    key["repeat_index"] = pl.lit(repeat.repeat_index, dtype=pl.UInt16)
    test: Mapping[str, pl.Expr] = {
        "n_side": pl.lit(n_side, dtype=pl.UInt32),
        "delta": pl.lit(dkw_threshold(n_side, options.epsilon), dtype=pl.Float64),
    }
    models = pl.lit(len(pool.members), dtype=pl.UInt32)
    table = table_one(drawn, options.close).with_columns(**key, models=models, **test)
    each = drawn.drop("members").filter(pl.col("draw") < EACH).with_columns(**key, **test)
    return table, each


def write(
    paths: SweepPaths,
    drawn: Sequence[pl.DataFrame],
    each: Sequence[pl.DataFrame],
    cells: pl.DataFrame,
    inputs: pl.DataFrame,
    options: Options,
) -> None:
    """Write Table I and the ensembles of these groups; rows of other groups stay.

    `drawn` and `each`: table I and the single ensembles, as `for_alpha` returns them; empty ones
    are left out. `cells`: cells of the groups that were asked for. `inputs`: digests of the inputs
    of the analysis.
    """
    undecided = (pl.col("delta") > options.close) & (pl.col("close") > 0)
    summaries = [
        table.with_columns(close=pl.when(~undecided).then(pl.col("close")))
        for table in drawn
        if not table.is_empty()
    ]
    # Table I last: if it exists, so do its ensembles
    _write(paths, DRAWS, [table for table in each if not table.is_empty()], cells, inputs, options)
    _write(paths, ENSEMBLES, summaries, cells, inputs, options)
    if paths.table(ENSEMBLES).exists():
        paths.ensembles_mark.touch()
    else:  # none could be drawn
        paths.ensembles_mark.unlink(missing_ok=True)


def _write(
    paths: SweepPaths,
    name: str,
    drawn: Sequence[pl.DataFrame],
    cells: pl.DataFrame,
    inputs: pl.DataFrame,
    options: Options,
) -> None:
    file = paths.table(name)
    try:
        held = read_parquet(file).join(cells, on=GROUP, how="anti")
        parts = [held.join(inputs, on=list(INPUT_COLUMNS), how="semi", maintain_order="left")]
    except (FileNotFoundError, DamagedFile, pl.exceptions.ColumnNotFoundError):
        parts = []  # ensembles of other groups are lost; they can be drawn again
    described = cells.select("cell", "cell_id", *AXES)
    parts += [
        described.join(_with_digest(table, inputs), on="cell", how="inner", maintain_order="right")
        for table in drawn
    ]
    # tables of earlier versions lack columns
    merged = pl.concat(parts, how="diagonal") if parts else pl.DataFrame()
    if merged.is_empty():
        file.unlink(missing_ok=True)
        return
    write_result(paths, name, merged.sort(records()[name].key).lazy(), options)


def _with_digest(ensembles: pl.DataFrame, inputs: pl.DataFrame) -> pl.DataFrame:
    key = [name for name in KEY if name in ensembles.columns and name in inputs.columns]
    return ensembles.join(inputs, on=key, how="left")


def keep(paths: SweepPaths, inputs: pl.DataFrame, options: Options) -> list[str]:
    """Keep ensembles of unchanged predictions; remove the others and return their groups' names."""
    try:
        outdated = set(Analysis.read(paths).outdated)
    except (FileNotFoundError, DamagedFile):
        outdated = set()
    outdated |= _kept(paths, DRAWS, inputs, options)
    outdated |= _kept(paths, ENSEMBLES, inputs, options)
    if not paths.table(ENSEMBLES).exists():
        paths.ensembles_mark.unlink(missing_ok=True)
    return sorted(outdated)


def _kept(paths: SweepPaths, name: str, inputs: pl.DataFrame, options: Options) -> set[str]:
    """Keep a table's rows of unchanged predictions; return the names of the other groups."""
    file = paths.table(name)
    try:
        drawn = read_parquet(file, INPUT_COLUMNS)
        groups = _names(drawn)
    except (FileNotFoundError, DamagedFile, pl.exceptions.ColumnNotFoundError):
        if not file.exists() and not paths.ensembles_mark.exists():
            return set()  # never drawn
        file.unlink(missing_ok=True)
        return _names(Plan.read(paths).cells.join(inputs, on="cell", how="semi"))
    kept = drawn.join(inputs, on=list(INPUT_COLUMNS), how="semi", maintain_order="left")
    if kept.is_empty():
        file.unlink()
    elif kept.height < drawn.height:
        write_result(paths, name, kept.lazy(), options)
    return groups - _names(kept)


def _names(frame: pl.DataFrame) -> set[str]:
    """Return a table's groups as "dataset × classifier"."""
    return {" × ".join(names) for names in frame.select(GROUP).iter_rows()}
