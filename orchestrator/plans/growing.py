"""Plan more runs of some cells: add a grid for each of them to the sweep file.

A plan only grows, each cell by itself. What the user wrote in the sweep file stays; a grid for each
cell that needs more runs is added below it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.orchestrator.errors import UserError, command, toml_value
from manyseed.orchestrator.grids.expansion import expand
from manyseed.orchestrator.grids.loading import load_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.change import Change
from manyseed.orchestrator.plans.own import own_code
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import Check, plan_change, plan_sweep

MARK = "\n# ---- added by manyseed howmany --until: cells that need more runs\n"
"""A line of the sweep file: everything below it is rewritten whenever cells grow."""


def grow(
    paths: SweepPaths, runs: Mapping[int, int], require: Check, *, dry_run: bool = False
) -> Change:
    """Plan more runs of cells and change nothing else.

    Parameters
    ----------
    runs : mapping of int to int
        How many runs each of these cells shall have on each test set.
    require : callable
        A further check of the change.
    dry_run : bool
        Whether to return the change without writing it.

    Raises
    ------
    UserError
        If the sweep file cannot be extended so.
    """
    plan = Plan.read(paths)
    planned = plan.cells.join(plan.extents, on="cell").sort("cell")
    text = load_sweep_file(paths.sweep_file)[1].decode("utf-8-sig")
    written = text.partition(MARK)[0].rstrip()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / paths.sweep_file.name
        file.write_text(written)
        alone = expand(load_sweep_file(file)[0], paths.sweep_file, own_code(file, paths)).cells
        grids = _grids(planned, alone.select("cell_id", "repeats", "runs"), runs)
        file.write_text(f"{written}\n{MARK}\n" + "\n".join(grids))
        change = plan_change(file, paths.directory)
        if not change.added["cell"].is_in(list(runs)).all():
            raise UserError(
                "asks for runs that are not planned yet",
                file=paths.sweep_file,
                remedy="plan them first: "
                + command("plan", paths.sweep_file, "--out", paths.directory),
            )
        if dry_run:
            require(paths, change)
            return change
        return plan_sweep(file, paths.directory, require=require)


def _grids(planned: pl.DataFrame, alone: pl.DataFrame, runs: Mapping[int, int]) -> Iterator[str]:
    """Yield a grid for each cell that has, or shall have, more runs than the user asked for."""
    both = planned.join(
        alone, on="cell_id", how="left", suffix="_alone", maintain_order="left"
    ).with_columns(pl.col("repeats_alone", "runs_alone").fill_null(0))
    for row in both.iter_rows(named=True):
        wanted = max(runs.get(row["cell"], 0), row["runs"])
        if wanted > row["runs_alone"]:
            values = {axis: row[axis] for axis in AXES}
            if values["train_fraction"] > 1:  # a number of points
                values["train_fraction"] = int(values["train_fraction"])
            lines = [f"{axis} = [{toml_value(value)}]" for axis, value in values.items()]
            repeats = max(row["repeats"], row["repeats_alone"])
            more = [f"repeats = {repeats}", f"runs = {wanted}", ""]
            yield "\n".join(["[[grid]]", *lines, *more])
