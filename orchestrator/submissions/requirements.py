"""Preconditions of a submission: packages, data, disk space, walltime, and the same recipe."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import polars as pl

from manyseed.analysis.counts import duration
from manyseed.jobs.packages import install
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.devices import gpus
from manyseed.orchestrator.errors import ManyseedError, UnavailableError, UserError, command
from manyseed.orchestrator.grids.resolver import lacking_packages, not_trainable
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.change import Change, on_disk
from manyseed.orchestrator.plans.code import (
    CodeHere,
    of_changed_files,
    require_fetched,
    require_files,
)
from manyseed.orchestrator.plans.cost import require_room, rooms, store_bytes
from manyseed.orchestrator.plans.keptmodels import counted
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import WITH_METHOD, Plan
from manyseed.orchestrator.provenance import (
    BF16,
    FLOAT32,
    NO_BF16,
    Recipe,
    has_bf16,
    read_recipes,
)
from manyseed.orchestrator.store.groups import find_group
from manyseed.orchestrator.submissions import cluster
from manyseed.orchestrator.submissions.submission import Submission
from manyseed.orchestrator.survey import Survey, survey
from manyseed.orchestrator.tasks.task import held_rows
from manyseed.slurm.profile import Profile

_AMPLE = 2.0  # times the expected duration of a fit: estimates err, and cores differ
_SAME_PAIR: Any = {"on": ["dataset", "classifier"], "how": "semi", "maintain_order": "left"}

ANOTHER_MACHINE = frozenset(("device_class", "threads"))
"""Differences that a mixed cluster makes: training goes on, and runs say how they were made."""


def require_same(
    paths: SweepPaths, has_finished: Mapping[str, bool], *, gpu: str | None, is_here: bool
) -> list[str]:
    """Refuse to continue with a recipe that differs from the recorded ones in more than the device.

    `has_finished`: for each device that the runs request: whether runs that request it are
    finished. `gpu`: the GPU model for runs that request one. `is_here`: whether this machine trains
    them; if not, its processor is not compared. Form and precision are not compared either.

    Returns a sentence for each device of another class than that of the recorded runs.
    """
    sentences = []
    recorded = list(read_recipes(paths.recipes).values())
    for device, is_known in has_finished.items():
        now = replace(Recipe.here(gpu if device == "gpu" else None), form=None, precision=None)
        before = recorded
        if is_here:
            made_on = _made_on(device, recorded) if is_known else now.device
            before = [recipe for recipe in recorded if (recipe.device or "cpu") == made_on]
        else:
            now = replace(now, device=None, device_class=None)
        changes = [recipe.changes(now) for recipe in before]
        if not all(changes):
            continue
        mild = [change for change in changes if change.keys() <= ANOTHER_MACHINE]
        if changes and not mild:
            raise _refusal(paths, changes[-1])
        sentences += [
            f"Runs so far were made with another device ({_listed(change)}): these get a recipe of "
            "their own, and answers says whether they differ."
            for change in mild[-1:]
        ]
    return sentences


def _made_on(requested: str, recorded: Sequence[Recipe]) -> str:
    """Return where finished runs were trained: requests for a GPU are always or never met."""
    return requested if any(recipe.device == requested for recipe in recorded) else "cpu"


def _refusal(paths: SweepPaths, changes: Mapping[str, tuple[object, object]]) -> UserError:
    return UserError(
        f"runs of this sweep were made with another recipe ({_listed(changes)})",
        file=paths.recipes,
        remedy="restore it, or mix recipes knowingly with --other-recipe: results mark the repeats",
    )


def _listed(changes: Mapping[str, tuple[object, object]]) -> str:
    return ", ".join(f"{key}: {before} → {now}" for key, (before, now) in changes.items())


def require_packages(plan: Plan, cells: pl.DataFrame) -> None:
    """Refuse cells whose fits need packages not installed here; nodes report that themselves."""
    first_cells = cells.unique("classifier", keep="first", maintain_order=True)["cell"]
    kinds = dict.fromkeys(str(plan.cell(cell).classifier["name"]) for cell in first_cells)
    if (reason := not_trainable(kinds)) is not None:
        raise UnavailableError(f"{reason}\n  {install(lacking_packages(kinds))}")


def require_data(paths: SweepPaths, state: Survey, rows: pl.DataFrame) -> None:
    """Refuse rows whose datasets have not been fetched; tell of files that have changed since."""
    data = _data(state, rows)
    require_fetched(data, paths.sweep_file)
    for text in of_changed_files(data, paths):
        warn(text)


def of_changed_data(paths: SweepPaths, state: Survey) -> Iterator[str]:
    """Say which files that missing runs are trained on have changed since they were planned."""
    return of_changed_files(_data(state, state.with_state("missing")), paths)


def require_same_data(paths: SweepPaths) -> None:
    """Refuse to begin with missing runs whose files are not as planned, as `run` and `plan` do."""
    state = survey(paths)
    require_files(_data(state, state.with_state("missing")), paths)


def _data(state: Survey, rows: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the canonical descriptions of these runs' datasets, by name."""
    cells = state.plan.cells.join(rows.select("cell").unique(), on="cell", how="semi")
    first_cells = cells.unique("dataset", keep="first", maintain_order=True)
    names = first_cells.select("dataset", "cell").iter_rows()
    return {name: dict(state.plan.cell(n).dataset) for name, n in names}


def left_out_before(
    paths: SweepPaths, rows: pl.DataFrame, earlier: Sequence[Submission]
) -> Iterator[str]:
    """Say how many runs to submit are new, as ``--only`` left them out, and how to do so again."""
    conditions = [*dict.fromkeys(one.intent.only for one in earlier if one.intent.only)]
    if not conditions:
        return
    files = [one.files.task(n) for one in earlier for n in range(one.intent.tasks)]
    held = held_rows([])
    with suppress(ManyseedError, OSError):  # a lost file is named by status
        held = held_rows(files)
    if n := len(rows.join(held, on=["group", "row"], how="anti")):
        kept = " or ".join(f"({one})" if len(conditions) > 1 else one for one in conditions)
        again = command("cancel", paths.directory, "--only", f"not ({kept})")
        were = "was" if n == 1 else "were"
        yield f"{n:,} of {len(rows):,} {were} left out by --only before; to keep to it: {again}"


def require_code(paths: SweepPaths, change: Change) -> None:
    """Refuse to train more with own code that has changed since runs with its version finished.

    `change`: to a plan, before it is written.
    """
    if change.before.cells.is_empty():
        return
    state = survey(paths)
    growing = pl.concat([state.with_state("missing")["cell"], change.added["cell"]]).unique()
    grown = change.after.cells.filter(pl.col("cell").is_in(growing.implode()))
    cells = change.before.cells.join(grown, on="classifier", how="semi")
    CodeHere(paths, cells, change.own).require_same(state.finished_cells)


def of_earlier_code(paths: SweepPaths, change: Change) -> list[str]:
    """Say which classifiers of a sweep file have results of code that has changed since.

    Parameters are those of `require_code`, which refuses to train them.
    """
    if change.before.cells.is_empty():
        return []
    asked = change.cells.drop_nulls("runs")
    cells = change.before.cells.join(asked, on="classifier", how="semi")
    return [
        f"The code of {name} has changed since its runs were trained: the results are those of the "
        "earlier code. To train the new code, give it another version (manyseed docs own)."
        for name in CodeHere(paths, cells, change.own).changed(survey(paths).finished_cells)
    ]


def warn_of_code(paths: SweepPaths, change: Change) -> None:
    """As `require_code`, and warn the caller from Python of results of earlier code."""
    require_code(paths, change)
    for text in of_earlier_code(paths, change):
        warn(text)


def require_space(paths: SweepPaths, state: Survey, groups: Groups, rows: pl.DataFrame) -> None:
    """Refuse rows whose predictions do not fit on the disk.

    `groups`: with their layouts. `rows`: the runs to train: columns group, cell, repeat, run and
    row.
    """
    specs = groups.specs
    missing = rooms(specs, rows, counted(state.plan.cells, rows, specs))
    finished = state.with_state("done", "copy")
    touched = rooms(specs, pl.concat([finished, rows.select(finished.columns)]), {})
    held = {room.spec.number: room.chunks or 0 for room in rooms(specs, finished, {})}
    new = {r.spec.number: (r.chunks or 0) - held.get(r.spec.number, 0) for r in touched}
    least = {r.spec.number: -(-r.runs // r.spec.chunk_length) for r in missing}
    chunks = {r.spec.number: max(new[r.spec.number], least[r.spec.number]) for r in missing}
    every = pl.concat([finished, rows.select(finished.columns)])
    every = every.filter(pl.col("group").is_in([*chunks]))

    def left() -> int:
        stored = filter(None, (find_group(paths.store, specs[number]) for number in chunks))
        whole = rooms(specs, every, counted(state.plan.cells, every, specs))
        return store_bytes(whole) - sum(on_disk(group.folder)[0] for group in stored)

    replaced = max(
        min(r.spec.shard_length, (r.chunks or 0) * r.spec.chunk_length) * r.spec.row_bytes
        for r in touched
    )
    sized = [replace(r, chunks=chunks[r.spec.number]) for r in missing]
    require_room(paths.directory, sized, replaced, left)


def require_recipe(
    paths: SweepPaths,
    state: Survey,
    cells: pl.DataFrame,
    stacks: Mapping[int, int],
    bf16: frozenset[int],
    *,
    gpu: str | None,
    is_here: bool,
) -> list[str]:
    """Refuse to train with a recipe other than that of the finished runs; as `require_same`.

    `cells`: those of the submitted runs. `stacks`: how many runs of a cell are trained at once, if
    several. `bf16`: cells trained in bfloat16. `gpu`: the model of this machine's GPU. `is_here`:
    whether this machine trains.
    """
    devices = cells["device"].unique().sort()
    finished = state.with_state("done", "copy").select("cell").unique()
    _require_form(paths, cells.join(finished, on="cell", how="semi"), stacks, bf16)
    trained = state.plan.cells.join(finished, on="cell", how="semi")["device"].unique()
    has_finished = {device: device in trained for device in devices}
    return require_same(paths, has_finished, gpu=gpu, is_here=is_here)


def _require_form(
    paths: SweepPaths, begun: pl.DataFrame, stacks: Mapping[int, int], bf16: frozenset[int]
) -> None:
    """Refuse to go on with cells of which runs are finished, in another form or precision."""
    recipes = [recipe for recipe in read_recipes(paths.recipes).values() if recipe.form]
    precisions = {recipe.precision for recipe in recipes if recipe.precision}
    for cell, name in begun.select("cell", "classifier").iter_rows():
        precision = BF16 if cell in bf16 else FLOAT32
        if precisions and precision not in precisions:
            before = max(precisions)
            said = f"in {before}, the others would be in {precision}"
            raise _other_form(paths, name, "precision", precision, f'"{before}"', said)
    made = {n for each in recipes for n in (each.members or 1, each.halved_from) if n}
    # perturbed hparams may change a network's structure: such runs are stacked or not, one by one
    fixed = begun.filter(perturb_hparams="none", identical=False)
    for cell, name in fixed.select("cell", "classifier").iter_rows():
        if made and (now := stacks.get(cell, 1)) not in made:
            said = f"{max(made):,} at a time, the others would be {now:,} at a time"
            raise _other_form(paths, name, "stack", now, f"{max(made)}", said)


def _other_form(
    paths: SweepPaths, classifier: str, option: str, value: object, before: str, said: str
) -> UserError:
    return UserError(
        f"runs of {classifier} so far were trained {said}: another recipe",
        file=paths.sweep_file,
        key=f"classifier.{classifier}.{option}",
        value=value,
        remedy=f"write {option} = {before}, or mix recipes knowingly with --other-recipe: results "
        "mark the repeats",
    )


def require_products(
    paths: SweepPaths, cells: pl.DataFrame, bf16: frozenset[int], *, gpu: str | None
) -> None:
    """Refuse cells trained in bfloat16 if this processor would train them and lacks it.

    Tasks ask GPUs, as each node asks its processor.
    """
    chosen = cells.filter(cells["cell"].is_in([*bf16]))
    of_cpu = chosen if gpu is None else chosen.filter(device="cpu")
    if not of_cpu.is_empty() and not has_bf16():
        name = of_cpu["classifier"][0]
        raise UserError(
            NO_BF16,
            file=paths.sweep_file,
            key=f"classifier.{name}.precision",
            value=BF16,
            remedy="remove it, or train on a machine or cluster that has them",
        )


def gpu_here(devices: pl.Series) -> str | None:
    """Return the model of this machine's GPU if one is requested."""
    return next(iter(gpus().values()), None) if "gpu" in devices else None


def require_jobs(
    paths: SweepPaths,
    plan: Plan,
    rows: pl.DataFrame,
    observed: pl.DataFrame,
    measuring: pl.DataFrame,
    profile: Profile,
) -> None:
    """Refuse rows that no job of the profile trains, or whose fits exceed its walltime.

    `rows`: the runs to submit: column cell. `observed` and `measuring`: as in `cost.seconds`.
    `profile`: with the walltime that jobs request.
    """
    for device, wanted in _pairs(plan, rows):
        cluster.require(profile, device, paths.submission(1))
        hours = _hours(profile, device)
        beyond = cost.beyond(plan, hours, observed, measuring).join(wanted, **_SAME_PAIR)
        if not beyond.is_empty():
            worst = beyond.row(0, named=True)
            seconds = worst["hours"] * 3600
            enough = math.ceil((_AMPLE * seconds + cluster.SIGNAL_SECONDS) / 60)
            raise UserError(
                f"the walltime is too short for one fit: {worst['classifier']} on "
                f"{worst['dataset']} is expected to train for {duration(seconds)} without a "
                f"checkpoint, a task for {duration(hours * 3600)}: it would be cut off again and "
                "again",
                file=profile.path,
                key="time",
                remedy=f'write time = "{enough // 60}:{enough % 60:02}:00", or submit the others '
                f"with --only \"classifier <> '{worst['classifier']}'\"",
            )


def continuing(
    plan: Plan,
    rows: pl.DataFrame,
    observed: pl.DataFrame | None,
    measuring: pl.DataFrame | None,
    profile: Profile,
) -> Iterator[str]:
    """Say which networks' fits are longer than a task trains, and go on from checkpoints.

    Parameters are those of `require_jobs`, which refuses other fits that are longer.
    """
    for device, wanted in _pairs(plan, rows):
        hours = _hours(profile, device)
        long = cost.continued(plan, hours, observed, measuring).join(wanted, **_SAME_PAIR)
        for one in long.unique("classifier", keep="first", maintain_order=True).to_dicts():
            walltime = duration(profile.resources(device).minutes * 60)
            yield (
                f"A fit of {one['classifier']} is expected to take {duration(one['hours'] * 3600)},"
                f" longer than a task trains in its walltime of {walltime}: it goes on from its "
                "checkpoint when the task is started again."
            )


def _pairs(plan: Plan, rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each resource class of these rows with its datasets and classifiers."""
    cells = plan.cells.join(rows, on="cell", how="semi")
    for device in cells["device"].unique().sort():
        yield device, cells.filter(device=device).select("dataset", WITH_METHOD).unique()


def _hours(profile: Profile, device: str) -> float:
    """Return how long a task trains before it is asked to end."""
    return (profile.resources(device).minutes * 60 - cluster.SIGNAL_SECONDS) / 3600
