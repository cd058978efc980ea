"""Search for the scale of Laplace's posterior without using the test set.

Networks are trained like the first runs of the first repeat, but only on those of their rows that
fall in nine tenths of the training part. The log-likelihood of their ensembles is measured on the
other tenth at each scale; the scale with the highest mean over networks serves all repeats and
runs. PIT states no such protocol, and its scales go with another curvature
(``docs/uncertainty.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs import classifiers
from manyseed.jobs.datasets import dataset_id
from manyseed.jobs.datasets.split import held_out, n_points
from manyseed.jobs.ensembling.methods import SEARCHED, Members, stream_name
from manyseed.jobs.run import (
    Cell,
    DatasetRows,
    Generators,
    MachineError,
    Run,
    Stream,
    TrainingSet,
    identity,
    raw,
    stream,
)
from manyseed.jobs.trainer import Trainer, run_hparams
from manyseed.jobs.training.handling import Alive, Device, Handling
from manyseed.jobs.tuning import trainer_of_process

SCALES = tuple(10 ** (-2 + number / 8) for number in range(25))
"""Candidate scales: 0.01 to 10, evenly spaced on a log scale."""

NETWORKS = 5  # how many networks each scale is judged on

VALIDATION_SHARE = 0.1

_IRRELEVANT = ("test_augment",)  # fields of a cell that the search does not depend on


@dataclass(frozen=True, slots=True)
class Trial:
    """One network's result at all scales.

    `log_likelihoods`: mean over the validation rows at each of `SCALES`, None where not finite;
    None in place of the tuple if the fit failed. `seconds`: wall time. `error`: why the fit failed.
    """

    log_likelihoods: tuple[float | None, ...] | None
    seconds: float
    error: str | None = None


def is_searched(cell: Cell) -> bool:
    """Return whether a search determines the scale of a cell's posterior."""
    return cell.ensembling is not None and cell.ensembling.get("scale") == SEARCHED


def search_id(cell: Cell) -> str:
    """Return the identity of the search for a cell's scale."""
    description = {key: value for key, value in cell.canonical().items() if key not in _IRRELEVANT}
    return identity({"search": "scale", **description})


def with_scale(cell: Cell, scale: float) -> Cell:
    """Return the cell with its searched scale set to a number."""
    assert cell.ensembling is not None
    return replace(cell, ensembling={**cell.ensembling, "scale": scale})


def evaluate(trainer: Trainer, cell: Cell, number: int, device: Device = "cpu") -> Trial:
    """Train one network and judge all scales by it.

    `cell`: a cell with a searched scale, whose hparams are known. `number`: the network's number,
    from 0.
    """
    started = perf_counter()
    run = Run(replace(cell, ensembling=None, test_augment="none"), 0, number)
    hparams = run_hparams(run)
    results: list[NDArray[np.float64]] = []

    def judge(alive: Alive) -> Mapping[str, NDArray[Any]]:
        results.append(log_likelihoods(alive, data, cell, hparams, number))
        return {}

    names: tuple[Stream, ...] = ("init", "batch", "dropout", "augment")
    generators = Generators(*(_stream(cell, number, name) for name in names))
    try:
        data = validation(trainer, run)
        handling = Handling(device=device, after_training=judge)
        classifiers.fit(cell.classifier, hparams, data, generators, handling)
    except (MachineError, MemoryError, OSError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Trial(None, perf_counter() - started, reason)
    values = tuple(float(value) if np.isfinite(value) else None for value in results[0])
    return Trial(values, perf_counter() - started)


def log_likelihoods(
    alive: Alive, data: TrainingSet, cell: Cell, hparams: Mapping[str, Any], number: int
) -> NDArray[np.float64]:
    """Return the mean log-likelihood (scale,) of a network's ensembles at each of `SCALES`.

    All scales share the same noise, so the curve over scales is smooth. −inf where a row's
    likelihood is not finite.

    `alive`: the trained network. `data`: its training set, including `y_test`. `hparams`: including
    ``weight_decay``, the prior's precision. `number`: the network's number, which keys the random
    stream.
    """
    import torch

    from manyseed.jobs.ensembling.laplace import Posteriors

    assert cell.ensembling is not None
    assert data.y_test is not None
    device = alive.rows.device
    y = torch.tensor(data.y, dtype=torch.int64, device=device)
    posteriors = Posteriors(alive.model, alive.rows, y, hparams["weight_decay"])
    seed = int(raw(_stream(cell, number, "posterior"), 1)[0])
    means = []
    for scale in SCALES:
        members = Members(cell.ensembling["members"])
        noise = torch.Generator(device).manual_seed(seed)
        for _ in range(members.count):
            with posteriors.drawn(noise, scale), np.errstate(invalid="ignore"):
                members.add(alive.predict(alive.test))
        with np.errstate(invalid="ignore"):
            logs = members.logs()[np.arange(len(data.y_test)), data.y_test]
        means.append(logs.mean() if np.isfinite(logs).all() else -np.inf)
    return np.array(means)


def validation(trainer: Trainer, run: Run) -> TrainingSet:
    """Return the training set of a network in the search, with validation rows as its test set."""
    cell = run.cell
    plain = replace(cell, perturb_continuous="none", perturb_categorical="none")
    run_rows = trainer.training_set(Run(plain, run.repeat, run.run)).in_dataset
    whole = trainer.training_set(Run(Cell(cell.seed, cell.dataset, cell.classifier, {}), 0, 0))
    assert run_rows is not None
    assert run_rows.train is not None
    assert whole.in_dataset is not None
    assert whole.in_dataset.train is not None
    generator = stream(cell.seed, "tune", dataset_id(cell.dataset), "scale")
    n = max(1, n_points(VALIDATION_SHARE, whole.y.size))
    groups = trainer.groups(cell, whole.in_dataset.train)
    validated = held_out(whole.y, generator, n, groups)
    validation_rows = whole.in_dataset.train[validated]
    data, fitted = trainer.training_set(run), ~np.isin(run_rows.train, validation_rows)
    train = run_rows.train[fitted] if plain == cell else None
    return replace(
        data,
        X=data.X[fitted],
        y=data.y[fitted],
        X_test=whole.X[validated],
        y_test=whole.y[validated],
        in_dataset=DatasetRows(run_rows.dataset, run_rows.X, train, validation_rows),
    )


def best(trials: Sequence[Trial]) -> tuple[float, float]:
    """Return the scale with the highest mean log-likelihood over networks, and that mean.

    The smallest scale wins a tie; networks whose fit failed are left out.
    """
    curves = [trial.log_likelihoods for trial in trials if trial.log_likelihoods is not None]
    if not curves:
        raise ValueError(f"all {len(trials)} fits failed, the last one with {trials[-1].error}")
    values = [[-np.inf if value is None else value for value in curve] for curve in curves]
    means = np.mean(values, axis=0)
    if not np.isfinite(means).any():
        raise ValueError("no scale gives every network a finite likelihood")
    chosen = int(np.argmax(np.where(np.isfinite(means), means, -np.inf)))
    return SCALES[chosen], float(means[chosen])


def evaluate_in_process(
    canonical: Mapping[str, Any], number: int, device: Device, code: str = "", timeout: float = 0.0
) -> Trial:
    """Evaluate a network in a process that keeps its data between calls.

    `code` and `timeout` match `jobs.tuning.evaluate_in_process` and are ignored: users' own
    classifiers have no posterior.
    """
    del code, timeout
    return evaluate(trainer_of_process(), Cell.from_canonical(canonical), number, device)


def _stream(cell: Cell, number: int, part: Stream) -> np.random.Generator:
    assert cell.ensembling is not None
    keys = (dataset_id(cell.dataset), cell.classifier_key, stream_name(cell.ensembling), number)
    return stream(cell.seed, "tune", *keys, part)
