"""Scores of response curves and conditional mutual information, beside plain loops.

    python benchmarks/bench_response.py [--quick] [--json]

The loops are what published code does: a curve at a time, a pair of models at a time. They run on a
part of the input; their time is scaled to all of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from manyseed.analysis import response

MAGNITUDES = np.linspace(-30, 30, 21)


def timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def peak_megabytes(work: Callable[[], object]) -> float:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def scores(n_curves: int) -> dict[str, Any]:
    curves = np.random.default_rng(0).uniform(size=(n_curves, len(MAGNITUDES)))
    part = curves[: n_curves // 100]

    def loop() -> None:
        u = (MAGNITUDES - MAGNITUDES[0]) / (MAGNITUDES[-1] - MAGNITUDES[0])
        for curve in part:
            density = [0.0]
            for i in range(1, len(u)):
                density.append(density[-1] + (u[i] - u[i - 1]) * (curve[i] + curve[i - 1]) / 2)
            sum(
                (u[i] - u[i - 1]) * (u[i] - density[i] + u[i - 1] - density[i - 1])
                for i in range(1, len(u))
            )

    magnitudes = np.linspace(0, 0.5, len(MAGNITUDES))
    return {
        "curves": n_curves,
        "gi_s": timed(lambda: response.gi(MAGNITUDES, curves)),
        "gi_folded_s": timed(lambda: response.gi_folded(MAGNITUDES, curves)),
        "pal_s": timed(lambda: response.pal(magnitudes, curves)),
        "gi_by_a_loop_s": 100 * timed(loop),
    }


def information(n_models: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    measure, gap = rng.normal(size=(2, n_models))
    hparams = {name: rng.integers(0, 4, n_models) for name in ("depth", "width", "lr")}
    permutations = 200

    def loop() -> None:
        names = [(), *((n,) for n in hparams), *itertools.combinations(hparams, 2)]
        for given in names:
            counts: dict[Any, int] = defaultdict(int)
            for i, j in itertools.permutations(range(n_models // 5), 2):
                where = tuple((hparams[n][i], hparams[n][j]) for n in given)
                counts[where, gap[i] > gap[j], measure[i] > measure[j]] += 1

    return {
        "models": n_models,
        "permutations": permutations,
        "cmi_s": timed(lambda: response.cmi(measure, gap, hparams, permutations=permutations)),
        "peak_MB": peak_megabytes(
            lambda: response.cmi(measure, gap, hparams, permutations=permutations // 20)
        ),
        "counted_by_a_loop_s": 25 * timed(loop) * (permutations + 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller: some seconds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {
        "scores": scores(10_000 if options.quick else 100_000),
        "information": information(100 if options.quick else 500),
    }
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for title, figures in results.items():
        print(title, *(f"{name} {value:.3g}" for name, value in figures.items()), sep="\n  ")


if __name__ == "__main__":
    main()
