"""Calibrated log-likelihoods of ensembles by size, and what keeping them adds to a training.

    python benchmarks/bench_uncertainty.py [--quick] [--json]

Beside them one size as PIT's published code calibrates it, by the method of Nelder and Mead,
scaled to all sizes.
"""

from __future__ import annotations

import argparse
import json
import tracemalloc
from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from manyseed.analysis.uncertainty.prefixes import prefixes
from manyseed.analysis.uncertainty.splits import calibration_splits
from manyseed.analysis.uncertainty.temperature import calibrate
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.ensembling.methods import resolve, sizes
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.handling import Handling

Real = NDArray[np.float64]


def timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def log_softmax(scores: Real) -> Real:
    return np.asarray(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))


def calibration(members: int, samples: int, classes: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, samples)
    shared = 2 * rng.normal(size=(samples, classes)) + 3 * np.eye(classes)[y]
    block = np.empty((members, samples, classes), dtype=np.float32)  # as a store holds it
    for member in block:
        member[:] = shared + rng.normal(size=shared.shape)
    splits = calibration_splits(0, "benchmark", 0, samples, 5)
    places = np.arange(samples)

    def cll(of: Iterable[int]) -> list[float]:
        wanted, found = {*of}, []
        grown = prefixes(lambda j: log_softmax(block[j].astype(np.float64)), range(max(wanted)))
        for size, logs in enumerate(grown, start=1):
            if size in wanted:
                calibrated = calibrate(logs, y, splits)
                assert calibrated is not None
                found.append(np.mean([each[places, y].mean() for each in calibrated.logs()]))
        return found

    def published() -> None:
        logs = log_softmax(block[0].astype(np.float64))
        for half in (half for first in splits for half in (first, ~first)):
            own, true = logs[half], y[half]

            def loss(log_t: Real, own: Real = own, true: Any = true) -> float:
                scaled = log_softmax(own / np.exp(log_t[0]))
                return -float(scaled[np.arange(true.size), true].mean())

            minimize(loss, [0.0], method="Nelder-Mead")

    cll([1])  # compiled once
    array = 8 * samples * classes
    return {
        "members": members,
        "samples": samples,
        "classes": classes,
        "all_sizes_s": timed(lambda: cll(range(1, members + 1))),
        "default_sizes_s": timed(lambda: cll(sizes(members))),
        "published_all_sizes_s": members * timed(published),
        "peak_arrays": peak_bytes(lambda: cll(sizes(members))) / array,
    }


def keeping(members: int, cycle: int, times: int) -> dict[str, Any]:
    """Return what a run of snapshots takes with and without the ensembles of each size."""
    digits = datasets.resolve("sklearn:digits", test=0.5)
    hparams = {"lr": 0.05, "weight_decay": 5e-4, "width1": 64, "width2": 64}
    options = {"optimizer": "sgd", "epochs": 30, "batch_size": 32, "hparams": hparams}
    model = classifiers.resolve("mlp", options, digits)
    method = resolve("snapshot", {"members": members, "cycle": cycle, "lr": 0.1, "batch_size": 32})
    cell = resolve_cell(1, digits, model, train_fraction=0.25, ensembling=method).cell
    trainer, run = Trainer(), Run(cell, 0, 0)
    taken: dict[tuple[str, ...], list[float]] = {(): [], ("size_score",): []}
    for _ in range(times):  # in turns: what else the machine does hits both
        for measures, seconds in taken.items():
            fit = Handling(measures=measures)
            seconds.append(timed(lambda fit=fit: trainer.train(run, fit)))  # type: ignore[misc]
    alone, kept = (median(seconds) for seconds in taken.values())
    return {
        "members": members,
        "cycle": cycle,
        "without_s": alone,
        "sizes_s": kept,
        "share_added": kept / alone - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller: some seconds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    quick = options.quick
    results = {
        "calibration": calibration(20 if quick else 100, 2_000 if quick else 10_000, 10),
        "keeping": keeping(10 if quick else 50, 2 if quick else 10, 1 if quick else 5),
    }
    if not quick:
        results["calibration of 100 classes"] = calibration(20, 10_000, 100)
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for title, figures in results.items():
        print(title, *(f"{name} {value:.3g}" for name, value in figures.items()), sep="\n  ")


if __name__ == "__main__":
    main()
