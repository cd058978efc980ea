"""Every file name of a sweep directory; of submissions, in their room `tasks`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from manyseed.orchestrator.errors import DamagedFile, UserError

JOURNAL, TOMBSTONE, LEASE = ".journal", ".tombstone", ".lease"
"""Endings of names below ``tasks/journals`` and ``tasks/leases``."""

IMPORTED = "import-"
"""How the name of a journal begins that an import writes; its plan part's number follows."""

LEDGER, LEDGER_MARK = "retrained.json", "retrained.given"
"""Among journals: the fits that were trained more than once, and that it was written."""

RECIPE, GIVEN = ".json", ".given"
"""Endings of a recipe's files: what it is, and that its number was given."""

WORKER_KEYS = "keys.json"
"""Keys of dask's workers, in the folder of their jobs while these run."""

METADATA = "zarr.json"
"""What Zarr reads first of a store, of each group and of each array."""

SET_SUMS = "crc32c.json"
"""Beside the chunks of a group's ``test_index``: checksums of its test sets."""

BESIDE = ".manyseed"
"""The folder of an exported store that holds plan and sweep file."""

UNFINISHED, MAKER = ".manyseed-", ".maker"
"""How the name of a directory begins that is being made; in it, the process that makes it."""

NAME_BYTES = 255
"""The most that file systems take for the name of a file or folder."""

_NUMBERED = "[0-9][0-9][0-9][0-9]"


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
        """One row per cell."""
        return self.plan / "cells.parquet"

    @property
    def groups(self) -> Path:
        """The layout of each group of the store."""
        return self.plan / "groups.json"

    @property
    def own(self) -> Path:
        """Where users' own code lay, and what was found out about it."""
        return self.plan / "own.json"

    def code(self, digest: str) -> Path:
        """Return the copy of users' own code of that digest, which tasks import."""
        return self.tasks / "code" / digest.removeprefix("sha256:")[:32]

    def part(self, number: int) -> Path:
        """Return one immutable part of the plan: one row per run."""
        return self.plan / f"{number:04d}.parquet"

    def parts(self) -> list[Path]:
        """Return all parts, oldest first."""
        return sorted(self.plan.glob(f"{_NUMBERED}.parquet"))

    def dropped(self, number: int) -> Path:
        """Return one list of cells that were taken out of the plan."""
        return self.plan / f"dropped-{number:04d}.json"

    def all_dropped(self) -> list[Path]:
        """Return all such lists, oldest first."""
        return sorted(self.plan.glob(f"dropped-{_NUMBERED}.json"))

    def marked_files(self) -> list[Path]:
        """Return the parts and lists of dropped cells that empty files beside them mark."""
        return sorted(mark.with_suffix("") for mark in self.plan.glob(f"*.*{GIVEN}"))

    @property
    def estimate(self) -> Path:
        """What the plan was estimated to cost."""
        return self.plan / "promise.json"

    @property
    def recipes(self) -> Path:
        """How runs were made, one JSON file per recipe."""
        return self.plan / "recipes"

    def tuned(self, search: str) -> Path:
        """Return the file of the hparams that a search found."""
        return self.plan / "tuned" / f"{search}.json"

    def scale(self, search: str) -> Path:
        """Return the file of the scale that a search found."""
        return self.plan / "tuned" / f"{search}.scale.json"

    def all_scales(self) -> list[Path]:
        """Return those of all complete searches for scales."""
        return sorted((self.plan / "tuned").glob("*.scale.json"))

    def all_tuned(self) -> list[Path]:
        """Return the files of all searches that are complete."""
        scales = {*self.all_scales()}
        return sorted({*(self.plan / "tuned").glob("*.json")} - scales)

    def tuning(self, search: str) -> Path:
        """Return the file of the draws of a search that goes on."""
        return self.tasks / "tuning" / f"{search}.jsonl"

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
        """Long fits in training, one file each or more, until their run is finished."""
        return self.tasks / "checkpoints"

    def checkpoint(self, group: int, row: int) -> Path:
        """Return where the fit of one row saves itself."""
        return self.checkpoints / f"{group}-{row}"

    @property
    def leases(self) -> Path:
        """Publishing leases of shards."""
        return self.tasks / "leases"

    def submission(self, number: int) -> Path:
        """Return the folder of one submission."""
        return self.tasks / f"{number:04d}"

    def submissions(self) -> list[Path]:
        """Return all submissions' folders, oldest first."""
        return sorted(self.tasks.glob(_NUMBERED))

    def unfinished_submission(self, name: str) -> Path:
        """Return a folder that becomes a submission's; `name` is its own."""
        return self.tasks / f".submission.partial{name}"

    def unfinished_submissions(self) -> list[Path]:
        """Return all such folders."""
        return list(self.tasks.glob(".submission.partial*"))

    def set_back(self, name: str) -> Path:
        """Return one list of runs that a repair set back to missing."""
        return self.tasks / f"set-back-{name}.json"

    def all_set_back(self) -> list[Path]:
        """Return all such lists."""
        return sorted(self.tasks.glob("set-back-*.json"))

    @property
    def responses(self) -> Path:
        """What kept models answered, one table for each way of asking."""
        return self.directory / "responses"

    def response(self, name: str) -> Path:
        """Return one of these tables."""
        return self.responses / f"{name}.parquet"

    def all_responses(self) -> list[Path]:
        """Return all of them, by name."""
        return sorted(self.responses.glob("[!.]*.parquet"))

    def responding(self, name: str) -> Path:
        """Return the file of answers to one way of asking that goes on."""
        return self.tasks / "responding" / f"{name}.jsonl"

    @property
    def analyses(self) -> Path:
        """Analyses that are jobs, one folder each; the lease of whoever analyses."""
        return self.tasks / "analyses"

    def analysis_job(self, number: int) -> Path:
        """Return the folder of one analysis that is a job."""
        return self.analyses / f"{number:04d}"

    def analysis_jobs(self) -> list[Path]:
        """Return all analyses' folders, oldest first."""
        return sorted(self.analyses.glob(_NUMBERED))

    @property
    def lock(self) -> Path:
        """Held by whoever plans or submits."""
        return self.directory / ".lock"

    @property
    def tuning_lock(self) -> Path:
        """Held by whoever searches for hparams."""
        return self.directory / ".tuning.lock"

    @property
    def responding_lock(self) -> Path:
        """Held by whoever asks kept models."""
        return self.directory / ".responding.lock"

    @property
    def results(self) -> Path:
        """The result tables."""
        return self.directory / "results"

    @property
    def analysis(self) -> Path:
        """By which conventions, from what and with which versions the result tables were made."""
        return self.results / "analysis.json"

    def table(self, name: str) -> Path:
        """Return the file of a result table."""
        return self.results / f"{name}.parquet"

    @property
    def ensembles_mark(self) -> Path:
        """The empty file that shows that ensembles were drawn, so that their loss shows."""
        return self.results / f"ensembles{GIVEN}"

    @property
    def compared(self) -> Path:
        """Which versions of shards were compared with their checksums."""
        return self.results / "checked.json"

    @property
    def until(self) -> Path:
        """Which cells have enough runs, and for what."""
        return self.results / "until.json"

    @property
    def report(self) -> Path:
        """The report's page."""
        return self.directory / "report" / "index.html"

    @property
    def is_sweep(self) -> bool:
        """Whether a plan lies here."""
        return self.cells.is_file() and self.sweep_file.is_file()


def recipe_file(folder: Path, number: int) -> Path:
    """Return the file of a recipe in its folder."""
    return folder / f"{number:04d}{RECIPE}"


def recipe_mark(folder: Path, number: int) -> Path:
    """Return the empty file that marks a recipe's number as given, for good."""
    return folder / f"{number:04d}{GIVEN}"


def open_sweep(directory: Path) -> SweepPaths:
    """Return the paths of an existing sweep.

    Raises
    ------
    UserError
        When `directory` is not a sweep.
    DamagedFile
        Where it is one, without its cells.
    """
    paths = SweepPaths(directory)
    if not directory.exists():
        raise UserError(
            "there is no such directory",
            file=directory,
            remedy=f"make it with: manyseed plan SWEEP.toml --out {directory}",
        )
    if not paths.is_sweep and paths.parts():
        raise DamagedFile(paths.cells, "is absent, though parts of the plan are there")
    if not paths.is_sweep:
        hint = "a sweep file is planned with: manyseed plan SWEEP.toml --out DIR"
        raise UserError("not a sweep directory", file=directory, remedy=hint)
    return paths


def encode_name(name: str) -> str:
    """Percent-encode a name to one that any file system and zarr accept as a folder.

    Raises
    ------
    ValueError
        Where that is empty, or longer than names of files are.
    """
    if not name:
        raise ValueError("a dataset or classifier needs a name")
    encoded = quote(name, safe="")
    if encoded[0] in "._" or encoded == METADATA:
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) > NAME_BYTES:
        raise ValueError(
            f"percent-encoded, as the store names its folders, it takes {len(encoded)} bytes; "
            f"{NAME_BYTES} are the most"
        )
    return encoded
