"""What must be there before anything is submitted: packages, data, room, time, the same recipe."""

from __future__ import annotations

import polars as pl

from manyseed.jobs import classifiers
from manyseed.orchestrator.devices import gpus
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.data import require_fetched
from manyseed.orchestrator.plans.groups import Groups
from manyseed.orchestrator.plans.keptmodels import counted
from manyseed.orchestrator.plans.plan import WITH_METHOD, Plan
from manyseed.orchestrator.plans.room import GroupRoom, require_room
from manyseed.orchestrator.submissions import cluster
from manyseed.orchestrator.submissions.recipes import require_same
from manyseed.orchestrator.survey import Survey
from manyseed.slurm.profile import Profile


def require_packages(state: Survey, cells: pl.DataFrame) -> None:
    """Refuse cells whose fits import what is not installed here; nodes report that themselves."""
    one_each = cells.unique("classifier", keep="first", maintain_order=True)["cell"]
    kinds = dict.fromkeys(str(state.plan.cell(cell).classifier["name"]) for cell in one_each)
    missing = {kind: packages for kind in kinds if (packages := classifiers.lacking(kind))}
    if missing:
        lacking = ", ".join(dict.fromkeys(one for each in missing.values() for one in each))
        raise UnavailableError(
            f"{', '.join(missing)} cannot be trained here: {lacking} not installed\n"
            "  pip install 'manyseed[cpu]', or 'manyseed[gpu]' on a machine with GPUs"
        )


def require_data(paths: SweepPaths, state: Survey, rows: pl.DataFrame) -> None:
    """Refuse rows whose datasets were not fetched."""
    cells = state.plan.cells.join(rows.select("cell").unique(), on="cell", how="semi")
    one_each = cells.unique("dataset", keep="first", maintain_order=True)
    names = one_each.select("dataset", "cell").iter_rows()
    require_fetched({name: state.plan.cell(n).dataset for name, n in names}, paths.sweep_file)


def require_space(paths: SweepPaths, state: Survey, groups: Groups, rows: pl.DataFrame) -> None:
    """Refuse rows whose predictions the disk cannot hold.

    Parameters
    ----------
    paths : SweepPaths
    state : Survey
    groups : Groups
        Their layouts.
    rows : polars frame
        What is to be trained: columns group, cell, repeat and run, a row per run.

    Raises
    ------
    UnavailableError
    """
    repeats = state.plan.rows.group_by("group").agg(pl.col("repeat").max().cast(pl.Int64) + 1)
    counts = rows.group_by("group").agg(rows=pl.len()).join(repeats, on="group").sort("group")
    models = counted(state.plan.cells, rows, groups.specs)
    missing = [
        GroupRoom(groups.specs[group], n, last, models.get(group))
        for group, n, last in counts.iter_rows()
    ]
    require_room(paths.directory, missing)


def require_recipe(
    paths: SweepPaths, state: Survey, devices: pl.Series, *, gpu: str | None, is_here: bool
) -> None:
    """Refuse to train on other devices than the finished runs.

    Parameters
    ----------
    paths : SweepPaths
    state : Survey
    devices : polars.Series
        The devices requested for what is submitted.
    gpu : str, optional
        The model of the GPU here.
    is_here : bool
        Whether this machine trains.
    """
    finished = state.with_state("done", "copy").select("cell").unique()
    trained = state.plan.cells.join(finished, on="cell", how="semi")["device"].unique()
    has_finished = {device: device in trained for device in devices}
    require_same(paths, has_finished, gpu=gpu, is_here=is_here)


def gpu_here(devices: pl.Series) -> str | None:
    """Return the model of this machine's GPU, where one is requested."""
    return next(iter(gpus().values()), None) if "gpu" in devices else None


def require_walltime(
    plan: Plan,
    rows: pl.DataFrame,
    observed: pl.DataFrame,
    measuring: pl.DataFrame,
    profile: Profile,
) -> None:
    """Refuse rows whose fits end in no job of the profile's walltime.

    Parameters
    ----------
    plan : Plan
    rows : DataFrame
        Column cell, of what is to be submitted.
    observed, measuring : DataFrame
        As `cost.seconds` takes them.
    profile : Profile
        What jobs ask for.
    """
    cells = plan.cells.join(rows, on="cell", how="semi")
    for device in cells["device"].unique():
        resources = profile.resources(device)
        hours = (resources.minutes * 60 - cluster.SIGNAL_SECONDS) / 3600
        wanted = cells.filter(device=device).select("dataset", WITH_METHOD).unique()
        beyond = cost.beyond(plan, hours, observed, measuring).join(
            wanted, on=["dataset", "classifier"], how="semi", maintain_order="left"
        )
        if not beyond.is_empty():
            worst = beyond.row(0, named=True)
            raise UserError(
                f"the walltime is too short for one fit: {worst['classifier']} on "
                f"{worst['dataset']} takes about {worst['hours']:.1f} h, a task has "
                f"{hours:.1f} h",
                file=profile.path,
                key="time",
                remedy='give more, or submit the others with --only "classifier <> '
                f"'{worst['classifier']}'\"",
            )
