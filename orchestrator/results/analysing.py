"""Predictions → result tables: analyse finished runs, describe them, write Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.group import GroupAnalysis, ReportProgress, analyze_group, compute
from manyseed.analysis.graph.predictions import Predictions, unavailable
from manyseed.analysis.metrics.alpha_hat import ALPHA_HAT, fewest_runs
from manyseed.analysis.metrics.registry import select
from manyseed.analysis.options import Options
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.keys import REPEAT
from manyseed.analysis.tables.schema import Tables, without
from manyseed.orchestrator import provenance
from manyseed.orchestrator.disk.parquet import checksum
from manyseed.orchestrator.errors import DamagedFile, refused, toml_value
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import IS_IMPORTED, PREFIX, Plan, with_anchors
from manyseed.orchestrator.results import ensembles
from manyseed.orchestrator.results.conventions import why_not
from manyseed.orchestrator.results.curves import CURVE_ARRAYS, CURVE_KEY, learning_curves
from manyseed.orchestrator.results.deep import measured, of_cells, without_deep
from manyseed.orchestrator.results.describing import described, of_runs
from manyseed.orchestrator.results.inputs import Held, digests
from manyseed.orchestrator.results.published import Published, check_checksums, published
from manyseed.orchestrator.results.record import Analysis, Unavailable, to_json
from manyseed.orchestrator.results.responses import responses
from manyseed.orchestrator.results.tables import (
    CMI,
    CURVES,
    DEE,
    MARGINS,
    RESPONSE_CURVES,
    RESPONSES,
    TACE,
    UNCERTAINTY,
    Results,
    read_results,
)
from manyseed.orchestrator.results.writing import write_result
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.submissions.submission import nothing_finished
from manyseed.orchestrator.survey import survey


def analyze(
    paths: SweepPaths,
    options: Options,
    *,
    scheduler: Any = "threads",
    workers: int | None = None,
    progress: ReportProgress | None = None,
    before_writing: Callable[[], None] = lambda: None,
) -> Results:
    """Compute and write all result tables from the published runs.

    Repeats whose inputs have not changed since their rows on disk were computed are not computed
    again; the tables are bit for bit the same as if they were.

    Parameters
    ----------
    paths : SweepPaths
    options : Options
    scheduler, workers, progress
        As in `analysis.graph.group.compute`.
    before_writing : callable
        Called before anything on disk changes; may raise.

    Returns
    -------
    Results
        The tables on disk.

    Raises
    ------
    UserError
        For options that published runs can't meet.
    """
    plan, held = Plan.read(paths), Held(paths)
    lazy: list[GroupAnalysis] = []
    owners: list[Published] = []
    extras, inputs, same, missing, curves = [], [], [], [], []
    failed_before = _failed(paths)
    imported = plan.cells.select(IS_IMPORTED.any()).item()
    groups = list(published(paths, plan))
    check_checksums(paths, groups, scheduler=scheduler, workers=workers, remember=True)
    for group in groups:
        names = group.spec.dataset, group.spec.named
        with users_mistake():
            inputs.append(digests(group.numbers, group.predictions, group.spec, options))
            known = inputs[-1].clear() if names in failed_before else inputs[-1]
            same.append(held.same(known))
            for position in group.predictions.positions(options):
                epoch = group.predictions.trained[position]
                known = same[-1].filter(epoch=epoch)
                runs = group.predictions.runs.join(known, on=REPEAT, how="anti")
                left = replace(group.predictions, runs=runs)
                lazy.append(analyze_group(left, replace(options, snapshots=(epoch,))))
                owners.append(group)
        extras.append(of_runs(group.numbers, group.predictions.runs))
        if group.spec.curves:
            stored = {name: read_array(group.group, name) for name in CURVE_ARRAYS}
            curves.append(learning_curves(stored, group.predictions.runs))
        for metric, reason in unavailable(group.predictions, options).items():
            missing.append(Unavailable(*names, metric, why_not(reason, imported=imported)))
        if few := _too_few(group.predictions, options):
            missing.append(Unavailable(*names, ALPHA_HAT.name, few))
    if not lazy:
        raise nothing_finished(paths)
    computed = compute(lazy, scheduler=scheduler, workers=workers, progress=progress)
    wanted = pl.concat(inputs)
    unchanged = [(group.predictions, known) for group, known in zip(groups, same, strict=True)]
    deep_tables = measured(paths, unchanged, options, scheduler=scheduler, workers=workers)
    merged = held.merged(computed, pl.concat(same))
    for group, tables_of_group in zip(owners, computed, strict=True):
        merged = _without_failed(merged, group.predictions, tables_of_group, options)
        failures = [
            Unavailable(group.spec.dataset, group.spec.named, metric, reason, failed=True)
            for metric, reason in tables_of_group.failures.items()
        ]
        missing += [failure for failure in failures if failure not in missing]
    tables = described(merged, pl.concat(extras), plan, options.close)
    before_writing()
    held.forget()
    for name, table in tables.items():
        write_result(paths, name, table, options)
    outdated = ensembles.keep(paths, wanted, options)
    further = of_cells(deep_tables, merged.repeats, plan.cells, pl.concat(extras), options)
    for group in groups:
        names = group.spec.dataset, group.spec.named
        for refusal in without_deep(group.predictions, further, options):
            missing.append(Unavailable(*names, DEE, refusal))
    _write_optional(paths, (UNCERTAINTY, DEE, TACE, MARGINS), further, options)
    of_epochs = {}
    if curves:
        cells = with_anchors(plan.cells).select("cell", "cell_id", *AXES, f"^{PREFIX}.*$")
        joined = cells.join(pl.concat(curves), on="cell", how="inner")
        of_epochs[CURVES] = joined.sort(CURVE_KEY)
    _write_optional(paths, (CURVES,), of_epochs, options)
    of_models, conditions = responses(paths, groups, plan)
    names_of_models = (RESPONSES, RESPONSE_CURVES, CMI)
    _write_optional(paths, names_of_models, of_models, options, asdict(conditions))
    written = [*tables, *of_epochs, *further, *of_models]
    Analysis(
        options=to_json(options),
        unavailable=missing,
        packages=provenance.package_versions(),
        analysed=datetime.now(UTC).isoformat(timespec="seconds"),
        tables={name: checksum(paths.table(name)) for name in written},
        runs=_amounts(paths, sum(group.predictions.runs.height for group in groups)),
        outdated=outdated,
    ).write(paths)
    held.remember(wanted)
    return read_results(paths)


def _too_few(predictions: Predictions, options: Options) -> str:
    """Return why no repeat has enough runs for α̂; empty if one does, or if another reason holds."""
    name, needed = ALPHA_HAT.name, fewest_runs(options)
    if name not in options.metrics or name in unavailable(predictions, options):
        return ""
    most = int(predictions.runs.group_by(REPEAT).len()["len"].max() or 0)  # type: ignore[arg-type]
    if not 0 < most < needed:
        return ""
    return (
        f"needs at least {needed} runs in the same repeat (alpha_reference = "
        f"{toml_value(options.alpha_reference)}), and no repeat has more than {most}"
    )


def _write_optional(
    paths: SweepPaths,
    names: Sequence[str],
    tables: Mapping[str, pl.DataFrame],
    options: Options,
    conditions: Mapping[str, object] | None = None,
) -> None:
    """Write those of the named tables that exist; remove the files of the others."""
    for name in names:
        if name in tables:
            write_result(paths, name, tables[name].lazy(), options, conditions)
        else:
            paths.table(name).unlink(missing_ok=True)


def check(paths: SweepPaths, options: Options) -> None:
    """Raise a UserError for options that published runs can't meet; computes nothing."""
    for group in published(paths, Plan.read(paths)):
        with users_mistake():
            analyze_group(group.predictions, options)


def _failed(paths: SweepPaths) -> set[tuple[str, str]]:
    """Return the groups for which a user's metric failed last time: it may work by now."""
    try:
        record = Analysis.read(paths)
    except (FileNotFoundError, DamagedFile):
        return set()
    return {(item.dataset, item.classifier) for item in record.unavailable if item.failed}


def _without_failed(
    merged: Tables, predictions: Predictions, computed: Tables, options: Options
) -> Tables:
    """Return the tables without a failed metric's values for other repeats of the group."""
    of_group = pl.col("cell").is_in(predictions.runs["cell"].unique().to_list())
    for metric in select(options.metrics):
        if metric.name in computed.failures:
            merged = replace(
                merged,
                runs=without(metric, merged.runs, of_group),
                repeats=without(metric, merged.repeats, of_group),
            )
    return merged


@contextmanager
def users_mistake() -> Iterator[None]:
    """Turn what `analysis` refuses in options and users' metrics into a UserError."""
    try:
        yield
    except Refused as error:
        raise refused(error) from None


def _amounts(paths: SweepPaths, analysed: int) -> dict[str, int]:
    """Return how many runs are analysed, finished and planned, without those only in journals.

    Counted after the analysis has read the store, so that no fewer are finished than analysed.
    """
    counts = survey(paths).counts
    finished = max(analysed, counts["done"] + counts["copy"])
    return {"analysed": analysed, "finished": finished, "planned": counts["runs"]}
