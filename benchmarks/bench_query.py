"""Queries of the tables of 532 800 runs: seconds of the command, compared with plain polars.

    python benchmarks/bench_query.py [--quick] [--json] [--folder DIR]

The benchmark makes a plan of the recommended study's size and tables of random numbers with all
columns that an analysis writes: runs, pairs (45 per repeat), repeats and cells. Each query runs as
a user's command in a separate process, from its start to its last line. For comparison, polars
alone, also in a separate process, reads the same file lazily and computes the same groups' means,
without intervals, coverage or checksums. The fastest of several rounds counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_plan import sweep_file
from manyseed.analysis.axes import AXES
from manyseed.analysis.metrics.registry import schema
from manyseed.analysis.options import Options
from manyseed.analysis.tables.schema import FACTS, cells, repeat_columns
from manyseed.orchestrator.computing.tables import Analysis, to_json, write_result
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_sweep

RUNS = {True: 44_800, False: 532_800}
ROUNDS = {True: 2, False: 5}

_GROUPED = "pl.scan_parquet({file!r}).group_by({by}).agg(pl.len(), pl.col({of}).mean()).collect()"
QUESTIONS: dict[str, tuple[Sequence[str], str, str]] = {
    "cells by classifier": (
        ["--by", "classifier"],
        "cells",
        _GROUPED.format(file="FILE", by="['classifier']", of="['accuracy_mean', 'ec_local_mean']"),
    ),
    "runs by classifier": (
        ["-t", "runs", "--by", "classifier", "-c", "accuracy,ece"],
        "runs",
        _GROUPED.format(file="FILE", by="['classifier']", of="['accuracy', 'ece']"),
    ),
    "runs by everything but the seeds": (
        ["-t", "runs", "--by", "-c", "accuracy"],
        "runs",
        _GROUPED.format(file="FILE", by=repr(list(AXES)), of="['accuracy']"),
    ),
    "quantiles of runs": (
        ["-t", "runs", "--by", "dataset,classifier", "--agg", "median,q05,q95", "-c", "accuracy"],
        "runs",
        "pl.scan_parquet('FILE').group_by('dataset', 'classifier').agg(*(pl.col('accuracy')"
        ".quantile(q).alias(str(q)) for q in (0.5, 0.05, 0.95))).collect()",
    ),
    "the best runs": (
        ["-t", "runs", "-w", "classifier = 'mlp' AND accuracy > 0.9", "--sort", "-accuracy"],
        "runs",
        "pl.scan_parquet('FILE').filter(pl.col('classifier') == 'mlp', pl.col('accuracy') > 0.9)"
        ".select('dataset', 'classifier', 'cell', 'repeat_index', 'run_index', 'accuracy')"
        ".sort('accuracy', descending=True).collect()",
    ),
    "pairs by classifier": (
        ["-t", "pairs", "--by", "classifier", "-c", "churn"],
        "pairs",
        _GROUPED.format(file="FILE", by="['classifier']", of="['churn']"),
    ),
    "SQL over runs": (
        ["--sql", "SELECT classifier, AVG(accuracy) AS mean FROM runs GROUP BY classifier"],
        "runs",
        _GROUPED.format(file="FILE", by="['classifier']", of="['accuracy']"),
    ),
}


def write_tables(directory: Path) -> None:
    """Write the result tables of a plan, with random numbers in all columns of an analysis."""
    paths, options = SweepPaths(directory), Options()
    plan, metrics = Plan.read(paths), schema(Options().metrics)
    random = np.random.default_rng(0)

    def drawn(height: int, columns: dict[str, type[pl.DataType]]) -> list[pl.Series]:
        return [
            pl.Series(name, random.random(height)).cast(kind, strict=False)
            for name, kind in columns.items()
        ]

    runs = plan.rows.select("cell", repeat_index="repeat", run_index="run")
    runs = runs.sort("cell", "repeat_index", "run_index").with_columns(
        epoch=pl.lit(0, pl.UInt32), identical=pl.lit(value=False)
    )
    of_runs = {c.name: c.dtype for metric in metrics for c in metric.runs}
    more = {"probe": pl.String, "fit_seconds": pl.Float64, "recipe": pl.UInt16}
    runs = runs.with_columns(drawn(runs.height, {**of_runs, **more})).with_columns(
        probe=pl.lit("gap"), delta=pl.lit(0.1)
    )
    repeats = runs.group_by("cell", "epoch", "repeat_index", maintain_order=True).agg(
        n_runs=pl.len(), n_distinct=pl.len()
    )
    of_repeats = {c.name: c.dtype for c in repeat_columns(metrics)}
    lacking = {n: k for n, k in {**FACTS, **of_repeats}.items() if n not in repeats.columns}
    repeats = repeats.with_columns(drawn(repeats.height, lacking)).with_columns(
        pl.lit(None, pl.String).alias("problem"),
        coverage=pl.lit(1.0),
        identical=pl.lit(value=False),
        probe=pl.lit("gap"),
        delta=pl.lit(0.1),
        mixed_recipes=pl.lit(value=False),
    )
    first, second = np.triu_indices(10, 1)
    both = pl.DataFrame({"run_i": first, "run_j": second}).cast(pl.UInt16)
    pairs = repeats.select("cell", "epoch", "repeat_index").join(both, how="cross")
    of_pairs = {c.name: c.dtype for metric in metrics for c in metric.pairs}
    pairs = pairs.with_columns(drawn(pairs.height, of_pairs))
    own = plan.cells.select("cell", "cell_id", *AXES)
    twins = own.select("cell", draws_from=pl.lit("init"), same_as=pl.lit(None, pl.UInt32))
    tables = {
        "runs": runs,
        "pairs": pairs,
        "repeats": repeats,
        "cells": cells(repeats).join(twins, on="cell", maintain_order="left"),
        "sources": repeats.select("cell", "epoch").unique(),
        "ranking": runs.select("cell", "epoch", "repeat_index", "run_index", rank=pl.lit(1)),
    }
    paths.results.mkdir()
    for name, table in tables.items():
        joined = own.lazy().join(table.lazy(), on="cell", maintain_order="right")
        write_result(paths, name, joined, options)
    counts = dict.fromkeys(("analysed", "finished", "planned"), runs.height)
    Analysis(to_json(options), runs=counts).write(paths)


def seconds(command: Sequence[str], rounds: int) -> float:
    """Return the shortest time that a command takes."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        best = min(best, time.perf_counter() - started)
    return best


def bench(folder: Path, *, quick: bool) -> dict[str, dict[str, float]]:
    """Run all queries; return seconds of the command and of polars, and their ratio."""
    file, directory = folder / "sweep.toml", folder / "sweep"
    file.write_text(sweep_file(RUNS[quick]))
    plan_sweep(file, directory)
    write_tables(directory)
    run = "import sys; from manyseed.orchestrator.cli import main; sys.exit(main())"
    found = {}
    for name, (options, table, plain) in QUESTIONS.items():
        asked = [sys.executable, "-c", run, "query", str(directory), *options]
        result = str(SweepPaths(directory).table(table))
        alone = f"import polars as pl; print({plain.replace('FILE', result)})"
        ours = seconds(asked, ROUNDS[quick])
        theirs = seconds([sys.executable, "-c", alone], ROUNDS[quick])
        found[name] = {"seconds": ours, "polars_seconds": theirs, "ratio": ours / theirs}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="44 800 runs: under a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = bench(Path(folder), quick=options.quick)
    if options.json:
        print(json.dumps({"runs": RUNS[options.quick], **found}, indent=2))
        return
    print(f"{RUNS[options.quick]:,} runs")
    for title, figures in found.items():
        shown = ", ".join(f"{name} {value:,.3g}" for name, value in figures.items())
        print(f"{title}: {shown}")


if __name__ == "__main__":
    main()
