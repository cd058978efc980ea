"""The preliminary study of model variance, in part: what a fit costs, and what all of it would.

``examples/model-variance-preliminary.toml`` on synthetic twins of its datasets (as many rows,
features and classes), through the product from plan to report, with fewer repeats and runs of every
cell. Before that, fits of each classifier in turns, in one warm process with one thread: as a
training process makes them (with perturbing, encoding and predicting), by the bare library on data
prepared before, and, for ``mlp``, the matrix products of all its steps alone. Seconds of fits in
turns and of commands are those of the processor, so that other load counts little; those of the
sweep's fits are wall time, as they are stored.

The total is extrapolated cell by cell; its interval is that of which runs were drawn. What the
product adds grows less than the number of runs, so that its extrapolation is an upper bound. Where
other load makes fits wait, wall time says nothing: then the processor's time of all commands is
extrapolated.

    python benchmarks/bench_study.py [--quick] [--json] [--fraction F] [--workers N] [--bf16]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import polars as pl
from bench_smallest import cpu_seconds
from numpy.typing import NDArray
from plain_training import fitter

from manyseed.jobs import datasets
from manyseed.jobs.run import Run, TrainingSet
from manyseed.jobs.trainer import Trainer, run_hparams
from manyseed.jobs.training.encode import dense_encoder
from manyseed.jobs.training.handling import Handling
from manyseed.orchestrator.plans.planning import plan_change
from manyseed.slurm.local import available_cores

STUDY = Path(__file__).parents[1] / "examples" / "model-variance-preliminary.toml"
TWINS = {"vehicle": "openml:vehicle@2", "anneal": "openml:anneal@17"}
SMALL = (
    'grid.perturb_continuous=["none", "relative:0.1"]',
    'grid.perturb_hparams=["none", "relative:0.1"]',
    "classifier.mlp.epochs=2",
)
"""What makes the study quick, and another one."""
KEY = ["cell", "repeat_index", "run_index"]
MANYSEED = str(Path(sys.executable).with_name("manyseed"))


def settings(given: argparse.Namespace, fraction: float = 1.0) -> list[str]:
    """Return the settings of the study on twins, with a share of its 10 × 10 runs of a cell."""
    found = ['classifier.mlp.device="cpu"', *(SMALL if given.quick else ())]
    found += ['classifier.mlp.precision="bf16"'] * given.bf16
    for name, source in TWINS.items():
        info = datasets.resolve(source)
        values = {
            "source": '"synthetic:gaussian"',
            "n_samples": info.n_samples,
            "n_features": info.n_features,
            "n_categorical": info.n_categorical,
            "weights": list(info.class_counts),
        }
        found += [f"dataset.{name}.{key}={value}" for key, value in values.items()]
    repeats = max(1, round(10 * fraction))
    runs = 10 if fraction >= 0.1 else max(2, round(100 * fraction))
    return [*found, f"repeats={repeats}", f"runs={runs}"]


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds of the processor that a call takes."""
    started = time.process_time()
    call()
    return time.process_time() - started


def bare(run: Run, data: TrainingSet) -> Callable[[], Any]:
    """Return the library's own fit and prediction of a run, on its data and with its hparams."""
    name, hparams = run.cell.classifier["name"], run_hparams(run)
    if name == "xgb":
        return partial(_trees, run, data, hparams)
    encode = dense_encoder(data)
    if hparams.get("penalty") == "none":
        hparams["penalty"] = None  # type: ignore[assignment]
    arrays = (encode(data.X), data.y, encode(data.X_test))
    return partial(fitter(name, run.cell.classifier, hparams, arrays), run.run)


def _trees(run: Run, data: TrainingSet, hparams: dict[str, Any]) -> NDArray[Any]:
    import xgboost

    matrix = partial(
        xgboost.DMatrix,
        feature_types=["c" if labels else "q" for labels in data.cardinality],
        enable_categorical=True,
        nthread=1,
    )
    fixed = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1, "seed": run.run}
    rounds = run.cell.classifier["rounds"]
    booster = xgboost.train({**hparams, **fixed}, matrix(data.X, label=data.y), rounds)
    scores: NDArray[Any] = booster.predict(matrix(data.X_test), output_margin=True)
    return scores


def products(run: Run, data: TrainingSet) -> Callable[[], None]:
    """Return the matrix products of all steps of an ``mlp``, forward and back, into kept memory."""
    import torch

    torch.set_num_threads(1)
    canonical, hparams = run.cell.classifier, run_hparams(run)
    width1, width2 = int(hparams["width1"]), int(hparams["width2"])
    widths = [dense_encoder(data)(data.X[:2]).shape[1], *[width1] * 3, *[width2] * 3]
    widths.append(data.n_classes)
    steps = canonical["epochs"] * math.ceil(len(data.X) / canonical["batch_size"])
    batch = round(canonical["epochs"] * len(data.X) / steps)
    rows = [torch.rand(batch, width) for width in widths]
    weights = [torch.rand(n_out, n_in) / n_in for n_in, n_out in pairwise(widths)]
    gradients = [torch.empty_like(each) for each in weights]

    def multiply() -> None:
        for _ in range(steps):
            for number, weight in enumerate(weights):
                torch.mm(rows[number], weight.T, out=rows[number + 1])
            for number in reversed(range(len(weights))):
                torch.mm(rows[number + 1].T, rows[number], out=gradients[number])
                if number:
                    torch.mm(rows[number + 1], weights[number], out=rows[number])

    return multiply


def fits(
    cells: pl.DataFrame, texts: Callable[[int], Any], count: int, bf16: bool
) -> dict[str, Any]:
    """Time fits of some cells in turns; return seconds and ratios. The bare ones are in float32."""
    trainer, found = Trainer(), dict[str, list[float]]()
    numbers = cells["cell"].to_list()
    for turn in range(count + 1):
        run = Run(texts(numbers[turn * 9 % len(numbers)]), 0, turn)
        data = trainer.training_set(run)
        is_mlp = run.cell.classifier["name"] == "mlp"
        handling = Handling(precision="bf16" if bf16 and is_mlp else "float32")
        ways = {"manyseed": partial(trainer.train, run, handling), "bare": bare(run, data)}
        if is_mlp:
            ways["products"] = products(run, data)
        for way, call in ways.items():
            seconds = timed(call)
            if turn:  # the first one imports libraries
                found.setdefault(way, []).append(seconds)
    own = found["manyseed"]
    ratios = {
        f"{way}_ratio": statistics.median(a / b for a, b in zip(theirs, own, strict=True))
        for way, theirs in found.items()
        if way != "manyseed"
    }
    return {**{way: statistics.mean(values) for way, values in found.items()}, **ratios}


def extrapolated(runs: pl.DataFrame, full: pl.DataFrame) -> tuple[float, float]:
    """Return the seconds of all fits of a study, and half of their 95 % interval.

    `runs`: columns dataset, classifier, cell and fit_seconds of those that were trained. `full`:
    columns dataset, classifier and fits of the whole study.
    """
    pair = ["dataset", "classifier"]
    cells = runs.group_by(*pair, "cell").agg(
        n=pl.len(), mean=pl.col("fit_seconds").mean(), variance=pl.col("fit_seconds").var()
    )
    scale = full.join(runs.group_by(pair).agg(trained=pl.len()), on=pair)
    cells = cells.join(scale, on=pair).with_columns(
        pl.col("variance").fill_null(pl.col("variance").mean().over(pair)).fill_null(0.0),
        total=pl.col("n") * pl.col("fits") / pl.col("trained"),
    )
    left = (1 - pl.col("n") / pl.col("total")).clip(0.0)
    error = (pl.col("total") ** 2 * pl.col("variance") / pl.col("n") * left).sum().sqrt()
    sums = {"seconds": (pl.col("total") * pl.col("mean")).sum(), "error": error}
    seconds, spread = cells.select(**sums).row(0)
    return float(seconds), 1.96 * float(spread)


def size(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> None:
    """Measure fits, then the sweep; print as it goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small part, with shorter fits")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--fraction", type=float, default=0.02, help="of the runs (default: 0.02)")
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--bf16", action="store_true", help="products of mlp in bfloat16")
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    say = (lambda *_: None) if given.json else partial(print, flush=True)
    fraction = 0.02 if given.quick else given.fraction
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    told: dict[str, Any] = {"machine": machine, "quick": given.quick, "load": os.getloadavg()[0]}
    say(f"{machine}; load {told['load']:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MANYSEED_DATA"] = f"{folder}/data"
        out = Path(folder, "sweep")
        whole = plan_change(STUDY, out, settings(given))
        for info in whole.expansion.datasets.values():
            datasets.fetch(info)
        told["fits"] = {}
        heads = ("manyseed", "bare", "ratio", "products", "ratio")
        say("CPU s a fit " + "".join(f"{head:>10}" for head in heads))
        for name in whole.after.cells["classifier"].unique(maintain_order=True):
            cells = whole.after.cells.filter(classifier=name)
            row = told["fits"][name] = fits(
                cells, whole.after.cell, 2 if given.quick else 12, given.bf16
            )
            shown = ("manyseed", "bare", "bare_ratio", "products", "products_ratio")
            say(f"{name:12}" + "".join(f"{row[key]:10.4f}" for key in shown if key in row))
        told |= sweep(given, fraction, out, say)
        study = pl.DataFrame(whole.summary()["by_group"])
        told |= summary(pl.read_parquet(out / "results" / "runs.parquet"), study, told, given, say)
    if given.json:
        print(json.dumps(told))


def summary(
    runs: pl.DataFrame,
    study: pl.DataFrame,
    told: dict[str, Any],
    given: argparse.Namespace,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Return what fits of the sweep took, what was added to them, and what the study would take."""
    trained = runs.drop_nulls("fit_seconds").unique(KEY)
    means = trained.group_by("classifier").agg(pl.col("fit_seconds").mean()).sort("classifier")
    for name, mean in means.iter_rows():
        say(f"{name:12}{mean:10.4f} s a fit in the sweep")
    seconds, half = extrapolated(trained, study.select("dataset", "classifier", "fits"))
    in_fits, n_runs = float(trained["fit_seconds"].sum()), int(study["runs"].sum())
    added = sum(each["cpu"] for each in told["stages"].values()) - in_fits
    found: dict[str, Any] = {
        "sweep_fit_seconds": dict(means.iter_rows()),
        "study_runs": n_runs,
        "study_fit_seconds": seconds,
        "study_fit_seconds_95": half,
        "added_seconds": added if added > 0 else None,
    }
    text = f"All {n_runs:,} runs: fits {seconds / 3600:.2f} ± {half / 3600:.2f} core-h"
    if added > 0:
        most = added * n_runs / told["runs"]
        found |= {"added_share": added / in_fits, "study_added_seconds_at_most": most}
        say(f"Beside fits: {added:.1f} core-s, {100 * added / in_fits:.1f} % of them.")
        text += f", all else at most {most / 3600:.2f}"
        seconds += most
    else:
        say("Beside fits: not known, as other load made the fits wait: by the processor's time,")
        seconds = sum(each["cpu"] for each in told["stages"].values()) * n_runs / told["runs"]
        text = f"all {n_runs:,} runs and all else: at most {seconds / 3600:.2f} core-h"
    found["study_minutes"] = seconds / 60 / given.workers
    say(f"{text}: {found['study_minutes']:.0f} min on {given.workers} cores.")
    return found


def sweep(
    given: argparse.Namespace, fraction: float, out: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Plan, train, analyse and report; return what each command took, and what is on disk."""
    options = [word for one in settings(given, fraction) for word in ("--set", one)]
    stages: dict[str, list[object]] = {
        "plan": ["plan", STUDY, "--out", out, *options],
        "submit": ["submit", out, "--cluster", "local", "--workers", given.workers],
        "analyze": ["analyze", out],
        "report": ["report", out],
    }
    told: dict[str, Any] = {"stages": {}}
    for stage, words in stages.items():
        started = time.perf_counter()
        cpu = cpu_seconds([MANYSEED, *map(str, words)])
        wall = time.perf_counter() - started
        told["stages"][stage] = {"cpu": cpu, "wall": wall}
        say(f"{stage:12}{cpu:10.1f} CPU s{wall:10.1f} s")
    store = out / "predictions.zarr"
    table = pl.read_parquet(out / "results" / "runs.parquet", columns=KEY)
    runs = table.n_unique()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    told |= {"runs": runs, "peak_mib": peak, "store_bytes": size(store), "sweep_bytes": size(out)}
    say(
        f"{runs:,} runs; largest process {peak:.0f} MiB; store {size(store) / 1e6:.1f} MB, "
        f"{size(store) / runs:.0f} bytes a run; the whole sweep {size(out) / 1e6:.1f} MB"
    )
    return told


if __name__ == "__main__":
    main()
