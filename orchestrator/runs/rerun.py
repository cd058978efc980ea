"""Train runs again, compare them with the stored predictions, write their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs import whole
from manyseed.jobs.classifiers.registry import is_own
from manyseed.jobs.own.calling import CommandError
from manyseed.jobs.packages import install
from manyseed.jobs.parameters import READ, endings, lacking, saving
from manyseed.jobs.run import MachineError, Run
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.handling import AfterTraining, Alive, Handling
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import (
    ManyseedError,
    RunsError,
    UnavailableError,
    UserError,
    command,
    first_line,
)
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import forget_code, timeout_of, use_code
from manyseed.orchestrator.plans.data import remedy
from manyseed.orchestrator.plans.searches import fitted
from manyseed.orchestrator.provenance import Recipe
from manyseed.orchestrator.runs.description import PlannedRun, StoredRun, find_run, stored
from manyseed.orchestrator.store.groups import open_group
from manyseed.orchestrator.store.journal import encode_row
from manyseed.orchestrator.store.reader import read_rows
from manyseed.orchestrator.store.schema import GroupSpec


class Differences(TypedDict):
    """How a run that was trained again compares with its stored predictions."""

    same_recipe: bool
    recipe_changes: dict[str, list[object]]
    """The old and the new value, by name."""
    equal: bool
    """Bit for bit."""
    labels: int
    """Number of labels compared: points times epochs."""
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

    Parameters
    ----------
    save : Path, optional
        A new file for the model, outside the sweep; the ending of its name selects the form
        (`jobs.parameters`).

    Raises
    ------
    UserError
        For a run that is not published, and for a file that cannot hold its model.
    UnavailableError
        If its data, its tuned hparams or packages are missing.
    RunsError
        If the fit fails this time.
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
    """Return what the store holds about a run that can be trained again.

    Raises
    ------
    UserError
        For a run that is not published, or was imported.
    """
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

    Parameters
    ----------
    was_made : StoredRun
        As returned by `published`.
    trainer : Trainer
        Keeps data between calls.
    keep : bool
        Whether to return the model, too.

    Raises
    ------
    UserError, UnavailableError, RunsError
        As `rerun`.
    """
    address = f"{planned.cell}:{planned.run.repeat}:{planned.run.run}"
    run, models = planned.fitted, list[Alive]()
    if was_made.recipe_unknown and is_own(run.cell.classifier):
        unknown = f"{was_made.recipe_unknown}\n  which code of yours made {address} is unknown"
        raise UnavailableError(unknown)
    digests = [*((was_made.recipe and was_made.recipe.own) or {}).values()]
    try:
        run = replace(run, cell=fitted(paths, run.cell))
        for code in digests:
            use_code(paths, code, run.cell.classifier)
        handling = Handling(
            planned.snapshots,
            curves=planned.spec.curves,
            measures=planned.spec.measures_of(models=planned.keeps_model),
            response=planned.spec.asked,
            timeout=timeout_of(paths, str(planned.axes["classifier"]), run.cell.classifier),
        )
        if keep:
            handling = replace(
                handling, response=None, after_training=_keeping(trainer, run, planned.spec, models)
            )
        y_true = trainer.test_set(run.cell, run.repeat).y_true
        prediction = trainer.train(run, handling)
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
    changes = (was_made.recipe or Recipe()).changes(Recipe.here())
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
    """The outcome of training a run again.

    Attributes
    ----------
    address : str
        CELL:REPEAT:RUN.
    comparison : Differences or None
        None if it was not trained.
    file : Path or None
        The file of its model.
    was_there : bool
        Whether the file existed before, so that nothing was trained.
    problem : str
        Why there is no comparison or no file; empty if all is well.
    """

    address: str
    comparison: Differences | None = None
    file: Path | None = None
    was_there: bool = False
    problem: str = ""

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

    Parameters
    ----------
    addresses : sequence of str
        CELL:REPEAT:RUN.
    folder : Path, optional
        The folder for their models, each in a file ``CELL-REPEAT-RUN`` with the ending of its form
        (`jobs.saving`). A model is written only if its predictions match the stored ones: bit for
        bit with the same recipe, else in their labels.
    overwrite : bool
        Whether to train runs whose file exists again; otherwise they are skipped.
    other_recipe : bool
        Whether to write models that have another recipe than the stored predictions even if labels
        differ.
    tell : callable
        Called with each outcome as soon as a run is done, and the total number of runs.

    Raises
    ------
    UserError
        If `folder` is a file, or is named like one.
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
