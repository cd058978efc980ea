"""Tuned hparams: one random search per dataset and classifier (MV, tuned scenario).

Each draw is fitted on three quarters of the first repeat's training part and judged by its accuracy
on the remaining quarter, which is the same for all draws and classifiers. The best draw serves all
repeats and runs. The first repeat's test set is never seen; test sets of later repeats share points
with the search, as they do with one another's training parts (choice: one search, as in the study,
whose code judged on test data). On request there is a search for each way in which runs' data are
made, and its fits see such data: fewer rows, resampled, with noise, augmented (MV: "how e.g. data
perturbation and downsampling impact tuning too").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from manyseed.jobs import classifiers
from manyseed.jobs.datasets import dataset_id
from manyseed.jobs.datasets.split import bootstrapped, held_out, n_points
from manyseed.jobs.hparams import SPACE_VERSION, draw
from manyseed.jobs.hparams.kinds import Value
from manyseed.jobs.perturb import Neighbours
from manyseed.jobs.run import (
    IDENTITY_VERSION,
    SEARCHED,
    Cell,
    Generators,
    MachineError,
    Run,
    Stream,
    TrainingSet,
    identity,
    stream,
)
from manyseed.jobs.trainer import Trainer, perturbed, relabelled
from manyseed.jobs.training.handling import Device, Handling

SEARCH = SEARCHED
"""The key of a tuned cell's `hparams` that holds its search; the other keys are fixed hparams."""

VALIDATION_SHARE = 0.25

OF_DATA = (
    "train_fraction",
    "perturb_continuous",
    "perturb_categorical",
    "perturb_labels",
    "augment",
)
"""What data for training are made with, beside the bootstrap that `vary` asks for."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One point of a search."""

    hparams: dict[str, Value]  # a value for every hparam
    accuracy: float | None  # share of validation rows predicted correctly; None if the fit failed
    seconds: float  # wall time, prediction included
    error: str | None = None  # why the fit failed


def is_tuned(cell: Cell) -> bool:
    """Return whether a search determines a cell's hparams."""
    return SEARCH in cell.hparams


def searched(draws: int, data: str = "whole", hours: float | None = None) -> dict[str, object]:
    """Return the description of a search, as a tuned cell's `hparams` hold it.

    `data`: what its fits see: "whole", their part of the training rows, or "runs", data made of it
    as for the cell's runs. `hours`: once fits have taken as long, together, no further draw begins.
    """
    more: dict[str, object] = {} if data == "whole" else {"data": data}
    more |= {} if hours is None else {"hours": float(hours)}
    return {"draws": draws, "space": SPACE_VERSION, **more}


def data_of(cell: Cell) -> dict[str, Any]:
    """Return with what a search's training data are made; nothing if its rows stay as they are."""
    if "data" not in cell.hparams.get(SEARCH, {}):
        return {}
    plain = Cell(cell.seed, cell.dataset, cell.classifier, cell.hparams)
    made = {axis: getattr(cell, axis) for axis in OF_DATA}
    made = {axis: value for axis, value in made.items() if value != getattr(plain, axis)}
    return made | ({"vary": "train"} if "train" in cell.vary else {})


def search_id(cell: Cell) -> str:
    """Return the identity of a tuned cell's search, shared by cells that differ in other axes."""
    return identity(
        {
            "v": IDENTITY_VERSION,
            "seed": cell.seed,
            "dataset": dict(cell.dataset),
            "classifier": dict(cell.classifier),
            "hparams": dict(cell.hparams),
            **data_of(cell),
        }
    )


def is_current(cell: Cell) -> bool:
    """Return whether a tuned cell's search uses this version's hparam spaces."""
    return bool(cell.hparams[SEARCH]["space"] == SPACE_VERSION)


def n_draws(cell: Cell) -> int:
    """Return how many points a tuned cell's search draws."""
    search = cell.hparams[SEARCH]
    if not is_current(cell):
        raise ValueError(f"a search of version {search['space']}; this is {SPACE_VERSION}")
    return int(search["draws"])


def seconds_for(cell: Cell) -> float:
    """Return after how many seconds of fits a tuned cell's search begins no further draw."""
    return float(cell.hparams[SEARCH].get("hours", math.inf)) * 3600


def drawn(cell: Cell, number: int) -> dict[str, Value]:
    """Return the hparams of draw `number`, counted from 0."""
    fixed = {name: value for name, value in cell.hparams.items() if name != SEARCH}
    return draw(classifiers.space(cell.classifier, cell.hparams), fixed, _stream(cell, number))


def evaluate(
    trainer: Trainer, cell: Cell, number: int, device: Device = "cpu", timeout: float = 0.0
) -> Draw:
    """Fit one draw of a tuned cell's search and judge it.

    `cell`: a tuned cell. `number`: the draw's number, from 0. `timeout`: seconds after which a
    user's command is stopped; 0 for never.
    """
    started, hparams = perf_counter(), drawn(cell, number)
    names: tuple[Stream, ...] = ("init", "batch", "dropout")
    names += ("augment",) if "augment" in data_of(cell) else ()
    generators = Generators(*(_stream(cell, number, name) for name in names))
    try:
        data = validation(trainer, cell)
        handling = Handling(device=device, timeout=timeout)
        prediction = classifiers.fit(cell.classifier, hparams, data, generators, handling)
    except (MachineError, MemoryError, OSError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Draw(hparams, None, perf_counter() - started, reason)
    accuracy = float(np.mean(prediction.label[-1] == data.y_test))
    return Draw(hparams, accuracy, perf_counter() - started)


def validation(trainer: Trainer, cell: Cell) -> TrainingSet:
    """Return a search's training set, with validation rows in place of the test set.

    It is the same for all draws, noise included, and that for all classifiers.
    """
    plain = Cell(cell.seed, cell.dataset, cell.classifier, cell.hparams)
    whole = trainer.training_set(Run(plain, 0, 0))
    assert whole.in_dataset is not None
    assert whole.in_dataset.train is not None
    rows = whole.in_dataset.train
    n = max(1, n_points(VALIDATION_SHARE, whole.y.size))
    generator = stream(cell.seed, "tune", dataset_id(cell.dataset))
    validated = held_out(whole.y, generator, n, trainer.groups(cell, rows))
    fitted = np.setdiff1d(np.arange(whole.y.size), validated)
    found = replace(
        whole,
        X=whole.X[fitted],
        y=whole.y[fitted],
        X_test=whole.X[validated],
        y_test=whole.y[validated],
        in_dataset=replace(whole.in_dataset, train=rows[fitted], test=rows[validated]),
    )
    return _as_of_runs(trainer, cell, found) if data_of(cell) else found


def _as_of_runs(trainer: Trainer, cell: Cell, whole: TrainingSet) -> TrainingSet:
    """Return a search's training set made as for a run: subsampled, resampled, perturbed.

    A share is of the rows that the search fits; a number of rows is that many, or all there are.
    """
    assert whole.in_dataset is not None
    assert whole.in_dataset.train is not None
    dataset, rows = dataset_id(cell.dataset), whole.in_dataset.train

    def generator(name: Stream) -> np.random.Generator:
        scheme = () if name in ("subsample", "resample") else (getattr(cell, name),)
        return stream(cell.seed, "tune", dataset, name, *scheme)

    n = min(rows.size, max(2, n_points(cell.train_fraction, rows.size)))
    points = np.arange(rows.size)
    if n < rows.size:
        points = held_out(whole.y, generator("subsample"), n)
    if "train" in cell.vary:
        points = bootstrapped(points, generator("resample"))

    def near() -> Neighbours:
        return trainer.neighbours(cell, rows, "tune").at(points)

    is_noisy = {cell.perturb_continuous, cell.perturb_categorical} != {"none"}
    return replace(
        whole,
        X=perturbed(cell, whole.X[points], whole.cardinality, generator, near),
        y=relabelled(cell, whole.y[points], whole.n_classes, generator),
        in_dataset=replace(whole.in_dataset, train=None if is_noisy else rows[points]),
        augment=cell.augment,
    )


def best(draws: Sequence[Draw]) -> int:
    """Return the number of the draw with the highest accuracy; the first wins a tie."""
    scores = [-1.0 if draw.accuracy is None else draw.accuracy for draw in draws]
    if max(scores) < 0:
        raise ValueError(f"all {len(draws)} draws failed, the last one with {draws[-1].error}")
    return scores.index(max(scores))


def evaluate_in_process(
    canonical: Mapping[str, Any], number: int, device: Device, code: str = "", timeout: float = 0.0
) -> Draw:
    """Evaluate a draw in a process that keeps its data between calls.

    `canonical`: the cell's description. `number`, `device` and `timeout`: as for `evaluate`.
    `code`: folder that holds the copy of users' own code, if any.
    """
    if code:
        from manyseed.jobs.own import copies

        copies.use(Path(code), canonical["classifier"])
    return evaluate(trainer_of_process(), Cell.from_canonical(canonical), number, device, timeout)


@lru_cache(maxsize=1)
def trainer_of_process() -> Trainer:
    """Return the trainer that this process keeps between calls."""
    return Trainer()


def _stream(cell: Cell, number: int, *part: Stream) -> np.random.Generator:
    keys = (dataset_id(cell.dataset), cell.classifier_key, number)
    return stream(cell.seed, "tune", *keys, *part)
