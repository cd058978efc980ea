"""``manyseed analyze`` and ``report``."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from manyseed.analysis.counts import fixed, signed
from manyseed.analysis.options import CONVENTIONS, Convention
from manyseed.jobs.response import OPTIONS as ASKED
from manyseed.orchestrator.cli.arguments import (
    Directory,
    Json,
    OwnMetrics,
    names,
    only_with,
    option,
    optional,
    require_outside,
    switch,
    takes,
    whole_numbers,
    written_to,
)
from manyseed.orchestrator.cli.output import (
    bar,
    console,
    counted,
    errors,
    one_core,
    print_json,
    print_table,
    resumable,
    say,
    say_next,
    say_notes,
)
from manyseed.orchestrator.errors import (
    INTERRUPTED,
    ManyseedError,
    RunsError,
    StoreUnavailable,
    UnavailableError,
    UserError,
    command,
    flag,
)

if TYPE_CHECKING:
    from manyseed.analysis.options import Options
    from manyseed.orchestrator.analyses import AnalysisJob
    from manyseed.orchestrator.computing.workers import Workers
    from manyseed.orchestrator.sweep import Sweep


_SHOWN = {"accuracy": "accuracy_mean", "EC local": "ec_local_mean"}
_MOST_ROWS = 4
_SIGNIFICANT = 0.05


def print_effects(sweep: Sweep) -> None:
    """Print differences by classifier with their intervals, if cells can be compared."""
    from manyseed.analysis.axes import level_told
    from manyseed.analysis.questions.effects import effects
    from manyseed.analysis.questions.intervals import SEEDS
    from manyseed.analysis.report.page import effect_rows, few_test_sets
    from manyseed.orchestrator.asking.averaging import compared
    from manyseed.orchestrator.computing.tables import EFFECTS, read_results

    results = read_results(sweep.readable)
    if EFFECTS not in results or results[EFFECTS].is_empty():
        return
    rows = effect_rows(effects(compared(results), by=("classifier",)))
    known = ((row, row["of"].get("accuracy_mean") or {}) for row in rows)
    largest = sorted(known, key=lambda both: -abs(both[1].get("difference") or 0.0))
    print_table(
        None,
        ["effect of", "in", *_SHOWN],
        (
            (
                f"{row['axis']} {level_told(row['axis'], row['level'])}",
                row["classifier"],
                *(_difference(row["of"].get(name)) for name in _SHOWN.values()),
            )
            for row, _ in largest[:_MOST_ROWS]
        ),
    )
    accuracy = [row["of"][name] for row in rows for name in row["of"] if name == "accuracy_mean"]
    number = max((row["comparisons"] for row in accuracy), default=0)
    over = "seeds, on one test set" if any(r["over"] == SEEDS for r in accuracy) else "test sets"
    say(
        f"Effects: mean difference, all else equal, ± its 95 % interval over {over}. *: p below "
        f"{_SIGNIFICANT:g} when corrected for multiple comparisons ({number:,} of accuracy; Holm)."
    )
    if few := few_test_sets(rows):
        say(few)
    if len(rows) > _MOST_ROWS:
        more = f"All {len(rows):,} effects"
        say_next(more, "query", sweep.directory, "--table", EFFECTS)


def _difference(row: Mapping[str, Any] | None) -> str:
    if row is None or row["difference"] is None:
        return "–"
    shown = signed(row["difference"])
    if row["low"] is None:
        return shown
    mark = "*" if row["p_holm"] < _SIGNIFICANT else ""
    return f"{shown} ± {fixed((row['high'] - row['low']) / 2)}{mark}"


_POLL_SECONDS = 1.0
_MOST_CELLS = 10
_HEADS = {
    "test sets": "test\nsets",
    "accuracy ± seeds": "accuracy\n± seeds",
    "between test sets": "between\ntest sets",
}
"""Line breaks in column heads of the summary."""
_OFF = {"standardise": "/--as-they-are"}
"""Flags that turn a convention off and are not called --no-NAME."""


def _convention(name: str, declared: Convention) -> inspect.Parameter:
    """Return the option for a convention of an analysis."""
    kind = "Sequence[int]" if declared.several else declared.kind.__name__
    details: dict[str, Any] = {"show_default": declared.default}
    if declared.kind is bool:
        details["off"] = _OFF.get(name, f"/--no-{flag(name)[2:]}")
    elif declared.choices:
        details["metavar"] = "|".join(map(str, declared.allowed))
    by_name = inspect.Parameter.KEYWORD_ONLY
    parameter = inspect.Parameter(name, by_name, default=None, annotation=kind)
    return option(parameter, f"{declared.meaning[0].upper()}{declared.meaning[1:]}.", **details)


@takes(
    "analyze",
    *("metrics", "metric"),
    *(_convention(*declared) for declared in CONVENTIONS.items()),
    *("dask", "workers", "detach"),
    dask={"metavar": "threads|processes|slurm|tcp://…"},
)
def analyze(
    directory: Directory,
    metrics: str | None = optional("", "Metrics to compute, separated by commas.", shown="all"),
    metric: OwnMetrics = None,
    cluster: str | None = optional(
        "NAME",
        "Analyse in a job on this cluster: a profile, its file, or auto; local: here. "
        "With --dask slurm, the cluster whose jobs compute for this command.",
        shown="here; auto with --dask slurm",
    ),
    wait: bool = switch("--wait", "With --cluster: follow the job until it ends."),
    workers: str | None = optional(
        "N|LOW:HIGH",
        "Threads or processes; with --dask slurm, jobs, or the fewest and the most of them, as "
        "the work demands.",
        shown="the available cores, or 4 jobs",
    ),
    detach: bool = switch(
        "--detach", "With --dask slurm: lead from a job, too, and return when it is submitted."
    ),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Compute the result tables from all finished runs.

    They are written to DIR/results as Parquet: runs, pairs, repeats, cells, sources, ranking,
    effects and variance. Only what changed since the last analysis is computed again. Options
    override those of the sweep file's table [analysis]. Your own metrics that it names are computed
    only if --metric names them, too.

    With --cluster, the analysis is submitted as one job and the command returns; status shows its
    progress. With --wait, the command follows the job and ends as an analysis here does. A job with
    the same options that is already waiting or running is followed instead of a new one.

    Examples:

        manyseed analyze quickstart

        manyseed analyze quickstart --metric my_metrics:false_positives

        manyseed analyze quickstart --alpha-mode paper --resamples 1000 --dask processes

        manyseed analyze study --snapshots 2,50 --alpha-reference half --reference-snapshot 50

        manyseed analyze quickstart --cluster mycluster --wait

        manyseed analyze quickstart --cluster mycluster --dask slurm --workers 2:20 --detach
    """
    from manyseed.orchestrator.computing.workers import SLURM, read_workers
    from manyseed.orchestrator.submissions.profiles import AUTO, words_of_clusters
    from manyseed.orchestrator.submissions.submission import last_intent
    from manyseed.orchestrator.sweep import Sweep
    from manyseed.orchestrator.tasks.intent import LOCAL
    from manyseed.slurm import available

    dask, asked_workers = options.pop("dask"), read_workers(workers)
    only_with("--dask slurm", dask == SLURM, detach=detach)
    cluster = AUTO if detach and cluster is None else cluster
    in_job = dask != SLURM or detach
    if wait and (cluster is None or not in_job):
        raise UserError("there is no job to wait for", key="--wait", remedy="give --cluster, too")
    sweep = Sweep(directory)
    asked = own_options(sweep, metrics=names(metrics), own=metric, **options)
    is_here = cluster in (None, LOCAL) or (cluster == AUTO and not available())
    if cluster is not None and not is_here and in_job:
        job = _submit(sweep, asked, cluster, dask, asked_workers, quiet=as_json)
        if not wait:
            if as_json:
                print_json(asdict(job))
            return
        _follow(sweep, quiet=as_json)
    else:
        jobs_of = None if is_here and dask != SLURM else cluster
        with ExitStack() as stack:
            if workers is None and dask in ("threads", "processes"):
                last = None
                with suppress(ManyseedError):  # whoever needs what is damaged reports it
                    last = last_intent(sweep.paths)
                again = f"{command('analyze', directory)} {words_of_clusters(last)}"
                more = f"In a job: {again}; with more cores here: --workers N."
                stack.enter_context(one_core(sweep.paths, _task(sweep), more))
            _analyze(sweep, asked, asked_workers, dask, jobs_of, quiet=as_json)
    if as_json:
        print_json(caveats(sweep))
    else:
        print_summary(sweep)
        print_effects(sweep)
        from manyseed.orchestrator.progress.status import apart

        say(f"Tables: {sweep.paths.results}.")
        say_next("Query them", "query", directory, "--by", apart(sweep.results["cells"]))
        say_next("Report", "report", directory)
    raise_if_wrong(sweep)


def _task(sweep: Sweep) -> str:
    runs = sweep.survey().counts
    return f"the analysis of {counted(runs['done'] + runs['copy'], 'finished run')}"


def report(
    directory: Directory,
    output: Path | None = written_to(
        "Where to write it, also for a sweep that may only be read.", shown="DIR/report/index.html"
    ),
) -> None:
    """Write the report, one page with tables and figures: DIR/report/index.html.

    Examples:

        manyseed report quickstart

        manyseed report quickstart --out page.html
    """
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    require_outside(output, sweep)
    try:
        page = sweep.report(tell=_warn, output=output)
    except StoreUnavailable as error:
        elsewhere = command("report", directory, "--out", f"{directory.resolve().name}.html")
        raise error if output else StoreUnavailable(f"{error}\n  or: {elsewhere}") from None
    say_report(page)


def say_report(page: Path) -> None:
    """Print the page's path on an unbroken line."""
    console.print(f"Report: {page}", soft_wrap=True)


def analyze_and_report(sweep: Sweep, metric: list[str] | None, cluster: str | None = None) -> Path:
    """Analyse, in a job if a cluster is given, and write the report; return the page's path."""
    options = own_options(sweep, own=metric)
    if cluster is None:
        _analyze(sweep, options, None)
    else:
        _submit(sweep, options, cluster, "threads", None, quiet=False)
        _follow(sweep, quiet=False)
    with console.status("writing the report"):
        return sweep.report(tell=_warn)


def _warn(text: str) -> None:
    say(text, style="yellow", to=errors)


def own_options(sweep: Sweep, **asked: Any) -> Options:
    """Return the conventions of the analysis; users' metrics are found in the current folder."""
    from manyseed.orchestrator.computing.conventions import conventions, find_modules_here

    metrics = (*asked.get("metrics", ()), *(asked["own"] or ()), asked.get("probe") or "")
    find_modules_here(sweep.paths, metrics)
    return conventions(sweep.paths, report=_warn, **asked)


def print_summary(sweep: Sweep) -> None:
    """Print the results cell by cell, and notes about them."""
    from manyseed.analysis.report.wording import repeats_in_words, summary, varying_axes
    from manyseed.analysis.tables.rows import in_words, last
    from manyseed.orchestrator.computing.cellgroups import in_short, unusual
    from manyseed.orchestrator.computing.tables import failed, read_analysis, read_results
    from manyseed.orchestrator.results.caveats import amounts
    from manyseed.orchestrator.results.page import summary_table

    cells = read_results(sweep.readable)["cells"]
    frame, axes = summary_table(cells), varying_axes(cells)
    described = list(zip(summary(cells), frame.rows(), strict=True))
    if frame.height > _MOST_CELLS:
        described.sort(key=lambda both: len(unusual(both[0])))
    rows = [
        (
            row["dataset"],
            in_short(row)
            + (f", {row['epoch']}" if "epoch" in axes else "")
            + "".join(mark for mark in (" †", " ‡") if mark in cell),
            *others,
        )
        for row, (_, _, cell, *others) in described[:_MOST_CELLS]
    ]
    heads = ["", "", *frame.columns[3:]]
    print_table(None, [_HEADS.get(name, name) for name in heads], rows, nested=True)
    if frame.height > _MOST_CELLS:
        more = f"… {counted(frame.height - _MOST_CELLS, 'more cell')}"
        say_next(more, "query", sweep.directory, "--limit", frame.height)
    differing = f"Cells differ in {' · '.join(axes)}." if axes else ""
    analysed = amounts(read_analysis(sweep.readable)[1])
    say(" ".join(filter(None, (repeats_in_words(cells), differing, analysed))))
    several = frame["test sets"].max() != 1
    between = "; between test sets: of the repeats' means" if several else ""
    say(f"± seeds: sd between runs of a repeat{between}.")
    say(
        "EC: local, of the points that either of two runs has wrong those that both have; no kappa."
    )
    cells = last(cells)
    if identical := int(cells["n_identical_repeats"].sum()):
        copies = int((cells["n_runs"] - cells["n_distinct"]).sum())
        repeats = counted(identical, "repeat")
        say(f"† {repeats} of identical runs: {copies:,} copies are left out of all but accuracy.")
    for same in in_words(cells):
        say(f"‡ The same fits as another cell, counted once: {same}.")
    told = failed(read_analysis(sweep.readable)[1])
    others = [note for note in notes(sweep) if note not in told]
    say_notes(others, "answers", sweep.directory, "--why", style="yellow")


def notes(sweep: Sweep) -> list[str]:
    """Return the notes about the results, apart from problems."""
    found = caveats(sweep)
    kinds = ("mixed", "not_computed", "undefined", "small_classes", "infeasible", "outdated")
    return [note for kind in kinds for note in found[kind]]


def caveats(sweep: Sweep) -> dict[str, list[str]]:
    """Return sentences on what could not be computed, what stands out, and why."""
    from polars import selectors as cs

    from manyseed.analysis.questions import caveats
    from manyseed.analysis.tables.rows import last
    from manyseed.orchestrator.computing.tables import read_analysis, read_results
    from manyseed.orchestrator.results.caveats import (
        COMPARED,
        mixed,
        not_computed,
        outdated,
        problems,
        recipes_of,
        small_classes,
        undefined,
    )

    results, (options, record) = read_results(sweep.readable), read_analysis(sweep.readable)
    repeats = results["repeats"]
    with results.damage_named("runs"):
        runs = last(results.scan("runs"))
        infeasible = caveats.suspect_notes(last(repeats.lazy()), runs, options)
        compared = runs.select(cs.by_name(*COMPARED, require_all=False)).collect()
    return {
        "infeasible": infeasible,
        "mixed": mixed(compared, recipes_of(sweep.readable)),
        "not_computed": not_computed(record),
        "outdated": outdated(record, results.get("ensembles")),
        "undefined": undefined(repeats),
        "small_classes": small_classes(repeats),
        "problems": problems(repeats),
    }


def raise_if_wrong(sweep: Sweep) -> None:
    """End with exit code 1 if repeats could not be analysed; all other results stand."""
    if problems := caveats(sweep)["problems"]:
        more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
        raise RunsError(
            f"{problems[0]}{more}; all other results stand\n  check the store: "
            f"{command('verify', sweep.directory, '--repair')}, then analyze again"
        )


def _analyze(
    sweep: Sweep,
    options: Options,
    workers: Workers | None,
    dask: str = "threads",
    cluster: str | None = None,
    *,
    quiet: bool = False,
) -> None:
    with bar(quiet=quiet) as progress:
        task = progress.add_task("analysing", total=None, note="")
        sweep.analyze(
            options,
            workers=workers,
            dask=dask,
            cluster=cluster,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
            tell=lambda text: progress.update(task, note=text),
        )


def _submit(
    sweep: Sweep,
    options: Options | None,
    cluster: str,
    dask: str,
    workers: Workers | None,
    *,
    quiet: bool,
) -> AnalysisJob:
    """Submit the analysis unless it is submitted already; report its job."""
    new = sweep.submit_analysis(options, cluster=cluster, dask=dask, workers=workers)
    job = sweep.analysis_job()
    assert job is not None
    if not quiet:
        what = "Submitted the analysis" if new else f"The same analysis is already {job.state}"
        say(f"{what}: job {job.job} on {job.cluster}; log: {job.log}")
        say_next("Its progress", "status", sweep.directory)
    return job


def _follow(sweep: Sweep, *, quiet: bool) -> None:
    """Show the last submitted analysis until it ends; raise its error if it failed.

    Ctrl-C ends only the watching.
    """
    try:
        job = _watched(sweep, quiet=quiet)
    except KeyboardInterrupt:
        if (left := sweep.analysis_job()) is None:
            raise
        said = f"job {left.job} on {left.cluster} continues, without this terminal"
        say(f"\nOnly the watching has ended: {said}.", to=errors)
        say_next("Its progress", "status", sweep.directory, to=errors)
        errors.print(f"Stop it: scancel {left.job}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    if job.state != "finished":
        kind = {1: RunsError, 2: UserError}.get(job.exit_code or 0, UnavailableError)
        reason = job.reason or job.state.replace("_", " ")
        raise kind(f"job {job.job} ended: {reason}\n  its log: {job.log}")


def _watched(sweep: Sweep, *, quiet: bool) -> AnalysisJob:
    """Show the last submitted analysis until it ends, and return it."""
    from manyseed.orchestrator.submissions.submission import ALIVE

    with bar(quiet=quiet) as progress:
        task = progress.add_task("analysing", total=None, note="")
        while (job := sweep.analysis_job()) and job.state in ALIVE:
            note = f"{job.job} is {job.state} {job.reason}".strip()
            total = job.blocks or None
            progress.update(task, completed=job.done, total=total, note=note)
            time.sleep(_POLL_SECONDS)
        assert job is not None
        progress.update(task, completed=job.done, total=job.blocks or None, note="")
    return job


@takes("respond", "spectra", "name", "where", "workers")
def respond(
    directory: Directory,
    transforms: str | None = optional(
        "NAME,…",
        ASKED["transforms"].about.replace('"', ""),
        shown="those of the sweep file's [response], else intra,inter",
    ),
    layers: str | None = optional("N,…", ASKED["layers"].about, shown="0,1"),
    rows: int | None = optional("", ASKED["rows"].about, shown=str(ASKED["rows"].default), min=2),
    draws: int | None = optional(
        "", ASKED["draws"].about, shown=str(ASKED["draws"].default), min=1
    ),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Measure response curves of runs that kept their parameters (keep.parameters = true).

    Models are evaluated on this machine's CPUs, even if they were trained on a GPU. Curves measured
    in training stay; analyze uses both. The same command continues after an interruption, and adds
    runs that have finished since.

    Examples:

        manyseed respond sweep --transforms intra,rotate:90

        manyseed respond sweep --where "classifier = 'mlp'"

        manyseed respond sweep --spectra 500
    """
    from manyseed.orchestrator.sweep import Sweep

    keys: dict[str, object] = {"rows": rows, "draws": draws}
    keys["transforms"] = None if transforms is None else names(transforms)
    keys["layers"] = None if layers is None else whole_numbers(layers, "--layers", "0,1")
    given = {key: value for key, value in keys.items() if value is not None}
    with resumable("asking", "respond", directory, note="models", quiet=as_json) as progress:
        result = Sweep(directory).respond(given, **options, progress=progress)
    if as_json:
        value = {"file": str(result.file), "asked": result.asked, "runs": result.runs}
        print_json({**value, "transforms": list(result.transforms)})
        return
    say(f"{counted(result.asked, 'model')} measured, {result.runs:,} in all: {result.file}")
    if result.from_gpu:
        say(
            f'{counted(result.from_gpu, "model")} of cells with device = "gpu" measured on a CPU: '
            "counts may differ by a few from those that a GPU would have measured in training"
        )
    say_next("Next", "analyze", directory)
