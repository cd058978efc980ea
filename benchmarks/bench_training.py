"""Fits per minute of every classifier: the warm worker, plain libraries, a fresh process per fit.

The warm worker and the plain version fit alternately, each in a separate process with one thread,
and their seconds are the processor's, so that other load counts little; ratios are medians over
these pairs. A fresh process is timed by the clock, from its start to its end. The table is
synthetic, shaped like vehicle (634 training rows, 18 features, 2 classes); images are random,
32 × 32 × 3; ``vit-transfer`` trains heads on features that are computed once, with random weights;
deep networks are narrow. *Turns*: the same runs of one repeat of many cells, in the order of a task
with few repeats (some of each cell, then some more of each), compared with cell after cell.
*Stacks*: what a run takes alone and at several seeds a step, in turns; heads of ``vit-transfer`` on
random features of the digits, as two classes and ten.

    python benchmarks/bench_training.py [--quick] [--json] [--only NAME …]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.datasets import resolve
from manyseed.jobs.run import DatasetRows, Run, TrainingSet
from manyseed.jobs.trainer import Trainer, generators

NAMES = classifiers.names()
QUICK_FRESH = ("lr-sgd",)
IN_TURNS = ("lr-sgd", "xgb")  # the shorter a fit, the more the order matters
IMAGE = (32, 32, 3)
ON_IMAGES = tuple(name for name in NAMES if classifiers.CLASSIFIERS[name].images_only)
NARROW: dict[str, dict[str, Any]] = {
    "vgg": {"depth": 11, "width": 8},
    "resnet": {"batch": 128, "width": 8},
    "preresnet": {"depth": 20, "width": 8, "bottleneck": False},
    "wide-resnet": {"depth": 10, "width": 1},
}
"""Hparams of networks whose defaults take minutes a fit on a CPU."""
TABLE = resolve("synthetic:gaussian", n_samples=846, n_features=18, weights=[628, 218], test=212)


PARITY = {"even": ["0", "2", "4", "6", "8"], "odd": ["1", "3", "5", "7", "9"]}
SMALL = {"width1": 64, "width2": 32}
STACKED: dict[str, list[tuple[str, dict[str, Any], Any]]] = {
    "mlp": [
        (f"64 and 32 wide, {rows} rows a step", {"batch_size": rows, "hparams": SMALL}, TABLE)
        for rows in (32, 128)
    ],
    "vit-transfer": [
        ("two classes", {}, resolve("sklearn:digits", classes=PARITY)),
        ("ten classes", {}, resolve("sklearn:digits")),
    ],
    **{name: [("8 × 8 pixels", {}, resolve("sklearn:digits"))] for name in ("cnn", "vit")},
}
"""What is trained several at once: by classifier, shapes with their tables and data."""
LENGTH = {"mlp": (20, 20), "vit-transfer": (20, 20), "cnn": (16, 2), "vit": (16, 2)}
"""Steps of an epoch, and epochs: of small networks enough that making them counts little."""


def options(name: str, quick: bool) -> dict[str, Any]:
    """Return a classifier's table: fewer epochs than by default, each with the same work."""
    if name in ON_IMAGES:
        return {"epochs": 1 if quick else 3, "hparams": NARROW.get(name, {})}
    return {"epochs": 2 if quick else 20} if name == "mlp" else {}


def image_rows(quick: bool, distinct: int | None = None) -> TrainingSet:
    """Return random images; with `distinct`, so many different ones, repeated."""
    n, n_test = (256, 64) if quick else (4096, 1024)
    rng = np.random.Generator(np.random.PCG64(1))
    images = rng.integers(0, 256, (distinct or n + n_test, int(np.prod(IMAGE)))).astype(np.uint8)
    rows = np.arange(n + n_test) % len(images)
    y = rng.integers(0, 2, n + n_test).astype(np.uint16)
    X = images[rows].astype(np.float64)
    kinds = np.zeros(X.shape[1], np.int32)
    in_dataset = DatasetRows("bench" + str(quick), images, rows[:n], rows[n:])
    return TrainingSet(X[:n], y[:n], X[n:], 2, kinds, IMAGE, y[n:], in_dataset)


def product(name: str, quick: bool) -> Callable[[int], float]:
    """Return the warm worker: a function of the run's number that gives its `fit_seconds`."""
    if name not in ON_IMAGES:
        info = classifiers.resolve(name, options(name, quick), TABLE)
        cell, trainer = resolve_cell(1, TABLE, info).cell, Trainer()
        return lambda run: trainer.train(Run(cell, 0, run)).fit_seconds
    data = image_rows(quick, (16 if quick else 64) if name == "vit-transfer" else None)
    described = replace(TABLE, image=IMAGE)
    info = classifiers.resolve(name, options(name, quick), described)
    cell = resolve_cell(1, described, info).cell
    return lambda run: (
        classifiers.fit(
            info.canonical, info.hparams, data, generators(Run(cell, 0, run))
        ).fit_seconds
    )


def plain(name: str, quick: bool) -> Callable[[int], float]:
    """Return the plain version: a function of the seed."""
    from plain_training import fitter, standardised

    if name in ON_IMAGES:
        info = classifiers.resolve(name, options(name, quick), replace(TABLE, image=IMAGE))
        data = image_rows(quick, (16 if quick else 64) if name == "vit-transfer" else None)
        X, X_test = (rows.reshape(-1, *IMAGE) for rows in (data.X, data.X_test))
    else:
        info = classifiers.resolve(name, options(name, quick), TABLE)
        run = Run(resolve_cell(1, TABLE, info).cell, 0, 0)
        data = Trainer().training_set(run)
        X, X_test = data.X, data.X_test
    if name == "vit-transfer":
        import torch

        from manyseed.jobs.classifiers.features import features

        digest = info.canonical["weights"]
        X, X_test = features("swin_t", digest, data, torch.device("cpu"))
    elif name != "xgb":
        X, X_test = standardised(X, X_test)
    fit = fitter(name, info.canonical, info.hparams, (X, data.y, X_test))

    def timed(seed: int) -> float:
        started = time.perf_counter()
        assert np.isfinite(fit(seed)).all()
        return time.perf_counter() - started

    return timed


def serve(quick: bool) -> None:
    """Answer requests (kind, name, number) as `Worker.fit` returns it; fits stay warm."""
    made: dict[tuple[str, str], Callable[[int], float]] = {}
    for line in sys.stdin:
        kind, name, number = json.loads(line)
        if (kind, name) not in made:
            made[kind, name] = (product if kind == "product" else plain)(name, quick)
        Path("/proc/self/clear_refs").write_text("5")  # peak memory starts anew
        started, began = time.process_time(), time.perf_counter()
        inside = made[kind, name](number)
        outside = 1 - inside / (time.perf_counter() - began)
        answer = [time.process_time() - started, outside, _peak_mib()]
        print(json.dumps(answer), flush=True)


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


class Worker:
    """A process that fits on request."""

    def __init__(self, kind: str, quick: bool) -> None:
        self.kind = kind
        command = [sys.executable, __file__, "--serve", *(["--quick"] if quick else [])]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def fit(self, name: str, number: int) -> tuple[float, float, float]:
        """Return CPU seconds, the share of time outside the fit, and peak memory in MiB."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([self.kind, name, number]), file=self.process.stdin, flush=True)
        seconds, outside, peak = json.loads(self.process.stdout.readline())
        return seconds, outside, peak

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(name: str, ours: Worker, theirs: Worker, quick: bool) -> dict[str, Any]:
    """Measure one classifier."""
    pairs = [(ours.fit(name, i), theirs.fit(name, i)) for i in range(3 if quick else 12)][1:]
    warm = statistics.median(mine[0] for mine, _ in pairs)
    row: dict[str, Any] = {
        "fits_a_minute": 60 / warm,
        "plain_fits_a_minute": 60 / statistics.median(other[0] for _, other in pairs),
        "speed_up_over_plain": statistics.median(other[0] / mine[0] for mine, other in pairs),
        "fresh_fits_a_minute": None,
        "speed_up_over_fresh": None,
        "share_outside_fit": statistics.median(mine[1] for mine, _ in pairs),
        "peak_mib": max(mine[2] for mine, _ in pairs),
        "plain_peak_mib": max(other[2] for _, other in pairs),
    }
    if not quick or name in QUICK_FRESH:
        fresh = statistics.median(_fresh(name, quick) for _ in range(1 if quick else 3))
        row |= {"fresh_fits_a_minute": 60 / fresh, "speed_up_over_fresh": fresh / warm}
    return row


def turns(name: str, quick: bool) -> dict[str, Any]:
    """Compare a task's order of few repeats with cell after cell: both train the same runs.

    A warm worker's caches serve both; batches are as long as a turn.
    """
    import polars as pl

    from manyseed.orchestrator.tasks.task import turns as turn_of

    n_cells, n_runs = (6, 8) if quick else (16, 20)
    info, trainer = classifiers.resolve(name, options(name, quick), TABLE), Trainer()
    shares = np.linspace(0.5, 1.0, n_cells).tolist()
    cells = [resolve_cell(1, TABLE, info, train_fraction=share).cell for share in shares]
    runs = pl.DataFrame({"cell": np.repeat(np.arange(n_cells), n_runs), "repeat": 0}).with_columns(
        run=pl.int_range(pl.len()).over("cell")
    )
    orders = {
        "by_cell": runs,
        "in_turns": runs.with_columns(turn=turn_of(together=pl.lit(value=False))).sort(
            "turn", "cell", "run"
        ),
    }
    taken: dict[str, list[float]] = {order: [] for order in orders}
    for _ in range(4 if quick else 6):
        for order, frame in orders.items():
            started = time.perf_counter()
            for cell, run in frame.select("cell", "run").iter_rows():
                trainer.train(Run(cells[cell], 0, run))
            taken[order].append(time.perf_counter() - started)
    ratios = [b / a for a, b in zip(taken["by_cell"][1:], taken["in_turns"][1:], strict=True)]
    return {
        "runs": runs.height,
        "cells": n_cells,
        "turns": int(orders["in_turns"]["turn"].max()) + 1,  # type: ignore[arg-type]
        **{f"{order}_seconds": statistics.median(some[1:]) for order, some in taken.items()},
        "in_turns_times_by_cell": statistics.median(ratios),
    }


def stacks(name: str) -> dict[str, dict[int, float]]:
    """Return by shape how many times as fast as alone runs are, so many at once."""
    from manyseed.jobs.stacking import seconds_a_run

    found = {}
    for shape, table, data in STACKED[name]:
        info = classifiers.resolve(name, {"epochs": 20, **table}, data)
        cell = resolve_cell(1, data, info).cell
        seconds = seconds_a_run(cell.canonical(), (8, 32), length=LENGTH[name])
        found[shape] = {n: seconds[1] / each for n, each in seconds.items() if n > 1}
    return found


def _fresh(name: str, quick: bool) -> float:
    started = time.perf_counter()
    worker = Worker("product", quick)
    worker.fit(name, 0)
    worker.close()
    return time.perf_counter() - started


def random_weights(folder: Path) -> None:
    """Write weights of the backbone to the place where torch hub keeps the published ones."""
    import torch

    from manyseed.jobs.packages import torchvision

    torch.manual_seed(0)
    checkpoints = folder / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    state = torchvision("torchvision.models").swin_t().state_dict()
    torch.save(state, checkpoints / "swin_t-704ceda3.pth")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller fits")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.quick)
        return
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    told: dict[str, Any] = {
        "machine": machine,
        "quick": given.quick,
        "classifiers": {},
        "turns": {},
        "stacks": {},
    }
    say = (lambda *_: None) if given.json else partial(print, flush=True)
    say(machine)
    say(f"{'':13}{'fits/min':>10}{'plain':>10}{'ratio':>8}{'fresh':>8}{'ratio':>8}{'MiB':>7}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(MANYSEED_DATA=f"{folder}/data", TORCH_HOME=f"{folder}/torch")
        if "vit-transfer" in given.only:
            random_weights(Path(folder) / "torch")
        # With --quick, one pair serves all: faster, but its memory includes the imports of all.
        for names in [given.only] if given.quick else [[name] for name in given.only]:
            workers = Worker("product", given.quick), Worker("plain", given.quick)
            for name in names:
                row = told["classifiers"][name] = measure(name, *workers, given.quick)
                say(_line(name, row))
            for worker in workers:
                worker.close()
        for name in given.only:
            if name in IN_TURNS:
                row = told["turns"][name] = turns(name, given.quick)
                say(
                    f"{name}, {row['runs']} runs of {row['cells']} cells in {row['turns']} turns: "
                    f"{row['in_turns_times_by_cell']:.2f} × cell after cell"
                )
        for name in given.only:
            if name in STACKED:
                told["stacks"][name] = stacks(name)
                for shape, times in told["stacks"][name].items():
                    shown = ", ".join(f"{n} at once {each:.1f} ×" for n, each in times.items())
                    say(f"{name}, {shape}: {shown} alone")
    if given.json:
        print(json.dumps(told))


def _line(name: str, row: dict[str, Any]) -> str:
    fresh, ratio = row["fresh_fits_a_minute"], row["speed_up_over_fresh"]
    text = f"{fresh:8.1f}{ratio:8.1f}" if fresh else f"{'':16}"
    return (
        f"{name:13}{row['fits_a_minute']:10.1f}{row['plain_fits_a_minute']:10.1f}"
        f"{row['speed_up_over_plain']:8.2f}{text}{row['peak_mib']:7.0f}"
    )


if __name__ == "__main__":
    main()
