"""Train one run again and compare it with what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs import whole
from manyseed.jobs.own.calling import CommandError
from manyseed.jobs.run import MachineError, Run
from manyseed.jobs.saving import READ, endings, lacking, saving
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.handling import AfterTraining, Alive, Handling
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import RunsError, UnavailableError, UserError
from manyseed.orchestrator.machine import remedy
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import timeout_of
from manyseed.orchestrator.plans.tuned import fitted, forget_code, use_code
from manyseed.orchestrator.provenance import Recipe
from manyseed.orchestrator.runs.address import find_run
from manyseed.orchestrator.runs.show import stored
from manyseed.orchestrator.store.journals.rowbytes import encode_row
from manyseed.orchestrator.store.layout.groups import open_group
from manyseed.orchestrator.store.layout.schema import GroupSpec
from manyseed.orchestrator.store.reading.reader import read_rows


def rerun(paths: SweepPaths, address: str, save: Path | None = None) -> dict[str, Any]:
    """Train a run again on this machine's CPU, and compare.

    Parameters
    ----------
    paths : SweepPaths
    address : str
    save : Path, optional
        A new file outside of the sweep for the model; its name's ending says in which form
        (`jobs.saving`).

    Returns
    -------
    dict
        same_recipe, recipe_changes (name: [then, now]), equal (bit for bit), labels (points and
        epochs compared), labels_differ, largest_difference (of scores or margins; None where
        labels alone are kept).

    Raises
    ------
    UserError
        For a run that is not published, and a file that cannot be its model's.
    UnavailableError
        Where its data, its tuned hparams or packages are missing.
    RunsError
        Where it is a command's, and that fails or takes longer than its timeout.
    """
    found = find_run(paths, address)
    published = stored(paths, found)
    if published.status not in ("done", "copy"):
        raise UserError(
            "this run is not published yet",
            key="RUN",
            value=address,
            remedy=f"train it with: manyseed resume {paths.directory}; or, where it is finished, "
            f"publish it with: manyseed compact {paths.directory}",
        )
    if published.recipe is not None and published.recipe.form == "imported":
        raise UserError("these predictions were made elsewhere", key="RUN", value=address)
    if save is not None:
        _check_file(save, found.run)
    trainer, run, models = Trainer(), found.fitted, list[Alive]()
    own = [*((published.recipe and published.recipe.own) or {}).values()]
    try:
        run = replace(run, cell=fitted(paths, run.cell))
        for code in own:
            use_code(paths, code, run.cell.classifier)
        handling = Handling(
            found.snapshots,
            curves=found.spec.curves,
            measures=found.spec.measures,
            response=found.spec.asked,
            timeout=timeout_of(paths, str(found.axes["classifier"]), run.cell.classifier),
        )
        if save is not None:
            handling = replace(
                handling, response=None, after_training=_keeping(trainer, run, found.spec, models)
            )
        prediction = trainer.train(run, handling)
        y_true = trainer.test_set(run.cell, run.repeat).y_true
    except MachineError as error:
        raise UnavailableError(f"{error}{remedy(error, paths)}") from None
    except CommandError as error:
        said = f"this time the fit of {address} fails: {error}"
        raise RunsError(said) from None
    finally:
        for code in own:
            forget_code(paths, code)
    if save is not None:
        write = saving(models[0], save.suffix)
        with unavailable("write", save):
            whole.place(save, write)
    again = encode_row(found.spec, prediction, y_true)
    names = ["label", *([found.spec.score_name] if found.spec.score_name else [])]
    before = read_rows(open_group(paths.store, found.spec.path), names, [found.row])
    label = np.frombuffer(again.label, before["label"].dtype)
    largest = None
    if found.spec.score_name is not None:
        scores = before[found.spec.score_name].ravel().astype(np.float64)
        now = np.frombuffer(again.score, before[found.spec.score_name].dtype).astype(np.float64)
        largest = float(np.abs(scores - now).max())
    changes = (published.recipe or Recipe()).changes(Recipe.here())
    return {
        "same_recipe": not changes,
        "recipe_changes": {name: list(pair) for name, pair in changes.items()},
        "equal": again.crc == published.crc32c,
        "labels": len(label),
        "labels_differ": int((label != before["label"].ravel()).sum()),
        "largest_difference": largest,
    }


def _check_file(file: Path, run: Run) -> None:
    """Refuse a file that a run's model cannot be written to, before anything is trained."""
    known = endings(run.cell.classifier)
    name = run.cell.classifier["name"]
    if not known or run.cell.ensembling is not None:
        what = f"models of {name}" if run.cell.ensembling is None else "several members of a run"
        raise UserError(f"{what} cannot be saved", key="--save", value=str(file))
    if file.suffix not in known:
        forms = " or ".join(f"{ending} (read by {READ[ending]})" for ending in known)
        raise UserError(
            f"models of {name} are saved otherwise",
            key="--save",
            value=str(file),
            remedy=f"let the name end in {forms}",
        )
    if (package := lacking(file.suffix)) is not None:
        raise UserError(
            f"{package} is not installed",
            key="--save",
            value=str(file),
            remedy=f"pip install {package}",
        )
    if file.exists():
        raise UserError("exists already", file=file, remedy="remove it or choose another name")


def _keeping(trainer: Trainer, run: Run, spec: GroupSpec, models: list[Alive]) -> AfterTraining:
    """Return what keeps a trained model, and measures what its group holds."""

    def after(alive: Alive) -> Mapping[str, NDArray[Any]]:
        models.append(alive)
        return {} if spec.asked is None else trainer.answering(run, spec.asked)(alive)

    return after
