"""The report's page, from the result tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from analysis.report.context import Counts, context, summary
from analysis.report.page import render
from orchestrator import origin
from orchestrator.paths import SweepPaths
from orchestrator.results import caveats
from orchestrator.results.analysing import read_analysis
from orchestrator.results.inputs import KEY
from orchestrator.results.tables import CURVES, ENSEMBLES, read_results
from orchestrator.store.files import place
from orchestrator.survey import survey


def report(paths: SweepPaths, name: str) -> Path:
    """Write the page of a sweep that was analysed; return where it is."""
    results = read_results(paths)
    tables = results.of_analysis((*KEY, "dataset", "classifier", "ec_local", "ec_global"))
    options, record = read_analysis(paths)
    counts = survey(paths).counts
    ensembles = results.get(ENSEMBLES)
    page = render(
        context(
            name,
            Counts(
                planned=counts["runs"],
                done=counts["done"] + counts["copy"],
                failed=counts["failed"],
                missing=counts["missing"],
                identical=counts["copy"],
                analysed=record.runs.get("analysed"),
            ),
            tables,
            options,
            _provenance(paths, record.packages, record.analysed),
            (
                *filter(None, [caveats.amounts(record)]),
                *caveats.problems(tables.repeats),
                *caveats.undefined(tables.repeats),
                *caveats.not_computed(record),
                *caveats.outdated(record, ensembles),
            ),
            curves=results.get(CURVES),
            ensembles=ensembles,
        )
    )
    place(paths.report, page.encode())
    return paths.report


def summary_table(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return one row for each dataset and classifier, as text of three decimals.

    Columns dataset, classifier, runs, accuracy (mean ± standard deviation over runs), range (of
    accuracy within a repeat), EC (local), churn, α̂, its resolution δ and N, the test points on each
    side of the test behind it.
    """
    rows = pl.DataFrame(summary(tables["runs"], tables["repeats"]))
    shown = {
        "range": "accuracy_range",
        "EC": "ec_local_mean",
        "churn": "churn_mean",
        "α̂": "alpha_hat_mean",
        "δ": "delta",
    }
    return rows.select(
        "dataset",
        "classifier",
        pl.col("n_runs").alias("runs"),
        accuracy=pl.format("{} ± {}", _decimals("accuracy_mean"), _decimals("accuracy_std")),
        **{title: _decimals(name) for title, name in shown.items()},
        N=pl.col("n_side"),
    )


def _decimals(name: str) -> pl.Expr:
    text = pl.col(name).map_elements(lambda value: f"{value:.3f}", return_dtype=pl.String)
    return text.fill_null("–")


def _provenance(paths: SweepPaths, packages: Mapping[str, str], analysed: str) -> dict[str, str]:
    recipes = origin.read_recipes(paths.recipes)
    devices = sorted({f"{r['device']} ({r['device_class']})" for r in recipes.values()})
    return {
        "Analysed": analysed,
        "Devices": "; ".join(devices),
        "Recipes": str(len(recipes)),
        **{f"{name}": version for name, version in packages.items()},
    }
