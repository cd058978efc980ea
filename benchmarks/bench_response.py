"""Scores of response curves and conditional mutual information against plain loops; measuring.

    python benchmarks/bench_response.py [--quick] [--json] [--figure FILE]

The loops work like published code: one curve at a time, one pair of models at a time. They run on a
part of the input; their time is scaled to all of it.

The cost that measuring adds to a fit is taken from networks of examples/invariance-digits.toml,
with all of their training rows, with the share in the file, and with a tenth. The same networks
show the effect of the number of batches (figures 3 to 5 of the paper): gi of 20 samples of 1, 2,
4, … batches, its standard deviation over them, conditional mutual information, and time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tomllib
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from manyseed.analysis import response
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.response import OPTIONS, ResponseDesign
from manyseed.jobs.response.measure import RIGHT, SHIFTED_RIGHT, SHIFTED_TOTAL, TOTAL
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.handling import Handling

MAGNITUDES = np.linspace(-30, 30, 21)
EXAMPLE = Path(__file__).parents[1] / "examples" / "invariance-digits.toml"
LIMITS = {
    "scores": {"gi_s": 1.0, "gi_folded_s": 1.0, "pal_s": 1.0},
    "information": {"cmi_s": 10.0, "peak_MB": 200.0},
    "measuring": {"as_in_the_example_adds_percent": 15.0},
}
"""Limits for figures of the full benchmark, on one idle core."""


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


GRID = [
    {"depth": depth, "width": width, "lr": lr}
    for depth in (1, 2, 3)
    for width in (8, 16)
    for lr in (3e-3, 1e-3)
]
"""Of examples/invariance-digits.toml."""
AUGMENT = ("none", "rotate:45", "rotate:90")
SAMPLES = 20
BATCHES = (1, 2, 4, 8)
ROWS = 64  # of a batch
QUESTIONS = (
    ("intra", 0),
    ("inter", 0),
    ("intra", 1),
    ("inter", 1),
    ("rotate:90", 0),
    ("shift-x:0.25", 0),
)


def networks(quick: bool) -> Iterator[tuple[dict[str, Any], str, Run]]:
    """Yield hparams, augmentation and run of each network."""
    data = datasets.resolve("sklearn:digits", test=0.5)
    for number, (hparams, augment) in enumerate(itertools.product(GRID, AUGMENT)):
        if not quick or number % 4 == 0:
            epochs = 4 if quick else 40
            info = classifiers.resolve("convnet", {"epochs": epochs, "hparams": hparams}, data)
            yield hparams, augment, Run(resolve_cell(1, data, info, augment=augment).cell, 0, 0)


def measuring(quick: bool) -> dict[str, Any]:
    """What [response] adds to fits of the digits file: CPU time, with and without, alternately.

    Percentages are medians over networks, each from the fastest of `turns` fits.
    """
    trainer = Trainer()
    rows = tomllib.loads(EXAMPLE.read_text())["response"].get("rows", OPTIONS["rows"].default)
    handlings = {
        "fit_s": Handling(),
        "with_all_rows_s": Handling(response=ResponseDesign(QUESTIONS)),
        "as_in_the_example_s": Handling(response=ResponseDesign(QUESTIONS, rows=rows)),
        "with_a_tenth_s": Handling(response=ResponseDesign(QUESTIONS, rows=0.1)),
    }
    runs = [run for *_, run in networks(quick)][:: 1 if quick else 5]
    trainer.train(runs[0], handlings["with_a_tenth_s"])  # imports
    turns = 1 if quick else 3
    seconds: dict[str, list[float]] = {name: [] for name in handlings}
    for run in runs:
        least = dict.fromkeys(handlings, float("inf"))
        for _ in range(turns):
            for name, handling in handlings.items():
                start = process_time()
                trainer.train(run, handling)
                least[name] = min(least[name], process_time() - start)
        for name, taken in least.items():
            seconds[name].append(taken)
    shares = {
        f"{name.removesuffix('_s')}_adds_percent": statistics.median(
            100 * (more / plain - 1)
            for plain, more in zip(seconds["fit_s"], seconds[name], strict=True)
        )
        for name in [*handlings][1:]
    }
    sums = {name: sum(taken) for name, taken in seconds.items()}
    return {"networks": len(runs), "rows_of_the_example": rows, **sums, **shares}


def batches(quick: bool) -> dict[str, Any]:
    """Time, gi and cmi by the number of batches in a sample, for `SAMPLES` samples of each."""
    trainer = Trainer()
    transforms = ("intra", "rotate:90")
    sizes = BATCHES[:3] if quick else BATCHES
    asked = ResponseDesign(
        tuple((name, 0) for name in transforms), rows=ROWS, batch=ROWS, draws=SAMPLES * sizes[-1]
    )
    curves, gaps, given = [], [], []
    for hparams, _, run in networks(quick):
        found = trainer.train(run, Handling(response=asked)).measured
        assert found is not None
        curves.append((found[RIGHT], found[TOTAL]))
        parts = found[SHIFTED_RIGHT] / np.maximum(found[SHIFTED_TOTAL], 1)
        gaps.append([parts[0, 0] - parts[0, 2], parts[1, 0] - parts[1, 3]])
        given.append(hparams)
    right, total = (np.array(values, dtype=np.float64) for values in zip(*curves, strict=True))
    columns = {name: [one[name] for one in given] for name in given[0]}
    results: dict[str, Any] = {"networks": len(given), "rows_of_a_batch": ROWS, "samples": SAMPLES}
    for place, transform in enumerate(transforms):
        magnitudes = np.array(asked.grid(transform))
        gap = np.array(gaps)[:, place]
        for size in sizes:
            # a sample of so many batches: several draws joined
            shape = (len(given), SAMPLES, -1, right.shape[-1])
            merged = [
                values[:, place, : SAMPLES * size]
                .reshape(shape)
                .sum(axis=2)[..., : len(magnitudes)]
                for values in (right, total)
            ]
            gi = response.gi(magnitudes, merged[0] / np.maximum(merged[1], 1))
            told = [
                response.cmi(gi[:, sample], gap, columns, permutations=0).cmi or 0.0
                for sample in range(SAMPLES)
            ]
            results[f"{transform}_{size}_batches"] = {
                "gi_sd": float(gi.std(axis=1, ddof=1).mean()),
                "cmi": float(np.mean(told)),
                "cmi_sd": float(np.std(told, ddof=1)),
            }
    _, _, run = next(networks(quick))
    plain = Handling(response=ResponseDesign(asked.responses, rows=ROWS, batch=ROWS, draws=1))
    least = _cpu(trainer, run, plain)
    for size in sizes:
        more = Handling(
            response=ResponseDesign(
                asked.responses, rows=ROWS, batch=ROWS, draws=1 + SAMPLES * size
            )
        )
        seconds = _cpu(trainer, run, more) - least
        results[f"{size}_batches_ms"] = 1000 * seconds / SAMPLES
    return results


def _cpu(trainer: Trainer, run: Run, handling: Handling) -> float:
    """Return the CPU time of a run, the shortest of three."""
    seconds = []
    for _ in range(3):
        start = process_time()
        trainer.train(run, handling)
        seconds.append(process_time() - start)
    return min(seconds)


def drawn(results: dict[str, Any], file: Path) -> None:
    """Draw time, standard deviation of gi, and cmi against batches."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    figure = Figure(figsize=(9, 3), layout="constrained")
    time, spread, told = figure.subplots(1, 3)
    sizes = [int(name.split("_")[0]) for name in results if name.endswith("_batches_ms")]
    time.plot(sizes, [results[f"{size}_batches_ms"] for size in sizes], "o-")
    time.set_ylabel("time of a sample (ms)")
    time.set_ylim(bottom=0)
    for transform in dict.fromkeys(
        name.split("_")[0] for name in results if name.endswith("_batches")
    ):
        rows = [results[f"{transform}_{size}_batches"] for size in sizes]
        sd = [row["gi_sd"] for row in rows]
        spread.loglog(sizes, sd, "o-", label=transform)
        spread.loglog(sizes, [sd[0] * (sizes[0] / size) ** 0.5 for size in sizes], "k:", lw=0.8)
        told.errorbar(
            sizes, [row["cmi"] for row in rows], [row["cmi_sd"] for row in rows], fmt="o-"
        )
    spread.set_ylabel("sd of gi over samples")
    spread.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    spread.yaxis.set_major_formatter(ScalarFormatter())
    spread.yaxis.set_minor_formatter(NullFormatter())
    spread.legend()
    told.set_ylabel("cmi of gi (%), ± sd")
    for axis in (time, spread, told):
        axis.set_xscale("log" if axis is spread else "linear")
        axis.set_xticks(sizes, sizes)
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel(f"batches of {results['rows_of_a_batch']} rows")
    figure.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller: some seconds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--figure", type=Path, help="draw what batches are for")
    options = parser.parse_args()
    results = {
        "scores": scores(10_000 if options.quick else 100_000),
        "information": information(100 if options.quick else 500),
        "measuring": measuring(options.quick),
        "batches": batches(options.quick),
    }
    if options.figure is not None:
        drawn(results["batches"], options.figure)
    if options.json:
        print(json.dumps({**results, "limits": LIMITS, "quick": options.quick}, indent=2))
        return
    for title, figures in results.items():
        limits = {} if options.quick else LIMITS.get(title, {})
        lines = [_line(name, value, limits.get(name)) for name, value in figures.items()]
        print(title, *lines, sep="\n  ")


def _line(name: str, value: Any, limit: float | None = None) -> str:
    if isinstance(value, dict):
        return f"{name} {', '.join(_line(*each) for each in value.items())}"
    said = f"{name} {value:.3g}"
    if limit is None:
        return said
    return f"{said} (limit {limit:g}: {'holds' if value <= limit else 'does not hold'})"


if __name__ == "__main__":
    main()
