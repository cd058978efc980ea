"""The verbs that plan: a sweep file, its plan, the data; and which cells are dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from manyseed.orchestrator.cli import planned
from manyseed.orchestrator.cli.arguments import (
    Directory,
    Json,
    Out,
    Settings,
    SweepToml,
    alone,
    argument,
    only_with,
    optional,
    switch,
    takes,
    written_to,
)
from manyseed.orchestrator.cli.output import (
    NO_GPU,
    console,
    counted,
    dry_plan,
    duration,
    lacks_profile,
    one_core,
    print_frame,
    print_json,
    print_table,
    say,
    say_next,
    say_notes,
    say_without_profile,
    size,
)
from manyseed.orchestrator.errors import DamagedFile, UserError, refused
from manyseed.orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    from manyseed.orchestrator.plans.change import Change
    from manyseed.orchestrator.submissions.forecast import BudgetedDesign, Limit, Placement
    from manyseed.slurm.profile import Profile


@takes("plan", "other_recipe")
def plan(
    sweep_file: Path = argument(
        "SWEEP.toml|DIR", "The sweep file; with --tune and --drop, the sweep directory.", ...
    ),
    out: Out = None,
    settings: Settings = None,
    dry_run: bool = switch("--dry-run", "Show the plan; write nothing.", "-n"),
    walltime: str | None = optional(
        "TIME", "Name fits that cannot finish in jobs of this time, such as 4:00:00 or 1-12."
    ),
    budget: str | None = optional(
        "LIMIT,…",
        "Plan the largest design that costs no more in all: 500gpuh, 1000coreh, 200GB, "
        "10000files; or that is trained in 8h, or by 2026-12-01T08:00, here or with --cluster. "
        "Runs are cut first, then repeats.",
    ),
    fetching: bool = switch(
        "--fetch", "Only fetch and prepare the data, once, on a machine that can reach it."
    ),
    searching: bool = switch(
        "--tune", 'Of a sweep DIR: search on this machine for hparams = "tuned", and for scales.'
    ),
    dropping: str | None = optional(
        "SQL", "Of a sweep DIR: remove these cells for good.", "--drop"
    ),
    yes: bool = switch("--yes", "With --drop: do not ask.", "-y"),
    cluster: str | None = optional(
        "NAME",
        "Say what it takes on this cluster, a profile's name or file: tasks, memory, hours. "
        "With --tune: local, to search here even on a login node.",
    ),
    workers: int | None = optional(
        "", "With --tune: number of processes.", shown="the available cores", min=1
    ),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Plan a sweep file: check it, show its grid, and write the plan.

    Planning an enlarged file into a sweep adds what is new and keeps everything that is done.

    With --tune, the given sweep DIR gets the hparams of its tuned cells by one random search per
    dataset and classifier, and the scale of each cell with kfac-laplace that has none; the same
    command continues. With --drop, cells leave the plan; their finished runs are lost.

    Examples:

        manyseed plan sweep.toml --dry-run

        manyseed plan sweep.toml --out /scratch/me/sweep

        manyseed plan sweep.toml --set runs=2 --set classifier.mlp.epochs=5 --out trial

        manyseed plan sweep.toml --fetch

        manyseed plan sweep --tune

        manyseed plan sweep --drop "dataset = 'dionis' AND classifier = 'lr-sgd'" --dry-run
    """
    from manyseed.jobs.classifiers.features import counting
    from manyseed.jobs.datasets import data_home
    from manyseed.orchestrator.grids.loading import name_of
    from manyseed.orchestrator.plans.change import remarks
    from manyseed.orchestrator.plans.code import prepare_read
    from manyseed.orchestrator.plans.cost import beyond
    from manyseed.orchestrator.plans.planning import plan_change, plan_sweep, require_room
    from manyseed.orchestrator.plans.stacks import choices
    from manyseed.orchestrator.submissions.forecast import read_budget, too_short
    from manyseed.orchestrator.submissions.requirements import of_earlier_code, require_code

    other_recipe = options["other_recipe"]
    options |= {"out": out, "set": settings, "walltime": walltime, "budget": budget}
    only_with("--tune", searching, workers=workers)
    only_with("--drop", dropping is not None, yes=yes)
    if fetching:
        options |= {"cluster": cluster, "json": as_json}
        alone("--fetch", **options, dry_run=dry_run, tune=searching, drop=dropping)
        fetch(sweep_file)
        return
    if searching:
        from manyseed.orchestrator.cli.train import tune

        alone("--tune", **options, dry_run=dry_run, drop=dropping)
        tune(sweep_file, as_json, cluster=cluster or "auto", workers=workers)
        return
    if dropping is not None:
        alone("--drop", **options, cluster=cluster, json=as_json)
        _drop(sweep_file, dropping, "--drop", is_sure=yes, dry_run=dry_run)
        return
    hours = None if walltime is None else _parsed(walltime)
    profile = None if cluster is None else _profile(cluster)
    settings = [*(settings or [])]
    directory = out or Path(name_of(sweep_file, settings))
    limits = () if budget is None else read_budget(budget)
    fitted = _fitted(limits, sweep_file, directory, settings, profile) if limits else None
    settings += () if fitted is None else fitted.settings
    require = None if other_recipe else require_code
    absent: list[str] = []
    with one_core(SweepPaths(directory), "reading the data, and trying code of your own,"):
        if dry_run:
            # of a sweep that exists, the weights tell which runs it has already
            with ExitStack() as stack:
                if not SweepPaths(directory).is_sweep:
                    absent = stack.enter_context(counting())
                change = plan_change(sweep_file, directory, settings)
            if require is not None:
                require(SweepPaths(directory), change)
        else:
            change = plan_sweep(sweep_file, directory, settings, require)
        prepared = [] if dry_run else prepare_read(change.expansion.datasets)
    too_long = []
    if hours is not None:
        too_long = beyond(change.after, hours, change.observed, change.measuring).to_dicts()
    there, short = None, []
    if profile is not None:
        there = _forecast(change, SweepPaths(directory), profile)
        if not isinstance(there, _NoForecast):
            short = [*too_short(change, SweepPaths(directory), profile, there)]
    no_room = None
    if dry_run:
        try:
            require_room(change, sweep_file, directory)
        except UserError as error:
            no_room = error
    if as_json:
        done = {"directory": str(directory), "written": not dry_run}
        problems = {
            "beyond_walltime": too_long,
            "no_room": None if no_room is None else str(no_room),
            "absent_weights": absent,
        }
        on_cluster: dict[str, Any] = {}
        if there is not None:
            on_cluster["on_cluster"] = (
                there.reason if isinstance(there, _NoForecast) else [*map(asdict, there)]
            )
        kept = {} if fitted is None else {"budget": fitted.to_json()}
        print_json(change.summary() | done | problems | on_cluster | kept)
        return
    columns, rows, total = planned.table(change.summary())
    print_table(change.sweep.name, columns, rows, total=total, nested=True)
    console.print()
    paths = SweepPaths(directory)
    file = paths.sweep_file if settings and not dry_run else sweep_file
    notes = [*remarks(change, chosen=[*choices(paths).values()])]
    for note in notes if dry_run else ():
        say(note)
    if not dry_run:
        say_notes(notes, *dry_plan(file, directory))
    earlier = [] if other_recipe else of_earlier_code(paths, change)
    placed = [] if profile is None or there is None else _on_cluster(profile.name, there)
    cut = [] if fitted is None else fitted.sentences(limits)
    lacking = [NO_GPU] if profile is None and _lacks_gpu(change, paths) else []
    for sentence in [
        *planned.sentences(change),
        *lacking,
        *cut,
        *placed,
        *short,
        *planned.beyond(too_long),
        *earlier,
    ]:
        say(sentence)
    if no_room is not None:
        say(f"It could not be planned into {directory}: {no_room.message}\n  {no_room.remedy}")
    for weights in absent:
        say(f"To plan this, and not only count it, weights are needed: {weights}.")
    if dry_run:
        say("Nothing was written (--dry-run).")
        return
    say(f"{directory} already holds it." if change.is_empty else f"Planned into {directory}.")
    if prepared:
        say(f"Prepared {', '.join(prepared)} in {data_home()}.")
    following = _next(change, file, paths, ["--other-recipe"] * other_recipe, cluster)
    if following[0] == "submit" and "--cluster" not in following and lacks_profile(paths):
        say_without_profile(paths.directory)
    what = "Next"
    if following[0] == "submit" and isinstance(there, _NoForecast) and there.profile:
        what = f"Once {there.profile} is corrected"
    say_next(what, *following)


def _fitted(
    limits: Sequence[Limit],
    sweep_file: Path,
    directory: Path,
    settings: list[str],
    profile: Profile | None,
) -> BudgetedDesign:
    """Return the largest design within a budget; weights that are absent do not matter for it."""
    from manyseed.jobs.classifiers.features import counting
    from manyseed.orchestrator.grids.loading import read_sweep_file
    from manyseed.orchestrator.plans.planning import plan_change
    from manyseed.orchestrator.submissions.forecast import ELAPSED, ERRORS, fit_budget

    def price(further: Sequence[str]) -> dict[str, Any]:
        change = plan_change(sweep_file, directory, [*settings, *further])
        summary = change.summary() | {ERRORS: change.standard_errors}
        if not any(limit.is_deadline for limit in limits):
            return summary
        return summary | {ELAPSED: _elapsed(change, SweepPaths(directory), profile)}

    with ExitStack() as stack:
        if not SweepPaths(directory).is_sweep:
            stack.enter_context(counting())
        return fit_budget(limits, read_sweep_file(sweep_file, settings), price)


def _elapsed(change: Change, paths: SweepPaths, profile: Profile | None) -> float:
    """Return the hours until all missing runs are trained, if nothing waits for others."""
    from manyseed.orchestrator.plans.cost import seconds, untrained_copies
    from manyseed.orchestrator.submissions.forecast import to_train
    from manyseed.slurm.local import available_cores

    if profile is not None:
        there = _forecast(change, paths, profile)
        if isinstance(there, _NoForecast):
            told = f"what {profile.name} takes is not known: {there.reason}"
            raise UserError(told, key="--budget")
        return max((one.hours for one in there), default=0.0)
    plan = change.after
    rows = to_train(change, paths).filter(~untrained_copies(plan))
    costs = seconds(plan, change.observed, change.measuring)
    return float(rows.join(costs, on="cell")["seconds"].sum()) / available_cores() / 3600


def _profile(name: str) -> Profile:
    from manyseed.orchestrator.submissions.profiles import choose

    if (profile := choose(name)) is None:
        remedy = "name a profile; local applies only with --tune"
        raise UserError("is no cluster", key="--cluster", value=name, remedy=remedy)
    return profile


@dataclass(frozen=True, slots=True)
class _NoForecast:
    """Why it cannot be told what a plan takes on a cluster, and the profile to correct, if any."""

    reason: str
    profile: str = ""


def _forecast(change: Change, paths: SweepPaths, profile: Profile) -> list[Placement] | _NoForecast:
    from manyseed.orchestrator.errors import UnavailableError
    from manyseed.orchestrator.submissions.forecast import forecast
    from manyseed.orchestrator.submissions.possible import ProfileError
    from manyseed.slurm import ClusterError, Refused

    try:
        return forecast(change, paths, profile)
    except Refused as error:
        return _NoForecast(refused(error, file=profile.path).message, str(profile.path))
    except UserError as error:
        return _NoForecast(f"submit refuses it: {error}", str(profile.path))
    except (ClusterError, UnavailableError) as error:
        wrong = isinstance(error, ProfileError)
        return _NoForecast(str(error), str(profile.path) if wrong else "")


def _on_cluster(name: str, found: list[Placement] | _NoForecast) -> Iterator[str]:
    """Yield what a plan takes on a cluster in words."""
    if isinstance(found, _NoForecast):
        yield f"On {name}: not known, as {found.reason}"
        return
    yield from (f"On {name}: {_taking(one)}" for one in found)


def _taking(one: Placement) -> str:
    from manyseed.orchestrator.submissions.memory import in_words

    memory = "" if one.memory is None else f", {in_words(one.memory)} per task"
    waves = f" in {one.waves:,} waves" if one.waves > 1 else ""
    return (
        f"{counted(one.tasks, f'{one.resource.upper()} task')} of "
        f"{counted(one.processes, 'process')}{memory}, {one.at_once:,} at once{waves}; about "
        f"{duration(one.hours * 3600)} if nothing waits for others, the longest task "
        f"{duration(one.task_hours * 3600)} of its {duration(one.walltime_hours * 3600)}."
    )


def _lacks_gpu(change: Change, paths: SweepPaths) -> bool:
    """Return whether a GPU is asked for where none responds, and no cluster is known to train."""
    from manyseed.orchestrator.submissions.profiles import AUTO, choose
    from manyseed.orchestrator.submissions.requirements import gpu_here
    from manyseed.orchestrator.submissions.submission import last_intent

    devices = change.after.cells["device"]
    if "gpu" in devices and gpu_here(devices) is None:
        try:
            return choose(AUTO, last=last_intent(paths)) is None
        except UserError:  # there is no profile
            return True
        except DamagedFile:  # reported by whoever submits
            return False
    return False


def _next(
    change: Change, sweep_file: Path, paths: SweepPaths, further: list[str], cluster: str | None
) -> Sequence[object]:
    """Return the next command for a planned sweep; `further` and a given cluster: for `submit`."""
    from manyseed.jobs import datasets
    from manyseed.orchestrator.plans.searches import searches, to_tune
    from manyseed.orchestrator.submissions.submission import on_cluster
    from manyseed.orchestrator.survey import survey

    infos = change.expansion.datasets.values()
    if not all(datasets.is_fetched(info.canonical) for info in infos):
        return ["plan", sweep_file, "--fetch"]
    cells = change.after.cells
    if searches(paths, cells):
        return to_tune(paths)
    if change.is_empty and not survey(paths).counts["missing"]:
        return ["status", paths.directory]  # which knows what comes after training
    where = on_cluster(paths) if cluster is None else ["--cluster", cluster]
    return ["submit", paths.directory, *further, *where]


def _parsed(walltime: str) -> float:
    from manyseed.slurm import Refused
    from manyseed.slurm.profile import minutes

    try:
        return minutes(walltime) / 60
    except Refused as error:
        raise refused(error, key="--walltime") from None


datasets_app = typer.Typer(help="List datasets, and fetch those of a sweep.", no_args_is_help=True)


@datasets_app.command("list")
def list_(as_json: Json = False) -> None:
    """List the datasets known by name, with their shapes, without downloading anything.

    Examples:

        manyseed datasets list
    """
    from manyseed.jobs import datasets

    columns = ("source", "samples", "features", "categorical", "classes", "fetched")
    rows = []
    for name in datasets.names():
        if name.startswith("synthetic:"):
            continue
        info = datasets.resolve(name)
        fetched = datasets.is_fetched(info.canonical)
        classes = len(info.class_names)
        rows.append((name, info.n_samples, info.n_features, info.n_categorical, classes, fetched))
    if as_json:
        print_json({"datasets": [dict(zip(columns, row, strict=True)) for row in rows]})
        return
    print_table(None, columns, rows)
    say("\nAlso: synthetic:gaussian, and file:PATH for CSV, Parquet and NPZ.")


@datasets_app.command()
def fetch(sweep_file: SweepToml) -> None:
    """Fetch and prepare the data of a sweep file, once, on a machine that can reach it.

    Compute nodes only read the prepared copies, in the folder that MANYSEED_DATA names.

    Examples:

        manyseed datasets fetch sweep.toml
    """
    from manyseed.orchestrator.grids.expansion import expand
    from manyseed.orchestrator.grids.loading import read_sweep_file
    from manyseed.orchestrator.paths import SweepPaths
    from manyseed.orchestrator.plans.code import fetch_datasets, own_code

    own = own_code(sweep_file, SweepPaths(sweep_file.absolute().parent)).of_data()
    expansion = expand(read_sweep_file(sweep_file), sweep_file, own)
    with console.status("fetching") as status:
        made = fetch_datasets(
            expansion.datasets, lambda name: status.update(Text(f"fetching {name}"))
        )
    existing = len(expansion.datasets) - len(made)
    say(f"Prepared {counted(len(made), 'dataset')}; already here: {existing:,}.")


def init(
    data: str | None = argument(
        "[DATA]",
        "A file, a folder of images (a folder per class), a source, or your own function as "
        "module:name; without it, all examples are listed.",
    ),
    models: list[str] | None = argument(
        "[MODEL…]",
        "Your own code: module:name, a Python file or a script; or a classifier. "
        "By default, several classifiers.",
    ),
    target: str | None = optional("COLUMN", "The classes.", shown="the likeliest"),
    out: Path | None = written_to(
        "Where to write it; the sweep takes its name.",
        shown="sweep.toml, named after the data",
    ),
    named: str | None = optional(
        "NAME", "Instead, write an example sweep file or cluster profile.", "--example"
    ),
    known: bool = switch("--datasets", "Instead, list the datasets known by name."),
    as_json: Json = False,
) -> None:
    """Write a sweep file for your data and model, with comments on what was found in them.

    Examples:

        manyseed init measurements.csv

        manyseed init photos/

        manyseed init measurements.csv train.py

        manyseed init sklearn:digits mynet:build cnn --out digits.toml

        manyseed init --example quickstart

        manyseed init --datasets
    """
    from manyseed.orchestrator.disk.placing import place_new, unavailable
    from manyseed.orchestrator.grids.template import sweep_file, to_train

    if known:
        alone("--datasets", DATA=data, target=target, out=out, example=named)
        list_(as_json)
        return
    if as_json:
        raise UserError("applies only with --datasets", key="--json", value=True)
    if named is None and data is None and (target or out):
        raise UserError("for which data?", key="DATA", remedy="name a file, such as: DATA.csv")
    if named is not None or data is None:
        from manyseed.orchestrator.cli.guide import example

        alone("--example", DATA=data, target=target)
        example(named, out)
        return
    named_after = None if out is None else out.stem
    out = out or Path("sweep.toml")
    submits = lacks_profile()
    with console.status("reading the data, and timing a fit"):
        text, told, sound = sweep_file(
            data, models or (), target, named_after, out, submits=submits
        )
    with unavailable("write", out):
        place_new(out, text.encode())
    console.print(f"Wrote {out}.")
    for line in told:
        say(line.lstrip(), indent=len(line) - len(line.lstrip()))
    say_next("Look" if sound else "Once mended", "plan", out, "--dry-run")
    for what, words, _ in to_train(out, submits=submits) if sound else ():
        say_next(what, *words)


@takes("drop", "where", "dry_run")
def drop(
    directory: Directory,
    yes: bool = switch("--yes", "Do not ask.", "-y"),
    **options: Any,
) -> None:
    """Remove cells from the plan for good; their finished runs are lost.

    Examples:

        manyseed drop sweep --where "dataset = 'dionis' AND classifier = 'lr-sgd'" --dry-run
    """
    _drop(directory, options["where"], "--where", is_sure=yes, dry_run=options["dry_run"])


def _drop(directory: Path, where: str, option: str, *, is_sure: bool, dry_run: bool) -> None:
    """Show the cells that meet a condition, which came from an option; ask, and drop them."""
    from manyseed.analysis.axes import AXES
    from manyseed.orchestrator.plans.change import to_drop
    from manyseed.orchestrator.plans.plan import Plan
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    chosen = to_drop(sweep.paths, where, option)
    names = ("cell", "dataset", "classifier")
    alike = Plan.read(sweep.paths).all_cells.join(chosen.cells, on=names[1:], how="semi")
    differing = [c for c in AXES if c not in names and alike[c].n_unique() > 1]
    print_frame(chosen.cells.select(*names, *differing), 20, more="")
    finished = "all" if chosen.finished == chosen.runs else f"{chosen.finished:,}"
    text = f"{counted(len(chosen.cells), 'cell')} ({counted(chosen.runs, 'run')}, "
    text += f"{finished} finished)"
    if dry_run:
        say(f"\n{text}. Nothing was written (--dry-run).")
        return
    if not is_sure:
        typer.confirm(f"\nPermanently drop {text}?", abort=True)
    freed = sweep.drop(where).freed
    kept = "Nothing is freed: their places in the store are in files that other runs share."
    say(f"Dropped {text}. {f'Freed {size(freed)}.' if freed else kept}")
