"""The verbs that train: run, tune, submit, resume, cancel, and how tasks are held and throttled."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyseed.orchestrator.cli.arguments import (
    Directory,
    Json,
    Out,
    OwnMetrics,
    Settings,
    SweepToml,
    alone,
    argument,
    optional,
    switch,
    takes,
)
from manyseed.orchestrator.cli.output import (
    NO_GPU,
    counted,
    dry_plan,
    duration,
    print_json,
    print_table,
    resumable,
    say,
    say_commands,
    say_next,
    say_notes,
    say_steps,
    say_training,
    show,
    size,
)
from manyseed.orchestrator.cli.status import (
    ask_to_stop_here,
    follow,
    raise_if_broken,
    say_left_out,
    say_unreadable,
    stop_here,
)
from manyseed.orchestrator.errors import INTERRUPTED, NOT_FINISHED, UserError

if TYPE_CHECKING:
    from manyseed.orchestrator.plans.searches import FoundScale, TunedHparams
    from manyseed.orchestrator.submissions.submission import Submission
    from manyseed.orchestrator.survey import Survey
    from manyseed.orchestrator.sweep import Sweep


@takes("tune", "cluster", "workers")
def tune(directory: Directory, as_json: Json = False, **options: Any) -> None:
    """Search on this machine for the hparams of cells with hparams = "tuned".

    Runs one random search per dataset and classifier, needed before submitting (with ``tune.data =
    "runs"``, one for each way in which training data are made); then one for the scale of each cell
    with kfac-laplace that has none. The sweep keeps the results; the same command continues an
    interrupted search.

    Examples:

        manyseed tune sweep

        sbatch --cpus-per-task 32 --wrap "manyseed tune sweep"
    """
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    tuned, scales = search(sweep, **options, quiet=as_json)
    columns = ("dataset", "classifier", "draws", "draw", "accuracy", "hparams")
    rows = [(t.dataset, t.classifier, len(t.draws), t.draw, t.accuracy, t.hparams) for t in tuned]
    data = [t.data for t in tuned]
    scale_columns = ("dataset", "classifier", "ensembling", "networks", "scale", "log_likelihood")
    scale_rows = [
        (s.dataset, s.classifier, s.ensembling, len(s.trials), s.scale, s.log_likelihood)
        for s in scales
    ]
    if as_json:
        searches = [dict(zip(columns, row, strict=True)) for row in rows]
        for one, made in zip(searches, data, strict=True):
            one |= {"data": made} if made else {}
        of_scales = [dict(zip(scale_columns, row, strict=True)) for row in scale_rows]
        print_json({"searches": searches, "scales": of_scales})
        return
    if rows:
        texts = [", ".join(f"{key} = {value}" for key, value in one.items()) for one in data]
        told = [(*row[:-1], text) for row, text in zip(rows, texts, strict=True)]
        print_table(None, [*columns[:-1], "data"], told)
    if scale_rows:
        print_table(None, scale_columns, scale_rows)
    if rows or scale_rows:
        given = None if options["cluster"] == "auto" else options["cluster"]
        say_training("Next", sweep.paths, "submit", cluster=given)
    else:
        say('Nothing to search for: no cell has hparams = "tuned" that were not found yet.')


def search(
    sweep: Sweep, cluster: str, workers: int | None, *, quiet: bool = False
) -> tuple[list[TunedHparams], list[FoundScale]]:
    """Do a sweep's open searches with a progress bar; return their results."""
    from manyseed.orchestrator.plans.plan import Plan
    from manyseed.orchestrator.plans.searches import FoundScale, TunedHparams, found, searches

    cells = Plan.read(sweep.paths).cells
    if not searches(sweep.paths, cells):
        return [], []
    with resumable("searching", "plan", sweep.directory, "--tune", quiet=quiet) as progress:
        done = sweep.tune(cluster=cluster, workers=workers, progress=progress)
    results = [found(sweep.paths, each.cell, each.kind) for each in done]
    hparams = [one for one in results if isinstance(one, TunedHparams)]
    return hparams, [one for one in results if isinstance(one, FoundScale)]


Watch = Annotated[
    bool,
    typer.Option("--watch", help="Show progress until nothing runs any more; exit as status does."),
]


_SUBMIT = ("cluster", "workers", "memory", "only", "limit", "other_recipe")


@takes("submit", *_SUBMIT, "calibrate")
def submit(
    directory: Directory,
    watch: Watch = False,
    calibrate: bool = False,
    rehearse: str | None = optional(
        "NAME",
        "Submit nothing: play the submission to a cluster on a throw-away SLURM here, with that "
        "cluster's limits and tasks that train nothing.",
    ),
    **options: Any,
) -> None:
    """Submit every missing run and return at once. The work goes on without this terminal.

    This holds with --watch, too: interrupting it does not stop the work. With --calibrate, the
    command waits, then says what the other runs take. --rehearse says how many tasks, job arrays,
    calls of the scheduler and files a submission makes, and how long tasks take.

    Examples:

        manyseed submit sweep

        manyseed submit sweep --cluster mycluster --limit 100

        manyseed submit sweep --watch

        manyseed submit sweep --cluster mycluster --calibrate

        manyseed submit sweep --rehearse mycluster
    """
    if rehearse is not None:
        alone("--rehearse", watch=watch, calibrate=calibrate, **_changed(options))
        _rehearse(directory, rehearse)
        return
    from manyseed.orchestrator.paths import open_sweep
    from manyseed.orchestrator.submissions.requirements import require_same_data

    require_same_data(open_sweep(directory))
    if calibrate:
        alone("--calibrate", watch=watch)
        measure(directory, **options)
        return
    submit_and_report(directory, watch=watch, **options)


def _changed(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a submission that are not as without them."""
    return {name: value for name, value in options.items() if value not in (None, False, "auto")}


def _rehearse(directory: Path, name: str) -> None:
    """Play a submission, and say what it did."""
    from manyseed.orchestrator.submissions.forecast import rehearse
    from manyseed.orchestrator.submissions.profiles import read
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    played = rehearse(sweep.paths, read(name, "--rehearse"), say)
    if played is None:
        _say_nothing_to_submit(sweep, failed=False)
        return
    calls = ", ".join(f"{n:,} of {command}" for command, n in sorted(played.calls.items()))
    rows = [
        ("runs", f"{played.runs:,}"),
        ("tasks", f"{played.tasks:,}, of which {played.ended:,} ended"),
        *(("never started", f"{n:,}: {reason}") for reason, n in played.waiting.items()),
        ("job arrays", f"{played.arrays:,}, the largest of {played.largest_array:,}"),
        ("calls until all was submitted", calls),
        ("files of the submission, once ended", f"{played.files:,}"),
    ]
    for one in played.placements:
        kind = one.resource.upper()
        longest, walltime = duration(3600 * one.task_hours), duration(3600 * one.walltime_hours)
        rows += [
            (f"{kind} tasks at once", f"{one.at_once:,}, in {counted(one.waves, 'wave')}"),
            (f"longest {kind} task, estimated", f"{longest}; walltime {walltime}"),
        ]
    print_table(f"Rehearsed for {name}; nothing was submitted", ("", ""), rows)


@takes("submit", *_SUBMIT)
def calibrate(directory: Directory, **options: Any) -> None:
    """Train a few runs of each dataset and classifier, here or in a job, and say what all take.

    Examples:

        manyseed calibrate sweep --cluster mycluster
    """
    measure(directory, **options)


def measure(directory: Path, **options: Any) -> None:
    """Train a pilot, wait for it, and say what the other runs take by its durations."""
    from manyseed.orchestrator.progress.timeleft import expected
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    before = expected(sweep.survey(), sweep.paths)
    submission = sweep.submit(calibrate=True, tell=say, **options)
    if submission is None:
        _say_nothing_to_submit(sweep, failed=False)
        return
    say(f"Measuring {counted(submission.n_runs, 'run')}, which are kept.")
    show(submission)
    after = expected(sweep.survey(), sweep.paths)
    for device, (fits, seconds) in after.items():
        unit = "a core" if device == "cpu" else "a GPU"
        say(
            f"{counted(fits, 'fit')} left: {duration(seconds)} of {unit}; "
            f"before it was measured, {duration(before[device][1])}."
        )
    say_steps(sweep.status())


def submit_and_report(
    directory: Path, *, watch: bool, failed: bool = False, **options: Any
) -> None:
    """Submit with the options of `Sweep.submit`, report it, and show progress if asked to."""
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    before, waits = sweep.survey(), list[str]()

    def tell(text: str) -> None:
        waits.append(text)
        say(text)

    submission = sweep.submit(failed=failed, tell=tell, **options)
    # its tasks may have finished runs by now; those that it waited for have, too
    if watch and submission is None and not sweep.is_running:
        _say_nothing_to_submit(sweep, failed, steps=False)  # they follow with the status
    else:
        before = sweep.survey() if waits else before
        memory = options.get("memory")
        _say_submitted(sweep, submission, before, failed=failed, watch=watch, memory=memory)
    if watch:
        follow(sweep)


def _say_submitted(
    sweep: Sweep,
    submission: Submission | None,
    before: Survey,
    *,
    failed: bool = False,
    watch: bool = False,
    memory: str | None = None,
) -> None:
    """Report what was submitted, or why nothing was; `before` is the state of the runs before.

    `watch`: whether it is watched anyway. `memory`: what tasks were to ask for.
    """
    if submission is None:
        _say_nothing_to_submit(sweep, failed, memory=memory)
        return
    from manyseed.orchestrator.progress.problems import in_hand

    intent = submission.intent
    say_gpu(submission)
    where = counted(intent.workers, "local process")
    if intent.arrays:
        where = f"{intent.cluster}: " + ", ".join(
            f"{counted(a.count, a.resource + ' task')} of {counted(a.processes, 'process')}"
            for a in intent.arrays
        )
        for node, reason in intent.excluded.items():
            say(f"Excluded {node}: {reason}")
    say_kept(sweep, before, failed=failed)
    others = in_hand(before, [one for one in sweep.submissions() if one != submission])
    more = f" {others:,} more are waiting or being trained." if others else ""
    say(f"Submitted {counted(submission.n_runs, 'run')} to {where}.{more}")
    if others:
        _say_earlier(sweep, memory)
    if not watch:
        say_next("Watch", "status", sweep.directory, "--watch")


def say_kept(sweep: Sweep, state: Survey, *, failed: bool = False) -> None:
    """Say how many runs are finished, which are never trained again, and why others are not.

    `failed`: whether those that failed are trained again. Nothing is said of a first submission.
    """
    from manyseed.orchestrator.tasks.attempts import rows_set_back

    finished = state.counts["done"] + state.counts["copy"]
    if not finished and len(sweep.submissions()) < 2:
        return
    say(f"{finished:,} of {state.counts['runs']:,} runs are finished.")
    back = rows_set_back(sweep.paths)
    runs = state.with_state("missing").select("group", "row").iter_rows()
    again = sum(row in back.get(group, ()) for group, row in runs)
    left = "not finished, for which resume without --failed is needed"
    others = {
        "set back by a repair": again,
        left if failed else "not finished": state.counts["missing"] - again,
        "failed" if failed else "failed, for which --failed is needed": state.counts["failed"],
    }
    if told := ", ".join(f"{n:,} {why}" for why, n in others.items() if n):
        say(f"The others: {told}.")


def say_gpu(submission: Submission) -> None:
    """Say on which device classifiers with device = "gpu" train on this machine."""
    gpu = submission.intent.gpu
    if gpu == "none":
        say(NO_GPU)
    elif gpu:
        say(f'Classifiers with device = "gpu" train on {gpu}.')


def _say_earlier(sweep: Sweep, memory: str | None) -> None:
    """Say which tasks lack the time or memory that their profile, or `memory`, gives by now."""
    from manyseed.orchestrator.submissions.memory import other
    from manyseed.orchestrator.submissions.walltimes import shorter

    listed = sweep.submissions()
    for told in filter(None, (shorter(sweep.paths, listed), other(sweep.paths, listed, memory))):
        say(told)


def _say_nothing_to_submit(
    sweep: Sweep, failed: bool, *, steps: bool = True, memory: str | None = None
) -> None:
    from manyseed.orchestrator.plans.plan import Plan

    if sweep.is_running:
        say("Nothing to submit: all missing runs are waiting or being trained.")
        _say_earlier(sweep, memory)
        say_unreadable(sweep.submissions())
        say_next("Watch", "status", sweep.directory, "--watch")
        return
    state = sweep.status()
    if Plan.read(sweep.paths).is_imported:
        say("Nothing to train: the predictions were imported.")
    elif failed:
        say("Nothing to submit: no run failed.")
    elif n_failed := state["runs"]["failed"]:
        say(f"Nothing to submit: no run is missing; {n_failed:,} failed.")
    else:
        say("Nothing to submit: no run is missing.")
    if steps:
        say_steps(state)


@takes("submit", "cluster", "workers", "other_recipe")
def run(
    sweep_file: SweepToml,
    out: Out = None,
    settings: Settings = None,
    metric: OwnMetrics = None,
    detach: bool = typer.Option(
        False,
        "--detach",
        help="On a cluster: return when all is submitted; jobs that wait for each other search for "
        "hparams, train, analyse and write the page.",
    ),
    **options: Any,
) -> None:
    """Plan, train, analyse and report; resume a sweep that exists.

    Ctrl-C stops training on this machine after the fits in flight. On a cluster, it only ends the
    watching: submitted jobs keep running. The same command continues where it stopped.

    Examples:

        manyseed run examples/quickstart.toml --cluster local

        manyseed run sweep.toml --out /scratch/me/sweep --workers 8

        manyseed run sweep.toml --cluster mycluster
    """
    from manyseed.orchestrator.cli.analyze import analyze_and_report, own_options, say_report
    from manyseed.orchestrator.cli.answers import in_short
    from manyseed.orchestrator.grids.loading import name_of
    from manyseed.orchestrator.paths import SweepPaths
    from manyseed.orchestrator.plans.change import remarks
    from manyseed.orchestrator.plans.code import fetch_datasets
    from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
    from manyseed.orchestrator.plans.stacks import choices
    from manyseed.orchestrator.submissions.cluster import require_chains
    from manyseed.orchestrator.submissions.profiles import AUTO, words_of_clusters
    from manyseed.orchestrator.submissions.requirements import (
        of_earlier_code,
        require_code,
        require_jobs,
        require_packages,
    )
    from manyseed.orchestrator.submissions.submission import place
    from manyseed.orchestrator.sweep import Sweep
    from manyseed.orchestrator.tasks.intent import LOCAL

    settings = settings or []
    cluster, workers, other_recipe = (options[n] for n in ("cluster", "workers", "other_recipe"))
    directory = out or Path(name_of(sweep_file, settings))
    again = ["run", sweep_file, "--out", directory]
    again += [word for setting in settings for word in ("--set", setting)]
    where_to = ["--cluster", cluster] if cluster != AUTO else []
    where_to += ["--workers", workers] if workers else []
    where_to += ["--other-recipe"] if other_recipe else []
    again += where_to
    resumed = ["resume", directory, *where_to]  # which goes on where data or the file has changed
    again += ["--detach"] if detach else []
    again += [word for each in metric or [] for word in ("--metric", each)]
    # reports errors in the file before any others
    asked = plan_change(sweep_file, directory, settings)
    if not other_recipe:
        require_code(SweepPaths(directory), asked)
    profile = place(SweepPaths(directory), cluster, workers)
    where = LOCAL if profile is None else str(profile.path)
    if detach and profile is None:
        remedy = f"give {words_of_clusters()}"
        raise UserError("applies only on a cluster", key="--detach", remedy=remedy)
    if detach and profile is not None:
        require_chains(profile)
    if profile is None:
        require_packages(
            asked.after, asked.after.cells.join(asked.added, on="cell", how="semi").sort("cell")
        )
    else:
        known = asked.observed, asked.measuring
        require_jobs(SweepPaths(directory), asked.after, asked.added, *known, profile)
    change = plan_sweep(sweep_file, directory, settings)
    fetch_datasets(change.expansion.datasets)
    sweep = Sweep(directory)
    plan = change.summary()
    counts = [counted(plan[f"{noun}s"], noun) for noun in ("run", "cell", "group")]
    say(f"{change.sweep.name}: {counts[0]} in {counts[1]} of {counts[2]} → {directory}")
    if not change.is_empty:
        notes = [*remarks(change, chosen=[*choices(sweep.paths).values()])]
        say_notes(notes, *dry_plan(sweep.paths.sweep_file if settings else sweep_file, directory))
    for sentence in () if other_recipe else of_earlier_code(sweep.paths, asked):
        say(sentence, style="yellow")
    if detach:
        chain = own_options(sweep, own=metric) or True
        before = sweep.survey()
        submission = sweep.submit(cluster=where, other_recipe=other_recipe, chain=chain, tell=say)
        _say_submitted(sweep, submission, before)
        return
    search(sweep, where if profile is None else AUTO, workers)
    watched: list[Submission] = []
    before, earlier = sweep.survey(), sweep.submissions()
    try:
        submission = sweep.submit(
            cluster=where, workers=workers, other_recipe=other_recipe, chain=False, tell=say
        )
        watched = [submission] if submission else sweep.running()
        if submission is not None:
            say_gpu(submission)
            say_kept(sweep, before)
        for one in [*watched]:
            last = show(one)
            watched.remove(one)
            raise_if_broken(sweep, last.reason, last.details)
    except (KeyboardInterrupt, SystemExit) as end:  # also before it was watched
        if not (watched := watched or [one for one in sweep.running() if one not in earlier]):
            raise
        if isinstance(end, SystemExit):  # SIGTERM, or a terminal that was closed
            ask_to_stop_here(sweep, resumed)
            raise
        if watched[0].cluster != LOCAL:
            say(
                "\nOnly the watching has ended: the submitted jobs continue on "
                f"{watched[0].cluster}, without this terminal."
            )
            say_next("Stop them", "cancel", directory)
            say_next("Follow them, then analyse", *again)
            raise typer.Exit(INTERRUPTED) from None
        say(
            "\nStopping after the fits in flight. "
            "Press Ctrl-C again to end them, too; they will be trained again."
        )
        stop_here(sweep)
        now = sweep.survey().counts
        say(f"{now['done'] + now['copy']:,} of {now['runs']:,} runs are finished.")
        if places := ", ".join(dict.fromkeys(one.cluster for one in sweep.running())):
            say(f"The jobs on {places} continue, without this terminal.")
            say_next("Stop them", "cancel", directory)
        say_next("Continue with", *resumed)
        raise typer.Exit(INTERRUPTED) from None
    page = analyze_and_report(sweep, metric, None if profile is None else where)
    in_short(sweep)
    say_report(page)
    _print_estimate(sweep)
    state = sweep.status()
    runs = state["runs"]
    if runs["failed"]:
        say(f"\n{counted(runs['failed'], 'run')} failed.")
        say_commands(state["next"][:2])  # the tracebacks, and how to go on
        raise typer.Exit(1)
    if runs["missing"]:
        say(f"\n{counted(runs['missing'], 'run')} missing.")
        for problem in state["problems"]:
            say(problem)
        say_commands(state["next"])
        raise typer.Exit(NOT_FINISHED)
    from manyseed.orchestrator.plans.plan import Plan
    from manyseed.orchestrator.progress.status import apart

    say_next("Next", "query", directory, "--by", apart(Plan.read(sweep.paths).cells))


def _print_estimate(sweep: Sweep) -> None:
    """Print the actual cost, beside the plan's estimate where that differs."""
    from manyseed.orchestrator.plans.change import estimate_and_outcome

    shown: dict[str, tuple[str, Callable[[float], str]]] = {
        "fits": ("fits", "{:,.0f}".format),
        "hours": ("training", lambda hours: duration(3600 * hours)),
        "store_bytes": ("store", size),
        "store_files": ("files", "{:,.0f}".format),
    }
    figures = []
    for key, (estimated, actual) in estimate_and_outcome(sweep.paths).items():
        name, show_figure = shown[key]
        planned = "–" if math.isnan(estimated) else show_figure(estimated)
        as_planned = planned == show_figure(actual)
        figures.append(
            f"{name} {show_figure(actual)}{'' if as_planned else f' (planned {planned})'}"
        )
    say(f"Cost: {', '.join(figures)}.")


@takes("submit", "cluster", "workers", "failed", "memory", "only", "limit", "other_recipe")
def resume(directory: Directory, watch: Watch = False, **options: Any) -> None:
    """Submit the missing runs of an interrupted sweep, here or on any cluster.

    Finished runs are never trained again, and runs of a waiting or running task are never submitted
    again. Paused tasks are released. Tasks that were asked to stop are waited for; if they take
    longer than some minutes and hold all missing runs, the exit code is 3. Failed runs are left
    alone unless --failed is given.

    Examples:

        manyseed resume quickstart

        manyseed resume quickstart --failed --memory 32G

        manyseed resume quickstart --cluster local --workers 4
    """
    submit_and_report(directory, watch=watch, **options)


@takes("cancel", "only", "now")
def cancel(
    directory: Directory,
    hold: bool = switch("--pause", "Hold tasks that wait in the queue, until resume."),
    parallelism: int | None = optional(
        "N",
        "End nothing: let at most N tasks run at once on a cluster; 0: no limit.",
        "--throttle",
        min=0,
    ),
    **options: Any,
) -> None:
    """Stop all tasks after the fits in flight. Nothing is lost.

    This takes as long as these fits do. Tasks that wait in a queue never start, or with --pause
    stay in it until manyseed resume, which also submits the runs that stopped tasks left.

    Examples:

        manyseed cancel quickstart

        manyseed cancel quickstart --now

        manyseed cancel quickstart --pause

        manyseed cancel quickstart --throttle 10
    """
    from manyseed.orchestrator.sweep import Sweep

    if hold:
        alone("--pause", **options, throttle=parallelism)
        pause(directory)
        return
    if parallelism is not None:
        alone("--throttle", **options)
        throttle(directory, parallelism)
        return
    only, now = options["only"], options["now"]
    if now and only is not None:
        raise UserError("cannot end the fits in flight of some cells only", key="--now")
    sweep = Sweep(directory)
    running, waiting = sweep.cancel(only, now=now)
    say_unreadable(sweep.submissions())
    if only is not None:
        say_left_out(sweep, only, waiting)
    elif running + waiting == 0:
        say("Nothing is running.")
    else:
        when = "now" if now else "after the fits in flight"
        say(_stopped(running, f"asked to stop {when}", waiting, "cancelled"))
        if running and not now:
            say_next("End these fits, too", "cancel", directory, "--now")
        say_training("Continue with", sweep.paths, "resume")


def pause(directory: Directory) -> None:
    """Stop running tasks after the fits in flight, and hold tasks that wait in the queue.

    manyseed resume releases held tasks, and submits the runs that stopped tasks left.

    Examples:

        manyseed pause quickstart
    """
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    running, waiting = sweep.pause()
    say_unreadable(sweep.submissions())
    if running + waiting == 0:
        say("Nothing is running.")
    else:
        say(_stopped(running, "asked to stop after the fits in flight", waiting, "held"))
        say_training("Continue with", sweep.paths, "resume")


def _stopped(running: int, asked: str, waiting: int, done: str) -> str:
    """Say what was done to the tasks that run and to those that wait; nothing of none."""
    parts = [f"{counted(running, 'task')} {asked}"] * bool(running)
    parts += [f"{counted(waiting, 'waiting task')} {done}"] * bool(waiting)
    return f"{', '.join(parts)}."


def throttle(
    directory: Directory,
    parallelism: int = argument("N", "0: no limit.", ..., min=0),
) -> None:
    """Let at most N tasks run at once on a cluster from now on. Running tasks are not ended.

    Examples:

        manyseed throttle quickstart 10

        manyseed throttle quickstart 0
    """
    from manyseed.orchestrator.sweep import Sweep

    arrays = Sweep(directory).throttle(parallelism)
    limit = counted(parallelism, "task") if parallelism else "as many tasks as the site allows"
    say(f"From now on {limit} at once (in {counted(arrays, 'array')}).")
