"""Speed of the analysis, compared with alternatives for the same numbers.

    python benchmarks/bench_analysis.py [--quick] [--json]

Each alternative restates a published procedure or calls a library, runs on a part that takes
seconds and is scaled to the whole; the result states the size of the part. Before anything is
timed, the numbers that both compute are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import zarr
from scipy.special import expit
from scipy.stats import ks_2samp
from sklearn.metrics import (
    average_precision_score,
    cohen_kappa_score,
    f1_score,
    log_loss,
    matthews_corrcoef,
    roc_auc_score,
)

from manyseed import Sweep
from manyseed.analysis.alphahat.references import PAPER_LEVELS, Reference, alpha_stars
from manyseed.analysis.alphahat.resampling import disjoint_halves, generator
from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.graph.predictions import Predictions
from manyseed.analysis.metrics.formulas import ec_kappa, ec_local
from manyseed.analysis.metrics.gram import both_wrong, pack
from manyseed.analysis.metrics.metric import HeldOut
from manyseed.analysis.options import Options
from manyseed.analysis.questions import points
from manyseed.analysis.questions.ensembles import RunPool, ensemble_draws


def seconds(work: Callable[[], Any], least: float = 0.2) -> float:
    """Return the fastest of several timings, the first (compilation, caches) left out."""
    work()
    best, spent = math.inf, 0.0
    while spent < least or best == math.inf:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        spent += best
    return best


def published_gap(candidate: Any, reference: Any, slope: float) -> Any:
    """Return Γ - t / (1 - α) at each pooled point, counting both eCDFs anew at each."""
    pooled = np.sort(np.concatenate([candidate, reference[: candidate.size]]))
    return np.array([(reference <= t).mean() - slope * (candidate <= t).mean() for t in pooled])


def published_distance(gap: Any, level: float) -> float:
    """Return the trimmed distance, searching the running extremes anew at each pooled point."""
    distance = 0.0
    for i in range(gap.size):
        middle = (gap[i:].max() + gap[: i + 1].min()) / 2
        distance = max(distance, abs(max(min(middle, 0.0), -level / (1 - level)) - gap[i]))
    return distance


def published_alpha(candidate: Any, reference: Any, gamma: float) -> float:
    """Return the first accepted level as the published procedure finds it, in one resample.

    RKS, algorithm 1 and theorem 2: level after level, pooled point after pooled point.
    """
    for level in PAPER_LEVELS:
        gap = published_gap(candidate, reference, 1 / (1 - level))
        if published_distance(gap, level) <= gamma:
            return float(level)
    return 0.50


def bench_alpha(quick: bool) -> dict[str, Any]:
    """α̂ of many candidates against the average eCDF of many models."""
    n_candidates, n_models, n_test, resamples = (
        (20, 50, 1000, 20) if quick else (100, 800, 8000, 100)
    )
    rng = np.random.default_rng(0)
    models = rng.normal(size=(n_models, n_test)).astype(np.float32)
    candidates = rng.normal(0.05, 1, (n_candidates, n_test)).astype(np.float32)
    drawn = disjoint_halves(generator(0, "bench"), n_test, resamples)
    gamma = dkw_threshold(drawn.n_side, 0.01)
    sort = seconds(lambda: Reference.sort(models))
    reference = Reference.sort(models)
    workers = os.cpu_count() or 1
    test = partial(alpha_stars, reference=reference, drawn=drawn, member=False, gamma=gamma)
    ours = seconds(lambda: test(candidates))
    with ThreadPoolExecutor(workers) as threads:
        parts = np.array_split(candidates, workers)
        shared = seconds(lambda: list(threads.map(test, parts)))

    small = candidates[0][drawn.candidate[0] == 1], models[:, drawn.reference[0] == 1]
    part, few = 400, 20  # points and models that the published procedure is timed on
    own = small[0][:part], small[1][:few, :part].ravel()
    gap = published_gap(*own, 1.0)
    # Levels are tried until one accepts; here and for most runs that is the first.
    counting = seconds(lambda: published_gap(*own, 1.0), least=0.0)
    seeking = seconds(lambda: published_distance(gap, 0.0), least=0.0)
    longer = drawn.n_side / part
    published = counting * longer**2 * n_models / few + seeking * longer**2
    far = np.where(np.arange(part) < part // 5, 50, own[0]).astype(np.float32)
    slow = published_alpha(far, own[1], 0.05)
    fast = smallest_trimming_level(far, own[1], 0.05)
    assert PAPER_LEVELS[np.searchsorted(PAPER_LEVELS, fast - 0.01)] == slow, (fast, slow)
    distances = alpha_stars(candidates[:1], reference, drawn, member=False, gamma=gamma)[1]
    exact = ks_2samp(small[0], small[1].ravel(), method="asymp")
    assert math.isclose(distances[0, 0], exact.statistic, abs_tol=1e-9)
    ks = seconds(lambda: ks_2samp(small[0], small[1].ravel(), method="asymp"))
    each = ours / (n_candidates * resamples)
    return {
        "candidates": n_candidates,
        "references": n_models,
        "test_points": n_test,
        "resamples": resamples,
        "threads": workers,
        "sort_seconds": sort,
        "seconds": shared + sort,
        "seconds_on_one_thread": ours + sort,
        "seconds_a_candidate_and_resample": each,
        "published_seconds_a_candidate_and_resample": published,
        "published_measured_on": f"{part} points, {few} models, one level",
        "times_faster_than_published": published / each,
        "ks_2samp_seconds_a_candidate_and_resample": ks,
    }


def bench_small_repeats(quick: bool) -> dict[str, Any]:
    """α̂ against the other runs, of many repeats of 10 runs × 1000 points."""
    repeats = 20 if quick else 400
    rng = np.random.default_rng(1)
    margin = rng.normal(size=(10 * repeats, 1, 1000)).astype(np.float32)
    given = predictions(margin, runs=10)
    options = Options(metrics=("alpha_hat",))
    taken = seconds(
        lambda: compute([analyze_group(given, options)], scheduler="threads", workers=1)
    )
    return {"repeats": repeats, "seconds": taken, "core_minutes_for_53280": taken / repeats * 888}


def predictions(margin: Any, runs: int, label: Any = None) -> Predictions:
    """Predictions of one epoch and one test set, `runs` per cell."""
    total, _, n_test = (margin if label is None else label).shape
    frame = pl.DataFrame(
        {
            "row": np.arange(total, dtype=np.uint32),
            "cell": np.arange(total, dtype=np.uint32) // runs,
            "repeat_index": np.zeros(total, dtype=np.uint16),
            "run_index": (np.arange(total) % runs).astype(np.uint16),
            "identical": np.zeros(total, dtype=bool),
        }
    )
    return Predictions(
        dataset="synthetic",
        classifier="none",
        dataset_id="00" * 16,
        seed=0,
        label=(margin >= 0).astype(np.uint8) if label is None else label,
        margin=margin,
        y_true=np.random.default_rng(2).integers(0, 2, (1, n_test)),
        class_names=("negative", "positive"),
        runs=frame,
        runs_planned=runs,
    )


def pairwise_package(wrong: Any) -> list[float]:
    """Return local error consistency as the EC package does: set by set, pair after pair."""
    result = []
    for i, j in combinations(range(len(wrong)), 2):
        both = np.sum(np.logical_and(wrong[i], wrong[j]))
        union = np.sum(np.logical_or(wrong[i], wrong[j]))
        result.append(both / union if union else 0.0)
    return result


def bench_consistency(quick: bool) -> dict[str, Any]:
    """Error consistency of every pair of runs."""
    n_runs, n_test = (60, 1000) if quick else (200, 8000)
    wrong = np.random.default_rng(3).random((n_runs, n_test)) < 0.2
    i, j = np.triu_indices(n_runs, k=1)

    def gram() -> Any:
        words = pack(wrong)
        both = both_wrong(words, words)
        errors = np.diag(both)
        return ec_local(errors[i], errors[j], both[i, j], math.nan)

    some = list(combinations(range(6), 2))
    words = pack(wrong)
    both = both_wrong(words, words)
    errors = np.diag(both)
    kappas = ec_kappa(errors[i], errors[j], both[i, j], n_test)
    assert np.allclose(gram()[:5], pairwise_package(wrong[:6])[:5])
    assert math.isclose(kappas[0], cohen_kappa_score(wrong[0], wrong[1]), abs_tol=1e-12)
    bits = wrong.astype(np.float32)
    product = seconds(lambda: bits @ bits.T)
    ours = seconds(gram)
    slow = seconds(lambda: [cohen_kappa_score(wrong[a], wrong[b]) for a, b in some])
    return {
        "runs": n_runs,
        "test_points": n_test,
        "seconds": ours,
        "float32_product_seconds": product,
        "times_the_product": ours / product,
        "package_seconds": seconds(lambda: pairwise_package(wrong)),
        "cohen_kappa_score_seconds": slow / len(some) * i.size,
        "cohen_kappa_score_measured_on": f"{len(some)} pairs",
    }


def bench_classification(quick: bool) -> dict[str, Any]:
    """Metrics of many runs, compared with scikit-learn's functions called run by run."""
    n_runs, n_test = (50, 1000) if quick else (1000, 8000)
    rng = np.random.default_rng(7)
    y_true = np.random.default_rng(2).integers(0, 2, n_test)  # as `predictions` draws them
    margin = (2 * y_true - 1 + rng.normal(size=(n_runs, 1, n_test))).astype(np.float32)
    given = predictions(margin, runs=10)
    options = Options(metrics=("confusion", "discrimination", "proper_scores"))

    def ours() -> pl.DataFrame:
        return compute([analyze_group(given, options)], scheduler="threads", workers=1)[0].runs

    def rival(gap: Any) -> dict[str, float]:
        label, p = gap >= 0, expit(gap.astype(np.float64))
        return {
            "f1_macro": f1_score(y_true, label, average="macro"),
            "matthews_corrcoef": matthews_corrcoef(y_true, label),
            "roc_auc": roc_auc_score(y_true, gap),
            "average_precision": average_precision_score(y_true, gap),
            "log_loss": log_loss(y_true, p),
        }

    found, few = ours(), 5
    for k in range(few):
        for name, value in rival(margin[k, 0]).items():
            assert math.isclose(found[name][k], value, rel_tol=1e-9), name
    taken = seconds(ours)
    slow = seconds(lambda: [rival(gap) for gap in margin[:few, 0]]) / few * n_runs
    return {
        "runs": n_runs,
        "test_points": n_test,
        "seconds": taken,
        "scikit_learn_seconds": slow,
        "scikit_learn_measured_on": f"{few} runs",
        "times_faster": slow / taken,
    }


def bench_table_one(quick: bool) -> dict[str, Any]:
    """Table I of RKS: 9 sizes × 500 draws from 800 models against 800, 8000 points, B = 100."""
    models, n_test, draws, sizes = (40, 1000, 20, (3, 10)) if quick else (800, 8000, 500, None)
    rng = np.random.default_rng(4)
    base = 3 * rng.normal(size=n_test).astype(np.float32)
    shape = (models, n_test)
    held_out = HeldOut((base > 0).astype(int), 2, "softmax", 0, "00" * 16, 0, 20 if quick else 100)
    pool = RunPool(
        held_out,
        base + rng.normal(size=shape).astype(np.float32),
        base + rng.normal(size=shape).astype(np.float32),
    )
    options = Options(resamples=held_out.resamples)
    workers = os.cpu_count() or 1
    start = time.perf_counter()
    drawn = ensemble_draws(pool, options, sizes=sizes, draws=draws, workers=workers)
    taken = time.perf_counter() - start
    return {"ensembles": drawn.height, "models": models, "threads": workers, "seconds": taken}


def bench_reading(quick: bool) -> dict[str, Any]:
    """Accuracy and error consistency of a Zarr store larger than a block, and reading alone."""
    n_runs, n_test = (2000, 2000) if quick else (40_000, 50_000)
    folder = Path(tempfile.mkdtemp(prefix="bench-analysis-"))
    try:
        label = zarr.create_array(
            folder / "label.zarr",
            shape=(n_runs, 1, n_test),
            chunks=(100, 1, n_test),
            dtype="uint8",
            compressors=None,
        )
        rng = np.random.default_rng(5)
        for start in range(0, n_runs, 100):
            label[start : start + 100] = rng.integers(0, 2, (100, 1, n_test), dtype=np.uint8)
        given = predictions(None, runs=10, label=label)
        workers = os.cpu_count() or 1
        start = time.perf_counter()
        for path in sorted((folder / "label.zarr").rglob("*")):
            if path.is_file():
                path.read_bytes()
        raw = time.perf_counter() - start
        options = Options(metrics=("accuracy", "agreement"))
        first = replace(given, runs=given.runs.head(20))
        compute([analyze_group(first, options)], scheduler="synchronous")  # compilation
        start = time.perf_counter()
        group = analyze_group(given, options)
        compute([group], scheduler="threads", workers=workers)
        taken = time.perf_counter() - start
        size = n_runs * n_test
        return {
            "bytes": size,
            "seconds": taken,
            "bytes_a_second": size / taken,
            "raw_read_bytes_a_second": size / raw,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
    finally:
        shutil.rmtree(folder)


def bench_checksums(quick: bool) -> dict[str, Any]:
    """Cost of comparing rows with their checksums, as the first analysis of a sweep does.

    A whole analysis of cheap metrics, and accuracy alone, each with and without
    ``results/checked.json``, in turns; the fastest of each counts.
    """
    n_runs, n_test = (400, 1000) if quick else (10_000, 8000)
    folder = Path(tempfile.mkdtemp(prefix="bench-analysis-"))
    try:
        rng = np.random.default_rng(6)
        scores = rng.standard_normal((n_runs, n_test), dtype=np.float32)
        y_true, repeat = rng.integers(0, 2, n_test), np.arange(n_runs) // 10
        np.savez(folder / "scores.npz", scores=scores, y_true=y_true, repeat=repeat)
        sweep = Sweep.import_predictions([folder / "scores.npz"], folder / "sweep")
        taken: dict[str, float] = {}
        for _ in range(3):
            for what, metrics in (("accuracy", ("accuracy",)), ("", ("accuracy", "agreement"))):
                for checked in (False, True):
                    keep_checked(sweep.paths.results, keep=checked)
                    start = time.perf_counter()
                    sweep.analyze(Options(metrics=metrics))
                    name = "_".join(filter(None, (what, "checked" if checked else "compared")))
                    spent = time.perf_counter() - start
                    taken[name] = min(spent, taken.get(name, math.inf))
        return {
            "runs": n_runs,
            "test_points": n_test,
            "bytes": n_runs * n_test * 5,
            **{f"{name}_seconds": spent for name, spent in taken.items()},
            "times_without_comparing": taken["compared"] / taken["checked"],
            "accuracy_times_without_comparing": taken["accuracy_compared"]
            / taken["accuracy_checked"],
            "comparing_bytes_a_second": n_runs
            * n_test
            * 5
            / (taken["compared"] - taken["checked"]),
        }
    finally:
        shutil.rmtree(folder)


def keep_checked(results: Path, *, keep: bool) -> None:
    """Remove result tables, so that all is computed again; the record of checked rows may stay."""
    for file in results.glob("*"):
        if not (keep and file.name == "checked.json"):
            file.unlink()


def bench_points(quick: bool) -> dict[str, Any]:
    """What the table of test points adds to an analysis, as of one that leaves it out, in turns.

    A whole first analysis of cheap metrics, and one that computes α̂, too.
    """
    n_runs, n_test = (400, 1000) if quick else (10_000, 8000)
    folder = Path(tempfile.mkdtemp(prefix="bench-analysis-"))
    try:
        rng = np.random.default_rng(8)
        scores = rng.standard_normal((n_runs, n_test), dtype=np.float32)
        y_true, repeat = rng.integers(0, 2, n_test), np.arange(n_runs) // 10
        np.savez(folder / "scores.npz", scores=scores, y_true=y_true, repeat=repeat)
        sweep = Sweep.import_predictions([folder / "scores.npz"], folder / "sweep")
        found: dict[str, Any] = {"runs": n_runs, "test_points": n_test}
        asked = {"cheap": ("accuracy", "agreement"), "all": Options().metrics}
        for name, metrics in asked.items():
            taken = {"with": math.inf, "without": math.inf}
            for number in range(4):  # the first compiles
                for way in taken:
                    keep_checked(sweep.paths.results, keep=False)
                    made: dict[str, Any] = {} if way == "with" else {"return_value": []}
                    with patch.object(points, "build", wraps=points.build, **made):
                        start = time.perf_counter()
                        sweep.analyze(Options(metrics=metrics))
                        spent = time.perf_counter() - start
                    if number:
                        taken[way] = min(taken[way], spent)
            found |= {f"{name}_{way}_seconds": least for way, least in taken.items()}
            found[f"{name}_times_without"] = taken["with"] / taken["without"]
        return found
    finally:
        shutil.rmtree(folder)


BENCHES: dict[str, Callable[[bool], dict[str, Any]]] = {
    "reading": bench_reading,  # first, so that the peak is its own
    "alpha_hat": bench_alpha,
    "small_repeats": bench_small_repeats,
    "error_consistency": bench_consistency,
    "classification": bench_classification,
    "table_one": bench_table_one,
    "checksums": bench_checksums,
    "points": bench_points,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", choices=BENCHES, help="one of them")
    asked = parser.parse_args()
    results = {}
    for name, bench in BENCHES.items():
        if asked.only in (None, name):
            results[name] = bench(asked.quick)
            if not asked.json:
                print(name)
                for key, value in results[name].items():
                    text = f"{value:.4g}" if isinstance(value, float) else f"{value}"
                    print(f"  {key.replace('_', ' ')}: {text}")
    if asked.json:
        json.dump({"quick": asked.quick, "cores": os.cpu_count(), **results}, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
