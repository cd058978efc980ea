"""What further runs share with the sweep that they are added to: numbers in names, true classes."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from manyseed.analysis.counts import some
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.filenames import is_of_runs
from manyseed.orchestrator.importing.frames import read_frame
from manyseed.orchestrator.importing.mapping import is_named
from manyseed.orchestrator.importing.matching import classes_of, imported_plan
from manyseed.orchestrator.importing.predictions import PredictionFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.ids import ids_of
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.testsets import truth

_SHOWN = 5
_END = re.compile("[0-9]+$")


def with_numbers(
    sources: Sequence[PredictionFile], given: Sequence[Path], directory: Path
) -> list[PredictionFile]:
    """Return runs with the numbers in their files' names, if the sweep's have numbers of their own.

    Those of a sweep do if they are others than 0, 1, …; else what keeps the numbers is told.
    `given`: all files, in the order of the runs.
    """
    if len(sources) == 1:  # tables have one name together
        return [_with_number(sources[0], given, directory)]
    return [_with_number(one, one.files, directory) for one in sources]


def _with_number(source: PredictionFile, files: Sequence[Path], directory: Path) -> PredictionFile:
    stems = [file.stem for file in files]
    if source.numbered or len(source.runs) != len(stems):
        return source
    if not all(stem.isdecimal() or is_of_runs(stem) for stem in stems):
        return source
    numbers = [int(found[0]) for stem in stems if (found := _END.search(stem))]
    plan, _ = imported_plan(SweepPaths(directory))
    rows = plan.all_rows.join(plan.all_cells.drop("group"), on="cell")
    rows = rows.filter(pl.col("dataset") == source.dataset)
    own = rows.filter(pl.col("classifier") == source.classifier)
    held = {*(rows if own.is_empty() else own)["run"].to_list()}
    taken = set() if own.is_empty() else held
    first = max(taken, default=-1) + 1
    given = [*range(first, first + len(numbers))]
    if numbers == given or len({*numbers}) < len(numbers) or taken & {*numbers}:
        return source
    shown = some([file.name for file in files], _SHOWN)
    are, their = ("are", "their") if len(numbers) > 1 else ("is", "its")
    says = "names say" if len(numbers) > 1 else "name says"
    runs = "runs" if len(numbers) > 1 else "run"
    if held == {*range(len(held))}:
        (form, *others) = {_END.sub("{run}", file.stem) + file.suffix for file in files}
        keep = "" if others else f" To keep {their} numbers: --name {shlex.quote(form)}"
        if len(numbers) == 1:
            keep = keep.replace("numbers", "number")
        warn(f"{shown} {are} added as {runs} {some([*map(str, given)], _SHOWN)}.{keep}")
        return source
    told = some([*map(str, numbers)], _SHOWN)
    warn(f"{shown} {are} added as {runs} {told}, as {their} {says}.")
    column = pl.Series("run", numbers, dtype=source.runs["run"].dtype)
    return replace(source, runs=source.runs.with_columns(column), numbered=True)


def truth_of_sweep(
    directory: Path, dataset: str, files: Iterable[Path], said: Collection[str], stack: ExitStack
) -> Path | None:
    """Return a table of the sweep's true classes by an id that all files have, if they lack theirs.

    `said`: the columns that a user names. `stack`: removes the table in the end.
    """
    paths = SweepPaths(directory)
    plan, _ = imported_plan(paths)
    y_true, index = truth(dataset, list_groups(paths.store))
    if len(y_true) != 1 or {"truth", "correct"} & {*said}:
        return None
    ids = ids_of(paths, plan, dataset)
    numbers = pl.Series(index[0])
    points = numbers.cast(pl.String) if ids is None else ids.gather(numbers)
    known = {*points.to_list()}
    shared: set[str] | None = None
    with suppress(UserError, OSError):  # their reader tells
        for file in files:
            frame = read_frame(file, read_frame(file, ()).columns)
            if {"truth", "correct"} & {*frame.columns}:
                return None
            held = {
                one.name
                for one in frame.cast(pl.String)
                if (ids is not None or (is_named(one.name, "row_id") and one.name != "index"))
                and one.n_unique() == len(one) == len(known)
                and {*one} == known
            }
            shared = held if shared is None else shared & held
        if not shared:
            return None
        names = np.array(classes_of(directory, dataset))
        table = pl.DataFrame({min(shared): points, "y_true": names[y_true[0]]})
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        table.write_parquet(folder / "y_true.parquet")
        return folder / "y_true.parquet"
    return None


def order_of_sweep(directory: Path, dataset: str | None, stack: ExitStack) -> Path | None:
    """Return a file of the sweep's true classes, if points have no names but their places.

    `dataset`: by default the only one. `stack`: removes the file in the end.
    """
    plan, _ = imported_plan(SweepPaths(directory))
    names = plan.cells["dataset"].unique().to_list()
    if dataset is None and len(names) == 1:
        (dataset,) = names
    if dataset is None or dataset not in names:
        return None
    y_true, index = truth(dataset, list_groups(SweepPaths(directory).store))
    n = y_true.shape[1]
    if len(y_true) != 1 or ids_of(SweepPaths(directory), plan, dataset) is not None:
        return None
    if not np.array_equal(index[0], np.arange(n)):
        return None
    classes = classes_of(directory, dataset)
    are_numbers = [*classes] == [str(one) for one in range(len(classes))]
    file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "y_true.npy"
    np.save(file, y_true[0] if are_numbers else np.array(classes)[y_true[0]])
    return file
