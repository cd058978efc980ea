"""How long a run takes alone, and in stacks of several runs: measured, and the faster chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from manyseed.jobs.classifiers import fit_of
from manyseed.jobs.datasets import load
from manyseed.jobs.datasets.split import n_points
from manyseed.jobs.run import Cell, MachineError, Run, TrainingSet
from manyseed.jobs.trainer import generators
from manyseed.jobs.training.handling import Device, FitInput, Handling, faults_of
from manyseed.jobs.training.network import Network

LARGEST = (8, 32)  # about so many runs are tried at once
_LENGTH = 16, 2  # steps of an epoch, and epochs, of each timed training
_ROUNDS, _SECONDS = 5, 5.0  # the second round begins whatever it takes, later ones within this time
_BYTES = 2**30  # of the training rows of a stack, if each run's are its own
_GAIN = 0.9  # a stack must take less than this share of the time


def sizes(runs: int) -> tuple[int, ...]:
    """Return the numbers of runs at once that are tried for a repeat of `runs`: in even blocks."""
    tried = {-(-runs // -(-runs // largest)) for largest in LARGEST}
    return tuple(sorted(tried - {0, 1}))


def best(seconds: Mapping[int, float], runs: int) -> int:
    """Return how many of `runs` to train at once, given the seconds that a run takes in each form.

    The last block is trained whole, and a stack must be clearly faster than run by run.
    """
    whole = {members: each * -(-runs // members) * members for members, each in seconds.items()}
    fastest = min(whole, key=whole.__getitem__)
    return fastest if whole[fastest] < _GAIN * whole[1] else 1


def seconds_a_run(
    canonical: Mapping[str, Any],
    members: tuple[int, ...],
    device: Device = "cpu",
    length: tuple[int, int] = _LENGTH,
) -> dict[int, float]:
    """Return the seconds that a run takes alone (1) and in stacks of so many `members`.

    A few steps on rows of the data are timed in turns. Features of a frozen backbone, which take
    far longer and are computed once, are replaced by random numbers. Stacks are left out if the
    memory of the GPU is too small for them, or their training rows would take a gigabyte.

    `canonical`: a cell's description, after all searches. `device`: where to train.
    `length`: at most so many steps of an epoch, and epochs.
    """
    cell = Cell.from_canonical(dict(canonical))
    network, (rows, n) = fit_of(cell.classifier), _rows(cell, length[0])
    assert isinstance(network, Network)
    width = rows.X.shape[1]
    if network.width is not None:
        width = network.width(cell.classifier)
        generator = np.random.Generator(np.random.PCG64(0))
        features = generator.standard_normal((len(rows.X), width), np.float32)
        network = replace(network, features=lambda *_: (features, features[:1]))
    epochs = min(length[1], cell.classifier["epochs"])
    settings, handling = {**cell.classifier, "epochs": epochs}, Handling((epochs,), device)
    clock = process_time if device == "cpu" else perf_counter  # other load does not count

    def seconds(several: int) -> float:
        runs = [(cell.hparams, rows, generators(Run(cell, 0, run))) for run in range(several)]
        started = clock()
        with faults_of(device):
            if several == 1:
                network(FitInput(settings, *runs[0], handling))
            else:
                network.train_stack(settings, runs, handling)
        return (clock() - started) / several

    fitting = [each for each in members if each * n * width * 4 <= _BYTES]
    taken: dict[int, list[float]] = {each: [] for each in (1, *fitting)}
    begun = perf_counter()
    for turn in range(1 + _ROUNDS):
        if turn > 1 and perf_counter() - begun > _SECONDS:
            break
        for n in [*taken]:
            try:
                taken[n].append(seconds(n))
            except MachineError:
                if n == 1:
                    raise
                del taken[n]
    return {
        n: median(values[1:]) for n, values in taken.items()
    }  # the first time imports libraries


def _rows(cell: Cell, steps: int) -> tuple[TrainingSet, int]:
    """Return rows of a cell's data for a few steps, and about how many a run is trained on."""
    data = load(cell.dataset)
    batch = cell.hparams["batch"] if "batch" in cell.hparams else cell.classifier["batch_size"]
    n = min(len(data.y), n_points(cell.train_fraction, len(data.y)))
    few = max(2, min(n, steps * int(batch)))
    index = np.linspace(0, len(data.y) - 1, few).astype(np.int64)
    rows = TrainingSet(
        X=data.rows(index),
        y=data.y[index],
        X_test=data.rows(index[:1]),
        n_classes=len(data.class_names),
        cardinality=data.cardinality,
        image=data.image,
    )
    return rows, n
