"""Calibrated likelihoods of ensembles by size, and the cost of keeping them in training.

    python benchmarks/bench_uncertainty.py [--quick] [--json]

Calibration is compared with plain alternatives, timed on one size and scaled to all: the
same ten fits with SciPy's bounded search over ln T, and with Nelder and Mead's method as in PIT's
published code; AURC and TACE are compared with NumPy alone. Only ratios within one run are
meaningful. Without --quick, it says whether the stated limits hold.
"""

from __future__ import annotations

import argparse
import json
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax

from manyseed.analysis.uncertainty import (
    area_under_risk_coverage,
    calibrate,
    calibration_splits,
    prefixes,
    thresholded_adaptive_calibration_error,
)
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.ensembling.methods import resolve, sizes
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.handling import Handling

Real = NDArray[np.float64]
Figures = Mapping[str, float]

SPLITS = 5
LIMITS = {
    "calibration": {"all_sizes_s": 6.0, "default_sizes_s": 0.8, "peak_arrays": 8.0},
    "calibration of 100 classes": {"default_sizes_s": 8.0, "peak_arrays": 8.0},
    "keeping": {"share_added": 0.1},
}
"""On one core; arrays are (sample, class) float64, in addition to the members."""


def timed(work: Callable[[], object], times: int = 1) -> float:
    """Return the median of so many runs, in seconds."""
    taken = []
    for _ in range(times):
        start = perf_counter()
        work()
        taken.append(perf_counter() - start)
    return median(taken)


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


class Members:
    """Float32 scores (member, sample, class), as a store holds them, and true classes."""

    def __init__(self, members: int, samples: int, classes: int) -> None:
        rng = np.random.default_rng(0)
        self.y = rng.integers(0, classes, samples)
        shared = 2 * rng.normal(size=(samples, classes)) + 3 * np.eye(classes)[self.y]
        self.block = np.empty((members, samples, classes), dtype=np.float32)
        for member in self.block:
            member[:] = shared + rng.normal(size=shared.shape)
        self.splits = calibration_splits(0, "benchmark", 0, samples, SPLITS)

    def logs(self, member: int) -> Real:
        return np.asarray(log_softmax(self.block[member].astype(np.float64), axis=1))

    def cll(self, of: Iterable[int]) -> list[float]:
        """Return the calibrated log-likelihood of the first k members, of these sizes."""
        wanted, found = {*of}, []
        places = np.arange(self.y.size)
        for size, logs in enumerate(prefixes(self.logs, range(max(wanted))), start=1):
            if size in wanted:
                calibrated = calibrate(logs, self.y, self.splits)
                assert calibrated is not None
                each = [own[places, self.y].mean() for own in calibrated.logs()]
                found.append(float(np.mean(each)))
        return found

    def by(self, search: Callable[[Callable[[float], float]], float], logs: Real) -> float:
        """Return that of one prediction in plain code, by a search over ln T."""
        total = 0.0
        for first in self.splits:
            for fitted, measured in ((first, ~first), (~first, first)):
                own, true = logs[fitted], self.y[fitted]

                def loss(log_t: float, own: Real = own, true: Any = true) -> float:
                    scaled = log_softmax(own / np.exp(log_t), axis=1)
                    return -float(scaled[np.arange(true.size), true].mean())

                t = np.exp(search(loss))
                scaled = log_softmax(logs[measured] / t, axis=1)
                total += float(scaled[np.arange(scaled.shape[0]), self.y[measured]].sum())
        return total / (SPLITS * self.y.size)


def bounded(loss: Callable[[float], float]) -> float:
    limit = float(np.log(20))
    return float(minimize_scalar(loss, bounds=(-limit, limit), options={"xatol": 1e-6}).x)


def published(loss: Callable[[float], float]) -> float:
    return float(minimize(lambda log_t: loss(log_t[0]), [0.0], method="Nelder-Mead").x[0])


def calibration(members: int, samples: int, classes: int) -> Figures:
    given = Members(members, samples, classes)
    [ours] = given.cll([1])  # and compiles
    logs = given.logs(0)
    for search in (bounded, published):
        assert abs(given.by(search, logs) - ours) < 1e-5  # they compute the same
    every = timed(lambda: given.cll(range(1, members + 1)))
    plain = members * timed(lambda: given.by(bounded, logs))
    theirs = members * timed(lambda: given.by(published, logs))
    return {
        "members": members,
        "samples": samples,
        "classes": classes,
        "all_sizes_s": every,
        "default_sizes_s": timed(lambda: given.cll(sizes(members)), 3),
        "scipy_all_sizes_s": plain,
        "times_scipy": plain / every,
        "published_all_sizes_s": theirs,
        "times_published": theirs / every,
        "peak_arrays": peak_bytes(lambda: given.cll(sizes(members))) / (8 * samples * classes),
    }


def aurc_plain(confidence: Real, wrong: NDArray[np.bool_]) -> float:
    """Return AURC without ties."""
    order = np.argsort(-confidence)
    return float((np.cumsum(wrong[order]) / np.arange(1, wrong.size + 1)).mean())


def tace_plain(logs: Real, y: NDArray[Any], threshold: float, bins: int) -> float:
    total, p = 0.0, np.exp(logs)
    for c in range(p.shape[1]):
        own = np.flatnonzero(p[:, c] > threshold)
        own = own[np.argsort(p[own, c], kind="stable")]
        each = own.size // bins
        for r in range(bins):
            part = own[r * each :] if r == bins - 1 else own[r * each : (r + 1) * each]
            total += abs(float(((y[part] == c) - p[part, c]).sum()))
    return total / p.size


def scores(samples: int, classes: int) -> Figures:
    given = Members(1, samples, classes)
    logs = given.logs(0)
    confidence, wrong = np.exp(logs.max(axis=1)), logs.argmax(axis=1) != given.y
    pairs: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
        "aurc": (
            lambda: area_under_risk_coverage(confidence, wrong),
            lambda: aurc_plain(confidence, wrong),
        ),
        "tace": (
            lambda: thresholded_adaptive_calibration_error(logs, given.y, 1e-3, 15),
            lambda: tace_plain(logs, given.y, 1e-3, 15),
        ),
    }
    found: dict[str, float] = {"samples": samples, "classes": classes}
    for name, (ours, plain) in pairs.items():
        assert abs(ours() - plain()) < 1e-9  # and compiles
        seconds = timed(ours, 5)
        found |= {f"{name}_s": seconds, f"{name}_times_numpy": timed(plain, 5) / seconds}
    return found


def keeping(members: int, cycle: int, times: int) -> Figures:
    """Return the time of a run of snapshots with and without the ensembles of each size."""
    digits = datasets.resolve("sklearn:digits", test=0.5)
    hparams = {"lr": 0.05, "weight_decay": 5e-4, "width1": 64, "width2": 64}
    options = {"optimizer": "sgd", "epochs": 30, "batch_size": 32, "hparams": hparams}
    model = classifiers.resolve("mlp", options, digits)
    method = resolve("snapshot", {"members": members, "cycle": cycle, "lr": 0.1, "batch_size": 32})
    cell = resolve_cell(1, digits, model, train_fraction=0.25, ensembling=method).cell
    trainer, run = Trainer(), Run(cell, 0, 0)
    taken: dict[tuple[str, ...], list[float]] = {(): [], ("size_score",): []}
    trainer.train(run, Handling(measures=()))  # a first fit imports and fetches
    for _ in range(times):  # alternately: other load affects both
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


def held(results: Mapping[str, Figures]) -> dict[str, bool]:
    """Return whether each stated limit holds."""
    return {
        f"{part}: {name} at most {most:g}": results[part][name] <= most
        for part, limits in LIMITS.items()
        for name, most in limits.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller, under a minute; no limits")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    quick = options.quick
    results: dict[str, Any] = {
        "calibration": calibration(20 if quick else 100, 2_000 if quick else 10_000, 10),
        "calibration of 100 classes": calibration(
            5 if quick else 100, 1_000 if quick else 10_000, 100
        ),
        "scores": scores(2_000 if quick else 10_000, 10),
        "keeping": keeping(10 if quick else 50, 2 if quick else 10, 1 if quick else 5),
    }
    limits = {} if quick else held(results)
    if options.json:
        print(json.dumps({**results, "limits": limits}, indent=2))
        return
    for title, figures in results.items():
        print(title, *(f"{name} {value:.3g}" for name, value in figures.items()), sep="\n  ")
    for limit, holds in limits.items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {limit}")


if __name__ == "__main__":
    main()
