"""Train several runs again, compare each with its stored predictions, and write their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from manyseed.jobs.parameters import READ, endings
from manyseed.jobs.trainer import Trainer
from manyseed.orchestrator.errors import ManyseedError, UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.runs.address import find_run
from manyseed.orchestrator.runs.rerun import (
    Differences,
    published,
    require_saved,
    train_again,
    write_model,
)


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
        (`jobs.parameters`). A model is written only if its predictions match the stored ones: bit
        for bit with the same recipe, else in their labels.
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
