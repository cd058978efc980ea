"""Runs by address, ``CELL:REPEAT:RUN``: what defines one, what is stored, training it again.

A run that is trained again is compared with the stored predictions; its model may be written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.jobs import whole
from manyseed.jobs.classifiers.registry import is_own
from manyseed.jobs.own.calling import CommandError
from manyseed.jobs.packages import install
from manyseed.jobs.parameters import READ, endings, lacking, saving
from manyseed.jobs.run import MachineError, Run
from manyseed.jobs.trainer import Trainer, block_of, made, run_hparams, stream_keys
from manyseed.jobs.training.handling import AfterTraining, Alive, Handling
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import (
    DamagedFile,
    ManyseedError,
    RunsError,
    UnavailableError,
    UserError,
    command,
    first_line,
)
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import forget_code, remedy, timeout_of, use_code
from manyseed.orchestrator.plans.keptmodels import conditions, with_models
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.searches import SCALE_NAME, NotSearched, fitted, searched
from manyseed.orchestrator.provenance import BF16, FLOAT32, Recipe, read_recipe, require_bf16
from manyseed.orchestrator.store.arrays import NO_RECIPE, STATUSES
from manyseed.orchestrator.store.groups import find_group, open_group
from manyseed.orchestrator.store.journal import encode_row
from manyseed.orchestrator.store.reader import read_rows
from manyseed.orchestrator.store.schema import GroupSpec


@dataclass(frozen=True)
class PlannedRun:
    """A run of a plan.

    `run`: the run as it is trained. `cell` and `cell_id`: the cell's number in the plan, and its
    identity. `axes`: the cell's levels of `AXES`. `is_identical`: whether all runs of a repeat are
    the same fit. `snapshots`: epochs whose predictions are kept. `spec`: the group that stores it.
    `row`: its row in the group.
    """

    run: Run
    cell: int
    cell_id: str
    axes: Mapping[str, object]
    is_identical: bool
    snapshots: tuple[int, ...]
    spec: GroupSpec
    row: int

    @property
    def fitted(self) -> Run:
        """The run that is fitted for this one: the first of its repeat if all are identical."""
        return Run(self.run.cell, self.run.repeat, 0) if self.is_identical else self.run

    @property
    def keeps_model(self) -> bool:
        """Whether its parameters are kept, provided that its group stores parameters."""
        where = conditions([self.spec])
        cells = pl.DataFrame([{"cell": self.cell, "identical": self.is_identical, **self.axes}])
        row = (self.spec.number, self.cell, self.run.repeat, self.run.run)
        rows = pl.DataFrame([row], schema=["group", "cell", "repeat", "run"], orient="row")
        return bool(with_models(cells, rows, where).item())


def find_run(paths: SweepPaths, address: str, *, key: str = "RUN") -> PlannedRun:
    """Return the run at an address.

    `address`: ``CELL:REPEAT:RUN``: a cell's number or the first digits of its identity, then the
    repeat and the run, counted from 0. `key`: what errors name it by.
    """
    match = re.fullmatch(r"([0-9a-f]{1,64}):([0-9]{1,9}):([0-9]{1,9})", address)
    if match is None:
        raise UserError(
            "not of the form CELL:REPEAT:RUN",
            key=key,
            value=address,
            remedy="a cell's number or the first digits of its identity, then the repeat and the "
            "run, counted from 0: 12:0:3",
        )
    plan = Plan.read(paths)
    cell = _cell(plan, match[1], address, key)
    number, repeat, run = cell["cell"].item(), int(match[2]), int(match[3])
    rows = plan.rows.filter(cell=number, repeat=repeat, run=run)
    if rows.is_empty():
        of = plan.rows.filter(cell=number)
        repeats, runs = (of[name].to_numpy() for name in ("repeat", "run"))
        raise UserError(
            f"the plan has no such run: cell {number} has repeats 0 to {repeats.max()} and runs "
            f"{runs.min()} to {runs.max()}",
            key=key,
            value=address,
        )
    return PlannedRun(
        Run(plan.cell(number), repeat, run),
        number,
        cell["cell_id"].item(),
        cell.select(AXES).row(0, named=True),
        cell["identical"].item(),
        tuple(cell["snapshots"].item()),
        Groups.read(paths).specs[cell["group"].item()],
        rows["row"].item(),
    )


def _cell(plan: Plan, text: str, address: str, key: str) -> pl.DataFrame:
    """Return the row of the plan's cells that the text identifies."""
    cells = plan.cells.filter(pl.col("cell_id").str.starts_with(text))
    if text.isdecimal() and int(text) < len(plan.all_cells):
        cells = plan.cells.filter(pl.col("cell") == int(text))
    if len(cells) != 1:
        remedy = f"cells have the numbers 0 to {len(plan.all_cells) - 1}"
        if len(cells):
            remedy = f"give more digits: {', '.join(cells['cell_id'].head(5))}"
        what = f"{len(cells)} cells begin with {text}" if len(cells) else f"there is no cell {text}"
        raise UserError(what, key=key, value=address, remedy=remedy)
    return cells


def show(paths: SweepPaths, address: str) -> dict[str, object]:
    """Return what defines a run, what it is fitted with, and how it was made."""
    planned = find_run(paths, address)
    asked, was_made = planned.run.cell, stored(paths, planned)
    cell = asked
    try:
        cell = fitted(paths, asked)
    except NotSearched as error:
        if was_made.status != "missing":
            raise error.though_trained() from None
    open_search = cell.has_search
    known = searched(asked, cell) or {}
    scale = {name: value for name, value in known.items() if name == SCALE_NAME}
    return {
        "cell": planned.cell,
        "cell_id": planned.cell_id,
        "repeat": planned.run.repeat,
        "run": planned.run.run,
        **planned.axes,
        "identical": planned.is_identical,
        "description": planned.run.cell.canonical(),
        "fitted_with": None
        if open_search
        else {**run_hparams(replace(planned.fitted, cell=cell)), **scale},
        "streams": stream_keys(planned.fitted),
        **_saved(paths, planned),
        "stored": {"group": planned.spec.path, "row": planned.row, **was_made.to_json()},
    }


def _saved(paths: SweepPaths, planned: PlannedRun) -> dict[str, object]:
    """Return how to save the run's model and load it again; empty if it cannot be saved."""
    known = endings(planned.run.cell.classifier)
    if not known or planned.run.cell.ensembling is not None:
        return {}
    address = f"{planned.cell}:{planned.run.repeat}:{planned.run.run}"
    file = f"model{known[0]}"
    return {
        "model": {
            "save": command("rerun", paths.directory, address, "--save", file),
            "load": READ[known[0]].replace("FILE", repr(file)),
        }
    }


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What the store holds about a run: its status and, once published, how it was made."""

    status: str = "missing"  # done, copy or missing
    crc32c: int = 0  # the checksum of its row
    fit_seconds: float | None = None
    recipe: Recipe | None = None
    recipe_unknown: str = ""  # why the recipe is unknown, if it is lost

    def to_json(self) -> dict[str, object]:
        """Return this as JSON values; only the status if the run is missing."""
        if self.status == "missing":
            return {"status": self.status}
        value = asdict(self) | {"recipe": self.recipe and self.recipe.to_json()}
        if not self.recipe_unknown:
            del value["recipe_unknown"]
        return value


def stored(paths: SweepPaths, planned: PlannedRun) -> StoredRun:
    """Return what the store holds about a run."""
    group = find_group(paths.store, planned.spec)
    if group is None or planned.row >= group.rows:
        return StoredRun()
    values = read_rows(group, ("status", "recipe", "fit_seconds", "crc"), [planned.row])
    status = {code: name for name, code in STATUSES.items()}.get(int(values["status"][0]))
    if status not in ("done", "copy"):
        return StoredRun()
    recipe, took = int(values["recipe"][0]), float(values["fit_seconds"][0])
    made = StoredRun(status, int(values["crc"][0]), took if np.isfinite(took) else None)
    if recipe == NO_RECIPE:
        return made
    try:
        return replace(made, recipe=read_recipe(paths.recipes, recipe))
    except DamagedFile as error:
        return replace(made, recipe_unknown=f"{error.file}: {error.reason}")


class Differences(TypedDict):
    """How a run that was trained again compares with its stored predictions."""

    same_recipe: bool
    recipe_changes: dict[str, list[object]]  # the old and the new value, by name
    equal: bool  # bit for bit
    labels: int  # number of labels compared: points times epochs
    labels_differ: int
    largest_difference: float | None
    """The largest difference of scores or margins; None if only labels are kept."""
    recipe_unknown: NotRequired[str]
    """What is wrong with the file of its recipe, if that is damaged or lost."""


@dataclass(frozen=True, slots=True)
class Again:
    """A run that was trained again, with its model if that was asked for."""

    comparison: Differences
    model: Alive | None = None


def rerun(paths: SweepPaths, address: str, save: Path | None = None) -> Differences:
    """Train a run again on this machine's CPU, and compare.

    `save`: a new file for the model, outside the sweep; the ending of its name selects the form
    (`jobs.parameters`).
    """
    planned = find_run(paths, address)
    was_made = published(paths, planned, address)
    if save is not None:
        require_saved(planned.run, save)
        if save.exists():
            remedy = "remove it or choose another name"
            raise UserError("exists already", file=save, remedy=remedy)
    again = train_again(paths, planned, was_made, Trainer(), keep=save is not None)
    if save is not None and again.model is not None:
        write_model(again.model, save)
    return again.comparison


def published(paths: SweepPaths, planned: PlannedRun, address: str) -> StoredRun:
    """Return what the store holds about a run that can be trained again."""
    was_made = stored(paths, planned)
    if was_made.status not in ("done", "copy"):
        raise UserError(
            "this run is not published yet",
            key="RUN",
            value=address,
            remedy=f"train it with: {command('resume', paths.directory)}; or, if it is finished, "
            f"publish it with: {command('verify', paths.directory, '--compact')}",
        )
    if was_made.recipe is not None and was_made.recipe.form == "imported":
        raise UserError("these predictions were made elsewhere", key="RUN", value=address)
    return was_made


def train_again(
    paths: SweepPaths, planned: PlannedRun, was_made: StoredRun, trainer: Trainer, *, keep: bool
) -> Again:
    """Train a run again.

    `was_made`: as returned by `published`. `trainer`: keeps data between calls. `keep`: whether to
    return the model, too.
    """
    address = f"{planned.cell}:{planned.run.repeat}:{planned.run.run}"
    run, models = planned.fitted, list[Alive]()
    if was_made.recipe_unknown and is_own(run.cell.classifier):
        unknown = f"{was_made.recipe_unknown}\n  which code of yours made {address} is unknown"
        raise UnavailableError(unknown)
    members = (was_made.recipe and was_made.recipe.members) or 1
    precision = BF16 if was_made.recipe and was_made.recipe.precision == BF16 else FLOAT32
    digests = [*((was_made.recipe and was_made.recipe.own) or {}).values()]
    try:
        if precision == BF16:
            require_bf16(on_gpu=False)
        run = replace(run, cell=fitted(paths, run.cell))
        for code in digests:
            use_code(paths, code, run.cell.classifier)
        handling = Handling(
            planned.snapshots,
            curves=planned.spec.curves,
            measures=planned.spec.measures_of(models=planned.keeps_model),
            response=planned.spec.asked,
            timeout=timeout_of(paths, str(planned.axes["classifier"]), run.cell.classifier),
            precision=precision,
        )
        if keep:
            handling = replace(
                handling, response=None, after_training=_keeping(trainer, run, planned.spec, models)
            )
        y_true = trainer.test_set(run.cell, run.repeat).y_true
        block = block_of(run, members)
        if len(block) == 1:
            prediction = trainer.train(run, handling)
        else:
            prediction = made(trainer.train_stack(block, {run.run: handling})[run.run])
    except MachineError as error:
        raise UnavailableError(f"{error}{remedy(error, paths)}") from None
    except ManyseedError:
        raise
    except Exception as error:  # users' code may raise anything
        what = str(error) if isinstance(error, CommandError) else first_line(error)
        kind = "" if isinstance(error, CommandError) else f"{type(error).__name__}: "
        raise RunsError(f"this time the fit of {address} fails: {kind}{what}") from error
    finally:
        for code in digests:
            forget_code(paths, code)
    again = encode_row(planned.spec, prediction, y_true)
    names = ["label", *([planned.spec.score_name] if planned.spec.score_name else [])]
    before = read_rows(open_group(paths.store, planned.spec.path), names, [planned.row])
    label = np.frombuffer(again.label, before["label"].dtype)
    largest = None
    if planned.spec.score_name is not None:
        scores = before[planned.spec.score_name].ravel().astype(np.float64)
        now = np.frombuffer(again.score, before[planned.spec.score_name].dtype).astype(np.float64)
        largest = float(np.abs(scores - now).max())
    changes = (was_made.recipe or Recipe()).changes(Recipe.here().of_form(members, precision))
    comparison: Differences = {
        "same_recipe": not changes,
        "recipe_changes": {name: list(pair) for name, pair in changes.items()},
        "equal": again.crc == was_made.crc32c,
        "labels": len(label),
        "labels_differ": int((label != before["label"].ravel()).sum()),
        "largest_difference": largest,
    }
    if was_made.recipe_unknown:
        comparison["recipe_unknown"] = was_made.recipe_unknown
    return Again(comparison, models[0] if models else None)


def write_model(model: Alive, file: Path) -> None:
    """Write a model to a file atomically."""
    write = saving(model, file.suffix)
    with unavailable("write", file):
        whole.place(file, write)


def require_saved(run: Run, file: Path) -> None:
    """Refuse a file that cannot hold a run's model, before anything is trained."""
    known = endings(run.cell.classifier)
    name = run.cell.classifier["name"]
    if not known or run.cell.ensembling is not None:
        what = f"models of {name}" if run.cell.ensembling is None else "several members of a run"
        raise UserError(f"{what} cannot be saved", key="--save", value=str(file))
    if file.suffix not in known:
        forms = " or ".join(f"{ending} (read by {READ[ending]})" for ending in known)
        raise UserError(
            f"models of {name} are saved in another form",
            key="--save",
            value=str(file),
            remedy=f"let the name end with {forms}",
        )
    if (package := lacking(file.suffix)) is not None:
        raise UserError(
            f"{package} is not installed",
            key="--save",
            value=str(file),
            remedy=install([package]),
        )


def _keeping(trainer: Trainer, run: Run, spec: GroupSpec, models: list[Alive]) -> AfterTraining:
    """Return a function that keeps a trained model and measures what its group stores."""

    def after(alive: Alive) -> Mapping[str, NDArray[Any]]:
        models.append(alive)
        return {} if spec.asked is None else trainer.answering(run, spec.asked)(alive)

    return after


@dataclass(frozen=True, slots=True)
class Rerun:
    """The outcome of training a run again."""

    address: str  # CELL:REPEAT:RUN
    comparison: Differences | None = None  # none if it was not trained
    file: Path | None = None  # the file of its model
    was_there: bool = False  # whether the file existed before, so that nothing was trained
    problem: str = ""  # why there is no comparison or no file; empty if all is well

    def to_json(self) -> dict[str, object]:
        """Return the outcome as JSON values."""
        return {
            "address": self.address,
            **(self.comparison or {}),
            "file": None if self.file is None else str(self.file),
            "was_there": self.was_there,
            "load": None if self.file is None else READ[self.file.suffix],
            "problem": self.problem or None,
        }


def rerun_each(
    paths: SweepPaths,
    addresses: Sequence[str],
    folder: Path | None = None,
    *,
    overwrite: bool = False,
    other_recipe: bool = False,
    tell: Callable[[Rerun, int], None] = lambda one, of: None,
) -> list[Rerun]:
    """Train runs again on this machine's CPU, one after the other.

    A run that fails, differs or cannot be saved does not affect the others.

    `addresses`: CELL:REPEAT:RUN. `folder`: the folder for their models, each in a file
    ``CELL-REPEAT-RUN`` with the ending of its form (`jobs.parameters.endings`). A model is written
    only if its predictions match the stored ones: bit for bit with the same recipe, else in their
    labels.
    `overwrite`: whether to train runs whose file exists again; otherwise they are skipped.
    `other_recipe`: whether to write models that have another recipe than the stored predictions
    even if labels differ. `tell`: called with each outcome as soon as a run is done, and the total
    number of runs.
    """
    if folder is not None:
        _require_folder(folder)
    done = []
    for outcome in _each(paths, addresses, folder, overwrite, other_recipe):
        tell(outcome, len(addresses))
        done.append(outcome)
    return done


def _each(
    paths: SweepPaths,
    addresses: Sequence[str],
    folder: Path | None,
    overwrite: bool,
    other_recipe: bool,
) -> Iterator[Rerun]:
    trainer = Trainer()
    for address in addresses:
        try:
            planned = find_run(paths, address)
            was_made, file = published(paths, planned, address), None
            if folder is not None:
                ending = next(iter(endings(planned.run.cell.classifier)), "")
                file = folder / f"{address.replace(':', '-')}{ending}"
                require_saved(planned.run, file)
                if file.exists() and not overwrite:
                    yield Rerun(address, file=file, was_there=True)
                    continue
            again = train_again(paths, planned, was_made, trainer, keep=file is not None)
        except ManyseedError as error:
            yield Rerun(address, problem=getattr(error, "what", str(error)))
            continue
        problem = "" if file is None else _differs(again.comparison, other_recipe)
        if file is not None and again.model is not None and not problem:
            write_model(again.model, file)  # a disk that refuses stops all runs
            yield Rerun(address, again.comparison, file)
        else:
            yield Rerun(address, again.comparison, problem=problem)


def _differs(comparison: Differences, other_recipe: bool) -> str:
    """Return why a model does not match the stored predictions; empty if it does."""
    n_differ = comparison["labels_differ"]
    labels = f"{n_differ:,} of {comparison['labels']:,} labels"
    if comparison["same_recipe"]:
        what = f"{labels}, or scores, differ from those stored, with the same recipe"
        return "" if comparison["equal"] else what
    if not n_differ or other_recipe:
        return ""
    changed = ", ".join(comparison["recipe_changes"])
    return (
        f"{labels} differ from those stored with another recipe ({changed}); --other-recipe "
        "writes the model anyway"
    )


def _require_folder(folder: Path) -> None:
    """Refuse a file, or a name that looks like one."""
    key, value = "--save", str(folder)
    if folder.suffix in READ:
        remedy = f"name a folder, such as {folder.with_suffix('')}"
        message = "several runs need a folder, with a file for each model"
        raise UserError(message, key=key, value=value, remedy=remedy)
    if folder.exists() and not folder.is_dir():
        raise UserError("is a file", key=key, value=value, remedy="name a folder")
