"""Every file name of a sweep directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UserError


@dataclass(frozen=True, slots=True)
class SweepPaths:
    """The files of one sweep directory; ``docs/design.md`` says what each holds."""

    directory: Path

    @property
    def sweep_file(self) -> Path:
        """The sweep file that the plan was made from."""
        return self.directory / "sweep.toml"

    @property
    def plan(self) -> Path:
        """Cells, immutable parts and recipes."""
        return self.directory / "plan"

    @property
    def cells(self) -> Path:
        """One row a cell."""
        return self.plan / "cells.parquet"

    @property
    def groups(self) -> Path:
        """The layout of each group of the store."""
        return self.plan / "groups.json"

    def part(self, number: int) -> Path:
        """Return one immutable part of the plan: one row a run."""
        return self.plan / f"{number:04d}.parquet"

    def parts(self) -> list[Path]:
        """Return all parts, oldest first."""
        return sorted(self.plan.glob("[0-9][0-9][0-9][0-9].parquet"))

    @property
    def recipes(self) -> Path:
        """How runs were made, one JSON file a recipe."""
        return self.plan / "recipes"

    def tuned(self, search: str) -> Path:
        """Return the file of the hparams that a search found."""
        return self.plan / "tuned" / f"{search}.json"

    @property
    def store(self) -> Path:
        """The predictions."""
        return self.directory / "predictions.zarr"

    @property
    def tasks(self) -> Path:
        """Submissions: task lists, journals, failures, scheduler files."""
        return self.directory / "tasks"

    @property
    def journals(self) -> Path:
        """Finished runs, one file for each training process, until they are published for good."""
        return self.tasks / "journals"

    @property
    def checkpoints(self) -> Path:
        """Long fits in training, one file each, until their run is finished."""
        return self.tasks / "checkpoints"

    @property
    def leases(self) -> Path:
        """Publishing leases of shards."""
        return self.tasks / "leases"

    def submission(self, number: int) -> Path:
        """Return the folder of one submission."""
        return self.tasks / f"{number:04d}"

    def submissions(self) -> list[Path]:
        """Return all submissions' folders, oldest first."""
        return sorted(self.tasks.glob("[0-9][0-9][0-9][0-9]"))

    @property
    def analyses(self) -> Path:
        """Analyses that are jobs, one folder each; the lease of whoever analyses."""
        return self.tasks / "analyses"

    @property
    def lock(self) -> Path:
        """Held by whoever plans or submits."""
        return self.directory / ".lock"

    @property
    def tuning_lock(self) -> Path:
        """Held by whoever searches for hparams."""
        return self.directory / ".tuning.lock"

    @property
    def results(self) -> Path:
        """The result tables."""
        return self.directory / "results"

    @property
    def analysis(self) -> Path:
        """By which conventions, from what and with which versions the result tables were made."""
        return self.results / "analysis.json"

    @property
    def report(self) -> Path:
        """The report's page."""
        return self.directory / "report" / "index.html"

    @property
    def is_sweep(self) -> bool:
        """Whether a plan lies here."""
        return self.cells.is_file() and self.sweep_file.is_file()


def open_sweep(directory: Path) -> SweepPaths:
    """Return the paths of an existing sweep.

    Raises
    ------
    UserError
        When `directory` is not a sweep.
    """
    paths = SweepPaths(directory)
    if not directory.exists():
        raise UserError(
            "there is no such directory",
            file=directory,
            remedy=f"make it with: manyseed plan SWEEP.toml --out {directory}",
        )
    if not paths.is_sweep:
        hint = "a sweep file is planned with: manyseed plan SWEEP.toml --out DIR"
        raise UserError("not a sweep directory", file=directory, remedy=hint)
    return paths
