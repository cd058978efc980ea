"""``manyseed analyze`` and ``report``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.common import Directory, Json, OwnMetrics, names
from orchestrator.cli.output import console, errors, print_json, print_table, say, say_next
from orchestrator.cli.progress import bar
from orchestrator.errors import RunsError, UnavailableError, UserError

if TYPE_CHECKING:
    from analysis.options import Options
    from orchestrator.sweep import Sweep

_LOOK_SECONDS = 1.0


def analyze(
    directory: Directory,
    metrics: Annotated[
        str | None,
        typer.Option(help="Metrics to compute, separated by commas.", show_default="all"),
    ] = None,
    metric: OwnMetrics = None,
    resamples: Annotated[
        int | None,
        typer.Option(help="Random splits of a test set for α̂ (B).", show_default="100"),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Probability that α̂'s threshold δ is exceeded.", show_default="0.01"),
    ] = None,
    alpha_mode: Annotated[
        str | None,
        typer.Option(metavar="exact|paper", help="How α̂ is computed.", show_default="exact"),
    ] = None,
    alpha_reference: Annotated[
        str | None,
        typer.Option(
            metavar="others|half|loo_ensemble|ensemble",
            help="What a run is compared with.",
            show_default="others",
        ),
    ] = None,
    max_references: Annotated[
        int | None, typer.Option(help="Runs in a reference at most.", show_default="1000")
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option(
            metavar="gap|true_margin",
            help="What a point is reduced to for α̂.",
            show_default="gap for two classes, true_margin for more",
        ),
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Limit margins to ± this.", show_default="no limit")
    ] = None,
    standardise: Annotated[
        bool | None,
        typer.Option(
            "--standardise/--as-they-are",
            help="Take each run's margins in units of their standard deviation.",
            show_default="as they are",
        ),
    ] = None,
    snapshot: Annotated[
        int | None,
        typer.Option(help="Which snapshot: 0 the first, -1 the last.", show_default="-1"),
    ] = None,
    reference_snapshot: Annotated[
        int | None, typer.Option(help="That of α̂'s reference.", show_default="the same")
    ] = None,
    empty_union: Annotated[
        float | None,
        typer.Option(
            metavar="0|1",
            help="Local error consistency of two runs without errors.",
            show_default="undefined",
        ),
    ] = None,
    ece_bins: Annotated[
        int | None, typer.Option(help="Bins of the calibration error.", show_default="15")
    ] = None,
    max_pair_runs: Annotated[
        int | None,
        typer.Option(help="List pairs of repeats of up to so many runs.", show_default="200"),
    ] = None,
    dask: Annotated[
        str,
        typer.Option(
            metavar="threads|processes|slurm|tcp://…",
            help="Who computes: this machine, SLURM jobs, or a dask scheduler's workers.",
        ),
    ] = "threads",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            help="Threads or processes; jobs, with --dask slurm.",
            show_default="the cores that may be used; 4 jobs",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="Analyse in a job of this cluster (a profile, its file, or auto); with "
            "--dask slurm, whose jobs compute for this command.",
            show_default="here; auto with --dask slurm",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --cluster: follow the job to its end.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compute the result tables of all runs that are finished.

    They are written to DIR/results as Parquet: runs, pairs, repeats, cells, sources and ranking.
    What did not change since the last time is not computed again. Options go before those of the
    sweep file's table [analysis]. A metric of one's own that it names is computed only where
    --metric names it, too.

    With --cluster the analysis is submitted as one job, and the command returns; status tells what
    becomes of it. With --wait, it is followed, and ends as an analysis here does; a job with the
    same options that waits or runs already is the one that is followed.

    Examples:

        manyseed analyze quickstart

        manyseed analyze quickstart --metric my_metrics:false_positives

        manyseed analyze quickstart --alpha-mode paper --resamples 1000 --dask processes

        manyseed analyze quickstart --cluster mycluster --wait

        manyseed analyze quickstart --cluster mycluster --dask slurm --workers 10
    """
    from orchestrator.submissions.intent import LOCAL
    from orchestrator.submissions.profiles import AUTO
    from orchestrator.sweep import Sweep
    from slurm import available

    if wait and (cluster is None or dask == "slurm"):
        raise UserError("there is no job to wait for", key="--wait", remedy="give --cluster, too")
    sweep = Sweep(directory)
    options = _options(
        sweep,
        metrics=names(metrics or ""),
        own=metric,
        resamples=resamples,
        epsilon=epsilon,
        alpha_mode=alpha_mode,
        alpha_reference=alpha_reference,
        max_references=max_references,
        probe=probe,
        clip=clip,
        standardise=standardise,
        epoch=snapshot,
        reference_epoch=reference_snapshot,
        empty_union=empty_union,
        ece_bins=ece_bins,
        max_pair_runs=max_pair_runs,
    )
    is_here = cluster in (None, LOCAL) or (cluster == AUTO and not available())
    if cluster is not None and not is_here and dask != "slurm":
        job = _submit(sweep, options, cluster, dask, workers, quiet=as_json)
        if not wait:
            if as_json:
                print_json(job)
            return
        _follow(sweep, quiet=as_json)
    else:
        _analyze(sweep, options, workers, dask, cluster, quiet=as_json)
    if as_json:
        print_json(caveats(sweep))
    else:
        print_summary(sweep)
        say(f"\nTables: {sweep.paths.results}.")
        say_next("Ask them", "query", directory, "--by", "classifier")
        say_next("Report", "report", directory)
    raise_if_wrong(sweep)


def report(directory: Directory) -> None:
    """Write the report: one page with tables and figures, DIR/report/index.html."""
    from orchestrator.sweep import Sweep

    tell_report(Sweep(directory).report())


def tell_report(page: Path) -> None:
    """Say where the page is, on an unbroken line."""
    console.print(f"Report: {page}", soft_wrap=True)


def analyze_and_report(sweep: Sweep, metric: list[str] | None, cluster: str | None = None) -> Path:
    """Do both, the first in a job where a cluster is given; return where the page is."""
    options = _options(sweep, own=metric)
    if cluster is None:
        _analyze(sweep, options, None)
    else:
        _submit(sweep, options, cluster, "threads", None, quiet=False)
        _follow(sweep, quiet=False)
    with console.status("writing the report"):
        return sweep.report()


def _options(sweep: Sweep, **asked: Any) -> Options:
    """Return the conventions to analyse by; users' metrics are found where the command is given."""
    from orchestrator.results.conventions import conventions
    from orchestrator.results.own_metrics import find_modules_here

    find_modules_here(sweep.paths, [*asked.get("metrics", ()), *(asked["own"] or ())])

    def tell(text: str) -> None:
        say(text, style="yellow", to=errors)

    return conventions(sweep.paths, tell=tell, **asked)


def print_summary(sweep: Sweep) -> None:
    """Print what the sweep found, by dataset and classifier, and what is to be known of it."""
    from orchestrator.results.analysing import read_analysis
    from orchestrator.results.caveats import amounts
    from orchestrator.results.reporting import summary_table

    frame = summary_table(sweep.results)
    print_table(None, frame.columns, frame.iter_rows(), nested=True)
    console.print()
    if (told := amounts(read_analysis(sweep.paths)[1])) is not None:
        say(told)
    found = caveats(sweep)
    for note in (*found["not_computed"], *found["undefined"], *found["outdated"]):
        say(note, style="yellow")


def caveats(sweep: Sweep) -> dict[str, list[str]]:
    """Return what could not be computed, and why, as sentences."""
    from orchestrator.results.analysing import read_analysis
    from orchestrator.results.caveats import not_computed, outdated, problems, undefined

    results, record = sweep.results, read_analysis(sweep.paths)[1]
    repeats = results["repeats"]
    return {
        "not_computed": not_computed(record),
        "outdated": outdated(record, results.get("ensembles")),
        "undefined": undefined(repeats),
        "problems": problems(repeats),
    }


def raise_if_wrong(sweep: Sweep) -> None:
    """End with exit code 1 where repeats could not be analysed; the others' results stand."""
    found = caveats(sweep)["problems"]
    if found:
        more = f" (and {len(found) - 1:,} more)" if len(found) > 1 else ""
        raise RunsError(
            f"{found[0]}{more}; all other results stand\n  check the store: "
            f"manyseed verify {sweep.directory} --repair, then resume and analyze"
        )


def _analyze(
    sweep: Sweep,
    options: Options,
    workers: int | None,
    dask: str = "threads",
    cluster: str | None = None,
    *,
    quiet: bool = False,
) -> None:
    progress = bar()
    progress.disable = quiet
    with progress:
        task = progress.add_task("analysing", total=None, note="")

        def tell(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        def note(text: str) -> None:
            progress.update(task, note=text)

        sweep.analyze(
            options, workers=workers, dask=dask, cluster=cluster, progress=tell, tell=note
        )


def _submit(
    sweep: Sweep,
    options: Options | None,
    cluster: str,
    dask: str,
    workers: int | None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Submit the analysis, unless it is; tell of its job."""
    new = sweep.submit_analysis(options, cluster=cluster, dask=dask, workers=workers)
    job = sweep.analysis_job()
    assert job is not None
    if not quiet:
        told = "Submitted the analysis" if new else f"The same analysis is {job['state']} already"
        say(f"{told}: job {job['job']} of {job['cluster']}; log: {job['log']}")
        say_next("What becomes of it", "status", sweep.directory)
    return job


def _follow(sweep: Sweep, *, quiet: bool) -> None:
    """Show the analysis that was submitted last until its end; raise what it ended with."""
    progress = bar()
    progress.disable = quiet
    with progress:
        task = progress.add_task("analysing", total=None, note="")
        while (job := sweep.analysis_job()) and job["state"] in ("waiting", "held", "running"):
            note = f"{job['job']} is {job['state']} {job['reason']}".strip()
            total = job["blocks"] or None
            progress.update(task, completed=job["done"], total=total, note=note)
            time.sleep(_LOOK_SECONDS)
        assert job is not None
        progress.update(task, completed=job["done"], total=job["blocks"] or None, note="")
    if job["state"] != "finished":
        kind = {1: RunsError, 2: UserError}.get(job["exit_code"], UnavailableError)
        reason = job["reason"] or job["state"].replace("_", " ")
        raise kind(f"job {job['job']} ended: {reason}\n  its log: {job['log']}")
