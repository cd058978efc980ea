"""Plan a sweep file, data in memory or more repeats: a new sweep is made, or one there grows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.analysis import Refused as NoAnalysis
from manyseed.analysis.axes import AXES, LATER
from manyseed.analysis.options import Options
from manyseed.jobs.checks import Refused
from manyseed.jobs.classifiers import core_seconds, prepare
from manyseed.jobs.datasets import cache
from manyseed.jobs.ensembling.methods import NONE
from manyseed.jobs.hparams.grid import MAX_CONFIGURATIONS, is_written
from manyseed.jobs.run import Cell
from manyseed.orchestrator.disk.placing import appearing, place
from manyseed.orchestrator.disk.records import locked
from manyseed.orchestrator.errors import (
    DamagedFile,
    UnavailableError,
    UserError,
    command,
    refused,
    toml_key,
    toml_value,
)
from manyseed.orchestrator.grids import objects
from manyseed.orchestrator.grids.expansion import Expansion, expand
from manyseed.orchestrator.grids.loading import load_and_use, load_sweep_file
from manyseed.orchestrator.grids.own import OwnCode
from manyseed.orchestrator.grids.sweepfile import SweepFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.arguments import of_arguments, warn_of_objects
from manyseed.orchestrator.plans.change import Change, restoring
from manyseed.orchestrator.plans.code import (
    fetch_datasets,
    own_code,
    read_pins,
    write_pins,
)
from manyseed.orchestrator.plans.cost import check_room, observed_seconds
from manyseed.orchestrator.plans.extension import extended
from manyseed.orchestrator.plans.growth import check_kept, require_same_files, why_refused
from manyseed.orchestrator.plans.layout import (
    PAIR,
    Groups,
    assign_rows,
    missing_blocks,
    require_snapshots,
)
from manyseed.orchestrator.plans.plan import CELLS, METHOD, PREFIX, Plan, with_anchors, write_plan
from manyseed.orchestrator.plans.twins import SETTING_APART, Torn, Twin, merge_twins

Check = Callable[[SweepPaths, Change], None]  # refuses a change before it is written

MAX_RUNS = 10**8
"""The most runs of a sweep: a table of them fits into memory, and any group's rows into 31 bits."""


def plan_change(sweep_file: Path, directory: Path, settings: Sequence[str] = ()) -> Change:
    """Return what planning `sweep_file` into `directory` would do, without writing anything.

    `settings`: values that replace the file's (`grids.settings.with_settings`).
    """
    paths = SweepPaths(directory)
    own = own_code(sweep_file, paths)
    if paths.cells.is_file():
        before, groups = Plan.read(paths), Groups.read(paths)
    else:
        before, groups = Plan.empty(), Groups()
    asked = _expanded(sweep_file, settings, own, before, directory)
    if not paths.cells.is_file():
        _check_free(directory)
    return restoring(paths, _change(sweep_file, paths, asked, before, groups, own))


def planned_again(paths: SweepPaths, before: Plan, groups: Groups) -> Change:
    """Return what planning a sweep's own file on top of `before` would do; no code is tried."""
    file = paths.sweep_file
    own = OwnCode.beside(file, read_pins(paths), paths.directory).as_planned()
    asked = _expanded(file, (), own, before, paths.directory)
    return _change(file, paths, asked, before, groups, own)


def _expanded(
    file: Path, settings: Sequence[str], own: OwnCode, before: Plan, directory: Path
) -> tuple[SweepFile, bytes, Expansion]:
    """Load a file and expand it; what has changed of planned data is told before code fails on it.

    `settings`: as `plan_change`.
    """

    def use(sweep: SweepFile) -> Expansion:
        sources = {name: table.source for name, table in sweep.dataset.items()}
        try:
            return expand(
                sweep,
                file,
                own,
                lambda found: require_same_files(before, found, sources, file, directory),
            )
        except UserError as error:
            raise why_refused(error, before, sources, file, directory, own) from None

    return load_and_use(file, settings, use)


def _change(
    sweep_file: Path,
    paths: SweepPaths,
    loaded: tuple[SweepFile, bytes, Expansion],
    before: Plan,
    groups: Groups,
    own: OwnCode,
) -> Change:
    """Return what a file, as loaded and expanded, changes in a plan with these groups."""
    sweep, text, expansion = loaded
    # groups without a cell are left over from an interrupted planning
    groups = Groups(groups.specs[: len(before.groups)])
    _check_size(expansion, sweep_file)
    held = before.all_cells.select("cell_id", "cell", "group")
    asked = expansion.cells.join(held, on="cell_id", how="left", maintain_order="left")
    asked, twins = _merge_twins(asked, before, expansion, sweep_file)
    expansion = replace(expansion, cells=asked.select(expansion.cells.columns))
    asked = asked.filter(~pl.col("cell").is_in(before.dropped.implode()).fill_null(False))
    check_kept(before, asked, sweep_file)
    expansion = expansion.with_names_of(before.all_cells)
    groups = extended(groups, asked, sweep, expansion, sweep_file)
    _check_analysis(sweep, groups, sweep_file)
    after, added = _extend(before, asked, expansion, groups)
    _check_configurations(after, sweep_file)
    _check_given(sweep, after, sweep_file)
    observed = observed_seconds(paths, before, groups)
    return Change(sweep, text, expansion, twins, before, after, added, groups, observed, own.used)


def plan_sweep(
    sweep_file: Path, directory: Path, settings: Sequence[str] = (), require: Check | None = None
) -> Change:
    """Plan `sweep_file` into `directory`; an interrupted planning changes nothing.

    `sweep_file`, `directory` and `settings`: as `plan_change`. `require`: a further check.
    """
    paths = SweepPaths(directory)
    try:
        if paths.cells.is_file():
            with locked(paths.lock, "planning") as lease:
                change = _ready(sweep_file, directory, settings, require)
                _write(paths, change, lease.check)
        else:
            change = _ready(sweep_file, directory, settings, require)
            try:
                with appearing(directory) as new:
                    _write(new, change)
            except UserError:
                if not paths.cells.is_file():
                    raise
                # it was not there when this began
                again = f"{directory}: another process has planned it meanwhile"
                raise UnavailableError(f"{again}\n  repeat the command") from None
    except OSError as error:
        raise UnavailableError(f"cannot write {directory}: {error}") from None
    return change


def _ready(file: Path, directory: Path, settings: Sequence[str], require: Check | None) -> Change:
    """Return a change that can be written: there is room, and classifiers are prepared."""
    change = plan_change(file, directory, settings)
    if require is not None:
        require(SweepPaths(directory), change)
    require_room(change, file, directory)
    for model in change.expansion.classifiers.values():
        try:
            prepare(model)
        except Refused as error:
            key = f"classifier.{toml_key(model.name)}.{error.option}"
            raise refused(error, file=file, key=key) from None
    return change


def require_room(change: Change, file: Path, directory: Path) -> None:
    """Refuse a change whose predictions do not fit on the directory's disk."""
    check_room(directory, change.stored_before, change.stored, file)


def _write(paths: SweepPaths, change: Change, check: Callable[[], None] | None = None) -> None:
    """Write a plan so that a kill in between leaves either the old plan or the new one.

    `check` is called before each file takes its place; an exception from it stops the writing.
    """
    write_pins(paths, change.own, check)
    cells_differ = not change.after.all_cells.equals(change.before.all_cells)
    if cells_differ:
        change.groups.write(paths, check)
    if cells_differ or not change.is_empty:
        write_plan(paths, change.after, new_part=not change.is_empty, before_rename=check)
    if not change.is_empty:
        change.estimated().write(paths, check)
    if not paths.sweep_file.exists() or paths.sweep_file.read_bytes() != change.text:
        place(paths.sweep_file, change.text, check)


def _check_free(directory: Path) -> None:
    if lost := SweepPaths(directory).lost:
        raise DamagedFile(lost, "is absent")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(
            "exists and is not a sweep directory",
            file=directory,
            remedy="name another with --out DIR",
        )


def _check_size(expansion: Expansion, file: Path) -> None:
    if expansion.runs > MAX_RUNS:
        raise UserError(
            f"{expansion.runs:,} runs in {len(expansion.cells):,} cells; a sweep holds up to "
            f"{MAX_RUNS:,}",
            file=file,
            key="grid",
            remedy="lower repeats or runs, shorten lists, or split it into several sweeps",
        )


def _check_configurations(after: Plan, file: Path) -> None:
    if (configurations := after.all_cells["hparams"].n_unique()) > MAX_CONFIGURATIONS:
        raise UserError(
            f"with those already planned, {configurations:,} values of hparams; a sweep holds up "
            f"to {MAX_CONFIGURATIONS:,}",
            file=file,
            key="grid.hparams",
            remedy="shorten lists of hparam grids, or split it into several sweeps",
        )


def _check_given(sweep: SweepFile, after: Plan, file: Path) -> None:
    """Refuse hparams in ``response.given`` that no hparam grid varies."""
    given = (sweep.response and sweep.response.given) or []
    columns = with_anchors(after.cells).columns if given else []
    varied = [name.removeprefix(PREFIX) for name in columns if name.startswith(PREFIX)]
    for name in given:
        if name not in varied:
            raise UserError(
                "no hparam grid varies it",
                file=file,
                key="response.given",
                value=name,
                remedy=f"those that vary: {', '.join(varied)}; by default all are given"
                if varied
                else "leave it out",
            )


def _check_analysis(sweep: SweepFile, groups: Groups, file: Path) -> None:
    """Refuse analysis conventions that these groups could not follow once trained."""
    stated = sweep.analysis.model_dump(exclude={"metrics"})
    try:
        options = Options(**{name: value for name, value in stated.items() if value is not None})
        require_snapshots(options, groups.specs)
    except NoAnalysis as error:
        raise refused(error, file=file, key=f"analysis.{error.option}") from None


def _merge_twins(
    asked: pl.DataFrame, before: Plan, expansion: Expansion, file: Path
) -> tuple[pl.DataFrame, tuple[Twin, ...]]:
    """Return the requested cells, with those that are the same fits merged, and these twins."""
    planned = before.all_cells.join(before.extents, on="cell", how="left", maintain_order="left")
    n_train = {name: info.n_train for name, info in expansion.datasets.items()}
    try:
        return merge_twins(asked, planned, before.dropped, n_train)
    except Torn as error:
        names = ["dataset", "classifier", *SETTING_APART]
        shown, other = (
            ", ".join(f"{axis} = {toml_value(row[axis])}" for axis in names)
            for row in (error.one, error.other)
        )
        raise UserError(
            f"cells are the same fits ({shown}; {other}), one is asked for with more repeats, "
            "the other with more runs",
            file=file,
            key="grid",
            remedy="let one of them ask for at least as many of both, or leave the other out",
        ) from None


def _extend(
    before: Plan, asked: pl.DataFrame, expansion: Expansion, groups: Groups
) -> tuple[Plan, pl.DataFrame]:
    """Return the extended plan, and its new runs with their rows."""
    asked = _with_devices(asked, expansion)
    new = asked.filter(pl.col("cell").is_null())
    first = len(before.all_cells)
    key = [*PAIR, "method"]
    new = new.with_columns(METHOD)
    names = new.select(key).unique(maintain_order=True)
    described = names.with_columns(
        [
            pl.Series(column, values, dtype=CELLS[column])
            for column, values in _group_columns(names, expansion, groups).items()
        ]
    )
    cells = (
        new.drop("cell", "group")
        .join(described, on=key, maintain_order="left")
        .with_columns(
            cell=pl.int_range(first, first + len(new), dtype=pl.UInt32),
            part=pl.lit(len(before.parts) + 1, dtype=pl.UInt32),
        )
    )
    devices = asked.drop_nulls("cell").select("cell", "device", "core_seconds")
    held = before.all_cells.update(devices, on="cell", how="left")
    after = pl.concat([held, cells.select(*CELLS)])
    extents = pl.concat(
        [
            frame.select("group", "cell", "repeats", "runs")
            for frame in (asked.filter(pl.col("cell").is_not_null()), cells)
        ]
    )
    shard_lengths = {spec.number: spec.shard_length for spec in groups.specs}
    blocks = missing_blocks(extents, before.extents)
    added = assign_rows(blocks, before.lengths, shard_lengths)
    parts = before.parts if added.is_empty() else (*before.parts, added.drop("group"))
    return Plan(after, parts, before.dropped), added


def _group_columns(
    names: pl.DataFrame, expansion: Expansion, groups: Groups
) -> dict[str, list[object]]:
    """Return the columns that follow from a cell's dataset, classifier and method."""
    columns: dict[str, list[object]] = {name: [] for name in ("group", "path", "snapshots")}
    for dataset, classifier, ensembling in names.iter_rows():
        spec = groups.find(dataset, classifier, ensembling)
        assert spec is not None
        columns["group"].append(spec.number)
        columns["path"].append(spec.path)
        snapshots = expansion.classifiers[classifier, dataset].snapshots
        columns["snapshots"].append(list(snapshots if spec.method == NONE else spec.epochs))
    return columns


def _with_devices(asked: pl.DataFrame, expansion: Expansion) -> pl.DataFrame:
    """Add the columns device and core_seconds, which are not part of a cell's identity."""
    by = ["dataset", "classifier", "hparams", "train_fraction", *LATER]
    sizes = asked.group_by(by).agg(pl.col("canonical").first())
    devices, times = [], []
    cells = [Cell.from_text(text) for text in sizes["canonical"]]
    named = sizes.select("dataset", "classifier", "hparams", "train_fraction").iter_rows()
    for (dataset, classifier, hparams, fraction), cell in zip(named, cells, strict=True):
        data, model = expansion.datasets[dataset], expansion.classifiers[classifier, dataset]
        model = model.at(hparams) if is_written(hparams) else model
        rows = fraction if fraction > 1 else fraction * data.n_train
        devices.append(model.device)
        times.append(
            core_seconds(data, model, rows, cell.augment, cell.ensembling, cell.test_augment)
        )
    described = sizes.drop("canonical").with_columns(
        pl.Series("device", devices, dtype=pl.String),
        pl.Series("core_seconds", times, dtype=pl.Float64),
    )
    return asked.join(described, on=by, how="left", maintain_order="left")


MARK = "\n# ---- added by manyseed howmany --until: cells that need more runs\n"
"""A line of the sweep file: everything below it is rewritten whenever cells grow."""


def grow(
    paths: SweepPaths, runs: Mapping[int, int], require: Check, *, dry_run: bool = False
) -> Change:
    """Plan more runs of cells and change nothing else.

    `runs`: how many runs each of these cells shall have on each test set. `require`: a further
    check of the change. `dry_run`: whether to return the change without writing it.
    """
    plan = Plan.read(paths)
    planned = plan.cells.join(plan.extents, on="cell").sort("cell")
    text = load_sweep_file(paths.sweep_file)[1].decode("utf-8-sig")
    written = text.partition(MARK)[0].rstrip()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / paths.sweep_file.name
        file.write_text(written)
        alone = expand(load_sweep_file(file)[0], paths.sweep_file, own_code(file, paths)).cells
        grids = _grids(planned, alone.select("cell_id", "repeats", "runs"), runs)
        file.write_text(f"{written}\n{MARK}\n" + "\n".join(grids))
        change = plan_change(file, paths.directory)
        if not change.added["cell"].is_in(list(runs)).all():
            raise UserError(
                "asks for runs that are not planned yet",
                file=paths.sweep_file,
                remedy="plan them first: "
                + command("plan", paths.sweep_file, "--out", paths.directory),
            )
        if dry_run:
            require(paths, change)
            return change
        return plan_sweep(file, paths.directory, require=require)


def _grids(planned: pl.DataFrame, alone: pl.DataFrame, runs: Mapping[int, int]) -> Iterator[str]:
    """Yield a grid for each cell that has, or shall have, more runs than the user asked for."""
    both = planned.join(
        alone, on="cell_id", how="left", suffix="_alone", maintain_order="left"
    ).with_columns(pl.col("repeats_alone", "runs_alone").fill_null(0))
    for row in both.iter_rows(named=True):
        wanted = max(runs.get(row["cell"], 0), row["runs"])
        if wanted > row["runs_alone"]:
            values = {axis: row[axis] for axis in AXES}
            if values["train_fraction"] > 1:  # a number of points
                values["train_fraction"] = int(values["train_fraction"])
            lines = [f"{axis} = [{toml_value(value)}]" for axis, value in values.items()]
            repeats = max(row["repeats"], row["repeats_alone"])
            more = [f"repeats = {repeats}", f"runs = {wanted}", ""]
            yield "\n".join(["[[grid]]", *lines, *more])


def plan_objects(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    directory: str | Path | None,
    options: Mapping[str, Any],
    grid: Mapping[str, Any],
    check: Callable[[Path], None],
    require: Check | None = None,
    **numbers: Any,
) -> Path:
    """Plan an estimator, described as in a sweep file, and prepare its data.

    `estimator`, `X`, `y` and `groups`: as in `orchestrator.sweep.Sweep.of`. `directory`: by default
    ``sweep-NAME``, after the estimator's class. `options` and `grid`: further keys of the
    classifier's table and of the grid. `check`: called with the sweep's directory before data are
    written or code is tried. `require`: a further check of the change to the plan. ``**numbers``:
    seed, repeats, runs and test.

    Returns the sweep's directory.
    """
    objects.require_guard()
    names = objects.classifiers_in(estimator)
    if names and "seeds" in options:
        raise UserError(
            "is for estimators of your own; classifiers of manyseed get their seeds by themselves",
            key="options.seeds",
        )
    if len(names) > 1 and options:
        raise UserError(
            f"belong to one classifier, but {len(names)} are named",
            key="options",
            remedy='give one, such as estimator="xgb", or write a sweep file for Sweep.plan',
        )
    own = {} if names else objects.table_of(estimator, "estimator")
    table: dict[str, Any] = {**own, **options}
    name = "-".join(names) or table["estimator"].rpartition(":")[2].rpartition(".")[2]
    target = Path(f"sweep-{name}" if directory is None else directory)
    check(target)
    data = objects.keep_data(X, y, groups)
    text = objects.sweep_text(
        name, table, data, names, grid=grid, is_grouped=groups is not None, **numbers
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.toml"
        file.write_text(text)
        try:
            change = plan_sweep(file, target, require=require)
        except UserError as error:
            raise of_arguments(error, file) from None
        fetch_datasets(change.expansion.datasets)
        if (rows := objects.row_names(X)) is not None:
            for info in change.expansion.datasets.values():
                cache.name_rows(rows, info.canonical, cache.data_home())
    warn_of_objects(change)
    return target
