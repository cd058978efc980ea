"""Write the report's page from the result tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from manyseed.analysis.report.wording import summary, varying_axes
from manyseed.analysis.tables.snapshots import last
from manyseed.analysis.tables.twins import IS_TWIN, SAME_AS
from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.provenance import lost_recipes
from manyseed.orchestrator.results import caveats, drawn
from manyseed.orchestrator.results.answers.summary import further
from manyseed.orchestrator.results.caveats import newer
from manyseed.orchestrator.results.effects import compared
from manyseed.orchestrator.results.origin import origin, sweep_text
from manyseed.orchestrator.results.record import Analysis
from manyseed.orchestrator.results.tables import (
    DRAWN_PAIRS,
    DRAWN_TABLES,
    ENSEMBLES,
    VARIANCE,
    read_results,
)
from manyseed.orchestrator.submissions.submission import lost_failures, submissions
from manyseed.orchestrator.survey import survey

if TYPE_CHECKING:
    from manyseed.analysis.report.page import RunCounts


def report(paths: SweepPaths, name: str, tell: Callable[[str], None] | None = None) -> Path:
    """Write the page of an analysed sweep; return its path.

    The page lists files whose loss makes it incomplete, and `tell` is called with each.
    """
    from manyseed.analysis.report.page import context, render

    results = read_results(paths)
    record = Analysis.read(paths)
    of = drawn.identity(paths, results, record)  # before the tables are read
    tables = results.of_analysis(DRAWN_PAIRS, whole=True)
    options = record.conventions(paths)
    shown = {table: results.get(table) for table in DRAWN_TABLES}
    if of and of["tables"] != drawn.checksums(paths, results):
        of = None  # an analysis ended meanwhile
    figures = drawn.kept(paths, of)
    counts = _counts(paths, record)
    lost = [f"{file} is lost: restore it" for file in lost_recipes(paths.recipes)]
    lost += lost_failures(submissions(paths)) if counts.missing else []
    if tell is not None:
        for text in lost:
            tell(text)
    is_current = record.runs.get("finished") == counts.finished
    amounts = caveats.amounts(record) if is_current else None
    content = context(
        name,
        counts,
        tables,
        options,
        origin(paths, tables.cells, record.packages, record.analysed),
        (
            *filter(None, [amounts]),
            *caveats.problems(tables.repeats),
            *caveats.mixed(last(tables.runs)),
            *caveats.undefined(tables.repeats),
            *caveats.small_classes(tables.repeats),
            *caveats.not_computed(record),
            *caveats.outdated(record, shown[ENSEMBLES]),
            *(text.removeprefix(f"{paths.directory}/") for text in lost),
        ),
        compared=compared(results),
        variance=last(results[VARIANCE]) if VARIANCE in results else None,
        sources=results["sources"],
        sweep_file=sweep_text(paths),
        further=further(paths, record),
        figures=figures,
        **shown,
    )
    place(paths.report, render(content).encode())
    if figures is None:
        drawn.keep(paths, of, content.figures)
    return paths.report


def _counts(paths: SweepPaths, record: Analysis) -> RunCounts:
    from manyseed.analysis.report.page import RunCounts

    counts = survey(paths).counts
    return RunCounts(
        planned=counts["runs"],
        done=counts["done"],
        copies=counts["copy"],
        failed=counts["failed"],
        missing=counts["missing"],
        analysed=record.runs.get("analysed"),
        newer=newer(paths),
    )


def summary_table(cells: pl.DataFrame) -> pl.DataFrame:
    """Return one row per cell, with numbers as text with three decimals.

    Columns dataset, classifier, cell (the axes in which cells differ, if any), runs, test sets,
    accuracy ± seeds (mean over repeats ± standard deviation between runs, pooled within repeats),
    between test sets (standard deviation), range (of accuracy within a repeat), EC (local), churn,
    α̂, its resolution δ, and N, the test points on each side of its test. † marks cells of
    identical runs, ‡ those whose fits are another cell's.
    """
    rows = pl.DataFrame(
        summary(cells),
        schema_overrides={SAME_AS: pl.UInt32, **cells.schema, "epoch": pl.String},
    )
    parts = [pl.col(name).cast(pl.String) for name in varying_axes(cells)] or [pl.lit("")]
    mark = pl.when(pl.col("n_identical_repeats") > 0).then(pl.lit(" †")).otherwise(pl.lit(""))
    twin = pl.when(IS_TWIN).then(pl.lit(" ‡")).otherwise(pl.lit(""))
    shown = {
        "between test sets": "accuracy_mean_sd",
        "range": "accuracy_range",
        "EC": "ec_local_mean",
        "churn": "churn_mean",
        "α̂": "alpha_hat_mean",
        "δ": "delta",
    }
    accuracy = pl.format("{} ± {}", _decimals("accuracy_mean"), _decimals("accuracy_std"))
    return rows.select(
        "dataset",
        "classifier",
        (pl.concat_str(parts, separator=" · ") + mark + twin).alias("cell"),
        pl.col("n_runs").alias("runs"),
        pl.col("n_repeats").alias("test sets"),
        accuracy.alias("accuracy ± seeds"),
        *(_decimals(name).alias(title) for title, name in shown.items()),
        N=pl.col("n_side"),
    )


def _decimals(name: str) -> pl.Expr:
    text = pl.col(name).map_elements(lambda value: f"{value:.3f}", return_dtype=pl.String)
    return text.fill_null("–")
