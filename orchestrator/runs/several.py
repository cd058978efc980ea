"""Train several runs again, compare each with what is stored, and write their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from manyseed.jobs.saving import READ, endings
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
    """What has become of a run that was to be trained again.

    Attributes
    ----------
    address : str
        CELL:REPEAT:RUN.
    comparison : Differences or None
        None where it was not trained.
    file : Path or None
        That holds its model.
    was_there : bool
        Whether the file was there before, so that nothing was trained.
    problem : str
        Why there is no comparison, or no file; empty where all is well.
    """

    address: str
    comparison: Differences | None = None
    file: Path | None = None
    was_there: bool = False
    problem: str = ""

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
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

    A run that fails, differs or cannot be saved is its own problem; the others go on.

    Parameters
    ----------
    paths : SweepPaths
    addresses : sequence of str
        CELL:REPEAT:RUN.
    folder : Path, optional
        For their models, a file each, ``CELL-REPEAT-RUN`` with the ending of their form
        (`jobs.saving`). A model is written where it predicts what is stored: bit for bit in the
        same recipe, else the same labels.
    overwrite : bool
        Whether runs whose file is there are trained again; else these are passed over.
    other_recipe : bool
        Whether models of another recipe than the stored predictions' are written although labels
        differ.
    tell : callable
        Is called with each run as soon as it is done, and the number of all.

    Raises
    ------
    UserError
        For a folder that cannot be one.
    """
    if folder is not None:
        _require_folder(folder)
    done = []
    for one in _each(paths, addresses, folder, overwrite, other_recipe):
        tell(one, len(addresses))
        done.append(one)
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
            found = find_run(paths, address)
            was_made, file = published(paths, found, address), None
            if folder is not None:
                ending = next(iter(endings(found.run.cell.classifier)), "")
                file = folder / f"{address.replace(':', '-')}{ending}"
                require_saved(found.run, file)
                if file.exists() and not overwrite:
                    yield Rerun(address, file=file, was_there=True)
                    continue
            again = train_again(paths, found, was_made, trainer, keep=file is not None)
        except ManyseedError as error:
            yield Rerun(address, problem=getattr(error, "what", str(error)))
            continue
        problem = "" if file is None else _differs(again.comparison, other_recipe)
        if file is not None and again.model is not None and not problem:
            write_model(again.model, file)  # a disk that refuses ends it all
            yield Rerun(address, again.comparison, file)
        else:
            yield Rerun(address, again.comparison, problem=problem)


def _differs(comparison: Differences, other_recipe: bool) -> str:
    """Return why a model is not that of the stored predictions."""
    differ, of = comparison["labels_differ"], f"of {comparison['labels']:,} labels"
    if comparison["same_recipe"]:
        what = f"{differ:,} {of}, or scores, differ from those stored, in the same recipe"
        return "" if comparison["equal"] else what
    if not differ or other_recipe:
        return ""
    changed = ", ".join(comparison["recipe_changes"])
    return (
        f"{differ:,} {of} differ from those stored in another recipe ({changed}); --other-recipe "
        "writes it all the same"
    )


def _require_folder(folder: Path) -> None:
    """Refuse what is a file, or is called like one."""
    key, value = "--save", str(folder)
    if folder.suffix in READ:
        remedy = f"name a folder, such as {folder.with_suffix('')}"
        said = "models of several runs are a file each"
        raise UserError(said, key=key, value=value, remedy=remedy)
    if folder.exists() and not folder.is_dir():
        raise UserError("is a file", key=key, value=value, remedy="name a folder")
